"""The profile of a whole run, after the end of the program: found, converted, recorded, and shown."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional, TextIO

from gdbmem.engines import heaptrack
from gdbmem.engines.engine import table
from gdbmem.errors import GdbmemError, Notice
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.model.calltree import Profile
from gdbmem.profiles.paths import Query
from gdbmem.profiles.text import print_sites
from gdbmem.runs.operand import load_from_profile
from gdbmem.runs.run import Run
from gdbmem.terminal.console import make_console, print_sentence
from gdbmem.text import format_size, printable

if TYPE_CHECKING:
    from gdbmem.launch.supervisor import Supervisor

NAME = "whole-run"


def record_whole_runs(run: Run, engine: str, supervisor: Supervisor) -> Sequence[Notice]:
    """Record the profile of each process of this launch in *run*; return notices on unusable files."""
    if not table(engine).whole_run:
        return []
    notices: list[Notice] = []
    found = _interpreted(run, notices) if engine == heaptrack.NAME else _of_valgrind(run, engine, supervisor)
    for path in found:
        try:
            total = _open(path, "in-use").snapshots[0].total_bytes
        except GdbmemError as error:
            text = f"{engine} was ended before it wrote its complete profile, which can't be read: {error}"
            notices.append(Notice("whole-run", text))
            continue
        run.append(NAME, file=str(path.relative_to(run.folder)), engine=engine, heap_bytes=total)
    if not found and not notices:
        notices.append(
            Notice("whole-run", f"{engine} wrote no profile: was the program killed, or never run?")
        )
    return notices


def _of_valgrind(run: Run, engine: str, supervisor: Supervisor) -> list[Path]:
    """Return the files of valgrind's tool, the program's own last, which is the default."""
    own = [process.history for process in supervisor.past]
    others = sorted(path for path in run.folder.glob(f"{engine}.*.out") if path not in own)
    return [path for path in [*others, *own] if path.exists()]


def _interpreted(run: Run, notices: list[Notice]) -> list[Path]:
    """Name the addresses in heaptrack's recordings by its own interpreter; return the resulting files."""
    return [path for raw in _raws(run) if (path := _interpret(raw, run, notices)) is not None]


def _raws(run: Run) -> Iterator[Path]:
    before, _, after = heaptrack.RAW.partition("$$")
    files = run.folder.glob(f"{before}*{after}")
    return iter(sorted(files, key=lambda path: path.stat().st_mtime_ns))


def _interpret(raw: Path, run: Run, notices: list[Notice]) -> Optional[Path]:
    if not raw.stat().st_size:
        raw.unlink()
        notices.append(Notice("whole-run", "heaptrack had written nothing yet: the program was killed early"))
        return None
    target = run.folder / run.next_file(heaptrack.NAME, packed=True)
    temporary = run.folder / f".{target.name}"
    try:
        reason = _run_interpreter(raw, temporary)
        if not reason:
            _open(temporary, "in-use")  # a file truncated at its beginning is kept unchanged
            temporary.replace(target)
            raw.unlink()
            return target
    except GdbmemError as error:
        reason = error.message
    except OSError as error:
        reason = str(error.strerror)
    temporary.unlink(missing_ok=True)
    text = f"heaptrack_interpret could not read {printable(raw.name)} ({printable(reason)}); it is kept in the run"
    notices.append(Notice("whole-run", text))
    return None


def _run_interpreter(raw: Path, target: Path) -> str:
    """Interpret *raw*, compressed as by heaptrack itself; return the reason of a failure, else ""."""
    import shutil  # not always needed
    import tempfile  # not always needed

    from zstandard import ZstdCompressor  # not always needed

    words = [str(heaptrack.find_heaptrack().interpreter)]
    with raw.open("rb") as stdin, tempfile.TemporaryFile() as stderr:
        with subprocess.Popen(words, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr) as child:
            assert child.stdout is not None
            with target.open("wb") as stream, ZstdCompressor(level=3).stream_writer(stream) as packed:
                shutil.copyfileobj(child.stdout, packed)
        if child.returncode == 0:
            return ""
        stderr.seek(0)
        said = stderr.read().decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else f"status {child.returncode}"


def show_whole_run(run: Run, stream: TextIO) -> None:
    """Print the last profile of *run*: its three totals, and the lines that held the memory at the peak."""
    records = [record for record in run.snapshots if record.base_name == NAME]
    if not records or records[-1].heap_bytes is None:
        return
    path, at_end = run.path(records[-1]), records[-1].heap_bytes
    peak = _open(path, "peak")
    totals = (
        (_open(path, "allocated").snapshots[0].total_bytes, "allocated in all"),
        (peak.snapshots[0].total_bytes, "at the peak"),
        (at_end, "at the end"),
    )
    console = make_console(stream)
    said = ", ".join(f"{format_size(size)} {words}" for size, words in totals)
    print_sentence(console, f"{records[-1].engine}, the whole run: {said}")
    snapshot = load_from_profile(peak, None).snapshot
    print_sites(snapshot, Query(top=5), console, moment="the peak")


def _open(path: Path, metric: str) -> Profile:
    return open_profile(path, OpenOptions(metric=metric))
