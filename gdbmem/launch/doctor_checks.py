"""Checks whether everything that gdbmem needs is installed and works; each check tests the function itself."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Annotated, NamedTuple, Optional

from gdbmem import __version__
from gdbmem.engines.engine import EngineTable, tables
from gdbmem.errors import GdbmemError
from gdbmem.json_values import Key
from gdbmem.launch.child import runtime_folder
from gdbmem.launch.native import find_library
from gdbmem.launch.valgrind import own_settings
from gdbmem.linux.faults.watch import FaultWatch
from gdbmem.linux.process.rights import NOBODY, asker
from gdbmem.setup import gdbinit
from gdbmem.setup.folders import private_folder
from gdbmem.setup.gdb_packages import import_problem
from gdbmem.setup.gdb_python import (
    GdbPython,
    find_gdb,
    gdb_python,
    loading_problem,
    quiet_gdb,
    run_python_in_gdb,
)
from gdbmem.setup.requirements import REQUIREMENTS, how_to_install, pip_install, problems
from gdbmem.symbols.unwind_tables import can_unwind

_SECONDS = 60.0
_WITHOUT_GDB = "no launch, attach or snap, and addresses stay without names"
_WITHOUT_VALGRIND = "no launch --massif, no engines memcheck and dhat"
# The engines of valgrind, and the option that names the file each writes at its end.
_TOOLS = (("massif", "--massif-out-file"), ("memcheck", ""), ("dhat", "--dhat-out-file"))


class Check(NamedTuple):
    """The result of one check."""

    name: str
    ok: bool
    found: str
    mend: Annotated[str, Key(or_null=True)] = ""  # what to do or type
    needed: bool = True  # without it `gdbmem launch` does not work
    is_tool: bool = False  # a program that has to be installed
    without: Annotated[str, Key(or_null=True)] = ""  # what does not work without it


def check_all() -> list[Check]:
    """Make all checks; each one also if an earlier one failed."""
    checks = [Check("gdbmem", True, f"{__version__}, Python {platform.python_version()}"), _packages()]
    found = _gdb(checks)
    if found is not None:
        checks += [_private_folder(found), _gdbinit(found)]
    checks += _valgrind()
    checks += [_engine(entry) for entry in tables() if entry.library or entry.command]
    if found is not None:
        checks += [_libc_symbols(found), _starts_programs(found)]
    return [*checks, _attach_rights(), _page_faults(), _unwind_tables(), _proc(), _runtime_folder()]


def _packages() -> Check:
    name, missing = "Python packages", problems()
    if not missing:
        return Check(name, True, f"{len(REQUIREMENTS)}, each can be imported")
    return Check(
        name,
        False,
        ", ".join(f"{one.package}: {reason}" for one, reason in missing),
        pip_install(*(one.package for one, _ in missing)),
        is_tool=True,
        without=", ".join(one.without for one, _ in missing),
    )


def _gdb(checks: list[Check]) -> Optional[GdbPython]:
    try:
        found = gdb_python(find_gdb())
    except GdbmemError as error:
        # An installed gdb without Python has to be replaced: it counts as a missing tool.
        checks.append(Check("gdb", False, error.message, error.hint, is_tool=True, without=_WITHOUT_GDB))
        return None
    checks.append(Check("gdb", True, f"{found.version}, {found.gdb}", is_tool=True))
    checks.append(Check("gdb's Python", True, ".".join(map(str, found.python))))
    return found


def _private_folder(found: GdbPython) -> Check:
    name, folder = "packages for gdb", Path(private_folder(found.python))
    if not folder.is_dir():
        return Check(name, False, "none yet", "type: gdbmem install (a launch makes them, too)", needed=False)
    problem = import_problem(found.gdb, folder)
    if problem:
        return Check(name, False, f"{folder}: {problem}", "type: gdbmem install")
    return Check(name, True, str(folder))


def _gdbinit(found: GdbPython) -> Check:
    name = "source gdbmem"
    try:
        path = gdbinit.users_gdbinit(found.version)
        content = gdbinit.read(path)
        installed = gdbinit.without_block(content) != content
    except GdbmemError as error:
        return Check(name, False, error.message, error.hint, needed=False)
    if installed:
        problem = loading_problem(found.gdb)
        if problem:
            return Check(
                name, False, f"{path} names gdbmem, but it fails in gdb: {problem}", "type: gdbmem install"
            )
        return Check(name, True, f"through {path}", needed=False)
    return Check(
        name,
        False,
        f"{path} does not name gdbmem",
        "type: gdbmem install",
        needed=False,
        without="no 'source gdbmem' in a gdb of your own ('gdbmem launch' works)",
    )


def _valgrind() -> list[Check]:
    path, vgdb = shutil.which("valgrind"), shutil.which("vgdb")
    if path is None:
        mend = how_to_install("valgrind")
        return [Check("valgrind", False, "not installed", mend, is_tool=True, without=_WITHOUT_VALGRIND)]
    status, output = _run([path, "--version"])
    found = f"{output.replace('valgrind-', '', 1)}, {path}"
    mend = "" if status == 0 else f"install it again: {how_to_install('valgrind')}"
    checks = [Check("valgrind", status == 0, found, mend, is_tool=True, without=_WITHOUT_VALGRIND)]
    if status == 0:
        checks += [_tool(path, tool, option, needed=tool == "massif") for tool, option in _TOOLS]
    mend = "" if vgdb else how_to_install("valgrind")
    lost = "no snapshots under valgrind"
    return [
        *checks,
        Check("vgdb", vgdb is not None, vgdb or "not installed", mend, is_tool=True, without=lost),
    ]


def _tool(valgrind: str, engine: str, out_file: str, *, needed: bool) -> Check:
    """Run valgrind's tool *engine* on a program that does nothing; its file is discarded."""
    program = shutil.which("true") or "/bin/true"
    words = [
        valgrind,
        *own_settings(),
        f"--tool={engine}",
        *([f"{out_file}=/dev/null"] if out_file else []),
        program,
    ]
    lost = f"no --engine {engine}"
    status, output = _run(words)
    if status == 0:
        return Check(engine, True, f"ran {program}", needed=needed, is_tool=True)
    if "redirection" in output:
        # valgrind has to find some functions of ld.so by name, but ld.so is stripped.
        mend = how_to_install("libc-symbols")
        return Check(engine, False, "ld.so has no symbols", mend, needed=needed, is_tool=True, without=lost)
    said = output.splitlines()[-1].strip() if output else f"status {status}"
    mend = f"install valgrind again: {how_to_install('valgrind')}"
    found = f"running {program}: {said}"
    return Check(engine, False, found, mend, needed=needed, is_tool=True, without=lost)


