"""Names that imitate their formats: no byte is lost on the way out and back, and no terminal obeys them."""

from __future__ import annotations

import io
import json
import random
import re
from pathlib import Path

import pytest

from gdbmem.errors import GdbmemError
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.model.diff import Diff
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.documents import diff_json
from gdbmem.profiles.export import encode
from gdbmem.profiles.paths import GROUPINGS, Query
from gdbmem.profiles.text import print_diff
from gdbmem.runs.operand import load_from_profile
from gdbmem.terminal.console import make_console
from tests.unit.stack_files import capture

EVIL = [
    *(b";", b" (", b")", b"<", b">", b"\x1b[31m", b"\xff", b" 0x1: ", b"n1: 5 ", b"#", b"\t", b"/", b" ", b"(in "),
    *(b":7)", b"operator<", b"--", b"%s", b"{{", b"main", b"\r", b"\x0b", b"\x1c", b"\x85", b"=SUM(1)", b"std::"),
    *(b"???", "\u202e".encode(), "\u2028".encode(), b"a" * 300),
]  # fmt: skip
NAMES = re.compile(rb"[A-Za-z_]{4,}")


def renamed(data: bytes, chance: random.Random) -> bytes:
    found = list(NAMES.finditer(data))
    for match in sorted(chance.sample(found, min(3, len(found))), key=lambda match: -match.start()):
        name = b"".join(chance.choices(EVIL, k=chance.choice([1, 2, 5])))
        data = data[: match.start()] + name + data[match.end() :]
    return data


def growth(path: Path) -> Diff:
    return as_growth(load_from_profile(open_profile(path, OpenOptions()), None).snapshot)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["xtleak.kcg", "dhat.json", "ht.zst", "go2.txt", "tc.raw"])
def test_hostile_names_lose_no_byte_and_move_no_cursor(name: str, tmp_path: Path) -> None:
    chance, original, read = random.Random(name), capture(name), 0
    if name == "ht.zst":  # before its version 3 strings had no length
        original = re.sub(rb"(?m)^s [0-9a-f]+ ", b"s ", re.sub(rb"^(v [0-9a-f]+) 3", rb"\1 2", original))
    for _ in range(12):
        file = tmp_path / "profile"
        file.write_bytes(renamed(original, chance))
        try:
            found = growth(file)
        except GdbmemError:
            continue
        read += 1
        for kind in ("folded", "massif", "pprof"):
            copy = tmp_path / kind
            copy.write_bytes(encode(found, kind, is_change=False))
            back = open_profile(copy, OpenOptions(format=kind)).tree(0)
            assert back is not None and back.bytes[0] == found.after[0]
        for by in GROUPINGS[:-2]:
            stream = io.StringIO()
            print_diff(found, Query(by=by), make_console(stream, width=chance.choice([40, 100])))
            assert "\x1b" not in stream.getvalue() and "\u202e" not in stream.getvalue()
            rows = json.loads(diff_json(found, Query(by=by)))["paths"]
            assert sum(row["delta_bytes"] for row in rows) == found.after[0]
    assert read, "some of them are still what their format allows"
