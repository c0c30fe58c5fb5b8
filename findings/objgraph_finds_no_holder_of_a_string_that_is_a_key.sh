#!/usr/bin/env bash
# objgraph finds no holder of a string that is a key of a dict
#
# Seen with objgraph 3.7.0 and CPython 3.11. A cache keeps strings of a mebibyte each as keys, with lists as values. Asked
# who refers to a value, objgraph.find_backref_chain leads to the cache. Asked who refers to a key, it finds nobody, as
# though the string were held by C code only. gc.get_referrers, on which objgraph is built, asks each container for what
# the garbage collector must visit, and a dict whose keys are all strings shows its values alone, because strings can't
# be part of a cycle. One key of another type in the same dict, and all its keys have a holder again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install -q --disable-pip-version-check objgraph==3.7.0
cat >program.py <<'P'
import gc
import objgraph


class Service:
    pass


service = Service()
service.cache = {str(number) * (1 << 20): [number] for number in range(8)}


def holders(of):
    chain = objgraph.find_backref_chain(of, lambda one: isinstance(one, Service))
    return len(chain) - 1


def key():
    return next(iter(service.cache))


print(holders(service.cache[key()]), holders(key()), sum(one is service.cache for one in gc.get_referrers(key())))
service.cache[0] = []
print(holders(service.cache[key()]), holders(key()), sum(one is service.cache for one in gc.get_referrers(key())))
P
found=$(environment/bin/python program.py)
echo "steps from a value to the service, from a key to it, and referrers of the key; then with a number as a further key:"
echo "$found"
[[ $found == $'2 0 0\n2 2 1' || $found == $'3 0 0\n3 3 1' ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
