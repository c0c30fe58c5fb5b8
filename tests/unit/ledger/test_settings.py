"""Settings of other allocators are tried by the names that the allocator's own file has, and no others."""

from __future__ import annotations

import io
from typing import BinaryIO

import pytest

from gdbmem.launch.measured import environment_with
from gdbmem.ledger.remedies import settings_of
from gdbmem.model.ledger import FREE_PAGES, LIVE, Entry, Ledger, OtherMalloc, Remedy, Share

MIB = 1 << 20
JEMALLOC = b"dirty_decay_ms\0background_thread\0"


def ledger_of(*allocators: str) -> Ledger:
    parts = {
        (f"allocator.{name}", label): size * MIB
        for name in allocators
        for label, size in ((LIVE, 2), (FREE_PAGES, 5))
    }
    rss = sum(parts.values())
    mallocs = [
        OtherMalloc(f"allocator.{name}", "", "", f"/{name}", 2 * MIB, 1, 0, 1, 0, 5 * MIB, 0, 0, 0)
        for name in allocators
    ]
    entries = [Entry(*key, size) for key, size in parts.items()]
    return Ledger("a", 1, rss, entries, [Share(0, rss, "", rss, parts)], None, mallocs=mallocs)


def settings(files: dict[str, bytes]) -> list[str]:
    def opened(name: str) -> BinaryIO:
        return io.BytesIO(files[name[1:]])

    found = settings_of(ledger_of(*files), opened)
    assert all((one.predicted_bytes, one.high_bytes) == (None, 5 * MIB) for one in found)
    return [one.setting for one in found]


@pytest.mark.parametrize("variable", ["MALLOC_CONF", "_RJEM_MALLOC_CONF", "JE_ARROW_MALLOC_CONF"])
def test_jemallocs_settings_go_by_the_variable_that_this_build_reads(variable: str) -> None:
    data = b"\0the environment variable MALLOC_CONF\0" + variable.encode() + b"\0" + JEMALLOC
    assert settings({"jemalloc": data}) == [
        f"{variable}=dirty_decay_ms:0,muzzy_decay_ms:0",
        f"{variable}=background_thread:true",
    ]


def test_a_setting_that_a_later_release_has_renamed_is_tried_by_one_name() -> None:
    assert settings({"mimalloc": b"\0segment_decommit_delay\0"}) == ["MIMALLOC_DECOMMIT_DELAY=0"]
    assert settings({"mimalloc": b"\0decommit_delay\0purge_delay\0"}) == ["MIMALLOC_PURGE_DELAY=0"]
    reset = (
        b"\0abandoned_page_reset\0segment_decommit_delay\0"  # linkers let a word be the end of another one
    )
    assert settings({"mimalloc": reset}) == ["MIMALLOC_DECOMMIT_DELAY=0", "MIMALLOC_PAGE_RESET=1"]
    assert settings({"mimalloc": b"\0deprecated_page_reset\0purge_delay\0"}) == ["MIMALLOC_PURGE_DELAY=0"]
    sizes = {b"opt.tcache_max\0": "tcache_max:1024", b"opt.lg_tcache_max\0": "lg_tcache_max:10"}
    for word, setting in sizes.items():
        assert settings({"jemalloc": b"\0MALLOC_CONF\0" + word}) == [f"MALLOC_CONF={setting}"]
    assert settings({"tcmalloc": b"\0TCMALLOC_RELEASE_RATE\0", "musl": b""}) == ["TCMALLOC_RELEASE_RATE=10"]


def test_arrows_pools_are_tried_where_arrow_has_the_allocator() -> None:
    assert settings({"mimalloc": b"\0ARROW_DEFAULT_MEMORY_POOL\0"}) == [
        "ARROW_DEFAULT_MEMORY_POOL=system",
        "ARROW_DEFAULT_MEMORY_POOL=jemalloc",
    ]


def test_settings_are_added_to_those_that_the_user_has_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_CONF", "narenas:4")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    monkeypatch.setenv("TCMALLOC_RELEASE_RATE", "1")
    remedy = Remedy("glibc.malloc.top_pad=0", None, 0, 0, "")
    assert (
        environment_with(remedy.variable)["GLIBC_TUNABLES"] == "glibc.malloc.check=1:glibc.malloc.top_pad=0"
    )
    assert environment_with("MALLOC_CONF=thp:never")["MALLOC_CONF"] == "narenas:4,thp:never"
    assert environment_with("TCMALLOC_RELEASE_RATE=10")["TCMALLOC_RELEASE_RATE"] == "10"
