"""docs/reliability.md: the real runs, written by the scripts that ran them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"


def keep(section: str, lines: Iterable[str]) -> None:
    """Put *lines* in the place of what stands in *section* of the page."""
    begin, end = f"<!-- begin {section} -->\n", f"<!-- end {section} -->"
    text = PAGE.read_text()
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    assert re.search(pattern, text, re.DOTALL), section
    body = "\n".join(lines)
    PAGE.write_text(re.sub(pattern, lambda _: f"{begin}{body}\n{end}", text, flags=re.DOTALL))
