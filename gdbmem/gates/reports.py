"""The judgements of a gate in the forms that services of continuous integration read (--ci KIND).

All forms are made from one `Gate`: its judgements, each with the lines of the program that grew. File names are
relative to the checkout, where a service looks for them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional, TextIO

from gdbmem.errors import GdbmemError, InputError, UsageError
from gdbmem.files import JsonObject
from gdbmem.model.calltree import Frame
from gdbmem.model.judgement import AT_LEAST, BYTES, MET, NOT_JUDGED, NOT_MET, Judgement
from gdbmem.terminal.console import open_named
from gdbmem.terminal.drawing import source_roots
from gdbmem.text import format_delta, format_rate, format_size, plural, printable

if TYPE_CHECKING:
    import argparse

    from gdbmem.model.diff import Diff
    from gdbmem.model.series import Difference, SeriesSummary
    from gdbmem.profiles.paths import Query

_MOST_LINES = 50  # of one judgement in a report; the rest are counted
_SUMMARY_BYTES = 1 << 20  # GitHub drops a longer summary of a step as a whole
_INTEGERS_FROM = 100  # smaller numbers, not of bytes, have digits behind the point in GitLab's metrics
_ANNOTATIONS = 10  # that GitHub shows of one kind in one step
# The file of each kind, unless another is named. GitHub's is the one that $GITHUB_STEP_SUMMARY names.
FILES = {
    "github": "",
    "gitlab": "gl-code-quality-report.json",
    "gitlab-metrics": "gl-metrics.txt",
    "sarif": "gdbmem.sarif",
    "bencher": "gdbmem.bencher.json",
    "benchmark": "gdbmem.benchmark.json",
    "junit": "gdbmem.junit.xml",
    "markdown": "gdbmem.md",
}
# These say only what passed and what failed, so that there is nothing to write without a limit.
OUTCOMES_ONLY = ("gitlab", "sarif", "junit")
_UNITS = {
    "B": BYTES,
    "B/s": "bytes_per_second",
    "1/s": "per_second",
    "s": "seconds",
    "": "count",
}  # of a comparison


class CiFile(NamedTuple):
    """One report that is asked for."""

    kind: str  # one of FILES
    file: str  # "": none; only of GitHub, outside of its runners


class Place(NamedTuple):
    """A line of a file, from 1; None: the file as a whole."""

    file: str
    line: Optional[int] = None


class GrownLine(NamedTuple):
    """A line of the program that grew."""

    place: Place
    function: str
    delta_bytes: int


class Judged(NamedTuple):
    """A judgement, with what a reader looks at next."""

    judgement: Judgement
    lines: Sequence[GrownLine] = ()  # the largest first
    origin: Optional[Place] = None  # where the limit is written down, or the file that was judged
    case: str = ""  # its test case, which it may share; "": the judgement's own name


class Gate:
    """The judgements of one command; one without a limit is a number only."""

    def __init__(self, suite: str, judged: Iterable[Judged] = (), seconds: float = 0.0) -> None:
        self.suite = suite  # the recipe, or the command
        self.judged = list(judged)
        self.seconds = seconds  # that the program ran


def parse_ci(text: str) -> CiFile:
    """Return the report of ``KIND`` or ``KIND=FILE``."""
    kind, _, file = text.partition("=")
    if kind not in FILES:
        raise InputError(
            f"'{printable(kind)}' is not a kind of report", slug="bad-ci", hint=f"one of {', '.join(FILES)}"
        )
    return CiFile(kind, file or FILES[kind] or os.environ.get("GITHUB_STEP_SUMMARY", ""))


def ci_files(args: argparse.Namespace, *, needs: str = "") -> list[CiFile]:
    """Return the reports that *args* want; raises UsageError for one of outcomes if the option *needs* is missing."""
    found: list[CiFile] = list(args.ci or ())
    if getattr(args, "junit", None):
        found.append(CiFile("junit", args.junit))
    without = needs and getattr(args, needs.lstrip("-").replace("-", "_")) is None
    for one in found:
        if without and one.kind in OUTCOMES_ONLY:
            raise UsageError(f"--ci {one.kind} reports what passed and failed, so it needs {needs}")
    return found


def grown_line(frame: Optional[Frame], delta_bytes: int) -> Optional[GrownLine]:
    """Return the line of *frame* if it grew and its file is known."""
    if delta_bytes <= 0 or frame is None or frame.file is None or not frame.line:
        return None
    return GrownLine(Place(frame.file, frame.line), frame.function or "", delta_bytes)


def grown_lines(diff: Diff, query: Query) -> list[GrownLine]:
    """Return the lines of *diff* that grew, the largest first, without the paths that *query* excludes or knows."""
    from gdbmem.profiles.ranking import rank  # with the command's own

    rows = rank(diff, query._replace(by="line", top=None, min_bytes=0)).rows
    found = [grown_line(row.site, row.amount.delta_bytes) for row in rows]
    return sorted((one for one in found if one is not None), key=lambda line: -line.delta_bytes)


def measured_peaks(summaries: Sequence[SeriesSummary]) -> Iterator[Judged]:
    """Yield the known peaks of recordings as numbers."""
    for summary in summaries:
        peak = summary.known_peak_bytes
        if peak is not None:
            text = f"{printable(summary.facts.target)}: its peak was {format_size(peak)}"
            yield Judged(_number("peak", text, peak, peak, peak, BYTES))


def measured_difference(difference: Difference) -> Judged:
    """Return one difference of a comparison as a number."""
    name = f"change of {difference.metric}"
    unit = _UNITS.get(difference.unit, difference.unit)
    return Judged(_number(name, name, difference.value, difference.low, difference.high, unit))


def _number(
    name: str, text: str, value: Optional[float], low: Optional[float], high: Optional[float], unit: str
) -> Judgement:
    return Judgement(name, text, None, value, low, high, unit=unit)


# Writing: the files are opened before the long part of a command, and written whatever fails.


@contextlib.contextmanager
def ci_reports(wanted: Iterable[CiFile], suite: str) -> Iterator[Gate]:
    """Yield the gate that the block fills with what it judges, and write the reports that are *wanted*.

    If the block fails, they say that nothing could be judged, and why: a file of an earlier run must not stand for it.
    Fill it before anything is printed: the reader of a pipe may leave.
    """
    gate = Gate(suite)
    with contextlib.ExitStack() as stack:
        files = [one for one in wanted if one.kind != "github" and one.file]
        streams = [(one.kind, stack.enter_context(open_named(one.file, force=True))) for one in files]
        summaries = [one.file for one in wanted if one.kind == "github"]
        try:
            yield gate
        except BaseException as error:  # also Ctrl-C
            reason = error.sentence if isinstance(error, GdbmemError) else str(error) or type(error).__name__
            # If only the reader of the result has gone, what was judged before stands.
            if not (gate.judged and isinstance(error, BrokenPipeError)):
                gate.judged[:] = [Judged(nothing_judged(suite, printable(reason)))]
            _write(gate, streams, summaries)
            stack.close()  # which keeps them
            raise
        _write(gate, streams, summaries)


def nothing_judged(name: str, reason: str) -> Judgement:
    """Return the judgement on what left nothing to be judged, for *reason*, as a rank without a run."""
    return Judgement(name, reason, outcome=NOT_JUDGED)


def _write(gate: Gate, streams: Iterable[tuple[str, Optional[TextIO]]], summaries: Iterable[str]) -> None:
    repository = Repository()
    for kind, stream in streams:
        assert stream is not None
        stream.write(rendered(kind, gate, repository))
    for file in summaries:
        _write_for_github(gate, repository, file)


def rendered(kind: str, gate: Gate, repository: Repository) -> str:
    """Return the report of *kind* on *gate*, but for GitHub's."""
    if kind == "junit":
        return junit(gate)
    if kind == "markdown":
        return markdown(gate, repository)
    if kind == "gitlab-metrics":
        return gitlab_metrics(gate)
    made = {"gitlab": gitlab, "sarif": sarif}
    numbers = {"bencher": bencher, "benchmark": benchmark}
    document = made[kind](gate, repository) if kind in made else numbers[kind](gate)
    return json.dumps(document, indent=1) + "\n"


