"""Changing files by their structure: numbers, words, lines and pieces of them, in text and in binary."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Sequence
from typing import Callable

LARGEST_BYTES = 1 << 17
_NUMBER = re.compile(rb"-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?)")
_TOKEN = re.compile(rb"[A-Za-z_]\w*|\"[^\"\n]{0,80}\"|[\[\]{}():,;=]")
_ODD_NUMBERS = (
    *(b"0 -1 1 2 7 9 255 65536 2147483648 4294967295 9223372036854775807 9223372036854775808".split()),
    *(b"18446744073709551615 18446744073709551616 1e308 1e999 -1e999 nan inf 0x 0xffffffffffffffff".split()),
    b"9" * 400,
    b"\xd9\xa3",  # a digit to Python, not to C
    b"1_000",
)
_ODD_WORDS = (
    *(
        b'null true false [] {} "" [[[[ ]]]] {{ \\ \' " < > & % ; # : -- --- == @ * &a *a !!python/name:a.b'.split()
    ),
    b"\x00",
    b"\x1b[31m",
    b"\xff\xfe",
    b"\xe2\x80\xa8",
    b"\n",
    b"\r\n",
    b"\t",
    b" " * 300,
    b"(" * 3000,
    b"[" * 3000,
    b"../../../etc/passwd",
    b"A" * 5000,
)
_ODD_INTEGERS = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 63,
    (1 << 64) - 1,
)
Mutation = Callable[[bytes, random.Random, Sequence[bytes]], bytes]


def mutate(data: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return *data* with one to six changes; pieces of *others* may come in."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        data = chance.choice(_MUTATIONS)(data, chance, others)[:LARGEST_BYTES]
    return data


def _span(data: bytes, chance: random.Random, most: int = 64) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.randrange(1, most))


def _replaced(
    data: bytes, pattern: re.Pattern[bytes], new: Callable[[bytes], bytes], chance: random.Random
) -> bytes:
    start = chance.randrange(len(data) + 1)
    match = pattern.search(data, start) or pattern.search(data)
    return data if match is None else data[: match.start()] + new(match[0]) + data[match.end() :]


def _number(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    return _replaced(data, _NUMBER, lambda _: chance.choice(_ODD_NUMBERS), chance)


def _near_number(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    def near(old: bytes) -> bytes:
        return (
            str(int(old) + chance.choice((-2, -1, 1, 2, 1 << 31))).encode()
            if old.isdigit() and len(old) < 30
            else old + b"0"
        )

    return _replaced(data, _NUMBER, near, chance)


def _word(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    return _replaced(data, _TOKEN, lambda _: chance.choice(_ODD_WORDS), chance)


def _inserted(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_ODD_WORDS) + data[at:]


def _line(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    how = chance.randrange(4)
    if how == 0:
        del lines[one]
    elif how == 1:
        lines.insert(other, lines[one])
    elif how == 2:
        lines[one], lines[other] = lines[other], lines[one]
    else:
        lines[one:one] = [lines[one]] * chance.choice((2, 10, 200))
    return b"\n".join(lines)


def _cut(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _removed(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    start, end = _span(data, chance)
    return data[:start] + data[end:]


def _copied(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    source = chance.choice(others) if others and chance.random() < 0.3 else data
    start, end = _span(source, chance, 400)
    at = chance.randrange(len(data) + 1)
    return data[:at] + source[start:end] * chance.choice((1, 1, 2, 50)) + data[at:]


def _flipped(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    if not data:
        return b"\0"
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _byte(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _integer(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    size = chance.choice((1, 2, 4, 8))
    at = chance.randrange(len(data) + 1) & -chance.choice((1, size))
    value = chance.choice(_ODD_INTEGERS) + chance.choice((-1, 0, 0, 1)) & (1 << 8 * size) - 1
    return data[:at] + struct.pack("<Q", value)[:size] + data[at + size :]


_MUTATIONS: Sequence[Mutation] = (
    _number, _number, _near_number, _word, _word, _inserted, _line, _line, _cut, _removed, _copied, _flipped, _byte,
    _integer, _integer,
)  # fmt: skip
