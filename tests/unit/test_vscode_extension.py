"""Properties of the extension for VS Code that its sources show: what it asks for exists, and nothing built is kept."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import gdbmem
from gdbmem.commands.in_gdb import GDB_COMMANDS

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "editors/vscode"


def text(name: str) -> str:
    return (EXTENSION / name).read_text(encoding="utf-8")


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text("package.json"))
    return found


def adapters_requests() -> dict[str, str]:
    """Return what gdbmem/debugger/adapter.py answers, which only gdb can import."""
    tree = ast.parse((ROOT / "gdbmem/debugger/adapter.py").read_text(encoding="utf-8"))
    [table] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_REQUESTS"
    ]
    found: dict[str, str] = ast.literal_eval(table)
    return found


def test_the_extension_asks_only_for_what_the_adapter_answers_by_the_same_commands() -> None:
    table = re.search(r"COMMANDS: Record<Request, string> = \{(.*?)\};", text("src/requests.ts"), re.DOTALL)
    assert table
    asked = dict(re.findall(r"(\w+): '([^']+)'", table[1]))
    assert len(asked) == 6
    assert asked.items() <= adapters_requests().items()


def test_the_arguments_of_its_requests_are_options_of_their_commands() -> None:
    def takes(name: str) -> set[str]:
        [command] = [one for one in GDB_COMMANDS if name in one.names]
        return {one.dest for one in command.options()}

    given = re.search(r"const words = (.*);", text("src/requests.ts"))
    assert given and re.findall(r"(\w+): (?:names|\d+)", given[1]) == ["snapshots", "top", "top"]
    assert {"snapshots", "top"} <= takes("massif-diff") and "top" in takes("memwatch report")


def test_every_command_and_view_of_the_manifest_is_registered() -> None:
    contributes = manifest()["contributes"]
    source = text("src/extension.ts")
    names = [one["command"] for one in contributes["commands"]]
    views = [one["id"] for one in contributes["views"]["debug"]]
    assert len(names) == 5
    for name in [
        *names,
        *views,
        *(f"'{key.partition('.')[2]}'" for key in contributes["configuration"]["properties"]),
    ]:
        assert name in source, name


def test_the_extension_has_gdbmems_version_and_no_packages_of_its_own() -> None:
    found = manifest()
    lock = json.loads(text("package-lock.json"))
    assert found["version"] == lock["version"] == gdbmem.__version__
    assert "dependencies" not in found
    assert all(re.fullmatch(r"[\d.]+", version) for version in found["devDependencies"].values())
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert all(one["dev"] and one["integrity"].startswith("sha512-") for one in packages.values())
    assert not any("resolved" in one for one in packages.values())  # from whatever registry npm is set to


def test_what_is_built_is_not_kept_in_the_repository() -> None:
    assert {"node_modules/", "out/", "*.vsix"} <= set(text(".gitignore").split())
    assert not [*EXTENSION.glob("src/**/*.js"), *EXTENSION.glob("*.js")]


def test_it_is_off_where_the_folder_is_not_trusted() -> None:
    able = manifest()["capabilities"]
    assert able["untrustedWorkspaces"]["supported"] is False
    assert able["virtualWorkspaces"]["supported"] is False
