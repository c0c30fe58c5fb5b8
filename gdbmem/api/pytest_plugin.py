"""The pytest plugin: ``@pytest.mark.gdbmem(at_most="1MiB", repeat=5)`` fails a test whose calls keep memory."""

from __future__ import annotations

import types
import unittest
from typing import Any, NoReturn

import pytest

from gdbmem.api.repeated_calls import judge_calls
from gdbmem.errors import GdbmemError
from gdbmem.line_recorder import BACKENDS, RSS
from gdbmem.text import parse_size, printable

_MARK = "gdbmem"
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

    def call() -> None:
        _check_returned(pyfuncitem.obj(**arguments))

    for at_most, repeat, backend in dict.fromkeys(map(_words, marks)):
        why = judge_calls(call, at_most, repeat=repeat, backend=backend)
        if why is not None:
            pytest.fail(why, pytrace=False)
    pyfuncitem.stash[_JUDGED] = True
    return True


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a marked test that has passed and was not judged."""
    if item.get_closest_marker(_MARK) is not None and not item.stash.get(_JUDGED, False):
        _refuse("another plugin has run this test, so it is not judged; leave out the mark, or that plugin's")


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
