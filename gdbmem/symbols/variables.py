"""The types of a program's variables, and where those of its functions are stored, by a batch gdb; kept on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

from gdbmem.errors import Notice
from gdbmem.files import cache_folder, is_there, read_cached, write_cached
from gdbmem.linux.elf.objects import Elf, has_debug_information, read_elf
from gdbmem.setup.gdb_python import gdb_call

_ANSWER = gdb_call("variables", "describe_variables()")
_SECONDS = 15.0


class VariableType(NamedTuple):
    """The type of a variable."""

    name: str  # as gdb has it, without typedefs
    size: int
    element_size: int  # of the first argument of a template; 0: none


class LocalVariable(NamedTuple):
    """A variable of a function, at some instruction."""

    function: str  # which may be inlined
    name: str
    type: VariableType
    base: str  # "cfa" or a register, for its place in memory; "=" and a register that has its value
    offset: int

    @property
    def is_in_register(self) -> bool:
        return self.base.startswith("=")


class FunctionVariables(NamedTuple):
    """The variables that are in scope at an instruction."""

    function: str  # "": unknown
    variables: Sequence[LocalVariable]


Variable = tuple[str, Optional[int]]  # the linker's name, the address in the file (None: it is thread-local)

Answer = tuple[Mapping[int, FunctionVariables], Mapping[str, VariableType]]


def find_variables(path: Path, build_id: str, code: Sequence[int], variables: Sequence[Variable]) -> Answer:
    """Return what the debug information of *path* has on addresses in *code*, and on *variables*.

    Nothing if the file has no debug information, or another *build_id*.
    """
    elf = read_elf(path)
    if elf is None or elf.build_id != build_id:
        return {}, {}
    if not _has_types(path, elf):
        return {}, {}
    from gdbmem.symbols.address_names import identity  # slow to import

    cache = cache_folder() / "symbols" / f"{identity(elf)}-variables.json"
    known = read_cached(cache)
    of_code, of_variables = (_table(known, name) for name in ("code", "variables"))
    missing = sorted({at for at in code if str(at) not in of_code})
    unknown = sorted({(name, at) for name, at in variables if name not in of_variables}, key=str)
    if missing or unknown:
        from gdbmem.symbols.batch_gdb import ask_gdb  # what starts processes takes long to import

        (answer,) = ask_gdb([(path, {"code": missing, "variables": unknown})], _ANSWER, _SECONDS)
        found: Mapping[str, Any] = answer if not isinstance(answer, Notice) else {}
        # What gdb has not said in time is not asked again.
        of_code.update({**{str(at): ("", ()) for at in missing}, **_table(found, "code")})
        of_variables.update({**{name: None for name, _ in unknown}, **_table(found, "variables")})
        write_cached(cache, {"code": of_code, "variables": of_variables})
    with suppress(TypeError, ValueError, KeyError):  # the file was changed
        functions = {at: _function(of_code[str(at)]) for at in code if str(at) in of_code}
        types = {name: VariableType(*of_variables[name]) for name, _ in variables if of_variables.get(name)}
        return functions, types
    return {}, {}


class Member(NamedTuple):
    """A member or element of a variable."""

    moves: Sequence[int]  # bytes to it; each but the first from where the pointer there leads to
    size: int


def find_member(path: Path, build_id: str, variable: Variable, steps: Sequence[str]) -> Union[Member, str]:
    """Return what *steps* lead to from *variable* of the file *path*; a sentence's part if that is unknown.

    A step is ``*``, the name of a member, or a number in brackets.
    """
    elf = read_elf(path)
    if elf is None or elf.build_id != build_id:
        return "the program's file has changed since it was started"
    if not _has_types(path, elf):
        return f"{path.name} has no debug information"
    from gdbmem.symbols.batch_gdb import ask_gdb  # as below

    (answer,) = ask_gdb(
        [(path, {"code": (), "variables": (), "member": [*variable, steps]})], _ANSWER, _SECONDS
    )
    if isinstance(answer, Notice):
        return answer.message
    found = answer.get("member")
    return Member(*found) if isinstance(found, list) else str(found)


def _has_types(path: Path, elf: Elf) -> bool:
    from gdbmem.symbols.address_names import debug_files  # slow to import

    files = [file for file in debug_files(elf) if is_there(file)]
    # gdb would wait on a FIFO.
    return all(file.is_file() for file in files) and bool(files or has_debug_information(path))


def _table(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = found.get(name)
    return dict(table) if isinstance(table, dict) else {}


def _function(row: Any) -> FunctionVariables:
    function, rows = row
    return FunctionVariables(
        str(function),
        [
            LocalVariable(
                str(of), str(name), VariableType(str(kind), int(size), int(element)), str(base), int(offset)
            )
            for of, name, kind, size, element, base, offset in rows
        ],
    )
