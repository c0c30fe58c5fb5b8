#!/usr/bin/env bash
# SIGTERM does not end the BGSAVE of a redis
#
# Seen with redis 7.0.15 (Debian 12, redis-tools 5:7.0.15-1~deb12u7). The child that BGSAVE forks shares the server's
# pages, and each one that the server writes to meanwhile is copied. Who ends that child by hand, with kill and its
# default SIGTERM, sees nothing happen: the child has inherited the server's handler, which notes that a shutdown was
# asked for, and the child never looks. rdb_bgsave_in_progress stays 1. SIGUSR1, with which the server itself ends its
# children, ends it at once, and is not counted as a failed save.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q redis-tools=5:7.0.15-1~deb12u7 libjemalloc2=5.3.0-1 liblzf1=3.6-3 libatomic1=12.2.0-14+deb12u1 >/dev/null 2>&1
for package in *.deb; do dpkg -x "$package" .; done
export LD_LIBRARY_PATH
LD_LIBRARY_PATH=$(dirname "$(find "$folder" -name libjemalloc.so.2)")
cp usr/bin/redis-check-rdb redis-server # one program under several names
./redis-server --port 0 --unixsocket "$folder/socket" --save "" --dir "$folder" --rdb-key-save-delay 1000 >log 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" || true; rm -rf "$folder"' EXIT
ask() { usr/bin/redis-cli -s socket "$@"; }
for _ in $(seq 100); do [[ $(ask ping 2>/dev/null) == PONG ]] && break || sleep 0.1; done
saving() { ask info persistence | tr -d '\r' | sed -n "s/^$1://p"; }
ask eval "for i = 1, 100000 do redis.call('set', 'key' .. i, 'x') end" 0 >/dev/null
ask bgsave >/dev/null
read -r child _ < <(cat "/proc/$server/task/$server/children" && echo)
kill "$child"
sleep 3
after_sigterm=$(saving rdb_bgsave_in_progress)
kill -USR1 "$child"
sleep 1
after_sigusr1=$(saving rdb_bgsave_in_progress) status=$(saving rdb_last_bgsave_status)
echo "rdb_bgsave_in_progress: $after_sigterm after SIGTERM, $after_sigusr1 after SIGUSR1; rdb_last_bgsave_status: $status"
[[ $after_sigterm$after_sigusr1 == 10 && $status == ok ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
