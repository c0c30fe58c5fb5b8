"""Filling the private folder of gdb's Python with pygments: pure Python only."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from gdbmem.errors import InputError, ToolError
from gdbmem.files import NEUTRAL_FOLDER, read_cached, replace_file, write_cached
from gdbmem.setup.folders import data_folder, private_folder
from gdbmem.setup.gdb_python import GdbPython, find_gdb, gdb_python, quiet_gdb, run_python_in_gdb
from gdbmem.text import printable

if TYPE_CHECKING:
    import importlib.metadata

_WANTED = "pygments>=2.20"
_MANIFEST = "gdbmem-packages.json"
_STAMPS = "gdbs.json"
_PIP_SECONDS = 600.0
_IMPORTS = "pygments.lexers.c_cpp, pygments.util"
_CLAUSE = re.compile(r"\s*(>=|<=|!=|==|~=|>|<)\s*(\d+(?:\.\d+)*)(\.\*)?\s*")


class _NotCopyable(Exception):  # noqa: N818  (no failure: pip is tried next)
    """The reason why this environment's own packages don't do."""


def known_gdb(gdb: str) -> GdbPython:
    """Return the answer of `gdb_python` for *gdb*, from a stamp if the program is still the same file."""
    path = Path(gdb).resolve()
    stamps = read_cached(Path(data_folder(), _STAMPS))
    now = path.stat()
    stamp = [now.st_mtime_ns, now.st_size, now.st_ino]
    entry = stamps.get(str(path))
    if isinstance(entry, dict) and entry.get("stamp") == stamp:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            major, minor = entry["python"]
            return GdbPython(gdb, str(entry["version"]), (int(major), int(minor)))
    found = gdb_python(gdb)
    with path.open("rb") as stream:
        # A script that starts some gdb may start another one tomorrow.
        is_program = stream.read(4) == b"\x7fELF"
    if is_program:
        stamps[str(path)] = {"stamp": stamp, "version": found.version, "python": list(found.python)}
        write_cached(Path(data_folder(), _STAMPS), stamps)  # without it the next launch asks gdb again, 0.1 s
    return found


def packages_in(folder: Path) -> dict[str, str]:
    """Return what the private *folder* holds: package → version."""
    return {str(name): str(version) for name, version in read_cached(folder / _MANIFEST).items()}


def is_current(found: GdbPython) -> bool:
    """Return whether the private folder for *found* holds this environment's packages and gdb imports them."""
    folder = Path(private_folder(found.python))
    if not folder.is_dir():
        return False
    import importlib.metadata  # slow to import

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if packages_in(folder).get("pygments") != importlib.metadata.version("pygments"):
            return False
    return import_problem(found.gdb, folder) == ""


def fill_private_folder(found: GdbPython) -> Path:
    """Make (or replace) the private folder for *found*; return it.

    It is filled under another name, tested in gdb, and renamed, so two simultaneous calls do no harm. Raises
    InputError if it can't be written, ToolError if no packages for that Python were found.
    """
    folder = Path(private_folder(found.python))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as temporary:
            fresh = Path(temporary) / "packages"
            _fill(fresh, found)
            exchange_folders(fresh, folder, Path(temporary) / "old")
    except OSError as error:
        raise InputError(
            f"cannot write {printable(str(folder))}: {error.strerror}",
            slug="private-folder-unwritable",
            hint="name a folder that you may write to in $XDG_DATA_HOME",
        ) from error
    return folder


def import_problem(gdb: str, folder: Path) -> str:
    """Import the packages from *folder* in *gdb*; return what it complains of, "" when all is well."""
    code = (
        "import os, sys; sys.path.insert(0, os.environ['GDBMEM_TRY']); "
        f"import {_IMPORTS}; print('gdbmem-imports-ok' if pygments.__file__.startswith(sys.path[0]) else '')"
    )
    output, complaint = run_python_in_gdb(quiet_gdb(gdb), code, GDBMEM_TRY=str(folder))
    return "" if "gdbmem-imports-ok" in output else complaint or "the packages are not found"


def _fill(fresh: Path, found: GdbPython) -> None:
    try:
        versions = _copy_pygments(fresh, found.python)
        problem = import_problem(found.gdb, fresh)
    except _NotCopyable as reason:
        problem = str(reason)
    if problem:
        shutil.rmtree(fresh, ignore_errors=True)
        versions = _install_with_pip(fresh, found.python, problem)
        problem = import_problem(found.gdb, fresh)
        if problem:
            raise ToolError(
                f"{printable(found.gdb)} cannot import pygments: {printable(problem)}",
                slug="private-folder",
                hint="name another gdb in $GDBMEM_GDB",
            )
    replace_file(fresh / _MANIFEST, json.dumps(versions, indent=1))


