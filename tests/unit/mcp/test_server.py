"""What an agent's client gets from `gdbmem mcp`: lines of JSON only, in both generations of the protocol."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gdbmem.mcp.calls import Job, Toolbox, _line
from gdbmem.mcp.server import MOST_LINE_BYTES, READING, RUNNING, Server, _fitted

MODERN = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


def served(folder: Path, *lines: bytes, may_run: bool = False) -> list[dict[str, Any]]:
    output = io.BytesIO()
    Server(Toolbox(folder), output, may_run=may_run).serve(lines)
    answers = [json.loads(line, parse_constant=pytest.fail) for line in output.getvalue().splitlines()]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    return answers


def request(method: str, identifier: object = 1, **params: object) -> bytes:
    return (
        json.dumps({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}).encode() + b"\n"
    )


def called(folder: Path, name: str, **arguments: object) -> str:
    """Call a tool that fails, and return the sentence that an agent reads."""
    (answer,) = served(folder, request("tools/call", name=name, arguments=arguments), may_run=True)
    assert answer["result"]["isError"]
    return str(answer["result"]["content"][0]["text"])


def test_a_client_with_a_handshake_is_answered_in_its_own_revision(tmp_path: Path) -> None:
    for revision in ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"):
        (answer,) = served(tmp_path, request("initialize", protocolVersion=revision))
        assert answer["result"]["protocolVersion"] == revision
    (answer,) = served(tmp_path, request("initialize", protocolVersion="2031-01-01"))
    assert answer["result"]["protocolVersion"] == "2025-11-25"
    listed, pong = served(tmp_path, request("tools/list"), request("ping", 2))
    assert "resultType" not in listed["result"] and pong["result"] == {}


def test_a_client_without_a_handshake_is_told_that_results_are_complete(tmp_path: Path) -> None:
    found, listed = served(
        tmp_path, request("server/discover", **MODERN), request("tools/list", "two", **MODERN)
    )
    assert found["result"]["supportedVersions"] == ["2026-07-28"]
    assert listed["id"] == "two"
    for answer in (found, listed):
        assert answer["result"]["resultType"] == "complete" and answer["result"]["ttlMs"] > 0


def test_a_revision_that_nobody_knows_is_refused_with_those_that_are(tmp_path: Path) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2040-01-01"}
    (answer,) = served(tmp_path, request("tools/list", _meta=meta))
    assert answer["error"]["code"] == -32022
    assert answer["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2040-01-01"}


def test_a_revision_that_is_no_text_is_refused_in_json(tmp_path: Path) -> None:
    line = (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta":'
        b' {"io.modelcontextprotocol/protocolVersion": 1e999}}}\n'
    )
    (answer,) = served(tmp_path, line)
    assert answer["error"]["data"]["requested"] == "inf"


def test_tools_that_run_programs_exist_only_if_allowed(tmp_path: Path) -> None:
    (listed,) = served(tmp_path, request("tools/list"))
    tools = {tool["name"]: tool for tool in listed["result"]["tools"]}
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools.values())
    assert not {"snap", "launch_recipe"} & tools.keys()
    (answer,) = served(tmp_path, request("tools/call", name="launch_recipe", arguments={"file": "a.yaml"}))
    assert answer["error"]["code"] == -32602
    (listed,) = served(tmp_path, request("tools/list"), may_run=True)
    marked = {tool["name"]: tool["annotations"] for tool in listed["result"]["tools"]}
    assert not marked["snap"]["readOnlyHint"] and marked["launch_recipe"]["destructiveHint"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json\n", -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}\n', -32700),
        (b"[" * 100_000 + b"\n", -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b"9" * 5000 + b"}\n", -32700),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}\n', -32700),
        (b'{"jsonrpc": "2.0", "id": 1e999, "method": "ping"}\n', -32600),
        (b"[]\n", -32600),
        (b'{"jsonrpc": "2.0", "id": 1}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}\n', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": 7}\n', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": ["x"]}}\n', -32602),
        (b'"' + b"x" * MOST_LINE_BYTES + b'"\n', -32700),
    ],
    ids=range(14),
)
def test_a_bad_line_is_answered_and_the_next_one_too(tmp_path: Path, line: bytes, code: int) -> None:
    bad, good = served(tmp_path, line, request("ping", 2))
    assert bad["error"]["code"] == code and good == {"jsonrpc": "2.0", "id": 2, "result": {}}


def test_notifications_and_answers_get_no_answer(tmp_path: Path) -> None:
    silent = [
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}}\n',
        b'{"jsonrpc": "2.0", "method": "tools/call", "params": [1]}\n',
        b'{"jsonrpc": "2.0", "id": 9, "result": {}}\n',
        b"\n",
    ]
    assert served(tmp_path, *silent) == []


def test_wrong_arguments_are_told_to_the_agent_in_one_sentence(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    assert "needs 'pid'" in called(folder, "explain")
    assert "'pid' is not a whole number" in called(folder, "explain", pid="1")
    assert "'pid' is not a whole number" in called(folder, "explain", pid=True)
    assert "'pid' is not between" in called(folder, "explain", pid=0)
    assert "'pid' is not between" in called(folder, "explain", pid=10**30)
    assert "there is no process" in called(folder, "explain", pid=(1 << 31) - 1)
    assert "no argument 'shell'" in called(folder, "show", file="x", shell="rm")
    assert "is none of line, function" in called(folder, "show", file="x", by="size")
    assert "null character" in called(folder, "show", file="a\0b")
    assert "too long" in called(folder, "show", file="x" * 1_000_000)
    for path in (
        "../outside",
        str(outside),
        "link",
        "/etc/passwd",
        "--help",
        "nothing:here",
        ":",
        "/proc/self/environ",
    ):
        assert "is not a file below" in called(folder, "show", file=path), path
    assert "small letters" in called(folder, "message", slug="--help")
    assert "either 'run' or 'pid'" in called(folder, "monitor_verdict")
    assert "no recipe was launched" in called(folder, "recipe_result", launcher=1)
    assert "\x1b" not in called(folder, "show", file="\x1b[2Jx")


def test_ten_thousand_random_requests_get_only_json_and_end_nothing(tmp_path: Path) -> None:
    random.seed(20)
    methods = (
        "initialize",
        "server/discover",
        "ping",
        "tools/list",
        "tools/call",
        "x",
        "",
        "notifications/cancelled",
    )
    names = [tool.name for tool in (*READING, *RUNNING)]

    def value(depth: int = 0) -> object:
        kinds = 6 if depth > 2 else 8
        choice = random.randrange(kinds)
        if choice == 6:
            return [value(depth + 1) for _ in range(random.randrange(3))]
        if choice == 7:
            return {random.choice(("pid", "file", "_meta", "top", "name")): value(depth + 1)}
        return (None, True, -1, 1.5, "\u202ex", "../../etc")[choice]

    def line() -> bytes:
        message: dict[str, object] = {"jsonrpc": "2.0", "method": random.choice(methods)}
        if random.random() < 0.9:
            message["id"] = random.choice((random.randrange(10**9), "id", None, 2.5))
        if random.random() < 0.9:
            arguments = (
                value() if random.random() < 0.5 else {"pid": value(), "file": value(), "top": value()}
            )
            message["params"] = {"name": random.choice((*names, "x", value())), "arguments": arguments}
        data = bytearray(json.dumps(message).encode())
        if random.random() < 0.2:
            data[random.randrange(len(data))] = random.randrange(256)
        return bytes(data).replace(b"\n", b" ") + b"\n"

    answers = served(tmp_path, *(line() for _ in range(10_000)), request("ping", "last"), may_run=True)
    assert {"jsonrpc": "2.0", "id": "last", "result": {}} in answers
    assert len(answers) > 5000
    for answer in answers:
        failed = "failed at" in json.dumps(answer)  # an internal error
        assert not failed, answer


class _Answered(Job):
    """A job whose command has printed *text*."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def output(self, words: Sequence[str], folder: Path) -> str:
        return self._text


