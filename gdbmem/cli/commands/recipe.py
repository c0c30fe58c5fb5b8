"""Run `gdbmem recipe`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Optional, TypedDict

from gdbmem.commands.arguments import ArgumentParser
from gdbmem.engines.engine import AUTO, options_of
from gdbmem.engines.faults import NAME as FAULTS
from gdbmem.engines.massif import NAME as MASSIF
from gdbmem.errors import GdbmemError, InputError
from gdbmem.launch.program import find_program
from gdbmem.model.diff import BLOCKS, HEAP
from gdbmem.recipes.reader import load_recipe
from gdbmem.recipes.recipe import Recipe
from gdbmem.recipes.yaml_text import RecipeError
from gdbmem.terminal.console import open_output
from gdbmem.terminal.document import Document, head, to_json
from gdbmem.text import plural, printable

_MOST_PROBLEMS = 20  # of one file, in the text


class ProblemFound(TypedDict):
    """A problem in a recipe, at a line and column from 1; both None for a file that could not be read."""

    line: Optional[int]
    column: Optional[int]
    message: str
    hint: Optional[str]


class CheckedRecipe(TypedDict):
    """The outcome of checking one file."""

    file: str
    ok: bool
    problems: list[ProblemFound]
    summary: str


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    with open_output(args.output, force=args.force) as stream:
        checked = [_check(file) for file in args.files]
        if args.json:
            stream.write(to_json(_document(checked)))
        else:
            stream.writelines(_line(file) for file in checked if file["ok"])
    if not args.json:
        sys.stdout.flush()
        sys.stderr.writelines(_line(file) for file in checked if not file["ok"])
    return 0 if all(file["ok"] for file in checked) else 1


def _check(file: str) -> CheckedRecipe:
    problems: list[ProblemFound] = []
    summary = ""
    try:
        recipe = load_recipe(file)
        if recipe.engine != AUTO:  # which has no further options
            options_of(recipe.engine, recipe.options)
        problems += _unseeable(recipe)
        summary = f"{plural(len(recipe.points), 'point')}, {plural(len(recipe.expectations), 'expectation')}"
        summary += _missing_program(recipe)
    except RecipeError as error:
        problems += [
            {"line": p.position.line, "column": p.position.column, "message": p.message, "hint": p.hint}
            for p in error.problems
        ]
    except InputError as error:
        problems.append({"line": None, "column": None, "message": error.message, "hint": error.hint})
    return {"file": file, "ok": not problems, "problems": problems, "summary": summary}


def _unseeable(recipe: Recipe) -> list[ProblemFound]:
    """Return the problems of expectations on a heap that the engine can't count in this program."""
    judged = [one for one in recipe.expectations if one.metric in (HEAP, BLOCKS)]
    try:
        is_static = bool(judged) and find_program(recipe.program, folder=recipe.folder).is_static
    except GdbmemError:
        return []  # it may be built later
    if not is_static or recipe.engine in (AUTO, FAULTS) or recipe.options.get("pages_as_heap"):
        return []
    what = f"{recipe.engine} can't count the heap of {printable(recipe.program)}, which is statically linked"
    remedy = (
        "use options: {pages-as-heap: yes}, or engine: faults"
        if recipe.engine == MASSIF
        else "use engine: faults"
    )
    hint = f"{remedy}, or engine: none with do: [ledger] and metric: rss"
    return [
        {"line": one.position.line, "column": one.position.column, "message": what, "hint": hint}
        for one in judged
    ]


def _missing_program(recipe: Recipe) -> str:
    """Return the notice on a missing program: it may be built later, so this is not an error yet."""
    try:
        find_program(recipe.program, folder=recipe.folder)
    except GdbmemError as error:
        return f"; as yet {printable(error.message)}"
    return ""


def _document(checked: Sequence[CheckedRecipe]) -> Document:
    files = [{key: value for key, value in file.items() if key != "summary"} for file in checked]
    return {**head("recipe-check", ()), "files": files}


def _line(file: CheckedRecipe) -> str:
    name = printable(file["file"])
    if file["ok"]:
        return f"{name}: ok ({file['summary']})\n"
    lines = []
    for problem in file["problems"][:_MOST_PROBLEMS]:
        # Without a line the file could not be read, and the message names it.
        place = f"{name}:{problem['line']}:{problem['column']}: " if problem["line"] else ""
        hint = f"; {problem['hint']}" if problem["hint"] else ""
        lines.append(f"{place}{problem['message']}{hint}\n")
    left = len(file["problems"]) - _MOST_PROBLEMS
    more = f"{name}: {plural(left, 'more problem')}; --json lists all\n" if left > 0 else ""
    return "".join(lines) + more
