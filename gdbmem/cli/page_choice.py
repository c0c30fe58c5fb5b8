"""Choosing the page of `gdbmem report` and `gdbmem serve` by the kind of the operands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gdbmem.api.profiles import ReadOptions, Run, find_operand
from gdbmem.api.runs import kind_of
from gdbmem.cli.pages import make_page
from gdbmem.cli.process_operand import is_process, unwind_when_ended
from gdbmem.errors import InputError
from gdbmem.page.page import Page
from gdbmem.page.pools_page import CORE, kind_of_file
from gdbmem.profiles.query import Query
from gdbmem.terminal.console import say
from gdbmem.text import printable


def page_of(operands: Sequence[str], query: Query, options: ReadOptions) -> Page:
    """Return the page of *operands*: a process, a core, files that --json wrote, or runs and profiles.

    Raises GdbmemError if one can't be read, or if they can't be compared.
    """
    if len(operands) == 1 and is_process(operands[0]):
        from gdbmem.cli.page_documents import process_page  # 200 ms, as below: not needed for profiles

        unwind_when_ended()
        return process_page(int(operands[0]), say)
    kinds = [_kind(one) for one in operands]
    if not any(kinds):
        return _profiles_or_pools(operands, query, options)
    if len(set(kinds)) > 1 or (kinds[0] == CORE and len(kinds) > 1):
        raise InputError(
            "these can't be compared: "
            + ", ".join(f"{printable(one)} ({kind or 'a profile'})" for one, kind in zip(operands, kinds)),
            slug="unlike-operands",
            hint="name files of one kind, or one alone",
        )
    return _page_of_kind(kinds[0], operands, query)


def _page_of_kind(kind: str, operands: Sequence[str], query: Query) -> Page:
    from gdbmem.cli.page_documents import PAGES, core_page  # 200 ms

    if kind == CORE:
        return core_page(Path(operands[0]))
    make = PAGES.get(kind)
    if make is None:
        raise InputError(
            f"{printable(operands[0])} is a document of kind '{kind}', which gdbmem report does not support",
            slug="no-report",
            hint=f"it takes runs, profiles, and documents of the kinds {', '.join(PAGES)}",
        )
    return make(operands, query)


def _profiles_or_pools(operands: Sequence[str], query: Query, options: ReadOptions) -> Page:
    """Return the page of runs and profiles; for a file that is neither, the page of the pools in it."""
    try:
        return make_page(operands, query, options)
    except InputError as error:
        if error.slug != "format-unreadable" or len(operands) > 1:
            raise
        from gdbmem.cli.page_documents import pools_of_files  # 200 ms

        try:
            return pools_of_files(operands, query)
        except InputError:
            raise error from None


def _kind(operand: str) -> str:
    place, name = find_operand(operand)
    if isinstance(place, Run):
        return kind_of(place, name) if name is not None else ""
    return kind_of_file(place) if name is None else ""


# Pages shown in the user's browser.


def open_browser(address: str) -> None:
    """Show *address* in a browser; print a message on stderr if none could be started."""
    import webbrowser  # 7 ms

    if not webbrowser.open(address):
        print("gdbmem: no browser could be started to show the page", file=sys.stderr)
