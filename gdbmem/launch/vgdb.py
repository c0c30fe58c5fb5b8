"""A running valgrind: its tool, how vgdb reaches it, and what ends it if the launcher is killed."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import TargetError, ToolError
from gdbmem.launch.child import Child
from gdbmem.launch.valgrind import executable, find_valgrind, vgdb_command
from gdbmem.linux.memory.maps import maps_text
from gdbmem.linux.process.process import ended, has_ended, memory_folder, own_tid
from gdbmem.text import printable

_TOOL = re.compile(r"/([a-z]+)-(?:amd64|x86|arm64|arm|ppc64\w*|s390x|mips\w*|riscv64)-\w+$")
# Valgrind keeps the memory that it shares with vgdb mapped: its name contains all that vgdb needs.
_SHARED = re.compile(rb" (/[^\n]*)-shared-mem-vgdb-(\d+)-by-([^\n]*)-on-([^\n]*?)(?: \(deleted\))?\n")
_SECONDS = 120.0  # a program of many gigabytes takes its time
_PAUSE_SECONDS = 1.0  # between two checks whether valgrind still lives


class RunningValgrind(NamedTuple):
    """A program under a valgrind that gdbmem has not started."""

    pid: int
    tool: str  # massif, memcheck, …
    prefix: str  # of its FIFOs
    user: str  # as it sees them; they are part of the names
    host: str
    owner: Optional[tuple[int, int]] = None  # user and group of the valgrind, if another user's

    def words(self, *command: str) -> list[str]:
        """Return the command line that connects gdb to it, or runs the monitor command *command*."""
        names = (self.user, self.host)
        # valgrind answers only a vgdb that it may signal, which excludes root's.
        become = []
        if self.owner is not None and os.getuid() == 0:
            uid, gid = self.owner
            become = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
        return [*become, *vgdb_command(find_valgrind().vgdb, self.prefix, self.pid, names, command)]

    def ask(self, *command: str) -> str:
        """Run a monitor command and return its output. Raises ToolError if it can't be reached."""
        with subprocess.Popen(
            self.words(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as vgdb:
            try:
                output, messages = self._answer(vgdb)
            except BaseException:
                vgdb.kill()
                raise
        said = os.fsdecode(output).strip()
        if vgdb.returncode != 0:
            complaint = os.fsdecode(messages).strip().splitlines()
            raise _unreachable(self.pid, complaint)
        return said

    def _answer(self, vgdb: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        """Return the output of *vgdb*, which waits forever if valgrind has been killed."""
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            is_last = has_ended(self.pid)
            try:
                return vgdb.communicate(timeout=_PAUSE_SECONDS)
            except subprocess.TimeoutExpired:
                if is_last:
                    raise ended(self.pid) from None
        raise ToolError(
            f"valgrind (process {self.pid}) did not answer within {_SECONDS:.0f} s",
            slug="vgdb-failed",
            hint="is the program stopped in another gdb?",
        )


def find_running(pid: int) -> Optional[RunningValgrind]:
    """Return the valgrind of process *pid*; None if it is not a valgrind. Raises TargetError for one without vgdb."""
    found = _TOOL.search(executable(pid))
    if found is None:
        return None
    try:
        maps = maps_text(pid)
    except OSError:
        maps = b""
    if b"/valgrind" not in maps and "valgrind" not in executable(pid):
        return None
    found_shared = list(_SHARED.finditer(maps))
    shared = next((match for match in found_shared if int(match[2]) == pid), None)
    if shared is None and found_shared and own_tid(pid) == int(found_shared[0][2]) != pid:
        raise TargetError(
            f"process {pid} runs under valgrind's {found[1]} in another PID namespace (a container), where vgdb would"
            " have to run",
            slug="process-elsewhere",
            hint="type this inside the container",
        )
    if shared is None:
        raise _without_gdbserver(pid, found[1])
    prefix, user, host = (os.fsdecode(shared[number]) for number in (1, 3, 4))
    return RunningValgrind(pid, found[1], prefix, user, host, _owner(pid))


def _without_gdbserver(pid: int, tool: str) -> TargetError:
    # A forked child has the same command line, but its own FIFOs only if valgrind follows children.
    if _was_told(pid, b"--vgdb=no"):
        return TargetError(
            f"process {pid} runs under valgrind's {tool} without its gdbserver (--vgdb=no)",
            slug="no-vgdb",
            hint="start it with --vgdb=yes, or by 'gdbmem launch'",
        )
    return TargetError(
        f"process {pid} was forked by a program under valgrind's {tool}, which starts no gdbserver for forked children",
        slug="no-vgdb",
        hint="launch the program with --trace-children",
    )


def _was_told(pid: int, option: bytes) -> bool:
    """Return whether *option* is on the command line of the valgrind *pid*, or in its environment."""
    for file in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            for word in Path(f"{memory_folder(pid)}/{file}").read_bytes().split(b"\0"):
                if word == option or (word.startswith(b"VALGRIND_OPTS=") and option in word):
                    return True
    return False


def _owner(pid: int) -> Optional[tuple[int, int]]:
    try:
        facts = Path(f"/proc/{pid}").stat()
    except OSError:
        return None
    return (facts.st_uid, facts.st_gid) if facts.st_uid != os.getuid() else None


def _unreachable(pid: int, complaint: Sequence[str]) -> ToolError:
    text = " ".join(complaint)
    if "annot acquire lock" in text or "already" in text:
        return ToolError(
            f"a gdb is connected to process {pid} already, and valgrind's gdbserver accepts only one",
            slug="vgdb-busy",
            hint="type 'memsnap' in that gdb, or leave it",
        )
    last = complaint[-1] if complaint else "it reported no reason"
    return ToolError(
        f"vgdb could not reach process {pid}: {printable(last)}",
        slug="vgdb-failed",
        hint="its FIFOs must still exist and belong to this user",
    )


# Ending vgdbs that a launch has left: a vgdb that opens the FIFO of a dead valgrind waits forever.
#
# The launcher imports this; its sentinel runs it as a script, with the runtime folder as its argument.


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


# Cleaning up after a launcher that was killed.


# A valgrind to which no gdb has connected yet blocks SIGTERM and waits forever; a program may ignore it.
# Each line read is "GROUP SIGNAL", the process group to end and the first signal, or "folder" and the path to remove.
_SCRIPT = """
while read -r group signal; do
  if [ "$group" = folder ]; then folder=$signal; else target=$group; first=$signal; fi
done
[ "$target" = done ] && exit 0
if [ -n "$target" ]; then
  tries=0
  while kill -s "$first" -- "-$target" && [ $tries -lt 30 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -s KILL -- "-$target"
fi
if [ -n "$folder" ]; then
  "$1" -I "$2" "$folder"
  rm -rf -- "$folder"
fi
"""


class Sentinel:
    """A shell that detects any end of this process by the closing of a pipe."""

    def __init__(self) -> None:
        """Start watching."""
        self._folder: Optional[Path] = None
        end, self._pipe = os.pipe()
        try:
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                self._child = Child(
                    ["/bin/sh", "-c", _SCRIPT, "gdbmem-sentinel", sys.executable, __file__],
                    folder="/",
                    stdin=end,
                    stdout=null,
                    stderr=null,
                    dies_with_us=None,
                )
            finally:
                os.close(null)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(end)

    def __enter__(self) -> Sentinel:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def remove(self, folder: Path) -> None:
        """Remove *folder*, whose path has no spaces and which need not exist yet, if this process is killed."""
        self._folder = folder
        self._tell(f"folder {folder}")

    def guard(self, group: int, *, reached: bool) -> None:
        """End process group *group* if this process is killed, with SIGTERM first if gdb has *reached* it."""
        self._tell(f"{group} {'TERM' if reached else 'KILL'}")

    def dismiss(self) -> None:
        """There is nothing left to clean up."""
        if self._folder is not None:
            end_left(str(self._folder))
        self._tell("done")
        os.close(self._pipe)
        self._child.wait(5.0)

    def _tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, f"{line}\n".encode())


if __name__ == "__main__":
    end_left(sys.argv[1])
