"""CPU time for BFC pools: a million chunks, stock TensorFlow, long logs, PyTorch's snapshots of about a gigabyte."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes import reading
from benchmarks.racing import Ratio, cpu_of, peak_mib, ratios

TITLE = "BFC pools: processes, logs, PyTorch's snapshots, CPU time"
CHUNKS, LOG_BYTES, ENTRIES = 1_000_000, 50_000_000, 1_000_000
ROUNDS = 3
EXPLAIN = (sys.executable, "-m", "gdbmem.cli.main", "explain")
GDBMEM = (sys.executable, "-m", "gdbmem.cli.main", "bfc")
TESTS = Path(__file__).parents[1] / "tests"
_LOG = TESTS / "captures/bfc/tensorflow-2.21.log"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_TENSORFLOW = _CACHE / "gdbmem/bfc/newest"
_UNPICKLED = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
_LINES = "import sys; print(sum(len(line.split()) for line in open(sys.argv[1])))"


def race() -> Sequence[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        return [*_processes(here), *_logs(here), *_snapshots(here)]


def _processes(here: Path) -> Iterator[Ratio]:
    program = here / "pool"
    source = TESTS / "programs/bfc_pool.cpp"
    subprocess.run(("g++", "-O1", "-g", "-DLAYOUT=2024", source, "-o", program, "-pthread"), check=True)
    yield from _walked([str(program)], f"many {CHUNKS}", f"a pool of {CHUNKS:,} chunks", (100, 19), {})
    if not (_TENSORFLOW / "ready").exists():
        print("bench: no TensorFlow; type: scripts/setup bfc", file=sys.stderr)
        return
    words = [str(_TENSORFLOW / "bin/python"), str(TESTS / "programs/bfc/tensorflow_server.py")]
    yield from _walked(words, "grow 40", "stock TensorFlow", (30, 5.5), {"CUDA_VISIBLE_DEVICES": ""})


def _walked(
    command: Sequence[str], order: str, name: str, at_most: tuple[float, float], more: Mapping[str, str]
) -> Iterator[Ratio]:
    """Yield the CPU time to the answer about the process that *command* starts, and its pause."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **more},
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdout.readline()
            process.stdin.write(order + "\n")
            process.stdin.flush()
            process.stdout.readline()
            words = (*GDBMEM, str(process.pid))
            took = ratios(lambda: cpu_of(words), lambda: cpu_of(reading(process.pid)), rounds=ROUNDS)
            copy = (*EXPLAIN, str(process.pid), "--fork")
            pauses = ratios(lambda: _pause(words), lambda: _pause(copy), rounds=ROUNDS, warmups=0)
        finally:
            process.kill()
    yield Ratio(f"{name}, found and walked / a Python that reads the process's memory once", took, at_most[0])
    yield Ratio(f"{name}: wall time for which it stands still / `explain --fork`", pauses, at_most[1])


def _pause(words: Sequence[str]) -> float:
    """Return the seconds for which *words*, a command with --json, stops its process."""
    done = subprocess.run((*words, "--json"), capture_output=True, check=True)
    return float(json.loads(done.stdout)["pause_seconds"])


def _logs(here: Path) -> Iterator[Ratio]:
    text = _LOG.read_text()
    many = here / "many.log"
    many.write_text(text * (LOG_BYTES // len(text)))
    one = here / "one.log"
    one.write_text(_one_dump(text))
    for path, name in ((many, f"{LOG_BYTES // len(text):,} dumps"), (one, "one dump")):
        found = ratios(
            lambda: cpu_of((*GDBMEM, path)),  # noqa: B023
            lambda: cpu_of((sys.executable, "-c", _LINES, path)),  # noqa: B023
            rounds=ROUNDS,
            warmups=0,
        )
        size = f"{path.stat().st_size / 1e6:.0f} MB"
        yield Ratio(f"a log of {size}, {name} / a Python that splits its lines into words", found, 27)


def _one_dump(text: str) -> str:
    """Return the first dump of *text* with so many chunks of 256 B more that it is as long as a long log."""
    lines = text.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if "Next region of size" in line)
    head = lines[at].partition("Next region")[0]
    count = LOG_BYTES // (len(head) + len("InUse at 500000000000 of size 256 next 100000\n"))
    region = [f"{head}Next region of size {count * 256}\n"]
    for n in range(count):
        following = n + 1000 if n + 1 < count else (1 << 64) - 1
        region.append(f"{head}InUse at {0x500000000000 + n * 256:x} of size 256 next {following}\n")
    return "".join([*lines[:at], *region, *lines[at:]])


def _snapshots(here: Path) -> Iterator[Ratio]:
    path = here / "snapshot.pickle"
    with path.open("wb") as stream:
        pickle.dump(_snapshot(), stream, protocol=4)
    ours, peer = (*GDBMEM, path), (sys.executable, "-c", _UNPICKLED, path)
    label = f"a snapshot of {path.stat().st_size / 1e6:.0f} MB / `pickle.load`"
    yield Ratio(label, ratios(lambda: cpu_of(ours), lambda: cpu_of(peer), rounds=ROUNDS, warmups=0), 4)
    yield Ratio(f"{label}: memory", [peak_mib(ours) / peak_mib(peer)], 0.35)


def _snapshot() -> dict[str, Any]:
    """Return what torch.cuda.memory._snapshot() does for 40,000 blocks and a long history of 30 frames an entry."""
    chance = random.Random(5)
    folder = "/opt/conda/lib/python3.11/site-packages/torch/nn/modules"
    frames = [
        {"name": f"function_{n % 997}", "filename": f"{folder}/module_{n % 97}.py", "line": n % 4999}
        for n in range(5000)
    ]
    segments, address = [], 0x7F0000000000
    for _ in range(2000):
        blocks, at = [], address
        for number in range(20):
            size = chance.choice([512, 1024, 2 << 20, 8 << 20])
            state = "active_allocated" if number % 3 else "inactive"
            stack = chance.sample(frames, 30)
            blocks.append(
                {"address": at, "size": size, "requested_size": size - 100, "state": state, "frames": stack}
            )
            at += size
        used = sum(block["size"] for block in blocks if block["state"] == "active_allocated")  # type: ignore[misc]
        segments.append(
            {
                "device": 0, "address": address, "total_size": at - address, "allocated_size": used,
                "active_size": used, "requested_size": 0, "stream": 0, "segment_type": "large",
                "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
            }
        )  # fmt: skip
        address = at + (64 << 20)
    actions = ("alloc", "free_requested", "free_completed")
    stacks = [chance.sample(frames, 30) for _ in range(20_000)]
    entries = [
        {
            "action": chance.choice(actions), "addr": 0x7F0000000000 + n * 512, "size": 512, "stream": 0,
            "time_us": 1_700_000_000_000_000 + n, "frames": list(chance.choice(stacks)),
        }
        for n in range(ENTRIES)
    ]  # fmt: skip
    return {
        "segments": segments,
        "device_traces": [entries],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1},
    }
