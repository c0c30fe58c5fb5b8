"""Regular expressions that are compiled when they are first used.

The package has some hundred of them; compiling one takes 0.1 to 2 ms of CPU, and a command uses a few.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any


class _LazyPattern:
    """Behaves as the `re.Pattern` of its text. Its methods are that one's own after the first use."""

    def __init__(self, text: Any, flags: int = 0) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # probed by copy and pickle
            raise AttributeError(name)
        compiled = re.compile(self._text, self._flags)
        for method in ("match", "fullmatch", "search", "finditer", "findall", "split", "sub", "subn"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


if TYPE_CHECKING:  # for type checkers it is the standard library's
    lazy_pattern = re.compile
else:
    lazy_pattern = _LazyPattern
