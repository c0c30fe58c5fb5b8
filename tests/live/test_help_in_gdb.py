"""`gdbmem help NAME` inside gdb."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.needs("gdb")
def test_gdb_explains_a_message_by_its_name() -> None:
    commands = ["gdbmem help format-unknown", "gdbmem help [no-program]x", "massif-diff --no-such"]
    words = [word for command in commands for word in ("-ex", command)]
    ran = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", "-x", str(ROOT / "gdbinit" / "gdbmem"), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "gdbmem does not know the format named" in ran.stdout
    assert "no message is named" in ran.stderr and "[no-such-message]" in ran.stderr
    assert ran.stderr.rstrip().endswith("[usage]")
