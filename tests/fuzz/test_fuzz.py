"""A reader reads or refuses any file, with one sentence, quickly and with little memory."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from gdbmem.api.profiles import ReadOptions
from gdbmem.errors import InputError
from gdbmem.formats.documents import read_comparison, read_ledger, read_lines, read_step_sums, read_survey
from gdbmem.formats.opening import open_profile
from gdbmem.formats.series import read_series
from gdbmem.formats.valgrind.massif_tree import read_node_text
from gdbmem.model.calltree import NO_LINE, Frames
from gdbmem.runs.distrust import file_beneath
from gdbmem.runs.run import DATABASE
from gdbmem.series.statistics import bins
from gdbmem.series.store import Recording
from tests.fuzz import memory_readers
from tests.fuzz.readers import READERS, Reader, remove_scratch
from tests.fuzz.running import run

EXECUTIONS = 60  # scripts/fuzz does the many
FEW = {"pools in memory": 15, "torch": 30, "unwind tables": 15}  # each takes 20 to 80 ms


def _found(name: str, executions: int) -> tuple[int, dict[str, str]]:
    (reader,) = (reader for reader in READERS if reader.name == name)
    tried, found = run(reader, executions, seed=0)
    remove_scratch()
    return tried, {finding.what: f"{finding.detail}{finding.data[:200]!r}" for finding in found.values()}


_SLOW = {"profiles, printed": [pytest.mark.thorough]}


@pytest.mark.parametrize(
    "reader", [pytest.param(one, id=one.name, marks=_SLOW.get(one.name, [])) for one in READERS]
)
def test_a_changed_file_is_read_or_refused(reader: Reader) -> None:
    executions = FEW.get(reader.name, EXECUTIONS)
    with multiprocessing.get_context("fork").Pool(1) as pool:  # its memory is limited
        tried, found = pool.apply(_found, (reader.name, executions))
    assert tried == executions
    assert found == {}


# -- what was found --------------------------------------------------------------------------------------------


def test_a_share_of_infinite_percent_is_all_of_it() -> None:
    text = read_node_text(b"in 3 places, below massif's threshold (" + b"9" * 400 + b".00%)")
    assert text.percent == 100.0


def test_a_name_that_is_too_long_for_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="File name too long"):
        file_beneath(tmp_path, "snapshots/" + "x" * 5000)


@pytest.mark.parametrize("read", [read_survey, read_ledger, read_comparison, read_step_sums])
def test_json_that_is_nested_too_deeply_is_refused(read: object) -> None:
    assert callable(read)
    with pytest.raises(InputError):
        read("[" * 100_000, "a")


def test_what_sqlite_states_of_a_damaged_series_holds_no_control_characters(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("CREATE TABLE sample (t)")
    connection.close()
    path = tmp_path / DATABASE
    path.write_bytes(path.read_bytes().replace(b"sample (t)", b"sample \x1b[t"))
    with pytest.raises(InputError) as caught:
        Recording(tmp_path)
    assert "malformed" in caught.value.message and caught.value.message.isprintable()


def test_readers_have_examples_and_names_of_their_own() -> None:
    assert len({reader.name for reader in READERS}) == len(READERS) >= 25
    assert all(reader.examples() for reader in READERS)
    assert json.loads(next(r for r in READERS if r.name == "containers").examples()[0])


def test_a_dhat_profile_with_infinite_bytes_is_refused(tmp_path: Path) -> None:
    example = json.loads(next(r for r in READERS if r.name == "dhat").examples()[1])
    example["pps"][0].update(tb=1e999, eb=1e999)
    path = tmp_path / "dhat.json"
    path.write_text(json.dumps(example))
    with pytest.raises(InputError):
        open_profile(path)


def test_a_name_that_only_begins_as_an_address_is_a_name(tmp_path: Path) -> None:
    example = json.loads(next(r for r in READERS if r.name == "dhat").examples()[1])
    example["ftbl"][1:] = ["0x498252: 0x498252ring<char>(char) (in /bin/true)"] * (len(example["ftbl"]) - 1)
    path = tmp_path / "dhat.json"
    path.write_text(json.dumps(example))
    profile = open_profile(path, ReadOptions().reading)
    made = profile.tree(0)
    assert made is not None and {frame.function for frame in made.frames} == {"0x498252ring<char>(char)"}


@pytest.mark.parametrize("value", [1e308, float("nan"), -1])
def test_page_faults_with_an_error_that_none_can_have_are_refused(value: float, tmp_path: Path) -> None:
    example = json.loads(next(r for r in READERS if r.name == "faults").examples()[0])
    example["gdbmem_faults"]["stacks"][0]["grown_variance"] = value
    path = tmp_path / "faults"
    path.write_text(json.dumps(example))
    with pytest.raises(InputError):
        open_profile(path)


@pytest.mark.parametrize("line", [-1, -(1 << 63), -(1 << 64) + 1, (1 << 64) - 1])
def test_a_line_that_no_file_has_is_unknown(line: int, tmp_path: Path) -> None:
    example = json.loads(next(r for r in READERS if r.name == "faults").examples()[0])
    for frame in example["gdbmem_faults"]["frames"]:
        frame[2] = line
    path = tmp_path / "faults"
    path.write_text(json.dumps(example))
    made = open_profile(path).tree(0)
    assert made is not None and set(Frames.of(made.frames).lines) == {NO_LINE}


def test_times_that_fall_are_put_into_the_first_stretch() -> None:
    assert bins([0.0, -1e300, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0], 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "time,rss\n1," + "9" * 200_000 + "\n",
        "time,rss\n0001-01-01,5\n",
        '{"resultType": "matrix", "data": {"result": [{"values": [[1' + "0" * 400 + ", 5]]}]}}",
    ],
    ids=["nothing", "a field of 200 kB", "the year 1", "a time of 400 digits"],
)
def test_a_series_with_numbers_that_are_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "series.csv"
    path.write_text(text)
    with pytest.raises(InputError):
        read_series(path)


def test_a_comparison_of_a_number_of_400_digits_is_refused() -> None:
    document = json.loads(next(r for r in READERS if r.name == "comparison").examples()[0])
    document["differences"][0]["value"] = 10**400
    with pytest.raises(InputError):
        read_comparison(json.dumps(document), "a")


@pytest.mark.parametrize("name", ["first_line", "threads", "calls"])
def test_recorded_lines_without_what_is_printed_of_them_are_refused(tmp_path: Path, name: str) -> None:
    text = next(r for r in READERS if r.name == "Python lines").examples()[0].decode()
    (tmp_path / "7.1.json").write_text(text.replace(f'"{name}"', '"x"'))
    with pytest.raises(InputError):
        read_lines(tmp_path)


def test_a_child_with_a_smaller_number_is_listed_after_its_parent(tmp_path: Path) -> None:
    text = next(r for r in READERS if r.name == "Python lines").examples()[0].decode()
    for started, pid in ((900, 32000), (1000, 7), (1000, 8), (20000, 7)):
        (tmp_path / f"{started}.{pid}.json").write_text(text.replace('"pid": 1', f'"pid": {pid}'))
    assert [one["pid"] for one in read_lines(tmp_path)] == [32000, 7, 8, 7]


def test_what_is_changed_was_read_in_full_before() -> None:
    for number, example in enumerate(memory_readers.pools()):
        pools = memory_readers.pools_read(example)
        assert sum(len(one.chunks.size) for one in pools) > 5, number
        assert not any(one.violations for one in pools)
    traces = memory_readers.traces_read(memory_readers.tables()[0])
    assert (traces.blocks, traces.unread_blocks, len(traces.tracebacks)) == (30, 0, 2)
    assert traces.tracebacks[0].frames[0].file == "a.py"
    assert memory_readers.unwind_rules(memory_readers.unwind_tables()[0]) > 3
    assert [len(memory_readers.records_read(example)) for example in memory_readers.records()] == [6, 7]
