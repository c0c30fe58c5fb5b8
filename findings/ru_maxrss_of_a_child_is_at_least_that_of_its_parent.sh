#!/usr/bin/env bash
# The peak memory of a child, as wait4 states it, is at least the resident set of the process that started it
#
# Seen with psutil 7.2.2, CPython 3.11 and Linux 6.18. A test runner of 300 MiB runs "true", which needs 2 MiB, and reads the
# peak of its memory from wait4's ru_maxrss (resource.RUSAGE_CHILDREN, os.wait4): 300 MiB. Until the exec the child is the
# runner, whose pages it shares, and the kernel keeps the largest peak of all programs that a process has been. Nothing
# helps that the runner does, vfork or posix_spawn; started by way of a small process, the same program has a peak of some
# MiB. Limits and regressions of memory measured like this are those of the runner, unless the program needs more.
# psutil's memory_info of the running child, and VmHWM in its status, are right: the address space is its own by then.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install -q --disable-pip-version-check psutil==7.2.2
cat >runner.py <<'P'
import os
import subprocess
import sys
import psutil


def peak(*command):
    child = subprocess.Popen(command, stdin=subprocess.PIPE)
    own = psutil.Process(child.pid).memory_info().rss if command == ("cat",) else 0
    child.stdin.close()
    _, _, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    return usage.ru_maxrss >> 10, own >> 20


print(*peak("true"))
data = bytearray(b"x") * (300 << 20)
print(*peak("true"))
print(*peak("cat"))
spawned = os.posix_spawn("/bin/true", ["true"], {})
print(os.wait4(spawned, 0)[2].ru_maxrss >> 10, flush=True)
small = "import os; pid = os.posix_spawn('/bin/true', ['true'], {}); print(os.wait4(pid, 0)[2].ru_maxrss >> 10)"
subprocess.run([sys.executable, "-c", small])
P
mapfile -t lines < <(environment/bin/python runner.py)
echo "a small runner's child: ${lines[0]% *} MiB; a runner of 300 MiB: true ${lines[1]% *}, posix_spawn ${lines[3]} MiB"
echo "cat while it runs: peak ${lines[2]% *} MiB, resident ${lines[2]#* } MiB; true by way of a small process: ${lines[4]} MiB"
((${lines[0]% *} < 60 && ${lines[1]% *} >= 300 && ${lines[3]} >= 300 && ${lines[2]% *} >= 300 && ${lines[2]#* } < 20 && ${lines[4]} < 60)) ||
  { echo "this has changed" && exit 1; }
echo "as recorded"
