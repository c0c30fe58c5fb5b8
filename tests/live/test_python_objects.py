"""Python's objects, arenas and traces, read from outside and compared with the interpreter's own figures."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gdbmem.api.python import Target, python_arenas, python_objects
from gdbmem.errors import TargetError
from gdbmem.inspection import live_process
from gdbmem.text import format_delta
from tests.cover import cover
from tests.live.explaining import Running, gdbmem, running
from tests.live.python_programs import (
    COUNTS,
    FORKED,
    INTERPRETERS,
    PAUSE,
    SPARSE,
    TRACED,
    every_third,
    pythons,
    short_name,
    version,
)
from tests.live.user import GDBMEM

# Allocations of the interpreter between its own report and its wait, such as the text of that report.
FEW_BLOCKS, FEW_BYTES = 40, 4096


def answer(*words: object) -> Any:
    done = gdbmem("python", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def counted(target: Running) -> dict[str, int]:
    return json.loads(target.output.splitlines()[-1])  # type: ignore[no-any-return]


def stats_of(command: list[str], environment: dict[str, str], tmp_path: Path) -> tuple[Any, Any, str]:
    """Run the program that counts; return its objects and arenas by gdbmem, and Python's own figures."""
    errors = tmp_path / "stats"
    words = ["/bin/sh", "-c", 'exec "$0" "$@" 2>' + str(errors), *command]
    with running(words, environment) as target:
        objects, arenas = answer("objects", target.pid), answer("arenas", target.pid)
        blocks = int(re.search(r"^blocks (\d+)", target.output, re.M)[1])  # type: ignore[index]
        objects["said"], arenas["said_blocks"] = counted(target), blocks
    return objects, arenas, errors.read_text()


@every_third(0)
def test_objects_and_arenas_are_those_that_the_interpreter_counts(python: str, tmp_path: Path) -> None:
    objects, arenas, said = stats_of([python, "-c", COUNTS], {}, tmp_path)
    mine = {one["type"].rpartition(".")[2]: one["count"] for one in objects["types"]}
    for name in ("Node", "Slot", "function", "wrapper_descriptor", "list"):
        assert abs(mine[name] - objects["said"].get(name, 0)) <= 2, name
    by_type = {one["type"]: one for one in objects["types"]}
    assert by_type["bytes"]["bytes"] >= 300 * 5033  # from malloc
    assert by_type["tuple"]["count"] >= 12000 + 40
    allocated = re.search(r"# arenas allocated current\s+=\s+([\d,]+)", said)
    in_blocks = re.search(r"# bytes in allocated blocks\s+=\s+([\d,]+)", said)
    assert allocated is not None
    assert in_blocks is not None
    assert arenas["arenas"] == int(allocated[1].replace(",", ""))
    assert abs(arenas["live_bytes"] - int(in_blocks[1].replace(",", ""))) <= FEW_BYTES
    assert arenas["live_blocks"] <= arenas["said_blocks"] + FEW_BLOCKS
    assert objects["uncounted_blocks"] == 0
    assert not objects["warnings"]


@pytest.mark.parametrize(
    "python",
    cover(
        [path for path in pythons() if version(path) >= (3, 10)],
        lambda path: path == sys.executable or version(path) == (3, 12),
    ),
    ids=short_name,
)
def test_the_objects_of_all_interpreters_of_a_process_are_counted(python: str) -> None:
    # 3.12 was the first to give each its own arenas, and keeps the lists of their pools in the interpreter's state.
    with running([python, "-c", INTERPRETERS]) as target:
        counts = {
            one["type"].rpartition(".")[2]: one["count"] for one in answer("objects", target.pid)["types"]
        }
    assert (counts["Mine"], counts["Theirs"]) == (2000, 3 * 3000)


@pytest.mark.needs("unshare")
def test_a_python_in_namespaces_of_its_own_is_counted_as_any_other() -> None:
    words = ["unshare", "--user", "--map-root-user", "--pid", "--mount-proc", "--fork", "--kill-child"]
    if subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("no namespaces can be made here")
    with running([*words, sys.executable, "-X", "tracemalloc", "-c", COUNTS]) as target:
        (pid,) = Path(f"/proc/{target.process.pid}/task/{target.process.pid}/children").read_text().split()
        objects, arenas = answer("objects", pid), answer("arenas", pid)
        traced = answer("traces", pid)["snapshots"][0]["heap_bytes"]
        (thread,) = answer("stack", pid)["threads"]
        counts = {one["type"].rpartition(".")[2]: one["count"] for one in objects["types"]}
        assert target.pid == 1, "by its own number"
    assert abs(counts["Node"] - counted(target)["Node"]) <= 2
    assert counts["Node"] == 7000
    assert arenas["live_blocks"] > 24000
    assert traced > 7000 * 48
    assert (thread["tid"], thread["frames"][0]["function"]) == (int(pid), "<module>")


