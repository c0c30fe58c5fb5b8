"""A view that passes everything on to another one, and lets somebody else see each look first."""

from __future__ import annotations

from typing import Callable, Optional, Protocol

from gdbmem.linux.monitoring.tree import Look
from gdbmem.model.series.series import Mark


class View(Protocol):
    """Whoever shows what a monitor sees."""

    @property
    def shows_glances(self) -> bool: ...
    def show(self, look: Look) -> None: ...
    def note(self, text: str) -> None: ...
    def marked(self, mark: Mark) -> None: ...
    def keyboard(self) -> Optional[int]: ...
    def key(self) -> str: ...


class WatchedView:
    """Passes everything on; what *see* does comes first."""

    def __init__(self, view: View, see: Callable[[Look], None], *, glances: bool = False) -> None:
        """Let *see* have each whole look, with *glances* those between two of them too."""
        self._view = view
        self._see = see
        self._glances = glances

    def show(self, look: Look) -> None:
        """Let it be seen, then show it."""
        self._see(look)
        self._view.show(look)

    @property
    def shows_glances(self) -> bool:
        """Whether anybody wants glances."""
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
