"""Typing what the pages of docs show, and comparing what comes with what they print.

A block of a page that begins after a line ``<!-- typed in FOLDER -->`` is typed at a real terminal in a built copy
of that folder (``.``: of all examples). ``, as 4711`` after the folder: this number of the page stands for the process
that the block starts in the background; ``, sizes vary``: sizes and counts may differ; ``, after `COMMAND` ``: this is
typed before, and not shown; ``, without output``: each command has to end with status 0. A line `…` stands for any
lines, a `…` at a line's end for its rest. Process numbers, addresses, times and the columns of tables may differ.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pexpect

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(
    r"<!-- typed in (?P<folder>[\w./-]+)(?:, as (?P<pid>\d+))?(?P<vary>, sizes vary)?"
    r"(?P<silent>, without output)?(?:, after `(?P<before>[^`]+)`)? -->\n"
    r"```(?:console|text)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_SHELL, _GDB = "$ ", "(gdb) "
_ELIDED = "…"
_SECONDS = 120.0
# What differs from run to run, and what stands for it in a comparison.
_VARYING = (
    (re.compile(r"0x[0-9a-fA-F]{5,}"), "ADDRESS"),
    (
        re.compile(r"overhead (grew|shrank) by \S+ \w+|.* allocator overhead, outside the heap$", re.M),
        "OVERHEAD",
    ),
    (re.compile(r"(massif|valgrind)\.1\.\d+"), r"\1.1.PID"),
    (re.compile(r"gdbmem\.(\w+)\.\d+"), r"gdbmem.\1.PID"),
    (re.compile(r"(?:\b\d+ min )?\b\d+(\.\d+)? (ms|s)\b"), "TIME"),
    (re.compile(r"\b\d[\d,]* a second"), "RATE"),
    (re.compile(r"^\[New Thread \d+\]\n", re.MULTILINE), ""),
    (re.compile(r"[ \t]+"), " "),
)
_SIZES = (
    (re.compile(r"[+-]?\b\d[\d,]*(\.\d+)? ?([KMG]i)?B\b"), "SIZE"),
    (re.compile(r"\b\d[\d,]*(\.\d+)?( ?%)?"), "NUMBER"),
)


@dataclass(frozen=True)
class Block:
    """A transcript in a page."""

    page: Path
    folder: str
    pid: str  # the number of the page that stands for the process in the background; "": there is none
    before: str  # what is typed before it, and not shown; "": nothing
    text: str
    sizes_vary: bool
    is_silent: bool  # the page shows the commands only
    start: int  # offsets of the text in the page
    end: int

    @property
    def place(self) -> str:
        """The page and the line of its first command."""
        line = self.page.read_text().count("\n", 0, self.start) + 1
        return f"{self.page.relative_to(ROOT)}:{line}"


def blocks(page: Path) -> list[Block]:
    """Return the blocks of *page* that can be typed."""
    found = []
    for m in _BLOCK.finditer(page.read_text()):
        folder, pid, before, text = (m[name] or "" for name in ("folder", "pid", "before", "text"))
        found.append(
            Block(page, folder, pid, before, text, bool(m["vary"]), bool(m["silent"]), *m.span("text"))
        )
    return found


class Terminal:
    """A shell at a terminal of its own, in *folder*."""

    def __init__(self, folder: Path) -> None:
        environment = {
            **os.environ, "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}", "TERM": "dumb", "PS1": _SHELL,
            "HISTFILE": "/dev/null", "COLUMNS": "200",
        }  # fmt: skip
        self._child = pexpect.spawn(
            "bash", ["--norc", "--noprofile"], cwd=str(folder), env=environment, encoding="utf-8",
            codec_errors="replace", timeout=_SECONDS, dimensions=(50, 200),
        )  # fmt: skip
        self._read()

    def _read(self) -> str:
        """Wait for a prompt; return what came before it. Questions of gdb's are answered with yes."""
        said = ""
        while self._child.expect([r"(?:^|(?<=\n))(?:\$|\(gdb\)) $", r"\(y or n\) $"]):
            said += f"{self._child.before}{self._child.after}"
            self._child.sendline("y")
        return f"{said}{self._child.before}".replace("\r", "")

    def type(self, line: str) -> str:
        """Type *line*; return what it printed until the next prompt."""
        self._child.sendline(line)
        said = self._read()
        echo, _, rest = said.partition("\n")
        return rest if echo == line else said

    def close(self) -> None:
        """End the shell and what it started."""
        self._child.close(force=True)


