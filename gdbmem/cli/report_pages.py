"""The page of `gdbmem report` and `gdbmem serve` for runs, profiles and their differences."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Optional, Union

from gdbmem.api.profiles import (
    ReadOptions,
    Run,
    SnapshotRecord,
    as_growth,
    asked_for,
    diff,
    difference_in_file,
    file_of_stretch,
    find_operand,
    has_series,
    histories,
    load_from_profile,
    load_trees,
    open_profile,
    outline,
    read_record,
    read_snapshots,
    recipe_diffs,
    uses_between,
    uses_of,
)
from gdbmem.api.runs import kind_of, saved_records
from gdbmem.cli.start import unwind_when_ended
from gdbmem.commands.arguments import is_process
from gdbmem.engines.engine import NAMES, table
from gdbmem.errors import GdbmemError, InputError, Notice, UsageError
from gdbmem.formats.series import is_series_file
from gdbmem.formats.stacks import StackProfile
from gdbmem.formats.valgrind.massif import HEAPTRACK, MassifProfile
from gdbmem.model.calltree import CallTree, Profile
from gdbmem.model.diff import Diff, Side
from gdbmem.page.explorer import Explored, explored
from gdbmem.page.page import (
    Number,
    Page,
    Section,
    annotated_section,
    course_section,
    diff_section,
    known_size,
    printable_rows,
    render,
    sizes_section,
    threads_sections,
)
from gdbmem.page.pictures import COUNT
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import RowUses
from gdbmem.profiles.timeline import course_sentence, peak_sentence
from gdbmem.series.charts import Curve, Picture
from gdbmem.terminal.console import open_output, say
from gdbmem.terminal.document import CORE, kind_of_file
from gdbmem.text import format_delta, format_size, printable

_MOST_DIFFS = 12
_MOST_POINTS = 4000  # of a curve
_MOST_EXPLORED = 40  # snapshots of one page


def make_page(operands: Sequence[str], query: Query, options: ReadOptions) -> Page:
    """Return the page of one run, profile or series, or of the difference of two and more profiles.

    Raises InputError if an operand is missing, can't be read, or can't be compared.
    """
    options = options._replace(with_threads=True)
    if len(operands) > 1:
        places = [find_operand(one) for one in operands]
        if all(_is_series(*one) for one in places):
            from gdbmem.cli.report_documents import page_of_comparison  # for series only

            return page_of_comparison(
                [place.folder if isinstance(place, Run) else place for place, _ in places]
            )
        return _page_of_difference(operands, query, options)
    place, selector = find_operand(operands[0])
    if _is_series(place, selector):
        from gdbmem.cli.report_documents import page_of_series  # for series only

        return page_of_series(place.folder if isinstance(place, Run) else place)
    if options.is_stretch:
        place, selector = file_of_stretch(place, selector), None
    if query.annotate is not None and isinstance(place, Run) and selector is None:
        raise UsageError(
            "--annotate shows the lines of one snapshot or difference", hint="name one: RUN:NAME"
        )
    if not isinstance(place, Run):
        return _page_of_profile(place, selector, query, options)
    return _page_of_run(place, selector, query, options)


def _is_series(place: Union[Path, Run], selector: Optional[str]) -> bool:
    if isinstance(place, Run):
        return has_series(place.folder)
    return selector is None and is_series_file(place)


def _page_of_difference(operands: Sequence[str], query: Query, options: ReadOptions) -> Page:
    sides = read_snapshots(operands, options) if len(operands) == 2 else ()
    found = diff(*(sides or operands), options=options)
    uses, said = uses_between(sides, found, query._replace(by="line"))
    names = [found.before_side.name, found.after_side.name]
    page = Page(title=printable(" → ".join(names)), subtitle=printable("  ".join(operands)))
    page.facts = facts_of_diff(found)
    page.sections.append(diff_section(f"from {names[0]} to {names[1]}", found, query, uses=uses))
    page.sections += [annotated_section(found, query)] if query.annotate is not None else []
    page.sections += threads_sections(found, is_change=True)
    moments = range(1, len(operands) + 1) if len(operands) > 2 else ()
    page.explored = explored(found, query, times=moments, time_unit=COUNT)
    _add_notices(page, [*found.notices, *said])
    return page


def _page_of_profile(path: Path, selector: Optional[str], query: Query, options: ReadOptions) -> Page:
    profile = open_profile(path, options)
    page = Page(title=printable(Path(profile.source).name), subtitle=printable(profile.command))
    page.facts = facts_of_profile(profile, None)
    difference = difference_in_file(profile)
    if difference is not None:
        title = "what came and went"
        if options.is_stretch:
            title = f"from {difference.before_side.name} to {difference.after_side.name}"
        page.sections.append(diff_section(title, difference, query))
        page.sections += [annotated_section(difference, query)] if query.annotate is not None else []
        page.sections += threads_sections(difference, is_change=True)
        page.explored = explored(difference, query)
        _add_notices(page, difference.notices)
        return page
    if len(profile.snapshots) > 1:
        page.sections.append(course_section(_picture(profile)))
    elif profile.peak_tree_index is None:
        page.sections.append(Section("The heap", sentence=peak_sentence(profile)))
    sizes: list[Section] = []
    if isinstance(profile, StackProfile) and selector is None:
        known = profile.sizes()
        sizes += [sizes_section(known, profile.metric)] if known else []
    said, totals = profile.notices, getattr(profile, "faults", None)
    if selector is not None or profile.peak_tree_index is not None:
        loaded = load_from_profile(profile, selector or "peak")
        page.facts = facts_of_profile(profile, loaded.snapshot.tree)
        uses = RowUses(uses_of(profile, query._replace(by="line")))
        growth, name, of_loaded = as_growth(loaded.snapshot), loaded.snapshot.name, loaded.notices
        whole = profile if selector is None and len(profile.snapshots) > 1 else None
        del profile, loaded  # 30 MB of a large file
        page.sections.append(diff_section(name, growth, query, is_change=False, uses=uses))
        page.sections += (
            [annotated_section(growth, query, is_change=False)] if query.annotate is not None else []
        )
        sizes += threads_sections(growth)
        page.explored = _explored_file(whole, growth, query) if whole is not None else None
        said = [*of_loaded, *(said if whole is None else whole.notices)]
        page.explored = page.explored or explored(growth, query)
    page.sections += sizes
    if totals is not None:
        from gdbmem.page.steps_page import account_section  # for page faults only

        page.sections.append(account_section(totals))
    _add_notices(page, said)
    return page


def _explored_file(profile: Profile, like: Diff, query: Query) -> Optional[Explored]:
    """Return the snapshots of *profile* that have a whole tree, its peak selected; None if there is only one."""
    with_tree = [totals for totals in profile.snapshots if totals.has_tree]
    chosen = [with_tree[at].index for at in outline([t.total_bytes for t in with_tree], _MOST_EXPLORED)]
    if len(chosen) < 2:
        return None
    loaded = load_trees(profile, chosen)
    if len(loaded) < 2 or profile.peak_tree_index is None:
        return None
    chosen = [one.snapshot.totals.index for one in loaded]
    peak = chosen.index(profile.peak_tree_index)
    times = [one.snapshot.totals.time for one in loaded]
    return explored(
        diff(*loaded), query, times=times, time_unit=profile.time_unit, shown=(-1, peak), like=like
    )


def _explored_run(
    run: Run,
    records: Sequence[SnapshotRecord],
    first: Optional[tuple[tuple[str, str], Diff]],
    query: Query,
    options: ReadOptions,
) -> Optional[Explored]:
    """Return the snapshots of *run* as one series; None if none can be read, or they count different quantities.

    The two that the page compares *first* are shown.
    """
    compared = [run.record(name).name for name in first[0]] if first is not None else []
    places = outline([r.heap_bytes or 0 for r in records], _MOST_EXPLORED)
    places = sorted({*places, *(at for at, record in enumerate(records) if record.name in compared)})
    loaded, times, names = [], [], []
    for record in (records[at] for at in places):
        with contextlib.suppress(InputError):  # the sections below report which, and why
            loaded.append(read_record(run, record, options))
            times.append(record.seconds)
            names.append(record.name)
    if not loaded:
        return None
    if len(loaded) == 1:
        return explored(as_growth(loaded[0].snapshot), query)
    try:
        found = diff(*loaded)
    except InputError:
        return None
    moments = [] if None in times else [t for t in times if t is not None]
    shown = [names.index(name) for name in compared if name in names]
    if first is None or len(shown) < 2:
        return explored(found, query, times=moments)
    return explored(found, query, times=moments, shown=(shown[0], shown[1]), like=first[1])


def _picture(profile: Profile) -> Picture:
    totals = profile.snapshots
    shown = [totals[index] for index in outline([t.total_bytes for t in totals], _MOST_POINTS)]
    times = [t.time for t in shown]
    curves = [Curve("heap", times, [float(t.heap_bytes) for t in shown])]
    if any(t.total_bytes > t.heap_bytes for t in shown):
        curves.append(Curve("with overhead and stacks", times, [float(t.total_bytes) for t in shown], True))
    sentences = list(filter(None, (peak_sentence(profile), course_sentence(profile))))
    return Picture("", curves, sentences=sentences, time_unit=profile.time_unit)


def _page_of_run(run: Run, selector: Optional[str], query: Query, options: ReadOptions) -> Page:
    facts = run.facts
    words = [str(facts.get("program", "")), *map(str, facts.get("arguments") or [])]
    page = Page(title=printable(Path(words[0]).name or run.folder.name), subtitle=printable(" ".join(words)))
    page.facts = facts_of_run(run)
    records = list(asked_for(run.snapshots))
    if selector is not None:
        records = [run.record(selector)]
    page.sections += _expectations(run)
    if len(records) > 1:
        page.sections += _snapshots(records)
    said = list(run.notices)
    diffs: list[Diff] = []
    compared: list[tuple[str, str]] = []
    for pair in _pairs(run, records):
        page.sections.append(_pair_section(run, pair, query, options, said, diffs))
        compared += [pair] if len(diffs) > len(compared) else []
    if records and len(records) < 2:
        page.sections += _single_sections(run, records[0], query, options, said)
    if records:
        first = (compared[0], diffs[0]) if diffs else None
        page.explored = _explored_run(run, records, first, query, options)
    page.sections += _kept_sections(run)
    if not records and histories(run):
        _add_history(page, histories(run)[-1], query, options)
    if not page.sections:
        raise InputError(
            f"{printable(run.folder.name)} holds nothing to report",
            slug="no-snapshot",
            hint="take snapshots: massif-snap or massif-break in gdb, or points in a recipe",
        )
    _add_notices(page, said)
    return page


def _add_history(page: Page, file: Path, query: Query, options: ReadOptions) -> None:
    """Add the profile that the run's tool wrote at its end, if no snapshot was taken."""
    found = _page_of_profile(file, None, query, options)
    page.sections += found.sections
    page.facts += found.facts
    page.explored = found.explored
    page.notices = found.notices


