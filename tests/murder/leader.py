"""A command's shell: leads the terminal's session, has the command in the foreground, reports how it ended.

It stays until the terminal is closed: had it ended, the kernel would hang up on all that the command has left.
"""

import os
import signal
import sys

LEADER = __file__
ENDED = b"=== ended: %d ==="


def lead(words: "list[str]") -> None:
    """Run *words* in the foreground, report how they ended, and stay."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execvp(words[0], words)
    _, status = os.waitpid(child, 0)
    os.tcsetpgrp(0, os.getpgrp())
    os.write(1, b"\r\n" + ENDED % status + b"\r\n")
    while True:
        signal.pause()


if __name__ == "__main__":
    lead(sys.argv[1:])
