"""Separate root folders for programs: containers, as seen from outside."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

import pytest

from tests.live.user import SECONDS, environment

MALLORY = 65529  # not the one of other tests, which look whether anything of theirs is left
AS_MALLORY = ["setpriv", f"--reuid={MALLORY}", f"--regid={MALLORY}", "--clear-groups"]
# As root's docker starts one, as a user's podman does, and a chroot in separate namespaces.
_PIVOT = ["sh", "-c", 'mount --bind "$0" "$0" && cd "$0" && pivot_root . tmp/old && exec "$@"', "{root}"]
ENTER = {
    "root's": ["unshare", "--mount", "--pid", "--fork", "--kill-child", *_PIVOT],
    "a user's": [*AS_MALLORY, "unshare", "-Urmp", "--fork", "--kill-child", *_PIVOT],
    "a chroot": [*AS_MALLORY, "unshare", "-Urmp", "--fork", "--kill-child", "--root={root}", "--wd=/"],
}
_PODMAN = ["podman", "run", "--rm", "-i", "--network=none", "--cgroups=disabled", "--log-driver=none"]
_MAPPED = 65000  # what root of such a container is here
# As root starts one; with users of its own; as one of its users.
PODMAN = {
    "podman's": [],
    "podman's, users mapped": [f"--uidmap=0:{_MAPPED}:1000"],
    "podman's, as a user": [f"--user={MALLORY}"],
}
WAYS = [*ENTER, *PODMAN]
# If this process may not set limits, crun must not get any; it does not support mixed hierarchies of cgroups.
_CRUN = """#!{python}
import json, os, sys
if "create" in sys.argv:
    path = sys.argv[sys.argv.index("--bundle") + 1] + "/config.json"
    with open(path) as file:
        words = json.load(file)
    words["process"].pop("rlimits", None)
    with open(path, "w") as file:
        json.dump(words, file)
os.execv("{real}", ["crun", *sys.argv[1:]])
"""
_WITHOUT_LIMITS = (
    "mount --make-rprivate / && umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup"
    ' && mount --bind "$0" "$1" && shift && exec "$@"'
)


def libraries_of(binary: Path) -> list[Path]:
    """Return the libraries that *binary* loads, by the names that it loads them by."""
    listed = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in re.findall(r"(?:=> |^\t)(/\S+) \(0x", listed, re.M)]


def make_root(folder: Path, binary: Path, preloads: Sequence[Path] = ()) -> Path:
    """Fill *folder* with *binary* as /app/program and with its libraries; return it."""
    folder.mkdir(mode=0o755)
    folder.parent.chmod(0o755)
    for name in ("app", "tmp", "tmp/old", "tmp/prof"):
        (folder / name).mkdir()
    for library in {*libraries_of(binary), *preloads, *(one for p in preloads for one in libraries_of(p))}:
        there = folder / library.relative_to("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, there)  # what the link leads to
    shutil.copy(binary, folder / "app/program")
    for path in folder.rglob("*"):
        path.chmod(0o755)
    for path in (folder / "tmp", folder / "tmp/prof"):
        path.chmod(0o1777)
    return folder


@contextlib.contextmanager
def contained(
    way: str, root: Path, *words: object, variables: Optional[dict[str, str]] = None, name: str = "program"
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield the process that made the container of *root*, and the pid in it of /app/program with *words*."""
    program = ["/app/program", *map(str, words)]
    pid_file = root.parent / "podman.pid"
    if way in PODMAN:
        settings = [f"--env={key}={value}" for key, value in (variables or {}).items()]
        files = [f"--pidfile={pid_file}", "--rootfs", str(root)]
        command = [*_podman(root.parent), *PODMAN[way], *settings, *files, *program]
        variables = None
        if "mapped" in way:  # what podman makes else, where it may
            for folder in ("proc", "sys", "dev", "etc", "run"):
                (root / folder).mkdir(exist_ok=True)
            for file in ("etc/hosts", "etc/hostname", "etc/resolv.conf", "run/.containerenv"):
                (root / file).touch()
            for path in (root, *root.rglob("*")):
                os.chown(path, _MAPPED, _MAPPED)
    else:
        command = [*(word.format(root=root) for word in ENTER[way]), *program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        env={**environment(), **(variables or {})},
    ) as outer:  # fmt: skip
        try:
            yield outer, _by_file(outer, pid_file) if way in PODMAN else _inner(outer, name)
        finally:
            if (
                way in PODMAN
            ):  # the program is not a child of podman's, which removes the container when that has ended
                _end(pid_file)
                outer.wait(60)
            outer.kill()
            for stream in (outer.stdin, outer.stdout):
                with contextlib.suppress(BrokenPipeError):
                    if stream is not None:
                        stream.close()


def _podman(folder: Path) -> list[str]:
    """Return the command that starts a container here; skip the test where nothing does."""
    real = shutil.which("crun")
    if shutil.which("podman") is None or real is None:
        pytest.skip("needs podman and crun")
    if b"hybrid" not in _refusal() and b"setrlimit" not in _refusal():
        return _PODMAN
    shutil.copy(real, folder / "crun.real")
    wrapper = folder / "crun"
    wrapper.write_text(_CRUN.format(python=sys.executable, real=folder / "crun.real"))
    wrapper.chmod(0o755)
    return ["unshare", "--mount", "sh", "-c", _WITHOUT_LIMITS, str(wrapper), real, *_PODMAN]


@functools.cache
def _refusal() -> bytes:
    """Return podman's error if it can't start a container."""
    done = subprocess.run([*_PODMAN, "--rootfs", "/", "/bin/true"], capture_output=True, check=False, cwd="/")
    return done.stderr if done.returncode else b""


def _by_file(outer: subprocess.Popen[str], file: Path) -> int:
    until = time.monotonic() + 60
    while time.monotonic() < until and outer.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            return int(file.read_text())
        time.sleep(0.01)
    raise AssertionError("podman started no container")


def _end(file: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(file.read_text()), signal.SIGKILL)


def _inner(outer: subprocess.Popen[str], name: str) -> int:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and outer.poll() is None:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        with contextlib.suppress(OSError, IndexError):
            if os.readlink(f"/proc/{children[0]}/exe").endswith(f"/app/{name}"):  # noqa: PTH115
                return int(children[0])
        time.sleep(0.01)
    raise AssertionError("no program came up in the container")
