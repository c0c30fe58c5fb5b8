"""A launch beside extensions whose hooks fail, in a kernel that gives no inotify, and of programs with many threads."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from tests.live.user import GDBMEM, at_terminal, environment, launched, only_run, shell

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "g++"),
    pytest.mark.usefixtures("no_process_left"),
]

Program = Callable[..., Path]

# As gef has it: gdb then takes its own command for failed though it has connected.
FAILING_HOOK = "define target hookpost-remote\npython raise ValueError('a hook')\nend\n"


def home_with(gdbinit: str, scratch: Path) -> dict[str, str]:
    home = scratch / "home"
    home.mkdir()
    (home / ".gdbinit").write_text(gdbinit)
    return {"HOME": str(home), "XDG_CONFIG_HOME": str(home)}


def test_an_extension_whose_hook_fails_costs_neither_the_connection_nor_run(
    program: Program, scratch: Path
) -> None:
    env = environment(**home_with(FAILING_HOOK, scratch))
    with launched(program("leaky_map"), folder=scratch, env=env) as user:
        assert "could not connect" not in user.text
        assert "a hook of another gdb extension failed" in user.text
        assert "is stopped before its first instruction" in user.text
        user.type("break reset")
        assert "Breakpoint 1, reset" in user.type("run")
        assert "snapshot 1: heap" in user.type("massif-snap")
        user.quit()
    assert user.status == 0


def test_a_connection_that_fails_is_still_reported(program: Program, scratch: Path) -> None:
    env = environment(
        **home_with("define target hook-remote\npython raise ValueError('before')\nend\n", scratch)
    )
    with at_terminal([GDBMEM, "launch", "--massif", program("leaky_map")], scratch, env) as user:
        user.prompt()
        assert "could not connect to the program" in user.text
        user.quit()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_kernel_without_inotify_is_reported_with_the_setting_and_status_125(
    program: Program, scratch: Path
) -> None:
    words = (
        f"echo 0 > /proc/sys/user/max_inotify_instances && exec {GDBMEM} launch --massif {program('ticks')}"
    )
    ended = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", words],
        cwd=scratch, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    if "unshare:" in ended.stderr or "max_inotify_instances" in ended.stderr:
        pytest.skip("this system allows no user namespace")
    assert ended.returncode == 125, ended.stderr
    assert re.fullmatch(
        r"gdbmem: the kernel refuses inotify.*sudo sysctl fs.inotify.max_user_instances=1024.*\n",
        ended.stderr,
    )
    assert not list(scratch.glob("gdbmem.*"))


def test_many_threads_are_no_memory_that_massif_does_not_see(program: Program, scratch: Path) -> None:
    with launched(program("many_stacks"), "120", folder=scratch) as user:
        user.type("break all_there")
        user.type("continue")
        answer = user.type("massif-snap")
        user.quit()
    assert "snapshot 1: heap" in answer
    assert "doesn't come from malloc" not in answer


def test_what_a_line_allocated_is_found_again_in_its_container(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        user.type("break reset")
        for name in ("first", "second", "third"):
            user.type("continue")
            assert f"containers saved as {name}" in user.type(f"massif-snap --containers {name}")
        answer = " ".join(user.type("massif-diff first third").split())
        user.quit()
    assert re.search(
        r"leaky_map.cpp:16 \(remember\) \+([\d.]+ KiB) = entries \(std::map<int, Entry>\), \+(\d+) elements",
        answer,
    )
    assert "none of 3 surveys found fewer than the one before" in answer
    run = only_run(scratch)
    ended = shell(GDBMEM, "diff", f"{run}:first", f"{run}:third", folder=scratch)
    assert answer[answer.index("leaky_map.cpp:16 (remember) +") :].split(";")[0] in " ".join(
        ended.stdout.split()
    )
