#!/bin/sh
# Starts massif and gdb by hand and runs to the first breakpoint: the peer of `gdbmem launch`.
#   launch_by_hand.sh PROGRAM LOCATION
# What one would type in two terminals, made quick: it looks every 10 ms whether valgrind is ready.
set -eu
folder=$(mktemp -d)
trap 'kill "$valgrind" 2>/dev/null || true; wait "$valgrind" 2>/dev/null || true; rm -rf "$folder"' EXIT

valgrind --tool=massif --threshold=0 --fair-sched=yes --keep-debuginfo=yes --vgdb-stop-at=startup \
  --vgdb-prefix="$folder/vgdb" --log-file="$folder/log" --massif-out-file="$folder/massif.out" \
  "$1" </dev/null >"$folder/stdout" &
valgrind=$!

until grep -qs 'vgdb me' "$folder/log"; do
  kill -0 "$valgrind"
  sleep 0.01
done

gdb -q -batch -ex 'set confirm off' \
  -ex "target remote | vgdb --vgdb-prefix=$folder/vgdb --pid=$valgrind" \
  -ex "break $2" -ex 'continue' "$1"
