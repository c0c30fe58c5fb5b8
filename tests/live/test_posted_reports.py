"""Reports of the tools that are installed here, compared with what the tools and programs say themselves."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gdbmem.errors import GdbmemError
from gdbmem.formats.opening import open_profile
from tests.unit.report_files import REPORTS


def made(source: str, folder: Path, *options: str) -> Path:
    program = folder / Path(source).stem
    command = [
        "g++",
        "-x",
        "c++",
        "-w",
        "-g",
        "-O1",
        *options,
        str(REPORTS / "src" / source),
        "-o",
        str(program),
    ]
    built = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if built.returncode:
        pytest.skip(f"g++ can't build {source}: {built.stderr[:200]}")
    return program


def total_of(file: Path) -> tuple[int, int]:
    found = open_profile(file).tree(0)
    assert found is not None and found.blocks is not None
    return found.bytes[0], found.blocks[0]


def test_the_leak_report_of_this_compiler_has_the_sum_that_it_prints(tmp_path: Path) -> None:
    program = made("leaks.cc", tmp_path, "-fsanitize=leak", "-fno-omit-frame-pointer")
    ended = subprocess.run(
        [program], capture_output=True, timeout=100, check=False, env={**os.environ, "LSAN_OPTIONS": ""}
    )
    if b"LeakSanitizer has encountered a fatal error" in ended.stderr:
        pytest.skip("LeakSanitizer may not trace here")
    log = tmp_path / "log"
    log.write_bytes(ended.stderr)
    found = re.search(rb"(\d+) byte\(s\) leaked in (\d+) allocation", ended.stderr)
    assert found and total_of(log) == (int(found[1]), int(found[2]))


def test_mtraces_log_holds_what_the_program_kept(tmp_path: Path) -> None:
    program, log = made("traced.c", tmp_path, "-fpermissive"), tmp_path / "log"
    variables = {**os.environ, "MALLOC_TRACE": str(log), "LD_PRELOAD": "libc_malloc_debug.so.0"}
    ended = subprocess.run([program], capture_output=True, text=True, timeout=100, check=False, env=variables)
    if not log.exists():
        pytest.skip("this libc has no libc_malloc_debug.so.0, or mtrace is in another")
    size, blocks = map(int, re.findall(r"\d+", ended.stdout))
    assert total_of(log) == (size, blocks)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_a_snapshot_of_node_has_the_objects_that_the_program_made(tmp_path: Path) -> None:
    file = tmp_path / "kept.heapsnapshot"
    subprocess.run(
        ["node", REPORTS / "src" / "kept.js", "123", file], timeout=100, check=True, capture_output=True
    )
    document = json.loads(file.read_bytes())
    nodes, fields = document["nodes"], document["snapshot"]["meta"]["node_fields"]
    sizes = nodes[fields.index("self_size") :: len(fields)]
    assert total_of(file) == (sum(sizes), len(sizes))
    found = open_profile(file).tree(0)
    assert found is not None and found.blocks is not None
    baskets = [
        found.blocks[n] for n in range(1, len(found)) if (f := found.frame_of(n)) and f.file == "Basket"
    ]
    assert baskets == [123]


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
@pytest.mark.parametrize(
    "program",
    [
        "require('v8').writeHeapSnapshot(process.argv[1])",
        "kept = new Map(); for (let n = 0; n < 5000; n++) kept.set('\\u00e9' + n, [{n}, new Uint8Array(n % 99)]);"
        "require('v8').writeHeapSnapshot(process.argv[1])",
        "const worker = new (require('worker_threads').Worker)('setInterval(() => 0, 1e6)', {eval: true});"
        "worker.on('online', async () => { (await worker.getHeapSnapshot()).pipe(require('fs')"
        ".createWriteStream(process.argv[1])).on('finish', () => process.exit(0)); })",
    ],
    ids=["empty", "map", "worker"],
)
def test_snapshots_of_node_have_all_its_bytes_and_are_refused_when_they_are_cut(
    tmp_path: Path, program: str
) -> None:
    file, cut = tmp_path / "a.heapsnapshot", tmp_path / "cut"
    subprocess.run(["node", "-e", program, file], timeout=100, check=True, capture_output=True)
    data = file.read_bytes()
    document = json.loads(data)
    nodes, fields = document["nodes"], document["snapshot"]["meta"]["node_fields"]
    sizes = nodes[fields.index("self_size") :: len(fields)]
    assert total_of(file) == (sum(sizes), len(sizes))
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    for end in ends[:-1][:: len(ends) // 15]:
        cut.write_bytes(data[:end])
        with pytest.raises(GdbmemError):
            total_of(cut)
