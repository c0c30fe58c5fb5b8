"""gdbmem heap of real programs of 100 MiB and more: processor time, and its figures beside the programs' own.

Programs that no package has are looked for in the folder HEAP_PROGRAMS: `redis-server` (make MALLOC=libc), and `lua` of
musl's malloc (make CC=musl-gcc MYLDFLAGS=-static generic).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from benchmarks.racing import Ratio
from gdbmem.linux.process.process import process_facts

TITLE = "heap: real programs of 100 MiB and more"
_MOST_SECONDS, _MOST_PAUSE = 10, 0.05
_LEAST_BYTES = 100 << 20
_WAIT_SECONDS = 300
_MALLINFO = """
import ctypes
class Info(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in "a b c d hblkhd e f uordblks g h".split()]
c = ctypes.CDLL(None); c.mallinfo2.restype = Info
"""
_PYTHON = f"""{_MALLINFO}
class Node:
    def __init__(self, i): self.i = i; self.name = "n%d" % i
data = {{i: Node(i) for i in range(400000)}}
info = c.mallinfo2(); print(info.uordblks + info.hblkhd, flush=True); input()
"""
_PERL = 'my %h; $h{"key $_"} = ["a" x 40, $_, {at => $_}] for 1 .. 350000; $| = 1; print "0\\n"; <STDIN>'
_LUA = """
t = {} for i = 1, 400000 do t[i] = {name = "n" .. i, at = i, next = t[i - 1]} end
collectgarbage() collectgarbage()
print(string.format("%d", collectgarbage("count") * 1024)) io.stdout:flush() io.read()
"""
_MARIADB = """
set max_heap_table_size = 1 << 30; create database t; use t;
create table t (a int primary key, b varchar(200)) engine=memory;
insert into t select seq, repeat('x', 150) from seq_1_to_600000;
select data_length + index_length from information_schema.tables where table_schema = 't';
"""
_POSTGRESQL = """
set work_mem = '1GB'; begin;
declare c cursor for select i, md5(i::text) m from generate_series(1, 800000) i order by m; fetch 1 from c;
select 'pid', pg_backend_pid(), sum(total_bytes) from pg_backend_memory_contexts;
"""
_SERVERS = "/usr/sbin:/usr/local/sbin"
_POSTGRESQL_FOLDERS = "/usr/lib/postgresql/*/bin"
_REDIS_BYTES = re.compile(r"^used_memory:(\d+)", re.M)


class Subject(NamedTuple):
    """A program at work; *bytes* that it, or its malloc, says are in use: 0 where it says nothing."""

    pid: int
    bytes: int
    header_bytes: int = 0  # of each block, which it doesn't count
    rounding: float = 0.05  # more that blocks may have, as malloc rounds their sizes up


def race() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from _looked_at("CPython with PYTHONMALLOC=malloc", lambda: _python(folder))
        yield from _looked_at("perl", lambda: _prints(["perl", "-e", _PERL]))
        yield from _looked_at("redis on glibc's malloc", lambda: _redis(folder))
        yield from _looked_at("lua on musl's malloc", lambda: _lua(folder))
        yield from _looked_at("MariaDB, a table in memory", lambda: _mariadb(folder))
        yield from _looked_at("PostgreSQL, a sort", lambda: _postgresql(folder))
        yield from _looked_at("cc1plus", lambda: _compiler(folder))


def _looked_at(
    name: str, start: Callable[[], contextlib.AbstractContextManager[Optional[Subject]]]
) -> Iterator[Ratio]:
    with start() as subject:
        if subject is None:
            print(f"bench: {name} is left out: the program is missing", file=sys.stderr)
            return
        size = process_facts(subject.pid).anonymous_bytes
        if size < _LEAST_BYTES:
            raise RuntimeError(f"{name} has {size >> 20} MiB only")
        found, seconds = _heap(subject.pid)
    what = f"{name}, {size >> 20} MiB, {found['live_blocks']:,} blocks"
    yield Ratio(f"{what}: CPU seconds / {_MOST_SECONDS}", [seconds / _MOST_SECONDS], 1)
    yield Ratio(
        f"{name}: wall time for which it stands still / 50 ms", [found["pause_seconds"] / _MOST_PAUSE]
    )
    if subject.bytes:
        counted = found["live_bytes"] - subject.header_bytes * found["live_blocks"]
        yield Ratio(
            f"{name}: bytes of live blocks / what it counts itself",
            [counted / subject.bytes],
            1 + subject.rounding,
        )
    lost = found["leaks"]["least_bytes"] / max(found["live_bytes"], 1)
    yield Ratio(f"{name}: share of the blocks that are said to be lost for certain / 1 %", [lost / 0.01], 1)
    claimed = (found["live_bytes"] + found["other_bytes"]) / size
    yield Ratio(
        f"{name}: live blocks and memory that is not malloc's / its anonymous memory", [claimed], 1.25
    )


def _heap(pid: int) -> tuple[dict[str, Any], float]:
    with tempfile.TemporaryFile("w+") as output:
        command = [sys.executable, "-m", "gdbmem.cli.main", "heap", str(pid), "--json"]
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return json.load(output), used.ru_utime + used.ru_stime


@contextlib.contextmanager
def _prints(
    command: Sequence[str], environment: Optional[dict[str, str]] = None, *, rounding: float = 0.05
) -> Iterator[Optional[Subject]]:
    """Yield the program of *command*, which prints how many bytes it has when it is ready."""
    if shutil.which(command[0]) is None:
        yield None
        return
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **(environment or {})}
    ) as process:
        try:
            assert process.stdout is not None
            yield Subject(process.pid, int(process.stdout.readline()), rounding=rounding)
        finally:
            process.kill()


def _python(folder: Path) -> contextlib.AbstractContextManager[Optional[Subject]]:
    (folder / "objects.py").write_text(_PYTHON)
    return _prints([sys.executable, str(folder / "objects.py")], {"PYTHONMALLOC": "malloc"})


def _lua(folder: Path) -> contextlib.AbstractContextManager[Optional[Subject]]:
    (folder / "tables.lua").write_text(_LUA)
    return _prints([_built("lua"), str(folder / "tables.lua")], rounding=0.25)


def _built(name: str) -> str:
    return str(Path(os.environ.get("HEAP_PROGRAMS", "/nonexistent")) / name)


@contextlib.contextmanager
def _redis(folder: Path) -> Iterator[Optional[Subject]]:
    server, socket = _built("redis-server"), str(folder / "socket")
    if not Path(server).exists() or shutil.which("redis-cli") is None:
        yield None
        return
    command = [server, "--port", "0", "--unixsocket", socket, "--dir", str(folder), "--save", ""]
    with subprocess.Popen(
        [*command, "--enable-debug-command", "local"], stdout=subprocess.DEVNULL
    ) as process:
        try:
            _wait(lambda: Path(socket).exists())
            ask = ["redis-cli", "-s", socket]
            subprocess.run(
                [*ask, "debug", "populate", "800000", "key", "60"], check=True, capture_output=True
            )
            done = subprocess.run([*ask, "info", "memory"], check=True, capture_output=True, text=True)
            used = _REDIS_BYTES.search(done.stdout)
            assert used is not None
            yield Subject(process.pid, int(used[1]), header_bytes=8)
        finally:
            process.kill()


@contextlib.contextmanager
def _mariadb(folder: Path) -> Iterator[Optional[Subject]]:
    """Yield a server whose blocks are more than those of the table that it has in memory: InnoDB has some, too."""
    server = shutil.which("mariadbd", path=_SERVERS)
    data, socket = folder / "mariadb", folder / "mariadb.s"
    if server is None:
        yield None
        return
    own = ["--no-defaults", f"--datadir={data}", "--user=root"]
    subprocess.run(["mariadb-install-db", *own], check=True, capture_output=True)
    with subprocess.Popen(
        [server, *own, f"--socket={socket}", "--skip-networking"], stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait(socket.exists)
            ask = ["mariadb", "--no-defaults", "-u", "root", "-S", str(socket), "-N", "-e", _MARIADB]
            done = subprocess.run(ask, check=True, capture_output=True, text=True)
            yield Subject(process.pid, int(done.stdout), rounding=0.75)
        finally:
            process.kill()


@contextlib.contextmanager
def _postgresql(folder: Path) -> Iterator[Optional[Subject]]:
    """Yield the process of a connection, with what its memory contexts have."""
    programs = sorted(Path("/").glob(f"{_POSTGRESQL_FOLDERS[1:]}/postgres"))
    if not programs or os.geteuid() != 0:
        yield None
        return
    place = folder / "postgresql"
    place.mkdir()
    folder.chmod(0o755)
    shutil.chown(place, "postgres")
    server, data, socket = str(programs[-1]), str(place / "data"), place / ".s.PGSQL.5432"
    user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": [], "cwd": "/"}
    setting_up = [str(programs[-1].with_name("initdb")), "-A", "trust", "-N", "-D", data]
    subprocess.run(setting_up, check=True, capture_output=True, **user)
    command = [server, "-D", data, "-k", str(place), "-h", ""]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **user) as process:
        try:
            _wait(socket.exists)
            ask = ["psql", "-h", str(place), "-U", "postgres", "-At", "-F", " "]
            pipe = subprocess.PIPE
            with subprocess.Popen(ask, stdin=pipe, stdout=pipe, text=True) as connection:
                assert connection.stdin is not None
                assert connection.stdout is not None
                connection.stdin.write(_POSTGRESQL)
                connection.stdin.flush()
                pid, used = next(line for line in connection.stdout if line.startswith("pid ")).split()[1:]
                yield Subject(int(pid), int(used))
                connection.stdin.close()
        finally:
            process.send_signal(signal.SIGINT)  # ends its connections


@contextlib.contextmanager
def _compiler(folder: Path) -> Iterator[Optional[Subject]]:
    """Yield a cc1plus that is stopped as soon as it has enough memory."""
    if shutil.which("g++") is None:
        yield None
        return
    source = "#include <map>\n#include <string>\n#include <regex>\n" + "".join(
        f'int f{n}(std::map<std::string, int[{n + 1}]>& m) {{ return (*m.find("x")).second[0]; }}\n'
        for n in range(400)
    )
    (folder / "large.cpp").write_text(source)
    where = subprocess.run(
        ["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True
    ).stdout.strip()
    command = [
        where,
        "-quiet",
        "-imultiarch",
        f"{os.uname().machine}-linux-gnu",
        "-O2",
        str(folder / "large.cpp"),
    ]
    with subprocess.Popen([*command, "-o", os.devnull], stderr=subprocess.DEVNULL) as process:
        try:
            _wait(lambda: process_facts(process.pid).anonymous_bytes > 1.3 * _LEAST_BYTES)
            process.send_signal(signal.SIGSTOP)
            yield Subject(process.pid, 0)
        finally:
            process.kill()


def _wait(is_ready: Callable[[], bool]) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not is_ready():
        if time.monotonic() > end:
            raise RuntimeError("a program was not ready in time")
        time.sleep(0.02)
