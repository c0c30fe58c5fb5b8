"""The script of a report's page: one file without imports, in which nothing of a stranger can become code."""

from __future__ import annotations

import re

import pytest

from gdbmem.page.explorer import script, timeline_script

SCRIPTS = pytest.mark.parametrize("text", [script(), timeline_script()], ids=["graph", "timeline"])


@SCRIPTS
def test_the_script_in_a_page_is_whole_and_ends_no_element_of_the_page(text: str) -> None:
    assert not re.search(r"^(?:import|export) ", text, re.MULTILINE)
    assert "</script" not in text.lower() and "<!--" not in text
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names)), "its modules share one scope"


@SCRIPTS
def test_nothing_of_a_stranger_becomes_html_or_code(text: str) -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )


@SCRIPTS
def test_the_script_uses_no_network_and_keeps_nothing(text: str) -> None:
    assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|localStorage|cookie", text)