def _expectations(run: Run) -> list[Section]:
    rows = [
        (_judged(found.get("met")), str(found.get("text", "")))
        for found in run.facts.get("expectations") or []
    ]
    return [Section("Expectations", header=("", ""), table=printable_rows(rows))] if rows else []


def _judged(met: object) -> str:
    return "ok" if met is True else "NOT MET" if met is False else "NOT JUDGED"


def _snapshots(records: Sequence[SnapshotRecord]) -> list[Section]:
    rows = []
    former: Optional[int] = None
    for record in records:
        size = record.heap_bytes
        delta: Union[str, Number] = ""
        if size is not None and former is not None:
            delta = Number(format_delta(size - former), size - former)
        rows.append((record.name, known_size(size), delta, f"{record.seconds:.1f} s" if record.seconds else "",
                     record.place or ""))  # fmt: skip
        former = size if size is not None else former
    sections = [
        Section("Snapshots", header=("name", "heap", "change", "after", "where"), table=printable_rows(rows))
    ]
    points = [
        (r.seconds, r.heap_bytes, r.name)
        for r in records
        if r.seconds is not None and r.heap_bytes is not None
    ]
    if len(points) > 1:
        from gdbmem.model.series import Mark  # for runs with snapshots only

        curve = Curve("heap at each snapshot", [p[0] for p in points], [float(p[1]) for p in points])
        marks = [Mark(t, name) for t, _, name in points] if len(points) <= 20 else ()
        sections.insert(0, course_section(Picture("", [curve], marks)))
    return sections


