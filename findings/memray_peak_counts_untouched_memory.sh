#!/usr/bin/env bash
# memray's peak counts memory that was never resident
#
# Seen with memray 1.20.0, numpy 2.4.0. A program makes an array of 1 GiB of zeros and touches none of it. The kernel's own
# peak of the resident set (VmHWM) stays far below, because such memory is mapped and becomes resident page by page
# when it is written. "memray stats" states a peak memory usage of 1 GiB and more: it counts what was requested. A
# peak of memray above that of the kernel is therefore no sign that memory was in use, and --native changes nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install -q --disable-pip-version-check memray==1.20.0 numpy==2.4.0
cat >program.py <<'P'
import numpy

zeros = numpy.zeros(1 << 30, dtype=numpy.uint8)
with open("/proc/self/status") as status:
    print(next(line for line in status if line.startswith("VmHWM")).split()[1])
P
resident=$(environment/bin/python -m memray run -q --output profile.bin program.py)
peak=$(environment/bin/python -m memray stats profile.bin | grep -A1 -i 'peak memory usage' | grep -o '[0-9.]*[KMG]i\?B' | head -n 1)
echo "memray 1.20.0: peak memory usage $peak; the kernel's peak of the resident set: $((resident / 1024)) MiB"
[[ $peak == 1.0*G* ]] && ((resident < 300000)) || { echo "this has changed" && exit 1; }
echo "as recorded"
