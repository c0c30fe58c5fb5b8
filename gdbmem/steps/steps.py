"""Steps, summed by line, function, file or thread."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Callable, Optional

from gdbmem.json_values import as_json
from gdbmem.model.steps import SHARED, Step, StepSum
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console
from gdbmem.terminal.document import head, to_json
from gdbmem.terminal.drawing import SourceLines
from gdbmem.text import format_delta, plural, printable

GROUPINGS = ("line", "function", "file", "thread")


def sum_steps(steps: Iterable[Step], by: str = "line") -> list[StepSum]:
    """Return the sums of *steps* by line, function, file or thread, largest change first.

    Their deltas add up to the sum over *steps*.
    """
    sums: dict[object, StepSum] = {}
    for step in steps:
        found = sums.get(_KEYS[by](step))
        if found is None:
            found = sums[_KEYS[by](step)] = _new_sum(step, by)
        _add(found, step)
    return sorted(sums.values(), key=lambda one: (-abs(one.delta_bytes), -abs(one.heap_bytes or 0)))


_KEYS: dict[str, Callable[[Step], object]] = {
    "line": lambda step: (step.file, step.line, None if step.file else step.function),
    "function": lambda step: (step.file, step.function),
    "file": lambda step: step.file,
    "thread": lambda step: step.thread,
}


def _new_sum(step: Step, by: str) -> StepSum:
    return StepSum(
        function=step.function if by in ("line", "function") else None,
        file=step.file if by != "thread" else None,
        line=step.line if by == "line" else None,
        thread=step.thread if by == "thread" else None,
    )


def _add(found: StepSum, step: Step) -> None:
    found.hits += 1
    if step.heap_delta_bytes is not None:
        found.heap_bytes = (found.heap_bytes or 0) + step.heap_delta_bytes
    if step.delta_bytes is None:
        found.unknown_hits += 1
        return
    found.inexact_hits += not step.exact
    found.doubtful_hits += step.is_doubtful
    found.others_bytes += step.others_bytes or 0
    if step.lock == SHARED:
        found.shared_bytes += step.delta_bytes
        found.shared_hits += 1
    else:
        found.own_bytes += step.delta_bytes


def total_bytes(steps: Sequence[Step]) -> int:
    """Return the sum of the known deltas of *steps*."""
    return sum(step.delta_bytes or 0 for step in steps)


# Steps as text and as JSON: one line each, a table of sums, ``kind=steps``.


_RED, _GREEN, _DIM, _PLAIN = "\033[31m", "\033[32m", "\033[2m", "\033[0m"
_WIDEST_TEXT = 60
_LISTED_THREADS = 6
_NOUNS = {"heap": "heap", "massif": "heap"}  # the quantity of a source, if it isn't resident memory


def noun(source: str) -> str:
    """Return the quantity that *source* measures: ``resident`` or ``heap``."""
    return _NOUNS.get(source, "resident")


def step_line(step: Step, *, color: bool, source_text: Optional[str] = None) -> str:
    """Return the line of *step*: delta, source line, parts of the change, the running total, remarks."""
    paint = _painter(color)
    what = noun(step.source)
    delta = "?" if step.delta_bytes is None else _doubt(step.is_doubtful) + format_delta(step.delta_bytes)
    parts = [f"{paint(delta.rjust(11), _sign(step.delta_bytes))} {what}", place(step)]
    if source_text:
        parts.append(paint(_cut(source_text), _DIM))
    moved = [f"{name} {format_delta(size)}" for name, size in _moved(step)]
    if moved:
        parts.append(f"({', '.join(moved)})")
    if step.total_bytes is not None:
        parts.append(f"total {format_delta(step.total_bytes)}")
    remarks = _remarks(step)
    return "  ".join(parts) + (paint(f"  [{'; '.join(remarks)}]", _DIM) if remarks else "")


def place(step: Step) -> str:
    """Return where *step* started: ``decoder.cpp:12``, or the function if no line is known."""
    if step.file is not None and step.line is not None:
        return printable(f"{PurePath(step.file).name}:{step.line}")
    return printable(f"in {step.function}") if step.function else "no source known"


def _moved(step: Step) -> list[tuple[str, int]]:
    moved = [(name, size) for name, size in (step.parts or {}).items() if size]
    if step.heap_delta_bytes and noun(step.source) != "heap":
        moved.insert(0, ("malloc", step.heap_delta_bytes))
    return moved


def _remarks(step: Step) -> list[str]:
    remarks = []
    if step.lock == SHARED:
        part = "" if step.others_bytes is None else f", whose part is {format_delta(step.others_bytes)}"
        remarks.append(f"shared with {threads_text(step.shared_threads)}{part}")
    if not step.exact and step.delta_bytes is not None:
        where = "" if noun(step.source) == "heap" else " on this kernel"
        remarks.append(f"source {step.source}, not exact{where}")
    elif noun(step.source) == "heap":
        remarks.append(f"source {step.source}")
    remarks += [printable(text) for text in (step.ended, step.note) if text]
    return remarks


def _doubt(is_doubtful: bool) -> str:
    return "~" if is_doubtful else ""


def threads_text(threads: Sequence[int]) -> str:
    """Return ``thread 2`` or ``threads 2, 3, 4 and 196 more``."""
    if not threads:
        return "other threads"
    shown = ", ".join(map(str, threads[:_LISTED_THREADS]))
    more = len(threads) - _LISTED_THREADS
    return f"{'thread' if len(threads) == 1 else 'threads'} {shown}" + (
        f" and {more} more" if more > 0 else ""
    )


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST_TEXT else f"{text[: _WIDEST_TEXT - 3]}..."


def _sign(delta_bytes: Optional[int]) -> str:
    if not delta_bytes:
        return _DIM
    return _RED if delta_bytes > 0 else _GREEN


def _painter(color: bool):  # type: ignore[no-untyped-def]  # a closure over two strings
    def paint(text: str, code: str) -> str:
        return f"{code}{text}{_PLAIN}" if color else text

    return paint


def print_sums(
    sums: Sequence[StepSum], steps: Sequence[Step], console: Console, sources: SourceLines
) -> None:
    """Print one row for each of *sums* (some of them, perhaps) and the total over *steps*."""
    others = any(one.others_bytes for one in sums)
    heaps = any(one.heap_bytes is not None for one in sums) and noun(steps[-1].source) != "heap"
    titles = [noun(steps[-1].source), *(["others"] if others else []), *(["malloc"] if heaps else [])]
    table = drawing.new_table(*titles, "steps", last="where")
    for one in sums:
        mark = "≈" if one.inexact_hits else _doubt(one.doubtful_hits > 0)
        cells = [drawing.Text("?", "dim") if one.is_unknown else delta_text(one.delta_bytes, mark)]
        cells += [delta_text(one.others_bytes)] if others else []
        cells += (
            [drawing.Text("" if one.heap_bytes is None else format_delta(one.heap_bytes))] if heaps else []
        )
        table.add_row(*cells, f"{one.hits:,}", place_of_sum(one, sources))
    console.print(table)
    console.print(drawing.Text(total_sentence(steps), "bold"))
    for text in reservations(steps):
        console.print(drawing.Text(text, "dim"))


def reservations(steps: Sequence[Step]) -> list[str]:
    """Return sentences on unknown, doubtful and inexact values in *steps*."""
    found = []
    reasons = Counter(
        step.ended or step.note or "the process had ended" for step in steps if step.delta_bytes is None
    )
    for reason, count in reasons.items():
        found.append(f"{plural(count, 'step')} of unknown size: {printable(reason)}")
    doubtful = sum(step.is_doubtful for step in steps)
    if doubtful:
        found.append(f"~ {plural(doubtful, 'step')} to which other threads may have contributed")
    return found + _inexact(steps)


def total_sentence(steps: Sequence[Step]) -> str:
    """Return the sum of *steps*."""
    doubt = sum(step.is_doubtful for step in steps)
    known = any(step.delta_bytes is not None for step in steps)
    size = _doubt(doubt > 0) + format_delta(total_bytes(steps)) if known else "unknown change"
    text = f"{size} in {plural(len(steps), 'step')}"
    others = sum(step.others_bytes or 0 for step in steps)
    if others:
        text += f"; other threads changed it by {format_delta(others)} meanwhile"
    return text


def _inexact(steps: Sequence[Step]) -> list[str]:
    """Return a line for each reason why steps are not exact."""
    counts = Counter(
        step.note or f"source {step.source} is off on this kernel"
        for step in steps
        if not step.exact and step.delta_bytes is not None
    )
    return [f"{plural(count, 'step')} not exact: {printable(reason)}" for reason, count in counts.items()]


def delta_text(size_bytes: int, mark: str = "") -> drawing.Text:
    """Return a change in bytes, after *mark*, in the color of its sign."""
    return drawing.Text(
        mark + format_delta(size_bytes), "red" if size_bytes > 0 else "green" if size_bytes < 0 else "dim"
    )


def place_of_sum(one: StepSum, sources: SourceLines) -> drawing.Text:
    """Return where the steps of *one* began, with the source line."""
    if one.thread is not None:
        return drawing.Text(f"thread {one.thread}")
    name = PurePath(one.file).name if one.file else "no source known"
    if one.line is not None:
        name += f":{one.line}"
    text = drawing.Text(printable(name), "bold")
    if one.function:
        text.append(f"  {printable(one.function)}", "")
    line = sources.highlighted_line(one.file, one.line)
    if line is not None:
        text.append("\n    ")
        text.append(line)
    return text


def steps_json(steps: Sequence[Step], sums: Optional[Sequence[StepSum]] = None, *, by: str = "line") -> str:
    """Return *steps* as ``kind=steps``, with the sums of a report if they are given."""
    document = {**head("steps", ()), "total_bytes": total_bytes(steps)}
    if sums is not None:
        document["by"] = by
        document["sums"] = [
            {**as_json(one), "delta_bytes": None if one.is_unknown else one.delta_bytes} for one in sums
        ]
    # One step per line: there may be very many, and json is several times faster without indentation.
    rows = ",\n  ".join(json.dumps(as_json(step)) for step in steps)
    return f'{to_json(document).rstrip()[:-1].rstrip()},\n "steps": [\n  {rows}\n ]\n}}\n'
