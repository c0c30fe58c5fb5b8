"""Lines of a function that need no breakpoint, because the next line that has one tells what happened on them.

A line is quiet if its instructions call nothing and access only registers, the function's frame and static variables.
Where all these pages are resident, such a line can't change the memory of the process. The way from one breakpoint
to the next must be the only one, so that it tells which lines were executed, and have at most one line that is not
quiet, which is charged for the change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import AbstractSet, Callable, NamedTuple, Optional

from gdbmem.linux.memory.resident import PAGE_BYTES

# Instead of the address where a way ends: the function has returned; it calls another.
RETURNED, CALLING = -1, -2
Routes = Mapping[int, tuple[int, ...]]  # where a way may end → the beginnings of lines in between

_MOST_TOGETHER = 32  # lines that may follow a breakpoint before the next ones
_MOST_PAGES = 16  # of a frame
_RED_ZONE = 128  # bytes below the stack pointer that x86-64's functions may use
_WIDEST_ACCESS = 64  # bytes

# x86: jumps and loop; ARM: branches. The address is that of a direct one. Calls are stepped over at full speed by gdb.
_BRANCH = re.compile(
    r"^(?:bnd |notrack )*(j\w+|loop\w*|b(?:\.\w+)?|cbn?z|tbn?z|br)(?![\w.])"
    r"(?:\S*\s+(?:[\w#]+,\s*)*0x([0-9a-f]+)(?: <.*>)?(?:\s*//.*)?$)?"
)
_CALL = re.compile(r"^(?:bnd |notrack )*(?:call\w*|blr?)\b")
_RETURN = re.compile(r"^(?:bnd |repz )*(?:ret\w*|eret|hlt|ud2)\b")
_REPEATED = re.compile(r"^(?:rep\w*|repz|repnz) ")
_ALWAYS = ("jmp", "jmpq", "b", "br")  # branches that don't fall through to the next instruction
# Only AT&T's syntax for x86 is read below: all else matches nothing, and no line is quiet.
_PREFIX = re.compile(r"^(?:lock |data16 |bnd |notrack |cs )*")
_HARMLESS = re.compile(r"^(?:lea[a-z]?|nop[a-z]?|endbr64)$")
_KERNEL = re.compile(r"^(?:syscall|sysenter|int\d?|enter|maskmov\w*|clzero|xbegin|ud\d)$")
_PLAIN = re.compile(r"^(?:%\w+|%st\(\d\)|\$-?\w+|%fs:0x28)$")  # that one holds the stack protector's word
_MEMORY = re.compile(r"^(?:-?0x[0-9a-f]+)?\((%\w+)\)$")
_STATIC = re.compile(r"# 0x([0-9a-f]+)")
_COMMA = re.compile(r",(?![^(]*\))")
_GROWS = re.compile(r"^(sub|add|and)q?\s+\$(-?)0x([0-9a-f]+),%rsp$")
_MOVES = re.compile(r"^lea\s+(-?)0x([0-9a-f]+)\(%r[sb]p\),%rsp$")
_SETS_STACK = re.compile(r"(?:^(?:cmp|xchg|xadd)\S*\s.*%[er]?sp\b|[\s,]%[er]?spl?$)")
_KEEPS_STACK = re.compile(r"^(?:mov\s+%rbp,%rsp$|push\s|test\s)")
_SETS_BASE = re.compile(r"(?:^(?:xchg|xadd)\S*\s.*%[er]?bp\b|[\s,]%[er]?bpl?$)")
_KEEPS_BASE = re.compile(r"^(?:mov\s+%rsp,%rbp$|push\s|pop\s|cmp|test)")
# The C++ runtime's names, and those of other languages. A call without a name could be any of them.
_CALLED = re.compile(r"<([^>+]+)")
_NO_RETURN = re.compile(
    r"_Unwind_Resume|__cxa_(?:re)?throw|__stack_chk_fail|__assert_fail|__throw_|terminate|^_?exit\b|^abort\b"
)
_CAUGHT = re.compile(r"_Unwind_Resume|begin_catch|begin_handler|enter_catch|terminate")
_TWICE = re.compile(r"setjmp|vfork|getcontext")  # may return again, later


class Instruction(NamedTuple):
    """One instruction and its successors."""

    address: int
    behind: int  # the address of the next one
    target: Optional[int] = None  # of a direct branch
    goes_on: bool = True  # execution may continue with the next one
    is_call: bool = False
    is_known: bool = True  # False: a jump to an address that is computed
    repeats: bool = False
    returns: bool = False
    text: str = ""  # as gdb disassembles it

    def successors(self) -> Iterator[int]:
        """Yield the addresses that may follow in the same call of the function."""
        if self.target is not None:
            yield self.target
        if self.goes_on:
            yield self.behind


class Region(NamedTuple):
    """The code from the beginning of a line to the next beginnings."""

    after: frozenset[int]  # where it may lead to
    is_quiet: bool
    calls: bool = False
    pages: frozenset[int] = frozenset()  # the numbers of the static variables' pages
    code: frozenset[int] = frozenset()  # the addresses of its instructions


class QuietLines(NamedTuple):
    """The beginnings of lines that need no breakpoint, and what there is to know about them."""

    skipped: frozenset[int]
    routes: Mapping[int, Routes]  # by the beginning of a line
    regions: Mapping[int, Region]
    frame_bytes: int = 0  # below the stack pointer at the function's entry
    # Pages accessed by the beginning of a line and its routes.
    spans: Mapping[int, Sequence[tuple[int, int]]] = {}

    def between(self, start: Optional[int], end: int) -> tuple[int, ...]:
        """Return the beginnings of lines that were passed between two events."""
        routes = self.routes.get(start, {}) if start is not None else {}
        if end in routes:
            return routes[end]
        return routes.get(CALLING, ())  # thrown by a call, and caught here

    def is_quiet(self, start: Optional[int]) -> bool:
        """Return whether the line that begins at *start* can't change the process's memory."""
        region = self.regions.get(start) if start is not None else None
        return region is not None and region.is_quiet

    def place_of(self, start: Optional[int], address: int) -> Optional[int]:
        """Return which beginning of a line the instruction at *address* follows, since an event at *start*."""
        reached = [one for one in self.routes.get(start or 0, {}) if one in self.skipped]
        return next((one for one in reached if address in self.regions[one].code), None)


ALL_WATCHED = QuietLines(frozenset(), {}, {})


def quiet_lines(
    start: int, beginnings: Sequence[int], addresses: Sequence[int], instruction: Callable[[int], Instruction]
) -> QuietLines:
    """Return the quiet lines of the function that begins at *start*; *addresses* are those of its instructions."""
    listed = list(map(instruction, addresses))
    frame = _Frame([one.text.partition("#")[0].rstrip() for one in listed])
    inside = frozenset(addresses)
    if frame.bytes is None or any(map(_is_opaque, listed)):
        return ALL_WATCHED
    nodes = {start, *beginnings}
    regions = {node: _region({node}, nodes, inside, instruction, frame) for node in nodes}
    usual = _reachable(start, regions)
    covered = frozenset().union(*(regions[node].code for node in usual))
    if any(_catches(instruction(address)) for address in covered):
        return ALL_WATCHED  # code where exceptions are caught was taken for what follows a call
    landings = _region(inside - covered, nodes, inside, instruction, frame)  # entered by an exception
    skipped = _skippable(regions, {start, *(nodes - usual), *landings.after})
    routes = {node: found for node in nodes if (found := routes_from(node, regions, skipped)) is not None}
    if not skipped or len(routes) < len(nodes):
        return ALL_WATCHED
    spans = {
        node: _spans([regions[one] for one in {node, *(routes[node].keys() & skipped)}]) for node in nodes
    }
    return QuietLines(frozenset(skipped), routes, regions, frame.bytes, spans)


def routes_from(
    start: int, regions: Mapping[int, Region], skipped: set[int]
) -> Optional[dict[int, tuple[int, ...]]]:
    """Return the ways from *start* over lines that are *skipped*; None if they don't tell what happened on them."""
    routes: dict[int, tuple[int, ...]] = {start: ()}
    if regions[start].calls:
        routes[CALLING] = ()
    noisy = not regions[start].is_quiet
    todo: list[tuple[int, tuple[int, ...], bool]] = [(start, (), regions[start].calls)]
    while todo:
        node, path, has_called = todo.pop()
        for after in regions[node].after:
            if after == node == start:
                continue  # it loops on one line
            if after in routes or len(routes) > _MOST_TOGETHER:
                return None
            routes[after] = path
            if after not in skipped:
                continue
            region, further = regions[after], (*path, after)
            # A call may have released a static variable's page.
            if (noisy and not region.is_quiet) or (has_called and region.pages):
                return None
            noisy = noisy or not region.is_quiet
            if region.calls:
                routes[CALLING] = further
            todo.append((after, further, has_called or region.calls))
    return routes


