"""A native engine's snapshot, at the prompt, in passing, or of a running process by an unattended gdb."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

import gdb

from gdbmem.debugger.command import step_in_place, warn
from gdbmem.debugger.location import current_thread, frames_from
from gdbmem.debugger.names import LiveSymbols
from gdbmem.debugger.native.attached import attach, prepare, request
from gdbmem.debugger.native.calls_in_passing import detour, under_way
from gdbmem.debugger.native.inferior import is_inside, outside_allocator, program, refuse_inside
from gdbmem.debugger.native.program_faults import program_faults
from gdbmem.debugger.program import InternalBreakpoint, executions
from gdbmem.debugger.python.call_paths import place_and_python
from gdbmem.debugger.session import NativeProgram, session
from gdbmem.debugger.snapshots.snapshots import (
    UncountedFacts,
    beside_resident_facts,
    outside_facts,
    summary_line,
)
from gdbmem.debugger.stopping.stops import hits_here
from gdbmem.engines import faults
from gdbmem.engines.engine import Call, native_engine, table
from gdbmem.errors import GdbmemError, TargetError, internal_error
from gdbmem.formats.json_profiles import CUT
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.formats.stacks import StackProfile
from gdbmem.launch.messages import AskAttached, AttachedPlan, Failed, SnapTaken
from gdbmem.model.calltree import UNTRACED
from gdbmem.model.faults import NEEDING_NO_FAULT
from gdbmem.profiles.own_code import stack_sites
from gdbmem.runs.run import SnapshotRecord
from gdbmem.text import printable

_said: set[str] = set()  # slugs
Taken = Callable[[Optional[SnapshotRecord], str], None]
"""Gets the record and its line; without a record, what went wrong."""


class PendingSnapshot:
    """A snapshot in progress: the program's location, and the file for it."""

    def __init__(self, native: NativeProgram, name: Optional[str], hit: Optional[int]) -> None:
        self._native = native
        self._name = name
        self._hit = hit if hit is not None else hits_here()
        # The call is itself a stop, to which later queries would refer.
        self._place, self._thread = place_and_python(), current_thread()
        self._file = ""
        self._allocator_bytes: Optional[int] = None  # that it holds of the system

    def call(self) -> Call:
        """Return the call that takes it."""
        native = self._native
        self._file = session.run.next_file(native.engine)
        if native.attached is not None:
            return request(native, native.attached, session.run.folder / self._file)
        dump = native_engine(native.engine).snapshot(program, native.prefix, f"{session.link}/{self._file}")
        return self._with_resident(dump) if session.judged else dump

    def _with_resident(self, dump: Call) -> Call:
        """Return *dump*, followed by a question for what the allocator holds."""
        resident = getattr(native_engine(self._native.engine), "resident", None)
        if resident is None:
            return dump

        def tell(size_bytes: int) -> None:
            self._allocator_bytes = size_bytes

        def finish(result: int) -> Optional[Call]:
            dump.finish(result)
            following: Call = resident(program, tell)
            return following

        return Call(dump.function, dump.arguments, finish)

    def take(self) -> None:
        """Take it, with the program stopped."""
        if table(self._native.engine).reads_memory:
            self._file = session.run.next_file(self._native.engine)
            path = session.run.folder / self._file
            if self._native.engine == faults.NAME:
                program_faults.keep(path)
            else:
                from gdbmem.debugger.python.commands import keep_traces_here  # slow to import

                keep_traces_here(path)
            return
        with outside_allocator(self._native.library):
            call: Optional[Call] = self.call()
            while call is not None:
                call = call.finish(program.call(call.function, call.arguments))

    def record(self, *, with_sites: bool = True) -> tuple[SnapshotRecord, str]:
        """Add it to the run; return its record and its summary line."""
        path = session.run.folder / self._file
        profile = _read(path, with_names=with_sites)
        record = session.run.append(
            self._name or str(int(path.stem)),
            file=self._file,
            engine=self._native.engine,
            place=self._place,
            thread=self._thread,
            hit=self._hit,
            seconds=round(session.seconds, 3),
            heap_bytes=None if profile is None else profile.snapshots[0].total_bytes,
            process=program.process,
            **({} if profile is None else self._outside(profile)),
        )
        return record, _summary(record, profile) if with_sites else ""

    def _outside(self, profile: StackProfile) -> UncountedFacts:
        """Return the fields of the record on memory that the engine does not count."""
        if profile.faults is not None:
            beside = beside_resident_facts(by_faults=True)
            if "outside_bytes" in beside:
                beside["outside_bytes"] += _unexplained(profile)
            return beside
        if table(self._native.engine).reads_memory:  # its snapshots have all resident memory
            return beside_resident_facts()
        return outside_facts(profile.snapshots[0].total_bytes, profile.unit, self._allocator_bytes)


def _unexplained(profile: StackProfile) -> int:
    """Return the resident bytes that no page fault of a recording explains."""
    assert profile.faults is not None
    parts = [one for account in profile.faults.accounts for one in account.unseen]
    return sum(one.bytes for one in parts if one.kind not in NEEDING_NO_FAULT)


