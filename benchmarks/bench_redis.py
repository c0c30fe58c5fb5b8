"""gdbmem explain of a Redis server of 1 GiB: beside reading its pages once, and beside the fork of its own BGSAVE."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.bench_explain import resident_bytes
from benchmarks.racing import Ratio, cpu_of, pairs
from gdbmem.linux.memory.maps import mappings_of, resident_ranges

TITLE = "explain: a Redis server of 10^7 keys, which uses jemalloc"
_TOOLS = ("redis-server", "redis-cli", "redis-benchmark")
_KEYS = 10**7
_ROUNDS, _PAUSES = 15, 21
_LEAST_RANGE = 1 << 20  # for which a dd is started
_WAIT_SECONDS = 60
_MOST_MIB, _MOST_PAUSE = 200, 0.03


def race() -> Iterator[Ratio]:
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        print(f"bench: {missing[0]} is missing", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as name, _serving(Path(name)) as server:
        explain = _Explain(server.pid, Path(name))
        read = _dd(server.pid)
        found = pairs(explain.cpu_seconds, lambda: cpu_of(["sh", "-c", read]), rounds=_ROUNDS)
        ratios = [ours / peer for ours, peer in found]
        yield Ratio("`gdbmem explain`, whole / dd that reads its resident pages once", ratios, 1)
        beside = [(ours - _start(server.pid)) / peer for ours, peer in found]
        yield Ratio("the same, less what `gdbmem explain` of a small process takes", beside, 1)
        yield Ratio(f"its peak of memory / {_MOST_MIB} MiB", [max(explain.mib) / _MOST_MIB], 1)
        yield from _pauses(server, explain, "idle")
        copies = pairs(
            lambda: server.ran(explain.pause_seconds), lambda: server.ran(server.fork_seconds), rounds=_PAUSES
        )
        ratios = [ours / peer for ours, peer in copies]
        yield Ratio("idle: processor time that the copy takes in it / the fork of its own BGSAVE", ratios)
        words = ["redis-benchmark", "-s", server.socket, "-l", "-q", "-c", "8", "-t", "get,set"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as busy:
            try:
                yield from _pauses(server, explain, "under redis-benchmark")
            finally:
                busy.kill()


def _pauses(server: _Server, explain: _Explain, how: str) -> Iterator[Ratio]:
    found = pairs(explain.pause_seconds, server.fork_seconds, rounds=_PAUSES)
    what = f"{how}: wall time for which it stands still"
    yield Ratio(f"{what} / the fork of its own BGSAVE", [ours / peer for ours, peer in found])
    yield Ratio(f"{what} / {_MOST_PAUSE * 1000:.0f} ms", [ours / _MOST_PAUSE for ours, _ in found], 1)


class _Explain:
    """Runs of `gdbmem explain`."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid, self._output = pid, folder / "ledger.json"
        self.mib: list[float] = []

    def _run(self) -> tuple[float, float]:
        command = [sys.executable, "-m", "gdbmem.cli.main", "explain", str(self._pid), "--json", "--force"]
        child = subprocess.Popen([*command, "-o", str(self._output)], stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        ledger = json.loads(self._output.read_text())
        live = sum(one["live_blocks"] for one in ledger["mallocs"])
        if live < 2 * _KEYS:
            raise RuntimeError(f"{live:,} live blocks were found, of {_KEYS:,} keys and their values")
        self.mib.append(used.ru_maxrss / 1024)
        return used.ru_utime + used.ru_stime, ledger["pause_seconds"]

    def cpu_seconds(self) -> float:
        return self._run()[0]

    def pause_seconds(self) -> float:
        return self._run()[1]


class _Server:
    """A Redis server; it listens on a socket in its folder only."""

    def __init__(self, pid: int, socket: str) -> None:
        self.pid, self.socket = pid, socket

    def ask(self, *words: str) -> str:
        command = ["redis-cli", "-s", self.socket, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def ran(self, during: Callable[[], object]) -> float:
        """Return the processor time of its first thread while *during* is called, whatever else the processors do."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/schedstat")
        before = int(path.read_text().split()[0])
        during()
        return (int(path.read_text().split()[0]) - before) / 1e9

    def fork_seconds(self) -> float:
        """Return how long the fork of a BGSAVE took by the server's own clock; the save is ended at once."""
        self.ask("bgsave")
        for number in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            os.kill(int(number), signal.SIGUSR1)  # as the server itself ends it
        while "rdb_bgsave_in_progress:1" in self.ask("info", "persistence"):
            time.sleep(0.01)
        found = re.search(r"latest_fork_usec:(\d+)", self.ask("info", "stats"))
        assert found is not None
        return int(found[1]) / 1e6


@contextlib.contextmanager
def _serving(folder: Path) -> Iterator[_Server]:
    socket = str(folder / "socket")
    command = ["redis-server", "--port", "0", "--unixsocket", socket, "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "no", "--enable-debug-command", "local"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            server, end = _Server(process.pid, socket), time.monotonic() + _WAIT_SECONDS
            while not Path(socket).exists() and time.monotonic() < end:
                time.sleep(0.01)
            server.ask("debug", "populate", str(_KEYS), "key", "16")
            yield server
        finally:
            process.kill()


def _dd(pid: int) -> str:
    """Return a script that reads the resident pages of what process *pid* may write to."""
    writable = [(m.start, m.end) for m in mappings_of(pid) if m.permissions.startswith("rw")]
    ranges = [
        (low, high) for low, high in resident_ranges(pid, writable)[0].items if high - low >= _LEAST_RANGE
    ]
    if sum(high - low for low, high in ranges) < 0.98 * resident_bytes(pid):
        raise RuntimeError("its memory is in too many pieces for dd")
    how = "of=/dev/null bs=1M iflag=skip_bytes,count_bytes status=none"
    return "\n".join(f"dd if=/proc/{pid}/mem {how} skip={low} count={high - low}" for low, high in ranges)


def _start(pid: int) -> float:
    """Return the processor time of `gdbmem explain` of a process that has hardly any memory."""
    with subprocess.Popen(["sleep", "1000"]) as small:
        try:
            return cpu_of([sys.executable, "-m", "gdbmem.cli.main", "explain", str(small.pid)])
        finally:
            small.kill()
