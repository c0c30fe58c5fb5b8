"""Processor time of each test with the processes that it started: `scripts/test -p tests.measuring.processor_time`.

Seconds by the clock, as of pytest's --durations, are also those of whatever else runs. A process that is still there
at a test's end, or outlives its parent, is counted with a later test or not at all. What several tests share is
counted with the first.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

_NAME, _MOST = "processor_seconds", 40
_began: list[float] = []
_seconds: dict[str, float] = {}


def _used() -> float:
    """Return the seconds that this process and those that it has waited for have run."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart() -> None:
    _began[:] = [_used()]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    if call.when == "teardown" and _began:
        outcome.get_result().user_properties.append((_NAME, _used() - _began[0]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == _NAME:
            _seconds[report.nodeid] = float(str(value))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: defaultdict[str, float] = defaultdict(float)
    for test, seconds in _seconds.items():
        files[test.partition("::")[0]] += seconds
    for title, found in (("files", files), ("tests", _seconds)):
        terminalreporter.section(f"processor time of {title}: {sum(found.values()):.0f} s in all")
        for name, seconds in sorted(found.items(), key=lambda item: -item[1])[:_MOST]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
