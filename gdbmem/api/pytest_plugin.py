"""The pytest plugin: ``@pytest.mark.gdbmem(at_most="1MiB", repeat=5)`` fails a test whose calls keep memory."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import tracemalloc
import types
import unittest
from array import array
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Callable, NamedTuple, NoReturn, Optional

import pytest

from gdbmem.api.ledgers import Count, largest_python_block, malloc_count, python_blocks
from gdbmem.errors import GdbmemError
from gdbmem.line_recorder import BACKENDS, RSS, TRACEMALLOC, Meter
from gdbmem.linux.memory.maps import mappings_of
from gdbmem.linux.memory.process_memory import runs_same_program
from gdbmem.linux.memory.unmapped import unmapped_memory
from gdbmem.linux.monitoring.sampling import ProcessFiles, ProcessGone
from gdbmem.linux.process.process import initial_environment, pids
from gdbmem.model.judgement import MET, NOT_JUDGED, Judgement, Unseen
from gdbmem.terminal.document import judgement_object
from gdbmem.text import format_delta, format_size, parse_size, plural, printable

# Growth of memory over repeated calls, judged with its interval; where it grows, the paths that allocated it.


_FRAMES, _PATHS = 8, 3
_MORE = 4
_TEST = "PYTEST_CURRENT_TEST"  # pytest sets it in the environment
# Two-sided 95 % quantiles of Student's t, by degrees of freedom.
_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip


class GrowthOfCalls(NamedTuple):
    """The bytes that each of several calls added to memory."""

    changes: Sequence[int]

    @property
    def mean(self) -> float:
        return sum(self.changes) / len(self.changes)

    @property
    def uncertainty(self) -> float:
        """Half of the 95 % confidence interval of the mean."""
        count = len(self.changes)
        if count < 2:
            return math.inf
        variance = sum((one - self.mean) ** 2 for one in self.changes) / (count - 1)
        quantile = _QUANTILES[count - 2] if count - 2 < len(_QUANTILES) else 1.96
        return quantile * math.sqrt(variance / count)

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.uncertainty

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.uncertainty


class MeasuredCalls(NamedTuple):
    """The growth of several calls, by the backend and by the counts of the allocators."""

    backend: str
    size: GrowthOfCalls  # by the backend
    in_use: Optional[GrowthOfCalls] = None  # malloc's count of what it has handed out; None: it keeps none
    reused: Optional[GrowthOfCalls] = None  # the part of that which it had free before: no size shows it
    python_blocks: Optional[GrowthOfCalls] = None  # blocks of Python's own allocator; None if *size* has them
    traced: Optional[GrowthOfCalls] = None  # by tracemalloc, of other calls


class JudgedCalls(NamedTuple):
    """The judgement on several calls."""

    judgement: Judgement
    reason: str  # why it is not met, with the paths; "" if it is


def judge_calls(call: Callable[[], object], at_most: int, *, repeat: int, backend: str) -> JudgedCalls:
    """Judge whether calls of *call* keep at most *at_most* bytes each.

    *repeat* calls are measured, and four times as many again if that is inconclusive; if only objects of Python may be
    hidden, in memory that Python had free, *repeat* more under tracemalloc.
    """
    calls = measure_calls(call, repeat=repeat, backend=backend)
    if judged(calls, at_most).judged == NOT_JUDGED:
        calls = measure_calls(call, repeat=_MORE * repeat, backend=backend)
    judgement = judged(calls, at_most)
    is_hidden = judgement.judged == NOT_JUDGED and judgement._replace(unseen=()).judged == MET
    if is_hidden and calls.in_use is not None:
        calls = calls._replace(traced=measure_calls(call, repeat=repeat, backend=TRACEMALLOC).size)
        judgement = judged(calls, at_most)
    if judgement.judged == MET:
        return JudgedCalls(judgement, "")
    shown = _decisive(calls, at_most)
    steps = ", ".join(format_delta(one) for one in shown.changes)
    lines = [judgement.sentence, f"one by one: {steps}", *_paths(call, len(shown.changes))]
    return JudgedCalls(judgement, "\n".join(lines))


def measure_calls(call: Callable[[], object], *, repeat: int, backend: str) -> MeasuredCalls:
    """Return the growth of each of *repeat* calls, after two that are not counted."""
    meter = Meter(backend)
    # Made before the first call: lists would grow. The rows: the size, in use, free, Python's blocks.
    rows = [array("q", bytes(8 * (repeat + 1))) for _ in range(4)]
    counts = None if backend == TRACEMALLOC else malloc_count()
    with contextlib.closing(meter), _OtherMemory() as other:
        read = meter.read if backend == TRACEMALLOC else lambda: meter.read() + other.read()
        _read_between(call, read, counts, rows)
    size, in_use, free, blocks = ([b - a for a, b in zip(row, row[1:])] for row in rows)
    if backend == TRACEMALLOC:
        return MeasuredCalls(backend, GrowthOfCalls(size))
    reused = [max(min(more, -kept), 0) for more, kept in zip(in_use, free)]
    return MeasuredCalls(
        backend,
        GrowthOfCalls(size),
        None if counts is None else GrowthOfCalls(in_use),
        None if counts is None else GrowthOfCalls(reused),
        GrowthOfCalls(blocks),
    )


def _read_between(
    call: Callable[[], object], read: Callable[[], int], counts: Optional[Count], rows: Sequence[array[int]]
) -> None:
    size, in_use, free, blocks = rows
    for number in (
        0,
        *range(len(size)),
    ):  # what the first calls and the first reading allocate is not counted
        call()
        gc.collect()
        size[number] = read()
        if counts is not None:
            in_use[number], free[number] = counts()
        blocks[number] = python_blocks()


class _OtherMemory:
    """Memory of this process beside its resident set: swapped out, of hugetlb, without a mapping, of its children."""

    def __enter__(self) -> _OtherMemory:
        self._known = set(pids())
        self._status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        self._own = ProcessFiles(os.getpid())
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._status)
        self._own.close()

    def read(self) -> int:
        """Return its size, bytes; of other processes, which share pages with this one, the private memory."""
        lines = os.pread(self._status, 8192, 0).split(b"\n")
        beside = sum(
            int(one.split()[1]) << 10 for one in lines if one.startswith((b"VmSwap:", b"HugetlbPages:"))
        )
        own, seen = os.getpid(), {os.getpid()}
        beside += unmapped_memory(own, mappings_of(own)).known_bytes + self._of_children(self._own, seen)
        return beside + sum(
            self._of_tree(pid, seen) for pid in pids() if pid not in self._known and _is_left(pid)
        )

    def _of_children(self, parent: ProcessFiles, seen: set[int]) -> int:
        with contextlib.suppress(ProcessGone, FileNotFoundError):
            return sum(self._of_tree(pid, seen) for pid in parent.children(parent.stat().threads))
        return 0

    def _of_tree(self, pid: int, seen: set[int]) -> int:
        """Return the private memory of process *pid* and its descendants that are not among *seen*, and add them."""
        if pid in seen:
            return 0
        seen.add(pid)
        with contextlib.suppress(ProcessGone), contextlib.closing(ProcessFiles(pid)) as process:
            return _private_bytes(process) + self._of_children(process, seen)
        return 0


def _is_left(pid: int) -> bool:
    """Whether process *pid* was started by this test, as a daemon that its parent has left is."""
    test = os.environ.get(_TEST)
    if test is not None and initial_environment(pid).get(_TEST) == test:
        return True
    return runs_same_program(os.getpid(), pid) is True


def _private_bytes(process: ProcessFiles) -> int:
    try:
        return process.rollup().uss_bytes
    except PermissionError:  # of another user
        return process.statm().rss_bytes


def judged(calls: MeasuredCalls, at_most: int) -> Judgement:
    """Return the judgement on the growth of each of *calls*, which may be *at_most* bytes."""
    known = [one for one in (calls.size, calls.in_use) if one is not None]
    if calls.traced is not None and calls.traced.low > at_most:
        known.append(calls.traced)
    low = max(one.low for one in known)
    # What came out of malloc's free memory may be beside what the size shows; what did of Python's, _unseen() adds.
    beside = 0.0 if calls.reused is None else max(calls.reused.high, 0.0)
    in_use = 0.0 if calls.in_use is None else calls.in_use.high
    return Judgement(
        "memory kept by each call",
        _text(calls, at_most),
        limit=at_most,
        measured=max(one.mean for one in known),
        low=low,
        high=max(low, calls.size.high + beside, in_use),
        unseen=tuple(_unseen(calls)),
    )


def _unseen(calls: MeasuredCalls) -> Iterator[Unseen]:
    if calls.backend == TRACEMALLOC:
        return
    if calls.in_use is None:
        yield Unseen(
            slug="malloc-uncounted",
            message="the malloc of this process keeps no count that gdbmem knows, so a leak may fit into memory that"
            " it had free; backend='tracemalloc' counts what Python allocates",
        )
    blocks, largest = calls.python_blocks, largest_python_block()
    if calls.traced is not None and blocks is not None and blocks.high > 0:
        yield Unseen(
            slug="python-had-free",
            message=f"up to {format_size(max(calls.traced.high, 0.0))} of Python's objects a call may lie in memory"
            " that Python had free; backend='tracemalloc' counts them",
            could_hide_bytes=math.ceil(max(calls.traced.high, 0.0)),
        )
    elif blocks is not None and blocks.high > 0:
        yield Unseen(
            slug="python-had-free",
            message=f"up to {math.ceil(blocks.high):,} more blocks a call of Python's own allocator may lie in memory"
            " that it had free; backend='tracemalloc' counts them",
            could_hide_bytes=None if largest is None else math.ceil(blocks.high * largest),
        )


def _decisive(calls: MeasuredCalls, at_most: int) -> GrowthOfCalls:
    """Return the growth by the measure that shows most of it; if none shows more than *at_most*, may show most.

    Where the process's size shows as much, within its uncertainty, none of it was free before.
    """
    known = [one for one in (calls.size, calls.in_use, calls.traced) if one is not None]
    most = max(known, key=lambda one: one.low)
    if most.low <= at_most:
        return max(known, key=lambda one: one.high)
    return calls.size if calls.size.low > at_most and calls.size.high >= most.mean else most


def _text(calls: MeasuredCalls, at_most: int) -> str:
    growth = _decisive(calls, at_most)
    measured = f"{format_delta(growth.mean)} ± {format_size(growth.uncertainty)}"
    count = plural(len(growth.changes), "call")
    if growth is calls.size:
        text = f"each call adds {measured} ({calls.backend}, {count})"
    else:
        by = "malloc's own count" if growth is calls.in_use else "tracemalloc"
        text = f"each call keeps {measured} ({by}, {count}), in memory that was free before"
    if growth.low > at_most:
        return f"{text}: more than {format_size(at_most)}"
    if growth.high > at_most:
        return f"{text}, not measurably more or less than {format_size(at_most)}; repeat it more often"
    return text


def _paths(call: Callable[[], object], repeat: int) -> list[str]:
    """Return the places where Python allocated the memory that *repeat* calls leave behind."""
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start(_FRAMES)
    try:
        call()
        gc.collect()
        before = tracemalloc.take_snapshot()
        for _ in range(repeat):
            call()
        gc.collect()
        changes = tracemalloc.take_snapshot().compare_to(before, "traceback")
    finally:
        if not was_tracing:
            tracemalloc.stop()
    own = (tracemalloc.__file__, __file__, gc.__name__)
    own_folder = os.path.dirname(__file__)  # noqa: PTH120
    lines: list[str] = []
    for one in changes:
        # The innermost is last.
        if one.size_diff > 0 and one.traceback[-1].filename not in own and len(lines) < _PATHS:
            inside = takewhile(
                lambda frame: os.path.dirname(frame.filename) != own_folder,  # noqa: PTH120
                reversed(one.traceback),
            )
            places = [f"{printable(frame.filename)}:{frame.lineno}" for frame in inside]
            size = format_delta(one.size_diff / repeat)
            lines.append(f"{size} a call in {plural(one.count_diff, 'block')}: {' ← '.join(places[:4])}")
    return lines or ["tracemalloc, which counts what Python allocates in this process, shows none of it"]


_MARK = "gdbmem"
_BENCHMARK = "benchmark"  # the fixture of pytest-benchmark
_REPEAT = 5
_LONGEST = 60  # characters of a value that a test returned
_JUDGED: pytest.StashKey[bool] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "gdbmem(at_most, repeat=5, backend='rss'): call the test repeatedly; fail where each call keeps more memory"
        " than at_most",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a marked test whose calls can't be judged, which would pass unseen."""
    if item.get_closest_marker(_MARK) is None:
        return
    kind = getattr(item, "cls", None)
    if isinstance(kind, type) and issubclass(kind, unittest.TestCase):
        _refuse("methods of unittest.TestCase are not judged; mark a function, or a method of another class")
    if not isinstance(item, pytest.Function):
        _refuse(f"'{printable(item.name)}' is not a Python function, so it is not judged; mark a function")
    import inspect  # pytest has loaded it

    function = item.obj
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        _refuse("an async function is not judged; mark a function that calls asyncio.run()")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """Call a marked test several times, and judge it by each of its marks."""
    marks = list(pyfuncitem.iter_markers(_MARK))
    if not marks:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    benchmark: Any = arguments.get(_BENCHMARK)
    judged_arguments = arguments if benchmark is None else {**arguments, _BENCHMARK: _CalledOnce(benchmark)}

    def call() -> None:
        _check_returned(pyfuncitem.obj(**judged_arguments))

    for at_most, repeat, backend in dict.fromkeys(map(_words, marks)):
        calls = judge_calls(call, at_most, repeat=repeat, backend=backend)
        if benchmark is not None:
            benchmark.extra_info[_MARK] = judgement_object(calls.judgement)
        if calls.reason:
            pytest.fail(calls.reason, pytrace=False)
    if benchmark is not None:
        _check_returned(pyfuncitem.obj(**arguments))
    pyfuncitem.stash[_JUDGED] = True
    return True


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a marked test that has passed and was not judged."""
    if item.get_closest_marker(_MARK) is not None and not item.stash.get(_JUDGED, False):
        _refuse("another plugin has run this test, so it is not judged; leave out the mark, or that plugin's")


class _CalledOnce:
    """Calls what pytest-benchmark's fixture would time, which it does once a test only."""

    def __init__(self, benchmark: Any) -> None:
        self._benchmark = benchmark

    def __call__(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[dict[str, Any]] = None,
        setup: Optional[Callable[[], Any]] = None,
        teardown: Optional[Callable[..., Any]] = None,
        **_: Any,
    ) -> Any:
        named = kwargs or {}
        if setup is not None:
            args, named = setup() or (args, named)
        result = target(*args, **named)
        if teardown is not None:
            teardown(*args, **named)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._benchmark, name)


