"""Exports that other readers, and our own, take for what they are."""

from __future__ import annotations

import base64
import csv
import email
import http.server
import io
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Optional
from urllib.parse import parse_qsl, urlsplit

import pytest

from gdbmem.cli.commands import export
from gdbmem.cli.main import main
from gdbmem.errors import InputError, MissingToolError
from gdbmem.formats.opening import OpenOptions
from gdbmem.formats.stacks import Content, Stack, StackProfile, build_tree
from gdbmem.model.calltree import Frame, Snapshot, Totals
from gdbmem.model.diff import Diff
from gdbmem.profiles.diff import as_growth, diff_snapshots
from gdbmem.profiles.export import encode
from gdbmem.runs.operand import load_operand
from gdbmem.runs.ranks import Rank
from gdbmem.runs.run import Run
from tests.unit.stack_files import CAPTURES, flat, read, tree


def growth(name: str) -> Diff:
    return as_growth(load_operand(str(CAPTURES / name)).snapshot)


def change(before: str, after: str) -> Diff:
    return diff_snapshots(*(load_operand(str(CAPTURES / name)).snapshot for name in (before, after)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folded", "pprof", "massif"])
@pytest.mark.parametrize("name", ["dhat.json", "go2.pb.gz", "many.0001.heap.gz"])
def test_what_was_exported_reads_back_with_every_byte(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / "out"
    path.write_bytes(encode(growth(name), kind, is_change=False))
    total = read(CAPTURES / name).snapshots[0].total_bytes
    assert load_operand(str(path)).snapshot.tree.bytes[0] == total


def test_a_profile_for_pprof_keeps_functions_lines_and_blocks(tmp_path: Path) -> None:
    path = tmp_path / "out.pb.gz"
    path.write_bytes(encode(growth("dhat.json"), "pprof", is_change=False))
    ours, theirs = tree(read(CAPTURES / "dhat.json")), tree(read(path))
    assert flat(ours) == flat(theirs)
    assert ours.blocks is not None and theirs.blocks is not None and ours.blocks[0] == theirs.blocks[0]


def test_speedscope_weights_add_up_and_every_frame_is_in_its_table() -> None:
    document = json.loads(encode(growth("dhat.json"), "speedscope", is_change=False))
    (profile,) = document["profiles"]
    assert sum(profile["weights"]) == profile["endValue"] == 25000
    used = {index for sample in profile["samples"] for index in sample}
    assert used == set(range(len(document["shared"]["frames"])))


def test_a_spreadsheet_gets_every_path_and_no_formula() -> None:
    text = encode(change("tc.0002.heap", "tc.0001.heap"), "csv", is_change=True).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert sum(int(row["delta_bytes"]) for row in rows) == -42300
    cells = [row[column] for row in rows for column in ("function", "file", "stack")]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]


@pytest.mark.parametrize("reader", ["pyarrow", "duckdb"])
def test_a_parquet_file_has_every_path_with_types_and_says_null_where_nothing_is_known(
    tmp_path: Path, reader: str
) -> None:
    pytest.importorskip("pyarrow", reason="an optional dependency: pip install pyarrow")
    library = pytest.importorskip(reader, reason=f"reads it: pip install {reader}")
    files = [tmp_path / name for name in ("change.parquet", "one.parquet", "heap.parquet")]
    files[0].write_bytes(encode(change("tc.0002.heap", "tc.0001.heap"), "parquet", is_change=True))
    files[1].write_bytes(encode(growth("dhat.json"), "parquet", is_change=False))
    heap = growth("../documents/heap-first.json")
    files[2].write_bytes(encode(heap, "parquet", is_change=False))
    tables = []
    for file in files:
        if reader == "duckdb":
            table = library.sql(f"select * from '{file}'")
            names, rows = table.columns, [dict(zip(table.columns, row)) for row in table.fetchall()]
        else:
            from pyarrow import parquet

            table = parquet.read_table(file)
            names, rows = table.column_names, table.to_pylist()
            assert str(table.schema.field("delta_bytes").type) == "int64"
        assert {"delta_bytes", "delta_blocks", "uncertain_bytes", "function", "line", "stack"} <= set(names)
        tables.append(rows)
    assert sum(row["delta_bytes"] for row in tables[0]) == -42300
    assert all(isinstance(row["uncertain_bytes"], int) for row in tables[0])
    assert sum(row["after_bytes"] for row in tables[1]) == 25000
    assert {row["uncertain_bytes"] for row in tables[1]} == {None}
    assert sum(row["delta_bytes"] for row in tables[2]) == heap.delta_bytes > 0
    assert all(isinstance(frame, str) for rows in tables for row in rows for frame in row["stack"])


def test_an_arrow_file_has_the_rows_of_the_parquet_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="an optional dependency: pip install pyarrow")
    from pyarrow import feather, parquet

    files = {kind: tmp_path / f"change.{kind}" for kind in ("arrow", "parquet")}
    for kind, file in files.items():
        file.write_bytes(encode(change("tc.0002.heap", "tc.0001.heap"), kind, is_change=True))
    assert files["arrow"].read_bytes().startswith(b"ARROW1")
    assert feather.read_table(files["arrow"]).equals(parquet.read_table(files["parquet"]))


def test_without_pyarrow_parquet_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match="written by pyarrow, which is missing") as caught:
        encode(growth("dhat.json"), "parquet", is_change=False)
    assert caught.value.hint == "pip install 'gdbmem[parquet]'"


