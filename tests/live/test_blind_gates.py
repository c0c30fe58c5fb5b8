"""No gate passes a leak that its engine can't see, and none refuses growth that is known to stay within the limit.

Each way to grow is run once under each engine, and all gates judge that run: expectations with a tight and with a wide
limit, their JUnit file, their JSON, and `gdbmem diff --fail-on` on the recorded snapshots.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gdbmem.api import run_recipe
from gdbmem.cli.main import main
from gdbmem.linux.memory.unmapped import unmapped_memory
from tests.conftest import Program
from tests.cover import cover
from tests.live.user import GDBMEM, shell
from tests.shared_memory import enter_own_shared_memory

ENGINES = ("massif", "memcheck", "gperftools", "jemalloc", "faults")
NATIVE = ("gperftools", "jemalloc", "faults")
WAYS = (
    "malloc", "mmap", "sbrk", "bss", "reserve", "shared", "memfd", "unmapped", "sysv", "detached", "file",
    "messages", "away-file", "away-detached", "away-messages", "pipes", "sockets", "code",
    "registered", "aio", "in-flight", "packets", "unshown", "posix",
    "spliced", "ring", "semaphores", "empty-messages", "own-table",
    "populate", "populate-write", "mlock", "mremap", "alloca", "data-file", "read", "threads",
    "preload", "static", "fork", "fork-maps", "fork-killed", "left", "exec", "exec-through", "self-spawn",
    "self-fork", "self-clone", "self-twice", "self-memory", "self-popen", "self-system",
    "datagrams", "own-mount", "own-file", "shares", "shares-silently",
    "once", "end-handled", "end-exit", "end-kill", "end-segv", "end-abort",
)  # fmt: skip
ENDS = {
    "end-handled": "any",
    "end-exit": "3",
    "end-kill": "SIGKILL",
    "end-segv": "SIGSEGV",
    "end-abort": "SIGABRT",
}
ALWAYS = {
    ("mmap", "massif"),
    ("populate", "faults"),
    ("end-kill", "gperftools"),
    ("code", "memcheck"),
    ("fork", "jemalloc"),
    ("fork-maps", "massif"),
    ("fork-killed", "massif"),
    ("left", "massif"),
    ("exec-through", "faults"),
    ("self-spawn", "massif"),
    ("alloca", "memcheck"),
    ("file", "massif"),
    ("file", "gperftools"),
    ("messages", "jemalloc"),
    ("away-file", "faults"),
    ("pipes", "massif"),
    ("sockets", "gperftools"),
    ("registered", "faults"),
    ("aio", "massif"),
    ("in-flight", "jemalloc"),
    ("packets", "memcheck"),
    ("unshown", "massif"),
    ("spliced", "massif"),
    ("ring", "gperftools"),
    ("semaphores", "faults"),
    ("empty-messages", "jemalloc"),
    ("own-table", "memcheck"),
    ("posix", "gperftools"),
    ("away-messages", "massif"),
    ("alloca", "gperftools"),
    ("self-fork", "jemalloc"),
    ("self-popen", "gperftools"),
    ("self-twice", "faults"),
    ("shares", "faults"),
    ("datagrams", "massif"),
    ("own-mount", "faults"),
    ("own-file", "massif"),
    ("end-handled", "faults"),
}
IN_NO_MAPPING = (
    "file", "messages", "detached", "unmapped", "pipes", "sockets", "registered", "aio", "posix",
    "semaphores", "empty-messages", "own-table", "ring", "datagrams", "own-mount",
)  # fmt: skip
ANYBODYS = ("file", "semaphores")  # who made these isn't recorded: they count as each program's of the user
LANGUAGES = ("rust", "pascal", "ada", "fortran", "d")  # those of gdb that read no cast of C's
HELPERS = ("fork", "spawn", "clone", "twice", "memory", "popen", "system")
SIZE, TIGHT, WIDE = 64 << 10, "256KiB", "100MiB"  # a round, of 20

pytestmark = [pytest.mark.needs("gdb", "valgrind", "gcc"), pytest.mark.usefixtures("no_process_left")]


def sees_nothing(way: str, engine: str) -> bool:
    """Whether nothing bounds what the engine misses, so that a wide limit can't be judged either."""
    if way in ("exec", "exec-through", "once", "left", "fork-killed", *ENDS) or way.startswith("self-"):
        return True
    if way.startswith("shares") and engine not in NATIVE:  # valgrind ends it
        return True
    return (way == "static" and engine in ("massif", "memcheck")) or way in ("fork", "fork-maps")


def has_io_uring() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(425, 8, None)  # io_uring_setup, on every architecture
    return ctypes.get_errno() == errno.EFAULT


