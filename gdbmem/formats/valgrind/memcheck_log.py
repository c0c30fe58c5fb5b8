"""memcheck's leak searches, from its log or through gdb: loss records with their stacks, and the sums."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.stacks import (
    DEEPEST,
    TRUNCATED,
    Content,
    Hidden,
    Stack,
    StackProfile,
    check_count,
    choose_metric,
    total_of,
)
from gdbmem.formats.valgrind.massif_tree import UnknownTextError, read_node_text
from gdbmem.model.calltree import BYTES_MISSING, Frame
from gdbmem.model.leaks import (
    DEFINITELY,
    INDIRECTLY,
    KINDS,
    LOST,
    POSSIBLY,
    REACHABLE,
    SUPPRESSED,
    WITH_INDIRECT,
    LeakRecord,
    LeakSearch,
    Sum,
)
from gdbmem.text import printable

SEVERAL = "several-processes"

_KINDS = {
    "definitely lost": DEFINITELY,
    "indirectly lost": INDIRECTLY,
    "possibly lost": POSSIBLY,
    "still reachable": REACHABLE,
    "suppressed": SUPPRESSED,
}
_COUNT = r"([0-9,]{1,26})(?: \(([-+][0-9,]{1,26})\))?"  # and by how much it has changed
_KIND = "|".join(_KINDS)
# With --time-stamp=yes a time precedes the process.
_PREFIX = re.compile(r"(?:==|--)(?:[0-9:.]{12,20} )?([0-9]+)(?:==|--)(?: |$)")
_RECORD = re.compile(
    rf"{_COUNT}(?: \({_COUNT} direct, {_COUNT} indirect\))? bytes in {_COUNT} blocks"
    rf" are ({_KIND}) in loss record ([0-9,]{{1,26}}) of ([0-9,]{{1,26}})"
)
_SUM = re.compile(rf" +({_KIND}): {_COUNT} bytes in {_COUNT} blocks")
_FRAME = re.compile(r" +(?:at|by) (0x[0-9A-F]+: .*)")
_COMMAND = re.compile(r"Command: (.*)")
_NO_BLOCK = re.compile(r"All heap blocks were freed -- no leaks are possible\.?")
# valgrind's own malloc stands at the top of each stack; the execution trees leave it out.
_OWN = re.compile(r"(?:.*/)?vgpreload_[\w.-]+|.*/vg_replace_malloc\.c")


def read_memcheck_log(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the last leak search in *data*; raises InputError if there is none, or a line of it is damaged."""
    return profile_of(read_leak_search(bytes(data), source), source, metric)


def profile_of(search: LeakSearch, source: str, metric: Optional[str]) -> StackProfile:
    """Return the records of one kind as a profile; raises InputError if *search* has none, and no sums.

    Lost blocks count with what only they point to, unless *metric* names a single kind.
    """
    held = {record.kind for record in search.records}
    if not held and not any(kind in search.sums for kind in LOST):
        raise _no_leak_search(source)
    counted = {kind for kind, found in search.sums.items() if kind in LOST or found.bytes}
    if not search.sums:
        held.add(DEFINITELY)  # all of these are records
    metrics = [kind for kind in KINDS if kind in held or kind in counted]
    metrics = [WITH_INDIRECT, *metrics] if DEFINITELY in metrics else metrics
    chosen = choose_metric(metric, metrics, source)
    whole = chosen == WITH_INDIRECT
    kind = DEFINITELY if whole else chosen
    numbers: dict[Frame, int] = {}
    stacks = [
        Stack(
            tuple(numbers.setdefault(frame, len(numbers)) for frame in record.frames),
            record.bytes + record.indirect_bytes * whole,
            record.blocks,
        )
        for record in search.records
        if record.kind == kind
    ]
    hidden = _unlisted(search, kind, stacks, whole=whole)
    total = total_of(stacks) + hidden.bytes
    return StackProfile(
        source=source,
        source_format="memcheck",
        metric=chosen,
        metrics=metrics,
        total_bytes=total,
        load=lambda profile: Content(stacks, [(frame,) for frame in numbers], hidden=hidden),
        command=search.command,
        notices=[*search.notices, *_notices(hidden, chosen, total, source)],
    )


