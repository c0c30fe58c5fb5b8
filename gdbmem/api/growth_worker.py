"""Recording the page faults of a process that gdb holds, in the `gdbmem` command's own interpreter.

Arguments: the process id, and the number of faults per sample (0: automatic). An empty answer, or
the refusal, comes first; then one answer to each line of the standard input, which names a new file to write a
snapshot to. It ends with that input, or with the process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys

from gdbmem.api.growth_snapshots import GrowthSnapshots
from gdbmem.errors import GdbmemError
from gdbmem.formats.faults import encode_faults
from gdbmem.recording.faults import IntervalRecorder
from gdbmem.terminal.console import open_output

_STDIN = 0


def main() -> int:
    """Record, and answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pid, period = map(int, sys.argv[1:3])
    try:
        with IntervalRecorder(pid, period=period, requests=_STDIN) as recorder:
            snapshots = GrowthSnapshots(recorder)
            try:
                _answer({})
                _serve(recorder, snapshots)
            finally:
                snapshots.close()
    except GdbmemError as error:
        _answer(error.parts)
    return 0


def _serve(recorder: IntervalRecorder, snapshots: GrowthSnapshots) -> None:
    asked = b""
    while not recorder.has_ended:
        recorder.turn()
        if not select.select([_STDIN], [], [], 0)[0]:
            continue
        data = os.read(_STDIN, 1 << 16)
        if not data:
            return
        *requests, asked = (asked + data).split(b"\n")
        for request in requests:
            file = os.fsdecode(request)
            _answer({"file": file, **_write(snapshots, file)})


def _write(snapshots: GrowthSnapshots, file: str) -> dict[str, str]:
    try:
        data = encode_faults(snapshots.take())
        with open_output(file) as stream:
            stream.flush()
            stream.buffer.write(data)
    except GdbmemError as error:
        return error.parts
    return {}


def _answer(answer: dict[str, str]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main())
