"""`gdbmem bfc PID --every TIME`: what the program prints of its pool is the oracle."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from gdbmem.text import format_size
from tests.conftest import Program
from tests.live.explaining import unexpected
from tests.live.pools import Server
from tests.live.test_bfc_pool import PLAIN, made, pool_program
from tests.live.user import GDBMEM


def follow(one: Server, *words: str) -> subprocess.Popen[str]:
    command = [GDBMEM, "bfc", str(one.pid), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows_of(text: str) -> list[str]:
    return [
        line for line in text.splitlines() if "the request " in line and "MiB" in line.split("the request")[0]
    ]


def test_each_walk_is_a_row_and_the_end_states_what_grew(program: Program, scratch: Path) -> None:
    with pool_program(program, 2024) as one:
        before, _ = made(one, 1 << 26, 1, 0, PLAIN, 30, 3)
        following = follow(one, "--every", "200ms", "--request", "60MiB")
        assert following.stdout is not None
        read = [following.stdout.readline() for _ in range(3)]  # the heading, two walks
        after, _ = made(one, 1 << 26, 1, 0, PLAIN, 149, 9)
        read += [following.stdout.readline() for _ in range(3)]
        following.send_signal(signal.SIGINT)
        rest, errors = following.communicate(timeout=60)
    text = "".join(read) + rest
    words = " ".join(text.split())
    assert following.returncode == 0 and not unexpected(errors)
    assert (
        "the_pool_of_a_test: " in words
        and "grew most: chunks of" in words
        and "size of chunks in use" in words
    )
    in_use = {
        " ".join(line.replace(" ms ", "ms ").replace(" s ", "s ").split()[3:5]) for line in rows_of(text)
    }
    assert {format_size(sums[1]) for sums in (before, after)} <= in_use


def test_a_series_as_json_has_the_programs_own_sums(program: Program) -> None:
    with pool_program(program, 2026) as one:
        sums, rows = made(one, 1 << 26, 1, 0, PLAIN, 60, 7)
        following = follow(one, "--every", "100ms", "--for", "300ms", "--json")
        text, _ = following.communicate(timeout=60)
    document: dict[str, Any] = json.loads(text)
    assert document["kind"] == "bfc-series" and document["walks"] == len(document["samples"]) >= 3
    for sample in document["samples"]:
        assert [sample["pool_bytes"], sample["in_use_bytes"]] == sums[:2]
        assert sample["free_chunks"] == sum(not row[3] for row in rows)
    times = [sample["at_seconds"] for sample in document["samples"]]
    assert times == sorted(times) and times[0] == 0
    assert not document["pools"][0]["sizes"]


def test_the_end_of_the_process_or_of_its_pool_ends_the_series_with_all_that_was_seen(
    program: Program,
) -> None:
    for verb in ("destroy", "kill"):
        with pool_program(program, 2024) as one:
            made(one, 1 << 26, 1, 0, PLAIN, 60, 7)
            following = follow(one, "--every", "50ms")
            assert following.stdout is not None
            following.stdout.readline(), following.stdout.readline()
            if verb == "destroy":
                one.ask("destroy")
            else:
                one.process.kill()
                one.process.wait()
            text, errors = following.communicate(timeout=60)
        assert following.returncode == 0 and not unexpected(errors)
        assert "fragmentation" in text
        assert ("bfc-none" in text) == (verb == "destroy")
