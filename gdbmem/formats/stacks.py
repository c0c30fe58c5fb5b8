"""Stacks with bytes and blocks, as every format but massif's has them, made into one call tree a metric."""

import re
import sys
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby, islice
from operator import eq
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Union, overload

from gdbmem.errors import InputError, Notice
from gdbmem.formats.addresses import Binary, Symbols, with_names
from gdbmem.model import calltree
from gdbmem.model.calltree import CallTree, Frame, Frames, Stretch, Totals
from gdbmem.text import format_size, printable

if TYPE_CHECKING:
    from gdbmem.model.faults import FaultTotals


# Blocks by their size: a frame for each class of sizes, in front of the allocation site.


AVERAGED = "block-sizes-averaged"
_SMALLEST = 16


def most_of_class(block_bytes: int) -> int:
    """Return the largest size in the class of *block_bytes*: classes end at the powers of two from 16."""
    return max(_SMALLEST, 1 << max(block_bytes - 1, 0).bit_length())


def size_class(block_bytes: int) -> Frame:
    """Return the frame for blocks of *block_bytes*."""
    most = most_of_class(block_bytes)
    over = f"over {format_size(most // 2)}, " if most > _SMALLEST else ""
    return Frame(f"blocks {over}up to {format_size(most)}", line=most, object=calltree.SIZE_CLASS)


IN_USE, ALLOCATED = "in-use", "allocated"
FREED, OWN_PEAK, TEMPORARY, KEPT = "freed", "own-peak", "temporary", "kept"
# How blocks were used.
READ, WRITTEN, NEVER_READ, NEVER_WRITTEN = "read", "written", "never-read", "never-written"
SHORT_LIVED, LIFETIMES, POINTS = "short-lived", "lifetimes", "points"
GROWN, MADE_RESIDENT = "grown", "made-resident"
# Of reports that divide a process, or what an allocator got from the system.
RESIDENT, PSS, DIRTY, SWAP, MAPPED = "resident", "pss", "dirty", "swap", "mapped"
HELD, FREE, COMMITTED, RESERVED = "held", "free", "committed", "reserved"
TRUNCATED = "profile-truncated"
LARGEST = (1 << 63) - 1
DEEPEST = 100_000  # frames on one stack

# The unit of each metric: two sides of a diff must have the same.
UNITS = {
    ALLOCATED: calltree.ALLOCATED_BYTES,
    FREED: calltree.FREED_BYTES,
    OWN_PEAK: calltree.OWN_PEAK_BYTES,
    TEMPORARY: calltree.TEMPORARY_BYTES,
    KEPT: calltree.KEPT_BYTES,
    READ: calltree.READ_BYTES,
    WRITTEN: calltree.WRITTEN_BYTES,
    NEVER_READ: calltree.UNREAD_BYTES,
    NEVER_WRITTEN: calltree.UNWRITTEN_BYTES,
    SHORT_LIVED: calltree.SHORT_LIVED_BYTES,
    GROWN: calltree.GROWN_BYTES,
    MADE_RESIDENT: calltree.FAULTED_BYTES,
    RESIDENT: calltree.RESIDENT_BYTES,
    MAPPED: calltree.PAGE_BYTES,
    HELD: calltree.PAGE_BYTES,
    PSS: calltree.PSS_BYTES,
    DIRTY: calltree.DIRTY_BYTES,
    SWAP: calltree.SWAPPED_BYTES,
    COMMITTED: calltree.COMMITTED_BYTES,
    RESERVED: calltree.RESERVED_BYTES,
    FREE: calltree.FREE_BYTES,
}
_LOST = rf"(?:(?:in|de)creased-)?(?:{'|'.join((*calltree.LOST, calltree.WITH_INDIRECT))}|definitely-indirectly-lost)"


class Stack(NamedTuple):
    """One call path, allocation site first, and the memory that it holds."""

    frames: Sequence[int]  # numbers of frames or of addresses, as its profile has them
    bytes: int
    blocks: int = 0
    variance: float = 0.0  # bytes²; of a sampled count
    block_bytes: int = -1  # of each of its blocks; -1: only their mean is known
    path_variance: float = 0.0  # bytes², beyond: another path from the same site may have some of it


