"""The unmanaged memory of Dask's workers: `explain_workers` for a client, and a plugin for workers.

This needs `distributed`, the package of the scheduler; gdbmem has to be installed where the workers run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Optional

from distributed import WorkerPlugin

from gdbmem.dask_memory import ClusterMemory, WorkerMemory, explain_worker
from gdbmem.json_values import from_json
from gdbmem.text import printable

__all__ = ["ClusterMemory", "MemoryPlugin", "WorkerMemory", "explain_worker", "explain_workers"]

_PAUSED = "paused"
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 300.0  # between two explanations in the log of a paused worker, as Dask's own warning

_log = logging.getLogger(
    "distributed.worker.gdbmem"
)  # below the logger that client.get_worker_logs() returns


def explain_workers(client: Any, workers: Optional[Sequence[str]] = None) -> ClusterMemory:
    """Return what the memory of the workers of *client* is, of all or of those with the addresses *workers*.

    gdbmem has to be installed where the workers run. Each is read by a child of its own, as `gdbmem explain` reads it.
    """
    answers = client.run(explain_worker, workers=workers, on_error="return")
    read, unread = [], {}
    for address, found in answers.items():
        if isinstance(found, BaseException):
            unread[address] = f"{type(found).__name__}: {found}"
        elif "error" in found:
            unread[address] = found["error"]
        else:
            read.append(from_json(WorkerMemory, found))
    read.sort(key=lambda one: -one.process_bytes)
    return ClusterMemory(read, unread)


class MemoryPlugin(WorkerPlugin):  # type: ignore[misc]  # distributed has no type hints
    """A worker plugin: when a worker pauses for lack of memory, its log says what the unmanaged memory is.

    ``client.register_plugin(MemoryPlugin())``. The explanation is also an event of the topic "gdbmem" on the scheduler.
    """

    name = "gdbmem"

    def __init__(self) -> None:
        self._task: Optional[asyncio.Task[None]] = None

    def setup(self, worker: Any) -> None:
        """Begin to watch *worker*."""
        self._task = asyncio.ensure_future(self._watch(worker))

    def teardown(self, worker: Any) -> None:
        """End that."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self, worker: Any) -> None:
        last = -_AGAIN_SECONDS
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if worker.status.name == _PAUSED and time.monotonic() - last >= _AGAIN_SECONDS:
                last = time.monotonic()
                _log.warning("%s", await _told(worker))


async def _told(worker: Any) -> str:
    """Return what the memory of *worker* is, which becomes an event too, or why that is unknown."""
    try:
        found = await explain_worker(worker)
        worker.log_event("gdbmem", found)
        if "error" not in found:
            return str(from_json(WorkerMemory, found))
        why = str(found["error"])
    except Exception as error:  # noqa: BLE001  (it goes on watching: what a worker lacks is memory)
        why = f"{type(error).__name__}: {error}"
    return f"gdbmem could not read this worker's memory: {printable(why)}"
