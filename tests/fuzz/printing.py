"""Everything that gdbmem prints and writes of a profile: safe text, numbers that can be, files that are read back."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gdbmem.cli.main import load
from gdbmem.commands.shell import SHELL_COMMANDS
from gdbmem.errors import GdbmemError, Notice
from gdbmem.formats.opening import open_profile
from gdbmem.symbols import batch_gdb
from gdbmem.text import printable

_NO_NUMBER = re.compile(r"(?:^| )(?:nan|inf|-[0-9][0-9,.]*) (?:B|[KMGTPE]iB|%)(?: |$)", re.MULTILINE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TEXTS = ("folded", "csv")
_DOCUMENTS = ("json", "speedscope")
_EXPORTS = (*_TEXTS, *_DOCUMENTS, "massif", "pprof")


class PrintedError(AssertionError):
    """The output can't be right."""


def _ask_no_gdb(questions: Sequence[Any]) -> Iterator[Notice]:
    """Answer that there is no gdb: one for each changed file would take too long. The files are looked for."""
    return (Notice("no-symbols", "no gdb is asked here") for _ in questions)


def print_profile(path: Path, folder: Path) -> None:
    """Show, compare, report and export the profile *path*, with output in *folder*; what is wrong raises."""
    with patch.object(batch_gdb, "ask_gdb", _ask_no_gdb):
        text = _run("show", str(path))
        document = json.loads(
            _run("show", str(path), "--json", "--by", "path"), parse_constant=_refuse_constant
        )
        if document["kind"] == "profile":
            _check_text(text)
            _check_profile(document)
            _check(_run("diff", str(path), str(path)).splitlines()[0], "did not change")
        _run("report", str(path), "-o", str(folder / "page.html"), "--force")
        if _CONTROL.search((folder / "page.html").read_text(encoding="utf-8")):
            raise PrintedError("a control character in the page")
        for kind in _EXPORTS:
            _check_export(path, kind, folder / kind)


def _run(*words: str) -> str:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in "12")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        load(words[0])(words[1:], SHELL_COMMANDS[words[0]].parser())
    texts = [stream.buffer.getvalue().decode("utf-8") for stream in (out, err)]
    for line in "\n".join(texts).split("\n"):
        _check(line, line if printable(line) == line else "only what is printable")
    return texts[0]


def _check(line: str, expected: str) -> None:
    if expected not in line:
        raise PrintedError(f"expected {expected!r} in {line!r}")


def _refuse_constant(name: str) -> None:
    raise PrintedError(f"{name} in JSON")


def _check_text(text: str) -> None:
    """Check the text of one moment: it holds no less than nothing, and no part is more than all."""
    unquoted = "\n".join(
        line for line in text.split("\n") if "│" not in line and not line.startswith("note: ")
    )
    found = _NO_NUMBER.search(unquoted)
    if found is not None:
        raise PrintedError(f"no such number can be: {found[0]}")


def _check_profile(document: Mapping[str, Any]) -> None:
    for totals in document["snapshots"]:
        if min(totals[name] for name in ("heap_bytes", "extra_bytes", "stacks_bytes")) < 0:
            raise PrintedError(f"less than nothing: {totals}")
    course = document["course"]
    if course is not None and not (0 <= course["kept"] <= 1 and course["overhead"] >= 0):
        raise PrintedError(f"a part that is more than all: {course}")
    sites = document["sites"]
    if sites is None:
        return
    rows = sites["paths"] if "paths" in sites else sites["sites"]
    if any(row["after_bytes"] < 0 for row in rows):
        raise PrintedError("a row of less than nothing")


def _check_export(path: Path, kind: str, file: Path) -> None:
    words = ("export", str(path), "--to", kind, "-o", str(file), "--force")
    with contextlib.suppress(GdbmemError):  # a difference has no folded stacks, and a file may have no tree
        _run(*words)
        data = file.read_bytes()
        if kind in _TEXTS and _CONTROL.search(data.decode("utf-8")):
            raise PrintedError(f"a control character in {kind}")
        if kind in _DOCUMENTS:
            json.loads(data, parse_constant=_refuse_constant)
        if kind in ("massif", "pprof") and data:
            profile = open_profile(file)
            for _ in _trees(profile):
                pass


def _trees(profile: Any) -> Iterator[Any]:
    for totals in profile.snapshots:
        if totals.has_tree:
            tree = profile.tree(totals.index)
            tree.check()
            yield tree
