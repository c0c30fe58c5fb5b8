"""The pointers that keep a block alive, as sentences and as ``kind=holders``."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.analysis.profiles.own_code import own_frame
from gdbmem.analysis.profiles.sites import describe_site
from gdbmem.model.leaks import Block, BlockHolders, Holder
from gdbmem.model.profiles.calltree import Frame
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.document import Document, head, to_json
from gdbmem.text import printable
from gdbmem.units import format_size


def print_holding(holding: BlockHolders, console: Console) -> None:
    """Print the block, and the pointers from it to the one that keeps it alive."""
    print_sentence(console, _block(holding.block, holding.frames), "bold")
    if not holding.holders:
        print_sentence(console, "no pointer to it was found: it is lost")
        return
    for depth, holder in enumerate(holding.chain or holding.holders[:1]):
        print_sentence(console, f"{'  ' * depth}is held by {_holder(holder)}")
    if not holding.chain:
        print_sentence(console, _no_chain(holding))
    others = [holder for holder in holding.holders if holder not in holding.chain[:1]]
    if holding.chain and others:
        print_sentence(console, f"also pointed to by {'; '.join(_holder(holder) for holder in others[:5])}")


def _no_chain(holding: BlockHolders) -> str:
    if holding.is_whole:
        return "only other lost blocks point to it: it is lost with them"
    return "the search passed through many blocks without leaving the heap, and was stopped"


def _block(block: Block, frames: Sequence[Frame]) -> str:
    return f"block {block.address:#x} of {format_size(block.bytes)}{_allocated(frames)}"


def _allocated(frames: Sequence[Frame]) -> str:
    return f", allocated at {describe_site(frames[max(own_frame(frames), 0)])}" if frames else ""


def _holder(holder: Holder) -> str:
    into = f" (a pointer to byte {holder.inside_bytes} of it)" if holder.inside_bytes else ""
    if holder.block is not None:
        assert holder.address is not None
        offset = holder.address - holder.block.address
        return f"byte {offset} of {_block(holder.block, holder.frames)}{into}"
    thread = f" of thread {holder.thread}" if holder.kind == "local" and holder.thread is not None else ""
    at = f" at {holder.address:#x}" if holder.address is not None else ""
    kind = {"global": "the global ", "local": "the local "}.get(holder.kind, "")
    return f"{kind}{printable(holder.text)}{thread}{at}{into}"


def holding_json(holding: BlockHolders) -> str:
    """Return *holding* as ``kind=holders``."""
    reached = True if holding.chain else False if holding.is_whole else None
    return to_json(
        {
            **head("holders", ()),
            "block": _block_object(holding.block, holding.frames),
            "is_reached": reached,
            "holders": [_holder_object(holder) for holder in holding.holders],
            "chain": [_holder_object(holder) for holder in holding.chain],
        }
    )


def _block_object(block: Block, frames: Sequence[Frame]) -> Document:
    return {
        "address": block.address,
        "bytes": block.bytes,
        "frames": [frame._asdict() for frame in frames],
    }


def _holder_object(holder: Holder) -> Document:
    held = None if holder.block is None else _block_object(holder.block, holder.frames)
    return {
        "kind": holder.kind,
        "address": holder.address,
        "inside_bytes": holder.inside_bytes,
        "text": holder.text,
        "thread": holder.thread,
        "block": held,
    }
