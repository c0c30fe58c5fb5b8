"""Styled text and tables, laid out for a width in columns.

A library for this (rich) takes 60 ms to import, which is more than reading and ranking a small profile.
"""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Optional, Union

from gdbmem.errors import InputError, Notice
from gdbmem.files import open_regular
from gdbmem.text import plural, printable

if TYPE_CHECKING:
    from markupsafe import Markup
    from pygments.lexer import Lexer


_GAP = 2  # spaces between the columns of a table
_NARROWEST = 8  # least width of a column that may be wrapped, on any screen
_WORD = r"\s*\S+\s*"
ELLIPSIS = "…"

# The sixteen colours of a terminal only: they follow the user's own theme.
_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_CODES = {
    "bold": "1", "dim": "2", "italic": "3",
    **{name: str(30 + n) for n, name in enumerate(_COLORS)},
    **{f"bright_{name}": str(90 + n) for n, name in enumerate(_COLORS)},
}  # fmt: skip


def cells_of(text: str) -> int:
    """Return the terminal columns of *text*: two for each wide character, none for combining ones."""
    return len(text) if text.isascii() else sum(map(_cells_of_letter, text))


def _cells_of_letter(letter: str) -> int:
    if unicodedata.east_asian_width(letter) in "WF":
        return 2
    return 0 if unicodedata.category(letter) in ("Mn", "Me") else 1


LINK = "link="


class Text:
    """A string of styled parts: `bold`, `dim`, `red`, `bold red`, `link=ADDRESS`, …; *style* applies to all."""

    def __init__(self, text: str = "", style: str = "", *, no_wrap: bool = False, overflow: str = "") -> None:
        self.style, self.no_wrap, self.overflow = style, no_wrap, overflow
        self._parts = [(text, "")] if text else []

    @property
    def plain(self) -> str:
        """The text without its styles."""
        return "".join([text for text, _ in self._parts])

    def append(self, text: Union[str, Text], style: str = "") -> Text:
        """Add *text* at the end, and return this object."""
        if isinstance(text, Text):
            self._parts += text.styled()
        elif self._parts and self._parts[-1][1] == style:
            self._parts[-1] = (self._parts[-1][0] + text, style)
        else:
            self._parts.append((text, style))
        return self

    @classmethod
    def assemble(cls, *parts: Union[str, Text, tuple[str, str]]) -> Text:
        """Return one text of *parts*; a pair is a string and its style."""
        whole = cls()
        for part in parts:
            whole.append(*part) if isinstance(part, tuple) else whole.append(part)
        return whole

    def join(self, texts: Iterable[Text]) -> Text:
        """Return *texts* with this one between them."""
        whole = Text()
        for number, text in enumerate(texts):
            if number:
                whole.append(self)
            whole.append(text)
        return whole

    def styled(self) -> Iterator[tuple[str, str]]:
        """Yield the parts, each with its whole style."""
        for text, style in self._parts:
            yield text, f"{self.style} {style}".strip()

    def split(self, separator: str = "\n") -> list[Text]:
        """Return the texts between *separator* and *separator*."""
        found, at = [], 0
        for piece in self.plain.split(separator):
            found.append(self._slice(at, at + len(piece)))
            at += len(piece) + len(separator)
        return found

    def truncate(self, width: int, *, overflow: str = "") -> None:
        """Truncate to *width* columns; with `ellipsis` the last column shows the truncation."""
        plain = self.plain
        if cells_of(plain) <= width:
            return
        room = width - (overflow == "ellipsis")
        end = _letters_in(plain, max(room, 0))
        self._parts = list(self._slice(0, end)._parts)
        if overflow == "ellipsis" and width > 0:
            self.append(ELLIPSIS, self._parts[-1][1] if self._parts else "")

    def rstrip(self) -> None:
        """Remove trailing spaces."""
        self._parts = self._slice(0, len(self.plain.rstrip()))._parts

    def wrapped(self, width: int, *, whole_words: bool = False) -> list[Text]:
        """Return the text wrapped to *width* columns between words; an indent is kept.

        Longer words are broken, or with *whole_words* stand out.
        """
        lines = self.split("\n") if "\n" in self.plain else [self]
        return [piece for line in lines for piece in line._wrapped_line(max(width, 1), whole_words)]

    def _wrapped_line(self, width: int, whole_words: bool) -> Iterator[Text]:
        plain = self.plain
        if cells_of(plain) <= width:
            yield self
            return
        if self.no_wrap:
            self.truncate(width, overflow=self.overflow)
            yield self
            return
        indent = " " * min(len(plain) - len(plain.lstrip()), width - 1)
        begin = 0
        for end in _breaks(plain, width, len(indent), whole_words):
            line = Text.assemble(indent if begin else "", self._slice(begin, end))
            line.rstrip()
            yield line
            begin = end

    def _slice(self, begin: int, end: int) -> Text:
        found = Text(style=self.style, no_wrap=self.no_wrap, overflow=self.overflow)
        at = 0
        for text, style in self._parts:
            piece = text[max(begin - at, 0) : max(end - at, 0)]
            if piece:
                found._parts.append((piece, style))
            at += len(text)
        return found

    def ansi(self) -> str:
        """Return the text with the escape sequences of its styles."""
        pieces = []
        for text, style in self.styled():
            codes = ";".join([_CODES[word] for word in style.split() if word in _CODES])
            piece = f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
            address = next((word[len(LINK) :] for word in style.split() if word.startswith(LINK)), "")
            # OSC 8, as terminals take hyperlinks; an address has no character that could end it.
            pieces.append(
                f"\x1b]8;;{address}\x1b\\{piece}\x1b]8;;\x1b\\" if address and text.strip() else piece
            )
        return "".join(pieces)

    def __len__(self) -> int:
        return sum([len(text) for text, _ in self._parts])

    def __str__(self) -> str:
        return self.plain


