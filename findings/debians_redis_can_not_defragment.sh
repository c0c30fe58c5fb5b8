#!/usr/bin/env bash
# Debian's redis has jemalloc, and can't do the active defragmentation that is advised for it
#
# Seen with redis 7.0.15 (Debian 12, redis-tools 5:7.0.15-1~deb12u7). 'INFO memory' says mem_allocator:jemalloc-5.3.0,
# and after nine of ten keys are deleted, most of the memory is free space in slabs that the tenth shares: MEMORY PURGE
# returns little of it. What helps is activedefrag. But Debian links redis to its own libjemalloc.so.2, which lacks the
# hook that redis' copy of jemalloc has: 'CONFIG SET activedefrag yes' fails, so that a restart (or a replica) is all
# that is left. mem_allocator tells nothing of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q redis-tools=5:7.0.15-1~deb12u7 libjemalloc2=5.3.0-1 liblzf1=3.6-3 libatomic1=12.2.0-14+deb12u1 >/dev/null 2>&1
for package in *.deb; do dpkg -x "$package" .; done
export LD_LIBRARY_PATH
LD_LIBRARY_PATH=$(dirname "$(find "$folder" -name libjemalloc.so.2)")
cp usr/bin/redis-check-rdb redis-server # one program under several names
./redis-server --port 0 --unixsocket "$folder/socket" --save "" --dir "$folder" >log 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" || true; rm -rf "$folder"' EXIT
ask() { usr/bin/redis-cli -s socket "$@"; }
for _ in $(seq 100); do [[ $(ask ping 2>/dev/null) == PONG ]] && break || sleep 0.1; done
memory() { ask info memory | tr -d '\r' | sed -n "s/^$1://p"; }
ask eval "for i = 1, 300000 do redis.call('set', 'key' .. i, string.rep('x', 100)) end" 0 >/dev/null
ask eval "for i = 1, 300000 do if i % 10 > 0 then redis.call('del', 'key' .. i) end end" 0 >/dev/null
ask memory purge >/dev/null
name=$(memory mem_allocator) live=$(memory allocator_allocated) slabs=$(memory allocator_active)
answer=$(ask config set activedefrag yes 2>&1 || true)
echo "$name: of $((slabs >> 20)) MiB that a purge leaves, $((live >> 20)) MiB are allocated"
echo "config set activedefrag yes: $answer"
[[ $name == jemalloc-5.3.0 && $answer == *"Active defragmentation cannot be enabled"* ]] && ((slabs > 2 * live)) ||
  { echo "this has changed" && exit 1; }
echo "as recorded"
