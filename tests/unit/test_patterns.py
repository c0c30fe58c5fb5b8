"""Regular expressions that wait to be compiled answer as compiled ones do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gdbmem.patterns import lazy_pattern

_USES = [
    ("match", "ab12 cd3"),
    ("fullmatch", "ab12"),
    ("search", "  ab1"),
    ("findall", "ab12 cd3"),
    ("split", "x ab1 y"),
]


def _plain(found: Any) -> Any:
    return found.groups() if isinstance(found, re.Match) else found


@pytest.mark.parametrize(("name", "text"), _USES)
def test_a_pattern_that_waits_finds_what_a_compiled_one_finds(name: str, text: str) -> None:
    waiting, compiled = lazy_pattern("([A-Z]+)([0-9])", re.IGNORECASE), re.compile("([A-Z]+)([0-9])", re.I)
    for _ in range(2):  # the first use compiles it
        assert _plain(getattr(waiting, name)(text)) == _plain(getattr(compiled, name)(text))
    assert [_plain(one) for one in waiting.finditer(text)] == [_plain(one) for one in compiled.finditer(text)]
    assert (waiting.sub("-", text), waiting.subn("-", text)) == (
        compiled.sub("-", text),
        compiled.subn("-", text),
    )
    assert (waiting.pattern, waiting.flags, waiting.groups) == (
        compiled.pattern,
        compiled.flags,
        compiled.groups,
    )


def test_a_pattern_of_bytes_waits_too() -> None:
    found = lazy_pattern(rb"n=([0-9]+)").match(b"n=5")
    assert found is not None and found.group(1) == b"5"
