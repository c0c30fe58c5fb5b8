"""Restoring the terminal modes when the process that changed them is killed.

A shell survives it: it waits for its end, and that of a gdb that also uses the terminal, and then sets the modes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import termios
from typing import Any, Optional

# $1: the modes to restore. Each line read is "gdb PID", whose end is awaited too, or "ours MODES": only from these
# modes are they restored, as a shell that reads lines itself has set its own by then.
_SCRIPT = """
exec 3<&1
while read -r word value; do
  case $word in gdb) gdb=$value;; ours) ours=$value;; end) exit;; esac
done
tries=0
while [ -n "$gdb" ] && kill -s 0 "$gdb" && [ $tries -lt 600 ]; do sleep 0.1; tries=$((tries + 1)); done
now=$(stty -g <&3) && [ "$now" != "$1" ] && [ "${ours:-$now}" = "$now" ] && stty "$1" <&3
"""


class TerminalModes:
    """The modes of a terminal: restore() restores them, or a shell if this process is killed."""

    def __init__(self, descriptor: int) -> None:
        """Save those of *descriptor*. Raises OSError, or termios.error if it is not a terminal."""
        self._descriptor = descriptor
        self.before: list[Any] = termios.tcgetattr(descriptor)
        end, self._pipe = os.pipe()
        try:
            self._keeper: Optional[subprocess.Popen[bytes]] = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "gdbmem-terminal", as_stty(self.before)],
                cwd="/", stdin=end, stdout=descriptor, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError:
            self._keeper = None
        finally:
            os.close(end)

    def await_gdb(self, pid: int) -> None:
        """Delay restoring until process *pid*, which also sets modes, has ended."""
        self._tell(f"gdb {pid}")

    def note_ours(self) -> None:
        """Restore the modes only if they are still the current ones."""
        self._tell(f"ours {as_stty(termios.tcgetattr(self._descriptor))}")

    def restore(self) -> None:
        """Restore them."""
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self.before)

    def close(self) -> None:
        """End the shell without restoring the modes."""
        self._tell("end")
        os.close(self._pipe)
        if self._keeper is not None:
            self._keeper.wait()

    def _tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, f"{line}\n".encode())


def as_stty(modes: list[Any]) -> str:
    """Return *modes* as `stty -g` prints them."""
    characters = [value if isinstance(value, int) else ord(value) for value in modes[6]]
    return ":".join(f"{value:x}" for value in [*modes[:4], *characters])
