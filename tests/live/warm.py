"""`gdbmem` in a process forked from one that has imported it: half of the work of a start is importing.

The process is new for each command, as a shell's would be: its folder, its environment and its streams are those that
it is given, its exit status is its own. What it was before it was forked, `python tests/live/warm.py SOCKET`, has run
no command and no test. Tests of the start itself, of signals, of terminals and of what a killed command leaves start
`GDBMEM` (tests/live/user.py), the installed command.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn, Optional

_PIPE_BYTES = 1 << 16  # what it takes before anybody reads
_one_at_a_time = threading.Lock()


def run_forked(
    words: Sequence[str], folder: str, environment: Mapping[str, str], *, stdin: bytes = b"", seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Return what came of `gdbmem WORDS`. Raises subprocess.TimeoutExpired, once it has been killed."""
    assert len(stdin) <= _PIPE_BYTES
    with _one_at_a_time, contextlib.ExitStack() as stack:
        reading, given = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
        outputs = [os.pipe() for _ in range(2)]
        ends = [reading, *(writing for _, writing in outputs)]
        request = json.dumps([[os.fsdecode(word) for word in words], folder, dict(environment)]).encode()
        peer = _server()
        socket.send_fds(peer, [len(request).to_bytes(8, "little")], ends)
        for end in ends:
            os.close(end)
        peer.sendall(request)
        pid = int.from_bytes(_received(peer, 8), "little")
        stack.callback(os.close, outputs[0][0])
        stack.callback(os.close, outputs[1][0])
        try:
            texts = _communicate(given, stdin, [output for output, _ in outputs], seconds)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            _received(peer, 8)
            raise subprocess.TimeoutExpired(list(words), seconds) from None
        status = int.from_bytes(_received(peer, 8), "little", signed=True)
    return subprocess.CompletedProcess(list(words), status, *texts)


def _communicate(given: int, stdin: bytes, outputs: Sequence[int], seconds: float) -> list[bytes]:
    deadline = time.monotonic() + seconds
    texts = {output: bytearray() for output in outputs}
    with selectors.DefaultSelector() as selector:
        for output in outputs:
            selector.register(output, selectors.EVENT_READ)
        if stdin:
            with contextlib.suppress(BrokenPipeError):
                os.write(given, stdin)
            os.close(given)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left < 0:
                raise TimeoutError
            for key, _ in selector.select(left):
                piece = os.read(key.fd, 1 << 16)
                texts[key.fd] += piece
                if not piece:
                    selector.unregister(key.fd)
    return [bytes(texts[output]) for output in outputs]


def _received(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = peer.recv(count - len(data))
        assert piece, "the process that gdbmem is forked from has ended"
        data += piece
    return data


@functools.cache
def _server() -> socket.socket:
    """Start the process that commands are forked from; it ends with this one."""
    ours, theirs = socket.socketpair()
    environment = {name: value for name, value in os.environ.items() if name != "GDBMEM_TEST"}
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        cwd="/",
        env={
            **environment,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OPENBLAS_NUM_THREADS": "1",
        },
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


# -- in that process ------------------------------------------------------------------------------------------------


def _import_all() -> None:
    import gdbmem

    for module in pkgutil.walk_packages(gdbmem.__path__, "gdbmem."):
        if ".debugger" not in module.name and not module.name.endswith("pytest_plugin"):
            with contextlib.suppress(ImportError):  # a package that is not installed
                importlib.import_module(module.name)
    for name in ("numpy", "rich.table", "pygments"):
        importlib.import_module(name)


def _serve(peer: socket.socket) -> None:
    while True:
        data, ends, _, _ = socket.recv_fds(peer, 8, 3)
        if len(data) < 8:
            return
        words, folder, environment = json.loads(_received(peer, int.from_bytes(data, "little")))
        pid = os.fork()
        if pid == 0:
            _become(ends, words, folder, environment)
        for end in ends:
            os.close(end)
        peer.sendall(pid.to_bytes(8, "little"))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        peer.sendall(status.to_bytes(8, "little", signed=True))


def _become(ends: Sequence[int], words: list[str], folder: str, environment: dict[str, str]) -> NoReturn:
    status = 1
    try:
        for number, end in enumerate(ends):
            os.dup2(end, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
        sys.argv = ["gdbmem", *words]
        status = _run()
    finally:
        os._exit(status)


def _stream(number: int) -> io.TextIOWrapper:
    buffered = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        buffered,
        "utf-8",
        "backslashreplace" if number == 2 else "surrogateescape",
        line_buffering=number == 2,
    )


def _run() -> int:
    from gdbmem.cli.start import main

    try:
        status: Optional[object] = main()
    except SystemExit as ending:
        status = ending.code
    except BaseException:  # noqa: BLE001 - as Python itself does
        sys.excepthook(*sys.exc_info())
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return status if isinstance(status, int) else int(status is not None)


if __name__ == "__main__":
    del sys.path[0]  # tests/live: no command's imports are found there
    _import_all()
    gc.collect()
    gc.freeze()
    with contextlib.suppress(KeyboardInterrupt):
        _serve(socket.socket(fileno=int(sys.argv[1])))