def test_the_parts_of_the_ledger_are_those_of_the_arenas() -> None:
    with running([sys.executable, "-c", COUNTS]) as target:
        arenas = answer("arenas", target.pid)
        ledger = json.loads(gdbmem("explain", "--json", target.pid).stdout)
    parts = {e["label"]: e for e in ledger["entries"] if e["category"] == "allocator.pymalloc"}
    assert parts["live"]["resident_bytes"] == arenas["live_bytes"]
    assert parts["live"]["detail"]["blocks"] == arenas["live_blocks"]
    assert sum(one["resident_bytes"] for one in parts.values()) == sum(arenas["resident"].values())
    whole = arenas["live_bytes"] + arenas["free_bytes"] + arenas["header_bytes"]
    assert whole == arenas["bytes"] == arenas["arenas"] * arenas["arena_bytes"]
    assert ledger["rss_bytes"] == sum(entry["resident_bytes"] for entry in ledger["entries"])


def test_what_keeps_nearly_empty_arenas_is_named() -> None:
    with running([sys.executable, "-c", SPARSE]) as target:
        arenas = answer("arenas", target.pid)
        text = gdbmem("python", "arenas", target.pid).stdout
        explained = gdbmem("explain", target.pid).stdout
    keepers = {one["type"]: one["count"] for one in arenas["keepers"]}
    assert keepers["Keeper"] >= 50
    assert sum(one["arenas"] for one in arenas["fill"]) == arenas["arenas"]
    assert "goes back to the system when its last block is freed" in text
    assert "memory of objects that Python has freed and keeps" in explained


def test_a_type_of_which_more_came_is_reported_since_an_earlier_look(tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    code = (
        "import os, sys\nclass Leaked: pass\nkept = [Leaked() for i in range(10)]\n"
        "before = sys.getsizeof(kept)\n"
        "os.write(1, b'ready\\n'); os.read(0, 2)\nkept += [Leaked() for i in range(2000)]\n"
        "buffers = [bytearray(20000) for i in range(200)]\n"
        "said = sum(map(sys.getsizeof, [kept, buffers, *buffers])) - before - sys.getsizeof([])\n"
        "os.write(1, b'grown %d\\n' % (said - 200 * sys.getsizeof(bytearray()))); os.read(0, 2)\n"
    )
    with running([sys.executable, "-c", code]) as target:
        gdbmem("python", "objects", "--json", "-o", before, target.pid)
        said = target.type("x\n").readline().split()
        done = gdbmem("python", "objects", "--since", before, target.pid)
        grown = answer("objects", "--since", before, target.pid)
    assert done.returncode == 0, done.stderr
    assert {one["type"]: one["delta_count"] for one in grown["types"]}["Leaked"] == 2000
    assert "Leaked" in done.stdout
    # The contents of 200 bytearrays, each one block, and the items of two lists; in 3.11 and 3.12 the attributes'
    # values of the objects, too.
    assert said[0] == "grown"
    delta = grown["others"]["delta_bytes"]
    assert delta == pytest.approx(int(said[1]), rel=0.02)
    size = format_delta(delta)
    assert f"the tables and buffers beside them: {size}" in done.stdout.splitlines()[0]
    assert re.search(
        rf"^In addition: {re.escape(size)} in \+2[\d,]+ blocks of tables and buffers", done.stdout, re.M
    ), done.stdout


@every_third(2)
def test_traces_are_what_tracemalloc_itself_reports(python: str, tmp_path: Path) -> None:
    if "3.8" in subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("the tables of CPython 3.8 have another shape")
    script = tmp_path / "driver.py"
    script.write_text(TRACED)
    profile = tmp_path / "traces.pb.gz"
    with running([python, script, 5]) as target:
        traced = int(re.search(r"^traced (\d+)", target.output, re.M)[1])  # type: ignore[index]
        document = answer("traces", "--profile", profile, target.pid)
        shown = gdbmem("python", "traces", target.pid).stdout
    total = document["snapshots"][0]["heap_bytes"]
    assert abs(total - traced) <= FEW_BYTES
    assert "driver.py:4" in shown
    assert "söurce-世.py:1" in shown
    assert "are untraced" in shown
    again = json.loads(gdbmem("show", "--json", profile).stdout)
    assert again["snapshots"][0]["heap_bytes"] == total


def test_cores_hold_the_same_objects_arenas_and_traces(tmp_path: Path) -> None:
    with running([sys.executable, "-X", "tracemalloc=2", "-c", COUNTS]) as target:
        subprocess.run(["gcore", "-o", tmp_path / "core", str(target.pid)], capture_output=True, check=True)
        live = answer("objects", target.pid), answer("arenas", target.pid)
        traces = answer("traces", target.pid)
        core = tmp_path / f"core.{target.pid}"
    dead = answer("objects", "--core", core), answer("arenas", "--core", core)
    assert dead[0]["types"] == live[0]["types"]
    assert dead[1]["live_bytes"] == live[1]["live_bytes"]
    assert dead[1]["keepers"] == live[1]["keepers"]
    again = answer("traces", "--core", core)
    assert again["snapshots"][0]["heap_bytes"] == traces["snapshots"][0]["heap_bytes"]


@pytest.mark.parametrize("way", ["malloc", "debug"])
def test_objects_are_counted_with_another_allocator_too(way: str) -> None:
    with running([pythons()[-1], "-c", COUNTS], {"PYTHONMALLOC": way}) as target:
        objects = answer("objects", target.pid)
        said = counted(target)
    mine = {one["type"].rpartition(".")[2]: one["count"] for one in objects["types"]}
    for name in ("Node", "Slot", "list"):
        assert abs(mine[name] - said.get(name, 0)) <= 2, name


def test_what_is_no_such_python_is_one_sentence() -> None:
    with running(["/bin/sh", "-c", "echo ready; exec sleep 60"]) as target:
        time.sleep(0.1)
        done = gdbmem("python", "objects", target.pid)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"gdbmem: no Python is loaded in this process.*\[python-unknown\]\n", done.stderr)


