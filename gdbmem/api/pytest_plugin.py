"""The pytest plugin: ``@pytest.mark.gdbmem(at_most="1MiB", repeat=5)`` fails a test whose calls keep memory."""

from __future__ import annotations

import functools
import unittest
from typing import Any

import pytest

from gdbmem.api.repeated_calls import judge_calls
from gdbmem.errors import GdbmemError
from gdbmem.line_recorder import BACKENDS, RSS
from gdbmem.units import parse_size

_MARK = "gdbmem"
_REPEAT = 5


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
        pytest.fail(
            "gdbmem: methods of unittest.TestCase are not judged; mark a function, or a method of another class",
            pytrace=False,
        )
    import inspect  # pytest has loaded it

    function = getattr(item, "obj", None)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        pytest.fail(
            "gdbmem: an async function is not judged; mark a function that calls asyncio.run()", pytrace=False
        )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """Call a marked test several times, and judge it."""
    mark = pyfuncitem.get_closest_marker(_MARK)
    if mark is None:
        return None
    at_most, repeat, backend = _words(mark)
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    call = functools.partial(pyfuncitem.obj, **arguments)
    why = judge_calls(call, at_most, repeat=repeat, backend=backend)
    if why is not None:
        pytest.fail(why, pytrace=False)
    return True


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
        pytest.fail(f"gdbmem: {wrong}", pytrace=False)
    if not isinstance(repeat, int) or repeat < 2:
        pytest.fail("gdbmem: repeat is a number of calls from 2 on", pytrace=False)
    if backend not in BACKENDS:
        pytest.fail(f"gdbmem: backend is one of {', '.join(BACKENDS)}", pytrace=False)
    return at_most, repeat, backend
