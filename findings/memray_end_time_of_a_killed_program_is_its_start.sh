#!/usr/bin/env bash
# memray gives a killed program's recording an end some milliseconds after its start
#
# Seen with memray 1.20.0. A recording of a program that is killed can be read: its allocations and the sizes over time
# are there to the end. But metadata.end_time, which reports print as the end, is the time of a header that is
# written when the recording begins, and only rewritten when it ends properly. Here the sizes go on for 0.5 s, the recording
# "ended" after some milliseconds. A rate per second computed from it is a hundred times too high.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q memray==1.20.0 2>/dev/null
cat >killed.py <<'P'
import os, signal, time
import memray
kept = []
with memray.Tracker("recording.bin"):
    for _ in range(50):
        kept.append(bytearray(5000))
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
P
venv/bin/python killed.py 2>/dev/null || true
venv/bin/python - <<'P'
from memray import FileReader
with FileReader("recording.bin") as reader:
    start, end = reader.metadata.start_time, reader.metadata.end_time
    times = [one.time / 1000 for one in reader.get_memory_snapshots()]
    lasted, sized = (end - start).total_seconds(), times[-1] - start.timestamp()
    blocks = sum(one.n_allocations for one in reader.get_leaked_allocation_records() if one.size >= 5000)
print(f"end_time - start_time: {lasted:.3f} s; the last size: after {sized:.3f} s; blocks of 5,000 bytes kept: {blocks}")
if not (lasted < 0.1 < 0.4 < sized):
    print("this has changed")
    raise SystemExit(1)
print("as recorded")
P
