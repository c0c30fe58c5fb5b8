"""Child processes: started in separate sessions, and ended by escalating signals, never by name."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

from gdbmem.errors import ToolError
from gdbmem.text import printable

# (signal, seconds to wait for its effect)
Ladder = Sequence[tuple[signal.Signals, float]]
GENTLE: Ladder = ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0))

_PR_SET_PDEATHSIG = 1
# The state at the start of this process: a program that the user launches gets the same.
_MASK = signal.pthread_sigmask(signal.SIG_BLOCK, ())
_PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)  # which Python itself ignores
_IGNORED = [n for n in signal.valid_signals() if n not in _PYTHONS and signal.getsignal(n) == signal.SIG_IGN]
_libc = ctypes.CDLL(None, use_errno=True)


class Child:
    """A child process; with *own_session* it leads its own session and group."""

    def __init__(
        self,
        argv: Sequence[str | bytes | os.PathLike[str]],
        *,
        environment: Optional[Mapping[str, str]] = None,
        folder: Optional[str | os.PathLike[str]] = None,
        stdin: Optional[int] = None,
        stdout: Optional[int] = None,
        stderr: Optional[int] = None,
        own_session: bool = True,
        dies_with_us: Optional[signal.Signals] = signal.SIGTERM,
        native_signals: bool = False,
        before_exec: Optional[Callable[[], None]] = None,
    ) -> None:
        """Start *argv*; if this process is killed, the child gets *dies_with_us* (None: no signal).

        With *native_signals* it blocks and ignores the same signals as this process at its start, as if the
        user had started it, otherwise none.
        """
        self.name = os.path.basename(os.fsdecode(argv[0]))  # noqa: PTH119  (may be bytes)
        self._own_session = own_session
        try:
            self._process = subprocess.Popen(
                list(argv),
                env=dict(environment) if environment is not None else None,
                cwd=folder,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=own_session,
                close_fds=False,  # those that this process inherited are the program's; its own are closed at exec
                # Safe here: this process has one thread.
                preexec_fn=_preparation(dies_with_us, before_exec, native_signals=native_signals),
            )
        except OSError as error:
            raise ToolError(
                f"{printable(self.name)} could not be started: {error.strerror}",
                slug="tool-not-started",
                hint="check that it is installed and that this user may run it",
            ) from error
        self.pid = self._process.pid

    @property
    def status(self) -> Optional[int]:
        """The exit status as a shell shows it (128+N for signal N); None while it runs."""
        code = self._process.poll()
        return None if code is None else (code if code >= 0 else 128 - code)

    @property
    def alive(self) -> bool:
        return self.status is None

    @property
    def fatal_signal(self) -> str:
        """The name of the signal that ended it; "" while it runs, or if none did."""
        code = self._process.poll() or 0
        return signal.Signals(-code).name if code < 0 else ""

    def signal(self, number: signal.Signals) -> None:
        """Send *number* to the child and, if it has its own session, to everything it started."""
        if self.alive:
            try:
                if self._own_session:
                    os.killpg(self.pid, number)
                else:
                    os.kill(self.pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    def wait(self, seconds: float) -> bool:
        """Wait for the end, at most *seconds*; return whether it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, ladder: Ladder = GENTLE) -> str:
        """End the child; return the name of the signal that was needed, "" if it had ended already."""
        for number, seconds in ladder:
            if not self.alive:
                break
            self.signal(number)
            if self.wait(seconds):
                return number.name
        return ""

    def stop_stragglers(self) -> None:
        """Kill what the child left running in its session's process group."""
        if self._own_session:
            deadline = time.monotonic() + 2.0
            while _group_exists(self.pid) and time.monotonic() < deadline:
                try:
                    os.killpg(self.pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    return
                time.sleep(0.01)  # their parent is init now: there is no handle to wait on


def _preparation(
    dies_with_us: Optional[signal.Signals], before_exec: Optional[Callable[[], None]], *, native_signals: bool
) -> Callable[[], None]:
    """Return the steps of the child before it executes the program."""
    parent = os.getpid()

    def prepare() -> None:
        if dies_with_us is not None:
            die_with_parent(dies_with_us, parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, _MASK if native_signals else ())
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN if native_signals else signal.SIG_DFL)
        if before_exec is not None:
            before_exec()

    return prepare


def die_with_parent(number: signal.Signals, parent: int) -> None:
    """Send *number* to this process when its parent, process *parent*, ends; end now if it has ended already."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:  # killed before the kernel was asked: it would send no signal
        os._exit(1)


def outlive_parent() -> None:
    """Make this process, which was just forked, one that no signal of the terminal and no folder in use concerns."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    os.chdir("/")


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


# A short-lived folder, 0700, for files that need a short path without spaces: FIFOs, a socket, a link.


# vgdb splits its arguments at spaces, gdb passes a command to a shell: a plain path needs no quoting.
_PLAIN = re.compile(r"/[A-Za-z0-9_./-]{1,60}")


@contextlib.contextmanager
def runtime_folder(run: Path, *, tell: Callable[[Path], None] = lambda _: None) -> Iterator[Path]:
    """Yield a new folder with the link ``run`` to *run* in it; it is removed at the end.

    It is under $XDG_RUNTIME_DIR if FIFOs can be created there, else under /tmp. *tell* is called before it is created,
    to notify the process that removes it if this one is killed. Raises ToolError if neither is usable.
    """
    folder = _make([os.environ.get("XDG_RUNTIME_DIR"), "/tmp", "/var/tmp"], tell)
    try:
        (folder / "run").symlink_to(run)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make(parents: Sequence[Optional[str]], tell: Callable[[Path], None]) -> Path:
    reason = "no folder was tried"
    for parent in parents:
        if not parent or not _PLAIN.fullmatch(parent):
            continue
        folder = Path(parent, f"gdbmem-{os.urandom(4).hex()}")
        tell(folder)
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            reason = f"{printable(parent)}: {error.strerror}"
            continue
        try:
            os.mkfifo(folder / "probe", 0o600)
            (folder / "probe").unlink()
        except OSError as error:
            # FAT, some network and container mounts have no FIFOs.
            reason = f"{printable(parent)}: {error.strerror}"
            shutil.rmtree(folder, ignore_errors=True)
            continue
        return folder
    raise ToolError(
        f"no folder for valgrind's FIFOs could be made ({reason})",
        slug="no-runtime-folder",
        hint="free some space in /tmp, or set XDG_RUNTIME_DIR to a folder on a local disk",
    )
