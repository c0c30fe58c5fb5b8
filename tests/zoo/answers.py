"""Checking an answer against the animal's and the kernel's data: right, unknown, refused or wrong."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from tests.zoo.animals import HEAP, LINES, MEMORY, Animal
from tests.zoo.keeping import Report

OK, UNKNOWN, REFUSED, WRONG, CANNOT = "ok", "unknown", "refused", "WRONG", "can't"
KIB, MIB = 1 << 10, 1 << 20
_SIZES = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": 1 << 30}
PYTHON_OBJECTS = 5000  # that animal.py keeps
# Forbidden in any answer: our own failures.
BUGS = (
    "gdbmem failed at",
    "Traceback (most recent call last)",
    "report this as a bug",
    "Error while executing Python",
)
# The program's own limit of address space has no room for the profiler, so that its own calls fail.
LITTLE_ROOM = "(RLIMIT_AS)"


@dataclass(frozen=True)
class Answer:
    outcome: str
    sentence: str = ""


@dataclass(frozen=True)
class Seen:
    """The effects and the output of a command."""

    animal: Animal
    report: Report
    texts: list[str]  # an answer a line typed; of a shell command: its output, its messages
    folder: Path
    status: Optional[int]  # of a shell command
    rss_before: int
    rss_after: int

    def document(self) -> Optional[dict[str, Any]]:
        """Return the JSON that the command wrote; None if it wrote none."""
        path = self.folder / "out.json"
        if not path.exists() or not path.stat().st_size:
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    @property
    def text(self) -> str:
        return "\n".join(self.texts)

    def refusal(self) -> Answer:
        """Return that the command was refused, in its own words."""
        lines = [line for text in self.texts for line in text.splitlines() if line.strip()]
        if not lines:
            return Answer(WRONG, "it said nothing at all")
        said = next((line for line in reversed(lines) if line.startswith("gdbmem: ")), lines[-1])
        return Answer(REFUSED, said.strip()[:300])


def anything(seen: Seen) -> Answer:
    """Accept any output: such a command states nothing about the process."""
    return Answer(OK) if not seen.status else seen.refusal()


def shows(pattern: str) -> Any:
    """Return a check that *pattern* is in the answer; without it the command was refused."""

    def check(seen: Seen) -> Answer:
        return Answer(OK) if re.search(pattern, seen.text) and not seen.status else seen.refusal()

    return check


def refuses(pattern: str) -> Any:
    """Return a check that a command reports an unsuitable animal."""

    def check(seen: Seen) -> Answer:
        found = re.search(pattern, seen.text)
        return Answer(REFUSED, found[0]) if found else Answer(OK, seen.text.strip().splitlines()[-1][:200])

    return check


def nothing_there(seen: Seen) -> Answer:
    """Check that a command reports that no animal has what it looks for."""
    return seen.refusal() if seen.status else Answer(WRONG, "it found what no animal has")


def python_objects(seen: Seen) -> Answer:
    """Compare a count of Python objects with those that the animal in Python keeps; any other one has none."""
    document = seen.document()
    if document is None:
        return seen.refusal()
    counts = {row["type"]: row["count"] for row in document["types"]}
    kept = counts.get("bytearray", 0)
    if seen.animal.name != "Python":
        return Answer(WRONG, f"it counts {document['count']:,} Python objects in {seen.animal.about}")
    return (
        Answer(OK) if kept == PYTHON_OBJECTS else Answer(WRONG, f"{kept:,} of {PYTHON_OBJECTS:,} bytearrays")
    )


# -- ledgers -----------------------------------------------------------------------------------------------


def ledger(seen: Seen) -> Answer:
    """Compare a ledger with the kernel's Rss and with the blocks that the animal has."""
    document = seen.document()
    if document is None:
        return seen.refusal()
    parts = sum(entry["resident_bytes"] for entry in document["entries"])
    if parts != document["rss_bytes"]:
        return Answer(WRONG, f"its entries make {parts:,} bytes of {document['rss_bytes']:,}")
    away = abs(document["rss_bytes"] - seen.rss_before)
    if away > MIB and MEMORY not in seen.animal.restless and not seen.animal.ends_itself:
        return Answer(
            WRONG, f"it says {document['rss_bytes']:,} bytes resident, the kernel {seen.rss_before:,}"
        )
    return _heap(seen, document)