class Gates:
    """One run of a recipe, and what each gate says of it."""

    def __init__(
        self, folder: Path, program: Path, engine: str, way: str, *, extra: str = "", do: str = "snap"
    ) -> None:
        self.folder = folder
        recipe = (
            f"program: {program}\nargs: [{way}, '{SIZE}']\nengine: {engine}\ntimeout: 2min\n{extra}"
            f"points: [{{at: mark, name: m, do: [{do}]}}]\nexpect:\n"
            f"  - {{between: [m#1, m], at_most: {TIGHT}}}\n  - {{between: [m#1, m], at_most: {WIDE}}}\n"
        )
        (folder / "recipe.yaml").write_text(recipe)
        words = ["launch", "--recipe", "recipe.yaml", "--run", "run", "--json", "--junit", "leak.xml"]
        # A user's other tests would see what this program leaves; root's workers have memory of their own.
        apart: dict[str, Any] = (
            {"preexec_fn": enter_own_shared_memory} if os.geteuid() and way in ANYBODYS else {}
        )
        done = shell(GDBMEM, *words, folder=folder, **apart)
        assert done.stdout, done.stderr
        self.status = done.returncode
        self.document: dict[str, Any] = json.loads(done.stdout)
        self.judged = [one["judged"] for one in self.document["expectations"]]
        self.reasons = [one["text"] for one in self.document["expectations"]]
        suite = ElementTree.parse(folder / "leak.xml").getroot()[0]
        self.junit = [case[0].tag for case in suite]

    def diff(self, limit: str) -> int:
        """Return the status of `gdbmem diff --fail-on` on the run's snapshots."""
        return int(main(["diff", f"{self.folder}/run:m#1", f"{self.folder}/run:m", "--fail-on", limit]))


def played(folder: Path, program: Program, way: str, engine: str, extra: str = "") -> Gates:
    if way == "static":
        built = program("grows_unseen", "-static")
        return Gates(folder, built, engine, "malloc", extra=extra)
    if way == "preload":
        extra = f"env: {{LD_PRELOAD: {preloaded(folder)}}}\n"
    return Gates(folder, program("grows_unseen"), engine, "malloc" if way == "preload" else way, extra=extra)


def preloaded(folder: Path) -> Path:
    """Return a malloc that takes its memory by mmap and keeps all of it."""
    source, library = folder / "own.c", folder / "own.so"
    source.write_text(
        "#include <string.h>\n#include <sys/mman.h>\nstatic char *at, *end;\n"
        "void *malloc(size_t n) { n = (n + 31) & ~15ul; if (!at || at + n > end) {\n"
        " size_t m = n > 4194304 ? n : 4194304;"
        " at = mmap(0, m, 3, 34, -1, 0); end = at + m; } *(size_t *)at = n - 16; at += n; return at - n + 16; }\n"
        "void free(void *p) {}\nvoid *calloc(size_t a, size_t b) { return malloc(a * b); }\n"
        "void *realloc(void *p, size_t n) { char *q = malloc(n); size_t o = p ? ((size_t *)p)[-2] : 0;\n"
        " return p ? memcpy(q, p, o < n ? o : n) : q; }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-fno-builtin", "-o", library, source], check=True)
    return library


@pytest.mark.parametrize(
    ("way", "engine"),
    cover([(way, engine) for way in WAYS for engine in ENGINES], lambda *cell: cell in ALWAYS),
)
def test_no_gate_passes_a_leak_and_none_refuses_what_is_known_to_stay_within_its_limit(
    way: str, engine: str, program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if way == "static" and engine in ("gperftools", "jemalloc"):
        pytest.skip("a static program loads no library: refused before it is started")
    if way.startswith("away-") and os.geteuid():
        pytest.skip("only root may leave a namespace alone")
    if way == "registered" and (engine not in NATIVE or not has_io_uring()):
        pytest.skip("no io_uring here, or not in all releases of valgrind")
    if way == "ring" and os.geteuid():
        pytest.skip("only root may have sockets for packets")
    if way in ("own-mount", "datagrams") and os.geteuid():
        pytest.skip("only root may mount, or have buffers of any size")
    if way == "unshown" and os.geteuid():
        pytest.skip("only root may ask how large shared memory without a name is")
    gates = played(tmp_path, program, way, engine)
    tight, wide = gates.judged
    assert gates.status in (4, 125), gates.reasons
    assert tight != "met", gates.reasons
    assert gates.junit[0] in ("failure", "error")
    assert gates.diff(TIGHT) in (4, 125)
    if way == "in-flight":
        assert "SCM_RIGHTS" in gates.reasons[0], gates.reasons
    elif sees_nothing(way, engine):
        assert wide == "not_judged", gates.reasons
        assert gates.junit[1] == "error" and gates.diff(WIDE) == 125
    else:
        assert wide == "met", gates.reasons
        assert gates.junit[1] == "system-out" and gates.diff(WIDE) == 0, capsys.readouterr().err
    if way.removeprefix("away-") in IN_NO_MAPPING:
        assert "that its mappings don't show" in gates.reasons[0] and "engine:" not in gates.reasons[0]
    if way in ENDS:
        assert f"status {gates.document['status']}" in gates.reasons[0]


@pytest.mark.parametrize(("way", "may_pass"), [("fork-maps", False), ("fork-ends", True)])
def test_what_forked_children_map_is_judged_where_massif_counts_pages(
    way: str, may_pass: bool, program: Program, tmp_path: Path
) -> None:
    gates = Gates(tmp_path, program("grows_unseen"), "massif", way, extra="options: {pages-as-heap: yes}\n")
    assert gates.judged == ["met" if may_pass else "not_judged", "met"], gates.reasons


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may have a /dev/shm of its own without a user namespace"
)
def test_a_file_that_another_test_leaves_in_memory_is_not_the_programs() -> None:
    with subprocess.Popen(["sleep", "100"]) as program:
        left = Path(f"/proc/{os.getppid()}/root/dev/shm/gdbmem-test-{program.pid}")
        left.write_bytes(bytes(1 << 20))
        try:
            assert unmapped_memory(program.pid, []).known_bytes < 1 << 20
        finally:
            left.unlink()
            program.kill()


