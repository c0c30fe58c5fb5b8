"""The documentation, held to the code: what is undocumented, wrong or gone fails here."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gdbmem.cli.commands.launch import _parse
from gdbmem.cli.main import main
from gdbmem.commands.in_gdb import GDB_COMMANDS
from gdbmem.commands.shell import SHELL_COMMANDS
from gdbmem.errors import ExitStatus, GdbmemError
from gdbmem.recipes.verdicts import PointOutcome, recipe_object
from gdbmem.runs.run import Run, SnapshotRecord
from tests.unit import massif_texts
from tests.unit.sources import PACKAGE, ROOT, nodes, trees

DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.rglob("*.md")),
]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str


def blocks() -> Iterator[Block]:
    """Every fenced block of every page."""
    for page in PAGES:
        text = read(page)
        for match in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
            yield Block(page, text.count("\n", 0, match.start()) + 1, match[2], match[3])


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


# -- the reference ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference() -> types.ModuleType:
    loader = SourceFileLoader("reference_script", str(ROOT / "scripts" / "reference"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    cached, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # it would land in scripts/
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = cached
    return module


def test_every_option_is_in_the_reference_as_its_parser_has_it(reference: types.ModuleType) -> None:
    out_of_date = [
        name for name, text in reference.pages().items() if read(DOCS / "reference" / name) != text
    ]
    assert out_of_date == [], "type: scripts/reference"


def test_the_reference_names_every_subcommand_and_gdb_command(reference: types.ModuleType) -> None:
    shell, gdb = (reference.pages()[name] for name in ("commands.md", "gdb-commands.md"))
    assert all(f"## `gdbmem {name}`" in shell for name in SHELL_COMMANDS)
    assert {"massif-snap", "massif-diff", "massif-list", "massif-break", "massif-all"} <= set(
        re.findall(r"^## `(.*)`$", gdb, re.MULTILINE)
    )


# -- what the pages show ------------------------------------------------------------------------------------


def typed(prompt: str) -> list[tuple[str, str]]:
    """(page:line, what is typed there) for each line of a console block that follows *prompt*."""
    found = []
    for block in blocks():
        for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
            if block.language in ("console", "text") and line.strip().startswith(prompt):
                found.append((f"{page_name(block.page)}:{number}", line.strip()[len(prompt) :]))
    return found


def shell_words(line: str) -> list[str]:
    words = shlex.split(line.split(" #")[0])
    for end in ("|", "&&", ">", ">>", "<", "2>", ";"):
        if end in words:
            words = words[: words.index(end)]
    return words


TYPED_COMMANDS = [
    pytest.param(words[1:], id=place)
    for place, line in typed("$ ")
    for words in [shell_words(line)]
    if words and Path(words[0]).name == "gdbmem"
]


def test_the_pages_show_commands() -> None:
    assert len(TYPED_COMMANDS) > 30


@pytest.mark.parametrize("words", TYPED_COMMANDS)
def test_a_command_that_a_page_shows_is_one_that_gdbmem_takes(words: Sequence[str]) -> None:
    if words[0].startswith("-"):
        assert words[0] in ("--help", "--version")
        return
    name, rest = words[0], list(words[1:])
    if name == "launch":
        own = rest[: rest.index("--")] if "--" in rest else rest
        _parse(own, SHELL_COMMANDS[name].parser())
    else:
        SHELL_COMMANDS[name].parser().parse_args(rest)


def test_a_gdb_command_that_a_page_shows_is_one_that_gdb_takes() -> None:
    parsers = {name: command.parser(name) for command in GDB_COMMANDS for name in command.names}
    shown = [(place, line.split(maxsplit=1)) for place, line in typed("(gdb) ")]
    ours = [(place, words) for place, words in shown if words and re.match(r"mem|massif|gdbmem", words[0])]
    assert len(ours) > 15
    for place, words in ours:
        if words[0] == "memwatch" and len(words) > 1:  # its commands are two words
            command, _, rest = words[1].partition(" ")
            words = [f"memwatch {command}", rest]
        assert words[0] in parsers, f"{place}: there is no {words[0]}"
        options = shlex.split(words[1]) if len(words) > 1 else []
        if words[0] in ("massif-break", "membreak"):
            # The location is gdb's own language, to the end of the line.
            at = next(i for i in range(len(options)) if is_location(options, i))
            options = [*options[:at], " ".join(options[at:])]
        try:
            parsers[words[0]].parse_args(options)
        except GdbmemError as error:
            pytest.fail(f"{place}: {error}")


def is_location(words: Sequence[str], at: int) -> bool:
    takes_value = at > 0 and words[at - 1] in ("--name", "--every", "--first")
    return not words[at].startswith("--") and not takes_value


def test_a_recipe_that_a_page_shows_is_sound() -> None:
    from gdbmem.recipes.reader import parse_recipe

    recipes = [b for b in blocks() if b.language == "yaml" and b.text.startswith(("program:", "# "))]
    assert recipes
    for block in recipes:
        parse_recipe(block.text, f"{page_name(block.page)}:{block.line}")


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", read(page), flags=re.DOTALL)):
            if target.startswith(("http:", "https:")):
                continue
            file, _, anchor = target.partition("#")
            path = (page.parent / file).resolve() if file else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{page_name(page)}: {target}")
    assert broken == []


def anchors(path: Path) -> set[str]:
    """The anchors that a Markdown page's headings make."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", read(path), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for target in re.findall(r"\]\(([^)#\s]+)", read(page)):
            path = (page.parent / target).resolve()
            if path.is_file():
                ahead.append(path)
    assert [page_name(page) for page in PAGES if page not in seen] == []


