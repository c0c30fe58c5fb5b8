"""Ledgers that a run keeps: one JSON file each in ``ledgers/``, the name inside, the last of a name wins."""

from __future__ import annotations

import json
from pathlib import Path

from gdbmem.runs.run import Run, check_name

_FOLDER = "ledgers"


def save_ledger(run: Run, name: str, text: str) -> Path:
    """Keep the JSON *text* of a ledger in *run* under *name*, and return its file."""
    check_name(name)
    folder = run.folder / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    numbers = [int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()]
    path = folder / f"{max(numbers, default=0) + 1:04d}.json"
    document = {**json.loads(text), "name": name}
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def ledger_texts(run: Run) -> dict[str, str]:
    """Return name → JSON text of the ledgers in *run*, in the order in which they were saved."""
    texts = {}
    for path in sorted((run.folder / _FOLDER).glob("*.json")):
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            texts[str(json.loads(text)["name"])] = text
        except (ValueError, KeyError, TypeError):
            continue  # it was cut: the others are still good
    return texts