@pytest.mark.parametrize("kind", ["folded", "speedscope", "massif"])
def test_a_format_that_cannot_hold_what_shrank_refuses_it(kind: str) -> None:
    with pytest.raises(InputError, match="can't hold what shrank"):
        encode(change("tc.0002.heap", "tc.0001.heap"), kind, is_change=True)


def test_speedscope_gets_what_its_schema_requires() -> None:
    # https://www.speedscope.app/file-format-schema.json, "sampled"
    document = json.loads(encode(growth("go2.pb.gz"), "speedscope", is_change=False))
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(document) <= {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}
    for frame in document["shared"]["frames"]:
        assert isinstance(frame["name"], str) and set(frame) <= {"name", "file", "line", "col"}
        assert all(isinstance(frame.get(key, 0), int) for key in ("line", "col"))
    (profile,) = document["profiles"]
    assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
    assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "bytes", 0)
    assert len(profile["samples"]) == len(profile["weights"])
    assert all(isinstance(weight, int) and weight > 0 for weight in profile["weights"])


def test_what_was_allocated_is_not_exported_as_what_is_in_use(tmp_path: Path) -> None:
    reading = OpenOptions(metric="allocated")
    snapshot = load_operand(str(CAPTURES / "dhat.json"), reading).snapshot
    path = tmp_path / "out.pb.gz"
    path.write_bytes(encode(as_growth(snapshot), "pprof", is_change=False))
    profile = read(path)
    assert (profile.metric, profile.snapshots[0].total_bytes) == ("allocated", snapshot.tree.bytes[0])


def named(*frames: Frame, path: str) -> Diff:
    content = Content([Stack(tuple(range(len(frames))), 7, 1)], [(frame,) for frame in frames])
    return as_growth(Snapshot(path, path, Totals(0, 0.0, 7, 0, 0, True), build_tree(content, path)))


