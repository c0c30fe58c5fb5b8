"""`mempython` in gdb: the Python process at a stop, and its core, as `gdbmem python` has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cover import cover
from tests.live.explaining import gdbmem, running
from tests.live.python_programs import COUNTS, TRACED, pythons
from tests.live.test_python_stacks import STACKS, said
from tests.unit.sources import ROOT

pytestmark = pytest.mark.needs("gdb")


def gdb(*words: object, commands: list[str]) -> str:
    line = ["gdb", "-nx", "-q", "-batch", "-ex", f"source {ROOT}/gdbinit/gdbmem"]
    line += [str(word) for word in words]
    for command in commands:
        line += ["-ex", command]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def python_frames(thread: Any) -> list[list[Any]]:
    return [
        [frame["function"], frame["file"], frame["line"]]
        for frame in thread["frames"]
        if frame["object"] is None
    ]


@pytest.mark.parametrize(
    "python",
    cover(pythons(), lambda path: path in (pythons()[0], pythons()[-1])),
    ids=lambda path: str(path).strip("/").replace("/", "-"),
)
def test_python_frames_stand_in_place_of_the_loop_in_every_thread(python: str, tmp_path: Path) -> None:
    script, output = tmp_path / "stacks.py", tmp_path / "stacks.json"
    script.write_text(STACKS)
    with running([python, script]) as target:
        text = gdb("-p", target.pid, commands=[f"mempython stack --all --native --json -o {output}"])
        main = said(target)
        assert output.exists(), text
        threads = json.loads(output.read_text())["threads"]
    assert {one["tid"] for one in threads} == set(main)
    for one in threads:
        rows = main[one["tid"]]
        found = python_frames(one)
        assert [row[:2] for row in found] == [row[:2] for row in rows]
        assert [row[2] for row in found][1:] == [row[2] for row in rows][1:]
        names = [frame["function"] for frame in one["frames"]]
        assert not any(name and name.startswith("_PyEval_EvalFrameDefault") for name in names), text
        # The innermost waits below C, and the outermost was called by C.
        assert one["frames"][0]["object"] is not None
        assert one["frames"][-1]["object"] is not None


def test_objects_and_arenas_at_a_stop_and_in_a_core_are_those_from_outside(tmp_path: Path) -> None:
    with running([sys.executable, "-c", COUNTS]) as target:
        outside = json.loads(gdbmem("python", "objects", "--json", target.pid).stdout)
        arenas = json.loads(gdbmem("python", "arenas", "--json", target.pid).stdout)
        commands = [f"mempython {one} --json -o {tmp_path}/{one}" for one in ("objects", "arenas")]
        text = gdb("-p", target.pid, commands=[*commands, f"generate-core-file {tmp_path}/core"])
    for name, expected in (("objects", outside), ("arenas", arenas)):
        assert (tmp_path / name).exists(), text
        found = json.loads((tmp_path / name).read_text())
        for key in ("types", "count", "arenas", "live_bytes", "keepers"):
            assert found.get(key) == expected.get(key), key
    text = gdb(sys.executable, f"{tmp_path}/core", commands=["mempython objects --top 3", "mempython stack"])
    assert f"{outside['count']:,} Python objects hold" in text
    assert "<module>" in text


def test_traces_are_written_as_a_profile_from_gdb(tmp_path: Path) -> None:
    script, profile = tmp_path / "driver.py", tmp_path / "traces.pb.gz"
    script.write_text(TRACED)
    with running([sys.executable, script, "3"]) as target:
        text = gdb("-p", target.pid, commands=[f"mempython traces --profile {profile}"])
        traced = int(target.output.split("traced ")[1].split()[0])
    shown = json.loads(gdbmem("show", "--json", profile).stdout)
    assert abs(shown["snapshots"][0]["heap_bytes"] - traced) < 4096, text


def test_a_program_without_python_and_a_wrong_word_are_one_sentence_each() -> None:
    with running(["/bin/sh", "-c", "echo ready; read line"]) as target:
        text = gdb("-p", target.pid, commands=["mempython stack", "mempython objects"])
        wrong = gdb(commands=["mempython stack", "mempython", "mempython heap", "mempython arenas --all"])
    assert text.count("no Python is loaded in this process") == 2
    assert "Traceback" not in text + wrong
    assert "--all belongs to 'mempython stack'" in wrong
    assert "[not-running]" in wrong


@pytest.mark.needs("unshare")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a PID namespace here")
def test_a_place_names_the_line_of_python_also_where_threads_have_other_numbers(tmp_path: Path) -> None:
    code = "import os\ndef wait():\n    os.write(1, b'ready\\n')\n    os.read(0, 1)\nwait()\n"
    script = tmp_path / "waits.py"
    script.write_text(code)
    alone = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, script]
    with running(alone) as target:
        pid = Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().strip()
        text = gdb("-p", pid, commands=[f"cd {tmp_path}", "memexplain --save here"])
    (run,) = tmp_path.glob("gdbmem.*")
    kept = gdbmem("show", run, "--json")
    assert kept.returncode == 0, text
    assert json.loads(kept.stdout)["ledgers"][0]["place"].endswith(", from wait at waits.py:4"), kept.stdout
