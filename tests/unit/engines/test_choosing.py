"""--engine auto: the rules, in their order, each with a sentence that gives the reason."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from gdbmem.engines.engine import NAMES, options_of, table
from gdbmem.errors import MissingToolError, UsageError
from gdbmem.launch import engine_choice
from gdbmem.launch.program import Program
from gdbmem.linux.elf.objects import needed_libraries, odd_debug_sections


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Return what is installed and linked, to be changed; at first valgrind and both allocators, and libc."""
    found = {"installed": {"valgrind", "gperftools", "jemalloc"}, "linked": {"libc.so.6"}}

    def find(wanted: object) -> str:
        name = getattr(wanted, "name")  # noqa: B009  (any table)
        if name not in found["installed"]:
            raise MissingToolError("missing", slug="preload-missing")
        return "lib"

    monkeypatch.setattr(engine_choice, "find_library", find)
    monkeypatch.setattr(engine_choice, "needed_libraries", lambda path: sorted(found["linked"]))
    monkeypatch.setattr(
        "gdbmem.launch.engine_choice.shutil.which", lambda name: name if name in found["installed"] else None
    )
    return found


def program(tmp_path: Path, *, static: bool = False, size: int = 100) -> Program:
    path = tmp_path / "prog\x1b[2J"
    path.touch()
    os.truncate(path, size)
    return Program(path, path, static)


@pytest.mark.parametrize(
    ("linked", "engine", "why"),
    [
        ("libc.so.6", "massif", "can run under valgrind"),
        ("libtcmalloc.so.4", "gperftools", "is linked to libtcmalloc.so.4, which has this profiler"),
        (
            "libtcmalloc_minimal.so.4",
            "gperftools",
            "libtcmalloc_minimal.so.4, which is replaced by its variant with a profiler",
        ),
        ("libruby-3.1.so.3", "massif", "has a separate heap in addition to malloc's (ruby)"),
        ("libjemalloc.so.2", "jemalloc", "is linked to libjemalloc"),
        ("libcudart.so.12", "gperftools", "uses a GPU, which valgrind does not support (libcudart.so.12)"),
        ("libgomp.so.1", "gperftools", "valgrind runs one thread at a time (libgomp.so.1)"),
        ("libtbb.so.12", "gperftools", "(libtbb.so.12)"),
        ("libompany.so.1", "massif", "can run under valgrind"),
    ],
)
def test_what_a_program_is_linked_to_decides_and_is_named(
    linked: str, engine: str, why: str, machine: dict[str, set[str]], tmp_path: Path
) -> None:
    machine["linked"] = {"libc.so.6", linked}
    choice = engine_choice.choose_engine(program(tmp_path))
    assert choice.engine == engine and why in choice.sentence
    assert choice.sentence.startswith(f"--engine auto chooses {engine}: ")


