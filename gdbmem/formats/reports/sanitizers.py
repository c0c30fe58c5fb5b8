"""Leak reports of LeakSanitizer, alone or as a part of AddressSanitizer, from gcc and clang.

Source of the format: compiler-rt, lib/lsan/lsan_common.cpp, LeakReport, and sanitizer_stacktrace_printer.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.stacks import (
    Content,
    Hidden,
    Singles,
    Stack,
    StackProfile,
    check_count,
    check_depth,
    choose_metric,
    make_profile,
)
from gdbmem.model.calltree import BYTES_MISSING, DEFINITELY, INDIRECTLY, WITH_INDIRECT, Frame
from gdbmem.text import plural, printable

_EVENT = re.compile(
    rb"(Direct|Indirect) leak of ([0-9]{1,25}) byte\(s\) in ([0-9]{1,25}) object\(s\) allocated from:\r?\n"
    rb"((?:    #[0-9]+ 0x[^\n]*\n)*)"
    rb"|==([0-9]+)==ERROR: LeakSanitizer: detected memory leaks"
    rb"|SUMMARY: \w+Sanitizer: ([0-9]{1,25}) byte\(s\) leaked in ([0-9]{1,25}) allocation\(s\)\."
)
_CALL = re.compile(rb" (0x[^\n]*)\n")  # of a line of a stack
_IN_MODULE = re.compile(r"(?:in (.*?) *)?\((.+)\+(0x[0-9a-f]{1,16})\)(?: \(BuildId: [0-9a-f]+\))?", re.DOTALL)
# The sanitizer's own malloc stands at the top of each stack.
_OWN_NAME = re.compile(
    r"_*interceptor_\w+|_*(?:m|c|re|v|pv)alloc|reallocarray|memalign|aligned_alloc|posix_memalign"
    r"|operator new(?:\[\])?(?:\(.*\))?"
)
_OWN_FILE = re.compile(r"(?:.*/)?(?:libsanitizer|compiler-rt)/.*")
_KINDS = {b"Direct": DEFINITELY, b"Indirect": INDIRECTLY}
PTRACE = b"LeakSanitizer does not work under ptrace"


class _Record(NamedTuple):
    kind: str
    size: int
    blocks: int
    stack: bytes  # lines, the allocation site first


class _Report:
    """The leaks that one process reported; several processes if their lines are mixed."""

    def __init__(self) -> None:
        self.pids: list[bytes] = []
        self.records: list[_Record] = []
        self.sum = self.allocations = self.ended = 0  # of its lines of sums

    @property
    def is_whole(self) -> bool:
        return self.ended >= max(len(self.pids), 1)

    @property
    def stacks(self) -> set[bytes]:
        return {record.stack for record in self.records}


def read_sanitizer(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read all leak reports in *data*. Raises InputError if there is none, or its records exceed its sum."""
    content = _without_prefix(bytes(data))
    reports, notices = _latest(list(_reports(content, source)), source)
    records = [record for report in reports for record in report.records]
    if not reports:
        raise _no_report(content, source)
    kinds = {record.kind for record in records}
    metrics = [WITH_INDIRECT, *(kind for kind in (DEFINITELY, INDIRECTLY) if kind in kinds)]
    chosen = choose_metric(metric, metrics, source)
    hidden = _unlisted(reports, source)
    if hidden.bytes:
        total, listed = sum(report.sum for report in reports), sum(record.size for record in records)
        text = f"{printable(source)} lists {listed:,} of the {total:,} bytes that leaked"
        notices.append(Notice(BYTES_MISSING, f"{text}: the places of the others are unknown"))
    frames = _Frames()
    stacks: list[Stack] = []
    for record in records:
        if chosen in (WITH_INDIRECT, record.kind):
            stacks.append(Stack(frames.path(record.stack), record.size, record.blocks))
    left_out = hidden if chosen == WITH_INDIRECT else Hidden(0)
    held = Content(stacks, Singles(list(frames.numbers)), hidden=left_out)
    return make_profile(held, source, "sanitizer", chosen, metrics, notices=notices)


def _without_prefix(data: bytes) -> bytes:
    """Return *data* without what stands before the lines of its first record: a rank, or a post's indentation."""
    record = _EVENT.search(data)
    if record is None or record.start() == (start := data.rfind(b"\n", 0, record.start()) + 1):
        return data
    return re.sub(rb"(?m)^" + re.escape(data[start : record.start()]), b"", data)


def _reports(data: bytes, source: str) -> Iterator[_Report]:
    """Yield the reports in *data*. The reports of processes that write at the same time are one."""
    now = _Report()
    for found in _EVENT.finditer(data):
        kind, size, blocks, stack, pid, total, allocations = found.groups()
        if kind is not None:
            check_depth(stack.count(b"\n"), source)
            counts = check_count(int(size), source), check_count(int(blocks), source)
            now.records.append(_Record(_KINDS[kind], *counts, stack))
        elif pid is not None:
            now.pids.append(pid)
        else:
            now.sum += check_count(int(total), source)
            now.allocations += check_count(int(allocations), source)
            now.ended += 1
            if now.is_whole:
                yield now
                now = _Report()
    if now.records or now.pids:
        yield now