def _pairs(run: Run, records: Sequence[SnapshotRecord]) -> list[tuple[str, str]]:
    """Return the pairs of snapshots to compare: the recipe's, else first and last, then each with the next."""
    asked = recipe_diffs(run)
    if asked and len(records) > 1:
        return asked[:_MOST_DIFFS]
    names = [record.name for record in records]
    steps = list(zip(names, names[1:]))
    whole = [(names[0], names[-1])] if len(names) > 2 else []
    return [*whole, *steps][:_MOST_DIFFS]


def _pair_section(
    run: Run, pair: tuple[str, str], query: Query, options: ReadOptions, said: list[Notice], diffs: list[Diff]
) -> Section:
    title = f"from {pair[0]} to {pair[1]}"
    try:
        found = diff(*(read_record(run, run.record(name), options) for name in pair))
    except InputError as error:  # a damaged file does not prevent showing the others
        return Section(printable(title), sentence=printable(str(error)))
    said += found.notices
    diffs.append(found)
    return diff_section(title, found, query)


def _single_sections(
    run: Run, record: SnapshotRecord, query: Query, options: ReadOptions, said: list[Notice]
) -> list[Section]:
    loaded = read_record(run, record, options)
    said += loaded.notices
    growth = as_growth(loaded.snapshot)
    annotated = [annotated_section(growth, query, is_change=False)] if query.annotate is not None else []
    return [diff_section(record.name, growth, query, is_change=False), *annotated]


