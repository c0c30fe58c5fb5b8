"""The paragraphs of docs/messages.md, which explain each message by the slug in brackets at its end."""

from __future__ import annotations

import re
from pathlib import Path

from gdbmem.errors import InputError
from gdbmem.text import printable

_PACKAGE = Path(__file__).resolve().parent
# A wheel has the page inside the package, a checkout beside it.
_PAGES = (_PACKAGE / "messages.md", _PACKAGE.parent / "docs" / "messages.md")


def explain_message(slug: str) -> str:
    """Return the paragraph on messages with *slug*, which may still be in its brackets, as plain text.

    Raises InputError, with the nearest slug, if there is none.
    """
    name = slug.strip("[]")
    paragraphs = _paragraphs()
    if name not in paragraphs:
        import difflib  # not always needed

        close = difflib.get_close_matches(name, paragraphs, n=1)
        hint = f"did you mean '{close[0]}'?" if close else "a message ends with its name in brackets: [NAME]"
        raise InputError(f"no message is named '{printable(name)}'", slug="no-such-message", hint=hint)
    return f"{name}\n\n{_plain(paragraphs[name])}\n"


def message_names() -> list[str]:
    """Return the names of all messages."""
    return list(_paragraphs())


def _paragraphs() -> dict[str, str]:
    page = next((page for page in _PAGES if page.is_file()), None)
    if page is None:
        raise InputError(f"{_PAGES[0]} is missing", slug="no-such-message", hint="install gdbmem again")
    _, *parts = re.split(r"^### `([\w-]+)`$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {slug: text.split("\n## ")[0].strip() for slug, text in zip(parts[::2], parts[1::2])}


def _plain(markdown: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown)
