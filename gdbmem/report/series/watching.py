"""A view that passes everything on to another one, after calling an observer with each sample."""

from __future__ import annotations

from typing import Callable, Optional, Protocol

from gdbmem.linux.monitoring.tree import Look
from gdbmem.model.series.series import Mark


class View(Protocol):
    """The interface of a view of a monitor."""

    @property
    def shows_glances(self) -> bool: ...
    def show(self, look: Look) -> None: ...
    def note(self, text: str) -> None: ...
    def marked(self, mark: Mark) -> None: ...
    def keyboard(self) -> Optional[int]: ...
    def key(self) -> str: ...


class WatchedView:
    """Passes everything on after calling *see*."""

    def __init__(self, view: View, see: Callable[[Look], None], *, glances: bool = False) -> None:
        """Call *see* with each complete sample, with *glances* also with those in between."""
        self._view = view
        self._see = see
        self._glances = glances

    def show(self, look: Look) -> None:
        """Call the observer, then show it."""
        self._see(look)
        self._view.show(look)

    @property
    def shows_glances(self) -> bool:
        """True if glances are used."""
        return self._glances or self._view.shows_glances

    def note(self, text: str) -> None:
        """Pass it on."""
        self._view.note(text)

    def marked(self, mark: Mark) -> None:
        """Pass it on."""
        self._view.marked(mark)

    def keyboard(self) -> Optional[int]:
        """Pass it on."""
        return self._view.keyboard()

    def key(self) -> str:
        """Pass it on."""
        return self._view.key()
