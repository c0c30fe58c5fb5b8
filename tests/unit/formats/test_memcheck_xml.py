"""memcheck's XML agrees with its log of the same program; a cut file is read as far as it goes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.formats.stacks import StackProfile
from gdbmem.model.calltree import DEFINITELY, LEAK_KINDS, POSSIBLY, REACHABLE, SUPPRESSED, WITH_INDIRECT

CAPTURES = Path(__file__).parents[2] / "captures"
XML = CAPTURES / "memcheck" / "lost.xml"
LOG = CAPTURES / "stacks" / "lost.log"


def stacks(file: Path, metric: str) -> set[tuple[object, ...]]:
    """Return bytes, blocks and frames of each record, files by their last part, libraries left out."""
    profile = open_profile(file, OpenOptions(metric=metric))
    assert isinstance(profile, StackProfile)
    content = profile.load(profile)

    def places(numbers: Sequence[int]) -> list[object]:
        frames = [frame for number in numbers for frame in content.chains[number]]
        return [(f.function, f.file and PurePosixPath(f.file).name, f.line) for f in frames]

    return {(stack.bytes, stack.blocks, *places(stack.frames)) for stack in content.stacks}


@pytest.mark.parametrize("kind", [kind for kind in LEAK_KINDS if kind != SUPPRESSED])
def test_records_are_those_of_the_log_of_the_same_program(kind: str) -> None:
    assert stacks(XML, kind) == stacks(LOG, kind) != set()


def test_the_command_and_the_whole_path_of_a_source_are_kept() -> None:
    profile = open_profile(XML)
    tree = profile.tree(0)
    assert profile.command == "./lost"
    assert tree is not None and "/tmp/lost/lost.c" in {frame.file for frame in tree.frames}


def test_that_nothing_is_lost_is_known_where_memcheck_was_asked_to_list_all(tmp_path: Path) -> None:
    whole = CAPTURES / "memcheck" / "no-leaks.xml"
    profile = open_profile(whole)
    assert isinstance(profile, StackProfile)
    assert (profile.total_bytes, profile.metrics) == (0, [WITH_INDIRECT, DEFINITELY, POSSIBLY])
    for old, new in (("--leak-check=full", "--leak-check=no"), ("FINISHED", "RUNNING")):
        changed = tmp_path / "changed.xml"
        changed.write_text(whole.read_text().replace(old, new))
        with pytest.raises(InputError) as caught:
            open_profile(changed)
        assert caught.value.slug == "no-leak-search"


@pytest.mark.parametrize(
    "options",
    [
        "--leak-check=full --show-leak-kinds=none",
        "--leak-check=full --show-leak-kinds=reachable",
        "--leak-check=no",
    ],
)
def test_kinds_that_memcheck_was_told_not_to_list_are_unknown_and_not_zero(
    tmp_path: Path, options: str
) -> None:
    file = tmp_path / "hidden.xml"
    words = "".join(f"<arg>{option}</arg>" for option in options.split())
    text = (CAPTURES / "memcheck" / "no-leaks.xml").read_text()
    whole = re.sub(r"<vargv>.*?</vargv>", f"<vargv>{words}</vargv>", text, flags=re.DOTALL)
    file.write_text(whole)
    with pytest.raises(InputError):
        open_profile(file)
    file.write_text(text.replace("<suppcounts>", "<suppcounts><pair><count>1</count><name>x</name></pair>"))
    with pytest.raises(InputError):
        open_profile(file)


def test_of_two_searches_the_last_is_read(tmp_path: Path) -> None:
    text = XML.read_text()
    errors = text[text.index("<error>") : text.rindex("</error>") + len("</error>")]
    twice = tmp_path / "twice.xml"
    twice.write_text(text.replace(errors, errors + errors))
    assert stacks(twice, REACHABLE) == stacks(XML, REACHABLE)


@pytest.mark.slow
def test_a_cut_file_gives_what_stands_before_the_cut_or_is_refused(tmp_path: Path) -> None:
    lines = XML.read_bytes().splitlines(keepends=True)
    whole = sum(size for kind in LEAK_KINDS[:4] for size, *_ in stacks(XML, kind))  # type: ignore[misc]
    sizes = []
    for count in range(5, lines.index(b"</valgrindoutput>\n")):
        cut = tmp_path / "cut.xml"
        cut.write_bytes(b"".join(lines[:count]))
        try:
            profile = open_profile(cut)
        except InputError as error:
            assert error.slug == "no-leak-search"
            continue
        assert isinstance(profile, StackProfile)
        assert "bytes-missing" in {notice.slug for notice in profile.notices}
        kinds = [metric for metric in profile.metrics if metric in LEAK_KINDS]
        sizes.append(sum(one[0] for kind in kinds for one in stacks(cut, kind)))  # type: ignore[misc]
    assert sizes == sorted(sizes) and sizes[-1] == whole


@pytest.mark.parametrize(
    ("old", "new", "slug"),
    [
        ("<protocoltool>memcheck", "<protocoltool>helgrind", "no-leak-search"),
        ("<valgrindoutput>", '<valgrindoutput><!DOCTYPE a [<!ENTITY a "b">]>', "xml-damaged"),
        ("<text>64 bytes", "<text>many bytes", "xml-damaged"),
        ("<ip>0x109213", "<ip>0xZ", "xml-damaged"),
        ("<text>64 bytes", "<text>99999999999999999999 bytes", "count-too-big"),
    ],
)
def test_what_memcheck_does_not_write_is_refused_by_a_sentence(
    old: str, new: str, slug: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "changed.xml"
    changed.write_text(XML.read_text().replace(old, new))
    assert main(["show", str(changed)]) == 1
    with pytest.raises(InputError) as caught:
        open_profile(changed)
    assert caught.value.slug == slug
    assert capsys.readouterr().err.startswith(f"gdbmem: {changed}")


def test_a_gate_on_xml_fails_where_more_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    none = tmp_path / "no-leaks.xml"
    text = (CAPTURES / "memcheck" / "no-leaks.xml").read_text()
    none.write_text(
        text.replace("<line>Command: true</line>", "<line>Command: ./lost</line>").replace(
            "<exe>true</exe>", "<exe>./lost</exe>"
        )
    )
    assert main(["diff", str(none), str(XML), "--fail-on", "1KiB"]) == 4
    assert main(["diff", str(none), str(XML), "--fail-on", "3KiB"]) == 0
