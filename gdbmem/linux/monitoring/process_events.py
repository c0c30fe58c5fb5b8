"""The kernel's process events (netlink, cn_proc): every fork and thread start, also of short-lived ones.

Root may always listen, other users since Linux 6.6. Source: include/uapi/linux/{netlink,connector,cn_proc}.h.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from array import array
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Callable, NamedTuple, Optional

_NETLINK_CONNECTOR = 11
_CN_IDX_PROC = 1
_NLMSG_DONE = 3
_LISTEN = 1
_FORK = 1
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_CN_MSG = struct.Struct("=IIIIHH")
_EVENT_AT = _HEADER.size + _CN_MSG.size
# proc_event: what, cpu, timestamp_ns; then of a fork: parent pid, parent tgid, child pid, child tgid.
_FORKED = struct.Struct("=IIQIIII")


class Started(NamedTuple):
    """A task that was started: a thread if *pid* isn't *group*."""

    parent_group: int
    pid: int
    group: int  # the process it belongs to


class ProcessEvents:
    """Listens to forks and thread starts on the whole machine."""

    def __init__(self) -> None:
        """Start listening; raises OSError if that isn't allowed."""
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR
        )
        self.lost = False  # the kernel dropped events since the last drain()
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        self.waiting: Callable[[], object] = partial(poll.poll, 0)  # true if there is something to drain
        try:
            self._socket.setblocking(False)
            for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
                try:
                    self._socket.setsockopt(socket.SOL_SOCKET, option, 32 << 20)
                    break
                except PermissionError:
                    continue
            self._only_forks()
            self._socket.bind((0, _CN_IDX_PROC))
            self._ask(_LISTEN)
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor to poll: readable when there is something to drain."""
        return self._socket.fileno()

    def drain(self) -> Iterable[Started]:
        """Return the tasks started since the last call; sets *lost* if the kernel dropped some."""
        self.lost = False
        # Polling first costs a tenth of an exception, and mostly there is nothing.
        return self._receive() if self.waiting() else ()

    def _receive(self) -> Iterator[Started]:
        receive, unpack = self._socket.recv, _FORKED.unpack_from
        while True:
            try:
                data = receive(4096)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.lost = True
                continue
            if len(data) >= _EVENT_AT + _FORKED.size:
                what, _, _, _, parent_group, pid, group = unpack(data, _EVENT_AT)
                if what == _FORK:
                    yield Started(parent_group, pid, group)

    def _ask(self, operation: int) -> None:
        message = _CN_MSG.pack(_CN_IDX_PROC, 1, 0, 0, 4, 0) + struct.pack("=I", operation)
        header = _HEADER.pack(_HEADER.size + len(message), _NLMSG_DONE, 0, 0, os.getpid())
        self._socket.send(header + message)

    def _only_forks(self) -> None:
        # A classic BPF program of four instructions: exits and execs never wake this process up.
        fork = socket.htonl(_FORK)
        program = b"".join(
            struct.pack("=HBBI", *instruction)
            for instruction in (
                (0x20, 0, 0, _EVENT_AT),  # A = word at _EVENT_AT (big-endian load)
                (0x15, 0, 1, fork),  # if A == fork, go on, else skip one
                (0x06, 0, 0, 0xFFFFFFFF),  # keep
                (0x06, 0, 0, 0),  # drop
            )
        )
        buffer = array("B", program)  # its address without ctypes, which is slow to import
        pointer = struct.pack("@HP", len(program) // 8, buffer.buffer_info()[0])
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)


def listen() -> Optional[ProcessEvents]:
    """Return a listener; None if this user may not listen, or the kernel doesn't support it.

    In a PID namespace listening succeeds without receiving any event: so a thread is started as a test.
    """
    import threading  # not always needed

    try:
        events = ProcessEvents()
    except OSError:
        return None
    ours = threading.Thread(target=lambda: None)
    ours.start()
    ours.join()
    if any(started.group == os.getpid() for started in events.drain()):
        return events
    events.close()
    return None
