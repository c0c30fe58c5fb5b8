"""The calls of the tools of `gdbmem mcp`: each runs the `gdbmem` command and shortens what it prints.

A call runs the command in a process of its own: it is limited and interrupted as in a shell, and a file that exhausts
the memory ends that process only. A result has at most so many rows; `total_bytes` is the sum of `rows[].bytes` and
`omitted_bytes`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Optional

from gdbmem.errors import InputError, TargetError, UsageError
from gdbmem.files import JsonObject
from gdbmem.inspection.interpreters import module_words
from gdbmem.linux.process.process import process_facts
from gdbmem.text import printable

_GDBMEM = [sys.executable, *module_words("gdbmem.cli.main")]
_SLUG = re.compile(r"(?s)(.*) \[([a-z0-9-]+)\]$")
_POLL_SECONDS = 0.1
_SECONDS_TO_END = 10.0  # after SIGINT, until SIGKILL
_MOST_FRAMES = 12
_MOST_WARNINGS = 8
_MOST_SNAPSHOTS = 50
_MOST_SAID = 8_000  # characters


class JobCancelledError(Exception):
    """The client has cancelled the request."""


class Job:
    """A call of a tool: the process that it waits for, so that the call can be cancelled from another thread."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """End what the call has started; its `output` raises JobCancelledError."""
        self._cancelled.set()

    def output(self, words: Sequence[str], folder: Path) -> str:
        """Run `gdbmem` *words* in *folder*, return what it prints; raises InputError with its message if it fails."""
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
            status = self._wait(
                subprocess.Popen(
                    [*_GDBMEM, *words], stdin=subprocess.DEVNULL, stdout=printed, stderr=said, cwd=folder
                )
            )
            texts = []
            for stream in (printed, said):
                stream.seek(0)
                texts.append(stream.read().decode("utf-8", "replace"))
        if status != 0:
            raise _failure(words, status, texts[1])
        return texts[0]

    def wait_for(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Wait until *process* has ended, at most *seconds*, or until the call is cancelled; leaves it running."""
        until = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < until:
            if self._cancelled.wait(_POLL_SECONDS):
                raise JobCancelledError

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        interrupted_at: Optional[float] = None
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(_POLL_SECONDS)
                    if interrupted_at is not None:
                        raise JobCancelledError
                    return status
                if self._cancelled.is_set() and interrupted_at is None:
                    process.send_signal(signal.SIGINT)
                    interrupted_at = time.monotonic()
                if interrupted_at is not None and time.monotonic() > interrupted_at + _SECONDS_TO_END:
                    process.kill()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _failure(words: Sequence[str], status: int, said: str) -> InputError:
    lines = [line.removeprefix("gdbmem: ") for line in said.splitlines() if line.startswith("gdbmem: ")]
    if not lines:
        return InputError(f"gdbmem {words[0]} ended with status {status}", slug="command-failed")
    found = _SLUG.match(lines[-1])
    return InputError(found[1] if found else lines[-1], slug=found[2] if found else "command-failed")


