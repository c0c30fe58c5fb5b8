"""The memory of a container, divided, by files in the form in which Linux 6.1 has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.ledger.cgroup import answer, cgroup_document, divided, print_cgroup
from gdbmem.linux.monitoring.cgroup import CgroupReading, processes_in, read_whole_cgroup
from gdbmem.model.groups import CgroupProcess
from gdbmem.terminal.console import make_console

KIB, MIB = 1 << 10, 1 << 20
V2 = """\
anon 104857600
file 41943040
kernel 6291456
kernel_stack 163840
pagetables 462848
sec_pagetables 0
percpu 1024
sock 65536
vmalloc 0
shmem 10485760
zswap 0
inactive_file 29360128
slab_reclaimable 4194304
slab_unreclaimable 1048576
"""
V1 = """\
cache 1
rss 1
total_cache 92274688
total_rss 103559168
total_shmem 50331648
total_inactive_file 37748736
"""


def process(
    pid: int, anonymous: int, *, shmem: int = 0, files: int = 0, badness: Optional[int] = 0
) -> CgroupProcess:
    return CgroupProcess(pid, f"p{pid}", anonymous + shmem + files, anonymous, files, shmem, 0, badness)


def v2(folder: Path) -> Path:
    (folder / "memory.current").write_text("153157632\n")
    (folder / "memory.max").write_text("268435456\n")
    (folder / "memory.high").write_text("max\n")
    (folder / "memory.stat").write_text(V2)
    (folder / "cgroup.procs").write_text("4711\n")
    (folder / "below").mkdir()
    (folder / "below" / "cgroup.procs").write_text("4712\n4713\n")
    return folder


def v1(folder: Path) -> Path:
    (folder / "memory.usage_in_bytes").write_text("242548736\n")
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (folder / "memory.kmem.usage_in_bytes").write_text("46514176\n")
    (folder / "memory.stat").write_text(V1)
    return folder


def read(folder: Path) -> CgroupReading:
    found = read_whole_cgroup(folder)
    assert found is not None
    return found


def test_every_byte_of_a_container_is_in_one_entry(tmp_path: Path) -> None:
    reading = read(v2(tmp_path))
    ledger = divided(reading, [process(1, 60 * MIB), process(2, 40 * MIB, shmem=4 * MIB, files=25 * MIB)], [])
    assert sum(entry.size_bytes for entry in ledger.entries) == ledger.usage_bytes == 153157632
    sizes = {entry.name: entry.size_bytes for entry in ledger.entries}
    assert sizes["anonymous memory: heaps, stacks, arenas"] == 100 * MIB
    assert sizes["shared memory and tmpfs files"] == 4 * MIB
    assert sizes["tmpfs files, memfds, System V segments"] == 6 * MIB
    assert sizes["page cache of files"] == 30 * MIB
    assert sizes["buffers of sockets"] == 64 * KIB and sizes["page tables"] == 452 * KIB
    assert sizes["other memory of the kernel"] == 6291456 - 163840 - 462848 - 1024 - 5 * MIB
    (tmp_path / "memory.current").write_text("153161728\n")
    assert {"not told by the kernel": 4 * KIB}.items() <= {
        entry.name: entry.size_bytes for entry in divided(read(tmp_path), [], []).entries
    }.items()
    assert ledger.limit_bytes == 256 * MIB and ledger.high_bytes is None
    assert ledger.working_set_bytes == 153157632 - 29360128
    assert processes_in(tmp_path) == [4711, 4712, 4713]


def test_a_container_of_cgroup_v1_is_counted_with_those_below_it(tmp_path: Path) -> None:
    ledger = divided(read(v1(tmp_path)), [process(1, 90 * MIB, shmem=32 * MIB)], [])
    sizes = {entry.name: entry.size_bytes for entry in ledger.entries}
    assert sum(sizes.values()) == ledger.usage_bytes == 242548736 and ledger.limit_bytes is None
    assert (
        sizes["page cache of files"] == 40 * MIB
        and sizes["tmpfs files, memfds, System V segments"] == 16 * MIB
    )
    assert sizes["memory of the kernel: page tables, slab, sockets, stacks"] == 46514176
    assert sizes["other anonymous memory"] == 103559168 - 90 * MIB


def test_memory_of_processes_that_is_charged_elsewhere_makes_no_entry_too_large(tmp_path: Path) -> None:
    ledger = divided(read(v2(tmp_path)), [process(1, 500 * MIB, shmem=500 * MIB, files=500 * MIB)], [])
    assert all(entry.size_bytes > 0 for entry in ledger.entries)
    assert sum(entry.size_bytes for entry in ledger.entries) == ledger.usage_bytes


def test_parts_that_an_older_kernel_does_not_tell_are_not_counted_as_of_nobody(tmp_path: Path) -> None:
    unknown = process(1, 60 * MIB)._replace(anonymous_bytes=None, file_bytes=None, shmem_bytes=None)
    ledger = divided(read(v2(tmp_path)), [unknown], [])
    sizes = {entry.name: entry.size_bytes for entry in ledger.entries}
    assert sizes["anonymous memory: heaps, stacks, arenas"] == 100 * MIB
    assert not any("none of its" in entry.detail or "ended" in entry.detail for entry in ledger.entries)
    assert sum(sizes.values()) == ledger.usage_bytes


def test_a_victim_is_foretold_only_where_all_processes_are_known(tmp_path: Path) -> None:
    reading = read(v2(tmp_path))
    small, adjusted, spared = (
        process(1, MIB, badness=5),
        process(2, MIB, badness=7),
        process(3, MIB, badness=None),
    )
    assert divided(reading, [small, adjusted, spared], []).victim == 2
    assert divided(reading, [spared], []).victim is None
    unknown = divided(reading, [small, adjusted], [9])
    assert unknown.victim is None and [notice.slug for notice in unknown.notices] == ["cgroup-unreadable"]
    assert "3 processes" in answer(unknown)


def test_the_text_and_the_document_have_the_same_numbers_and_no_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = process(1, 60 * MIB, badness=1)._replace(name="\x1b[2Jx")
    ledger = divided(
        read(v2(tmp_path)), [hostile, *(process(pid, MIB, badness=0) for pid in range(2, 30))], []
    )
    with (tmp_path / "text").open("w") as stream:
        print_cgroup(ledger, make_console(stream), top=10)
    said = (tmp_path / "text").read_text()
    assert "146.1 MiB used of 256.0 MiB allowed by 29 processes" in said and "\x1b" not in said
    assert "… and 19 smaller processes" in said and "would now kill process 1" in said
    found = json.loads(json.dumps(cgroup_document(ledger)))
    assert found["kind"] == "cgroup" and found["warnings"] == [] and found["answer"] == answer(ledger)
    assert sum(entry["size_bytes"] for entry in found["entries"]) == found["usage_bytes"]


@pytest.mark.parametrize("lacks", ["memory.stat", "memory.current"])
def test_a_cgroup_without_its_numbers_is_none(tmp_path: Path, lacks: str) -> None:
    (v2(tmp_path) / lacks).unlink()
    assert read_whole_cgroup(tmp_path) is None
