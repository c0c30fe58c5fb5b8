"""The whole table, or its cover: which cells are run, what is known to be wrong in them, and how they are printed."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Optional

from tests.zoo.animals import ANIMALS, BY_NAME, Animal
from tests.zoo.answers import CANNOT, OK, REFUSED, UNKNOWN, WRONG
from tests.zoo.cells import Cell, run_cell, run_gdb_cells, why_not
from tests.zoo.commands import COMMANDS, GDB, Command
from tests.zoo.known_wrong import KNOWN_WRONG

_SIGNS = {OK: "ok", UNKNOWN: "?", REFUSED: "no", CANNOT: "·", WRONG: "**WRONG**"}
KNOWN = "known"


def cover() -> list[tuple[Animal, Command]]:
    """Return a cell for each animal, the most characteristic one, and for each command; the same each time."""
    used: Counter[str] = Counter(animal.meets for animal in ANIMALS)
    pairs = []
    for animal in ANIMALS:
        possible = [
            c for c in COMMANDS if not why_not(animal, c) and (animal.name, c.name) not in KNOWN_WRONG
        ]
        met = [command for command in possible if command.name == animal.meets]
        command = met[0] if met else min(possible, key=lambda c: used[c.name])
        used[command.name] += not met
        pairs.append((animal, command))
    reached = {command.name for _, command in pairs}
    return pairs + [_first_possible(command) for command in COMMANDS if command.name not in reached]


def _first_possible(command: Command) -> tuple[Animal, Command]:
    free = (a for a in ANIMALS if not why_not(a, command) and (a.name, command.name) not in KNOWN_WRONG)
    return next(free, ANIMALS[0]), command


def run_animal(name: str, commands: Sequence[str]) -> list[Cell]:
    """Run *commands* on the animal *name*: those of gdb in one, and what was wrong again by itself."""
    animal = BY_NAME[name]
    wanted = [command for command in COMMANDS if command.name in commands]
    in_gdb = [command for command in wanted if command.kind == GDB]
    found = {cell.command: cell for cell in run_gdb_cells(animal, in_gdb)}
    found.update({c.name: run_twice(animal, c) for c in wanted if c.kind != GDB})
    return [found[command.name] for command in wanted]


def run_twice(animal: Animal, command: Command) -> Cell:
    """Run a cell, and once more where it was wrong: what a busy machine did isn't the command's fault."""
    cell = run_cell(animal, command)
    if cell.answer.outcome == WRONG and (animal.name, command.name) not in KNOWN_WRONG:
        return run_cell(animal, command)
    return cell


def verdict(cell: Cell) -> str:
    """Return the outcome, or that the cell is known to be wrong, or that it no longer is."""
    key = (cell.animal, cell.command)
    if key not in KNOWN_WRONG or cell.answer.outcome == CANNOT:
        return cell.answer.outcome
    return KNOWN if cell.answer.outcome == WRONG else WRONG


def sentence(cell: Cell) -> str:
    """Return the text for a cell."""
    key = (cell.animal, cell.command)
    if key in KNOWN_WRONG and verdict(cell) == WRONG:
        return f"it is right now: take it out of known_wrong.py ({KNOWN_WRONG[key]})"
    return KNOWN_WRONG[key] if verdict(cell) == KNOWN else cell.answer.sentence


def markdown(cells: Sequence[Cell], seconds: float) -> Iterator[str]:
    """Yield the lines of the table, the notes below it, and where it was made."""
    by_key = {(cell.animal, cell.command): cell for cell in cells}
    commands = [command for command in COMMANDS if any(cell.command == command.name for cell in cells)]
    notes: dict[str, int] = {}
    yield from _legend(commands)
    yield "| animal | " + " | ".join(str(number) for number, _ in enumerate(commands, 1)) + " |"
    yield "|---" * (len(commands) + 1) + "|"
    for animal in ANIMALS:
        row = [by_key.get((animal.name, command.name)) for command in commands]
        if any(row):
            yield f"| {animal.name} | " + " | ".join(_sign(cell, notes) for cell in row) + " |"
    yield ""
    for note, number in notes.items():
        yield f"{number}. {note}"
    yield ""
    yield summary(cells)
    yield ""
    yield f"{datetime.date.today()}; {versions()}; {seconds / 60:.0f} min on {os.cpu_count()} processors"


def summary(cells: Sequence[Cell]) -> str:
    """Return how many cells came to what."""
    counts = Counter(verdict(cell) for cell in cells)
    words = {OK: "right", UNKNOWN: "reported as unknown", REFUSED: "refused with the reason",
             CANNOT: "not possible here", KNOWN: "known to be wrong", WRONG: "WRONG"}  # fmt: skip
    return f"{len(cells):,} cells: " + ", ".join(
        f"{counts[key]:,} {word}" for key, word in words.items() if counts[key]
    )


def _legend(commands: Sequence[Command]) -> Iterator[str]:
    yield "| | command | limit |"
    yield "|---|---|---|"
    for number, command in enumerate(commands, 1):
        prompt = f", prompt {command.after_ctrl_c:g} s after Ctrl-C" if "Ctrl-C" in command.name else ""
        yield f"| {number} | `{command.name}` | {command.limit:g} s{prompt} |"
    yield ""


def _sign(cell: Optional[Cell], notes: dict[str, int]) -> str:
    if cell is None:
        return ""
    outcome = verdict(cell)
    if outcome == OK:
        return "ok"
    sign = "known wrong" if outcome == KNOWN else _SIGNS[outcome]
    note = f"{sign}: {_without_numbers(sentence(cell))}"
    return f"{sign} [{notes.setdefault(note, len(notes) + 1)}]"


def _without_numbers(text: str) -> str:
    """Return *text* without what differs from one run to the next: cells share a note."""
    text = re.sub(r"/tmp/\S+", "…", text)
    text = re.sub(r"\b(process|explain|pid|-CONT|PID) \d+\b", r"\1 N", text)
    return " ".join(text.replace("|", "\\|").split())


def versions() -> str:
    """Return on what machine this runs, and with which tools."""

    def first_line(*words: str) -> str:
        try:
            return subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()[0]
        except (OSError, IndexError):
            return f"no {words[0]}"

    libc = " ".join(platform.libc_ver())
    gdb, valgrind = first_line("gdb", "--version"), first_line("valgrind", "--version")
    python = platform.python_version()
    return f"{platform.machine()}, Linux {platform.release()}, {libc}, Python {python}; {gdb}; {valgrind}"
