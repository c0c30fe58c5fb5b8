"""How gdb and the launcher talk: whole messages, answers to the right question, and a sentence when one has gone."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbmem.errors import ToolError
from gdbmem.launch.protocol import Wire


@pytest.fixture
def ends() -> Iterator[tuple[Wire, Wire]]:
    one, two = socket.socketpair()
    wires = Wire(one), Wire(two)
    yield wires
    for wire in wires:
        wire.close()


def test_messages_arrive_whole_however_they_are_cut(ends: tuple[Wire, Wire]) -> None:
    gdb, launcher = ends
    message = {"tell": "x", "text": "ü\n\x00\udcff" * 1000}
    data = json.dumps(message).encode() + b"\n"
    one, two = socket.socketpair()
    with one, two:
        receiver = Wire(two)
        one.sendall(data[:10])
        assert receiver.receive() == []
        one.sendall(data[10:-1])
        assert receiver.receive() == []
        one.sendall(data[-1:] + data)
        received = receiver.receive()
        assert received == [message, message]
    gdb.send(message)
    assert launcher.receive() == [message]


def answer(launcher: Wire, *answers: dict[str, object]) -> threading.Thread:
    """Answer the next question with *answers*, its number filled in where one says None."""

    def serve() -> None:
        (question,) = launcher.receive() or []
        for reply in answers:
            number = question["number"] if reply.get("number") is None else reply["number"]
            launcher.send({**reply, "number": number})

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_an_answer_to_a_question_that_was_cut_short_is_passed_over(ends: tuple[Wire, Wire]) -> None:
    gdb, launcher = ends
    thread = answer(launcher, {"answer": "stale", "number": 0}, {"answer": "right"})
    assert gdb.ask({"ask": "plan"})["answer"] == "right"
    thread.join()


def test_an_error_of_the_launchers_is_raised_in_gdb(ends: tuple[Wire, Wire]) -> None:
    gdb, launcher = ends
    thread = answer(launcher, {"error": "it has ended", "hint": "type 'run'", "slug": "program-ended"})
    with pytest.raises(ToolError, match="it has ended; type 'run'") as caught:
        gdb.ask({"ask": "target"})
    assert caught.value.slug == "program-ended"
    thread.join()


def test_a_launcher_that_has_gone_is_said_in_one_sentence(ends: tuple[Wire, Wire], tmp_path: Path) -> None:
    gdb, launcher = ends
    launcher.close()
    with pytest.raises(ToolError, match="the gdbmem launcher that started this gdb has gone"):
        gdb.ask({"ask": "target"})
    assert gdb.receive() is None
    with pytest.raises(ToolError, match="has gone"):
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
        gdb.ask({"ask": "interrupts"})
    hung_up.join()
    assert raised.value.slug == "launcher-gone"
    gdb.send({"tell": "stopped"})
    launcher.hang_up()  # twice is harmless
