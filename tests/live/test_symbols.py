"""Raw addresses named through gdb, against google-pprof on the same files."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import threading
import time
from ctypes.util import find_library
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gdbmem.formats.addresses import Binary
from gdbmem.linux.elf.objects import read_elf
from gdbmem.symbols import address_names
from tests.conftest import PROGRAMS, Program
from tests.live.user import GDBMEM, environment, shell

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]


@pytest.fixture
def heap(program: Program, tmp_path: Path, own_cache: Path) -> Path:
    """Return the last dump of a program whose copy stands beside it, so that it may be changed."""
    if find_library("tcmalloc") is None:
        pytest.skip("libtcmalloc missing: scripts/setup installs it")
    copy = tmp_path / "keeps"
    shutil.copy(program("keeps"), copy)
    env = {**environment(), "LD_PRELOAD": "libtcmalloc.so.4", "HEAPPROFILE": str(tmp_path / "h")}
    subprocess.run([str(copy)], check=True, capture_output=True, env=env)
    return sorted(tmp_path.glob("h.*.heap"))[-1]


def show(path: Path, *words: str) -> dict[str, Any]:
    ended = shell(GDBMEM, "show", str(path), "--json", *words, check=True)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.needs("google-pprof")
def test_each_function_holds_what_google_pprof_reports(heap: Path) -> None:
    text = subprocess.run(["google-pprof", "--text", "--show_bytes", str(heap.parent / "keeps"), str(heap)],
                          capture_output=True, text=True, check=True).stdout  # fmt: skip
    found = re.findall(r"^ *(\d+) +[\d.]+% +[\d.]+% +\d+ +[\d.]+% (\S+)", text, re.M)
    theirs = {name.split("::")[-1]: int(size) for size, name in found}
    paths = [path for path in show(heap, "--by", "path")["sites"]["paths"] if path["frames"]]
    ours = sum(p["after_bytes"] for p in paths if (p["frames"][0]["function"] or "").startswith("keep("))
    assert ours == theirs["keep"] == 300 * 4096


def test_inlined_callers_and_lines_are_those_of_the_source(heap: Path) -> None:
    paths = show(heap, "--by", "path")["sites"]["paths"]
    first = next(path for path in paths if path["after_bytes"] == 300 * 4096)
    names = [frame["function"].partition("(")[0] for frame in first["frames"]]
    assert names[-1] == "main" and {"keep", "batch"} <= set(names)
    own = [frame for frame in first["frames"] if (frame["object"] or "").endswith("/keeps")]
    assert len(own) >= 3 and all(frame["line"] for frame in own)


@pytest.mark.needs("objdump", "addr2line")
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_a_function_that_is_declared_in_another_was_not_inlined_there(
    program: Program, level: str, own_cache: Path
) -> None:
    binary = program("nested_functions", level)
    code = subprocess.run(
        ["objdump", "-d", "-j", ".text", str(binary)], capture_output=True, text=True, check=True
    )
    # As profilers ask: for the byte before the one that the call returns to.
    returns = re.findall(r"^ +[0-9a-f]+:\t.*\t(?:callq?|bl) .*\n +([0-9a-f]+):", code.stdout, re.M)
    calls = [f"{int(address, 16) - 1:x}" for address in returns]
    words = ["addr2line", "-fCia", "-e", str(binary), *calls]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    theirs = {
        int(address, 16): re.findall(r"^(.+)\n.*:(\d+)(?: \(.*\))?$", chain, re.M)
        for address, chain in re.findall(r"^0x([0-9a-f]+)\n((?:(?!0x).*\n?)+)", text, re.M)
        if "?" not in chain
    }
    asked = Binary(str(binary))
    # The code lies in the file where it is loaded.
    found, _ = address_names.GdbSymbols().frames({asked: list(theirs)})
    assert len(theirs) > 20
    for address, chain in theirs.items():
        ours = found[asked, address]
        # gdb 18 has some inlined code end where a line does, after the end that the compiler gave.
        if len(ours) == len(chain) + 1 and _bare(ours[1].function or "") == _bare(chain[0][0]):
            ours = ours[1:]
        # Which line the innermost code is of they may read off the table differently.
        assert [frame.line for frame in ours[1:]] == [int(line) for _, line in chain[1:]], hex(address)


def _bare(function: str) -> str:
    return function.partition("(")[0]


def test_a_binary_that_is_gone_is_a_warning_and_a_folder_of_binaries_mends_it(heap: Path) -> None:
    elsewhere = heap.parent / "binaries"
    elsewhere.mkdir()
    (heap.parent / "keeps").rename(elsewhere / "keeps")
    without = show(heap)
    assert "binary-missing" in {warning["slug"] for warning in without["warnings"]}
    found = show(heap, "--binaries", str(elsewhere))
    assert "binary-missing" not in {warning["slug"] for warning in found["warnings"]}
    assert without["sites"]["total_bytes"] == found["sites"]["total_bytes"]


def test_a_binary_that_was_rebuilt_since_is_warned_of(heap: Path) -> None:
    binary = heap.parent / "keeps"
    later = heap.stat().st_mtime + 60
    os.utime(binary, (later, later))
    assert "binary-newer" in {warning["slug"] for warning in show(heap)["warnings"]}


@pytest.mark.needs("gcc")
def test_another_build_at_the_path_of_the_profiled_one_names_nothing(tmp_path: Path, own_cache: Path) -> None:
    if find_library("jemalloc") is None:
        pytest.skip("libjemalloc missing: scripts/setup installs it")
    source = PROGRAMS / "rebuilt.c"
    binary, root = tmp_path / "app", tmp_path / "root"
    profile = root / "profile"
    kept = Path(f"{root}{binary}")
    kept.parent.mkdir(parents=True)
    subprocess.run(["gcc", "-g", "-O0", str(source), "-o", str(binary)], check=True)
    options = f"prof:true,lg_prof_sample:0,prof_final:true,prof_prefix:{profile}"
    env = {**environment(), "LD_PRELOAD": "libjemalloc.so.2", "MALLOC_CONF": options}
    subprocess.run([str(binary)], check=True, capture_output=True, env=env)
    (heap,) = root.glob("profile*.heap")
    assert {"cache_session", "main"} <= own_names(show(heap, "--by", "path"))
    shutil.copy2(binary, kept)
    dates = binary.stat()
    subprocess.run(["gcc", "-g", "-O0", "-DNEW", str(source), "-o", str(binary)], check=True)
    os.utime(binary, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    rebuilt = show(heap, "--by", "path")
    assert own_names(rebuilt) == set()
    assert "another-binary" in {warning["slug"] for warning in rebuilt["warnings"]}
    found = show(heap, "--by", "path", "--binaries", str(root))
    assert {"cache_session", "main"} <= own_names(found)
    assert "another-binary" not in {warning["slug"] for warning in found["warnings"]}


PLUGIN = """#include <stdlib.h>
#include <string.h>
void plugin_keep(int count) {
    while (count--) memset(malloc(1000), 1, 1000);
}
"""


@pytest.mark.needs("gcc", "valgrind")
@pytest.mark.parametrize("engine", ["massif", "jemalloc"])
def test_code_that_was_unloaded_before_a_snapshot_has_its_names(
    engine: str, program: Program, tmp_path: Path, own_cache: Path
) -> None:
    if engine == "jemalloc" and find_library("jemalloc") is None:
        pytest.skip("libjemalloc missing: scripts/setup installs it")
    (tmp_path / "plugin.c").write_text(PLUGIN)
    words = ["gcc", "-g", "-O0", "-fPIC", "-shared", "plugin.c", "-o", "plugin.so"]
    subprocess.run(words, check=True, cwd=tmp_path)
    recipe = f"program: {program('plugin_unloads')}\nargs: [./plugin.so]\nengine: {engine}\n"
    (tmp_path / "unloads.yaml").write_text(f"{recipe}points: [{{at: unloaded, name: u}}]\n")
    words = [GDBMEM, "launch", "--recipe", "unloads.yaml", "--run", "run"]
    shell(*words, folder=tmp_path, check=True)
    words = [GDBMEM, "diff", "run:u#1", "run:u", "--json", "--by", "path"]
    done = shell(*words, folder=tmp_path, check=True)
    (kept,) = [path for path in json.loads(done.stdout)["paths"] if path["delta_bytes"] >= 200_000]
    assert "plugin_keep" in [frame["function"] for frame in kept["frames"]]


def own_names(found: dict[str, Any]) -> set[str]:
    """Return the functions of the profiled program in *found* that have names."""
    frames = [frame for path in found["sites"]["paths"] for frame in path["frames"]]
    own = [
        frame for frame in frames if (frame["object"] or frame["file"] or "").endswith(("/app", "/rebuilt.c"))
    ]
    return {frame["function"] for frame in own if not frame["function"].startswith("0x")}


def test_a_binary_that_was_replaced_by_one_with_an_older_date_is_warned_of(heap: Path) -> None:
    binary = heap.parent / "keeps"
    os.utime(heap, (heap.stat().st_mtime - 3600,) * 2)
    os.utime(binary, (heap.stat().st_mtime - 3600,) * 2)
    assert "binary-newer" not in {warning["slug"] for warning in show(heap)["warnings"]}
    shutil.copy2(binary, heap.parent / "new")  # as a package brings it: with the date of its build
    (heap.parent / "new").rename(binary)
    before = [warning["message"] for warning in show(heap)["warnings"] if warning["slug"] == "binary-newer"]
    assert len(before) == 1 and "was changed after the profile was written" in before[0]
    heap.write_bytes(heap.read_bytes().replace(b"/keeps\n", b"/keeps (deleted)\n"))
    assert "while that ran" in str(show(heap)["warnings"])


@pytest.mark.needs("objcopy")
def test_a_binary_that_names_a_fifo_as_its_debug_information_blocks_no_command(heap: Path) -> None:
    binary, debug = heap.parent / "keeps", heap.parent / "keeps.debug"
    subprocess.run(["objcopy", "--only-keep-debug", str(binary), str(debug)], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", str(binary)], check=True)
    debug.unlink()
    os.mkfifo(debug)
    began = time.monotonic()
    messages = [warning["message"] for warning in show(heap)["warnings"]]
    assert time.monotonic() - began < 60
    assert any(
        f"{debug}, which {binary} names as its debug information, is not a file" in text for text in messages
    )


@pytest.mark.needs("objcopy", "strip")
def test_debug_information_that_is_installed_later_is_seen(heap: Path) -> None:
    binary, debug = heap.parent / "keeps", heap.parent / "keeps.debug"
    subprocess.run(["objcopy", "--only-keep-debug", str(binary), str(debug)], check=True)
    subprocess.run(["strip", str(binary)], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", str(binary)], check=True)
    debug.rename(heap.parent / "elsewhere")
    without = show(heap, "--by", "path")
    assert str(binary) in next(w["message"] for w in without["warnings"] if w["slug"] == "stripped")
    (heap.parent / "elsewhere").rename(debug)
    found = show(heap, "--by", "path")
    assert "stripped" not in {warning["slug"] for warning in found["warnings"]}
    functions = {frame["function"] for path in found["sites"]["paths"] for frame in path["frames"]}
    assert any((function or "").startswith("keep(") for function in functions)


def test_names_that_were_found_once_are_kept_by_build_id_and_need_no_gdb_again(
    heap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(heap.parent / "cache"))
    found = show(heap, "--by", "path")
    assert "keep" in named(found)
    build_id = read_elf(heap.parent / "keeps").build_id  # type: ignore[union-attr]
    kept = heap.parent / "cache/gdbmem/symbols"
    assert len(list(kept.glob(f"{build_id[:16]}-*.json"))) == 1
    (heap.parent / "bin").mkdir()
    for name in ("gdb", "gdb-multiarch"):
        (heap.parent / "bin" / name).write_text("#!/bin/sh\nexit 1\n")
        (heap.parent / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(heap.parent / "bin"), prepend=os.pathsep)
    assert show(heap, "--by", "path")["sites"] == found["sites"]
    for file in kept.iterdir():
        file.write_text("{")  # damaged: asked anew, which this gdb cannot answer
    without = show(heap, "--by", "path")
    assert named(without) == set() and "no-symbols" in {warning["slug"] for warning in without["warnings"]}


def test_a_large_binary_is_announced_while_gdb_reads_it(heap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(heap.parent / "cache"))
    monkeypatch.setattr(address_names, "_BIG_BYTES", 10_000)
    said: list[str] = []
    offset = next(start for start, size, _ in read_elf(heap.parent / "keeps").segments if size)  # type: ignore[union-attr]
    address_names.GdbSymbols(progress=said.append).frames({Binary(str(heap.parent / "keeps")): [offset]})
    assert len(said) == 1 and said[0].startswith(f"reading the symbols of {heap.parent / 'keeps'} (")


class _DebugServer(http.server.BaseHTTPRequestHandler):
    # Served by debuginfod: the debug information of one build-id.
    files: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        data = self.files.get(self.path)
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002


@pytest.mark.needs("objcopy", "strip", "readelf")
def test_names_come_from_a_server_of_debug_information_where_one_is_set(
    heap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured = subprocess.run(["gdb", "--configuration"], capture_output=True, text=True, check=True).stdout
    if "--with-debuginfod" not in configured:
        pytest.skip("this gdb is built without debuginfod")
    binary, debug = heap.parent / "keeps", heap.parent / "keeps.debug"
    notes = subprocess.run(["readelf", "-n", str(binary)], capture_output=True, text=True, check=True).stdout
    build_id = re.search(r"Build ID: (\w+)", notes)
    assert build_id
    subprocess.run(["objcopy", "--only-keep-debug", str(binary), str(debug)], check=True)
    subprocess.run(["strip", str(binary)], check=True)
    monkeypatch.setattr(_DebugServer, "files", {f"/buildid/{build_id[1]}/debuginfo": debug.read_bytes()})
    debug.unlink()
    assert named(show(heap, "--by", "path")) == set()
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(heap.parent / "debuginfod"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _DebugServer) as server:
        monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            assert {"keep", "batch", "main"} <= named(show(heap, "--by", "path"))
        finally:
            server.shutdown()
            thread.join()


def named(found: dict[str, Any]) -> set[str]:
    """Return the program's own functions of which a line is known."""
    frames = (frame for path in found["sites"]["paths"] for frame in path["frames"])
    return {f["function"].partition("(")[0] for f in frames if (f["file"] or "").endswith("keeps.cpp")}


