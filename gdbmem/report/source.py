"""The line of source that a frame names, found, read with care, and highlighted."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Optional

from gdbmem.text import printable

if TYPE_CHECKING:
    from markupsafe import Markup
    from pygments.lexer import Lexer
    from rich.text import Text

_LARGEST_FILE_BYTES = 16 << 20
_LONGEST_LINE = 400
_MARGIN = 3  # lines that are shown before and after one
_CPP_SUFFIXES = ("", ".c", ".h", ".hpp", ".cc", ".cpp", ".cxx", ".hh", ".tcc", ".inl")
# Token type → style, the sixteen terminal colours only: they follow the user's own theme.
_STYLES = (
    ("Comment.Preproc", "yellow"),
    ("Comment", "bright_black"),
    ("Keyword.Type", "cyan"),
    ("Keyword", "magenta"),
    ("Name.Builtin", "cyan"),
    ("Literal.String", "green"),
    ("Literal.Number", "blue"),
)


class SourceLines:
    """Reads lines of source files, each file once; what can't be read is None."""

    def __init__(self, folders: Sequence[str] = ()) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._files: dict[str, Optional[list[bytes]]] = {}
        self._lexers: dict[str, Lexer] = {}

    def line(self, file: Optional[str], number: Optional[int]) -> Optional[str]:
        """Return line *number* (from 1) of *file*, without its indentation; None where it can't be had.

        A file without a folder is looked for in the folders given, never in the current one.
        """
        if file is None or number is None:
            return None
        if file not in self._files:
            self._files[file] = self._read(file)
        lines = self._files[file]
        if lines is None or not 1 <= number <= len(lines):
            return None
        return _readable(lines[number - 1]).strip() or None

    def excerpt(self, file: Optional[str], number: Optional[int]) -> Optional[Markup]:
        """Return line *number* of *file* and some lines on each side as HTML, that line marked; None as `line`."""
        if self.line(file, number) is None or file is None or number is None:
            return None
        from markupsafe import Markup
        from pygments import highlight
        from pygments.formatters.html import HtmlFormatter

        lines = self._files[file] or []
        first = max(number - _MARGIN, 1)
        texts = [_readable(line) for line in lines[first - 1 : number + _MARGIN]]
        made = highlight(
            "\n".join(texts), self._lexer(file), HtmlFormatter(nowrap=True, classprefix="s-")
        ).split("\n")
        numbered = [
            f'<span class="dim">{first + n:>6}</span> {text}' for n, text in enumerate(made[: len(texts)])
        ]
        numbered[number - first] = f"<mark>{numbered[number - first]}</mark>"
        return Markup("\n".join(numbered).replace("</mark>\n", "</mark>"))

    def highlighted(self, file: str, line: str) -> Text:
        """Return *line* of *file* coloured as its language is."""
        from rich.text import Text

        text = Text(no_wrap=True)
        # Without its newline a comment's end is not seen.
        for token, value in self._lexer(file).get_tokens(f"{line}\n"):
            text.append(value.rstrip("\n"), _style_of(str(token)))
        return text

    def _lexer(self, file: str) -> Lexer:
        suffix = PurePosixPath(file).suffix
        if suffix not in self._lexers:
            self._lexers[suffix] = _lexer_for(suffix)
        return self._lexers[suffix]

    def _read(self, file: str) -> Optional[list[bytes]]:
        path = PurePosixPath(file)
        if path.is_absolute():
            return _read_lines(Path(file))
        for folder in self._folders:
            for candidate in (folder / path, folder / path.name):
                lines = _read_lines(candidate)
                if lines is not None:
                    return lines
        return None


def _readable(line: bytes) -> str:
    text = line[: 4 * _LONGEST_LINE].decode("utf-8", "surrogateescape").rstrip()
    return printable(text.expandtabs(4)[:_LONGEST_LINE])


def _read_lines(path: Path) -> Optional[list[bytes]]:
    # A debug file may name anything as its source: a FIFO must not block, a device or a huge file not be read.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_FILE_BYTES:
            return None
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(_LARGEST_FILE_BYTES).split(b"\n")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _lexer_for(suffix: str) -> Lexer:
    from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
    from pygments.util import ClassNotFound

    if suffix not in _CPP_SUFFIXES:
        try:
            return get_lexer_for_filename(f"x{suffix}", None, stripnl=False)
        except ClassNotFound:
            pass
    return get_lexer_by_name("cpp", stripnl=False)


def _style_of(token: str) -> str:
    name = token[len("Token.") :]
    return next((style for prefix, style in _STYLES if name.startswith(prefix)), "")
