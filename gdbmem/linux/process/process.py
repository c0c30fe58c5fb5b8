"""Facts on a process and lists of processes, from /proc; the reason, in a sentence, why one can't be analysed."""

import os
import re
import resource
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional, Union

from gdbmem.errors import TargetError
from gdbmem.linux.process.rights import AS_ROOT, asker, forbidden
from gdbmem.text import printable


def boot_id() -> str:
    """Return the id of this boot: the clock's zero."""
    with open("/proc/sys/kernel/random/boot_id") as stream:  # noqa: PTH123
        return stream.read().strip()


# The thread through which a process's memory is read, because the main thread may end while others still run.
#
# The kernel's files of a process are those of its main thread: once that has ended, maps is empty and statm is 0.
# Those of every other thread show the same memory. Source: Linux, fs/proc/base.c, fs/proc/task_mmu.c.


_ENDED_STATES = b"ZX"


def living_thread(pid: int) -> Optional[int]:
    """Return a thread of *pid* that has not ended, the main one if it lives; None if none does."""
    if _lives(f"/proc/{pid}/stat"):
        return pid
    try:
        tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")))  # noqa: PTH208  (hot path)
    except OSError:
        return None
    return next((tid for tid in tids if thread_lives(pid, tid)), None)


def thread_lives(pid: int, tid: int) -> bool:
    """Return whether thread *tid* of *pid* exists and has not ended."""
    return _lives(f"/proc/{pid}/task/{tid}/stat")


def memory_folder(pid: int) -> str:
    """Return the folder of /proc that shows the memory of *pid*: a living thread's if the main one has ended."""
    tid = living_thread(pid)
    return f"/proc/{pid}" if tid in (None, pid) else f"/proc/{pid}/task/{tid}"


