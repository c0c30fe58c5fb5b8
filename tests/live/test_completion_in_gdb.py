"""Completion by Tab of gdbmem's commands in gdb."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.memwatching import run_gdb
from tests.live.user import Word, at_terminal, environment, packages

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
TYPED = {
    "memdiff --by f": ["file", "function"],
    "memdiff --json --by=f": ["--by=file", "--by=function"],
    "memwatch next --lock s": ["step"],
    "memwatch next --lock=s": ["--lock=step"],
    "memwatch auto o": ["off", "on"],
    "mempython sta": ["stack"],
    "memexplain --map pic": ["picture.svg"],
    "memexplain --map=pic": ["--map=picture.svg"],
    "memdiff -o pic": ["picture.svg"],
    "mempython objects --since pic": ["picture.svg"],
    "memexplain --chunk remem": ["remember(int)"],
    "memwatch growth --until remem": ["remember(int)"],
    "memwatch function --own remem": ["remember(int)"],
    "memexplain --since e": ["early"],
    "memexplain --since=e": ["--since=early"],
    "memwatch report --since f": ["first"],
    "memexplain --siz": ["--sizes"],
    # Operands that can be any word, operands without candidates, and words that are not options.
    "memdiff --top f": [],
    "memcontainers --since e": [],
    "memdiff --bogus=": [],
    "memdiff --json=": [],
}


def test_tab_offers_what_an_option_takes_and_nothing_else(program: Program, scratch: Path) -> None:
    (scratch / "picture.svg").touch()
    (scratch / "picture of a heap.svg").touch()  # would have to be typed in quotes
    (scratch / "pic\x1b[31m").touch()
    saved = [
        "memexplain --save early -o ledger.txt",
        "memexplain --save 'early and late' -o second.txt",
        "memexplain --save e\x1b]0;x\x07 -o third.txt",
        "memwatch next",
        "memwatch save first",
    ]
    asked = [line for typed in TYPED for line in (f"echo <{typed}>\\n", f"complete {typed}")]
    said = run_gdb(
        program("leaky_map"), ["break reset", "run > /dev/null", *saved, *asked], folder=scratch
    ).output
    assert (scratch / "third.txt").exists(), said
    found: dict[str, list[str]] = {}
    for line in said.splitlines():
        if line.startswith("<") and line.endswith(">"):
            found[line[1:-1]] = []
        elif found:
            typed = list(found)[-1]
            found[typed].append(line[len(typed.rpartition(" ")[0]) + 1 :])
    assert found == TYPED


def test_tab_itself_finishes_the_word_behind_a_dash_and_an_equals_sign(
    program: Program, scratch: Path
) -> None:
    (scratch / "picture.svg").touch()
    words: list[Word] = [
        "gdb",
        "-nx",
        "-q",
        "-x",
        Path(__file__).parents[2] / "gdbinit" / "gdbmem",
        program("leaky_map"),
    ]
    with at_terminal(words, scratch, environment(XDG_DATA_HOME=packages())) as user:
        user.prompt()
        for typed, seen in (("memdiff --inv", "memdiff --inverted"), ("memexplain --map=pic", "picture.svg")):
            user.child.send(f"{typed}\t")
            user.see(seen)
            user.press("c")
            user.prompt()
        user.quit()
