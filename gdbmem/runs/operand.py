"""The operands of `gdbmem show` and `gdbmem diff` (FILE, FILE:N, FILE:peak, RUN or RUN:NAME), and their order."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Union

from gdbmem.arrays import has_numpy
from gdbmem.errors import InputError, Notice
from gdbmem.files import location
from gdbmem.formats.addresses import Binary
from gdbmem.formats.opening import DEFAULT, OpenOptions, is_heaptrack, open_profile, unpacks_to
from gdbmem.formats.valgrind.massif import MassifProfile
from gdbmem.model.calltree import (
    HEAP_BYTES,
    LATER,
    LOST,
    WITH_INDIRECT,
    Profile,
    Snapshot,
    Stretch,
    as_nothing,
)
from gdbmem.runs.distrust import DamagedError, read_regular
from gdbmem.runs.run import BINARIES, LOADED, Run, SnapshotRecord, asked_for, is_run, open_run
from gdbmem.text import format_moment, format_size, plural, printable

if TYPE_CHECKING:
    from gdbmem.formats.stacks import StackProfile

# Orders the files that a user names as a series: by their own times, or by the numbers in their names.
#
# A shell sorts `dump.10.heap` before `dump.2.heap`. An order that a shell made is replaced by that of the files; an
# order that the user made is kept, and reported if the files deny it.


_SLACK_SECONDS = 1  # files that were copied or unpacked together
# jemalloc's PREFIX.PID.NUMBER.TYPE.heap, and gperftools' PREFIX_PID.NUMBER.heap of a forked process
_PROCESS = r"(?:\.([0-9]{1,10})\.[0-9]+\.[fimu][0-9]*|_([0-9]{1,10})\.[0-9]{4,})\.heap(?:\.\w+)?$"

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

    Two snapshots keep their order: the numbers in two names may be of two versions, or of processes. They are denied
    only if the later one by its number was also written later.
    """
    named = list(range(len(names)))
    own, evidence = _own_order(names, moments)
    is_guess = evidence in (_OF_NAMES, _OF_PROGRAM)  # numbers may be of processes, and begin anew
    if own is None and len(names) > 2 and _is_of_a_shell(names) and not _are_as_written(names):
        return SeriesOrder(named, _file_notices(names) or _unknown(names))
    if own is None or own == named or (is_guess and _are_as_written(names)):
        return SeriesOrder(named, _file_notices(names))
    if evidence != _OF_PROGRAM and len(names) > 2 and _is_of_a_shell(names):
        ends = [
            f"from {printable(names[order[0]])} to {printable(names[order[-1]])}" for order in (own, named)
        ]
        text = f"the series is read in the order of {evidence}, {ends[0]}, not as a shell sorts the names, {ends[1]}"
        return SeriesOrder(own, [Notice("series-ordered", text), *_file_notices([names[at] for at in own])])
    both_deny = evidence == _OF_NAMES and _are_as_written([names[at] for at in own])
    is_denied = len(names) > 2 or not is_guess or both_deny
    return SeriesOrder(named, [_denied(names, own, evidence)] if is_denied else ())


def _denied(names: Sequence[str], own: Sequence[int], evidence: str) -> Notice:
    at = next(at for at in range(1, len(own)) if own.index(at - 1) > own.index(at))
    text = f"{printable(names[at - 1])} stands before {printable(names[at])}, but is later by {evidence}"
    return Notice("out-of-order", f"{text}: name the oldest first")


def _unknown(names: Sequence[str]) -> list[Notice]:
    """Return a notice if *names* are not in the order of their numbers, which other texts follow: 10h, 1d, 2h."""
    keys = [_natural(name) for name in names]
    at = next((at for at in range(1, len(names)) if keys[at - 1] > keys[at]), None)
    if at is None:
        return []
    text = (
        f"{printable(names[at - 1])} stands before {printable(names[at])}, as a shell sorts them by letters"
    )
    return [Notice("out-of-order", f"{text}, which is not the order of their numbers: name the oldest first")]


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
    return tuple(int(part[:400]) if at % 2 else part for at, part in enumerate(re.split("([0-9]+)", name)))


