"""Folded stacks, as flame graphs take them: ``main;parse;allocate 4096``, the outermost function first."""

from __future__ import annotations

import io
import itertools
import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data, JsonObject
from gdbmem.formats.json_profiles import read_json_profile
from gdbmem.formats.stacks import (
    DEEPEST,
    IN_USE,
    Content,
    PackedStacks,
    Singles,
    Stack,
    StackProfile,
    bad_line,
    check_count,
    check_depth,
    check_path,
    choose_metric,
    make_profile,
)
from gdbmem.model.calltree import BYTES_MISSING, NO_LINE, Frame, Frames, Names, line_column
from gdbmem.text import printable

_LINES = 1024  # read at once
_COUNT = re.compile(rb"-?[0-9]{1,25}")
# Appended to a function's name by export: its place in the source, or its program.
_PLACE = re.compile(r"(.*) \(((?:[^()]|\([^()]*\))+?):(0|[1-9][0-9]{0,8})\)")
_OBJECT = re.compile(r"(.*) \(in ([^()]+)\)")


def read_folded(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*, whose numbers are taken for bytes; raises InputError for a line without a number."""
    stacks, frames, notices = _parse(bytes(data), source)
    if metric is None:
        text = f"{printable(source)} names no unit: its numbers are taken for bytes; samples of a profiler of time are"
        notices.append(Notice("unit-assumed", f"{text} none (--metric {IN_USE} says that they are bytes)"))
    return StackProfile(
        source=source,
        source_format="folded",
        metric=choose_metric(metric, (IN_USE,), source),
        metrics=(IN_USE,),
        total_bytes=sum(stacks.sizes),
        load=lambda profile: Content(stacks, Singles(frames), has_blocks=False),
        notices=notices,
    )


def _parse(data: bytes, source: str) -> tuple[PackedStacks, Frames, list[Notice]]:
    index: defaultdict[bytes, int] = defaultdict(itertools.count().__next__)  # words in order of appearance
    stacks = PackedStacks()
    notices: list[Notice] = []
    lines = io.BytesIO(data)
    for first in itertools.count(1, _LINES):
        block = list(itertools.islice(lines, _LINES))
        if not block:
            break
        sums = _sums(block, source, first, notices, is_begin=not stacks)
        words = [text.split(b";")[::-1] for text in sums]
        frames = map(index.__getitem__, itertools.chain.from_iterable(words))
        stacks.extend(frames, map(len, words), sums.values())
    return stacks, _frames(_names(index), has_places=b")" in data), notices


def _names(index: dict[bytes, int]) -> list[str]:
    """Return the words of *index* as text, and empty it before: a large file has many."""
    words, count = iter(index), len(index)
    # In parts, because bytes.join() takes 80 bytes for each word.
    parts = [b"\n".join(itertools.islice(words, _LINES)) for _ in range(0, count, _LINES)]
    index.clear()
    return b"\n".join(parts).decode("utf-8", "surrogateescape").split("\n") if count else []


def _sums(
    block: Sequence[bytes], source: str, first: int, notices: list[Notice], *, is_begin: bool
) -> dict[bytes, int]:
    """Return the bytes of each stack of *block*, the lines from number *first* on: very many may be equal."""
    sums: dict[bytes, int] = {}
    for number, line in enumerate(block, first):
        text, _, count = line.rstrip().rpartition(b" ")
        is_plain = len(count) < 19 and count.isdigit()  # and so a number of bytes that can be
        if not text or not (is_plain or _COUNT.fullmatch(count)):
            if not line.strip():
                continue
            if not line.endswith(b"\n") and (sums or not is_begin):
                notices.append(Notice(BYTES_MISSING, f"{printable(source)} was truncated at line {number}"))
                break
            raise bad_line(source, number, line, "'main;…;function BYTES'")
        if len(text) > DEEPEST:
            check_depth(text.count(b";") + 1, source, number)
        size = int(count) if is_plain else check_count(int(count), source, number)
        sums[text] = check_count(sums[text] + size, source, number) if text in sums else size
    return sums


def _frames(names: list[str], *, has_places: bool) -> Frames:
    # Most name a function alone. No two that differ are the same frame.
    count = len(names)
    files: list[Optional[str]] = [None] * count
    lines = array("i", [NO_LINE]) * count
    if not has_places:
        return Frames(Names(names), files, lines, files, bytes(count), distinct=True)
    functions: list[Optional[str]] = [*names]
    objects = files[:]
    for at in [at for at, text in enumerate(names) if text.endswith(")")]:
        functions[at], files[at], line, objects[at], _ = _frame(functions[at] or "")
        lines[at] = line_column(line)
    return Frames(functions, files, lines, objects, bytes(count), distinct=True)


def _frame(text: str) -> Frame:
    match = _PLACE.fullmatch(text)
    if match:
        return Frame(match[1], match[2], int(match[3]))
    match = _OBJECT.fullmatch(text)
    return Frame(match[1], object=match[2]) if match else Frame(function=text)


# speedscope's JSON, in which many tools write profiles: those that count bytes, by samples or by events.
#
# Source: https://www.speedscope.app/file-format-schema.json.


_BYTES = "bytes"  # of the units that the format has
_MOST_FRAMES = 1 << 24  # of all stacks together that events make: they may be the square of the file


def read_speedscope(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*: the profile that is active, or the first one, of those that count bytes. Raises InputError."""
    return read_json_profile(
        data,
        source,
        lambda found: _profile(found, source, metric),
        wanted="a valid speedscope file",
        if_cut="was it cut when it was written, or copied?",
    )


def _profile(found: JsonObject, source: str, metric: Optional[str]) -> StackProfile:
    frames = [_speedscope_frame(entry) for entry in found["shared"]["frames"]]
    profiles, active = _of_bytes(found["profiles"], found.get("activeProfileIndex"), source)
    metrics = [active, *(name for name in profiles if name != active)]
    chosen = choose_metric(metric, metrics, source)
    sums: dict[tuple[int, ...], int] = {}
    for path, size in _weighed(profiles[chosen], source):
        check_path(path, len(frames), source)
        sums[path] = sums.get(path, 0) + size
    stacks, taken = _sides(sums, source)
    content = Content(stacks, Singles(frames), has_blocks=False, taken=taken)
    notices = _others(chosen, metrics, source) if metric is None else []
    return make_profile(content, source, "speedscope", chosen, metrics, notices=notices)


def _of_bytes(
    profiles: Sequence[JsonObject], active: object, source: str
) -> tuple[dict[str, JsonObject], str]:
    """Return the profiles that count bytes by what --metric calls them, and the one that is shown at first."""
    numbers = [number for number, profile in enumerate(profiles) if profile["unit"] == _BYTES]
    if not numbers:
        units = printable(", ".join(sorted({str(profile["unit"]) for profile in profiles}))) or "nothing"
        raise InputError(
            f"{printable(source)} counts {units}, not bytes: it is not a memory profile",
            slug="no-such-metric",
            hint="gdbmem reads speedscope files whose unit is 'bytes'",
        )
    if len(numbers) == 1:
        return {IN_USE: profiles[numbers[0]]}, IN_USE
    names: dict[int, str] = {}
    for number in numbers:
        name = str(profiles[number].get("name", ""))
        names[number] = name if name and name not in names.values() else f"{name}#{number}"
    first = active if isinstance(active, int) and active in names else numbers[0]
    return {name: profiles[number] for number, name in names.items()}, names[first]


def _others(chosen: str, metrics: Sequence[str], source: str) -> list[Notice]:
    if len(metrics) < 2:
        return []
    text = (
        f"{printable(source)} holds {len(metrics)} profiles of bytes, as of several threads; this is"
        f" '{printable(chosen)}', --metric NAME chooses another"
    )
    return [Notice("other-profiles", text)]


def _speedscope_frame(entry: JsonObject) -> Frame:
    name, file, line = entry["name"], entry.get("file"), entry.get("line")
    if not isinstance(name, str) or not (file is None or isinstance(file, str)):
        raise TypeError("a frame's name or file")
    number = line if isinstance(line, int) and line > 0 else None
    return Frame(None if name in ("", "???") else name, file or None, number if file else None)


def _weighed(profile: JsonObject, source: str) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the path of each sample or stretch of events, allocation site first, with its bytes."""
    if profile["type"] == "sampled":
        samples, weights = profile["samples"], profile["weights"]
        if len(samples) != len(weights):
            raise ValueError(f"{len(samples)} samples with {len(weights)} weights")
        for sample, weight in zip(samples, weights):
            yield tuple(reversed(sample)), _number(weight)
    elif profile["type"] == "evented":
        yield from _between_events(profile, source)
    else:
        raise ValueError(f"a profile of type {profile['type']}")


def _between_events(profile: JsonObject, source: str) -> Iterator[tuple[tuple[int, ...], int]]:
    stack: list[int] = []
    at, frames = _number(profile["startValue"]), 0
    for event in profile["events"]:
        moment = _number(event["at"])
        if moment < at:
            raise ValueError("an event that is earlier than the previous one")
        if moment > at:
            frames += len(stack)
            if frames > _MOST_FRAMES or len(stack) > DEEPEST:
                raise InputError(
                    f"{printable(source)} holds stacks of more than {_MOST_FRAMES:,} frames together",
                    slug="stack-too-deep",
                )
            yield tuple(reversed(stack)), moment - at
        at = moment
        if event["type"] == "O":
            stack.append(event["frame"])
        elif event["type"] != "C" or not stack or stack.pop() != event["frame"]:
            raise ValueError("an event that closes another frame than the last one opened")


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError("a number of bytes")
    return round(value)


def _sides(sums: dict[tuple[int, ...], int], source: str) -> tuple[list[Stack], list[Stack]]:
    """Return what is there, and what went away: a difference of two profiles counts that below zero."""
    stacks = [Stack(path, check_count(size, source)) for path, size in sums.items() if size > 0]
    taken = [Stack(path, check_count(-size, source)) for path, size in sums.items() if size < 0]
    return stacks, taken