def text_of(path: str) -> str:
    """Return the text of a file in /proc; bytes of a process's name that are not UTF-8 are surrogates."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  (hot path)
        return file.read().decode(errors="surrogateescape")


def _lives(path: str) -> bool:
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123  (hot path)
            state = stream.read(4096).rpartition(b")")[2][1:2]
    except OSError:
        return False
    return bool(state) and state not in _ENDED_STATES


# The name of the program that a process runs, which is not that of the valgrind around it.


_VALGRINDS = ("valgrind", "valgrind.bin")  # the second is what Debian's script executes


def program_name(name: str, words: Sequence[str]) -> str:
    """Return the name of the program of a process that the kernel calls *name*, with *words* as its command line.

    Valgrind's tools are programs called TOOL-PROCESSOR-linux ("massif-amd64-li" to the kernel) that load the program.
    """
    if "-" not in name or not words or words[0].rpartition("/")[2] not in _VALGRINDS:
        return name
    program = next((word for word in words[1:] if not word.startswith("-")), "")
    return program.rpartition("/")[2] or name


def words_of(pid: int) -> list[str]:
    """Return the command line of process *pid*; [] of a kernel thread, or if it has ended."""
    try:
        text = os.fsdecode(Path(f"{memory_folder(pid)}/cmdline").read_bytes())
    except OSError:
        return []
    return text.removesuffix("\0").split("\0") if text else []


# Fields of /proc/PID/status, and the limits of a process.
#
# Source: proc(5); Linux, Documentation/filesystems/proc.rst.


def status_fields(process: Union[int, str], tid: Optional[int] = None) -> dict[str, str]:
    """Return the fields of a *process* ("self": of this one) or of its thread *tid*; none if it has ended."""
    try:
        return parse_status(text_of(f"/proc/{process}{'' if tid is None else f'/task/{tid}'}/status"))
    except OSError:
        return {}


def parse_status(text: str) -> dict[str, str]:
    """Return the fields in the *text* of a status."""
    rows = (line.partition(":") for line in text.split("\n"))
    return {name: value.strip() for name, colon, value in rows if colon}


def signals_in(fields: Mapping[str, str], *names: str) -> int:
    """Return the signals in the masks *names* together, as a mask; 0 if there are none."""
    mask = 0
    for name in names:
        mask |= int(fields.get(name, "0"), 16)
    return mask


def own_tid(pid: int, tid: Optional[int] = None) -> int:
    """Return the number that *pid*, or its thread *tid*, has in its own PID namespace."""
    numbers = status_fields(pid, tid).get("NSpid", "").split()
    return int(numbers[-1]) if numbers else (pid if tid is None else tid)


_LIMITS = {
    "Max address space": resource.RLIMIT_AS,
    "Max file size": resource.RLIMIT_FSIZE,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max stack size": resource.RLIMIT_STACK,
}


def soft_limit(pid: int, name: str) -> Optional[int]:
    """Return the soft limit *name*, as in /proc, of *pid*; None if there is none. Raises OSError."""
    try:
        limit = resource.prlimit(pid, _LIMITS[name])[0]
    except PermissionError:  # of another user's, also one that has changed its user: readable in /proc
        value = text_of(f"/proc/{pid}/limits").partition(f"\n{name} ")[2].lstrip().partition(" ")[0]
        return int(value) if value.isdecimal() else None
    return None if limit == resource.RLIM_INFINITY else limit


_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
_ENDED = "ZX"  # states


class ProcessFacts(NamedTuple):
    """The values of /proc/PID/status, of a living thread if the main one has ended; sizes are bytes."""

    pid: int
    name: str
    state: str
    uid: int
    tracer: int
    anonymous_bytes: int  # resident
    page_table_bytes: int
    swap_bytes: int
    pinned_bytes: int = 0  # for devices, as long as the process likes


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
        pinned_bytes=_kib(fields, "VmPin"),
    )


def page_table_bytes(pid: int) -> int:
    """Return the size of the page tables of *pid*; 0 if it has ended."""
    return _kib(status_fields(pid, living_thread(pid)), "VmPTE")


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


def check_not_own(pid: int) -> None:
    """Raise TargetError if *pid* is this process, which would have to stop itself to read its heap."""
    if pid == os.getpid():
        raise TargetError(
            "this process can't read its own heap: it would have to stop itself",
            slug="own-process",
            hint="call it from another process, such as a child of this one",
        )


def traced(facts: ProcessFacts) -> TargetError:
    """Return the error for a process that another one traces."""
    tracer = printable(thread_name(facts.tracer, facts.tracer)) or "which has just ended"
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
        words = words_of(process_facts(pid).tracer)
    except TargetError:
        return True
    # Without words it has just released it.
    return not words or ("explain" in words and any(word.endswith("gdbmem") for word in words))


def process_of(thread: int) -> int:
    """Return the process that the *thread* belongs to; the same number if it is a process, or has ended."""
    return int(status_fields(thread).get("Tgid", thread))


def thread_ids(pid: int) -> list[int]:
    try:
        return sorted(int(entry) for entry in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208  (quick)
    except (FileNotFoundError, ProcessLookupError):
        return []


def thread_name(pid: int, tid: int) -> str:
    """Return the name of thread *tid*, undecodable bytes as lone surrogates; "" if the thread has ended."""
    try:
        return Path(f"/proc/{pid}/task/{tid}/comm").read_text(errors="surrogateescape").rstrip("\n")
    except OSError:
        return ""


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


# The environment that a process was started with.


def initial_environment(pid: int) -> dict[str, str]:
    """Return the variables that *pid* got at its start; none if they can't be read.

    The program may have changed them since.
    """
    try:
        data = Path(f"{memory_folder(pid)}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (one.decode(errors="replace").partition("=") for one in data.split(b"\0") if b"=" in one)
    return {name: value for name, _, value in pairs}


# The auxiliary vector of a process, from /proc.


def auxiliary_vector(pid: int) -> dict[int, int]:
    """Return the values of the auxiliary vector of *pid* by their kinds. Raises OSError and struct.error."""
    return dict(struct.iter_unpack("<QQ", Path(f"{memory_folder(pid)}/auxv").read_bytes()))


# Lists of processes: by name, by user, by cgroup, by parent.


_TICKS = os.sysconf("SC_CLK_TCK")


class Counts(NamedTuple):
    """The resources that a process has used since its start."""

    minor_faults: int
    major_faults: int
    cpu_seconds: float


class Stat(NamedTuple):
    """The values of /proc/PID/stat; *start_ticks* and the pid identify a process."""

    name: str
    state: str
    parent: int
    own: Counts
    waited: Counts  # of its collected children, and of theirs
    threads: int
    start_ticks: int

    @property
    def has_ended(self) -> bool:
        """True if none of its threads runs; the state is the main one's, which may end before others."""
        return self.state in "ZX" and self.threads < 2


