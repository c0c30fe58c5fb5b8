"""Writing the result of `gdbmem explain` and memexplain: a ledger, its change, malloc's settings, or single blocks."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Protocol, TextIO, Union

from gdbmem.json_values import as_json
from gdbmem.ledger.answer import DAMAGES
from gdbmem.ledger.blocks import print_types, types_document
from gdbmem.ledger.document import growth_json, ledger_json
from gdbmem.ledger.remedies import print_remedies, remedies_json
from gdbmem.ledger.text import LedgerOptions, print_growth, print_ledger
from gdbmem.model import heap_blocks
from gdbmem.model.ledger import Ledger
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, picture_kind, print_notices, print_sentence
from gdbmem.terminal.document import Document
from gdbmem.text import format_size, plain_strings, plural, printable

if TYPE_CHECKING:
    from gdbmem.ledger.pinners import PinnerPaths

# One chunk with its neighbours, and malloc's lists of free ones, as text and JSON.


_FLAGS = ((1, "PREV_INUSE"), (2, "IS_MMAPPED"), (4, "NON_MAIN_ARENA"))
_A_LINE = 16  # bytes


def chunk_document(view: heap_blocks.ChunkView, names: Mapping[str, str]) -> Document:
    """Return *view* in the form of ``kind=ledger``, ``chunk``; *names* are demangled ones."""
    return {
        **as_json(view, "asked", "home"),
        "chunk": _chunk_document(view.chunk, names),
        "before": _chunk_document(view.before[0], names) if view.before else None,
        "after": _chunk_document(view.after[0], names) if view.after else None,
        **as_json(view, "faults", "data", "pointer_count"),
        "pointers": [
            {**as_json(one, "address", "value", "place"), **_class(one, names)} for one in view.pointers
        ],
    }


def _chunk_document(chunk: heap_blocks.Chunk, names: Mapping[str, str]) -> Document:
    size_word = {} if chunk.header else {"size_word": None}
    found = as_json(chunk, "address", "memory", "size", "head", "state", "where")
    return {**found, **size_word, **_class(chunk, names)}


def _class(thing: Union[heap_blocks.Chunk, heap_blocks.Pointer], names: Mapping[str, str]) -> Document:
    return {"class": names.get(thing.class_name, thing.class_name) or None}


def print_chunk(view: heap_blocks.ChunkView, names: Mapping[str, str], console: Console) -> None:
    """Print the chunk, its neighbours, the pointers into it and its first bytes."""
    console.print(drawing.Text(_headline(view), "bold"), soft_wrap=True)
    for fault in view.faults:
        print_sentence(console, printable(fault), label="inconsistency: ")
    console.print()
    console.print(_neighbours(view, names), soft_wrap=True)
    if view.chunk.state in (heap_blocks.IN_USE, heap_blocks.MMAPPED, heap_blocks.BROKEN):
        _print_pointers(view, names, console)
    console.print()
    for line in _lines(view.chunk.memory, bytes.fromhex(view.data)):
        console.print(drawing.Text(line), soft_wrap=True)


def _headline(view: heap_blocks.ChunkView) -> str:
    chunk = view.chunk
    if chunk.state == heap_blocks.BROKEN:
        text = f"the block at 0x{chunk.address:x} in {view.home}: its size word 0x{chunk.head:x} is invalid"
    elif not chunk.header:
        text = f"the block at 0x{chunk.address:x} in {view.home}: {chunk.size:,} bytes, {_state(chunk)}"
    else:
        flags = [name for flag, name in _FLAGS if chunk.head & flag]
        text = (
            f"the block at 0x{chunk.address:x} in {view.home}: {chunk.size:,} bytes, {_state(chunk)};"
            f" size word 0x{chunk.head:x}{' (' + ', '.join(flags) + ')' if flags else ''}"
        )
    if view.asked not in (chunk.address, chunk.memory):
        text += f"; 0x{view.asked:x} lies {_offset(view.asked - chunk.memory)} its memory"
    return text


def _offset(distance: int) -> str:
    return f"{distance:,} bytes into" if distance > 0 else f"{-distance:,} bytes before"


def _state(chunk: heap_blocks.Chunk) -> str:
    if chunk.state == heap_blocks.TOP:
        return "the top, from which new blocks are cut"
    if chunk.state == heap_blocks.BROKEN:
        return "overwritten"
    if chunk.state in (heap_blocks.IN_USE, heap_blocks.MMAPPED):
        return "in use"
    return f"free, in {chunk.where}" if chunk.where else "free, and in no list"


def _neighbours(view: heap_blocks.ChunkView, names: Mapping[str, str]) -> drawing.Table:
    table = drawing.Table(header_style="dim")
    table.add_column("")
    table.add_column("block", no_wrap=True)
    table.add_column("memory", no_wrap=True)
    table.add_numbers("bytes")
    table.add_column("state")
    table.add_column("class")
    rows = [*(("before", c) for c in view.before), ("this", view.chunk), *(("after", c) for c in view.after)]
    for title, chunk in rows:
        size = f"{chunk.size:,}" if chunk.size else f"0x{chunk.head:x}"
        name = printable(plain_strings(names.get(chunk.class_name, chunk.class_name)))
        table.add_row(title, f"0x{chunk.address:x}", f"0x{chunk.memory:x}", size, _state(chunk), name)
    return table


def _print_pointers(view: heap_blocks.ChunkView, names: Mapping[str, str], console: Console) -> None:
    if not view.pointers:
        console.print("\nNo live block, variable or stack points to it.")
        return
    console.print(f"\nPointed to by {plural(view.pointer_count, 'word')}:")
    for one in view.pointers:
        to = "" if one.value == view.chunk.memory else f", to byte {one.value - view.chunk.memory:,}"
        name = plain_strings(names.get(one.class_name, one.class_name))
        of = f" ({name})" if name else ""
        console.print(drawing.Text(printable(f"  0x{one.address:x}  {one.place}{of}{to}")), soft_wrap=True)
    if view.pointer_count > len(view.pointers):
        console.print(f"  and {view.pointer_count - len(view.pointers):,} more")


def _lines(address: int, data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _A_LINE):
        piece = data[at : at + _A_LINE]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        yield f"0x{address + at:x}  {piece.hex(' '):<{3 * _A_LINE}} |{shown}|"


def print_bins(found: heap_blocks.FreeLists, console: Console) -> None:
    """Print the lists, thread by thread and arena by arena, with their inconsistencies."""
    for cache in found.tcaches:
        count, size = sum(o.chunks for o in cache.lists), sum(o.bytes for o in cache.lists)
        title = f"tcache of thread {cache.tid}: {plural(count, 'block')}, {format_size(size)}"
        _print_lists(title, cache.lists, console)
    for arena in found.arenas:
        name = f"arena {arena.number}" if arena.number else "main arena"
        count, size = sum(o.chunks for o in arena.lists), sum(o.bytes for o in arena.lists)
        top = f"top of {format_size(arena.top_bytes)} at 0x{arena.top:x}"
        title = f"{name} at 0x{arena.address:x}: {plural(count, 'free block')}, {format_size(size)}; {top}"
        _print_lists(title, arena.lists, console)
        for fault in arena.faults:
            print_sentence(console, printable(fault), label="inconsistency: ")
    console.print()
    every = [part.lists for part in found.tcaches] + [part.lists for part in found.arenas]
    if not any(one.fault for lists in every for one in lists) and not any(
        arena.faults for arena in found.arenas
    ):
        console.print("All lists are intact. Sizes are those of blocks with malloc's header.")


def _print_lists(title: str, lists: Sequence[heap_blocks.FreeList], console: Console) -> None:
    console.print()
    console.print(drawing.Text(title, "bold"), soft_wrap=True)
    if not lists:
        return
    table = drawing.Table(header_style="dim")
    table.add_numbers("blocks", "bytes", "sizes")
    table.add_column("list", no_wrap=True)
    table.add_column("")
    for one in lists:
        sizes = f"{one.low:,}" if one.low == one.high else f"{one.low:,} to {one.high:,}"
        table.add_row(f"{one.chunks:,}", f"{one.bytes:,}", sizes, _name(one), printable(one.fault))
    console.print(table, soft_wrap=True)


def _name(one: heap_blocks.FreeList) -> str:
    if one.kind in (heap_blocks.UNSORTED, heap_blocks.TCACHE, heap_blocks.FASTBIN):
        return one.kind
    return f"{one.kind} bin {one.number}"


class BlockAnswers(Protocol):
    """The answers to queries about single blocks; None: not requested."""

    types: Optional[heap_blocks.BlockTypes]
    map: Optional[heap_blocks.HeapMap]
    chunk: Optional[heap_blocks.ChunkView]
    bins: Optional[heap_blocks.FreeLists]

    def class_names(self) -> Iterable[str]: ...


class Host(NamedTuple):
    """The functions that differ between a shell and gdb."""

    console_on: Callable[[TextIO], Console]
    demangled: Callable[[Iterable[str]], Mapping[str, str]]  # mangled names of classes → demangled
    pinner_paths: Callable[[str, Ledger], PinnerPaths]  # by the operand of --paths


def write_result(
    ledger: Ledger,
    answers: Optional[BlockAnswers],
    args: argparse.Namespace,
    host: Host,
    stream: TextIO,
    *,
    picture: Optional[TextIO],
    earlier: Optional[Ledger],
    name: str = "now",
) -> None:
    """Write what the options *args* ask for to *stream*, and the map of the heap to *picture*.

    *answers* are those to queries about single blocks, if there were any; *earlier* is the ledger of --since, and
    *name* what *ledger* is called beside it.
    """
    paths = host.pinner_paths(args.paths, ledger) if args.paths else None
    if picture is not None and answers is not None and answers.map is not None:
        from gdbmem.ledger.heap_map import render_map  # slow to import, for --map alone

        picture.write(render_map(answers.map, ledger.program, picture_kind(args.map, "--map")))
    if earlier is not None:
        if args.json:
            stream.write(growth_json(earlier, ledger))
        else:
            print_growth(earlier, ledger, host.console_on(stream), (args.since, name))
    elif args.remedies:
        if args.json:
            stream.write(remedies_json(ledger))
        else:
            print_remedies(ledger, host.console_on(stream))
    else:
        class_names = {} if answers is None else host.demangled(answers.class_names())
        if args.json:
            stream.write(_json(ledger, answers, paths, class_names))
        else:
            view = LedgerOptions(args.sizes, args.pinners, args.arena)
            _print(ledger, answers, paths, class_names, host.console_on(stream), view)


def _json(
    ledger: Ledger,
    answers: Optional[BlockAnswers],
    paths: Optional[PinnerPaths],
    class_names: Mapping[str, str],
) -> str:
    """Return *ledger* as ``kind=ledger``, with a key for each further result requested."""
    more: dict[str, object] = {}
    if paths is not None:
        more["pinner_paths"] = paths.document()
    if answers is not None and answers.types is not None:
        more["types"] = types_document(answers.types, class_names)
    if answers is not None and answers.chunk is not None:
        more["chunk"] = chunk_document(answers.chunk, class_names)
    if answers is not None and answers.bins is not None:
        more["bins"] = as_json(answers.bins)
    return ledger_json(ledger, **more)


def _print(
    ledger: Ledger,
    answers: Optional[BlockAnswers],
    paths: Optional[PinnerPaths],
    class_names: Mapping[str, str],
    console: Console,
    view: LedgerOptions,
) -> None:
    """Print *ledger* and the further results; a chunk, or the lists of free ones, are printed alone."""
    if answers is not None and (answers.chunk is not None or answers.bins is not None):
        if answers.chunk is not None:
            print_chunk(answers.chunk, class_names, console)
        else:
            print_bins(answers.bins or heap_blocks.FreeLists([], []), console)
        print_notices([n for n in ledger.notices if n.slug not in DAMAGES], console)
        return
    print_ledger(ledger, console, view, paths)
    if paths is not None:
        paths.print(console)
    if answers is not None and answers.types is not None:
        print_types(answers.types, class_names, console)
