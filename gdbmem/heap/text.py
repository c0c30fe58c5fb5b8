"""The holders of a heap, and the change between two moments of it, for a terminal and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Optional

from gdbmem.errors import Notice
from gdbmem.model.heap_graph import (
    BLOCK,
    SEVERAL,
    TYPE,
    BlockHolders,
    GivenBack,
    HeapChange,
    HeapGrowth,
    HeapSum,
    HeapView,
    HiddenPointers,
    Holder,
    Leaks,
    NewlyLost,
    OneType,
    Part,
    Pools,
)
from gdbmem.model.judgement import Judgement, Unseen
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices, print_pause
from gdbmem.terminal.document import Document, judgement_object, to_json, whole
from gdbmem.terminal.drawing import SourceLines
from gdbmem.text import format_delta, format_size, plain_strings, plural, printable

# Notices that not all of a heap was read.
_DOUBTS = (
    "heap-corrupt",
    "heap-changing",
    "heap-pieces-missing",
    "swapped-unread",
    "core-cut",
    "arena-locked",
)
_ANSWERED = 3
_LEAST_SHARE = 0.02  # of the live bytes, to be in the answer
_LEAST_OTHER = 1 << 20
_SHOWN = re.compile(
    r"^(?:a block |(?:[\d,]+ )?(?:blocks )?)of |^(?:a |[\d,]+ )(?=\w+ nodes? of )"
)  # before a type
_ABI = "[abi:cxx11]"
_KERNEL = "; to the kernel, how much more malloc_trim() would then return than now"

Names = Mapping[str, str]  # mangled → demangled, as `encoded` gives them


def heap_json(
    view: HeapView, names: Names, judgements: Sequence[Judgement] = (), sites: Optional[Document] = None
) -> str:
    """Return *view* as ``kind=heap``, with demangled names, the *judgements* of gates, and who allocated: *sites*."""
    allocated = {"allocated_by": sites} if sites is not None else {}
    return to_json(judged({**whole("heap", named_view(view, names)), **allocated}, judgements))


def judged(document: Document, judgements: Sequence[Judgement]) -> Document:
    """Return *document* with the *judgements* of --fail-on, if there are any."""
    return (
        {**document, "judgements": [judgement_object(one) for one in judgements]} if judgements else document
    )


def named_view(view: HeapView, names: Names) -> HeapView:
    """Return *view* with demangled names."""

    def named(holder: Holder) -> Holder:
        parts = [part._replace(class_name=class_in_words(part.class_name, names)) for part in holder.parts]
        holders = [in_words(name, names) for name in holder.holders]
        below = [named(one) for one in holder.below]
        name = (class_in_words if holder.kind == TYPE else in_words)(holder.name, names)
        return holder._replace(name=name, parts=parts, holders=holders, below=below)

    lost = [one._replace(class_name=class_in_words(one.class_name, names)) for one in view.leaks.structures]
    leaks = replace(view.leaks, structures=lost)
    block = view.block
    if block is not None:
        block = replace(
            block,
            block=named(block.block),
            words=[word._replace(holder=named(word.holder)) for word in block.words],
            path=[named(one) for one in block.path],
            dominators=[named(one) for one in block.dominators],
        )
    unseen = [one._replace(holder=in_words(one.holder, names)) for one in view.unseen]
    return replace(
        view, holders=[named(one) for one in view.holders], leaks=leaks, block=block, unseen=unseen
    )


def encoded(name: str) -> str:
    """Return the encoding in a mangled name of a variable, as a demangler for types takes it; "" for other names."""
    return name[2:].lstrip("L") if name.startswith("_Z") else ""


def mangled_names(view: HeapView) -> list[str]:
    """Return the names in *view* that a demangler for types should be asked for."""
    every = [one for holder in view.holders for one in _with_below(holder)]
    if view.block is not None:
        every += [*_with_below(view.block.block), *view.block.path, *view.block.dominators]
        every += [word.holder for word in view.block.words]
    names = {encoded(name) for holder in every for name in (holder.name, *holder.holders)}
    names |= {part.class_name for holder in every for part in holder.parts}
    names |= {one.class_name for one in view.leaks.structures}
    names |= {encoded(one.holder) for one in view.unseen}
    return sorted(names - {""})


def _with_below(holder: Holder) -> Iterator[Holder]:
    yield holder
    for one in holder.below:
        yield from _with_below(one)


def in_words(name: str, names: Names) -> str:
    """Return the demangled *name* of a variable; others as they are."""
    return names.get(encoded(name), name).replace(_ABI, "")


def class_in_words(name: str, names: Names) -> str:
    return plain_strings(names.get(name, name))


def print_heap(view: HeapView, names: Names, console: Console, *, only_leaks: bool = False) -> None:
    """Print the answer, the table of holders, and what is lost; with *only_leaks* the latter alone."""
    say = HolderWords(names)
    if view.without and not only_leaks:
        console.print(f"Without the words of {' and '.join(map(printable, view.without))}:", soft_wrap=True)
    if view.block is not None:
        _print_block(view, view.block, say, console)
        if view.allocations is not None and view.allocations.block is not None:
            from gdbmem.heap.allocated import path_in_words  # slow to import: the text of profiles
            from gdbmem.profiles.text import path_text  # as above

            path = view.allocations.block
            console.print(f"\nAllocated by {path_in_words(path)}, for {path.bytes:,} bytes:", soft_wrap=True)
            console.print(path_text(path.frames, SourceLines(())))
        print_notices(view.notices, console)
        print_pause(view.pause_seconds, console)
        return
    of_glibc = (
        ", malloc's headers included" if view.allocator == "glibc" else f", in blocks of {view.allocator}"
    )
    if not only_leaks:
        console.print(drawing.Text(say.answer(view), "bold"), soft_wrap=True)
        console.print()
        _print_holders(view, say, console)
    _print_reached(view, say, console)
    _print_leaks(view.leaks, say, console)
    if view.allocations is not None:
        from gdbmem.heap.allocated import print_allocations  # as above

        print_allocations(view, view.allocations, say, console)
    console.print(
        f"\nRetained is what would be freed with the holder{of_glibc}"
        f"{_KERNEL if any(one.given_back for one in view.holders) else ''}. Words count as pointers by their"
        " value alone."
        if not only_leaks
        else "\nA word that is no pointer may look like one and hide a lost block; none is lost to which a word leads.",
        soft_wrap=True,
    )
    print_notices(view.notices, console)
    print_pause(view.pause_seconds, console)


class HolderWords:
    """Puts holders and blocks into words."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def answer(self, view: HeapView) -> str:
        least = _LEAST_SHARE * view.live_bytes
        rows = [one for one in view.holders[:_ANSWERED] if one.retained_bytes >= least]
        live = f"{plural(view.live_blocks, 'live block')}, {format_size(view.live_bytes)}"
        if view.of_type is not None:
            return self._answer_of_type(view.of_type, view.holders, live)
        parts = [self._retained(rows)] if rows else []
        lost = view.leaks.least_bytes
        if lost > max([least, *(one.retained_bytes for one in rows)]):
            parts.insert(0, f"{format_size(lost)} are lost")
        if view.leaks.are_of_a_part:
            live += f" (all that could be read: {view.leaks.doubt})"
        if not parts:
            return (
                f"{live}: no holder retains 2 % of it."
                if view.live_blocks or view.leaks.are_of_a_part
                else "There is no live block."
            )
        return f"{live}: {', '.join(parts)}."

    def _answer_of_type(self, of: OneType, holders: Sequence[Holder], live: str) -> str:
        name = f"{int(of.name):,} bytes" if of.name.isdecimal() else printable(_SHOWN.sub("", of.name))
        what = f"{plural(of.blocks, 'live block')} of {name}, {format_size(of.bytes)} (of {live})"
        return f"{what}: {self._retained(holders) or 'no holder retains any of them'}."

    def _retained(self, holders: Sequence[Holder]) -> str:
        verbs = [" are retained", *[""] * len(holders)]
        return ", ".join(
            f"{format_size(one.retained_bytes)}{verb} by {self.holder(one)}"
            for one, verb in zip(holders[:_ANSWERED], verbs)
        )

    def holder(self, one: Holder) -> str:
        if one.kind == SEVERAL:
            names = [printable(in_words(name, self._names)) for name in one.holders]
            return f"what {' and '.join(names) if len(names) > 1 else f'{names[0]} and others'} hold together"
        if one.kind in (TYPE, BLOCK):
            return self.part(one.parts[0])
        name = printable(in_words(one.name, self._names))
        of = f" ({printable(one.object)})" if one.object and not name.startswith(one.object) else ""
        return f"{name}{of}"

    def name(self, name: str) -> str:
        return printable(in_words(name, self._names))

    def sum(self, one: HeapSum) -> str:
        return self.holder(Holder(one.name, one.kind, None, one.object, 0, 0, 0, (), one.holders))

    def at(self, one: Holder) -> str:
        """Return a holder, a block with its address."""
        if one.kind != BLOCK or one.address is None:
            return self.holder(one)
        part = one.parts[0]
        name = f" ({printable(class_in_words(part.class_name, self._names))})" if part.class_name else ""
        return f"the block of {part.block_bytes:,} bytes at 0x{one.address:x}{name}"

    def part(self, part: Part) -> str:
        if part.class_name:
            return f"{part.blocks:,} of {printable(class_in_words(part.class_name, self._names))}"
        size = f"{part.block_bytes:,} bytes"
        if part.blocks == 1:
            return f"a block of {size}"
        kind = f"{part.structure} nodes of " if part.structure else "of "
        return f"{part.blocks:,} {kind}{size}"

    def kind(self, part: Part) -> str:
        """Return what blocks are, without their number."""
        if part.class_name:
            return printable(class_in_words(part.class_name, self._names))
        kind = f"{part.structure} nodes" if part.structure else "blocks"
        return f"{kind} of {part.block_bytes:,} bytes"

    def parts(self, one: Holder) -> str:
        """Return what *one* retains: the type of a variable with the number of its elements, and the largest parts."""
        if one.kind in (TYPE, BLOCK):
            return ""
        parts = [self.part(part) for part in one.parts]
        if not one.type:
            return ", ".join(parts)
        what = printable(one.type)
        if one.elements is not None and one.element_nodes and parts and one.parts[0].blocks == one.elements:
            part = one.parts[0]
            size = f" of {part.block_bytes:,} bytes" if not part.class_name else ""
            return ", ".join((f"{what} of {plural(one.elements, 'node')}{size}", *parts[1:]))
        count = f" of {plural(one.elements, 'element')}" if one.elements is not None else ""
        return f"{what}{count}{': ' if parts else ''}{', '.join(parts)}"


