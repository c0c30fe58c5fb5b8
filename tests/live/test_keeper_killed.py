"""SIGKILL for the process that makes a thread of another one call, at each of its steps: that one goes on as before."""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from gdbmem.errors import TargetError
from gdbmem.inspection.live_process import Held, Moment, ask_process
from gdbmem.launch import python_code
from gdbmem.launch.python_code import run_in_python
from gdbmem.linux.holding import injected_calls
from gdbmem.linux.holding import ptrace as tracing
from gdbmem.linux.process.process import status_fields
from gdbmem.model.memory import Memory
from tests.conftest import Program
from tests.cover import cover
from tests.live.explaining import Running, explain, running
from tests.live.python_programs import pythons, version
from tests.live.test_explain_copy import children

WATCHES = """
import ctypes, os, select, sys
library = ctypes.CDLL(sys.argv[1])
library.check.restype = ctypes.c_uint64
kinds = sys.argv[2].split(",")
found = {}
rounds = 0
os.write(1, b"pid %d\\nready\\n" % os.getpid())
while True:
    for kind in kinds:
        what = library.check(kind.encode())
        if what:
            name = kind + ":" + what.to_bytes(8, "little").rstrip(b"\\0").decode()
            found[name] = found.get(name, 0) + 1
        rounds += 1
    if select.select([0], [], [], 0)[0]:
        if not os.read(0, 100):
            break
        os.write(1, b"rounds %d found %s\\n" % (rounds, repr(found).encode()))
        found.clear()
"""
NO_CALL = "from CPython 3.14 on the interpreter runs the code by itself: nothing is called"
KINDS = ("registers", "sleep", "read", "futex", "epoll", "poll")
TRIES = int(os.environ.get("GDBMEM_TRIES", "10"))
X86 = os.uname().machine == "x86_64"


