#!/usr/bin/env bash
# pyarrow's pool says that nothing is allocated, and keeps hundreds of MiB resident
#
# Seen with pyarrow 22.0.0. A program allocates 128 buffers of 4 MiB from the default pool, writes to them and drops
# them. The pool then says that 0 bytes are allocated, but all 512 MiB stay resident: its allocator (mimalloc) keeps the
# pages for later allocations. gc.collect() and glibc's malloc_trim() have no part in them; release_unused() of the pool
# returns them at once. So "allocated 0" of Arrow does not mean that the process has given memory back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install -q --disable-pip-version-check pyarrow==22.0.0
cat >program.py <<'P'
import ctypes
import gc

import pyarrow as pa


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 >> 20


pool = pa.default_memory_pool()
pa.array([1])
start = resident()
kept = [pa.allocate_buffer(4 << 20, memory_pool=pool) for _ in range(128)]
for buffer in kept:
    ctypes.memset(buffer.address, 1, buffer.size)
full = resident()
del kept, buffer
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
dropped = resident()
pool.release_unused()
print(pool.backend_name, pool.bytes_allocated(), full - start, dropped - start, resident() - start)
P
read -r backend allocated full dropped released < <(environment/bin/python program.py)
echo "pyarrow 22.0.0, $backend: allocated $allocated; resident $full MiB, dropped $dropped MiB, after release_unused() $released MiB"
[[ $backend == mimalloc && $allocated == 0 ]] && ((full >= 500 && dropped >= 500 && released < 60)) ||
  { echo "this has changed" && exit 1; }
echo "as recorded"
