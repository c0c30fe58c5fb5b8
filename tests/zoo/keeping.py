"""Starting an animal, hearing from it, and ending it."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from tests.zoo.animals import Animal
from tests.zoo.building import CannotRunHereError
from tests.zoo.vitals import children_of, status_of

SECONDS_TO_BE_READY = 60
_WORDS = (
    "ready", "pid", "ticks", "signals", "last_signal", "interrupted", "live_blocks", "live_bytes", "blocked",
    "ignored", "order", "refused", "tick_bytes", "asked_bytes",
)  # fmt: skip  # as in sources/report.h
END, GO_ON, WAIT_LONG, LATER = 1, 0, 3, 5


class Report:
    """The page on which an animal reports what happens to it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "report"
        self.path.write_bytes(bytes(4096))
        self.path.chmod(0o666)  # some belong to no process
        with self.path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 4096)

    def __getattr__(self, name: str) -> int:
        """Return the word *name*."""
        if name not in _WORDS:
            raise AttributeError(name)
        value: int = struct.unpack_from("<Q", self._page, _WORDS.index(name) * 8)[0]
        return value

    def give_order(self, order: int) -> None:
        struct.pack_into("<Q", self._page, _WORDS.index("order") * 8, order)


@dataclass(frozen=True)
class Kept:
    """An animal that lives."""

    animal: Animal
    report: Report
    pid: int
    first: subprocess.Popen[bytes]  # what was started: the animal, or who started it


def command_of(animal: Animal, *, small: bool = False) -> list[str]:
    """Return the words that start *animal*. Raises CannotRunHereError."""
    for need in animal.needs:
        _require(need)
    return [*animal.keeper, *animal.build.made(), *(animal.small if small and animal.small else animal.words)]


def environment_of(animal: Animal, report: Report) -> dict[str, str]:
    """Return what *animal* is started with beside what everybody has."""
    return {"ZOO_REPORT": str(report.path), **animal.env}


@contextlib.contextmanager
def kept(animal: Animal, folder: Path) -> Iterator[Kept]:
    """Yield *animal*, alive and ready; end it and all its family afterwards. Raises CannotRunHereError."""
    words = command_of(animal)
    report = Report(folder)
    with (folder / "said").open("wb") as said:
        first = subprocess.Popen(
            words, cwd=folder, env={**os.environ, **environment_of(animal, report)},
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
    try:
        _await_ready(report, first, folder)
        pid = _find(report, first.pid)
        wait_until(lambda: report.ticks >= 3 or first.poll() is not None, 2)  # its threads have come to rest
        if animal.is_stopped:
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: status_of(Path(f"/proc/{pid}"))["State"].startswith("T"), 5)
        yield Kept(animal, report, pid, first)
    finally:
        _end(first)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether *condition* came true within *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _await_ready(report: Report, first: subprocess.Popen[bytes], folder: Path) -> None:
    if not wait_until(lambda: report.ready == 1 or first.poll() is not None, SECONDS_TO_BE_READY):
        raise CannotRunHereError(f"it wasn't ready after {SECONDS_TO_BE_READY} s")
    if report.ready != 1:
        said = (folder / "said").read_text(errors="replace").strip().splitlines()
        raise CannotRunHereError(
            f"it ended with status {first.returncode}: {said[-1] if said else 'no word'}"
        )


def _find(report: Report, first: int) -> int:
    """Return the pid of the reporting process here: it knows that of its own namespace."""
    family = [first]
    for pid in family:
        with contextlib.suppress(OSError):
            if int(status_of(Path(f"/proc/{pid}"))["NSpid"].split()[-1]) == report.pid:
                return pid
        family += children_of(pid)
    raise CannotRunHereError("the process that reports wasn't found")


def _end(first: subprocess.Popen[bytes]) -> None:
    family = [first.pid]
    for pid in family:
        family += children_of(pid)
    for pid in family:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    first.wait()


def _require(need: str) -> None:
    if need == "root":
        missing = "" if os.geteuid() == 0 else "needs root"
    elif need == "swap":
        missing = "" if len(Path("/proc/swaps").read_text().splitlines()) > 1 else "no swap here"
    elif need == "huge pages":
        missing = "" if _free_huge_pages() >= 4 else "no huge pages are reserved (sysctl vm.nr_hugepages=32)"
    elif ".so" in need:
        missing = "" if _has_library(need) else f"no {need} here"
    else:
        missing = "" if shutil.which(need) else f"no {need} here"
    if missing:
        raise CannotRunHereError(missing)


def _free_huge_pages() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("HugePages_Free:")), 0)


def _has_library(name: str) -> bool:
    tool = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
    said = subprocess.run([tool or "ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    return f"{name} " in said
