"""Profiles that are one JSON document: damaged ones are refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data, JsonObject
from gdbmem.formats.stacks import (
    GROWN,
    IN_USE,
    LARGEST,
    MADE_RESIDENT,
    Content,
    Singles,
    Stack,
    StackProfile,
    check_count,
    check_depth,
    choose_metric,
    make_profile,
    total_of,
)
from gdbmem.json_values import MISFITS, as_json, from_fields, from_json
from gdbmem.model.calltree import TRACING, UNTRACED, Frame
from gdbmem.model.faults import FaultTotals, NamedFaults, NamedStack
from gdbmem.text import plural, printable


def read_json_profile(
    data: Data, source: str, profile: Callable[[JsonObject], StackProfile], *, wanted: str, if_cut: str
) -> StackProfile:
    """Return what *profile* makes of the document in *data*.

    Raises InputError if it is not complete JSON, with the hint *if_cut*, or is not *wanted*, a noun.
    """
    try:
        found = json.loads(bytes(data))
    except (ValueError, RecursionError, OverflowError) as error:
        reason = str(error) if isinstance(error, ValueError) else "it nests without end"
        raise InputError(
            f"{printable(source)} is not complete JSON: {printable(reason)}", slug="json-damaged", hint=if_cut
        ) from None
    try:
        return profile(found)
    except MISFITS as error:
        raise InputError(
            f"{printable(source)} is not {wanted}: {type(error).__name__} at {printable(str(error))}",
            slug="json-damaged",
            hint="was the file edited?",
        ) from None


# Profiles of gdbmem's own: an object with one key, the word for its kind.


VERSION = 1


def encode_own(word: str, document: Mapping[str, Any]) -> bytes:
    """Return *document* (frames, stacks, command, …) as a file of the kind *word*."""
    text = json.dumps({"version": VERSION, **document}, ensure_ascii=True, separators=(",", ":"))
    return f'{{"gdbmem_{word}":{text}}}\n'.encode("ascii")


def own_document(data: Data, word: str, source: str, *, slug: str) -> JsonObject:
    """Return the document that encode_own() wrote; raises InputError for another version, MISFITS for another form."""
    document: JsonObject = json.loads(bytes(data))[f"gdbmem_{word}"]
    if document["version"] != VERSION:
        raise InputError(
            f"{printable(source)} is of version {printable(str(document['version']))}, not {VERSION}",
            slug=slug,
            hint="read it with the gdbmem that wrote it",
        )
    return document


# What retains what in a heap, as `gdbmem heap --save` keeps it.


def read_heap_tree(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the document in *data*: the holder is outermost, what it alone holds inside of it. Raises InputError."""
    chosen = choose_metric(metric, (IN_USE,), source)
    return read_json_profile(
        data, source, lambda found: _heap_tree(found, source, chosen), wanted="a saved heap", if_cut=_SAVE
    )


_MOST_FRAMES = 1 << 22  # of all paths: a short file may have them without end
_SAVE = "'gdbmem heap PID --save FILE' writes a heap with its holders"


def _heap_tree(document: JsonObject, source: str, chosen: str) -> StackProfile:
    from gdbmem.model.heap_graph import SavedTree  # with dataclasses, for this format alone

    if "saved" not in document:
        raise InputError(
            f"{printable(source)} has only the largest holders of a heap", slug="bad-heap", hint=_SAVE
        )
    nodes = from_fields(SavedTree, document["saved"]).tree
    index: dict[Frame, int] = {}
    frame_of: list[int] = []
    depth: list[int] = []
    stacks, length = list[Stack](), 0
    for number, node in enumerate(nodes):
        if not -1 <= node.above < number:
            raise ValueError("a node before what is above it")
        frame_of.append(index.setdefault(Frame(node.name, object=node.object or None), len(index)))
        depth.append(1 + (depth[node.above] if node.above >= 0 else 0))
        check_depth(depth[-1], source)
        if not node.bytes and not node.blocks:
            continue
        length += depth[-1]
        if length > _MOST_FRAMES:
            raise ValueError("a tree that is far deeper than those that are written")
        path, at = [], number
        while at >= 0:
            path.append(frame_of[at])
            at = nodes[at].above
        stacks.append(Stack(path, check_count(node.bytes, source), check_count(node.blocks, source)))
    content, command = Content(stacks, Singles(list(index))), str(document["program"])
    notices = from_json(list[Notice], document["warnings"])
    return make_profile(content, source, "heap", chosen, (IN_USE,), notices=notices, command=command)


# Traces of tracemalloc, as the engine of that name keeps them: JSON, with file and line of each frame.


CUT = "python-traces-cut"


