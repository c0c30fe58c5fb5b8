"""Frames of another architecture: cores of aarch64, whose frames gdb has printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gdbmem.heap.frames import Frame
from gdbmem.inspection.heap_frames import DebugInformation, StackCopy, copy_stacks
from gdbmem.inspection.read_process import read_core
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.corefile import CoreFile
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.model.memory import Memory
from gdbmem.symbols.unwind_tables import can_unwind

CORES = Path(__file__).parents[2] / "captures" / "aarch64"
SAID = (CORES / "frames.txt").read_text()
STARTS = {name: CoreFile(CORES / f"{name}.core").threads[0].stack_pointer for name in ("plain", "signed")}

pytestmark = pytest.mark.skipif(not can_unwind(), reason="libdw is not installed")


def frames_of(name: str) -> list[Frame]:
    stacks: list[StackCopy] = []
    images: list[ProcessImage] = []

    def look(reading: ProcessImage, memory: Memory) -> None:
        images.append(reading)
        stacks.extend(copy_stacks(reading, memory))

    read_core(CORES / f"{name}.core", look=look, program=CORES / name)
    found = DebugInformation(images[0], TargetFiles())
    (thread,) = found.frames(stacks, {one.thread.tid: "thread" for one in stacks})
    return list(thread.frames)


@pytest.mark.parametrize("name", ["plain", "signed"])
def test_the_frames_of_a_core_of_aarch64_are_those_that_gdb_prints_also_where_return_addresses_are_signed(
    name: str,
) -> None:
    frames = frames_of(name)
    said = re.findall(r"frame at (0x[0-9a-f]+):\n pc = 0x[0-9a-f]+ in (\w+)", SAID)
    assert [function for _, function in said] == ["inner", "work", "main"]
    assert [frame.function for frame in frames] == ["inner", "work", "main"]
    # The last one's end is unknown: its caller is in a library that is not here.
    ends = [int(at, 16) - STARTS["plain"] + STARTS[name] for at, _ in said[:2]]
    assert [frame.end for frame in frames] == [*ends, None]
    assert [frame.start for frame in frames] == [STARTS[name], *ends]


@pytest.mark.parametrize("name", ["plain", "signed"])
def test_a_register_of_a_caller_on_aarch64_is_found_where_the_function_that_it_called_has_saved_it(
    name: str,
) -> None:
    _, work, _ = frames_of(name)
    (saved,) = re.findall(r"x19 at (0x[0-9a-f]+), x29 at \S+, x30 at \S+\n#1", SAID)
    assert (int(saved, 16) - STARTS["plain"] + STARTS[name], "x19") in work.registers