@pytest.mark.parametrize(
    ("name", "runtime"), [("cc1plus", "gcc-gc"), ("node", "v8"), ("postgres", "postgresql")]
)
def test_what_massif_will_not_see_of_a_program_is_reported_at_the_choice(
    name: str, runtime: str, machine: dict[str, set[str]], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.touch()
    sentence = engine_choice.choose_engine(Program(path, path, False)).sentence
    assert "chooses massif" in sentence and f"({runtime})" in sentence and "--pages-as-heap" in sentence
    assert "every byte" not in sentence


def test_a_script_is_not_taken_for_the_program_that_it_may_start(
    machine: dict[str, set[str]], tmp_path: Path
) -> None:
    script, shell = tmp_path / "start", tmp_path / "dash"
    for path in (script, shell):
        path.touch()
    assert "start, a script for dash," in engine_choice.choose_engine(Program(script, shell, False)).sentence


def test_a_static_program_has_its_pages_counted(machine: dict[str, set[str]], tmp_path: Path) -> None:
    choice = engine_choice.choose_engine(program(tmp_path, static=True))
    assert (choice.engine, choice.options) == ("massif", {"pages_as_heap": True})
    assert options_of(choice.engine, choice.options)


def test_very_much_debug_information_speaks_against_valgrind(
    machine: dict[str, set[str]], tmp_path: Path
) -> None:
    choice = engine_choice.choose_engine(program(tmp_path, size=300 << 20))
    assert choice.engine == "gperftools" and "300 MiB" in choice.reason


@pytest.mark.parametrize(
    ("flags", "start", "word"),
    [(1 << 11, b"\x02\0\0\0", "Zstandard"), (0, b"\x31\0\0\0\x05\0\x04\x08", "split DWARF 5"),
     (1 << 11, b"\x01\0\0\0", ""), (0, b"\x03\0\0\0\x05\0\x01\x04\0\0\0\x05\0\x04\0", "split DWARF 5"),
     (0, b"\x31\0\0\0\x05\0\x01\x08", ""), (0, b"\x31\0\0\0\x04\0\0\0", "")],
)  # fmt: skip
def test_debug_information_that_valgrind_may_not_read_speaks_against_it(
    flags: int, start: bytes, word: str, machine: dict[str, set[str]], tmp_path: Path
) -> None:
    names = b"\0.debug_info\0.shstrtab\0"
    header = (
        b"\x7fELF\x02\x01\x01".ljust(40, b"\0")
        + struct.pack("<Q", 128)
        + struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, 3, 2)
    )
    rows = [bytes(64), struct.pack("<IIQQQQIIQQ", 1, 1, flags, 0, 96, 16, 0, 0, 1, 0),
            struct.pack("<IIQQQQIIQQ", 13, 3, 0, 0, 64, len(names), 0, 0, 1, 0)]  # fmt: skip
    path = tmp_path / "split"
    path.write_bytes((header + names).ljust(96, b"\0") + start.ljust(32, b"\0") + b"".join(rows))
    assert odd_debug_sections(path) == word
    choice = engine_choice.choose_engine(Program(path, path, False))
    assert (choice.engine, word in choice.reason) == ("gperftools" if word else "massif", True)


@pytest.mark.parametrize(
    ("installed", "static", "engine"),
    [
        ({"gperftools", "jemalloc"}, False, "gperftools"),
        ({"jemalloc"}, False, "jemalloc"),
        (set(), False, "none"),
        (set(), True, "none"),
    ],
)
def test_without_valgrind_the_best_that_is_installed_is_taken(
    installed: set[str], static: bool, engine: str, machine: dict[str, set[str]], tmp_path: Path
) -> None:
    machine["installed"] = installed
    choice = engine_choice.choose_engine(program(tmp_path, static=static))
    assert choice.engine == engine and "valgrind" in choice.reason


def test_a_name_with_an_escape_sequence_is_made_safe(machine: dict[str, set[str]], tmp_path: Path) -> None:
    assert "\x1b" not in engine_choice.choose_engine(program(tmp_path)).sentence


def test_the_libraries_that_a_real_program_names_are_read(tmp_path: Path) -> None:
    names = needed_libraries(Path(shutil.which("bash") or "/bin/sh").resolve())
    assert any(name.startswith("libc.so") for name in names)
    cut = tmp_path / "cut"
    cut.write_bytes(Path("/bin/sh").resolve().read_bytes()[:3000])
    assert needed_libraries(cut) == [] == needed_libraries(tmp_path / "none")


def test_an_option_of_another_engine_is_refused_as_it_was_typed() -> None:
    for given, said in (
        ("threshold", "--threshold"),
        ("massif_opts", "--massif-opt"),
        ("alloc_fns", "--alloc-fn"),
    ):
        with pytest.raises(UsageError, match=f"{said} cannot be used with --engine memcheck"):
            options_of("memcheck", {given: "1"})
    with pytest.raises(UsageError, match="--trace-children cannot be used with --engine heaptrack"):
        options_of("heaptrack", {"trace_children": True})


def test_each_engine_says_in_its_table_what_it_costs_needs_and_cannot_see() -> None:
    for name in NAMES:
        found = table(name)
        assert found.name == name and found.cost and found.counts and found.blind and found.summary
        assert name == "none" or found.package
