"""Runs the table of the zoo and prints it; scripts/zoo calls this."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Callable, Optional

import psutil

from tests.live.user import packages
from tests.zoo.animals import ANIMALS
from tests.zoo.answers import WRONG
from tests.zoo.cells import Cell
from tests.zoo.commands import COMMANDS
from tests.zoo.table import markdown, run_animal, sentence, summary, verdict

RESULTS = Path(__file__).parents[2] / "benchmarks" / "ZOO.md"
_interrupted: list[bool] = []  # of the process that runs a job
_HEAD = """# The zoo

Written by `scripts/zoo --keep`: every command that touches a process on every animal of `tests/zoo/`, and
the result. After each the animal has to be unchanged: alive, with its state, masks, threads, children,
descriptors and Rss, without a signal, a zombie or a breakpoint left in it. *ok*: answered, and right by the
animal's own data. *?*: reported as unknown. *no*: refused, with the reason. *·*: not possible here.
Numbers in brackets are explained below the table.
"""


def main() -> int:
    args = _arguments()
    animals = [a.name for a in ANIMALS if _wanted(a.name, args.animal)]
    commands = [c.name for c in COMMANDS if _wanted(c.name, args.command) and _wanted(c.kind, args.kind)]
    begun = time.monotonic()
    cells: list[Cell] = []
    with home_of_nobody(), jobs(args.jobs) as pool:
        for future in as_completed([pool.submit(_animal, name, commands) for name in animals]):
            for cell in future.result():
                cells.append(cell)
                _say(cell, all_of_it=args.verbose)
            if args.json:  # results so far are kept, even if the rest fails
                Path(args.json).write_text(json.dumps([asdict(cell) for cell in cells], indent=1))
    seconds = time.monotonic() - begun
    print(f"\n{summary(cells)} in {seconds / 60:.1f} min")
    if args.keep:
        RESULTS.write_text("\n".join([_HEAD, *markdown(cells, seconds)]) + "\n")
    return 1 if any(verdict(cell) == WRONG for cell in cells) else 0


@contextlib.contextmanager
def jobs(count: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of *count* processes, which Ctrl-C ends at any point; their own clean-up is done."""
    # The terminal signals only us, and we signal them once.
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("fork"), initializer=os.setpgrp)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pool:
            try:
                yield pool
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in psutil.Process().children():
                    worker.send_signal(signal.SIGINT)
                raise
    finally:
        signal.signal(signal.SIGTERM, before)


def until_interrupted(job: Callable[[], list[Cell]]) -> list[Cell]:
    """Return what *job* does; nothing where it is interrupted, nor afterwards in this process."""
    try:
        return [] if _interrupted else job()
    except KeyboardInterrupt:
        _interrupted.append(True)
        return []


def _animal(name: str, commands: list[str]) -> list[Cell]:
    return until_interrupted(functools.partial(run_animal, name, commands))


@contextlib.contextmanager
def home_of_nobody() -> Iterator[None]:
    """Use no settings of the user, and gdb's packages."""
    with tempfile.TemporaryDirectory(prefix="zoo-home-") as home:
        os.environ.update(HOME=home, XDG_CACHE_HOME=f"{home}/cache", LC_ALL="C.UTF-8")
        for name in (
            "XDG_CONFIG_HOME",
            "XDG_STATE_HOME",
            "XDG_RUNTIME_DIR",
            "NO_COLOR",
            "VALGRIND_OPTS",
            "COLUMNS",
        ):
            os.environ.pop(name, None)
        # A job in the background has some ignored, one of nohup another, and the animals would have them from there.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        packages()
        yield


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/zoo", description=__doc__)
    parser.add_argument(
        "--animal", action="append", metavar="TEXT", help="only animals with TEXT in their name"
    )
    parser.add_argument(
        "--command", action="append", metavar="TEXT", help="only commands with TEXT in their name"
    )
    kinds = ("shell", "gdb", "start", "launch")
    parser.add_argument("--kind", action="append", choices=kinds, help="only commands that are typed so")
    parser.add_argument("--keep", action="store_true", help="write the table into benchmarks/ZOO.md")
    parser.add_argument("--json", metavar="FILE", help="write the cells into FILE, with all that was said")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what was said in each wrong cell")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="cells at once (default: one a processor)"
    )
    return parser.parse_args()


def _wanted(name: str, texts: Optional[list[str]]) -> bool:
    return not texts or any(text in name for text in texts)


def _say(cell: Cell, *, all_of_it: bool) -> None:
    found = verdict(cell)
    print(
        f"{found:8} {cell.animal:24} {cell.command:44} {cell.seconds:6.1f} s  {sentence(cell)[:200]}",
        flush=True,
    )
    if all_of_it and found == WRONG:
        print("  | " + cell.said[-1500:].replace("\n", "\n  | "), flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
