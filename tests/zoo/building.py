"""Building an animal's program: compiled once, kept under a hash of all that goes into it."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.built import folder_of_programs, libc_version, mark_used

SOURCES = Path(__file__).parent / "sources"
BUILT = Path(__file__).parent / "build"

_COMPILERS = {
    ".c": ("gcc", "-Wall", "-pthread"),
    ".cpp": ("g++", "-Wall", "-pthread"),
    ".rs": ("rustc",),
    ".java": ("javac", "-g"),
    ".go": ("go", "build"),
}


class CannotRunHereError(Exception):
    """An animal, or a cell, that this machine can't have; the text gives the reason."""


@dataclass(frozen=True)
class Build:
    source: str
    flags: tuple[str, ...] = ("-g", "-O1")
    compiler: str = ""  # in the usual one's place
    stripped: bool = False
    libraries: tuple[str, ...] = ()  # after the source, as linkers want them

    def made(self) -> tuple[str, ...]:
        """Return the words that start the program; compile it where that hasn't been done yet.

        Raises CannotRunHereError.
        """
        source = SOURCES / self.source
        if source.suffix not in _COMPILERS:
            return (str(source),)
        first, *standard = _COMPILERS[source.suffix]
        compiler = needed(self.compiler or first)
        texts = {path.name: path.read_bytes() for path in (source, SOURCES / "report.h")}
        real = os.path.realpath(compiler)
        what = repr((self, standard, real, Path(real).stat().st_mtime_ns, libc_version())).encode()
        digest = hashlib.sha256(b"".join(texts.values()) + what).hexdigest()[:12]
        folder = folder_of_programs(BUILT) / f"zoo-{source.stem}-{digest}"
        if not folder.exists():
            self._compile([compiler, *standard], texts, folder)
        mark_used(folder)
        if source.suffix == ".java":
            return (needed("java"), "-Xmx64m", "-XX:+UseSerialGC", "-cp", str(folder), source.stem)
        return (str(folder / source.stem),)

    def _compile(self, command: list[str], texts: dict[str, bytes], folder: Path) -> None:
        # Two at once may compile the same: each renames a whole folder, which the program names as its own.
        temporary = folder.with_name(f".{uuid.uuid4().hex}")
        temporary.mkdir(parents=True)
        for name, text in texts.items():
            (temporary / name).write_bytes(text)
        program = temporary / Path(self.source).stem
        output = ["-d", str(temporary)] if self.source.endswith(".java") else ["-o", program.name]
        moved = [f"-fdebug-prefix-map={temporary}={folder}"] if self.source.endswith((".c", ".cpp")) else []
        words = [*command, *self.flags, *moved, *output, self.source, *self.libraries]
        own = Path(pwd.getpwuid(os.getuid()).pw_dir)  # HOME may be a test's
        env = {"RUSTUP_HOME": f"{own}/.rustup", **os.environ, "GOCACHE": f"{temporary}/cache"}
        done = subprocess.run(words, cwd=temporary, env=env, capture_output=True, text=True, check=False)
        shutil.rmtree(temporary / "cache", ignore_errors=True)  # Go's, of 100 MiB
        if done.returncode == 0 and self.stripped:
            subprocess.run([needed("strip"), str(program)], check=True)
        if done.returncode == 0:
            try:
                temporary.rename(folder)
            except OSError:
                shutil.rmtree(temporary)  # another process was faster
            return
        shutil.rmtree(temporary)
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
        raise CannotRunHereError(f"{Path(command[0]).name} can't make it: {said.strip()}")


def needed(tool: str) -> str:
    """Return where *tool* is. Raises CannotRunHereError."""
    found = shutil.which(tool)
    if found is None:
        raise CannotRunHereError(f"no {tool} here")
    return found