class KilledAfter:
    """The C library of this process; a process that it forks ends by SIGKILL after so many of its ptrace calls."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self._pid = os.getpid()
        self._real = ctypes.CDLL(None, use_errno=True).ptrace
        self._real.restype = ctypes.c_long
        self._real.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

    def ptrace(self, request: int, tid: int, address: int, data: int) -> int:
        result: int = self._real(request, tid, address, data)
        if os.getpid() != self._pid:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
        return result


class KilledSoon(KilledAfter):
    """One whose process is killed at some moment of the *seconds* after its first ptrace call."""

    def __init__(self, seconds: float) -> None:
        super().__init__(1)
        self._seconds = seconds

    def ptrace(self, request: int, tid: int, address: int, data: int) -> int:
        us = os.getpid()
        if us != self._pid and self._left:
            self._left = 0
            if os.fork() == 0:
                time.sleep(self._seconds)
                if os.getppid() == us:
                    os.kill(us, signal.SIGKILL)
                os._exit(0)
        return self._real(request, tid, address, data)  # type: ignore[no-any-return]


@pytest.fixture
def killed_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    yield lambda calls: monkeypatch.setattr(tracing, "_libc", KilledAfter(calls))


def assert_untouched(target: Running, when: str, kind: str) -> None:
    # Some calls come back with EINTR from any stop, until its tracer has noticed and corrected it.
    allowed = r"({}|{'epoll:EINTR': 1})" if kind == "epoll" else "{}"
    for number in range(2):  # the second one is of after all that was begun before
        line = target.type("x\n").readline()
        wanted = rf"rounds \d+ found {'{}' if number else allowed}\n"
        assert re.fullmatch(wanted, line), f"{when}: {line or target.process.wait()}"
    status = Path(f"/proc/{target.pid}/status").read_text()
    assert "TracerPid:\t0" in status, when
    assert re.search(r"^State:\t[SR]", status, re.M), when
    assert children(target.pid) == "", when


class Nothing:
    """A question whose answer costs nothing."""

    def of_process(self, held: Held) -> None: ...

    def of_copy(self, moment: Moment, memory: Memory) -> None: ...


def each_step(
    kind: str, act: Callable[[], object], killed_after: Callable[[int], None], target: Running
) -> None:
    """Repeat *act*, killed one step later each time, until it completes.

    The kinds of targets share the steps among them, unless ALL_STEPS is set.
    """
    share = 1 if "ALL_STEPS" in os.environ else len(KINDS)
    for calls in range(1 + KINDS.index(kind) % share, 400, share):
        killed_after(calls)
        try:
            act()
        except TargetError as error:
            assert "was killed" in error.message, error.message
            assert_untouched(target, f"killed after {calls} calls", kind)
        else:
            assert calls > 15  # so many it has at least
            return
    raise AssertionError


@pytest.mark.parametrize("kind", KINDS)
def test_a_copier_of_a_process_may_be_killed_at_each_step_and_harms_it_at_none(
    program: Program, killed_after: Callable[[int], None], kind: str
) -> None:
    if kind == "registers" and not X86:
        pytest.skip("it compares registers of x86-64")
    with running([sys.executable, "-c", WATCHES, program("notices_harm"), kind]) as target:
        each_step(kind, lambda: ask_process(target.pid, lambda _: Nothing(), fork=True), killed_after, target)


@pytest.mark.skipif(not X86, reason="before CPython 3.14 this is supported on x86-64 only")
@pytest.mark.parametrize("kind", cover(KINDS, lambda kind: kind in ("registers", "futex", "epoll")))
def test_an_injector_of_code_may_be_killed_at_each_step_and_the_program_is_not_harmed(
    program: Program, killed_after: Callable[[int], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_code, "_MOST_CALLS", 1)
    called = [one for one in pythons() if version(one) < (3, 14)]
    if not called:
        pytest.skip(NO_CALL)
    python = called[KINDS.index(kind) % len(called)]
    with running([python, "-c", WATCHES, program("notices_harm"), kind]) as target:
        code = "answer = [('a', 1)]"
        each_step(kind, lambda: run_in_python(target.pid, code, wait_seconds=10), killed_after, target)


@pytest.mark.skipif(not X86, reason="other processors' threads don't come back by themselves")
@pytest.mark.parametrize("action", ["explain --fork", "python start"])
def test_a_caller_through_a_thread_may_be_killed_at_any_moment(
    program: Program, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    if action == "python start" and sys.version_info >= (3, 14):
        pytest.skip(NO_CALL)
    monkeypatch.setattr(python_code, "_MOST_CALLS", 1)
    kinds = ",".join(kind for kind in KINDS if kind != "epoll")
    killed = 0
    with running([sys.executable, "-c", WATCHES, program("notices_harm"), kinds]) as target:
        for number in range(TRIES):
            monkeypatch.setattr(tracing, "_libc", KilledSoon(random.uniform(0, 0.006)))
            try:
                if action == "explain --fork":
                    ask_process(target.pid, lambda _: Nothing(), fork=True)
                else:
                    run_in_python(target.pid, "answer = [('a', 1)]", wait_seconds=10)
            except TargetError as error:
                assert "was killed" in error.message, error.message
                killed += 1
            assert_untouched(target, f"try {number}", kinds)
    assert killed
    print(f"{action}: killed in {killed} of {TRIES} tries, 0 with harm")


@pytest.mark.skipif(not X86, reason="elsewhere nothing is written on a thread's stack")
def test_nothing_is_written_below_a_stack_that_is_a_piece_of_a_variable(program: Program) -> None:
    with running([program("stands_elsewhere")]) as target:
        with pytest.raises(TargetError, match="none of its threads has room for its registers") as caught:
            ask_process(target.pid, lambda _: Nothing(), fork=True)
        assert caught.value.slug == "copy-refused"
        explain(target.pid)  # it is held instead
        assert target.type("x\n").readline() == "changed 0\n"


@pytest.mark.skipif(not X86, reason="shadow stacks of other processors are no hindrance")
def test_a_process_with_a_shadow_stack_is_made_to_call_nothing(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = status_fields

    def with_shadow_stack(process: int) -> dict[str, str]:
        return {**real(process), "x86_Thread_features": "shstk wrss"}

    monkeypatch.setattr(injected_calls, "status_fields", with_shadow_stack)
    with running([sys.executable, "-c", WATCHES, program("notices_harm"), "read"]) as target:
        with pytest.raises(TargetError, match=r"no copy .* it has a shadow stack"):
            ask_process(target.pid, lambda _: Nothing(), fork=True)
        if sys.version_info < (3, 14):
            with pytest.raises(TargetError, match=r"no code can be run .* it has a shadow stack"):
                run_in_python(target.pid, "answer = []", wait_seconds=10)
        assert_untouched(target, "refused", "read")
