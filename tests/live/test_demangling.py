"""Names of classes are those of gdb, without the time of gdb's start; a program can't make them take all memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gdbmem.symbols import batch_gdb
from gdbmem.symbols.batch_gdb import class_names

pytestmark = pytest.mark.needs("gdb", "c++filt")

_LIBRARY = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
# Each of its arguments has the one before twice: 150 characters, of which more than 2 MiB are made.
_GROWING = "1ZI1AIiiE" + "".join(f"S0_I{two}{two}E" for two in (f"S{n}_" for n in "123456789ABCDEFG")) + "E"


@pytest.fixture
def no_gdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_gdb, "find_gdb", lambda: pytest.fail("a gdb was started"))


def test_all_classes_of_a_library_have_the_names_that_gdb_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = subprocess.run(["nm", "-D", _LIBRARY], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1].partition("@")[0][4:] for line in symbols.splitlines() if " V _ZTS" in line]
    found = class_names(names)
    assert len(found) > 100
    monkeypatch.setattr(batch_gdb, "_names_by_cxxfilt", lambda _: None)
    assert found == class_names(names)


@pytest.mark.usefixtures("no_gdb")
def test_names_that_are_none_leave_each_other_one_its_own() -> None:
    odd = ["", "4Tree\n4Node", "-x", "4Tree 4Node", "St6vectorI", "A" * 20000, "9Täßchen"]
    assert class_names(["4Tree", *odd, "4Node"]) == {"4Tree": "Tree", "4Node": "Node"}


@pytest.mark.usefixtures("no_gdb")
def test_a_name_that_takes_more_memory_than_names_may_costs_only_itself_and_those_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [(limit, min(most, 1 << 20)) for limit, most in batch_gdb._CXXFILT_BYTES[1:]]
    assert len(class_names([_GROWING])[_GROWING]) > 1 << 20
    monkeypatch.setattr(batch_gdb, "_CXXFILT_BYTES", limits)
    assert class_names(["1A", _GROWING, "4Tree"]) == {"1A": "A"}


def test_another_program_of_that_name_leaves_it_to_gdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "c++filt"
    other.write_text("#!/bin/sh\nexit 2\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert class_names(["4Tree"]) == {"4Tree": "Tree"}
