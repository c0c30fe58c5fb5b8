"""HTML pages for gdb's commands, made by `gdbmem report` in the command's own interpreter, as gdb's lacks jinja2."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from gdbmem.debugger.command import say
from gdbmem.errors import InputError, ToolError, UsageError
from gdbmem.files import NEUTRAL_FOLDER
from gdbmem.inspection.interpreters import own_python
from gdbmem.text import printable

_SECONDS = 300


def check_page(name: str, *, force: bool) -> None:
    """Raise InputError unless *name* ends as pages do, and is free; asked before the long part of a command."""
    if Path(name).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{printable(name)} is not a name of a page", hint="--html FILE.html")
    if Path(name).exists() and not force:
        raise InputError(
            f"{printable(name)} exists", slug="output-exists", hint="name another file, or add --force"
        )


def write_document_page(document: str, stem: str, file: str, *, force: bool, title: str = "") -> None:
    """Write the page of *document*, what --json would print, into *file*; *stem* is what the page calls it."""
    with tempfile.TemporaryDirectory(prefix="gdbmem-") as folder:
        held = Path(folder) / f"{stem}.json"
        held.write_text(document, encoding="utf-8", errors="backslashreplace")
        write_page([str(held)], file, force=force, options=["--title", title] if title else [])


def write_page(operands: Sequence[str], file: str, *, force: bool, options: Sequence[str]) -> None:
    """Write the page of the absolute *operands* to *file*, and report it. Raises ToolError with its message."""
    python, environment = own_python("a page", "gdbmem.cli.main")
    words = ["report", "-o", os.path.abspath(file), *(["--force"] if force else []), *options]  # noqa: PTH100  (a link stays a link)
    failure = _failure([*python, *words, "--", *operands], environment)
    if failure is not None:
        raise ToolError(
            f"{printable(file)} could not be written: {printable(failure)}",
            slug="page-failed",
            hint="'gdbmem report' in a shell makes pages, too",
        )
    say(f"the page is {printable(file)}")


def _failure(argv: Sequence[str], environment: Mapping[str, str]) -> Optional[str]:
    """Run *argv*; return its last sentence if it failed."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=NEUTRAL_FOLDER,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 0:
        return None
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return last.removeprefix("gdbmem: ") or "it ended without a message"