class Singles(Sequence[Sequence[Frame]]):
    """Chains of one frame each, of which there may be hundreds of thousands."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames

    def __len__(self) -> int:
        return len(self.frames)

    @overload
    def __getitem__(self, index: int) -> Sequence[Frame]: ...

    @overload
    def __getitem__(self, index: slice) -> "Singles": ...

    def __getitem__(self, index: Union[int, slice]) -> "Sequence[Frame] | Singles":
        return Singles(self.frames[index]) if isinstance(index, slice) else (self.frames[index],)


class PackedStacks(Sequence[Stack]):
    """Stacks of which only the bytes are known, as columns: there may be hundreds of thousands."""

    def __init__(self) -> None:
        self.frames = array("i")  # of all stacks, one behind the other
        self.ends = array("i", [0])  # where each stack ends in them; the first is no stack's
        self.sizes = array("q")  # bytes

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> Stack: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Stack]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[Stack, Sequence[Stack]]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        return Stack(tuple(self.frames[self.ends[at] : self.ends[at + 1]]), self.sizes[at])

    def extend(self, frames: Iterable[int], depths: Iterable[int], sizes: Iterable[int]) -> None:
        """Add stacks of *depths* frames each, allocation site first."""
        self.frames.extend(frames)
        self.ends.extend(islice(accumulate(depths, initial=self.ends[-1]), 1, None))
        self.sizes.extend(sizes)

    def paths(self) -> list[bytes]:
        """Return pack_path() of the frames of each."""
        packed, ends = pack_path(self.frames), self.ends
        return [packed[start * _WIDTH : end * _WIDTH] for start, end in zip(ends, ends[1:])]


_WIDTH = array("i").itemsize
_IS_LITTLE = sys.byteorder == "little"


def pack_path(numbers: Iterable[int]) -> bytes:
    """Return *numbers*, which are not negative, as bytes that compare as they do."""
    return _swapped(array("i", numbers)).tobytes()


def _swapped(numbers: "array[int]") -> "array[int]":
    if _IS_LITTLE:
        numbers.byteswap()
    return numbers


class Hidden(NamedTuple):
    """Bytes that a file counts in its total but does not list."""

    bytes: int
    largest_bytes: int = 0  # no stack that is not listed holds more; 0: unknown
    blocks: int = 0


class Content(NamedTuple):
    """The stacks of a profile by one metric, with the frames that their numbers stand for.

    ``chains[number]`` is the frames of one number, innermost first: an address may hold inlined ones.
    """

    stacks: Sequence[Stack]
    chains: Sequence[Sequence[Frame]]
    has_blocks: bool = True
    is_sampled: bool = False
    has_doubtful_paths: bool = False
    recording: str = ""  # as model.calltree has it
    hidden: Optional[Hidden] = None
    taken: Sequence[Stack] = ()  # of a difference: what went away, counted from nought up


class SizeClass(NamedTuple):
    """The blocks of up to *most_bytes* each, and of more than the class before it."""

    most_bytes: int
    blocks: int
    bytes: int


class _StackFields(NamedTuple):
    source: str
    source_format: str
    metric: str
    metrics: Sequence[str]  # that the file holds
    total_bytes: int
    load: "Callable[[StackProfile], Content]"  # may add notices
    notices: list[Notice]
    command: str = ""
    time_unit: str = "s"
    time: float = 0.0
    taken_at: float = 0.0  # seconds since 1970; 0: the file does not say
    marked_peak_index: Optional[int] = None
    is_difference: bool = False  # what came and what went between two moments, which it does not hold
    faults: "Optional[FaultTotals]" = None  # of a recording of page faults: what they explain
    beside: Mapping[str, int] = {}  # bytes of the process that are in no stack
    wanted: Callable[[], Mapping[Binary, set[int]]] = dict  # places that lack names


class StackProfile(_StackFields):
    """One moment of a program (model.snapshot.Profile): a single snapshot, counted by one metric."""

    by_size = False  # trees begin with the size of the blocks
    # How the blocks of each path were used, as profiles of their own: ALLOCATED, LIFETIMES (the sum of all, in the
    # tool's unit, in place of bytes), POINTS (the tool's records, likewise), READ and WRITTEN, as far as they are
    # known. None: none is.
    uses: "Optional[Callable[[], Mapping[str, StackProfile]]]" = None
    unit_of_time = ""  # of lifetimes
    has_block_sizes = False  # the size of each block is known, not only the mean of a path
    symbols: Optional[Symbols] = None  # who names calls that valgrind has no name for
    covered: Optional[Stretch] = None  # the part of a recording that it is of; None: all
    earlier: "Optional[StackProfile]" = None  # the moment from which it is to be compared

    @property
    def peak_index(self) -> int:
        return 0

    @property
    def peak_tree_index(self) -> Optional[int]:
        return 0

    @property
    def unit(self) -> str:
        return (
            calltree.LOST_BYTES
            if re.fullmatch(_LOST, self.metric)
            else UNITS.get(self.metric, calltree.HEAP_BYTES)
        )

    @property
    def snapshots(self) -> Sequence[Totals]:
        return (Totals(0, self.time, self.total_bytes, 0, 0, True, self.metric, self.beside),)

    def tree(self, index: int) -> Optional[CallTree]:
        """Return the call tree, made now."""
        self._say_that_nothing_is_in_use()
        content = self.load(self)
        if self.by_size:
            content = self._with_sizes(content)
        tree = build_tree(content, self.source)
        if self.symbols is None:
            return tree
        tree, said = with_names(tree, self.symbols, self.source)
        self.add_notices(said)
        return tree

    def sizes(self) -> list[SizeClass]:
        """Return the blocks by size, the smallest first, also classes without any between; [] if it is unknown."""
        if not self.has_block_sizes:
            return []
        sized = self._replace(notices=[])
        sized.by_size = True
        sums: dict[int, SizeClass] = {}
        for stack in self.load(sized).stacks:
            most = most_of_class(stack.block_bytes)
            before = sums.get(most, SizeClass(most, 0, 0))
            sums[most] = SizeClass(most, before.blocks + stack.blocks, before.bytes + stack.bytes)
        if not sums:
            return []
        classes = range(min(sums).bit_length() - 1, max(sums).bit_length())
        return [sums.get(1 << power, SizeClass(1 << power, 0, 0)) for power in classes]

    def tree_before(self) -> CallTree:
        """Return, of a difference, what went away as a call tree; tree() is what came."""
        content = self.load(self)
        return build_tree(content._replace(stacks=content.taken), self.source)

    def add_notices(self, notices: Iterable[Notice]) -> None:
        """Add those of *notices* that it does not have yet: a tree may be made several times."""
        self.notices.extend([notice for notice in notices if notice not in self.notices])

    def _say_that_nothing_is_in_use(self) -> None:
        others = [name for name in self.metrics if name != self.metric]
        if self.metric == IN_USE and not self.total_bytes and others and self.earlier is None:
            text = (
                f"{printable(self.source)} has no memory in use, as at the end of a program that frees all;"
                f" it also has --metric {', '.join(map(printable, others))}"
            )
            self.add_notices([Notice("nothing-in-use", text)])

    def _with_sizes(self, content: Content) -> Content:
        if not content.has_blocks:
            raise calltree.no_block_sizes(self.source)
        if any(stack.block_bytes < 0 for stack in content.stacks):
            text = f"{printable(self.source)} records only the mean size of the blocks of each stack"
            self.add_notices([Notice(AVERAGED, f"{text}, by which they are sorted into sizes")])
        chains = list(content.chains)
        index: dict[Frame, int] = {}
        stacks = []
        for stack in content.stacks:
            mean = -(-stack.bytes // max(stack.blocks, 1))
            frame = size_class(mean if stack.block_bytes < 0 else stack.block_bytes)
            number = index.setdefault(frame, len(chains))
            if number == len(chains):
                chains.append((frame,))
            stacks.append(stack._replace(frames=(number, *stack.frames)))
        return content._replace(stacks=stacks, chains=chains)


_ADDRESS = re.compile(rb"0x[0-9a-f]{1,16}")


class Numbers(dict[bytes, int]):
    """A number for each address ``0x…``, given when it is first asked for; ValueError for another word."""

    def __missing__(self, word: bytes) -> int:
        if not _ADDRESS.fullmatch(word):
            raise ValueError
        self[word] = number = len(self)
        return number


def choose_metric(wanted: Optional[str], metrics: Sequence[str], source: str) -> str:
    """Return *wanted* if the file has it, its first metric if *wanted* is empty. Raises InputError."""
    if wanted is None:
        return metrics[0]
    if wanted not in metrics:
        raise InputError(
            f"{printable(source)} does not hold the metric '{printable(wanted)}'",
            slug="no-such-metric",
            hint=f"it has {', '.join(map(printable, metrics))}",
        )
    return wanted


def check_count(number: int, source: str, line: Optional[int] = None) -> int:
    """Return *number* if bytes or blocks can be that many. Raises InputError."""
    if 0 <= number <= LARGEST >> 1:
        return number
    where = printable(source) if line is None else f"{printable(source)}:{line}"
    if number < 0:
        raise InputError(
            f"{where} counts {number}: it is the difference of two profiles, or damaged",
            slug="negative-count",
            hint="pass its two profiles to 'gdbmem diff'",
        )
    raise count_too_big(where)


def count_too_big(where: str) -> InputError:
    """Return the error for a file, or a line of it, with a larger count of bytes than is possible."""
    return InputError(f"{where} counts more bytes than any memory has", slug="count-too-big")


def check_depth(frames: int, source: str, line: Optional[int] = None) -> None:
    """Raise InputError if a stack of so many *frames* is too deep."""
    if frames > DEEPEST:
        where = f"{printable(source)} holds" if line is None else f"{printable(source)}:{line}:"
        raise InputError(f"{where} a stack of {frames} frames", slug="stack-too-deep")


def check_path(path: Sequence[object], frames: int, source: str) -> None:
    """Raise InputError if *path* is too deep, or has anything but numbers of a table of *frames*."""
    check_depth(len(path), source)
    if any(not isinstance(n, int) or not 0 <= n < frames for n in path):
        raise InputError(
            f"{printable(source)} names a frame outside its table",
            slug="index-out-of-range",
            hint="was the file edited?",
        )


def several_dumps(source: str, start: str) -> InputError:
    """Return the error for a file in which a second dump follows the first, by a line that begins with *start*."""
    return InputError(
        f"{printable(source)} holds several dumps, one behind the other",
        slug="several-dumps",
        hint=f"csplit -z FILE '/^{start}/' '{{*}}' makes a file of each",
    )


def bad_line(source: str, number: int, text: bytes, expected: str) -> InputError:
    """Return the error for line *number*, which is not what its format has there."""
    shown = printable(text[:60].decode("utf-8", "surrogateescape"))
    return InputError(
        f"{printable(source)}:{number}: expected {expected}, found '{shown}'",
        slug="unknown-line",
        hint="was the file edited, or is it of another format?",
    )


def build_tree(content: Content, source: str) -> CallTree:
    """Merge the stacks of *content* into a call tree in pre-order. Raises InputError for absurd totals."""
    stacks = content.stacks
    frames, numbers, starts = _intern(content.chains)
    mains = {pack_path([number]) for number in _all_of("main", Frames.of(frames).functions)}
    keys = _paths(stacks, numbers, starts)
    if mains:
        keys = [key if key[-_WIDTH:] in mains else _within_main(key, mains) for key in keys]
    order = array("i", sorted(range(len(keys)), key=keys.__getitem__))
    hidden = content.hidden if content.hidden is not None and content.hidden.bytes > 0 else None
    builder = _TreeBuilder()
    builder.add([pack_path((calltree.PRUNED,))] if hidden is not None else [])
    builder.add(map(keys.__getitem__, order))
    keys = ()  # 17 MB of the largest files
    try:
        return builder.finish(frames, content, order, hidden)
    except OverflowError:
        raise count_too_big(printable(source)) from None


def _paths(
    stacks: Sequence[Stack], numbers: Sequence[int], starts: Optional[Sequence[int]]
) -> Sequence[bytes]:
    """Return pack_path() of each of *stacks*, in the numbers of frames that _intern() gave."""
    if isinstance(stacks, PackedStacks) and isinstance(numbers, range):
        return stacks.paths()
    if isinstance(numbers, range):
        return [pack_path(stack.frames) for stack in stacks]
    if starts is None:
        return [pack_path(map(numbers.__getitem__, stack.frames)) for stack in stacks]
    spans = [numbers[start:end] for start, end in zip(starts, starts[1:])]
    return [pack_path(chain.from_iterable(map(spans.__getitem__, stack.frames))) for stack in stacks]


def _intern(
    chains: Sequence[Sequence[Frame]],
) -> "tuple[Sequence[Frame], Sequence[int], Optional[array[int]]]":
    """Return the frames, their numbers chain by chain, and where each chain starts; None: each is one frame."""
    index: dict[Frame, int] = {}
    numbers, starts = array("q"), array("q", [0])
    if isinstance(chains, Singles) and _can_stay(chains.frames):
        return chains.frames, range(len(chains)), None
    if isinstance(chains, Singles):
        numbers.extend([index.setdefault(_plain_main(frame), len(index)) for frame in chains.frames])
        return list(index), numbers, None
    for frames in chains:
        for frame in frames:
            numbers.append(index.setdefault(_plain_main(frame), len(index)))
        starts.append(len(numbers))
    singles = all(map(eq, starts, range(len(starts))))
    return list(index), numbers, None if singles else starts


def _can_stay(frames: Sequence[Frame]) -> bool:
    if not (isinstance(frames, Frames) and frames.distinct):
        return False
    return "\nmain(" not in calltree.lines_of(frames.functions)


def _plain_main(frame: Frame) -> Frame:
    # Some tools show its parameters, some do not.
    is_main = (frame.function or "").startswith("main(") and not frame.is_thread
    return frame._replace(function="main") if is_main else frame


def _all_of(name: str, functions: Sequence[Optional[str]]) -> Iterator[int]:
    """Yield the numbers of those of *functions* that have this *name*."""
    text = f"{calltree.lines_of(functions)}\n"
    if text.count("\n") != len(functions) + 1:  # a stranger's
        yield from (number for number, function in enumerate(functions) if function == name)
        return
    number, at = 0, 0
    while True:
        found = text.find(f"\n{name}\n", at)
        if found < 0:
            return
        number += text.count("\n", at, found)
        yield number
        number, at = number + 1, found + 1


def _within_main(key: bytes, mains: Container[bytes]) -> bytes:
    # main is called by the start code of the C library, which valgrind leaves out: it is always left out.
    for end in range(len(key), 0, -_WIDTH):
        if key[end - _WIDTH : end] in mains:
            return key[:end]
    return key


class _TreeBuilder:
    def __init__(self) -> None:
        self._count = 1  # nodes, the root among them
        # Each node is called from the one before it, but for these, with which a part of a path begins.
        self._tops = array("i")  # called from the root
        self._heads, self._callers = array("i", [0]), array("i", [-1])
        self._frames = [pack_path((calltree.ROOT,))]  # of the nodes: parts of paths
        self._ends = array("i")  # the node at which each path ends

    def add(self, keys: Iterable[bytes]) -> None:
        """Add sorted paths, as pack_path() has them."""
        count, top, last = self._count, b"", b""
        opened: Optional[list[int]] = None  # the nodes of the last path, the root first; None: the last nodes
        for key in keys:
            if key[:_WIDTH] != top:  # as most do in the largest files
                self._tops.append(count)
                self._frames.append(key)
                count += len(key) // _WIDTH
                self._ends.append(count - 1)
                top, last, opened = key[:_WIDTH], key, None
                continue
            if opened is None:
                opened = [0, *range(count - len(last) // _WIDTH, count)]
            shared = _shared(key, last)
            more = len(key) // _WIDTH - shared
            if more:
                del opened[shared + 1 :]
                self._heads.append(count)
                self._callers.append(opened[-1])
                self._frames.append(key[shared * _WIDTH :])
                opened += range(count, count + more)
                count += more
            self._ends.append(opened[shared + more])
            last = key
        self._count = count

    def finish(
        self,
        frames: Sequence[Frame],
        content: Content,
        order: Sequence[int],
        hidden: Optional[Hidden],
    ) -> CallTree:
        """Return the tree; the paths are *hidden*, if it is, and *content*'s stacks in *order*."""
        stacks, ends, parent = content.stacks, self._ends, self._parents()
        variance = path_variance = None
        if content.is_sampled:
            variance = self._sums((stacks[index].variance for index in order), len(order))
        if content.has_doubtful_paths:
            path_variance = self._sums((stacks[index].path_variance for index in order), len(order))
        sizes = stacks.sizes if isinstance(stacks, PackedStacks) else [stack.bytes for stack in stacks]
        counts = [stack.blocks for stack in stacks] if content.has_blocks else None
        return CallTree(
            frames=frames,
            parent=parent,
            frame=self._frame_column(),
            bytes=self._held(parent, sizes, order, hidden.bytes if hidden else 0),
            blocks=None
            if counts is None
            else self._held(parent, counts, order, hidden.blocks if hidden else 0),
            places=[0] if hidden is not None else (),
            threshold_bytes=content.hidden.largest_bytes if content.hidden is not None else 0,
            scattered=content.hidden is not None,
            variance=variance,
            path_variance=path_variance,
            recording=content.recording,
            ends=array("i", (end for end, _ in groupby(ends if hidden is None else sorted(ends)))),
        )

    def _sums(self, values: Iterable[float], count: int) -> list[float]:
        """Return the sum at each node of the *values* of the last *count* paths."""
        sums = [0.0] * self._count
        for node, value in zip(self._ends[len(self._ends) - count :], values):
            sums[node] += value
        return sums

    def _frame_column(self) -> "array[int]":
        parts, self._frames = self._frames, []
        return _swapped(array("i", b"".join(parts)))

    def _parents(self) -> "array[int]":
        parent = array("i", range(-1, self._count - 1))
        for top in self._tops:
            parent[top] = 0
        for head, caller in zip(self._heads, self._callers):
            parent[head] = caller
        return parent

    def _held(
        self, parent: Sequence[int], numbers: Sequence[int], order: Sequence[int], hidden: int
    ) -> "array[int]":
        # The inclusive size of each node, if the paths hold *numbers*.
        held, ends = [0] * len(parent), self._ends
        if len(ends) > len(order):
            held[ends[0]] = hidden
        for node, index in zip(ends[len(ends) - len(order) :], order):
            held[node] += numbers[index]
        for node, above in zip(range(len(parent) - 1, 0, -1), reversed(parent)):
            held[above] += held[node]  # a caller stands before what it calls
        return array("q", held)


