"""Real recordings of psrecord and mprof: each sample is read, whole and cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.formats.series import read_series, series_tool

FILES = sorted(
    path for path in (Path(__file__).parents[2] / "captures/recordings").iterdir() if path.suffix != ".md"
)


def samples(path: Path, text: str) -> list[float]:
    """Return the sizes in a recording, in MiB, by its columns."""
    lines = [line.split("," if path.suffix == ".csv" else None) for line in text.splitlines()]
    if ".mprof" not in path.name:
        return [float(words[3 if path.suffix == ".csv" else 2]) for words in lines[1:]]
    found: list[float] = []
    for words in lines:
        if words[0] == "MEM":
            found.append(float(words[1]))
        elif words[0] == "CHLD":
            found[-1] += float(words[2])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_sample_of_a_recording_is_read(path: Path) -> None:
    found = read_series(path)
    assert found.tool == series_tool(path) == ("mprof" if ".mprof" in path.name else "psrecord")
    assert [size / 2**20 for _, size in found.points] == pytest.approx(samples(path, path.read_text()))
    assert found.unknown == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_recording_that_is_cut_has_only_samples_that_are_whole(path: Path, tmp_path: Path) -> None:
    text, file = path.read_text(), tmp_path / path.name
    whole = samples(path, text)
    for end in range(len(text) // 4, len(text), 7):
        file.write_text(text[:end])
        try:
            found = [size / 2**20 for _, size in read_series(file).points]
        except InputError:
            continue
        assert found[:-1] == pytest.approx(whole[: len(found) - 1]), end
        assert found[-1] <= whole[len(found) - 1] + 1e-9, "a child's line may be missing"
