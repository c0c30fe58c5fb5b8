"""The conversation of gdb and the launcher: whole messages, answers to the right question, an error if one ended."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.errors import ToolError
from gdbmem.launch.messages import (
    ActionResult,
    AskInterrupts,
    AskPlan,
    AskTarget,
    Fate,
    Finished,
    Hit,
    Message,
    Received,
    RecipePlan,
    RecipeStarted,
    Refused,
    Unresolved,
    ValgrindTarget,
    Wire,
    decode,
    encode,
)


@pytest.fixture
def ends() -> Iterator[tuple[Wire, Wire]]:
    one, two = socket.socketpair()
    wires = Wire(one), Wire(two)
    yield wires
    for wire in wires:
        wire.close()


def test_messages_arrive_whole_however_they_are_cut(ends: tuple[Wire, Wire]) -> None:
    gdb, launcher = ends
    message = Unresolved(0, "ü\n\x00\udcff" * 1000)
    data = json.dumps(encode(message)).encode() + b"\n"
    one, two = socket.socketpair()
    with one, two:
        receiver = Wire(two)
        one.sendall(data[:10])
        assert receiver.receive() == []
        one.sendall(data[10:-1])
        assert receiver.receive() == []
        one.sendall(data[-1:] + data)
        received = receiver.receive()
        assert received == [Received(message, None), Received(message, None)]
    gdb.send(message)
    assert launcher.receive() == [Received(message, None)]


def answer(launcher: Wire, *answers: tuple[Message, Optional[int]]) -> threading.Thread:
    """Answer the next question with *answers*, each under its number, the question's own where that is None."""

    def serve() -> None:
        (question,) = launcher.receive() or []
        for reply, number in answers:
            launcher.send(reply, question.number if number is None else number)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_an_answer_to_a_question_that_was_cut_short_is_passed_over(ends: tuple[Wire, Wire]) -> None:
    gdb, launcher = ends
    thread = answer(launcher, (RecipePlan({"stale": 1}), 0), (RecipePlan({"right": 1}), None))
    assert gdb.ask(AskPlan(), RecipePlan).plan == {"right": 1}
    thread.join()


def test_an_error_of_the_launchers_is_raised_in_gdb(ends: tuple[Wire, Wire]) -> None:
    gdb, launcher = ends
    thread = answer(launcher, (Refused("it has ended", "program-ended", "type 'run'"), None))
    with pytest.raises(ToolError, match="it has ended; type 'run'") as caught:
        gdb.ask(AskTarget(), ValgrindTarget)
    assert caught.value.slug == "program-ended"
    thread.join()


def test_a_launcher_that_has_gone_is_reported_in_one_sentence(
    ends: tuple[Wire, Wire], tmp_path: Path
) -> None:
    gdb, launcher = ends
    launcher.close()
    with pytest.raises(ToolError, match="the gdbmem launcher that started this gdb has ended"):
        gdb.ask(AskTarget(), ValgrindTarget)
    assert gdb.receive() is None
    with pytest.raises(ToolError, match="has ended"):
        Wire.connect(str(tmp_path / "absent"))


def test_who_waits_for_an_answer_hears_that_none_will_come_and_may_still_tell(
    ends: tuple[Wire, Wire],
) -> None:
    gdb, launcher = ends

    def hang_up() -> None:
        launcher.receive()
        launcher.hang_up()

    hung_up = threading.Thread(target=hang_up)
    hung_up.start()
    with pytest.raises(ToolError) as raised:
        gdb.ask(AskInterrupts(), Fate)
    hung_up.join()
    assert raised.value.slug == "launcher-gone"
    gdb.send(RecipeStarted())
    launcher.hang_up()  # twice is harmless


@pytest.mark.parametrize(
    "message",
    [
        AskTarget(),
        ValgrindTarget(7, ("vgdb", "--pid=7")),
        Finished(Fate(139, "it got SIGSEGV", None)),
        Hit(
            0, 3, None, 1, (ActionResult("snap", "", label="a#1", heap_bytes=5), ActionResult("gdb", "info"))
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_comes_out_as_it_went_in(message: Message) -> None:
    fields = json.loads(json.dumps(encode(message)))
    assert decode(fields.pop("kind"), fields) == message


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Explode", {}),
        ("Message", {}),
        (None, {}),
        ("Unresolved", {"point": 0}),
        ("Unresolved", {"point": "0", "sentence": ""}),
        ("Unresolved", {"point": 0, "sentence": "", "more": 1}),
        ("Finished", {"fate": 3}),
        ("Hit", {"point": 0, "hit": 1, "place": None, "thread": None, "results": {}}),
    ],
)
def test_a_message_of_another_version_is_refused_by_name_and_not_half_understood(
    kind: Optional[str], fields: dict[str, Any]
) -> None:
    with pytest.raises(ToolError, match="gdb and its launcher don't understand each other"):
        decode(kind, fields)
