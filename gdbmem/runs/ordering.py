"""Orders the files that a user names as a series: by their own times, or by the numbers in their names.

A shell sorts `dump.10.heap` before `dump.2.heap`. An order that a shell made is replaced by that of the files; an order
that the user made is kept, and reported if the files deny it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional, Union

from gdbmem.errors import Notice
from gdbmem.text import plural, printable

_SLACK_SECONDS = 1  # files that were copied or unpacked together
_DIGITS = re.compile(r"([0-9]+)")
_NOT_COLLATED = re.compile(r"[^0-9A-Za-z]")
# jemalloc's PREFIX.PID.NUMBER.TYPE.heap, and gperftools' PREFIX_PID.NUMBER.heap of a forked process
_PROCESS = re.compile(r"(?:\.([0-9]{1,10})\.[0-9]+\.[fimu][0-9]*|_([0-9]{1,10})\.[0-9]{4,})\.heap(?:\.\w+)?$")

_OF_FILES = "the times in the files"
_OF_SNAPSHOTS = "the snapshots in it"
_OF_NAMES = "the numbers in their names"
_OF_PROGRAM = "the times of the program in the files"


class SeriesMoment(NamedTuple):
    """When a snapshot was taken. Moments of one clock can be compared."""

    clock: str
    time: float
    evidence: str

    @classmethod
    def of_epoch(cls, seconds: float) -> SeriesMoment:
        """Return the moment *seconds* after 1970."""
        return cls("epoch", seconds, _OF_FILES)

    @classmethod
    def in_series(cls, series: str, position: int) -> SeriesMoment:
        """Return the moment of the snapshot at *position* in *series*, a file or a run."""
        return cls(f"series {series}", position, _OF_SNAPSHOTS)

    @classmethod
    def of_program(cls, command: str, unit: str, time: float) -> SeriesMoment:
        """Return the moment *time*, in *unit*, since a process that ran *command* began."""
        return cls(f"program {unit} {command}", time, _OF_PROGRAM)


class SeriesOrder(NamedTuple):
    """The order of a series, oldest first."""

    positions: Sequence[int]  # in what was named
    notices: Sequence[Notice] = ()


def order_of(names: Sequence[str], moments: Sequence[Optional[SeriesMoment]]) -> SeriesOrder:
    """Return the order of the snapshots *names*: by their *moments*, else by the numbers in *names*.

    Two snapshots keep their order: the numbers in two names may be of two versions.
    """
    named = list(range(len(names)))
    own, evidence = _own_order(names, moments)
    is_guess = evidence in (_OF_NAMES, _OF_PROGRAM)  # numbers may be of processes, and begin anew
    if own is None or own == named or (is_guess and _are_as_written(names)):
        return SeriesOrder(named, _file_notices(names))
    if evidence != _OF_PROGRAM and len(names) > 2 and _is_of_a_shell(names):
        ends = [
            f"from {printable(names[order[0]])} to {printable(names[order[-1]])}" for order in (own, named)
        ]
        text = f"the series is read in the order of {evidence}, {ends[0]}, not as a shell sorts the names, {ends[1]}"
        return SeriesOrder(own, [Notice("series-ordered", text), *_file_notices([names[at] for at in own])])
    return SeriesOrder(named, [_denied(names, own, evidence)] if len(names) > 2 or not is_guess else ())


def _denied(names: Sequence[str], own: Sequence[int], evidence: str) -> Notice:
    at = next(at for at in range(1, len(own)) if own.index(at - 1) > own.index(at))
    text = f"{printable(names[at - 1])} stands before {printable(names[at])}, but is later by {evidence}"
    return Notice("out-of-order", f"{text}: name the oldest first")


def _own_order(
    names: Sequence[str], moments: Sequence[Optional[SeriesMoment]]
) -> tuple[Optional[list[int]], str]:
    """Return the order of the files' own, and its evidence; None: there is none."""
    known = [moment for moment in moments if moment is not None]
    has_clock = len(known) == len(names) and len({moment.clock for moment in known}) == 1
    has_clock = has_clock and len({moment.time for moment in known}) > 1
    by_clock = sorted(range(len(known)), key=lambda at: known[at].time) if has_clock else None
    if by_clock is not None and known[0].evidence != _OF_PROGRAM:
        return by_clock, known[0].evidence
    keys = [_natural(name) for name in names]
    by_name = sorted(range(len(names)), key=lambda at: keys[at])
    if all(_differ_in_a_number(keys[before], keys[after]) for before, after in zip(by_name, by_name[1:])):
        return by_name, _OF_NAMES
    return by_clock, _OF_PROGRAM  # another process of the program has such a clock too