def _unlisted(search: LeakSearch, kind: str, stacks: Sequence[Stack], *, whole: bool) -> Hidden:
    """Return the bytes of *kind* that the sums count and no record lists, as with --leak-check=summary.

    With *whole*, *stacks* count what is lost indirectly.
    """
    if kind not in search.sums:
        return Hidden(0)
    counted = search.sums[kind].bytes
    if whole:
        indirect = sum(record.indirect_bytes for record in search.records if record.kind == kind)
        counted += search.sums[INDIRECTLY].bytes if INDIRECTLY in search.sums else indirect
    blocks = sum(stack.blocks for stack in stacks)
    return Hidden(max(0, counted - total_of(stacks)), blocks=max(0, search.sums[kind].blocks - blocks))


def _notices(hidden: Hidden, kind: str, total: int, source: str) -> list[Notice]:
    if not hidden.bytes:
        return []
    text = f"{printable(source)} lists {total - hidden.bytes:,} of the {total:,} bytes that are {kind}"
    return [Notice(TRUNCATED, f"{text}: the places of the others are unknown (--leak-check=full lists them)")]


def read_leak_search(data: bytes, source: str = "memcheck's answer") -> LeakSearch:
    """Return the last leak search in *data*, or the last of each process that writes to it. Raises InputError.

    A record's bytes are its own: what it only points to is in records of its own.
    """
    return _LossReader(data, source).read()


class _SearchedProcess:
    """The last leak search of one process."""

    def __init__(self) -> None:
        self.records: list[LeakRecord] = []
        self.sums: dict[str, Sum] = {}
        self.has_last_record = False
        self.stack: Optional[LeakStack] = None  # of the last record, while it is read

    @property
    def is_whole(self) -> bool:
        return all(kind in self.sums for kind in KINDS) if self.sums else self.has_last_record

    def sum_of(self, kind: str) -> Sum:
        """Return the sum of *kind*; that of the records if a cut, or -q, left none."""
        return self.sums.get(kind) or sum_of(self.records, kind)


def sum_of(records: Sequence[LeakRecord], kind: str) -> Sum:
    """Return the bytes and blocks of those of *records* that are of this *kind*."""
    of_kind = [record for record in records if record.kind == kind]
    return Sum(sum(r.bytes for r in of_kind), sum(r.blocks for r in of_kind))