def test_no_page_shows_personal_folders() -> None:
    pictures = sorted(DOCS.rglob("*.svg"))
    assert pictures
    for page in [*PAGES, *pictures]:
        assert not re.search(r"(?<![\w.])/(?:home|root|work|Users)/", read(page)), page_name(page)
        assert not re.search(r"/tmp/(?!gdbmem-)\w", read(page)), page_name(page)


def test_the_picture_of_the_readme_is_small_and_needs_no_network() -> None:
    for picture in DOCS.rglob("*.svg"):
        assert picture.stat().st_size < 60_000
        assert not re.search(r"(?:href|src|url)[=(]\s*[\"']?http", read(picture))


def test_each_picture_of_the_pages_is_drawn_by_a_script_from_a_real_run() -> None:
    script = read(ROOT / "scripts/picture")
    shown = {
        (page.parent / target).resolve()
        for page in [*PAGES, *ROOT.glob("examples/*/README.md")]
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", read(page))
        if "://" not in target
    }
    assert len(shown) > 5
    assert [picture for picture in sorted(shown) if not (picture.is_file() and picture.name in script)] == []


# -- the hand-written reference -------------------------------------------------------------------------------


def test_every_exit_status_is_documented() -> None:
    page = read(DOCS / "reference" / "exit-status.md")
    statuses = {status for name, status in vars(ExitStatus).items() if name.isupper()} - {0}
    assert [
        status for status in sorted(statuses) if not re.search(rf"^\| {status} \|", page, re.MULTILINE)
    ] == []


def massif_of(*sizes_bytes: int) -> str:
    return massif_texts.massif(*(massif_texts.path(size, "f (a.cpp:1)") for size in sizes_bytes))


