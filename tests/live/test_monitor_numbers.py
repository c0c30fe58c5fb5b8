"""The numbers of `gdbmem monitor` beside those of psutil and the kernel, and which processes they are of."""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import psutil
import pytest

from gdbmem.api.ledgers import explain_workers
from gdbmem.linux.monitoring.children import listen
from gdbmem.model.series import TREE
from gdbmem.runs.run import DATABASE
from gdbmem.series.filling import total_points
from gdbmem.series.store import Recording
from tests.conftest import Program
from tests.live.explaining import huge_pages
from tests.live.test_monitor import monitor, wait_until
from tests.live.user import GDBMEM, shell

pytestmark = pytest.mark.usefixtures("no_process_left")

OPENMP = Path(__file__).parents[2] / "examples" / "openmp"
LLVM = sorted(Path("/usr/lib").glob("llvm-*/lib/libomp.so.5"))
# Holds a heap, private and shared pages, open files and threads, then sleeps for good.
HOLDS = f"""
import mmap, threading, time
shared = mmap.mmap(-1, 8 << 20); shared[:] = b's' * len(shared)
private = mmap.mmap(-1, 12 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); private[:] = b'p' * len(private)
heap = [bytes({mmap.PAGESIZE // 4}) for _ in range(3000)]
files = [open('/dev/null') for _ in range(17)]
for _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()
print('ready', flush=True)
threading.Event().wait()
"""


# Four processes that map three pages of hugetlbfs together, each two of them.
SHARES_HUGE_PAGES = """
import mmap, os, sys, time
sharing = mmap.MAP_SHARED if sys.argv[1] == 'shared' else mmap.MAP_PRIVATE
pool = mmap.mmap(-1, 6 << 20, flags=sharing | mmap.MAP_ANONYMOUS | 0x40000)
pool[0] = pool[2 << 20] = 1
for number in range(3):
    if os.fork() == 0:
        if sharing == mmap.MAP_SHARED: pool[(number % 2 + 1) << 21] = 1
        if number == 0 and sharing == mmap.MAP_PRIVATE: pool[0] = 2
        os.write(1, b'x')
        time.sleep(600)
while True: time.sleep(600)
"""


@pytest.fixture
def starts() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a process and waits for its first line; it is killed afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str, **options: Any) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options))
        assert started[-1].stdout is not None
        assert started[-1].stdout.readline()
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def recorded(scratch: Path, *words: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(monitor("-q", "--json", *words, folder=scratch).stdout)
    return document


def last_known(document: dict[str, Any], line: int, key: str) -> Any:
    return [s[key] for s in document["samples"] if s["line"] == line and s[key] is not None][-1]


@pytest.fixture(scope="module")
def of_a_holder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], psutil.Process]]:
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield (
            recorded(tmp_path_factory.mktemp("holder"), "--for", "1s", str(process.pid)),
            psutil.Process(process.pid),
        )
        process.kill()


@pytest.mark.parametrize("sharing", ["shared", pytest.param("private", marks=pytest.mark.thorough)])
def test_pages_of_hugetlbfs_that_processes_share_count_once_in_the_total(
    tmp_path: Path, sharing: str
) -> None:
    # PostgreSQL's buffers: by the sum of its processes they would be many times the memory of the machine.
    words = [sys.executable, "-c", SHARES_HUGE_PAGES, sharing]
    with (
        huge_pages(5),
        subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as parent,
    ):
        try:
            assert parent.stdout is not None and parent.stdout.read(3)
            document = recorded(tmp_path, "--for", "0.5s", str(parent.pid))
            ledger = explain_workers(parent.pid)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
    # Of two private pages the first child has written one, so it has its own.
    assert last_known(document, TREE, "hugetlb_bytes") == ledger.hugetlb_bytes == 3 * (2 << 20)


def totals_in(run: Path) -> int:
    try:
        return sum(1 for _ in Recording(run).points(TREE, "pss_bytes"))
    except Exception:  # noqa: BLE001  (it is just being made)
        return 0


def sum_of(process: psutil.Process, name: str, field: str) -> int:
    found = [m for m in process.memory_maps(grouped=False) if m.path == name]
    return sum(getattr(m, field) for m in found)


