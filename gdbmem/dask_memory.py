"""The unmanaged memory of a worker of Dask: what it is made of, asked of a child of the worker.

Dask counts as *unmanaged* what a worker's process has beside `sizeof()` of the results that it keeps. Here each byte of
that has a name, and so has the error of `sizeof()`, so that all of it adds up to *process − managed*.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import sys
import sysconfig
import time
import types
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Optional

from gdbmem.files import JsonObject
from gdbmem.text import format_delta, format_duration, format_size, plural, printable

_FOLLOW_SECONDS = 20.0  # results are followed in a thread, which the worker does not wait for
_NAMED, _SMALL = 5, 0.01
_SET_PTRACER = 0x59616D61  # prctl(2)
_CHILD = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0); from gdbmem.api.managed_worker import main; main()"
)


class Term(NamedTuple):
    """A part of the unmanaged memory."""

    category: str  # as in a ledger
    label: str
    size_bytes: int
    what: str


class Result(NamedTuple):
    """A result that a worker keeps."""

    key: str
    sizeof_bytes: int  # as Dask counts it
    resident_bytes: int  # pages of it that are in memory


class WorkerMemory(NamedTuple):
    """The memory of one worker. The terms and the error of sizeof() add up to process − managed."""

    worker: str  # its address
    pid: int
    process_bytes: int
    managed_bytes: int  # by sizeof()
    managed_resident_bytes: int  # of the same results, by the kernel's pages
    terms: Sequence[Term]  # the largest first
    results: Sequence[Result]  # those with the largest error first
    pause_seconds: Optional[float] = None  # for which the worker was stopped
    notices: Sequence[str] = ()

    @property
    def unmanaged_bytes(self) -> int:
        """The bytes that Dask calls unmanaged: in memory, and not managed."""
        return self.process_bytes - self.managed_bytes

    @property
    def sizeof_error_bytes(self) -> int:
        """How much more the results have in memory than sizeof() says; negative: less."""
        return self.managed_resident_bytes - self.managed_bytes

    def __str__(self) -> str:
        return "\n".join(_sentences(self))


class ClusterMemory(NamedTuple):
    """The memory of the workers of a cluster."""

    workers: Sequence[WorkerMemory]
    unread: Mapping[str, str]  # address → why not

    def total(self) -> WorkerMemory:
        """Return the sum of the workers."""
        sums: Counter[tuple[str, str]] = Counter()
        what: dict[tuple[str, str], str] = {}
        for term in (term for worker in self.workers for term in worker.terms):
            sums[term.category, term.label] += term.size_bytes
            what[term.category, term.label] = term.what
        terms = [Term(*key, size, what[key]) for key, size in sums.most_common()]
        results = [result for worker in self.workers for result in worker.results]
        results.sort(key=lambda one: -abs(one.resident_bytes - one.sizeof_bytes))
        return WorkerMemory(
            plural(len(self.workers), "worker"),
            0,
            sum(worker.process_bytes for worker in self.workers),
            sum(worker.managed_bytes for worker in self.workers),
            sum(worker.managed_resident_bytes for worker in self.workers),
            terms,
            results,
            max((worker.pause_seconds or 0.0 for worker in self.workers), default=None),
        )

    def __str__(self) -> str:
        parts = (
            [str(self.total()), *map(str, self.workers)]
            if len(self.workers) != 1
            else [*map(str, self.workers)]
        )
        return "\n\n".join([*parts, *(f"{where}: {printable(why)}" for where, why in self.unread.items())])


def _sentences(memory: WorkerMemory) -> list[str]:
    unmanaged, error = memory.unmanaged_bytes, memory.sizeof_error_bytes
    parts = [(term.size_bytes, term.what) for term in memory.terms]
    parts.append(
        (error, f"that sizeof() {'does not count' if error >= 0 else 'counts and is not in memory'}")
    )
    parts.sort(key=lambda part: -abs(part[0]))
    shown = [part for part in parts if abs(part[0]) >= _SMALL * abs(unmanaged)][: _NAMED + 2]
    head = (
        f"{printable(memory.worker)}: {format_size(unmanaged)} unmanaged: {format_size(memory.process_bytes)} in memory"
        f" − {format_size(memory.managed_bytes)} managed"
    )
    lines = [f"  {format_size(size):>10}  {printable(what)}" for size, what in shown]
    rest = unmanaged - sum(size for size, _ in shown)
    lines += [f"  {format_size(rest):>10}  the rest"] if rest else []
    for result in memory.results[:_NAMED]:
        wrong = result.resident_bytes - result.sizeof_bytes
        if abs(wrong) >= _SMALL * memory.process_bytes:
            of = f"{format_size(result.sizeof_bytes)} by sizeof(), {format_size(result.resident_bytes)} in memory"
            lines.append(f"  result {printable(result.key)}: {of} ({format_delta(wrong)})")
    if memory.pause_seconds is not None:
        lines.append(f"  stopped for {format_duration(memory.pause_seconds)}")
    return [head, *lines, *(f"  {printable(notice)}" for notice in memory.notices)]


async def explain_worker(dask_worker: Any) -> JsonObject:
    """Return the memory of *dask_worker*, in whose event loop this runs, for JSON; `error` if it can't be read."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        _allow(child.pid)
        assert child.stdout is not None
        await child.stdout.readline()
        kept = _in_memory(dask_worker)
        question = await asyncio.to_thread(_question, kept)
        said, complaint = await child.communicate(question)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if not said:
        text = complaint.decode(errors="replace").strip().splitlines()
        return {"error": text[-1] if text else "its child ended without an answer"}
    found: JsonObject = json.loads(said)
    if "error" not in found:
        found["worker"] = str(dask_worker.address)
        if [key for key, _, _ in _in_memory(dask_worker)] != [key for key, _, _ in kept]:
            found["notices"].append("results came or went while the worker was read")
    return found


