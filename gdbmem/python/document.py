"""Python's objects and arenas as JSON, ``kind=python-objects`` and ``kind=python-arenas``, and objects back from it."""

from __future__ import annotations

from gdbmem.json_values import as_json
from gdbmem.model.python import (
    ArenaUse,
    PythonCopies,
    PythonHolders,
    PythonObjects,
    PythonStacks,
    PythonThread,
    TypeUse,
)
from gdbmem.python.copies import copies_answer
from gdbmem.python.holders import holders_answer
from gdbmem.python.objects import Change, arenas_answer, changes, growth_answer, objects_answer
from gdbmem.terminal.document import Document, head, to_json, whole

_LARGEST = 1 << 26


def objects_json(objects: PythonObjects) -> str:
    """Return *objects* as ``kind=python-objects``; sizes are bytes."""
    document: Document = {
        **head("python-objects", objects.notices),
        "answer": objects_answer(objects),
        **as_json(objects, "program", "pid", "pause_seconds", "count", "bytes", "types"),
        "unused": _without_type(objects.unused),
        "others": _without_type(objects.others),
        **as_json(objects, "uncounted_blocks", "large"),
    }
    return to_json(document)


def growth_json(before: PythonObjects, after: PythonObjects, name: str) -> str:
    """Return the change since *before*, read from *name*, as ``kind=python-objects-diff``.

    Sizes are bytes.
    """
    document: Document = {
        **head("python-objects-diff", [*before.notices, *after.notices]),
        "answer": growth_answer(before, after, name),
        "before": as_json(before, "count", "bytes"),
        "after": as_json(after, "count", "bytes"),
        "types": [{"type": one.type, **_change(one)} for one in changes(before, after)],
        "others": _change(Change(before.others, after.others)),
        "unused": _change(Change(before.unused, after.unused)),
    }
    return to_json(document)


def _change(change: Change) -> Document:
    sides = {"before": _without_type(change.before), "after": _without_type(change.after)}
    return {**as_json(change, "delta_count", "delta_bytes"), **sides}


def holders_json(holders: PythonHolders) -> str:
    """Return *holders* as ``kind=python-holders``; sizes are bytes, steps run from the root to the objects."""
    document: Document = {
        **whole("python-holders", holders, holders_answer(holders)),
        "other_paths": _without_type(holders.other_paths),
        "unreached": _without_type(holders.unreached),
        "unreferred": _without_type(holders.unreferred),
    }
    return to_json(document)


def arenas_json(use: ArenaUse) -> str:
    """Return *use* as ``kind=python-arenas``; sizes are bytes."""
    document: Document = {
        **whole("python-arenas", use, arenas_answer(use)),
        "free_bytes": use.free_in_pools_bytes + use.free_pools_bytes,
        "bytes": use.bytes,
    }
    return to_json(document)


def copies_json(copies: PythonCopies) -> str:
    """Return *copies* as ``kind=python-cow``; sizes are bytes."""
    return to_json(whole("python-cow", copies, copies_answer(copies)))


def stacks_json(stacks: PythonStacks) -> str:
    """Return *stacks* as ``kind=python-stack``; frames run from the innermost outward."""
    document: Document = {
        **head("python-stack", stacks.notices),
        **as_json(stacks, "program", "pid", "pause_seconds", "native_threads"),
        "threads": [_thread(one) for one in stacks.threads],
    }
    return to_json(document)


def _thread(thread: PythonThread) -> Document:
    own, native = ("function", "file", "line"), {"object": None, "inlined": False}
    frames = [{**as_json(one, *own), **native, **as_json(one, "is_entry")} for one in thread.frames]
    return {**as_json(thread, "tid", "name", "interpreter", "system_call", "is_whole"), "frames": frames}


def _without_type(use: TypeUse) -> Document:
    return as_json(use, "count", "bytes")
