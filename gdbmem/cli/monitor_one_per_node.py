"""The start of a rank whose host has a monitor of all its ranks already: it executes its program at once.

Each rank of a job comes here, so nothing is imported that only the one that starts the monitor needs.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from _socket import AF_UNIX, socket  # the module socket takes as long to import as all else here
from collections.abc import Sequence

from gdbmem.errors import GdbmemError
from gdbmem.runs.ranks import ONE_PER_NODE, folder_of_host, monitor_address, own_rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_WITH_VALUE = ("--run", "--interval", "--pss-budget", "--prometheus")
_ALONE = (ONE_PER_NODE, "--no-children", "--tree-only", "-q", "--quiet")


def execute_where_recorded(words: Sequence[str]) -> None:
    """Execute the program that *words*, gdbmem's arguments, name, if this host has the monitor of its job.

    Return if it has none, and if the words have anything unusual: then they are parsed as all others. Who has started
    the monitor has parsed them.
    """
    if words[:1] != ["monitor"] or "--" not in words:
        return
    at = words.index("--")
    program = list(words[at + 1 :])
    is_known, run = _options(words[1:at])
    rank = own_rank()
    if not is_known or not program or rank is None or not _has_monitor(monitor_address(rank)):
        return
    ignored = [
        number for number in (signal.SIGPIPE, signal.SIGXFSZ) if signal.getsignal(number) == signal.SIG_IGN
    ]
    try:
        folder = os.path.join(os.getcwd(), folder_of_host(run, rank, program[0]))  # noqa: PTH109, PTH118  (see above)
        for number in ignored:  # by Python, and a program inherits that
            signal.signal(number, signal.SIG_DFL)
        sys.stdout.flush()
        os.execvpe(program[0], program, {**os.environ, "GDBMEM_RUN": folder})
    except (OSError, GdbmemError):
        pass  # it is said as for all others
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _options(words: Sequence[str]) -> tuple[bool, Optional[str]]:
    """Return whether *words* are options that are known here, and the value of --run."""
    run, rest = None, list(words)
    while rest:
        name, has_value, value = rest.pop(0).partition("=")
        if name in _WITH_VALUE:
            if not has_value and not rest:
                return False, None
            value = value if has_value else rest.pop(0)
            run = value if name == "--run" else run
            if name == "--run" and "%r" in value.replace("%%", ""):
                return False, None
        elif has_value or name not in _ALONE:
            return False, None
    return True, run


def _has_monitor(address: str) -> bool:
    probe = socket(AF_UNIX)
    try:
        probe.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    finally:
        probe.close()
    return False