def _skippable(regions: Mapping[int, Region], kept: set[int]) -> set[int]:
    before: dict[int, list[int]] = {node: [] for node in regions}
    for node, region in regions.items():
        for after in region.after:
            if after in before:
                before[after].append(node)
    skipped: set[int] = set()
    for node in sorted(regions.keys() - kept):
        skipped.add(node)
        if any(routes_from(one, regions, skipped) is None for one in _leading_to(node, before, skipped)):
            skipped.remove(node)
    return skipped


def _leading_to(node: int, before: Mapping[int, Sequence[int]], skipped: set[int]) -> Iterator[int]:
    """Yield *node*, and from where it is reached over lines that are skipped."""
    todo, seen = [node], {node}
    while todo:
        one = todo.pop()
        yield one
        if one in skipped:
            new = [earlier for earlier in before[one] if earlier not in seen]
            seen.update(new)
            todo += new


def _reachable(start: int, regions: Mapping[int, Region]) -> set[int]:
    todo, seen = [start], {start}
    while todo:
        for after in regions[todo.pop()].after:
            if after in regions and after not in seen:
                seen.add(after)
                todo.append(after)
    return seen


def _region(
    starts: AbstractSet[int],
    nodes: set[int],
    inside: frozenset[int],
    instruction: Callable[[int], Instruction],
    frame: _Frame,
) -> Region:
    after: set[int] = set()
    pages: set[int] = set()
    is_quiet, calls = True, False
    todo, seen = list(starts), set()
    while todo:
        address = todo.pop()
        if address in seen:
            continue
        seen.add(address)
        one = instruction(address)
        calls = calls or one.is_call
        accessed = frame.static_pages(one)
        is_quiet = is_quiet and accessed is not None
        pages |= accessed or set()
        if one.returns:
            after.add(RETURNED)
        if one.is_call and _NO_RETURN.search(_called(one)):
            continue
        for following in one.successors():
            if following in nodes:
                after.add(following)
            elif following in inside:
                todo.append(following)
            else:  # it goes on in another function, which returns in its place
                after.add(RETURNED)
                is_quiet, calls = False, True
    return Region(frozenset(after), is_quiet, calls, frozenset(pages), frozenset(seen))


