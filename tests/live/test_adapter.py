"""gdbmem's requests and events for programs that drive gdb: its debug adapter (DAP), and its machine interface (MI)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gdbmem.linux.memory.resident import PAGE_BYTES
from gdbmem.setup.gdb_python import loader_file
from tests.live.memwatching import SETTINGS, line_of
from tests.live.user import packages

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
MIB = 1 << 20


def has_adapter() -> bool:
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", "python import gdb.dap.server"], capture_output=True, check=False
    )
    return not done.returncode


@pytest.fixture
def driven(program: Program, scratch: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Return a function that starts gdb with gdbmem and an interpreter on pipes."""
    started: list[subprocess.Popen[bytes]] = []

    def start(interpreter: str) -> subprocess.Popen[bytes]:
        settings = [word for line in SETTINGS for word in ("-iex", line)]
        found = subprocess.Popen(
            ["gdb", "-nx", "-q", f"-i={interpreter}", *settings, "-ix", str(loader_file())],
            cwd=scratch,
            env={**os.environ, "XDG_DATA_HOME": packages()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        started.append(found)
        return found

    yield start
    for one in started:
        one.kill()
        one.communicate()


class Adapter:
    """A client of gdb's debug adapter."""

    def __init__(self, gdb: subprocess.Popen[bytes]) -> None:
        self._gdb = gdb
        self._sent = 0
        self._kept: list[dict[str, Any]] = []  # events that nobody has waited for

    def send(self, command: str, **arguments: object) -> int:
        self._sent += 1
        message = {"seq": self._sent, "type": "request", "command": command, "arguments": arguments}
        data = json.dumps(message).encode()
        assert self._gdb.stdin is not None
        self._gdb.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self._gdb.stdin.flush()
        return self._sent

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        number = self.send(command, **arguments)
        while True:
            message = self._read()
            if message["type"] == "response" and message["request_seq"] == number:
                return message
            self._kept.append(message)

    def event(self, name: str) -> dict[str, Any]:
        for message in self._kept:
            if message.get("event") == name:
                self._kept.remove(message)
                return dict(message.get("body") or {})
        while True:
            message = self._read()
            if message.get("event") == name:
                return dict(message.get("body") or {})
            self._kept.append(message)

    def _read(self) -> dict[str, Any]:
        assert self._gdb.stdout is not None
        length = 0
        while (line := self._gdb.stdout.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert length, "the adapter has ended"
        message = json.loads(self._gdb.stdout.read(length))
        assert isinstance(message, dict)
        return message


@pytest.mark.skipif(not has_adapter(), reason="this gdb has no debug adapter (since gdb 14)")
def test_a_debug_adapters_client_is_told_what_each_step_did_to_memory_and_may_ask_where_it_is(
    program: Program, driven: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    client = Adapter(driven("dap"))
    able = client.ask("initialize", clientID="test", adapterID="gdb", supportsProgressReporting=True)
    assert able["body"]["supportsGdbmem"] is True
    launched = client.send("launch", program=str(program("resident_steps")))
    client.event("initialized")
    client.ask("setFunctionBreakpoints", breakpoints=[{"name": "keep"}])
    assert launched and client.ask("configurationDone")["success"]
    client.event("stopped")
    assert client.event("gdbmem/stopped")["steps"] == []
    client.send("next", threadId=1)
    client.event("stopped")
    [step] = client.event("gdbmem/stopped")["steps"]
    assert step["line"] == line_of("resident_steps.c", "/* keeps */")
    assert abs(step["delta_bytes"] - 24 * MIB) <= 2 * PAGE_BYTES
    ledger = client.ask("gdbmem/explain")["body"]
    assert ledger["kind"] == "ledger"
    began = client.event("progressStart")
    assert (began["title"], client.event("progressEnd")["progressId"]) == (
        "gdbmem: explain",
        began["progressId"],
    )
    assert sum(entry["resident_bytes"] for entry in ledger["entries"]) == ledger["rss_bytes"] > 24 * MIB
    recorded = client.ask("gdbmem/steps", by="function", top=1)["body"]
    assert recorded["sums"][0]["function"] == "keep"
    wrong = client.ask("gdbmem/steps", by=3)
    assert not wrong["success"] and "by" in wrong["message"]
    refused = client.ask("gdbmem/steps", by="colour")
    assert not refused["success"] and "[usage]" in refused["message"]
    unknown = client.ask("gdbmem/explain", colour="red")
    assert unknown["message"].startswith("gdbmem/explain has no argument 'colour'; it takes ")
    snapshot = client.ask("gdbmem/snapshot", snapshot="here")
    assert "[not-under-massif]" in snapshot["message"]
    assert client.ask("disconnect", terminateDebuggee=True)["success"]


def test_a_client_of_mi_is_answered_the_same_with_tuples(
    program: Program, driven: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    gdb = driven("mi3")

    def ask(command: str) -> str:
        assert gdb.stdin is not None
        assert gdb.stdout is not None
        gdb.stdin.write(command.encode() + b"\n")
        gdb.stdin.flush()
        while True:
            line = gdb.stdout.readline().decode().strip()
            assert line, "gdb has ended"
            if line.startswith(("^done", "^error", "*stopped")):
                return line

    ask(f"-file-exec-and-symbols {program('resident_steps')}")
    assert ask("-gdbmem-steps").startswith('^error,msg="')
    ask("-break-insert keep")
    assert f'line="{line_of("resident_steps.c", "/* keeps */")}"' in ask("-exec-run")
    ask("-exec-next")
    ledger = ask("-gdbmem-explain")
    assert ledger.startswith('^done,format_version="')
    rows = [int(size) for size in re.findall(r'label="[^"]*",resident_bytes="(\d+)"', ledger)]
    total = int(re.findall(r'rss_bytes="(\d+)"', ledger)[0])
    assert sum(rows) == total > 24 * MIB
    assert 'sums=[{function="keep",' in ask("-gdbmem-steps --by function")
    assert ask("-gdbmem-steps --by colour").endswith('[usage]"')
    assert ask("-gdbmem-steps -o steps.json").endswith('leave out -o"')
    assert ask("-gdbmem-snapshot here").endswith('[not-under-massif]"')


READS_JSON = """
import gdb, json
for command in ("memexplain --json", "memheap --json"):
    print("kind", json.loads(gdb.execute(command, to_string=True))["kind"], flush=True)
"""


def test_a_script_in_gdb_that_asks_for_json_gets_no_announcement_before_it(scratch: Path) -> None:
    (scratch / "script.py").write_text(READS_JSON)
    # Reading it takes so long that it is announced.
    holds = "import time; kept = bytearray(b'x' * (80 << 20)); print('ready', flush=True); time.sleep(300)"
    with subprocess.Popen([sys.executable, "-c", holds], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            words = ["-p", str(process.pid), "-x", str(loader_file()), "-x", str(scratch / "script.py")]
            done = subprocess.run(
                ["gdb", "-nx", "-q", "-batch", *words], capture_output=True, text=True, check=False
            )
        finally:
            process.kill()
    assert re.findall("^kind .*", done.stdout, re.MULTILINE) == ["kind ledger", "kind heap"], done.stderr
    assert "gdbmem: reading its 8" in done.stderr
