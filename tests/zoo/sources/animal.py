"""An animal in Python: it reports as those in C do (report.h)."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import struct
import sys
import threading
import time

LATER = 5
READY, PID, TICKS, SIGNALS, LAST, BLOCKED, ORDER = 0, 1, 2, 3, 4, 8, 10


def go_on() -> None:
    """Load a library, fork and start a thread, as animal.c does."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL("libm.so.6")
    child = os.fork()
    if child == 0:
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("the child has failed")
    signal.signal(signal.SIGCHLD, before)
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def main() -> int:
    with open(os.environ["ZOO_REPORT"], "r+b") as file:  # noqa: PTH123
        page = mmap.mmap(file.fileno(), 4096)

    def write(word: int, value: int) -> None:
        struct.pack_into("<Q", page, word * 8, value)

    def count(number: int, _: object) -> None:
        write(SIGNALS, struct.unpack_from("<Q", page, SIGNALS * 8)[0] + 1)
        write(LAST, number)

    for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGCONT):
        signal.signal(number, count)
    kept = [bytearray(1000) for _ in range(5000)]
    write(PID, os.getpid())
    write(BLOCKED, sum(1 << number - 1 for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    write(READY, 1)
    ticks = 0
    while struct.unpack_from("<Q", page, ORDER * 8)[0] != 1:
        ticks += 1
        kept[ticks % len(kept)][0] = 1
        write(TICKS, ticks)
        if struct.unpack_from("<Q", page, ORDER * 8)[0] == LATER:
            go_on()
            write(ORDER, 0)
        time.sleep(0.01)
    return 7


if __name__ == "__main__":
    sys.exit(main())
