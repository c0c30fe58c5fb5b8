"""memcontainers on containers of Rust, boost, protobuf and absl: what they say of themselves is what is read."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import PROGRAMS, Program
from tests.live.test_memcontainers import rows
from tests.live.test_memexplain import gdb

pytestmark = [pytest.mark.needs("gdb"), pytest.mark.thorough]
HEADERS = {
    "containers_boost": "boost/container/vector.hpp",
    "containers_protobuf": "google/protobuf/message.h",
    "containers_absl": "absl/base/config.h",
}


def assert_as_printed(folder: Path, program: Path, place: str, prefix: str) -> None:
    gdb(folder, program, f"break {place}", "run", "memcontainers --json -o found.json")
    printed = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout
    found = {path.removeprefix(prefix): row for path, row in rows(folder / "found.json").items()}
    for line in printed.splitlines():
        path, *figures = line.split()
        size, capacity, held = map(int, figures)
        row = found[path]
        assert (row["size"], row["capacity"]) == (size, capacity), path
        assert held in (-1, row["held_bytes"]), path


@pytest.mark.parametrize("library", HEADERS)
def test_containers_of_a_library_hold_what_they_say_of_themselves(
    program: Program, tmp_path: Path, library: str
) -> None:
    if not Path("/usr/include", HEADERS[library]).exists():
        pytest.skip(f"the headers that {library} needs are not installed")
    assert_as_printed(tmp_path, program(library), "filled", "")


def test_collections_of_rust_hold_what_they_say_of_themselves_wherever_they_were_moved(
    tmp_path: Path,
) -> None:
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed")
    file = tmp_path / "containers_of_rust"
    # rustup finds its compilers below the user's home, which tests have not.
    home = pwd.getpwuid(os.getuid()).pw_dir
    subprocess.run(
        ["rustc", "-g", "-o", file, PROGRAMS / "containers_of_rust.rs"],
        check=True,
        capture_output=True,
        env={**os.environ, "HOME": home},
    )
    assert_as_printed(tmp_path, file, "containers_of_rust::filled", "containers_of_rust::main::engine.")
