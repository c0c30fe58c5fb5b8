"""A helper process that copies another one, and ends and collects the copy after use, or when gdbmem has died.

A tracer must not die while it makes a thread of the process call clone(), nor before the process has collected the
copy. The rest of the inspection takes long and much memory, so it is more likely to be killed.
"""

from __future__ import annotations

import os
from typing import Callable, Generic, Optional, Protocol, TypeVar, cast

from gdbmem.errors import TargetError
from gdbmem.linux.holding.copying import Copy
from gdbmem.linux.holding.keeper import Awaiting, Keeper, KeeperEndedError
from gdbmem.linux.memory.process_memory import ProcMemory


class _HasCopy(Protocol):
    @property
    def copy(self) -> Copy: ...


_Made = TypeVar("_Made", bound=_HasCopy)
Announce = Callable[[Copy], None]


class CopyKeeper(Generic[_Made]):
    """Yield the result of *make*, with a copy of process *pid*; the copy ends with the context."""

    def __init__(self, pid: int, memory: int, make: Callable[[Announce], _Made]) -> None:
        """Call *make* in a process that has the descriptor *memory*; raises its exceptions."""
        self._keeper = Keeper(lambda asker: _keep(asker, make), memory)
        self._copy: Optional[Copy] = None
        try:
            self._copy = cast("Copy", self._keeper.receive()[0])
            made, (self._memory,) = self._keeper.receive()
        except KeeperEndedError as error:
            self.close()
            raise TargetError(
                f"no copy of process {pid} could be made: the copying process was killed",
                slug="copy-refused",
                hint="leave out --fork",
            ) from error
        except BaseException:
            self.close()
            raise
        self.made = cast("_Made", made)

    def __enter__(self) -> CopyKeeper[_Made]:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._memory)
        self.close()

    def memory(self) -> ProcMemory:
        """Return the memory of the copy."""
        return ProcMemory(self.made.copy.pid, os.dup(self._memory))

    def close(self) -> None:
        """End the copy, and wait until it is collected."""
        if self._keeper.close() or self._copy is None:
            return
        self._copy.collect()  # the kernel has ended it because the keeper was killed


def _keep(asker: Awaiting, make: Callable[[Announce], _HasCopy]) -> None:
    """Call *make*, pass on the result, and end the copy when the other side asks for it, or has ended."""
    try:
        made = make(asker.answer)
    except Exception as error:  # noqa: BLE001  (it is raised by whoever waits for this)
        asker.fail(error)
        return
    try:
        with ProcMemory(made.copy.pid) as copied:
            asker.answer(made, copied.descriptor)
        asker.await_end()
    finally:
        made.copy.kill()