def json_documents(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """One JSON object of each kind, as its command prints it."""
    from gdbmem.cli.commands.doctor import _document
    from gdbmem.launch.doctor_checks import Check
    from gdbmem.model.diff import Expectation, ExpectationVerdict, Position
    from gdbmem.model.judgement import Judgement

    (folder / "massif.out").write_text(massif_of(10, 30))
    (folder / "leak.yaml").write_text("progam: ./x\n")
    run = Run.create("decoder", parent=folder, pid=1)
    run.update(warnings=[{"slug": "static-binary", "message": "sentence"}])
    (run.folder / run.next_file("massif")).write_text(massif_of(10))
    run.append("loaded", file="snapshots/0001.massif", engine="massif")
    printed = []
    for words in (
        ["show", f"{folder}/massif.out"],
        ["show", str(run.folder)],
        ["diff", f"{folder}/massif.out:0", f"{folder}/massif.out:1"],
        ["diff", *[f"{folder}/massif.out:{n}" for n in (0, 1, 0)]],
        ["recipe", "check", f"{folder}/leak.yaml"],
    ):
        main([*words, "--json"])
        printed.append(json.loads(capsys.readouterr().out))
    printed.append(_document([Check("gdb", ok=True, found="13.1")]))
    expectation = Expectation("a", "b", Position(1, 1), at_most=10)
    verdict = ExpectationVerdict(expectation, Judgement("heap", "sentence", 10, 1, 1, 1))
    diff = next(document for document in printed if document["kind"] == "diff")
    printed.append(recipe_object([PointOutcome("loaded", 1, ["loaded"])], [diff], [verdict]))
    return printed


def collect(value: Any, keys: set[str]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            keys.add(key)
            collect(inner, keys)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            collect(inner, keys)


def test_every_key_of_every_json_object_is_documented(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = read(DOCS / "reference" / "json.md")
    shared, *parts = re.split(r"^## `kind=([\w-]+)`$", page, flags=re.MULTILINE)
    sections = dict(zip(parts[::2], parts[1::2]))
    documents = json_documents(tmp_path, capsys)
    assert len({document["kind"] for document in documents}) == 7
    for document in documents:
        kind, keys = document["kind"], set[str]()
        collect(document, keys)
        text = shared + sections[kind] + (sections["diff"] if kind == "recipe" else "")
        assert [key for key in sorted(keys) if f"`{key}`" not in text] == [], f"kind={kind}"


@pytest.mark.slow
def test_every_kind_of_json_object_is_documented() -> None:
    page = read(DOCS / "reference" / "json.md")
    kinds: set[str] = set()
    for path in trees():
        others = ("api", "formats", "recording", "runs")  # write other documents
        if path.relative_to(PACKAGE).parts[0] in others and path != PACKAGE / "runs/listing.py":
            continue
        pairs = [pair for node in nodes(path, ast.Dict) for pair in zip(node.keys, node.values)]
        for key, value in pairs:
            is_kind = isinstance(key, ast.Constant) and key.value == "kind"
            if is_kind and isinstance(value, ast.Constant):
                kinds.add(str(value.value))
        for call in nodes(path, ast.Call):
            if called(call) == "head" and isinstance(call.args[0], ast.Constant):
                kinds.add(str(call.args[0].value))
    assert {"diff", "profile", "list", "recipe", "doctor", "recipe-check"} <= kinds
    assert [kind for kind in sorted(kinds) if f"## `kind={kind}`" not in page] == []


@pytest.mark.slow
def test_every_fact_that_a_run_keeps_is_documented() -> None:
    page = read(DOCS / "reference" / "run-folder.md")
    facts = {"format_version", "kind"}
    for path in trees():
        for node in nodes(path, ast.Call):
            if called(node) == "update" and node.keywords:
                receiver = ast.unparse(node.func)
                if receiver.split(".")[-2] in ("run", "_run"):
                    facts |= {keyword.arg for keyword in node.keywords if keyword.arg}
    assert {"program", "starts", "recipe", "warnings", "ended"} <= facts
    facts |= set(SnapshotRecord._fields) - {"name"}
    assert [fact for fact in sorted(facts) if f"`{fact}`" not in page] == []


def test_every_key_of_a_recipe_is_documented() -> None:
    from gdbmem.recipes import reader

    page = read(DOCS / "recipes.md")
    keys = [
        key
        for group in (
            "KEYS",
            "POINT_KEYS",
            "HIT_KEYS",
            "EXPECT_KEYS",
            "OPTION_KEYS",
            "ENGINES",
            "METRICS",
            "ACTIONS",
        )
        for key in getattr(reader, group)
    ]
    assert [key for key in keys if not re.search(rf"[`{{]{re.escape(key)}[`:]", page)] == []


def test_every_dependency_has_its_reason() -> None:
    declared = re.findall(r'^  "([a-z-]+)(>=[\d.]+)?[;,"].*$', read(ROOT / "pyproject.toml"), re.MULTILINE)
    page = read(DOCS / "dependencies.md")
    assert len(declared) > 8
    for name, bound in declared:
        if name.startswith("types-"):
            continue
        assert re.search(rf"^\| `{name}` \| {re.escape(bound.lstrip('>='))} \| \S", page, re.MULTILINE), name
