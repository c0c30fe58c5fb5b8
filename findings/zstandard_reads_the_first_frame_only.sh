#!/usr/bin/env bash
# python-zstandard returns the first of several frames and says nothing about the rest
#
# Seen with zstandard 0.25.0. A file of two frames one after the other is valid Zstandard data (two compressed logs or
# profiles joined by cat, a writer that was restarted); the zstd command and stream_reader() unpack both. But
# ZstdDecompressor().decompress() returns the data of the first frame as if it were all; no exception and no attribute
# tells of the rest. decompress(…, allow_extra_data=False) raises. A reader of profiles that calls it in the short way
# loses the second half of a file in silence.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install -q --disable-pip-version-check zstandard==0.25.0
cat >program.py <<'P'
import zstandard

one, other = zstandard.ZstdCompressor(), zstandard.ZstdCompressor()
data = one.compress(b"first\n") + other.compress(b"second\n")
unpack = zstandard.ZstdDecompressor()
print(unpack.decompress(data), unpack.stream_reader(data).read())
try:
    unpack.decompress(data, allow_extra_data=False)
except zstandard.ZstdError as error:
    print(error)
P
said=$(environment/bin/python program.py)
printf 'zstandard 0.25.0: %s\n' "$said"
[[ $said == "b'first\\n' b'first\\nsecond\\n'"* && $said == *"unused data"* ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