def test_blocks_that_several_hold_together_are_listed_by_their_holders_and_doubt_about_leaks_is_told(
    tmp_path: Path,
) -> None:
    one = {"kind": "several", "name": "", "retained_bytes": 90, "retained_blocks": 3, "parts": []}
    leaks = dict.fromkeys(("least_bytes", "most_bytes", "least_blocks", "most_blocks"), 0)
    document = {
        "live_bytes": 100,
        "holders": [
            {**one, "holders": ["cache", "index"]},
            {**one, "kind": "data", "name": "x", "holders": []},
        ],
        "holder_count": 2,
        "leaks": {**leaks, "doubt": "a register was not read"},
        "pause_seconds": None,
        "warnings": [],
    }
    arguments = {"pid": os.getpid(), "top": 5}
    found = Toolbox(tmp_path).heap(arguments, _Answered(json.dumps(document)))
    assert [row["name"] for row in found["rows"]] == ["cache and index", "x"]
    assert found["lost"]["doubt"] == "a register was not read"


def test_a_result_too_long_for_an_agent_loses_rows_but_no_bytes() -> None:
    rows = [{"bytes": 1000 - at, "name": "x" * 500} for at in range(100)]
    found = {
        "total_bytes": sum(row["bytes"] for row in rows if isinstance(row["bytes"], int)) + 7,
        "rows": rows,
    }
    result = _fitted({**found, "omitted_rows": 2, "omitted_bytes": 7})
    kept = result["structuredContent"]
    assert len(json.dumps(result)) < 25_000 and 10 < len(kept["rows"]) < 100
    assert kept["omitted_rows"] == 102 - len(kept["rows"])
    assert sum(row["bytes"] for row in kept["rows"]) + kept["omitted_bytes"] == kept["total_bytes"]
    assert json.loads(result["content"][0]["text"]) == kept


def test_a_frame_without_a_name_says_in_which_program_or_library_it_is() -> None:
    nameless: dict[str, object] = {"function": None, "file": None, "line": None, "object": "/usr/bin/ls"}
    assert _line(nameless) == nameless
    named = {**nameless, "function": "f", "file": "a.c", "line": 3}
    assert "object" not in _line(named)
