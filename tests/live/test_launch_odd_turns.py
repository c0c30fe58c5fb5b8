"""Turns that a session at the prompt takes: each is answered truly, and nothing captured is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable

import pytest

from tests.live.user import launched

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "g++"),
    pytest.mark.usefixtures("no_process_left"),
]

Program = Callable[..., Path]


def test_pages_are_not_called_heap(program: Program, scratch: Path) -> None:
    with launched(program("maps_memory"), "200", folder=scratch, options=["--pages-as-heap"]) as user:
        user.type("break mapped")
        user.type("continue")
        assert user.type("massif-snap").startswith("snapshot 1: mapped memory 2")
        assert user.type("massif-snap").startswith("snapshot 2: mapped memory 2")
        assert re.match(r"name +mapped +change", user.type("massif-list"))
        user.quit()
