"""A query of a call tree: the options that `gdbmem diff`, `gdbmem show` and massif-diff share."""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import InputError, UsageError
from gdbmem.files import read_small
from gdbmem.model.calltree import Frame
from gdbmem.profiles.own_code import source_name
from gdbmem.text import printable

GROUPINGS = ("path", "function", "line", "file", "library", "size")
DEFAULT_TOP = 10
BLOCKS = "blocks"
_KNOWN_LIMIT_BYTES = 1 << 20


class Query(NamedTuple):
    """Which paths to list and how; the defaults list the largest ten, the library's frames folded."""

    top: Optional[int] = None  # rows; None: DEFAULT_TOP in a text, all in JSON
    by: str = "path"  # one of GROUPINGS
    min_bytes: int = 0
    focus: Optional[re.Pattern[str]] = None
    ignore: Optional[re.Pattern[str]] = None
    mine: Optional[re.Pattern[str]] = None  # frames that are the user's own, overriding the rules
    hide: Optional[re.Pattern[str]] = None  # frames to omit from the paths
    unchanged: bool = False  # include unchanged rows
    by_blocks: bool = False  # largest by the number of blocks, not of bytes
    compare: bool = False  # in a text: each change also in percent of the earlier bytes
    normalized: bool = False  # all sides were scaled to one total
    inverted: bool = False
    all_frames: bool = False
    known: Sequence[re.Pattern[str]] = ()
    wrappers: Optional[frozenset[str]] = None  # functions that only allocate; None: found in the data
    source_folders: Sequence[str] = ()  # folders to search for sources whose folder is not in the profile
    source_roots: Optional[Sequence[str]] = None  # folders below which sources may be read; None: anywhere
    embed_source: bool = False  # a page contains the source lines around named places, and a notice of that

    @property
    def of_walk(self) -> tuple[object, ...]:
        """The part of the query on which the paths' own properties depend, as a key."""
        found = (self.hide, self.mine, self.all_frames, self.focus, self.ignore)
        return (*found, tuple(self.known), self.wrappers)

    @property
    def filters(self) -> bool:
        """Return whether --focus or --ignore exclude some paths."""
        return self.focus is not None or self.ignore is not None


def query_from(arguments: argparse.Namespace) -> Query:
    """Return the Query of the options of add_query_options().

    Raises UsageError for a bad regex; InputError for a bad --known file.
    """
    by = arguments.by or ("path" if arguments.inverted else arguments.default_by)
    if arguments.inverted and by != "path":
        raise UsageError(f"--inverted applies to paths, not to --by {by} lists", hint="leave one of them out")
    return Query(
        top=arguments.top,
        by=by,
        min_bytes=abs(arguments.min or 0),
        focus=compile_regex(arguments.focus, "--focus"),
        ignore=compile_regex(arguments.ignore, "--ignore"),
        hide=compile_regex(arguments.hide, "--hide"),
        mine=compile_regex(arguments.mine, "--mine"),
        by_blocks=counts_blocks(getattr(arguments, "metric", None)),
        compare=getattr(arguments, "compare", False),
        normalized=getattr(arguments, "normalize", False),
        inverted=arguments.inverted,
        all_frames=arguments.all_frames,
        known=read_known(arguments.known) if arguments.known else (),
        source_folders=arguments.source or (),
    )


def counts_blocks(metric: Optional[str]) -> bool:
    """Return whether *metric* is ``blocks``, or ends with ``-blocks``."""
    return metric is not None and (metric == BLOCKS or metric.endswith(f"-{BLOCKS}"))


def frame_text(frame: Frame) -> str:
    """Return the text that --focus, --ignore and --known match: ``function (file:line)``."""
    if frame.file is not None:
        place = frame.file if frame.line is None else f"{frame.file}:{frame.line}"
    else:
        place = f"in {frame.object or '???'}"
    return f"{frame.function or '???'} ({place})"


def matches(pattern: re.Pattern[str], frame: Frame) -> bool:
    """Return whether *pattern* matches *frame*: the one rule of --focus, --ignore, --hide, --known, --mine and path:.

    It is searched for in ``function (file:line)``, and in each part alone, so that ``^`` and ``$`` match a part's ends.
    A function of D or Fortran has its name in the source, too.
    """
    place = f"{frame.file}:{frame.line}" if frame.file and frame.line is not None else None
    source = source_name(frame.function) if frame.function is not None and frame.function[:1] == "_" else ""
    parts = (frame_text(frame), frame.function, frame.file, place, frame.object, source)
    return any(pattern.search(part) is not None for part in parts if part)


def read_known(path: str) -> list[re.Pattern[str]]:
    """Read the regexes of *path*, one per line; empty lines and lines that begin with ``#`` are skipped.

    Raises InputError, with file and line, for an invalid regex.
    """

    def refuse(reason: str) -> InputError:
        return InputError(
            f"cannot read {printable(path)}: {reason}",
            slug="known-unreadable",
            hint="give --known a text file with a regex on each line",
        )

    data = read_small(Path(path), limit_bytes=_KNOWN_LIMIT_BYTES, refuse=refuse)
    return parse_known(data.decode("utf-8", "surrogateescape"), path)


def parse_known(text: str, source: str) -> list[re.Pattern[str]]:
    """Return the regexes in *text*; *source* is named in errors."""
    patterns = []
    for number, line in enumerate(text.splitlines(), start=1):
        wanted = line.strip()
        if not wanted or wanted.startswith("#"):
            continue
        try:
            pattern = _pattern(wanted)
        except re.error as error:
            raise InputError(
                f"{printable(source)}:{number}: '{printable(wanted)}' is not a regex: {error}",
                slug="bad-known",
                hint="write \\( for a literal parenthesis",
            ) from None
        if any(map(pattern.search, ("", "\N{SNOWMAN}"))):  # as ^, |name and . do
            raise InputError(
                f"{printable(source)}:{number}: '{printable(wanted)}' matches every path",
                slug="bad-known",
                hint="name the function or the line that is known",
            )
        patterns.append(pattern)
    return patterns


def compile_regex(regex: Optional[str], option: str) -> Optional[re.Pattern[str]]:
    """Return *regex*, the value of *option*, compiled; raises UsageError for a bad one."""
    if regex is None:
        return None
    try:
        return _pattern(regex)
    except re.error as error:
        raise UsageError(
            f"{option} '{printable(regex)}' is not a regex: {error}",
            slug="bad-regex",
            hint="write \\( for a literal parenthesis",
        ) from None


def _pattern(regex: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        # The warning that "[[" may change its meaning in a future Python doesn't concern the user.
        warnings.simplefilter("ignore")
        return re.compile(regex)
