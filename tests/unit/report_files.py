"""The captures of reports for the tests, and reading what is left of a file that was cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from gdbmem.errors import InputError
from gdbmem.formats.stacks import StackProfile
from gdbmem.model.calltree import BYTES_MISSING
from tests.unit.stack_files import read, tree

REPORTS = Path(__file__).parents[1] / "captures" / "reports"


def read_cut(
    data: bytes, folder: Path, *, metric: Optional[str] = None
) -> Iterator[tuple[bytes, StackProfile]]:
    """Yield what is read of *data* cut at every tenth line, and in the middle of one, with the text that was left.

    What is cut is refused, or has a notice that bytes are missing; a profile is sound.
    """
    lines = data.splitlines(keepends=True)
    file = folder / "cut"
    file.write_bytes(data)
    whole = tree(read(file, metric)).bytes[0]
    for count in range(1, len(lines), 10):
        for part in (b"", lines[count][: len(lines[count]) // 2]):
            left = b"".join(lines[:count]) + part
            file.write_bytes(left)
            try:
                profile = read(file, metric)
            except InputError as error:
                assert "\n" not in str(error)
                continue
            if tree(profile).bytes[0] != whole:
                assert BYTES_MISSING in {notice.slug for notice in profile.notices}, left[-200:]
            yield left, profile
