"""The site that scripts/docs builds: complete, without a broken link, and readable without a network."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = ROOT / ".cache" / "docs" / "venv" / "bin" / "python"


def python_with_mkdocs() -> str:
    for python in (str(OWN), sys.executable):
        found = Path(python).exists() and subprocess.run(
            [python, "-c", "import mkdocs, material"], capture_output=True, check=False
        )
        if found and found.returncode == 0:
            return python
    pytest.skip("mkdocs-material missing: scripts/docs installs it")


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """scripts/docs as a module, which works in a separate folder."""
    loader = SourceFileLoader("docs_script", str(ROOT / "scripts" / "docs"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would land in scripts/
    loader.exec_module(module)
    monkeypatch.setattr(module, "WORK", tmp_path)
    return module


def test_every_page_is_in_the_site_and_needs_no_network(docs: types.ModuleType, tmp_path: Path) -> None:
    python = python_with_mkdocs()
    docs.gather()
    assert docs.build(python) == 0
    site = tmp_path / "site"
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / "docs" / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file(), page
    first = (site / "index.html").read_text()
    loaded = re.findall(r"<(?:script|img|link rel=.stylesheet.)[^>]*(?:src|href)=.([^\"'> ]+)", first)
    assert loaded and not [url for url in loaded if url.startswith(("http:", "https:", "//"))]
    assert (site / "search").is_dir()


def test_drawings_are_drawn_by_a_script_of_the_site(docs: types.ModuleType, tmp_path: Path) -> None:
    python = python_with_mkdocs()
    (tmp_path / "mermaid.min.js").write_text("var mermaid = {}")
    docs.gather()
    assert docs.build(python) == 0
    page = (tmp_path / "site" / "ARCHITECTURE.html").read_text()
    assert '<pre class="mermaid"><code>flowchart TB' in page
    assert '<script src="mermaid.min.js">' in page


def test_a_broken_link_fails(docs: types.ModuleType, tmp_path: Path) -> None:
    python = python_with_mkdocs()
    docs.gather()
    with (tmp_path / "source" / "docs" / "cheat-sheet.md").open("a") as page:
        page.write("\n[nowhere](nowhere.md)\n")
    assert docs.build(python) != 0
