"""massif's options, and those that the user may not set because the launch would break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gdbmem.engines.massif import MassifOptions, history_command, snapshot_command, valgrind_arguments
from gdbmem.errors import UsageError
from gdbmem.launch.program import Program
from gdbmem.launch.valgrind import Order, Valgrind, history_pattern


def test_the_defaults_hide_nothing_and_keep_threads_honest() -> None:
    arguments = valgrind_arguments(MassifOptions(), Path("/run/massif.1.%p.out"))
    assert {"--tool=massif", "--threshold=0", "--fair-sched=yes", "--keep-debuginfo=yes"} <= set(arguments)
    assert "--massif-out-file=/run/massif.1.%p.out" in arguments


def test_every_option_reaches_massif_and_the_users_own_come_last() -> None:
    options = MassifOptions(
        threshold="0.5",
        pages_as_heap=True,
        stacks=True,
        time_unit="B",
        alloc_fns=("my_alloc", "operator new[](unsigned long)"),
        massif_opts=("--depth=50",),
        valgrind_opts=("--num-callers=60",),
        trace_children=True,
    )
    arguments = valgrind_arguments(options, Path("/x"))
    for expected in (
        "--threshold=0.5",
        "--pages-as-heap=yes",
        "--stacks=yes",
        "--time-unit=B",
        "--alloc-fn=my_alloc",
        "--alloc-fn=operator new[](unsigned long)",
        "--trace-children=yes",
    ):
        assert expected in arguments
    assert arguments[-2:] == ["--depth=50", "--num-callers=60"]


@pytest.mark.parametrize(
    "option",
    [
        "--tool=memcheck",
        "--vgdb=no",
        "--vgdb-error=0",
        "--vgdb-prefix=/x",
        "--log-file=x",
        "--log-fd=9",
        "--massif-out-file=x",
        "--trace-children=yes",
        "--trace-children-skip=x",
        "--xml=yes",
    ],
)
def test_options_that_would_break_the_launch_are_refused(option: str) -> None:
    with pytest.raises(UsageError, match="is set by the launch itself"):
        MassifOptions(massif_opts=[option])
    with pytest.raises(UsageError, match="is set by the launch itself"):
        MassifOptions(valgrind_opts=[option])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"threshold": "many"}, "not a percentage"),
        ({"threshold": "-1"}, "not a percentage"),
        ({"threshold": "101"}, "not a percentage"),
        ({"threshold": "nan"}, "not a percentage"),
        ({"time_unit": "s"}, "unknown to massif"),
        ({"massif_opts": ["depth=3"]}, "not an option of valgrind's"),
    ],
)
def test_values_that_massif_would_refuse_are_refused_before_it_starts(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        MassifOptions(**options)


def test_percent_signs_in_folders_are_doubled_for_valgrind_and_the_program_is_left_alone() -> None:
    run = Path("/tmp/100%p/run")
    program = Program(Path("/tmp/a b/%prog"), Path("/tmp/a b/%prog"), is_static=False)
    order = Order(
        valgrind=Valgrind("/usr/bin/valgrind", "/usr/bin/vgdb"),
        tool_arguments=valgrind_arguments(MassifOptions(), history_pattern(run, 3)),
        program=program,
        arguments=["--vgdb=no", "%p"],
        environment={},
        run=run,
        runtime=Path("/tmp/gdbmem-x"),
        serial=3,
    )
    argv = order.argv()
    assert "--massif-out-file=/tmp/100%%p/run/massif.3.%p.out" in argv
    assert "--log-file=/tmp/100%%p/run/valgrind.3.%p.log" in argv
    assert "--vgdb-prefix=/tmp/gdbmem-x/vgdb3" in argv
    # --vgdb-error=0 would make valgrind deaf to SIGTERM.
    assert "--vgdb-stop-at=startup" in argv and not [word for word in argv if "vgdb-error" in word]
    assert argv[1] == "--vgdb-poll=500", "before the user's own options, of which the last one wins"
    assert "--px-file-backed=allregs-at-each-insn" in argv, "gdb would print old values of variables"
    assert argv[-3:] == ["/tmp/a b/%prog", "--vgdb=no", "%p"]


def test_monitor_commands_name_their_file() -> None:
    assert snapshot_command("/tmp/x/run/snapshots/0001.massif").endswith(" /tmp/x/run/snapshots/0001.massif")
    assert history_command("/tmp/x/run/h.massif") == "all_snapshots /tmp/x/run/h.massif"
