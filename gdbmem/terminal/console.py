"""The console for text reports: its width, its colours, and the characters that it can show."""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, NamedTuple, Optional, Protocol, TextIO, Union

from gdbmem.errors import InputError, Notice, UsageError
from gdbmem.terminal.drawing import ELLIPSIS, Links, Text
from gdbmem.text import format_duration, printable

if TYPE_CHECKING:
    import threading

    from rich.progress import Progress


# A line at the bottom of the terminal that names the work of a command, while it takes long.


_SECONDS_UNTIL_DRAWN = 1.0


class Working:
    """Shows *what* is done and for how long, on the standard error of a terminal, after a second; then clears it.

    A console that prints ends it, too. Without a terminal, or without rich (as in gdb's own Python), nothing is shown.
    """

    _shown: "ClassVar[Optional[Working]]" = None

    def __init__(self, what: str, *, after: float = _SECONDS_UNTIL_DRAWN) -> None:
        self._what, self._after = printable(what), after
        self._lock: threading.Lock
        self._timer: Optional[threading.Timer] = None
        self._drawn: Optional[Progress] = None
        self._is_over = False

    def __enter__(self) -> "Working":
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            import threading  # only on a terminal

            self._lock = threading.Lock()
            self._timer = threading.Timer(self._after, self._draw)
            self._timer.daemon = True
            self._timer.start()
            Working._shown = self
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Clear it, and draw no more."""
        if self._timer is None:
            return
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            Working._shown = None
            if self._drawn is not None:
                self._drawn.stop()
                self._drawn = None

    @classmethod
    def end_shown(cls) -> None:
        """End what is shown, if anything is: something will be printed."""
        if cls._shown is not None:
            cls._shown.end()

    @classmethod
    def print_above(cls, sentence: str) -> None:
        """Print *sentence* on the standard error, above what is shown."""
        shown = cls._shown
        if shown is None or shown._drawn is None:
            print(sentence, file=sys.stderr, flush=True)
        else:
            shown._drawn.console.print(sentence, markup=False, highlight=False)

    def _draw(self) -> None:
        try:
            from rich.console import Console  # only for what takes long
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:
            return
        with self._lock:
            if self._is_over:
                return
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
            console = Console(stderr=True, highlight=False)
            self._drawn = Progress(
                *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._drawn.add_task(self._what, total=None)
            self._drawn.start()
            self._drawn.console.show_cursor()  # nothing would show it again if this process were killed


_WIDTH_OF_A_PIPE = 100
_LINKS = "GDBMEM_LINKS"
_HEIGHT_OF_A_PIPE = 25
_NARROWEST = 40


class Glyphs(NamedTuple):
    """The non-ASCII characters that reports use; each replacement has the same width."""

    ellipsis: str = ELLIPSIS
    plus_minus: str = "±"
    caller: str = "←"
    bar: str = "│"
    corner: str = "└"
    rule: str = "─"
    branch: str = "├"
    levels: str = " ▁▂▃▄▅▆▇█"
    shade: str = "░"
    tree: str = "▴"
    peak: str = "▲"


ASCII = Glyphs("~", "~", "<", "|", "`", "-", "|", "  ...:::#", ".", "'", "^")


class TextBlock(Protocol):
    """Several lines that depend on the width: a table."""

    def lines(self, width: int) -> Iterator[Text]: ...


class Console:
    """Prints text in styles to *file*: with escape sequences if it supports colours, otherwise plain text."""

    def __init__(
        self,
        file: IO[str],
        *,
        width: int = _WIDTH_OF_A_PIPE,
        height: int = _HEIGHT_OF_A_PIPE,
        is_terminal: bool = False,
        has_colors: bool = False,
    ) -> None:
        self.file, self.width, self.height = file, width, height
        self.is_terminal, self.has_colors = is_terminal, has_colors
        self.encoding = getattr(file, "encoding", None) or "utf-8"
        self.links: Optional[Links] = None  # to places in source files

    def print(
        self, what: Union[str, Text, TextBlock] = "", style: str = "", *, soft_wrap: bool = False
    ) -> None:
        """Print *what* and a newline; text is broken into lines at the width, unless *soft_wrap*."""
        Working.end_shown()
        if isinstance(what, str):
            what = Text(what, style)
        elif isinstance(what, Text) and style:
            what = Text("", style).append(what)
        if not isinstance(what, Text):
            lines = list(what.lines(self.width))
        else:
            lines = [what] if soft_wrap else what.wrapped(self.width)
        self.file.write("".join([f"{self.shown(line)}\n" for line in lines]))

    def shown(self, line: Text) -> str:
        """Return the written form of *line*: with escape sequences if there are colours."""
        text = line.ansi() if self.has_colors else line.plain
        return text if glyphs_for(self).ellipsis == ELLIPSIS else text.replace(ELLIPSIS, ASCII.ellipsis)


def make_console(stream: IO[str], *, width: Optional[int] = None, color: Optional[bool] = None) -> Console:
    """Return a console that writes to *stream*; None values are determined from the stream and the environment.

    Colour needs a terminal, and no NO_COLOR; links also $GDBMEM_LINKS. A pipe has 100 columns unless COLUMNS is set.
    """
    is_terminal = _is_terminal(stream)
    if color is None:
        color = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    console = Console(
        stream,
        width=max(width or _width_of(stream), _NARROWEST),
        height=_height_of(stream) if is_terminal else _HEIGHT_OF_A_PIPE,
        is_terminal=is_terminal or color,
        has_colors=color,
    )
    if color and os.environ.get(_LINKS):
        console.links = Links.read(os.environ[_LINKS], f"${_LINKS}")
    return console


def glyphs_for(console: Console) -> Glyphs:
    """Return the characters that the encoding of *console* supports."""
    return Glyphs() if console.encoding.lower().startswith(("utf-8", "utf8", "utf_8", "utf-16")) else ASCII


def columns_that_fit(
    rows: Sequence[Sequence[str]], width: int, *, give_up: Sequence[int], shortest: Optional[int] = None
) -> list[int]:
    """Return which columns of *rows* (the headings are a row) to show in *width*: numbers must not be truncated.

    Columns in *give_up* are removed, in that order, until the rest fits with two spaces in between; the first column
    can be truncated to *shortest* characters.
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    if shortest is not None:
        widths[0] = min(widths[0], shortest)
    kept = list(range(len(widths)))
    for column in give_up:
        if sum(widths[c] + 2 for c in kept) - 2 <= width:
            break
        kept.remove(column)
    return kept


