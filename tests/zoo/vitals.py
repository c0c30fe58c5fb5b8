"""Comparison of a process before and after its inspection, by the kernel's data."""

from __future__ import annotations

import os
import re
import signal
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.zoo.animals import CHILDREN, IMAGE, MEMORY, THREADS, Animal

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MASKS = ("SigBlk", "SigIgn", "SigCgt")
# The kernel unblocks SIGTRAP where a thread that blocks it meets a breakpoint or is stepped, by whatever debugger;
# a SIGSTOP that is pending in a stopped process is dropped when it goes on.
_TRAP, _STOP = 1 << signal.SIGTRAP - 1, 1 << signal.SIGSTOP - 1
_RESTING = {"R": "S", "D": "S", "I": "S"}  # it sleeps and wakes
_SHARED_FILE_PAGE, _PRESENT = 1 << 61, 1 << 63


@dataclass(frozen=True)
class Vitals:
    state: str
    tracer: int
    masks: frozenset[tuple[str, ...]]  # of its threads
    pending: int
    threads: int
    children: frozenset[int]
    zombies: int
    files: frozenset[str]
    rss_bytes: int


def read_vitals(pid: int) -> Vitals:
    """Return how *pid* is. Raises OSError where it has gone."""
    whole = status_of(Path(f"/proc/{pid}"))
    threads = list(_threads(pid))
    family = children_of(pid)
    return Vitals(
        state=_RESTING.get(whole["State"][0], whole["State"][0]),
        tracer=int(whole["TracerPid"]),
        masks=frozenset(
            (thread.get("Seccomp", ""), *(f"{int(thread.get(key, '0'), 16) & ~_TRAP:x}" for key in _MASKS))
            for thread in threads
        ),
        pending=int(whole["ShdPnd"], 16) | _all_pending(threads),
        threads=len(threads),
        children=frozenset(family),
        zombies=sum(is_zombie(child) for child in family),
        files=frozenset(_files(pid)),
        rss_bytes=max(int(one.get("VmRSS", "0 kB").split()[0]) for one in (whole, *threads)) * 1024,
    )


def harm(animal: Animal, before: Vitals, after: Vitals, tolerance: int) -> list[str]:
    """Return a description of the changes that an inspection must not make."""
    found = []
    if after.state != before.state:
        found.append(f"its state was {before.state} and is {after.state}")
    if after.tracer != before.tracer:
        found.append(f"process {after.tracer} still traces it")
    if IMAGE not in animal.restless and after.masks != before.masks:
        found.append(f"signal masks were {sorted(before.masks)} and are {sorted(after.masks)}")
    dropped = _STOP if after.state == "T" else 0
    if after.pending & ~before.pending & ~dropped:
        found.append(f"signals are pending: {after.pending:x}")
    if THREADS not in animal.restless and after.threads != before.threads:
        found.append(f"it had {before.threads} threads and has {after.threads}")
    if CHILDREN not in animal.restless and after.children != before.children:
        found.append(f"its children were {sorted(before.children)} and are {sorted(after.children)}")
    if after.zombies > before.zombies + (CHILDREN in animal.restless):
        found.append(f"{after.zombies - before.zombies} zombies are left in it")
    if after.files != before.files:
        found.append(f"open files differ: {sorted(after.files ^ before.files)}")
    grown = after.rss_bytes - before.rss_bytes
    if MEMORY not in animal.restless and abs(grown) > tolerance:
        found.append(f"Rss changed by {grown // 1024:+,} KiB")
    return found


def status_of(folder: Path) -> dict[str, str]:
    """Return the fields of a status file."""
    lines = (folder / "status").read_text(errors="replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of *pid*."""
    found: list[int] = []
    for task in _tasks(pid):
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            continue  # this thread has ended
    return found


def is_zombie(pid: int) -> bool:
    """Return whether *pid* has ended and was not waited for."""
    try:
        return status_of(Path(f"/proc/{pid}"))["State"].startswith("Z")
    except OSError:
        return False


def left_breakpoints(pid: int) -> list[str]:
    """Return the pages of code whose bytes aren't those of their file: a debugger's breakpoints."""
    return [
        f"{name} at {address:#x}"
        for start, end, offset, name in _code(pid)
        for address in _private_pages(pid, start, end)
        if _memory(pid, address) != _file(name, offset + address - start)
    ]


def _code(pid: int) -> Iterator[tuple[int, int, int, str]]:
    try:
        text = Path(f"/proc/{pid}/smaps").read_text(errors="replace")
    except OSError:
        return
    pattern = r"^(\w+)-(\w+) r-xp (\w+) \S+ \d+ +(/.*)\n(?:\w+:.*\n)*?Anonymous: +([1-9]\d*) kB"
    for start, end, offset, name, _ in re.findall(pattern, text, re.MULTILINE):
        yield int(start, 16), int(end, 16), int(offset, 16), name


def _private_pages(pid: int, start: int, end: int) -> list[int]:
    with open(f"/proc/{pid}/pagemap", "rb") as file:  # noqa: PTH123
        file.seek(start // _PAGE * 8)
        words = file.read((end - start) // _PAGE * 8)
    return [
        start + number * _PAGE
        for number, (word,) in enumerate(struct.iter_unpack("<Q", words))
        if word & _PRESENT and not word & _SHARED_FILE_PAGE
    ]


def _memory(pid: int, address: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:  # noqa: PTH123
        file.seek(address)
        return file.read(_PAGE)


def _file(name: str, offset: int) -> bytes:
    with open(name, "rb") as file:  # noqa: PTH123
        file.seek(offset)
        return file.read(_PAGE).ljust(_PAGE, b"\0")


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _threads(pid: int) -> Iterator[dict[str, str]]:
    for task in _tasks(pid):
        try:
            yield status_of(task)
        except OSError:
            continue  # it has ended meanwhile


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _all_pending(threads: list[dict[str, str]]) -> int:
    bits = 0
    for thread in threads:
        bits |= int(thread.get("SigPnd", "0"), 16)
    return bits


def _files(pid: int) -> Iterator[str]:
    entries = [entry for task in _tasks(pid) for entry in _listed(task / "fd")]  # of threads that live
    for entry in entries:
        try:
            yield f"{entry.name} → {os.readlink(entry)}"  # noqa: PTH115
        except OSError:
            continue
