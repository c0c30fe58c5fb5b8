"""Somebody at a terminal: types at a real gdb through a pseudo-terminal, reads what it shows."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import pexpect
import pytest

from gdbmem.setup.gdb_packages import ensure_private_folder
from tests.live.warm import run_forked

GDBMEM = str(Path(sys.executable).with_name("gdbmem"))
# At a line's start: help shows examples with a prompt. (A terminal with colours gets an escape sequence first.)
PROMPT = re.compile(rb"(?:\A|[\r\n])(?:\x1b\[\?2004[hl]\r?)*\(gdb\) ")
SECONDS = 120  # for anything to appear, on a busy machine too: only a test that fails waits so long

Word = Union[str, bytes, os.PathLike[str]]


@functools.cache
def data_home() -> str:
    """Return a folder for gdb's packages that all tests of this process share: it is filled once."""
    folder = tempfile.mkdtemp(prefix="gm-data-", dir="/tmp")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def packages() -> str:
    """Return the data folder, filled with what gdb's Python needs: for a gdb that no launcher of ours starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", data_home())
        ensure_private_folder()
    return data_home()


def environment(**changes: Optional[str]) -> dict[str, str]:
    """Return this process's environment with the shared data folder and *changes* (None removes)."""
    merged = {**os.environ, "XDG_DATA_HOME": data_home(), "TERM": "dumb", **changes}
    return {name: value for name, value in merged.items() if value is not None}


def skip_where_others_cannot_run_gdbmem() -> None:
    """Skip a test that runs gdbmem as another user, where the checkout is in a folder that only its owner can enter."""
    command = Path(GDBMEM).resolve()
    closed = next((folder for folder in command.parents if not folder.stat().st_mode & stat.S_IXOTH), None)
    if closed is not None:
        pytest.skip(f"other users can't enter {closed}")


class User:
    """A program on a separate terminal, with a simulated user. Leave with the context manager."""

    def __init__(self, words: Sequence[Word], folder: Path, env: Mapping[str, str], rows: int) -> None:
        first, *rest = (os.fsdecode(word) for word in words)
        # It reads bytes: what strangers' names hold need not be UTF-8.
        self.child = pexpect.spawn(
            first, rest, cwd=folder, env=dict(env), dimensions=(rows, 200), timeout=SECONDS, echo=True
        )
        self.child.delaybeforesend = None
        self.child.delayafterclose = 0
        self.child.delayafterterminate = 0
        assert self.child.pid is not None
        self.pid = self.child.pid
        self.folder = folder
        self.shown = b""  # everything so far, as bytes
        self.child.logfile_read = _Log(self)

    def see(self, *texts: str) -> str:
        """Wait for *texts*, one after the other; return what was shown up to the last, as read."""
        seen = ""
        for text in texts:
            self.child.expect_exact(text.encode())
            seen += self._before() + text
        return seen

    def see_match(self, pattern: str) -> re.Match[bytes]:
        """Wait for *pattern*; return the match."""
        self.child.expect(re.compile(pattern.encode()))
        match: re.Match[bytes] = self.child.match  # type: ignore[assignment]  # typed as text's
        return match

    def prompt(self) -> str:
        """Wait for gdb's prompt; return what was shown before it."""
        self.child.expect(PROMPT)
        return self._before().rstrip("\r") + "\n"

    def send(self, line: Union[str, bytes]) -> None:
        """Type *line* and Enter."""
        self.child.sendline(line if isinstance(line, bytes) else line.encode())

    def type(self, line: Union[str, bytes]) -> str:
        """Type *line* at gdb's prompt; return its whole answer, without the line itself."""
        self.send(line)
        return self.prompt().partition("\n")[2]

    def press(self, key: str) -> None:
        """Press Ctrl and *key*."""
        self.child.sendcontrol(key)

    def quit(self) -> str:
        """Type quit, confirm if asked, wait for the end; return the launcher's last output."""
        self.send("quit")
        if self.child.expect_exact([b"(y or n) ", pexpect.EOF]) == 0:
            self.send("y")
            return self.end()
        return self._before() + self._close()

    def end(self) -> str:
        """Wait for the program's own end; return what was shown until then."""
        self.child.expect(pexpect.EOF)
        return self._before() + self._close()

    @property
    def status(self) -> int:
        """The exit status as a shell shows it."""
        self.child.close()
        if self.child.signalstatus is not None:
            return 128 + self.child.signalstatus
        assert self.child.exitstatus is not None
        return self.child.exitstatus

    def terminal_settings(self) -> list[Any]:
        return termios.tcgetattr(self.child.child_fd)

    @property
    def text(self) -> str:
        """Everything shown so far."""
        return self.shown.decode("utf-8", "replace")

    def _before(self) -> str:
        before = self.child.before
        return before.decode("utf-8", "replace").replace("\r\n", "\n") if isinstance(before, bytes) else ""

    def _close(self) -> str:
        self.child.wait()
        return ""


