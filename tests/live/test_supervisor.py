"""The supervisor of a launch: gdb's questions, over several connections."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from gdbmem.launch import messages
from gdbmem.launch.supervisor import Supervisor


def test_what_gdb_sends_just_before_it_ends_is_heard(tmp_path: Path) -> None:
    """Otherwise a recipe says that gdb ended before the program did, or forgets that this executed another one."""
    (tmp_path / "run").mkdir()
    heard: list[messages.Message] = []
    nobody = cast("Any", None)

    class EndsWhenLookedAt:
        @property
        def alive(self) -> bool:
            gdb.send(messages.RecipeStarted())
            gdb.close()
            return False

    with Supervisor(tmp_path, nobody, nobody, heard.append, nobody) as supervisor:
        gdb = messages.Wire.connect(str(supervisor.socket_path))
        assert supervisor.wait(lambda: len(supervisor._wires) == 1, 5)
        assert supervisor.wait_for_gdb(cast("Any", EndsWhenLookedAt()), 5)
    assert heard == [messages.RecipeStarted()]


@pytest.mark.parametrize("what_comes", ["a question", "its end"])
def test_what_comes_while_an_answer_waits_for_the_program_is_not_waited_for_again(
    tmp_path: Path, what_comes: str
) -> None:
    (tmp_path / "run").mkdir()
    came: list[object] = []

    def answer(question: messages.Message) -> messages.Message:
        if isinstance(question, messages.AskNative):  # of the second connection
            came.append(question)
        else:  # as where it waits for the end of a program
            assert supervisor.wait(lambda: bool(came) or len(supervisor._wires) < 2, 5)
        return messages.Done()

    nobody = cast("Any", None)
    with Supervisor(tmp_path, nobody, nobody, nobody, answer) as supervisor:
        first, second = (messages.Wire.connect(str(supervisor.socket_path)) for _ in range(2))
        assert supervisor.wait(lambda: len(supervisor._wires) == 2, 5)
        first.send(messages.AskAttached(), 1)
        if what_comes == "a question":
            second.send(messages.AskNative(), 1)
        else:
            second.close()
        problems: list[BaseException] = []

        def serve() -> None:
            try:
                supervisor.wait(lambda: False, 0.2)
            except BaseException as problem:  # noqa: BLE001  (of a thread)
                problems.append(problem)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive() and not problems
        received = first.receive()
        assert received is not None and [type(one.message) for one in received] == [messages.Done]
        first.close()
        second.close()