def _engine(entry: EngineTable) -> Check:
    name = f"engine {entry.name}"
    try:
        found = find_library(entry)
    except GdbmemError as error:
        lost = f"no --engine {entry.name} ({entry.summary})"
        return Check(name, False, error.message, how_to_install(entry.package), needed=False, without=lost)
    return Check(name, True, found, needed=False)


def _libc_symbols(found: GdbPython) -> Check:
    name, libc = "symbols of libc", _libc()
    if libc is None:
        return Check(name, False, "not a GNU libc", needed=False)
    output, _ = run_python_in_gdb(
        [*quiet_gdb(found.gdb), libc],
        "import gdb; gdb.lookup_type('struct malloc_state'); print('gdbmem-symbols')",
    )
    if "gdbmem-symbols" in output:
        return Check(name, True, f"for {libc}", needed=False)
    if os.environ.get("DEBUGINFOD_URLS"):
        return Check(name, True, "from $DEBUGINFOD_URLS, when gdb asks for them", needed=False)
    lost = "no lines of libc in stacks; explain has to recognise its malloc by other means"
    return Check(name, False, f"none for {libc}", how_to_install("libc-symbols"), needed=False, without=lost)


def _libc() -> Optional[str]:
    # The one that this process uses.
    try:
        maps = Path("/proc/self/maps").read_bytes()
    except OSError:
        return None
    match = re.search(rb"(/\S*/libc(?:\.so\.6|-2\.\d+\.so))$", maps, re.MULTILINE)
    return os.fsdecode(match[1]) if match else None


