"""Ctrl-C during an import."""

from __future__ import annotations

import signal
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
assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
"""


def test_a_command_that_is_done_is_not_ended_by_the_alarm_of_an_earlier_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "pressed.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-c", ENDS, tmp_path], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


WHILE_IT_COMPLAINS = """
import io, os, signal, sys
from gdbmem.__main__ import main
class Pressed(io.StringIO):
    def write(self, text):
        os.kill(os.getpid(), signal.SIGINT)
sys.stderr = Pressed()
sys.exit(main())
"""


def test_ctrl_c_while_the_sentence_about_an_error_is_printed_is_no_traceback() -> None:
    words = [sys.executable, "-c", WHILE_IT_COMPLAINS, "show", "/no/such/file"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