def _differ_in_a_number(one: Sequence[Union[str, int]], other: Sequence[Union[str, int]]) -> bool:
    """Return whether two names differ first in a number, with the same unit behind it: 10h is before 1d."""
    first = next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), None)
    if first is None:
        return True
    units: list[str] = (
        [re.findall("[A-Za-z]*", str(parts[first + 1]))[0] for parts in (one, other)]
        if first % 2
        else ["", "none"]
    )
    return units[0] == units[1]


def _is_of_a_shell(names: Sequence[str]) -> bool:
    """Return whether *names* are sorted as `*` sorts them, in the C locale or in one that ignores punctuation."""
    by_letters = [re.sub("[^0-9A-Za-z]", "", name).lower() for name in names]
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
    found = [match[1] or match[2] for name in names if (match := re.search(_PROCESS, name))]
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


_LARGEST_END = 3  # a third of a series is not an end

_FORMS = "name a profile, FILE:NUMBER, a run folder or RUN:NAME"


class Loaded(NamedTuple):
    """One snapshot with its tree, and its notices."""

    snapshot: Snapshot
    notices: Sequence[Notice] = ()
    process: Optional[tuple[str, Optional[int]]] = None  # of a run's: its folder, and the process in it
    moment: Optional[SeriesMoment] = None  # when it was taken, if that is known
    used: Optional[StackProfile] = None  # what it is of, if that says how blocks were used


def same_run_notices(sides: Sequence[Loaded]) -> list[Notice]:
    """Return a notice if *sides* are of one run that was started anew in between."""
    runs = {side.process[0] for side in sides if side.process is not None}
    if len(runs) != 1 or any(side.process is None for side in sides):
        return []
    return process_notices(
        [(side.snapshot.name, side.process[1]) for side in sides if side.process is not None]
    )


_Opened = tuple[Profile, Callable[[], Loaded]]  # the file read, and who makes its tree


def find_operand(text: str) -> tuple[Union[Path, Run], Optional[str]]:
    """Return the file or run that *text* names, and the text after its colon.

    If *text* exists, it is the name; else the last colon after an existing name divides it (a name may contain
    colons: ``RUN:decoder.cpp:120``). Raises InputError if nothing is found.
    """
    head, selector = text, None
    end = len(text)
    while not _exists(head):
        end = text.rfind(":", 0, end)
        if end <= 0:
            raise InputError(f"there is no file or run '{printable(text)}'", slug="no-such-file", hint=_FORMS)
        head, selector = text[:end], text[end + 1 :]
    path = Path(head)
    if path.is_dir():
        if is_run(path):
            return open_run(path), selector
        raise InputError(
            f"{printable(head)} is a folder without run.json, so it is not a run", slug="no-run", hint=_FORMS
        )
    return path, selector


def load_operand(text: str, reading: OpenOptions = DEFAULT) -> Loaded:
    """Return the snapshot that *text* names.

    A file without a number means its last snapshot with a tree, a run without a name its last snapshot; if there were
    several, a notice reports the choice.
    """
    return load_all([text], reading)[0]


def load_all(texts: Sequence[str], reading: OpenOptions) -> list[Loaded]:
    """Return the snapshots that *texts* name; addresses that several hold are looked up once."""
    if len(texts) > 1 and all(_takes_long(text, reading) for text in texts):
        from gdbmem.runs.parallel import side_by_side  # with pickle

        _import_numpy_once(texts)
        return side_by_side([partial(_load_alone, text, reading) for text in texts])
    return _load_together([_open(text, reading) for text in texts], reading)


def _takes_long(text: str, reading: OpenOptions) -> bool:
    """Return whether *text* names a file of a kind that may have a hundred million lines, and holds no addresses."""
    place, _ = find_operand(text)
    if isinstance(place, Run):
        return place.facts.get("engine") == "heaptrack"
    return is_heaptrack(place, reading)


