"""Profiles, snapshots and runs: reading them, and the difference of two or more."""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path as _FilePath
from typing import Callable, NamedTuple, Optional, Union

from gdbmem.errors import InputError, Notice
from gdbmem.formats import opening
from gdbmem.formats.opening import FORMATS, OpenOptions
from gdbmem.formats.stacks import ALLOCATED, IN_USE, LIFETIMES, POINTS, READ, WRITTEN, StackProfile
from gdbmem.model.calltree import PEAK, Profile, Snapshot, Stretch
from gdbmem.model.diff import Diff
from gdbmem.profiles import ranking
from gdbmem.profiles.diff import as_difference, as_growth, diff_series, normalized, scaling_notices
from gdbmem.profiles.paths import BLOCKS, Query, counts_blocks, find_wrappers
from gdbmem.profiles.ranking import Amount, Ranking, Row, RowUses, Uses, uses_from
from gdbmem.profiles.timeline import outline
from gdbmem.profiles.unseen import stranger_notices
from gdbmem.runs import operand as operands
from gdbmem.runs.operand import (
    Loaded,
    covered_by,
    difference_in,
    find_operand,
    load_from_profile,
    load_trees,
    order_of,
    repetition_notices,
    same_run_notices,
    unit_of,
)
from gdbmem.runs.run import (
    Run,
    SnapshotRecord,
    asked_for,
    current_folder,
    has_series,
    histories,
    recipe_diffs,
)
from gdbmem.symbols.address_names import GdbSymbols
from gdbmem.text import printable

__all__ = [
    "FORMATS",
    "PEAK",
    "Amount",
    "Loaded",
    "Ranking",
    "ReadOptions",
    "Row",
    "Run",
    "SnapshotRecord",
    "as_growth",
    "asked_for",
    "current_folder",
    "diff",
    "difference_in_file",
    "end_of",
    "export",
    "file_of_stretch",
    "find_operand",
    "has_series",
    "histories",
    "load_from_profile",
    "load_trees",
    "open_profile",
    "outline",
    "rank",
    "read_last_two",
    "read_record",
    "read_series",
    "read_shown",
    "read_snapshot",
    "read_snapshots",
    "read_stretch",
    "recipe_diffs",
    "unit_of",
    "uses_between",
    "uses_of",
]

Path = Union[str, "os.PathLike[str]"]
DiffSide = Union[Path, Loaded, Snapshot]


class _Options(NamedTuple):
    format: Optional[str] = None  # massif, heaptrack, pprof, …; None: detected from the contents
    metric: Optional[str] = None  # in-use, allocated, peak, blocks, …; None: the file's main one
    binaries: Sequence[str] = ()  # folders to search for programs that are not where the profile names them
    by_size: bool = False  # group the trees by block size first
    by_thread: bool = False  # … by the thread that allocated, of files that record it
    with_threads: bool = False  # the same without an error for other files
    # Of files that record times, only from this moment on and until that one, as in 1.5s.
    begin: Optional[str] = None
    end: Optional[str] = None
    progress: Optional[Callable[[str], None]] = None  # called before a lookup of names that takes seconds


class ReadOptions(_Options):
    """Options for reading profiles; every field may be left out.

    The same object should be given to all calls of one job: names of addresses are looked up once for each.
    """

    @cached_property
    def reading(self) -> OpenOptions:
        """Return these options in the form that the readers take. Raises InputError if `format` is unknown."""
        metric = self.metric
        if metric is not None and counts_blocks(metric):  # for any kind of counted bytes
            metric = metric[: -len(BLOCKS)].rstrip("-") or None
        folders = [os.fspath(folder) for folder in self.binaries]
        symbols = GdbSymbols(folders=folders, progress=self.progress or (lambda text: None))
        return OpenOptions(
            self.format,
            metric,
            symbols,
            by_size=self.by_size,
            by_thread=self.by_thread,
            with_threads=self.with_threads,
            stretch=Stretch.read(self.begin, self.end),
        )

    @property
    def is_stretch(self) -> bool:
        """Return whether only a part of a recording is to be read."""
        return self.begin is not None or self.end is not None

    def check(self) -> None:
        """Raise InputError if `format` is unknown, or `begin` or `end` no moment."""
        assert self.reading is not None


# -- reading ----------------------------------------------------------------------------------------------


