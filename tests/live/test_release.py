"""What a release uploads, built and checked by the project's own script."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough  # its tools come from the network
def test_a_rehearsed_release_passes_its_checks_and_has_notes(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)
    said = subprocess.run(
        [checkout / "scripts/release", "--rehearse"], capture_output=True, text=True, check=True
    )
    assert said.stdout.count("PASSED") == 2
    assert "nothing was published" in said.stderr
    [notes] = (checkout / "dist").glob("gdbmem-*.notes.md")
    assert notes.read_text(encoding="utf-8").startswith("### ")


def test_a_release_with_uncommitted_files_or_without_notes_is_refused(tmp_path: Path) -> None:
    for folder in ("scripts", "gdbmem", "debian"):
        (tmp_path / folder).mkdir()
    for name in ("scripts/release", "pyproject.toml", "gdbmem/__init__.py", "debian/changelog"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- more\n")

    def refusal() -> str:
        words = ["bash", "scripts/release"]
        ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 1
        return ended.stderr

    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert "files are not committed" in refusal()
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "all"], check=True)
    assert "has a section Unreleased" in refusal()
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.0.1\n\n- more\n")
    subprocess.run([*git, "commit", "-qam", "another version"], check=True)
    assert "CHANGELOG.md has no section" in refusal()
