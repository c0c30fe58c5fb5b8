"""Captures compared with the output of their own readers, function by function and path by path."""

from __future__ import annotations

import re
import struct
from collections import Counter
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.model.calltree import CallTree
from tests.unit.stack_files import CAPTURES, capture, read, tree


def peer(name: str) -> str:
    return (CAPTURES / f"{name}.peer").read_text()


def paths(found: CallTree) -> list[tuple[int, int, list[str]]]:
    """Return bytes, blocks and functions, innermost first, of each path that holds memory itself."""
    own, blocks = found.self_bytes(), list(found.blocks or [0] * len(found))
    for node in range(1, len(found)):
        blocks[found.parent[node]] -= found.blocks[node] if found.blocks else 0
    return [
        (own[node], blocks[node], [found.frames[found.frame[n]].function or "???" for n in found.path(node)])
        for node in range(len(found))
        if own[node] or blocks[node]
    ]


def short(name: str) -> str:
    """Return *name* as google-pprof shows it: without parameters, template arguments and return type."""
    for pattern in (r"\([^()]*\)(\s*const)?", r"<[^<>]*>"):
        while re.search(pattern, name):
            name = re.sub(pattern, "", name)
    return re.sub(r"^.*\s+(\w+::)", r"\1", name)


def test_a_raw_file_has_the_flat_and_cumulative_numbers_of_google_pprof() -> None:
    rows = re.findall(
        r"^ *(\d+) +[\d.]+% +[\d.]+% +(\d+) +[\d.]+% (.*?)(?: \(inline\))?$", peer("tc.raw"), re.M
    )
    assert len(rows) > 10
    alike = Counter(name for _, _, name in rows)  # a function and its inlined copy have a row each
    flat, cumulative = Counter[str](), Counter[str]()
    for size, _, functions in paths(tree(read(CAPTURES / "tc.raw"))):
        names = [short(name) for name in functions]
        flat[names[0]] += size
        cumulative.update(dict.fromkeys(names, size))
    for theirs_flat, theirs_cumulative, name in rows:
        if name in cumulative and alike[name] == 1:  # what calls main is left out here
            assert (flat[name], cumulative[name]) == (int(theirs_flat), int(theirs_cumulative)), name
    assert {"keep", "order", "deep", "main"} <= set(cumulative) and alike["keep"] == alike["order"] == 1
    assert sum(flat.values()) == int(re.search(r"Total: (\d+)", peer("tc.raw"))[1])  # type: ignore[index]


def test_inlined_callers_of_a_raw_file_stand_outside_what_they_call() -> None:
    names = [
        [short(name) for name in functions] for _, _, functions in paths(tree(read(CAPTURES / "tc.raw")))
    ]
    assert any(
        path[:2] == ["std::__new_allocator::allocate", "std::allocator_traits::allocate"] for path in names
    )
    assert all(path[-1] == "main" for path in names if "order" in path)


def test_the_stacks_that_made_a_heap_grow_have_the_total_of_google_pprof() -> None:
    found = tree(read(CAPTURES / "growth.heap"))
    assert found.bytes[0] == int(re.search(r"Total: (\d+) B", peer("growth"))[1])  # type: ignore[index]
    assert found.blocks is not None and found.blocks[0] == 6


def test_each_peak_consumer_is_that_of_heaptrack_print() -> None:
    theirs = consumers(peer("ht"))
    ours = []
    for size, _, functions in paths(tree(read(CAPTURES / "ht.zst", "peak"))):
        if size:
            inner = functions[functions[0].startswith("operator new") :]  # heaptrack_print leaves it out
            ours.append((thousands(size), tuple(map(plain, inner))))
    assert len(theirs) >= 5 and sum(theirs.values()) == len(ours)
    assert Counter(ours) == theirs


def consumers(text: str) -> Counter[tuple[str, tuple[str, ...]]]:
    """Return the section of what holds most at the peak: sizes, with functions up to main."""
    section = (
        text[text.index("PEAK MEMORY CONSUMERS") :].split("\n\nMEMORY LEAKS")[0].split("MEMORY LEAKS")[0]
    )
    found: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for group in re.split(r"^\S+ peak memory consumed over \d+ calls from\n", section, flags=re.M)[1:]:
        head, *parts = re.split(r"^(\S+) consumed over \d+ calls from:\n", group, flags=re.M)
        for size, body in zip(parts[::2], parts[1::2]):
            functions = [plain(name) for name in [*functions_of(head, ""), *functions_of(body, "    ")]]
            until = functions.index("main") + 1 if "main" in functions else len(functions)
            found[size, tuple(functions[:until])] += 1
    return found


