"""Fixtures of all tiers: tools and programs to test with, scratch folders, no process left behind."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
import types
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from tests.built import folder_of_programs, libc_version, mark_used, remove_unused
from tests.indexed_gdb import folder_of_indexed_gdb
from tests.processes import MARKER, marked_processes
from tests.quick_valgrind import folder_of_quick_valgrind
from tests.shared_memory import enter_own_shared_memory

PROGRAMS = Path(__file__).parent / "programs"
SHOWN = Path(__file__).parents[1] / "examples" / "how-to"  # those that the how-to pages show, too
_UNAVAILABLE = Path(__file__).parents[1] / ".cache/unavailable"  # written by scripts/setup
# Packages that scripts/setup only unpacks.
os.environ["PATH"] += os.pathsep + str(Path(__file__).parents[1] / ".cache" / "prometheus" / "usr" / "bin")
_SET_CHILD_SUBREAPER = 36  # prctl's
COMPILERS = {
    ".c": ["gcc", "-g", "-O1", "-Wall", "-pthread"],
    ".cpp": ["g++", "-std=c++17", "-g", "-O1", "-Wall", "-pthread"],
}

Program = Callable[..., Path]


def pytest_configure() -> None:
    # Otherwise each gdb and each gdbmem of a live test compiles all modules anew: three times the work of a start.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A background job, nohup and some CI runners hand down ignored signals, which every child would inherit.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    # A gate counts files in memory that no process has open: those of other tests would be the program's, too.
    if os.geteuid() == 0:
        enter_own_shared_memory()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Optional[bool]:
    # For scripts/test --rest: each worker would import thousands of tests that are left out. None: pytest's default.
    is_left_out = str(config.option.markexpr).startswith("not quick") and is_unit(collection_path)
    return (
        True
        if is_left_out and collection_path.suffix == ".py" and "slow" not in collection_path.read_text()
        else None
    )


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_unit(item.path) and item.get_closest_marker("slow") is None:
            item.add_marker("quick")
    # The first half goes to one worker: the others then need not parse the package's sources.
    items.sort(key=lambda item: not (isinstance(item, pytest.Function) and _reads_sources(item.module)))


def pytest_collection_finish() -> None:
    gc.freeze()  # the tests themselves stay until the end: no collection needs to visit them


@functools.cache
def _reads_sources(module: types.ModuleType) -> bool:
    return any(getattr(value, "__module__", "") == "tests.unit.sources" for value in vars(module).values())


@functools.cache
def is_unit(path: Path) -> bool:
    """Return whether the tests in *path* start no process."""
    return path.is_relative_to(Path(__file__).with_name("unit"))


_COLLECTS = gc.get_threshold()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    gc.set_threshold(
        *_COLLECTS
    )  # main() has Python look for garbage seldom: a worker would run out of descriptors
    if tracemalloc.is_tracing():
        tracemalloc.stop()
        pytest.fail(f"{item.name} leaves tracemalloc on: what comes later would take many times as long")


def pytest_sessionfinish() -> None:
    """Write the coverage that was measured: a worker that is slow to do so at its exit is killed after 10 s."""
    current = _current_coverage()
    if current is not None:
        current.stop()
        current.save()


_measured: set[tuple[Path, str]] = set()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure coverage in the first cell of a unit test's table: the others run the same lines, at twice the work."""
    current = _current_coverage() if hasattr(item, "callspec") and is_unit(item.path) else None
    name = (item.path, item.name.partition("[")[0])
    further = current if name in _measured else None
    _measured.add(name)
    if further is not None:
        further.stop()
    yield
    if further is not None:
        further.start()


def _current_coverage() -> Any:
    measuring = sys.modules.get("coverage")
    return measuring.Coverage.current() if measuring is not None else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    tools = [tool for marker in item.iter_markers("needs") for tool in marker.args]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        sentence = f"{', '.join(missing)} missing: scripts/setup installs it"
        unavailable = _UNAVAILABLE.read_text().split() if _UNAVAILABLE.exists() else []
        if set(missing) <= set(unavailable):
            pytest.skip(f"this release has no package of {', '.join(missing)}")
        if os.environ.get("CI"):
            pytest.fail(sentence, pytrace=False)
        pytest.skip(sentence)


@pytest.fixture(scope="session")
def program() -> Program:
    """Return a function that compiles tests/programs/NAME.{c,cpp} once and returns the program's path.

    Flags come from a ``// flags:`` line in the source, then from further arguments; *compiler* takes the usual
    one's place. The result is kept, by tests/built.py, under a hash of source, headers, flags and compiler, so
    nothing gets stale.
    """
    return _compile


