"""What `gdbmem python cow` calls copied, against the kernel's numbers of page frames."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gdbmem.inspection import live_process  # noqa: F401  (loads what the API needs before frames are hidden)
from gdbmem.linux.memory import pagemap
from tests.cover import cover
from tests.live.explaining import Running, gdbmem, running
from tests.live.python_programs import pythons, short_name, version

PAGE = os.sysconf("SC_PAGE_SIZE")
BELOW_ALL = 1 << 17  # bytes that parent and child touch while they are read

FAMILY = """
import gc, os, sys, time
ways = sys.argv[1].split(",")
rows = [(str(i), [i]) for i in range(60000)]
if "freeze" in ways: gc.freeze()
ready, is_ready = os.pipe()
begin, begins = os.pipe()
children = []
for number in range(2):
    pid = os.fork()
    if pid == 0:
        os.read(begin, 1)
        if "used" in ways: sum(len(row[0]) for row in rows[:30000])
        if "collected" in ways: gc.collect(); gc.collect()
        if "own" in ways: own = [(str(i), float(i)) for i in range(20000)]
        os.write(is_ready, b"x")
        time.sleep(600)
        os._exit(0)
    children.append(pid)
if "parent" in ways: more = [(str(i), float(i)) for i in range(150000)]
if "rewritten" in ways: gc.collect()
os.write(begins, b"xx")
for _ in children: os.read(ready, 1)
os.write(1, b"pid %d\\nready\\n" % os.getpid())
os.read(0, 1)
"""
SERVER = """
import multiprocessing, os, sys, time
rows = [(i, str(i)) for i in range(50000)]
def work(event):
    event.set()
    time.sleep(600)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    events = [context.Event() for _ in range(2)]
    for event in events:
        context.Process(target=work, args=(event,), daemon=True).start()
    for event in events: event.wait()
    os.write(1, b"pid %d\\nready\\n" % os.getpid())
    os.read(0, 1)
"""


_ZEROS = 1 << 24  # KPF_ZERO_PAGE: what was only read has no page of its own


def frames(pid: int) -> dict[int, int]:
    """Return the frame of each page of *pid*'s private writable mappings, by the kernel."""
    found = {}
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end, writable, private = re.match(r"(\w+)-(\w+) .(.).(.)", line).groups()  # type: ignore[union-attr]
            if (writable, private) != ("w", "p"):
                continue
            first, last = int(start, 16) // PAGE, int(end, 16) // PAGE
            entries = memoryview(os.pread(pagemap.fileno(), 8 * (last - first), 8 * first)).cast("Q")
            found.update({first + n: one & (1 << 55) - 1 for n, one in enumerate(entries) if one >> 63})
    if found and not any(found.values()):
        pytest.skip("only root may know the frames of pages here")
    flags = os.open("/proc/kpageflags", os.O_RDONLY)
    try:
        zeros = {
            one
            for one in set(found.values())
            if int.from_bytes(os.pread(flags, 8, 8 * one), sys.byteorder) & _ZEROS
        }
    finally:
        os.close(flags)
    return {page: one for page, one in found.items() if one not in zeros}


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextlib.contextmanager
def family(python: str, *words: object) -> Iterator[Running]:
    """Run a program and end it with all that it has started."""
    with running([python, *words]) as target:
        started = children_of(target.pid)
        started += [one for pid in started for one in children_of(pid)]
        try:
            yield target
        finally:
            for pid in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def cow(pid: int) -> Any:
    done = gdbmem("python", "cow", "--json", pid)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def cow_by_frames(pid: int) -> Any:
    """Return what `cow` states of *pid*, after checking it against the frames of the pages."""
    pids = children_of(pid)
    for _ in range(5):  # the kernel may join pages to huge ones at any time, which gives them other frames
        before = [frames(one) for one in (pid, *pids)]
        found = cow(pid)
        after = [frames(one) for one in (pid, *pids)]
        if all(len(one.items() ^ other.items()) * PAGE < BELOW_ALL for one, other in zip(before, after)):
            break
    parent, *children = before
    copies = set()
    workers = {one["pid"]: one for one in found["workers"]}
    assert list(workers) == pids
    for child, own in zip(pids, children):
        differ = {(page, frame) for page, frame in own.items() if parent.get(page, frame) != frame}
        same = sum(parent.get(page) == frame for page, frame in own.items())
        alone = sum(page not in parent for page in own)
        copies |= differ
        for name, count in (("copied", len(differ)), ("shared", same), ("own", alone)):
            assert workers[child][f"{name}_bytes"] == pytest.approx(count * PAGE, rel=0.05, abs=BELOW_ALL), (
                name
            )
    assert found["copied_bytes"] == pytest.approx(len(copies) * PAGE, rel=0.05, abs=BELOW_ALL)
    assert found["copied_bytes"] == sum(found["places"].values())
    return found


