"""`gdbmem install`, `uninstall` and the loader, tried in the real gdb from another folder."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.errors import MissingToolError, ToolError
from gdbmem.setup.folders import private_folder
from gdbmem.setup.gdb_packages import ensure_private_folder
from tests.live.user import GDBMEM, shell

pytestmark = pytest.mark.needs("gdb")

ROOT = Path(__file__).parents[2]
LOADER = ROOT / "gdbinit" / "gdbmem"
WHERE = "python import sys, gdbmem; print('gdbmem from', gdbmem.__file__, *[f'packages in {p}' for p in sys.path])"


def gdbmem(*words: str, status: int = 0, **variables: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    # A gdbmem from elsewhere is not the one that others are forked from.
    command = [sys.executable, "-m", "gdbmem.cli.main"] if "PYTHONPATH" in variables else [GDBMEM]
    done = shell(*command, *words, folder=Path("/"), env=env)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def gdb(*words: str, folder: Optional[Path] = None, program: str = "gdb") -> str:
    done = subprocess.run(
        [program, "-batch", *words],
        capture_output=True,
        cwd=folder or "/",
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    output = (done.stdout + done.stderr).decode(errors="surrogateescape")
    assert "Traceback" not in output
    return output


def test_source_gdbmem_works_from_any_folder_after_install(private_home: Path, tmp_path: Path) -> None:
    said = gdbmem("install")
    assert f"+directory {ROOT}/gdbinit\n" in said
    assert "'source gdbmem' works in gdb" in said
    # Also where the current folder holds one of that name, as a checkout does.
    (tmp_path / "gdbmem").mkdir()
    output = gdb("-ex", "source gdbmem", "-ex", WHERE, "-ex", "help massif-snap", folder=tmp_path)
    assert f"gdbmem from {ROOT}/gdbmem/__init__.py" in output
    assert f"packages in {private_home}/.local/share/gdbmem/gdb-python" in output
    assert "massif-snap" in output
    assert "Undefined" not in output


def test_uninstall_takes_back_everything(private_home: Path) -> None:
    gdbmem("install")
    said = gdbmem("uninstall")
    assert ".gdbinit: removed, since 'gdbmem install' had made it" in said
    assert [str(path) for path in private_home.rglob("*") if path.is_file()] == []
    assert "no gdbinit contains lines of gdbmem" in gdbmem("uninstall")


def test_the_users_gdbinit_comes_back_to_the_byte(private_home: Path) -> None:
    content = b"# caf\xe9\r\nset pagination off\r\nset width 0"
    real = private_home / "dotfiles"
    real.write_bytes(content)
    real.chmod(0o640)
    (private_home / ".gdbinit").symlink_to("dotfiles")
    gdbmem("install")
    assert real.read_bytes().startswith(content)
    assert real.stat().st_mode & 0o777 == 0o640
    assert "Source directories searched" in gdb("-ex", "show directories")
    gdbmem("uninstall")
    assert real.read_bytes() == content
    assert (private_home / ".gdbinit").is_symlink()


def test_gdb_still_obeys_a_gdbinit_with_windows_line_ends(private_home: Path) -> None:
    (private_home / ".gdbinit").write_bytes(b"set width 77\r\nset height 33\r\n")
    gdbmem("install", "--auto-load")
    output = gdb("-ex", "show height", "-ex", WHERE)
    assert "33" in output
    assert f"gdbmem from {ROOT}" in output


def test_installing_twice_is_harmless_and_states_that_nothing_changed(private_home: Path) -> None:
    gdbmem("install")
    before = (private_home / ".gdbinit").read_bytes()
    said = gdbmem("install")
    assert said.count("nothing to change") == 2
    assert (private_home / ".gdbinit").read_bytes() == before


def test_dry_run_shows_the_change_and_makes_none(private_home: Path) -> None:
    said = gdbmem("install", "--dry-run")
    assert f"+directory {ROOT}/gdbinit\n" in said
    assert "nothing was changed" in said
    assert list(private_home.iterdir()) == []
    gdbmem("install")
    files = sorted(private_home.rglob("*"))
    said = gdbmem("uninstall", "--dry-run")
    assert "-directory" in said
    assert "would be removed" in said
    assert sorted(private_home.rglob("*")) == files


def test_auto_load_loads_it_in_every_gdb_and_installing_without_takes_that_back(private_home: Path) -> None:
    gdbmem("install", "--auto-load")
    assert f"gdbmem from {ROOT}" in gdb("-ex", WHERE)
    gdbmem("install")
    assert "loaded: False" in gdb("-ex", "python import sys; print('loaded:', 'gdbmem' in sys.modules)")


def test_another_gdbinit_can_be_named_and_gdbs_own_is_left_alone(private_home: Path, tmp_path: Path) -> None:
    named = tmp_path / "my gdbinit"
    gdbmem("install", "--gdbinit", str(named))
    assert not (private_home / ".gdbinit").exists()
    assert f"gdbmem from {ROOT}" in gdb("-x", str(named), "-ex", "source gdbmem", "-ex", WHERE)
    gdbmem("uninstall", "--gdbinit", str(named))
    assert not named.exists()


def test_a_gdbinit_that_stops_gdb_short_is_noticed(private_home: Path) -> None:
    (private_home / ".gdbinit").write_text("no-such-command\n")
    said = gdbmem("install", status=1)
    assert "was changed, but 'source gdbmem' fails in gdb" in said


def checkout(folder: Path) -> Path:
    """Return the loader of a copy of the package under *folder*, as in a checkout."""
    (folder / "gdbinit").mkdir(parents=True)
    shutil.copy(LOADER, folder / "gdbinit")
    (folder / "gdbmem").symlink_to(ROOT / "gdbmem")
    return folder / "gdbinit" / "gdbmem"


@pytest.mark.parametrize("name", ["a b", "it's", 'say "x"', "back\\slash", "$HOME", "#x", "caf\udce9"])
def test_gdb_finds_it_in_folders_with_unusual_names(name: str, tmp_path: Path) -> None:
    from gdbmem.setup import gdbinit

    loader = checkout(tmp_path / name)
    init = tmp_path / "init"
    init.write_bytes(gdbinit.block(loader.parent, auto_load=True))
    output = gdb("-nx", "-x", str(init), "-ex", "python import gdbmem; print(ascii(gdbmem.__file__))")
    assert ascii(str(tmp_path / name / "gdbmem" / "__init__.py")) in output


@pytest.mark.parametrize("name", ["a:b", "new\nline"])
def test_where_gdb_cannot_search_it_can_still_be_named(name: str, tmp_path: Path) -> None:
    loader = checkout(tmp_path / name)
    output = gdb("-nx", "-x", str(loader), "-ex", "python import gdbmem; print(ascii(gdbmem.__file__))")
    assert ascii(str(tmp_path / name / "gdbmem" / "__init__.py")) in output


def test_the_loader_finds_an_installed_package_too(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "gdbmem"
    shutil.copytree(ROOT / "gdbmem", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "gdbinit", package / "gdbinit")
    output = gdb(
        "-nx", "-x", str(package / "gdbinit" / "gdbmem"), "-ex", "python print(sys.modules['gdbmem'])"
    )
    assert f"'{package}/__init__.py'" in output


def test_an_upgrade_of_python_leaves_source_gdbmem_working(private_home: Path, tmp_path: Path) -> None:
    """As by pipx and uv, which make an environment anew at the same path."""
    old, new = tmp_path / "lib/python3.9", tmp_path / "lib/python3.13"
    shutil.copytree(ROOT / "gdbmem", old / "site-packages/gdbmem")
    shutil.copytree(ROOT / "gdbinit", old / "site-packages/gdbmem/gdbinit")
    share = tmp_path / "share/gdbmem/gdbinit"
    share.mkdir(parents=True)
    shutil.copy(LOADER, share)
    said = gdbmem("install", PYTHONPATH=str(old / "site-packages"))
    assert f"+directory {share}\n" in said
    (tmp_path / "lib/python3.8/site-packages").mkdir(parents=True)  # left behind
    old.rename(new)
    assert f"gdbmem from {new}/site-packages/gdbmem/__init__.py" in gdb("-ex", "source gdbmem", "-ex", WHERE)
    assert "\nok       source gdbmem " in gdbmem("doctor", PYTHONPATH=str(new / "site-packages"))
    new.rename(tmp_path / "gone")
    broken = gdbmem("doctor", PYTHONPATH=str(tmp_path / "gone/site-packages"), status=1)
    assert (
        f"missing  source gdbmem      {private_home}/.gdbinit names gdbmem, but it fails in gdb: " in broken
    )
    assert "cannot find its own package" in broken


def test_a_gdb_without_a_working_python_reports_it_in_one_sentence(tmp_path: Path) -> None:
    output = gdb("-nx", "--data-directory", str(tmp_path), "-x", str(LOADER), "-ex", "echo next\\n")
    ours = [line for line in output.splitlines() if line.startswith("gdbmem:")]
    assert len(ours) == 1
    assert "this gdb has no working Python" in ours[0]
    assert "next" in output


def test_a_link_to_the_loader_works(tmp_path: Path) -> None:
    (tmp_path / "anything").symlink_to(LOADER)
    output = gdb("-nx", "-x", str(tmp_path / "anything"), "-ex", "help massif-snap")
    assert "Undefined" not in output


def test_loading_leaves_no_trace_in_the_users_python(tmp_path: Path) -> None:
    ask = "python print('state', sorted(dir()), sys.path, __import__('signal').getsignal(2), sys.dont_write_bytecode)"
    load = ("-x", str(LOADER))
    states = [
        next(line for line in gdb("-nx", *words, "-ex", ask).splitlines() if line.startswith("state"))
        for words in ((), load, load * 2)
    ]
    assert states[0] == states[1] == states[2]


def test_only_the_private_folder_goes_on_the_path_and_at_its_end(private_home: Path) -> None:
    gdbmem("install")
    ask = "python print('path', sys.path)"
    before = eval(gdb("-nx", "-ex", ask).split("path ", 1)[1])
    after = eval(gdb("-nx", "-x", str(LOADER), "-x", str(LOADER), "-ex", ask).split("path ", 1)[1])
    assert after[: len(before)] == before
    assert [Path(entry).parent for entry in after[len(before) :]] == [private_home / ".local/share/gdbmem"]


def test_a_package_that_cannot_be_loaded_is_one_sentence_and_the_gdbinit_goes_on(tmp_path: Path) -> None:
    loader = checkout(tmp_path)
    (tmp_path / "gdbmem").unlink()
    init = tmp_path / "init"
    init.write_text(f"source {loader}\nset width 77\n")
    output = gdb("-nx", "-x", str(init), "-ex", "show width")
    assert "gdbmem: cannot find its own package; type 'gdbmem install'" in output
    assert "77" in output

    (tmp_path / "gdbmem" / "debugger").mkdir(parents=True)
    (tmp_path / "gdbmem" / "__init__.py").touch()
    (tmp_path / "gdbmem" / "debugger" / "__init__.py").touch()
    output = gdb("-nx", "-x", str(init), "-ex", "python print('gdbmem' in sys.modules)")
    sentence = output.splitlines()[0] if output.startswith("gdbmem:") else output.splitlines()[-1]
    assert sentence.startswith(f"gdbmem: cannot be loaded from {tmp_path}/gdbmem (ModuleNotFoundError:")
    assert "False" in output


def test_the_private_folder_holds_nothing_compiled(private_home: Path) -> None:
    folder = ensure_private_folder()
    assert folder.parent == private_home / ".local/share/gdbmem"
    compiled = [path for path in folder.rglob("*") if path.suffix in (".so", ".pyd")]
    assert compiled == []
    assert (folder / "pygments").is_dir()


def test_the_second_time_gdb_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ensure_private_folder()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("gdb was started"))
    assert ensure_private_folder() == folder


def test_a_replaced_gdb_is_asked_again(tmp_path: Path) -> None:
    from gdbmem.setup.gdb_packages import known_gdb

    found = shutil.which("gdb")
    assert found is not None
    copy = tmp_path / "gdb"
    shutil.copy2(found, copy)
    known_gdb(str(copy))
    copy.unlink()
    shutil.copy2(shutil.which("true") or "/bin/true", copy)
    with pytest.raises(ToolError, match="has no working Python"):
        known_gdb(str(copy))


def test_two_installs_at_once_do_each_other_no_harm(private_home: Path) -> None:
    code = "from gdbmem.setup.gdb_packages import ensure_private_folder; print(ensure_private_folder())"
    many = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = {process.communicate(timeout=60)[0] for process in many}
    assert [process.returncode for process in many] == [0, 0, 0]
    assert len(answers) == 1
    folder = Path(answers.pop().strip())
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, "gdbs.json"]


def test_an_old_folder_is_replaced_when_gdbmem_has_other_packages(private_home: Path) -> None:
    folder = ensure_private_folder()
    (folder / "gdbmem-packages.json").write_text('{"pygments": "1.0"}')
    (folder / "pygments" / "util.py").write_text("raise ImportError('old')")
    assert "filled with" in gdbmem("install")
    assert "old" not in (folder / "pygments" / "util.py").read_text()[:40]


def test_a_gdb_that_is_missing_or_no_gdb_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="is not a program that can be run; name the path of a gdb"):
        ensure_private_folder(str(tmp_path / "none"))
    said = gdbmem("install", status=3, PATH="/nonexistent")
    assert said.startswith("gdbmem: gdb is not installed; ")
    said = gdbmem("install", status=3, GDBMEM_GDB="/none/gdb")
    assert said.startswith("gdbmem: /none/gdb, which $GDBMEM_GDB names, is not a program that can be run")
    said = gdbmem("install", status=1, GDBMEM_GDB="/bin/true")
    assert said.startswith("gdbmem: /bin/true has no working Python (it prints nothing); ")


def test_a_gdb_whose_python_is_too_old_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "gdb"
    path.write_text("#!/bin/sh\necho gdbmem-python 3 6 8.2\n")
    path.chmod(0o755)
    with pytest.raises(ToolError, match=r"has Python 3\.6, and gdbmem needs 3\.9 or later; name another gdb"):
        ensure_private_folder(str(path))


def test_a_data_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = gdbmem("install", status=1, XDG_DATA_HOME=str(tmp_path / "file"))
    last = said.splitlines()[-1]
    assert last.startswith("gdbmem: cannot write ")
    assert last.endswith("name a folder that you may write to in $XDG_DATA_HOME [private-folder-unwritable]")


def test_packages_that_are_not_in_our_environment_come_from_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pip is a stand-in here: what matters is how it is asked, and that its failure is a sentence."""

    def nothing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    log = tmp_path / "log"
    python = tmp_path / "python"
    monkeypatch.setattr(importlib.metadata, "distribution", nothing)
    monkeypatch.setattr(sys, "executable", str(python))
    python.write_text(f'#!/bin/sh\necho "$@" > {log}\necho "ERROR: no network" >&2\nexit 1\n')
    python.chmod(0o755)
    with pytest.raises(
        ToolError, match=r"is not in the environment of gdbmem, and pip failed \(ERROR: no net"
    ):
        ensure_private_folder()
    assert "--only-binary=:all: --implementation py --abi none --platform any" in log.read_text()
    assert not Path(private_folder()).exists()

    site = next(Path(entry) for entry in sys.path if (Path(entry) / "pygments").is_dir())
    python.write_text(
        textwrap.dedent(f"""\
        #!/bin/sh
        while [ "$1" != --target ]; do shift; done
        mkdir "$2" && cp -r {site}/pygments* "$2"
        """)
    )
    assert (ensure_private_folder() / "pygments" / "util.py").is_file()
