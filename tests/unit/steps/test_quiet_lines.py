"""Which lines of a function need no breakpoint: found in its instructions, as gdb disassembles them."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from gdbmem.linux.memory.maps import SettledPages
from gdbmem.linux.memory.resident import PAGE_BYTES
from gdbmem.steps.quiet_lines import CALLING, RETURNED, Instruction, QuietLines, quiet_lines


def lines_of(*lines: str) -> QuietLines:
    """Return the quiet lines of a function; line n begins at 0x100 * n. "jne 2": to line 2."""
    codes: dict[int, Instruction] = {}
    for number, line in enumerate(lines):
        texts = line.split("; ")
        for place, text in enumerate(texts):
            address = 0x100 * number + 4 * place
            word, _, where = text.partition(" ")
            jumps = word.startswith("j") and where.isdigit()
            code = Instruction(
                address,
                address + 4,
                0x100 * int(where) if jumps else None,
                text=text,
                goes_on=word not in ("jmp", "ret"),
                is_call=word == "call",
                is_known=not word.startswith("j") or jumps,
                returns=word == "ret",
            )
            last = place == len(texts) - 1
            codes[address] = code
            if last and code.goes_on:  # the next line follows
                codes[address + 4] = Instruction(
                    address + 4, address + 8, 0x100 * (number + 1), goes_on=False
                )
    return quiet_lines(0, [0x100 * n for n in range(len(lines))], sorted(codes), codes.__getitem__)


ENTRY = "push %rbp; mov %rsp,%rbp; sub $0x20,%rsp"
PLAIN = "mov -0x14(%rbp),%eax; add $0x1,%eax; mov %eax,-0x8(%rbp)"
STATIC = "mov 0x2e7d(%rip),%edx        # 0x40b0 <sum>"
POINTER = "movb $0x1,(%rax)"
CALL = "mov $0x1,%edi; call 0x9000 <touch(int)>"
END = "leave; ret"


def skipped(*lines: str) -> list[int]:
    return [address // 0x100 for address in sorted(lines_of(*lines).skipped)]


def test_plain_lines_around_one_that_is_not_need_no_breakpoint() -> None:
    found = lines_of(ENTRY, PLAIN, CALL, PLAIN, END)
    assert sorted(found.skipped) == [0x100, 0x200, 0x300, 0x400]
    assert found.between(0, RETURNED) == (0x100, 0x200, 0x300, 0x400)
    assert found.between(0, CALLING) == (0x100, 0x200)
    assert [found.is_quiet(0x100 * number) for number in range(5)] == [True, True, False, True, True]


def test_of_two_lines_that_may_change_memory_one_has_a_breakpoint() -> None:
    assert skipped(ENTRY, CALL, PLAIN, CALL, END) == [1, 2, 4]
    assert skipped(ENTRY, POINTER, POINTER, END) == [1, 3]


def test_a_static_variable_after_a_call_has_a_breakpoint_because_the_call_may_release_its_page() -> None:
    assert skipped(ENTRY, STATIC, CALL, STATIC, END) == [1, 2, 4]
    assert skipped(ENTRY, STATIC, POINTER, STATIC, END) == [1, 2, 3, 4]


def test_a_branch_is_told_by_a_breakpoint_on_one_of_its_sides() -> None:
    assert skipped(ENTRY, "test %eax,%eax; jne 3", f"{PLAIN}; jmp 4", PLAIN, END) == [1, 2, 4]


def test_each_round_of_a_loop_has_two_breakpoints() -> None:
    """Else one whose step a signal postponed would look like another round."""
    found = skipped(ENTRY, PLAIN, PLAIN, PLAIN, "cmp %eax,%edx; jl 2", END)
    assert len({2, 3, 4} - set(found)) == 2


def test_code_that_only_exceptions_reach_has_a_breakpoint() -> None:
    found = skipped(ENTRY, CALL, f"{PLAIN}; jmp 4", "call 0x9100 <__cxa_begin_catch@plt>; jmp 4", END)
    assert 3 not in found and 1 in found


@pytest.mark.parametrize(
    "strange",
    [
        "jmp *%rax",  # a table of jumps
        "call 0x9000 <_setjmp@plt>",
        "call 0x9000",  # of no name: it might be the one above
        "sub %rax,%rsp",  # an array of variable length
        "sub $0x100000,%rsp",
        "call 0x9000 <fails()>; call 0x9000 <__cxa_begin_catch@plt>",  # the first may not return
    ],
)
def test_where_execution_or_the_frame_is_not_known_all_lines_have_breakpoints(strange: str) -> None:
    assert skipped(ENTRY, PLAIN, strange, PLAIN, END) == []


@pytest.mark.parametrize(
    "text",
    [
        "mov (%rax),%edx",
        "mov 0x10(%rbx),%eax",
        "rep stos %rax,%es:(%rdi)",
        "movsb %ds:(%rsi),%es:(%rdi)",
        "mov -0x20(%rbp,%rax,4),%eax",
        "mov %eax,%fs:0xfffffffffffffffc",
        "mov DWORD PTR [rbp-0x14],eax",  # Intel's syntax is not read
        "str w0, [sp, #12]",
        "syscall",
        "vpgatherdd %ymm1,(%rax,%ymm2,4),%ymm3",
    ],
)
def test_a_line_that_may_access_other_memory_is_not_quiet(text: str) -> None:
    assert not lines_of(ENTRY, text, END).is_quiet(0x100)


def test_a_base_register_that_is_no_frame_pointer_may_point_anywhere() -> None:
    assert lines_of(ENTRY, PLAIN, END).is_quiet(0x100)
    assert not lines_of("push %rbp; mov %rdi,%rbp", PLAIN, "pop %rbp; ret").is_quiet(0x100)
    assert not lines_of(ENTRY, PLAIN, "mov 0x2e7d(%rip),%rbp  # 0x40b0 <sum>", END).is_quiet(0x100)


def test_a_page_is_settled_when_an_access_cannot_change_what_is_resident() -> None:
    area = mmap.mmap(-1, 3 * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(area, "madvise"):
        area.madvise(mmap.MADV_NOHUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    pages = SettledPages(os.getpid())
    area[0] = 1
    _ = area[PAGE_BYTES]  # the page of zeros
    settled = [pages.are_settled(start + PAGE_BYTES * n, start + PAGE_BYTES * n + 1) for n in range(3)]
    assert settled == [True, False, False]
    assert not pages.are_settled(start, start + PAGE_BYTES + 1)
    pages.close()
    assert not pages.are_settled(start, start + 1)
