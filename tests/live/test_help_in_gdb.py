"""`gdbmem help NAME` inside gdb."""

from __future__ import annotations

import os
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


@pytest.mark.needs("gdb")
def test_gdb_loads_and_explains_where_the_locale_has_ascii_only_as_in_a_container() -> None:
    words = [word for command in ("help massif-diff", "massif-diff --no-such") for word in ("-ex", command)]
    ran = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", "-x", str(ROOT / "gdbinit" / "gdbmem"), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert "[A [B ...]]" in ran.stdout
    assert "[usage]" in ran.stderr and "Unicode" not in ran.stderr