def test_a_python_without_traces_learns_how_to_have_some() -> None:
    with running([sys.executable, "-c", COUNTS]) as target:
        done = gdbmem("python", "traces", target.pid)
    assert done.returncode == 1
    assert "PYTHONTRACEMALLOC=1" in done.stderr


def test_arenas_without_pymalloc_are_a_sentence() -> None:
    with running([sys.executable, "-c", COUNTS], {"PYTHONMALLOC": "malloc"}) as target:
        done = gdbmem("python", "arenas", target.pid)
    assert done.returncode == 1
    assert "started with PYTHONMALLOC=malloc, so it has no arenas" in done.stderr
    assert "[python-no-arenas]" in done.stderr


def test_objects_in_mimalloc_are_refused_by_its_name() -> None:
    python = next((one for one in pythons() if version(one) >= (3, 13)), None)
    if python is None:
        pytest.skip("no CPython here has mimalloc: 3.13 is the first")
    code = "import os; kept = [object() for i in range(9000)]; os.write(1, b'ready\\n'); os.read(0, 1)"
    with running([python, "-c", code], {"PYTHONMALLOC": "mimalloc"}) as target:
        if target.process.poll() is not None:
            pytest.skip("this CPython was built without mimalloc")
        done = gdbmem("python", "objects", target.pid)
    assert done.returncode == 1
    assert "started with PYTHONMALLOC=mimalloc, and keeps its objects in mimalloc" in done.stderr


@pytest.mark.parametrize("action", cover(["objects", "arenas", "traces"], lambda action: action == "objects"))
def test_a_process_that_ends_meanwhile_is_one_sentence(action: str) -> None:
    for delay in (0.3, 0.6):
        with running([sys.executable, "-X", "tracemalloc", "-c", COUNTS]) as target:
            words = [GDBMEM, "python", action, str(target.pid)]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as look:
                time.sleep(delay)
                os.kill(target.pid, signal.SIGKILL)
                target.process.wait()
                out, said = look.communicate(timeout=60)
        # It ended before, while, or after it was read; or just after the pause had been announced.
        assert (look.returncode == 0 and out) or re.fullmatch(PAUSE + r"gdbmem: .*\[[a-z-]+\]\n", said), said


@pytest.mark.parametrize("action", cover(["objects", "traces"], lambda action: action == "traces"))
def test_a_process_that_allocates_all_the_time_is_read_and_left_running(action: str) -> None:
    code = (
        "import os\nprint('ready', flush=True)\nkept = {}\nn = 0\n"
        "while True:\n    n += 1\n    kept[n % 50000] = (n, str(n))\n"
    )
    with running([sys.executable, "-X", "tracemalloc", "-c", code]) as target:
        time.sleep(0.5)
        document = answer(action, target.pid)
        assert document["kind"] in ("python-objects", "profile")
        state = Path(f"/proc/{target.pid}/status").read_text()
        assert re.search(r"^State:\s+R", state, re.M), state
        assert re.search(r"^TracerPid:\s+0$", state, re.M)
        assert target.process.poll() is None


