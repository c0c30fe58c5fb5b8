"""One snapshot of a running process, by an unattended gdb."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Optional

import gdb

from gdbmem.debugger.native.attached import attach, prepare
from gdbmem.debugger.native.inferior import (
    is_inside,
)
from gdbmem.debugger.native.snapshot import PendingSnapshot
from gdbmem.debugger.session import session
from gdbmem.errors import GdbmemError, internal_error
from gdbmem.launch.messages import AskAttached, AttachedPlan, Failed, SnapTaken
from gdbmem.text import printable

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
    frame = gdb.newest_frame()
    outer = None
    for _ in range(64):
        if frame is None:
            break
        if is_inside(library, frame):
            outer = frame.older()
        frame = frame.older()
    if outer is None:
        return
    point = gdb.Breakpoint(f"*{outer.pc():#x}", internal=True)
    point.silent, point.thread = True, thread.global_num
    try:
        gdb.execute("continue", to_string=True)
    finally:
        point.delete()
    if thread.is_valid():
        thread.switch()
