"""The house rules of ARCHITECTURE.md, held by reading the sources."""

from __future__ import annotations

import ast
import re

from tests.unit.sources import PACKAGE, ROOT, Import, Source, imports, names, nodes, sources

# From the top down; the two tops never import each other.
LAYERS = [
    "cli",
    "debugger",
    "mcp",
    "commands",
    "api",
    "recording",
    "launch",
    "inspection",
    "page",
    "gates",
    "recipes",
    "engines",
    "symbols",
    "setup",
    "series",
    "runs",
    "steps",
    "faults",
    "heap",
    "ledger",
    "profiles",
    "pools",
    "python",
    "containers",
    "terminal",
    "formats",
    "allocators",
    "linux",
    "model",
]
GROUND = {
    "arrays",
    "dask",
    "dask_memory",
    "errors",
    "files",
    "json_values",
    "line_recorder",
    "messages",
    "notebook",
    "text",
}
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "base", "json", "gdb", "misc"}
# Absent from gdb's own Python, or slow to import there.
NOT_WHILE_GDB_LOADS = {"yaml", "pygments", "numpy"}


def depth(place: str) -> int:
    return LAYERS.index(place) if place in LAYERS else len(LAYERS)


def test_the_package_has_the_folders_that_architecture_lists_in_the_same_order() -> None:
    table = re.findall(r"^\| `(\w+)/`", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    assert table == LAYERS
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(LAYERS)
    # cli/ belongs to the shell alone; a module beside the folders belongs to the ground under all of them.
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert modules <= GROUND, "list it in ARCHITECTURE.md and here, or give it a layer"


def test_architecture_sends_a_reader_only_to_modules_that_are_there() -> None:
    paths = [f"/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*")]
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    named -= {"cli/commands/NAME.py"}  # of each command
    gone = [name for name in named if not any(path.endswith(f"/{name.rstrip('/')}") for path in paths)]
    assert not [name for name in gone if not (ROOT / name).exists()]


def test_imports_point_down() -> None:
    assert not [f"{s}:{i.line} imports {i.module}" for s in sources() for i in imports(s) if _points_up(s, i)]


def _points_up(source: Source, found: Import) -> bool:
    if not found.module.startswith("gdbmem."):
        return False
    target = found.module.split(".")[1]
    if source.place == "__main__":  # `python -m gdbmem` is the shell's command
        return target != "cli"
    tops = {source.place, target} == {"cli", "debugger"}
    ground_up = source.place in GROUND and target not in GROUND
    return depth(target) < depth(source.place) or tops or ground_up


def test_only_debugger_imports_gdb_so_that_the_rest_runs_and_is_tested_without() -> None:
    rest = [source for source in sources() if source.place != "debugger"]
    assert not [f"{s}:{i.line}" for s in rest for i in imports(s) if i.module.split(".")[0] == "gdb"]


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [str(s) for s in sources() if s.path.stem in EMPTY_NAMES or s.path.parent.name in EMPTY_NAMES]


# They read and compute through gdbmem.api alone, so that a script can do the same.
BY_THE_API = [f"commands.{name}" for name in ("show", "diff", "explain", "compare", "report", "export")]
BY_THE_API += ["show_run", "monitor_reporting", "compare_remedies"]
READING = {
    "recording",
    "launch",
    "inspection",
    "engines",
    "symbols",
    "setup",
    "runs",
    "formats",
    "allocators",
    "linux",
}


def test_a_command_that_reads_or_computes_does_so_through_the_api() -> None:
    found = [source for source in sources() if source.name in {f"gdbmem.cli.{name}" for name in BY_THE_API}]
    assert len(found) == len(BY_THE_API)
    assert not [f"{s}:{i.line} imports {i.module}" for s in found for i in imports(s) if _bypasses(i)]


def _bypasses(found: Import) -> bool:
    package, _, rest = found.module.partition(".")
    is_printing = rest.startswith("runs.listing")  # what a run holds, for people and as JSON
    return package == "gdbmem" and rest.split(".")[0] in READING and not is_printing


def reachable_from_debugger() -> set[str]:
    by_name = {source.name: source for source in sources()}
    todo = [source.name for source in sources() if source.place == "debugger"]
    seen = set(todo)
    while todo:
        for found in imports(by_name[todo.pop()]):
            if found.module in by_name and found.module not in seen:
                seen.add(found.module)
                todo.append(found.module)
    return seen


def test_what_gdb_loads_imports_nothing_that_its_python_lacks_or_that_is_slow() -> None:
    reachable = reachable_from_debugger()
    wrong = [
        f"{source}:{found.line} imports {found.module}"
        for source in sources()
        if source.name in reachable
        for found in imports(source)
        if found.at_load and found.module.split(".")[0] in NOT_WHILE_GDB_LOADS
    ]
    assert not wrong, "import it inside the function that needs it"


def test_importing_a_module_does_nothing_but_define() -> None:
    assert not [f"{s}:{node.lineno}" for s in sources() for node in s.tree.body if not _defines(node)]


def _defines(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)  # a docstring
    if isinstance(node, ast.If):
        test = ast.dump(node.test)
        return "TYPE_CHECKING" in test or "__name__" in test or "version_info" in test
    definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return isinstance(node, (*definitions, ast.Assign, ast.AnnAssign))


def test_every_module_says_in_its_first_line_what_it_is_for() -> None:
    assert not [str(s) for s in sources() if s.tree.body and not ast.get_docstring(s.tree)]


def test_what_gdb_is_told_to_call_by_name_is_there() -> None:
    missing = []
    for source in sources():
        for node in nodes(source.path, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "gdb_call":
                module = ast.literal_eval(node.args[0])
                if f"gdbmem.debugger.{module}" not in names():
                    missing.append(f"{source}:{node.lineno} calls gdbmem.debugger.{module}")
    assert not missing


def test_no_test_is_left_out_of_a_whole_run_because_two_files_have_one_name() -> None:
    files = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(files)) == sorted(files)
