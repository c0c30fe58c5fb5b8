"""Root folders of their own for programs: what a container is to whoever looks at it from outside."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from tests.live.user import environment

MALLORY = 65529  # not the one of other tests, which look whether anything of theirs is left
AS_MALLORY = ["setpriv", f"--reuid={MALLORY}", f"--regid={MALLORY}", "--clear-groups"]
# As root's docker starts one, as a user's podman does, and a chroot in namespaces of its own.
_PIVOT = ["sh", "-c", 'mount --bind "$0" "$0" && cd "$0" && pivot_root . tmp/old && exec "$@"', "{root}"]
ENTER = {
    "root's": ["unshare", "--mount", "--pid", "--fork", "--kill-child", *_PIVOT],
    "a user's": [*AS_MALLORY, "unshare", "-Urmp", "--fork", "--kill-child", *_PIVOT],
    "a chroot": [*AS_MALLORY, "unshare", "-Urmp", "--fork", "--kill-child", "--root={root}", "--wd=/"],
}


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
    command = [*(word.format(root=root) for word in ENTER[way]), "/app/program", *map(str, words)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        env={**environment(), **(variables or {})},
    ) as outer:  # fmt: skip
        try:
            yield outer, _inner(outer, name)
        finally:
            outer.kill()
            for stream in (outer.stdin, outer.stdout):
                with contextlib.suppress(BrokenPipeError):
                    if stream is not None:
                        stream.close()


def _inner(outer: subprocess.Popen[str], name: str) -> int:
    until = time.monotonic() + 20
    while time.monotonic() < until and outer.poll() is None:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        with contextlib.suppress(OSError, IndexError):
            if os.readlink(f"/proc/{children[0]}/exe").endswith(f"/app/{name}"):  # noqa: PTH115
                return int(children[0])
        time.sleep(0.01)
    raise AssertionError("no program came up in the container")
