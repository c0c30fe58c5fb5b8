"""The contents, at the end of a recording of page faults, of the memory that each line made resident."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Callable

from gdbmem.errors import Notice, TargetError
from gdbmem.faults.growth import WeighedFault
from gdbmem.faults.held import GrownPage, held_now, together
from gdbmem.inspection.live_process import explain_process
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.memory.maps import PAGE
from gdbmem.model.calltree import Frame
from gdbmem.model.faults import SiteHoldings
from gdbmem.model.memory import Memory
from gdbmem.profiles.own_code import own_frame
from gdbmem.symbols.call_paths import Samples
from gdbmem.text import plural

_MOST_IMAGES = 8  # processes that are inspected at the end
_MOST_SITES = 5  # lines whose memory is described


class Images:
    """Images of the processes, read at the end of the recording."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._images: dict[int, ProcessImage] = {}
        self.notices: list[Notice] = []

    def take(self, pids: Sequence[int]) -> None:
        """Read processes *pids*, a moment after the recording ended."""
        for pid in pids[:_MOST_IMAGES]:
            try:
                explain_process(pid, look=self._keep, say=self._say)
            except TargetError as error:
                text = f"the contents of process {pid} could not be inspected: {error.message}"
                self.notices.append(Notice("faults-unexplained", text))
        if len(pids) > _MOST_IMAGES or not pids:
            left = plural(len(pids) - _MOST_IMAGES, "further process", "further processes")
            what = left if pids else "the process, which has ended,"
            self.notices.append(Notice("faults-unexplained", f"the contents of {what} were not inspected"))

    def _keep(self, image: ProcessImage, memory: Memory) -> None:
        if image.pid is not None:
            self._images[image.pid] = image

    def held(
        self,
        samples: Samples,
        named: Mapping[int, Sequence[Frame]],
        rows: Sequence[WeighedFault],
        grown: Sequence[float],
    ) -> list[SiteHoldings]:
        """Return the contents of the memory of the lines that grew most, in the inspected processes."""
        pages: dict[Frame, dict[int, list[GrownPage]]] = {}
        sites: dict[int, Frame] = {}
        for row, size in zip(rows, grown):
            if size and row.pid in self._images:
                if row.path not in sites:
                    frames = [frame for number in samples.paths[row.path] for frame in named[number]]
                    sites[row.path] = frames[own_frame(frames)] if frames else Frame()
                of_site = pages.setdefault(sites[row.path], {})
                one, each = row.page_bytes or PAGE, size / row.pages
                pages_of_row = (GrownPage(row.page[0] + n * one, one, each) for n in range(row.pages))
                of_site.setdefault(row.pid, []).extend(pages_of_row)
        found = []
        for site, by_pid in pages.items():
            every = [page for members in by_pid.values() for page in members]
            found.append((sum(page.bytes for page in every), len(every), site, by_pid))
        return [
            SiteHoldings(
                site, size, count, together(held_now(self._images[pid], mine) for pid, mine in by_pid.items())
            )
            for size, count, site, by_pid in sorted(found, key=lambda one: -one[0])[:_MOST_SITES]
        ]
