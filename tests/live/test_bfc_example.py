"""examples/bfc: a stock TensorFlow lacks memory that is free; traced from the message to the line, and fixed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.live.pools import NEWEST, environment_python
from tests.live.user import GDBMEM, environment

EXAMPLE = Path(__file__).parents[2] / "examples/bfc"
PAGE = Path(__file__).parents[2] / "docs/case-studies/bfc.md"

pytestmark = pytest.mark.usefixtures("no_process_left")


def test_the_case_study_tells_the_story_that_its_script_fills() -> None:
    story = re.split(r"\{\{\w+\}\}", (EXAMPLE / "story.md").read_text())
    assert re.fullmatch(".+?".join(re.escape(words) for words in story), PAGE.read_text(), re.DOTALL)


@pytest.mark.thorough  # five runs of TensorFlow; test_bfc_tensorflow.py and test_bfc_series.py have its commands
def test_the_case_study_is_what_its_script_does(scratch: Path) -> None:
    python = environment_python(NEWEST)
    command = [
        sys.executable,
        *map(str, [EXAMPLE / "hunt.py", python, "--gdbmem", GDBMEM, "--into", scratch]),
    ]
    subprocess.run(command, env=environment(), check=True, timeout=600)
    story = (scratch / "bfc.md").read_text()
    assert "a request of 96.0 MiB fails by fragmentation; freeing these" in story
    assert "in the way: 0x" in story
    source = (EXAMPLE / "train.py").read_text().splitlines()
    (line,) = (number for number, text in enumerate(source, 1) if "reduce_mean(parts" in text)
    assert f"`train.py:{line}` creates a page" in story
    assert "One epoch leaves 48 more chunks of 64.0 KiB" in story
    assert "a request of 96.0 MiB fits into a free chunk" in story
    assert _prose(story) == _prose(PAGE.read_text())
    failed = ElementTree.parse(scratch / "bfc-failed.svg")
    assert any(text == "the request of 96.0 MiB" for text in failed.getroot().itertext())


def _prose(story: str) -> list[str]:
    """Return what is not an output, without numbers."""
    words = re.sub(r"```.*?```", "", story, flags=re.DOTALL)
    return re.sub(r"[\d.]+|Two|Three|Four", "0", words).split()