def status_of(process: psutil.Process, name: str) -> int:
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0]) * 1024


@pytest.mark.parametrize(
    ("key", "truth"),
    [
        ("rss_bytes", lambda p: p.memory_info().rss),
        ("shared_bytes", lambda p: p.memory_info().shared),
        ("pss_bytes", lambda p: p.memory_full_info().pss),
        ("uss_bytes", lambda p: p.memory_full_info().uss),
        ("swap_bytes", lambda p: p.memory_full_info().swap),
        ("anonymous_bytes", lambda p: status_of(p, "RssAnon")),
        ("file_bytes", lambda p: status_of(p, "RssFile")),
        ("shmem_bytes", lambda p: status_of(p, "RssShmem")),
        ("private_dirty_bytes", lambda p: sum(m.private_dirty for m in p.memory_maps(grouped=False))),
        ("heap_bytes", lambda p: sum_of(p, "[heap]", "rss")),
        ("stack_bytes", lambda p: sum_of(p, "[stack]", "rss")),
        ("threads", lambda p: p.num_threads()),
        ("open_files", lambda p: p.num_fds()),
        ("cpu_seconds", lambda p: sum(p.cpu_times()[:2])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_number_of_a_process_is_what_psutil_reads(
    of_a_holder: tuple[dict[str, Any], psutil.Process], key: str, truth: Callable[[psutil.Process], float]
) -> None:
    document, process = of_a_holder
    expected = truth(process)
    # The monitor, another Python, shared the interpreter's own pages while it looked.
    shares = key in ("pss_bytes", "uss_bytes")
    assert last_known(document, 1, key) == pytest.approx(expected, rel=0.05 if shares else 0.01, abs=0.011)
    assert expected > 0 or key == "swap_bytes", "else nothing is compared"


def test_page_faults_are_those_that_the_program_counts_itself(scratch: Path) -> None:
    code = (
        "import mmap, resource, time\n"
        "pages = mmap.mmap(-1, 40 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); pages[:] = b'x' * len(pages)\n"
        "time.sleep(2.5); print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt, flush=True); time.sleep(0.5)\n"
    )
    document = recorded(scratch, "--run", "run", "--", sys.executable, "-c", code)
    truth = int((scratch / "run" / "stdout").read_text())
    assert last_known(document, 1, "minor_faults") == pytest.approx(truth, rel=0.05)


def test_all_processes_of_a_user_are_found_and_no_others(
    scratch: Path, starts: Callable[..., subprocess.Popen[str]]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has somebody else to be")
    uid = 54_321  # of no other process
    words = ["sh", "-c", "echo ready; exec sleep 60"]
    theirs = {starts(*words, preexec_fn=lambda: os.setuid(uid)).pid for _ in range(2)}
    starts(*words)
    document = recorded(scratch, "--for", "700ms", "--user", str(uid))
    assert {line["pid"] for line in document["processes"]} == theirs


def test_a_search_by_name_ends_with_the_last_of_them_when_it_is_asked_to(
    scratch: Path, starts: Callable[..., subprocess.Popen[str]]
) -> None:
    named = starts("sh", "-c", "echo ready; read line; : only-this-one", stdin=subprocess.PIPE)
    words = [GDBMEM, "monitor", "-q", "--name", ": only-this-one$", "--until-exit", "--run", "run"]
    with subprocess.Popen(words, cwd=scratch, stdout=subprocess.DEVNULL) as watching:
        wait_until(lambda: lines_of(scratch / "run") == [named.pid])
        assert watching.poll() is None
        named.communicate("\n")
        assert watching.wait(20) == 0


def lines_of(run: Path) -> list[int]:
    if not (run / "series.sqlite").exists():
        return []
    return [line.pid for line in Recording(run).lines]


def test_a_child_is_followed_when_its_parent_has_gone(
    scratch: Path, starts: Callable[..., subprocess.Popen[str]]
) -> None:
    parent = starts("sh", "-c", "sleep 60 >/dev/null & echo $!; read line", stdin=subprocess.PIPE)
    (child,) = psutil.Process(parent.pid).children()
    words = [GDBMEM, "monitor", "-q", "--interval", "50ms", "--run", "run", str(parent.pid)]
    with subprocess.Popen(words, cwd=scratch, stdout=subprocess.DEVNULL) as watching:
        wait_until(lambda: child.pid in lines_of(scratch / "run"))
        parent.communicate("\n")
        assert child.ppid() != parent.pid
        gone = len(list(Recording(scratch / "run").points(2, "rss_bytes")))
        wait_until(lambda: len(list(Recording(scratch / "run").points(2, "rss_bytes"))) > gone + 5)
        assert watching.poll() is None, "something is left to watch"
        child.kill()
        assert watching.wait(20) == 0


def test_no_children_are_followed_when_none_are_wanted(
    scratch: Path, starts: Callable[..., subprocess.Popen[str]]
) -> None:
    parent = starts("sh", "-c", "sleep 60 >/dev/null & echo $!; wait")
    document = recorded(scratch, "--no-children", "--for", "500ms", str(parent.pid))
    assert [line["pid"] for line in document["processes"]] == [parent.pid]
    for child in psutil.Process(parent.pid).children():
        child.kill()


def test_a_process_that_executes_another_program_keeps_its_line_under_the_new_name(
    scratch: Path, starts: Callable[..., subprocess.Popen[str]]
) -> None:
    shell = starts("sh", "-c", "echo ready; read line; exec sleep 60", stdin=subprocess.PIPE)
    words = [GDBMEM, "monitor", "-q", "--interval", "50ms", "--run", "run", str(shell.pid)]
    with subprocess.Popen(words, cwd=scratch, stdout=subprocess.DEVNULL) as watching:
        wait_until(lambda: lines_of(scratch / "run") == [shell.pid])
        assert shell.stdin is not None
        shell.stdin.write("\n")
        shell.stdin.flush()
        wait_until(lambda: [line.name for line in Recording(scratch / "run").lines] == ["sleep"])
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 0
    (line,) = Recording(scratch / "run").lines
    assert (line.pid, line.command, line.respawns) == (shell.pid, "sleep 60", 0)
    assert line.names == "sh, then sleep", "what the shell held is on this line, too"


@pytest.fixture(scope="module")
def teams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("openmp")
    words = ["gcc", "-O1", "-fopenmp", "-o", str(folder / "teams"), str(OPENMP / "teams.c")]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("this compiler has no OpenMP")
    return folder / "teams"


ROUNDS = 300


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    ("sizes", "library", "started"),
    # Four surplus threads end with each narrow team, and four more begin with the next wide one.
    [((8, 4), "GNU", 4 * ROUNDS + 3), ((4, 4), "GNU", 3), ((8, 4), "LLVM", 7)],
    ids=["GNU-8-4", "GNU-4-4", "LLVM-8-4"],
)
def test_the_churn_of_a_thread_team_that_changes_size_is_counted_and_what_it_costs_shown(
    scratch: Path, teams: Path, sizes: tuple[int, int], library: str, started: int
) -> None:
    if library == "LLVM" and not LLVM:
        pytest.skip("LLVM's OpenMP isn't installed")
    if (events := listen()) is None:
        pytest.skip("process events can't be read here: the count would be a lower bound")
    events.close()
    words = [str(teams), *map(str, sizes), str(ROUNDS)]
    words = ["env", f"LD_PRELOAD={LLVM[0]}", *words] if library == "LLVM" else words
    document = recorded(scratch, "--interval", "10ms", "--", *words)
    assert document["threads_started"] == pytest.approx(started, abs=1), "LLVM's has a thread of its own"
    assert document["threads_started_is_exact"]
    sizes_seen = [s["rss_bytes"] for s in document["samples"] if s["line"] == TREE and s["rss_bytes"]]
    lost = 4 * ROUNDS * 20_000  # the workspaces that ended threads leave behind
    assert (max(sizes_seen) > lost / 2) is (started > ROUNDS)


def kept_output(scratch: Path, *words: str) -> tuple[dict[str, Any], str]:
    document = recorded(scratch, "--run", "run", "--pss-budget", "5", *words)
    return document, (scratch / "run" / "stdout").read_text()


def test_what_forked_workers_have_copied_is_counted_by_process_and_not_once_a_line(scratch: Path) -> None:
    code = """
import os, time
data = [("name %d" % i, float(i)) for i in range(150_000)]
def dirty():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:")) << 10
for epoch in range(3):
    pipes = []
    for worker in range(3):
        out, into = os.pipe()
        if not os.fork():
            before = dirty()
            for part in range(20):
                for name, _ in data[worker * 50_000 + part * 2_500:][:2_500]: len(name)
                time.sleep(0.05)
            os.write(into, b"%d" % (dirty() - before))
            time.sleep(0.4)  # until the monitor has looked
            os._exit(0)
        os.close(into)
        pipes.append(out)
    print(sum(int(os.read(pipe, 100)) for pipe in pipes), flush=True)
    for _ in pipes: os.wait()
"""
    document, output = kept_output(scratch, "--", sys.executable, "-c", code)
    assert document["copied_bytes"] == pytest.approx(sum(map(int, output.split())), rel=0.15)
    assert document["copiers"] == 9
    times = {sample["t"] for sample in document["samples"] if sample["line"] == TREE}
    reads = {s["t"] for s in document["samples"] if s["line"] == TREE and s["pss_bytes"]}
    between = document["looks_by_cgroup"] + document["looks_by_rss"]
    assert between + len(reads) > 0.8 * len(times), "a total at every look"


def test_no_total_is_made_of_a_parent_from_before_its_children_went_and_of_children_that_have_gone(
    scratch: Path,
) -> None:
    code = """
import os, time
kept = bytearray(b"x" * (40 << 20))
print(time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
for _ in range(10):
    for _ in range(4):
        if not os.fork():
            time.sleep(0.3)
            os._exit(0)
    for _ in range(4): os.wait()
print(time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
time.sleep(0.5)
"""
    document, output = kept_output(scratch, "--interval", "50ms", "--", sys.executable, "-c", code)
    begin, end = (float(word) - Recording(scratch / "run").facts.boot_seconds for word in output.split())
    totals = [s["pss_bytes"] for s in document["samples"] if s["line"] == TREE and begin < s["t"] < end]
    assert sum(total is not None for total in totals) >= 1
    assert min(total for total in totals if total is not None) >= 40 << 20


def test_the_total_of_workers_that_were_running_already_follows_what_they_copy_at_every_look(
    scratch: Path, starts: Callable[..., subprocess.Popen[str]]
) -> None:
    code = """
import os, time
data = [("name %d" % i, float(i)) for i in range(300_000)]
print("ready", flush=True)
for worker in range(3):
    if not os.fork():
        for part in range(40):
            for name, _ in data[worker * 100_000 + part * 2_500:][:2_500]: len(name)
            time.sleep(0.15)
        os._exit(0)
for _ in range(3): os.wait()
time.sleep(60)
"""
    # On a busy machine a single PSS may take all of its budget, or the workers get to write little.
    for run in ("run", "again", "at last"):
        parent = starts(sys.executable, "-c", code)
        words = ["--interval", "100ms", "--pss-budget", "2", "--for", "3s", "--run", run, str(parent.pid)]
        recorded(scratch, *words)
        points = total_points(Recording(scratch / run))
        sizes = [size for _, size in points.points][
            3:
        ]  # what a worker writes right after its fork comes at once
        # The first totals are estimates, a little too large on a busy machine.
        risen = max(sizes, default=0) - min(sizes, default=0)
        if points.by_rss and risen > 2 << 20:
            break
    assert points.by_rss > 0
    assert points.by_cgroup == 0, "a program that runs already is not moved"
    assert risen > 2 << 20
    rises = [b - a for a, b in zip(sizes, sizes[1:])]
    assert max(rises) < 0.5 * risen, "it rises little by little, and not from read to read"


LARGER = "import os, sys\nheld = b'x' * (400 << 20)\nos.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.parametrize("where", ["itself", "a child", "a child beside other programs"])
def test_a_spike_between_two_looks_is_in_the_peak_also_where_a_larger_process_started_the_monitor(
    scratch: Path, starts: Callable[..., subprocess.Popen[str]], where: str
) -> None:
    spike = "m = mmap.mmap(-1, 200 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000); m.close()"
    if where != "itself" and os.geteuid():
        pytest.skip("the kernel tells root alone of processes that have ended")
    code = f"import mmap, os, time\ntime.sleep(0.7)\n{spike}\ntime.sleep(0.5)"
    if where != "itself":
        code = f"import mmap, os, time\nif not os.fork():\n  time.sleep(1.5); {spike}; os._exit(0)\nos.wait()"
    if where == "a child beside other programs":  # each of which the kernel reports, too
        starts("sh", "-c", "echo ready; while :; do /bin/true; done")
    words = [GDBMEM, "monitor", "-q", "--json", "--interval", "20s", "--", sys.executable, "-c", code]
    done = subprocess.run(
        [sys.executable, "-c", LARGER, *words], cwd=scratch, capture_output=True, check=True, timeout=60
    )
    document = json.loads(done.stdout)
    if where != "itself" and not document["spikes"] and b"process events can't be read" in done.stderr:
        pytest.skip("here a child is known only if it was there at a look")
    kernels = [document["peak_bytes"] if where == "itself" else document["spikes"][0]["rss_bytes"]]
    assert kernels == [pytest.approx(205 << 20, rel=0.06)]
    assert max(s["rss_bytes"] or 0 for s in document["samples"]) < 100 << 20, "no look has seen it"


def test_the_copy_that_explain_makes_is_no_process_of_the_program_and_halves_nothing(
    scratch: Path, starts: Callable[..., subprocess.Popen[str]]
) -> None:
    code = (
        "import os, time\nheld = b'x' * (60 << 20)\nos.fork() and print('ready', flush=True)\ntime.sleep(60)"
    )
    parent = starts(sys.executable, "-c", code)
    words = [GDBMEM, "monitor", "-q", "--json", "--run", "run", "--interval", "50ms", "--pss-budget", "50"]
    with subprocess.Popen([*words, str(parent.pid)], cwd=scratch, stdout=subprocess.PIPE) as watching:
        wait_until(lambda: totals_in(scratch / "run") > 2)
        for _ in range(2):
            shell(GDBMEM, "explain", "--fork", str(parent.pid), check=True)
        wait_until(lambda: totals_in(scratch / "run") > 5)
        watching.send_signal(signal.SIGINT)
        document = json.loads(watching.communicate(timeout=20)[0])
    (child,) = psutil.Process(parent.pid).children()
    child.kill()
    assert {line["pid"] for line in document["processes"]} == {parent.pid, child.pid}
    sizes = [s["pss_bytes"] for s in document["samples"] if s["line"] == TREE and s["pss_bytes"]]
    assert len(sizes) > 5
    assert min(sizes) > 0.95 * max(sizes) > 55 << 20


def test_what_a_process_shares_with_its_parent_as_threads_do_is_counted_once(
    program: Program, scratch: Path
) -> None:
    words = [GDBMEM, "monitor", "-q", "--json", "--interval", "50ms", "--pss-budget", "50"]
    done = shell(*words, "--", program("has_watcher"), "1500", folder=scratch)
    document = json.loads(done.stdout)
    assert len(document["processes"]) == 2
    sizes = [s["pss_bytes"] for s in document["samples"] if s["line"] == TREE and s["pss_bytes"]]
    assert len(sizes) > 2 and 64 << 20 < max(sizes) < 70 << 20, sizes
    assert not document["samples"][-1].get("copied_bytes")


def test_a_monitor_keeps_the_locks_by_which_readers_know_that_it_writes(scratch: Path) -> None:
    words = [GDBMEM, "monitor", "-q", "--interval", "50ms", "--run", "run", "--", "sleep", "4"]
    with subprocess.Popen(words, cwd=scratch, stdout=subprocess.DEVNULL) as watching:
        glances = scratch / "run" / "series.glances"
        wait_until(lambda: glances.exists() and b"@" in glances.read_bytes())
        files = {name: (scratch / "run" / name).stat().st_ino for name in (DATABASE, f"{DATABASE}-shm")}
        locks = re.findall(r"POSIX .* [0-9a-f]+:[0-9a-f]+:(\d+) ", Path("/proc/locks").read_text())
        for _ in range(3):
            assert list(Recording(scratch / "run").samples())
    assert watching.returncode == 0
    # Without them a reader takes itself for the first one, and truncates what the monitor has mapped.
    assert set(files.values()) <= set(map(int, locks))
