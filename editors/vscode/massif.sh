#!/bin/sh
# Runs PROGRAM under valgrind's massif for gdb:  target remote | exec env VARIABLE=… sh massif.sh PROGRAM ARGUMENTS
# The standard output is gdb's connection; the program writes where one that gdb itself starts would. When gdb has
# left, killed or not, vgdb ends, and then the program.
set -u
command -v valgrind >/dev/null || { echo "gdbmem: valgrind, which has massif, is not installed" >&2 && exit 127; }
if [ -p "/proc/$PPID/fd/1" ]; then exec 3>"/proc/$PPID/fd/1"; else exec 3>&2; fi # gdb's adapter reads both
folder=$(mktemp -d) || exit
valgrind -q --tool=massif --threshold=0 --fullpath-after= --massif-out-file=/dev/null \
  "--log-file=$folder/log" --vgdb=yes --vgdb-stop-at=startup "--vgdb-prefix=$folder/vgdb" "$@" </dev/null >&3 2>&3 &
program=$!
end() {
  rm -rf "$folder"
  for signal in TERM TERM TERM TERM KILL; do # a program may block SIGTERM
    kill -s "$signal" "$program" 2>/dev/null || exit
    sleep 0.5
  done
}
trap end EXIT
trap 'exit 143' HUP INT TERM
until set -- "$folder"/vgdb* && [ -e "$1" ]; do
  [ -e "/proc/$program/exe" ] || exit # valgrind has said why it ended
  sleep 0.1
done
vgdb "--vgdb-prefix=$folder/vgdb" --wait=60 "--pid=$program"
