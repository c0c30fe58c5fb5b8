"""The instructions by which a stopped program calls a function for us, against what an assembler makes of them."""

from __future__ import annotations

import pytest

from gdbmem.engines.call_stubs import AARCH64, SAVED, X86_64, CallMachine, machine_of

# llvm-mc --disassemble --triple=aarch64, of some words each
AARCH64_WORDS = {
    0xAD000680: "stp q0, q1, [x20]",
    0xAD017E9E: "stp q30, q31, [x20, #32]",
    0xAD0F7E9E: "stp q30, q31, [x20, #480]",
    0xD53B4435: "mrs x21, FPSR",
    0xD53B4416: "mrs x22, FPCR",
    0xF9010295: "str x21, [x20, #512]",
    0xF9010696: "str x22, [x20, #520]",
    0xD63F0260: "blr x19",
    0xAA0003F7: "mov x23, x0",
    0xF9410295: "ldr x21, [x20, #512]",
    0xF9410696: "ldr x22, [x20, #520]",
    0xD51B4435: "msr FPSR, x21",
    0xD51B4416: "msr FPCR, x22",
    0xAD400680: "ldp q0, q1, [x20]",
    0xAD4F7E9E: "ldp q30, q31, [x20, #480]",
    0xD503201F: "nop",
}


def test_on_aarch64_the_stub_saves_calls_and_restores_as_the_assembler_encodes_it() -> None:
    words = [int.from_bytes(AARCH64.stub[at : at + 4], "little") for at in range(0, len(AARCH64.stub), 4)]
    shown = [AARCH64_WORDS.get(word, "?") for word in words]
    assert shown[0] == "stp q0, q1, [x20]" and shown[15] == "stp q30, q31, [x20, #480]"
    assert shown[16:26] == [
        "mrs x21, FPSR", "mrs x22, FPCR", "str x21, [x20, #512]", "str x22, [x20, #520]", "blr x19", "mov x23, x0",
        "ldr x21, [x20, #512]", "ldr x22, [x20, #520]", "msr FPSR, x21", "msr FPCR, x22",
    ]  # fmt: skip
    assert shown[26] == "ldp q0, q1, [x20]" and shown[41:] == ["ldp q30, q31, [x20, #480]", "nop"]
    assert AARCH64.system_call == (0xD4000001).to_bytes(4, "little"), "svc #0"


def test_each_vector_register_is_saved_once_and_restored_from_its_own_place() -> None:
    words = [int.from_bytes(AARCH64.stub[at : at + 4], "little") for at in range(0, len(AARCH64.stub), 4)]
    for part, opcode in ((words[:16], 0xAD000000), (words[26:42], 0xAD400000)):
        for number, word in enumerate(part):
            assert word & 0xFFC00000 == opcode and word >> 5 & 31 == 20
            first, second, place = word & 31, word >> 10 & 31, word >> 15 & 127
            assert (first, second, place * 16) == (2 * number, 2 * number + 1, 32 * number)


# llvm-mc --disassemble --triple=x86_64 of X86_64.home
X86_HOME = (
    "498ba638200000" "488d642480" "41ffb688200000" "41ffb680200000" "9d" "498b8600200000" "498b8e10200000"
    "498b9618200000" "498b9e08200000" "498bae30200000" "498bb620200000" "498bbe28200000" "4d8b8640200000"
    "4d8b8e48200000" "4d8b9650200000" "4d8b9e58200000" "4d8ba660200000" "4d8bae68200000" "4d8bbe78200000"
    "4d8bb670200000" "c28000"
)  # fmt: skip


def test_should_gdb_have_gone_the_program_takes_its_registers_back_by_itself() -> None:
    assert X86_64.home == bytes.fromhex(X86_HOME)
    assert SAVED + 8 * X86_64.general.index("rip") == 0x2088


@pytest.mark.parametrize("machine", [X86_64, AARCH64], ids=lambda machine: machine.name)
def test_gdbs_breakpoint_comes_on_an_instruction_that_does_nothing(machine: CallMachine) -> None:
    nop = machine.stub[machine.end :]
    assert nop in (b"\x90", (0xD503201F).to_bytes(4, "little"))
    assert len(machine.stub + machine.home) < 480, "the way back stands there"
    assert {machine.function, machine.state, machine.result, machine.stack, machine.counter} <= set(
        machine.general
    )


def test_processors_whose_vectors_would_not_be_saved_whole_are_refused() -> None:
    assert machine_of("i386:x86-64", ["rax"]) is X86_64
    assert machine_of("aarch64", ["x0", "v0"]) is AARCH64
    assert machine_of("aarch64", ["x0", "z0", "vg"]) is None
    assert machine_of("riscv:rv64", []) is None
