"""Output of 'gdbmem doctor' for missing things that can't be removed here."""

from __future__ import annotations

import ctypes.util

import pytest

from gdbmem.cli.commands.doctor import _line
from gdbmem.engines.engine import tables
from gdbmem.launch import doctor_checks
from gdbmem.launch.doctor_checks import Check
from gdbmem.linux.process.rights import Asker
from gdbmem.setup import requirements

DEBIAN, UNKNOWN = "ID=debian\n", "ID=plan9\n"


def test_an_engine_whose_library_is_missing_states_what_cannot_be_done_and_what_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(requirements, "_read", lambda: DEBIAN)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    found = {check.name: check for check in map(doctor_checks._engine, tables()) if not check.ok}
    line = _line(found["engine gperftools"])
    assert line.startswith("-        engine gperftools  libtcmalloc")
    assert "without it no --engine gperftools" in line
    assert line.endswith("type: sudo apt install libgoogle-perftools4\n")
    assert "sudo apt install libjemalloc2" in _line(found["engine jemalloc"])


@pytest.mark.parametrize(("uid", "command"), [(0, "apt install gdb"), (1000, "sudo apt install gdb")])
def test_only_root_is_told_to_install_without_sudo(
    uid: int, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "_read", lambda: DEBIAN)
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert requirements.how_to_install("gdb") == f"type: {command}"


@pytest.mark.parametrize(
    ("what", "package"), [("libgoogle-perftools4", "libgoogle-perftools4"), ("libc-symbols", "the C library")]
)
def test_an_unknown_distribution_gets_the_packages_own_name(
    what: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "_read", lambda: UNKNOWN)
    assert package in requirements.how_to_install(what)


@pytest.mark.parametrize(
    ("asks", "ok", "text"),
    [
        (Asker(1000, may_trace_all=False, scope=0), True, "own processes"),
        (Asker(1000, may_trace_all=False, scope=1), False, "sudo sysctl kernel.yama.ptrace_scope=0"),
        (Asker(1000, may_trace_all=False, scope=2), False, "none without root"),
        (Asker(0, may_trace_all=True, scope=2), True, "any process"),
        (Asker(0, may_trace_all=True, scope=3), False, "reboot"),
        (Asker(0, may_trace_all=False, scope=0), False, "--cap-add=SYS_PTRACE"),
    ],
)
def test_the_right_to_attach_is_reported_with_what_would_give_it(
    asks: Asker, ok: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "asker", lambda: asks)
    check = doctor_checks._attach_rights()
    assert check.ok is ok and text in _line(check)
    assert ok or "without it" in _line(check)


def test_what_is_there_says_nothing_of_what_would_be_lost() -> None:
    assert _line(Check("gdb", True, "13.1", without="no launch")) == "ok       gdb                13.1\n"
