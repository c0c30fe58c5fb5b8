"""The user's gdbinit: which file that is, and a marked block in it; all else stays byte for byte."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from pathlib import Path

from gdbmem.errors import InputError
from gdbmem.text import printable

_FIRST = b"# >>> gdbmem >>> ('gdbmem install' made this; 'gdbmem uninstall' removes it)"
# The first line of the block lists what else uninstall has to revert.
_NO_NEWLINE = b" [the line above had no end]"
_NEW_FILE = b" [the file is new]"
_LAST = b"# <<< gdbmem <<<"
_FIRST_MARK = b"# >>> gdbmem >>>"
_SAFE = re.compile(rb"[A-Za-z0-9_./+@%=,\x80-\xff-]")
_XDG_SINCE = (11,)  # gdb's version that began to look in ~/.config


def candidates() -> list[Path]:
    """Return the files that gdb may read as the user's gdbinit, in gdb's own order (gdb 11 and later)."""
    home = os.environ.get("HOME", "")
    config = os.environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    paths = [Path(config, "gdb", "gdbinit")] if config else []
    return [*paths, Path(home, ".gdbinit")] if home else paths


def users_gdbinit(gdb_version: str) -> Path:
    """Return the gdbinit that a gdb of *gdb_version* reads, or the one to create: ``~/.gdbinit``.

    A new file under ~/.config would hide a ~/.gdbinit that the user makes later, so none is made there.
    """
    paths = candidates()
    major = re.match(r"\D*(\d+)", gdb_version)
    if major and (int(major[1]),) < _XDG_SINCE:
        paths = paths[-1:]
    for path in paths:
        if path.exists():
            return path
    if not os.environ.get("HOME"):
        raise InputError(
            "$HOME is not set, so gdb reads no gdbinit", slug="no-home", hint="name one with --gdbinit FILE"
        )
    return paths[-1]


def block(folder: Path, *, auto_load: bool) -> bytes:
    """Return the block that puts *folder* on gdb's search path; raises InputError if gdb can't take it."""
    path = os.fsencode(folder)
    for character, name in ((b":", "a colon"), (b"\n", "a line break"), (b"\r", "a line break")):
        if character in path:
            raise InputError(
                f"gdb can't search {printable(str(folder))}: the path holds {name}",
                slug="unsearchable-path",
                hint="install gdbmem in a folder without it, or load it with gdb -x FOLDER/gdbmem",
            )
    # Outside quotes a backslash means the same to every gdb; inside them it does not.
    quoted = b"".join(
        byte if _SAFE.match(byte) else b"\\" + byte for byte in (path[i : i + 1] for i in range(len(path)))
    )
    lines = [_FIRST, b"directory " + quoted]
    if auto_load:
        lines.append(b"source gdbmem")
    return b"\n".join([*lines, _LAST]) + b"\n"


def with_block(content: bytes, new: bytes, *, new_file: bool = False) -> bytes:
    """Return *content* with the block *new*: in the place of the one that is there, else at the end."""
    ending = b"\r\n" if b"\r\n" in content and content.count(b"\n") == content.count(b"\r\n") else b"\n"
    first, _, rest = new.partition(b"\n")
    spans = _spans(content)
    if spans:
        start, end = spans[0]
        first = content[start:end].splitlines()[0]
    else:
        start = end = len(content)
        first += _NEW_FILE if new_file else b""
        if content and not content.endswith(b"\n"):
            content += ending
            start = end = len(content)
            first += _NO_NEWLINE
    # Copies of the block, should there be any, go.
    return content[:start] + (first + b"\n" + rest).replace(b"\n", ending) + without_block(content[end:])


def without_block(content: bytes) -> bytes:
    """Return *content* without our block; exactly the bytes that `with_block` added are removed."""
    for start, end in reversed(_spans(content)):
        before, after = content[:start], content[end:]
        first = content[start:end].splitlines()[0]
        if _NO_NEWLINE in first and not after:
            before = before[: -2 if before.endswith(b"\r\n") else -1]
        content = before + after
    return content


def is_our_file(content: bytes) -> bool:
    """Return whether install made the file with *content*, and it has not been changed since."""
    spans = _spans(content)
    return len(spans) == 1 and _NEW_FILE in content.splitlines()[0] and not without_block(content)


def _spans(content: bytes) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    start = None
    offset = 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        text = line.rstrip(b"\r\n")
        if text.startswith(_FIRST_MARK):
            if start is not None:
                raise _damaged(number)
            start = offset
        elif text == _LAST:
            if start is None:
                raise _damaged(number)
            spans.append((start, offset + len(line)))
            start = None
        offset += len(line)
    if start is not None:
        raise _damaged(content[:start].count(b"\n") + 1)
    return spans


def _damaged(line: int) -> InputError:
    return InputError(
        f"the gdbmem block in the gdbinit is damaged at line {line}",
        slug="gdbinit-damaged",
        hint=f"remove by hand the lines between '{_FIRST_MARK.decode()}' and '{_LAST.decode()}'",
    )


def read(path: Path) -> bytes:
    """Return the bytes of the gdbinit at *path*; b"" if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(
            f"cannot read {printable(str(path))}: {error.strerror}", slug="gdbinit", hint="name another file"
        ) from error


def write(path: Path, content: bytes) -> None:
    """Replace the gdbinit at *path*, whole or not at all; a link stays a link, the mode and owner stay."""
    target = path.resolve()
    if target.exists() and not (target.is_file() or target.is_dir()):
        # A rename would put a file in the place of a device, /dev/null for one.
        raise InputError(
            f"{printable(str(target))} is not a file",
            slug="gdbinit",
            hint="name a gdbinit that you may write to with --gdbinit FILE",
        )
    temporary = None
    try:
        old = target.stat() if target.exists() else None
        if old is None:
            target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".gdbinit-", dir=target.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        if old is not None:
            with contextlib.suppress(PermissionError):
                os.chown(temporary, old.st_uid, old.st_gid)
        Path(temporary).chmod(stat.S_IMODE(old.st_mode) if old else 0o644)
        Path(temporary).replace(target)
        temporary = None
    except OSError as error:
        raise InputError(
            f"cannot write {printable(str(target))}: {error.strerror}",
            slug="gdbinit",
            hint="name a gdbinit that you may write to with --gdbinit FILE",
        ) from error
    finally:
        if temporary:
            Path(temporary).unlink()


def remove(path: Path) -> None:
    """Remove the gdbinit at *path* (nothing but our block was in it)."""
    try:
        path.unlink()
    except OSError as error:
        raise InputError(
            f"cannot remove {printable(str(path))}: {error.strerror}",
            slug="gdbinit",
            hint="remove it by hand",
        ) from error


def difference(path: Path, before: bytes, after: bytes) -> str:
    """Return the change as a unified diff, safe to print."""
    import difflib  # not always needed

    def lines(content: bytes) -> list[str]:
        return [printable(line) for line in content.decode("utf-8", "surrogateescape").splitlines()]

    name = printable(str(path))
    old, new = lines(before), lines(after)
    return "\n".join(difflib.unified_diff(old, new, name, f"{name} (new)", lineterm="")) + "\n"
