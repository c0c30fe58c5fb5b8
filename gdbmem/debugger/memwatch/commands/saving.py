"""`memwatch save` and `memwatch plot`: the recorded steps as files and pictures."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gdbmem.debugger.command import Command, say
from gdbmem.debugger.location import program_file
from gdbmem.debugger.memwatch.commands.showing import source_lines
from gdbmem.debugger.memwatch.gauges.gauge import accounts
from gdbmem.debugger.report_pages import check_page, write_document_page
from gdbmem.debugger.session import session
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import UsageError
from gdbmem.formats.documents import read_step_sums
from gdbmem.model.steps import Step
from gdbmem.runs.distrust import check_name
from gdbmem.runs.saved_results import file_text
from gdbmem.steps.by_line import GROUPINGS, answer_changes, changes_json, compare_steps, print_changes
from gdbmem.steps.charts import print_chart, steps_svg
from gdbmem.steps.steps import noun, steps_json, sum_steps
from gdbmem.terminal.console import open_output, picture_kind
from gdbmem.text import plural, printable

_FOLDER = "steps"


class SaveCommand(Command):
    """`memwatch save`."""

    def run(self, args: argparse.Namespace) -> None:
        steps = accounts.recorded().steps
        name = check_name(args.save_name)
        run = session.run_of("none")
        folder = run.place / _FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        # A name is data, never a file's name.
        number = 1 + max((int(path.stem) for path in folder.iterdir() if path.stem.isdigit()), default=0)
        path = folder / f"{number:04d}.json"
        document = json.loads(steps_json(steps, sum_steps(steps)))
        with open_output(str(path)) as stream:
            json.dump({**document, "name": name}, stream)
        say(f"{plural(len(steps), 'step')} saved as {name} in {run.folder / _FOLDER / path.name}")


def report_since(args: argparse.Namespace, steps: Sequence[Step]) -> None:
    """Write the difference between *steps* and those saved as ``args.since``."""
    if args.by not in GROUPINGS:
        raise UsageError("--since compares lines, functions or files", hint=f"--by {', '.join(GROUPINGS)}")
    before, source = read_step_sums(*_saved(args.since))
    after = sum_steps(steps)
    if steps and source and noun(source) != noun(steps[-1].source):
        raise UsageError(
            f"{printable(args.since)} measured {noun(source)} memory, these steps {noun(steps[-1].source)} memory",
            hint="record both with the same --source",
        )
    rows = compare_steps(before, after, args.by)
    sentence = answer_changes(before, after, rows, args.since)
    with open_output(args.output, force=args.force) as stream:
        if args.json:
            stream.write(changes_json(sentence, rows[: args.top]))
        else:
            print_changes(sentence, rows, console_on(stream), source_lines(), args.top)


def _saved(text: str) -> tuple[str, str]:
    """Return the JSON of the steps saved last under the name *text*, else of the file *text*; and its name."""
    for name, found in _all_saved():
        if name == text:
            return found, text
    return file_text(Path(text)), text


def saved_names() -> list[str]:
    """Return the names of the steps that were saved in this gdb's run."""
    return sorted({name for name, _ in _all_saved()})


def _all_saved() -> Iterator[tuple[str, str]]:
    """Yield name and JSON of the steps that were saved in this gdb's run, the last first."""
    folder = session.folder / _FOLDER if session.has_run else None
    files = sorted(folder.glob("[0-9]*.json"), reverse=True) if folder is not None and folder.is_dir() else []
    for path in files:
        found = file_text(path)
        try:
            yield str(json.loads(found)["name"]), found
        except (ValueError, KeyError, TypeError):
            continue


class PlotCommand(Command):
    """`memwatch plot`."""

    def run(self, args: argparse.Namespace) -> None:
        steps = accounts.recorded().steps
        if args.file is None:
            print_chart(steps, console_on(sys.stdout))
            return
        kind = picture_kind(args.file, "memwatch plot")
        program = Path(program_file()).name
        if kind == "html":
            check_page(args.file, force=args.force)
            title = f"memwatch of {program}"
            write_document_page(steps_json(steps), "steps", args.file, force=args.force, title=title)
            return
        with open_output(args.file, force=args.force) as stream:
            stream.write(steps_svg(steps))
        say(f"{plural(len(steps), 'step')} drawn in {args.file}")
