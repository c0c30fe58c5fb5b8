#!/usr/bin/env python3
"""Drive core.cpp from Python, and have tcmalloc write a heap profile after each batch.

usage: LD_PRELOAD=libtcmalloc.so.4 HEAPPROFILE=PREFIX ./drive.py [BATCHES] [WORDS] [PAUSE]

PAUSE: seconds between two batches (default 0).
"""

import ctypes
import sys
import time
from pathlib import Path


def main() -> None:
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    words = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0
    core = ctypes.CDLL(str(Path(__file__).parent / "build" / "libcore.so"))
    core.core_kept_bytes.restype = ctypes.c_int64
    core.core_translate.argtypes = [ctypes.c_char_p, ctypes.c_int64]
    # Where HEAPPROFILE is set, libtcmalloc brings this function.
    dump = getattr(ctypes.CDLL(None), "HeapProfilerDump", None)
    line = "".join(f" word{n}" for n in range(words)).encode()
    kept = []
    for batch in range(batches):
        if batch == batches // 2:
            core.core_load(3000)
        core.core_translate(line, batch)
        kept.append(core.core_kept_bytes())
        if dump is not None:
            dump(b"batch %d" % batch)
        time.sleep(pause)
    print("kept bytes after each batch:", *kept)


if __name__ == "__main__":
    main()
