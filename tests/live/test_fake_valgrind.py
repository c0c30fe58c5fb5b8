"""A process that pretends to run under valgrind: vgdb touches nothing that its user may not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.live.test_attach import snap
from tests.live.test_target_side import MALLORY, copied, mallory

pytestmark = [
    pytest.mark.needs("gdb", "gcc", "setpriv", "valgrind"),
    pytest.mark.usefixtures("no_process_left"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has somebody else to be"),
]


def test_vgdb_does_not_write_to_what_a_false_valgrind_leads_it_to(
    program: Program, scratch: Path, tmp_path: Path
) -> None:
    secret = scratch / "secret"
    secret.write_bytes(bytes(48))
    secret.chmod(0o600)
    own = scratch / "valgrind"
    own.mkdir()
    binary = copied(program("fake_valgrind"), own).rename(own / "massif-amd64-linux")
    os.chown(own, MALLORY, MALLORY)
    scratch.chmod(0o755)
    with mallory(binary, own, secret) as process:
        done = snap(tmp_path, process.pid)
        assert done.returncode == 1 and "vgdb could not reach" in done.stderr, done.stderr
    assert secret.read_bytes() == bytes(48)
