"""The leak records that memcheck writes with --xml=yes.

Source: valgrind, docs/internals/xml-output-protocol4.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.stacks import StackProfile
from gdbmem.formats.valgrind.massif_tree import UnknownTextError, read_node_text
from gdbmem.formats.valgrind.memcheck_log import SEVERAL, LeakStack, profile_of, read_record, sum_of
from gdbmem.model.calltree import BYTES_MISSING, Frame
from gdbmem.model.leaks import DEFINITELY, POSSIBLY, Block, LeakRecord, LeakSearch
from gdbmem.text import printable

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


_STEP_BYTES = 1 << 16
_DECLARATION = re.compile(rb"<\?xml[^>]{0,200}\?>")
_ADDRESS = re.compile(r"0x([0-9A-Fa-f]{1,16})")
_KINDS = {"definite": DEFINITELY, "possible": POSSIBLY}  # of which memcheck lists all records by default


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
        notices.append(Notice(BYTES_MISSING, text))


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
    listed = [kind for word, kind in _KINDS.items() if word in words or words == ["all"]]
    if given.get("--show-possibly-lost") == "no":
        listed = [kind for kind in listed if kind != POSSIBLY]
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
_PREFIX = re.compile(r"(?:==|--)[0-9]+(?:==|--) ?")
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
_FRAME = re.compile(r" +(?:at|by) (0x[0-9A-F]+: .*)")
_ALLOCATORS = re.compile(r"vgpreload_[\w.-]+$|vg_replace_malloc\.c$")


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
        if frame is not None and (frames or not _ALLOCATORS.search(frame.object or frame.file or "")):
            frames.append(frame)
    return frames


def _lines(said: str) -> Iterator[str]:
    for line in said.splitlines():
        prefix = _PREFIX.match(line)
        yield line[prefix.end() :] if prefix else line


def _number(text: str) -> int:
    return int(text.replace(",", ""))
