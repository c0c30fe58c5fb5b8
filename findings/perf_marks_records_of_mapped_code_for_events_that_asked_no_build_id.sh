#!/usr/bin/env bash
# A perf event that asked for no build-ids gets records that say they have one, where another event asked
#
# Seen with Linux 6.18. Two events follow one process: one asks for records of mapped code with the file's build-id
# (perf_event_attr.build_id, as `perf record --buildid-mmap` does), the other for those with device and inode. As the
# process maps a library, both records have the bit PERF_RECORD_MISC_MMAP_BUILD_ID, but the second one's bytes are still
# device and inode: the kernel makes one header for all events, and takes the bit back for none. A reader that follows
# the bit finds a build-id that no file has, and no inode; only the attributes of its own event tell what the bytes are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >program.py <<'P'
import ctypes
import mmap
import os
import struct

call = ctypes.CDLL(None, use_errno=True).syscall
MMAP, EXCLUDE_KERNEL, EXCLUDE_HV, MMAP2, BUILD_ID = 1 << 8, 1 << 5, 1 << 6, 1 << 23, 1 << 34
SOFTWARE, DUMMY, MARK = 1, 9, 1 << 14


def follow(build_ids):
    flags = MMAP | MMAP2 | EXCLUDE_KERNEL | EXCLUDE_HV | (BUILD_ID if build_ids else 0)
    attributes = bytearray(struct.pack("<IIQQQQQ", SOFTWARE, 136, DUMMY, 0, 0, 0, flags).ljust(136, b"\0"))
    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
    descriptor = call(number, (ctypes.c_char * 136).from_buffer(attributes), 0, -1, -1, 0)
    if descriptor < 0:
        raise SystemExit("this kernel has no such event, or forbids it (kernel.perf_event_paranoid)")
    return mmap.mmap(descriptor, 2 * mmap.PAGESIZE)


def record_of(ring, name):
    """Return whether the record of the mapped file has the mark, and its inode."""
    at, (end,) = mmap.PAGESIZE, struct.unpack_from("<Q", ring, 1024)
    end += at
    while at < end:
        kind, misc, size = struct.unpack_from("<IHH", ring, at)
        if kind == 10 and ring[at + 72 : at + size].partition(b"\0")[0] == name.encode():
            return bool(misc & MARK), struct.unpack_from("<Q", ring, at + 48)[0]
        at += size


library = next(line.split()[-1] for line in open("/proc/self/maps") if "libc.so" in line or "/libc-" in line)
inode = os.stat(library).st_ino


def seen(*asked):
    rings = [follow(one) for one in asked]
    with open(library, "rb") as file:
        kept = mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    found = [record_of(ring, library) for one, ring in zip(asked, rings) if not one]
    kept.close()
    return found[0]


for text, asked in (("alone", [False]), ("beside one that asked", [True, False]), ("before one", [False, True])):
    marked, number = seen(*asked)
    print(f"{text}: marked {marked}, its inode {number == inode}")
P
found=$(python3 program.py)
echo "a record for an event that asked for no build-id:"
echo "$found"
[[ $found == "alone: marked False, its inode True"$'\n'*"marked True, its inode True"* ]] ||
  { echo "this has changed" && exit 1; }
echo "as recorded"
