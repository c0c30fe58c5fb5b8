"""The command as a separate process: the modules that it loads, and readers that stop reading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.user import GDBMEM, environment
from tests.live.warm import run_forked
from tests.unit.cli.test_big_files import wide
from tests.unit.cli.test_cli_reports import here  # noqa: F401 - a fixture: a run and a history in the current folder


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "gdbmem.cli.main", "--help"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert ended.returncode == 141
    assert ended.stderr == b""


def test_starting_the_command_imports_nothing_that_its_subcommand_does_not_need() -> None:
    slow = "('yaml', 'pygments', 'psutil', 'difflib', 'json')"
    script = f"import sys, gdbmem.cli.main as m; m.main(['--version']); print([n for n in {slow} if n in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


def test_a_gdbmem_that_is_forked_for_tests_answers_as_the_installed_one(tmp_path: Path) -> None:
    (tmp_path / "x.folded").write_text("main;f\xe9 100\n", encoding="latin-1")
    (tmp_path / "cut.json").write_text("{")
    for words in (
        ["show", "x.folded"],
        ["show", "x.folded", "--json"],
        ["diff", "cut.json", "x.folded"],
        ["nonsense"],
    ):
        command = [GDBMEM, *words]
        installed = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        forked = run_forked(words, str(tmp_path), environment(), seconds=60)
        assert (forked.returncode, forked.stdout, forked.stderr) == (
            installed.returncode,
            installed.stdout,
            installed.stderr,
        )
    assert (
        run_forked(["show", "-"], str(tmp_path), environment(), stdin=b"main;f 100\n", seconds=60).returncode
        == 0
    )


def in_shell(redirection: str, *words: str) -> subprocess.CompletedProcess[str]:
    shell = f'exec "$@" {redirection}'
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "gdbmem.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_reader_whose_messages_nobody_wants_has_not_failed(tmp_path: Path) -> None:
    profile = tmp_path / "x.folded"
    profile.write_text("main;f 100\n")
    ended = in_shell("2>&-", "show", str(profile))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "holds 100 B" in ended.stdout


def test_a_report_that_a_closed_output_loses_has_failed_and_one_in_a_file_has_not(tmp_path: Path) -> None:
    profile = tmp_path / "x.folded"
    profile.write_text("main;f 100\n")
    series = tmp_path / "x.csv"
    series.write_text("\n".join(["time,rss_b", *(f"{t},{50 << 20}" for t in range(60)), ""]))
    for words in (["show", str(profile)], ["--version"], ["--help"], ["explain", str(os.getpid())]):
        ended = in_shell(">&-", *words)
        assert ended.returncode == 1, words
        assert (
            "gdbmem: the standard output is closed; name a file: -o FILE [output-unwritable]\n"
            in ended.stderr
        )
    kept = in_shell(">&-", "show", str(profile), "-o", str(tmp_path / "kept"))
    assert (kept.returncode, kept.stderr) == (0, "")
    gate = in_shell(">&-", "monitor", "--fail-on", "growing", str(series))
    assert gate.returncode == 0, "its result is its status"


@pytest.mark.parametrize(
    "words", [["diff", "run"], ["show", "run"], ["show", "history"], ["diff", "run", "--json"]]
)
def test_a_reader_that_has_seen_enough_is_no_failure(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "gdbmem.cli.main", *words], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [(["show"], ""), (["diff", "a.ms"], ""), (["show", "--json"], "pickle")],
)
def test_a_small_file_imports_what_it_needs_only(words: list[str], unneeded: str, tmp_path: Path) -> None:
    (tmp_path / "a.ms").write_text(wide(3))
    slow = ["jinja2", "pygments", "numpy", "yaml", "gdbmem.symbols.batch_gdb", "gdbmem.page.page"]
    slow += [
        "google.protobuf",
        "subprocess",
        "asyncio",
        "tempfile",
        *unneeded.split(),
    ]
    script = f"import sys, gdbmem.cli.main as m; m.main({[*words, 'a.ms']}); "
    script += f"print([n for n in {slow} if n in sys.modules], file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert ended.stderr.strip().endswith("[]"), ended.stderr


def test_a_monitor_and_its_verdict_import_nothing_that_takes_a_tenth_of_a_second(tmp_path: Path) -> None:
    slow = {
        "jinja2",
        "numpy",
        "google",
        "yaml",
        "pygments",
        "scipy",
        "zstandard",
        "asyncio",
        "multiprocessing",
    }
    words = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "gdbmem.cli.main",
        "monitor",
        "-q",
        "--for",
        "3s",
        "--",
    ]
    ended = subprocess.run([*words, "sleep", "9"], cwd=tmp_path, capture_output=True, text=True)
    imported = {line.rsplit("|", 1)[-1].strip() for line in ended.stderr.splitlines() if "|" in line}
    assert "gdbmem.series.verdict" in imported and "plateau" in ended.stdout, ended.stderr[-500:]
    assert not {name for name in imported if name.split(".")[0] in slow}


_IMPORTS = """
import sys, time
from gdbmem.cli.start import raise_between_steps
raise_between_steps()
try:
    import interrupted
    time.sleep(30)
except KeyboardInterrupt:
    print(sys.modules["interrupted"].is_whole)
"""


def test_ctrl_c_during_an_import_leaves_no_half_module_behind(tmp_path: Path) -> None:
    module = (
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(0.05)\nis_whole = True\n"
    )
    (tmp_path / "interrupted.py").write_text(module)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}
    ended = subprocess.run(
        [sys.executable, "-c", _IMPORTS], env=environment, capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_ctrl_c_ends_an_import_that_waits_for_ever(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import os, signal, time\nis_whole = False\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(300)\n"
    )
    script = _IMPORTS.replace('sys.modules["interrupted"].is_whole', '"ended"')
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (ended.stdout, ended.stderr) == ("ended\n", "")


_STARTS = """
import os, sys
while_importing = sys.argv.pop()
class InTheMidst:
    def find_spec(self, name, path=None, target=None):
        if name == while_importing:
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, InTheMidst())
from gdbmem.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["gdbmem.cli.start", "signal", "gdbmem.commands.arguments"])
def test_ctrl_c_before_the_command_has_begun_is_no_traceback(module: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, "-S", "-c", _STARTS, "--version", module]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")
