"""The page of a run, written when the launch that made it has ended."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Optional

from gdbmem.analysis.profiles.query import Query
from gdbmem.api.profiles import ReadOptions, Run
from gdbmem.cli.page.choosing import page_of
from gdbmem.errors import GdbmemError
from gdbmem.records import dataclass, field
from gdbmem.report.output import open_output
from gdbmem.report.page.page import render
from gdbmem.text import printable


class _UnwrittenError(Exception):
    """No page was made: the file is not created."""


@dataclass
class AwaitedPage:
    """The run that a page is to show, once there is one, and whether the page could not be made."""

    runs: list[Run] = field(default_factory=list)
    failed: bool = False


@contextlib.contextmanager
def page_at_end(file: Optional[str], query: Query, *, force: bool) -> Iterator[AwaitedPage]:
    """Yield an AwaitedPage to receive the run; its page is written to *file* (None: nowhere) when the block ends.

    The file is opened now, so that an unwritable name fails before the run. A page that can't be made is reported.
    """
    awaited = AwaitedPage()
    if file is None:
        yield awaited
        return
    with contextlib.suppress(_UnwrittenError), open_output(file, force=force) as stream:
        yield awaited
        try:
            stream.write(_rendered(awaited, query))
        except GdbmemError as error:
            print(f"gdbmem: no page was made: {printable(error.sentence)}", file=sys.stderr)
            awaited.failed = True
            raise _UnwrittenError from error
        print(f"gdbmem: the report is {printable(file)}", file=sys.stderr)


def _rendered(awaited: AwaitedPage, query: Query) -> str:
    folders = [run.folder for run in awaited.runs if run.folder.is_dir()]
    if not folders:
        raise GdbmemError(
            "nothing was recorded", slug="no-snapshot", hint="take snapshots: memsnap, or points in a recipe"
        )
    return render(page_of([str(folders[-1].absolute())], query, ReadOptions()))
