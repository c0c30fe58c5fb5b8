"""speedscope's JSON as an input: memory profiles of other tools, and our own exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.export import encode
from gdbmem.runs.operand import load_from_profile
from tests.unit.stack_files import CAPTURES, flat, read, tree

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
AUSTIN = CAPTURES / "austin.speedscope.json"


def document(*profiles: dict[str, Any], **more: object) -> dict[str, Any]:
    frames = [{"name": "main", "file": "a.c", "line": 9}, {"name": "grow", "file": "a.c", "line": 3}]
    return {"$schema": SCHEMA, "shared": {"frames": frames}, "profiles": list(profiles), **more}


def sampled(samples: list[list[int]], weights: list[float], **more: object) -> dict[str, Any]:
    given = {"type": "sampled", "unit": "bytes", "name": "x", "startValue": 0, "endValue": sum(weights)}
    return {**given, "samples": samples, "weights": weights, **more}


def evented(moments: list[tuple[str, int, int]]) -> dict[str, Any]:
    events = [{"type": kind, "at": at, "frame": frame} for kind, at, frame in moments]
    end = max(at for _, at, _ in moments)
    return {
        "type": "evented",
        "unit": "bytes",
        "name": "x",
        "startValue": 0,
        "endValue": end,
        "events": events,
    }


def write(tmp_path: Path, found: object) -> Path:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(found))
    return file


def test_a_converters_file_has_the_bytes_of_what_it_was_made_from() -> None:
    lines = [
        line.rsplit(" ", 1) for line in (CAPTURES / "austin.txt").read_text().splitlines() if " " in line
    ]
    sizes = [(path, int(metrics.split(",")[2])) for path, metrics in lines if path.startswith("P")]
    first = read(AUSTIN)
    assert first.metric == "Memory allocation profile for 4711:0:4712"
    assert tree(first).bytes[0] == sum(n for path, n in sizes if ":4712;" in path and n > 0)
    others = [tree(read(AUSTIN, name)).bytes[0] for name in first.metrics[1:]]
    assert others == [-sum(n for _, n in sizes if n < 0), sum(n for path, n in sizes if ":4713;" in path)]


@pytest.mark.parametrize("name", ["austin-grow", "austin-threads"])
def test_a_converters_file_of_a_recording_has_its_bytes(name: str, tmp_path: Path) -> None:
    lines = (CAPTURES / f"{name}.txt").read_text().splitlines()
    # The converter leaves out samples without a frame.
    sizes = [int(line.rpartition(",")[2]) for line in lines if line.startswith("P") and line.count(";") > 1]
    sums = {"allocation": sum(n for n in sizes if n > 0), "deallocation": -sum(n for n in sizes if n < 0)}
    file = CAPTURES / f"{name}.speedscope.json"
    profiles = [one for one in json.loads(file.read_text())["profiles"] if one["unit"] == "bytes"]
    expected = [sums[one["name"].split()[1]] for one in profiles]
    metrics = read(file).metrics
    assert [tree(read(file, metric)).bytes[0] for metric in metrics] == expected and expected[0] > 0
    lines = file.read_text().splitlines(keepends=True)
    cut = tmp_path / "x.json"
    for count in range(1, len(lines), 10):
        cut.write_text("".join(lines[:count]))
        with pytest.raises(InputError):
            read(cut)


def test_what_else_the_file_holds_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(AUSTIN)]) == 0
    assert "holds 3 profiles of bytes" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["go1.pb.gz", "dhat.json", "tc.0001.heap"])
def test_what_is_exported_comes_back_with_the_same_bytes_at_the_same_functions(
    tmp_path: Path, name: str
) -> None:
    profile = open_profile(CAPTURES / name)
    snapshot = load_from_profile(profile, "peak").snapshot
    file = tmp_path / "x.json"
    file.write_bytes(encode(as_growth(snapshot), "speedscope", is_change=False))
    again = tree(read(file))
    assert again.bytes[0] == snapshot.tree.bytes[0]
    named = {function: size for function, size in flat(snapshot.tree).items() if function != "?"}
    assert {function: size for function, size in flat(again).items() if function in named} == named


def test_the_allocation_site_is_the_innermost_frame_of_a_sample(tmp_path: Path) -> None:
    found = tree(read(write(tmp_path, document(sampled([[0, 1], [0]], [100, 7])))))
    assert flat(found) == {"grow": 100, "main": 7}


def test_events_weigh_what_lies_between_them(tmp_path: Path) -> None:
    moments = [("O", 10, 0), ("O", 14, 1), ("C", 114, 1), ("C", 115, 0)]
    found = tree(read(write(tmp_path, document(evented(moments)))))
    assert found.bytes[0] == 115 and flat(found) == {"grow": 100, "main": 5}


def test_the_active_profile_is_shown_and_names_that_are_equal_stay_apart(tmp_path: Path) -> None:
    parts = [sampled([[0]], [size]) for size in (1, 20, 300)]
    file = write(tmp_path, document(*parts, activeProfileIndex=2))
    assert read(file).total_bytes == 300
    assert sorted(read(file, name).total_bytes for name in read(file).metrics) == [1, 20, 300]


def test_a_difference_is_shown_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, document(sampled([[0, 1], [0]], [4096, -1024])))
    assert main(["show", str(file)]) == 0
    out = capsys.readouterr().out
    assert "grew by 3.0 KiB" in out and "-1.0 KiB" in out


@pytest.mark.parametrize(
    ("found", "slug", "words"),
    [
        (document(sampled([[0]], [1], unit="milliseconds")), "no-such-metric", "counts milliseconds, not bytes"),
        (document(), "no-such-metric", "counts nothing, not bytes"),
        (document(sampled([[0]], [1, 2])), "json-damaged", "1 samples with 2 weights"),
        (document(sampled([[7]], [1])), "index-out-of-range", "names a frame outside its table"),
        (document(sampled([[0]], [float("nan")])), "json-damaged", "a number of bytes"),
        (document(sampled([[0]], [1e300])), "count-too-big", "counts more bytes than any memory has"),
        (document(sampled([[0]], [1], type="other")), "json-damaged", "a profile of type other"),
        (document(sampled([[0] * 100_001], [1])), "stack-too-deep", "a stack of 100001 frames"),
        ({"$schema": SCHEMA, "profiles": []}, "json-damaged", "KeyError"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_sentence(
    tmp_path: Path, found: object, slug: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(write(tmp_path, found))
    assert caught.value.slug == slug and words in caught.value.message


@pytest.mark.parametrize("moments", [[("C", 1, 0)], [("O", 1, 0), ("C", 2, 1)], [("O", 5, 0), ("O", 4, 1)]])
def test_events_that_do_not_nest_are_refused(tmp_path: Path, moments: list[tuple[str, int, int]]) -> None:
    with pytest.raises(InputError, match="not a valid speedscope file"):
        read(write(tmp_path, document(evented(moments))))


@pytest.mark.slow
def test_events_whose_stacks_are_the_square_of_the_file_are_refused_and_not_listed(tmp_path: Path) -> None:
    profile = evented([("O", number, 0) for number in range(10_000)])
    with pytest.raises(InputError) as caught:
        read(write(tmp_path, document(profile)))
    assert caught.value.slug == "stack-too-deep"


def test_another_tools_file_with_its_schema_further_back_is_read_when_it_is_named(tmp_path: Path) -> None:
    found = document(sampled([[0, 1]], [5]))
    file = write(tmp_path, {"profiles": found["profiles"], "shared": found["shared"], "note": "-" * 500})
    assert open_profile(file, OpenOptions("speedscope")).snapshots[0].total_bytes == 5
