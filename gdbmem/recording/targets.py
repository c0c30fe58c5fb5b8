"""The targets of a monitor: by pid, name, user or cgroup, a started program, or those of an earlier run."""

from __future__ import annotations

import contextlib
import pwd
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import InputError, TargetError
from gdbmem.linux.process import process
from gdbmem.linux.process.process import program_name, words_of
from gdbmem.recording.watched_program import WatchedProgram
from gdbmem.runs.run import Run
from gdbmem.text import printable


class WatchTarget(NamedTuple):
    """The watched processes: how to find them, their title, and the words that find them again."""

    find: Callable[[], set[int]]
    name: str
    words: dict[str, object]
    may_return: bool  # more of its kind may start after all have ended


class Wanted(NamedTuple):
    """The target as named by the user: one of these."""

    pids: Sequence[int] = ()
    name: Optional[re.Pattern[str]] = None  # of names and command lines
    user: Optional[str] = None
    cgroup: Optional[str] = None  # its folder


def find_target(wanted: Wanted) -> WatchTarget:
    """Return the target *wanted*; raises TargetError or InputError if there is none."""
    if wanted.name is not None:
        return _named(wanted.name)
    if wanted.user is not None:
        return _user(wanted.user)
    if wanted.cgroup is not None:
        return _cgroup(wanted.cgroup)
    return _pids(dict.fromkeys(wanted.pids))


def _named(pattern: re.Pattern[str]) -> WatchTarget:
    return WatchTarget(
        lambda: process.by_name(pattern), pattern.pattern, {"name": pattern.pattern}, may_return=True
    )


def _pids(wanted: Mapping[int, Optional[int]]) -> WatchTarget:
    """Watch the *wanted* processes: pid → start ticks, None for the current process of that pid."""
    born = {}
    for pid, ticks in wanted.items():
        stat = process.stat_of(pid)
        if stat is None or (ticks is not None and stat.start_ticks != ticks):
            if ticks is not None:
                continue
            hint = (
                "with hidepid only root sees others' processes" if process.proc_is_hidden() else "see ps -e"
            )
            raise TargetError(f"there is no process {pid}", slug="no-such-process", hint=hint)
        born[pid] = (stat.start_ticks, program_name(stat.name, words_of(pid)))
    if not born:
        raise TargetError(
            "the processes of this run have ended", slug="no-such-process", hint="start a new run"
        )

    def find() -> set[int]:
        # The pid alone is not an identity: it is reused.
        return {p for p, (ticks, _) in born.items() if (s := process.stat_of(p)) and s.start_ticks == ticks}

    name = next(iter(born.values()))[1] + (f" and {len(born) - 1} more" if len(born) > 1 else "")
    return WatchTarget(
        find, name, {"pids": {str(pid): ticks for pid, (ticks, _) in born.items()}}, may_return=False
    )


def _user(name: str) -> WatchTarget:
    try:
        uid = int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InputError(
            f"there is no user '{printable(name)}'", slug="no-such-user", hint="see getent passwd"
        ) from None
    return WatchTarget(lambda: process.by_user(uid), f"user {name}", {"user": name}, may_return=True)


def _cgroup(path: str) -> WatchTarget:
    folder = Path(path)
    try:
        process.by_cgroup(folder)
    except OSError as error:
        raise InputError(
            f"{printable(path)} is not a cgroup that can be read: {error.strerror}",
            slug="no-such-cgroup",
            hint="name its folder, as in /sys/fs/cgroup/system.slice/NAME.service",
        ) from None

    def find() -> set[int]:
        with contextlib.suppress(OSError):
            return process.by_cgroup(folder)
        return set()

    return WatchTarget(
        find, f"cgroup {folder.name or path}", {"cgroup": str(folder.resolve())}, may_return=True
    )


def target_of_program(program: WatchedProgram) -> WatchTarget:
    """Watch a program started by the monitor."""
    stat = process.stat_of(program.pid)
    ticks = stat.start_ticks if stat else 0
    name = Path(program.words[0]).name

    def find() -> set[int]:
        return {program.pid} if program.poll() is None else set()

    return WatchTarget(
        find, name, {"pids": {str(program.pid): ticks}, "program": program.words}, may_return=False
    )


def find_again(run: Run) -> WatchTarget:
    """Return the target of *run*; raises InputError if it is not a run of a monitor."""
    words = run.facts.get("monitor")
    if not isinstance(words, dict):
        raise InputError(
            f"{printable(run.folder.name)} is not a run of a monitor",
            slug="no-series",
            hint="name one that 'gdbmem monitor' made",
        )
    if "name" in words:
        return _named(re.compile(words["name"]))
    if "user" in words:
        return _user(words["user"])
    if "cgroup" in words:
        return _cgroup(words["cgroup"])
    return _pids({int(pid): ticks for pid, ticks in words["pids"].items()})
