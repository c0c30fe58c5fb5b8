"""Facts on a process from /proc, and the reason, in a sentence, why one can't be analysed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from gdbmem.errors import TargetError
from gdbmem.linux.process.living import living_thread, memory_folder
from gdbmem.linux.process.names import program_name, words_of
from gdbmem.linux.process.rights import AS_ROOT, asker, forbidden
from gdbmem.linux.process.status import status_fields
from gdbmem.records import dataclass
from gdbmem.text import printable

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
_ENDED = "ZX"  # states


@dataclass(frozen=True)
class ProcessFacts:
    """The values of /proc/PID/status, of a living thread if the main one has ended; sizes are bytes."""

    pid: int
    name: str
    state: str
    uid: int
    tracer: int
    anonymous_bytes: int  # resident
    page_table_bytes: int
    swap_bytes: int


def process_facts(pid: int) -> ProcessFacts:
    """Return the facts of *pid*; raises TargetError if there is no such process."""
    fields = _fields_of(pid)
    name = program_name(fields.get("Name", ""), words_of(pid))
    if fields.get("State", "?")[:1] in _ENDED:
        fields = status_fields(pid, living_thread(pid)) or fields
    return ProcessFacts(
        pid=pid,
        name=name,
        state=fields.get("State", "?")[:1],
        uid=int(fields.get("Uid", "0").split()[0]),
        tracer=int(fields.get("TracerPid", "0")),
        anonymous_bytes=_kib(fields, "RssAnon"),
        page_table_bytes=_kib(fields, "VmPTE"),
        swap_bytes=_kib(fields, "VmSwap"),
    )


def check_analysable(pid: int, *, may_be_traced: bool = False) -> ProcessFacts:
    """Return the facts of *pid*, or raise TargetError with the reason why it can't be analysed."""
    facts = process_facts(pid)
    name = f"process {pid} ({printable(facts.name)})"
    if facts.state in _ENDED:
        raise TargetError(
            f"{name} has ended and is a zombie: its memory is gone",
            slug="process-zombie",
            hint="its parent has not collected its status yet",
        )
    if _is_kernel_thread(pid):
        raise TargetError(
            f"{name} is a kernel thread, which has no user memory",
            slug="process-kernel",
            hint="name another process",
        )
    if not _may_trace(pid) or not _opens(f"{memory_folder(pid)}/maps"):
        if "VmSize" not in status_fields(pid):  # it is ending: the kernel has released its memory
            raise ended(pid)
        raise forbidden(facts, asker())
    if facts.tracer and not may_be_traced:
        raise traced(facts)
    if _bits(pid) == 32:
        raise TargetError(
            f"{name} is a 32-bit program, which gdbmem can't analyse",
            slug="process-32-bit",
            hint="'gdbmem diff' compares the files of 'valgrind --tool=massif PROGRAM', which runs it",
        )
    return facts


def traced(facts: ProcessFacts) -> TargetError:
    """Return the error for a process that another one traces."""
    tracer = _name_of(facts.tracer)
    if tracer == "gdbmem" or _is_gdbmem(facts.tracer):
        hint = "another gdbmem reads this process: try again in a moment"
    elif tracer.startswith("gdb"):
        hint = "type 'memexplain' or 'memsnap' in that gdb, or detach it there first"
    else:
        hint = f"end process {facts.tracer} first, or wait until it detaches"
    return TargetError(
        f"process {facts.pid} ({printable(facts.name)}) is being traced by process {facts.tracer} ({tracer}),"
        " and the kernel allows one tracer",
        slug="process-traced",
        hint=hint,
    )


def _is_gdbmem(pid: int) -> bool:
    """Return whether process *pid* is a Python that runs gdbmem."""
    return any(
        word.rpartition("/")[2] == "gdbmem" or word.startswith("gdbmem.") for word in words_of(pid)[:4]
    )


def has_ended(pid: int) -> bool:
    """Return whether *pid* has ended, or is a zombie without living threads."""
    try:
        return process_facts(pid).state in _ENDED
    except TargetError as error:
        return error.slug == "no-such-process"


def ended(pid: int) -> TargetError:
    """Return the error for a process that has ended meanwhile."""
    return TargetError(
        f"process {pid} ended before it could be inspected",
        slug="process-ended",
        hint="name one that still runs",
    )


def tracer_is_gdbmem(pid: int) -> bool:
    """Return whether another `gdbmem explain` holds *pid*, which will release it soon."""
    try:
        words = Path(f"/proc/{process_facts(pid).tracer}/cmdline").read_bytes().split(b"\0")
    except (OSError, TargetError):
        return True  # it has just released it
    return b"explain" in words and any(word.endswith(b"gdbmem") for word in words)


def process_of(thread: int) -> int:
    """Return the process that the *thread* belongs to; the same number if it is a process, or has ended."""
    return int(status_fields(thread).get("Tgid", thread))


def thread_ids(pid: int) -> list[int]:
    try:
        return sorted(int(entry) for entry in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208  (quick)
    except (FileNotFoundError, ProcessLookupError):
        return []


def _fields_of(pid: int) -> dict[str, str]:
    fields = status_fields(pid)
    if fields:
        return fields
    if _is_hidden(pid):
        raise TargetError(
            f"process {pid} is another user's and hidden (/proc is mounted with hidepid)",
            slug="process-forbidden",
            hint=AS_ROOT,
        )
    raise TargetError(f"there is no process {pid}", slug="no-such-process", hint="'ps' lists them")


def _is_hidden(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # it exists, even if /proc hides it
    except (OSError, OverflowError):
        return False
    return False


def _kib(fields: dict[str, str], key: str) -> int:
    return int(fields.get(key, "0").split()[0]) << 10


def _is_kernel_thread(pid: int) -> bool:
    try:
        rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return bool(int(rest[6]) & _KERNEL_THREAD)


def _may_trace(pid: int) -> bool:
    """Return whether the kernel lets us trace *pid*: opening its memory makes the same check."""
    try:
        os.close(os.open(f"{memory_folder(pid)}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _name_of(pid: int) -> str:
    try:
        return printable(Path(f"/proc/{pid}/comm").read_text(errors="surrogateescape").strip())
    except OSError:
        return "which has just ended"


def _opens(path: str) -> bool:
    try:
        with open(path, "rb") as stream:  # noqa: PTH123
            stream.read(1)
    except OSError:
        return False
    return True


def _bits(pid: int) -> Optional[int]:
    try:
        with open(f"{memory_folder(pid)}/exe", "rb") as stream:  # noqa: PTH123
            ident = stream.read(5)
    except OSError:
        return None
    return {1: 32, 2: 64}.get(ident[4]) if ident[:4] == b"\x7fELF" else None