def print_sentence(console: Console, text: str, style: str = "", *, label: str = "") -> None:
    """Print *text*, wrapped on a terminal only: elsewhere a sentence is one line."""
    glyphs = glyphs_for(console)
    shown = text.replace("…", glyphs.ellipsis).replace("±", glyphs.plus_minus)
    console.print(Text.assemble((label, "yellow"), (shown, style)), soft_wrap=not console.is_terminal)


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _width_of(stream: IO[str]) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _WIDTH_OF_A_PIPE
    except (AttributeError, ValueError, OSError):
        return _WIDTH_OF_A_PIPE


def _height_of(stream: IO[str]) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).lines or _HEIGHT_OF_A_PIPE
    except (AttributeError, ValueError, OSError):
        return _HEIGHT_OF_A_PIPE


# The destination of a result: the standard output, or a file that is created completely or not at all.


_PICTURES = {".svg": "svg", ".html": "html", ".htm": "html"}


def picture_kind(name: str, option: str) -> str:
    """Return "svg" or "html", by the suffix of *name*, which was given to *option*. Raises UsageError for any other."""
    kind = _PICTURES.get(Path(name).suffix.lower())
    if kind is None:
        raise UsageError(f"{option} makes .svg and .html, not '{printable(name)}'", hint=f"{option} FILE.svg")
    return kind


def open_named(path: Optional[str], *, force: bool = False) -> AbstractContextManager[Optional[TextIO]]:
    """Yield the stream of open_output() for a result besides the main one; None without *path*.

    What was written to it stays if the reader of the main one goes (`gdbmem explain PID --map FILE | head`): write
    all of it before anything is printed.
    """
    return contextlib.nullcontext() if path is None else open_output(path, force=force, is_beside=True)