def _called(one: Instruction) -> str:
    """Return the name of the function that the call *one* names."""
    match = _CALLED.search(one.text)
    return match[1] if match else ""


def _catches(one: Instruction) -> bool:
    return one.is_call and _CAUGHT.search(_called(one)) is not None


def _is_opaque(one: Instruction) -> bool:
    """Return whether execution may go on after *one* in a place that is not known, or come back later."""
    if not one.is_known and not one.returns:
        return True
    if not one.is_call:
        return one.text.startswith("xbegin")
    is_computed = "*%" in one.text or re.search(r"\*\S*\(%(?!rip)", one.text) is not None
    return not is_computed and (not _called(one) or _TWICE.search(_called(one)) is not None)


def _spans(regions: Sequence[Region]) -> list[tuple[int, int]]:
    """Return the addresses of the pages of *regions*: their code, and the static variables of the quiet ones."""
    spans: list[tuple[int, int]] = []
    code = {address // PAGE_BYTES for region in regions for address in region.code}
    for page in sorted(code.union(*(region.pages for region in regions if region.is_quiet))):
        address = page * PAGE_BYTES
        if spans and spans[-1][1] == address:
            spans[-1] = (spans[-1][0], address + PAGE_BYTES)
        else:
            spans.append((address, address + PAGE_BYTES))
    return spans


class _Frame:
    """How a function of x86-64 uses its frame; *texts* are its instructions."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.bytes = _frame_bytes(texts)  # below the entry's stack pointer; None: unknown
        base = any(re.match(r"mov\s+%rsp,%rbp$", text) for text in texts) and not any(
            _SETS_BASE.search(text) and not _KEEPS_BASE.match(text) for text in texts
        )
        self._bases = {"%rsp", "%rbp"} if base else {"%rsp"}

    def static_pages(self, one: Instruction) -> Optional[set[int]]:
        """Return the pages of static variables that *one* accesses; None if it may access other memory, or calls."""
        if one.is_call:
            return None
        if one.target is not None or one.returns:
            return set()
        code = _PREFIX.sub("", one.text)
        mnemonic, _, rest = code.partition(" ")
        if _HARMLESS.match(mnemonic):
            return set()
        if _KERNEL.match(mnemonic):
            return None
        pages: set[int] = set()
        operands = rest.partition("#")[0].strip()
        for operand in _COMMA.split(operands) if operands else ():
            if _PLAIN.match(operand):
                continue
            memory = _MEMORY.match(operand)
            if memory is not None and memory[1] in self._bases:
                continue
            static = _STATIC.search(code)
            if memory is None or memory[1] != "%rip" or static is None:
                return None
            address = int(static[1], 16)
            pages |= {address // PAGE_BYTES, (address + _WIDEST_ACCESS - 1) // PAGE_BYTES}
        return pages


def _frame_bytes(texts: Sequence[str]) -> Optional[int]:
    """Return how many bytes below the stack pointer at its entry a function may use; None: unknown."""
    total = _RED_ZONE
    for text in texts:
        grows, moves = _GROWS.match(text), _MOVES.match(text)
        if text.startswith("push"):
            total += 8
        elif grows is not None:
            by = int(grows[3], 16) * (-1 if grows[2] else 1)
            by = by - (1 << 64) if by >= 1 << 63 else by
            total += max(by if grows[1] == "sub" else -by, 0)
        elif moves is not None:
            total += int(moves[2], 16) if moves[1] else 0
        elif _SETS_STACK.search(text) and not _KEEPS_STACK.match(text):
            return None
    return total if total <= _MOST_PAGES * PAGE_BYTES else None


def decode(address: int, length: int, text: str) -> Instruction:
    """Return the instruction at *address* of which gdb has the *text*."""
    behind = address + length
    match = _BRANCH.match(text)
    if match is not None:
        target = int(match[2], 16) if match[2] else None
        return Instruction(
            address, behind, target, goes_on=match[1] not in _ALWAYS, is_known=target is not None, text=text
        )
    if _CALL.match(text):
        return Instruction(address, behind, is_call=True, text=text)
    if _RETURN.match(text):
        return Instruction(address, behind, goes_on=False, is_known=False, returns=True, text=text)
    return Instruction(address, behind, repeats=_REPEATED.match(text) is not None, text=text)
