"""Files that strangers name (a core's mappings, a profile's binaries): only regular ones are ever opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gdbmem.files import open_regular
from gdbmem.linux.elf.objects import debug_link, needed_libraries, read_elf, symbol_tables


def test_a_fifo_in_place_of_a_binary_blocks_no_command(tmp_path: Path) -> None:
    fifo = tmp_path / "libc.so.6"
    os.mkfifo(fifo)
    assert read_elf(fifo) is None
    assert symbol_tables(lambda: open_regular(fifo)) == [] == needed_libraries(fifo)
    assert debug_link(fifo) == ""


@pytest.mark.parametrize("name", ["/dev/null", "/dev/zero", "/", "/proc/self/fd"])
def test_no_device_and_no_folder_is_opened(name: str) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(name)
