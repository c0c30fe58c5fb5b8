"""BFC allocators of a live process, or in a core: found while the process runs, read in a pause of milliseconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.allocators.bfc.layout import FoundObject, Layout, LayoutUnknown, calibrate, find_objects
from gdbmem.allocators.bfc.walk import Buffers, RawPool, capture, decode, is_busy, prepare
from gdbmem.errors import Notice, TargetError
from gdbmem.linux.elf.corefile import CoreFile
from gdbmem.linux.elf.objects import VtableSymbols, images
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.holding.copying import is_long, wait_text
from gdbmem.linux.holding.ptrace import Freeze
from gdbmem.linux.memory.maps import Mapping, Ranges, read_maps, read_smaps, resident_ranges
from gdbmem.linux.memory.process_memory import ProcMemory, careful_memory
from gdbmem.linux.process.process import check_analysable, ended, has_ended
from gdbmem.model.bfc import Allocator
from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.text import format_size, printable

_TRIES = 20  # attempts to stop it outside any allocation
_BREATH_SECONDS = 0.002
_HOLD_SECONDS = 0.005  # to stop and to resume
_BYTES_A_SECOND = 2 << 30  # measured in a virtual machine: 3 GiB
Say = Callable[[str], None]


class Pools(NamedTuple):
    """The allocators of one process, or core, at one moment."""

    allocators: Sequence[Allocator]
    notices: Sequence[Notice] = ()
    pause_seconds: Optional[float] = None


@dataclass
class _Known:
    """Recognised objects, and candidates that could not be recognised."""

    objects: list[tuple[FoundObject, Layout]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


def read_pools(pid: int, say: Say = lambda _: None) -> Pools:
    """Return the allocators of process *pid*, stopped for some milliseconds; *say* is called before a longer stop.

    Raises TargetError if it can't be read, or has none.
    """
    with ProcessPools(pid, say) as pools:
        return pools.read()


class ProcessPools:
    """The allocators of a live process, found once and read any number of times."""

    def __init__(self, pid: int, say: Say = lambda _: None) -> None:
        """Find them while the process runs; raises TargetError if it can't be read, or has none.

        *say* is called once, before a noticeable stop of the process.
        """
        facts = check_analysable(pid)
        self._pid, self._say = pid, say
        self._source = f"process {pid} ({printable(facts.name)})"
        self._opened = ProcMemory(pid)
        try:
            with TargetFiles(pid) as files, _death_told(pid):
                mappings = read_smaps(pid) if facts.swap_bytes else read_maps(pid)
                self._memory: Memory = self._opened
                if facts.swap_bytes:  # reading would bring it back into memory
                    self._memory = careful_memory(pid, self._opened, mappings, swapped=False)
                areas = resident_ranges(pid, _writable(mappings))[0].items
                names = VtableSymbols(images(self._memory, mappings), files.open)
                self._known = _recognise(self._memory, areas, mappings, names.name)
            if not self._known.objects:
                raise _none(self._source, self._known)
        except BaseException:
            self.close()
            raise

    def read(self) -> Pools:
        """Return their current state; raises TargetError if the process, or one of them, has ended."""
        with _death_told(self._pid):
            raw, seconds = self._hold()
        return Pools([decode(one, self._source) for one in raw], self._known.notices, seconds)

    def _hold(self) -> tuple[list[RawPool], float]:
        """Read the bytes of all allocators in the stopped process, if possible while none is being changed."""
        memory, objects = self._memory, [(found.address, layout) for found, layout in self._known.objects]
        for number in range(_TRIES):
            buffers = [_prepared(memory, address, layout) for address, layout in objects]
            self._announce(sum(one.bytes for one in buffers))
            with Freeze(self._pid) as freeze:
                is_last = number == _TRIES - 1
                if is_last or not any(is_busy(memory, address, layout) for address, layout in objects):
                    raw = [capture(memory, *one, buffer) for one, buffer in zip(objects, buffers)]
                    break
            time.sleep(_BREATH_SECONDS)
        return raw, freeze.pause_seconds

    def _announce(self, size: int) -> None:
        expected = _HOLD_SECONDS + size / _BYTES_A_SECOND
        if is_long(expected):
            self._say(
                f"{self._source} is stopped for {wait_text(expected)} while {format_size(size)} of it are read"
            )
            self._say = lambda _: None

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> ProcessPools:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextlib.contextmanager
def _death_told(pid: int) -> Iterator[None]:
    """Raise an error that the process has ended, if that is why it can't be read."""
    try:
        yield
    except TargetError as error:
        if error.slug not in ("no-such-process", "process-zombie") and has_ended(pid):
            raise ended(pid) from error
        raise


def read_core_pools(path: Path, program: Optional[Path] = None) -> Pools:
    """Return the allocators in the core file at *path*; raises InputError, and TargetError if it has none."""
    core = CoreFile(path, program)
    mappings = core.mappings()
    source = f"core {printable(path.name)} ({printable(core.program)})"
    names = VtableSymbols(images(core, mappings))
    written = [piece for area in _writable(mappings) for piece in core.written.overlaps(*area)]
    return read_stopped_pools(core, written, mappings, source, names.name)