def _print_holders(view: HeapView, say: HolderWords, console: Console) -> None:
    if not view.holders:
        return
    by_kind, with_pages = view.by in ("type", "size"), any(one.given_back for one in view.holders)
    beside = ["own"] if by_kind else ["to the kernel"] if with_pages else []
    table = drawing.new_table("retained", *beside, "blocks", last="holder")
    for one in view.holders:
        figures = [format_size(one.retained_bytes)]
        figures += [format_size(one.own_bytes)] if by_kind else []
        figures += [_pages(one.given_back)] if with_pages and one.given_back is not None else []
        parts = say.parts(one)
        text = drawing.Text(say.holder(one))
        if parts:
            text.append(f": {parts}", "dim")
        table.add_row(*figures, f"{one.retained_blocks:,}", text)
        _add_below(table, one, say, 1, *[""] * with_pages)
    console.print(table)
    if view.holder_count is not None and view.holder_count > len(view.holders):
        console.print(f"and {plural(view.holder_count - len(view.holders), 'more holder')} (--top)")


def _add_below(table: drawing.Table, holder: Holder, say: HolderWords, level: int, *beside: str) -> None:
    """Add what is below *holder*, with the cells *beside* behind the retained bytes."""
    for one in holder.below:
        text = drawing.Text(f"{'  ' * level}{say.holder(one)}")
        table.add_row(format_size(one.retained_bytes), *beside, f"{one.retained_blocks:,}", text)
        _add_below(table, one, say, level + 1, *beside)


