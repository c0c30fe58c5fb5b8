"""The destination of a result: the standard output, or a file that is created completely or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Optional, TextIO, Union

from gdbmem.errors import InputError, UsageError
from gdbmem.text import printable

_PICTURES = {".svg": "svg", ".html": "html", ".htm": "html"}


def picture_kind(name: str, option: str) -> str:
    """Return "svg" or "html", by the suffix of *name*, which was given to *option*. Raises UsageError for any other."""
    kind = _PICTURES.get(Path(name).suffix.lower())
    if kind is None:
        raise UsageError(f"{option} makes .svg and .html, not '{printable(name)}'", hint=f"{option} FILE.svg")
    return kind


def open_named(path: Optional[str], *, force: bool = False) -> AbstractContextManager[Optional[TextIO]]:
    """Yield the stream of open_output() for a result besides the main one; None without *path*."""
    return contextlib.nullcontext() if path is None else open_output(path, force=force)


@contextlib.contextmanager
def open_output(path: Optional[str], *, force: bool = False) -> Iterator[TextIO]:
    """Yield a stream for the result; *path* None or ``-`` is the standard output.

    A device or FIFO (/dev/null, /dev/fd/63) is written directly: a rename would replace it by a file.
    A file is written under a temporary name in the same folder and renamed when the block has ended without error;
    on any error nothing is left behind. Open it before the long part of a command, so that a wrong path fails at
    once. Raises InputError if the file exists (without *force*) or can't be created.
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
    temporary = target.parent / f".gdbmem-{os.urandom(8).hex()}"  # tempfile takes 4 ms of CPU to import
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with _text(_ResultFile(descriptor, path)) as stream:
            yield stream
        try:
            _settle(temporary, target, force=force)
        except OSError as error:
            raise _failed(path, error) from error
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