def take(native: NativeProgram, name: Optional[str], hit: Optional[int]) -> tuple[SnapshotRecord, str]:
    """Take a snapshot of the stopped program; return its record and its summary line."""
    if under_way():
        raise TargetError(
            "another thread is taking a snapshot",
            slug="snapshot-under-way",
            hint="type 'continue', and take this one at the next stop",
        )
    ready()
    snapshot = PendingSnapshot(native, name, hit)
    snapshot.take()
    return snapshot.record()


def ready() -> None:
    """Make sure that the profiler of an attached process counts; raises TargetError if it can't."""
    if session.native is not None and session.native.attached is not None:
        prepare()


def take_in_passing(native: NativeProgram, name: Optional[str], hit: Optional[int], taken: Taken) -> bool:
    """Make the thread at this breakpoint take a snapshot before it continues; return whether it will.

    Raises TargetError if it is inside the allocator.
    """
    if table(native.engine).reads_memory:
        return False
    refuse_inside(native.library)
    snapshot = PendingSnapshot(native, name, hit)

    def finish(failure: Optional[GdbmemError]) -> None:
        if failure is not None:
            taken(None, str(failure))
            return
        try:
            record, line = snapshot.record()
        except GdbmemError as error:
            taken(None, str(error))
        else:
            taken(record, line)

    return detour(snapshot.call, finish)


def _read(path: Path, *, with_names: bool) -> Optional[StackProfile]:
    try:
        profile = open_profile(path, OpenOptions(symbols=_symbols() if with_names else None))
    except GdbmemError as error:
        warn(f"{error}; the incomplete file is kept [{error.slug}]")
        return None
    assert isinstance(profile, StackProfile)  # native engines write no other
    for notice in profile.notices:
        # Nearly all tracebacks, and a whole recording of page faults, are in each snapshot.
        if notice.slug not in _said or (notice.slug != CUT and profile.faults is None):
            warn(notice.sentence)
        _said.add(notice.slug)
    return profile


_live: dict[tuple[int, bytes], LiveSymbols] = {}  # by the program that is executed: one at a time


def _symbols() -> LiveSymbols:
    here = executions.here()
    if here not in _live:
        _live.clear()
        _live[here] = LiveSymbols(here[0])
    return _live[here]


def _summary(record: SnapshotRecord, profile: Optional[StackProfile]) -> str:
    """Return the snapshot's summary line, and remember its sites for the next one."""
    if profile is None or record.heap_bytes is None:
        return f"snapshot {record.label}: kept in {printable(record.file)}"

    content = profile.load(profile)
    sites = stack_sites(content.stacks, content.chains)
    return summary_line(record, sites, unit=profile.unit, beside=profile.beside.get(UNTRACED))


_TRIES = 200  # stops on the way out of the allocator


def snap() -> None:
    """Take one snapshot of the process and detach; the launcher receives the outcome."""
    session.open_wire()
    try:
        plan = session.ask(AskAttached(), AttachedPlan)
        session.tell(_snap(plan, os.environ.get("GDBMEM_NAME") or None))
    except GdbmemError as error:
        session.tell(Failed(error.message, error.slug, error.hint))
    except gdb.error as error:
        session.tell(Failed(printable(str(error)), "call-failed"))
    except KeyboardInterrupt:
        session.tell(Failed("the snapshot took too long", "call-failed", "try again"))
    except Exception as error:  # noqa: BLE001  (a host: gdb calls this)
        session.tell(Failed(internal_error(error), "call-failed"))


def _snap(plan: AttachedPlan, name: Optional[str]) -> SnapTaken:
    for setting in ("pagination off", "confirm off", "print thread-events off"):
        gdb.execute(f"set {setting}", to_string=True)
    gdb.execute("handle all nostop noprint pass", to_string=True)
    step_in_place()
    # The symbols of the program itself are read while it still runs.
    if plan.sysroot is None:
        gdb.execute(f"file /proc/{plan.pid}/exe", to_string=True)
    began = time.monotonic()
    with _attached(plan):
        native = session.native
        assert native is not None and native.attached is not None
        native.attached.other_way = f"'gdbmem explain {plan.pid}'"
        if native.engine != "none":
            _to_a_safe_point(native.library)
        prepare()
        snapshot = PendingSnapshot(native, name, None)
        snapshot.take()
    pause = time.monotonic() - began
    record, _ = snapshot.record(with_sites=False)
    return SnapTaken(record.label, round(pause, 3), tuple(native.attached.notes))


@contextlib.contextmanager
def _attached(plan: AttachedPlan) -> Iterator[None]:
    try:
        attach(plan)
        yield
    finally:
        with contextlib.suppress(gdb.error):
            gdb.execute("detach", to_string=True)


def _to_a_safe_point(library: str) -> None:
    """Select a thread outside the allocator; if there is none, let one leave it."""
    for thread in sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num):
        thread.switch()
        if not is_inside(library):
            return
    gdb.selected_inferior().threads()[-1].switch()
    for _ in range(_TRIES):
        _leave(library)
        if not is_inside(library):
            return


def _leave(library: str) -> None:
    """Run the selected thread until its call into the allocator returns."""
    thread = gdb.selected_thread()
    outer = None
    for frame in frames_from(gdb.newest_frame(), 64):
        if is_inside(library, frame):
            outer = frame.older()
    if outer is None:
        return
    point = InternalBreakpoint(outer.pc())
    point.thread = thread.global_num
    try:
        gdb.execute("continue", to_string=True)
    finally:
        point.delete()
    if thread.is_valid():
        thread.switch()