def _compile(name: str, *flags: str, compiler: str = "") -> Path:
    sources = [folder / f"{name}{suffix}" for folder in (PROGRAMS, SHOWN) for suffix in COMPILERS]
    source = next(path for path in sources if path.exists())
    text = source.read_text()
    own_flags = [
        word
        for line in text.splitlines()
        if line.startswith("// flags:")
        for word in line.split(":", 1)[1].split()
    ]
    first, *standard = COMPILERS[source.suffix]
    # Before glibc 2.34 libdl and others are libraries of their own, which are named after what needs them.
    command = [compiler or first, *standard, source.name, *own_flags, *flags]
    texts = {path.name: path.read_text() for path in (source, *sorted(PROGRAMS.glob("*.h")))}
    parts = [*texts.values(), *command, _version(command[0]), libc_version()]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    folders = folder_of_programs(PROGRAMS / "build")
    folder = folders / f"{name}-{digest}"
    target = folder / name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        remove_unused(folders)
        # Two test runs at once may compile the same program: the first one's stays, which may run already.
        temporary = folder / f".{uuid.uuid4().hex}"
        for file, text in texts.items():
            temporary.write_text(text)
            temporary.rename(folder / file)
        subprocess.run([*command, "-o", str(temporary)], cwd=folder, check=True)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, target)
        temporary.unlink()
    mark_used(folder)
    return target


@functools.cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Yield an empty folder with a short path (FIFOs and sockets have a limit), removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="gm-", dir="/tmp"))
    yield folder
    _remove(folder)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.chmod(0o700)
        for parent, names, _ in os.walk(folder):  # a test may take rights away
            for path in (Path(parent, name) for name in names):
                if not path.is_symlink():
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def private_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Do for fixtures that outlive a test what other_home and no_process_left do for a test.

    The gdb that PATH has then finds the system's libraries indexed, and its valgrind need read no debug information
    of them, unless GDB_INDEX=no is set.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        _leave_home(monkeypatch, tmp_path_factory).mkdir(mode=0o700)
        is_asked = os.environ.get("GDB_INDEX") != "no"
        if is_asked and not all(is_unit(item.path) for item in request.session.items):
            ours = _of_all_workers(tmp_path_factory)
            for folder in (folder_of_indexed_gdb(ours / "gdb"), folder_of_quick_valgrind(ours / "valgrind")):
                if folder is not None:
                    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
        with _none_left(monkeypatch):
            yield


@pytest.fixture(autouse=True)
def other_home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Give each test its own home folder: no test reads or writes the user's settings.

    That of a unit test is made only if it uses `private_home`: to make and remove thousands takes seconds. What gdbmem
    has found out once about libc, the kernel and binaries is kept for all tests: `own_cache` begins anew.
    """
    home = _leave_home(monkeypatch, tmp_path_factory)
    if not is_unit(request.path):
        home.mkdir(mode=0o700)
    yield home
    if home.exists():
        _remove(home)


@pytest.fixture
def private_home(other_home: Path) -> Path:
    """Return the test's home folder."""
    other_home.mkdir(mode=0o700, exist_ok=True)
    return other_home


@pytest.fixture
def own_cache(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache of the test's own, which is empty."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    return private_home / ".cache" / "gdbmem"


@pytest.fixture
def gdb_of_users(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make gdb index libraries itself, as a user's does: for tests of how soon it does something."""
    _leave_out(tmp_path_factory, monkeypatch, "gdb")


@pytest.fixture
def valgrind_of_users(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make valgrind read the debug information of libc, as a user's does: for tests of what it names there."""
    _leave_out(tmp_path_factory, monkeypatch, "valgrind")


def _leave_out(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    ours = str(_of_all_workers(tmp_path_factory) / name / "bin")
    folders = os.environ["PATH"].split(os.pathsep)
    monkeypatch.setenv("PATH", os.pathsep.join(folder for folder in folders if folder != ours))


def _leave_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    homes = tmp_path_factory.getbasetemp() / "homes"  # mktemp would list all that are there, for each test
    homes.mkdir(exist_ok=True)
    home = homes / uuid.uuid4().hex
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(_of_all_workers(tmp_path_factory) / "cache"))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    # Settings of the user's shell that change what the tools print or do.
    for name in ("NO_COLOR", "VALGRIND_OPTS", "PYTHONMALLOC", "DEBUGINFOD_URLS", "GDBHISTFILE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
        os.unsetenv(name)  # readline, where pytest loads it, sets COLUMNS past os.environ
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    return home


def _of_all_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run's own folder: that of a worker is inside it."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture
def orphans_are_ours() -> Iterator[None]:
    """Make orphans become this process's children, reaped where a test waits for them: a container's init is slow."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    libc.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def no_process_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test if a process that it started, or that these started, outlives it."""
    with _none_left(monkeypatch):
        yield


@contextlib.contextmanager
def _none_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARKER, mark)
    yield
    deadline = time.monotonic() + 5  # one that has just been told to end may need a moment
    while (left := marked_processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:  # so that one failure doesn't cause the next
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        words = "; ".join(f"{pid} {command}" for pid, command in left.items())
        pytest.fail(f"left behind: {words}", pytrace=False)