def _write_for_github(gate: Gate, repository: Repository, file: str) -> None:
    """Append the summary to *file*, and print annotations on the standard error, where a runner reads them, too."""
    if file:
        with contextlib.suppress(OSError):
            room = _SUMMARY_BYTES - (Path(file).stat().st_size if Path(file).exists() else 0)
            with open(file, "a", encoding="utf-8", errors="backslashreplace") as stream:  # noqa: PTH123
                stream.write(_cut(markdown(gate, repository), room))
    for line in github_annotations(gate, repository):
        print(line, file=sys.stderr)


def _cut(text: str, room: int) -> str:
    end = "\n\n(cut: a summary has room for 1 MiB)\n"
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= room:
        return text
    kept = data[: max(room - len(end), 0)].decode("utf-8", "ignore")
    return kept.rpartition("\n")[0] + end if kept else ""


# The paths of a checkout.


class Repository:
    """The checkout that the command runs in; debug information names its files as the build saw them."""

    def __init__(self, root: Optional[str] = None) -> None:
        found = [root] if root is not None else list(source_roots())
        self._root = Path(found[0]).resolve() if found else None
        self._known: dict[str, Optional[str]] = {}

    def path(self, file: str) -> Optional[str]:
        """Return *file* relative to the checkout, with slashes; None if it has no such file.

        A file of a build elsewhere (/src/app/a.cpp, in a container) is the one with its longest end (app/a.cpp).
        """
        if file not in self._known:
            self._known[file] = self._find(file)
        return self._known[file]

    def _find(self, file: str) -> Optional[str]:
        if self._root is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            path = Path(os.path.normpath(Path.cwd() / file))
            if self._root in path.parents:
                return str(path.relative_to(self._root)) if self._has(path) else None
            # A system header is not the checkout's file of that name.
            parts = () if path.parts[1:2] == ("usr",) else path.parts
            for at in range(1, len(parts)):
                if self._has(self._root.joinpath(*parts[at:])):
                    return "/".join(parts[at:])
        return None

    def _has(self, path: Path) -> bool:
        return path.is_file() and self._root in path.resolve().parents


