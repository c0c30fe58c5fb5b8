"""Ending vgdbs that a launch has left: a vgdb that opens the FIFO of a dead valgrind waits forever.

The launcher imports this; its sentinel runs it as a script, with the runtime folder as its argument.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

_GENTLE_SECONDS = 1.0  # it releases a valgrind that it holds


def end_left(folder: str) -> int:
    """End each vgdb of the launch with the runtime folder *folder*; return how many there were."""
    found: list[int] = []
    if not hasattr(os, "pidfd_open"):  # a Python built for Linux before 5.3
        return 0
    for name in os.listdir("/proc"):  # noqa: PTH208  (quick)
        # A pidfd, so that another process that gets its number is never signalled.
        with contextlib.suppress(OSError):
            if name.isdigit() and _is_vgdb(name):
                found.append(os.pidfd_open(int(name)))
                if not _is_ours(name, os.fsencode(folder)):
                    os.close(found.pop())
    for number, seconds in ((signal.SIGTERM, _GENTLE_SECONDS), (signal.SIGKILL, _GENTLE_SECONDS)):
        for process in found:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(process, number)
        deadline = time.monotonic() + seconds
        if all(select.select([one], [], [], max(0, deadline - time.monotonic()))[0] for one in found):
            break
    for process in found:
        os.close(process)
    return len(found)


def _is_vgdb(name: str) -> bool:
    return Path(f"/proc/{name}/comm").read_bytes() == b"vgdb\n"


def _is_ours(name: str, folder: bytes) -> bool:
    """Return whether *name* has the launch's FIFOs on its command line, or its socket in its environment."""
    marks = (b"--vgdb-prefix=" + folder + b"/", b"GDBMEM_SESSION=" + folder + b"/")
    for part in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            if any(word.startswith(marks) for word in Path(f"/proc/{name}/{part}").read_bytes().split(b"\0")):
                return _is_vgdb(name)
    return False


if __name__ == "__main__":
    end_left(sys.argv[1])
