"""Python programs that are busy in different ways while code is placed in them; each prints what it has reckoned."""

from __future__ import annotations

_WORK = """
import os, select, sys
def asked_to_end():
    return bool(select.select([0], [], [], 0)[0])
"""
_END = """
os.write(1, b"ended well\\n")
"""
MALLOC = (
    _WORK
    + """
os.write(1, b"ready\\n")
while not asked_to_end():
    kept = [bytes(i % 900) for i in range(300)]
    assert sum(map(len, kept)) == 44850
"""
    + _END
)
THREADS = (
    _WORK
    + """
import threading
ending = []
sums = []
def spin():
    n = 0
    while not ending:
        n += sum({i: str(i) for i in range(50)})
    sums.append(n % 1225)
threads = [threading.Thread(target=spin) for _ in range(8)]
for one in threads: one.start()
os.write(1, b"ready\\n")
while not asked_to_end(): sum(range(1000))
ending.append(1)
for one in threads: one.join()
assert sums == [0] * 8
"""
    + _END
)
ASYNC = (
    _WORK
    + """
import asyncio
async def tick(queue):
    while True:
        await asyncio.sleep(0.001)
        await queue.put([bytes(100)] * 10)
async def main():
    queue = asyncio.Queue(50)
    tasks = [asyncio.ensure_future(tick(queue)) for _ in range(20)]
    os.write(1, b"ready\\n")
    while not asked_to_end():
        assert len(await queue.get()) == 10
    for one in tasks: one.cancel()
asyncio.run(main())
"""
    + _END
)
SLEEP = (
    _WORK
    + """
import time
os.write(1, b"ready\\n")
while not asked_to_end(): time.sleep(0.02)
"""
    + _END
)
DEEP = (
    _WORK
    + """
sys.setrecursionlimit(400)
def deep(n):
    try:
        return deep(n + 1)
    except RecursionError:
        return n
os.write(1, b"ready\\n")
while not asked_to_end(): assert deep(0) > 100
"""
    + _END
)
AT_ITS_LIMIT = (
    _WORK
    + """
sys.setrecursionlimit(300)
def deepest(n=0):
    try:
        return deepest(n + 1)
    except RecursionError:
        return n
def wait_and_overflow(n):
    if n:
        return wait_and_overflow(n - 1)
    os.write(1, b"ready\\n")
    while not asked_to_end(): sum(range(50))
    deepest()
wait_and_overflow(deepest() - 9)
"""
    + _END
)
BLOCKED = (
    _WORK
    + """
os.write(1, b"ready\\n")
assert os.read(0, 1) == b"\\n"
"""
    + _END
)
BUSY = {"malloc": MALLOC, "threads": THREADS, "asyncio": ASYNC, "sleep": SLEEP}
