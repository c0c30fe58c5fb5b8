"""`gdbmem monitor` and what stands around a process: cgroups, a /proc that hides, disks that are full."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbmem.series.store import Recording
from tests.conftest import Program
from tests.live.control_groups import ControlGroup
from tests.live.test_monitor import LEAKS, SLEEPS, monitor, samples_in, wait_until
from tests.live.user import GDBMEM, environment, shell, skip_where_others_cannot_run_gdbmem

pytestmark = [
    pytest.mark.usefixtures("no_process_left"),
    pytest.mark.skipif(os.geteuid() != 0, reason="cgroups and mounts are root's"),
]

MIB = 1 << 20


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Yield a new memory cgroup with a limit of 100 MiB."""
    with contextlib.ExitStack() as stack:
        try:
            group = ControlGroup.make()
            stack.callback(group.remove)
            group.set_limit(100 * MIB)
        except OSError as error:
            pytest.skip(f"no memory cgroup can be made here: {error.strerror}")
        yield group.folder


def start_in(cgroup: Path, *words: str) -> subprocess.Popen[bytes]:
    def enter() -> None:
        (cgroup / "cgroup.procs").write_text("0")

    return subprocess.Popen(words, preexec_fn=enter, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_a_leak_in_a_cgroup_is_reported_when_it_will_meet_the_limit(scratch: Path, cgroup: Path) -> None:
    # 10 s from its first MiB to the limit, which is near enough to be drawn after 4 s. It begins when it is watched.
    waits = "import os, sys, time\nwhile not os.path.exists(sys.argv[3]): time.sleep(0.01)\n"
    words = [
        *[GDBMEM, "monitor", "-q", "--interval", "20ms", "--for", "4s", "--json", "--plot", "plot.svg"],
        *["--run", "run"],
    ]
    with (
        start_in(cgroup, sys.executable, "-c", waits + LEAKS, "1000", "0.1", str(scratch / "go")) as target,
        subprocess.Popen(
            [*words, str(target.pid)], cwd=scratch, env=environment(), stdout=subprocess.PIPE
        ) as watching,
    ):
        try:
            wait_until(lambda: samples_in(scratch / "run") > 0, watching)
            (scratch / "go").touch()
            said, _ = watching.communicate()
        finally:
            target.kill()
    assert watching.returncode == 0
    document = json.loads(said)
    assert document["limit_bytes"] == document["cgroup"]["limit_bytes"] == 100 * MIB
    used, cache = document["cgroup"]["last_bytes"], document["cgroup"]["cache_bytes"]
    slope = document["verdict"]["slope_bytes_per_second"]
    assert document["verdict"]["grows"], document["verdict"]
    assert not document["cgroup"]["kills"], document["cgroup"]
    assert document["seconds_to_limit"] == pytest.approx((100 * MIB - used + cache) / slope)
    assert any(sample["cgroup_bytes"] for sample in document["samples"] if sample["line"] == 0)
    assert "its limit" in (scratch / "plot.svg").read_text()
    again = monitor("run", folder=scratch)
    assert "the cgroup holds" in again.stdout
    assert "of 100.0 MiB" in again.stdout


def test_a_process_that_was_killed_at_the_limit_is_reported_to_have_been(scratch: Path, cgroup: Path) -> None:
    with start_in(
        cgroup, "sh", "-c", f'sleep 1; exec "{sys.executable}" -c "$1" 1000', "sh", LEAKS
    ) as target:
        done = monitor("-q", "--interval", "50ms", "--run", "run", str(target.pid), folder=scratch)
    assert target.returncode == -9
    assert "1 process was killed for it" in done.stdout
    assert "is reached in" not in done.stdout, "it has been"
    assert re.search(r"^the cgroup holds .* of 100.0 MiB.*; (100.0|99.\d) MiB at most", done.stdout, re.M), (
        done.stdout
    )


def test_a_program_that_enters_a_cgroup_itself_is_told_that_ones_limit(scratch: Path, cgroup: Path) -> None:
    code = f'echo $$ > {cgroup}/cgroup.procs; exec "{sys.executable}" -c "$0" 150'
    done = monitor(
        "-q", "--interval", "50ms", "--run", "run", "--", "sh", "-c", code, LEAKS, folder=scratch, status=137
    )
    assert re.search(r"^the cgroup holds .* of 100.0 MiB", done.stdout, re.M), done.stdout
    assert "1 process was killed for it" in done.stdout
    assert "is reached in" not in done.stdout, "it has been"


def test_a_cgroup_is_watched_by_its_folder_with_the_usage_the_kernel_counts(
    scratch: Path, cgroup: Path
) -> None:
    with start_in(cgroup, sys.executable, "-c", f"x = b'x' * {30 * MIB}; print('ready'); input()") as target:
        try:
            monitor("-q", "--cgroup", str(cgroup), "--for", "1s", "--run", "run", folder=scratch)
        finally:
            target.kill()
    recording = Recording(scratch / "run")
    assert recording.facts.limit_of == "the cgroup"
    assert max(value for _, value in recording.points(0, "cgroup_bytes")) < 100 * MIB


@pytest.fixture(params=[1, 2])
def place(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Yield a cgroup, of version 1 and 2, in which a monitor may make one for the program that it starts."""
    root = Path("/sys/fs/cgroup") / ("memory" if request.param == 1 else "")
    above = root / f"gdbmem-test-{os.getpid()}"
    if request.param == 1 and not (root / "memory.usage_in_bytes").exists():
        pytest.skip("no cgroup 1 counts memory here")
    if request.param == 2 and "memory" not in controllers(root):
        pytest.skip("no cgroup 2 counts memory here")
    folder = above if request.param == 1 else above / "ours"
    try:
        folder.mkdir(parents=True)
        if request.param == 2:
            (root / "cgroup.subtree_control").write_text("+memory")
            (above / "cgroup.subtree_control").write_text("+memory")
            os.setxattr(above, "trusted.delegate", b"1")
    except OSError as error:
        remove(folder, above)
        pytest.skip(f"no memory cgroup can be made here: {error.strerror}")
    yield folder
    remove(folder, above)


def controllers(root: Path) -> list[str]:
    try:
        return (root / "cgroup.controllers").read_text().split()
    except OSError:
        return []


def remove(*folders: Path) -> None:
    for folder in folders:
        for _ in range(100):
            with contextlib.suppress(OSError):
                folder.rmdir()
            if not folder.exists():
                break
            time.sleep(0.05)  # killed processes have to be waited for


def enter(folder: Path) -> None:
    (folder / "cgroup.procs").write_text("0")


HOLDS = """
import os, sys, time
held = b'p' * (30 << 20)
for worker in range(2):
    if not os.fork():
        held = b'w' * (20 << 20)
        time.sleep(3)
        os._exit(0)
time.sleep(1.5)
private = 0
for pid in [os.getpid(), *open(f"/proc/self/task/{os.getpid()}/children").read().split()]:
    for line in open(f"/proc/{pid}/smaps_rollup"):
        if line.startswith("Pss_Anon:"):
            private += int(line.split()[1]) << 10
print(private, flush=True)
for _ in range(2): os.wait()
"""


def test_a_program_that_is_started_is_counted_by_its_own_cgroup(scratch: Path, place: Path) -> None:
    done = monitor(
        "-q", "--json", "--run", "run", "--", sys.executable, "-I", "-S", "-c", HOLDS, folder=scratch,
        preexec_fn=lambda: enter(place),
    )  # fmt: skip
    document = json.loads(done.stdout)
    truth = int((scratch / "run" / "stdout").read_text())
    held = [sample["family_bytes"] for sample in document["samples"] if sample["line"] == 0]
    assert truth > 70 * MIB
    assert document["looks_by_cgroup"] >= 5
    assert max(size for size in held if size is not None) == pytest.approx(truth, rel=0.05)
    assert not list(place.glob("gdbmem.*")) and not list(place.parent.glob("gdbmem.*")), "it has been removed"


def test_a_started_program_that_is_killed_at_the_limit_is_reported_to_have_been(
    scratch: Path, place: Path
) -> None:
    ControlGroup(place).set_limit(100 * MIB)
    done = monitor(
        "-q", "--interval", "50ms", "--run", "run", "--fail-on", "step", "--", sys.executable, "-c", LEAKS, "1000",
        folder=scratch, status=125, preexec_fn=lambda: enter(place),
    )  # fmt: skip
    assert "1 process was killed for it" in done.stdout
    assert "is reached in" not in done.stdout, "it has been"
    assert "the program was ended by SIGKILL (status 137)" in done.stderr


@pytest.fixture
def own_mounts() -> None:
    """Skip if a test can't have separate mounts, as in a chroot."""
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no mounts of our own here: {tried.stderr.strip()}")


@pytest.mark.usefixtures("own_mounts")
def test_with_hidepid_only_ones_own_processes_are_found_and_that_is_reported(scratch: Path) -> None:
    skip_where_others_cannot_run_gdbmem()
    scratch.chmod(0o777)
    script = (
        "mount -t proc -o hidepid=2 proc /proc 2>/dev/null || mount -o remount,hidepid=2 /proc || exit 77\n"
        'exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"'
    )
    words = [GDBMEM, "monitor", "--plain", "--for", "600ms", "--run", f"{scratch}/run", "--", "sleep", "30"]
    with subprocess.Popen(SLEEPS) as others:
        try:
            done = subprocess.run(
                ["unshare", "-m", "sh", "-c", script, "sh", *words], cwd="/", capture_output=True, text=True,
                timeout=30, env={**os.environ, "HOME": str(scratch)},
            )  # fmt: skip
            refused = subprocess.run(
                ["unshare", "-m", "sh", "-c", script, "sh", GDBMEM, "monitor", str(others.pid)], cwd="/",
                capture_output=True, text=True, timeout=30,
            )  # fmt: skip
        finally:
            others.kill()
    if done.returncode == 77:
        pytest.skip("/proc can't be mounted anew here")
    assert done.stderr.count("/proc hides other users' processes (hidepid)") == 1, done.stderr
    assert "RSS: " in done.stdout, done.stdout + done.stderr
    assert refused.returncode == 1
    assert "with hidepid only root sees others' processes" in refused.stderr


@pytest.mark.usefixtures("own_mounts")
def test_a_disk_that_fills_up_loses_nothing_once_there_is_room_again(scratch: Path) -> None:
    script = """
mount -t tmpfs -o size=8m tmpfs "$1" || exit 77
head -c 7800k /dev/zero > "$1/filler"
said="$1/../said"
"$2" monitor --plain --interval 2ms --pss-budget 10 --run "$1/run" -o "$1/../report" "$3" 2> "$said" &
until grep -q "written at present" "$said"; do kill -0 $! || exit; sleep 0.1; done
sleep 3
rm "$1/filler"
until grep -q "written again" "$said"; do kill -0 $! || exit; sleep 0.1; done
sleep 1
kill "$3"
wait $!
status=$?
cp -r "$1/run" "$1/../kept"
exit $status
"""
    disk = scratch / "disk"
    disk.mkdir()
    with subprocess.Popen(SLEEPS) as target:
        try:
            done = subprocess.run(
                ["unshare", "-m", "sh", "-c", script, "sh", str(disk), GDBMEM, str(target.pid)],
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
        finally:
            target.kill()
    if done.returncode == 77:
        pytest.skip("no file system can be mounted here")
    said = (scratch / "said").read_text()
    assert done.returncode == 0, said
    assert "can't be written at present" in said
    assert "is being written again; no writes were lost" in said
    looks = Recording(scratch / "kept").looks()
    assert len(looks) > 100
    assert max(b - a for a, b in zip(looks, looks[1:])) < 2.5, "no gap as long as the disk was full"


@pytest.mark.usefixtures("own_mounts")
def test_on_a_disk_that_stays_full_what_was_kept_is_judged_and_the_programs_status_passed_on(
    scratch: Path,
) -> None:
    script = """
mount -t tmpfs -o size=1m tmpfs disk || exit 77
"$1" monitor --plain --interval 20ms --run disk/run --stdout /dev/null -- \
    sh -c 'sleep 2.5; head -c 2m /dev/zero >disk/filler; sleep 3; exit 7' 2>said >report
echo $? >status
"""
    (scratch / "disk").mkdir()
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", GDBMEM], cwd=scratch, check=False)
    if done.returncode == 77:
        pytest.skip("no file system can be mounted here")
    said = (scratch / "said").read_text()
    assert (scratch / "status").read_text() == "7\n", said
    assert "can't be written at present" in said
    assert "could not be written and are lost" in said
    assert "samples in " in (scratch / "report").read_text()


@pytest.mark.usefixtures("own_mounts")
def test_on_a_disk_without_room_for_a_series_no_program_is_started(scratch: Path) -> None:
    script = """
mount -t tmpfs -o size=64k tmpfs disk || exit 77
"$1" monitor --plain --run disk/run -- touch started; echo $?; ls disk
"""
    (scratch / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", GDBMEM], cwd=scratch, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("no file system can be mounted here")
    assert done.stdout == "125\n"
    assert "cannot write into the run folder" in done.stderr
    assert "full" in done.stderr
    assert not (scratch / "started").exists()


def test_in_another_pid_namespace_threads_are_a_lower_bound_and_not_an_exact_nought(
    program: Program, scratch: Path
) -> None:
    # In a container the kernel neither sends process events nor reports an error.
    enter = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace can be made here")
    words = [GDBMEM, "monitor", "-q", "--json", "--", str(program("makes_threads")), "1000"]
    done = subprocess.run([*enter, *words], cwd=scratch, capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert not document["threads_started_is_exact"]


# Keeps a MiB more each 50 ms in a file in memory that it doesn't map; prints how much.
WRITES = """
import os, sys, time
files = []
for _ in range(90):
    files.append(os.memfd_create('x'))
    os.write(files[-1], bytes(1 << 20))
    time.sleep(0.05)
print(len(files) << 20)
"""


def test_memory_that_no_process_maps_does_not_pass_as_a_level(scratch: Path, place: Path) -> None:
    options = ["-q", "--interval", "50ms", "--run", "run", "--json", "--fail-on", "growing:1MiB/min"]
    done = shell(
        GDBMEM, "monitor", *options, "--", sys.executable, "-c", WRITES,
        folder=scratch, preexec_fn=lambda: enter(place),
    )  # fmt: skip
    document = json.loads(done.stdout)
    # Where there were enough looks at the cgroup, its memory beside the processes is judged, and grows.
    is_judged = len(document["judgements"]) > 1
    assert done.returncode == (4 if is_judged else 125), done.stderr
    written = int((scratch / "run" / "stdout").read_text())
    assert written / 3 < document["outside"]["cgroup_bytes"] < 1.2 * written
    assert [one["slug"] for one in document["judgements"][0]["unseen"]] == ["outside-processes"]


# Its own /dev/shm file and page cache are charged to it, beside what it and its child map.
FILLS = """
import mmap, os, sys
def fill(area):
    for at in range(0, len(area), 4096): area[at] = 1
own = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); fill(own)
shared = mmap.mmap(-1, 8 << 20); fill(shared)
unmapped = os.memfd_create("unmapped"); os.write(unmapped, bytes(4 << 20))
with open(sys.argv[1], "wb") as file: file.write(os.urandom(16 << 20))
if not os.fork(): fill(memoryview(own)[: 8 << 20])
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def kernels_sizes(place: Path) -> dict[str, int]:
    """Return the kernel's counts of the cgroup *place*, bytes; "cache" is its page cache of files."""
    stat = {
        name: int(size) for name, size in map(str.split, (place / "memory.stat").read_text().splitlines())
    }
    is_first = (place / "memory.usage_in_bytes").exists()
    stat["usage"] = int((place / ("memory.usage_in_bytes" if is_first else "memory.current")).read_text())
    stat["anon"] = stat["rss" if is_first else "anon"]
    stat["cache"] = stat["cache" if is_first else "file"] - stat["shmem"]
    return stat


def test_the_memory_of_a_container_is_divided_to_the_byte(scratch: Path, place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", FILLS, str(scratch / "cached")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: enter(place),
    ) as program:  # fmt: skip
        assert program.stdin is not None and program.stdout is not None
        for _ in range(2):
            program.stdout.readline()
        said = subprocess.run(
            [GDBMEM, "explain", "--json", "--container", str(place)],
            capture_output=True,
            text=True,
            check=True,
        )
        named = subprocess.run(
            [GDBMEM, "explain", "--container", str(program.pid)], capture_output=True, text=True, check=True
        )
        kernels = kernels_sizes(place)
        program.stdin.close()
    found = json.loads(said.stdout)
    sizes = {entry["name"]: entry["size_bytes"] for entry in found["entries"]}
    assert sum(sizes.values()) == found["usage_bytes"]
    assert sizes["tmpfs files, memfds, System V segments"] == pytest.approx(4 * MIB, abs=MIB / 4)
    assert sizes["shared memory and tmpfs files"] == pytest.approx(8 * MIB, abs=MIB / 4)
    assert 40 * MIB <= sizes["anonymous memory: heaps, stacks, arenas"] < 60 * MIB
    assert 16 * MIB <= sizes["page cache of files"] < 20 * MIB
    assert sum(one["anonymous_bytes"] for one in found["processes"]) == pytest.approx(
        sizes["anonymous memory: heaps, stacks, arenas"], abs=MIB / 2
    )
    assert abs(sizes.get("not told by the kernel", 0)) <= MIB / 2
    parts = {
        "anon": ["anonymous memory: heaps, stacks, arenas", "other anonymous memory"],
        "shmem": ["shared memory and tmpfs files", "tmpfs files, memfds, System V segments"],
        "cache": ["page cache of files"],
        "pagetables": ["page tables"],
        "kernel_stack": ["kernel stacks of threads"],
        "sock": ["buffers of sockets"],
    }
    for name in kernels.keys() & parts.keys():
        told = sum(sizes.get(each, 0) for each in parts[name])
        assert told == pytest.approx(kernels[name], abs=MIB / 4), name
    assert found["usage_bytes"] == pytest.approx(kernels["usage"], abs=MIB / 2)
    assert str(place) in named.stdout and "2 processes" in named.stdout
