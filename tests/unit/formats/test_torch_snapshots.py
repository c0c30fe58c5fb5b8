"""PyTorch's snapshots: every block as the picklers wrote it, no code that a pickle names, and bounded memory."""

from __future__ import annotations

import io
import json
import mmap
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from gdbmem.api.pools import answer_failed, read_pools
from gdbmem.errors import GdbmemError, InputError
from gdbmem.formats.bfc import plain_pickle, torch_rows
from gdbmem.formats.bfc.torch_snapshot import is_torch_snapshot, read_torch_profile, read_torch_snapshot
from gdbmem.formats.opening import open_profile
from gdbmem.model.bfc import TorchSnapshot
from tests.cover import diagonals
from tests.unit.torch_snapshots import SHAPES, Shape, held, make_snapshot

CAPTURES = Path(__file__).parents[2] / "captures" / "bfc"
_MARK = {"active_allocated": 1, "active_pending_free": 2, "inactive": 0}


@pytest.fixture
def no_file_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_rows, "_SMALL", 0)


as_large = pytest.mark.usefixtures("no_file_is_small")  # rows are matched by patterns, as in large files


def _agree(read: TorchSnapshot, made: dict[str, Any]) -> None:
    """Compare block by block, with who allocated each."""
    devices = sorted({segment["device"] for segment in made["segments"]})
    assert [allocator.name for allocator in read.allocators] == [f"cuda:{device}" for device in devices]
    for device, allocator, stacks in zip(devices, read.allocators, read.block_stacks):
        allocator.check()
        segments = [segment for segment in made["segments"] if segment["device"] == device]
        blocks = [block for segment in segments for block in segment["blocks"]]
        assert allocator.pool_bytes == sum(segment["total_size"] for segment in segments)
        assert allocator.in_use_bytes == held(blocks, "active_allocated")
        assert list(allocator.chunks.size) == [block["size"] for block in blocks]
        assert list(allocator.chunks.state) == [_MARK[block["state"]] for block in blocks]
        assert list(allocator.chunks.requested or ()) == [block["requested_size"] for block in blocks]
        if blocks and "address" in blocks[0]:
            assert list(allocator.chunks.address) == [block["address"] for block in blocks]
        for block, stack in zip(blocks, stacks):
            found = [read.frames[number] for number in read.stacks[stack]]
            assert [frame.line or 0 for frame in found] == [frame["line"] for frame in block["frames"]]
            assert [frame.file or "??" for frame in found] == [frame["filename"] for frame in block["frames"]]
    assert read.entries == sum(map(len, made["device_traces"]))


@pytest.mark.slow  # all together
@pytest.mark.parametrize(("name", "protocol"), diagonals(list(SHAPES), [2, 4, 3, 5], [0]))
@as_large
def test_every_block_of_both_of_pythons_picklers_is_read(name: str, protocol: int) -> None:
    made = make_snapshot(SHAPES[name])
    in_python = io.BytesIO()
    pickle._Pickler(in_python, protocol).dump(made)
    for data in (pickle.dumps(made, protocol), in_python.getvalue()):
        _agree(read_torch_snapshot(data, "x"), made)


@as_large
def test_torchs_own_pickler_is_read() -> None:
    data = (CAPTURES / "torch-2.13-cpp.pickle").read_bytes()
    _agree(read_torch_snapshot(data, "x"), pickle.loads(data))


@as_large
def test_stacks_are_found_where_the_history_stands_before_the_segments() -> None:
    made = make_snapshot(Shape())
    traces = [[dict(entry) for entry in entries] for entries in made["device_traces"]]
    blocks = [block for segment in made["segments"] for block in segment["blocks"]]
    for block, entry in zip(blocks, traces[0]):
        entry["frames"] = block["frames"]  # the list itself, as torch shares it
    turned = {"device_traces": traces, "segments": made["segments"]}
    _agree(read_torch_snapshot(pickle.dumps(turned), "x"), turned)


@pytest.mark.slow
@as_large
def test_snapshots_of_two_processes_in_one_file_keep_their_stacks() -> None:
    first, second = (
        pickle.loads(pickle.dumps(make_snapshot(Shape(segments=3, entries=20)))) for _ in range(2)
    )
    for segment in second["segments"]:
        segment["device"] = 1
        segment["frames"] = segment["blocks"][0]["frames"]  # as torch shares them
    both = {
        "segments": first["segments"] + second["segments"],
        "device_traces": first["device_traces"] + second["device_traces"],
    }
    _agree(read_torch_snapshot(pickle.dumps(both), "x"), both)


@as_large
def test_texts_that_a_later_frame_shares_with_the_history_are_read() -> None:
    made = make_snapshot(Shape(entries=400, segments=2))
    for number, entry in enumerate(made["device_traces"][0]):
        entry["compile_context"] = f"step{number}"
    named = made["device_traces"][0][300]["compile_context"]
    made["device_traces"][0][-1]["frames"] = [{"name": named, "filename": "/app/late.py", "line": 7}]
    read = read_torch_snapshot(pickle.dumps(made), "x")
    assert [one.asked_by for one in read.allocators] == ["step300 (/app/late.py:7)"]


