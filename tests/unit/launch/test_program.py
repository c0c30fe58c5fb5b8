"""The program to be launched: found as by a shell, or refused with the reason."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.launch.program import NotExecutableError, NotFoundError, find_program


def executable(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def elf(*segments: int, wide: bool = True, order: str = "<") -> bytes:
    """Return an ELF header with program headers of the given types."""
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    if wide:
        rest = struct.pack(order + "HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
        table = b"".join(struct.pack(order + "I", kind) + bytes(52) for kind in segments)
    else:
        rest = struct.pack(order + "HHIIIIIHHHHHH", 2, 3, 1, 0, 52, 0, 0, 52, 32, len(segments), 0, 0, 0)
        table = b"".join(struct.pack(order + "I", kind) + bytes(28) for kind in segments)
    return ident + rest + table


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_program_without_a_loader_is_static_in_each_kind_of_elf(
    *, wide: bool, order: str, tmp_path: Path
) -> None:
    dynamic = executable(tmp_path / "dynamic", elf(6, 3, 1, wide=wide, order=order))
    static = executable(tmp_path / "static", elf(1, 1, 4, wide=wide, order=order))
    assert not find_program(str(dynamic)).is_static
    found = find_program(str(static))
    assert found.is_static
    assert [notice.slug for notice in found.notices({}, pages=False)] == ["static-binary"]
    assert found.notices({}, pages=True) == []


def test_a_damaged_header_is_not_called_static(tmp_path: Path) -> None:
    for length in (4, 20, 60, 70):
        path = executable(tmp_path / f"cut{length}", elf(1, 1)[:length])
        assert not find_program(str(path)).is_static


def test_a_path_starts_at_the_folder_given_and_a_word_in_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "prog", elf(3))
    assert find_program("./prog", folder=tmp_path).path == tmp_path / "prog"
    with pytest.raises(NotFoundError, match=r"no program 'prog' in PATH; did you mean ./prog"):
        find_program("prog", folder=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("prog").path == tmp_path / "prog"
    with pytest.raises(NotFoundError, match="check the name"):
        find_program("absent")
    with pytest.raises(NotFoundError, match="whether it has been built"):
        find_program("./absent", folder=tmp_path)


@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [
        (b"text\n", 0o755, "neither a program"),
        (b"", 0o755, "neither a program"),
        (elf(3), 0o644, "is not executable"),
        (elf(3), 0o4755, "setuid or setgid"),
        (elf(3), 0o2755, "setuid or setgid"),
        (b"#!/no/such/shell\n", 0o755, "interpreter that"),
        (b"#!\n", 0o755, "interpreter that"),
        (b"#!/usr/bin/env no-such-word\n", 0o755, "interpreter that"),
    ],
)
def test_what_cannot_run_is_reported_why(content: bytes, mode: int, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(NotExecutableError, match=sentence):
        find_program(str(path))


def test_a_folder_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(NotExecutableError, match="is a folder"):
        find_program(str(tmp_path))


@pytest.mark.parametrize(
    "line", ["#!{}\n", "#! {} -x\n", "#!/usr/bin/env {}\n", "#!/usr/bin/env -S A=1 {} -u\n"]
)
def test_gdb_reads_the_interpreter_of_a_script(line: str, tmp_path: Path) -> None:
    script = executable(tmp_path / "script", line.format(sys.executable).encode())
    found = find_program(str(script))
    assert found.path == script
    assert found.symbols == Path(sys.executable).resolve()
    assert [notice.slug for notice in found.notices({}, pages=False)] == ["python-arenas"]
    assert found.notices({"PYTHONMALLOC": "malloc"}, pages=False) == []


def test_a_script_is_started_as_the_kernel_would_start_it(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    environment.symlink_to(sys.executable)  # Python finds its packages by the name that it was started by
    script = executable(tmp_path / "script", f"#! {environment} -I -u\n".encode())
    assert find_program(str(script)).script == (str(environment), "-I -u", str(script))


def test_an_interpreter_that_is_a_script_itself_is_started_by_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = executable(tmp_path / "python3", b"#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    script = executable(tmp_path / "script", b"#!/usr/bin/env python3\n")
    found = find_program(str(script))
    assert found.script == ("/bin/sh", str(shim), str(script))
    assert found.symbols == Path("/bin/sh").resolve()


def test_a_script_that_is_its_own_interpreter_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "script"
    executable(script, f"#!{script}\n".encode())
    with pytest.raises(NotExecutableError, match="interpreter"):
        find_program(str(script))


def test_names_are_shown_without_what_a_terminal_would_obey(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        find_program("./\x1b[31m\udcff", folder=tmp_path)
    assert "\x1b" not in str(caught.value) and "\udcff" not in str(caught.value)


def test_headers_beyond_any_file_are_not_called_static(tmp_path: Path) -> None:
    data = bytearray(elf(1, 3))
    struct.pack_into("<Q", data, 32, 1 << 63)
    assert not find_program(str(executable(tmp_path / "program", bytes(data)))).is_static
