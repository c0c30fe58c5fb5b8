"""`gdbmem mcp` as an agent uses it: from a process id to a line of code, and a recipe."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gdbmem.mcp.server import READING, RUNNING
from tests.conftest import Program
from tests.examples import EXAMPLES, build
from tests.live.user import GDBMEM

TRANSCRIPT = EXAMPLES / "mcp" / "pid-to-line.jsonl"


class Client:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.last = 0

    def send(self, method: str, **params: object) -> int:
        self.last += 1
        self._write({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        return self.last

    def notify(self, method: str, **params: object) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def _write(self, message: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the server has ended"
        assert len(line) < 25_000 or '"tools"' in line
        return dict(json.loads(line))

    def call(self, name: str, **arguments: object) -> dict[str, Any]:
        number = self.send("tools/call", name=name, arguments=arguments)
        answer = self.receive()
        assert answer["id"] == number
        result = dict(answer["result"])
        assert not result["isError"], result
        check(result["structuredContent"], SCHEMAS[name])
        return dict(result["structuredContent"])


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[Client]:
    words = [GDBMEM, "mcp", *options]
    with subprocess.Popen(
        words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Client(process)
            assert process.stdin
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


@contextlib.contextmanager
def killed_at_the_end(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


SCHEMAS = {tool.name: tool.returns for tool in (*READING, *RUNNING)}
TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def check(value: object, schema: dict[str, Any]) -> None:
    """Check *value* as a client does that validates results."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert any(isinstance(value, TYPES[kind]) for kind in kinds), (value, schema)
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= value.keys(), (value, schema)
        for name, part in schema.get("properties", {}).items():
            if name in value:
                check(value[name], part)
    if isinstance(value, list):
        for one in value:
            check(one, schema.get("items", {"type": "object"}))


def check_answer(found: object, expected: object) -> None:
    """Check that *found* has what *expected* has; texts that begin with ~ are regular expressions."""
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        for name, part in expected.items():
            check_answer(found[name], part)
    elif isinstance(expected, list):
        assert isinstance(found, list)
        for one, part in zip(found, expected):
            check_answer(one, part)
        assert len(found) >= len(expected)
    elif isinstance(expected, str) and expected.startswith("~"):
        assert isinstance(found, str) and re.search(expected[1:], found), found
    else:
        assert found == expected


@pytest.mark.needs("gdb", "g++", "make")
@pytest.mark.usefixtures("no_process_left")
def test_an_agent_comes_from_a_process_to_the_line_that_makes_it_grow(tmp_path: Path) -> None:
    build("decoder")
    program = [str(EXAMPLES / "decoder/build/decoder"), "--batches", "1000000", "--states", "5000"]
    with killed_at_the_end(program) as decoder, serving(Path("/"), "--folder", str(tmp_path)) as client:
        for line in TRANSCRIPT.read_text().splitlines():
            step = json.loads(line)
            params = step["send"].get("params", {})
            if "arguments" in params:
                params["arguments"]["pid"] = decoder.pid
            if "answer" not in step:
                client.notify(step["send"]["method"], **params)
                continue
            for _ in range(4):
                number = client.send(step["send"]["method"], **params)
                answer = client.receive()
                assert answer["id"] == number
                found = answer["result"].get("structuredContent", {})
                if found.get("verdict", {}).get("grows", True):
                    break  # else watched again: on a busy machine the decoder may rest for most of that time
            check_answer(answer["result"], step["answer"])
            if "name" in params:
                check(found, SCHEMAS[params["name"]])
                if "rows" in found:
                    assert (
                        sum(row["bytes"] for row in found["rows"]) + found["omitted_bytes"]
                        == found["total_bytes"]
                    )
        assert decoder.poll() is None


@pytest.mark.needs("gdb", "valgrind", "g++")
@pytest.mark.usefixtures("no_process_left")
def test_an_agent_runs_a_recipe_and_reads_what_it_found(program: Program, tmp_path: Path) -> None:
    recipe = {
        "program": str(program("keeps")),
        "engine": "massif",
        "points": [{"at": "batch", "name": "before"}, {"at": "batch", "name": "after", "after": True}],
        "diff": [["before#1", "after#1"]],
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    with serving(tmp_path, "--allow-run") as client:
        assert client.call("recipe_check", file="recipe.yaml") == {"ok": True, "problems": []}
        state = client.call("launch_recipe", file="recipe.yaml")
        while state["is_running"]:
            state = client.call("recipe_result", launcher=state["launcher"], seconds=50)
        (diff,) = state["diffs"]
        assert diff["total_bytes"] == 100 * 4096 and "keep" in diff["rows"][0]["site"]["function"]
        run = os.path.relpath(state["run"], tmp_path)
        listed = client.call("show", file=run)
        names = [one["name"] for one in listed["snapshots"]]
        assert listed["total_bytes"] is None  # of all snapshots together: no size
        again = client.call("diff", before=f"{run}:before#1", after=f"{run}:after#1")
        assert (again["total_bytes"], again["rows"]) == (diff["total_bytes"], diff["rows"])
        assert {"before#1", "after#1"} <= set(names)
        assert client.call("show", file=f"{run}:after")["total_bytes"] > 0
        assert "format-unknown" not in client.call("message", slug="format-unknown")["text"][:5]


@pytest.mark.needs("gdb")
@pytest.mark.usefixtures("no_process_left")
def test_a_call_that_is_cancelled_ends_at_once_and_others_are_answered_meanwhile(tmp_path: Path) -> None:
    with killed_at_the_end(["sleep", "300"]) as target, serving(tmp_path) as client:
        began = time.monotonic()
        long = client.send("tools/call", name="grow", arguments={"pid": target.pid, "seconds": 50})
        client.send("ping")
        assert client.receive()["id"] == client.last
        client.notify("notifications/cancelled", requestId=long, reason="enough")
        assert client.call("explain", pid=target.pid)["total_bytes"] > 0
        client.send("tools/call", name="grow", arguments={"pid": target.pid, "seconds": 50})
    assert time.monotonic() - began < 45  # the end of its input ends the server and the last call
