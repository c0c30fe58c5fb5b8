"""The answer in one sentence: the amount, the two sides, and the line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Optional

from gdbmem.model.calltree import GROWN_BYTES, LATER, Frame, holds, memory_noun
from gdbmem.model.diff import Diff
from gdbmem.profiles import own_code
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import Amount, Ranking, Row, rank
from gdbmem.profiles.timeline import STEADY, WENT_BACK
from gdbmem.terminal import drawing
from gdbmem.terminal.drawing import SourceLines
from gdbmem.text import format_delta, format_size, plural, printable

_MOST_NAMED = 3
# A part may remain after the memory went back: "+4.0 MiB, went back" would be contradictory.
_TREND_WORDS = {WENT_BACK: "most went back"}
_NAMED_AS_GROUPED = ("function", "file", "library")  # the noun for each value of --by
_SPREAD = 0.05  # a line with less than this share is not an answer


def answer_diff(diff: Diff, query: Query) -> str:
    """Return the answer of *diff* to "what grew?", as in ``heap grew by …``; for a series: the steady growth."""
    query = _of_headline(query)
    ranking = rank(diff, query)
    change, left_out = _heap_change(diff, query, ranking), _left_out(ranking, query)
    if diff.course:
        change += f" ({len(diff.course)} snapshots){left_out}{_trend(ranking, query.by)}"
    elif query.by_blocks:
        blocks = f"{ranking.total.delta_blocks or 0:+,} blocks"
        change += f", {blocks}{left_out}{_most_blocks(ranking, query.by, sign='+')}"
    else:
        change += f"{left_out}{_culprit(ranking, query)}"
    return f"{change}{_outside(diff)}"  # last: "all of it" is of the heap alone


def answer_snapshot(diff: Diff, query: Query, *, moment: str) -> str:
    """Return where the memory of a snapshot (as a diff against nothing) is; *moment* names the snapshot."""
    query = _of_headline(query)
    ranking = rank(diff, query)
    verb = " holds" if holds(diff.unit) else ":"
    held = f"{memory_noun(diff.unit)}{verb} {format_size(diff.after[0])} at {moment}"
    if query.by_blocks:
        blocks = plural(ranking.total.delta_blocks or 0, "block")
        return f"{held} in {blocks}{_left_out(ranking, query)}{_most_blocks(ranking, query.by, sign='')}"
    return f"{held}{_left_out(ranking, query)}{_culprit(ranking, query)}"


def _of_headline(query: Query) -> Query:
    by = query.by if query.by in _NAMED_AS_GROUPED else "line"
    return query._replace(by=by, top=None, min_bytes=0, all_frames=False)


def site_name(row: Row, by: str = "line") -> str:
    """Return the label for the place of *row*, one of rows by *by*, also if the file does not list it."""
    if row.site is not None:
        return _group_name(row.site, by) if by in _NAMED_AS_GROUPED else own_code.describe_site(row.site)
    if not row.is_pruned:
        return "stacks without frames"
    return "call sites that the file leaves out" if row.is_cut else "call sites that are under the threshold"


def _outside(diff: Diff) -> str:
    parts, later = [], ""
    for one in diff.outside:
        verb = f"{'grew' if one.delta_bytes > 0 else 'shrank'} by {format_size(abs(one.delta_bytes))}"
        if one.delta_bytes and one.name == LATER:
            later = f"; memory in later snapshots {verb}"
        elif one.delta_bytes:
            parts.append(f"{one.name} {verb}")
    outside = f"; outside the heap, {' and '.join(parts)}" if parts else ""
    return f"{outside}{later}"


def _group_name(site: Frame, by: str) -> str:
    if by == "function" and (site.function is not None or own_code.has_place_only(site)):
        return own_code.full_function(site) or own_code.describe_site(site)
    name = site.file if by == "file" and site.file is not None else site.object
    return "an unknown library" if name is None else printable(PurePosixPath(name).name)


def _heap_change(diff: Diff, query: Query, ranking: Ranking) -> str:
    noun = "resident memory" if diff.unit == GROWN_BYTES else memory_noun(diff.unit)  # growth does not grow
    before, after = printable(diff.before_side.name), printable(diff.after_side.name)
    delta = diff.delta_bytes
    if delta:
        verb = "grew" if delta > 0 else "shrank"
        return f"{noun} {verb} by {format_size(abs(delta))} from {before} to {after}"
    size = format_size(diff.after[0])
    if query.normalized:
        same = "the same" if not ranking.rows else "other"
        return f"scaled to the {size} of {after}, {before} has its {noun} in {same} places"
    if ranking.rows or ranking.known.delta_bytes or ranking.unmatched.delta_bytes:
        return f"{noun} is as large at {after} as at {before} ({size}), but not in the same places"
    return f"{noun} did not change from {before} to {after} ({size} at both)"


def _trend(ranking: Ranking, by: str) -> str:
    steady = list(takewhile(lambda row: row.amount.trend.kind == STEADY, ranking.rows))  # they come first
    # The remainder below a threshold is not a place, and grows with the total that the threshold refers to.
    steady = [row for row in steady if row.site is not None] or steady
    if not steady:
        grown = list(ranking.rows.deltas())
        if max(grown, default=0) <= 0:
            return "; nothing grew steadily"
        first = ranking.rows[grown.index(max(grown))]
        kind = trend_word(first.amount.trend.kind)
        comma = "," if first.amount.uncertain_bytes else ""
        return f"; nothing grew steadily, the most is {_grown(first.amount)}{comma} at {site_name(first, by)} ({kind})"
    steps = len(steady[0].amount.course) - 1
    named = [
        f"{site_name(row, by)}, {_grown(row.amount)}, about {format_size(row.amount.delta_bytes // steps)} each time"
        for row in steady[:_MOST_NAMED]
    ]
    more = len(steady) - len(named)
    return f"; steadily at {'; '.join(named)}{f'; and {more:,} more' if more else ''}"


def _grown(amount: Amount) -> str:
    return f"{format_delta(amount.delta_bytes)}{_doubt(amount)}"


def _doubt(amount: Amount) -> str:
    return f", give or take {format_size(amount.uncertain_bytes)}" if amount.uncertain_bytes else ""


def trend_word(kind: str) -> str:
    """Return the text for a trend."""
    return _TREND_WORDS.get(kind, kind.replace("-", " "))


def _most_blocks(ranking: Ranking, by: str, *, sign: str) -> str:
    blocks = [amount.delta_blocks or 0 for amount in ranking.rows.amounts()]
    total = ranking.total.delta_blocks or 0
    same_way = next((at for at, count in enumerate(blocks) if count * total > 0), None)
    first = same_way if same_way is not None else next((at for at, count in enumerate(blocks) if count), None)
    if first is None:
        return ""
    return f"; most blocks at {site_name(ranking.rows[first], by)}, {blocks[first]:{sign},}"


def _left_out(ranking: Ranking, query: Query) -> str:
    parts = []
    if ranking.known.paths:
        parts.append(f"{format_delta(ranking.known.delta_bytes)} of it known")
    if query.filters:
        parts.append(f"{format_delta(ranking.delta_matched_bytes)} of it in the selected paths")
    return "".join(f", {part}" for part in parts)


def _culprit(ranking: Ranking, query: Query) -> str:
    whole = ranking.delta_matched_bytes
    if not ranking.moved:
        return ""
    by = query.by
    first = _first(ranking, whole)
    amount, name = first.amount, site_name(first, by)
    rest = whole - amount.delta_bytes
    if amount.uncertain_bytes >= abs(amount.delta_bytes):
        return (
            f"; no {by} can be named, because {name} may have changed by up to"
            f" {format_size(abs(amount.delta_bytes) + amount.uncertain_bytes)}"
        )
    doubt = _doubt(amount)
    if whole == 0 or rest * whole < 0:
        verb = "grew" if amount.delta_bytes > 0 else "shrank"
        other = "grew" if rest > 0 else "shrank"
        size = format_size(abs(amount.delta_bytes))
        return f"; {name} {verb} by {size}{doubt}, the rest {other} by {format_size(abs(rest))}"
    of_what = "that" if query.filters else "the rest" if ranking.known.paths else "it"
    portion = own_code.share(amount.delta_bytes, whole)
    via = _via(first, ranking)
    if amount.delta_bytes / whole < _SPREAD:
        return (
            f"{via and f'; {via}'}; spread over {plural(ranking.moved, by)}, most at {name}: {portion}{doubt}"
        )
    if via and first.via_bytes == amount.delta_bytes:
        portion = own_code.share(amount.delta_bytes, ranking.via_bytes[_wrapper(first)])
        return f"; {via}, {portion} of that from {name}{doubt}"
    return f"; {portion} of {of_what} from {name}{doubt}"


def _wrapper(row: Row) -> str:
    return row.via.function or "" if row.via is not None else ""


def _via(first: Row, ranking: Ranking) -> str:
    # The wrapper through which most of a row's bytes were allocated, with its part of the whole.
    if first.via is None:
        return ""
    whole, part = ranking.delta_matched_bytes, ranking.via_bytes[_wrapper(first)]
    if part * whole <= 0 or abs(part) > abs(whole) or first.via_bytes * 2 < first.amount.delta_bytes:
        return ""
    return f"{own_code.share(part, whole)} via {own_code.describe_site(first.via)}"


def _first(ranking: Ranking, whole: int) -> Row:
    # The line that explains the change has the same sign with certainty; a threshold's remainder
    # explains nothing while there is a line to name.
    first: Optional[int] = None
    named: Optional[Row] = None
    for at, delta in enumerate(ranking.rows.deltas()):
        if not delta or delta * whole < 0:
            continue
        first = at if first is None else first
        if whole and delta / whole < _SPREAD:
            break  # all further rows are smaller
        row = ranking.rows[at] if whole or delta > 0 else None
        if row is None or row.site is None:
            continue
        if row.amount.uncertain_bytes < abs(row.amount.delta_bytes):
            return row
        named = named or row
    return named or ranking.rows[first or 0]


# One call path in a table's cell: the user's own line with its source, and its callers.


_CALLERS = 4


def path_text(frames: Sequence[Frame], sources: SourceLines) -> drawing.Text:
    """Return *frames*, from the allocation outward, from the user's own innermost one on."""
    places = own_code.Places(frames)
    text = drawing.Text()
    for number, frame in enumerate(_shortened(_listed(frames))):
        if number == 0:
            text.append(f"{places.place(frame)}  ", "bold")
            text.append(own_code.full_function(frame))
            line = sources.highlighted_line(frame.file, frame.line)
            if line is not None:
                text.append("\n    ")
                text.append(line)
        else:
            text.append(f"\n  {places.place(frame)}  {own_code.full_function(frame)}", "dim")
    return text


def _listed(frames: Sequence[Frame]) -> list[Frame]:
    """Return the user's own innermost frame and its callers, without a library's in between."""
    first = max(own_code.own_frame(frames), 0)
    own, callers = frames[first], frames[first + 1 :]
    if any(map(_is_python, callers)):
        # The frames between C and Python are the interpreter and its libraries, such as libffi.
        callers = [frame for frame in callers if own_code.own_rank(frame) == own_code.OWN]
    elif own_code.own_rank(own) != own_code.OTHER:
        callers = [frame for frame in callers if own_code.own_rank(frame) != own_code.OTHER]
    return [own, *callers]


def _shortened(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return the first of *frames*; the innermost two Python frames replace the last ones."""
    first = frames[: 1 + _CALLERS]
    python = next((number for number, frame in enumerate(frames) if _is_python(frame)), 0)
    of_python = frames[python : python + 2] if python >= len(first) - 1 and python else ()
    return [*first[: 1 + _CALLERS - len(of_python)], *of_python] if of_python else first


def _is_python(frame: Frame) -> bool:
    return frame.file is not None and frame.file.endswith(".py")
