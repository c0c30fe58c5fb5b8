"""Snapshots of a process with a seccomp filter: taken where it ends nothing for the call, refused where it could."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.cover import cover
from tests.libraries import needs_library
from tests.live.test_attach import PRELOADS, snap
from tests.live.test_explain_pause import CALLS
from tests.live.user import environment

pytestmark = [
    pytest.mark.needs("gdb", "gcc"),
    pytest.mark.usefixtures("no_process_left"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the filters of others"),
]


@pytest.mark.parametrize(
    ("action", "call", "is_taken"),
    cover(
        [("errno", "mmap", True), ("kill", "clone", True), ("kill", "mmap", False), ("trap", "mmap", False)],
        lambda action, call, is_taken: (action, call) != ("kill", "mmap"),
    ),
)
def test_a_filter_is_judged_by_what_it_does_and_the_process_goes_on(
    action: str, call: str, is_taken: bool, program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    words = [
        str(program("guarded", "-DBLOCKS=2000")),
        "seccomp",
        action,
        str(CALLS[os.uname().machine][call]),
    ]
    env = environment(**{**PRELOADS["gperftools"], "HEAPPROFILE": str(tmp_path / "own")})
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            assert process.stdout is not None
            while process.stdout.readline() not in ("ready\n", ""):
                pass
            done = snap(tmp_path, process.pid)
            if action == "errno":  # no memory for the call: one error, and no other effect
                assert "may not map executable memory" in done.stderr or "no-page" in done.stderr, done.stderr
            elif is_taken:
                assert done.returncode == 0, done.stderr
            else:
                assert "its seccomp filter could kill it" in done.stderr, done.stderr
            assert process.poll() is None
        finally:
            process.kill()