def _pages(back: GivenBack) -> str:
    """Return what the kernel would get after malloc_trim()."""
    least, most = format_size(back.least_bytes), format_size(back.most_bytes)
    return most if least == most else f"{least} to {most}"


def given_back_in_words(back: GivenBack, what: str = "") -> str:
    """Return what would come back, in a sentence."""
    once = f", of which {format_size(back.unmapped_bytes)} at once" if back.unmapped_bytes else ""
    return (
        f"Freed{what}, it gives malloc {format_size(back.malloc_bytes)}, and the kernel {_pages(back)} after"
        f" malloc_trim(){once}."
    )


_REACHED = {
    "variables": "reached from variables or memory outside of the heap",
    "stacks": "reached only from stacks or registers",
    "remainders": "reached only by words that are probably no pointers",
    "nothing": "lost: no word leads to it from outside",
}


def _print_block(view: HeapView, found: BlockHolders, say: HolderWords, console: Console) -> None:
    """Print what leads to a block, the way to it, and what is below it."""
    block = found.block
    what = say.at(block)
    retains = f"; it retains {format_size(block.retained_bytes)} in {plural(block.retained_blocks, 'block')}"
    reached = _REACHED[found.reached]
    if view.without and found.reached == "nothing":
        reached = "reached by nothing else"
    text = f"{what[:1].upper()}{what[1:]} is {reached}{retains if found.reached != 'nothing' else ''}."
    console.print(drawing.Text(text, "bold"), soft_wrap=True)
    if block.given_back is not None:
        with_it = " with all that it retains" if block.retained_blocks > 1 else ""
        console.print(given_back_in_words(block.given_back, with_it), soft_wrap=True)
    if found.words:
        console.print(f"\n{plural(found.word_count, 'word leads', 'words lead')} to it:")
        for word in found.words:
            offset = f", byte {word.offset}" if word.offset is not None else ""
            console.print(drawing.Text(f"  {say.at(word.holder)}{offset}"), soft_wrap=True)
        if found.word_count > len(found.words):
            console.print(f"  and {found.word_count - len(found.words):,} more")
    if found.path:
        console.print("\nThe shortest way to it:")
        for one in found.path:
            console.print(drawing.Text(f"  {say.at(one)}"), soft_wrap=True)
    if found.dominators:
        console.print("\nIt would be lost without any of these, the nearest first:")
        for one in found.dominators:
            retains = f" ({format_size(one.retained_bytes)} retained)"
            console.print(drawing.Text(f"  {say.at(one)}{retains}"), soft_wrap=True)
    elif found.path:
        console.print("\nSeveral hold it: it would stay if any one of them went.", soft_wrap=True)
    if block.below:
        console.print("\nIt alone holds:")
        table = drawing.new_table("retained", "blocks", last="blocks")
        _add_below(table, block, say, 0)
        console.print(table)