class _Annotated(NamedTuple):
    """A judgement at one place."""

    judgement: Judgement
    text: str
    file: Optional[str]  # relative to the checkout
    line: Optional[int]
    function: str = ""


def _failures(gate: Gate, repository: Repository) -> Iterator[list[_Annotated]]:
    """Yield the places of each judgement that is not met, or could not be judged: at least one each."""
    for one in gate.judged:
        judgement = one.judgement
        if judgement.judged == MET or not _has_outcome(judgement):
            continue
        lines = one.lines[:_MOST_LINES] if judgement.judged == NOT_MET else ()
        known = [(line, repository.path(line.place.file)) for line in lines]
        places = [
            _Annotated(
                judgement,
                f"{printable(line.function)} grew by {format_size(line.delta_bytes)}; {judgement.sentence}",
                file,
                line.place.line,
                line.function,
            )
            for line, file in known
            if file is not None
        ]
        yield places or [_at_origin(one, repository)]


def _at_origin(one: Judged, repository: Repository) -> _Annotated:
    file = None if one.origin is None else repository.path(one.origin.file)
    return _Annotated(
        one.judgement, one.judgement.sentence, file, one.origin.line if file and one.origin else None
    )


def _has_outcome(judgement: Judgement) -> bool:
    """Return whether *judgement* passes or fails, and is not a number only."""
    return bool(judgement.outcome) or judgement.limit is not None or judgement.measured is None


# Annotations of GitHub, and tables.


