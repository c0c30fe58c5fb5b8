"""Unit tests start no process: one that does fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

_STARTS = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
}
_under_watch: set[str] = set()  # the test that runs


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _STARTS and _under_watch:
        words = " ".join(map(str, arguments[:2]))
        pytest.fail(
            f"a unit test starts a process ({event} {words}): it belongs to tests/live", pytrace=False
        )


sys.addaudithook(_refuse)  # there is no way to remove it: it refuses only while a unit test runs


@pytest.fixture(autouse=True)
def starts_no_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test if it starts a process. Addresses stay without names: only a gdb could name them."""
    monkeypatch.setenv("GDBMEM_GDB", "/absent/gdb")
    _under_watch.add(request.node.nodeid)
    yield
    _under_watch.clear()