def _print_reached(view: HeapView, say: HolderWords, console: Console) -> None:
    stacks = f"; {format_size(view.stacks_bytes)} only from stacks and registers" if view.stacks_bytes else ""
    text = f"{format_size(view.variables_bytes)} are reached from variables and memory outside of the heap{stacks}."
    if view.other_bytes >= _LEAST_OTHER:
        text += (
            f" {format_size(view.other_bytes)} of memory are not malloc's: only the words in it were read."
        )
    console.print(f"\n{text}", soft_wrap=True)
    if view.pools is not None and view.pools.blocks:
        console.print(pools_in_words(view.pools), soft_wrap=True)
    for one in view.unseen:
        console.print(hidden_in_words(one, say), soft_wrap=True)
    if view.trimmed_bytes:
        console.print(f"malloc_trim() would return {format_size(view.trimmed_bytes)} to the kernel now.")


def hidden_in_words(hidden: HiddenPointers, say: HolderWords) -> str:
    """Return which pointers are not seen, in a sentence."""
    where = f", the type of {say.name(hidden.holder)}," if hidden.holder else ""
    return (
        f"{printable(hidden.type)}{where} keeps {hidden.keeps}: such words don't count as pointers,"
        " and what only they lead to is reported as lost."
    )


def pools_in_words(pools: Pools) -> str:
    """Return what it means for the answer that the program has *pools*, in a sentence."""
    return (
        f"{plural(pools.blocks, 'block')}, {format_size(pools.bytes)}, {'are' if pools.blocks > 1 else 'is'} in use as"
        " pools: a word that leads to one of the objects in a pool counts as leading to all of them. So these have more"
        " holders than the objects do, and single holders retain less."
    )


