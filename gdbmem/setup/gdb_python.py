"""gdb and its own Python: where they are, which version, and the private folder of packages for it."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import InputError, MissingToolError, ToolError
from gdbmem.setup.requirements import how_to_install
from gdbmem.text import format_size, printable

OLDEST_PYTHON = (3, 9)
_LEAST_ROOM_BYTES = 128 << 20  # gdb with its libraries and Python is not mapped in 64 MiB
GDB_SECONDS = 60.0  # a bare gdb starts in 50 ms; the first time, from a cold network disk, it does not


class GdbPython(NamedTuple):
    """A gdb that has a usable Python."""

    gdb: str  # its path
    version: str  # of gdb, as it reports: 13.1
    python: tuple[int, int]


def loader_file() -> Path:
    """Return the file that ``source gdbmem`` reads: beside the package in a checkout, in it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "gdbinit", package / "gdbinit"):
        if (folder / "gdbmem").is_file():
            return folder / "gdbmem"
    raise InputError(
        f"this gdbmem is incomplete: no gdbinit/gdbmem beside or in {printable(str(package))}",
        slug="incomplete-installation",
        hint="install gdbmem again",
    )


def lasting_folder() -> Path:
    """Return the folder of a loader for the user's gdbinit: one that outlives an upgrade of Python, if there is one.

    A wheel puts one into PREFIX/share; that in the package is below lib/pythonX.Y.
    """
    loader = loader_file()
    above = loader.parents  # …/lib/pythonX.Y/site-packages/gdbmem/gdbinit/gdbmem
    if len(above) > 5 and above[3].name.startswith("python3"):
        lasting = above[5] / "share" / "gdbmem" / "gdbinit"
        if (lasting / "gdbmem").is_file():
            return lasting
    return loader.parent


def find_gdb(given: Optional[str] = None) -> str:
    """Return the path of gdb: *given*, else ``$GDBMEM_GDB``, else the first in PATH.

    Raises MissingToolError if there is none.
    """
    named = given or os.environ.get("GDBMEM_GDB")
    found = shutil.which(named or "gdb")
    if found:
        return str(Path(found).absolute())
    if named:
        origin = "" if given else ", which $GDBMEM_GDB names,"
        raise MissingToolError(
            f"{printable(named)}{origin} is not a program that can be run",
            slug="gdb-missing",
            hint="name the path of a gdb",
        )
    raise MissingToolError("gdb is not installed", slug="gdb-missing", hint=how_to_install("gdb"))


