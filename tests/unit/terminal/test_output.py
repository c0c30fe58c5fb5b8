"""Results in files: complete or not at all, and no other file is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.terminal.console import open_named, open_output


@pytest.mark.parametrize("path", [None, "-"])
def test_without_a_file_the_result_goes_to_the_standard_output(
    path: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_output(path) as stream:
        stream.write("result\n")
    assert capsys.readouterr().out == "result\n"


def test_a_result_is_written_to_the_named_file_and_leaves_no_other(tmp_path: Path) -> None:
    with open_output(str(tmp_path / "diff.txt")) as stream:
        stream.write("result\n")
    assert (tmp_path / "diff.txt").read_text() == "result\n"
    assert [path.name for path in tmp_path.iterdir()] == ["diff.txt"]


def test_a_file_beside_the_result_stays_although_the_reader_of_the_result_has_gone(tmp_path: Path) -> None:
    picture, unwritten, result = (str(tmp_path / name) for name in ("picture.svg", "none.svg", "result.txt"))
    with (
        pytest.raises(BrokenPipeError),
        open_output(result) as stream,
        open_named(picture) as beside,
        open_named(unwritten),
    ):
        assert beside is not None
        stream.write("half of it")
        beside.write("drawn")
        raise BrokenPipeError
    assert [path.name for path in tmp_path.iterdir()] == ["picture.svg"]
    assert Path(picture).read_text() == "drawn"


def test_an_existing_file_is_kept_and_the_option_that_replaces_it_is_named(tmp_path: Path) -> None:
    target = tmp_path / "diff.txt"
    target.write_text("yesterday's")
    with pytest.raises(InputError) as caught, open_output(str(target)):
        pytest.fail("the long part must not start")
    assert "--force" in caught.value.hint
    assert target.read_text() == "yesterday's"


@pytest.mark.parametrize("force", [False, True])
def test_a_device_or_fifo_is_written_to_and_never_replaced_by_a_file(tmp_path: Path, force: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with open_output(str(tmp_path / "fifo"), force=force) as stream:
        stream.write("result\n")
    assert os.read(reader, 100) == b"result\n"
    os.close(reader)
    assert (tmp_path / "fifo").is_fifo()


def test_a_link_stays_a_link_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "monday.txt").write_text("yesterday's")
    (tmp_path / "latest.txt").symlink_to("monday.txt")
    with open_output(str(tmp_path / "latest.txt"), force=True) as stream:
        stream.write("result\n")
    assert (tmp_path / "latest.txt").is_symlink()
    assert (tmp_path / "monday.txt").read_text() == "result\n"


def test_a_full_device_is_reported_in_a_sentence() -> None:
    with pytest.raises(InputError, match="writing /dev/full failed"), open_output("/dev/full") as stream:
        stream.write("result\n")


@pytest.mark.parametrize("special", [False, True])
def test_an_input_that_can_not_be_read_is_not_blamed_on_the_result(tmp_path: Path, special: bool) -> None:
    path = "/dev/null" if special else str(tmp_path / "x")
    with pytest.raises(PermissionError, match=r"massif\.out"), open_output(path) as stream:
        stream.write("half")
        raise PermissionError(13, "Permission denied", "massif.out")
    assert list(tmp_path.iterdir()) == []


def test_a_result_larger_than_any_buffer_on_a_full_device_is_one_sentence() -> None:
    with pytest.raises(InputError, match="writing /dev/full failed"), open_output("/dev/full") as stream:
        stream.write("result\n" * 100_000)


def test_a_fifo_whose_reader_has_had_enough_is_a_broken_pipe_not_a_full_disk(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(BrokenPipeError), open_output(str(tmp_path / "fifo")) as stream:
        os.close(reader)
        stream.write("result\n" * 100_000)


def test_force_replaces_the_file_at_the_end_not_at_the_start(tmp_path: Path) -> None:
    target = tmp_path / "diff.txt"
    target.write_text("yesterday's")
    with open_output(str(target), force=True) as stream:
        stream.write("today's")
        stream.flush()
        assert target.read_text() == "yesterday's"
    assert target.read_text() == "today's"


@pytest.mark.parametrize("error", [RuntimeError("parser"), KeyboardInterrupt()])
def test_a_command_that_fails_or_is_interrupted_leaves_no_half_written_file(
    tmp_path: Path, error: BaseException
) -> None:
    with pytest.raises(type(error)), open_output(str(tmp_path / "diff.txt")) as stream:
        stream.write("half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_another_process_made_meanwhile_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "diff.txt"
    with pytest.raises(InputError, match="exists"), open_output(str(target)) as stream:
        stream.write("ours")
        target.write_text("theirs")
    assert target.read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["diff.txt"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_the_file_has_the_rights_that_the_user_gives_new_files(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with open_output(str(tmp_path / "diff.txt")) as stream:
            stream.write("result")
    finally:
        os.umask(before)
    assert (tmp_path / "diff.txt").stat().st_mode & 0o777 == mode


def test_a_folder_that_is_not_there_is_one_sentence_before_the_long_part(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="No such file or directory"),
        open_output(str(tmp_path / "no" / "x")),
    ):
        pytest.fail("the long part must not start")


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gdbmem.terminal.console._settle", lambda *_, **__: full())
    with (
        pytest.raises(InputError, match="No space left on device"),
        open_output(str(tmp_path / "x")) as stream,
    ):
        stream.write("result")
    assert list(tmp_path.iterdir()) == []


def test_a_symbol_name_that_is_no_unicode_does_not_cost_the_result(tmp_path: Path) -> None:
    with open_output(str(tmp_path / "x")) as stream:
        stream.write("caf\udce9")
    assert (tmp_path / "x").read_text() == "caf\\udce9"
