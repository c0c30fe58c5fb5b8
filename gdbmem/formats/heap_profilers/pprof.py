"""pprof's profile.proto, raw or gzipped: heap profiles of Go, of tcmalloc, and of other tools that export them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.files import Data
from gdbmem.formats.addresses import Binary, MappedRegion, MemoryMap, Symbols, frames_of
from gdbmem.formats.protobuf_schema import DIFFERENCE, profile_message
from gdbmem.formats.stacks import (
    ALLOCATED,
    DEEPEST,
    IN_USE,
    Content,
    Stack,
    StackProfile,
    by_metric,
    check_count,
    choose_metric,
    total_of,
)
from gdbmem.model.calltree import Frame
from gdbmem.text import printable

_METRICS = {"inuse_space": IN_USE, "alloc_space": ALLOCATED}
_BLOCKS = {"inuse_space": "inuse_objects", "alloc_space": "alloc_objects", "space": "objects"}


class _PprofColumn(NamedTuple):
    bytes_at: int
    blocks_at: Optional[int]


def read_pprof(data: Data, source: str, metric: Optional[str], symbols: Optional[Symbols]) -> StackProfile:
    """Read *data*; raises InputError if it is cut, damaged, or counts no bytes."""
    from google.protobuf.message import DecodeError  # not always needed

    profile = profile_message()()
    try:
        profile.ParseFromString(bytes(data))
    except (DecodeError, RecursionError):
        raise InputError(
            f"{printable(source)} is truncated or damaged: it is not a complete profile.proto",
            slug="protobuf-damaged",
            hint="fetch it again; a part of such a file can't be read",
        ) from None
    return _PprofReader(profile, source).read(metric, symbols)


class _PprofReader:
    def __init__(self, profile: Any, source: str) -> None:
        self.profile = profile
        self.source = source
        self.strings: list[str] = [text.decode("utf-8", "surrogateescape") for text in profile.string_table]

    def read(self, metric: Optional[str], symbols: Optional[Symbols]) -> StackProfile:
        columns = self._columns()
        metrics = self._order(columns)
        chosen = choose_metric(metric, metrics, self.source)
        stacks, taken = self._stacks(columns[chosen])
        return StackProfile(
            source=self.source,
            source_format="pprof",
            metric=chosen,
            metrics=metrics,
            total_bytes=total_of(stacks) - total_of(taken),
            notices=[],
            taken_at=max(self.profile.time_nanos, 0) / 1e9,
            load=lambda profile: self._content(profile, stacks, columns[chosen], symbols)._replace(
                taken=taken
            ),
            is_difference=bool(taken) or DIFFERENCE in map(self._text, self.profile.comment),
        )

    def _text(self, index: int) -> str:
        if not 0 <= index < len(self.strings):
            raise self._out_of_range("a string")
        return self.strings[index]

    def _out_of_range(self, what: str) -> InputError:
        return InputError(
            f"{printable(self.source)} refers to {what} that it does not contain",
            slug="index-out-of-range",
            hint="the file is damaged",
        )

    def _columns(self) -> dict[str, _PprofColumn]:
        types = [(self._text(kind.type), self._text(kind.unit)) for kind in self.profile.sample_type]
        names = [name for name, _ in types]
        columns = {}
        for at, (name, unit) in enumerate(types):
            if unit == "bytes":
                blocks = _BLOCKS.get(name)
                columns[_METRICS.get(name, name)] = _PprofColumn(
                    at, names.index(blocks) if blocks in names else None
                )
        if not columns:
            counted = ", ".join(f"{name} in {unit}" for name, unit in types) or "nothing"
            raise InputError(
                f"{printable(self.source)} is a profile of pprof that counts {printable(counted)}, not memory",
                slug="no-memory-counts",
                hint="give a heap profile",
            )
        return columns

    def _order(self, columns: dict[str, _PprofColumn]) -> Sequence[str]:
        default = self._text(self.profile.default_sample_type)
        default = _METRICS.get(default, default)
        return sorted(by_metric(columns), key=lambda name: name != default)

    def _stacks(self, column: _PprofColumn) -> tuple[list[Stack], list[Stack]]:
        """Return the stacks, and those of what went away: a difference of two profiles counts that below zero."""
        stacks: list[Stack] = []
        taken: list[Stack] = []
        numbers = {location.id: number for number, location in enumerate(self.profile.location)}
        rate = self._rate()
        for sample in self.profile.sample:
            values = sample.value
            if len(values) != len(self.profile.sample_type) or len(sample.location_id) > DEEPEST:
                raise self._out_of_range("values or a stack")
            size = values[column.bytes_at]
            blocks = 0 if column.blocks_at is None else values[column.blocks_at]
            check_count(abs(size), self.source)
            check_count(abs(blocks), self.source)
            if not size and not blocks:
                continue
            try:
                path = tuple([numbers[number] for number in sample.location_id])
            except KeyError:
                raise self._out_of_range("a location") from None
            variance = _variance(abs(blocks), abs(size), rate)
            if size > 0 or blocks > 0:
                stacks.append(Stack(path, max(size, 0), max(blocks, 0), variance))
            if size < 0 or blocks < 0:
                taken.append(Stack(path, max(-size, 0), max(-blocks, 0), 0.0 if size > 0 else variance))
        return stacks, taken

    def _rate(self) -> int:
        kind = self.profile.period_type
        in_bytes = (self._text(kind.type), self._text(kind.unit)) == ("space", "bytes")
        return int(self.profile.period) if in_bytes else 0

    def _content(
        self, profile: StackProfile, stacks: Sequence[Stack], column: _PprofColumn, symbols: Optional[Symbols]
    ) -> Content:
        chains: list[Sequence[Frame]] = [self._chain(location) for location in self.profile.location]
        nameless = [at for at, chain in enumerate(chains) if not chain]
        if nameless:
            # These are the calls themselves already, no return addresses.
            addresses = [self.profile.location[at].address + 1 for at in nameless]
            found, notices = frames_of(addresses, self._memory_map(), symbols, self.source)
            profile.add_notices(notices)
            for at, chain in zip(nameless, found):
                chains[at] = chain
        return Content(
            stacks,
            chains,
            has_blocks=column.blocks_at is not None,
            is_sampled=any(s.variance for s in stacks),
        )

    def _chain(self, location: Any) -> tuple[Frame, ...]:
        frames = []
        for line in location.line:
            function = self._functions.get(line.function_id)
            if function is None:
                raise self._out_of_range("a function")
            file = self._text(function.filename) or None
            number = int(line.line) if file and 0 < line.line < 1 << 31 else None
            name = self._text(function.name) or None
            frames.append(Frame(name, file, number, self._objects.get(location.mapping_id), inlined=True))
        return (*frames[:-1], frames[-1]._replace(inlined=False)) if frames else ()

    @functools.cached_property
    def _functions(self) -> dict[int, Any]:
        return {function.id: function for function in self.profile.function}

    @functools.cached_property
    def _objects(self) -> dict[int, str]:
        named = {mapping.id: self._text(mapping.filename) for mapping in self.profile.mapping}
        return {number: name for number, name in named.items() if name}

    def _memory_map(self) -> MemoryMap:
        return MemoryMap(
            MappedRegion(
                mapping.memory_start,
                mapping.memory_limit,
                mapping.file_offset,
                Binary(self._text(mapping.filename), self._text(mapping.build_id)),
            )
            for mapping in self.profile.mapping
            if self._text(mapping.filename)
        )


def _variance(blocks: int, size_bytes: int, rate_bytes: int) -> float:
    # The counts are scaled already: blocks · p of them were seen.
    if rate_bytes <= 1 or not blocks or not size_bytes:
        return 0.0
    average = size_bytes / blocks
    share = -math.expm1(-average / rate_bytes)
    return blocks / share * average * average * (1.0 - share)
