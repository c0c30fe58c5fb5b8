"""`gdbmem heap --block EXPR`: a block by the variable that leads to it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gdbmem.api.heaps import HeapQuery, heap, heap_of_core
from gdbmem.linux.elf.corefile import CoreFile
from gdbmem.linux.memory.maps import read_maps
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
    members: dict[str, int]


@pytest.fixture(scope="module")
def told(program: Program) -> Iterator[Told]:
    with running([program("heap_expressions", "-O0")]) as target:
        first, *rows = target.output.splitlines()
        members = {name: int(at, 16) for name, at in (row.split() for row in rows)}
        decoder, codec_rows, second, hidden = (int(word, 16) for word in first.split())
        yield Told(target.pid, decoder, codec_rows, second, hidden, members)


def core_of(pid: int, folder: Path) -> Path:
    command = ["gcore", "-o", str(folder / "core"), str(pid)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return next(folder.glob("core.*"))


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


def test_a_member_an_element_or_what_a_pointer_leads_to_names_the_block_as_the_program_has_it(
    told: Told,
) -> None:
    assert len(told.members) == 14
    for expression, address in told.members.items():
        found = heap(told.pid, HeapQuery(expression=expression, top=1)).block
        assert found is not None
        assert (found.block.address, expression) == (address, expression)


@pytest.mark.needs("gdb")
def test_a_member_in_a_core_is_where_gdb_prints_it(told: Told, program: Program, tmp_path: Path) -> None:
    core, file = core_of(told.pid, tmp_path), program("heap_expressions", "-O0")
    asked = ["whole.next->list", "of_thread.items[1].of_base", "whole.rows[1][2]->of_base"]
    for expression in asked:
        words = [
            "gdb",
            "-nx",
            "-q",
            "-batch",
            "-ex",
            f"print/x *(long *)&({expression})",
            str(file),
            str(core),
        ]
        printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
        view = heap_of_core(core, None, HeapQuery(expression=expression, top=1))
        assert view.block is not None
        assert f"= {view.block.block.address:#x}\n" in printed, expression


@pytest.mark.needs("gdb")
def test_the_heap_in_a_core_is_where_it_was_in_the_process_also_without_randomised_addresses(
    program: Program, tmp_path: Path
) -> None:
    if subprocess.run(["setarch", "-R", "true"], check=False, capture_output=True).returncode:
        pytest.skip("addresses can't be made equal here")
    with running(["setarch", "-R", program("heap_expressions", "-O0")]) as target:
        heaps = [(one.start, one.end) for one in read_maps(target.pid) if one.name == "[heap]"]
        core = core_of(target.pid, tmp_path)
    assert [(one.start, one.end) for one in CoreFile(core).mappings() if one.name == "[heap]"] == heaps


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("pair_of_blocks", "leads to 2 blocks; name one of its words: pair_of_blocks+8, pair_of_blocks+16"),
        ("table", "leads to 3 blocks; name one of its words: table+16, table+24, table+32"),
        ("nothing", "'nothing' is 8 bytes at 0x"),
        ("&hidden", "&hidden is the address of a variable, which is in no block; without & it is"),
        ("hiden", "no symbol of the program or a library names a variable 'hiden'"),
        ("libc.so.6!hidden", "no symbol of libc.so.6 names a variable 'hidden'"),
        ("owned->of_base", "has no member 'of_base'; operators are not called"),
        ("whole.items[1].bits", "'bits' is a part of a word"),
        ("whole.items[4].of_base", "[4] is not in Item [4]"),
        ("whole.next->next->list", "pointer number 2, at 0x"),
        ("whole.rows[1][2]->weight", "no word of it leads to a block; it lies in a block itself: name 0x"),
        ("find(7)", "'find(7)' calls a function: nothing is called in the process"),
        (
            "whole.list[n]",
            "is neither a variable nor one of its members or elements; members are named as in",
        ),
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