def _latest(reports: Sequence[_Report], source: str) -> tuple[list[_Report], list[Notice]]:
    """Return *reports* without those that a process made before and repeats; and notices."""
    kept: list[_Report] = []
    repeated = 0
    for at, report in enumerate(reports):
        later = [one for one in reports[at + 1 :] if one.pids == report.pids and len(one.pids) == 1]
        if any(report.stacks <= one.stacks for one in later):
            repeated += 1
        else:
            kept.append(report)
    notices, name = [], printable(source)
    if repeated:
        text = f"{name} has {plural(repeated, 'report')} that a later one of the same process number repeats"
        notices.append(Notice("repeated-reports", f"{text}: only the later one counts"))
    if len(kept) > 1 or any(len(report.pids) > 1 for report in kept):
        count = sum(max(len(report.pids), 1) for report in kept)
        notices.append(Notice("several-processes", f"{name} has {count:,} leak reports, which are added up"))
    if not all(report.is_whole for report in kept):
        text = (
            f"{name} has a leak report without its SUMMARY, as if the log was truncated: leaks may be missing"
        )
        notices.append(Notice(BYTES_MISSING, text))
    return kept, notices


def _unlisted(reports: Sequence[_Report], source: str) -> Hidden:
    """Return what the sums count and no record lists, as with max_leaks. Raises InputError for less than nothing."""
    hidden = Hidden(0)
    for report in reports:
        if not report.is_whole:
            continue
        listed = sum(record.size for record in report.records)
        if listed > report.sum:
            raise InputError(
                f"{printable(source)} lists {listed:,} bytes of leaks, and sums them up as {report.sum:,}",
                slug="totals-differ",
                hint="did several processes write into it? LSAN_OPTIONS=log_path=FILE makes a file for each",
            )
        blocks = report.allocations - sum(record.blocks for record in report.records)
        hidden = Hidden(hidden.bytes + report.sum - listed, blocks=hidden.blocks + max(blocks, 0))
    return hidden


class _Frames:
    """The frames of lines, of which most stand in many records."""

    def __init__(self) -> None:
        self.numbers: dict[Frame, int] = {}
        self._known = _Lines(self.numbers)
        self._own: dict[int, bool] = {}

    def path(self, stack: bytes) -> list[int]:
        """Return the numbers of the frames in the lines *stack*, the allocation site first."""
        known = self._known
        lines = _CALL.findall(stack)
        path = list(map(known.__getitem__, lines))
        if not known.inlined.isdisjoint(lines):
            self._mark_inlined(path, [known.calls[line] for line in lines])
        if len(path) > 1 and self._is_own(path[0], known.calls[lines[0]].frame):
            del path[0]
        return path

    def _mark_inlined(self, path: list[int], calls: Sequence[_Call]) -> None:
        # Calls at one address are one call: all but the last of them were inlined.
        for at, (call, outer) in enumerate(zip(calls, calls[1:])):
            if call.address == outer.address and path[at] != path[at + 1]:
                frame = call.frame._replace(inlined=True)
                path[at] = self.numbers.setdefault(frame, len(self.numbers))

    def _is_own(self, number: int, frame: Frame) -> bool:
        if number not in self._own:
            # The first call of a stack is in the sanitizer even if it has no name.
            names = _OWN_NAME.fullmatch(frame.function or ""), _OWN_FILE.fullmatch(frame.file or "")
            self._own[number] = frame.is_nameless or any(names)
        return self._own[number]


class _Call(NamedTuple):
    address: str
    frame: Frame


class _Lines(dict[bytes, int]):
    """The number of the frame of each line, without the line's number in the stack."""

    def __init__(self, numbers: dict[Frame, int]) -> None:
        super().__init__()
        self.calls: dict[bytes, _Call] = {}
        self.inlined: set[bytes] = set()  # lines whose address another one has, too
        self._numbers = numbers
        self._first: dict[str, bytes] = {}  # address → the first line that has it

    def __missing__(self, text: bytes) -> int:
        address, frame = _frame(text)
        self.calls[text] = _Call(address, frame)
        first = self._first.setdefault(address, text)
        if first != text:
            self.inlined.update((first, text))
        self[text] = number = self._numbers.setdefault(frame, len(self._numbers))
        return number


def _frame(line: bytes) -> tuple[str, Frame]:
    """Return the address in *line*, and its frame."""
    address, _, text = line.decode("utf-8", "surrogateescape").strip().partition(" ")
    text = text.strip()
    in_module = _IN_MODULE.fullmatch(text) if text.endswith(")") else None
    if in_module is not None:
        return address, Frame(in_module[1] or in_module[3], object=in_module[2])
    if not text.startswith("in "):
        return address, Frame(address)
    # A path with blanks has to begin with a slash.
    slash = text.find(" /")
    at = slash if slash > 0 else text.rfind(" ")
    file, *numbers = text[at + 1 :].rsplit(":", 2)
    if at < 3 or not numbers or not numbers[-1].isdecimal():
        return address, Frame(text[3:])
    if len(numbers) == 2 and not numbers[0].isdecimal():  # a line without its column
        file, numbers = f"{file}:{numbers[0]}", numbers[1:]
    return address, Frame(text[3:at], file, int(numbers[0][:9]) or None)


def _no_report(data: bytes, source: str) -> InputError:
    if PTRACE in data:
        return InputError(
            f"{printable(source)} has no leaks: LeakSanitizer can't search while gdb or strace traces the program",
            slug="sanitizer-traced",
            hint="run it without them, in a container with --cap-add=SYS_PTRACE; under gdb, ASAN_OPTIONS=detect_leaks=0"
            " leaves the search out",
        )
    return InputError(
        f"{printable(source)} contains no leak report",
        slug="no-leak-search",
        hint="a program built with -fsanitize=leak, or address with ASAN_OPTIONS=detect_leaks=1, prints one at its end",
    )
