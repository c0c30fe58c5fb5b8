"""Logs of allocators as collectors, terminals and several processes write them, and refusals without a dump."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest

from gdbmem.api.pools import read_pools
from gdbmem.model.bfc import Allocator
from tests.unit.pool_logs import (
    MIB,
    POOL,
    SECOND,
    Piece,
    Pool,
    absl_prefix,
    of_2019,
    of_2021,
    of_2025,
    old_prefix,
)

CAPTURES = Path(__file__).parents[2] / "captures"

CAPTURE = Path(__file__).parents[2] / "captures" / "bfc" / "tensorflow-2.21.log"
TIME = "2026-11-27T02:43:25.123456789Z"


def read(path: Path, data: bytes) -> Sequence[Allocator]:
    path.write_bytes(data)
    return read_pools(path).allocators


def facts(allocators: Sequence[Allocator]) -> list[tuple[object, ...]]:
    """Return of each allocator what the lines around its dump tell of it."""
    told = [
        (one.asked_bytes, one.pool_bytes, one.in_use_bytes, list(one.chunks.address), one.is_complete)
        for one in allocators
    ]
    return sorted(told, key=repr)


def dumps(value: object) -> bytes:
    return json.dumps(value).encode()


def lines_of(text: str) -> list[str]:
    return text.splitlines()


def broken(text: str, width: int) -> bytes:
    pieces = [line[at : at + width] for line in lines_of(text) for at in range(0, max(len(line), 1), width)]
    return "\n".join([*pieces, ""]).encode()


WRAPPINGS: dict[str, Callable[[str], bytes]] = {
    "docker's JSON": lambda text: b"\n".join(
        dumps({"log": f"{line}\n", "stream": "stderr", "time": TIME}) for line in lines_of(text)
    ),
    "stackdriver": lambda text: json.dumps(
        [{"textPayload": line, "resource": {"labels": {"pod_name": "a"}}} for line in lines_of(text)],
        indent=1,
    ).encode(),
    "structured": lambda text: b"\n".join(
        dumps({"severity": "ERROR", "jsonPayload": {"message": line, "pid": 7}}) for line in lines_of(text)
    ),
    "journald's JSON": lambda text: b"\n".join(
        dumps({"__REALTIME_TIMESTAMP": "1", "_PID": "7", "MESSAGE": [*line.encode()] if at % 2 else line})
        for at, line in enumerate(lines_of(text))
    ),
    "one message": lambda text: dumps({"message": text}),
    "a notebook": lambda text: dumps(
        {"cells": [{"cell_type": "code", "outputs": [{"text": [f"{line}\n" for line in lines_of(text)]}]}]}
    ),
    "colours": lambda text: "".join(f"\x1b[1;33m{line}\x1b[0m\n" for line in lines_of(text)).encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "newest first": lambda text: "\n".join([*reversed(lines_of(text)), ""]).encode(),
    "80 columns": lambda text: broken(text, 80),
    "120 columns": lambda text: broken(text, 120),
    "kubectl's times": lambda text: "".join(f"{TIME} stderr F {line}\n" for line in lines_of(text)).encode(),
    "journald": lambda text: "".join(
        f"Nov 27 02:43:2{at % 10} host python[7]: {line}\n" for at, line in enumerate(lines_of(text))
    ).encode(),
}


@pytest.mark.parametrize("name", WRAPPINGS)
def test_a_wrapped_log_is_the_log(name: str, tmp_path: Path) -> None:
    plain = read(tmp_path / "plain.log", CAPTURE.read_bytes())
    assert plain and all(one.is_complete and one.asked_bytes for one in plain)
    found = read(tmp_path / "x.log", WRAPPINGS[name](CAPTURE.read_text()))
    assert facts(found) == facts(plain)
    assert [one.name for one in found] == [one.name for one in plain]


# --- several writers


def ranks(count: int) -> list[Pool]:
    """Return the pools of *count* processes, which have one name and other sizes at the same addresses."""
    pools = [POOL, replace(SECOND, name=POOL.name)]
    for number in range(2, count):
        pieces = (Piece((number + 1) * MIB, True), Piece(256 * number, False), Piece(number * MIB, True))
        pools.append(
            Pool(
                POOL.name,
                ((0x7F9400000000, pieces),),
                limit=(number + 64) * MIB,
                asked=(40 + number) * MIB,
                op="Add",
            )
        )
    return pools


def interleaved(logs: Sequence[Sequence[str]], seed: int) -> list[tuple[int, str]]:
    """Return the lines of all *logs* with the numbers of their writers, those of each in their order."""
    rest, order, chance = [list(reversed(log)) for log in logs], [], random.Random(seed)
    while any(rest):
        writer = chance.choice([at for at, log in enumerate(rest) if log])
        for _ in range(min(chance.randint(1, 9), len(rest[writer]))):
            order.append((writer, rest[writer].pop()))
    return order


MARKS: dict[str, Callable[[int, str], str]] = {
    "docker compose": lambda rank, line: f"trainer-{rank}  | {line}",
    "torchrun": lambda rank, line: f"[default{rank}]:{line}",
    "torch": lambda rank, line: f"[rank{rank}]: {line}",
    "srun": lambda rank, line: f"{rank}: {line}",
    "mpirun": lambda rank, line: f"[1,{rank}]<stderr>: {line}",
    "ray": lambda rank, line: f"(Trainer pid={400 + rank}, ip=10.0.0.{rank}) {line}",
    "kubectl": lambda rank, line: f"[pod/trainer-{rank}/main] {TIME} {line}",
    "journald": lambda rank, line: f"Nov 27 02:43:25 node python[{400 + rank}]: {line}",
    "docker's JSON": lambda rank, line: json.dumps(
        {"log": f"{line}\n", "container_id": f"c0ffee{rank}", "time": TIME}
    ),
    "stackdriver": lambda rank, line: json.dumps(
        {"textPayload": line, "resource": {"labels": {"pod_name": f"trainer-{rank}"}}}
    ),
}


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("count", [2, 3, 8])
def test_each_request_is_answered_by_the_pool_of_its_own_rank(mark: str, count: int, tmp_path: Path) -> None:
    pools = ranks(count)
    say = absl_prefix(2281)  # each of them is number 2281 in its own container
    write = (of_2021, of_2025, of_2019)[count % 3]
    alone = [
        one
        for pool in pools
        for one in read(tmp_path / "alone.log", "\n".join([*write(pool, say), ""]).encode())
    ]
    lines = interleaved([write(pool, say) for pool in pools], seed=count)
    text = "".join(f"{MARKS[mark](rank, line)}\n" for rank, line in lines)
    found = read(tmp_path / "x.log", text.encode())
    assert facts(found) == facts(alone)
    assert len({one.name for one in found}) == count, "each is called by its writer"


def test_the_limit_of_a_rank_whose_counters_stand_between_anothers_is_not_that_ones(tmp_path: Path) -> None:
    pools = ranks(8)
    logs = [of_2025(pool, absl_prefix(2281 + number)) for number, pool in enumerate(pools)]
    right = {}
    for log in logs:
        (one,) = read(tmp_path / "alone.log", "\n".join([*log, ""]).encode())
        right[one.asked_bytes, one.pool_bytes] = one.limit_bytes, one.counters.peak_in_use_bytes
    for seed in range(20):
        lines = [log[at] for at in range(max(map(len, logs))) for log in logs if at < len(log)]
        lines = lines if seed == 0 else [line for _, line in interleaved(logs, seed)]
        for one in read(tmp_path / "x.log", "\n".join([*lines, ""]).encode()):
            if one.is_complete and one.asked_bytes is not None:
                limit, peak = right[one.asked_bytes, one.pool_bytes]
                assert one.limit_bytes in (limit, None)
                assert one.counters.peak_in_use_bytes in (peak, None)


NOTE = "I0000 00:00:1795961652.798759    2281 port.cc:153] oneDNN custom operations are on. " + "x" * 130


@pytest.mark.parametrize("mark", MARKS)
def test_a_long_line_that_all_ranks_print_does_not_take_the_next_ranks_line(
    mark: str, tmp_path: Path
) -> None:
    pools = ranks(3)
    say = absl_prefix(2281)
    logs = [[NOTE, *of_2025(pool, say)[:1], *[NOTE] * 2, *of_2025(pool, say)[1:]] for pool in pools]
    alone = [one for log in logs for one in read(tmp_path / "alone.log", "\n".join([*log, ""]).encode())]
    for seed in range(4):
        lines = interleaved(logs, seed)
        text = "".join(f"{MARKS[mark](rank, line)}\n" for rank, line in lines)
        assert facts(read(tmp_path / "x.log", text.encode())) == facts(alone)


def test_ranks_whose_lines_nothing_tells_apart_are_right_or_reported(tmp_path: Path) -> None:
    pools = ranks(2)
    alone = [read(tmp_path / "a", "\n".join([*of_2021(pool, old_prefix), ""]).encode())[0] for pool in pools]
    right = {(one.asked_bytes, tuple(one.chunks.address)) for one in alone}
    said = set()
    for seed in range(30):
        lines = interleaved([of_2021(pool, old_prefix) for pool in pools], seed)
        for one in read(tmp_path / "x", "\n".join([*(line for _, line in lines), ""]).encode()):
            is_right = (one.asked_bytes, tuple(one.chunks.address)) in right
            assert is_right or not one.is_complete or one.asked_bytes is None, seed
            said |= {notice.slug for notice in one.notices}
    assert "pool-log-mixed" in said


# --- refusals


TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU {gpu} has a total capacity of"
    " {capacity} of which {free} is free. {more}Of the allocated memory {allocated} is allocated by PyTorch, and"
    " {unused} is reserved by PyTorch but unallocated."
)


def told(tmp_path: Path, *lines: str) -> dict[str, list[str]]:
    """Return the messages about a log of *lines*, by slug."""
    path = tmp_path / "x.log"
    path.write_text("\n".join([*lines, ""]))
    found: dict[str, list[str]] = {}
    for notice in read_pools(path).notices:
        found.setdefault(notice.slug, []).append(notice.message)
    return found


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("RuntimeError: CUDA error: out of memory", "the device refused memory"),
        ("RuntimeError: cuda runtime error (2) : out of memory at /x/THCStorage.cu:58", "the device refused memory"),
        ("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 3.12 GiB. GPU 0", "the device refused 3.1 GiB"),
        ("RuntimeError: HIP out of memory. Tried to allocate 20.00 MiB (GPU 0; 15", "the device refused 20.0 MiB"),
        ("RuntimeError: MPS backend out of memory (MPS allocated: 6.04 GB, other allocations: 1.04 GB, max allowed:"
         " 6.77 GB). Tried to allocate 459.07 MB on private pool.", "the process's own limit of 6.77 GB"),
        ("x: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3199993600 bytes.", "refused 3.0 GiB"),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[2048,436631] and type float on"
         " /device:GPU:0 by allocator GPU_0_bfc [Op:MatMul]", "the pool of GPU_0_bfc refused 3.3 GiB"),
        ("ggml_backend_cuda: allocating 5563.66 MiB on device 0: cudaMalloc failed: out of memory", "refused 5.4 GiB"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 34359738368 bytes.", "refused 32.0 GiB"),
    ],
)  # fmt: skip
def test_a_refusal_in_the_words_of_each_framework_is_found(line: str, words: str, tmp_path: Path) -> None:
    assert words in told(tmp_path, "step 3", line, "  File 'train.py'")["device-refused"][0]


def test_a_failure_after_one_with_a_fallback_is_shown(tmp_path: Path) -> None:
    found = told(
        tmp_path,
        "2025-05-18 21:59:55.086788: W xla/tsl/framework/bfc_allocator.cc:310] Allocator (GPU_0_bfc) ran out of memory"
        " trying to allocate 3.37GiB with freed_by_count=0. The caller indicates that this is not a failure, but this"
        " may mean that there could be performance gains if more memory were available.",
        "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3199993600 bytes.",
    )
    assert found.keys() == {"pool-log-no-failures", "device-refused"}


def test_two_gpus_are_two_refusals_whatever_their_sizes(tmp_path: Path) -> None:
    amounts = {
        "capacity": "23.69 GiB",
        "free": "99.69 MiB",
        "more": "",
        "allocated": "22.14 GiB",
        "unused": "9.00 MiB",
    }
    lines = [
        TORCH.format(gpu=gpu, asked=asked, **amounts) for gpu, asked in ((0, "1.00 GiB"), (1, "158.00 MiB"))
    ]
    messages = told(tmp_path, *lines)["device-refused"]
    assert len(messages) == 2 and not [one for one in messages if "times" in one]
    messages = told(tmp_path, lines[0], f"[rank0]: {lines[0]}")["device-refused"]
    assert len(messages) == 1 and "refused 1.0 GiB, 2 times:" in messages[0]


@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        (("1.50 GiB", "15.78 GiB", "512.00 MiB", "5.20 GiB", "8.90 GiB", ""), "the unused memory alone is enough"),
        (("1.00 GiB", "23.69 GiB", "115.69 MiB", "22.14 GiB", "910.35 MiB", ""), "and the free memory together are"),
        (("22.78 GiB", "31.47 GiB", "12.73 GiB", "9.08 GiB", "9.35 GiB", ""), "exceeds the 22.1 GiB that are"),
        (("2.00 MiB", "79.11 GiB", "70.00 GiB", "1017.01 MiB", "54.99 MiB", "1.05 GiB allowed; "), "may use, not"),
        (("35.60 GiB", "79.33 GiB", "26.16 GiB", "11.97 GiB", "40.69 GiB",
          "Process 76883 has 53.16 GiB memory in use. "), "process 76883 (53.2 GiB) is this one itself"),
        (("2.00 GiB", "44.53 GiB", "1.19 GiB", "42.00 GiB", "1.00 MiB",
          "Process 1 has 17179869184.00 GiB memory in use. "), "of process 1 the driver knows no amount"),
        (("8.00 GiB", "23.64 GiB", "64.00 MiB", "7.63 GiB", "40.11 MiB", "Including non-PyTorch memory, this process"
          " has 8.24 GiB memory in use. Process 27 has 14.85 GiB memory in use. "), "the rest is other processes'"),
    ],
)  # fmt: skip
def test_the_account_in_pytorchs_sentence_is_added_up(
    amounts: Sequence[str], words: str, tmp_path: Path
) -> None:
    names = ("asked", "capacity", "free", "allocated", "unused", "more")
    found = told(tmp_path, TORCH.format(gpu=0, **dict(zip(names, amounts))))
    assert words in found["device-account"][0]
    assert ("process's own limit" in found["device-refused"][0]) == ("allowed" in amounts[5])


def test_an_arena_of_onnxruntime_that_shrank_has_what_is_left(tmp_path: Path) -> None:
    stamp = "2024-09-05 15:15:49.9522079 [I:onnxruntime:, bfc_arena.cc:280 {}] "
    lines = [
        stamp.format("Extend")
        + "Extending BFCArena for Cpu. bin_num:20 (requested) num_bytes: 301989888 (actual)"
        " rounded_bytes:301989888",
        stamp.format("Extend") + "Extended allocation by 301989888 bytes.",
        stamp.format("Extend") + "Total allocated bytes: 303038464",
        stamp.format("Extend") + "Allocated memory at 0x7f0000000000 to 0x7f0012000000",
        stamp.format("Shrink")
        + "Cpu BFC Arena shrunk by 301989888 bytes.  The total allocated bytes is now 1048576",
    ]
    (arena,) = read(tmp_path / "x.log", "\n".join([*lines, ""]).encode())
    assert (arena.pool_bytes, arena.asked_bytes) == (1048576, None)
    assert not list(arena.regions)


def test_a_refusal_that_is_printed_twice_is_one_and_those_of_two_ranks_are_two() -> None:
    found = read_pools(CAPTURES / "bfc/torch-2.11-two-ranks.log")
    refused = [notice.message for notice in found.notices if notice.slug == "device-refused"]
    assert [message.partition(": ")[2].partition(":")[0] for message in refused] == [
        "the device refused 5.0 GiB, 2 times",
        "the device refused 6.0 GiB, 2 times",
    ]


def test_a_refusal_without_a_size_is_one_with_the_line_that_explains_it() -> None:
    found = read_pools(CAPTURES / "bfc/torch-2.11-cuda-error.log")
    refused = [notice.message for notice in found.notices if notice.slug == "device-refused"]
    assert len(refused) == 1
    assert "the device refused memory, 2 times" in refused[0]
