"""Holders of Python objects, found from outside and compared with those that the program has set up."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.live.explaining import gdbmem, running
from tests.live.python_programs import every_third, pythons

HELD = """
import gc, os
gc.disable()
class Node:
    def __init__(self, i): self.i = i; self.other = None
class Service:
    registry = {}
    def __init__(self): self.cache = [Node(i) for i in range(500)]
class Link:
    __slots__ = ("next", "__weakref__")
class Lost: pass
class Local: pass
cache = [Node(i) for i in range(3000)]
by_name = {"rows": {"a": [Node(i) for i in range(70)]}}
Service.registry["x"] = Node(1)
service = Service()
head = None
for i in range(3000):
    link = Link(); link.next = head; head = link
del link
for i in range(20):
    one = Lost(); one.me = one
del one
def work():
    mine = [Local() for i in range(40)]
    os.write(1, b"pid %d\\nready\\n" % os.getpid())
    os.read(0, 1)
work()
"""


def holders(kind: str, pid: int) -> Any:
    done = gdbmem("python", "objects", "--holders", kind, "--json", pid)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def counts(document: Any) -> list[tuple[str, list[str], int]]:
    return [
        (one["root_name"], [f"{step['type']}{step['label']}" for step in one["steps"]], one["count"])
        for one in document["paths"]
    ]


def test_each_object_is_found_where_the_program_has_put_it() -> None:
    with running([pythons()[0], "-c", HELD]) as target:
        nodes, local = holders("Node", target.pid), holders("Local", target.pid)
        links, lost = holders("Link", target.pid), holders("Lost", target.pid)
        absent = gdbmem("python", "objects", "--holders", "Nodes", target.pid)
    assert [one["count"] for one in nodes["paths"]] == [3000, 500, 70, 1]
    assert nodes["unreached"]["count"] == 0
    assert sum(one["references"] for one in nodes["referrers"] if one["type"] == "list") == 3570
    assert (local["paths"][0]["root"], local["paths"][0]["count"]) == ("frame", 40)
    assert local["paths"][0]["root_name"].startswith("work() at ")
    assert sum(one["count"] for one in links["paths"]) == links["count"] == 3000
    assert links["paths"][0]["steps"][-1]["repeats"] is True
    assert lost["count"] == 20
    assert lost["unreached"]["count"] >= 17, "old words on a stack may lead to the last ones"
    assert absent.returncode == 1
    assert "did you mean Node" in absent.stderr


def test_paths_have_the_names_that_python_has_for_them() -> None:
    with running([pythons()[-1], "-c", HELD]) as target:
        text = gdbmem("python", "objects", "--holders", "Node", target.pid).stdout
    for place in ("__main__.cache: list", "__main__.service: Service", "__main__.Service.registry: dict"):
        assert place in text
    assert "__main__.by_name: dict['rows'] → dict['a'] → list → Node" in text


WEAK = """
import os, weakref
class Held: pass
class Reference(weakref.ref): pass
class weakrefs: pass
deep = [[[[Held()]]]]
it = deep[0][0][0][0]
weak, own, proxy = weakref.ref(it), Reference(it), weakref.proxy(it)
by_key, by_value = weakref.WeakKeyDictionary({it: 1}), weakref.WeakValueDictionary({1: it})
del it
strong = weakrefs(); strong.held = Held()
os.write(1, b"pid %d\\nready\\n" % os.getpid())
os.read(0, 1)
"""


@every_third(2)
def test_weak_references_hold_nothing(python: str) -> None:
    with running([python, "-c", WEAK]) as target:
        found = counts(holders("Held", target.pid))
    assert sorted(steps[1] for _, steps, _ in found) == ["list['deep']", "weakrefs['strong']"]


def test_a_key_that_is_no_text_is_not_read_as_one() -> None:
    # The digits of this number look like the length and the characters of a str, up to 3.11.
    digits = (1, 0, 0, 0, 0x30303030, 0x30303030, 0x100, 1)
    number = sum(digit << 30 * place for place, digit in enumerate(digits))
    code = (
        f"import os\nclass Held: pass\nnumbers = {{{number}: Held()}}\n"
        "os.write(1, b'pid %d\\nready\\n' % os.getpid())\nos.read(0, 1)"
    )
    with running([sys.executable, "-c", code]) as target:
        ((name, steps, _),) = counts(holders("Held", target.pid))
    assert not any("00000000" in one for one in [name, *steps]), steps


def test_a_view_is_reported_as_what_keeps_the_array_alive() -> None:
    pytest.importorskip("numpy")
    code = (
        "import os, numpy as np\nlarge = np.ones(20_000_000, np.uint8)\nclass Report: pass\n"
        "report = Report(); report.view = large[10:20]; del large\nos.write(1, b'ready\\n'); os.read(0, 1)\n"
    )
    with running([pythons()[0], "-c", code]) as target:
        found = holders("numpy.ndarray", target.pid)
    largest = found["paths"][0]
    assert largest["steps"][1]["label"] == "['report']"
    assert [step["type"] for step in largest["steps"][-2:]] == ["numpy.ndarray"] * 2
    assert largest["steps"][-1]["label"] == ".base"
    assert largest["beyond_bytes"] >= 20_000_000


# Words below the attributes of objects, which 3.11 and 3.12 keep in blocks of their own, stay behind elsewhere.
STALE = """
import ctypes, mmap, os
class Held: pass
class Owner: pass
owners = [Owner() for _ in range(500)]
for one in owners: one.held = Held()
stale = (ctypes.c_size_t * 5000).from_buffer(mmap.mmap(-1, 40000))
for i, one in enumerate(owners):
    for j, word in enumerate((-4, -3)):
        values = (ctypes.c_size_t.from_address(id(one) + 8 * word).value + 7) // 8 * 8
        for k in range(5): stale[i * 10 + j * 5 + k] = max(values - 8 - 8 * k, 0)