def _heap(seen: Seen, document: dict[str, Any]) -> Answer:
    heap, warnings = document["heap"], [warning["message"] for warning in document["warnings"]]
    told = warnings[0] if warnings else ""
    if seen.animal.is_damaged:
        if heap is None or not heap["is_exact"]:
            return Answer(OK if told else WRONG, told or "it doubts the heap and doesn't say why")
        return Answer(WRONG, f"the heap is damaged ({seen.animal.about}), and it is called exact")
    if heap is None:
        knows = HEAP in seen.animal.knows
        return Answer(
            UNKNOWN if told or not knows else WRONG, told or "it says nothing of the heap, and not why"
        )
    count = sum(arena["live_chunks"] for arena in heap["arenas"]) + heap["mmapped_chunks"]
    size = sum(arena["live_bytes"] for arena in heap["arenas"]) + heap["mmapped_bytes"]
    if HEAP not in seen.animal.knows:
        return Answer(OK if heap["is_exact"] else UNKNOWN, told)
    known, extra = seen.report.live_blocks, seen.animal.extra_blocks
    if known <= count <= known + extra and 0 <= size - seen.report.live_bytes <= 300 * KIB + 300 * extra:
        return Answer(OK)
    sentence = f"{count:,} live blocks of {size:,} bytes; it has {known:,} of {seen.report.live_bytes:,}"
    return Answer(UNKNOWN if told and not heap["is_exact"] else WRONG, f"{sentence} {told}".strip())


