"""A recipe: points in the code, what to record there, what to compare and to expect. Data only.

`recipes.reader.load_recipe` makes one from YAML; gdb, whose Python has no YAML, gets the same recipe
as a plan (plain JSON values) and reads it back with `recipe_from_plan`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Optional

from gdbmem.json_values import Key, as_json, from_fields
from gdbmem.model.diff import Expectation, Position
from gdbmem.text import printable

PLAN_VERSION = 1
_PLANNED = (
    "source", "folder", "program", "args", "env", "stdin", "engine", "options", "timeout_seconds", "ends", "points",
    "diffs", "expectations",
)  # fmt: skip
RECORDED = ("snap", "ledger", "containers", "heap")  # the actions whose results have names


class HitFilter(NamedTuple):
    """The hits of a point that count; without any restriction, each one."""

    only: frozenset[int] = frozenset()  # hits count from 1
    every: int = 1  # the hits N, 2N, 3N, …
    first: Optional[int] = None  # of those, so many

    def wants(self, hit: int) -> bool:
        """Return whether hit number *hit* (from 1) is recorded."""
        if self.only:
            return hit in self.only
        if hit % self.every:
            return False
        return self.first is None or hit // self.every <= self.first

    @property
    def last_wanted(self) -> Optional[int]:
        """The last hit that is recorded, after which the point is not needed; None if there is no limit."""
        if self.only:
            return max(self.only)
        return None if self.first is None else self.first * self.every

    @property
    def most(self) -> Optional[int]:
        """The largest number of hits wanted; None: no limit."""
        return len(self.only) if self.only else self.first


class Action(NamedTuple):
    """An action at a point: snap, ledger, containers, heap, backtrace, print (an expression), gdb (a command)."""

    kind: str
    argument: str = ""


SNAPSHOT_ONLY = (Action("snap"),)


class Point(NamedTuple):
    """One place of the program where something is recorded."""

    at: str  # any gdb location
    name: str
    position: Annotated[Position, Key(rows=True)]  # of `at`
    when: str = ""  # a gdb condition; "": always
    after: bool = False  # when the function has returned
    actions: Annotated[tuple[Action, ...], Key(rows=True)] = (Action("snap"),)
    hits: HitFilter = HitFilter()

    def does(self, kind: str) -> bool:
        """Return whether an action of that *kind* is performed here."""
        return any(action.kind == kind for action in self.actions)

    @property
    def reads_values(self) -> bool:
        """True if variables of the program are read here: by a condition, in containers, by a command of gdb."""
        return bool(self.when) or any(
            action.kind not in ("snap", "ledger", "heap") for action in self.actions
        )

    @property
    def records(self) -> frozenset[str]:
        """The kinds that can be compared afterwards: those of RECORDED that are recorded here."""
        return frozenset(kind for kind in RECORDED if self.does(kind))


class Pair(NamedTuple):
    """Two snapshots to compare, by name."""

    before: str
    after: str
    position: Position


class Recipe(NamedTuple):
    """A recipe that was read and is valid."""

    source: str  # its file, as the user named it
    folder: Path  # of that file: relative paths start here
    program: str  # a path relative to *folder*, or a word to be looked up in PATH
    points: tuple[Point, ...]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    stdin: str = "/dev/null"  # absolute
    engine: str = "massif"
    options: Mapping[str, Any] = {}  # by the engine's own field names
    timeout_seconds: Optional[float] = None
    ends: Optional[int] = 0  # the status, as in a shell, that the program is meant to end with; None: any
    diffs: Sequence[Pair] = ()
    expectations: tuple[Expectation, ...] = ()

    def place(self, position: Position) -> str:
        """Return *position* as messages show it: ``leak.yaml:12:5``."""
        return f"{printable(self.source)}:{position.line}:{position.column}"

    def to_plan(self) -> dict[str, object]:
        """Return the recipe as plain JSON values."""
        return {
            "plan_version": PLAN_VERSION,
            **as_json(self, *_PLANNED),
            "folder": str(self.folder),
            "diffs": [[pair.before, pair.after, *pair.position] for pair in self.diffs],
        }


def recipe_from_plan(plan: Mapping[str, Any]) -> Recipe:
    """Return the recipe that `Recipe.to_plan` made *plan* from."""
    if plan["plan_version"] != PLAN_VERSION:
        raise ValueError(f"plan version {plan['plan_version']}, expected {PLAN_VERSION}")
    return from_fields(
        Recipe,
        plan,
        folder=Path(plan["folder"]),
        options={k: tuple(v) if isinstance(v, list) else v for k, v in plan["options"].items()},
        diffs=tuple(Pair(before, after, Position(*at)) for before, after, *at in plan["diffs"]),
    )
