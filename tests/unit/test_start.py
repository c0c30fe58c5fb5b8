"""Modules that commands must not import at their start, because a user waits for them at each first command."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbmem import line_recorder
from gdbmem.cli.commands import python
from tests.unit.sources import imports, names, nodes, sources

_STARTS_PROCESSES = ["gdbmem.launch.job", "gdbmem.launch.attached", "subprocess", "tempfile"]
_READS_PROCESSES = ["gdbmem.inspection.read_process", "gdbmem.inspection.block_answers"]
_READS_PROFILES = ["gdbmem.formats.opening", "gdbmem.profiles.ranking"]
_MAKES_CLASSES = ["dataclasses", "inspect"]
_SELDOM_NEEDED = [
    "ctypes",
    "threading",
    "gdbmem.model.containers",
    "gdbmem.model.leaks",
    "gdbmem.formats.series",
]
_DRAWS = ["gdbmem.debugger.report_pages", "gdbmem.steps.charts", "gdbmem.page.page", "jinja2"]

_SLOWS_GDB = ["gdbmem.terminal.console", "gdbmem.files", "json", "pathlib", "tempfile"]

# By the module with a command: what it may not import while it is itself imported.
_NOT_AT_START = {
    "cli.commands.launch": [*_STARTS_PROCESSES, *_READS_PROFILES],
    "cli.commands.monitor": [*_STARTS_PROCESSES, *_READS_PROFILES, *_MAKES_CLASSES, "gdbmem.series.store"],
    "cli.commands.report": ["jinja2"],
    "cli.commands.show": [
        *_MAKES_CLASSES,
        *_SELDOM_NEEDED,
        "gdbmem.profiles.documents",
        "gdbmem.runs.saved_results",
    ],
    "cli.commands.diff": [*_MAKES_CLASSES, *_SELDOM_NEEDED],
    "formats.heap_profilers.gperftools": _MAKES_CLASSES,  # by show and diff of such a file
    "formats.valgrind.callgrind": _MAKES_CLASSES,
    "cli.commands.compare": _MAKES_CLASSES,
    "cli.monitor_recording": _MAKES_CLASSES,  # by monitor
    "cli.monitor_reporting": _MAKES_CLASSES,
    "cli.commands.grow": _MAKES_CLASSES,
    "cli.commands.recipe": _MAKES_CLASSES,
    "cli.commands.doctor": [*_STARTS_PROCESSES, "gdbmem.setup.gdb_packages"],
    "cli.commands.python": [*_STARTS_PROCESSES, *_READS_PROCESSES, *_READS_PROFILES, "gdbmem.line_recorder"],
    "debugger.command": _SLOWS_GDB,  # gdb loads these three at its start
    "debugger.memwatch.commands.settings": _SLOWS_GDB,
    "debugger.stopping.stops": _SLOWS_GDB,
    "debugger.memwatch.commands.command": [*_READS_PROCESSES, *_READS_PROFILES, *_DRAWS],
    "debugger.ledger.explain": [*_READS_PROCESSES, *_READS_PROFILES, *_DRAWS, "gdbmem.runs.operand"],
}
# Slow for what they do, at the top of any module.
_SLOW = {"importlib.metadata"}


@functools.cache
def _loads(start: str) -> frozenset[str]:
    by_name = {source.name: source for source in sources()}
    found, waiting = {start}, [start]
    while waiting:
        for one in imports(by_name[waiting.pop()]):
            if one.at_load and one.module not in found:
                found.add(one.module)
                if one.module in names():
                    waiting.append(one.module)
    return frozenset(found)


@pytest.mark.parametrize("command", _NOT_AT_START)
def test_a_command_starts_without_what_it_may_not_need(command: str) -> None:
    loaded = _loads(f"gdbmem.{command}")
    assert len(loaded) > 5  # the imports were found
    assert not loaded & set(_NOT_AT_START[command])


def test_what_commands_may_not_import_is_there_to_be_imported() -> None:
    forbidden = {one for row in _NOT_AT_START.values() for one in row if one.startswith("gdbmem.")}
    assert forbidden <= names()


def test_no_module_imports_at_its_top_what_is_slow_to_import() -> None:
    slow = [
        f"{source}:{one.line} imports {one.module}"
        for source in sources()
        for one in imports(source)
        if one.at_load and one.module in _SLOW
    ]
    assert not slow, "import it in the function that needs it"


def test_annotations_that_are_evaluated_are_of_a_form_that_python_3_9_has() -> None:
    wrong = [
        f"{source}:{annotation.lineno}"
        for source in sources()
        if "annotations"
        not in {name.name for one in nodes(source.path, ast.ImportFrom) for name in one.names}
        for annotation in _annotations(source.path)
        if any(isinstance(part, ast.BinOp) for part in ast.walk(annotation))
    ]
    assert not wrong, "write Union[…]"


def _annotations(path: Path) -> Iterator[ast.expr]:
    yield from filter(None, (one.returns for one in nodes(path, ast.FunctionDef)))
    yield from filter(None, (one.annotation for one in nodes(path, ast.arg)))
    yield from (one.annotation for one in nodes(path, ast.AnnAssign))


def test_the_recorder_of_lines_is_found() -> None:
    assert line_recorder.__file__ == str(python._RECORDER)
