"""Which packages gdb's own Python gets: none that it could not run."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from gdbmem.setup import requirements
from gdbmem.setup.folders import private_folder
from gdbmem.setup.gdb_packages import _copy_package, exchange_folders, satisfies
from gdbmem.setup.requirements import install_command


@pytest.mark.parametrize(
    ("specifier", "python", "met"),
    [
        ("", (3, 9), True),
        (">=3.8", (3, 9), True),
        (">=3.10", (3, 9), False),
        (">=3.8.0", (3, 14), True),
        (">=3.9.2", (3, 9), True),
        (">=3.8,<4", (3, 14), True),
        (">=3.8,<4.0.0", (3, 14), True),
        (">=3.7,<3.13", (3, 13), False),
        ("<=3.12", (3, 13), False),
        (">3.9", (3, 9), False),
        (">=3.6, !=3.9.*", (3, 9), False),
        (">=3.6, !=3.9.*", (3, 10), True),
        ("!=3.9.7", (3, 9), True),
        ("==3.*", (3, 11), True),
        ("~=3.8", (3, 11), True),
        ("~=3.12", (3, 11), False),
        ("something else", (3, 11), False),
    ],
)
def test_a_package_is_copied_only_for_a_python_that_it_declares(
    specifier: str, python: tuple[int, int], met: bool
) -> None:
    assert satisfies(python, specifier) is met


def test_each_python_has_its_own_folder(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = f"{private_home}/.local/share/gdbmem/gdb-python3.9"
    assert private_folder((3, 9)) == expected
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert private_folder((3, 9)) == expected
    monkeypatch.setenv("XDG_DATA_HOME", "/data/")
    assert private_folder((3, 9)) == "/data/gdbmem/gdb-python3.9"


@pytest.mark.parametrize(
    ("os_release", "gdb", "libc"),
    [
        ("ID=debian\n", "apt install gdb", "apt install libc6-dbg"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "apt install gdb", "apt install libc6-dbg"),
        ("ID=fedora\n", "dnf install gdb", "dnf debuginfo-install glibc"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install gdb", "dnf debuginfo-install glibc"),
        (
            'ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n',
            "zypper install gdb",
            "zypper install glibc-debuginfo",
        ),
        ("ID=arch\n", "pacman -S gdb", "export DEBUGINFOD_URLS=https://debuginfod.archlinux.org"),
        ("ID=plan9\n", "", ""),
        ("nonsense", "", ""),
    ],
)
def test_the_command_to_type_is_that_of_the_distribution(os_release: str, gdb: str, libc: str) -> None:
    assert install_command("gdb", os_release=os_release) == gdb
    assert install_command("libc-symbols", os_release=os_release) == libc


def test_a_python_that_refuses_pip_gets_the_packages_of_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "__file__", str(tmp_path / "os.py"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setattr(requirements, "_read", lambda: "ID=debian\n")
    assert requirements.pip_install("jinja2") == f"type: {sys.executable} -m pip install jinja2"
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    assert requirements.pip_install("jinja2", "pyyaml") == "type: apt install python3-jinja2 python3-yaml"
    monkeypatch.setattr(sys, "prefix", "/home/me/.venv")
    assert requirements.pip_install("jinja2") == f"type: {sys.executable} -m pip install jinja2"


def test_a_folder_that_another_install_has_filled_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, folder = tmp_path / "fresh", tmp_path / "folder"
    fresh.mkdir()

    def filled_by_another(path: Path) -> bool:
        (path / "theirs").mkdir(parents=True)
        return False

    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", filled_by_another)
        exchange_folders(fresh, folder, tmp_path / "old")
    assert [path.name for path in folder.iterdir()] == ["theirs"]


def test_gdb_gets_a_package_of_the_distribution_without_pip(tmp_path: Path) -> None:
    site, target = tmp_path / "dist-packages", tmp_path / "private"
    (site / "pygments").mkdir(parents=True)
    information = site / "pygments-2.18.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: Pygments\nVersion: 2.18.0\n"
    )  # no RECORD
    _copy_package(importlib.metadata.Distribution.at(information), target)
    assert (target / "pygments").resolve() == site / "pygments"
