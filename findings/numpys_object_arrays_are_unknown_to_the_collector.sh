#!/usr/bin/env bash
# What numpy's arrays refer to is unknown to Python's garbage collector: a cycle through one is never freed
#
# Seen with numpy 2.4.6, objgraph 3.7.0, objsize 0.8.0 and CPython 3.11. An object whose attribute is an array of objects
# that has the object itself as its item is garbage as soon as its last name is deleted. With a list in place of the array
# gc.collect() frees it. With the array it stays for ever, and what it holds with it: 100 such objects of one megabyte are
# all alive after a collection. Arrays take no part in garbage collection (gc.is_tracked is False), so gc.get_referents of
# one is empty. For the same reason tools that are built on it find no holder of what is in such an array, and count a
# view of ten bytes as 112 bytes, though it keeps the array of ten megabytes alive of which it shows a part.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install -q --disable-pip-version-check numpy==2.4.6 objgraph==3.7.0 objsize==0.8.0
cat >program.py <<'P'
import gc
import weakref

import numpy as np
import objgraph
import objsize


class Node:
    pass


def left(make):
    found = []
    for _ in range(100):
        node = Node()
        node.data = bytearray(1_000_000)
        node.me = make(node)
        found.append(weakref.ref(node))
    del node
    gc.collect()
    return sum(one() is not None for one in found)


def array(node):
    made = np.empty(1, dtype=object)
    made[0] = node
    return made


class Service:
    pass


service = Service()
service.cache = array(Node())
holders = objgraph.find_backref_chain(service.cache[0], lambda one: isinstance(one, Service))
view = np.zeros(10_000_000, np.uint8)[:10]
print("alive through lists, through arrays:", left(lambda node: [node]), left(array))
print("tracked, referents:", gc.is_tracked(service.cache), len(gc.get_referents(service.cache)))
print("steps from the item to its holder:", len(holders) - 1)
print("bytes of the view:", objsize.get_deep_size(view))
P
found=$(environment/bin/python program.py)
echo "$found"
expected="alive through lists, through arrays: 0 100
tracked, referents: False 0
steps from the item to its holder: 0
bytes of the view: 112"
[[ $found == "$expected" ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