@pytest.mark.needs("strip")
def test_a_build_with_symbols_can_stand_for_the_one_that_was_profiled(heap: Path) -> None:
    builds = heap.parent / "builds"
    builds.mkdir()
    shutil.copy(heap.parent / "keeps", builds)
    subprocess.run(["strip", str(heap.parent / "keeps")], check=True)
    paths = show(heap, "--by", "path", "--binaries", str(builds))["sites"]["paths"]
    assert any((f["function"] or "").startswith("keep(") for path in paths for f in path["frames"])


def cumulative(file: Path) -> dict[str, int]:
    """Return the bytes under each function of the program's own source, as gdbmem has them."""
    sizes: dict[str, int] = {}
    for path in show(file, "--by", "path")["sites"]["paths"]:
        own = {
            f["function"].partition("(")[0] for f in path["frames"] if (f["file"] or "").endswith("keeps.cpp")
        }
        for name in own:
            sizes[name] = sizes.get(name, 0) + path["after_bytes"]
    return sizes


def rows_of(*words: str) -> dict[str, int]:
    """Return the cumulative column of what perl's pprof prints; functions with an inlined copy are left out."""
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^ *\d+ +[\d.]+% +[\d.]+% +(\d+) +[\d.]+% (\S+)(?: \(inline\))?$", text, re.M)
    names = [name for _, name in rows]
    return {name: int(size) for size, name in rows if names.count(name) == 1}


