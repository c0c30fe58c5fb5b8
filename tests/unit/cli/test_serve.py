"""gdbmem serve: access, and pages that follow their run."""

from __future__ import annotations

import http.client
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from gdbmem.api.profiles import ReadOptions
from gdbmem.cli.commands import serve as server_module
from gdbmem.cli.commands.serve import Served, Server, _served_by, stamp_of
from gdbmem.cli.main import main
from gdbmem.cli.report_pages import make_page
from gdbmem.errors import InputError
from gdbmem.page.page import Page
from gdbmem.profiles.paths import Query
from gdbmem.runs.run import Run
from tests.unit.massif_texts import massif, path

LEAK = path(5000, "remember (decoder.cpp:120)", "main (main.cpp:9)")


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    file = tmp_path / "a.ms"
    file.write_text(massif(LEAK))
    return file


@pytest.fixture(autouse=True)
def soon_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_POLL_SECONDS", 0.01)


@contextmanager
def serving(*files: Path) -> Iterator[Server]:
    def served() -> list[Served]:
        return [
            Served(file.name, file, lambda file=file: make_page([str(file)], Query(), ReadOptions()))  # type: ignore[misc]
            for file in files
        ]

    server = Server(served, 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    server.close()
    thread.join()


def get(server: Server, where: str, *, host: str = "") -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", where, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


def test_the_index_leads_to_the_page_and_the_page_to_what_tells_that_it_has_changed(profile: Path) -> None:
    with serving(profile) as server:
        status, index, _ = get(server, f"/{server.token}/")
        assert status == HTTPStatus.OK and '<a href="page/0">a.ms</a>' in index
        status, page, _ = get(server, f"/{server.token}/page/0")
        assert status == HTTPStatus.OK and "decoder.cpp:120" in page
        assert (
            f'data-follow="/{server.token}/stamp/0"' in page and f'data-stamp="{stamp_of(profile)}"' in page
        )
        profile.write_text(massif([*LEAK, *path(70000, "later (later.cpp:3)", "main (main.cpp:9)")]))
        assert get(server, f"/{server.token}/stamp/0")[1] == stamp_of(profile)
        assert "later.cpp:3" in get(server, f"/{server.token}/page/0")[1]


def test_the_index_follows_what_comes_and_changes_without_loading_itself_again(
    tmp_path: Path, profile: Path
) -> None:
    files = [profile]
    server = Server(lambda: [Served(file.name, file, lambda: None) for file in files], 0)  # type: ignore[arg-type,return-value]
    index = server.answer(f"/{server.token}/")[2]
    address = f"/{server.token}/stamp"
    stamp = server.answer(address)[2]
    assert f'data-follow="{address}" data-stamp="{stamp}"' in index and 'http-equiv="refresh"' not in index
    assert server.answer(address)[2] == stamp
    os.utime(profile, (1, 1))
    changed = server.answer(address)[2]
    files.append(tmp_path / "later.ms")
    assert len({stamp, changed, server.answer(address)[2]}) == 3
    assert server.answer("/favicon.ico")[::2] == (HTTPStatus.NO_CONTENT, ""), (
        "no failure in the browser's console"
    )
    server.end()


@pytest.mark.parametrize(
    "where",
    ["/", "/page/0", "/x/page/0", "//", "/{token}x/", "/{token}/page/1", "/{token}/page/-1", "/{token}/page/٠",
     "/{token}/../etc/passwd", "/{token}/page/../../etc/passwd", "/{token}/page//etc/passwd", "/{token}/file/0"],
)  # fmt: skip
def test_without_the_token_and_beside_the_runs_there_is_nothing(where: str, profile: Path) -> None:
    with serving(profile) as server:
        status, _, text = server.answer(where.replace("{token}", server.token))
        assert (status, text) == (HTTPStatus.NOT_FOUND, "not found\n")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:80", "0.0.0.0:1"]
)
def test_a_name_that_another_user_gave_this_machine_is_refused(host: str, profile: Path) -> None:
    with serving(profile) as server:
        status, text, _ = get(server, f"/{server.token}/page/0", host=host)
        assert status == HTTPStatus.MISDIRECTED_REQUEST and "decoder" not in text


