"""Who has the memory that PyTorch could not get, and what would have been enough."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.model.bfc.pool_log import TorchAccount
from gdbmem.text import plural
from gdbmem.units import format_size

_OVERFLOW = 1.05  # a device's whole capacity, and rounding: no process has more
_SAME = 1.02  # of what PyTorch holds and the context of CUDA, by rounding


def account_sentence(account: TorchAccount) -> str:
    """Return the account as a sentence: the parts of the memory, and why the request failed."""
    return f"{_parts(account)}: {_reason(account)}"


def _parts(account: TorchAccount) -> str:
    held = f"PyTorch holds {format_size(account.held)}"
    if account.unused is not None:
        held += f" ({format_size(account.allocated)} allocated, {format_size(account.unused)} unused)"
    parts = [held]
    if account.private is not None:
        parts[0] += f", {format_size(account.private)} of it in private pools"
    beside = account.own - account.held if account.own is not None else 0
    if beside > 0:
        parts.append(f"other libraries of the process and the device's context {format_size(beside)}")
    others, unsure = _others(account)
    if others:
        of = plural(len(others), "other process", "other processes")
        parts.append(f"{of} {format_size(sum(size for _, size in others))}")
    parts += unsure
    if account.free is not None:
        parts.append(f"free are {format_size(account.free)}")
    whole = f" of {format_size(account.capacity)}" if account.capacity is not None else ""
    return f"the device's memory{whole}: {', '.join(parts)}"


def _others(account: TorchAccount) -> tuple[Sequence[tuple[int, int]], Sequence[str]]:
    """Return the other processes, and remarks on those that are this one, or nobody's."""
    others, remarks = [], []
    for pid, size in account.processes:
        if account.capacity is not None and size > account.capacity * _OVERFLOW:
            remarks.append(f"of process {pid} the driver knows no amount")
        elif account.own is None and size * _SAME >= account.held and _fills(account, size):
            remarks.append(f"process {pid} ({format_size(size)}) is this one itself, by another number")
        else:
            others.append((pid, size))
    return others, remarks


def _fills(account: TorchAccount, size: int) -> bool:
    """Return whether *size* is this process's: beside it, and what is free, the device has no room for PyTorch's."""
    if account.capacity is None or account.free is None:
        return False
    return account.capacity - account.free - size < account.held


def _reason(account: TorchAccount) -> str:
    asked, unused, free = account.asked, account.unused or 0, account.free
    wanted = f"the request of {format_size(asked)}"
    if account.is_limited:
        limit = format_size(account.allowed or 0)
        return f"{wanted} exceeds the {limit} that the process may use, not the device"
    if free is not None and free >= asked:
        return f"{wanted} is less than what is free, which was read after the refusal"
    if unused + (free or 0) >= asked:
        with_free = " and the free memory together are" if unused < asked else " alone is"
        remedy = "expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF joins the pieces"
        return f"the unused memory{with_free} enough for {wanted}, but in pieces: {remedy}"
    available = format_size(unused + (free or 0))
    others = sum(size for _, size in _others(account)[0])
    if free is not None and others and unused + free + others >= asked:
        return f"{wanted} exceeds the {available} that are unused or free: the rest is other processes'"
    return f"{wanted} exceeds the {available} that are unused{' or free' if free is not None else ''}"
