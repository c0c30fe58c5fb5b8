"""The program to be launched: its path, whether it can run, and the parts that a profiler can't see."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, Optional

from gdbmem.errors import ExitStatus, InputError, Notice
from gdbmem.runs.run import current_folder
from gdbmem.text import printable

_PT_INTERP = 3
_MOST_NESTED = 5  # nesting of interpreters that are scripts; the kernel's limit
_MALLOC_OF_PYTHON = ("malloc", "malloc_debug")


class NotFoundError(InputError):
    """No such program."""

    status_of_launch = ExitStatus.NOT_FOUND


class NotExecutableError(InputError):
    """The program can't be executed."""

    status_of_launch = ExitStatus.NOT_EXECUTABLE


class Program(NamedTuple):
    """A program that was found and examined."""

    path: Path  # as it will be started; absolute
    symbols: Path  # the file for gdb: the program itself, or a script's interpreter
    is_static: bool
    script: tuple[str, ...] = ()  # for a script: the command line with its interpreter as the first word

    def notices(self, environment: Mapping[str, str], *, pages: bool, engine: str = "massif") -> list[Notice]:
        """Return notices on memory of this program that valgrind misses in *environment*; none with *pages*."""
        if pages:
            return []
        found = []
        if self.is_static:
            found.append(
                Notice(
                    "static-binary",
                    f"{printable(self.path.name)} is statically linked: {engine} can't replace its malloc and would "
                    "count 0 bytes; link it dynamically, or count pages with "
                    f"{'' if engine == 'massif' else '--massif '}--pages-as-heap",
                )
            )
        if (
            self.symbols.name.startswith("python")
            and environment.get("PYTHONMALLOC") not in _MALLOC_OF_PYTHON
        ):
            found.append(
                Notice(
                    "python-arenas",
                    f"Python allocates small objects from its own arenas, which {engine} does not see separately; "
                    "add --env PYTHONMALLOC=malloc to see each object",
                )
            )
        return found


def find_program(name: str, *, folder: Optional[Path] = None) -> Program:
    """Return the program *name*: a path (relative to *folder*), or a word looked up in PATH.

    Raises NotFoundError or NotExecutableError, with the reason.
    """
    path = _locate(name, folder or current_folder())
    if path.is_dir():
        raise NotExecutableError(
            f"{printable(str(path))} is a folder", slug="not-executable", hint="name the program in it"
        )
    if not os.access(path, os.X_OK):
        raise NotExecutableError(
            f"{printable(str(path))} is not executable",
            slug="not-executable",
            hint="if it is the program itself, type: chmod +x",
        )
    mode = path.stat().st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise NotExecutableError(
            f"{printable(str(path))} is setuid or setgid: valgrind can't run such programs,"
            " and they ignore a profiler that is preloaded",
            slug="setuid-program",
            hint="launch a copy of it without that bit, as the user it would run as",
        )
    return examine(path)


def execute(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run the program *name* in place of this process; raises as find_program does."""
    path = find_program(name).path
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and a program inherits that
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    os.execve(path, [name, *arguments], {**os.environ, **environment})


def _locate(name: str, folder: Path) -> Path:
    if "/" not in name:
        # As in a shell: a bare word is looked up in PATH only.
        found = shutil.which(name)
        if found:
            return Path(found).absolute()
        beside = folder / name
        hint = (
            f"did you mean ./{printable(name)}?" if beside.is_file() else "check the name, or give its path"
        )
        raise NotFoundError(
            f"there is no program '{printable(name)}' in PATH", slug="program-not-found", hint=hint
        )
    path = folder / name
    if not path.exists():
        raise NotFoundError(
            f"there is no program {printable(str(path))}",
            slug="program-not-found",
            hint="check the path, and whether it has been built",
        )
    return path.absolute()


def examine(path: Path, *, nested: int = 0) -> Program:
    """Examine the program at *path*; raises NotExecutableError for a file that no kernel would execute."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4096)
    except OSError:
        # Executable but not readable: valgrind will report this itself.
        return Program(path, path, is_static=False)
    if head.startswith(b"#!"):
        return _script(path, head, nested)
    if not head.startswith(b"\x7fELF"):
        raise NotExecutableError(
            f"{printable(str(path))} is neither a program (ELF) nor a script that starts with #!",
            slug="not-executable",
            hint="name the program itself",
        )
    return Program(path, path, is_static=not _has_interpreter(path))


def _script(path: Path, head: bytes, nested: int) -> Program:
    words = _interpreter_words(head)
    found = shutil.which(words[0]) if words else None
    if found is None or nested == _MOST_NESTED:
        raise NotExecutableError(
            f"the interpreter that {printable(str(path))} names in its first line is missing",
            slug="not-executable",
            hint="correct the #! line",
        )
    # An interpreter may be a script itself, as the python3 of pyenv is.
    interpreter = examine(Path(found), nested=nested + 1)
    before = interpreter.script or (found,)
    symbols = interpreter.symbols if interpreter.script else Path(found).resolve()
    return Program(path, symbols, is_static=False, script=(*before, *words[1:], str(path)))


def _interpreter_words(head: bytes) -> Sequence[str]:
    # As the kernel parses the line: a program, and the whole rest as one argument.
    line = os.fsdecode(head[2:].split(b"\n", 1)[0]).strip(" \t\r")
    program, *rest = line.split(None, 1)[:2] or [""]
    if Path(program).name != "env":
        return [program, *rest]
    words = "".join(rest).split()
    while words and (words[0].startswith("-") or "=" in words[0]):
        words = words[1:]
    return words


def _has_interpreter(path: Path) -> bool:
    """Return whether the ELF file names a dynamic loader (PT_INTERP); True if that can't be read."""
    try:
        with path.open("rb") as stream:
            header = stream.read(64)
            wide, order = header[4] == 2, "<" if header[5] == 1 else ">"
            offset = struct.unpack_from(order + ("Q" if wide else "I"), header, 32 if wide else 28)[0]
            size, count = struct.unpack_from(order + "HH", header, 54 if wide else 42)
            stream.seek(offset)
            table = stream.read(size * count)
            types = [struct.unpack_from(order + "I", table, i * size)[0] for i in range(count)]
    except (OSError, struct.error, IndexError, ValueError):
        return True
    return _PT_INTERP in types
