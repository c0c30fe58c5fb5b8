"""Batch gdbs that name addresses: one per binary, as many in parallel as there are processors."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from gdbmem.errors import GdbmemError, Notice
from gdbmem.setup.gdb_python import find_gdb, gdb_call, loader_file, quiet_environment, quiet_gdb
from gdbmem.text import printable

GDB_SECONDS = 600.0  # a browser's debug information takes minutes
_ANSWER = gdb_call("names", "name_addresses()")

Question = tuple[Path, Any]  # a binary, and addresses in it, or what else *call* takes as JSON
Answer = Union[Mapping[str, Any], Notice]  # the frames of each address, or why there are none


def ask_gdb(
    questions: Sequence[Question], call: str = _ANSWER, seconds: float = GDB_SECONDS
) -> Iterator[Answer]:
    """Yield the answer to each of *questions*, in their order, by the command *call* within so many *seconds*."""
    try:
        gdb = find_gdb()
    except GdbmemError as error:
        for _ in questions:
            yield Notice(error.slug, f"addresses stay without names: {error}")
        return
    abreast = max(1, os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="gdbmem-") as folder:
        for at in range(0, len(questions), abreast):
            group = questions[at : at + abreast]
            running: list[_RunningGdb] = []
            with contextlib.ExitStack() as stops:  # also after Ctrl-C between two starts
                stops.callback(_stop, running)
                for number, one in enumerate(group, start=at):
                    _start(running, gdb, one, Path(folder) / str(number), call)
                for gdb_of_one in running:
                    yield gdb_of_one.answer(seconds)


def _start(running: list[_RunningGdb], gdb: str, question: Question, stem: Path, call: str) -> None:
    """Add a gdb to *running*. cli.start lets no Ctrl-C in between: it would be started and not listed."""
    running.append(_RunningGdb(gdb, *question, stem, call))


def _stop(running: Sequence[_RunningGdb]) -> None:
    """See that all are gone. Another Ctrl-C may end a long wait, so all are killed before one is waited for."""
    for one in running:
        one.kill()
    for one in running:
        one.wait()


class _RunningGdb:
    def __init__(self, gdb: str, binary: Path, asked: Any, stem: Path, call: str) -> None:
        """Start a gdb on *binary*; it reads and writes files that begin with *stem*."""
        question, self._file = stem.with_suffix(".ask"), stem.with_suffix(".names")
        self._binary = binary
        question.write_text(json.dumps(asked), encoding="ascii")
        words = quiet_gdb(gdb, online=bool(os.environ.get("DEBUGINFOD_URLS")))
        self._process = subprocess.Popen(
            [*words, "-x", str(loader_file()), "-ex", call, "--", str(binary)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=quiet_environment(GDBMEM_ADDRESSES=str(question), GDBMEM_NAMES=str(self._file)),
            start_new_session=True,
        )

    def answer(self, seconds: float) -> Answer:
        """Wait for the gdb to end and return what it found."""
        try:
            self._process.wait(seconds)
            found: Mapping[str, Any] = json.loads(self._file.read_bytes())
        except (OSError, ValueError, subprocess.TimeoutExpired):
            name = printable(str(self._binary))
            return Notice("no-symbols", f"gdb could not read {name}: its addresses stay without names")
        return found

    def kill(self) -> None:
        self._process.kill()  # nothing if it has been waited for

    def wait(self) -> None:
        self._process.wait()


# Names of classes as people write them. They come from the program: one may be made to take all memory.


_SECONDS = 60.0
_MANGLED = re.compile(r"[A-Za-z0-9_.$]{1,16384}")
_PREFIX = "typeinfo name for "  # of the demangled name of a symbol that begins with _ZTS
_CXXFILT_BYTES = ((resource.RLIMIT_AS, 1 << 30), (resource.RLIMIT_FSIZE, 1 << 24))
_ANSWER_DEMANGLED = gdb_call("names", "demangle_file()")


def class_names(mangled: Iterable[str]) -> dict[str, str]:
    """Return mangled → demangled for those that c++filt can demangle, or gdb; nothing if there is neither."""
    names = sorted(name for name in set(mangled) if _MANGLED.fullmatch(name))
    if not names:
        return {}
    found = _names_by_cxxfilt(names)
    return found if found is not None else _names_by_gdb(names)


def _names_by_cxxfilt(names: Sequence[str]) -> Optional[dict[str, str]]:
    """Return the demangled *names* by c++filt, which starts much faster than gdb; None: it can't."""
    program = shutil.which("c++filt")
    if program is None:
        return None
    with tempfile.TemporaryFile() as answer:
        with subprocess.Popen(
            [program, "--format=gnu-v3"],
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                for limit, most in _CXXFILT_BYTES:
                    hard = resource.prlimit(process.pid, limit)[1]
                    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
                    resource.prlimit(process.pid, limit, (least, hard))
                process.communicate("".join(f"_ZTS{name}\n" for name in names).encode(), _SECONDS)
            except (OSError, subprocess.TimeoutExpired):
                pass  # what it has written counts
            finally:
                process.kill()
        if process.returncode > 0:
            return None  # another program of that name
        answer.seek(0)
        texts = answer.read().decode(errors="replace").split("\n")[:-1]
    return {name: text[len(_PREFIX) :] for name, text in zip(names, texts) if text.startswith(_PREFIX)}


def _names_by_gdb(names: Sequence[str]) -> dict[str, str]:
    try:
        gdb = find_gdb()
    except GdbmemError:
        return {}
    with tempfile.TemporaryDirectory(prefix="gdbmem-") as folder:
        question, answer = Path(folder) / "mangled", Path(folder) / "names"
        question.write_text(json.dumps(names), encoding="ascii")
        try:
            subprocess.run(
                [*quiet_gdb(gdb), "-x", str(loader_file()), "-ex", _ANSWER_DEMANGLED],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=quiet_environment(GDBMEM_MANGLED=str(question), GDBMEM_NAMES=str(answer)),
                timeout=_SECONDS,
                check=False,
            )
            found = json.loads(answer.read_bytes())
        except (OSError, ValueError, subprocess.SubprocessError):
            return {}
    return {str(name): str(text) for name, text in found.items()}
