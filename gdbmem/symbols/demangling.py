"""Names of classes as people write them, through a gdb that is started for it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gdbmem.errors import GdbmemError
from gdbmem.setup.gdb_call import gdb_call
from gdbmem.setup.gdb_python import find_gdb, loader_file, quiet_environment, quiet_gdb

_SECONDS = 60.0
_ANSWER = gdb_call("batch.demangle", "answer()")


def class_names(mangled: Iterable[str]) -> dict[str, str]:
    """Return mangled → demangled for those that gdb can demangle; nothing if there is no gdb."""
    names = sorted(set(mangled))
    try:
        gdb = find_gdb() if names else ""
    except GdbmemError:
        return {}
    if not gdb:
        return {}
    with tempfile.TemporaryDirectory(prefix="gdbmem-") as folder:
        question, answer = Path(folder) / "mangled", Path(folder) / "names"
        question.write_text(json.dumps(names), encoding="ascii")
        try:
            subprocess.run(
                [*quiet_gdb(gdb), "-x", str(loader_file()), "-ex", _ANSWER],
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
