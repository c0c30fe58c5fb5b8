"""Names for addresses of the program in this gdb, which has its symbols loaded already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gdbmem.debugger.batch.name_addresses import Namer
from gdbmem.formats.addresses import Binary, MemoryMap, parse_maps
from gdbmem.linux.memory.maps import maps_text
from gdbmem.model.calltree import Frame

if TYPE_CHECKING:
    from gdbmem.errors import Notice


class LiveSymbols:
    """Names addresses in the files that process *pid* has mapped (formats.addresses.Symbols)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._namer = Namer()
        self._known: dict[tuple[Binary, int], Sequence[Frame]] = {}

    def frames(
        self,
        wanted: Mapping[Binary, Iterable[int]],
        *,
        recorded: float = 0.0,
        are_calls: bool = False,
    ) -> tuple[Mapping[tuple[Binary, int], Sequence[Frame]], Sequence[Notice]]:
        """Return the frames, innermost first, of file offsets in binaries; unknown ones are omitted."""
        places = [(binary, offset) for binary, offsets in wanted.items() for offset in offsets]
        if any(place not in self._known for place in places):
            maps = self._maps()
            for place in places:
                if place not in self._known:
                    self._known[place] = self._frames(maps, *place)
        return {place: self._known[place] for place in places if self._known[place]}, ()

    def frames_under_valgrind(
        self, wanted: Mapping[str, Iterable[int]], *, recorded: float = 0.0
    ) -> tuple[Mapping[tuple[str, int], Sequence[Frame]], Sequence[Notice]]:
        """Return none: a native engine's profile has no such addresses."""
        return {}, []

    def prepare(self, wanted: Mapping[Binary, Iterable[int]]) -> None:
        """Do nothing: querying this gdb for several addresses at once saves no time."""

    def note_loaded(self, lines: Iterable[bytes]) -> None:
        """Do nothing: gdb names what is loaded now."""

    def unloaded(self, address: int) -> None:
        """Return None: gdb names what is loaded now."""

    def look_in(self, folder: str) -> None:
        """Do nothing: gdb has the files."""

    def _maps(self) -> MemoryMap:
        try:
            return parse_maps(maps_text(self._pid).splitlines())
        except OSError:
            return MemoryMap(())

    def _frames(self, maps: MemoryMap, binary: Binary, offset: int) -> Sequence[Frame]:
        for region in maps.regions:
            at = offset - region.offset
            if region.binary.path == binary.path and 0 <= at < region.end - region.start:
                named = self._namer.frames(region.start + at)
                return [Frame(f, file, line, None if file else binary.path, is_inlined)
                        for f, file, line, is_inlined in named]  # fmt: skip
        return ()