def test_hold_reads_the_process_itself(tmp_path: Path) -> None:
    with running([sys.executable, "-X", "tracemalloc", "-c", COUNTS]) as target:
        copied, held = answer("objects", "--fork", target.pid), answer("objects", "--hold", target.pid)
        # What is read of the process itself for the first time becomes resident: Python's variables in its file.
        traces = [answer("traces", way, target.pid) for way in ("--hold", "--fork", "--hold")]
    assert copied["types"] == held["types"]
    assert traces[1]["snapshots"] == traces[2]["snapshots"]


def private_bytes(pid: int) -> int:
    """Return the private writable memory of *pid*, by the kernel."""
    total, counts = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"[0-9a-f]+-[0-9a-f]+ (\S+)", line)
        if head:
            counts = head[1][1] == "w"
        elif counts and line.startswith("Private_"):
            total += int(line.split()[1]) << 10
    return total


@pytest.mark.parametrize("python", [pythons()[0], pythons()[-1]])
def test_what_workers_copy_is_what_the_kernel_states_and_its_types_are_named(python: str) -> None:
    with running([python, "-c", FORKED]) as target:
        children = Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split()
        copies = answer("cow", target.pid)
        text = gdbmem("python", "cow", target.pid).stdout
        said = {int(pid): private_bytes(int(pid)) for pid in children}
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
    by_pid = {one["pid"]: one["copied_bytes"] for one in copies["workers"]}
    assert set(by_pid) == set(said)
    for pid, size in by_pid.items():
        assert size == pytest.approx(said[pid], rel=0.05, abs=128 << 10)
    # A page that the parent has written to, so that both children still share the former one, counts once.
    common = sum(one["with_siblings_bytes"] for one in copies["workers"])
    assert sum(by_pid.values()) - common <= copies["copied_bytes"] <= sum(by_pid.values())
    assert copies["copied_bytes"] == sum(copies["places"].values())
    types = {one["type"]: one for one in copies["types"]}
    assert set(list(types)[:2]) == {"str", "tuple"}
    assert types["str"]["copied_bytes"] > 10 * types.get("float", {"copied_bytes": 0})["copied_bytes"]
    named = sum(one["copied_bytes"] for one in copies["types"])
    assert named + copies["others_bytes"] == copies["in_arenas_bytes"]
    assert named > 0.9 * copies["in_arenas_bytes"]
    assert "2 forked processes" in text


def test_a_process_without_workers_is_told_so() -> None:
    with running([sys.executable, "-c", COUNTS]) as target:
        done = gdbmem("python", "cow", target.pid)
    assert done.returncode == 1
    assert "[python-no-workers]" in done.stderr


@pytest.mark.parametrize("ask", [python_objects, python_arenas])
def test_a_process_without_python_is_not_made_to_wait(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_process, "Freeze", None)  # with which every wait begins
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        with pytest.raises(TargetError, match="no Python is loaded"):
            ask(Target(other.pid))
        other.kill()


def test_a_release_beyond_the_known_is_refused_by_its_name() -> None:
    newest = max(pythons(), key=version)
    if version(newest) < (3, 13):
        pytest.skip("no CPython here publishes its version")
    # Overwrites the published version, and the offsets behind it.
    code = (
        "import ctypes, os\nruntime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, '_PyRuntime'))\n"
        "ctypes.c_uint64.from_address(runtime + 8).value = 3 << 24 | 99 << 16 | 0xF0\n"
        "ctypes.memset(runtime + 22 * 8, 0, 38 * 8)\nos.write(1, b'ready\\n'); os.read(0, 1)\n"
    )
    with running([newest, "-X", "tracemalloc", "-c", code], {"PYTHONMALLOC": "malloc"}) as target:
        for action in ("stack", "arenas"):
            done = gdbmem("python", action, target.pid)
            assert done.returncode == 1
            assert "this is CPython 3.99.0: " in done.stderr
            assert "[python-unknown]" in done.stderr
        assert "3.99" not in gdbmem("python", "traces", target.pid).stderr, "what is recognised is shown"


def test_a_reservation_of_terabytes_does_not_keep_the_answer_back() -> None:
    code = (
        "import mmap, os\nclass Kept: pass\nkept = [Kept() for i in range(3000)]\n"
        "room = mmap.mmap(-1, 1 << 41, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)\n"
        "room[1 << 40] = 1\nlarge = bytes(1 << 20)\nos.write(1, b'ready\\n'); os.read(0, 1)\n"
    )
    with running([sys.executable, "-c", code]) as target:
        found = answer("objects", target.pid)
    by_type = {one["type"]: one for one in found["types"]}
    assert by_type["Kept"]["count"] == 3000
    assert by_type["bytes"]["bytes"] >= 1 << 20