class Toolbox:
    """The calls, for the processes of this user and the files below one folder.

    The methods are named as the tools; each takes the checked arguments and returns what the tool's schema states.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._recipes: dict[int, _Recipe] = {}

    def end(self) -> None:
        """End the recipes that still run."""
        for recipe in self._recipes.values():
            recipe.end()

    # What a client names.

    def _process(self, arguments: JsonObject) -> str:
        pid = int(arguments["pid"])
        if process_facts(pid).uid != os.getuid():
            raise TargetError(
                f"process {pid} belongs to another user",
                slug="process-forbidden",
                hint="start 'gdbmem mcp' as that user",
            )
        return str(pid)

    def _operand(self, text: str) -> str:
        """Return FILE or RUN:NAME with an absolute path; raises InputError if it is not below the folder."""
        path, name = text, ""
        if not (self._folder / text).exists():
            path, _, name = text.rpartition(":")
        found = (self._folder / path).resolve() if path else None
        if found is None or not found.exists() or not found.is_relative_to(self._folder):
            raise InputError(
                f"{printable(text)[:200]} is not a file below {printable(str(self._folder))}",
                slug="outside-folder",
                hint="'gdbmem mcp --folder DIR' sets the folder",
            )
        return f"{found}:{name}" if name else str(found)

    def _json(self, job: Job, words: Sequence[str], text: str = "") -> JsonObject:
        document = json.loads(text or job.output([*words, "--json"], self._folder))
        assert isinstance(document, dict)
        cleaned = _cleaned(document)
        assert isinstance(cleaned, dict)
        return cleaned

    # The tools.

    def explain(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the ledger of a process."""
        return _ledger(self._json(job, ["explain", self._process(arguments)]), arguments["top"])

    def explain_core(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the ledger of a core file."""
        words = ["explain", "--core", self._operand(arguments["core"])]
        if "program" in arguments:
            words.append(self._operand(arguments["program"]))
        return _ledger(self._json(job, words), arguments["top"])

    def heap(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the holders of a heap's blocks."""
        words = ["heap", "--depth", "1", "--top", str(arguments["top"]), self._process(arguments)]
        found = self._json(job, words)
        rows = [
            {
                "bytes": holder["retained_bytes"],
                "name": " and ".join(holder["holders"] or [holder["name"]]),
                "kind": holder["kind"],
                "blocks": holder["retained_blocks"],
                "parts": holder["parts"],
            }
            for holder in found["holders"]
        ]
        left = found["holder_count"] - len(rows)
        return {
            **_added_up(found, rows, found["live_bytes"], left),
            "lost": {
                key: found["leaks"][key]
                for key in ("least_bytes", "most_bytes", "least_blocks", "most_blocks", "doubt")
            },
            "pause_seconds": found["pause_seconds"],
        }

    def grow(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the lines that made a process bigger meanwhile."""
        seconds = f"{arguments['seconds']}s"
        found = self._json(
            job, ["grow", "--for", seconds, "--top", str(arguments["top"]), self._process(arguments)]
        )
        return {
            **_paths(found, found["sites"]),
            "unseen_bytes": found["unseen_bytes"],
            "lost_samples": found["totals"]["lost_samples"],
        }

    def show(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the call paths of a profile, or the snapshots of a run."""
        operand = self._operand(arguments["file"])
        found = self._json(job, ["show", "--by", arguments["by"], "--top", str(arguments["top"]), operand])
        kind = found["kind"]
        if kind == "profile":
            return {**_paths(found, found["sites"]), "snapshots": _snapshots(found["snapshots"])}
        if kind == "list":
            listed = [*found["snapshots"], *found["ledgers"], *found["containers"]]
            return {**_added_up(found, [], None, 0), "snapshots": _snapshots(listed)}
        if kind == "ledger":
            return {**_ledger(found, arguments["top"]), "snapshots": []}
        raise InputError(
            f"this is a document of kind {kind}, which this tool does not summarise",
            slug="format-unknown",
            hint="monitor_verdict reads recordings; 'gdbmem show' in a shell shows all kinds",
        )

    def diff(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the call paths that changed."""
        sides = [self._operand(arguments[side]) for side in ("before", "after")]
        found = self._json(job, ["diff", "--by", arguments["by"], "--top", str(arguments["top"]), *sides])
        return _difference(found)

    def monitor_verdict(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return whether a recorded process grows."""
        if ("run" in arguments) == ("pid" in arguments):
            raise UsageError("name either 'run' or 'pid'")
        if "run" in arguments:
            found = self._json(job, ["monitor", self._operand(arguments["run"])])
        else:
            with tempfile.TemporaryDirectory(prefix="gdbmem-mcp-") as folder:
                target = [self._process(arguments), "--for", f"{arguments['seconds']}s"]
                found = self._json(job, ["monitor", "--quiet", "--run", f"{folder}/run", *target])
        keys = ("target", "seconds", "verdict", "peak_bytes", "limit_bytes", "seconds_to_limit")
        return {**{key: found[key] for key in keys}, "warnings": _warnings(found)}

    def python_objects(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the live objects by type."""
        found = self._json(job, ["python", "objects", self._process(arguments)])
        types = found["types"]
        rows = [{key: row[key] for key in ("bytes", "type", "count")} for row in types[: arguments["top"]]]
        return {
            **_added_up(found, rows, found["bytes"], len(types) - len(rows)),
            "pause_seconds": found["pause_seconds"],
        }

    def recipe_check(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the problems of a recipe."""
        # Its status is 1 if there is a problem; its JSON says which.
        words = ["recipe", "check", self._operand(arguments["file"]), "--json", "-o"]
        with tempfile.TemporaryDirectory(prefix="gdbmem-mcp-") as folder:
            written = Path(folder, "check.json")
            failure: Optional[InputError] = None
            try:
                job.output([*words, str(written)], self._folder)
            except InputError as error:
                failure = error
            if not written.exists():
                assert failure is not None
                raise failure
            (file,) = self._json(job, [], written.read_text())["files"]
        return {"ok": file["ok"], "problems": file["problems"]}

    def message(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the paragraph about a message."""
        if not re.fullmatch(r"[a-z0-9-]+", arguments["slug"]) or arguments["slug"].startswith("-"):
            raise UsageError("a message's name has small letters, digits and hyphens")
        return {"text": job.output(["help", arguments["slug"]], self._folder)}

    def snap(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the snapshot that was taken."""
        words = ["snap", self._process(arguments)]
        if "name" in arguments:
            if not re.fullmatch(r"\w[\w.-]*", arguments["name"], re.ASCII):
                raise UsageError("the name of a snapshot has letters, digits, '.', '_' and '-'")
            words.append(arguments["name"])
        found = self._json(job, words)
        (snapshot,) = _snapshots([found["snapshot"]])
        return {"run": found["run"], "snapshot": snapshot, "pause_seconds": found["pause_seconds"]}

    def launch_recipe(self, arguments: JsonObject, _job: Job) -> JsonObject:
        """Return the state of a recipe that was just started."""
        recipe = _Recipe(self._operand(arguments["file"]), self._folder)
        self._recipes[recipe.launcher] = recipe
        return self._state_of(recipe)

    def recipe_result(self, arguments: JsonObject, job: Job) -> JsonObject:
        """Return the state of a recipe after a while."""
        recipe = self._recipes.get(arguments["launcher"])
        if recipe is None:
            raise UsageError("no recipe was launched by this number", hint="launch_recipe returns one")
        job.wait_for(recipe.process, arguments["seconds"])
        return self._state_of(recipe)

    def _state_of(self, recipe: _Recipe) -> JsonObject:
        found: JsonObject = {}
        if recipe.process.poll() is not None:
            text = recipe.text(recipe.printed)
            found = self._json(Job(), [], text) if text.strip() else {}
        return {
            "launcher": recipe.launcher,
            "is_running": recipe.process.poll() is None,
            "run": found.get("run"),
            "status": found.get("status"),
            "expectations": found.get("expectations", []),
            "diffs": [_shortened(_difference(diff), 5) for diff in found.get("diffs", [])],
            "said": "\n".join(map(printable, recipe.text(recipe.said)[-_MOST_SAID:].split("\n"))),
        }


class _Recipe:
    """A recipe that runs: its launcher, and the files that it prints to."""

    def __init__(self, file: str, folder: Path) -> None:
        self.printed = tempfile.TemporaryFile()  # noqa: SIM115  (until the server ends)
        self.said = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [*_GDBMEM, "launch", "--recipe", file, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=self.printed,
            stderr=self.said,
            cwd=folder,
        )
        self.launcher = self.process.pid

    @staticmethod
    def text(stream: IO[bytes]) -> str:
        """Return what was printed to *stream* so far."""
        size = os.fstat(stream.fileno()).st_size
        return os.pread(stream.fileno(), size, 0).decode("utf-8", "replace")  # its position is the launcher's

    def end(self) -> None:
        """End it as Ctrl-C does; the launcher ends all that it has started."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


# gdbmem's documents as results.


def _added_up(
    found: JsonObject, rows: list[JsonObject], total_bytes: Optional[int], omitted_rows: int
) -> JsonObject:
    return {
        "answer": found.get("answer"),
        "total_bytes": total_bytes,
        "rows": rows,
        "omitted_rows": omitted_rows,
        "omitted_bytes": None if total_bytes is None else total_bytes - sum(row["bytes"] for row in rows),
        "warnings": _warnings(found),
    }


def _warnings(found: JsonObject) -> list[str]:
    every = [f"{one['message']} [{one['slug']}]" for one in found["warnings"]]
    more = [f"{len(every) - _MOST_WARNINGS} more warnings"] if len(every) > _MOST_WARNINGS else []
    return every[:_MOST_WARNINGS] + more


def _ledger(found: JsonObject, top: int) -> JsonObject:
    entries = sorted(found["entries"], key=lambda entry: -entry["resident_bytes"])
    rows = [
        {
            "bytes": entry["resident_bytes"],
            **{key: entry[key] for key in ("category", "label", "allocated_bytes", "detail")},
        }
        for entry in entries[:top]
    ]
    return {
        **_added_up(found, rows, found["rss_bytes"], len(entries) - len(rows)),
        "releasable_bytes": found["releasable_bytes"],
        "pause_seconds": found["pause_seconds"],
    }


def _difference(found: JsonObject) -> JsonObject:
    if found["kind"] not in ("diff", "trend"):
        raise InputError(
            f"these are documents of kind {found['kind']}, which this tool does not compare",
            slug="format-unknown",
            hint="'gdbmem diff' in a shell does",
        )
    return _paths(found, {**found, "total_bytes": found["delta_bytes"]})


def _paths(found: JsonObject, sites: Optional[JsonObject]) -> JsonObject:
    """Return the rows of a profile or of a diff; *sites* is null if the profile has no call trees."""
    if sites is None:
        return _added_up(found, [], found["peak"]["total_bytes"] if found.get("peak") else None, 0)
    rows = [
        {
            "bytes": path["delta_bytes"],
            "uncertain_bytes": path["uncertain_bytes"],
            "blocks": path["delta_blocks"],
            "site": _line(path["site"]) if path["site"] else None,
            "frames": [_line(frame) for frame in path["frames"][:_MOST_FRAMES]],
            "omitted_frames": max(len(path["frames"]) - _MOST_FRAMES, 0),
        }
        for path in sites["paths"]
        if path["delta_bytes"]
    ]
    left = sum(sites[name]["paths"] for name in ("rest", "unmatched", "known") if sites.get(name))
    return _added_up(found, rows, sites["total_bytes"], left)


def _line(frame: JsonObject) -> JsonObject:
    found = {key: frame[key] for key in ("function", "file", "line")}
    return found if frame["file"] or not frame.get("object") else {**found, "object": frame["object"]}


def _snapshots(listed: Sequence[JsonObject]) -> list[JsonObject]:
    keys = (
        "index",
        "name",
        "time",
        "time_unit",
        "place",
        "seconds",
        "heap_bytes",
        "rss_bytes",
        "total_bytes",
    )
    return [{key: one[key] for key in keys if one.get(key) is not None} for one in listed[-_MOST_SNAPSHOTS:]]


def _shortened(result: JsonObject, most: int) -> JsonObject:
    while len(result["rows"]) > most:
        drop_row(result)
    return result


def drop_row(result: JsonObject) -> None:
    """Move the last row of *result* to what is omitted."""
    result["omitted_bytes"] += result["rows"].pop()["bytes"]
    result["omitted_rows"] += 1


def _cleaned(value: object) -> object:
    """Return *value* without control characters and lone surrogates in its texts, which strangers have written."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_cleaned(one) for one in value]
    if isinstance(value, dict):
        return {printable(key): _cleaned(one) for key, one in value.items()}
    return value