def _import_numpy_once(texts: Sequence[str]) -> None:
    """Import numpy if a file of *texts* is so large that its reader uses it: processes forked later have it, too."""
    from gdbmem.formats.heap_profilers.heaptrack import NUMPY_FROM_BYTES  # not always needed

    places = (find_operand(text)[0] for text in texts)
    if any(isinstance(place, Path) and unpacks_to(place, NUMPY_FROM_BYTES) for place in places):
        has_numpy()


def _load_alone(text: str, reading: OpenOptions) -> Loaded:
    return _open(text, reading)[1]()


def _open(text: str, reading: OpenOptions) -> _Opened:
    place, selector = find_operand(text)
    if isinstance(place, Run):
        return _open_from_run(place, selector, reading)
    if reading.stretch is not None:
        check_whole(selector)
    profile = open_profile(place, reading)
    return profile, lambda: load_from_profile(profile, selector)


def check_whole(selector: Optional[str]) -> None:
    """Raise InputError if a snapshot of a file is named: it is one moment, of which a stretch is no part."""
    if selector is not None:
        raise InputError(
            f"snapshot '{printable(selector)}' is one moment, not a stretch of time",
            slug="no-stretch",
            hint="leave it out, or --from and --until",
        )


def format_of(text: str, reading: OpenOptions) -> str:
    """Return the format that the snapshot which load_operand() finds for *text* is written in."""
    place, selector = find_operand(text)
    if not isinstance(place, Run):
        return open_profile(place, reading).source_format
    records = asked_for(place.snapshots)
    if not records:
        raise no_snapshot(place)
    record = place.record(selector) if selector is not None else records[-1]
    return open_profile(place.path(record), reading).source_format


def _open_from_run(run: Run, name: Optional[str], reading: OpenOptions) -> _Opened:
    said = list(run.notices)
    if name is not None:
        record = run.record(name)
    else:
        records = asked_for(run.snapshots)
        if not records:
            raise no_snapshot(run)
        record = records[-1]
        if len(records) > 1:
            text = f"of the {len(records)} snapshots of {printable(run.folder.name)} the last is used,"
            said.append(Notice("last-snapshot", f"{text} {printable(record.name)}"))
    profile, load = _open_record(run, record, reading)
    return profile, lambda: _with_notices(said, load())


def _open_record(run: Run, record: SnapshotRecord, reading: OpenOptions) -> _Opened:
    path = _file_of(run, record, reading.metric)
    if reading.symbols is not None and (run.folder / BINARIES).is_dir():
        reading.symbols.look_in(str(run.folder / BINARIES))
    if reading.symbols is not None and (run.folder / LOADED).is_file():
        with contextlib.suppress(OSError, DamagedError):
            reading.symbols.note_loaded(read_regular(run.folder / LOADED).splitlines())
    if not path.is_file():
        raise InputError(
            f"the file of snapshot {printable(record.name)}, {printable(str(path))}, is gone",
            slug="snapshot-gone",
            hint="'gdbmem show RUN' lists what is there",
        )
    profile = open_profile(path, reading)

    def load() -> Loaded:
        source = f"{run.folder.name}:{record.name}"
        snapshot = _snapshot(profile, _last_with_tree(profile), source, record.name)
        moment = SeriesMoment.in_series(str(run.folder), run.snapshots.index(record))
        process = (str(run.folder), record.process)
        return Loaded(snapshot, list(profile.notices), process, moment, _with_uses(profile))

    return profile, load


def _load_together(opened: Sequence[_Opened], reading: OpenOptions) -> list[Loaded]:
    symbols = reading.symbols
    if symbols is not None and len(opened) > 1:
        wanted: dict[Binary, set[int]] = {}
        for profile, _ in opened:
            stacks = _stacks(profile)
            places = stacks.wanted() if stacks is not None else {}
            for binary, offsets in places.items():
                wanted.setdefault(binary, set()).update(offsets)
        if wanted:
            symbols.prepare(wanted)
    return [load() for _, load in opened]


def _with_notices(said: Sequence[Notice], loaded: Loaded) -> Loaded:
    return loaded._replace(notices=[*said, *loaded.notices])


def load_record(run: Run, record: SnapshotRecord, reading: OpenOptions) -> Loaded:
    """Return the snapshot of *record* in *run*. Raises InputError if its file is damaged."""
    return _open_record(run, record, reading)[1]()


