"""Ctrl-C during an import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ENDS = """
import signal, sys
sys.path.insert(0, sys.argv.pop())
from gdbmem.cli import main, start
start._AGAIN_SECONDS = 60
def dispatch(words):
    import pressed
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    return 7
main._dispatch = dispatch
assert main.main() == 7
assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


def test_a_command_that_is_done_is_not_ended_by_the_alarm_of_an_earlier_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "pressed.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-c", ENDS, tmp_path], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
