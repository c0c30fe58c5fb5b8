"""Conditions on a monitor's samples, with actions when one becomes true: once, until it was false again."""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import InputError, MissingToolError
from gdbmem.inspection.interpreters import module_words
from gdbmem.linux.monitoring.tree import Look
from gdbmem.linux.process.process import memory_folder
from gdbmem.model.series import TREE, FiredTrigger, Mark, ProcessSample, SeriesLine
from gdbmem.runs.run import Run
from gdbmem.setup.gdb_python import find_gdb, quiet_gdb
from gdbmem.text import format_size, parse_size, printable

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
# The field of a reading for each word, and whether it is the tree's; otherwise that of the largest process.
_METRICS = {
    "rss": ("rss_bytes", False),
    "pss": ("pss_bytes", True),
    "uss": ("uss_bytes", False),
    "swap": ("swap_bytes", True),
    "cgroup": ("cgroup_bytes", True),
    "threads": ("threads", True),
    "files": ("open_files", True),
}
_COUNTED = ("threads", "files")
_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*(\S.*?)\s*")
_JUDGE_EVERY_SECONDS, _JUDGE_BUDGET = 10.0, 0.01  # of a CPU
_LAST_WAIT_SECONDS = 30.0  # for actions in progress when the recording ends


class Condition(NamedTuple):
    """A condition on a metric; `growing` has no metric."""

    text: str
    metric: str
    comparison: str = ""
    limit: float = 0.0

    def holds(self, value: float) -> bool:
        """Return whether *value* of the metric meets it."""
        return _COMPARISONS[self.comparison](value, self.limit)


def parse_condition(text: str) -> Condition:
    """Read ``rss > 2GiB``, ``threads >= 100`` or ``growing``; raises InputError."""
    if text.strip() == "growing":
        return Condition("growing", "growing")
    found = _CONDITION.fullmatch(text)
    if found is None or found[1] not in _METRICS:
        raise InputError(
            f"'{printable(text)}' is not a condition",
            slug="bad-condition",
            hint=f"'growing', or one of {', '.join(_METRICS)} with a comparison, as in 'rss > 2GiB'",
        )
    if found[1] in _COUNTED:
        if not found[3].isdigit():
            raise InputError(
                f"'{printable(found[3])}' is not a number",
                slug="bad-condition",
                hint=f"as in '{found[1]} > 100'",
            )
        limit = float(found[3])
    else:
        limit = float(parse_size(found[3]))
    return Condition(" ".join(found.groups()), found[1], found[2], limit)


