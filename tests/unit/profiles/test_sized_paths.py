"""Call paths by the size of their blocks, from snapshots that count bytes alone."""

from __future__ import annotations

from pathlib import Path

from gdbmem.profiles.sized_paths import paths_of_counts
from gdbmem.runs.operand import load_operand


def test_a_path_of_bytes_that_fits_two_sizes_or_shares_one_is_given_to_none(tmp_path: Path) -> None:
    def fits(request: int, size: int) -> bool:
        return size - 16 < request <= size

    def joined(paths: dict[str, int], sizes: dict[int, int]) -> list[tuple[int, int]]:
        stacks = "".join(f"main;{name} {size}\n" for name, size in paths.items())
        (tmp_path / "folded").write_text(stacks)
        snapshot = load_operand(str(tmp_path / "folded")).snapshot
        return sorted(
            (one.block_bytes, one.blocks) for one in paths_of_counts(snapshot, fits, sizes).values()
        )

    assert joined({"a": 3000, "b": 480}, {104: 30, 56: 10}) == [(48, 10), (100, 30)]
    assert joined({"a": 3000, "b": 3000}, {104: 30}) == []  # two paths, one size
    assert joined({"a": 3000}, {104: 30, 312: 10}) == []  # one path, two sizes
    assert joined({"a": 3001}, {104: 30}) == []
