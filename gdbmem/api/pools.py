"""Pools of best-fit allocators in a process, a core, or a file that a program with such a pool wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional, Union

from gdbmem.errors import InputError, Notice, UsageError
from gdbmem.files import Data, location
from gdbmem.formats.bfc.dumps import is_memory_dump, is_saved_pools, read_memory_dump, read_saved_pools
from gdbmem.formats.bfc.log import is_pool_log, read_pool_log
from gdbmem.formats.bfc.torch_snapshot import is_torch_snapshot, read_torch_snapshot
from gdbmem.formats.opening import read_data
from gdbmem.formats.unwrapping import unwrap_log
from gdbmem.inspection.pools import Pools, follow_pools, read_core_pools
from gdbmem.inspection.pools import read_pools as read_process_pools
from gdbmem.linux.monitoring.gpu_and_cgroup import find_gpus
from gdbmem.model.bfc import Allocator, Decision, PoolLog, Refusal
from gdbmem.pools.changes import compare_pools
from gdbmem.pools.decision import Request
from gdbmem.pools.output import answer, answer_failed
from gdbmem.pools.replay import WhatIf, replay
from gdbmem.pools.torch import account_sentence
from gdbmem.text import format_size, printable

# Pools of memory from files: logs, TensorFlow's memory dumps, PyTorch's snapshots, the folder of a run.


_ELF = b"\x7fELF"
_MOST_PROCESSES = 10
_BEGINNING = 4096  # of a file: enough to detect its format
_LOGS_OF_A_RUN = ("stdout", "stderr", "*.log")


def is_pool_file(path: str) -> bool:
    """Return whether *path* is not a core. Raises InputError if it can't be read."""
    if Path(path).is_dir():
        return True
    data, _ = read_data(path)
    return data[:4] != _ELF


def read_pool_file(path: str) -> Pools:
    """Return the pools in the file or run *path*. Raises InputError if there are none."""
    if Path(path).is_dir():
        return _read_run(path)
    data, notices = read_data(path)
    found = _read(data, path)
    if not found.allocators and not found.notices:
        raise _nothing(path)
    return Pools(found.allocators, [*notices, *found.notices])


def _read(data: Data, path: str) -> Pools:
    if is_torch_snapshot(data):
        snapshot = read_torch_snapshot(data, path)
        return Pools(
            snapshot.allocators, [*snapshot.notices, *_empty_snapshot(path, bool(snapshot.allocators))]
        )
    if is_saved_pools(data[:_BEGINNING]):
        text = bytes(data).decode(errors="surrogateescape")
        return Pools(read_saved_pools(text, path))
    if is_memory_dump(data):
        return Pools([read_memory_dump(data, path)])
    plain = unwrap_log(data)
    if not is_pool_log(plain.data):
        return Pools([])
    log = read_pool_log(plain.data, path, plain.number)
    return Pools(log.allocators, [*log.notices, *_refusal_notices(log)])


def _empty_snapshot(path: str, has_segments: bool) -> Sequence[Notice]:
    if has_segments:
        return ()
    return [
        Notice("torch-no-segments", f"{printable(path)} holds no segment: PyTorch held no memory of a device")
    ]


def _refusal_notices(log: PoolLog) -> list[Notice]:
    notices = []
    for one in log.refusals:
        notices.append(_refusal_notice(log.source, one))
        if one.account is not None:
            text = f"{printable(log.source)}, line {one.line}: {account_sentence(one.account)}"
            notices.append(Notice("device-account", text))
    has_device = any(one.by == "the device" for one in log.refusals)
    return [*notices, Notice("device-memory", device_sentence())] if has_device else notices


def _refusal_notice(source: str, refusal: Refusal) -> Notice:
    size = "memory" if refusal.size_bytes is None else format_size(refusal.size_bytes)
    often = f", {refusal.times} times" if refusal.times > 1 else ""
    often += ", each time for less" if often and refusal.backs_off else ""
    where = f"{printable(source)}, line {refusal.line}"
    text = f"{where}: {refusal.by} refused {size}{often}: {printable(refusal.text)}"
    return Notice("device-refused", text)


def device_sentence() -> str:
    """Return the current users of this machine's GPU memory, or why they are unknown."""
    gpus = find_gpus()
    if gpus is None:
        return "the processes that hold the device's memory are unknown: NVML needs NVIDIA's driver and nvidia-ml-py"
    held = sorted(gpus.by_process().items(), key=lambda entry: -entry[1])
    if not held:
        return "NVML lists no process that now holds memory of a device"
    shown = ", ".join(f"process {pid} {format_size(size)}" for pid, size in held[:_MOST_PROCESSES])
    more = len(held) - _MOST_PROCESSES
    return f"now hold memory of a device, by NVML: {shown}" + (f", and {more} more" if more > 0 else "")


def _read_run(path: str) -> Pools:
    """Read the logs in the run's folder, the program's output first."""
    allocators: list[Allocator] = []
    notices: list[Notice] = []
    for pattern in _LOGS_OF_A_RUN:
        for file in sorted(Path(path).glob(pattern)):
            if file.is_file() and not file.is_symlink() and file.stat().st_size:
                data, more = read_data(str(file))
                found = _read(data, str(file))
                allocators += found.allocators
                notices += [*more, *found.notices]
    if not allocators and not notices:
        raise _nothing(path)
    return Pools(allocators, notices)


def _nothing(path: str) -> InputError:
    return InputError(
        f"{printable(path)} contains no memory pool: no dump of an allocator, no snapshot, no refusal of a device",
        slug="no-pool-in-file",
        hint="give a log with 'out of memory', a file of TF_BFC_MEMORY_DUMP, or of torch.cuda's _dump_snapshot",
    )


__all__ = [
    "Allocator",
    "Decision",
    "Pools",
    "Request",
    "WhatIf",
    "answer",
    "answer_failed",
    "compare_pools",
    "follow_pools",
    "read_pools",
    "replay",
]

Operand = Union[str, int, "os.PathLike[str]"]


def read_pools(
    operand: Operand, program: Optional[Path] = None, progress: Callable[[str], None] = lambda _: None
) -> Pools:
    """Return the pools of *operand*: a log, a memory dump, a snapshot, a run, a core, or a process id.

    An existing file takes precedence. The process stops for milliseconds, longer only after *progress*; *program* is
    the program's file, if it has moved. Raises UsageError, InputError or TargetError if there are no pools.
    """
    text = os.fspath(operand) if not isinstance(operand, int) else str(operand)
    if not isinstance(operand, int) and location(text).exists():
        if program is None and is_pool_file(text):
            return read_pool_file(text)
        return read_core_pools(Path(text), program)
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"{printable(text)} is neither a file nor a process id", hint="'ps' lists processes")
    if program is not None:
        raise UsageError("a program can be given with a core only", hint="gdbmem bfc CORE PROGRAM")
    return read_process_pools(int(text), progress)
