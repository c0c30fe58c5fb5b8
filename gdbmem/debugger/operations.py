"""Operations of the source in machine code: which instructions do what one place in the source says.

Compilers copy, move, join and drop instructions. Those that are left keep the line and column of what they do, so
copies of an operation are known by that.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from gdbmem.debugger.function_source import Step
from gdbmem.steps.quiet_lines import Instruction

_COMPARES = re.compile(r"(?:cmp|test|v?u?comis[sd]|bt)[bwlq]?\s")
_BRANCHES = re.compile(r"j(?!mp)")
_TO_STACK = re.compile(
    r"(?:mov\w*\s+\$|(?:add|sub|inc|dec|or|and|xor)\w*\s+).*\(%rsp(?:,[^()]*)?\)$"  # not what a register is kept in
)
_COMPUTES = re.compile(r"v?(?:add|sub|inc|dec|i?mul|and|or|xor|div)(?!\w*p[sd])\w*\s(?!.*%rsp$)")
_ADDS = re.compile(r"(?:add|sub)\w*\s+\$0x([0-9a-f]+),|lea\w*\s+-?0x([0-9a-f]+)\(%(?!rip)\w+\),")
_ASSIGNS = re.compile(r"(?:[-+*/%&|^]|<<|>>)=|\+\+|--")
_ONE = frozenset((1, *((1 << bits) - 1 for bits in (8, 16, 32, 64))))


COMPARES, BRANCHES, CALLS, WRITES, WRITES_STACK, COMPUTES = (
    "compares", "branches", "calls", "writes", "writes the stack", "computes",
)  # fmt: skip
"""The kinds of operations."""


class Operation(NamedTuple):
    """One place in the source, by the kind of instruction that does it."""

    kind: str
    path: tuple[tuple[int, str], ...]  # line and function, down to the function that has the place
    column: int
    text: str  # of the instruction, or its first word, where the place may have several

    def order(self) -> tuple[tuple[tuple[int, str], ...], bool, int]:
        """Return what sorts operations as in the source; of a condition what is compared goes first."""
        return self.path, self.kind != COMPARES, self.column

    @staticmethod
    def kind_of(instruction: str, source: str, *, is_effect: bool) -> Optional[str]:
        """Return the kind of what an *instruction* does for what the *source* says there; None for all else."""
        if instruction.startswith("call"):
            return CALLS
        if _BRANCHES.match(instruction):
            return BRANCHES
        if _COMPARES.match(instruction):
            return COMPARES
        if _TO_STACK.match(instruction):
            return WRITES_STACK
        if is_effect:
            return WRITES
        return COMPUTES if _ASSIGNS.match(source) and _COMPUTES.match(instruction) else None


class Operations(NamedTuple):
    """The instructions that do one operation."""

    steps: tuple[Step, ...]  # down to the function that has the place
    places: list[int]


def is_joined(instruction: str, source: str) -> bool:
    """Return whether the *instruction* adds or subtracts more than the one that the *source* says there."""
    added = _ADDS.match(instruction) if source[:2] in ("++", "--") else None
    return added is not None and int(added[1] or added[2], 16) not in _ONE


def sets_frame(one: Instruction) -> bool:
    """Return whether rbp points to the stack behind this instruction."""
    return one.text.split() == ["mov", "%rsp,%rbp"]