@pytest.mark.parametrize("kind", ["folded", "pprof", "massif"])
def test_the_library_of_a_function_without_source_is_still_its_library_when_read_back(
    kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "out"
    frames = (Frame("Perl_safesysmalloc", object="/usr/bin/perl"), Frame("main", "perlmain.c", 7))
    file.write_bytes(encode(named(*frames, path="x"), kind, is_change=False))
    snapshot = load_operand(str(file)).snapshot
    read_back = [snapshot.tree.frame_of(node) for node in snapshot.tree.path(len(snapshot.tree) - 1)]
    assert read_back == list(frames)


@pytest.mark.parametrize("kind", ["folded", "massif"])
def test_names_with_newlines_and_escapes_stay_on_their_lines(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "out"
    evil = "a\nsnapshot=9\n#---\x1b[31m"
    frames = (Frame(f"f{evil}", f"/x{evil}/y.c", 3), Frame(f"g{evil}", object=f"/lib{evil}.so"))
    file.write_bytes(encode(named(*frames, path=f"p{evil}"), kind, is_change=False))
    snapshot = load_operand(str(file)).snapshot
    assert snapshot.tree.bytes[0] == 7 and len(snapshot.tree) == 3


def test_one_snapshot_as_json_is_not_called_growth_from_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(CAPTURES / "dhat.json"), "--to", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"].startswith("heap holds ")


def test_an_export_into_a_fifo_leaves_it_one_even_with_force(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["export", str(CAPTURES / "dhat.json"), "--to", "csv", "-o", str(fifo), "--force"]) == 0
        assert os.read(reader, 11) == b"delta_bytes" and fifo.is_fifo()
    finally:
        os.close(reader)


def test_an_export_to_a_folder_that_is_not_there_reports_it_before_it_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = tmp_path / "missing" / "out.csv"
    assert main(["export", str(tmp_path / "nothing"), "--to", "csv", "-o", str(wanted)]) == 1
    assert "name a file in a folder that you may write to" in capsys.readouterr().err


def test_a_trace_of_snapshots_has_a_counter_for_each_line_and_they_add_up_to_the_total(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = Run.create("decoder", parent=tmp_path, pid=1, folder=tmp_path / "run")
    totals = []
    for number, name in enumerate(("tc.0001.heap", "tc.0002.heap")):
        file = made.next_file("gperftools")
        (made.folder / file).write_bytes((CAPTURES / name).read_bytes())
        made.append("step", file=file, engine="gperftools", seconds=number + 0.5)
        totals.append(read(CAPTURES / name).snapshots[0].total_bytes)
    made.update(program="decoder")
    assert main(["export", str(made.folder), "--to", "perfetto"]) == 0
    events = json.loads(capfd.readouterr().out)["traceEvents"]
    counted = [event for event in events if event["ph"] == "C"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    sums: dict[tuple[str, int], int] = {}
    for event in counted:
        key = names[event["pid"]], event["ts"]
        sums[key] = sums.get(key, 0) + event["args"]["value"]
    expected = {
        (what, at): total
        for what in ("heap", "heap by line")
        for at, total in zip((500_000, 1_500_000), totals)
    }
    assert sums == expected
    assert len({event["name"] for event in counted}) > 3


def test_a_trace_is_refused_where_snapshots_have_no_times(capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["export", str(CAPTURES / "tc.0001.heap"), str(CAPTURES / "tc.0002.heap"), "--to", "perfetto"])
        == 2
    )
    assert "a series over time, not a difference" in capfd.readouterr().err
    assert main(["export", str(CAPTURES.parent / "massif" / "fine.massif.gz"), "--to", "perfetto"]) == 1
    assert "no-times" in capfd.readouterr().err


class Recorder(http.server.BaseHTTPRequestHandler):
    """Keeps what is posted, and answers as its server says."""

    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, self.headers["Content-Type"], body))
        if self.server.answer is None:
            self.server.ends.wait(20)
            return
        status, content, more = self.server.answer
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


class Server(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Recorder)
        self.posted: list[tuple[str, str, bytes]] = []
        self.answer: Optional[tuple[int, bytes, dict[str, str]]] = (200, b"{}", {})
        self.ends = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.ends.set()
        made.shutdown()
        thread.join()


def push(*words: str) -> int:
    return int(main(["export", *words, "--to", "pyroscope"]))


def flat_of(content: bytes, file: Path) -> tuple[object, int]:
    """Return the rows of the profile *content* and its time, as our own reader has them."""
    file.write_bytes(content)
    found = read(file)
    assert isinstance(found, StackProfile)
    return flat(tree(found)), round(found.taken_at)


def test_what_was_pushed_to_either_endpoint_reads_back_with_every_byte_block_and_label(
    tmp_path: Path, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    rank = Rank("Open MPI", 3, 8, host="node1")
    made = Run.create("solver", parent=tmp_path, pid=1, folder=tmp_path / "run", rank=rank)
    file = made.next_file("dhat")
    (made.folder / file).write_bytes((CAPTURES / "dhat.json").read_bytes())
    os.utime(made.folder / file, (1_790_000_000, 1_790_000_000))
    made.append("step", file=file, engine="dhat")
    made.update(program="solver")
    for ending in ("", "/ingest", "/above/ingest"):
        assert push(str(made.folder), "-o", server.address + ending, "--label", "service_name=a{b}=c") == 0
    said = capfd.readouterr().out.splitlines()
    assert said[0] == f"pushed 24.4 KiB to {server.address}: host=node1, rank=3, service_name=a{{b}}=c"
    (path, kind, body), (old_path, old_kind, form), (above, _, _) = server.posted
    assert (path, kind) == ("/push.v1.PusherService/Push", "application/json")
    assert above.startswith("/above/ingest?")
    (series,) = json.loads(body)["series"]
    assert {one["name"]: one["value"] for one in series["labels"]} == {
        "__name__": "memory", "host": "node1", "rank": "3", "service_name": "a{b}=c"
    }  # fmt: skip
    query = dict(parse_qsl(urlsplit(old_path).query))
    assert query["name"] == "a_b__c{host=node1,rank=3}"
    assert (query["from"], query["until"]) == ("1790000000", "1790000001")
    message = email.message_from_bytes(b"Content-Type: " + old_kind.encode() + b"\r\n\r\n" + form)
    parts = {
        str(part.get_param("name", header="Content-Disposition")): part.get_payload(decode=True)
        for part in message.walk()
        if not part.is_multipart()
    }
    config, old = parts["sample_type_config"], parts["profile"]
    assert isinstance(config, bytes) and isinstance(old, bytes)
    assert json.loads(config)["inuse_space"]["units"] == "bytes"
    expected = flat(tree(read(CAPTURES / "dhat.json"))), 1_790_000_000
    assert flat_of(base64.b64decode(series["samples"][0]["rawProfile"]), tmp_path / "new.pb.gz") == expected
    assert flat_of(old, tmp_path / "old.pb.gz") == expected


def test_a_server_that_does_not_take_a_profile_is_said_in_one_sentence(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_ANSWER_SECONDS", 0.3)
    invalid = b'{"code":"invalid_argument","message":"profile \\u001b[2J too old"}'
    for answer, said in (
        ((400, invalid, {}), r"400 Bad Request profile \x1b[2J too old"),
        ((503, b"", {}), "503 Service Unavailable"),
        ((302, b"", {"Location": "/login"}), "302 Found"),
        ((200, b"<html>", {}), "it answered, but not as Pyroscope does"),
        (None, "no answer within 0 s"),
    ):
        server.answer = answer
        count = len(server.posted)
        assert push(str(CAPTURES / "dhat.json"), "-o", server.address) == 1
        out, err = capfd.readouterr()
        assert out == "" and err.count("\n") == 1
        assert f"did not take the profile: {said}; nothing was changed here" in err and "[not-pushed]" in err
        assert len(server.posted) == count + 1, "pushed once: twice would count the memory twice"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert push(str(CAPTURES / "dhat.json"), "-o", f"http://127.0.0.1:{closed.getsockname()[1]}") == 1
    assert "Connection refused" in capfd.readouterr().err


@pytest.mark.parametrize(
    "address", ["", "file", "ftp://a", "http://", "http://u:secret@a", "http://a:x", "http://[::1"]
)
def test_only_the_address_of_a_server_is_pushed_to_and_no_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert push(str(CAPTURES / "dhat.json"), *(["-o", address] if address else [])) == 2
    assert "secret" not in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
