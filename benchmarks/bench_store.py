"""A store of 10,000 profiles of 2,000 call paths, beside reading the same files; timed on 200 of them and scaled."""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy
import pyarrow
from pyarrow import compute, parquet

from benchmarks.racing import Ratio, cpu_of, pairs, peak_mib
from gdbmem.formats.protobuf_schema import profile_message

TITLE = "A store of 10,000 pprof profiles of 2,000 paths, beside reading them; timed on 200, scaled"
RANKS, TIMES, PATHS, FUNCTIONS, COPIES = 2, 100, 2_000, 900, 50
ROUNDS = 3
GDBMEM = (sys.executable, "-m", "gdbmem.cli.main")
READ = "import sys; from gdbmem import api\nfor file in sys.argv[1:]: api.read_snapshot(file)"


def race() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        files = [str(file) for file in _profiles(Path(folder))]
        store, number = Path(folder) / "store", iter(range(1_000))

        def add() -> float:
            where = store.with_name(f"store{next(number)}")
            return cpu_of([*GDBMEM, "store", "add", where, "--names", "rank%r/heap.*", *files])

        start = cpu_of([sys.executable, "-c", READ])
        taken = pairs(add, lambda: cpu_of([sys.executable, "-c", READ, *files]), rounds=ROUNDS)
        yield Ratio("`store add` / reading all", [ours / peer for ours, peer in taken], at_most=1.2)
        large = _multiplied(store.with_name("store0"), Path(folder) / "large")
        reading = [(peer - start) * COPIES for _, peer in taken]
        for question, bar in (("grew", 0.005), ("odd", None)):
            asked = [*GDBMEM, "store", "query", str(large), question]
            yield Ratio(
                f"`store query {question}` / reading all",
                [cpu_of(asked) / one for one in reading],
                at_most=bar,
            )
            yield Ratio(f"`store query {question}`, memory / 300 MiB", [peak_mib(asked) / 300], at_most=1)
        size = sum(file.stat().st_size for file in large.iterdir())
        yield Ratio("size on disk / 100 MiB", [size / (100 << 20)], at_most=1)


def _profiles(folder: Path) -> Iterator[Path]:
    """Yield the files of two ranks; the values vary by 2 %, and a path of each rank grows."""
    rng = numpy.random.default_rng(7)
    profile = profile_message()()
    strings = ["", "inuse_objects", "count", "inuse_space", "bytes"]
    profile.sample_type.add(type=1, unit=2)
    profile.sample_type.add(type=3, unit=4)
    for number in range(FUNCTIONS):
        strings += [
            f"ns::Class{number % 97}::method{number}(int, std::string const&)",
            f"/src/part{number % 40}.cpp",
        ]
        profile.function.add(id=number + 1, name=len(strings) - 2, filename=len(strings) - 1)
        location = profile.location.add(id=number + 1)
        location.line.add(function_id=number + 1, line=number + 10)
    for _ in range(PATHS):
        frames = rng.integers(1, FUNCTIONS + 1, int(rng.integers(6, 30))).tolist()
        profile.sample.add(location_id=frames).value.extend([0, 0])
    profile.string_table.extend(text.encode() for text in strings)
    usual = rng.lognormal(9, 2.5, PATHS).astype(numpy.int64) + 16
    for rank in range(RANKS):
        sizes = (usual * rng.normal(1, 0.02, (TIMES, PATHS))).astype(numpy.int64)
        sizes[40:, 3 + rank] += numpy.arange(1, TIMES - 39) * 500_000
        (folder / f"rank{rank}").mkdir()
        for time in range(TIMES):
            profile.time_nanos = (1_800_000_000 + 60 * time) * 10**9
            for sample, size in zip(profile.sample, sizes[time].tolist()):
                sample.value[:] = [max(size // 64, 1), size]
            file = folder / f"rank{rank}" / f"heap.{time:04}.pb.gz"
            file.write_bytes(gzip.compress(profile.SerializeToString(), 6))
            yield file


def _multiplied(store: Path, large: Path) -> Path:
    """Return a store of COPIES times the ranks of *store*."""
    large.mkdir(mode=0o700)
    tables = json.loads((store / "store.json").read_text())
    found = {
        "format_version": tables["format_version"],
        "paths": tables["paths"],
        "facts": [],
        "profiles": [],
    }
    for file, _ in tables["paths"]:
        (large / file).write_bytes((store / file).read_bytes())
    for copy in range(COPIES):
        for name in ("facts", "profiles"):
            for number, (file, rows) in enumerate(tables[name]):
                table = parquet.read_table(store / file)
                columns = {"profile_id": RANKS * TIMES * copy, "rank": RANKS * copy}
                for column, more in columns.items():
                    if column in table.column_names:
                        values = compute.add(table[column], pyarrow.scalar(more, pyarrow.int32()))
                        table = table.set_column(table.column_names.index(column), column, values)
                if name == "profiles":
                    series = [f"{text} of {copy}" for text in table["series"].to_pylist()]
                    table = table.set_column(
                        table.column_names.index("series"), "series", pyarrow.array(series)
                    )
                new = f"{name}-{1_000 * (copy + 1) + number:06}.parquet"
                keys = ["path_id", "profile_id", "uncertain_bytes"]
                parquet.write_table(
                    table, large / new, compression="zstd", row_group_size=1 << 17,
                    use_dictionary=keys if name == "facts" else True,
                )  # fmt: skip
                found[name].append([new, rows])
    (large / "store.json").write_text(json.dumps(found))
    return large