def _kept_sections(run: Run) -> list[Section]:
    if not saved_records(run):
        return []
    from gdbmem.cli.show_run import saved_sections  # for ledgers and containers only

    return saved_sections(run)


def _add_notices(page: Page, said: Sequence[Notice]) -> None:
    own = [page.explored.notice] if page.explored is not None and page.explored.notice else []
    found = [*page.notices, *own, *(printable(notice.message) for notice in said)]
    page.notices = list(dict.fromkeys(found))


def page_of(operands: Sequence[str], query: Query, options: ReadOptions) -> Page:
    """Return the page of *operands*: a process, a core, files that --json wrote, or runs and profiles.

    Raises GdbmemError if one can't be read, or if they can't be compared.
    """
    if len(operands) == 1 and is_process(operands[0]):
        from gdbmem.cli.report_documents import process_page  # as below: not needed for profiles

        unwind_when_ended()
        return process_page(int(operands[0]), say)
    kinds = [_kind(one) for one in operands]
    if not any(kinds):
        return _profiles_or_pools(operands, query, options)
    if len(set(kinds)) > 1 or (kinds[0] == CORE and len(kinds) > 1):
        raise InputError(
            "these can't be compared: "
            + ", ".join(f"{printable(one)} ({kind or 'a profile'})" for one, kind in zip(operands, kinds)),
            slug="unlike-operands",
            hint="name files of one kind, or one alone",
        )
    return _page_of_kind(kinds[0], operands, query)


def _page_of_kind(kind: str, operands: Sequence[str], query: Query) -> Page:
    from gdbmem.cli.report_documents import PAGES, core_page  # slow to import

    if kind == CORE:
        return core_page(Path(operands[0]))
    make = PAGES.get(kind)
    if make is None:
        raise InputError(
            f"{printable(operands[0])} is a document of kind '{kind}', which gdbmem report does not support",
            slug="no-report",
            hint=f"it takes runs, profiles, and documents of the kinds {', '.join(PAGES)}",
        )
    return make(operands, query)


def _profiles_or_pools(operands: Sequence[str], query: Query, options: ReadOptions) -> Page:
    """Return the page of runs and profiles; for a file that is neither, the page of the pools in it."""
    try:
        return make_page(operands, query, options)
    except InputError as error:
        if error.slug != "format-unreadable" or len(operands) > 1:
            raise
        from gdbmem.cli.report_documents import pools_of_files  # slow to import

        try:
            return pools_of_files(operands, query)
        except InputError:
            raise error from None


def _kind(operand: str) -> str:
    place, name = find_operand(operand)
    if isinstance(place, Run):
        return kind_of(place, name) if name is not None else ""
    return kind_of_file(place) if name is None else ""


# Pages shown in the user's browser.


def open_browser(address: str) -> None:
    """Show *address* in a browser; print a message on stderr if none could be started."""
    import webbrowser  # not always needed

    if not webbrowser.open(address):
        print("gdbmem: no browser could be started to show the page", file=sys.stderr)


# The page of a run, written when the launch that made it has ended.


class _UnwrittenError(Exception):
    """No page was made: the file is not created."""


