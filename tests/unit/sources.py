"""The sources of the package as trees, parsed once and only where a test reads them."""

from __future__ import annotations

import ast
import functools
import gc
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gdbmem"


@functools.cache
def trees() -> Mapping[Path, ast.Module]:
    """Return each module's path → its tree."""
    gc.disable()  # which would look through all of the nodes again and again, and so in later tests
    try:
        return {path: ast.parse(path.read_bytes()) for path in sorted(PACKAGE.rglob("*.py"))}
    finally:
        gc.freeze()
        gc.enable()


def nodes(path: Path, kind: type[Node]) -> Sequence[Node]:
    """Return the nodes of class *kind* in the module at *path*, in the order of `ast.walk`."""
    return cast(Sequence[Node], _by_class(path).get(kind, ()))


@functools.cache
def _by_class(path: Path) -> Mapping[type[ast.AST], Sequence[ast.AST]]:
    found: dict[type[ast.AST], list[ast.AST]] = {}
    for node in ast.walk(trees()[path]):
        found.setdefault(type(node), []).append(node)
    return found


class Import(NamedTuple):
    module: str
    line: int
    at_load: bool  # runs when the importing module is imported


class Source(NamedTuple):
    name: str  # gdbmem.formats.valgrind.massif
    path: Path
    tree: ast.Module

    @property
    def place(self) -> str:
        """The folder under gdbmem/, or the module's own name where it stands in none."""
        return self.name.split(".")[1] if "." in self.name else ""

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))


@functools.cache
def sources() -> Sequence[Source]:
    found = []
    for path, tree in trees().items():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found.append(Source(re.sub(r"\.__init__$", "", name), path, tree))
    return found


@functools.cache
def names() -> Set[str]:
    return {source.name for source in sources()}


@functools.cache
def imports(source: Source) -> Sequence[Import]:
    return list(_imports_of(source.tree, at_load=True))


def _imports_of(node: ast.AST, *, at_load: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, at_load)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: relative imports hide the layer"
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                yield Import(whole if whole in names() else str(child.module), child.lineno, at_load)
        elif isinstance(child, (ast.stmt, ast.excepthandler)):  # in no expression is an import
            yield from _imports_of(child, at_load=at_load and not _waits(child))


def _waits(node: ast.AST) -> bool:
    """Return whether the code in *node* does not run when the module is imported."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.dump(node.test)
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
