"""scripts/demo, as a newcomer runs it: from another folder, looking at what it prints."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples import build

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "make", "g++"),
    pytest.mark.usefixtures("no_process_left", "valgrind_of_users"),
]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def demo(scratch: Path) -> Iterator[subprocess.CompletedProcess[str]]:
    build("decoder")
    ended = subprocess.run(
        [str(ROOT / "scripts" / "demo")],
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    yield ended
    for run in re.findall(r"kept in (/\S+/gdbmem\.decoder\.\d+)\.", ended.stdout):
        shutil.rmtree(run)


def test_the_demo_names_the_guilty_line_first_and_every_command_it_suggests_works(
    demo: subprocess.CompletedProcess[str],
) -> None:
    assert demo.returncode == 0, demo.stderr
    source = (ROOT / "examples" / "decoder" / "decoder.cpp").read_text().splitlines()
    (guilty,) = [number for number, line in enumerate(source, start=1) if "tasks_[utterance.id]" in line]
    answer = next(line for line in demo.stdout.splitlines() if line.startswith("heap "))
    assert f"decoder.cpp:{guilty} (Decoder::finish)" in answer
    assert "status 4" in demo.stdout

    suggested = re.findall(r"^  (\.venv/bin/gdbmem (?:show|diff) .*)$", demo.stdout, re.M)
    assert len(suggested) == 2
    for command in suggested:
        ended = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert "decoder.cpp" in ended.stdout
