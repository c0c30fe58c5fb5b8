"""A stock TensorFlow whose tensors live in its BFC allocator; it does what each line of its input asks for.

grow N / drop K: tensors come and go.  info: the result of get_memory_info.  alloc OBJECT N: AllocateRaw itself, once,
without waiting for memory.  free OBJECT ADDRESS.  fill BYTES: a tensor that may not fit; the dump goes to stderr.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", "300")

import tensorflow as tf

PREFIXES = ("_ZN3tsl12BFCAllocator", "_ZN10tensorflow12BFCAllocator")


class Attributes(ctypes.Structure):
    """AllocationAttributes: whether to wait for memory, whether it is logged, when it was freed."""

    _fields_ = (
        ("retry", ctypes.c_bool),
        ("logged", ctypes.c_bool),
        ("freed_by", ctypes.c_void_p),
        ("room_1", ctypes.c_uint64),
        ("room_2", ctypes.c_uint64),
    )


def functions() -> Tuple[Any, Any]:
    loaded = ctypes.CDLL(str(Path(tf.__file__).parent / "libtensorflow_framework.so.2"))
    for prefix in PREFIXES:
        try:
            allocate = loaded[f"{prefix}11AllocateRawEmmRKNS_20AllocationAttributesE"]
        except AttributeError:
            continue
        free = loaded[f"{prefix}13DeallocateRawEPv"]
        allocate.restype, free.restype = ctypes.c_uint64, None
        allocate.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
        free.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        return allocate, free
    raise SystemExit("this TensorFlow exports no BFCAllocator::AllocateRaw")


held: Dict[Any, Any] = {}
made = 0


def answer(words: List[str]) -> str:
    global made
    if words[0] == "grow":
        made += 1
        held[made] = tf.zeros([int(words[1])], tf.float32)
        return str(made)
    if words[0] == "drop":
        held.pop(sorted(held)[int(words[1]) % len(held)], None)
        return "dropped"
    if words[0] == "info":
        info = tf.config.experimental.get_memory_info("CPU:0")
        return f"{info['current']} {info['peak']}"
    if words[0] == "alloc":
        attributes = Attributes(False, False, None)
        return str(ALLOCATE(int(words[1]), 64, int(words[2]), ctypes.addressof(attributes)))
    if words[0] == "free":
        FREE(int(words[1]), int(words[2]))
        return "freed"
    try:
        held["filled"] = tf.zeros([int(words[1]) // 4], tf.float32)
        return "filled"
    except tf.errors.ResourceExhaustedError:
        return "exhausted"


ALLOCATE, FREE = functions()
held[0] = tf.zeros([1000], tf.float32)
print("ready", flush=True)
for line in sys.stdin:
    print(answer(line.split()), flush=True)