def _in_memory(worker: Any) -> list[tuple[str, int, Any]]:
    """Return key, Dask's size and value of each result that is in memory and not spilled."""
    data = getattr(worker.data, "fast", worker.data)
    tasks = worker.state.tasks
    return [
        (str(key), int(tasks[key].nbytes or 0) if key in tasks else 0, value)
        for key, value in list(data.items())
    ]


def _question(kept: Sequence[tuple[str, int, Any]]) -> bytes:
    found, which = Extents(time.monotonic() + _FOLLOW_SECONDS), array("q")
    for number, (_, _, value) in enumerate(kept):
        found.follow(value)
        which.extend([number] * (len(found.starts) - len(which)))
    head = {
        "pid": os.getpid(),
        "results": [(key, size) for key, size, _ in kept],
        "parts": len(which),
        "is_whole": found.is_whole,
    }
    columns = (found.starts, found.sizes, which)
    return json.dumps(head).encode() + b"\n" + b"".join(column.tobytes() for column in columns)


def _allow(pid: int) -> None:
    """Let the child *pid* read this process where Yama's ptrace_scope would refuse it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


# Where a result is in memory: addresses and sizes of its objects and buffers, from inside the process.
#
# Nothing is called on the values but the buffer interfaces of numpy and pyarrow: no __sizeof__, no property, no
# iterator of a class of the program. Sources: CPython, Include/cpython/listobject.h, dictobject.h, object.h; for GIL
# builds.


_HAS_GC = 1 << 14  # in tp_flags
_GC_HEAD = 16
_PLAIN = frozenset((int, float, complex, str, bytes))  # one piece, without a header for the collector
_EXACT = _PLAIN | {bool, bytearray, list, tuple, dict, set, frozenset}  # whose __sizeof__ is CPython's own
# What a value shares with the program, and is not the value's own.
_OF_THE_PROGRAM = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType,
    types.FrameType, types.GetSetDescriptorType, property, type(None), bool,
)  # fmt: skip
_LIST_ITEMS, _DICT_KEYS = 24, 32  # offsets of a pointer in the object
_HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
_MOST_PARTS = 4_000_000


class Extents:
    """The parts of a value: `starts` and `sizes` in bytes, some of them twice."""

    def __init__(self, until: float) -> None:
        """Follow values until that time, by time.monotonic()."""
        self.starts = array("q")
        self.sizes = array("q")
        self.is_whole = True  # False: there are more than could be followed
        self._until = until
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # objects made here: no other may have their address meanwhile

    def follow(self, value: Any) -> None:
        """Add the parts of *value*, without objects that were added before."""
        todo = [value]
        while todo:
            one = todo.pop()
            kind = type(one)
            if kind in _PLAIN:
                self._add(id(one), sys.getsizeof(one))
            elif id(one) not in self._seen and not isinstance(one, _OF_THE_PROGRAM):
                if time.monotonic() > self._until or len(self.starts) > _MOST_PARTS:
                    self.is_whole = False
                    return
                self._seen.add(id(one))
                self._add_object(one, kind)
                self._add_contents(one, kind, todo)

    def _add_contents(self, one: Any, kind: Any, todo: list[Any]) -> None:
        """Add what *one* refers to; what has contents in turn comes into *todo*."""
        if kind.__module__.partition(".")[0] == "pyarrow":
            self._add_arrow(one, todo)
        elif _is_array(one):
            self._add_array(one, todo)
        else:
            start, size, measure = self.starts.append, self.sizes.append, sys.getsizeof
            # The collector does not visit the keys of a dictionary that are all strings.
            keys = list(dict.keys(one)) if isinstance(one, dict) else ()
            for inner in chain(keys, gc.get_referents(one)):
                if type(inner) in _PLAIN:
                    start(id(inner))
                    size(measure(inner))
                else:
                    todo.append(inner)

    def _add_object(self, one: Any, kind: Any) -> None:
        head = _GC_HEAD if kind.__flags__ & _HAS_GC else 0
        size = sys.getsizeof(one) if kind in _EXACT else object.__sizeof__(one) + head
        apart = 0
        if kind in (list, dict) and _HAS_GIL:
            apart = max(size - kind.__basicsize__ - head, 0)
            at = ctypes.c_size_t.from_address(id(one) + (_LIST_ITEMS if kind is list else _DICT_KEYS)).value
            self._add(at, apart if at else 0)
        elif kind is bytearray and one:
            with contextlib.suppress(BufferError, TypeError):
                self._add(ctypes.addressof(ctypes.c_char.from_buffer(one)), len(one))
                apart = len(one)
        self._add(id(one) - head, size - apart)

    def _add_array(self, one: Any, todo: list[Any]) -> None:
        """Add the memory that an array of numpy is in: that of its base, since a view keeps all of it."""
        if one.base is not None:
            todo.append(one.base)  # an array, or another owner of a buffer
            return
        if one.nbytes and one.flags.owndata:
            self._add(one.ctypes.data, one.nbytes)
        if one.dtype.hasobject:
            self._kept.append(one.ravel().tolist())
            todo += self._kept[-1]

    def _add_arrow(self, one: Any, todo: list[Any]) -> None:
        """Add the buffers of an array, a table, a buffer of pyarrow."""
        made: list[Any] = []
        with contextlib.suppress(Exception):  # whatever a foreign library raises for an odd array
            if hasattr(one, "address") and hasattr(one, "parent"):  # a buffer
                parent = one.parent
                made += [] if parent is None else [parent]
                self._add(one.address, one.size if parent is None else 0)
            elif hasattr(one, "buffers"):  # an array
                made += [buffer for buffer in one.buffers() if buffer is not None]
                made += [one.dictionary] if hasattr(one, "dictionary") else []
            elif hasattr(one, "chunks"):
                made += one.chunks
            elif hasattr(one, "columns"):
                made += one.columns
        self._kept += made
        todo += made

    def _add(self, start: int, size: int) -> None:
        if size > 0:
            self.starts.append(start)
            self.sizes.append(size)


def _is_array(one: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(one, numpy.ndarray)