def test_a_page_is_shown_in_no_frame_kept_nowhere_and_tells_nobody_its_address(profile: Path) -> None:
    with serving(profile) as server:
        headers = get(server, f"/{server.token}/page/0")[2]
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"


def test_it_listens_on_the_loopback_address_only(profile: Path) -> None:
    with serving(profile) as server:
        assert server.address.startswith("http://127.0.0.1:") and len(server.token) >= 32


def test_a_run_keeps_its_address_whichever_come_later(tmp_path: Path, profile: Path) -> None:
    files = [profile]
    server = Server(lambda: [Served(file.name, file, lambda: None) for file in files], 0)  # type: ignore[arg-type,return-value]
    assert '<a href="page/0">a.ms</a>' in server.answer(f"/{server.token}/")[2]
    files.insert(0, tmp_path / "0.ms")
    index = server.answer(f"/{server.token}/")[2]
    assert '<a href="page/0">a.ms</a>' in index and '<a href="page/1">0.ms</a>' in index
    server.end()


def test_a_file_that_is_damaged_meanwhile_is_a_sentence(profile: Path) -> None:
    with serving(profile) as server:
        profile.write_text("no profile\n")
        status, page, _ = get(server, f"/{server.token}/page/0")
        assert status == HTTPStatus.OK and "<li>" in page and "a.ms" in page.partition("<li>")[2]


def test_a_page_that_fails_while_its_run_is_written_is_made_again(profile: Path) -> None:
    tries: list[int] = []

    def page(changes: int) -> Page:
        tries.append(changes)
        if len(tries) <= changes:
            profile.write_text("more\n" * len(tries))
            raise InputError("no such snapshot", slug="no-such-snapshot", hint="look again")
        if changes < 0:
            raise InputError("no such snapshot", slug="no-such-snapshot", hint="look again")
        return Page("whole")

    for changes, times in ((1, 2), (9, 3), (-1, 1)):
        tries.clear()
        server = Server(lambda changes=changes: [Served("a.ms", profile, lambda: page(changes))], 0)  # type: ignore[misc]
        text = server.answer(f"/{server.token}/page/0")[2]
        server.end()
        assert len(tries) == times and ("no such snapshot" in text) == (times != 2)


def test_an_unforeseen_error_is_answered_with_a_sentence_that_tells_nothing_of_the_inside(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Page:
        raise RuntimeError("secret \x1b[31m of the inside")

    server = Server(lambda: [Served("a.ms", profile, broken)], 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        status, text, headers = get(server, f"/{server.token}/page/0")
        assert status == HTTPStatus.INTERNAL_SERVER_ERROR and headers["Content-Type"].startswith("text/plain")
        assert text.count("\n") == 1 and "could not be made" in text
        assert not any(word in text for word in ("secret", "RuntimeError", "Traceback", server.token))
        assert get(server, f"/{server.token}/")[0] == HTTPStatus.OK, "it goes on"
    finally:
        server.close()
        thread.join()
    told = capsys.readouterr().err
    assert "secret" in told and "\x1b" not in told and server.token not in told


@pytest.mark.parametrize("words", [["absent"], ["--port", "x"], ["--port", "70000"]])
def test_what_can_not_be_served_is_refused_at_once(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *words]) in (1, 2)
    assert capsys.readouterr().err.startswith("gdbmem: ")


def test_a_folder_stands_for_its_runs_those_too_that_come_later_and_one_that_goes_is_no_failure(
    tmp_path: Path,
) -> None:
    def names(operand: Path) -> list[str]:
        return [one.name for one in _served_by(str(operand), Query(), ReadOptions())]

    folder = tmp_path / "runs"
    folder.mkdir()
    assert names(folder) == []
    for name in ("b", "a"):
        Run.create("decoder", parent=folder, pid=1, folder=folder / name).update(program="/bin/decoder")
    assert names(folder) == ["a", "b"]
    assert names(folder / "a") == ["a"]
    shutil.rmtree(folder / "a")
    assert names(folder) == ["b"] and names(folder / "a") == []


def test_a_port_that_is_taken_is_a_sentence(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(profile) as server:
        assert main(["serve", str(profile), "--port", str(server.port)]) == 1
        assert f"can't listen on port {server.port}" in capsys.readouterr().err
