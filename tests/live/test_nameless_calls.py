"""Calls for which valgrind had no name, since the program was stripped: named where its symbols are found later."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cover import diagonals
from tests.live.user import GDBMEM, shell

pytestmark = [pytest.mark.needs("gdb", "g++", "valgrind"), pytest.mark.usefixtures("no_process_left")]

SOURCE = """\
#include <stdlib.h>
static inline __attribute__((always_inline)) void *inner(size_t size) {
  return malloc(size);
}
static __attribute__((noinline)) void *keep(size_t size) {
  return inner(size);
}
void *volatile kept;
int main() {
  kept = keep(40000);
  kept = keep(2000);
}
"""


class Recorded:
    """A stripped program, the same one with its symbols in another folder, and what valgrind wrote of it."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.whole, self.out = folder / "whole", folder / "out"
        self.whole.mkdir()
        self.program = folder / "keeps"
        (folder / "keeps.c").write_text(SOURCE)
        compiled = self.whole / "keeps"
        subprocess.run(["gcc", "-g", "-O1", *flags, "-o", compiled, folder / "keeps.c"], check=True)
        shutil.copy(compiled, self.program)
        subprocess.run(["strip", self.program], check=True)

    def run(self, tool: str, *words: str) -> None:
        out = f"--{tool}-out-file={self.out}"
        subprocess.run(
            ["valgrind", f"--tool={tool}", out, *words, self.program], check=True, capture_output=True
        )

    def names(self, *words: str) -> Sequence[tuple[str, int]]:
        ended = shell(GDBMEM, "show", self.out, "--json", "--by", "path", *words, check=True)
        row = json.loads(ended.stdout)["sites"]["paths"][0]
        return [(frame["function"], frame["line"]) for frame in row["frames"]]


@pytest.mark.parametrize(
    ("tool", "flags"), diagonals(["massif", "dhat"], [["-pie", "-fPIE"], ["-no-pie", "-fno-pie"]], (0,))
)
def test_a_stripped_programs_calls_are_named_by_the_build_that_has_its_symbols(
    tool: str, flags: Sequence[str], tmp_path: Path, own_cache: Path
) -> None:
    recorded = Recorded(tmp_path, *flags)
    recorded.run(tool, *(["--detailed-freq=1"] if tool == "massif" else []))
    bare = recorded.names()
    assert all(name.startswith("0x") or name == "(below main)" for name, _ in bare), "which names nothing"
    named = recorded.names("--binaries", str(recorded.whole))
    assert named[:3] == [("inner", 3), ("keep", 6), ("main", 10)]


def test_another_program_of_that_name_names_nothing(tmp_path: Path, own_cache: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.run("massif", "--detailed-freq=1")
    bare = recorded.names()
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "other.c").write_text("int main() { return 0; }")
    subprocess.run(["gcc", "-g", "-o", other / "keeps", tmp_path / "other.c"], check=True)
    assert recorded.names("--binaries", str(other)) == bare
