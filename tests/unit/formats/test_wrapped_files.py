"""Files out of logs of docker, Kubernetes, journald, CI and chats are read like the files, whatever their format."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Callable

import pytest

from gdbmem.errors import InputError
from gdbmem.formats.opening import open_profile
from tests.unit.report_files import REPORTS

TIME = "2026-11-27T02:43:25.123456789Z"


def each(mark: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{mark}{line}\n" for line in text.splitlines())


WRAPPINGS: dict[str, Callable[[str], str]] = {
    "docker": lambda text: "".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": TIME}) + "\n"
        for line in text.splitlines()
    ),
    "docker logs -t": each(f"{TIME} "),
    "docker compose": each("server-1  | "),
    "kubernetes": each(f"{TIME} stderr F "),
    "kubectl": each("[pod/server-0/main] "),
    "journald": each("Nov 27 02:43:25 host server[19027]: "),
    "journald, blanks gone": lambda text: re.sub(
        r" +$", "", each("Nov 27 02:43:25 host server[19027]: ")(text), flags=re.M
    ),
    "journalctl -o json": lambda text: "".join(
        json.dumps({"MESSAGE": line, "_PID": "7", "_HOSTNAME": "host"}) + "\n" for line in text.splitlines()
    ),
    "ts": each("Nov 27 02:43:25 "),
    "mpirun --tag-output": each("[1,0]<stderr>:"),
    "torchrun": each("[default0]:"),
    "github": each("2026-11-27T02:43:25.1234567Z "),
    "gh run view --log": each("build\tRun tests\t2026-11-27T02:43:25.1234567Z "),
    "azure": each("2026-11-27T02:43:25.1234567Z ##[error]"),
    "torch": each("[rank0]: "),
    "indented": each("    "),
    "gitlab": each("2026-11-27T02:43:25.123456Z 01E "),
    "jenkins": each("[2026-11-27T02:43:25.123Z] "),
    "quoted": each("> "),
    "fenced": lambda text: f"It grows and grows:\n\n```console\n{text}\n```\nAny ideas?\n",
    "quoted twice, fenced": lambda text: each("> > ")(f"see\n```\n{text}\n```\n"),
    "colours": lambda text: "".join(f"\x1b[1;31m{line}\x1b[0m\n" for line in text.splitlines()),
    "compose of coloured lines with times": each(f"\x1b[36mserver-1  | \x1b[0m{TIME} "),
}
FILES = (
    "leaks-g++-address.log",
    "forks-clang++-leak.log",
    "java.histogram",
    "arenas.txt",
    "sleep.pmap-x",
    "alloc.tcmalloc",
)


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("name", FILES)
def test_a_wrapped_file_is_the_file(name: str, wrapping: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(WRAPPINGS[wrapping]((REPORTS / name).read_text()))
    plain, found = open_profile(REPORTS / name), open_profile(file)
    assert found.source_format == plain.source_format
    ours, theirs = found.tree(0), plain.tree(0)
    assert ours is not None and theirs is not None
    assert (list(ours.bytes), list(ours.frames)) == (list(theirs.bytes), list(theirs.frames))
    assert [one.slug for one in found.notices] == [one.slug for one in plain.notices]


def test_a_leak_report_among_the_lines_of_ctest_keeps_its_places(tmp_path: Path) -> None:
    report = REPORTS / "leaks-clang++-address.log"
    lines = each("3: ")(report.read_text())
    (tmp_path / "log").write_text(
        f"test 3\n    Start 3: leaks\n{lines}1/1 Test #3: leaks ...***Failed 0.02 sec\n"
    )
    ours, theirs = (open_profile(path).tree(0) for path in (tmp_path / "log", report))
    assert ours is not None and theirs is not None
    assert (list(ours.bytes), list(ours.frames)) == (list(theirs.bytes), list(theirs.frames))


@pytest.mark.parametrize("mark", ["    ", "E   ", "[rank0]: ", "app[7] stderr: "])
def test_a_leak_report_within_a_post_keeps_its_places(mark: str, tmp_path: Path) -> None:
    report = REPORTS / "leaks-g++-address.log"
    lines = "It grows and grows.\nWhat is this?\n" * 20
    (tmp_path / "post").write_text(f"{lines}\n{each(mark)(report.read_text())}\n{lines}")
    ours, theirs = (open_profile(path).tree(0) for path in (tmp_path / "post", report))
    assert ours is not None and theirs is not None
    assert (list(ours.bytes), list(ours.frames)) == (list(theirs.bytes), list(theirs.frames))


def test_utf_16_as_powershell_writes_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes((REPORTS / "arenas.txt").read_text().encode("utf-16"))
    assert open_profile(tmp_path / "file").snapshots[0].total_bytes == 2654208


def test_two_reports_in_one_post_are_not_taken_for_one(tmp_path: Path) -> None:
    blocks = [(REPORTS / name).read_text() for name in ("arenas.txt", "java.histogram")]
    (tmp_path / "post").write_text("".join(f"```\n{text}```\n" for text in blocks))
    with pytest.raises(InputError) as caught:
        open_profile(tmp_path / "post")
    assert caught.value.slug == "several-dumps"
    (tmp_path / "post").write_text(f"```c\nint main;\n```\nprints\n```\n{blocks[0]}```\n")
    assert open_profile(tmp_path / "post").source_format == "malloc_stats"


REFUSED = {
    "hprof": (b"JAVA PROFILE 1.0.2\0\0\0\0\x08", "heap dump of Java", "jcmd PID GC.class_histogram"),
    "grow --json": (b'{\n "format_version": 1,\n "kind": "profile",', "for other programs", "grow --profile FILE"),
    "explain --json": (b'{\n "format_version": 1,\n "kind": "ledger",', "without call paths", "--since FILE"),
    "jfr": (b"FLR\0\0\2\0\1", "Flight Recorder", "jcmd PID GC.class_histogram"),
    "heaptrack_print": (
        b'reading file "/tmp/h.zst" - please wait, this might take some time...\nDebuggee command was: ./shop 100\n',
        "heaptrack_print", "heaptrack.PROGRAM.PID.zst",
    ),
    "memusage": (
        b"\n\x1b[01;32mMemory usage summary:\x1b[0;0m heap total: 324, heap peak: 324, stack peak: 0\n", "memusage",
        "--engine massif",
    ),
    "mtrace(1)": (
        b"\nMemory not freed:\n-----------------\n           Address     Size     Caller\n0x000055e4 0x64  at a.c:5\n",
        "the text of mtrace(1)", "MALLOC_TRACE",
    ),
    "memory timeline": (b"[[1700000000000000, 1700000000000100], [[0, 1]]]", "memory timeline", "_dump_snapshot"),
    "scalene": (b'{"alloc_samples": 7, "args": {}, "elapsed_time_sec": 1.5}', "scalene", "memray run"),
    "memray csv": (b"allocator,num_allocations,size,tid,thread_name,stack_trace\n", "memray", "PROGRAM.PID.bin"),
    "memray stats": (b'{"total_num_allocations": 7}', "memray", "memray-PROGRAM.PID.bin"),
    "austin": (b"MOJ\x02\x01mode\0full\0", "austin", "mojo2austin"),
    "austin text": (b"# austin: 3.7.0\n# interval: 100\n# mode: full\nP7;T7;m:f:3 10\n", "austin", "austin2speedscope"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_read_is_called_by_its_name_with_the_command_that_helps(
    name: str, tmp_path: Path
) -> None:
    data, what, hint = REFUSED[name]
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(InputError) as caught:
        open_profile(tmp_path / "file")
    assert caught.value.slug == "format-unreadable"
    assert what in caught.value.message and hint in (caught.value.hint or "")
