"""memexplain and memtrim inside a real gdb."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.errors import InputError
from gdbmem.inspection.read_process import explain_core
from gdbmem.text import format_size
from tests.conftest import Program
from tests.live.explaining import explain, heap_of, running
from tests.live.test_explain_copy import figures as figures_of
from tests.live.user import SECONDS, packages

LOADER = Path(__file__).parents[2] / "gdbinit" / "gdbmem"
SETTINGS = ("set debuginfod enabled off", "set confirm off", "set pagination off", f"source {LOADER}")

pytestmark = pytest.mark.needs("gdb")


def gdb(
    tmp_path: Path, program: Path, *commands: str, environment: Optional[dict[str, str]] = None
) -> subprocess.CompletedProcess[str]:
    """Run *commands* in a gdb on *program*, each one although another failed."""
    words = ["gdb", "-nx", "-q", "-batch"]
    for command in (*SETTINGS, *commands):
        words += ["-ex", command]
    return subprocess.run(
        [*words, str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "XDG_DATA_HOME": packages(), **(environment or {})},
        check=False,
        timeout=SECONDS,
    )


def document(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def heap_entries(ledger: dict[str, Any]) -> list[Any]:
    return [e for e in ledger["entries"] if e["category"].startswith(("heap", "arena"))]


def test_a_wait_of_less_than_a_second_is_reported_before_it_too(program: Program, tmp_path: Path) -> None:
    path = program("freed_kept", "-pthread")
    with running([path, "holes"]) as target:
        done = gdb(tmp_path, path, f"attach {target.pid}", "memexplain", "detach")
    before, _, after = (done.stdout + done.stderr).partition("reading its ")
    under_load = r" \(on this busy machine [^)\n]+\)"
    assert re.match(rf"\d+\.\d MiB takes about [\d.]+ m?s(?: to [\d.]+ m?s|{under_load})?\n", after), (
        before,
        after,
    )


def test_the_worker_and_gdbs_own_python_give_the_same_ledger(program: Program, tmp_path: Path) -> None:
    ledgers = []
    for number, python in enumerate((None, "")):
        done = gdb(
            tmp_path,
            program("heap_known"),
            "break read",
            "run pairs 2 </dev/zero",
            f"memexplain --json -o {number}.json",
            environment={"GDBMEM_PYTHON": sys.executable if python is None else python},
        )
        assert (tmp_path / f"{number}.json").exists(), done.stderr
        ledgers.append(document(tmp_path / f"{number}.json"))
    quick, plain = ledgers
    assert heap_entries(quick) == heap_entries(plain)
    # Addresses are the same in both runs: gdb turns their randomization off.
    assert quick["heap"]["arenas"][0]["live_chunks"] == plain["heap"]["arenas"][0]["live_chunks"]
    assert all(sum(e["resident_bytes"] for e in d["entries"]) == d["rss_bytes"] for d in ledgers)
    assert {thread["arena"] for thread in quick["threads"]} == {0, 1, 2}


def test_gdb_stays_in_its_thread_and_frame(program: Program, tmp_path: Path) -> None:
    done = gdb(
        tmp_path,
        program("heap_known"),
        "break read",
        "run none 3 </dev/zero",
        "thread 3",
        "up",
        "info frame",
        "memexplain -o x",
        "info frame",
        "thread",
    )
    frames = done.stdout.split("Stack level ")[1:]
    assert frames[0].splitlines()[0] == frames[1].splitlines()[0]
    assert "Current thread is 3" in done.stdout


def test_memtrim_returns_what_it_predicted_and_since_shows_where(program: Program, tmp_path: Path) -> None:
    done = gdb(
        tmp_path,
        program("heap_known"),
        "break read",
        "run middle </dev/zero",
        "memexplain --save before -o x",
        "print $sp",
        "print $xmm0",
        "memtrim --json -o trim.json",
        "print $sp",
        "print $xmm0",
        "memexplain --since before --json -o since.json",
        "delete",
        "continue",
    )
    trimmed = document(tmp_path / "trim.json")
    predicted, returned = trimmed["predicted_bytes"], trimmed["returned_bytes"]
    assert predicted > 2 << 20
    assert abs(predicted - returned) <= 64 << 12
    since = {e["category"]: e["delta_bytes"] for e in document(tmp_path / "since.json")["entries"]}
    assert since["heap.free.releasable"] == -predicted
    values = [line.split(" = ", 1)[1] for line in done.stdout.splitlines() if line.startswith("$")]
    assert values[0] == values[2]
    assert values[1] == values[3]
    assert "exited normally" in done.stdout


def test_memtrim_says_what_it_will_call_before_it_does(program: Program, tmp_path: Path) -> None:
    called = "python import sys; from gdbmem.debugger.ledger import malloc_calls"
    done = gdb(
        tmp_path,
        program("heap_known"),
        "break read",
        "run middle </dev/zero",
        "memexplain -o x",
        f"{called}; malloc_calls.call_malloc = lambda name, *_: sys.stderr.write(f'{{name}} runs\\n')",
        "memtrim --json -o trim.json",
    )
    predicted = format_size(document(tmp_path / "trim.json")["predicted_bytes"])
    announced = f"gdbmem: calling malloc_trim(0) in the program, which should return {predicted}"
    assert f"{announced}\nmalloc_trim runs\n" in done.stderr


def test_nothing_is_called_in_a_program_whose_filter_could_end_it_for_that(
    program: Program, tmp_path: Path
) -> None:
    mmap = {"x86_64": 9, "aarch64": 222}[os.uname().machine]
    done = gdb(
        tmp_path,
        program("guarded"),
        "break serve",
        f"run seccomp kill {mmap} </dev/null",
        "memtrim",
        "memexplain --mallinfo",
        "memexplain -o ledger",
        "delete",
        "continue",
    )
    assert done.stderr.count("its seccomp filter could kill it for that") == 2
    assert "60,000 live blocks" in (tmp_path / "ledger").read_text()
    assert "exited normally" in done.stdout


def test_memtrim_in_a_server_that_works_on_meanwhile(program: Program, tmp_path: Path) -> None:
    with running([program("steady_server"), 8]) as target:
        commands = ("memtrim --json -o trim.json", "memexplain --mallinfo --json -o figures.json", "detach")
        for _ in range(4):
            done = gdb(tmp_path, program("steady_server"), f"attach {target.pid}", *commands)
            if not any(why in done.stderr for why in ("with an arena locked", "inside malloc")):
                break
        else:
            pytest.skip("a thread was inside malloc each time that gdb came")
        assert (tmp_path / "trim.json").exists(), done.stderr
        trimmed = document(tmp_path / "trim.json")
        assert abs(trimmed["predicted_bytes"] - trimmed["returned_bytes"]) <= 64 << 12
        figures = document(tmp_path / "figures.json")["figures"]
        assert [f["name"] for f in figures if f["mallinfo"] != f["ledger"]] == []
        assert target.process.poll() is None
        assert int(figures_of(target)["wrong"]) == 0


@pytest.mark.parametrize(("mode", "threads"), [("pairs", 0), ("middle", 3)])
def test_mallocs_own_figures_are_those_of_the_ledger(
    program: Program, tmp_path: Path, mode: str, threads: int
) -> None:
    done = gdb(
        tmp_path,
        program("heap_known"),
        "break read",
        f"run {mode} {threads} </dev/zero",
        "up",
        "print $xmm0",
        "memexplain --mallinfo --json -o figures.json",
        "print $xmm0",
        "memexplain --mallinfo",
        "frame",
        "delete",
        "continue",
    )
    figures = {
        f["name"]: (f["mallinfo"], f["ledger"]) for f in document(tmp_path / "figures.json")["figures"]
    }
    assert figures["uordblks"][0] > 1 << 20
    assert {name for name, (theirs, ours) in figures.items() if theirs != ours} == set()
    assert "they differ" not in done.stdout
    values = [line.split(" = ", 1)[1] for line in done.stdout.splitlines() if line.startswith("$")]
    assert values[0] == values[1]
    assert [line[:2] for line in done.stdout.splitlines() if line.startswith("#")][-1] == "#1"
    if not threads:  # gdb 13 alone, too, loses a threaded program's exit now and then
        assert "exited normally" in done.stdout


@pytest.mark.parametrize(
    ("mode", "stop", "reason"),
    [
        ("sbrk", "break _int_malloc", "thread is in "),
        ("locked", "break read", "with an arena locked"),
        ("handler", "break handling", "in a signal handler"),
    ],
)
def test_memtrim_is_refused_where_it_would_hang(
    program: Program, tmp_path: Path, mode: str, stop: str, reason: str
) -> None:
    words = (f"run {mode} </dev/zero", stop, "handle SIGUSR1 nostop noprint", "continue")
    more = ("continue 100",) if "malloc" in stop else ()  # its very first call finds no heap yet
    done = gdb(tmp_path, program("heap_faults"), "break main", *words, *more, "memtrim")
    if "not defined" in done.stderr:
        pytest.skip("this libc's internal functions have no names")
    assert reason in done.stderr, done.stdout
    assert "returned" not in done.stdout


def test_without_a_process_there_is_a_sentence(program: Program, tmp_path: Path) -> None:
    done = gdb(tmp_path, program("heap_known"), "memexplain", "memtrim", "memexplain --since nothing")
    none = "there is no process to explain; type 'run', or 'attach PID' [not-running]"
    unsaved = "no ledger was saved as 'nothing'; 'memexplain --save NAME' saves one [no-such-ledger]"
    assert " ".join(done.stderr.split()).endswith(f"{none} {none} {unsaved}")  # gdb folds long lines


def test_at_its_first_instruction_a_program_has_no_libc_yet(program: Program, tmp_path: Path) -> None:
    done = gdb(tmp_path, program("heap_known"), "starti", "memexplain --json -o x.json", "memtrim")
    assert {warning["slug"] for warning in document(tmp_path / "x.json")["warnings"]} == {"other-libc"}
    assert "malloc has allocated nothing in this process (yet)" in done.stderr


def test_a_core_is_explained_in_gdb_and_by_the_command_alike(program: Program, tmp_path: Path) -> None:
    with running([program("heap_known"), "pairs", 2]) as target:
        subprocess.run(["gcore", "-o", tmp_path / "core", str(target.pid)], capture_output=True, check=True)
        core = tmp_path / f"core.{target.pid}"
        live = heap_of(explain(target.pid))
    here = gdb(tmp_path, program("heap_known"), f"core {core}", "memexplain --json -o in.json", "memtrim")
    assert "a core can't run malloc_trim" in here.stderr
    ledger = explain_core(core)
    ledger.check()
    assert [a.live_chunks for a in heap_of(ledger).arenas] == [a.live_chunks for a in live.arenas]
    assert [a.cached_chunks for a in heap_of(ledger).arenas] == [a.cached_chunks for a in live.arenas]
    assert {entry.category: entry.detail.get("stacks") for entry in ledger.entries}["stack.thread"] == 2
    inside = document(tmp_path / "in.json")
    assert [e["resident_bytes"] for e in inside["entries"]] == [e.resident_bytes for e in ledger.entries]
    assert {warning["slug"] for warning in inside["warnings"]} >= {"core-has-no-rss"}


def test_a_program_that_has_moved_since_is_named_beside_its_core(program: Program, tmp_path: Path) -> None:
    here, moved = tmp_path / "here", tmp_path / "moved"
    shutil.copy(program("heap_known", "-static"), here)
    with running([here, "pairs"]) as target:
        subprocess.run(["gcore", "-o", tmp_path / "core", str(target.pid)], capture_output=True, check=True)
        core = tmp_path / f"core.{target.pid}"
        live = heap_of(explain(target.pid))
    here.rename(moved)
    assert heap_of(explain_core(core, program=moved)).live_chunks == live.live_chunks
    command = Path(sys.executable).with_name("gdbmem")
    done = subprocess.run(
        [command, "explain", "--core", core, "/bin/true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("gdbmem: /bin/true is not the program that left this core")
    done = subprocess.run(
        [command, "explain", "--core", core, moved], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "heap.live" in done.stdout


def test_what_python_allocates_is_recognised_in_a_core_too(tmp_path: Path) -> None:
    code = "x = [bytes(100) for i in range(50000)]; print('ready', flush=True); input()"
    with running([sys.executable, "-c", code]) as target:
        subprocess.run(["gcore", "-o", tmp_path / "core", str(target.pid)], capture_output=True, check=True)
    ledger = explain_core(tmp_path / f"core.{target.pid}")
    ledger.check()
    assert ledger.total("allocator.pymalloc") > 5 << 20
    assert "core-leaves-out" in {notice.slug for notice in ledger.notices}  # gcore writes no code


def test_a_cut_core_is_no_traceback(program: Program, tmp_path: Path) -> None:
    with running([program("heap_known"), "none"]) as target:
        subprocess.run(["gcore", "-o", tmp_path / "core", str(target.pid)], capture_output=True, check=True)
        data = (tmp_path / f"core.{target.pid}").read_bytes()
    for size in (0, 3, 64, 500, 5000, len(data) // 3, len(data) - 5000):
        (tmp_path / "cut").write_bytes(data[:size])
        try:
            explain_core(tmp_path / "cut").check()
        except InputError as error:
            assert error.slug == "bad-core"
