"""Control groups of version 2, live, in a virtual machine: this machine may have those of version 1."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.fleet.virtual_machine import missing, run_in_guest

ROOT = Path(__file__).resolve().parents[2]
# Of the live tests: the ledger of a container, its series; the black box of a kill, also with a hold and a core, a hold
# whose monitor is killed, whom the kernel kills.
TESTS = {
    "tests/live/test_monitor_surroundings.py": "divided or watched_by_its_folder",
    "tests/live/test_out_of_memory.py": "tells_of or any_rate or core_of or as_before or foretells",
}
# What the guest's own copy has, as it is slow: the times for a hold, for a record that is under way at the end, and
# for processes to end.
SLOW = """
sed -i 's/^MOST_SECONDS = .*/MOST_SECONDS = 600.0/' gdbmem/linux/monitoring/limits.py
sed -i 's/^_MOST_SECONDS = .*/_MOST_SECONDS = 900/; s/^_LAST_SECONDS = .*/_LAST_SECONDS = 300.0/' \\
  gdbmem/api/black_box_worker.py
sed -i 's/^_LAST_SECONDS = .*/_LAST_SECONDS = 600.0/' gdbmem/recording/beside.py
sed -i 's/^PATIENCE = .*/PATIENCE = 900.0/' tests/live/control_groups.py
sed -i 's/time.monotonic() + 5 /time.monotonic() + 300 /' tests/conftest.py
"""


@pytest.mark.timeout(5400)
@pytest.mark.parametrize("file", TESTS)
def test_what_holds_for_control_groups_of_version_1_holds_for_version_2(file: str, scratch: Path) -> None:
    if missing() is not None:
        pytest.skip(f"{missing()} is missing")
    options = ["-v", "-rs", "-n", "0", "-p", "no:cacheprovider", "-o", "timeout=1800", "-k", TESTS[file]]
    words = [sys.executable, "-m", "pytest", file, *options, "-m", "thorough or not thorough"]
    script = f'cd {ROOT}\n{SLOW}GDB_INDEX=no "$@" 2>&1 | cat; exit ${{PIPESTATUS[0]}}'
    status, said = run_in_guest(["/bin/bash", "-c", script, "bash", *words], scratch, seconds=5300)
    assert status == 0, said
    found = re.search(r"(\d+) passed", said)
    assert found is not None and int(found[1]) >= 2, said
