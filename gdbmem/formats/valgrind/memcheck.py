"""memcheck's leak records: from its log, through gdb, or from its XML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.stacks import (
    DEEPEST,
    TRUNCATED,
    Content,
    Hidden,
    Singles,
    Stack,
    StackProfile,
    check_count,
    choose_metric,
    make_profile,
    total_of,
)
from gdbmem.formats.valgrind.massif_tree import UnknownTextError, read_node_text
from gdbmem.model import calltree
from gdbmem.model.calltree import Frame
from gdbmem.model.leaks import INTERIOR_POINTER, NO_POINTER, POINTER, Block, LeakRecord, LeakSearch, Sum
from gdbmem.text import printable

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


SEVERAL = "several-processes"

_KINDS = {
    "definitely lost": calltree.DEFINITELY,
    "indirectly lost": calltree.INDIRECTLY,
    "possibly lost": calltree.POSSIBLY,
    "still reachable": calltree.REACHABLE,
    "suppressed": calltree.SUPPRESSED,
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
_MOST_PIDS = 3  # in a message
_END = "HEAP SUMMARY:"  # once a process
_COMMAND = re.compile(r"Command: (.*)")
_NO_BLOCK = re.compile(r"All heap blocks were freed -- no leaks are possible\.?")
# valgrind's own malloc stands at the top of each stack; the execution trees leave it out.
_OWN = re.compile(r"(?:.*/)?(?:vgpreload_[\w.-]+|vg_replace_malloc\.c)")


def read_memcheck_log(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the last leak search in *data*; raises InputError if there is none, or a line of it is damaged."""
    return profile_of(read_leak_search(bytes(data), source), source, metric)


def profile_of(search: LeakSearch, source: str, metric: Optional[str]) -> StackProfile:
    """Return the records of one kind as a profile; raises InputError if *search* has none, and no sums.

    Lost blocks count with what only they point to, unless *metric* names a single kind.
    """
    held = {record.kind for record in search.records}
    if not held and not any(kind in search.sums for kind in calltree.LOST):
        raise _no_leak_search(source)
    counted = {kind for kind, found in search.sums.items() if kind in calltree.LOST or found.bytes}
    if not search.sums:
        held.add(calltree.DEFINITELY)  # all of these are records
    metrics = [kind for kind in calltree.LEAK_KINDS if kind in held or kind in counted]
    metrics = [calltree.WITH_INDIRECT, *metrics] if calltree.DEFINITELY in metrics else metrics
    chosen = choose_metric(metric, metrics, source)
    whole = chosen == calltree.WITH_INDIRECT
    kind = calltree.DEFINITELY if whole else chosen
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
    content = Content(stacks, Singles(list(numbers)), hidden=hidden)
    found = make_profile(content, source, "memcheck", chosen, metrics, command=search.command)
    found.add_notices([*search.notices, *_notices(hidden, chosen, found.total_bytes, source)])
    return found


def _unlisted(search: LeakSearch, kind: str, stacks: Sequence[Stack], *, whole: bool) -> Hidden:
    """Return the bytes of *kind* that the sums count and no record lists, as with --leak-check=summary.

    With *whole*, *stacks* count what is lost indirectly.
    """
    if kind not in search.sums:
        return Hidden(0)
    counted = search.sums[kind].bytes
    if whole:
        indirect = sum(record.indirect_bytes for record in search.records if record.kind == kind)
        counted += search.sums[calltree.INDIRECTLY].bytes if calltree.INDIRECTLY in search.sums else indirect
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
        self.ends = 0  # reports of its end, of which a process makes one
        self.stack: Optional[LeakStack] = None  # of the last record, while it is read

    @property
    def is_whole(self) -> bool:
        return all(kind in self.sums for kind in calltree.LEAK_KINDS) if self.sums else self.has_last_record

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
            for kind in calltree.LEAK_KINDS
            if any(kind in one.sums for one in found)
        }
        records = [record for one in found for record in one.records]
        return LeakSearch(records, sums, command=self._command, notices=list(self._notices(found)))

    def _notices(self, found: Sequence[_SearchedProcess]) -> Iterator[Notice]:
        name, all_of_them = printable(self._source), len(self._processes)
        if len(found) > 1:
            yield Notice(SEVERAL, f"{name} has leak searches of {len(found)} processes, which are added up")
        shared = sorted(pid for pid, one in self._processes.items() if one.ends > 1)
        if shared:
            numbers = ", ".join(shared[:_MOST_PIDS])
            text = f"{name} has several processes with the number {numbers}, as of containers or hosts, whose records"
            yield Notice(calltree.BYTES_MISSING, f"{text} can't be told apart; split it by its writers")
        if len(found) < all_of_them:
            text = f"{name} is the log of {all_of_them} processes, of which {all_of_them - len(found)}"
            yield Notice(calltree.BYTES_MISSING, f"{text} made no leak search: what they lost is unknown")
        # The header, which -q leaves out as it does the sums, names the command.
        lacks_sums = self._command and not any(one.sums for one in found)
        if lacks_sums or not all(one.is_whole for one in found):
            text = f"{name} has an incomplete leak search, as if the log was truncated: records or sums may be missing"
            yield Notice(calltree.BYTES_MISSING, text)

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
        elif line == _END:
            now.ends += 1
        elif _NO_BLOCK.fullmatch(line):
            now.records, now.sums = [], dict.fromkeys(calltree.LEAK_KINDS, Sum(0, 0))
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