def play(block: Block, terminal: Terminal) -> str:
    """Type the commands of *block*; return the transcript, with the page's number of the process."""
    transcript: list[str] = []
    pid = _process_started(terminal.type(block.before)) if block.before else ""
    for line in block.text.splitlines():
        prompt = next((p for p in (_SHELL, _GDB) if line.startswith(p)), None)
        if prompt is None:
            continue
        command = line[len(prompt) :]
        said = terminal.type(re.sub(rf"\b{block.pid}\b", pid, command) if pid else command)
        if command.endswith("&"):
            pid, said = _process_started(said), ""
        if block.is_silent:
            status = terminal.type("echo $?").strip() if prompt == _SHELL else "0"
            said = "" if status == "0" else f"{said}status {status}\n"
        transcript.append(f"{line}\n{said}")
    text = "".join(transcript)
    return re.sub(rf"\b{pid}\b", block.pid, text) if pid else text


def _process_started(said: str) -> str:
    """Return the number of the last process that a shell has started in the background: ``[1] 4711``; "": none."""
    return next(reversed(re.findall(r"^\[\d+\] (\d+)$", said, re.MULTILINE)), "")


def differences(block: Block, came: str, folder: Path) -> list[str]:
    """Return the lines of *block* that did not come, and those that came instead, as a unified diff."""
    varying = [*_VARYING, *_SIZES] if block.sizes_vary else _VARYING
    wanted, got = (_comparable(text, folder, varying) for text in (block.text, came))
    pattern = "\n".join(map(re.escape, wanted)).replace(re.escape(f"<{_ELIDED}>"), "<.*>")
    pattern = re.sub(rf"^{_ELIDED}$|{_ELIDED}$", ".*", pattern, flags=re.MULTILINE)
    if re.fullmatch(pattern, "\n".join(got), re.DOTALL):
        return []
    return list(difflib.unified_diff(wanted, got, block.place, "now", lineterm="", n=1))


def _comparable(text: str, folder: Path, varying: Sequence[tuple[re.Pattern[str], str]]) -> list[str]:
    text = re.sub(rf"{re.escape(str(folder))}|/src/(demo|gdbmem)", "FOLDER", text)
    for pattern, word in varying:
        text = pattern.sub(word, text)
    return [line.rstrip() for line in text.rstrip("\n").split("\n")]


@contextlib.contextmanager
def built_copy(name: str) -> Iterator[Path]:
    """Yield a copy of the folder *name* of the checkout, with its programs built."""
    with tempfile.TemporaryDirectory(prefix="transcripts-") as temporary:
        folder = Path(temporary, "demo")
        inside = Path("examples" if name == "." else ".")
        shutil.copytree(ROOT / name / inside, folder / inside)
        for one in ("decoder", "how-to") if name == "." else (".",):
            subprocess.run(["make", "-s", "-C", folder / inside / one], check=True, stdout=subprocess.DEVNULL)
        yield folder


def check(page: Path, *, write: bool) -> int:
    """Type all blocks of *page*; print what differs, or *write* it into the page. Return how many differ."""
    differ = 0
    with contextlib.ExitStack() as opened:
        folders: dict[str, Path] = {}
        for block in blocks(page):
            if block.folder not in folders:
                folders[block.folder] = opened.enter_context(built_copy(block.folder))
            terminal = Terminal(folders[block.folder])
            opened.callback(terminal.close)
            came = play(block, terminal)
            found = differences(block, came, folders[block.folder])
            differ += bool(found)
            if found and write and f"\n{_ELIDED}\n" not in block.text:
                _write(block, came.replace(str(folders[block.folder]), "/src/demo"))
            elif found:
                print("\n".join(found))
    return differ


def _write(block: Block, came: str) -> None:
    # The offsets of this block hold only until an earlier one has changed its length: it is sought by its text.
    text = block.page.read_text()
    block.page.write_text(text.replace(block.text, came, 1))


def main(argv: Sequence[str]) -> int:
    """Check the pages that *argv* names, else all; return 1 if one differs."""
    parser = argparse.ArgumentParser(prog="scripts/transcripts", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "pages", metavar="PAGE", nargs="*", type=Path, help="default: README.md and all of docs"
    )
    parser.add_argument(
        "--write", action="store_true", help="put what comes into the pages, then read their diff"
    )
    args = parser.parse_args(argv)
    differ = 0
    for page in args.pages or PAGES:
        differ += check(page.resolve(), write=args.write)
    print(
        f"transcripts: {differ or 'no'} block{'s' * (differ != 1)} differ{'s' * (differ == 1)}",
        file=sys.stderr,
    )
    return int(differ > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