def github_annotations(gate: Gate, repository: Repository) -> list[str]:
    """Return the workflow commands that mark the lines of what failed: of each judgement one before the next of any."""
    ranked = [
        (number, place)
        for places in _failures(gate, repository)
        for number, place in enumerate(places[:_ANNOTATIONS])
    ]
    ranked.sort(key=lambda pair: pair[0])
    return [_annotation(gate, place) for _, place in ranked[:_ANNOTATIONS]]


def _annotation(gate: Gate, place: _Annotated) -> str:
    properties = {"file": place.file or "", "line": "" if place.line is None else str(place.line)}
    word = "not met" if place.judgement.judged == NOT_MET else "not judged"
    properties["title"] = f"gdbmem {gate.suite}: {word}"
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    return f"::error {listed}::{_message(place.text)}"


def _message(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


_SIGNS = {MET: "✅ met", NOT_MET: "❌ not met", NOT_JUDGED: "⚠️ not judged"}


def markdown(gate: Gate, repository: Repository) -> str:
    """Return the judgements as a table, and the lines that grew below it."""
    rows = [f"### gdbmem: {_escaped(gate.suite)}", ""]
    if not gate.judged:
        return "\n".join([*rows, "Nothing was judged.", ""])
    rows += ["| | what | measured | limit |", "|---|---|--:|--:|", *map(_table_row, gate.judged)]
    for one in gate.judged:
        if one.judgement.judged == NOT_JUDGED and _has_outcome(one.judgement):
            rows += ["", _escaped(one.judgement.sentence)]
    for one in gate.judged:
        if one.lines and one.judgement.judged != MET:
            rows += _line_rows(one, repository)
    return "\n".join([*rows, ""]) + "\n"


def _table_row(one: Judged) -> str:
    judgement = one.judgement
    outcome = _SIGNS[judgement.judged] if _has_outcome(judgement) else ""
    limit = ""
    if judgement.limit is not None:
        sign = "≥" if judgement.relation == AT_LEAST else "≤"
        limit = f"{sign} {amount_text(judgement.limit, judgement.unit)}"
    cells = (outcome, _escaped(one.case or judgement.name), _escaped(measured_text(judgement)), limit)
    return f"| {' | '.join(cells)} |"


def _line_rows(one: Judged, repository: Repository) -> Iterator[str]:
    yield from (
        "",
        f"Lines that grew, {_escaped(one.judgement.name)}:",
        "",
        "| change | where |",
        "|--:|---|",
    )
    for line in one.lines[:_MOST_LINES]:
        file = repository.path(line.place.file) or line.place.file
        where = _code(f"{file}:{line.place.line}") + (f" {_code(line.function)}" if line.function else "")
        yield f"| {format_delta(line.delta_bytes)} | {where} |"
    more = len(one.lines) - _MOST_LINES
    if more > 0:
        yield f"| | {plural(more, 'more line')} |"


def measured_text(judgement: Judgement) -> str:
    """Return ``+1.5 KiB (+1.0 KiB to +2.0 KiB)``, what was measured and its interval; "" if nothing was."""
    if judgement.measured is None:
        return ""
    text = amount_text(judgement.measured, judgement.unit)
    low, high = _bounds(judgement)
    if low is None or high is None or low == high:
        return text
    return f"{text} ({amount_text(low, judgement.unit)} to {amount_text(high, judgement.unit)})"


def amount_text(value: float, unit: str) -> str:
    """Return *value* of *unit* for people, with its sign."""
    if unit == BYTES:
        return format_delta(round(value))
    if unit == "bytes_per_second":
        return format_rate(value)
    return f"{value:+,.6g} {unit}"


def _escaped(text: str) -> str:
    r"""Return foreign *text* for Markdown, its punctuation as it stands; no mention, HTML or link is made of it."""
    safe = re.sub(r"([\\`*_{}\[\]<>|~#!$&])", r"\\\1", printable(text))
    return safe.replace("@", "@&#8203;").replace("://", ":&#8203;//")


def _code(text: str) -> str:
    """Return foreign *text* as a code span in a table's cell."""
    shown = printable(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    padding = " " if "`" in shown else ""
    return f"{fence}{padding}{shown}{padding}{fence}"


# Reports on code: each line of a failure is an issue.


def gitlab(gate: Gate, repository: Repository) -> list[JsonObject]:
    """Return GitLab's code-quality report, for ``artifacts:reports:codequality``."""
    severity = {NOT_MET: "major", NOT_JUDGED: "minor"}
    return [
        {
            "description": place.text,
            "check_name": _rule(place.judgement),
            "fingerprint": _fingerprint(gate, place),
            "severity": severity[place.judgement.judged],
            # A report without a path is refused; GitLab shows one that is in no diff in its list.
            "location": {"path": place.file or gate.suite, "lines": {"begin": place.line or 1}},
        }
        for places in _failures(gate, repository)
        for place in places
    ]


def _address() -> dict[str, str]:
    """Return where the project's source is, if the installed package says so."""
    from importlib import metadata  # slow to import

    try:
        urls = metadata.metadata("gdbmem").get_all("Project-URL") or ()
    except metadata.PackageNotFoundError:
        return {}
    addresses = dict(url.split(", ", 1) for url in urls)
    return {"informationUri": addresses["Source"]} if "Source" in addresses else {}


def sarif(gate: Gate, repository: Repository) -> JsonObject:
    """Return the report as SARIF 2.1.0 has it."""
    from gdbmem import __version__  # in the package's own module

    rules = {
        NOT_MET: ("memory-grew", "Memory is not within the limit of the gate."),
        NOT_JUDGED: ("not-judged", "The gate could not judge, so it does not pass."),
    }
    found = [place for places in _failures(gate, repository) for place in places]
    run = {
        "tool": {
            "driver": {
                "name": "gdbmem",
                "version": __version__,
                **_address(),
                "rules": [
                    {
                        "id": name,
                        "shortDescription": {"text": text},
                        "defaultConfiguration": {"level": "error"},
                    }
                    for name, text in rules.values()
                ],
            }
        },
        "automationDetails": {"id": f"gdbmem/{gate.suite}/"},
        "columnKind": "utf16CodeUnits",
        "results": [_result(gate, place) for place in found],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }


def _result(gate: Gate, place: _Annotated) -> JsonObject:
    from urllib.parse import quote  # for this report only

    result: JsonObject = {
        "ruleId": _rule(place.judgement),
        "ruleIndex": 0 if place.judgement.judged == NOT_MET else 1,
        "level": "error",
        "message": {"text": place.text},
        "partialFingerprints": {"gdbmem/v1": _fingerprint(gate, place)},
    }
    if place.file is not None:
        location: JsonObject = {
            "artifactLocation": {"uri": quote(place.file), "uriBaseId": "%SRCROOT%"},
        }
        if place.line is not None:
            location["region"] = {"startLine": place.line}
        result["locations"] = [{"physicalLocation": location}]
    return result


def _rule(judgement: Judgement) -> str:
    return "memory-grew" if judgement.judged == NOT_MET else "not-judged"


def _fingerprint(gate: Gate, place: _Annotated) -> str:
    """Return what stays the same while lines move and sizes change."""
    import hashlib  # for these reports only

    parts = (gate.suite, _rule(place.judgement), place.judgement.name, place.file or "", place.function)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]


# Reports on numbers, which a service keeps from commit to commit.


def bencher(gate: Gate) -> JsonObject:
    """Return the numbers in Bencher's metric format, with the ends of their intervals."""
    report: JsonObject = {}
    for name, judgement, value in _numbers(gate):
        low, high = _bounds(judgement)
        ends = {"lower_value": low, "upper_value": high}
        metric = {"value": value, **{key: end for key, end in ends.items() if end is not None}}
        report.setdefault(name, {})[judgement.unit.replace("_", "-")] = metric
    return report


def benchmark(gate: Gate) -> list[JsonObject]:
    """Return the numbers as github-action-benchmark reads them (``tool: customSmallerIsBetter``)."""
    found = []
    for name, judgement, value in _numbers(gate):
        row = {"name": name, "unit": judgement.unit, "value": value, "extra": judgement.sentence}
        low, high = _bounds(judgement)
        if low is not None and high is not None:
            row["range"] = f"± {max(high - value, value - low):g}"
        found.append(row)
    return found


def gitlab_metrics(gate: Gate) -> str:
    """Return the numbers as OpenMetrics, for ``artifacts:reports:metrics``; what is unknown is left out.

    GitLab compares values as texts: integers do not differ by their digits. A range of noise it does not know.
    """
    families: dict[str, list[str]] = {}
    for name, judgement, value in _numbers(gate):
        label = name.replace("\\", "\\\\").replace('"', '\\"')
        number = (
            f"{value:.3g}" if abs(value) < _INTEGERS_FROM and judgement.unit != BYTES else f"{round(value)}"
        )
        families.setdefault(judgement.unit, []).append(f'{{name="{label}"}} {number}')
    lines = []
    for unit, samples in families.items():
        family = f"gdbmem_measured_{re.sub('[^a-z_]', '_', unit)}"
        lines += [f"# TYPE {family} gauge", *(family + sample for sample in samples)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _numbers(gate: Gate) -> Iterator[tuple[str, Judgement, float]]:
    """Yield the name, judgement and number of what was measured; names are unique."""
    counts: dict[str, int] = {}
    for one in gate.judged:
        value = one.judgement.measured
        if value is None or not math.isfinite(value):
            continue
        name = printable(f"{gate.suite}: {one.judgement.name}")
        counts[name] = counts.get(name, 0) + 1
        yield name + (f" ({counts[name]})" if counts[name] > 1 else ""), one.judgement, value


def _bounds(judgement: Judgement) -> tuple[Optional[float], Optional[float]]:
    low, high = (
        None if end is None or not math.isfinite(end) else end for end in (judgement.low, judgement.high)
    )
    return low, high


# JUnit XML.


# XML 1.0 allows no other characters, not even escaped.
_ILLEGAL = "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # compiled when it is first needed
_OUTCOMES = {MET: "system-out", NOT_MET: "failure", NOT_JUDGED: "error"}


def junit(gate: Gate) -> str:
    """Return JUnit XML: a test case for each name, with the worst outcome of the judgements that share it.

    One not met is a failure; one that could not be judged is an error, so that it never counts as passed.
    """
    from xml.etree import ElementTree  # not always needed

    rows = [(name, *_worst(those)) for name, those in _cases(gate).items()]
    outcomes = [outcome for _, outcome, _ in rows]
    counts = {
        "tests": str(len(rows)),
        "failures": str(outcomes.count("failure")),
        "errors": str(outcomes.count("error")),
        "time": f"{gate.seconds:.3f}",
    }
    suite = _legal(gate.suite)
    root = ElementTree.Element("testsuites", counts)
    element = ElementTree.SubElement(root, "testsuite", {"name": suite, **counts, "skipped": "0"})
    for name, outcome, text in rows:
        case = ElementTree.SubElement(element, "testcase", {"classname": suite, "name": _legal(name)})
        if outcome == "system-out":
            ElementTree.SubElement(case, outcome).text = _legal(text)
        else:
            ElementTree.SubElement(case, outcome, {"message": _legal(text)})
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _cases(gate: Gate) -> Mapping[str, list[Judgement]]:
    found: dict[str, list[Judgement]] = {}
    for one in gate.judged:
        if _has_outcome(one.judgement):
            found.setdefault(one.case or one.judgement.name, []).append(one.judgement)
    return found


def _worst(judgements: Sequence[Judgement]) -> tuple[str, str]:
    """Return the element of the worst outcome, and the sentences of those that have it."""
    outcomes = {one.judged for one in judgements}
    worst = next(outcome for outcome in (NOT_MET, NOT_JUDGED, MET) if outcome in outcomes)
    text = "; ".join(one.sentence for one in judgements if one.judged == worst)
    return _OUTCOMES[worst], text or "nothing was judged"


def _legal(text: str) -> str:
    return re.sub(_ILLEGAL, "\ufffd", text)
