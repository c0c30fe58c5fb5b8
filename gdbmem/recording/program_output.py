"""Copies a program's output and reports matching lines, in a separate process, which survives the monitor.

Run as a script: REGEX DESCRIPTOR. Standard input is the program's output, standard output the user's, DESCRIPTOR the
pipe to the monitor. Each report is a line "SECONDS TEXT", the seconds being CLOCK_BOOTTIME's.
"""

from __future__ import annotations

import os
import re
import sys
import time

_LONGEST_MARK = 200  # characters
_LONGEST_LINE = 1 << 16  # bytes of a line that are searched


def main() -> None:
    """Copy until the program, and its children, have closed the output."""
    pattern = re.compile(sys.argv[1])
    reports: int | None = int(sys.argv[2])
    os.set_blocking(int(sys.argv[2]), False)
    rest = b""
    while data := os.read(0, 1 << 16):
        if not _copy(data):
            break
        *lines, rest = (rest + data).split(b"\n")
        if reports is not None:
            reports = _report(lines, pattern, reports)
        rest = rest[:_LONGEST_LINE]
    if rest and reports is not None:
        _report([rest], pattern, reports)


def _copy(data: bytes) -> bool:
    """Write *data*; return False when the reader has closed it, which the program then has to notice itself."""
    while data:
        try:
            data = data[os.write(1, data) :]
        except BrokenPipeError:
            return False
        except BlockingIOError:
            time.sleep(0.01)  # another program has made the terminal non-blocking
        except OSError:
            return True  # a terminal that was hung up, a full disk: the program continues
    return True


def _report(lines: list[bytes], pattern: re.Pattern[str], reports: int) -> int | None:
    """Write the *lines* that match to *reports*; return None when its reader has closed it."""
    for line in lines:
        text = line.decode(errors="backslashreplace").rstrip("\r")
        if pattern.search(text):
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            try:
                os.write(reports, f"{now:.6f} {text[:_LONGEST_MARK]}\n".encode(errors="backslashreplace"))
            except BlockingIOError:
                continue  # the monitor is stopped: the program must not block
            except OSError:
                os.close(reports)
                return None
    return reports


if __name__ == "__main__":
    main()
