"""The pools of a live process, sampled repeatedly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Optional

from gdbmem.errors import Notice, TargetError
from gdbmem.inspection.bfc.pools import Pools, ProcessPools, Say
from gdbmem.linux.process.process import has_ended


def follow_pools(
    pid: int, every_seconds: float, for_seconds: Optional[float], say: Say
) -> Iterator[tuple[float, Pools]]:
    """Yield samples of the pools of process *pid*, with seconds since the first; each stops it for milliseconds.

    Ends after *for_seconds*, with the process, or when it has no pools any more, which the last sample reports. Pools
    created later are found when one of the known ones is gone. *say* is called before a longer stop.
    Raises TargetError if the process can't be read, or has no pool at first.
    """
    known = ProcessPools(pid, say)
    begun: Optional[float] = None
    number = 0
    try:
        while True:
            try:
                pools = known.read()
            except TargetError:
                if begun is None:
                    raise
                try:
                    known, old = ProcessPools(pid, say), known
                    old.close()
                    pools = known.read()
                except TargetError as error:
                    if not has_ended(pid):
                        yield time.monotonic() - begun, Pools((), [Notice(error.slug, error.message)])
                    return
            now = time.monotonic()
            begun = now if begun is None else begun
            yield now - begun, pools
            number += 1
            if for_seconds is not None and number * every_seconds > for_seconds:
                return
            time.sleep(max(0.0, begun + number * every_seconds - time.monotonic()))
    finally:
        known.close()
