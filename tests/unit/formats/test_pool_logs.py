"""Logs of allocators of all versions, whole, mixed and cut: the same totals, and nothing invented."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

import pytest

from gdbmem.api.pools import answer, answer_failed, read_pools
from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.formats.bfc.dumps import read_memory_dump
from gdbmem.formats.bfc.log import read_pool_log
from gdbmem.formats.bfc.log_lines import parse_quantity
from gdbmem.model.bfc import FREE, IN_USE, Allocator
from gdbmem.pools.decision import Request
from gdbmem.pools.explanation import headline
from tests.unit.pool_logs import (
    BAR,
    MIB,
    POOL,
    SECOND,
    VARIANTS,
    Pool,
    absl_prefix,
    of_2019,
    of_2021,
    of_2025,
    old_prefix,
)

CAPTURES = Path(__file__).parents[2] / "captures" / "bfc"


def _read(lines: list[str]) -> list[Allocator]:
    found = list(read_pool_log("\n".join([*lines, ""]).encode(), "x.log").allocators)
    for allocator in found:
        allocator.check()
    return found


def _agree(read: Allocator, pool: Pool) -> None:
    pieces = [piece for _, pieces in pool.regions for piece in pieces]
    assert (read.name, read.is_complete) == (pool.name, True)
    assert list(read.chunks.size) == [piece.size for piece in pieces]
    assert list(read.chunks.state) == [IN_USE if piece.in_use else FREE for piece in pieces]
    assert (read.pool_bytes, read.in_use_bytes) == (pool.size, pool.in_use)
    assert [(region.address, region.size_bytes) for region in read.regions] == [
        (address, sum(piece.size for piece in of)) for address, of in pool.regions
    ]
    assert read.limit_bytes == pool.limit
    assert read.counters.in_use_bytes == pool.in_use
    assert read.counters.allocations == 50
    assert read.bar == BAR


@pytest.mark.parametrize("name", VARIANTS)
def test_each_version_gives_the_same_totals(name: str) -> None:
    write, say = VARIANTS[name]
    (read,) = _read(write(POOL, say))
    _agree(read, POOL)
    assert read.asked_bytes == POOL.asked


def test_owners_are_named_where_the_log_has_them() -> None:
    (read,) = _read(VARIANTS["2.12"][0](POOL, old_prefix))
    assert read.chunks.owner_of(6) == "Conv2D"
    (read,) = _read(VARIANTS["2026"][0](POOL, old_prefix))
    assert "Conv2D" in read.chunks.owner_of(6)


def test_tensorflows_own_log_equals_its_memory_dump_chunk_by_chunk() -> None:
    log = read_pool_log((CAPTURES / "tensorflow-2.21.log").read_bytes(), "x").allocators
    assert len(log) == 2
    for read, name in zip(log, ("first", "second")):
        dump = read_memory_dump((CAPTURES / f"tensorflow-2.21-{name}.pb").read_bytes(), name)
        dump.check()
        by_address = sorted(zip(read.chunks.address, read.chunks.size, read.chunks.state))
        assert by_address == list(zip(dump.chunks.address, dump.chunks.size, dump.chunks.state))
        assert read.in_use_bytes == dump.in_use_bytes == dump.counters.in_use_bytes
        assert read.counters.allocations == dump.counters.allocations
        assert (read.limit_bytes, read.pool_bytes) == (100 * MIB, 100 * MIB)
        assert dump.requested_bytes is not None and dump.requested_bytes < dump.in_use_bytes


def test_the_answer_of_a_real_log_is_the_cause() -> None:
    first, second = read_pools(CAPTURES / "tensorflow-2.21.log").allocators
    decision = answer_failed(first)
    assert decision is not None and decision.cause == "full"
    assert "10.0 MiB free in 4 pieces, the largest 4.0 MiB" in headline(first, decision)
    assert second.asked_bytes == 120 * MIB


def test_under_another_limit_the_request_that_failed_has_not_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, saved = str(CAPTURES / "tensorflow-2.21.log"), str(tmp_path / "pools.json")
    for words in ([log], [log, "--json", "-o", saved], [saved, "--request", "12MiB"]):
        capsys.readouterr()
        other = ["--what-if", "limit=1GiB"] if words[0] == log else []
        assert main(["bfc", *words, *other]) == 0
        text = capsys.readouterr().out
        assert "refused it" not in text
        assert "-o" in words or "a request of 12.0 MiB makes the pool grow by 128.0 MiB" in text


def test_onnxruntimes_log_equals_its_own_total() -> None:
    (arena,) = read_pools(CAPTURES / "onnxruntime-1.32.log").allocators
    assert sum(region.size_bytes for region in arena.regions) == arena.counters.pool_bytes == 70254592
    assert not arena.is_complete and arena.options.split_above_bytes == 134217728
    assert answer(arena, Request(MIB)).outcome == "undecided"


# --- mixed


@pytest.mark.parametrize("seed", range(5))
def test_two_threads_whose_lines_are_mixed_are_distinguished(seed: int) -> None:
    chance = random.Random(seed)
    for first, second in (
        (of_2025(POOL, absl_prefix(11)), of_2025(SECOND, absl_prefix(12))),
        (of_2025(POOL, absl_prefix(11)), of_2019(SECOND, absl_prefix(12))),
    ):
        # The lines of one call of the logger stay together: the statistics are one message of several lines.
        groups = [[_messages(first), _messages(second)][turn] for turn in (0, 1)]
        mixed: list[str] = []
        while any(groups):
            mixed += chance.choice([group for group in groups if group]).pop(0)
        _agree_both(_read(mixed))


def _messages(lines: list[str]) -> list[list[str]]:
    messages: list[list[str]] = []
    for line in lines:
        if "bfc_allocator.cc" in line:
            messages.append([])
        messages[-1].append(line)
    return messages


def _agree_both(read: list[Allocator]) -> None:
    by_name = {allocator.name: allocator for allocator in read}
    assert len(read) == 2
    _agree(by_name["GPU_0_bfc"], POOL)
    _agree(by_name["GPU_1_bfc"], SECOND)


def test_several_dumps_of_a_file_are_several() -> None:
    lines = [*of_2021(POOL, old_prefix), *of_2021(SECOND, old_prefix), *of_2021(POOL, old_prefix)]
    first, second, third = _read(lines)
    _agree(first, POOL)
    _agree(second, SECOND)
    _agree(third, POOL)


def test_lines_of_other_tools_between_do_not_matter() -> None:
    others = itertools.cycle(
        ["Epoch 3/10 loss: 0.25", "[rank 1] step 7", "I0101 00:00:00 7 other.cc:3] Chunk", ""]
    )
    lines = [line for each in of_2019(POOL, old_prefix) for line in (each, next(others))]
    (read,) = _read(lines)
    _agree(read, POOL)


@pytest.mark.parametrize(
    "line", ["I0101 00:00:00 7 worker.cc:3] Limit: 12", "2026-01-01 rate.go:12] InUse: 7"]
)
def test_a_counter_of_another_program_anywhere_in_a_dump_is_not_its_own(line: str) -> None:
    lines = of_2021(POOL, old_prefix)
    for at in range(len(lines) + 1):
        (read,) = _read([*lines[:at], line, *lines[at:]])
        _agree(read, POOL)


def test_a_counter_of_a_script_that_prints_no_file_is_not_a_pools_own() -> None:
    lines = of_2021(POOL, old_prefix)
    stats = next(number for number, line in enumerate(lines) if "Stats:" in line)
    for at in range(stats + 1):
        (read,) = _read([*lines[:at], "Limit:   12", *lines[at:]])
        _agree(read, POOL)


def test_a_limit_below_what_the_chunks_hold_is_unknown() -> None:
    lines = of_2021(POOL, old_prefix)
    (read,) = _read([line.replace(str(POOL.limit), "12") for line in lines])
    assert (read.pool_bytes, read.limit_bytes) == (POOL.size, None)


def test_a_word_that_counters_share_makes_no_pool(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("Limit: 12\nall is well\nLimit: 13\n")
    with pytest.raises(InputError) as refused:
        read_pools(path)
    assert refused.value.slug == "no-pool-in-file"


def test_carriage_returns_do_not_matter() -> None:
    (read,) = _read([line + "\r" for line in of_2021(POOL, old_prefix)])
    _agree(read, POOL)


# --- incomplete


def test_only_the_bar_left_gives_its_shares_and_no_sizes() -> None:
    lines = [line for line in of_2025(POOL, absl_prefix(1)) if line.startswith("W")]
    (read,) = _read(lines)
    assert not read.is_complete and read.limit_bytes is None and read.asked_bytes == POOL.asked
    text = headline(read, answer_failed(read))
    assert "60% in use, 10% unused in chunks in use, 30% free, the longest free stretch 30%" in text
    assert " 0 B" not in text


@pytest.mark.parametrize("name", VARIANTS)
def test_a_log_cut_at_any_line_claims_no_more_than_it_shows(name: str) -> None:
    write, say = VARIANTS[name]
    lines = write(POOL, say)
    for end in range(len(lines)):
        for allocator in _read(lines[:end]):
            if allocator.is_complete:
                assert (allocator.pool_bytes, allocator.in_use_bytes) == (POOL.size, POOL.in_use)
            assert allocator.bytes_in(IN_USE) <= POOL.in_use
            assert headline(allocator, answer_failed(allocator))
    for start in range(1, len(lines)):
        for allocator in _read(lines[start:]):
            if allocator.is_complete:
                assert (allocator.pool_bytes, allocator.in_use_bytes) == (POOL.size, POOL.in_use)


@pytest.mark.slow
def test_a_real_log_cut_at_each_byte_is_read() -> None:
    data = (CAPTURES / "tensorflow-2.21.log").read_bytes()
    whole = read_pool_log(data, "x").allocators
    for end in range(0, len(data), 61):
        for allocator, full in zip(read_pool_log(data[:end], "x").allocators, whole):
            allocator.check()
            assert allocator.bytes_in(IN_USE) <= full.in_use_bytes
            assert not allocator.is_complete or allocator.in_use_bytes == full.in_use_bytes


def test_a_missing_chunk_makes_the_dump_incomplete() -> None:
    lines = of_2021(POOL, old_prefix)
    at = next(number for number, line in enumerate(lines) if "InUse at" in line)
    (read,) = _read(lines[:at] + lines[at + 1 :])
    assert not read.is_complete
    assert [notice.slug for notice in read.notices] == ["pool-log-cut"]
    assert read.counters.in_use_bytes == POOL.in_use  # its own count


# --- refusals without a dump


def test_a_device_that_refuses_cudas_context_is_reported_with_how_often(tmp_path: Path) -> None:
    words = "E stream_executor/cuda/cuda_driver.cc:806] failed to allocate"
    lines = [
        f"{words} {10.0 - n:.2f}G ({(10 - n) << 30} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out"
        for n in range(3)
    ]
    path = tmp_path / "x.log"
    path.write_text("\n".join(lines) + "\n")
    refused, device = read_pools(path).notices
    assert refused.slug == "device-refused" and "refused 10.0 GiB, 3 times" in refused.message
    assert device.slug == "device-memory"


def test_pytorchs_sentence_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of"
        " 79.10 GiB of which 3.19 MiB is free.\n"
    )
    assert "refused 20.0 MiB" in read_pools(path).notices[0].message


def test_an_existing_file_wins_over_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (str(os.getpid()), "1"):
        (tmp_path / name).write_text("\n".join([*of_2021(POOL, old_prefix), ""]))
        (read,) = read_pools(name).allocators
        _agree(read, POOL)


def test_a_log_without_any_of_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("all is well\n")
    with pytest.raises(InputError) as refused:
        read_pools(path)
    assert refused.value.slug == "no-pool-in-file"


def test_the_folder_of_a_run_is_looked_through(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text("\n".join([*of_2021(POOL, old_prefix), ""]))
    (tmp_path / "stderr").symlink_to("/etc/passwd")
    (allocator,) = read_pools(tmp_path).allocators
    _agree(allocator, POOL)


# --- memory dumps, sizes


def test_a_cut_memory_dump_is_refused_by_a_sentence() -> None:
    data = (CAPTURES / "tensorflow-2.21-first.pb").read_bytes()
    for end in range(60, len(data), 7):
        try:
            read_memory_dump(data[:end], "x").check()
        except InputError as error:
            assert error.slug == "memory-dump-damaged"


@pytest.mark.parametrize(
    ("text", "size", "error"),
    [
        (b"40.00MiB", 40 * MIB, 5243),
        (b"0B", 0, 0),
        (b"41943040", 41943040, 0),
        (b"1.5GiB", 3 << 29, 53687092),
    ],
)
def test_sizes_for_people_come_with_how_far_rounding_may_have_moved_them(
    text: bytes, size: int, error: int
) -> None:
    found = parse_quantity(text)
    assert found[0] == size and abs(found[1] - error) <= 1


@pytest.mark.parametrize("digits", [30, 400, 5000])
def test_a_number_that_no_counter_can_hold_is_unknown(digits: int) -> None:
    text = (CAPTURES / "onnxruntime-1.32.log").read_bytes()
    before, words, after = text.rpartition(b"Total allocated bytes: ")
    changed = before + words + b"9" * digits + after.lstrip(b"0123456789")
    (whole,), (read,) = (read_pool_log(data, "x").allocators for data in (text, changed))
    assert whole.counters.pool_bytes
    held = sum(region.size_bytes for region in read.regions)
    assert read.counters.pool_bytes == held  # what the log lists
    assert headline(read, None)
