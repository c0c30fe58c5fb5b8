"""The action of a monitor's trigger, run as a separate script: ACTION PID RUN FOLDER.

Each step has a file in FOLDER, and a second file with its standard error unless that is empty. A step that
fails or hangs does not affect the others.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gdbmem.errors import MissingToolError
from gdbmem.inspection.interpreters import module_words
from gdbmem.linux.process.process import memory_folder
from gdbmem.setup.gdb_python import find_gdb, quiet_gdb

_MOST_SECONDS = 120.0  # for one step
_MOST_FRAMES = 60
_GDBMEM = [sys.executable, *module_words("gdbmem.cli.main")]


def steps(action: str, pid: int, run: Path, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the file to write and the command that prints its contents."""
    if action == "bundle":
        yield "smaps.txt", ["cat", f"{memory_folder(pid)}/smaps"]
    if action in ("explain", "bundle"):
        yield "explain.txt", [*_GDBMEM, "explain", str(pid)]
    if action == "snap":
        yield "snap.txt", [*_GDBMEM, "snap", "--run", str(folder / "snap"), str(pid)]
    if action == "bundle":
        try:
            gdb = find_gdb()
        except MissingToolError:
            gdb = ""
        if gdb:
            show = f"thread apply all backtrace {_MOST_FRAMES}"
            yield "stacks.txt", [*quiet_gdb(gdb), "-p", str(pid), "-ex", show]
        yield "series.csv", [*_GDBMEM, "export", str(run), "--to", "csv"]


def main(argv: list[str]) -> int:
    """Execute all steps of an action; return 1 if one of them failed."""
    action, pid, run, folder = argv[0], int(argv[1]), Path(argv[2]), Path(argv[3])
    failed = False
    for name, command in steps(action, pid, run, folder):
        errors = folder / f"{name}.errors"
        with (folder / name).open("wb") as output, errors.open("wb") as said:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=said,
                    timeout=_MOST_SECONDS,
                    check=False,
                )
                failed = failed or done.returncode != 0
            except (subprocess.TimeoutExpired, OSError) as error:
                said.write(f"{error}\n".encode(errors="backslashreplace"))
                failed = True
        if not errors.stat().st_size:
            errors.unlink()
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
