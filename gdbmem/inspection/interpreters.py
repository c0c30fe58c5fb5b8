"""The Python interpreters that may have the `gdbmem` command's own packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from gdbmem.errors import ToolError

INTERPRETER = "GDBMEM_PYTHON"  # the variable that names one
_PACKAGE = Path(__file__).resolve().parents[2]


def interpreters() -> Iterator[Path]:
    """Yield the Pythons that may have numpy: $GDBMEM_PYTHON alone if set, else the command's own."""
    named = os.environ.get(INTERPRETER)
    if named is not None:
        if named:
            yield Path(named).absolute()  # it is started in another folder
        return
    package = _PACKAGE / "gdbmem"
    # A checkout's environment; an installed package's prefix (PREFIX/lib/python3.x/site-packages/gdbmem).
    candidates = [
        package.parent / ".venv/bin/python",
        *(folder / "bin/python3" for folder in list(package.parents)[3:4]),
    ]
    script = shutil.which("gdbmem")
    if script:
        candidates.append(Path(script).resolve().with_name("python3"))
    yield from (path for path in dict.fromkeys(candidates) if path.exists())


def module_words(module: str) -> list[str]:
    """Return the arguments with which a Python runs *module* of this package, and no code from the current folder.

    ``-m`` would search that folder first, also for modules that Python itself needs.
    """
    start = "import sys; sys.path[:1] == [''] and sys.path.pop(0); import runpy"
    return ["-c", f"{start}; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"]


def own_environment() -> Mapping[str, str]:
    """Return the environment in which they use this package, without what is set for gdb's own Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(_PACKAGE)}


def own_python(what: str, module: str) -> tuple[list[str], Mapping[str, str]]:
    """Return the command line that runs *module* there, and its environment.

    Raises ToolError, which names *what* needs it, if there is none.
    """
    python = next(iter(interpreters()), None)
    if python is None:
        raise no_interpreter(what)
    return [str(python), "-s", *module_words(module)], own_environment()


def no_interpreter(what: str) -> ToolError:
    """Return the error for *what* needs such an interpreter, where there is none."""
    return ToolError(
        f"{what} needs the Python that gdbmem was installed into, which was not found",
        slug="python-worker-missing",
        hint="name it: GDBMEM_PYTHON=/path/to/python",
    )