@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "massif"))
def test_a_program_that_does_not_grow_passes_the_tightest_gate(
    engine: str, program: Program, tmp_path: Path
) -> None:
    gates = Gates(tmp_path, program("grows_unseen"), engine, "none")
    assert gates.judged == ["met", "met"], gates.reasons
    assert gates.status == 0 and gates.diff("64KiB") == 0


@pytest.mark.parametrize("engine", cover(NATIVE, lambda engine: engine == "faults"))
def test_a_program_with_a_process_that_shares_its_memory_passes_and_that_process_lives(
    engine: str, program: Program, tmp_path: Path
) -> None:
    """gdb takes it for a forked one, loses its breakpoints, and would end it by those that it sets again."""
    gates = Gates(tmp_path, program("grows_unseen"), engine, "watched")
    assert gates.document["points"][0]["hits"] == 20, gates.document
    assert gates.document["status"] == 0 and gates.judged == ["met", "met"], gates.reasons


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have sockets for packets")
@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "massif"))
def test_a_program_that_listens_to_packets_passes(engine: str, program: Program, tmp_path: Path) -> None:
    gates = Gates(tmp_path, program("grows_unseen"), engine, "listen")
    assert gates.judged == ["met", "met"], gates.reasons


@pytest.mark.parametrize(
    ("how", "engine"),
    cover(
        [(how, engine) for how in HELPERS for engine in ENGINES],
        lambda *cell: (
            cell in {("fork", "gperftools"), ("system", "massif"), ("clone", "faults"), ("memory", "faults")}
        ),
    ),
)
def test_a_program_that_starts_other_programs_passes(
    how: str, engine: str, program: Program, tmp_path: Path
) -> None:
    gates = Gates(tmp_path, program("grows_unseen"), engine, f"help-{how}")
    assert gates.judged == ["met", "met"], gates.reasons


RUST = """
#[no_mangle] #[inline(never)] pub extern "C" fn mark(round: usize) { std::hint::black_box(round); }
fn main() {
    let leaks = std::env::args().nth(1).as_deref() == Some("malloc");
    for round in 0..20 {
        let block = std::hint::black_box(vec![1u8; 65536]);
        if leaks { std::mem::forget(block); }
        mark(round);
    }
}
"""


