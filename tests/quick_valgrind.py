"""A valgrind whose programs load libraries of the system without debug information: half of its start is to read that.

The copies keep the names of functions, as where no debug information is installed; lines in these libraries are lost.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

_DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_NAMES = re.compile(r"/\S+/lib[cm]\.so\.6$", re.M)
_SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
  const char *before = getenv("LD_LIBRARY_PATH");
  char *folders = NULL;
  if (asprintf(&folders, "%s%s%s", FOLDER, before ? ":" : "", before ? before : "") < 0) return 127;
  setenv("LD_LIBRARY_PATH", folders, 1);
  words[0] = VALGRIND;
  execv(VALGRIND, words);
  return 127;
}
"""


def folder_of_quick_valgrind(folder: Path) -> Optional[Path]:
    """Return a folder that holds a `valgrind` whose programs load copies of libraries; None if there is none to copy.

    It is made by the first process that asks.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None or any(shutil.which(tool) is None for tool in ("gcc", "objcopy", "readelf")):
        return None
    folder.mkdir(exist_ok=True)
    commands = folder / "bin"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not commands.exists():
            made = folder / "made"
            made.mkdir()
            libraries = sorted(set(_NAMES.findall(Path("/proc/self/maps").read_text())))
            if _copy(map(Path, libraries), folder):
                macros = {"FOLDER": str(folder), "VALGRIND": valgrind}
                words = [f"-D{name}={json.dumps(value)}" for name, value in macros.items()]
                command = ["gcc", "-D_GNU_SOURCE", *words, "-x", "c", "-", "-o", str(made / "valgrind")]
                subprocess.run(command, input=_SOURCE, text=True, check=True)
            made.rename(commands)
    return commands if (commands / "valgrind").exists() else None


def _copy(libraries: Iterable[Path], folder: Path) -> int:
    """Copy those of *libraries* of which debug information is installed; return how many.

    A copy has another build-id, by which none is found, and names a file of the symbols alone by its checksum.
    """
    copied = 0
    for library in libraries:
        notes = subprocess.run(["readelf", "-n", str(library)], capture_output=True, text=True, check=False)
        found = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)$", notes.stdout, re.M)
        debug = found and _DEBUG_FILES / found[1] / f"{found[2]}.debug"
        if not found or not debug or not debug.exists():
            continue
        symbols = folder / debug.name
        subprocess.run(["objcopy", "--strip-debug", str(debug), str(symbols)], check=True)
        checksums = [zlib.crc32(path.read_bytes()).to_bytes(4, "little") for path in (debug, symbols)]
        link = debug.name.encode() + b"\0"
        link += b"\0" * (-len(link) % 4)
        build_id, data = bytes.fromhex(found[1] + found[2]), library.read_bytes()
        if data.count(build_id) != 1 or data.count(link + checksums[0]) != 1:
            continue
        data = data.replace(link + checksums[0], link + checksums[1])
        (folder / library.name).write_bytes(data.replace(build_id, build_id[::-1]))
        copied += 1
    return copied