del one
os.write(1, b"pid %d\\nready\\n" % os.getpid())
os.read(0, 1)
"""


@every_third(0)
def test_a_stale_word_does_not_take_attributes_from_their_object(python: str) -> None:
    with running([python, "-c", STALE]) as target:
        found = holders("Held", target.pid)
    _, steps, count = counts(found)[0]
    assert (steps[1], steps[-1].partition("[")[0]) == ("list['owners']", "Held")
    assert count >= 499, "a word on a stack may lead to one"
    assert 500 in [one["references"] for one in found["referrers"] if one["type"] in ("Owner", "dict")]


# What calls that wait hold, and blocks that still have what is left of another object.
WAITING = """
import os, sys, types
from collections import deque
def held(name): return type(name, (), {"__slots__": ()})
InStarted, InUnstarted, InCoroutine, InAsyncGenerator, InTraceback, InFrame, InDeque = map(held, sys.argv[1:])
def generator(one): yield one; yield one
def local(kind):
    mine = [kind() for _ in range(60)]
    yield 1
    yield mine
started = local(InStarted); next(started)
unstarted = [generator(InUnstarted()) for _ in range(60)]
@types.coroutine
def wait(): yield
async def task():
    mine = [InCoroutine() for _ in range(60)]
    await wait()
    return mine
coroutine = task(); coroutine.send(None)
async def stream():
    mine = [InAsyncGenerator() for _ in range(60)]
    yield 1
    yield mine
async_generator = stream()
try: async_generator.__anext__().send(None)
except StopIteration: pass
def fail():
    mine = [InTraceback() for _ in range(60)]
    raise ValueError(1)
try: fail()
except ValueError as error: failure = error
def frame_of():
    mine = [InFrame() for _ in range(60)]
    return sys._getframe()
frame = frame_of()
freed = [tuple(range(61)) for _ in range(60)]  # each as large as a block of a deque
del freed
deques = [deque([InDeque()]) for _ in range(60)]
os.write(1, b"pid %d\\nready\\n" % os.getpid())
os.read(0, 1)
"""
PLACES = {
    "InStarted": ("started", "generator"), "InUnstarted": ("unstarted", "list"),
    "InCoroutine": ("coroutine", "coroutine"), "InAsyncGenerator": ("async_generator", "async_generator"),
    "InTraceback": ("failure", "ValueError"), "InFrame": ("frame", "frame"), "InDeque": ("deques", "list"),
}  # fmt: skip


@every_third(2)
def test_what_a_call_that_waits_holds_is_not_said_to_be_held_by_nobody(python: str) -> None:
    with running([python, "-c", WAITING, *PLACES]) as target:
        for kind, (variable, first) in PLACES.items():
            ((_, steps, count),) = counts(holders(kind, target.pid))[:1]
            assert steps[1].startswith(f"{first}['{variable}']"), (kind, steps)
            assert count >= 59, (kind, count, "a word on a stack may lead to one")


def floats_that_stand_nowhere(pid: int, values: Sequence[float]) -> int:
    """Return how many of the floats in process *pid* with *values* have their address in no word that it may write."""
    wanted = set(array("Q", array("d", values).tobytes()))
    found, words = set[int](), set[int]()
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            start, end = (int(address, 16) for address in place.split("-"))
            if rights.startswith("rw"):
                memory.seek(start)
                read = array("Q", memory.read(end - start))
                words.update(read)
                found |= {start + 8 * number - 16 for number, word in enumerate(read) if word in wanted}
    assert len(found) == len(values)
    return len(found - words)


def test_objects_whose_count_an_extension_never_gave_back_come_first() -> None:
    code = (
        "import ctypes, os\nkeep = ctypes.pythonapi.Py_IncRef\nkeep.argtypes = [ctypes.py_object]\n"
        "def leak():\n    for i in range(5000): keep(10 ** 9 + i + 0.5)\n"
        "leak()\nheld = [float(i) for i in range(100)]\nos.write(1, b'ready\\n'); os.read(0, 1)\n"
    )
    with running([sys.executable, "-c", code]) as target:
        nowhere = floats_that_stand_nowhere(target.pid, [10**9 + i + 0.5 for i in range(5000)])
        found = holders("float", target.pid)
        text = gdbmem("python", "objects", "--holders", "float", target.pid).stdout
    # Some addresses stand in places that nothing has overwritten since; those in freed blocks don't count.
    count = found["unreferred"]["count"]
    assert 4980 < nowhere <= count <= 5000
    assert f"nothing that was found refers to {count:,}" in text
    assert text.index("nothing that was found") < text.index(
        "100 of them are reached through __main__.held: list"
    )
    assert "wait for the collector" not in text or found["unreached"]["count"] > found["unreferred"]["count"]