@pytest.mark.parametrize("way", ["malloc", "none"])
def test_a_program_in_a_language_with_another_syntax_is_judged(way: str, tmp_path: Path) -> None:
    """gdb reads an expression such as a cast of C's in the language of the frame: no snapshot was taken."""
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed")
    (tmp_path / "grows.rs").write_text(RUST)
    # rustup finds its compilers below the user's home, which tests have not.
    home = {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
    subprocess.run(["rustc", "-g", "-O", "grows.rs"], cwd=tmp_path, check=True, env=home)
    gates = Gates(tmp_path, tmp_path / "grows", "massif", way)
    assert gates.judged == ["not_met" if way == "malloc" else "met", "met"], gates.reasons


@pytest.mark.parametrize("language", cover(LANGUAGES, lambda language: language == "pascal"))
def test_a_program_is_judged_whatever_language_gdb_reads_expressions_in(
    language: str, program: Program, tmp_path: Path
) -> None:
    do = f"gdb: set language {language}, snap"
    gates = Gates(tmp_path, program("grows_unseen"), "massif", "none", do=do)
    assert gates.judged == ["met", "met"], gates.reasons


@pytest.mark.thorough
@pytest.mark.parametrize("way", ENDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_program_that_is_meant_to_end_so_is_judged(
    way: str, engine: str, program: Program, tmp_path: Path
) -> None:
    gates = Gates(tmp_path, program("grows_unseen"), engine, way, extra=f"ends: {ENDS[way]}\n")
    assert gates.judged[1] == "met", gates.reasons


@pytest.mark.parametrize(
    ("engine", "option"), [("massif", "options: {pages-as-heap: yes}\n"), ("faults", "")]
)
@pytest.mark.thorough
def test_what_the_refusal_of_a_static_program_names_judges_it(
    engine: str, option: str, program: Program, tmp_path: Path
) -> None:
    gates = played(tmp_path, program, "static", engine, option)
    assert gates.judged[0] != "met" and gates.judged[1] == "met", gates.reasons


def test_the_api_passes_no_program_that_died(program: Program, tmp_path: Path) -> None:
    for ends, passed in (("0", False), ("SIGKILL", True)):
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(
            f"program: {program('grows_unseen')}\nargs: [end-kill, '{SIZE}']\nengine: faults\nends: {ends}\n"
            f"points: [{{at: mark, name: m}}]\nexpect:\n  - {{between: [m#1, m], at_most: {WIDE}}}\n"
        )
        result = run_recipe(recipe, run=tmp_path / f"run-{ends}")
        assert result.status == 137
        assert result.passed is passed, [verdict.text for verdict in result.verdicts]


LEDGER_WAYS = {
    "mmap": "met",
    "populate": "met",
    "shared": "met",
    "unmapped": "met",
    "end-segv": None,
}


@pytest.mark.parametrize("way", cover(LEDGER_WAYS, lambda way: way == "unmapped"))
def test_the_resident_set_is_judged_with_what_is_not_in_it(
    way: str, program: Program, tmp_path: Path
) -> None:
    (tmp_path / "recipe.yaml").write_text(
        f"program: {program('grows_unseen')}\nargs: [{way}, '{SIZE}']\nengine: none\n"
        "points: [{at: mark, name: m, do: [ledger]}]\nexpect:\n"
        + "".join(f"  - {{between: [m#1, m], metric: rss, at_most: {limit}}}\n" for limit in (TIGHT, WIDE))
    )
    words = [GDBMEM, "launch", "--recipe", "recipe.yaml", "--run", "run", "--json"]
    done = shell(*words, folder=tmp_path)
    tight, wide = (one["judged"] for one in json.loads(done.stdout)["expectations"])
    assert done.returncode in (4, 125) and tight != "met", done.stdout
    assert wide == (LEDGER_WAYS[way] or "not_judged"), done.stdout
    diff = ["diff", f"{tmp_path}/run:m#1", f"{tmp_path}/run:m", "--ledger", "--fail-on"]
    assert main([*diff, TIGHT]) in (4, 125)
    assert main([*diff, WIDE]) == (0 if LEDGER_WAYS[way] else 125)


SCRIPT = """
import ctypes, mmap, os, sys
kept = []
for round in range(6):
    if sys.argv[1] == "mmap":
        kept.append(mmap.mmap(-1, 1 << 20)); kept[-1].write(b"x" * (1 << 20))
    elif sys.argv[1] == "malloc":
        kept.append(ctypes.create_string_buffer(1)); libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p; ctypes.memset(libc.malloc(1 << 20), 1, 1 << 20)
    elif sys.argv[1] == "python":
        kept.append(b"x" * (1 << 20) + bytes([round]))
    elif sys.argv[1] == "fork" and round == 3:
        if os.fork() == 0:
            kept.append(bytearray(50 << 20)); os._exit(0)
        os.wait()
    os.getppid()
    if sys.argv[1] == "exit" and round == 2:
        os._exit(3)
    if sys.argv[1] == "kill" and round == 2:
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    "way", cover(("python", "mmap", "malloc", "fork", "exit", "kill", "none"), lambda way: way == "mmap")
)
def test_what_tracemalloc_does_not_trace_is_held_against_the_limit(way: str, tmp_path: Path) -> None:
    (tmp_path / "grows.py").write_text(SCRIPT)
    (tmp_path / "recipe.yaml").write_text(
        f"program: /usr/bin/python3\nargs: [grows.py, {way}]\nengine: tracemalloc\npoints: [{{at: getppid, name: m}}]\n"
        "expect:\n" + "".join(f"  - {{between: [m#2, m], at_most: {limit}}}\n" for limit in ("1MiB", WIDE))
    )
    words = [GDBMEM, "launch", "--recipe", "recipe.yaml", "--run", "run", "--json"]
    done = shell(*words, folder=tmp_path)
    tight, wide = (one["judged"] for one in json.loads(done.stdout)["expectations"])
    assert (tight == "met") == (way == "none"), done.stdout
    assert wide == ("not_judged" if way in ("fork", "exit", "kill") else "met"), done.stdout
