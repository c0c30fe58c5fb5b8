"""Recordings of page faults, as `gdbmem grow --profile FILE` keeps them: JSON, with names in place of addresses."""

from __future__ import annotations

from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.json_profiles import encode_own, own_document
from gdbmem.formats.stacks import (
    GROWN,
    LARGEST,
    MADE_RESIDENT,
    Content,
    Singles,
    Stack,
    StackProfile,
    check_count,
    check_depth,
    choose_metric,
    total_of,
)
from gdbmem.json_values import MISFITS, as_json, from_fields
from gdbmem.model.faults import FaultTotals, NamedFaults, NamedStack
from gdbmem.text import printable

METRICS = (GROWN, MADE_RESIDENT)


def encode_faults(recorded: NamedFaults) -> bytes:
    """Return *recorded* in the form of the file."""
    names = ["command", "seconds", "is_sampled", "totals", "threads", "frames", "stacks"]
    names += [name for name in ("notices", "recording") if getattr(recorded, name)]
    return encode_own("faults", as_json(recorded, *names))


def read_faults(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError if it is damaged."""
    try:
        document = own_document(data, "faults", source, slug="faults-version")
        recorded = from_fields(NamedFaults, document)
        count = len(recorded.frames)
        if any(one.frames and not 0 <= min(one.frames) <= max(one.frames) < count for one in recorded.stacks):
            raise IndexError
        return faults_profile(recorded, source, metric)
    except MISFITS:
        raise InputError(
            f"{printable(source)} is damaged: it is not a recording of page faults, or was truncated",
            slug="faults-damaged",
            hint="record again: gdbmem grow PID --profile FILE",
        ) from None


def faults_profile(recorded: NamedFaults, source: str, metric: Optional[str] = None) -> StackProfile:
    """Return *recorded* as a profile."""
    chosen = choose_metric(metric, METRICS, source)
    stacks = [_stack(one, chosen, source) for one in recorded.stacks]
    stacks = [one for one in stacks if one.bytes]
    return StackProfile(
        source=source,
        source_format="faults",
        metric=chosen,
        metrics=METRICS,
        total_bytes=total_of(stacks),
        load=lambda profile: Content(
            stacks,
            Singles(recorded.frames),
            has_blocks=False,
            is_sampled=recorded.is_sampled,
            recording=recorded.recording,
            has_doubtful_paths=any(one.path_variance for one in stacks),
        ),
        notices=[
            *_notices(recorded.totals),
            *(Notice(one.slug, printable(one.message)) for one in recorded.notices),
        ],
        command=recorded.command,
        time=recorded.seconds,
        faults=recorded.totals,
    )


def _stack(one: NamedStack, metric: str, source: str) -> Stack:
    check_depth(len(one.frames), source)
    grown = metric == GROWN
    size = check_count(round(one.grown_bytes if grown else one.seen_bytes), source)
    variance = one.grown_variance if grown else one.seen_variance
    path_variance = one.grown_path_variance if grown else one.seen_path_variance
    if not all(0 <= each <= float(LARGEST) ** 2 for each in (variance, path_variance)):
        raise ValueError(f"{variance:g}, {path_variance:g}")
    return Stack(one.frames, size, 0, variance, path_variance=path_variance)


def _notices(totals: FaultTotals) -> list[Notice]:
    notices = []
    if totals.lost_samples:
        lost = f"{totals.lost_samples:,} of {totals.lost_samples + totals.samples:,} samples were lost"
        text = f"{lost} because the kernel's buffers were full"
        notices.append(
            Notice("faults-lost", f"{text}: samples taken at the same time represent their faults, too")
        )
    if not totals.sees_kernel_mode:
        text = "faults in kernel mode (such as read() into fresh memory) are counted, but not attributed to lines"
        notices.append(Notice("faults-user-mode", f"{text}: this needs root or CAP_PERFMON"))
    return notices
