"""`gdbmem grow` on twenty programs of many kinds: the explained share of the growth, and whether it names the line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Optional

import psutil

from benchmarks.racing import Ratio
from tests.live.python_programs import pythons, version

TITLE = "grow: twenty programs of many kinds"

_GROW = [sys.executable, "-m", "gdbmem.cli.main", "grow"]
_HERE = Path(__file__).parent / "grows"
_C = Path(__file__).parent.parent / "tests" / "programs" / "makes_resident.c"
_SECONDS = 120
_PACKAGES = "site-packages"


@dataclass(frozen=True)
class _Kind:
    """A program: how it is made and started, and the row that has to be the first."""

    name: str
    words: Sequence[str]  # {here}: the folder of what was built
    function: str
    line: Optional[tuple[Path, str]] = (
        None  # the source, and the words in its planted line; None: code of a JIT
    )
    is_seen: bool = True  # its growth is anonymous memory touched in user mode
    environment: Mapping[str, str] = field(default_factory=dict)
    at_end: Sequence[str] = ()  # typed while it is recorded, when it has grown; {pid}


def _cpp(kind: str, name: str, function: str, **more: Any) -> _Kind:
    source = _HERE / "grows.cpp"
    return _Kind(name, ["{here}/cpp", kind], function, (source, f"planted: {kind} "), **more)


def _c(
    kind: str, name: str, *, line: str = "touched here", function: str = "touch", is_seen: bool = True
) -> _Kind:
    return _Kind(name, ["{here}/c", kind], function, (_C, line), is_seen)


_JEMALLOC = {"LD_PRELOAD": "libjemalloc.so.2"}
_KINDS = (
    _c("lazily", "C, one line reserves, another touches"),
    _c("malloc", "C, malloc() and memset()", line="malloc(100000)", function="fill_blocks"),
    _c("huge", "C, huge pages"),
    _c("children", "C, three forked workers", is_seen=False),
    _c("file", "C, pages of a mapped file", line="(void)there[at]", function="of_a_file", is_seen=False),
    _c("shared", "C, memfd"),
    _c("read", "C, read() into fresh memory, in kernel mode", line="in kernel mode", function="by_read", is_seen=False),
    _cpp("strings", "C++ -O2 without frame pointers, strings", "in_strings"),
    _cpp("map", "C++ -O2 without frame pointers, std::map", "in_map"),
    _cpp("vector", "C++ -O2 without frame pointers, vector::push_back", "in_vector"),
    _cpp("blocks", "C++ -O2 without frame pointers, jemalloc", "in_blocks", environment=_JEMALLOC),
    _cpp("realloc", "C++ -O2 without frame pointers, realloc() moves pages", "doubled", is_seen=False),
    _cpp("stack", "C++, a thread's deep stack", "in_depth"),
    _cpp("openmp", "OpenMP, four threads", "in_parallel"),
    _Kind("Rust -O", ["{here}/rust"], "fill", (_HERE / "grows.rs", "planted: rust")),
    _Kind("Go", ["{here}/go"], "fill", (_HERE / "grows.go", "planted: go")),
    _Kind(
        "Java, perf map by jcmd",
        ["java", "-XX:+PreserveFramePointer", "-Xmx1g", "-Xmn400m", "-cp", "{here}", "Grows"], "fill",
        at_end=["jcmd", "{pid}", "Compiler.perfmap"],
    ),
    _Kind(
        "node --perf-basic-prof --single-threaded-gc",
        ["node", "--perf-basic-prof", "--single-threaded-gc", str(_HERE / "grows.js")], "fill",
    ),
    _Kind("Python -X perf", ["{python}", "-X", "perf", str(_HERE / "grows.py"), "python"], "fill"),
    _Kind("Python -X perf and numpy", ["{python}", "-X", "perf", str(_HERE / "grows.py"), "numpy"], "fill_array"),
)  # fmt: skip


@dataclass(frozen=True)
class _Outcome:
    """The result of `gdbmem grow`, and the kernel's figures."""

    delta_bytes: int  # of the resident sets of the program and its children, by smaps_rollup
    result: Mapping[str, Any]
    is_first: bool  # the planted line
    first: str  # the first row

    @property
    def seen_bytes(self) -> int:
        """The growth that faults explain."""
        return sum(one["grown_bytes"] for one in self.result["totals"]["accounts"])

    @property
    def unseen(self) -> Mapping[str, int]:
        """The growth that they don't explain, by kind."""
        sums: dict[str, int] = {}
        for one in self.result["totals"]["accounts"]:
            for part in one["unseen"]:
                sums[part["kind"]] = sums.get(part["kind"], 0) + part["bytes"]
        return sums