def open_profile(file: Path, options: Optional[ReadOptions] = None) -> Profile:
    """Open the heap profile *file*: the totals of every snapshot now, call trees when `tree()` is called.

    Raises InputError if the file is missing, damaged or of an unknown format.
    """
    return opening.open_profile(file, _open_options(options))


def read_snapshot(operand: Path, options: Optional[ReadOptions] = None) -> Loaded:
    """Return the snapshot that *operand* names: ``FILE``, ``FILE:NUMBER``, ``FILE:peak``, ``RUN`` or ``RUN:NAME``.

    A file without a number means its last snapshot with a call tree, a run without a name its last snapshot; a
    notice reports that choice. Raises InputError if there is none.
    """
    return read_snapshots([operand], options)[0]


def read_snapshots(names: Sequence[Path], options: Optional[ReadOptions] = None) -> list[Loaded]:
    """Return the snapshots of *names*, as read_snapshot() does; addresses are looked up once for all."""
    return operands.load_all([os.fspath(name) for name in names], _open_options(options))


def read_series(operand: Path, options: Optional[ReadOptions] = None) -> list[Loaded]:
    """Return all snapshots of a run, of ``RUN:NAME`` (each time it was taken) or of a file, oldest first.

    Raises InputError if there are fewer than two.
    """
    return operands.load_series(os.fspath(operand), _open_options(options))


def read_last_two(run: Run, options: Optional[ReadOptions] = None) -> tuple[Loaded, Loaded]:
    """Return the last two snapshots of *run*. Raises InputError if it has fewer."""
    return operands.last_two(run, _open_options(options))


def read_record(run: Run, record: SnapshotRecord, options: Optional[ReadOptions] = None) -> Loaded:
    """Return the snapshot of *record* in *run*. Raises InputError if its file is damaged."""
    return operands.load_record(run, record, _open_options(options))


def read_shown(operand: str, options: Optional[ReadOptions] = None) -> Union[Loaded, Diff]:
    """Return the data of `gdbmem show` for *operand*: the peak of a file, or the Diff if it is a difference already.

    What changed in a stretch of a recording (*options* have its begin or end) is one.
    """
    found = operands.open_shown(operand, _open_options(options))
    if isinstance(found, Loaded):
        return found
    profile, *pair = found
    return _as_difference(pair, profile.notices, covered_by(profile))


def _open_options(options: Optional[ReadOptions]) -> OpenOptions:
    return (options or ReadOptions()).reading


def file_of_stretch(place: Union[_FilePath, Run], selector: Optional[str]) -> _FilePath:
    """Return the file of *place* that a stretch of time is a part of: of a run the one of its snapshot *selector*.

    Raises InputError if a snapshot of a file is named: it is one moment.
    """
    if isinstance(place, Run):
        records = asked_for(place.snapshots)
        if not records:
            raise operands.no_snapshot(place)
        return place.path(place.record(selector) if selector is not None else records[-1])
    operands.check_whole(selector)
    return place


def read_stretch(operand: Path, options: ReadOptions) -> Diff:
    """Return how the heap changed in the stretch of *operand* that *options* name. Raises InputError."""
    found = read_shown(os.fspath(operand), options._replace(metric=options.metric or IN_USE))
    if isinstance(found, Diff):
        return found
    raise InputError(
        f"{printable(options.metric or '')} is a sum over the stretch, not a difference",
        slug="no-such-metric",
        hint="gdbmem show lists it",
    )


def end_of(engine: str) -> str:
    """Describe the file that *engine* writes at the end of a program; an unknown engine counts as massif."""
    from gdbmem.engines import engine as engines  # a fortieth of the start of a `show` that has no run

    return engines.end_of(engine)


# -- comparing --------------------------------------------------------------------------------------------


def diff(
    before: DiffSide,
    after: DiffSide,
    *later: DiffSide,
    options: Optional[ReadOptions] = None,
    normalize: bool = False,
) -> Diff:
    """Return what changed from *before* to *after*, call path by call path, its `notices` included.

    A side is an operand of read_snapshot(), or its result. With *later* sides the result is the change from
    the first to the last, and `course` has the values of each path in between; sides that are named as a shell sorts
    them are put into the order of their own times, or of the numbers in their names. With *normalize* all are scaled
    to the total of the last. Raises InputError if the sides do not count the same thing.
    """
    given = (before, after, *later)
    sides = _sides(given, options)
    order = order_of(
        [_name_of(one, side) for one, side in zip(given, sides)], [side.moment for side in sides]
    )
    sides = [sides[at] for at in order.positions]
    snapshots = [side.snapshot for side in sides]
    found = diff_series(normalized(snapshots) if normalize else snapshots)
    said = list(dict.fromkeys(notice for side in sides for notice in side.notices))
    if normalize:
        found = found.with_columns(outside=())  # the heap alone is scaled
        said += scaling_notices(snapshots)
    said += same_run_notices(sides)
    said += [*order.notices, *(repetition_notices(_names(given)) if len(sides) > 2 else ())]
    found = found.with_columns(notices=[*said, *stranger_notices(found), *found.notices])
    found.check()
    return found