def functions_of(text: str, margin: str) -> list[str]:
    return [
        line[len(margin) :]
        for line in text.splitlines()
        if line.startswith(margin) and line[len(margin) :] and not line[len(margin) :].startswith(" ")
    ]


def plain(name: str) -> str:
    """Return *name* with its template arguments as heaptrack_print shows them: left out. Addresses are not names."""
    name = "???" if name.startswith("0x") else name
    while re.search(r"<[^<>]*>", name):
        name = re.sub(r"<[^<>]*>", "\0", name)
    return re.sub(r"\0", "<>", name)


def thousands(size_bytes: int) -> str:
    return f"{size_bytes}B" if size_bytes < 1000 else f"{size_bytes / 1000:.2f}K"


# -- older forms of a format, made from the newest


@pytest.mark.parametrize("version", [1, 2])
def test_heaptracks_older_files_by_hand_read_as_the_new_one(version: int, tmp_path: Path) -> None:
    lines = capture("ht.zst").split(b"\n")
    assert lines[0].split()[2] == b"3"
    older = [b"v %s %d" % (lines[0].split()[1], version)]
    for line in lines[1:]:  # strings had no length then
        older.append(b"s " + line.split(b" ", 2)[2] if line.startswith(b"s ") else line)
    file = tmp_path / "by-hand"
    file.write_bytes(b"\n".join(older))
    for metric in ("in-use", "peak", "allocated"):
        ours, new = tree(read(file, metric)), tree(read(CAPTURES / "ht.zst", metric))
        assert paths(ours) == paths(new)


@pytest.mark.parametrize("below", [0, 1])
def test_names_in_front_fit_return_addresses_and_calls(below: int, tmp_path: Path) -> None:
    # Some list the address that is on the stack, some that of the call one byte before.
    file = tmp_path / "by-hand"
    file.write_text(
        f"--- symbol\nbinary=/bin/x\n0x{0x1000 - below:016x} inner()\n"
        f"0x{0x2000 - below:016x} main<0000000000001ff0>--f(int)\n"
        "---\n--- heap\nheap profile: 1: 7 [1: 7] @ heapprofile\n1: 7 [1: 7] @ 0x1000 0x2000\n\nMAPPED_LIBRARIES:\n"
    )
    ((size, _, functions),) = paths(tree(read(file)))
    assert (size, functions) == (7, ["inner()", "f(int)", "main"])


def raw(*words: int, order: str = "<") -> bytes:
    names = b"--- symbol\nbinary=x\n0x0000000000000010 f()\n---\n--- profile\n"
    return names + struct.pack(f"{order}{5 + len(words)}Q", 0, 3, 0, 1, 0, *words) + b"\n"


@pytest.mark.parametrize("order", ["<", ">"])
def test_raw_words_are_read_as_the_machine_wrote_them(order: str, tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_bytes(raw(7, 2, 16, 32, 5, 1, 16, order=order))
    profile = read(file)
    assert paths(tree(profile)) == [(5, 0, ["f()"]), (7, 0, ["f()", "0x20"])]
    assert [notice.slug for notice in profile.notices] == ["unit-unknown"]


@pytest.mark.parametrize("end", range(1, 5 * 8))
def test_raw_words_that_were_cut_report_it(end: int, tmp_path: Path) -> None:
    file, data = tmp_path / "raw", raw(7, 2, 16, 32, 5, 1, 16)
    file.write_bytes(data[: -1 - end])
    profile = read(file)
    tree(profile)
    assert (
        "bytes-missing" in {notice.slug for notice in profile.notices}
        or profile.snapshots[0].total_bytes == 7
    )


@pytest.mark.parametrize("words", [(7, 1 << 63, 16), (1 << 63, 1, 16)])
def test_raw_words_that_no_memory_has_are_refused(words: tuple[int, ...], tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_bytes(raw(*words))
    with pytest.raises(InputError):
        tree(read(file))
