"""Heap snapshots and sampled allocations of V8."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gdbmem.errors import InputError
from gdbmem.formats.reports import v8
from gdbmem.model.calltree import Frame
from tests.unit.report_files import REPORTS
from tests.unit.stack_files import read, tree

FIELDS = ["type", "name", "id", "self_size", "edge_count", "trace_node_id", "detachedness"]
TYPES = ["hidden", "array", "string", "object", "code", "closure", "native", "concatenated string"]
NAMES = ["", "Basket", "system / Data", 'a "]" and "strings":[', "f", "Node"]


def snapshot(nodes: list[tuple[str, int, int]], **changes: Any) -> bytes:
    """Return a snapshot, as V8 writes it, of *nodes*: type, number of the name, size."""
    rows = [
        [TYPES.index(kind), name, 2 * at + 1, size, 0, 0, 0] for at, (kind, name, size) in enumerate(nodes)
    ]
    head = {
        "meta": {"node_fields": FIELDS, "node_types": [TYPES, "string", "number"]},
        "node_count": len(rows),
        **changes,
    }
    numbers = "\n,".join(",".join(map(str, row)) for row in rows)
    lists = f'"nodes":[{numbers}\n],\n"edges":[1,2,3\n],\n"strings":{json.dumps(NAMES)}'
    return f'{{"snapshot":{json.dumps(head)},\n{lists}}}'.encode()


NODES = [("object", 1, 40)] * 3 + [
    ("object", 5, 7),
    ("native", 2, 100),
    ("string", 3, 24),
    ("closure", 4, 64),
    ("code", 4, 8),
]


def shown(path: Path) -> dict[str, tuple[int, int]]:
    found = tree(read(path))
    assert found.blocks is not None
    rows: dict[str, tuple[int, int]] = {}
    for node in range(1, len(found)):
        frame = found.frame_of(node)
        rows[(frame.file if frame else None) or ""] = found.bytes[node], found.blocks[node]
    return rows


def test_objects_are_summed_by_constructor_and_others_by_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(v8, "_STEP_BYTES", 40)
    file = tmp_path / "a"
    file.write_bytes(snapshot(NODES))
    assert shown(file) == {
        "Basket": (120, 3), "Node": (7, 1), "system: Data": (100, 1), "(string)": (24, 1), "Function": (64, 1),
        "(compiled code)": (8, 1),
    }  # fmt: skip
    assert read(file).source_format == "heapsnapshot"


def test_a_heap_of_many_different_strings_takes_no_more_memory_than_one_of_equal_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed = v8._sums
    results: list[Any] = []

    def sums(*words: Any) -> Any:
        results.append(summed(*words))
        return results[-1]

    monkeypatch.setattr(v8, "_sums", sums)
    file = tmp_path / "a"
    file.write_bytes(snapshot([("string", text, 24) for text in range(1000)]))
    assert shown(file) == {"(string)": (24_000, 1000)}
    [(of_types, _)] = results
    assert len(of_types) == 1


def test_a_snapshot_that_was_cut_or_changed_is_refused(tmp_path: Path) -> None:
    text, file = snapshot(NODES), tmp_path / "a"
    changed = [text[:end] for end in range(1, len(text))]
    changed += [
        text.replace(b",40,", b",-40,", 1),
        text.replace(b",40,", b",4x,", 1),
        text.replace(b",40,", b",,40,", 1),
        text.replace(b",40,", b",4 0,", 1),
        text.replace(b"3,1,1,40", b"9,1,1,40"),
    ]
    changed += [text.replace(b"Basket", b"Bas\\xet"), text.replace(b",40,", b"," + b"9" * 25 + b",", 1)]
    changed += [snapshot(NODES, node_count=9), snapshot([("object", 99, 4)])]
    for data in changed:
        file.write_bytes(data)
        with pytest.raises(InputError):
            read(file).tree(0)


@pytest.mark.parametrize("name", ["kept", "objects", "npm"])
def test_sampled_allocations_have_the_sum_of_the_file(name: str) -> None:
    document = json.loads(gzip.decompress((REPORTS / f"{name}.heapprofile.gz").read_bytes()))
    total, left = 0, [document["head"]]
    while left:
        node = left.pop()
        total += node["selfSize"]
        left += node["children"]
    profile = read(REPORTS / f"{name}.heapprofile.gz")
    assert (tree(profile).bytes[0], profile.source_format) == (total, "heapprofile")
    assert "sampled-by-v8" in {notice.slug for notice in profile.notices}


def test_sampled_allocations_have_the_call_paths_of_the_program() -> None:
    assert Frame("Basket", "/tmp/shop/kept.js", 5) in tree(read(REPORTS / "kept.heapprofile.gz")).frames
