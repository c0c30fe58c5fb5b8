"""Runs rounds and prints what came of them; scripts/murder calls this."""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, Union

from tests.murder.rounds import Outcome, outcome_line, planned, run_round
from tests.murder.scenes import DOORKEEPER, GDB_ITSELF, HELPER, LAUNCHER, PROGRAM, SCENES, WORKER
from tests.reliability import keep
from tests.zoo.__main__ import home_of_nobody
from tests.zoo.building import CannotRunHereError
from tests.zoo.table import versions

_FORK = multiprocessing.get_context("fork")  # Python 3.14's own way does not find what __main__ has


def main() -> int:
    args = _arguments()
    begun = time.monotonic()
    outcomes = []
    seeds = args.seeds or range(args.first, args.first + args.rounds)
    with home_of_nobody(), _load(args.load), ProcessPoolExecutor(args.jobs, _FORK) as pool:
        for future in as_completed([pool.submit(_round, seed, args.scene, args.victim) for seed in seeds]):
            seed, found = future.result()
            if isinstance(found, str):
                print(f"{seed:6} not possible here: {found}")
                continue
            outcome = Outcome(planned(seed, args.scene, args.victim), **found)
            outcomes.append(outcome)
            print(outcome_line(outcome), flush=True)
            if args.verbose and outcome.harms:
                print("  | " + outcome.said[-3000:].replace("\n", "\n  | "), flush=True)
    seconds = time.monotonic() - begun
    print(summary(outcomes, seconds))
    if args.keep:
        keep(f"murder {args.victim}".strip(), page(outcomes, args, seconds))
    return 1 if any(outcome.harms for outcome in outcomes) else 0


def _round(seed: int, scene: str, victim: str) -> tuple[int, Union[str, dict[str, Any]]]:
    """Return what came of round *seed*, without its plan; or why it can't be had here."""
    try:
        outcome = run_round(planned(seed, scene, victim))
    except CannotRunHereError as error:
        return seed, str(error)
    return seed, {name: value for name, value in vars(outcome).items() if name != "plan"}


def summary(outcomes: list[Outcome], seconds: float) -> str:
    """Return what came of all of them."""
    counts = Counter(outcome.plan.victim for outcome in outcomes if outcome.killed)
    killed = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    harmed, excused = _ends(outcomes)
    return (
        f"{len(outcomes)} rounds, {sum(counts.values())} killed ({killed}), {harmed} with harm, "
        f"{excused} ended by a breakpoint that gdb had not heard of; "
        f"{seconds / 60:.1f} min"
    )


def page(outcomes: list[Outcome], args: argparse.Namespace, seconds: float) -> Iterator[str]:
    """Yield the lines of docs/reliability.md."""
    kinds = (LAUNCHER, GDB_ITSELF, PROGRAM, HELPER, WORKER, DOORKEEPER)
    yield f"| command | rounds | {' | '.join(f'{kind} killed' for kind in kinds)} | harm | at a breakpoint |"
    yield "|---|" + "---:|" * (len(kinds) + 3)
    for scene in SCENES:
        own = [outcome for outcome in outcomes if outcome.plan.scene is scene]
        if own:
            killed = Counter(outcome.plan.victim for outcome in own if outcome.killed)
            cells = [len(own), *(killed[kind] for kind in kinds), *_ends(own)]
            yield f"| `{scene.name}` | {' | '.join(str(cell) for cell in cells)} |"
    yield ""
    yield f"{summary(outcomes, seconds)}."
    load = f", {args.load} processes that computed meanwhile" if args.load else ""
    yield f"Seeds {args.first} to {args.first + args.rounds - 1}{load}."
    harms = [outcome for outcome in outcomes if outcome.harms]
    if harms:
        yield ""
        yield from (f"- {outcome_line(outcome).strip()}" for outcome in harms)
    yield ""
    yield f"{datetime.date.today()}; {versions()}; {os.cpu_count()} processors"


def _ends(outcomes: list[Outcome]) -> tuple[int, int]:
    return sum(bool(outcome.harms) for outcome in outcomes), sum(
        bool(outcome.excused) for outcome in outcomes
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/murder", description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=20, metavar="N", help="how many (default: 20)")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="the first seed (default: 1)")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="these rounds only")
    parser.add_argument("--scene", default="", metavar="TEXT", help="only commands with TEXT in their name")
    parser.add_argument(
        "--victim",
        default="",
        choices=[LAUNCHER, GDB_ITSELF, PROGRAM, HELPER, WORKER, DOORKEEPER],
        help="kill only these",
    )
    parser.add_argument("--load", type=int, default=0, metavar="N", help="have N processes compute meanwhile")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show what was said in each round with harm"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="rounds at once (default: 1)")
    parser.add_argument("--keep", action="store_true", help="write the result into docs/reliability.md")
    return parser.parse_args()


class _load:  # noqa: N801  (a context manager)
    def __init__(self, count: int) -> None:
        self._busy = [_FORK.Process(target=_compute, daemon=True) for _ in range(count)]

    def __enter__(self) -> None:
        for process in self._busy:
            process.start()

    def __exit__(self, *_: object) -> None:
        for process in self._busy:
            process.kill()


def _compute() -> None:
    while os.getppid() != 1:
        sum(range(100_000))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it ignored
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup this
    sys.exit(main())
