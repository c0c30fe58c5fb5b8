"""The ledger of programs that were not written for tests: it adds up, and leaves almost nothing unclaimed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.errors import TargetError
from gdbmem.inspection.live_process import explain_process
from tests.conftest import Program
from tests.cover import cover
from tests.live.explaining import running

# Programs that wait for their standard input or for a connection, so that they can be inspected. @ is a folder.
GLIBC = {
    "python3": ["python3", "-c", "import json, asyncio, sys; sys.stdin.read()"],
    "gdb": ["gdb", "-nx", "-q", "/bin/bash"],
    "cc1": ["gcc", "-x", "c", "-o", "@/out", "-"],
    "cc1plus": ["g++", "-x", "c++", "-o", "@/out", "-"],
    "as": ["as", "-o", "@/out"],
    "sqlite3": ["sqlite3", "@/new.db"],
    "nginx": ["nginx", "-p", "@", "-e", "@/log", "-c", "@/nginx"],
    "perl": ["perl", "-e", "my %h = map { $_ => 'x' x $_ } 1..2000; <STDIN>"],
    "vim": ["vim", "-u", "NONE", "-es"],
    "git": ["git", "-C", "@", "cat-file", "--batch"],
    "bash": ["bash", "--norc", "--noprofile"],
    "tmux": ["tmux", "-D", "-S", "@/socket", "-f", "/dev/null"],
    "make": ["make", "-f", "-"],
    "cmake": ["cmake", "-E", "sleep", "60"],
    "ssh-agent": ["ssh-agent", "-D", "-a", "@/agent"],
    "dbus-daemon": ["dbus-daemon", "--session", "--address=unix:path=@/bus", "--nofork", "--nopidfile"],
    "top": ["top", "-b", "-d", "60"],
    "gdbserver": ["gdbserver", "--multi", "-"],
    "awk": ["awk", "{ print }"],
    "sort": ["sort"],
}
OTHERS = {
    "redis-server": ["redis-server", "--port", "0", "--unixsocket", "@/redis", "--dir", "@"],
    "java": ["java", "-Xmx64m", "@/Waits.java"],
    "node": ["node", "-e", "process.stdin.resume()"],
    "prometheus": ["prometheus", "--config.file=@/p.yml", "--storage.tsdb.path=@/d",
                   "--web.listen-address=127.0.0.1:0"],
    "chromium": ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=@/u",
                 "--remote-debugging-port=0", "about:blank"],
}  # fmt: skip
FILES = {
    "p.yml": "global: {}\n",
    "nginx": "daemon off; pid @/pid; events {}\n",
    "Waits.java": "class Waits { public static void main(String[] a) throws Exception { System.in.read(); } }\n",
}


def rest(pid: int) -> bool:
    """Wait until the process and what it has started sleep, and their memory grows no more; False where it has ended.

    A shell that waits for a child and becomes the program only then (pyenv's python3) is not at rest.
    """
    before = -1
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if state_of(pid) is None:
            return False
        states = [state_of(one) for one in family(pid)]
        now = sum(resident for _, resident in filter(None, states))
        if all(state[0] == "S" for state in states if state) and now == before:
            return True
        before = now
        time.sleep(0.15)
    return True


def state_of(pid: int) -> Optional[tuple[str, int]]:
    """Return the state's letter and the KiB that are resident; None if the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = re.search(r"^State:\s+(\S).*^VmRSS:\s+(\d+)", status, re.M | re.S)
    return (found[1], int(found[2])) if found else None


def family(pid: int) -> list[int]:
    """Return the process and what it has started: a compiler is a child of its driver."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += family(int(child))
    return found


# chromium works for ten seconds before it is at rest; that another malloc is named is tested by test_explain.py.
@pytest.mark.parametrize("name", cover([*GLIBC, *OTHERS], lambda name: name != "chromium"))
def test_the_ledger_of_real_programs_adds_up_and_claims_nearly_all(name: str, tmp_path: Path) -> None:
    words = [word.replace("@", str(tmp_path)) for word in {**GLIBC, **OTHERS}[name]]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    for file, text in FILES.items():
        (tmp_path / file).write_text(text.replace("@", str(tmp_path)))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert rest(process.pid), f"{name} has ended"
        for pid in family(process.pid):
            check(pid, is_glibc=name in GLIBC)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def check(pid: int, *, is_glibc: bool) -> None:
    try:
        ledger = explain_process(pid)
    except TargetError as error:
        assert error.slug in ("process-ended", "no-such-process", "process-zombie"), error  # it went away
        return
    ledger.check()
    assert [share.rss_bytes for share in ledger.shares] == [sum(s.parts.values()) for s in ledger.shares]
    if is_glibc:
        assert ledger.heap is not None
        assert ledger.heap.is_exact, ledger.notices
        assert ledger.total("anonymous.other") <= 0.02 * ledger.rss_bytes


def test_jemalloc_that_is_linked_into_the_program_is_recognised(program: Program) -> None:
    archive = next(iter(Path("/usr/lib").glob("*/libjemalloc.a")), None)
    if archive is None:
        pytest.skip("no libjemalloc.a: apt install libjemalloc-dev")
    whole = f"-Wl,--whole-archive,{archive},--no-whole-archive"
    binary = program("many_blocks", whole, "-pthread", "-ldl", "-lm", "-lstdc++")
    with running([binary, 50_000]) as target:
        ledger = explain_process(target.pid)
    ledger.check()
    assert ledger.total("allocator.jemalloc") > 1 << 20
    told = next(notice.message for notice in ledger.notices if notice.slug == "malloc-replaced")
    assert told.startswith("malloc is replaced by jemalloc (5.")
    assert told.endswith(f"; {binary}): its heap was read")
