// An animal in JavaScript: it reports as those in C do (report.h).
'use strict';
const fs = require('fs');
const file = fs.openSync(process.env.ZOO_REPORT, 'r+');
const word = Buffer.alloc(8);

function write(number, value) {
  word.writeBigUInt64LE(BigInt(value));
  fs.writeSync(file, word, 0, 8, number * 8);
}

function ordered() {
  fs.readSync(file, word, 0, 8, 80);
  return word.readBigUInt64LE();
}

const kept = Array.from({ length: 5000 }, () => Buffer.alloc(200, 1));
let ticks = 0;
write(1, process.pid);
write(0, 1);
setInterval(() => {
  ticks += 1;
  kept[ticks % kept.length][0] = 1;
  write(2, ticks);
  if (ordered() === 1n) process.exit(7);
}, 10);
