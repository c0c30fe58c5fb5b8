"""action.yml, a GitHub action: its steps, run as a runner runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Callable

import pytest
import yaml

from tests.live.user import GDBMEM, environment
from tests.unit.sources import ROOT

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "g++", "bash"),
    pytest.mark.usefixtures("no_process_left"),
]

RECIPE = """
program: {program}
points:
  - {{at: reset, name: reset}}
expect:
  - {{between: [reset#1, reset], at_most: 10KiB}}
"""


def test_the_action_reports_a_leak_as_a_failed_step_with_an_annotation_a_summary_and_files(
    program: Callable[..., Path], scratch: Path
) -> None:
    (scratch / "it's a leak.yaml").write_text(RECIPE.format(program=json.dumps(str(program("leaky_map")))))
    (scratch / "leaky_map.cpp").write_bytes((ROOT / "tests/programs/leaky_map.cpp").read_bytes())
    inputs = {"recipe": "it's a leak.yaml", "options": "--env X=1 --ci markdown=m.md", "results": "out put"}
    files = {name: str(scratch / name) for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")}
    variables = environment(
        **files,
        GITHUB_ACTION_PATH=str(ROOT),
        RUNNER_TEMP=str(scratch),
        PATH=f"{Path(GDBMEM).parent}:{os.environ['PATH']}",
    )
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert set(action["inputs"]) == set(inputs)
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash" and "${{" not in step["run"], "an input would be run as code"
        own = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: inputs[str(m[1])], text)
            for name, text in step.get("env", {}).items()
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=scratch, env={**variables, **own}, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert re.search(
        r"^::error file=leaky_map.cpp,line=\d+,title=gdbmem it's a leak%3A not met::\w.* grew by .*16.6 KiB more",
        done.stderr,
        re.MULTILINE,
    )
    assert "❌ not met" in (scratch / "GITHUB_STEP_SUMMARY").read_text()
    outputs = dict(line.split("=", 1) for line in (scratch / "GITHUB_OUTPUT").read_text().splitlines())
    assert set(outputs) == set(action["outputs"]) and outputs.pop("status") == "4"
    assert all((scratch / file).stat().st_size for file in outputs.values())
    assert not (scratch / "GITHUB_PATH").exists(), "gdbmem was installed already"
    assert json.loads((scratch / outputs["benchmark"]).read_text())[0]["value"] == 200 * 136