def _starts_programs(found: GdbPython) -> Check:
    program = shutil.which("true") or "/bin/true"
    output, complaint = run_python_in_gdb(
        [*quiet_gdb(found.gdb), "-iex", "set startup-with-shell off", program],
        "import gdb; gdb.execute('run'); print('gdbmem-ran', gdb.parse_and_eval('$_exitcode'))",
    )
    name = "gdb runs programs"
    if "gdbmem-ran 0" in output:
        return Check(name, True, f"ran {program}", needed=False)
    mend, lost = "start the container with --cap-add=SYS_PTRACE", "only engines under valgrind, no attach"
    said = complaint or "the program did not end"
    return Check(name, False, said, mend, needed=False, without=lost)


def _attach_rights() -> Check:
    name, asks = "attach rights", asker()
    lost = "no attach, snap or explain of running programs"
    if asks.scope == NOBODY:
        found, mend = "no process at all (ptrace_scope 3)", "remove it from /etc/sysctl.d and reboot"
    elif asks.may_trace_all:
        return Check(name, True, "this user may trace any process", needed=False)
    elif asks.uid == 0:
        found, mend = "root has no CAP_SYS_PTRACE here", "start the container with --cap-add=SYS_PTRACE"
    elif not asks.scope:
        return Check(name, True, "own processes; others' as root", needed=False)
    else:
        found = "only programs that gdb starts" if asks.scope == 1 else "none without root"
        found = f"{found} (ptrace_scope {asks.scope})"
        mend = "type: sudo sysctl kernel.yama.ptrace_scope=0"
    return Check(name, False, found, mend, needed=False, without=lost)


def _page_faults() -> Check:
    """Sample the page faults of a child process, as `gdbmem grow` does."""
    name, lost = "page faults", "no gdbmem grow, no memgrow, no --engine faults"
    try:
        with FaultWatch() as watch:
            subprocess.run([shutil.which("true") or "/bin/true"], check=False, timeout=_SECONDS)
            count = sum(watch.count().values())
            mode = "in kernel mode too" if watch.wishes.kernel else "in user mode (root sees all)"
    except (GdbmemError, OSError, subprocess.SubprocessError) as error:
        hint = error.hint if isinstance(error, GdbmemError) else ""
        return Check(name, False, str(getattr(error, "message", error)), hint, needed=False, without=lost)
    return Check(name, count > 0, f"counted {count} of a child, {mode}", needed=False, without=lost)


def _unwind_tables() -> Check:
    name = "unwind tables"
    if can_unwind():
        return Check(name, True, "read by elfutils' libdw", needed=False)
    lost = "gdbmem grow finds callers by frame pointers only"
    return Check(name, False, "libdw is not installed", how_to_install("libdw"), needed=False, without=lost)


def _proc() -> Check:
    try:
        Path("/proc/self/statm").read_bytes()
        Path("/proc/self/smaps_rollup").read_bytes()
    except OSError as error:
        return Check(
            "/proc", False, f"{error.filename}: {error.strerror}", "mount it: mount -t proc proc /proc"
        )
    return Check("/proc", True, f"Linux {platform.release()}")


def _runtime_folder() -> Check:
    name = "runtime folder"
    try:
        with runtime_folder(Path("/")) as folder:
            return Check(name, True, f"{folder.parent} takes FIFOs")
    except GdbmemError as error:
        return Check(name, False, error.message, error.hint)


def _run(command: list[str]) -> tuple[Optional[int], str]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"does not end within {_SECONDS:.0f} s"
    except OSError as error:
        return None, str(error.strerror)
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()