def _letters_in(text: str, width: int) -> int:
    """Return how many characters of *text* fit into *width* columns."""
    if text.isascii():
        return width
    taken = 0
    for number, letter in enumerate(text):
        taken += _cells_of_letter(letter)
        if taken > width:
            return number
    return len(text)


def _breaks(line: str, width: int, indent: int, whole_words: bool) -> Iterator[int]:
    """Yield the end of each line when *line* is wrapped at *width* columns; longer words are broken, or stand out."""
    room, begin, at = width, 0, 0
    for match in re.finditer(_WORD, line):
        at = match.start()
        if at > begin and cells_of(line[begin : match.end()].rstrip()) > room:
            yield at
            begin, room = at, width - indent
        while not whole_words and cells_of(line[begin : match.end()].rstrip()) > room:
            begin += max(_letters_in(line[begin:], room), 1)
            yield begin
            room = width - indent
    yield len(line)


class _Column(NamedTuple):
    title: str
    justify: str
    no_wrap: bool
    overflow: str  # fold: wrapped; ellipsis: truncated
    gives_way: bool  # if the table is wider than the screen


class Table:
    """Columns side by side, separated by two spaces."""

    def __init__(self, *, header_style: str = "", show_header: bool = True) -> None:
        self._header_style, self._show_header = header_style, show_header
        self._columns: list[_Column] = []
        self._rows: list[list[Text]] = []

    def add_column(
        self, title: str, *, justify: str = "left", no_wrap: bool = False, overflow: str = "fold"
    ) -> None:
        """Add a column; with *no_wrap* it keeps its width, unless *overflow* is `ellipsis`: then it is truncated."""
        gives_way = not no_wrap or overflow == "ellipsis"
        self._columns.append(_Column(title, justify, no_wrap, overflow, gives_way))

    def add_numbers(self, *titles: str) -> None:
        """Add right-justified columns that keep their width."""
        for title in titles:
            self.add_column(title, justify="right", no_wrap=True)

    def add_row(self, *cells: Union[str, Text]) -> None:
        """Add a row."""
        self._rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def lines(self, width: int) -> Iterator[Text]:
        """Yield the table in lines of at most *width* columns, as far as its numbers allow."""
        head = [[Text(column.title, self._header_style) for column in self._columns]]
        rows = [*(head if self._show_header else []), *self._rows]
        widths = [0] * len(self._columns)
        for row in rows:
            for number, cell in enumerate(row):
                widths[number] = max(widths[number], *map(cells_of, cell.plain.split("\n")))
        self._narrow(widths, width)
        for row in rows:
            yield from self._lines_of(row, widths)

    def _narrow(self, widths: list[int], width: int) -> None:
        """Reduce *widths* by the excess, from the widest of the flexible columns."""
        for _ in range(sum(widths) + _GAP * (len(widths) - 1) - width):
            able = [n for n, c in enumerate(self._columns) if c.gives_way and widths[n] > _NARROWEST]
            if not able:
                return
            widths[max(able, key=widths.__getitem__)] -= 1

    def _lines_of(self, row: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
        last = self._columns[-1]
        cells = [
            _cell(text, *pair, last=pair[0] is last) for text, pair in zip(row, zip(self._columns, widths))
        ]
        for number in range(max(map(len, cells), default=0)):
            line = Text()
            for column, width, cell in zip(self._columns, widths, cells):
                piece = cell[number] if number < len(cell) else Text()
                blanks = " " * (width - cells_of(piece.plain) + _GAP)
                if column.justify == "right":
                    line.append(blanks[_GAP:]).append(piece).append(blanks[:_GAP])
                else:
                    line.append(piece).append(blanks)
            line.rstrip()
            yield line


def new_table(*numbers: str, last: str) -> Table:
    """Return a table with columns of *numbers*, and the column of words *last*."""
    table = Table(header_style="dim")
    table.add_numbers(*numbers)
    table.add_column(last)
    return table


def _cell(text: Text, column: _Column, width: int, *, last: bool) -> list[Text]:
    if column.no_wrap:
        lines = text.split("\n")
        for line in lines if column.gives_way else ():
            line.truncate(width, overflow=column.overflow)
        return lines
    # Nothing stands to the right of the last column: a path or a name may go over the edge, and can be copied whole.
    return text.wrapped(width, whole_words=last and column.justify == "left")


# A series of numbers as one line of characters.


def thinned(course: Sequence[int], count: int) -> list[int]:
    """Return at most *count* values of *course*: both ends, and between them the maximum of each interval."""
    if len(course) <= count or count < 3:
        return list(course) if len(course) <= count else [max(course)][:count]
    within = course[1:-1]
    cuts = [number * len(within) // (count - 2) for number in range(count - 1)]
    return [course[0], *(max(within[a:b]) for a, b in zip(cuts, cuts[1:])), course[-1]]


def sparkline(course: Sequence[int], levels: str) -> str:
    """Return *course* as one line of characters, from the lowest of *levels* to the highest."""
    low, high = min(course), max(course)
    height = max(high - low, 1)
    return "".join(levels[1 + round((value - low) * (len(levels) - 2) / height)] for value in course)


# Links that open a place of a source file in the user's editor.


_EDITORS = {
    "vscode": "vscode://file{path}:{line}",
    "vscodium": "vscodium://file{path}:{line}",
    "idea": "idea://open?file={path}&line={line}",
    "kitty": "file://{host}{path}#{line}",
    "file": "file://{host}{path}",
}
_TEMPLATE = r"([a-z][a-z0-9+.-]*):(?:[!#-;=?-_a-z~]|\{(?:path|line|host)\})*"  # as a URL is written
_RUN_BY_BROWSERS = ("javascript", "data", "vbscript")


class Links(NamedTuple):
    """Makes the addresses by which an editor opens files."""

    template: str

    @classmethod
    def read(cls, text: str, origin: str) -> Optional[Links]:
        """Return the links of *text*: an editor's name, or an address with {path} and {line}; None: none are wanted.

        *origin* is what gave it. Raises InputError.
        """
        if text in ("", "none"):
            return None
        template = _EDITORS.get(text, text)
        match = re.fullmatch(_TEMPLATE, template)
        if match is None or "{path}" not in template or match[1] in _RUN_BY_BROWSERS:
            raise InputError(
                f"{origin} '{printable(text)}' is no address that opens a file",
                slug="bad-links",
                hint=f"{', '.join(_EDITORS)}, none, or as in {_EDITORS['vscode']}",
            )
        return cls(template)

    def address(self, path: str, line: Optional[int]) -> str:
        """Return the address of a line of the file *path*, with every character escaped that could end or change it."""
        from urllib.parse import quote  # only where links are wanted

        parts = {"path": quote(os.fsencode(path)), "line": str(line or 1), "host": quote(os.uname().nodename)}
        return re.sub(r"\{(path|line|host)\}", lambda match: parts[match[1]], self.template)


# The source line of a frame, found, read safely, and highlighted.
#
# A profile may be untrusted, and name any file: only files with suffixes of sources are read, and if roots are
# given, only those below them after resolving links.


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
# Token type → style.
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


class Source(NamedTuple):
    """A source file as it was found."""

    path: str
    changed: float  # seconds since 1970
    lines: Sequence[bytes]


class SourceLines:
    """Reads lines of source files, each file once; unreadable ones are None."""

    def __init__(self, folders: Sequence[str] = (), roots: Optional[Sequence[str]] = None) -> None:
        """*folders* are searched for files without a folder; only files below *roots* and them are read; None: all."""
        self._folders = [Path(folder) for folder in folders]
        self._roots = roots if roots is None else [*_SYSTEM, *map(_beneath, [*roots, *folders])]
        self._withheld: set[str] = set()
        self._shown: set[str] = set()
        self._files: dict[str, Optional[Source]] = {}
        self._lexers: dict[str, Lexer] = {}

    def line(self, file: Optional[str], number: Optional[int]) -> Optional[str]:
        """Return line *number* (from 1) of *file*, without its indentation; None if it is unavailable.

        A file without a folder is searched for in the given folders, never in the current one.
        """
        found = self.indented_line(file, number)
        return None if found is None else found.strip() or None

    def indented_line(self, file: Optional[str], number: Optional[int]) -> Optional[str]:
        """Return what line() does, as it is indented, and an empty line as "" (the file has it)."""
        source = None if file is None or number is None else self.source(file)
        if source is None or number is None or not 1 <= number <= len(source.lines):
            return None
        return _readable(source.lines[number - 1])

    def source(self, file: str) -> Optional[Source]:
        """Return *file* as it was found; None if it was not, or may not be read."""
        if file not in self._files:
            self._files[file] = self._read(file)
        return self._files[file]

    def link(self, links: Optional[Links], file: Optional[str], line: Optional[int]) -> str:
        """Return the address of a place, for a file that was found and may be shown; "" for others."""
        source = self.source(file) if links is not None and file is not None else None
        return links.address(source.path, line) if links is not None and source is not None else ""

    def use(self, file: str, path: str) -> None:
        """Take *path*, which the user has named, for *file*, if it is a source that can be read, wherever it is."""
        self._files[file] = self._read_lines(Path(path), is_named=True) or self.source(file)

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
        source = self.source(file)
        lines = source.lines[first - 1 : last] if source is not None else []
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

    def highlighted_line(self, file: Optional[str], number: Optional[int]) -> Optional[Text]:
        """Return line *number* (from 1) of *file*, highlighted; None if it is unavailable."""
        line = self.line(file, number)
        return None if line is None or file is None else self.highlighted(file, line)

    def highlighted(self, file: str, line: str) -> Text:
        """Return *line* of *file* highlighted for its language."""
        text = Text(no_wrap=True)
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

    def _read(self, file: str) -> Optional[Source]:
        path = PurePosixPath(file)
        if path.is_absolute():
            return self._read_lines(Path(file))
        for folder in self._folders:
            for candidate in (folder / path, folder / path.name):
                source = self._read_lines(candidate)
                if source is not None:
                    return source
        return None

    def _read_lines(self, path: Path, *, is_named: bool = False) -> Optional[Source]:
        # A debug file may name anything as its source: a FIFO must not block, a device or a huge file not be read.
        with contextlib.suppress(OSError, ValueError), open_regular(path) as stream:
            opened = os.readlink(f"/proc/self/fd/{stream.fileno()}")  # noqa: PTH115  (where links have led)
            if not re.fullmatch(_SOURCE, PurePosixPath(opened).suffix) and not opened.startswith(_SYSTEM):
                return None
            if self._roots is not None and not is_named and not opened.startswith(tuple(self._roots)):
                self._withheld.add(str(path))
                return None
            status = os.fstat(stream.fileno())
            if status.st_size <= _LARGEST_FILE_BYTES:
                lines = stream.read(_LARGEST_FILE_BYTES).split(b"\n")
                return Source(opened, status.st_mtime, lines if lines[-1] else lines[:-1])
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


# Rows on a narrow screen: the text of each below its numbers, because names don't fit beside them.


_INDENT = 2
_BETWEEN = "  "


class Stacked:
    """Takes rows as a Table does: cells of numbers, then the text."""

    def __init__(self, titles: Sequence[str]) -> None:
        self._titles = titles
        self._rows: list[tuple[list[Text], Text]] = []

    def add_row(self, *cells: Text) -> None:
        """Add a row; the last of *cells* may have several lines."""
        *numbers, where = cells
        found = [_named(cell, title) for title, cell in zip(self._titles, numbers) if cell.plain.strip()]
        self._rows.append((found, where))

    def lines(self, width: int) -> Iterator[Text]:
        """Yield the rows in lines of at most *width* columns, as far as their numbers allow."""
        for numbers, where in self._rows:
            if "\n" not in where.plain and _width_of([*numbers, where]) <= width:
                yield from _joined_lines([*numbers, where], width)
            else:
                yield from _joined_lines(numbers, width)
                for line in where.wrapped(self.room(width)):
                    yield Text.assemble(" " * _INDENT, line)

    @staticmethod
    def room(width: int) -> int:
        """Return the columns available for a row's text on a screen of *width*."""
        return width - _INDENT


def _named(cell: Text, title: str) -> Text:
    """Return *cell* in one line, with its heading if that is not clear."""
    text = Text(" ").join(cell.split("\n"))
    if text.plain in ("1", "+1", "-1") and title == "blocks":
        text.append(" block")
    elif title == "blocks" or (title == "of before" and text.plain.endswith("%")):
        text.append(f" {title}")
    return text


def _width_of(parts: Sequence[Text]) -> int:
    return sum(map(len, parts)) + len(_BETWEEN) * (len(parts) - 1)


def _joined_lines(parts: Sequence[Text], width: int) -> Iterator[Text]:
    """Yield *parts* in as many lines as necessary, without breaking any."""
    line: list[Text] = []
    for part in parts:
        if line and _width_of([*line, part]) > width:
            yield Text(_BETWEEN).join(line)
            line = []
        line.append(part)
    yield Text(_BETWEEN).join(line)