def _print_leaks(leaks: Leaks, say: HolderWords, console: Console) -> None:
    console.print(
        drawing.Text(leaks_in_words(leaks), "bold" if leaks.most_blocks != 0 else ""), soft_wrap=True
    )
    if leaks.given_back is not None and leaks.given_back.most_bytes:
        console.print(f"Freed, they would give the kernel {_pages(leaks.given_back)} after malloc_trim().")
    if not leaks.structures:
        return
    table = drawing.new_table("lost", "structures", "blocks", last="first block of each")
    for one in leaks.structures:
        part = Part(one.structures, 0, one.block_bytes, one.class_name)
        table.add_row(
            format_size(one.bytes), f"{one.structures:,}", f"{one.blocks:,}",
            f"{say.part(part)}{', one' if one.structures > 1 else ''} at 0x{one.address:x}",
        )  # fmt: skip
    console.print()
    console.print(table)


def leaks_in_words(leaks: Leaks) -> str:
    """Return how much is lost, in a sentence."""
    least = f"{plural(leaks.least_blocks, 'block')}, {format_size(leaks.least_bytes)}"
    if leaks.most_blocks is None or leaks.most_bytes is None:
        read = f"{plural(leaks.of_read_blocks or 0, 'block')}, {format_size(leaks.of_read_bytes or 0)}"
        return (
            f"How much is lost is unknown: {leaks.doubt}; of the blocks that could be read, at most {read}."
        )
    most = f"{plural(leaks.most_blocks, 'block')}, {format_size(leaks.most_bytes)}"
    if leaks.doubt:
        return f"Lost: at most {most}; {leaks.doubt}, and words there may lead to them."
    if not leaks.most_blocks:
        return "No block is lost: words lead to all of them."
    if least == most:
        return f"Lost: {least}: no word leads to them."
    return f"Lost: {least}, to which no word leads, to {most}: words that are probably no pointers lead to the rest."


# The change between two moments.


_WORDS = HolderWords({})  # names are demangled


def growth_json(growth: HeapGrowth, judgements: Sequence[Judgement] = ()) -> str:
    """Return *growth* as ``kind=heap-growth``, with the *judgements* of gates."""
    return to_json(judged(growth_document(growth), judgements))


def growth_document(growth: HeapGrowth) -> Document:
    """Return *growth* as ``kind=heap-growth``."""
    return {**whole("heap-growth", growth), "delta_bytes": growth.delta_bytes}


def write_growth(
    growth: HeapGrowth,
    judgements: Sequence[Judgement],
    stream: IO[str],
    console: Console,
    *,
    top: int,
    as_json: bool,
) -> None:
    """Write *growth* to *stream*, or print it on the *console* that writes there."""
    if as_json:
        stream.write(growth_json(growth, judgements))
    else:
        print_growth(growth, console, top)


