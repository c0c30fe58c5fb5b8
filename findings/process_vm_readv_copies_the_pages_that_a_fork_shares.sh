#!/usr/bin/env bash
# Reading a forked process by process_vm_readv copies the pages that it shares with its parent
#
# Seen with psutil 7.2.2 and Linux 6.18. A process of some 24 MiB forks a worker, as prefork servers do; psutil's USS of
# the worker is small, since nearly all is shared. Somebody reads the worker's memory once: by /proc/PID/mem nothing
# changes; by process_vm_readv, which profilers and debuggers use because it is faster, each page that is read becomes
# the worker's own, so that its USS, and the memory in use, grow by all that was read, for as long as it lives. The
# call only reads, and needs the same rights. It pins the pages, and since Linux 5.19 a page that is pinned may not be
# shared by a fork, whether it is written to or not.
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
import signal
import psutil

SIZE = 24 << 20
libc = ctypes.CDLL(None)
libc.prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: pages of 4 KiB, whatever the system's setting
kept = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, SIZE, 4096):
    kept[at] = 1
address = ctypes.addressof(ctypes.c_char.from_buffer(kept))
worker = os.fork()
if not worker:
    signal.pause()
room = ctypes.create_string_buffer(SIZE)


class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def uss():
    return psutil.Process(worker).memory_full_info().uss >> 20


print(uss())
with open(f"/proc/{worker}/mem", "rb", buffering=0) as memory:
    memory.seek(address)
    memory.readinto(memoryview(room).cast("B"))
print(uss())
pointer, number = ctypes.POINTER(Piece), ctypes.c_ulong
libc.process_vm_readv.argtypes = [ctypes.c_int, pointer, number, pointer, number, number]
libc.process_vm_readv(worker, Piece(ctypes.addressof(room), SIZE), 1, Piece(address, SIZE), 1, 0)
print(uss())
os.kill(worker, signal.SIGKILL)
os.waitpid(worker, 0)
P
mapfile -t uss < <(environment/bin/python program.py)
echo "USS of the worker in MiB: ${uss[0]}; read by /proc/PID/mem: ${uss[1]}; read by process_vm_readv: ${uss[2]}"
((uss[0] < 8 && uss[1] < 8 && uss[2] >= 24)) || { echo "this has changed" && exit 1; }
echo "as recorded"