# The leak records that memcheck writes with --xml=yes.
#
# Source: valgrind, docs/internals/xml-output-protocol4.txt.


_STEP_BYTES = 1 << 16
_DECLARATION = re.compile(rb"<\?xml[^>]{0,200}\?>")
_ADDRESS = re.compile(r"0x([0-9A-Fa-f]{1,16})")
_XML_KINDS = {
    "definite": calltree.DEFINITELY,
    "possible": calltree.POSSIBLY,
}  # of which memcheck lists all records by default


def read_memcheck_xml(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the last leak search of each process in *data*; raises InputError if there is none, or one is damaged.

    A file that was truncated is read up to the cut. Processes that write to one file write a document each.
    """
    starts = [found.start() for found in _DECLARATION.finditer(data)]
    readers: dict[str, _ErrorReader] = {}
    for start, end in zip([0, *starts[1:]], [*starts[1:], len(data)]):
        reader = _ErrorReader(source)
        for element in _elements(data[start:end] if starts[1:] else data, source, reader.notices):
            reader.take(element)
            if element.tag != "status":
                element.clear()
        readers[reader.pid] = reader
    return profile_of(_added_up([reader.search() for reader in readers.values()], source), source, metric)


def _added_up(searches: Sequence[LeakSearch], source: str) -> LeakSearch:
    """Return the searches of several processes as one; a sum that one of them lacks is not known."""
    if len(searches) == 1:
        return searches[0]
    kinds = set.intersection(*(set(search.sums) for search in searches))
    records = [record for search in searches for record in search.records]
    text = f"{printable(source)} has leak searches of {len(searches)} processes, which are added up"
    notices = [Notice(SEVERAL, text), *(notice for search in searches for notice in search.notices)]
    sums = {kind: sum_of(records, kind) for kind in kinds}
    return LeakSearch(records, sums, command=searches[0].command, notices=notices)


def _elements(data: Data, source: str, notices: list[Notice]) -> Iterator[Element]:
    """Yield the children of the root, each when it is whole."""
    from xml.etree.ElementTree import ParseError, XMLPullParser  # not always needed

    parser: Any = XMLPullParser(("start", "end"))  # its type hints differ from release to release
    depth, at = 0, 0
    try:
        while at < len(data):
            piece = data[at : at + _STEP_BYTES]
            if b"<!" in piece.replace(b"<!--", b""):
                raise _damaged(source, "it declares a document type, which valgrind never does")
            parser.feed(piece)
            at += _STEP_BYTES
            for event, element in parser.read_events():
                depth += 1 if event == "start" else -1
                if event == "end" and depth == 1:
                    yield element
        parser.close()
    except ParseError as error:
        text = f"{printable(source)} ends, or is damaged, at line {error.position[0]}: loss records may be missing"
        notices.append(Notice(calltree.BYTES_MISSING, text))


class _ErrorReader:
    def __init__(self, source: str) -> None:
        self.notices: list[Notice] = []
        self._source = source
        self._records: list[LeakRecord] = []
        self.pid = ""
        self._command = ""
        self._listed: list[str] = []  # the kinds of which the file has all records
        self._is_finished = False

    def take(self, element: Element) -> None:
        if element.tag == "protocoltool" and element.text != "memcheck":
            raise InputError(
                f"{printable(self._source)} is of valgrind's {printable(element.text or '?')}, which finds no leaks",
                slug="no-leak-search",
                hint="memcheck does: valgrind --leak-check=full --xml=yes --xml-file=FILE",
            )
        if element.tag == "pid":
            self.pid = element.text or ""
        elif element.tag == "args":
            given = [(one.text or "").strip() for one in element.iterfind("argv/*")]
            self._command = " ".join(given)
            self._listed = _listed([one.text or "" for one in element.iterfind("vargv/arg")])
        elif element.tag == "status":
            self._is_finished = element.findtext("state") == "FINISHED"
        elif element.tag == "suppcounts" and len(element):
            self._listed = []  # a suppressed leak is not a record, and the file does not name the suppressed errors
        elif element.tag == "error" and (element.findtext("kind") or "").startswith("Leak_"):
            self._add(element)

    def _add(self, element: Element) -> None:
        record = read_record(element.findtext("xwhat/text") or "", self._source)
        if record is None:
            raise _damaged(self._source, "a leak without memcheck's text")
        if self._records and record.number <= self._records[-1].number:
            self._records = []  # of the search before
        stack = LeakStack(self._source)
        for frame in element.iterfind("stack[1]/frame"):
            address = _address(frame, self._source)
            stack.add(_frame(frame, address), address)
        self._records.append(record._replace(frames=stack.frames))

    def search(self) -> LeakSearch:
        # The XML has no sums. That nothing was lost is known only where memcheck was asked to list all, and did.
        known = self._listed if self._is_finished and not self.notices else ()
        sums = {kind: sum_of(self._records, kind) for kind in known}
        return LeakSearch(self._records, sums, command=self._command, notices=self.notices)


def _listed(options: list[str]) -> list[str]:
    """Return the kinds of leaks that valgrind's *options* have it list, as far as no record means no leak."""
    given = dict(option.partition("=")[::2] for option in options)
    if given.get("--leak-check") not in ("full", "yes"):
        return []
    words = given.get("--show-leak-kinds", "definite,possible").split(",")
    listed = [kind for word, kind in _XML_KINDS.items() if word in words or words == ["all"]]
    if given.get("--show-possibly-lost") == "no":
        listed = [kind for kind in listed if kind != calltree.POSSIBLY]
    return listed


def _address(frame: Element, source: str) -> int:
    found = _ADDRESS.fullmatch(frame.findtext("ip") or "")
    if found is None:
        raise _damaged(source, "a frame of a leak has no address")
    return int(found[1], 16)


def _frame(frame: Element, address: int) -> Frame:
    function, file, line = frame.findtext("fn"), frame.findtext("file"), frame.findtext("line") or ""
    if file is not None:
        path = str(PurePosixPath(frame.findtext("dir") or "", file))
        return Frame(function, path, int(line) if line.isdecimal() and len(line) < 10 and int(line) else None)
    return Frame(function or f"0x{address:X}", object=frame.findtext("obj"))


def _damaged(source: str, reason: str) -> InputError:
    return InputError(
        f"{printable(source)} does not have memcheck's format: {reason}",
        slug="xml-damaged",
        hint="was the file edited?",
    )


# memcheck's answers to gdb: the blocks of a loss record, the pointers to an address, the owner of an address.


_SIZE = r"([0-9][0-9,]{0,25})"
_BLOCK = re.compile(rf"( *)(0x[0-9A-Fa-f]+)\[{_SIZE}\](?: indirect loss record {_SIZE})?.*")
_POINTER = re.compile(
    rf"\*(0x[0-9a-fA-F]+) (?:points at 0x|interior points at {_SIZE} bytes inside 0x)[0-9a-fA-F]+"
)
_REGISTER = re.compile(
    rf"tid ([0-9]+) register (\S+) (?:pointing at 0x|interior pointing (?:at )?{_SIZE} bytes inside 0x)[0-9a-fA-F]+"
)
_PLACE = re.compile(r" *(?:Address|Location) (0x[0-9a-fA-F]+) (.*)")
_IN_BLOCK = re.compile(
    rf"is {_SIZE} bytes inside (?:a|an unallocated|a recently re-allocated) block of size {_SIZE} (\S+)"
)


class AddressOwner(NamedTuple):
    """The owner of an address, by memcheck."""

    address: int
    text: str  # "is 0 bytes inside data symbol …"
    block: Optional[Block] = None  # of the heap, and alive
    frames: Sequence[Frame] = ()  # where that was allocated


class MemcheckPointer(NamedTuple):
    """A pointer that memcheck found."""

    inside_bytes: int
    place: Optional[AddressOwner]  # None: a register
    register: str = ""
    thread: Optional[int] = None


def read_blocks(said: str) -> list[Block]:
    """Return the blocks that the answer to block_list names; [] if memcheck has no such record."""
    found = []
    for line in _lines(said):
        match = _BLOCK.fullmatch(line)
        if match is not None:
            record = None if match[4] is None else _number(match[4])
            found.append(Block(int(match[2], 16), _number(match[3]), len(match[1]) // 2, record))
    return found


_FOUND = {calltree.REACHABLE: POINTER, calltree.POSSIBLY: INTERIOR_POINTER}


class ListedBlocks(NamedTuple):
    """All blocks of a list of loss records, each with the number of its stack."""

    addresses: list[int]
    sizes: list[int]  # bytes that the program asked for
    paths: list[int]
    kinds: list[
        int
    ]  # whether memcheck has found a pointer to the block: NO_POINTER, INTERIOR_POINTER or POINTER
    stacks: list[Sequence[Frame]]  # from the allocation outward
    counted: int  # blocks that there are by the sums of the leak search


def read_all_blocks(said: str, counted: int) -> ListedBlocks:
    """Return the blocks in the answer to block_list for all records, of *counted* ones. Raises InputError."""
    found = ListedBlocks([], [], [], [], [], counted)
    numbers: dict[tuple[Frame, ...], int] = {}
    stack: Optional[LeakStack] = None
    path, kind = -1, NO_POINTER
    for line in _lines(said):
        match = _BLOCK.fullmatch(line)
        if match is None:
            frame = _FRAME.fullmatch(line)
            if frame is not None and stack is not None:
                _add_frame(stack, frame[1])
            elif (record := _RECORD.fullmatch(line)) is not None:
                stack = LeakStack("memcheck's answer")
                kind = _FOUND.get(_KINDS[record[9]], NO_POINTER)
        elif not match[1]:  # others are listed with the record that counts them, too
            if stack is not None:
                path = numbers.setdefault(tuple(stack.frames), len(numbers))
                stack = None
            found.addresses.append(int(match[2], 16))
            found.sizes.append(_number(match[3]))
            found.paths.append(path)
            found.kinds.append(kind)
    found.stacks.extend(numbers)
    return found


def _add_frame(stack: LeakStack, text: str) -> None:
    try:
        entry = read_node_text(text.encode("utf-8", "surrogateescape"))
    except UnknownTextError:
        raise InputError(
            f"memcheck's answer has a frame that can't be read: {printable(text)}", slug="unknown-line"
        ) from None
    stack.add(entry.frame, entry.address)


def is_addressable(said: str) -> bool:
    """Return whether the answer to check_memory says that the program may use the memory."""
    return any(line.endswith(" addressable") and " not " not in line for line in _lines(said))


def read_pointers(said: str) -> list[MemcheckPointer]:
    """Return what the answer to who_points_at names."""
    found: list[MemcheckPointer] = []
    lines = list(_lines(said))
    for at, line in enumerate(lines):
        pointer, register = _POINTER.fullmatch(line), _REGISTER.fullmatch(line)
        if register is not None:
            found.append(MemcheckPointer(_number(register[3] or "0"), None, register[2], int(register[1])))
        elif pointer is not None:
            address = int(pointer[1], 16)
            place = _place(lines[at + 1 :]) or AddressOwner(address, "")
            found.append(
                MemcheckPointer(
                    _number(pointer[2] or "0"),
                    place if place.address == address else AddressOwner(address, ""),
                )
            )
    return found


def read_place(said: str) -> Optional[AddressOwner]:
    """Return the facts in the answer to v.info location; None if it does not describe the address."""
    lines = list(_lines(said))
    return next((_place(lines[at:]) for at, line in enumerate(lines) if _PLACE.fullmatch(line)), None)


def _place(lines: Sequence[str]) -> Optional[AddressOwner]:
    match = _PLACE.fullmatch(lines[0]) if lines else None
    if match is None:
        return None
    address = int(match[1], 16)
    inside = _IN_BLOCK.match(match[2])
    if inside is None or inside[3] != "alloc'd":
        return AddressOwner(address, match[2])
    block = Block(address - _number(inside[1]), _number(inside[2]))
    return AddressOwner(address, match[2], block, _frames(lines[1:]))


def _frames(lines: Sequence[str]) -> list[Frame]:
    frames: list[Frame] = []
    for line in lines:
        match = _FRAME.fullmatch(line)
        if match is None:
            break
        try:
            frame = read_node_text(match[1].encode("utf-8", "surrogateescape")).frame
        except UnknownTextError:
            break
        if frame is not None and (frames or not _is_own(frame)):
            frames.append(frame)
    return frames


def _lines(said: str) -> Iterator[str]:
    for line in said.splitlines():
        prefix = _PREFIX.match(line)
        yield line[prefix.end() :] if prefix else line


def _number(text: str) -> int:
    return int(text.replace(",", ""))
