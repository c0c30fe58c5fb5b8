"""The records of tracemalloc in a process or a core, read without running anything there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from gdbmem.allocators.cpython.traces import Traces, read_traces
from gdbmem.errors import TargetError
from gdbmem.formats.json_profiles import untraced_bytes
from gdbmem.inspection.live_process import Moment, Say, Subject, ask_process
from gdbmem.inspection.pause import read_smaps
from gdbmem.inspection.python_queries import check_python, refuse_newer
from gdbmem.linux.elf.corefile import CoreFile
from gdbmem.linux.holding.ptrace import HeldThread
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.process_memory import careful_memory
from gdbmem.linux.process.process import process_facts
from gdbmem.model.memory import Memory
from gdbmem.records import dataclass


@dataclass(frozen=True)
class TracedProcess:
    """The traces of a Python process, and the memory that they don't cover."""

    program: str
    pid: Optional[int]
    traces: Traces
    rss_bytes: Optional[int]  # at the same moment; None for a core
    pause_seconds: Optional[float] = None

    @property
    def untraced_bytes(self) -> Optional[int]:
        """Return the resident bytes that are neither traced nor tracemalloc's own; None if unknown."""
        return untraced_bytes(self.rss_bytes, self.traces.bytes, self.traces.own_bytes)


@dataclass(frozen=True)
class _TracemallocTables:
    """The query for the contents of tracemalloc's tables."""

    subject: Subject
    swapped: bool

    def of_process(self, memory: Memory, threads: Sequence[HeldThread]) -> tuple[Traces, int]:
        mappings = self.subject.mappings
        careful = careful_memory(self.subject.pid, memory, mappings, swapped=self.swapped)
        return read_traces(careful, mappings), _rss(mappings)

    def of_copy(self, moment: Moment, memory: Memory) -> tuple[Traces, int]:
        return read_traces(memory, moment.mappings), _rss(self.subject.mappings)


def _rss(mappings: Sequence[Mapping]) -> int:
    return sum(mapping.rss_bytes for mapping in mappings)


def traces_of_process(pid: int, *, fork: Optional[bool], swapped: bool, say: Say) -> TracedProcess:
    """Return the traces of live process *pid*; *fork*, *say* and errors as for `ask_process`."""
    name = process_facts(pid).name

    def prepare(subject: Subject) -> _TracemallocTables:
        careful = careful_memory(pid, subject.memory, subject.mappings, swapped=swapped)
        check_python(subject.mappings, pid, careful)
        return _TracemallocTables(subject, swapped)

    (traces, rss), pause = ask_process(pid, prepare, fork=fork, say=say)
    return _checked(TracedProcess(name, pid, traces, rss, pause))


def traces_of_stopped(pid: int, memory: Memory, *, swapped: bool) -> TracedProcess:
    """Return the traces of process *pid*, which is stopped by someone else (gdb). Raises TargetError."""
    mappings = read_smaps(pid)
    careful = careful_memory(pid, memory, mappings, swapped=swapped)
    check_python(mappings, pid, careful)
    traces = read_traces(careful, mappings)
    return _checked(TracedProcess(process_facts(pid).name, pid, traces, _rss(mappings)))


def traces_of_core(path: Path, program: Optional[Path]) -> TracedProcess:
    """Return the traces in core file *path*. Raises InputError if it is not a core, or of another program."""
    core = CoreFile(path, program)
    mappings = core.mappings()
    check_python(mappings, memory=core)
    return _checked(TracedProcess(core.program, None, read_traces(core, mappings), None))


def _checked(result: TracedProcess) -> TracedProcess:
    if not result.traces.tables:
        refuse_newer(result.traces.version, "the tables of tracemalloc")
        raise TargetError(
            "tracemalloc has traced nothing in this process, or its tables were not recognised",
            slug="python-no-traces",
            hint="start it with PYTHONTRACEMALLOC=1 (or more, for deeper tracebacks) or 'python -X tracemalloc'",
        )
    return result
