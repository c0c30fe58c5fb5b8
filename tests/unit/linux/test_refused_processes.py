"""The reason why a process can't be inspected, and the remedy, by the user, the system's settings and the owner."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gdbmem.commands.shell import SHELL_COMMANDS
from gdbmem.errors import TargetError, UsageError
from gdbmem.linux.process.process import ProcessFacts, process_facts
from gdbmem.linux.process.rights import Asker, asker, forbidden, has_ptrace_capability, ptrace_scope
from gdbmem.runs.run import run_for_process

ROOT, SOMEBODY = Asker(0, may_trace_all=True, scope=0), Asker(1000, may_trace_all=False, scope=0)


def facts(uid: int) -> ProcessFacts:
    return ProcessFacts(4711, "server", "S", uid, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "scope"), [("0\n", 0), ("1\n", 1), ("2\n", 2), ("3\n", 3), ("", 0), ("x", 0)]
)
def test_the_scope_of_tracing_is_read_from_the_kernels_file(text: str, scope: int, tmp_path: Path) -> None:
    file = tmp_path / "ptrace_scope"
    file.write_text(text)
    assert ptrace_scope(file) == scope
    assert ptrace_scope(tmp_path / "no yama here") == 0


@pytest.mark.parametrize(("mask", "may"), [("000001ffffffffff", True), ("00000000a80425fb", False)])
def test_the_right_to_trace_is_one_bit_of_the_mask(mask: str, may: bool, tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tgdbmem\nCapPrm:\t{'f' * 16}\nCapEff:\t{mask}\n")
    assert has_ptrace_capability(status) is may
    assert asker(status, tmp_path / "none").may_trace_all is may


def test_another_users_process_is_asked_for_as_root() -> None:
    error = forbidden(facts(0), SOMEBODY)
    assert error.slug == "process-forbidden"
    assert error.message == "process 4711 (server) belongs to another user (root)"
    assert "sudo" in error.hint
    assert "(4000000)" in forbidden(facts(4000000), SOMEBODY).message, "a user without a name is a number"


def test_root_is_never_told_to_use_sudo() -> None:
    for asks in (ROOT, Asker(0, may_trace_all=False, scope=1), Asker(0, may_trace_all=True, scope=3)):
        assert "sudo" not in forbidden(facts(0), asks).hint
    assert "--cap-add=SYS_PTRACE" in forbidden(facts(7), Asker(0, may_trace_all=False, scope=0)).hint
    assert "security module" in forbidden(facts(0), ROOT).message


@pytest.mark.parametrize(("scope", "who"), [(1, "those that it has started"), (2, "only root")])
def test_a_system_that_forbids_tracing_states_how_to_allow_it(scope: int, who: str) -> None:
    error = forbidden(facts(1000), Asker(1000, may_trace_all=False, scope=scope))
    assert error.slug == "ptrace-scope"
    assert who in error.message and f"ptrace_scope is {scope}" in error.message
    assert "sudo sysctl kernel.yama.ptrace_scope=0" in error.hint


@pytest.mark.parametrize("asks", [1000, 0])
def test_where_nobody_may_trace_until_the_next_start_no_command_is_promised(asks: int) -> None:
    for owner in (0, 1000):
        error = forbidden(facts(owner), Asker(asks, may_trace_all=asks == 0, scope=3))
        assert error.slug == "ptrace-scope" and "until it is rebooted" in error.message
        assert "sysctl kernel" not in error.hint and "sudo" not in error.hint


def test_a_process_that_hides_its_memory_from_its_own_user_reports_it() -> None:
    error = forbidden(facts(1000), SOMEBODY)
    assert error.slug == "process-forbidden" and "its own user" in error.message and "sudo" in error.hint


@pytest.mark.parametrize(
    ("answer", "slug"),
    [
        (PermissionError, "process-forbidden"),
        (ProcessLookupError, "no-such-process"),
        (OverflowError, "no-such-process"),
    ],
)
def test_a_process_that_proc_hides_is_not_called_missing(
    answer: type[Exception], slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(pid: int, number: int) -> None:
        raise answer

    monkeypatch.setattr("os.kill", kill)
    with pytest.raises(TargetError) as caught:
        process_facts(4_190_001)
    assert caught.value.slug == slug


def test_a_later_process_of_the_same_number_gets_its_own_run(tmp_path: Path) -> None:
    first = {"pid": 4711, "start_ticks": 100, "boot_id": "b"}
    run, is_new = run_for_process("server", first, parent=tmp_path)
    assert is_new
    again, is_new = run_for_process("server", first, parent=tmp_path)
    assert (again.folder, is_new) == (run.folder, False)
    for later in ({**first, "start_ticks": 200}, {**first, "boot_id": "c"}):
        heir, is_new = run_for_process("server", later, parent=tmp_path)
        assert is_new and heir.folder != run.folder


@pytest.mark.parametrize("words", [["9", "--run", "kept", "before"], ["--run", "kept", "9", "before"]])
def test_the_name_of_a_snapshot_may_stand_behind_the_options(words: list[str]) -> None:
    found = SHELL_COMMANDS["snap"].parser().parse_mixed(words)
    assert (found.pid, found.run, found.name) == (9, "kept", "before")


@pytest.mark.parametrize(("words", "reason"), [
    (["9", "a", "b"], "extra argument 'b'"), (["9", "--runn", "x"], "did you mean --run?"), ([], "required: PID"),
])  # fmt: skip
def test_words_too_many_or_too_few_are_named_as_everywhere(words: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)):
        SHELL_COMMANDS["snap"].parser().parse_mixed(words)
