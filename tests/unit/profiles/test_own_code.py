"""Whose code a line is: the headline names the user's own, however many frames lie between it and malloc."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.cli.main import main
from gdbmem.model.calltree import Frame, Frames
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.own_code import (
    INSTALLED,
    INSTALLED_RULES,
    NAMELESS,
    OTHER,
    OWN,
    WRAPPER,
    own_frame,
    own_rank,
    own_ranks,
)
from gdbmem.profiles.paths import MANY_CALLERS, Query, find_wrappers
from gdbmem.profiles.ranking import rank
from tests.unit.trees import at, snapshot, tree

CAPTURES = Path(__file__).parents[2] / "captures"
DOCS = Path(__file__).parents[3] / "docs"


def shown(capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    file = tmp_path / "capture.massif"
    file.write_bytes(gzip.decompress((CAPTURES / f"{capture}.massif.gz").read_bytes()))
    assert main(["show", str(file), "--no-color", *options]) == 0
    return capsys.readouterr().out


def headline(capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    text = shown(capture, tmp_path, capsys, *options)
    found = re.search(r"^heap holds.*?\n\n", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return " ".join(found.group().split())


@pytest.mark.parametrize(
    ("frame", "rank"),
    [
        (Frame("alloc::alloc::alloc", "alloc.rs", 84), INSTALLED),
        (Frame("hashbrown::raw::RawTable<T>::new_uninitialized", "mod.rs", 383), INSTALLED),
        (Frame("std::collections::hash::map::HashMap<K,V,S>::insert", "map.rs", 817), OTHER),
        (Frame("<alloc::vec::Vec<T> as core::iter::Extend>::extend", "mod.rs", 1), INSTALLED),
        (Frame("alloc::vec::Vec<T>::push", "alloc/src/vec/mod.rs", 1), INSTALLED),
        (Frame("serde_json::de::from_str", "serde_json-1.0.96/src/de.rs", 1), INSTALLED),
        (Frame("app::alloc::Pool::new", "alloc.rs", 12), OWN),
        (Frame("test_mem::test_map_not_clear", "main.rs", 52), OWN),
        (Frame("app::load", "src/main.rs", 12), OWN),
        (Frame("core::Engine::load", "core.cpp", 12), OWN),
    ],
)
def test_rust_without_full_paths_has_its_library_told_by_its_names(frame: Frame, rank: int) -> None:
    assert own_rank(frame) == rank
    assert own_ranks(Frames.of([frame]))[0] == rank


@pytest.mark.parametrize(
    ("capture", "answer"),
    [
        ("own_code/rust", "96 % of it from leak.rs:11 (leak::remember)"),
        ("own_code/headers", "53 % of it from composes.cc:27 (main)"),
        ("own_code/cc1plus", "53 % via xcalloc (in cc1plus), 30 % of that from make_node (in cc1plus)"),
        ("massif/perl", "91 % via Perl_safesysmalloc (in perl), 60 % of that from Perl_more_sv (in perl)"),
        (
            "massif/sqlite",
            "over 99 % via sqlite3Malloc (in libsqlite3.so.0.8.6), 47 % of that from sqlite3BtreeDelete"
            " (in libsqlite3.so.0.8.6)",
        ),
        ("massif/cc1", "73 % via xmalloc (in cc1), 18 % of that from compute_may_aliases (in cc1)"),
    ],
)
def test_the_headline_is_the_users_own_line_and_states_which_wrapper_stands_between(
    capture: str, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert headline(capture, tmp_path, capsys).endswith(f"; {answer}")


@pytest.mark.parametrize(
    ("capture", "place"),
    [
        ("own_code/rust", "alloc.rs:135 (realloc)"),
        ("own_code/headers", "new_allocator.h:137 (std::__new_allocator<…>::allocate)"),
        ("massif/perl", "Perl_safesysmalloc (in perl)"),
    ],
)
def test_the_rules_can_be_turned_off(
    capture: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert headline(capture, tmp_path, capsys, "--mine", ".").endswith(f"of it from {place}")
    assert "--mine" not in shown(capture, tmp_path, capsys, "--mine", ".")


def test_a_part_of_the_installed_code_can_be_claimed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown("own_code/headers", tmp_path, capsys, "--mine", "/fst/")
    assert "memory.h:46  fst::internal::MemoryArenaImpl" in text
    assert "composes.cc" not in text


def test_the_rule_that_decided_is_named_with_the_way_to_turn_it_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(shown("own_code/rust", tmp_path, capsys).split())
    assert "code in Rust's library and crates is not your own" in text
    assert "--mine . turns these rules off" in text
    sites = json.loads(shown("own_code/headers", tmp_path, capsys, "--json", "--by", "line"))["sites"]
    assert sites["own_code"]["rules"] == ["/usr/include"]
    sites = json.loads(shown("massif/perl", tmp_path, capsys, "--json", "--by", "line"))["sites"]
    assert "Perl_safesysmalloc" in sites["own_code"]["wrappers"]


def test_no_rule_is_named_where_none_was_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--mine" not in shown("massif/shop", tmp_path, capsys)


def test_each_rule_is_in_the_documentation() -> None:
    page = (DOCS / "how-it-works.md").read_text("utf-8")
    assert [rule.name for rule in INSTALLED_RULES if f"| {rule.name} |" not in page] == []


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (at("grow_impl", "/rustc/59807616e/library/alloc/src/alloc.rs:239"), INSTALLED),
        (at("core::option::Option<T>::map_or_else", "library/core/src/option.rs:1278"), INSTALLED),
        (
            at(
                "reserve", "/home/u/.cargo/registry/src/index.crates.io-6f17d22bba15001f/bytes-1.5/src/a.rs:3"
            ),
            INSTALLED,
        ),
        (at("<alloc::raw_vec::RawVecInner>::try_allocate_in", "/home/u/leak"), INSTALLED),
        (at("fst::Compose<A>(B)", "/usr/include/fst/compose.h:989"), INSTALLED),
        (at("Eigen::f()", "/usr/local/include/eigen3/Eigen/Core:9"), INSTALLED),
        (at("g_list_append", "/usr/lib/x86_64-linux-gnu/libglib-2.0.so.0.7400.6"), INSTALLED),
        (at("bytes.growslice", "/usr/local/go/src/bytes/buffer.go:3"), INSTALLED),
        (at("loads", "/usr/lib/python3.11/json/__init__.py:346"), INSTALLED),
        (at("pymain_run_file_obj", "Modules/main.c:360"), INSTALLED),
        (at("sock_recv", "./Modules/socketmodule.c:3562"), INSTALLED),
        (at("bytearray___init__", "Objects/clinic/bytearrayobject.c.h:68"), INSTALLED),
        (at("validate_stmt", "/tmp/Python-3.11.7/Python/Python-ast.c:9"), INSTALLED),
        (at("_PyPegen_parse", "/tmp/Python-3.11.7/Parser/parser.c:9"), INSTALLED),
        (at("parse", "Parser/parser.c:9"), OWN),
        (at("load", "Modules/camera.c:9"), OWN),
        (at("fit", "/home/u/.venv/lib/python3.11/site-packages/sk/base.py:3"), INSTALLED),
        (at("xmalloc", "/home/u/util.c:3"), WRAPPER),
        (at("Perl_safesysmalloc", "/usr/bin/perl"), WRAPPER),
        (at("av_mallocz", "/usr/lib/x86_64-linux-gnu/libavutil.so.57"), WRAPPER),
        (at("palloc0", "/home/u/pg/src/backend/utils/mmgr/mcxt.c:1195"), WRAPPER),
        (at("MemoryContextAllocZeroAligned", "mcxt.c:1073"), WRAPPER),
        (at("AllocSetContextCreateInternal", "aset.c:357"), WRAPPER),
        (at("GenerationContextCreate", "/usr/lib/postgresql/15/bin/postgres"), WRAPPER),
        (at("AllocSetAllocFromNewBlock", "aset.c:815"), WRAPPER),
        (at("ngx_palloc_large", "/usr/sbin/nginx"), WRAPPER),
        (at("apr_palloc", "/usr/lib/x86_64-linux-gnu/libapr-1.so.0"), WRAPPER),
        (at("ggc_internal_cleared_alloc(unsigned long, void (*)(void*))", "/usr/lib/cc1plus"), WRAPPER),
        (at("_emalloc_large", "/usr/bin/php"), WRAPPER),
        (at("_talloc_zero", "/usr/lib/x86_64-linux-gnu/libtalloc.so.2"), WRAPPER),
        (at("MemoryContextStatsInternal", "mcxt.c:870"), OWN),
        (at("SlabAllocator::SlabAllocator()", "/home/u/slab.cc:3"), OWN),
        (at("palloc_test", "/home/u/test.c:3"), OWN),
        (at("Buffer::realloc(unsigned long)", "/home/u/buffer.cc:3"), WRAPPER),
        (at("run_malloc_test", "/home/u/test.c:3"), OWN),
        (at("allocate_sessions", "/home/u/a.c:3"), OWN),
        (at("load", "/home/u/usr/include/load.h:3"), OWN),
        (at("load", "/home/u/library/load.rs:3"), OWN),
        (at("Python_load", "/home/u/src/python3/load.cc:3"), OWN),
        (at(None, "/home/u/program"), NAMELESS),
        (at("fwrite", "iofwrite.c:39"), OTHER),
        (at("__mmap64", "mmap64.c:58"), OTHER),
        (at("__clone3", "clone3.S:81"), OTHER),
        (at("_IO_acquire_lock_fct", "libioP.h:905"), OTHER),
        (Frame("f", "./a/b.c", 3, "/lib/x86_64-linux-gnu/libc.so.6"), OTHER),
    ],
)
def test_the_place_of_a_frame_decides_whose_it_is(frame: Frame, expected: int) -> None:
    assert own_rank(frame) == expected


def test_a_table_of_frames_is_ranked_as_each_frame_is() -> None:
    names = [
        None,
        "",
        "plain",
        "xmalloc",
        "SlabContextCreate",
        "Mmap",
        "_Znwm",
        "std::f()",
        "a\u0130b",
        "f (module)",
        "dl_open",
        "0x1F",
        None,
    ]
    places = [
        (None, None),
        ("a.c", None),
        ("/usr/include/a.h", None),
        (None, "/lib/libc.so.6"),
        (None, "/bin/p"),
    ]
    frames = [Frame(name, file, None, place) for name in names for file, place in places]
    for table in (frames, [*frames, Frame("two\nlines", "a.c")], frames[:5]):
        assert list(own_ranks(Frames.of(table))) == [own_rank(frame) for frame in table]


def test_installed_code_is_named_where_nothing_else_is_known() -> None:
    malloc, compose = at("malloc"), at("fst::Compose<A>(B)", "/usr/include/fst/compose.h:989")
    assert own_frame([malloc, compose, at("start", "libx.so.3")]) == 2
    assert own_frame([malloc, compose, at("(below main)")]) == 1
    assert own_frame([malloc, at("xmalloc", "x.c:3"), compose, at("main", "m.c:3")]) == 3
    assert own_frame([malloc, at("xmalloc", "x.c:3"), at("(below main)")]) == 1


def called_from(callers: int, name: str, *, directly: int = 1000, otherwise: int = 0) -> set[str]:
    """Return the wrappers of a heap in which *callers* functions call *name*."""
    parts = [(at(f"caller{n}", f"c.c:{n}"), directly) for n in range(callers)]
    nodes = [(at(name, "w.c:3"), directly * callers, *parts)]
    if otherwise:
        nodes.append((at("helper", "h.c:1"), otherwise, (at(name, "w.c:9"), otherwise)))
    whole = tree(directly * callers + otherwise, *nodes)
    return find_wrappers(as_growth(snapshot(whole)))


@pytest.mark.parametrize(
    ("callers", "name", "is_wrapper"),
    [
        (MANY_CALLERS, "make_node", True),
        (MANY_CALLERS - 1, "make_node", False),
        (2, "pool_alloc_node", True),
        (1, "alloc_all", False),
        (1, "xmalloc", True),
    ],
)
def test_a_function_that_only_allocates_is_found_by_its_callers(
    callers: int, name: str, *, is_wrapper: bool
) -> None:
    assert called_from(callers, name) == ({name} if is_wrapper else set())


def test_a_function_that_has_others_allocate_for_it_is_no_wrapper() -> None:
    assert called_from(MANY_CALLERS, "make_node", otherwise=MANY_CALLERS * 1000) == set()


def test_rows_of_several_wrappers_keep_their_own_and_add_up() -> None:
    main_frame = at("main", "m.c:9")
    whole = tree(
        100,
        (at("xmalloc", "/usr/bin/x.c:3"), 60, (at(None, "/usr/bin/p"), 60)),
        (at("xcalloc", "/usr/bin/x.c:9"), 30, (at(None, "/usr/bin/p"), 30)),
        (at("xcalloc", "/usr/bin/x.c:9"), 10, (main_frame, 10)),
    )
    ranking = rank(as_growth(snapshot(whole)), Query())
    named: list[tuple[Optional[str], int]] = [
        (row.site.function if row.site else None, row.amount.after_bytes) for row in ranking.rows
    ]
    assert named == [("xmalloc", 60), ("xcalloc", 30), ("main", 10)]


def test_a_known_line_that_matches_nothing_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for size in (100, 200):
        file = tmp_path / f"{size}.massif"
        file.write_text(
            f"desc: x\ncmd: x\ntime_unit: i\n#-----------\nsnapshot=0\n#-----------\ntime=0\nmem_heap_B={size}\n"
            f"mem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree=detailed\n"
            f"n1: {size} (heap allocation functions) malloc\n n0: {size} 0x1: load (a.c:3)\n"
        )
        files.append(str(file))
    known = tmp_path / "known"
    known.write_text("load\nlaod_misspelt\n")
    assert main(["diff", *files, "--known", str(known)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no frame matches 1 line of --known: laod_misspelt" in said
    assert "known: 1 path" in said
