"""The Python that gdbmem was installed into, for processes beside gdb, whose own Python lacks packages."""

from __future__ import annotations

from collections.abc import Mapping

from gdbmem.errors import ToolError
from gdbmem.inspection.interpreters import interpreters, module_words, own_environment


def own_python(what: str, module: str) -> tuple[list[str], Mapping[str, str]]:
    """Return the command line that runs *module* there, and its environment.

    Raises ToolError, which names *what* needs it, if there is none.
    """
    python = next(iter(interpreters()), None)
    if python is None:
        raise ToolError(
            f"{what} needs the Python that gdbmem was installed into, which was not found",
            slug="python-worker-missing",
            hint="name it: GDBMEM_PYTHON=/path/to/python",
        )
    return [str(python), "-s", *module_words(module)], own_environment()
