#!/usr/bin/env bash
# A Python process that uses polars and pyarrow has five allocators, two of them jemalloc
#
# Seen with polars 1.35.2 and pyarrow 22.0.0 (wheels for Linux, x86-64, Python 3.11). polars brings a jemalloc 5.3.0 of
# its own, pyarrow another one and a mimalloc, beside CPython's pymalloc and glibc's malloc. None of them is a shared
# library, so neither ldd nor the mappings show them. Who sets MALLOC_CONF to tune "the" jemalloc of the process sets it
# for neither: each reads a variable with a prefix of its own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check polars==1.35.2 pyarrow==22.0.0
cat >look.py <<'P'
import mmap
import re

import polars
import pyarrow

polars.DataFrame({"x": [1, 2, 3]}), pyarrow.array([1])
files = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if ".so" in line}
print("pools of pyarrow:", " ".join(sorted(pyarrow.supported_memory_backends())))
print("shared libraries of allocators:", sum(bool(re.search("jemalloc|mimalloc|tcmalloc", name)) for name in files))
for name in sorted(files):
    with open(name, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = re.search(rb"(5\.\d\.\d)-\d+-g[0-9a-f]{40}", text)
        if found:
            own = b" ".join(sorted(set(re.findall(rb"[A-Z_]+_MALLOC_CONF", text)))).decode()
            package = re.sub(r".*site-packages/(\w+)/.*", r"\1", name)
            print("jemalloc", found[1].decode(), "in", package, "reads", own)
P
venv/bin/python look.py | tee seen
(($(grep -c '^jemalloc 5.* reads [A-Z_]*_MALLOC_CONF$' seen) == 2)) && ! grep -q 'reads MALLOC' seen && grep -q '^shared libraries of allocators: 0$' seen && grep -q mimalloc seen ||
  { echo "this has changed" && exit 1; }
echo "as recorded"
