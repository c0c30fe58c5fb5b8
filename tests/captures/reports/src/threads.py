"""Prints malloc_info() or malloc_stats() of itself, after some threads have allocated."""

import ctypes
import sys
import threading

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.fopen.restype = ctypes.c_void_p


def work() -> None:
    for size in range(100, 5000, 100):
        libc.malloc(size)


threads = [threading.Thread(target=work) for _ in range(int(sys.argv[2]))]
for one in threads:
    one.start()
for one in threads:
    one.join()
libc.malloc(4 << 20)
if sys.argv[1] == "info":
    out = libc.fopen(b"/dev/stdout", b"w")
    libc.malloc_info(0, ctypes.c_void_p(out))
    libc.fflush(ctypes.c_void_p(out))
else:
    libc.malloc_stats()