def _copy_pygments(target: Path, python: tuple[int, int]) -> dict[str, str]:
    import importlib.metadata  # slow to import

    try:
        package = importlib.metadata.distribution("pygments")
    except importlib.metadata.PackageNotFoundError:
        raise _NotCopyable("pygments is not in the environment of gdbmem") from None
    facts = package.metadata
    specifier = facts["Requires-Python"] if "Requires-Python" in facts else ""  # noqa: SIM401  (no get in 3.9)
    if not satisfies(python, specifier):
        raise _NotCopyable(f"pygments {package.version} does not run in Python {python[0]}.{python[1]}")
    _copy_package(package, target)  # it needs no other package
    return {"pygments": package.version}


def _copy_package(package: importlib.metadata.Distribution, target: Path) -> None:
    files = [file for file in package.files or [] if ".." not in file.parts and not file.is_absolute()]
    if not files:
        _link_package(package, target)
    for file in files:
        if file.suffix in (".so", ".pyd"):
            raise _NotCopyable(f"{package.metadata['Name']} holds compiled code")
        source = Path(str(package.locate_file(file)))
        if file.suffix != ".pyc" and source.is_file():
            copy = target / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def _link_package(package: importlib.metadata.Distribution, target: Path) -> None:
    """Link what a distribution has installed: its packages have no list of files, and it mends them in place."""
    name = package.metadata["Name"].lower()
    source = Path(str(package.locate_file(name)))
    if not source.is_dir():
        raise _NotCopyable(f"{name} lacks a list of its files")
    if next(source.rglob("*.so"), None) is not None:
        raise _NotCopyable(f"{name} holds compiled code")
    target.mkdir(parents=True, exist_ok=True)
    (target / name).symlink_to(source)


def satisfies(python: tuple[int, int], specifier: str) -> bool:
    """Return whether *python* meets a Requires-Python such as ``>=3.8,<4``; False for what isn't understood."""
    for clause in filter(None, map(str.strip, specifier.split(","))):
        match = _CLAUSE.fullmatch(clause)
        if match is None or not _compare(python, match[1], match[2], wildcard=bool(match[3])):
            return False
    return True


def _compare(python: tuple[int, int], operator: str, text: str, *, wildcard: bool = False) -> bool:
    numbers = tuple(map(int, text.split(".")))
    length = len(numbers) if wildcard or len(numbers) == 1 else 2
    equal = python[:length] == numbers[:length]
    # A third number (3.9.2) is ignored: the later patch releases satisfy it.
    return {
        "==": equal,
        "!=": not equal or len(numbers) > 2,
        ">=": python >= numbers[:2],
        ">": python > numbers[:2],
        "<=": python <= numbers[:2],
        "<": python < numbers,
        "~=": python >= numbers[:2] and python[0] == numbers[0],
    }[operator]


def _install_with_pip(target: Path, python: tuple[int, int], reason: str) -> dict[str, str]:
    version = f"{python[0]}.{python[1]}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--target", str(target), "--python-version", version, "--only-binary=:all:"]
    # Only wheels that are declared to run anywhere.
    command += ["--implementation", "py", "--abi", "none", "--platform", "any", _WANTED]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PIP_SECONDS,
            cwd=NEUTRAL_FOLDER,
            check=False,
        )
        failure = done.stderr.decode("utf-8", "replace").strip().splitlines() if done.returncode else []
        failed = done.returncode != 0
    except (OSError, subprocess.TimeoutExpired) as error:
        failed, failure = True, [str(error)]
    if failed:
        raise ToolError(
            f"gdb's Python {version} needs pygments: {printable(reason)}, and pip failed"
            f" ({printable(failure[-1]) if failure else 'it prints nothing'})",
            slug="private-folder",
            hint=f"install gdbmem into an environment of Python {version}, with pip in it",
        )
    import importlib.metadata  # slow to import

    found = importlib.metadata.distributions(path=[str(target)])
    return {re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower(): package.version for package in found}


def exchange_folders(fresh: Path, folder: Path, old: Path) -> None:
    """Put *fresh* in the place of *folder*, which becomes *old*; one that another process has put there is kept."""
    fresh.chmod(0o755)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(old)
    # If another process has made one meanwhile, it is used.
    if not folder.exists():
        try:
            fresh.rename(folder)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise


def remove_private_folders() -> list[Path]:
    """Remove every private folder and stamp; return what was removed."""
    removed: list[Path] = []
    for path in sorted(Path(data_folder()).glob("gdb-python*")):
        shutil.rmtree(path)
        removed.append(path)
    for path in Path(data_folder()).glob(".new-*"):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        Path(data_folder(), _STAMPS).unlink()
    with contextlib.suppress(OSError):
        Path(data_folder()).rmdir()
    return removed


def ensure_private_folder(gdb: Optional[str] = None) -> Path:
    """Return the private folder for *gdb* (default: as `find_gdb`), filled; quick when it is there.

    Raises MissingToolError, or ToolError if gdb has no Python or the folder can't be filled.
    """
    found = known_gdb(find_gdb(gdb))
    folder = Path(private_folder(found.python))
    if not folder.is_dir():
        fill_private_folder(found)
    return folder
