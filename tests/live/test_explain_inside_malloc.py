"""A process that stands inside malloc costs its ledger one block: read at the instructions that change the heap."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbmem.inspection.read_process import find_malloc, named_threads, read_process
from gdbmem.ledger.answer import answer_ledger
from gdbmem.ledger.ledger import build_ledger
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.holding.ptrace import Freeze, held_threads, machine, ptrace, wait_for
from gdbmem.linux.memory.maps import read_maps
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.process import thread_ids
from gdbmem.model.ledger import Ledger
from tests.conftest import Program
from tests.cover import cover
from tests.live.explaining import heap_of, slugs

SINGLE_STEP = 9
IN_DOUBT = {"arena-locked", "heap-changing", "mmapped-chunks-differ"}


def addresses(program: Path, start: int) -> dict[str, int]:
    """Return where the variables of *program* are, whose first mapping begins at *start*."""
    lines = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {row[2]: start + int(row[0], 16) for row in rows if len(row) == 3}


def ledgers(pid: int, program: Path, every: int) -> Iterator[tuple[Ledger, dict[str, int]]]:
    """Step the last thread of *pid* through `change()`; yield ledgers and the program's own counts inside libc.

    Each instruction is looked at once, and every *every*th of them.
    """
    mappings = read_maps(pid)
    code = next(m for m in mappings if "/libc" in m.name and "x" in m.permissions)
    variables = addresses(program, next(m.start for m in mappings if m.name == str(program.resolve())))
    seen: Counter[int] = Counter()
    tid = thread_ids(pid)[-1]
    known = machine()
    assert known is not None
    with ProcMemory(pid) as memory, TargetFiles(pid) as files, Freeze(pid) as freeze:
        malloc = find_malloc(memory, mappings, files)

        def value(name: str) -> int:
            return int.from_bytes(memory.read(variables[name], 8), "little", signed=True)

        while value("phase") & 0xFF < 2:
            ptrace(SINGLE_STEP, tid)
            wait_for(tid)
            freeze.adopt(tid)
            counter = freeze.threads[tid].program_counter
            seen[counter] += 1
            if not code.start <= counter < code.end or seen[counter] > 1 or len(seen) % every:
                continue
            threads = named_threads(pid, held_threads(freeze))
            ledger = build_ledger(read_process(pid, program.name, memory, threads, malloc))
            yield ledger, {name: value(name) for name in ("live", "current")}


@pytest.mark.skipif(machine() is None, reason="single steps are made here on known machines only")
@pytest.mark.parametrize(
    ("known", "threads", "every"),
    cover(
        [
            ("layouts", 0, 24),
            *((known, threads, 1) for known in ("layouts", "debug information") for threads in (0, 1)),
        ],
        lambda _, __, every: every > 1,
    ),
    ids=str,
)
def test_a_thread_inside_malloc_costs_a_block_and_not_the_ledger(
    program: Program, monkeypatch: pytest.MonkeyPatch, known: str, threads: int, every: int
) -> None:
    if known == "layouts":
        monkeypatch.setenv("GDBMEM_NO_DEBUG_INFO", "1")
    file = program("every_malloc", "-O1")
    process = subprocess.Popen([file, *["thread"] * threads])
    try:
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        difference, count, doubtful = None, 0, 0
        for ledger, counts in ledgers(process.pid, file, every):
            ledger.check()
            heap = heap_of(ledger)
            found = heap.live_bytes + heap.mmapped_bytes - counts["live"]
            difference = found if difference is None else difference
            assert abs(found - difference) <= counts["current"], ledger.notices
            assert slugs(ledger) <= IN_DOUBT
            assert "unknown" not in answer_ledger(ledger)
            assert ledger.releasable_bytes is not None
            count, doubtful = count + 1, doubtful + bool(slugs(ledger))
    finally:
        process.kill()
        process.wait()
    assert count * every > 900
    assert 0 < doubtful < (0.9 if threads else 0.5) * count
