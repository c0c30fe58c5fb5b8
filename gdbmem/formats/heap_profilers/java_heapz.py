"""Heap samples of a Java agent, ``--- heapz 1 ---``: bytes and blocks a stack, then a name for each address.

Source: the reader of pprof, profile/legacy_java_profile.go: a sample each 512 KiB on average.
"""

from __future__ import annotations

import re
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.files import Data
from gdbmem.formats.heap_profilers.gperftools import unsample
from gdbmem.formats.stacks import (
    IN_USE,
    Content,
    Numbers,
    Stack,
    StackProfile,
    bad_line,
    check_count,
    check_depth,
    choose_metric,
    total_of,
)
from gdbmem.model.calltree import BYTES_MISSING, Frame
from gdbmem.text import printable

RATE_BYTES = 512 << 10

_SAMPLE = re.compile(rb" *([0-9]{1,25}) +([0-9]{1,25}) +@((?: +0x[0-9a-f]{1,16})*)\s*")
_LOCATION = re.compile(rb"\s*0x([0-9a-f]{1,16})\s+(.*?)\s*")
_ATTRIBUTE = re.compile(rb"\s*([\w ]+?)\s*=\s*([\w ]+?)\s*")
_PLACE = re.compile(r"(.*)\s+\((.+):(-?[0-9]{1,9})\)|(.*)\s+\((.*)\)", re.DOTALL)
_EXPECTED = "'BYTES BLOCKS @ ADDRESSES' or '0xADDRESS NAME'"


def read_java_heapz(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError for a line of another format."""
    stacks, words, names, notices = _parse(bytes(data), source)
    chains = [(names.get(int(word, 16)) or Frame(word.decode()),) for word in words]
    return StackProfile(
        source=source,
        source_format="java-heapz",
        metric=choose_metric(metric, (IN_USE,), source),
        metrics=(IN_USE,),
        total_bytes=total_of(stacks),
        load=lambda profile: Content(stacks, chains, is_sampled=True),
        notices=notices,
    )


def _parse(data: bytes, source: str) -> tuple[list[Stack], Numbers, dict[int, Frame], list[Notice]]:
    stacks: list[Stack] = []
    words, names = Numbers(), dict[int, Frame]()
    lines = data.split(b"\n")
    for number, line in enumerate(lines[1:], start=2):
        if number == len(lines):
            break
        location = _LOCATION.fullmatch(line)
        sample = None if location else _SAMPLE.fullmatch(line)
        if location:
            names[int(location[1], 16)] = _frame(location[2].decode("utf-8", "surrogateescape"))
        elif sample and not names:
            stacks.append(_stack(sample, words, source, number))
        elif line.strip() and (stacks or not _takes(line, source, number)):
            raise bad_line(source, number, line, _EXPECTED)
    notices = []
    if lines[-1] or not stacks or any(int(word, 16) not in names for word in words):
        notices.append(
            Notice(BYTES_MISSING, f"{printable(source)} was truncated: stacks or their names are missing")
        )
    return stacks, words, names, notices


def _takes(line: bytes, source: str, number: int) -> bool:
    attribute = _ATTRIBUTE.fullmatch(line)
    if attribute is None:
        return False
    expected = {b"format": b"java", b"resolution": b"bytes"}.get(attribute[1], attribute[2])
    if attribute[2] != expected:
        raise bad_line(source, number, line, f"{attribute[1].decode()}={expected.decode()}")
    return True


def _stack(sample: re.Match[bytes], words: Numbers, source: str, number: int) -> Stack:
    size, blocks = (check_count(int(sample[n]), source, number) for n in (1, 2))
    path = tuple(map(words.__getitem__, sample[3].split()))
    check_depth(len(path), source, number)
    estimate = unsample(blocks, size, RATE_BYTES)
    return Stack(path, estimate.bytes, estimate.blocks, estimate.variance)


def _frame(text: str) -> Frame:
    match = _PLACE.fullmatch(text)
    if match is None:
        return Frame(text)
    if match[2] is not None:
        line = int(match[3])
        return Frame(match[1], match[2], line if line > 0 else None)
    return Frame(match[4], object=match[5])
