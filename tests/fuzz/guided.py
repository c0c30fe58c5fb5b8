"""Fuzzing guided by coverage: atheris keeps the inputs that reach new code; each reader in its own process."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.running import Finding

_ROOT = Path(__file__).parents[2]
_GRACE_SECONDS = 600.0  # to be started, instrumented and ended, on a busy machine
_REACHED = re.compile(r"^#\d+\s+(INITED|DONE)\s+cov: (\d+)", re.MULTILINE)
_RUNS = re.compile(r"^Done (\d+) runs", re.MULTILINE)


@dataclass(frozen=True)
class Guided:
    """The result of one reader."""

    tried: int
    reached_first: int  # edges of gdbmem's code, by the examples
    reached: int  # and by all that was tried
    findings: dict[str, Finding]


def is_possible() -> bool:
    """Return whether atheris can be imported."""
    return (
        subprocess.run([sys.executable, "-c", "import atheris"], capture_output=True, check=False).returncode
        == 0
    )


def run_guided(name: str, count: int, seed: int, seconds: float, corpus: Path) -> Guided:
    """Try *count* inputs on the reader *name*, for *seconds* at most; *corpus* keeps those that reached more."""
    corpus.mkdir(parents=True, exist_ok=True)
    limit = int(min(seconds, 86_400))
    words = [sys.executable, "-m", "tests.fuzz.guided", name, str(corpus), str(count), str(limit), str(seed)]
    try:
        done = subprocess.run(
            words,
            cwd=_ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=limit + _GRACE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Guided(0, 0, 0, {"hang": _lost(name, "it hangs where no signal of Python's ends it")})
    findings = {
        finding.what: finding
        for finding in map(_read, re.findall(r"^finding: (.*)$", done.stdout, re.MULTILINE))
    }
    runs, reached = _RUNS.search(done.stderr), dict(_REACHED.findall(done.stderr))
    if runs is None:
        findings["death"] = _lost(name, f"it died with status {done.returncode}: {done.stderr[-300:]}")
    return Guided(
        int(runs[1]) if runs else 0, int(reached.get("INITED", 0)), int(reached.get("DONE", 0)), findings
    )


def _lost(name: str, detail: str) -> Finding:
    from tests.fuzz.running import Finding

    return Finding(name, "the reader's process was lost", detail, b"")


def _read(line: str) -> Finding:
    from tests.fuzz.running import Finding

    fields = json.loads(line)
    return Finding(**{**fields, "data": base64.b64decode(fields["data"])})


def _show(finding: Finding) -> None:
    fields = {**asdict(finding), "data": base64.b64encode(finding.data).decode()}
    print(f"finding: {json.dumps(fields)}", flush=True)


def _guide(name: str, corpus: Path, words: Sequence[str]) -> None:
    """Make atheris drive the reader *name*; it ends this process."""
    import atheris

    with atheris.instrument_imports(include=["gdbmem"]):
        from tests.fuzz.mutate import LARGEST_BYTES, mutate
        from tests.fuzz.readers import READERS
        from tests.fuzz.running import limits, try_one

        (reader,) = (reader for reader in READERS if reader.name == name)
        examples, found = list(reader.examples()), set()
        for example in examples:  # what is imported on the way is instrumented, too
            try_one(reader, example)
            (corpus / hashlib.sha256(example).hexdigest()).write_bytes(example[:LARGEST_BYTES])

    def one(data: bytes) -> None:
        finding = try_one(reader, data)
        if finding is not None and finding.what not in found:
            found.add(finding.what)
            _show(finding)

    def change(data: bytes, most: int, seed: int) -> bytes:
        return mutate(bytes(data), random.Random(seed), examples)[:most]

    with limits():
        atheris.Setup(
            [sys.argv[0], str(corpus), f"-max_len={LARGEST_BYTES}", *words], one, custom_mutator=change
        )
        atheris.Fuzz()


if __name__ == "__main__":
    reader_name, folder, runs, seconds, seed = sys.argv[1:]
    _guide(reader_name, Path(folder), [f"-runs={runs}", f"-max_total_time={seconds}", f"-seed={seed}"])
