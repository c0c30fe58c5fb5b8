"""The rows of a page that describe how its numbers were measured, and what they can't include."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.engines.engine import NAMES, table
from gdbmem.formats.valgrind.massif import HEAPTRACK, MassifProfile
from gdbmem.model.calltree import CallTree, Profile
from gdbmem.model.diff import Diff, Side
from gdbmem.runs.run import Run
from gdbmem.text import format_duration, format_size, printable

if TYPE_CHECKING:
    from gdbmem.model.series import SeriesSummary

Rows = Sequence[tuple[str, object]]


def facts_of_run(run: Run) -> list[tuple[str, str]]:
    """Return the facts of *run*: its command, engine, versions, machine, and what the engine can't see."""
    facts = run.facts
    engine = str(facts.get("engine") or "")
    versions = facts.get("versions") or {}
    starts = [start.get("argv") for start in facts.get("starts") or []]
    tools = dict.fromkeys(_words(argv) for argv in starts if isinstance(argv, list))
    return _known(
        [
            ("run", run.folder.name),
            ("command", _words(facts.get("command") or [])),
            *(("started as", tool) for tool in tools),
            *_of_engine(engine),
            ("began", facts.get("began")),
            ("ended", facts.get("ended")),
            *((f"version of {name}", version) for name, version in versions.items()),
            ("machine", facts.get("machine")),
        ]
    )


def facts_of_profile(profile: Profile, tree: Optional[CallTree]) -> list[tuple[str, str]]:
    """Return the facts of *profile*, of which a page shows *tree*."""
    count, trees = len(profile.snapshots), sum(one.has_tree for one in profile.snapshots)
    options = profile.options if isinstance(profile, MassifProfile) else ""
    made_by = options if options == HEAPTRACK.decode() else profile.source_format
    return _known(
        [
            ("file", profile.source),
            ("command", profile.command),
            *_of_format(made_by, profile.unit),
            ("options", options),
            ("snapshots", f"{count:,}, {trees:,} of them with a call tree" if count > 1 else ""),
            *(_of_tree(tree) if tree is not None else ()),
        ]
    )


def facts_of_diff(diff: Diff) -> list[tuple[str, str]]:
    """Return the facts of the profiles that *diff* compares."""
    sides: Sequence[Side] = diff.sides or (diff.before_side, diff.after_side)
    rows: list[tuple[str, object]] = []
    for side in dict.fromkeys((one.source, one.command) for one in sides):
        rows += [("file", side[0]), ("command", side[1])]
    for name in dict.fromkeys(one.source_format for one in sides):
        rows += _of_format(name, diff.unit)
    thresholds = [one.threshold_bytes for one in diff.side_sites if not one.is_cut]
    return _known([*rows, *_of_trees(thresholds, is_sampled=diff.variance is not None)])


def facts_of_series(summary: SeriesSummary) -> list[tuple[str, str]]:
    """Return the facts of the recording that *summary* judges."""
    from datetime import datetime  # for series only

    facts = summary.facts
    began = datetime.fromtimestamp(facts.began).astimezone() if facts.began > 0 else None
    every = format_duration(facts.interval_seconds) if facts.interval_seconds else ""
    limit = facts.limit_bytes
    return _known(
        [
            ("target", facts.target),
            ("began", began.isoformat(sep=" ", timespec="seconds") if began else ""),
            ("samples", f"{summary.samples:,} in {format_duration(summary.seconds)}"),
            ("interval", every),
            ("PSS", f"read {summary.reads_of_pss:,} times" if summary.reads_of_pss else "never read"),
            ("limit", f"{format_size(limit)}, of {facts.limit_of}" if limit is not None else ""),
            ("threads", "the kernel reported each start" if facts.exact_threads else ""),
            ("can't see", "changes between two samples: at most the kernel's own peak is known"),
        ]
    )


def _of_format(name: str, unit: str) -> Rows:
    return [("format", name), ("sizes are", unit), *(_of_engine(name) if name in NAMES else ())]


def _of_engine(name: str) -> Rows:
    if name not in NAMES:
        return [("engine", name)]
    found = table(name)
    return [
        ("engine", f"{name}: {found.summary}"),
        ("counts", found.counts),
        *(("can't see", blind) for blind in found.blind),
    ]


def _of_tree(tree: CallTree) -> Rows:
    threshold = 0 if tree.scattered else tree.threshold_bytes  # a cut file may lack any
    return _of_trees([threshold], is_sampled=tree.variance is not None)


def _of_trees(thresholds: Iterable[int], *, is_sampled: bool) -> Rows:
    most = max(thresholds, default=0)
    return [
        ("threshold", f"call sites under {format_size(most)} each are not listed" if most else ""),
        ("sampling", "sizes are estimated from samples" if is_sampled else ""),
    ]  # fmt: skip


def _words(words: Iterable[object]) -> str:
    return " ".join(map(str, words))


def _known(rows: Iterable[tuple[str, object]]) -> list[tuple[str, str]]:
    return [(printable(name), printable(str(value))) for name, value in rows if value]