class Triggers:
    """Checks the samples, and starts the actions in separate processes."""

    def __init__(
        self,
        run: Run,
        wanted: Sequence[tuple[Condition, str]],
        *,
        judge: Callable[[], bool],
        note: Callable[[str], None],
        mark: Callable[[Mark], object],
        cgroup_usage: Callable[[], Optional[int]],
    ) -> None:
        """Check each condition *wanted* and run its action; *judge* decides whether memory grows.

        *cgroup_usage* returns that of now: most samples lack it.
        """
        self._run = run
        self._wanted = wanted
        self._judge, self._note, self._mark, self._cgroup_usage = judge, note, mark, cgroup_usage
        self._held = [False] * len(wanted)
        self._lines: dict[int, SeriesLine] = {}
        # One after the other: each stops the process, or copies it, which only one can do at a time.
        self._waiting: list[FiredTrigger] = []
        self._running: Optional[tuple[subprocess.Popen[bytes], FiredTrigger]] = None
        self._next_judgement = _JUDGE_EVERY_SECONDS
        self._fired: list[FiredTrigger] = []

    def see(self, look: Look) -> None:
        """Check the sample *look*, and start the triggered actions."""
        self._lines.update((line.number, line) for line in look.changed_lines)
        readings = dict(look.readings)
        for number, (condition, action) in enumerate(self._wanted):
            found = self._found(condition, look.t, readings)
            if found is None:
                continue
            holds, pid, value = found
            if holds and not self._held[number] and pid is not None:
                if self._is_pending(condition, action):
                    self._note(f"{condition.text}: {value} again, before the last {action} for it is done")
                else:
                    self._fire(condition, action, look.t, pid, value)
            self._held[number] = holds
        self._go_on()

    def _is_pending(self, condition: Condition, action: str) -> bool:
        """Return whether *action* is still to be done for an earlier time: actions must not pile up."""
        pending = [*self._waiting, *([self._running[1]] if self._running is not None else [])]
        return (condition.text, action) in [(fired["when"], fired["do"]) for fired in pending]

    def _found(
        self, condition: Condition, t: float, readings: Mapping[int, ProcessSample]
    ) -> Optional[tuple[bool, Optional[int], str]]:
        """Return whether *condition* holds, for which process, and the value; None if unknown now."""
        sizes = {n: r.rss_bytes for n, r in readings.items() if n != TREE and r.rss_bytes is not None}
        largest = max(sizes, key=sizes.__getitem__, default=None)
        if condition.metric == "growing":
            if t < self._next_judgement:
                return None
            began = time.thread_time()
            holds = self._judge()
            self._next_judgement = t + max(_JUDGE_EVERY_SECONDS, (time.thread_time() - began) / _JUDGE_BUDGET)
            return holds, self._pid(largest), "it grows"
        if condition.metric == "cgroup":
            usage = self._cgroup_usage()
            readings = {**readings, TREE: ProcessSample(cgroup_bytes=usage)}
        field, is_trees = _METRICS[condition.metric]
        lines = [TREE] if is_trees else [number for number in readings if number != TREE]
        values = {n: v for n in lines if n in readings and (v := getattr(readings[n], field)) is not None}
        if not values:
            return None
        line = max(values, key=values.__getitem__)
        value = values[line]
        shown = str(value) if condition.metric in _COUNTED else format_size(value)
        return (
            condition.holds(value),
            self._pid(largest if line == TREE else line),
            f"{condition.metric} is {shown}",
        )

    def _pid(self, line: Optional[int]) -> Optional[int]:
        return self._lines[line].pid if line in self._lines else None

    def _fire(self, condition: Condition, action: str, t: float, pid: int, value: str) -> None:
        name = f"triggers/{len(self._fired) + 1:04d}"
        text = f"{condition.text}: {value}"
        fired: FiredTrigger = {
            "t": t, "when": condition.text, "value": value, "do": action, "pid": pid, "folder": name, "failed": False
        }  # fmt: skip
        self._fired.append(fired)
        try:
            (self._run.place / name).mkdir(parents=True, mode=0o700)
            self._run.update(triggers=self._fired)
            self._mark(Mark(t, text))
        except (OSError, InputError) as error:
            self._note(f"{text}, but {action} can't be done: {error}")
            return
        self._waiting.append(fired)
        self._note(f"{text} ({action} of process {pid} goes to {name})")

    def _start(self, fired: FiredTrigger) -> None:
        folder = self._run.folder / fired["folder"]
        script = [sys.executable, *module_words("gdbmem.recording.triggers")]
        words = [fired["do"], str(fired["pid"]), str(self._run.folder), str(folder)]
        try:
            if (
                not self._run.held.is_in_place
            ):  # the action is another process, which knows the folder by its name
                raise self._run.unwritable(OSError(errno.ESTALE, os.strerror(errno.ESTALE)))
            with (self._run.place / fired["folder"] / "errors").open("wb") as said:
                process = subprocess.Popen(
                    [*script, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                )
        except (OSError, InputError) as error:
            self._note(f"{fired['do']} of process {fired['pid']} can't be done: {error}")
            self._has_failed(fired)
            return
        self._running = (process, fired)

    def _go_on(self) -> None:
        """Start the next action, if none is in progress."""
        if self._running is not None and self._running[0].poll() is not None:
            process, fired = self._running
            self._running = None
            errors = self._run.place / fired["folder"] / "errors"
            with contextlib.suppress(OSError):
                if not errors.stat().st_size:
                    errors.unlink()
            if process.returncode:
                self._has_failed(fired)
        while self._running is None and self._waiting:
            self._start(self._waiting.pop(0))

    def _has_failed(self, fired: FiredTrigger) -> None:
        fired["failed"] = True
        with contextlib.suppress(OSError, InputError):
            self._run.update(triggers=self._fired)

    def close(self) -> None:
        """Wait for actions in progress; one that takes too long ends by itself later."""
        deadline = time.monotonic() + _LAST_WAIT_SECONDS
        while self._running is not None and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running[0].wait(max(deadline - time.monotonic(), 0.0))
            self._go_on()
        for fired in self._waiting:
            with contextlib.suppress(OSError):
                errors = self._run.place / fired["folder"] / "errors"
                errors.write_text("the recording ended before this action started\n")
            self._has_failed(fired)


# An action, as a process of its own that runs this module: ACTION PID RUN FOLDER.
#
# Each step has a file in FOLDER, and a second file with its standard error unless that is empty. A step that fails or
# hangs does not affect the others.


_MOST_SECONDS = 120.0  # for one step
_MOST_FRAMES = 60
_GDBMEM = [sys.executable, *module_words("gdbmem.cli.main")]


def steps(action: str, pid: int, run: Path, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the file to write and the command that prints its contents."""
    if action == "bundle":
        yield "smaps.txt", ["cat", f"{memory_folder(pid)}/smaps"]
    if action in ("explain", "bundle"):
        yield "explain.txt", [*_GDBMEM, "explain", str(pid)]
    if action == "snap":
        yield "snap.txt", [*_GDBMEM, "snap", "--run", str(folder / "snap"), str(pid)]
    if action == "bundle":
        try:
            gdb = find_gdb()
        except MissingToolError:
            gdb = ""
        if gdb:
            show = f"thread apply all backtrace {_MOST_FRAMES}"
            yield "stacks.txt", [*quiet_gdb(gdb), "-p", str(pid), "-ex", show]
        yield "series.csv", [*_GDBMEM, "export", str(run), "--to", "csv"]


def main(argv: list[str]) -> int:
    """Execute all steps of an action; return 1 if one of them failed."""
    action, pid, run, folder = argv[0], int(argv[1]), Path(argv[2]), Path(argv[3])
    failed = False
    for name, command in steps(action, pid, run, folder):
        errors = folder / f"{name}.errors"
        with (folder / name).open("wb") as output, errors.open("wb") as said:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=said,
                    timeout=_MOST_SECONDS,
                    check=False,
                )
                failed = failed or done.returncode != 0
            except (subprocess.TimeoutExpired, OSError) as error:
                said.write(f"{error}\n".encode(errors="backslashreplace"))
                failed = True
        if not errors.stat().st_size:
            errors.unlink()
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