def unit_of(run: Run, record: SnapshotRecord) -> str:
    """Return what the trees of *record* count; heap where its file is gone or damaged."""
    try:
        return open_profile(run.path(record)).unit
    except InputError:
        return HEAP_BYTES


def leaks_file(file: str) -> str:
    """Return where a run keeps memcheck's leak search that goes with the snapshot in *file*."""
    return f"leaks/{Path(file).stem}.log"


def _file_of(run: Run, record: SnapshotRecord, metric: Optional[str]) -> Path:
    """Return the file that holds *metric* of *record*: memcheck's lost blocks have a separate one."""
    if record.engine == "memcheck" and metric in (*LOST, WITH_INDIRECT):
        return run.file(leaks_file(record.file))
    return run.path(record)


def load_from_profile(profile: Profile, selector: Optional[str]) -> Loaded:
    """Return one snapshot of *profile*: number *selector*, or ``peak``; None: the last with a tree."""
    name, several = _short_name(profile.source), len(profile.snapshots) > 1
    choose = _last_with_tree if selector is None else partial(_selected, selector=selector)
    trees = sum(totals.has_tree for totals in profile.snapshots)
    snapshot = _first_readable(
        profile,
        choose,
        lambda index: _snapshot(profile, index, profile.source, f"{name}:{index}" if several else name),
    )
    said: list[Notice] = []
    if selector is None:
        later = profile.snapshots[-1].total_bytes - snapshot.totals.total_bytes
        beside = {**snapshot.totals.beside, LATER: max(later, 0)}
        snapshot = snapshot._replace(totals=snapshot.totals._replace(beside=beside))
    if selector is None and trees > 1:
        message = f"of the {trees} snapshots with a call tree in {profile.source} the last is used,"
        message += f" {snapshot.totals.index}; another one is {name}:NUMBER"
        said.append(Notice("last-snapshot", message))
    # Making the tree may have added to the profile's notices.
    notices = [*profile.notices, *said]
    return Loaded(snapshot, notices, moment=_moment_of(profile, snapshot), used=_with_uses(profile))


def _with_uses(profile: Profile) -> Optional[StackProfile]:
    stacks = _stacks(profile)
    return stacks if stacks is not None and stacks.uses is not None else None


def _moment_of(profile: Profile, snapshot: Snapshot) -> Optional[SeriesMoment]:
    """Return when *snapshot* of *profile* was taken; None: its file does not say."""
    if len(profile.snapshots) > 1:
        return SeriesMoment.in_series(profile.source, snapshot.totals.index)
    stacks = _stacks(profile)
    if stacks is not None:
        return SeriesMoment.of_epoch(stacks.taken_at) if stacks.taken_at else None
    # A file of one snapshot was requested while the program ran.
    return SeriesMoment.of_program(profile.command, profile.time_unit, snapshot.totals.time)


def load_trees(profile: Profile, indices: Sequence[int]) -> list[Loaded]:
    """Return the snapshots *indices* of *profile*; a damaged one is left out, as its notices then report."""
    found = []
    for index in indices:
        try:
            found.append(load_from_profile(profile, str(index)))
        except InputError:
            if profile.snapshots[index].has_tree:
                raise
    return found


def _first_readable(
    profile: Profile, choose: Callable[[Profile], int], make: Callable[[int], Snapshot]
) -> Snapshot:
    while True:
        index = choose(profile)
        try:
            return make(index)
        except InputError:
            # The profile has set the damaged tree aside: another one may be chosen.
            with contextlib.suppress(InputError):
                if choose(profile) != index:
                    continue
            raise


def open_shown(text: str, reading: OpenOptions) -> Union[Loaded, tuple[Profile, Snapshot, Snapshot]]:
    """Return the snapshot that *text* names; for a file without a number that of its peak, as `gdbmem show` does.

    A file that is already a difference gives its profile, the removed memory and the added memory; a stretch of a
    recording its profile, and both moments.
    """
    place, selector = find_operand(text)
    profile, load = _open(text, reading)
    pair = difference_in(profile)
    if pair is not None:
        return profile, *pair
    if isinstance(place, Run):
        return _load_together([(profile, load)], reading)[0]
    several = sum(totals.has_tree for totals in profile.snapshots) > 1
    return load_from_profile(profile, selector or ("peak" if several else None))