def refuse_little_room() -> None:
    """Raise InputError if this process's limit of address space leaves gdb too little to start."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ROOM_BYTES:
        raise InputError(
            f"the limit of address space is {format_size(limit)} here, and gdb alone takes"
            f" {format_size(_LEAST_ROOM_BYTES)}",
            slug="little-room",
            hint="raise it in a shell that is allowed to: ulimit -v unlimited",
        )


def gdb_python(gdb: str) -> GdbPython:
    """Start *gdb* and ask for its version and its Python's.

    Raises ToolError if it can't be started, has no Python, or one older than 3.9.
    """
    refuse_little_room()
    code = "import sys, gdb; print('gdbmem-python', sys.version_info[0], sys.version_info[1], gdb.VERSION)"
    output, complaint = run_python_in_gdb(quiet_gdb(gdb), code)
    for line in output.splitlines():
        words = line.split(maxsplit=3)
        if len(words) == 4 and words[0] == "gdbmem-python" and words[1].isdigit() and words[2].isdigit():
            python = (int(words[1]), int(words[2]))
            if python < OLDEST_PYTHON:
                raise ToolError(
                    f"{printable(gdb)} has Python {python[0]}.{python[1]}, and gdbmem needs 3.9 or later",
                    slug="gdb-python-too-old",
                    hint="name another gdb in $GDBMEM_GDB",
                )
            return GdbPython(gdb, words[3], python)
    raise ToolError(
        f"{printable(gdb)} has no working Python ({printable(complaint) or 'it prints nothing'})",
        slug="gdb-without-python",
        hint=f"{how_to_install('gdb')} (the full one: gdb-minimal lacks Python), or name another gdb in $GDBMEM_GDB",
    )


def quiet_gdb(gdb: str, *, online: bool = False) -> list[str]:
    """Return the beginning of the command of a gdb without a user.

    It reads no gdbinit, runs no script of a program or library, and downloads nothing unless *online*.
    """
    debuginfod = f"set debuginfod enabled {'on' if online else 'off'}"
    return [gdb, "-q", "-nx", "-batch", "-iex", "set auto-load off", "-iex", debuginfod]


def quiet_environment(**variables: str) -> dict[str, str]:
    """Return the environment, with *variables*, of a gdb that is no part of the launch around it."""
    return {**{name: value for name, value in os.environ.items() if name != "GDBMEM_SESSION"}, **variables}


def run_python_in_gdb(
    gdb: Sequence[str], code: str, *, folder: Optional[str] = None, **variables: str
) -> tuple[str, str]:
    """Run one line of Python in the gdb that the command *gdb* starts; return its output and its last complaint.

    *variables* go into its environment: paths are never spliced into code. Raises ToolError if gdb can't be started
    or doesn't end.
    """
    name = printable(gdb[0])
    try:
        done = subprocess.run(
            [*gdb, "-ex", f"python {code}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GDB_SECONDS,
            cwd=folder,
            env=quiet_environment(**variables),
            start_new_session=True,  # a gdbinit must not get at the user's terminal
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(
            f"{name} did not end within {GDB_SECONDS:.0f} s",
            slug="gdb-hangs",
            hint="start it by hand to find out why",
        ) from None
    except OSError as error:
        raise ToolError(
            f"{name} could not be started: {error.strerror}",
            slug="tool-not-started",
            hint="check that it is a gdb and that this user may run it",
        ) from error
    output = done.stdout.decode("utf-8", "surrogateescape")
    complaints = done.stderr.decode("utf-8", "surrogateescape").strip().splitlines()
    return output, _last_complaint(complaints)


def loading_problem(gdb: str, gdbinit: Optional[Path] = None, *, auto_load: bool = False) -> str:
    """Return why ``source gdbmem`` fails in *gdb* with the user's gdbinit, or with *gdbinit*; "" if it works.

    With *auto_load* the gdbinit itself has to load it. Raises ToolError if gdb can't be started or doesn't end.
    """
    command = [gdb, "-batch", *(() if gdbinit is None else ("-nx", "-x", str(gdbinit.resolve())))]
    command += [] if auto_load else ["-ex", "source gdbmem"]
    # Nothing is imported where nothing was loaded: gdb has said why, and its last complaint counts.
    works = "'gdbmem.debugger' in sys.modules and __import__('pygments')"
    code = f"import sys; print('gdbmem-works' if {works} else '')"
    with tempfile.TemporaryDirectory(
        prefix="gdbmem-"
    ) as elsewhere:  # the current folder may hold a file of that name
        output, complaint = run_python_in_gdb(command, code, folder=elsewhere)
    return "" if "gdbmem-works" in output else printable(complaint) or "it prints nothing"


def _last_complaint(complaints: list[str]) -> str:
    # gdb's last line only reports a failure; the exception is above it. gdb 10 has no setting "debuginfod".
    others = ("Error while executing Python code", 'No symbol "debuginfod"')
    telling = [line.strip() for line in complaints if not line.startswith(others)]
    return telling[-1] if telling else ""


# The gdb command by which gdbmem calls its own code inside gdb.


def gdb_call(module: str, call: str) -> str:
    """Return the command for *call* in the module gdbmem.debugger.*module*.

    It binds no name in gdb's Python, where the user's own live and where such commands run inside each other.
    """
    return f"python __import__('importlib').import_module('gdbmem.debugger.{module}').{call}"