@pytest.mark.slow
@as_large
def test_frames_that_are_not_shared_take_no_memory_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stack has separate frames: they don't count as single values once they were seen."""
    made = json.loads(json.dumps(make_snapshot(Shape(entries=3000, segments=20))))
    monkeypatch.setattr(plain_pickle, "_BUDGET_BYTES", 1 << 20)
    monkeypatch.setattr(plain_pickle, "_STEP", 256)
    data = pickle.dumps(made)
    assert len(data) > 1 << 20
    _agree(read_torch_snapshot(data, "x"), made)


def test_the_shape_of_pytorch_2_0_tells_sizes_by_its_history() -> None:
    frames = [{"name": "f", "filename": "a.py", "line": 3}]
    history = [{"addr": 4096, "real_size": 1000, "frames": frames}]
    block = {"size": 1024, "state": "active_allocated", "history": history}
    data = pickle.dumps([{"device": 0, "address": 4096, "total_size": 1024, "blocks": [block]}])
    read = read_torch_snapshot(data, "x")
    assert read.allocators[0].requested_bytes == 1000
    assert read.allocators[0].chunks.address[0] == 4096
    assert read.frames[0].file == "a.py"


def test_the_answer_names_the_refused_request_and_what_pytorch_does_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps(make_snapshot(Shape())))
    allocator = read_pools(path).allocators[0]
    decision = answer_failed(allocator)
    assert decision is not None and decision.outcome == "fails" and decision.request_bytes == 1 << 30
    assert "isn't PyTorch's" in allocator.notices[0].message


def _fragmented() -> dict[str, Any]:
    """Return 40 MiB of which every second 4 MiB are in use; 12 MiB were refused."""
    blocks: list[dict[str, Any]] = [
        {"address": (n << 22) + (1 << 30), "size": 4 << 20, "requested_size": 4 << 20, "frames": [],
         "state": "active_allocated" if n % 2 else "inactive"}
        for n in range(10)
    ]  # fmt: skip
    segment = {"device": 0, "address": 1 << 30, "total_size": 40 << 20, "stream": 0, "segment_type": "large",
               "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}  # fmt: skip
    refused = {
        "action": "oom",
        "device_free": 1 << 20,
        "size": 12 << 20,
        "stream": 0,
        "time_us": 1,
        "frames": [],
    }
    return {"segments": [segment], "device_traces": [[refused]]}


def test_fragmentation_names_the_fewest_blocks_in_the_way() -> None:
    decision = answer_failed(read_torch_snapshot(pickle.dumps(_fragmented()), "x").allocators[0])
    assert decision is not None and decision.cause == "fragmentation"
    assert decision.obstacle is not None and decision.obstacle.in_use_bytes == 4 << 20
    assert [advice.slug for advice in decision.advice] == ["expandable-segments"]


def test_free_blocks_of_small_segments_do_not_serve_a_large_request() -> None:
    made = _fragmented()
    made["segments"][0]["segment_type"] = "small"
    decision = answer_failed(read_torch_snapshot(pickle.dumps(made), "x").allocators[0])
    assert decision is not None and decision.cause == "full"


def test_show_reads_a_snapshot_as_a_profile(tmp_path: Path) -> None:
    made = make_snapshot(SHAPES["two devices"])
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(made))
    profile = open_profile(path)
    tree = profile.tree(0)
    assert tree is not None
    tree.check()
    blocks = [block for segment in made["segments"] for block in segment["blocks"]]
    assert tree.bytes[0] == profile.snapshots[0].total_bytes == held(blocks, "active_allocated")
    assert tree.blocks is not None and tree.blocks[0] == sum(b["state"] == "active_allocated" for b in blocks)


def test_a_profile_without_stacks_reports_it() -> None:
    profile = read_torch_profile(pickle.dumps(make_snapshot(SHAPES["without stacks"])), "x", None)
    assert [notice.slug for notice in profile.notices] == ["torch-no-stacks"]


# --- what is damaged, or means harm


class _Runs:
    def __reduce__(self) -> Any:
        return (print, ("this ran",))


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_names_a_function_is_refused_and_nothing_runs(
    protocol: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data = pickle.dumps({"segments": [_Runs()]}, protocol)
    with pytest.raises(InputError) as refused:
        read_torch_snapshot(data, "x")
    assert refused.value.slug == "pickle-refused" and "print" in refused.value.message
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    "code", [b"c", b"\x93", b"R", b"b", b"i", b"o", b"\x81", b"\x92", b"P", b"Q", b"\x82"]
)
def test_every_opcode_that_runs_code_is_refused(code: bytes) -> None:
    with pytest.raises(InputError) as refused:
        read_torch_snapshot(b"\x80\x02}(X\x08\0\0\0segmentsK\1" + code + b"os\nsystem\n.", "x")
    assert refused.value.slug == "pickle-refused"


