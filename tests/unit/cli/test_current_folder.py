"""Commands whose current folder has been deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdbmem.cli.main import main


@pytest.mark.parametrize("words", [["mark", "x"], ["compare", "--runs", "1", "--", "true", "--vs", "true"]])
def test_a_current_folder_that_is_gone_is_one_sentence(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GDBMEM_RUN", raising=False)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(words) != 0
    said = capsys.readouterr().err
    assert "the current folder is gone" in said and said.count("\n") == 1
    monkeypatch.chdir(tmp_path)
