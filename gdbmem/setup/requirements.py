"""The Python packages that gdbmem needs, and what can't be done without each."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import NamedTuple, Optional


class Requirement(NamedTuple):
    """A package: what it is imported as, its name for pip, and what is lost without it."""

    module: str
    package: str
    without: str


REQUIREMENTS = (
    Requirement("jinja2", "jinja2", "no report"),
    Requirement("numpy", "numpy", "heaps are read slowly"),
    Requirement("google.protobuf", "protobuf", "pprof's files are neither read nor written"),
    Requirement("pygments", "pygments", "source lines have no colours"),
    Requirement("yaml", "pyyaml", "no recipes"),
    Requirement("zstandard", "zstandard", "heaptrack's files are not read"),
)
_DEBIAN_NAMES = {"pyyaml": "python3-yaml"}  # others are called python3-NAME there


def problems() -> list[tuple[Requirement, str]]:
    """Return what of REQUIREMENTS can't be imported, each with the reason."""
    found = []
    for requirement in REQUIREMENTS:
        try:
            importlib.import_module(requirement.module)
        except ImportError as error:
            found.append((requirement, str(error)))
    return found


def required(module: Optional[str]) -> Optional[Requirement]:
    """Return the requirement that *module*, or what it is part of, belongs to; None if there is none."""
    top = (module or "").partition(".")[0]
    return next((one for one in REQUIREMENTS if one.module.partition(".")[0] == top), None)


def pip_install(*packages: str) -> str:
    """Return what to type so that this very Python gets *packages*; Debian's own refuses pip."""
    stdlib = Path(os.__file__).parent
    is_distributions = sys.prefix == sys.base_prefix and (stdlib / "EXTERNALLY-MANAGED").exists()
    if is_distributions and _family(_read()) == "debian":
        return how_to_install(" ".join(_DEBIAN_NAMES.get(name, f"python3-{name}") for name in packages))
    return f"type: {sys.executable} -m pip install {' '.join(packages)}"


# The command that installs a program here: /etc/os-release names the distribution.


_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")

_COMMANDS = {
    "debian": "apt install",
    "fedora": "dnf install",
    "arch": "pacman -S",
    "suse": "zypper install",
    "alpine": "apk add",
}
# Values of a distribution's ID or ID_LIKE → its family.
_FAMILIES = {
    "debian": "debian", "ubuntu": "debian",
    "fedora": "fedora", "rhel": "fedora", "centos": "fedora",
    "arch": "arch", "archlinux": "arch",
    "suse": "suse", "opensuse": "suse", "sles": "suse",
    "alpine": "alpine",
}  # fmt: skip
# A package has the name of the program unless listed here.
_PACKAGES = {
    ("debian", "libc-symbols"): "apt install libc6-dbg",
    ("debian", "libdw"): "apt install libdw1",
    ("fedora", "libdw"): "dnf install elfutils-libs",
    ("arch", "libdw"): "pacman -S elfutils",
    ("suse", "libdw"): "zypper install libdw1",
    ("fedora", "libc-symbols"): "dnf debuginfo-install glibc",
    ("arch", "libc-symbols"): "export DEBUGINFOD_URLS=https://debuginfod.archlinux.org",
    ("suse", "libc-symbols"): "zypper install glibc-debuginfo",
    ("alpine", "libc-symbols"): "apk add musl-dbg",
    ("fedora", "libgoogle-perftools4"): "dnf install gperftools-libs",
    ("arch", "libgoogle-perftools4"): "pacman -S gperftools",
    ("suse", "libgoogle-perftools4"): "zypper install libtcmalloc4",
    ("alpine", "libgoogle-perftools4"): "apk add gperftools",
    ("fedora", "libjemalloc2"): "dnf install jemalloc",
    ("arch", "libjemalloc2"): "pacman -S jemalloc",
    ("alpine", "libjemalloc2"): "apk add jemalloc",
}


def install_command(what: str, *, os_release: str = "") -> str:
    """Return what to type to install *what* (gdb, valgrind, libc-symbols); "" if unknown.

    *os_release* is the text of that file, by default this machine's.
    """
    family = _family(os_release or _read())
    if (family, what) in _PACKAGES:
        return _PACKAGES[family, what]
    if family not in _COMMANDS or what == "libc-symbols":
        return ""
    return f"{_COMMANDS[family]} {what}"


def how_to_install(what: str) -> str:
    """Return a hint: ``type: apt install gdb``, or to install the package."""
    command = install_command(what)
    if command:
        as_root = "" if os.geteuid() == 0 or command.startswith("export ") else "sudo "
        return f"type: {as_root}{command}"
    name = "the C library’s symbols" if what == "libc-symbols" else what
    return f"install your distribution's package of {name}"


def _read() -> str:
    for path in _OS_RELEASE:
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return ""


def _family(os_release: str) -> str:
    fields = {}
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        fields[key.strip()] = value.strip().strip("\"'")
    words = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    for word in words:
        family = _FAMILIES.get(word.lower()) or _FAMILIES.get(word.lower().split("-")[0])
        if family:
            return family
    return ""
