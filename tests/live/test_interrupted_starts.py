"""Ctrl-C in the moment in which gdbmem starts other programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.user import environment

pytestmark = pytest.mark.usefixtures("no_process_left")

# A gdb that presses Ctrl-C as soon as it runs, while others are being started, and goes on while they are ended.
PRESSES = """#!/bin/sh
for key in $(seq 1000); do
  kill -INT $PPID
done
exec sleep 100
"""
NAMES_ADDRESSES = """
import os, signal, sys
from pathlib import Path
from gdbmem.cli.start import forget_interrupts, raise_between_steps
from gdbmem.symbols.batch_gdb import ask_gdb
os.cpu_count = lambda: 40
raise_between_steps()
try:
    list(ask_gdb([(Path("/bin/true"), [1])] * 40))
except KeyboardInterrupt:
    forget_interrupts()  # of keys that were pressed before the gdbs had ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("interrupted")
"""


def test_ctrl_c_while_gdbs_are_started_that_name_addresses_leaves_none_of_them(tmp_path: Path) -> None:
    gdb = tmp_path / "gdb"
    gdb.write_text(PRESSES)
    gdb.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", NAMES_ADDRESSES],
        env={**environment(), "GDBMEM_GDB": str(gdb)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