def _natural(name: str) -> tuple[Union[str, int], ...]:
    """Return *name* as texts and numbers, in turn: the texts stand at the even places."""
    # No file name has so many digits; int() refuses more than 4300.
    return tuple(int(part[:400]) if at % 2 else part for at, part in enumerate(_DIGITS.split(name)))


def _differ_in_a_number(one: Sequence[Union[str, int]], other: Sequence[Union[str, int]]) -> bool:
    first = next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), None)
    return first is None or first % 2 == 1


def _is_of_a_shell(names: Sequence[str]) -> bool:
    """Return whether *names* are sorted as `*` sorts them, in the C locale or in one that ignores punctuation."""
    by_letters = [_NOT_COLLATED.sub("", name).lower() for name in names]
    return list(names) == sorted(names) or by_letters == sorted(by_letters)


def _are_as_written(names: Sequence[str]) -> bool:
    """Return whether all *names* are of files, each written well after the one before."""
    times = [_written(name) for name in names]
    return all(times) and all(after > before + _SLACK_SECONDS for before, after in zip(times, times[1:]))


def _file_notices(names: Sequence[str]) -> list[Notice]:
    """Return notices about the files *names*, oldest first: of several processes, or not written in this order."""
    if len(names) < 3:
        return []
    said = _processes_in(names)
    files = [(name, written) for name in names if (written := _written(name))]
    for (earlier, before), (later, after) in zip(files, files[1:]):
        if before > after + _SLACK_SECONDS:
            text = f"{printable(earlier)} was written after {printable(later)}, which follows it"
            said.append(Notice("out-of-order", f"{text}: name the oldest first ('ls -tr' lists files so)"))
            break
    return said


def repetition_notices(names: Sequence[str]) -> list[Notice]:
    """Return notices about those of *names* that occur more than once."""
    return [
        Notice("named-twice", f"{printable(name)} is named {plural(names.count(name), 'time')}: each counts")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def _processes_in(names: Sequence[str]) -> list[Notice]:
    """Return a notice if the files *names*, by what profilers call them, are of several processes."""
    found = [match[1] or match[2] for name in names if (match := _PROCESS.search(name))]
    if len(found) < len(names) or len(set(found)) == 1:
        return []
    other = next(at for at, process in enumerate(found) if process != found[0])
    text = (
        f"{printable(names[0])} is of process {found[0]}, {printable(names[other])} of process {found[other]}"
    )
    return [
        Notice("other-process", f"{text}, by their names: the difference is not the growth of one process")
    ]


def process_notices(taken: Sequence[tuple[str, Optional[int]]]) -> list[Notice]:
    """Return a notice if the snapshots of *taken* (name and process) are of several processes of one run."""
    known = [(name, process) for name, process in taken if process is not None]
    if len({process for _, process in known}) < 2:
        return []
    first, last = known[0], next(one for one in reversed(known) if one[1] != known[0][1])
    text = (
        f"{printable(first[0])} is of process {first[1]}, {printable(last[0])} of process {last[1]}:"
        " the program was restarted in between, so the difference is not the growth of one process"
    )
    return [Notice("other-process", text)]


def _written(name: str) -> float:
    try:
        return Path(name).stat().st_mtime if Path(name).is_file() else 0.0
    except (OSError, ValueError):
        return 0.0