def difference_in(profile: Profile) -> Optional[tuple[Snapshot, Snapshot]]:
    """Return what went and what came where *profile* is a difference of two already; None: it is of one moment.

    Of a stretch of a recording these are its two moments.
    """
    stretch = _stretch_in(profile)
    stacks = _stacks(profile)
    if stretch is not None or stacks is None or not stacks.is_difference:
        return stretch
    name = _short_name(profile.source)
    came = _snapshot_of(profile, 0, profile.source, name)
    return came._replace(name="its base", tree=stacks.tree_before()), came


def covered_by(profile: Profile) -> Optional[Stretch]:
    """Return the part of a recording that *profile* is of; None: all, or it is none."""
    stacks = _stacks(profile)
    return (
        profile.covered if isinstance(profile, MassifProfile) else None if stacks is None else stacks.covered
    )


def _stretch_in(profile: Profile) -> Optional[tuple[Snapshot, Snapshot]]:
    name, unit = _short_name(profile.source), profile.time_unit
    if isinstance(profile, MassifProfile):
        if profile.compared is None:
            return None
        begin, end = profile.compared
        sides = [_massif_side(profile, at) for at in (end if begin is None else begin, end)]
        if begin is None:
            sides[0] = as_nothing(sides[0])._replace(name="the start")
    else:
        stacks = _stacks(profile)
        if stacks is None or stacks.earlier is None:
            return None
        sides = [
            _snapshot_of(one, 0, profile.source, format_moment(one.time, unit))
            for one in (stacks.earlier, stacks)
        ]
    return sides[0], sides[1]._replace(name=f"{sides[1].name} of {name}")


def _massif_side(profile: MassifProfile, at: int) -> Snapshot:
    moment = format_moment(profile.snapshots[at].time, profile.time_unit)
    return _snapshot_of(profile, at, profile.source, f"snapshot {at} ({moment})")


def _stacks(profile: Profile) -> Optional[StackProfile]:
    """Return *profile* where it is one of stacks, as every format's but massif's is; else None."""
    if isinstance(profile, MassifProfile):
        return None
    from gdbmem.formats.stacks import StackProfile  # loaded already for any other format

    return profile if isinstance(profile, StackProfile) else None


def last_two(run: Run, reading: OpenOptions = DEFAULT) -> tuple[Loaded, Loaded]:
    """Return the last two snapshots of *run*. Raises InputError if it has fewer."""
    records = asked_for(run.snapshots)
    if len(records) < 2:
        raise InputError(
            f"{printable(run.folder.name)} holds {plural(len(records), 'snapshot')}: nothing to compare",
            slug="too-few-snapshots",
            hint="name a second snapshot: gdbmem diff A B",
        )
    before, after = _load_together([_open_record(run, one, reading) for one in records[-2:]], reading)
    return _with_notices(run.notices, before), after


def load_series(text: str, reading: OpenOptions) -> list[Loaded]:
    """Return all snapshots of the run, of RUN:NAME (each time it was taken) or of the file that *text* names.

    Raises InputError if there are fewer than two.
    """
    place, selector = find_operand(text)
    if isinstance(place, Run):
        records = asked_for(place.snapshots)
        if selector is not None:
            records = [record for record in records if selector in (record.base_name, record.name)]
        found = _load_together([_open_record(place, record, reading) for record in records], reading)
        found[:1] = [_with_notices(place.notices, loaded) for loaded in found[:1]]
    else:
        profile = open_profile(place, reading)
        trees = [totals.index for totals in profile.snapshots if totals.has_tree]
        trees, said = _without_the_end(profile, trees)
        found = load_trees(profile, trees) if selector is None else []
        found[:1] = [_with_notices([*said, *profile.notices], loaded) for loaded in found[:1]]
    if len(found) < 2:
        raise InputError(
            f"{printable(text)} holds no series ({plural(len(found), 'snapshot')})",
            slug="too-few-snapshots",
            hint="name a run, RUN:NAME where NAME was taken several times, or a file with several call trees",
        )
    return found