def read_held_pools(pid: int) -> Pools:
    """Return the allocators of process *pid*, which is stopped by someone else (gdb)."""
    facts = check_analysable(pid, may_be_traced=True)
    with ProcMemory(pid) as opened, TargetFiles(pid) as files:
        mappings = read_smaps(pid)
        memory = careful_memory(pid, opened, mappings, swapped=False)
        areas = resident_ranges(pid, _writable(mappings))[0].items
        names = VtableSymbols(images(memory, mappings), files.open)
        return read_stopped_pools(
            memory, areas, mappings, f"process {pid} ({printable(facts.name)})", names.name
        )


def read_pool_at(memory: Memory, address: int, class_name: str, source: str) -> Pools:
    """Return the allocator at *address* of a stopped process or core; raises TargetError if there is none."""
    return Pools([decode(capture(memory, address, calibrate(memory, address, class_name)), source)])


def read_stopped_pools(
    memory: Memory,
    areas: Iterable[tuple[int, int]],
    mappings: Sequence[Mapping],
    source: str,
    vtable_name: Callable[[int], str],
) -> Pools:
    """Return the allocators in *areas* of a stopped process or core; raises TargetError if there are none."""
    known = _recognise(memory, areas, mappings, vtable_name, tries=1)
    found = []
    for one, layout in known.objects:
        try:
            found.append(decode(capture(memory, one.address, layout), source))
        except (LayoutUnknown, MemoryUnreadable) as error:
            known.notices.append(Notice("bfc-layout-unknown", error.message))
    if not found:
        raise _none(source, known)
    return Pools(found, known.notices)


def _writable(mappings: Sequence[Mapping]) -> list[tuple[int, int]]:
    return [
        (m.start, m.end)
        for m in mappings
        if m.permissions[:2] == "rw" and (m.is_anonymous or m.is_file) and not m.name.startswith("[stack")
    ]


def _recognise(
    memory: Memory,
    areas: Iterable[tuple[int, int]],
    mappings: Sequence[Mapping],
    vtable_name: Callable[[int], str],
    tries: int = _TRIES,
) -> _Known:
    """Return the allocators in *areas*. A running process needs several *tries*: one may see a change in progress."""
    known = _Known()
    files = [m for m in mappings if m.is_file]
    in_file = Ranges((m.start, m.end) for m in files).__contains__
    in_code = Ranges((m.start, m.end) for m in files if "x" in m.permissions).__contains__
    for found in find_objects(memory, areas, in_file, vtable_name, in_code):
        try:
            known.objects.append((found, _calibrated(memory, found, tries if found.class_name else 1)))
        except LayoutUnknown as error:
            if found.class_name:  # an object without a name is one only if all of it fits
                known.notices.append(Notice(error.slug, error.message))
        except MemoryUnreadable:
            continue  # freed meanwhile
    return known


def _calibrated(memory: Memory, found: FoundObject, tries: int) -> Layout:
    for _ in range(tries - 1):
        try:
            return calibrate(memory, found.address, found.class_name)
        except (LayoutUnknown, MemoryUnreadable):
            time.sleep(_BREATH_SECONDS)
    return calibrate(memory, found.address, found.class_name)


def _prepared(memory: Memory, address: int, layout: Layout) -> Buffers:
    try:
        return prepare(memory, address, layout)
    except MemoryUnreadable:  # it is being moved: capture() detects this
        return Buffers()


def _none(source: str, known: _Known) -> TargetError:
    if known.notices:
        return TargetError(
            f"{source} has no BFC allocator that gdbmem can read: {known.notices[0].message}",
            slug="bfc-layout-unknown",
            hint="please report the version of the library",
        )
    return TargetError(
        f"{source} has no BFC allocator",
        slug="bfc-none",
        hint="TensorFlow makes one for a GPU, or with TF_CPU_ALLOCATOR_USE_BFC=true; onnxruntime for a session;"
        " PyTorch has another: torch.cuda.memory._dump_snapshot(FILE), then gdbmem bfc FILE",
    )


# The pools of a live process, sampled repeatedly.


def follow_pools(
    pid: int, every_seconds: float, for_seconds: Optional[float], say: Say
) -> Iterator[tuple[float, Pools]]:
    """Yield samples of the pools of process *pid*, with seconds since the first; each stops it for milliseconds.

    Ends after *for_seconds*, with the process, or when it has no pools any more, which the last sample reports. Pools
    created later are found when one of the known ones is gone. *say* is called before a longer stop.
    Raises TargetError if the process can't be read, or has no pool at first.
    """
    known = ProcessPools(pid, say)
    begun: Optional[float] = None
    number = 0
    try:
        while True:
            try:
                pools = known.read()
            except TargetError:
                if begun is None:
                    raise
                try:
                    known, old = ProcessPools(pid, say), known
                    old.close()
                    pools = known.read()
                except TargetError as error:
                    if not has_ended(pid):
                        yield time.monotonic() - begun, Pools((), [Notice(error.slug, error.message)])
                    return
            now = time.monotonic()
            begun = now if begun is None else begun
            yield now - begun, pools
            number += 1
            if for_seconds is not None and number * every_seconds > for_seconds:
                return
            time.sleep(max(0.0, begun + number * every_seconds - time.monotonic()))
    finally:
        known.close()
