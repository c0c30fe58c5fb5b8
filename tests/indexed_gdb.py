"""A gdb that finds the system's debug information indexed and unpacked: both are half of the work of a start.

gdbmem itself never sets gdb's index cache: any file could be there under a build-id. Here all files are ours.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

_PATH_BYTES = 4095  # what Linux takes as a path
_INDEX_NAME_BYTES = len("/.gdb-index") + 40  # of a build-id's digits
_NAME_BYTES = 250
_DEBUG_FILES = Path("/usr/lib/debug")
# A program, as gdbmem remembers nothing of a gdb that is a script.
_SOURCE = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
  char **more = calloc(count + 3, sizeof *more);
  more[0] = GDB, more[1] = "-ix", more[2] = SETTINGS;
  memcpy(more + 3, words + 1, count * sizeof *words);
  execv(GDB, more);
  return 127;
}
"""
_SPELLINGS = ("set index-cache enabled on", "set index-cache on")  # the second: before gdb 12


def folder_of_indexed_gdb(folder: Path) -> Optional[Path]:
    """Return a folder that holds a `gdb` which reads indexes from *folder*; None if this gdb can't.

    It is made by the first process that asks. Of the tests' own programs no index is kept: gdb reads these as a
    user's gdb does.
    """
    gdb = shutil.which("gdb")
    if gdb is None or shutil.which("gcc") is None:
        return None
    folder.mkdir(exist_ok=True)
    commands = folder / "bin"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not commands.exists():
            _make_commands(gdb, folder, commands)
    return commands if (commands / "gdb").exists() else None


def _make_commands(gdb: str, folder: Path, commands: Path) -> None:
    made = folder / "made"
    made.mkdir()
    mapped = Path("/proc/self/maps").read_text()
    libraries = sorted(set(re.findall(r"/\S+\.so\S*$", mapped, re.M)))
    settings = _index_libraries(gdb, folder, libraries)
    if settings is not None:
        (made / "settings").write_text(settings + _unpack_debug_files(folder, libraries))
        macros = {"GDB": gdb, "SETTINGS": str(commands / "settings")}
        words = [f"-D{name}={json.dumps(value)}" for name, value in macros.items()]
        subprocess.run(
            ["gcc", *words, "-x", "c", "-", "-o", str(made / "gdb")], input=_SOURCE, text=True, check=True
        )
    made.rename(commands)


def _unpack_debug_files(folder: Path, libraries: Sequence[str]) -> str:
    # Returns the command by which gdb finds them first.
    unpacked = folder / "debug"
    for library in libraries:
        notes = subprocess.run(["readelf", "-n", library], capture_output=True, text=True, check=False).stdout
        found = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)$", notes, re.M)
        name = found and Path(".build-id", found[1], f"{found[2]}.debug")
        if name and (_DEBUG_FILES / name).exists():
            (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
            command = [
                "objcopy",
                "--decompress-debug-sections",
                str(_DEBUG_FILES / name),
                str(unpacked / name),
            ]
            subprocess.run(command, check=True)
    return f"set debug-file-directory {unpacked}:{_DEBUG_FILES}\n"


def _index_libraries(gdb: str, folder: Path, libraries: Sequence[str]) -> Optional[str]:
    # Returns gdb's commands by which it finds the indexes, and keeps none: the name of the file that it would
    # write, which is longer than that of the one that it reads, is longer than a path can be.
    cache = folder
    while (room := _PATH_BYTES - _INDEX_NAME_BYTES - len(str(cache))) > 1:
        cache /= "x" * (_NAME_BYTES if room > _NAME_BYTES + 2 else room - 1)
    cache.mkdir(parents=True)
    short = folder / "index"
    short.mkdir()
    files = [word for library in libraries for word in ("-ex", f"file {library}")]
    for spelling in _SPELLINGS:
        settings = ["-iex", f"set index-cache directory {short}", "-iex", spelling]
        subprocess.run(
            [gdb, "-nx", "-batch", *settings, *files],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        indexes = list(short.iterdir())
        if indexes:
            for index in indexes:
                index.rename(cache / index.name)
            return f"set index-cache directory {cache}\n{spelling}\n"
    return None