def print_growth(growth: HeapGrowth, console: Console, top: int) -> None:
    """Print the answer, what grew, and what is lost since, *top* rows each."""
    console.print(drawing.Text(growth_sentence(growth), "bold"), soft_wrap=True)
    for changes, title in ((growth.holders, "holder"), (growth.types, "all live blocks of")):
        _print_changes(changes, title, console, top)
    _print_lost(growth, console, top)
    print_notices(growth.notices, console)


def growth_sentence(growth: HeapGrowth) -> str:
    """Return how much the live blocks grew, and the holder of most of it."""
    before, after = growth.before, growth.after
    delta = format_delta(growth.delta_bytes) if growth.delta_bytes else "unchanged"
    text = (
        f"live blocks {delta} from {printable(before.name)} to {printable(after.name)}: "
        f"{plural(before.live_blocks, 'block')}, {format_size(before.live_bytes)}, then"
        f" {plural(after.live_blocks, 'block')}, {format_size(after.live_bytes)}"
    )
    grown = next((one for one in growth.holders if one.delta_bytes > 0), None)
    return f"{text}; {_of(grown)} retains {format_size(grown.delta_bytes)} more" if grown else text


def _of(one: HeapChange) -> str:
    part = Part(one.after_blocks, one.after_bytes, one.block_bytes, one.name)
    holder = Holder(one.name, one.kind, None, one.object, 0, 0, 0, [part], one.holders)
    return _WORDS.holder(holder)


def _of_type(one: HeapChange) -> str:
    return printable(one.name) if one.name else f"{one.block_bytes:,} bytes"


def _print_changes(changes: Sequence[HeapChange], title: str, console: Console, top: int) -> None:
    if not changes:
        return
    table = drawing.new_table("change", "before", "after", "blocks", last=title)
    for one in changes[:top]:
        grown = one.delta_bytes > 0
        blocks = one.after_blocks - one.before_blocks
        table.add_row(
            drawing.Text(format_delta(one.delta_bytes), "red" if grown else "green"),
            format_size(one.before_bytes),
            format_size(one.after_bytes),
            f"{blocks:+,}" if blocks else "0",
            _of_type(one) if one.kind == "type" else _of(one),
        )
    console.print()
    console.print(table)
    if len(changes) > top:
        console.print(f"and {len(changes) - top:,} more (--top)")


def _print_lost(growth: HeapGrowth, console: Console, top: int) -> None:
    console.print()
    console.print(
        drawing.Text(lost_in_words(growth), "" if growth.lost.most_bytes in (0, None) else "bold"),
        soft_wrap=True,
    )
    if not growth.lost.groups:
        return
    table = drawing.new_table("lost", "blocks", last="before")
    for one in growth.lost.groups[:top]:
        table.add_row(format_size(one.bytes), f"{one.blocks:,}", _before(one))
    console.print()
    console.print(table)


def _before(one: NewlyLost) -> str:
    held = f"held by {_WORDS.sum(one.holder)}" if one.holder is not None else "allocated since"
    return f"{held}; the largest at 0x{one.address:x}"


def unread(notices: Iterable[Notice]) -> tuple[Unseen, ...]:
    """Return why part of a heap is unknown; empty if all was read."""
    return tuple(Unseen(one.slug, printable(one.message)) for one in notices if one.slug in _DOUBTS)


def lost_in_words(growth: HeapGrowth) -> str:
    """Return how much is lost since, in a sentence."""
    lost = growth.lost
    least, most = lost.least_bytes, lost.most_bytes
    if least is None or most is None:
        return "How much is lost since is unknown: not all of the heap could be read."
    if lost.blocks is None:
        interval = format_delta(least) if least == most else f"{format_delta(least)} to {format_delta(most)}"
        return f"Lost blocks: {interval}."
    if not most:
        if unread(growth.notices):
            return "No block is known to be lost that was not before: not all of the heap could be read."
        return "No block is lost that was not before."
    blocks = f"{plural(lost.blocks, 'block')}, " if lost.blocks else ""
    if least == most:
        return f"Lost since: {blocks}{format_size(most)}: no word leads to them any more."
    return f"Lost since: {format_size(least)}, to which no word leads any more, to {format_size(most)}."