@pytest.mark.slow
def test_a_million_lists_in_each_other_are_refused() -> None:
    deep = b"\x80\x02}X\x08\0\0\0segments" + b"]" * 1_000_000 + b"a" * 999_999 + b"s."
    with pytest.raises(InputError) as refused:
        read_torch_snapshot(deep, "x")
    assert refused.value.slug == "pickle-too-deep"
    with pytest.raises(InputError) as refused:
        read_torch_snapshot(b"\x80\x02}X\x08\0\0\0segments" + b"](" * 1_000_000 + b".", "x")
    assert refused.value.slug == "pickle-too-deep"


def test_a_block_repeated_2_to_the_30_times_is_refused() -> None:
    made = make_snapshot(Shape(segments=1, entries=0))
    segment = made["segments"][0]
    made["segments"] = [segment] * 2
    with pytest.raises(InputError) as refused:
        read_torch_snapshot(pickle.dumps(made), "x")
    assert refused.value.slug == "torch-snapshot-damaged"
    # Thirty lists, each with the one before twice: 2^30 blocks in 300 bytes.
    blocks: list[Any] = segment["blocks"]
    for _ in range(30):
        blocks = [blocks, blocks]
    made["segments"] = [{**segment, "blocks": blocks}]
    with pytest.raises(InputError):
        read_torch_snapshot(pickle.dumps(made), "x")


def test_a_segment_whose_blocks_do_not_fill_it_is_refused() -> None:
    made = make_snapshot(Shape(segments=1))
    made["segments"][0]["total_size"] += 512
    with pytest.raises(InputError, match="bytes, and blocks of"):
        read_torch_snapshot(pickle.dumps(made), "x")


@pytest.mark.slow
@as_large
def test_a_snapshot_cut_anywhere_is_read_as_far_as_it_goes_and_reports_it() -> None:
    data = pickle.dumps(make_snapshot(Shape(segments=2, entries=9)))
    whole = read_torch_snapshot(data, "x")
    for end in range(40, len(data) - 1, len(data) // 60):
        try:
            read = read_torch_snapshot(data[:end], "x")
        except InputError as error:
            assert error.slug in ("torch-snapshot-damaged", "pickle-damaged")
            continue
        assert [notice.slug for notice in read.notices][:1] == ["bytes-missing"]
        for allocator in read.allocators:
            allocator.check()
            assert allocator.in_use_bytes <= whole.allocators[0].in_use_bytes


@pytest.mark.slow
@as_large
def test_changed_bytes_are_read_or_refused_by_one_sentence() -> None:
    chance = random.Random(5)
    data = pickle.dumps(make_snapshot(Shape(segments=2, entries=30)))
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(2, len(data))] = chance.randrange(256)
        try:
            for allocator in read_torch_snapshot(bytes(changed), "x").allocators:
                allocator.check()
        except GdbmemError as error:
            assert "\n" not in error.sentence


@as_large
def test_a_key_that_a_block_has_twice_is_read_as_the_last_of_both() -> None:
    keys = [
        b"address",
        b"size",
        b"requested_size",
        b"state",
        b"frames",
        b"inactive",
        b"total_size",
        b"blocks",
        b"device",
    ]
    texts = b"".join(b"\x8c" + bytes([len(key)]) + key + b"\x94" for key in keys)  # memoized as 0 to 8
    none = b"]\x94"  # as 9

    def block(address: int) -> bytes:
        return b"}\x94(h\0" + b"M" + address.to_bytes(2, "little") + b"h\1K\1h\1K\x10h\2K\0h\3h\5h\4h\x09u"

    blocks = b"](" + b"".join(block(4096 + 16 * n) for n in range(3)) + b"e"
    segment = b"}(h\0M\0\x10h\x06K\x30h\x08K\0h\x07" + blocks + b"u"
    # The texts are the items of a list that is never read.
    data = b"\x80\x04}(X\x01\0\0\0x](" + texts + none + b"eX\x08\0\0\0segments](" + segment + b"eu."
    assert list(read_torch_snapshot(data, "x").allocators[0].chunks.size) == [16, 16, 16]


def test_stacks_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_rows, "_MOST_FRAMES", 100)
    with pytest.raises(InputError) as refused:
        read_torch_snapshot(pickle.dumps(make_snapshot(SHAPES["each stack new"])), "x")
    assert refused.value.slug == "stack-too-deep"


def test_tracemallocs_pickle_is_not_taken_for_one() -> None:
    assert not is_torch_snapshot(pickle.dumps({"traces": [1]}))


@as_large
def test_what_was_read_of_a_large_file_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's own pages would be most of the memory that reading a 1 GB snapshot takes."""
    given: list[int] = []
    monkeypatch.setattr(plain_pickle, "_FORGET_BYTES", 1 << 16)
    monkeypatch.setattr(plain_pickle, "give_back", lambda data, start, end: given.append(end - start))
    path = tmp_path / "long.pickle"
    path.write_bytes(pickle.dumps(make_snapshot(Shape(segments=1, entries=9000))))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        read_torch_snapshot(data, "x")
        assert sum(given) > len(data) * 0.6 and max(given) < 4 << 16
