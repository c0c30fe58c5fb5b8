#!/usr/bin/env bash
# Memory of memfd_secret is counted as pages of a file, and its file has no blocks
#
# Seen with psutil 7.2.2 and Linux 6.18. A program keeps 4 MiB in memory from memfd_secret (keys; Linux 5.14 and later),
# which no file system backs, and which can't be written out: it is memory as any other. The kernel counts it in RssFile,
# and psutil in "shared", among the files of programs and libraries; the same from memfd_create is in RssShmem.
# And fstat() of its descriptor states 0 blocks for the 4 MiB, where it states 8,192 for memfd_create: neither a sum of
# anonymous and shmem memory nor one over /proc/PID/fd shows such a leak. smaps has it, as the file "/secretmem".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install -q --disable-pip-version-check psutil==7.2.2
cat >program.py <<'P'
import ctypes
import mmap
import os
import psutil

SIZE = 4 << 20
call = ctypes.CDLL(None, use_errno=True).syscall
one = psutil.Process()


def sizes():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return [int(fields[name].split()[0]) >> 10 for name in ("RssAnon", "RssFile", "RssShmem")]


kept = []
for name, descriptor in (("memfd_create", os.memfd_create("x")), ("memfd_secret", call(447, 0))):
    if descriptor < 0:
        raise SystemExit("this kernel has no memfd_secret (secretmem.enable=1 on its command line)")
    os.ftruncate(descriptor, SIZE)
    before, shared = sizes(), one.memory_info().shared
    kept.append(mmap.mmap(descriptor, SIZE))
    for at in range(0, SIZE, 4096):
        kept[-1][at] = 1
    grown = [after - earlier for after, earlier in zip(sizes(), before)]
    print(name, *grown, os.fstat(descriptor).st_blocks, (one.memory_info().shared - shared) >> 20)
P
found=$(environment/bin/python program.py)
echo "MiB more in RssAnon, RssFile, RssShmem; blocks of its file; MiB more in psutil's shared:"
echo "$found"
[[ $found =~ ^memfd_create\ 0\ 0\ [34]\ 8192\ 4 && $found =~ memfd_secret\ 0\ [34]\ 0\ 0\ 4$ ]] ||
  { echo "this has changed" && exit 1; }
echo "as recorded"