def parse_stat(data: bytes) -> Stat:
    """Decode /proc/PID/stat; the name may contain spaces and parentheses. Source: proc(5)."""
    close = data.rindex(b")")
    words = data[close + 2 :].split(None, 20)
    return Stat(
        name=os.fsdecode(data[data.index(b"(") + 1 : close]),
        state=chr(words[0][0]),
        parent=int(words[1]),
        own=Counts(int(words[7]), int(words[9]), (int(words[11]) + int(words[12])) / _TICKS),
        waited=Counts(int(words[8]), int(words[10]), (int(words[13]) + int(words[14])) / _TICKS),
        threads=int(words[17]),
        start_ticks=int(words[19]),
    )


def pids() -> list[int]:
    """Return every pid in /proc (with hidepid: only those of this user)."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def stat_of(pid: int) -> Optional[Stat]:
    """Return the stat of *pid*; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stream:  # noqa: PTH123  (hot path)
            return parse_stat(stream.read(4096))
    except (OSError, ValueError):
        return None


def by_name(pattern: re.Pattern[str]) -> set[int]:
    """Return the processes whose name or command line matches, excluding this one.

    For ancestors of this one only the name counts: the command line of sudo contains the pattern itself.
    """
    ours = _ancestors()
    found = set()
    for pid in pids():
        if pid == os.getpid():
            continue
        stat = stat_of(pid)
        if stat is None:
            continue
        if pattern.search(stat.name) or (pid not in ours and pattern.search(_command(pid))):
            found.add(pid)
    return found


def _ancestors() -> set[int]:
    """Return the processes above this one."""
    found: set[int] = set()
    pid = os.getppid()
    while pid and pid not in found:  # 0 is the parent of the first one, and of one from another namespace
        found.add(pid)
        stat = stat_of(pid)
        pid = stat.parent if stat is not None else 0
    return found


def by_user(uid: int) -> set[int]:
    """Return the processes of the user *uid* that have their own memory, excluding this one."""
    found = set()
    for pid in pids():
        try:
            if pid != os.getpid() and os.stat(f"/proc/{pid}").st_uid == uid and _command(pid):  # noqa: PTH116
                found.add(pid)
        except OSError:
            continue
    return found


def parents() -> dict[int, int]:
    """Return pid → parent of every process."""
    return {pid: stat.parent for pid in pids() if (stat := stat_of(pid)) is not None}


def descendants(roots: set[int], parent_of: dict[int, int]) -> Iterator[int]:
    """Yield the descendants of *roots*."""
    children: dict[int, list[int]] = {}
    for pid, parent in parent_of.items():
        children.setdefault(parent, []).append(pid)
    todo = list(roots)
    seen = set(roots)
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in seen:
                seen.add(child)
                todo.append(child)
                yield child


def proc_is_hidden() -> bool:
    """Return whether /proc is mounted so that other users' processes are hidden (hidepid)."""
    return stat_of(1) is None


def _command(pid: int) -> str:
    """Return the command line of *pid*; "" of a kernel thread, or if it has ended."""
    return " ".join(words_of(pid)).rstrip()
