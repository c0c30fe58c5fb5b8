"""Places where memory was allocated: their names, and their source lines, found, read safely, and highlighted."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Optional, TypeVar, Union

from gdbmem.errors import Notice
from gdbmem.files import open_regular
from gdbmem.model.calltree import LATER, Frame
from gdbmem.profiles.own_code import OWN, own_rank, qualified_name
from gdbmem.terminal import drawing
from gdbmem.text import plural, printable

if TYPE_CHECKING:
    from markupsafe import Markup
    from pygments.lexer import Lexer

    from gdbmem.formats.stacks import Stack
    from gdbmem.profiles.ranking import Row


Key = TypeVar("Key")
SiteKey = tuple[Optional[str], Optional[str], Optional[int], Optional[str]]  # as Frame.key

_NAME_ROOM = 60
_OF_EVERY_PACKAGE = ("__init__.py", "__main__.py")
_OPERATOR = re.compile(r"\boperator\b(?![^<]*::)")
_STRING = re.compile(
    r"std::(?:__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>|std::__cxx11::string"
)


def growing_site(before: Mapping[Key, int], after: Mapping[Key, int]) -> Optional[tuple[Key, int]]:
    """Return the key whose bytes grew most from *before* to *after*, and by how much; None: none grew."""
    best: Optional[tuple[Key, int]] = None
    for key, size_bytes in after.items():
        delta_bytes = size_bytes - before.get(key, 0)
        if delta_bytes > (best[1] if best else 0):
            best = (key, delta_bytes)
    return best


def stack_sites(stacks: Iterable[Stack], chains: Sequence[Sequence[Frame]]) -> dict[SiteKey, int]:
    """Return the bytes of each user site in *stacks*, whose numbers refer to *chains* of frames.

    The site of a stack is chosen by `analysis.profiles.own_code.own_frame`.
    """
    found: dict[SiteKey, int] = {}
    for stack in stacks:
        site, best = Frame().key, -1
        for frame in (frame for number in stack.frames for frame in chains[number]):
            rank = own_rank(frame)
            if rank > best:
                site, best = frame.key, rank
            if best == OWN:
                break
        found[site] = found.get(site, 0) + stack.bytes
    return found


def describe_site(site: Union[Frame, SiteKey]) -> str:
    """Return ``decoder.cpp:120 (Decoder::remember)``, or ``sqlite3Malloc (in libsqlite3.so)`` without a file.

    *site* is a frame or its key.
    """
    frame = site if isinstance(site, Frame) else Frame(*site)
    if frame.key == Frame().key:
        return "call sites that are not listed"
    name = function_name(frame, room=_NAME_ROOM)
    if frame.file is None:
        return f"{name} ({place_without_file(frame)})"
    if has_place_only(frame):
        return name
    file = printable(short_file(frame.file))
    in_brackets = name if name.startswith("(") and name.endswith(")") else f"({name})"  # "(below main)"
    return f"{file if frame.line is None else f'{file}:{frame.line}'} {in_brackets}"


def place_without_file(frame: Frame) -> str:
    """Return ``in libx.so`` for a frame that has no source file."""
    return f"in {printable(PurePosixPath(frame.object).name)}" if frame.object else "no source known"


def function_name(frame: Frame, *, room: int = 0, ellipsis: str = "…") -> str:
    """Return the name of *frame*'s function without parameters, in *room* columns if given.

    A frame with a place only, as in tracemalloc, is named by that.
    """
    if frame.function is None:
        return f"{printable(short_file(frame.file or ''))}:{frame.line}" if has_place_only(frame) else "???"
    name = plain_strings(printable(qualified_name(frame.function)))
    if room and len(name) > room:
        name = _without_template_arguments(name, ellipsis)
    if room and len(name) > room:
        kept = max(room, 8) - 1
        # A name that could not be demangled begins with the function's name; others end with it.
        name = name[:kept] + ellipsis if name.startswith("_Z") else ellipsis + name[-kept:]
    return name


def has_place_only(frame: Frame) -> bool:
    """Return whether *frame* has a line and no function, as those of tracemalloc."""
    return frame.function is None and frame.file is not None and frame.line is not None


def short_file(file: str) -> str:
    """Return the last part of *file*; with its folder for names that occur in every Python package."""
    parts = PurePosixPath(file).parts
    return str(PurePosixPath(*parts[-2 if parts and parts[-1] in _OF_EVERY_PACKAGE else -1 :]))


def plain_strings(name: str) -> str:
    """Return *name* with the full type of std::string abbreviated."""
    return _STRING.sub("std::string", name)


def _without_template_arguments(name: str, ellipsis: str) -> str:
    # The brackets in "operator<" are not a template's.
    operator = _OPERATOR.search(name)
    end = operator.start() if operator else len(name)
    depth, kept = 0, []
    for char in name[:end]:
        if char == "<":
            depth += 1
            if depth == 1:
                kept.append(f"<{ellipsis}>")
        elif char == ">":
            depth -= 1
        elif depth == 0:
            kept.append(char)
    return "".join(kept) + name[end:]


# Frames and numbers for text reports: short function names, places, deltas, shares.


class Places:
    """File names as short as they stay distinct: ``decoder.cpp:120``, or ``a/io.cpp:3`` beside ``b/io.cpp:3``."""

    def __init__(self, frames: Iterable[Optional[Frame]]) -> None:
        self._folders: dict[str, set[str]] = {}
        for frame in frames:
            if frame is not None and frame.file is not None:
                self._folders.setdefault(PurePosixPath(frame.file).name, set()).add(frame.file)

    def place(self, frame: Frame) -> str:
        """Return where *frame* is: ``file:line``, or ``in libx.so``."""
        if frame.file is None:
            return place_without_file(frame)
        name = printable(self._short(frame.file))
        return name if frame.line is None else f"{name}:{frame.line}"

    def _short(self, file: str) -> str:
        parts = PurePosixPath(file).parts
        others = [
            PurePosixPath(o).parts for o in self._folders.get(parts[-1] if parts else "", ()) if o != file
        ]
        for count in range(len(PurePosixPath(short_file(file)).parts), len(parts)):
            if all(other[-count:] != parts[-count:] for other in others):
                return str(PurePosixPath(*parts[-count:]))
        return file


def full_place(frame: Frame) -> str:
    """Return where *frame* is with the whole path of its file."""
    if frame.file is None:
        return f"in {printable(frame.object)}" if frame.object else "no source known"
    return printable(frame.file if frame.line is None else f"{frame.file}:{frame.line}")


def full_function(frame: Frame) -> str:
    """Return the function of *frame* with its parameters, as in its symbol."""
    return plain_strings(printable(frame.function or ("" if has_place_only(frame) else "???")))


def unlisted_site(row: Row) -> str:
    """Return the label for the place of *row* without a known frame."""
    if not row.is_pruned:
        return "no frame recorded"
    return (
        "call sites that the file leaves out" if row.is_cut else "call sites under the threshold, not listed"
    )


def unlisted_callers(row: Row) -> str:
    """Return the label for the unlisted callers of *row*'s last frame."""
    return "callers that the file leaves out" if row.is_cut else "callers under the threshold, not listed"


def outside_row(name: str) -> str:
    """Return the text of the row for memory in no call tree; *name* is that of an OutsideHeap (model.profiles.diff)."""
    return name if name == LATER else f"{name}, outside the heap"


def share(part: int, whole: int) -> str:
    """Return ``98 %`` or ``all``; 100 % and 0 % never result from rounding."""
    if part == whole:
        return "all"
    percent = 100 * part / whole
    if percent > 99:
        return "over 99 %"
    return f"{percent:.0f} %" if percent >= 1 else "under 1 %"


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