def trimmed(seen: Seen) -> Answer:
    """Compare the reported effect of malloc_trim with the prediction, and with the kernel's Rss."""
    found = re.search(
        r"malloc_trim\(0\) returned ([\d.,]+) (\w+)[;,] ([\d.,]+) (\w+) were predicted", seen.text
    )
    if not found:
        return seen.refusal()
    returned, predicted = size_of(found[1], found[2]), size_of(found[3], found[4])
    if abs(returned - predicted) > max(64 * KIB, predicted // 20):
        return Answer(WRONG, found[0])
    really = seen.rss_before - seen.rss_after
    if MEMORY not in seen.animal.restless and abs(really - returned) > MIB:
        return Answer(WRONG, f"{found[0]}; the kernel's Rss fell by {really:,} bytes")
    return Answer(OK)


def size_of(number: str, unit: str) -> int:
    """Return *number* *unit* in bytes."""
    return round(float(number.replace(",", "")) * _SIZES[unit])


# -- containers --------------------------------------------------------------------------------------------

_ELEMENTS = {"numbers": 60_000, "names": 5_000, "counts": 3_000}  # as in sources/container.cpp


def containers(seen: Seen) -> Answer:
    """Compare the elements of the global containers with those that were put in."""
    document = seen.document()
    if document is None:
        return seen.refusal()
    found = {row["path"]: row["size"] for row in document["containers"] if row["path"] in _ELEMENTS}
    if seen.animal.build.source != "container.cpp":
        return Answer(OK)
    wrong = {path: size for path, size in found.items() if size != _ELEMENTS[path]}
    if wrong:
        return Answer(WRONG, f"elements {wrong}, there are {_ELEMENTS}")
    missing = sorted(set(_ELEMENTS) - set(found))
    return Answer(UNKNOWN, f"no word of {', '.join(missing)}") if missing else Answer(OK)


# -- steps -------------------------------------------------------------------------------------------------


def steps(seen: Seen) -> Answer:
    """Find the line that touches tick()'s bytes, with their number."""
    document = seen.document()
    if document is None:
        return seen.refusal()
    deltas = [step["delta_bytes"] for step in document["steps"]]
    return _ticked(seen, deltas, 1)


def steps_into(seen: Seen) -> Answer:
    """Accept any account of steps that may have entered libc, but of more than tick() touches."""
    document = seen.document()
    if document is None:
        return seen.refusal()
    deltas = [step["delta_bytes"] or 0 for step in document["steps"]]
    if (
        seen.report.tick_bytes
        and MEMORY not in seen.animal.restless
        and max(deltas, default=0) > seen.report.tick_bytes
    ):
        return Answer(
            WRONG,
            f"a step changed memory by {max(deltas):+,} bytes, tick() touches {seen.report.tick_bytes:,}",
        )
    return Answer(OK if deltas else WRONG)


def function_lines(seen: Seen) -> Answer:
    """Find the same in the table of tick()'s lines over two calls."""
    document = seen.document()
    if document is None:
        return seen.refusal()
    if document["calls"] != 2:
        return Answer(WRONG, f"{document['calls']} calls instead of 2")
    return _ticked(seen, [line["delta_bytes"] for line in document["lines"]], 2)


def _ticked(seen: Seen, deltas: list[Optional[int]], times: int) -> Answer:
    wanted = seen.report.tick_bytes * times
    known = [delta for delta in deltas if delta is not None]
    if not wanted or LINES not in seen.animal.knows:
        return Answer(OK if known else UNKNOWN)
    if known and abs(max(known) - wanted) <= (16 * KIB if MEMORY not in seen.animal.restless else MIB):
        return Answer(OK)
    said = ", ".join(f"{delta:+,}" for delta in known) or "nothing"
    return Answer(WRONG, f"lines changed by {said} bytes; one of them touches {wanted:,}")


def growth(seen: Seen) -> Answer:
    """Find tick() among those who ask the kernel for memory."""
    document = seen.document()
    if document is None:
        return seen.refusal()
    functions = {frame["function"] for path in document["paths"] for frame in path["frames"]}
    if LINES not in seen.animal.knows or any("tick" in (name or "") for name in functions):
        return Answer(OK)
    if seen.animal.is_stopped and "recording ended: signal SIGSTOP" in seen.text:
        return Answer(OK)  # of a stopped process gdb's own first `continue` ends so, too
    return Answer(
        WRONG, f"tick() asks for memory a hundred times a second; found were {sorted(map(str, functions))}"
    )


def not_passed(seen: Seen) -> Answer:
    """Accept what stopped a limit of 1 GiB, but that it was reached."""
    if re.search(r"passed .*; it was stopped|has passed", seen.text):
        return Answer(WRONG, seen.text.strip().splitlines()[-1])
    return anything(seen)


# -- snapshots and series ----------------------------------------------------------------------------------


def snapshots(seen: Seen) -> Answer:
    """Compare a snapshot's heap with what the animal has asked malloc for and not freed: profilers count just that."""
    found = re.search(r"snapshot a: heap ([\d.,]+) (\w+)", seen.text)
    if not found:
        return seen.refusal()
    heap, known = size_of(found[1], found[2]), seen.report.asked_bytes
    if not known or seen.report.ready != 1 or 0.9 * known <= heap <= 1.1 * known + 400 * KIB:
        return Answer(OK)
    told = re.search(r"does not see (the \w+ that is linked into the program|musl's malloc)", seen.text)
    if told and heap == 0:
        return Answer(UNKNOWN, told[0])
    return Answer(WRONG, f"snapshot a: {heap:,} bytes; it has {known:,}")


def grown(seen: Seen) -> Answer:
    """Check that each process's account adds up to what its resident set changed by."""
    document = seen.document()
    if document is None:
        return seen.refusal()
    for one in document["totals"]["accounts"]:
        if one["after_bytes"] is None:
            continue
        delta = one["after_bytes"] - one["before_bytes"]
        explained = one["grown_bytes"] + sum(part["bytes"] for part in one["unseen"])
        if abs(delta - explained) > 4 * KIB:
            return Answer(WRONG, f"grew by {delta}, and {explained} are accounted for")
    return Answer(OK)


def series(seen: Seen) -> Answer:
    """Compare the samples of a monitor with the kernel's Rss."""
    document = seen.document()
    if document is None:
        return seen.refusal()
    readings = [sample["rss_bytes"] for sample in document["samples"] if sample.get("rss_bytes") is not None]
    if not readings:
        return Answer(WRONG if not seen.animal.ends_itself else UNKNOWN, "there is no sample")
    away = min(abs(value - seen.rss_before) for value in readings)
    if away > MIB and MEMORY not in seen.animal.restless:
        return Answer(
            WRONG,
            f"samples {min(readings):,} to {max(readings):,} bytes; the kernel's Rss {seen.rss_before:,}",
        )
    verdict = document["verdict"]["kind"]
    if verdict == "growing" and MEMORY not in seen.animal.restless:
        return Answer(WRONG, "it doesn't grow, and is called growing")
    return Answer(OK if verdict != "inconclusive" else UNKNOWN, verdict)
