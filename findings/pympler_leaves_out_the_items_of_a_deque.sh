#!/usr/bin/env bash
# pympler leaves out what a deque holds, and with it what waits in a queue
#
# Seen with pympler 1.1 and CPython 3.11. asizeof() follows what an object refers to: of a list of ten blocks of 100,000
# bytes it reports one megabyte. Of a collections.deque with the same ten blocks it reports 760 bytes, and of a
# queue.Queue, which keeps its items in a deque, 5 KB, as though what waits between two threads took no memory. asizeof
# knows per type how to find what is referred to, deque isn't among these types, and none of its documented options says
# what was not followed. To give it the items works: asizeof(list(queue.queue)).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install -q --disable-pip-version-check pympler==1.1
cat >program.py <<'P'
import queue
from collections import deque

from pympler.asizeof import asizeof


def blocks():
    return [bytes(100_000) for _ in range(10)]


waiting = queue.Queue()
for block in blocks():
    waiting.put(block)
print(f"list {asizeof(blocks()) >= 1_000_000}, deque {asizeof(deque(blocks()))}, queue {asizeof(waiting) < 10_000}")
print(f"the queue's items {asizeof(list(waiting.queue)) >= 1_000_000}")
P
found=$(environment/bin/python program.py)
echo "at least 1 MB, bytes, less than 10 KB; at least 1 MB:"
echo "$found"
[[ $found == $'list True, deque '[67]??$', queue True\nthe queue\'s items True' ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
