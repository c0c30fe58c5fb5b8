"""Giving changed input to a reader, with limits of time and memory; what must not happen is a finding."""

from __future__ import annotations

import random
import resource
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Optional

from gdbmem.errors import GdbmemError
from gdbmem.text import printable
from tests.fuzz.mutate import mutate
from tests.fuzz.readers import Reader

_SECONDS, _SECONDS_OF_MIB = 2.0, 8.0  # of processor time
_MEMORY_BYTES = 1 << 30  # beyond what the reader's process has at its beginning


class HangError(BaseException):
    """It took longer than its size explains."""


@dataclass(frozen=True)
class Finding:
    """A forbidden behaviour of a reader on an input."""

    reader: str
    what: str  # the exception, and where it came from: the same for the same cause
    detail: str
    data: bytes


@contextmanager
def limits() -> Iterator[None]:
    """Limit this process's memory, and have try_one() limit the time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGVTALRM, _hang)
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGVTALRM, before)


def _hang(number: int, frame: Optional[FrameType]) -> None:
    raise HangError


def try_one(reader: Reader, data: bytes) -> Optional[Finding]:
    """Make *reader* read *data*; return what was found."""
    signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS + _SECONDS_OF_MIB * len(data) / (1 << 20))
    try:
        reader.read(data)
    except GdbmemError as error:
        if not error.message or not error.slug or error.message != printable(error.message):
            return Finding(reader.name, "a refusal that can't be shown", repr(error.message), data)
    except (Exception, HangError) as error:  # noqa: BLE001  (all that is not a refusal is a finding)
        return Finding(
            reader.name, _where(error), "".join(traceback.format_exception_only(type(error), error)), data
        )
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


def _where(error: BaseException) -> str:
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if "/gdbmem/" in f.filename or "/fuzz/" in f.filename
    ]
    place = frames[-1] if frames else None
    at = f"{place.filename.rpartition('/gdbmem/')[2]}:{place.lineno}" if place else "?"
    return f"{type(error).__name__} at {at}"


def run(reader: Reader, count: int, seed: int, seconds: float = 1e9) -> tuple[int, dict[str, Finding]]:
    """Try *count* changed inputs, for *seconds* at most; return how many were tried, and a finding of each kind."""
    chance = random.Random(f"{reader.name} {seed}")
    examples, found, tried = list(reader.examples()), {}, 0
    deadline = time.monotonic() + seconds
    with limits():
        for example in examples:
            finding = try_one(reader, example)
            if finding is not None:
                found[finding.what] = finding
        while tried < count and time.monotonic() < deadline:
            tried += 1
            finding = try_one(reader, mutate(chance.choice(examples), chance, examples))
            if finding is not None:
                found.setdefault(finding.what, finding)
    return tried, found
