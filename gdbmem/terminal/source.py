"""The source line of a frame, found, read safely, and highlighted.

A profile may be untrusted, and name any file: only files with suffixes of sources are read, and if roots are given,
only those below them after resolving links.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Optional

from gdbmem.errors import Notice
from gdbmem.files import open_regular
from gdbmem.terminal import drawing
from gdbmem.text import plural, printable

if TYPE_CHECKING:
    from markupsafe import Markup
    from pygments.lexer import Lexer

_LARGEST_FILE_BYTES = 16 << 20
_LONGEST_LINE = 400
_MARGIN = 3  # lines that are shown before and after one
_SOURCE = (  # compiled when the first file is found
    r"\.([chmCHMSFsfydvl]|cc|cp|cpp|cppm|cxx|c\+\+|hh|hp|hpp|hxx|h\+\+|tcc|tpp|inl|inc|ipp|ixx|def|cu|cuh|mm|rs|go|pyx?|pxd"
    r"|java|kts?|scala|swift|f(or|90|95|03|08)|F(90|95|03|08)|ad[abs]|asm|zig|nim|vala|jl|hs|mli?|cs|pas|js|ts|rb|p[lm]|lua"
    r"|yy|ll|cl|lisp|erl|exs?)"
)
# Folders whose headers may have no suffix.
_SYSTEM = ("/usr/include/", "/usr/local/include/", "/usr/lib/", "/usr/src/")
_CPP_SUFFIXES = ("", ".c", ".h", ".hpp", ".cc", ".cpp", ".cxx", ".hh", ".tcc", ".inl")
_CHECKOUTS = (".git", ".hg", ".svn", ".jj")
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


def source_roots() -> Sequence[str]:
    """Return the current folder, or the checkout that it is in: source files elsewhere are not shown."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was deleted
        return []
    found = [one for one in (here, *here.parents) if any((one / name).exists() for name in _CHECKOUTS)]
    return [str(one) for one in [*found, here][:1] if one != Path("/")]


class SourceLines:
    """Reads lines of source files, each file once; unreadable ones are None."""

    def __init__(self, folders: Sequence[str] = (), roots: Optional[Sequence[str]] = None) -> None:
        """*folders* are searched for files without a folder; only files below *roots* and them are read; None: all."""
        self._folders = [Path(folder) for folder in folders]
        self._roots = roots if roots is None else [*_SYSTEM, *map(_beneath, [*roots, *folders])]
        self._withheld: set[str] = set()
        self._shown: set[str] = set()
        self._files: dict[str, Optional[list[bytes]]] = {}
        self._lexers: dict[str, Lexer] = {}

    def line(self, file: Optional[str], number: Optional[int]) -> Optional[str]:
        """Return line *number* (from 1) of *file*, without its indentation; None if it is unavailable.

        A file without a folder is searched for in the given folders, never in the current one.
        """
        if file is None or number is None:
            return None
        if file not in self._files:
            self._files[file] = self._read(file)
        lines = self._files[file]
        if lines is None or not 1 <= number <= len(lines):
            return None
        return _readable(lines[number - 1]).strip() or None

    def notices(self) -> list[Notice]:
        """Return the notices on existing files that were not read."""
        if not self._withheld:
            return []
        folder = printable(str(PurePosixPath(min(self._withheld)).parent))
        text = (
            f"lines of {plural(len(self._withheld), 'source file')} outside the current folder and its checkout are not"
            f" shown, because a profile may name any file: --source {folder} shows those there"
        )
        return [Notice("source-withheld", text)]

    @property
    def shown_files(self) -> int:
        """The number of files with lines returned as HTML."""
        return len(self._shown)

    def marked_up(self, file: str, first: int, last: int) -> list[Markup]:
        """Return lines *first* to *last* of *file*, from 1, as HTML; fewer if the file ends before."""
        self.line(file, first)
        lines = (self._files.get(file) or [])[first - 1 : last]
        if not lines:
            return []
        from markupsafe import Markup  # not always needed
        from pygments import highlight  # not always needed
        from pygments.formatters.html import HtmlFormatter  # not always needed

        self._shown.add(file)
        text = "\n".join(map(_readable, lines))
        made = highlight(text, self._lexer(file), HtmlFormatter(nowrap=True, classprefix="s-"))
        return [Markup(line) for line in made.split("\n")[: len(lines)]]

    def excerpt(self, file: Optional[str], number: Optional[int]) -> Optional[Markup]:
        """Return line *number* of *file* and some lines on each side as HTML, that line marked; None as `line`."""
        if self.line(file, number) is None or file is None or number is None:
            return None
        from markupsafe import Markup  # not always needed

        first = max(number - _MARGIN, 1)
        numbered = [
            f'<span class="dim">{first + n:>6}</span> {text}'
            for n, text in enumerate(self.marked_up(file, first, number + _MARGIN))
        ]
        numbered[number - first] = f"<mark>{numbered[number - first]}</mark>"
        return Markup("\n".join(numbered).replace("</mark>\n", "</mark>"))

    def highlighted_line(self, file: Optional[str], number: Optional[int]) -> Optional[drawing.Text]:
        """Return line *number* (from 1) of *file*, highlighted; None if it is unavailable."""
        line = self.line(file, number)
        return None if line is None or file is None else self.highlighted(file, line)

    def highlighted(self, file: str, line: str) -> drawing.Text:
        """Return *line* of *file* highlighted for its language."""
        text = drawing.Text(no_wrap=True)
        try:
            lexer = self._lexer(file)
        except ImportError:  # gdb's Python, before `gdbmem install`
            return text.append(line)
        # Without its newline the end of a comment is not recognised.
        for token, value in lexer.get_tokens(f"{line}\n"):
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
            return self._read_lines(Path(file))
        for folder in self._folders:
            for candidate in (folder / path, folder / path.name):
                lines = self._read_lines(candidate)
                if lines is not None:
                    return lines
        return None

    def _read_lines(self, path: Path) -> Optional[list[bytes]]:
        # A debug file may name anything as its source: a FIFO must not block, a device or a huge file not be read.
        with contextlib.suppress(OSError, ValueError), open_regular(path) as stream:
            opened = os.readlink(f"/proc/self/fd/{stream.fileno()}")  # noqa: PTH115  (where links have led)
            if not re.fullmatch(_SOURCE, PurePosixPath(opened).suffix) and not opened.startswith(_SYSTEM):
                return None
            if self._roots is not None and not opened.startswith(tuple(self._roots)):
                self._withheld.add(str(path))
                return None
            if os.fstat(stream.fileno()).st_size <= _LARGEST_FILE_BYTES:
                return stream.read(_LARGEST_FILE_BYTES).split(b"\n")
        return None


def _beneath(folder: str) -> str:
    return os.path.realpath(folder).rstrip("/") + "/"


def _readable(line: bytes) -> str:
    text = line[: 4 * _LONGEST_LINE].decode("utf-8", "surrogateescape").rstrip()
    return printable(text.expandtabs(4)[:_LONGEST_LINE])


def _lexer_for(suffix: str) -> Lexer:
    from pygments.lexers import get_lexer_by_name, get_lexer_for_filename  # not always needed
    from pygments.util import ClassNotFound  # not always needed

    if suffix not in _CPP_SUFFIXES:
        try:
            return get_lexer_for_filename(f"x{suffix}", None, stripnl=False)
        except ClassNotFound:
            pass
    return get_lexer_by_name("cpp", stripnl=False)


def _style_of(token: str) -> str:
    name = token[len("Token.") :]
    return next((style for prefix, style in _STYLES if name.startswith(prefix)), "")