def read_tracemalloc(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError if it is damaged."""
    try:
        document = own_document(data, "tracemalloc", source, slug="tracemalloc-version")
        return tracemalloc_profile(document, source, metric, deeper="--frames N keeps more")
    except MISFITS:
        raise InputError(
            f"{printable(source)} is damaged: it is not a snapshot of tracemalloc's tables, or was truncated",
            slug="tracemalloc-damaged",
            hint="take it again, with 'memsnap' under 'gdbmem launch --engine tracemalloc'",
        ) from None


def tracemalloc_profile(
    document: Mapping[str, Any],
    source: str,
    metric: Optional[str] = None,
    *,
    deeper: str = "tracemalloc.start(N) and PYTHONTRACEMALLOC=N set the depth",
) -> StackProfile:
    """Return *document*, as the file has it, as a profile; *deeper* is how to have more frames."""
    chosen = choose_metric(metric, (IN_USE,), source)
    frames = [_frame(*row) for row in document["frames"]]
    stacks = [_stack(size, blocks, path, len(frames), source) for size, blocks, path in document["stacks"]]
    total = total_of(stacks)
    return StackProfile(
        source=source,
        source_format="tracemalloc",
        metric=chosen,
        metrics=(IN_USE,),
        total_bytes=total,
        load=lambda profile: Content(stacks, Singles(frames)),
        notices=_notices(document, len(stacks), deeper),
        command=str(document["command"]),
        beside=_beside(document, total, source),
    )


def untraced_bytes(rss: Optional[int], traced: int, own: int) -> Optional[int]:
    """Return what is resident (*rss*) and neither *traced* nor tracemalloc's *own*; None if that is not known.

    Traced blocks that are not resident (swapped out, never touched) may be more than all that is.
    """
    untraced = -1 if rss is None else rss - traced - own
    return untraced if untraced >= 0 else None


def _beside(document: Mapping[str, Any], traced: int, source: str) -> dict[str, int]:
    own, rss = check_count(int(document["own_bytes"]), source), document["rss_bytes"]
    untraced = untraced_bytes(None if rss is None else check_count(int(rss), source), traced, own)
    return {TRACING: own, **({} if untraced is None else {UNTRACED: untraced})}


def _frame(file: Optional[str], line: Optional[int]) -> Frame:
    if file is not None and not isinstance(file, str):
        raise TypeError
    return Frame(None, file, None if line is None else int(line))


def _stack(size: int, blocks: int, path: Sequence[Any], frames: int, source: str) -> Stack:
    numbers = [int(number) for number in path]
    check_depth(len(numbers), source)
    if any(not 0 <= number < frames for number in numbers):
        raise IndexError
    return Stack(numbers, check_count(int(size), source), check_count(int(blocks), source))


def _notices(document: Mapping[str, Any], tracebacks: int, deeper: str) -> list[Notice]:
    notices = []
    cut, unread = int(document["cut_tracebacks"]), int(document["unread_blocks"])
    if cut:
        which = f"{cut:,} of {plural(tracebacks, 'traceback')} {'is' if cut == 1 else 'are'}"
        text = f"{which} cut at {plural(int(document['deepest']), 'frame')} ({deeper})"
        notices.append(Notice(CUT, text))
    if unread:
        text = (
            f"{plural(unread, 'traced block')} could not be read, perhaps because an allocation was in progress:"
            " they are not counted"
        )
        notices.append(Notice("python-changing", text))
    return notices


# Recordings of page faults, as `gdbmem grow --profile FILE` keeps them: with names in place of addresses.


METRICS = (GROWN, MADE_RESIDENT)


def encode_faults(recorded: NamedFaults) -> bytes:
    """Return *recorded* in the form of the file."""
    names = ["command", "seconds", "is_sampled", "totals", "threads", "frames", "stacks"]
    names += [name for name in ("notices", "recording") if getattr(recorded, name)]
    return encode_own("faults", as_json(recorded, *names))


def read_faults(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError if it is damaged."""
    try:
        document = own_document(data, "faults", source, slug="faults-version")
        recorded = from_fields(NamedFaults, document)
        count = len(recorded.frames)
        if any(one.frames and not 0 <= min(one.frames) <= max(one.frames) < count for one in recorded.stacks):
            raise IndexError
        return faults_profile(recorded, source, metric)
    except MISFITS:
        raise InputError(
            f"{printable(source)} is damaged: it is not a recording of page faults, or was truncated",
            slug="faults-damaged",
            hint="record again: gdbmem grow PID --profile FILE",
        ) from None


def faults_profile(recorded: NamedFaults, source: str, metric: Optional[str] = None) -> StackProfile:
    """Return *recorded* as a profile."""
    chosen = choose_metric(metric, METRICS, source)
    stacks = [_fault_stack(one, chosen, source) for one in recorded.stacks]
    stacks = [one for one in stacks if one.bytes]
    return StackProfile(
        source=source,
        source_format="faults",
        metric=chosen,
        metrics=METRICS,
        total_bytes=total_of(stacks),
        load=lambda profile: Content(
            stacks,
            Singles(recorded.frames),
            has_blocks=False,
            is_sampled=recorded.is_sampled,
            recording=recorded.recording,
            has_doubtful_paths=any(one.path_variance for one in stacks),
        ),
        notices=[
            *_fault_notices(recorded.totals),
            *(Notice(one.slug, printable(one.message)) for one in recorded.notices),
        ],
        command=recorded.command,
        time=recorded.seconds,
        faults=recorded.totals,
    )


def _fault_stack(one: NamedStack, metric: str, source: str) -> Stack:
    check_depth(len(one.frames), source)
    grown = metric == GROWN
    size = check_count(round(one.grown_bytes if grown else one.seen_bytes), source)
    variance = one.grown_variance if grown else one.seen_variance
    path_variance = one.grown_path_variance if grown else one.seen_path_variance
    if not all(0 <= each <= float(LARGEST) ** 2 for each in (variance, path_variance)):
        raise ValueError(f"{variance:g}, {path_variance:g}")
    return Stack(one.frames, size, 0, variance, path_variance=path_variance)


def _fault_notices(totals: FaultTotals) -> list[Notice]:
    notices = []
    if totals.lost_samples:
        lost = f"{totals.lost_samples:,} of {totals.lost_samples + totals.samples:,} samples were lost"
        text = f"{lost} because the kernel's buffers were full"
        notices.append(
            Notice("faults-lost", f"{text}: samples taken at the same time represent their faults, too")
        )
    if not totals.sees_kernel_mode:
        text = "faults in kernel mode (such as read() into fresh memory) are counted, but not attributed to lines"
        notices.append(Notice("faults-user-mode", f"{text}: this needs root or CAP_PERFMON"))
    return notices