def race() -> Sequence[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        python = _build(Path(folder))
        outcomes = [(kind, _outcome(kind, folder, python)) for kind in _KINDS]
    rows = [_row(kind, outcome) for kind, outcome in outcomes]
    exact = sum(kind.is_seen and row.met is True for (kind, _), row in zip(outcomes, rows))
    firsts = sum(outcome.is_first for _, outcome in outcomes) / len(rows)
    total = [
        Ratio("programs whose planted line is the first / all", [firsts], at_least=0.9),
        Ratio("programs all of whose growth is seen, within 3 % / all", [exact / len(rows)], at_least=0.6),
    ]
    return [*rows, *total]


def _build(folder: Path) -> str:
    """Make the programs; return a Python that writes perf maps and has numpy."""
    commands = [
        ["gcc", "-g", "-O2", "-pthread", str(_C), "-o", "c"],
        ["g++", "-g", "-O2", "-fomit-frame-pointer", "-fopenmp", str(_HERE / "grows.cpp"), "-o", "cpp"],
        ["rustc", "-g", "-O", str(_HERE / "grows.rs"), "-o", "rust"],
        ["go", "build", "-o", "go", str(_HERE / "grows.go")],
        ["javac", "-d", ".", str(_HERE / "Grows.java")],
    ]
    python = max(pythons(), key=version)  # from 3.12 on it writes perf maps
    commands.append(
        [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--root-user-action=ignore",
            "--target",
            _PACKAGES,
            "numpy",
        ]
    )
    for command in commands:
        subprocess.run(command, cwd=folder, check=True)
    return python


def _outcome(kind: _Kind, folder: str, python: str) -> _Outcome:
    words = [word.format(here=folder, python=python) for word in kind.words]
    environment = {**os.environ, "PYTHONPATH": f"{folder}/{_PACKAGES}", **kind.environment}
    with _program(words, environment, folder) as program, _recorder(program.pid) as tool:
        before = _resident(program.pid)
        _answer(program, "grew")
        after = _resident(program.pid)
        if kind.at_end:
            at_end = [word.format(pid=program.pid) for word in kind.at_end]
            subprocess.run(at_end, stdout=subprocess.DEVNULL, check=True)
        tool.send_signal(signal.SIGINT)
        result = json.loads(tool.communicate(timeout=_SECONDS)[0])
    site = result["sites"]["paths"][0]["site"]
    is_first = kind.function in site["function"]
    if kind.line is not None:
        is_first = is_first and site["line"] == _line(*kind.line)
    return _Outcome(after - before, result, is_first, f"{site['function']}:{site['line']}")


def _line(source: Path, words: str) -> int:
    lines = source.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if words in line)


@contextlib.contextmanager
def _program(
    words: Sequence[str], environment: Mapping[str, str], folder: str
) -> Iterator[subprocess.Popen[str]]:
    program = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )
    try:
        _await(program.stdout, "ready")
        yield program
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


@contextlib.contextmanager
def _recorder(pid: int) -> Iterator[subprocess.Popen[str]]:
    words = [*_GROW, "--json", str(pid)]
    tool = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        _await(tool.stderr, "gdbmem: recording")
        yield tool
    finally:
        tool.kill()
        tool.wait()


def _await(stream: Optional[IO[str]], word: str) -> None:
    assert stream is not None
    for line in stream:
        if line.startswith(word):
            return
    raise RuntimeError(f"no line {word}")


def _answer(program: subprocess.Popen[str], word: str) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()
    _await(program.stdout, word)


def _resident(pid: int) -> int:
    """Return the resident bytes of a process and its children, by the kernel's own sum."""
    root = psutil.Process(pid)
    return sum(_rss(one.pid) for one in (root, *root.children(recursive=True)))


def _rss(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Rss:"))


def _row(kind: _Kind, found: _Outcome) -> Ratio:
    place = f"{found.first} is first" if found.is_first else f"**{found.first}** is first"
    name = f"{kind.name}: {place}; seen / growth by the kernel"
    seen, delta = found.seen_bytes, found.delta_bytes
    if kind.is_seen:
        return Ratio(name, [seen / delta], 1.03, 0.97)
    unseen = {word: size for word, size in found.unseen.items() if word != "rest" and size}
    parts = ", ".join(f"{word} {size / delta:.2g}" for word, size in unseen.items())
    return Ratio(
        name, [(seen + sum(unseen.values())) / delta], 1.05, 0.95, note=f"of it unseen: {parts or 'none'}"
    )