def _check_returned(result: object) -> None:
    """Fail a test that returned *result*: it may never have run."""
    if result is None:
        return
    if hasattr(result, "__await__") or hasattr(result, "__aiter__"):
        if hasattr(result, "close"):
            result.close()  # else Python warns of it later, at another place
        _refuse(
            f"the test returned a {type(result).__name__} that was never awaited, so its body did not run; mark a"
            " function that calls asyncio.run()"
        )
    shown = (
        "a generator that was never run"
        if isinstance(result, types.GeneratorType)
        else printable(repr(result)[:_LONGEST])
    )
    _refuse(f"the test returned {shown}, not None: use assert, which fails if it is wrong")


def _refuse(reason: str) -> NoReturn:
    pytest.fail(f"gdbmem: {reason}", pytrace=False)


def _words(mark: pytest.Mark) -> tuple[int, int, str]:
    """Return the limit in bytes, the number of calls and the backend of *mark*; fail the test for wrong ones."""
    known = {"at_most", "repeat", "backend"}
    if mark.args or not set(mark.kwargs) <= known or "at_most" not in mark.kwargs:
        pytest.fail("write @pytest.mark.gdbmem(at_most='1MiB', repeat=5, backend='rss')", pytrace=False)
    repeat, backend = mark.kwargs.get("repeat", _REPEAT), mark.kwargs.get("backend", RSS)
    wrong = ""
    at_most = 0
    try:
        at_most = parse_size(str(mark.kwargs["at_most"]))
    except GdbmemError as error:
        wrong = str(error)
    if wrong:
        _refuse(wrong)
    if not isinstance(repeat, int) or repeat < 2:
        _refuse("repeat is a number of calls from 2 on")
    if backend not in BACKENDS:
        _refuse(f"backend is one of {', '.join(BACKENDS)}")
    return at_most, repeat, backend
