"""What a release uploads, built and checked by the project's own script."""

import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough  # its tools come from the network
def test_a_rehearsed_release_passes_its_checks_and_has_notes(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)

    def rehearse(*words: str) -> tuple[str, list[str]]:
        """Return what the script says, and the addresses in what it has built."""
        command = [str(checkout / "scripts/release"), "--rehearse", *words]
        said = subprocess.run(command, capture_output=True, text=True, check=True)
        assert said.stdout.count("PASSED") == 2
        assert "nothing was published" in said.stderr
        [wheel] = (checkout / "dist").glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            [name] = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
            lines = archive.read(name).decode().splitlines()
        return said.stderr, [line for line in lines if "https://github.com" in line]

    said, addresses = rehearse()
    assert "the archives have no address" in said and "have relative links" in said and not addresses
    [notes] = (checkout / "dist").glob("gdbmem-*.notes.md")
    assert notes.read_text(encoding="utf-8").startswith("### ")
    remote = ["git", "-C", str(checkout), "remote", "set-url", "origin"]
    subprocess.run([*remote, "https://github.com/somebody/gdbmem.git"], check=True)
    said, addresses = rehearse()
    assert "relative links" not in said
    at = "https://github.com/somebody/gdbmem"
    assert addresses[:4] == [
        f"Project-URL: Source, {at}",
        f"Project-URL: Issues, {at}/issues",
        f"Project-URL: Changelog, {at}/blob/HEAD/CHANGELOG.md",
        f"Project-URL: Documentation, {at}/tree/HEAD/docs",
    ]
    assert any(f"]({at}/blob/" in line and "docs/tutorial.md)" in line for line in addresses)


@pytest.mark.parametrize(
    "address",
    [
        "http://github.com/somebody/gdbmem",
        "git@github.com:somebody/gdbmem.git",
        "https://name:secret@github.com/somebody/gdbmem",
        "https://git.company.internal/gdbmem",
        "https://localhost/gdbmem",
        "https://10.0.0.7/gdbmem",
        "https://github.com",
        'https://github.com/somebody/"]',
    ],
)
def test_an_address_that_not_everybody_can_open_is_no_address_of_a_release(address: str) -> None:
    words = ["bash", "scripts/release", "--url", address]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "is not a public address" in ended.stderr


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
