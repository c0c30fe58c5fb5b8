"""Failures: one sentence, with what to do."""

from __future__ import annotations

from gdbmem.errors import GdbmemError, InputError, MissingToolError, ToolError, UsageError


def test_an_error_reads_as_what_happened_and_what_to_do() -> None:
    error = InputError("massif.out is empty", slug="empty-file", hint="let the program run to its end")
    assert str(error) == "massif.out is empty; let the program run to its end"


def test_an_error_without_a_hint_has_no_dangling_semicolon() -> None:
    assert str(GdbmemError("the heap is corrupt at 0x10", slug="corrupt")) == "the heap is corrupt at 0x10"


def test_statuses_can_be_distinguished_by_class() -> None:
    assert issubclass(UsageError, InputError)
    assert issubclass(MissingToolError, ToolError)
    assert not issubclass(ToolError, InputError)
