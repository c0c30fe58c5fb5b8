"""Lists of processes: by name, by user, by cgroup, by parent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from gdbmem.linux.memory.process_memory import random_bytes
from gdbmem.linux.monitoring.sampling import ProcessFiles, ProcessGone, Stat, parse_stat
from gdbmem.linux.process.process import status_fields


def pids() -> list[int]:
    """Return every pid in /proc (with hidepid: only those of this user)."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def stat_of(pid: int) -> Optional[Stat]:
    """Return the stat of *pid*; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stream:  # noqa: PTH123  (hot path)
            return parse_stat(stream.read(4096))
    except (OSError, ValueError):
        return None


def by_name(pattern: re.Pattern[str]) -> set[int]:
    """Return the processes whose name or command line matches, excluding this one.

    For ancestors of this one only the name counts: the command line of sudo contains the pattern itself.
    """
    ours = _ancestors()
    found = set()
    for pid in pids():
        if pid == os.getpid():
            continue
        stat = stat_of(pid)
        if stat is None:
            continue
        if pattern.search(stat.name) or (pid not in ours and pattern.search(_command(pid))):
            found.add(pid)
    return found


def _ancestors() -> set[int]:
    """Return the processes above this one."""
    found: set[int] = set()
    pid = os.getppid()
    while pid and pid not in found:  # 0 is the parent of the first one, and of one from another namespace
        found.add(pid)
        stat = stat_of(pid)
        pid = stat.parent if stat is not None else 0
    return found


def by_user(uid: int) -> set[int]:
    """Return the processes of the user *uid* that have their own memory, excluding this one."""
    found = set()
    for pid in pids():
        try:
            if pid != os.getpid() and os.stat(f"/proc/{pid}").st_uid == uid and _command(pid):  # noqa: PTH116
                found.add(pid)
        except OSError:
            continue
    return found


def by_cgroup(folder: Path) -> set[int]:
    """Return the processes in the cgroup *folder* and in those below it; raises OSError."""
    found = {int(word) for word in (folder / "cgroup.procs").read_text().split()}
    for below in folder.rglob("cgroup.procs"):
        try:
            found |= {int(word) for word in below.read_text().split()}
        except OSError:
            continue  # removed meanwhile, or a threaded one
    return found


def parents() -> dict[int, int]:
    """Return pid → parent of every process."""
    return {pid: stat.parent for pid in pids() if (stat := stat_of(pid)) is not None}


def descendants(roots: set[int], parent_of: dict[int, int]) -> Iterator[int]:
    """Yield the descendants of *roots*."""
    children: dict[int, list[int]] = {}
    for pid, parent in parent_of.items():
        children.setdefault(parent, []).append(pid)
    todo = list(roots)
    seen = set(roots)
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in seen:
                seen.add(child)
                todo.append(child)
                yield child


def proc_is_hidden() -> bool:
    """Return whether /proc is mounted so that other users' processes are hidden (hidepid)."""
    return stat_of(1) is None


def _command(pid: int) -> str:
    try:
        files = ProcessFiles(pid)
    except ProcessGone:
        return ""
    try:
        return files.command()
    except (ProcessGone, OSError):
        return ""
    finally:
        files.close()


# Processes that a fork has made and that run the same program since.


_START_CODE, _START_STACK = 25, 27  # fields of /proc/PID/stat, counted from 0


def forked_from(pid: int) -> Optional[int]:
    """Return the parent of *pid* if it runs the same program in the same memory since a fork; else None."""
    parent = int(status_fields(pid, pid).get("PPid", "0"))
    return parent if parent > 1 and runs_same_program(parent, pid) else None


def runs_same_program(parent: int, child: int) -> Optional[bool]:
    """Return whether neither *parent* nor *child* has executed a program since the fork; None if this is unknown.

    A process that did has nothing of its parent's memory, even if its mappings are at the same addresses. Each exec
    gets other random bytes.
    """
    for identity in (random_bytes, _places):
        ours, theirs = identity(parent), identity(child)
        if ours and theirs:
            return ours == theirs
    return None


def _places(pid: int) -> Optional[tuple[int, ...]]:
    """Return the places of program and stack, which the kernel chooses at each exec, and the file; None: unknown.

    They are 0 for a process that may not be traced, and may be equal where addresses are not randomised.
    Source: Linux, Documentation/filesystems/proc.rst.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        file = os.stat(f"/proc/{pid}/exe")  # noqa: PTH116
    except OSError:
        return None
    # The name, in parentheses, may have any characters.
    fields = [b"", b"", *text.rpartition(b")")[2].split()]
    places = tuple(int(fields[number]) for number in (_START_CODE, _START_STACK))
    return (*places, file.st_dev, file.st_ino) if all(places) else None