class AwaitedPage:
    """The run that a page is to show, once there is one, and whether the page could not be made."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.failed = False


@contextlib.contextmanager
def page_at_end(file: Optional[str], query: Query, *, force: bool) -> Iterator[AwaitedPage]:
    """Yield an AwaitedPage to receive the run; its page is written to *file* (None: nowhere) when the block ends.

    The file is opened now, so that an unwritable name fails before the run. A page that can't be made is reported.
    """
    awaited = AwaitedPage()
    if file is None:
        yield awaited
        return
    with contextlib.suppress(_UnwrittenError), open_output(file, force=force) as stream:
        yield awaited
        try:
            stream.write(_rendered(awaited, query))
        except GdbmemError as error:
            print(f"gdbmem: no page was made: {printable(error.sentence)}", file=sys.stderr)
            awaited.failed = True
            raise _UnwrittenError from error
        print(f"gdbmem: the report is {printable(file)}", file=sys.stderr)


def _rendered(awaited: AwaitedPage, query: Query) -> str:
    folders = [run.folder for run in awaited.runs if run.folder.is_dir()]
    if not folders:
        raise GdbmemError(
            "nothing was recorded", slug="no-snapshot", hint="take snapshots: memsnap, or points in a recipe"
        )
    return render(page_of([str(folders[-1].absolute())], query, ReadOptions()))


# The rows of a page that describe how its numbers were measured, and what they can't include.


Rows = Sequence[tuple[str, object]]


def facts_of_run(run: Run) -> list[tuple[str, str]]:
    """Return the facts of *run*: its command, engine, versions, machine, and what the engine can't see."""
    facts = run.facts
    engine = str(facts.get("engine") or "")
    versions = facts.get("versions") or {}
    starts = [start.get("argv") for start in facts.get("starts") or []]
    tools = dict.fromkeys(_words(argv) for argv in starts if isinstance(argv, list))
    return known_facts(
        [
            ("run", run.folder.name),
            ("command", _words(facts.get("command") or [])),
            *(("started as", tool) for tool in tools),
            *_of_engine(engine),
            ("began", facts.get("began")),
            ("ended", facts.get("ended")),
            *((f"version of {name}", version) for name, version in versions.items()),
            ("machine", facts.get("machine")),
        ]
    )


def facts_of_profile(profile: Profile, tree: Optional[CallTree]) -> list[tuple[str, str]]:
    """Return the facts of *profile*, of which a page shows *tree*."""
    count, trees = len(profile.snapshots), sum(one.has_tree for one in profile.snapshots)
    options = profile.options if isinstance(profile, MassifProfile) else ""
    made_by = options if options == HEAPTRACK.decode() else profile.source_format
    return known_facts(
        [
            ("file", profile.source),
            ("command", profile.command),
            *_of_format(made_by, profile.unit),
            ("options", options),
            ("snapshots", f"{count:,}, {trees:,} of them with a call tree" if count > 1 else ""),
            *(_of_tree(tree) if tree is not None else ()),
        ]
    )


def facts_of_diff(diff: Diff) -> list[tuple[str, str]]:
    """Return the facts of the profiles that *diff* compares."""
    sides: Sequence[Side] = diff.sides or (diff.before_side, diff.after_side)
    rows: list[tuple[str, object]] = []
    for side in dict.fromkeys((one.source, one.command) for one in sides):
        rows += [("file", side[0]), ("command", side[1])]
    for name in dict.fromkeys(one.source_format for one in sides):
        rows += _of_format(name, diff.unit)
    thresholds = [one.threshold_bytes for one in diff.side_sites if not one.is_cut]
    return known_facts([*rows, *_of_trees(thresholds, is_sampled=diff.variance is not None)])


def _of_format(name: str, unit: str) -> Rows:
    return [("format", name), ("sizes are", unit), *(_of_engine(name) if name in NAMES else ())]


def _of_engine(name: str) -> Rows:
    if name not in NAMES:
        return [("engine", name)]
    found = table(name)
    return [
        ("engine", f"{name}: {found.summary}"),
        ("counts", found.counts),
        *(("can't see", blind) for blind in found.blind),
    ]


def _of_tree(tree: CallTree) -> Rows:
    threshold = 0 if tree.scattered else tree.threshold_bytes  # a cut file may lack any
    return _of_trees([threshold], is_sampled=tree.variance is not None)


def _of_trees(thresholds: Iterable[int], *, is_sampled: bool) -> Rows:
    most = max(thresholds, default=0)
    return [
        ("threshold", f"call sites under {format_size(most)} each are not listed" if most else ""),
        ("sampling", "sizes are estimated from samples" if is_sampled else ""),
    ]  # fmt: skip


def _words(words: Iterable[object]) -> str:
    return " ".join(map(str, words))


def known_facts(rows: Iterable[tuple[str, object]]) -> list[tuple[str, str]]:
    """Return the rows that have a value, as text for a page."""
    return [(printable(name), printable(str(value))) for name, value in rows if value]
