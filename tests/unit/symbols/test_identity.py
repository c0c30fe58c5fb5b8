"""A file at the path in a profile names addresses only if it is the file that was profiled."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.formats.addresses import Binary
from gdbmem.linux.elf.objects import read_elf
from gdbmem.symbols.address_names import Sameness, candidates, compare_file, stripped_notices
from tests.unit.stack_files import CAPTURES

CODE_AT = 0x1000
X86_64, AARCH64 = 62, 183
CALLS = [b"\xe8\x01\x02\x03\x04", b"\xff\xd0", b"\x41\xff\xd4", b"\xff\x15\x00\x00\x00\x00", b"\xff\x50\x18",
         b"\x42\xff\x94\x20\x00\x01\x00\x00"[1:]]  # fmt: skip


def elf_file(path: Path, code: bytes, machine: int = X86_64) -> Path:
    """Write a 64-bit ELF file whose only segment is *code*."""
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, CODE_AT, CODE_AT, CODE_AT, len(code), len(code), 4096)
    path.write_bytes((head + load).ljust(CODE_AT, b"\0") + code)
    return path


def asked(file: Path, offsets: list[int], binary: Binary, *, recorded: float = 0.0) -> Sameness:
    elf = read_elf(file)
    assert elf is not None
    return compare_file(elf, binary, offsets, recorded=recorded)


def places_of(calls: list[bytes]) -> tuple[bytes, list[int]]:
    """Return code with *calls* in it, and the offset of the last byte of each."""
    code, ends = b"", []
    for call in calls:
        code += b"\x90" * 9 + call
        ends.append(CODE_AT + len(code) - 1)
    return code + b"\x90" * 9, ends


def test_return_addresses_that_follow_calls_are_of_this_file_and_others_are_not(tmp_path: Path) -> None:
    code, ends = places_of(CALLS)
    file = elf_file(tmp_path / "x", code)
    here = Binary(str(file), code=(CODE_AT, 4096), inode=1)
    assert asked(file, ends, here) == Sameness(True)
    assert not asked(file, [end + 3 for end in ends], here).is_same
    found = asked(file, [*ends, *ends[:1], ends[0] + 2], here)
    assert not found.is_same and "1 of 7 return addresses do not follow a call" in found.reason


def test_calls_of_arm_are_known_and_those_of_another_machine_deny_nothing(tmp_path: Path) -> None:
    words = [0x97FFFFF0, 0xD63F0100, 0xD73F0A80, 0xD65F03C0]  # bl, blr, blraa, ret
    code = b"".join(struct.pack("<I", word) for word in words)
    ends = [CODE_AT + 4 * at + 3 for at in range(4)]
    file = elf_file(tmp_path / "x", code, AARCH64)
    assert asked(file, ends[:3], Binary(str(file))).is_same
    assert not asked(file, ends[3:], Binary(str(file), inode=1)).is_same
    file = elf_file(tmp_path / "y", code, 243)
    assert asked(file, [CODE_AT + 1], Binary(str(file))).is_same


def test_few_addresses_need_code_of_the_same_size_unless_the_file_is_unchanged(tmp_path: Path) -> None:
    code, ends = places_of(CALLS)
    file = elf_file(tmp_path / "x", code)
    larger = Binary(str(file), code=(CODE_AT, 8192), inode=1)
    assert not asked(file, ends[:1], larger).is_same, "it has one page"
    assert not asked(file, ends, larger).is_same
    assert asked(file, ends[:1], Binary(str(file), code=(CODE_AT, 4096), inode=1)).is_same
    inode = file.stat().st_ino
    later = file.stat().st_ctime + 5
    assert asked(file, ends[:1], larger._replace(inode=inode), recorded=later).is_same, "mapped in part"
    assert not asked(file, ends[:1], larger._replace(inode=inode), recorded=later - 60).is_same


def test_a_build_id_decides_alone(tmp_path: Path) -> None:
    code, ends = places_of(CALLS)
    file = elf_file(tmp_path / "x", code)
    assert asked(file, ends, Binary(str(file), "c0ffee")).reason == "its build-id is absent, not c0ffee"


def test_folders_of_binaries_are_roots_too_and_know_build_ids(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "opt/app").mkdir(parents=True)
    (root / "opt/app/server").write_text("")
    found = list(candidates("/opt/app/server", [str(root)], "abcdef"))
    assert found[0] == str(root / "opt/app/server") and found[-1] == "/opt/app/server"
    assert {str(root / "server"), str(root / ".build-id/ab/cdef"), str(root / "abcdef/executable")} <= set(
        found
    )
    (root / "lib").symlink_to("/usr/lib")
    assert "/usr/lib/libx.so" not in list(candidates("/lib/libx.so", [str(root)])), "led out of the root"
    assert "/etc/passwd" not in list(candidates("/../../etc/passwd", [str(root)]))


@pytest.mark.parametrize(
    "name", ["exact-first.jeheap", "tc.0001.heap", "xtree.kcg", "../massif/shop.massif.gz"]
)
@pytest.mark.parametrize("options", [[], ["--binaries", "/usr/lib"]])
def test_a_path_that_no_file_can_have_leaves_the_addresses_of_its_binary_without_names(
    name: str, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (CAPTURES / name).read_bytes()
    data = gzip.decompress(data) if name.endswith(".gz") else data
    data = data.replace(b"/usr/", b"/us\0/").replace(b"/tmp/", b"/tm\0/").replace(b"in /", b"in /\0")
    data = data.replace(b"/lib/", b"/l\0b/" if not options else b"/l" + 300 * b"[" + b"/")
    file = tmp_path / "damaged"
    file.write_bytes(data)
    assert main(["show", str(file), "--json", *options]) in (0, 1)
    output = capsys.readouterr()
    assert "report this" not in output.err and "Traceback" not in output.err
    assert not output.out or json.loads(output.out)


def test_several_stripped_binaries_are_one_notice_not_a_screen_of_them() -> None:
    assert stripped_notices([]) == []
    [of_one] = stripped_notices([Path("/usr/lib/libz.so.1")] * 2)
    assert of_one.message.startswith("/usr/lib/libz.so.1 has only exported symbols: other functions")
    [of_all] = stripped_notices(map(Path, ("/usr/lib/libz.so.1", "/usr/lib/liba.so", "/bin/x\x1b[2J")))
    begins = (
        "/usr/lib/libz.so.1, /usr/lib/liba.so and /bin/x\\x1b[2J have only exported symbols: other functions"
    )
    assert of_all.message.startswith(begins)