class _LossReader:
    def __init__(self, data: bytes, source: str) -> None:
        self._lines = data.decode("utf-8", "surrogateescape").split("\n")
        self._source = source
        self._processes: dict[str, _SearchedProcess] = {}  # by pid
        self._now = _SearchedProcess()  # the one that wrote the line that is read
        self._command = ""  # of the first: the others are its children

    def read(self) -> LeakSearch:
        for number, line in self._words():
            self._take(line, number)
        self._processes = self._processes or {"": self._now}
        found = [one for one in self._processes.values() if one.records or one.sums]
        if not found:
            raise _no_leak_search(self._source)
        sums = {
            kind: Sum(*map(sum, zip(*(one.sum_of(kind) for one in found))))
            for kind in KINDS
            if any(kind in one.sums for one in found)
        }
        records = [record for one in found for record in one.records]
        return LeakSearch(records, sums, command=self._command, notices=list(self._notices(found)))

    def _notices(self, found: Sequence[_SearchedProcess]) -> Iterator[Notice]:
        name, all_of_them = printable(self._source), len(self._processes)
        if len(found) > 1:
            yield Notice(SEVERAL, f"{name} has leak searches of {len(found)} processes, which are added up")
        if len(found) < all_of_them:
            text = f"{name} is the log of {all_of_them} processes, of which {all_of_them - len(found)}"
            yield Notice(BYTES_MISSING, f"{text} made no leak search: what they lost is unknown")
        # The header, which -q leaves out as it does the sums, names the command.
        lacks_sums = self._command and not any(one.sums for one in found)
        if lacks_sums or not all(one.is_whole for one in found):
            text = f"{name} has an incomplete leak search, as if the log was truncated: records or sums may be missing"
            yield Notice(BYTES_MISSING, text)

    def _words(self) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self._lines, start=1):
            line = line.rstrip("\r")
            prefix = _PREFIX.match(line)
            if prefix:
                if prefix[1] not in self._processes:
                    self._processes[prefix[1]] = _SearchedProcess() if self._processes else self._now
                self._now = self._processes[prefix[1]]
            # To gdb some lines come without valgrind's mark.
            yield number, line[prefix.end() :] if prefix else line

    def _take(self, line: str, number: int) -> None:
        frame = _FRAME.fullmatch(line)
        now = self._now
        if frame is not None:
            if now.stack is not None:
                self._add_frame(now.stack, frame[1], number)
            return
        now.stack = None
        record, total, command = _RECORD.fullmatch(line), _SUM.fullmatch(line), _COMMAND.fullmatch(line)
        if record is not None:
            self._add_record(record, number)
        elif total is not None:
            now.sums[_KINDS[total[1]]] = Sum(self._count(total[2], number), self._count(total[4], number))
        elif command is not None:
            self._command = self._command or command[1]
        elif _NO_BLOCK.fullmatch(line):
            now.records, now.sums = [], dict.fromkeys(KINDS, Sum(0, 0))
        elif " in loss record " in line:
            raise self._bad(number, line)

    def _add_record(self, match: re.Match[str], number: int) -> None:
        now = self._now
        if now.sums:  # of the search before
            now.records, now.sums = [], {}
        now.stack = LeakStack(self._source, number)
        now.records.append(_record(match, self._source, number)._replace(frames=now.stack.frames))
        now.has_last_record = match[10] == match[11]

    def _add_frame(self, stack: LeakStack, text: str, number: int) -> None:
        try:
            entry = read_node_text(text.encode("utf-8", "surrogateescape"))
        except UnknownTextError:
            raise self._bad(number, text) from None
        stack.add(entry.frame, entry.address)

    def _count(self, text: str, number: int) -> int:
        return _count(text, self._source, number)

    def _bad(self, number: int, line: str) -> InputError:
        return InputError(
            f"{printable(self._source)}:{number}: expected a loss record, found '{printable(line[:60])}'",
            slug="unknown-line",
            hint="was the file edited, or is it of another format?",
        )


class LeakStack:
    """The frames of one loss record, from the allocation outward, without valgrind's own malloc."""

    def __init__(self, source: str, line: Optional[int] = None) -> None:
        self.frames: list[Frame] = []
        self._address = 0  # of the last frame
        self._where = printable(source) if line is None else f"{printable(source)}:{line}"

    def add(self, frame: Optional[Frame], address: int) -> None:
        """Append *frame*; the same *address* twice is one call, whose first function was inlined."""
        before, self._address = self._address, address
        if frame is None or (not self.frames and _is_own(frame)):
            return
        if self.frames and address == before and self.frames[-1] != frame:
            self.frames[-1] = self.frames[-1]._replace(inlined=True)
        self.frames.append(frame)
        if len(self.frames) > DEEPEST:
            raise InputError(f"{self._where}: a stack without end", slug="stack-too-deep")


def read_record(text: str, source: str) -> Optional[LeakRecord]:
    """Return the facts in the first line of a loss record, without its stack; None for any other line."""
    match = _RECORD.fullmatch(text)
    return None if match is None else _record(match, source)


def _record(match: re.Match[str], source: str, line: Optional[int] = None) -> LeakRecord:
    total, delta, direct, direct_delta, indirect, _, blocks, more_blocks, kind, at, _ = match.groups()
    delta = direct_delta if direct is not None else delta
    return LeakRecord(
        number=_count(at, source, line),
        kind=_KINDS[kind],
        bytes=_count(direct or total, source, line),
        blocks=_count(blocks, source, line),
        frames=(),
        indirect_bytes=_count(indirect or "0", source, line),
        delta_bytes=None if delta is None else int(delta.replace(",", "")),
        delta_blocks=None if more_blocks is None else int(more_blocks.replace(",", "")),
    )


def _count(text: str, source: str, line: Optional[int]) -> int:
    return check_count(int(text.replace(",", "")), source, line)


def _no_leak_search(source: str) -> InputError:
    return InputError(
        f"{printable(source)} contains no leak search",
        slug="no-leak-search",
        hint="memcheck makes one with --leak-check=full, or when 'memleaks' asks it",
    )


def _is_own(frame: Frame) -> bool:
    return _OWN.fullmatch(frame.object or frame.file or "") is not None
