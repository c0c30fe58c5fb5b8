"""The run folder: nothing captured is lost, nothing is overwritten, for any crash and any name."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.formats.opening import open_profile
from gdbmem.runs.distrust import check_name
from gdbmem.runs.operand import process_notices
from gdbmem.runs.ranks import Rank
from gdbmem.runs.run import Run, histories, is_run, open_run, pack_histories


def new_run(parent: Path, program: str = "decoder") -> Run:
    run = Run.create(program, parent=parent, pid=42)
    run.update(program=program)
    return run


def snapshot(run: Run, name: str, data: bytes = b"raw", **fields: object) -> str:
    """Do what massif-snap does; return the label."""
    file = run.next_file("massif")
    (run.folder / file).write_bytes(data)
    return run.append(name, file=file, engine="massif", **fields).label


def test_a_run_is_private_and_named_after_the_program_and_the_launcher(tmp_path: Path) -> None:
    run = new_run(tmp_path, "/opt/my prog%ram\n\udcff")
    assert run.folder.name == "gdbmem.my_prog_ram__.42"
    assert run.folder.stat().st_mode & 0o777 == 0o700
    assert is_run(run.folder) and not is_run(tmp_path)


def test_two_launches_never_share_a_folder(tmp_path: Path) -> None:
    folders = {new_run(tmp_path).folder for _ in range(3)}
    assert len(folders) == 3


def test_a_folder_that_the_user_named_is_never_written_into(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="exists; name a new folder with --run"):
        Run.create("x", parent=tmp_path, pid=1, folder=tmp_path / "mine")
    with pytest.raises(InputError, match=r"No such file or directory.*--run DIR"):
        Run.create("x", parent=tmp_path, pid=1, folder=tmp_path / "absent" / "run")


def test_ranks_with_one_name_for_all_of_their_runs_do_not_end(tmp_path: Path) -> None:
    def make(rank: int, size: int) -> Path:
        return Run.create(
            "solver", parent=tmp_path, pid=1, folder=tmp_path / "job", rank=Rank("MPICH", rank, size)
        ).folder

    assert [make(rank, 3).name for rank in (1, 0, 2)] == ["job", "job.r0", "job.r2"]
    with pytest.raises(InputError, match="exists; name a new folder with --run"):
        make(2, 3)
    with pytest.raises(InputError, match="exists; name a new folder with --run"):
        make(0, 1)


def test_a_name_used_again_is_numbered_and_the_plain_name_is_the_last(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    assert [snapshot(run, name) for name in ("a", "b", "a", "a")] == ["a", "b", "a#2", "a#3"]
    again = open_run(run.folder)  # as another process sees it
    assert [record.name for record in again.snapshots] == ["a#1", "b", "a#2", "a#3"]
    assert again.record("a").file == "snapshots/0004.massif"
    assert again.record("a#1").file == "snapshots/0001.massif"
    assert again.record("b#1").name == "b"
    assert again.append("a", file="snapshots/0005.massif", engine="massif").label == "a#4"


def test_a_missing_name_is_refused_with_the_nearest(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    with pytest.raises(InputError, match="has no snapshots"):
        run.record("a")
    snapshot(run, "loaded")
    with pytest.raises(InputError, match="did you mean 'loaded'"):
        run.record("laoded")
    with pytest.raises(InputError, match="it has loaded"):
        run.record("zzz")
    with pytest.raises(InputError, match="has no snapshot 'loaded#2'"):
        run.record("loaded#2")


def test_a_list_of_names_that_is_cut_states_how_many_are_left_out(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for _ in range(16):
        snapshot(run, "fact")
    with pytest.raises(InputError, match=r"it has fact#1, .*, fact#8, … and 8 more$"):
        run.record("nope")


def test_a_file_name_is_given_again_only_if_nothing_was_written_under_it(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    assert run.next_file("massif") == run.next_file("massif") == "snapshots/0001.massif"
    (run.folder / "snapshots/0001.massif").write_bytes(b"")
    (run.folder / "snapshots/0002.massif").write_bytes(b"of somebody else")
    assert run.next_file("massif") == "snapshots/0003.massif"
    assert open_run(run.folder).next_file("massif") == "snapshots/0003.massif"


def test_a_packed_file_counts_and_is_listed_by_its_engine(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    assert run.next_file("heaptrack", packed=True) == "snapshots/0001.heaptrack.zst"
    (run.folder / "snapshots/0001.heaptrack.zst").write_bytes(b"raw")
    again = open_run(run.folder)
    assert again.next_file("massif") == "snapshots/0002.massif"
    assert [(record.name, record.engine) for record in again.snapshots] == [("unnamed-0001", "heaptrack")]


def test_a_snapshot_whose_line_was_never_written_is_listed_all_the_same(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    snapshot(run, "a")
    (run.folder / "snapshots/0002.massif").write_bytes(b"raw")  # gdb died before the line
    (run.folder / "snapshots/0003.massif").write_bytes(b"")  # valgrind died before the first byte
    assert [record.name for record in run.snapshots] == ["a", "unnamed-0002"]
    assert run.path(run.record("unnamed-0002")).read_bytes() == b"raw"


@pytest.mark.slow
def test_a_log_cut_anywhere_loses_at_most_the_name_of_its_last_snapshot(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for name in ("a", "ü \udcff\n"):
        snapshot(run, name)
    log = run.folder / "snapshots.jsonl"
    whole = log.read_bytes()
    for length in range(len(whole)):
        log.write_bytes(whole[:length])
        assert len(open_run(run.folder).snapshots) == 2
    log.write_bytes(whole)
    assert [record.name for record in open_run(run.folder).snapshots] == ["a", "ü \udcff\n"]


def test_facts_are_replaced_whole_and_survive_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path)
    run.update(one=1)
    run.update(two=2)
    assert {"one": 1, "two": 2}.items() <= open_run(run.folder).facts.items()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(
        InputError, match=r"cannot write into the run folder .*: No space left.*free some space"
    ):
        run.update(three=3)
    assert open_run(run.folder).facts["two"] == 2
    assert sorted(path.name for path in run.folder.iterdir()) == ["run.json", "snapshots"]


def test_a_snapshot_that_cannot_be_noted_is_reported(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    (run.folder / "snapshots.jsonl").symlink_to("absent/log")
    with pytest.raises(InputError, match="cannot write into the run folder"):
        run.append("a", file="snapshots/0001.massif", engine="massif")


def test_only_a_run_that_holds_nothing_is_removed(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    (run.folder / "valgrind.1.7.log").write_text("==7== why")
    run.remove_if_empty()
    assert run.folder.is_dir()
    (run.folder / "valgrind.1.7.log").unlink()
    snapshot(run, "a")
    run.remove_if_empty()
    assert run.folder.is_dir()
    empty = new_run(tmp_path)
    empty.remove_if_empty()
    assert not empty.folder.exists()


@pytest.mark.parametrize("name", ["", " ", "a#1", "two words#12"])
def test_names_that_could_mean_another_snapshot_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="can't name a snapshot"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "#1", "a#0", "a#b", "two words", "100%", "ü\n"])
def test_any_other_text_is_a_name(name: str) -> None:
    assert check_name(name) == name


def test_damaged_and_newer_runs_are_distinguished_from_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run folder"):
        open_run(tmp_path)
    run = new_run(tmp_path)
    (run.folder / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"can't be read: .*file by file"):
        _ = open_run(run.folder).facts
    (run.folder / "run.json").write_text('{"format_version": 99}')
    with pytest.raises(InputError, match="newer gdbmem; upgrade"):
        _ = open_run(run.folder).facts


def test_what_the_launch_noted_reaches_the_reader(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    assert list(run.notices) == []
    run.update(warnings=[{"slug": "static-binary", "message": "it is static"}])
    (notice,) = open_run(run.folder).notices
    assert (notice.slug, notice.message) == ("static-binary", "it is static")


def test_a_snapshot_that_was_interrupted_stands_where_it_was_taken(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    snapshot(run, "first")
    (run.folder / run.next_file("massif")).write_bytes(b"raw")  # Ctrl-C before its line in the log
    snapshot(run, "ok")
    (run.folder / "snapshots" / "0004.massif").write_bytes(b"raw")
    assert [record.name for record in run.snapshots] == ["first", "unnamed-0002", "ok", "unnamed-0004"]


def test_snapshots_of_two_processes_of_one_run_are_not_compared_in_silence(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for name, process in (("a", 71), ("b", 71), ("c", 72)):
        snapshot(run, name, process=process)
    taken = [(record.name, record.process) for record in run.snapshots]
    assert process_notices(taken[:2]) == []
    assert [notice.slug for notice in process_notices(taken[1:])] == ["other-process"]
    assert "b is of process 71, c of process 72" in process_notices(taken[1:])[0].message


def test_a_history_of_100_mib_leaves_a_few_on_disk_and_is_read_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path)
    head = (
        "desc: --massif-out-file=x\ncmd: ./x\ntime_unit: i\n#-----------\nsnapshot=0\n#-----------\ntime=0\n"
    )
    tree = "n0: 5000 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.\n"
    text = f"{head}mem_heap_B=5000\nmem_heap_extra_B=8\nmem_stacks_B=0\nheap_tree=peak\n{tree}"
    long, short = run.folder / "massif.1.4713.out", run.folder / "massif.2.4714.out"
    long.write_text(text + "\n" * (9 << 20))
    short.write_text(text)
    pack_histories(run)
    packed, left = histories(run)
    assert (packed.name, left) == ("massif.1.4713.out.gz", short)
    assert packed.stat().st_size < 1 << 20 and not long.exists()
    assert [open_profile(file).snapshots[0].heap_bytes for file in (packed, left)] == [5000, 5000]
    long.write_text(text + "\n" * (9 << 20))
    monkeypatch.setattr("gzip.open", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    packed.unlink()
    pack_histories(run)
    assert long.exists(), "a full disk loses nothing"