def _shared(one: bytes, other: bytes) -> int:
    """Return the number of frames that two paths, as pack_path() has them, begin with."""
    least = min(len(one), len(other))
    differs = int.from_bytes(one[:least], "big") ^ int.from_bytes(other[:least], "big")
    return least // _WIDTH - -(-differs.bit_length() // (8 * _WIDTH))


def make_profile(
    content: Content,
    source: str,
    source_format: str,
    metric: Optional[str],
    metrics: Sequence[str],
    *,
    notices: Iterable[Notice] = (),
    command: str = "",
    time: float = 0.0,
) -> StackProfile:
    """Return the profile of *content*, which has all that *source* counts by *metric* (None: the first of *metrics*).

    Raises InputError for a metric that it does not hold.
    """
    held = total_of(content.stacks) - total_of(content.taken)
    return StackProfile(
        source=source,
        source_format=source_format,
        metric=choose_metric(metric, metrics, source),
        metrics=metrics,
        total_bytes=held + (content.hidden.bytes if content.hidden is not None else 0),
        load=lambda profile: content,
        notices=[*notices],
        command=command,
        time=time,
        is_difference=bool(content.taken),
    )


def total_of(stacks: Iterable[Stack]) -> int:
    """Return the bytes of *stacks* together."""
    return sum(stack.bytes for stack in stacks)


def by_metric(values: Mapping[str, object]) -> list[str]:
    """Return the metrics of *values* in the order in which a reader wants them."""
    order = (IN_USE, calltree.PEAK, ALLOCATED)
    return [m for m in order if m in values] + [m for m in values if m not in order]