WAYS = ["used,parent", "collected", "used,rewritten", "freeze,collected,rewritten", "used,own,parent"]


@pytest.mark.parametrize(
    ("python", "ways"),
    cover(
        [(python, ways) for python in pythons() if version(python) >= (3, 9) for ways in WAYS],
        lambda python, ways: python == sys.executable and not ways.startswith("used,own"),
    ),
    ids=short_name,
)
def test_copies_are_the_pages_with_another_frame_whatever_the_parent_did_since(
    python: str, ways: str
) -> None:
    with family(python, "-c", FAMILY, ways) as target:
        found = cow_by_frames(target.pid)
        text = gdbmem("python", "cow", target.pid).stdout
    runs = [one["full_collections"] for one in found["workers"]]
    if "parent" not in ways:  # which makes collections, too
        assert runs == [2 * ("collected" in ways) - (ways == WAYS[3])] * 2, (
            "as the program called gc.collect()"
        )
        assert found["full_collections"] == (ways == WAYS[2])
    assert found["has_frozen"] == ("freeze" in ways)
    assert ("gc.freeze()" in text) == ("freeze" not in ways)
    assert ("there were at least 4 in 2 forked processes" in text) == (ways == "collected")
    by_all = f"process {target.pid} and 2 forked processes have copied"
    # Not the reverse: the kernel may join the parent's pages to huge ones, which CPython 3.15 asks for.
    assert ways != "used,rewritten" or by_all in text
    if "freeze" in ways:
        assert found["copied_bytes"] < 4 << 20
    if "own" in ways:
        assert "python-copies-uncertain" in json.dumps(found["warnings"])


def test_copies_are_the_same_without_the_numbers_of_the_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    from gdbmem.api.python import Target, python_copies

    with family(sys.executable, "-c", FAMILY, "used,rewritten") as target:
        known = python_copies(Target(target.pid))
        monkeypatch.setattr(pagemap, "_FRAME", 0)
        hidden = python_copies(Target(target.pid))
    assert hidden.copied_bytes == pytest.approx(known.copied_bytes, rel=0.01)
    for one, other in zip(hidden.workers, known.workers):
        assert one.copied_bytes == pytest.approx(other.copied_bytes, rel=0.01)


def test_workers_that_were_executed_anew_share_nothing_and_a_fork_server_is_named(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    with family(sys.executable, script, "spawn") as target:
        done = gdbmem("python", "cow", target.pid)
    assert (done.returncode, done.stdout) == (1, "")
    assert "shares nothing" in done.stderr
    assert "[python-no-workers]" in done.stderr
    with family(sys.executable, script, "forkserver") as target:
        done = gdbmem("python", "cow", target.pid)
        named = re.search(r"'gdbmem python cow (\d+)'", done.stderr)
        assert named is not None, done.stderr
        server = int(named[1])
        assert server in children_of(target.pid)
        assert len(cow_by_frames(server)["workers"]) == 2