def _without_the_end(profile: Profile, trees: list[int]) -> tuple[list[int], list[Notice]]:
    """Return *trees* up to the largest if a program frees its memory at its end, and the notice about that."""
    at = trees.index(profile.peak_tree_index) if profile.peak_tree_index in trees else len(trees) - 1
    sizes = [profile.snapshots[index].heap_bytes for index in trees]
    behind = len(trees) - 1 - at
    if at < 2 or not behind or behind * _LARGEST_END > len(trees) or sizes[-1] * 2 > sizes[at]:
        return trees, []
    text = (
        f"the series ends at the peak, snapshot {trees[at]}: up to the last, {trees[-1]}, the program frees"
    )
    text += f" {format_size(sizes[at] - sizes[-1])} of {format_size(sizes[at])}, as at its end"
    return trees[: at + 1], [Notice("series-to-peak", text)]


def no_snapshot(run: Run) -> InputError:
    """Return the error for a run that holds no snapshot."""
    return InputError(
        f"{printable(run.folder.name)} holds no snapshot",
        slug="no-snapshot",
        hint="take some: massif-snap or massif-break in gdb, or points in a recipe",
    )


def _exists(path: str) -> bool:
    try:
        return bool(path) and location(path).exists()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def _last_with_tree(profile: Profile) -> int:
    for totals in reversed(profile.snapshots):
        if totals.has_tree:
            return totals.index
    raise InputError(
        f"no snapshot in {profile.source} has a call tree",
        slug="no-tree",
        hint="massif keeps the trees of some snapshots; --detailed-freq=1 keeps all",
    )


def _short_name(source: str) -> str:
    name = Path(source).name
    return source if name.isdecimal() and source.startswith(("/dev/", "/proc/")) else name  # of `<(…)`


def _selected(profile: Profile, selector: str) -> int:
    if selector == "peak":
        if profile.peak_tree_index is None:
            return _last_with_tree(profile)  # whose message reports that there is none
        return profile.peak_tree_index
    count = len(profile.snapshots)
    if not selector.isdecimal() or not selector.isascii() or int(selector) >= count:
        raise InputError(
            f"{profile.source} has no snapshot '{printable(selector)}'",
            slug="no-such-snapshot",
            hint=f"its snapshots are 0 to {count - 1}, or 'peak'"
            if count > 1
            else "it has one: leave the number out",
        )
    index = int(selector)
    if not profile.snapshots[index].has_tree:
        trees = [totals.index for totals in profile.snapshots if totals.has_tree]
        near = sorted(sorted(trees, key=lambda other: abs(other - index))[:4])
        raise InputError(
            f"snapshot {index} of {profile.source} has no call tree",
            slug="no-tree",
            hint=f"the nearest that have one: {', '.join(map(str, near))}"
            if near
            else "none of its snapshots has a call tree",
        )
    return index


def _snapshot(profile: Profile, index: int, source: str, name: str) -> Snapshot:
    stacks = _stacks(profile)
    if _stretch_in(profile) is not None:
        raise InputError(
            f"what changed in a stretch of {printable(profile.source)} is already a difference",
            slug="is-a-difference",
            hint="to compare the same stretch of two recordings, add --metric allocated",
        )
    if stacks is not None and stacks.is_difference:
        raise InputError(
            f"{printable(profile.source)} is already the difference of two profiles",
            slug="is-a-difference",
            hint="'gdbmem show', 'report' and 'export' read it alone; to compare, name its two profiles",
        )
    return _snapshot_of(profile, index, source, name)


def _snapshot_of(profile: Profile, index: int, source: str, name: str) -> Snapshot:
    tree = profile.tree(index)
    assert tree is not None  # only snapshots with a tree get here
    return Snapshot(
        source, name, profile.snapshots[index], tree, profile.unit, profile.source_format, profile.command
    )