class Outputs(NamedTuple):
    """The output files, opened before the recording begins."""

    text: TextIO
    plot: Optional[TextIO]


@contextlib.contextmanager
def prepare_outputs(args: argparse.Namespace) -> Iterator[Outputs]:
    """Open the files that *args* name; raises InputError if one can't be opened."""
    with (
        open_output(args.output, force=args.force) as text,
        open_named(args.plot or None, force=args.force) as plot,
    ):
        yield Outputs(text, plot)


@contextlib.contextmanager
def open_output(path: Optional[str], *, force: bool = False, is_beside: bool = False) -> Iterator[TextIO]:
    """Yield a stream for the result; *path* None or ``-`` is the standard output.

    A device or FIFO (/dev/null, /dev/fd/63) is written directly: a rename would replace it by a file.
    A file is written under a temporary name in the same folder and renamed when the block has ended without error;
    on any error nothing is left behind, but with *is_beside* what was written before a closed pipe. Open it before
    the long part of a command, so that a wrong path fails at once. Raises InputError if the file exists (without
    *force*) or can't be created.
    """
    if path is None or path == "-":
        yield sys.stdout
        return
    target = Path(path)
    if target.exists() and not (target.is_file() or target.is_dir()):
        with _text(_open_special(path)) as stream:
            yield stream
        return
    if target.exists() and not force:
        raise InputError(
            f"{printable(path)} exists", slug="output-exists", hint="name another file, or add --force"
        )
    target = target.resolve()  # a link stays a link
    temporary = target.parent / f".gdbmem-{os.urandom(8).hex()}"  # tempfile is slow to import
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        reader_gone: Optional[BrokenPipeError] = None
        with _text(_ResultFile(descriptor, path)) as stream:
            try:
                yield stream
            except BrokenPipeError as error:
                if not is_beside or not stream.tell():
                    raise
                reader_gone = error
        try:
            _settle(temporary, target, force=force)
        except OSError as error:
            raise _failed(path, error) from error
        if reader_gone is not None:
            raise reader_gone
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


class _ResultFile(io.FileIO):
    """Names the file that could not be written; other errors in the block are not translated."""

    def __init__(self, file: Union[str, int], path: str) -> None:
        super().__init__(file, "w")
        self._path = path

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:  # the reader of a FIFO has closed it
            raise
        except OSError as error:
            raise _failed(self._path, error) from error


def _text(file: _ResultFile) -> TextIO:
    return io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8", errors="backslashreplace")


def _failed(path: str, error: OSError) -> InputError:
    return InputError(
        f"writing {printable(path)} failed: {error.strerror}",
        slug="output-unwritable",
        hint="free some space or name another file",
    )


def _open_special(path: str) -> _ResultFile:
    try:
        return _ResultFile(path, path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> InputError:
    return InputError(
        f"cannot write {printable(path)}: {error.strerror}",
        slug="output-unwritable",
        hint="name a file in a folder that you may write to",
    )


def _settle(temporary: Path, target: Path, *, force: bool) -> None:
    umask = os.umask(0)
    os.umask(umask)
    temporary.chmod(0o666 & ~umask)
    if force:
        temporary.replace(target)
        return
    try:
        os.link(temporary, target)  # fails if another process has created the file meanwhile
    except FileExistsError:
        raise InputError(
            f"{printable(str(target))} exists", slug="output-exists", hint="name another file, or add --force"
        ) from None


# Lines below a result: the pause, and notices.


def print_notices(notices: Sequence[Notice], console: Console) -> None:
    """Print *notices*, each once, after an empty line."""
    said = dict.fromkeys(printable(notice.sentence) for notice in notices)
    if said:
        console.print()
    for message in said:
        print_sentence(console, message, label="note: ")


def print_pause(seconds: Optional[float], console: Console) -> None:
    """Print the time for which the process was stopped, if it is known."""
    if seconds is not None:
        console.print(f"The process was stopped for {format_duration(seconds)}.")


# Progress messages on stderr.


def say(sentence: str) -> None:
    """Print *sentence*; a closed stderr does not end the command."""
    with contextlib.suppress(BrokenPipeError):
        Working.print_above(f"gdbmem: {sentence}")
