from __future__ import annotations

from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.model.calltree import PAGE_BYTES
from gdbmem.runs.operand import find_operand, last_two, load_operand
from gdbmem.runs.run import Run, histories
from tests.unit.massif_texts import PAGES_TEXT, massif, path

LEAK = path(500, "remember (decoder.cpp:120)", "main (main.cpp:9)")
LOAD = path(300, "load (load.cpp:7)", "main (main.cpp:9)")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "massif.out.1"
    found.write_text(massif(None, LOAD, None, [*LOAD, *LEAK], LEAK, None, sizes=(0, 300, 400, 800, 500, 0)))
    return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create("decoder", parent=tmp_path, pid=4711)
    made.update(program="decoder")
    for name, lines in (("loaded", LOAD), ("decoder.cpp:120", LEAK), ("loaded", [*LOAD, *LEAK])):
        relative = made.next_file("massif")
        (made.folder / relative).write_text(massif(lines))
        made.append(name, file=relative, engine="massif", heap_bytes=1)
    return made


def heap(text: str) -> int:
    return load_operand(text).snapshot.totals.heap_bytes


def test_a_file_stands_for_its_last_tree_and_that_is_reported(file: Path) -> None:
    loaded = load_operand(str(file))
    assert loaded.snapshot.totals.index == 4
    assert loaded.snapshot.name == "massif.out.1:4"
    assert [notice.slug for notice in loaded.notices] == ["last-snapshot"]


def test_a_file_with_one_tree_needs_no_number_and_no_remark(tmp_path: Path) -> None:
    (tmp_path / "one.ms").write_text(massif(LEAK))
    loaded = load_operand(str(tmp_path / "one.ms"))
    assert (loaded.snapshot.name, list(loaded.notices)) == ("one.ms", [])


def test_a_number_and_the_peak_choose_a_snapshot(file: Path) -> None:
    assert heap(f"{file}:1") == 300
    assert heap(f"{file}:peak") == 800


def test_a_snapshot_without_a_tree_names_the_nearest_that_have_one(file: Path) -> None:
    with pytest.raises(
        InputError, match=r"snapshot 2 of .* has no call tree; the nearest that have one: 1, 3, 4"
    ):
        load_operand(f"{file}:2")


@pytest.mark.parametrize("number", ["6", "-1", "x", "", "１"])
def test_a_number_beyond_the_file_states_which_there_are(file: Path, number: str) -> None:
    with pytest.raises(InputError, match="its snapshots are 0 to 5, or 'peak'"):
        load_operand(f"{file}:{number}")


@pytest.mark.parametrize("suffix", ["", ":peak"])
def test_a_file_without_any_tree_is_an_error_not_an_empty_diff(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "none.ms").write_text(massif(None, None, sizes=(0, 5)))
    with pytest.raises(InputError, match=r"no snapshot in .* has a call tree"):
        load_operand(f"{tmp_path / 'none.ms'}{suffix}")


def test_an_existing_file_wins_over_a_name_in_a_run(file: Path) -> None:
    colon = file.with_name("massif.out.1:3")
    colon.write_text(massif(path(7, "f (a.cpp:1)")))
    assert heap(str(colon)) == 7


def test_a_snapshot_of_a_run_is_found_by_its_name(run: Run) -> None:
    assert heap(f"{run.folder}:loaded#1") == 300
    assert heap(f"{run.folder}:loaded") == 800, "the last of that name"
    assert load_operand(f"{run.folder}:loaded").snapshot.source.endswith(":loaded#2")


def test_a_name_may_hold_a_colon(run: Run) -> None:
    assert heap(f"{run.folder}:decoder.cpp:120") == 500


def test_a_wrong_name_in_a_run_suggests_the_right_one(run: Run) -> None:
    with pytest.raises(InputError, match="did you mean 'loaded"):
        load_operand(f"{run.folder}:lodaed")


def test_a_run_alone_is_its_last_snapshot_and_that_is_reported(run: Run) -> None:
    loaded = load_operand(str(run.folder))
    assert loaded.snapshot.totals.heap_bytes == 800
    assert [notice.slug for notice in loaded.notices] == ["last-snapshot"]


def test_the_last_two_snapshots_of_a_run_are_what_a_diff_starts_with(run: Run) -> None:
    before, after = last_two(run)
    assert (before.snapshot.name, after.snapshot.name) == ("decoder.cpp:120", "loaded#2")


def test_a_run_with_one_snapshot_has_nothing_to_compare(tmp_path: Path) -> None:
    made = Run.create("x", parent=tmp_path, pid=1)
    made.update(program="x")
    with pytest.raises(InputError, match="holds 0 snapshots: nothing to compare"):
        last_two(made)
    with pytest.raises(InputError, match="holds no snapshot"):
        load_operand(str(made.folder))


def test_a_snapshot_whose_file_is_gone_is_named(run: Run) -> None:
    (run.folder / run.snapshots[1].file).unlink()
    with pytest.raises(InputError, match=r"decoder\.cpp:120, .*0002\.massif, is gone"):
        load_operand(f"{run.folder}:decoder.cpp:120")


@pytest.mark.parametrize("text", ["nowhere", "nowhere:3", ":", ":3", "", "a\0b", "x" * 5000])
def test_what_does_not_exist_is_a_sentence(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="there is no file or run"):
        find_operand(text)


def test_a_folder_that_is_no_run_is_distinguished_from_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder without run"):
        find_operand(str(tmp_path))


def test_pages_are_known_as_pages(tmp_path: Path) -> None:
    (tmp_path / "pages.ms").write_text(massif(LEAK, root=PAGES_TEXT))
    assert load_operand(str(tmp_path / "pages.ms")).snapshot.unit == PAGE_BYTES


def test_massifs_own_histories_are_found_oldest_first(run: Run) -> None:
    for name in (
        "massif.10.7.out",
        "massif.2.99.out",
        "history-10.massif",
        "history-9.massif",
        "valgrind.1.2.log",
    ):
        (run.folder / name).write_text("")
    assert [file.name for file in histories(run)] == [
        "massif.2.99.out",
        "massif.10.7.out",
        "history-9.massif",
        "history-10.massif",
    ]
