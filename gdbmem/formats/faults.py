"""Recordings of page faults, as `gdbmem grow --profile FILE` keeps them: JSON, with names in place of addresses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.formats.json_profiles import own_document
from gdbmem.formats.spooling import Data
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
from gdbmem.json_values import MISFITS
from gdbmem.model.calltree import Frame
from gdbmem.model.faults import FaultAccount, FaultTotals, Unseen
from gdbmem.text import printable

METRICS = (GROWN, MADE_RESIDENT)
_SIZES = {GROWN: "grown_bytes", MADE_RESIDENT: "seen_bytes"}
_ERRORS = {GROWN: "grown_variance", MADE_RESIDENT: "seen_variance"}
_PATH_ERRORS = {GROWN: "grown_path_variance", MADE_RESIDENT: "seen_path_variance"}


def read_faults(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError if it is damaged."""
    try:
        document = own_document(data, "faults", source, slug="faults-version")
        return faults_profile(document, source, metric)
    except MISFITS:
        raise InputError(
            f"{printable(source)} is damaged: it is not a recording of page faults, or was truncated",
            slug="faults-damaged",
            hint="record again: gdbmem grow PID --profile FILE",
        ) from None


def faults_profile(document: Mapping[str, Any], source: str, metric: Optional[str] = None) -> StackProfile:
    """Return *document*, as the file has it, as a profile."""
    chosen = choose_metric(metric, METRICS, source)
    frames = [_frame(row) for row in document["frames"]]
    stacks = [_stack(row, chosen, len(frames), source) for row in document["stacks"]]
    stacks = [one for one in stacks if one.bytes]
    sampled = bool(document["is_sampled"])
    recording = str(document.get("recording", ""))
    return StackProfile(
        source=source,
        source_format="faults",
        metric=chosen,
        metrics=METRICS,
        total_bytes=total_of(stacks),
        load=lambda profile: Content(
            stacks,
            Singles(frames),
            has_blocks=False,
            is_sampled=sampled,
            recording=recording,
            has_doubtful_paths=any(one.path_variance for one in stacks),
        ),
        notices=[*_notices(document["totals"]), *_own_notices(document)],
        command=str(document["command"]),
        time=_finite(document["seconds"]),
        faults=_totals(document["totals"]),
    )


def _totals(values: Mapping[str, Any]) -> FaultTotals:
    accounts = [_account(one) for one in values["accounts"]]
    counts = ("faults", "samples", "lost_samples", "shortest_period", "longest_period", "broken_paths")
    return FaultTotals(
        seconds=_finite(values["seconds"]),
        sees_kernel_mode=bool(values["sees_kernel_mode"]),
        accounts=accounts,
        assumed_paths=int(_finite(values.get("assumed_paths", 0))),
        **{name: int(_finite(values[name])) for name in counts},
    )


def _account(values: Mapping[str, Any]) -> FaultAccount:
    after, ended = values["after_bytes"], values["ended_seconds_after"]
    return FaultAccount(
        pid=int(_finite(values["pid"])),
        name=str(values["name"]),
        before_bytes=int(_finite(values["before_bytes"])),
        after_bytes=None if after is None else int(_finite(after)),
        seen_bytes=_finite(values["seen_bytes"]),
        grown_bytes=_finite(values["grown_bytes"]),
        unseen=[Unseen(str(one["kind"]), int(_finite(one["bytes"]))) for one in values["unseen"]],
        ended_seconds_after=None if ended is None else _finite(ended),
        hugetlb_bytes=int(_finite(values.get("hugetlb_bytes", 0))),
        zero_bytes=int(_finite(values.get("zero_bytes", 0))),
    )


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError
    return value  # type: ignore[no-any-return]


def _frame(row: Sequence[Any]) -> Frame:
    function, file, line, place, inlined = row
    if not all(one is None or isinstance(one, str) for one in (function, file, place)):
        raise TypeError
    return Frame(function, file, None if line is None else int(line), place, bool(inlined))


def _stack(row: Mapping[str, Any], metric: str, frames: int, source: str) -> Stack:
    path = [int(number) for number in row["frames"]]
    check_depth(len(path), source)
    if any(not 0 <= number < frames for number in path):
        raise IndexError
    size = check_count(round(row[_SIZES[metric]]), source)
    # Recordings that were kept by earlier versions have no error of paths.
    variances = [_finite(row[_ERRORS[metric]]), _finite(row.get(_PATH_ERRORS[metric], 0.0))]
    if not all(0 <= one <= float(LARGEST) ** 2 for one in variances):
        raise ValueError(str(variances))
    return Stack(path, size, 0, variances[0], path_variance=variances[1])


def _own_notices(document: Mapping[str, Any]) -> list[Notice]:
    rows = document.get("notices", ())
    if any(not isinstance(word, str) for row in rows for word in (row["slug"], row["message"])):
        raise TypeError
    return [Notice(row["slug"], printable(row["message"])) for row in rows]


def _notices(totals: Mapping[str, Any]) -> list[Notice]:
    notices = []
    lost = int(totals["lost_samples"])
    if lost:
        text = f"{lost:,} of {lost + int(totals['samples']):,} samples were lost because the kernel's buffers were full"
        notices.append(
            Notice("faults-lost", f"{text}: samples taken at the same time represent their faults, too")
        )
    if not totals["sees_kernel_mode"]:
        text = "faults in kernel mode (such as read() into fresh memory) are counted, but not attributed to lines"
        notices.append(Notice("faults-user-mode", f"{text}: this needs root or CAP_PERFMON"))
    return notices