def _name_of(given: DiffSide, side: Loaded) -> str:
    return os.fspath(given) if isinstance(given, (str, os.PathLike)) else side.snapshot.source


def _names(given: Sequence[DiffSide]) -> list[str]:
    return [os.fspath(one) for one in given if isinstance(one, (str, os.PathLike))]


def _sides(given: Sequence[DiffSide], options: Optional[ReadOptions]) -> list[Loaded]:
    names = _names(given)
    read = iter(read_snapshots(names, options) if names else ())
    sides = []
    for one in given:
        if isinstance(one, Snapshot):
            sides.append(Loaded(one))
        else:
            sides.append(one if isinstance(one, Loaded) else next(read))
    return sides


def difference_in_file(profile: Profile) -> Optional[Diff]:
    """Return the difference in *profile* if it is one already (pprof -base writes such files), else None."""
    pair = difference_in(profile)
    return None if pair is None else _as_difference(pair, profile.notices, covered_by(profile))


def _as_difference(pair: Sequence[Snapshot], notices: Sequence[Notice], covered: Optional[Stretch]) -> Diff:
    found = as_difference(*pair) if covered is None else diff_series(pair)
    found = found.with_columns(notices=[*notices, *found.notices], covered=covered)
    found.check()
    return found


def rank(what: Union[Diff, Snapshot, Loaded], query: Optional[Query] = None) -> Ranking:
    """Return the rows of *what*, largest first: its call paths, lines, functions or files, as *query* asks.

    A snapshot is ranked by its bytes, which the rows have as `after_bytes`. The amounts of all rows and of `rest`,
    `unmatched` and `known` add up to `total`.
    """
    if isinstance(what, Loaded):
        what = what.snapshot
    return ranking.rank(as_growth(what) if isinstance(what, Snapshot) else what, query or Query())


def export(what: Union[Diff, Snapshot, Loaded], to: str) -> bytes:
    """Return *what* in the format *to*: json, csv, folded, speedscope, pprof, ….

    Raises InputError for an unknown format.
    """
    from gdbmem.profiles.export import encode  # the writers of pprof take long to import

    if isinstance(what, Loaded):
        what = what.snapshot
    if isinstance(what, Snapshot):
        return encode(as_growth(what), to, is_change=False)
    return encode(what, to, is_change=True)


def uses_between(sides: Sequence[Loaded], diff: Diff, query: Query) -> tuple[RowUses, list[Notice]]:
    """Return how the blocks of the rows of *diff* were used on its two *sides*, and notices on what was left out.

    Empty, if one of them does not say.
    """
    if not sides:
        return RowUses(), []
    first, last = sides[0].used, sides[-1].used
    if first is None or last is None:
        return RowUses(), []
    if query.wrappers is None:  # as they are found in both sides together
        query = query._replace(wrappers=frozenset(find_wrappers(diff)))
    found = RowUses(uses_of(last, query), uses_of(first, query))
    return found, [one for side in (first, last) for one in side.notices if one.slug == _LEFT_OUT]


_LEFT_OUT = "uses-left-out"
_MOST_USES = 5_000  # paths: they are ranked five times more


def uses_of(profile: Profile, query: Query) -> Uses:
    """Return how the blocks of each row of *query* were used: how long they lived, how often they were read, …"""
    if not isinstance(profile, StackProfile) or profile.uses is None or query.by == "size":
        return {}
    count = len(profile.load(profile).stacks)
    if count > _MOST_USES:
        name = printable(profile.source)
        text = f"{name} has {count:,} call paths: how the blocks of each row were used is not listed"
        profile.add_notices([Notice(_LEFT_OUT, text)])
        return {}
    diffs = {name: as_growth(load_from_profile(one, None).snapshot) for name, one in profile.uses().items()}
    names = (ALLOCATED, LIFETIMES, READ, WRITTEN, POINTS)
    return uses_from(diffs, query, time_unit=profile.unit_of_time, names=names)