@pytest.mark.needs("google-pprof")
def test_what_is_under_each_function_is_what_google_pprof_adds_up(heap: Path) -> None:
    theirs = rows_of("google-pprof", "--text", "--show_bytes", str(heap.parent / "keeps"), str(heap))
    ours = cumulative(heap)
    assert {"keep", "batch"} <= set(ours) & set(theirs)
    assert {name: theirs[name] for name in ours if name in theirs} == {
        n: ours[n] for n in ours if n in theirs
    }


def jemalloc_dump(program: Path, folder: Path, sample: int) -> Path:
    """Return what jemalloc writes at *program*'s end when it samples every 2 ** *sample* bytes."""
    if find_library("jemalloc") is None:
        pytest.skip("libjemalloc missing: scripts/setup installs it")
    options = f"prof:true,lg_prof_sample:{sample},prof_final:true,prof_prefix:{folder}/je"
    env = {**environment(), "LD_PRELOAD": "libjemalloc.so.2", "MALLOC_CONF": options}
    subprocess.run([str(program)], check=True, capture_output=True, env=env)
    (file,) = folder.glob("je.*.heap")
    return file


def test_the_allocators_own_library_is_not_complained_of_for_its_lack_of_symbols(
    program: Program, tmp_path: Path, own_cache: Path
) -> None:
    file = jemalloc_dump(program("keeps"), tmp_path, 0)
    assert [warning["message"] for warning in show(file)["warnings"] if warning["slug"] == "stripped"] == []


@pytest.mark.needs("jeprof")
@pytest.mark.parametrize("sample", [0, 10])
def test_what_is_under_each_function_is_what_jeprof_adds_up(
    program: Program, tmp_path: Path, sample: int
) -> None:
    file = jemalloc_dump(program("keeps"), tmp_path, sample)
    theirs = rows_of("jeprof", "--text", "--show_bytes", str(program("keeps")), str(file))
    ours = cumulative(file)
    assert {"keep", "batch"} <= set(ours) & set(theirs)
    for name in set(ours) & set(theirs):
        # jeprof cuts fractions of a byte once for all stacks, we once for each.
        assert abs(ours[name] - theirs[name]) <= len(ours) * 4, name
