"""Each message to the user has a paragraph in docs/messages.md, and each paragraph a message."""

from __future__ import annotations

import ast
import functools
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import Notice
from gdbmem.messages import explain_message
from gdbmem.terminal.console import make_console, print_notices
from tests.unit.sources import PACKAGE, nodes, trees
from tests.unit.test_docs import DOCS, called, page_name, read

# Modules with a function that gets the slug of its error from its caller, as `slug`.
HANDING_ON = ("errors.py", "json_profiles.py", "text.py")


def slugs_in(path: Path) -> Iterator[ast.expr]:
    """Every expression that names a paragraph of docs/messages.md."""
    yield from (node.value for node in nodes(path, ast.keyword) if node.arg == "slug")
    # That of model.faults has no slug.
    makers = ("Notice",) if "faults" in str(path.relative_to(PACKAGE)) else ("Notice", "Unseen")
    yield from (node.args[0] for node in nodes(path, ast.Call) if called(node) in makers and node.args)
    for function in nodes(path, ast.FunctionDef):
        arguments = [*function.args.posonlyargs, *function.args.args]
        padding = [None] * (len(arguments) - len(function.args.defaults))
        pairs = [
            *zip(arguments, [*padding, *function.args.defaults]),
            *zip(function.args.kwonlyargs, function.args.kw_defaults),
        ]
        yield from (value for name, value in pairs if name.arg == "slug" and value is not None)


def words_of(value: ast.expr, path: Path) -> Optional[set[str]]:
    """The slugs that *value* may be; None if the source does not show them."""
    if isinstance(value, ast.Constant):
        return {str(value.value)} - {""}  # none: a remark
    if isinstance(value, ast.IfExp):
        return (words_of(value.body, path) or set()) | (words_of(value.orelse, path) or set())
    if isinstance(value, ast.Call) and called(value) == "get":
        return words_of(value.args[1], path)
    if isinstance(value, (ast.Attribute, ast.Subscript)):
        return set()  # passed on: found where it was created
    if isinstance(value, ast.Name):
        return constants(value.id, path) or column(value.id, path) or None
    return None


def constants(name: str, path: Path) -> set[str]:
    """The value of a module's global NAME = "…", here or in the module that it is imported from."""
    found = set()
    for node in nodes(path, ast.Assign):
        is_it = [t.id for t in node.targets if isinstance(t, ast.Name)] == [name]
        if is_it and isinstance(node.value, ast.Constant):
            found.add(str(node.value.value))
    for statement in nodes(path, ast.ImportFrom):
        if name in [alias.name for alias in statement.names]:
            found |= constants(name, PACKAGE.parent / f"{(statement.module or '').replace('.', '/')}.py")
    return found


def column(name: str, path: Path) -> set[str]:
    """The values of NAME in `for …, NAME, … in TABLE`, TABLE being a literal of this module."""
    for loop in nodes(path, ast.For):
        if not isinstance(loop.target, ast.Tuple):
            continue
        names = [target.id for target in loop.target.elts if isinstance(target, ast.Name)]
        if name not in names or not isinstance(loop.iter, ast.Name):
            continue
        for node in trees()[path].body:
            target = node.target if isinstance(node, ast.AnnAssign) else None
            if isinstance(target, ast.Name) and target.id == loop.iter.id:
                assert isinstance(node, ast.AnnAssign)
                rows = ast.literal_eval(node.value) if node.value is not None else ()
                return {row[names.index(name)] for row in rows}
    return set()


@functools.cache
def slugs() -> dict[str, str]:
    """Every slug that the code can print → where."""
    found = {}
    for path in trees():
        for value in slugs_in(path):
            if isinstance(value, ast.Name) and value.id == "slug" and path.name in HANDING_ON:
                continue
            place = f"{page_name(path)}:{value.lineno}"
            words = words_of(value, path)
            assert words is not None, f"{place}: this test can't tell which slug that is"
            found.update(dict.fromkeys(words, place))
    return found


def paragraphs() -> dict[str, str]:
    _, *parts = re.split(r"^### `([\w-]+)`$", read(DOCS / "messages.md"), flags=re.MULTILINE)
    return {slug: text.split("\n## ")[0].strip() for slug, text in zip(parts[::2], parts[1::2])}


def test_every_message_has_its_paragraph() -> None:
    known = paragraphs()
    missing = {slug: place for slug, place in slugs().items() if slug not in known}
    assert missing == {}, "add them to docs/messages.md"


def test_every_paragraph_is_about_a_message_that_exists() -> None:
    assert sorted(set(paragraphs()) - set(slugs())) == []


def test_each_name_has_one_paragraph() -> None:
    names = re.findall(r"^### `([\w-]+)`$", read(DOCS / "messages.md"), re.MULTILINE)
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_paragraph_states_more_than_the_message() -> None:
    assert [slug for slug, text in paragraphs().items() if len(text.split()) < 15] == []


@pytest.mark.parametrize("name", ["format-unknown", "[format-unknown]"])
def test_help_prints_the_paragraph_of_a_message(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", name]) == 0
    text = capsys.readouterr().out
    assert text.startswith("format-unknown\n\ngdbmem does not know the format")
    assert "](" not in text and "###" not in text


def test_help_knows_every_message() -> None:
    for slug in slugs():
        assert len(explain_message(slug).split()) > 15


def test_help_names_the_nearest_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "format-unknwon"]) == 1
    assert "did you mean 'format-unknown'? [no-such-message]" in capsys.readouterr().err


def test_help_prints_the_options_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "diff"]) == 0
    assert "--fail-on" in capsys.readouterr().out


def test_a_note_ends_with_its_name() -> None:
    stream = io.StringIO()
    print_notices([Notice("sampled", "an estimate")], make_console(stream, width=80))
    assert stream.getvalue().strip() == "note: an estimate [sampled]"


def test_a_wheel_brings_the_page() -> None:
    assert '"docs/messages.md" = "gdbmem/messages.md"' in (PACKAGE.parent / "pyproject.toml").read_text()