class _Log:
    """A log file for pexpect."""

    def __init__(self, user: User) -> None:
        self._user = user

    def write(self, data: bytes) -> None:
        self._user.shown += data

    def flush(self) -> None:
        pass


@contextlib.contextmanager
def at_terminal(
    words: Sequence[Word], folder: Path, env: Optional[Mapping[str, str]] = None, *, rows: int = 60_000
) -> Iterator[User]:
    """Yield a user who has typed *words* in a shell in *folder*; hang up at the end."""
    user = User(words, folder, env if env is not None else environment(), rows)
    try:
        yield user
    except Exception:
        sys.stdout.write(f"--- the terminal showed:\n{user.text}\n---\n")
        raise
    finally:
        if user.child.isalive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(user.pid, signal.SIGTERM)
            with contextlib.suppress(pexpect.TIMEOUT):
                user.child.expect(pexpect.EOF, timeout=20)
        user.child.close(force=True)


@contextlib.contextmanager
def launched(
    *words: Word,
    folder: Path,
    options: Sequence[Word] = (),
    env: Optional[Mapping[str, str]] = None,
    rows: int = 60_000,
) -> Iterator[User]:
    """Yield a user who has typed ``gdbmem launch --massif OPTIONS WORD -- WORDS`` and sees gdb's prompt."""
    program, *arguments = words
    with at_terminal(
        [GDBMEM, "launch", "--massif", *options, program, "--", *arguments], folder, env, rows=rows
    ) as user:
        user.prompt()
        yield user


def only_run(folder: Path) -> Path:
    """Return the one run folder in *folder*."""
    (run,) = folder.glob("gdbmem.*")
    return run


def histories(run: Path) -> list[Path]:
    """Return massif's own history files in *run*."""
    return sorted([*run.glob("massif.*.out"), *run.glob("history-*.massif")])


def shell(
    *words: Word,
    folder: Optional[Path] = None,
    env: Optional[Mapping[str, str]] = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run *words* in *folder* (default: the current one), without a terminal; return what came of it.

    The installed command `GDBMEM` runs as tests/live/warm.py describes, unless more than its input is among the
    *options*.
    Raises subprocess.CalledProcessError where *check* is set and it failed.
    """
    variables = env if env is not None else environment()
    if words[0] == GDBMEM and not options.keys() - {"input"}:
        done = _warm(words, folder, variables, options.get("input", ""))
    else:
        if "input" not in options:
            options = {"stdin": subprocess.DEVNULL, **options}
        done = subprocess.run(
            [os.fsencode(word) for word in words],
            cwd=folder,
            env=dict(variables),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=SECONDS,
            **options,
        )
    if check and done.returncode:
        sys.stdout.write(done.stderr)
        done.check_returncode()
    return done


def _warm(
    words: Sequence[Word], folder: Optional[Path], env: Mapping[str, str], typed: str
) -> subprocess.CompletedProcess[str]:
    texts = [os.fsdecode(word) for word in words[1:]]
    done = run_forked(texts, os.fspath(folder or Path.cwd()), env, stdin=typed.encode(), seconds=SECONDS)
    decoded = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    lines = (text.replace("\r\n", "\n").replace("\r", "\n") for text in decoded)
    return subprocess.CompletedProcess(list(words), done.returncode, *lines)
