"""`gdbmem heap --block EXPR`: a block by the variable that leads to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.conftest import Program
from tests.live.explaining import gdbmem, running

pytestmark = [pytest.mark.needs("g++"), pytest.mark.usefixtures("no_process_left")]


class Told(NamedTuple):
    """The process, and where it says that its blocks are."""

    pid: int
    decoder: int
    rows: int
    second: int
    hidden: int


@pytest.fixture(scope="module")
def told(program: Program) -> Iterator[Told]:
    with running([program("heap_expressions")]) as target:
        yield Told(target.pid, *(int(word, 16) for word in target.output.split()))


def block_of(told: Told, expression: str) -> int:
    done = gdbmem("heap", told.pid, "--block", expression, "--json")
    assert done.returncode == 0, done.stderr
    found: int = json.loads(done.stdout)["block"]["block"]["address"]
    return found


def test_a_variable_names_the_block_that_it_leads_to(told: Told) -> None:
    assert block_of(told, "Decoder::instance_") == told.decoder
    assert block_of(told, "_ZN7Decoder9instance_E") == told.decoder
    assert block_of(told, "codec::rows") == told.rows
    assert block_of(told, "hidden") == told.hidden
    assert block_of(told, "pair_of_blocks+16") == told.second
    assert block_of(told, "pair_of_blocks+0x10") == told.second
    assert block_of(told, "heap_expressions!hidden") == told.hidden
    assert block_of(told, hex(told.hidden)) == told.hidden


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("pair_of_blocks", "leads to 2 blocks; name one of its words: pair_of_blocks+8, pair_of_blocks+16"),
        ("table", "leads to 3 blocks; name one of its words: table+16, table+24, table+32"),
        ("nothing", "'nothing' is 8 bytes at 0x"),
        ("&hidden", "&hidden is the address of a variable, which is in no block; without & it is"),
        ("hiden", "no symbol of the program or a library names a variable 'hiden'"),
        ("libc.so.6!hidden", "no symbol of libc.so.6 names a variable 'hidden'"),
        ("Decoder::instance_->first", "is an expression of members or elements, which need types"),
        ("+16", "names a variable '+16'"),
        ("!", "'!' is neither an address nor a variable"),
    ],
)
def test_an_expression_without_a_block_is_refused_in_one_sentence_that_says_why(
    told: Told, expression: str, said: str
) -> None:
    done = gdbmem("heap", told.pid, "--block", expression)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
