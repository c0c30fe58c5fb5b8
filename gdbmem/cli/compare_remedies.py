"""`gdbmem compare --remedies`: a program with and without each of malloc's settings, in turn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Optional

from gdbmem.api.recipes import MeasuredRun, find_program, trim_by_gdb
from gdbmem.api.series import difference_of
from gdbmem.errors import GdbmemError, UsageError
from gdbmem.files import open_regular
from gdbmem.ledger.remedies import measured_json, print_measured, settings_of
from gdbmem.model.ledger import Ledger, MeasuredRemedies, MeasuredRemedy, Remedy, best_first, worth_bytes
from gdbmem.terminal.console import make_console, open_output
from gdbmem.text import format_size, printable


def run_remedies(args: argparse.Namespace, words: Optional[Sequence[str]]) -> int:
    """Run, measure, print."""
    if not words or args.first or args.second:
        raise UsageError(
            "--remedies needs one program to run", hint="gdbmem compare --remedies -- ./program its arguments"
        )
    if args.fail_on or args.plot:
        raise UsageError("--remedies records no series", hint="leave out --fail-on and --plot")

    find_program(words[0])
    with open_output(args.output, force=args.force) as stream:
        ledger, measured = _measure(list(words), args)
        if args.json:
            stream.write(measured_json(ledger, measured))
        else:
            print_measured(ledger, measured, make_console(stream, color=args.color))
    return 0


def _measure(words: list[str], args: argparse.Namespace) -> tuple[Ledger, MeasuredRemedies]:
    def say(text: str) -> None:
        if not args.quiet:
            print(f"gdbmem: {text}", file=sys.stderr, flush=True)

    def level(variable: str) -> int:
        with MeasuredRun(words, variable) as one:
            one.reach(args.duration)
            return one.rss_bytes()

    with MeasuredRun(words) as first:
        moment = first.reach(args.duration)
        children = first.children()
        ledger = first.ledger(moment)
        remedies = [*ledger.remedies, *settings_of(ledger, open_regular)]
    say(f"{printable(words[0])} {moment}: {format_size(ledger.rss_bytes)} resident")
    asked = [remedy for remedy in remedies if remedy.high_bytes >= worth_bytes(ledger.rss_bytes)]
    settings = [remedy for remedy in asked if not remedy.is_call]
    variables = {"": "", **{remedy.setting: remedy.variable for remedy in settings}}
    sizes: dict[str, list[int]] = {name: [] for name in variables}
    trimmed: list[int] = []
    why_not = ""
    for number in range(args.runs if asked else 0):
        # In turn, alternating the order: a slow drift of the machine affects all equally.
        for name in sorted(sizes, reverse=bool(number % 2)):
            sizes[name].append(level(variables[name]))
            say(f"run {number + 1} of {args.runs}, {name or 'as it is'}: {format_size(sizes[name][-1])}")
        if any(remedy.is_call for remedy in asked) and not why_not:
            why_not = _append(trimmed, lambda: trim_by_gdb(words, args.duration))
            say(f"run {number + 1} of {args.runs}, malloc_trim(0): {why_not or format_size(trimmed[-1])}")
    baseline = sizes.pop("")
    rows = [_gain(remedy, baseline, sizes[remedy.setting]) for remedy in settings]
    for call in (remedy for remedy in asked if remedy.is_call):
        # Measured before and after in one process each.
        untrimmed, less = [0] * len(trimmed), [-size for size in trimmed]
        rows.append(MeasuredRemedy(call, why_not=why_not) if why_not else _gain(call, untrimmed, less))
    rss = round(median(baseline)) if baseline else ledger.rss_bytes
    runs = args.runs if asked else 1
    return ledger, MeasuredRemedies(tuple(words), moment, rss, runs, best_first(rows, rss), children)


def _append(values: list[int], measure: Callable[[], int]) -> str:
    """Add what *measure* returns to *values*; return why it could not be measured, or ""."""
    try:
        values.append(measure())
    except GdbmemError as error:
        return error.message
    return ""


def _gain(remedy: Remedy, without: Sequence[int], with_it: Sequence[int]) -> MeasuredRemedy:
    gain = round(median(without) - median(with_it))
    found = difference_of(remedy.setting, "B", with_it, without)
    if found.low is None or found.high is None:
        return MeasuredRemedy(remedy, gain)
    return MeasuredRemedy(remedy, gain, min(round(found.low), gain), max(round(found.high), gain))
