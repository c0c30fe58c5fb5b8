// A program in JavaScript that becomes bigger in one function, when it gets a line of input.
'use strict';
const kept = [];

function comeAndGo(n) {
  return new Array(300).fill(n).length;
}

function fill(from, count) { /* planted: node */
  for (let n = from; n < from + count; n++) {
    const row = new Array(120);
    for (let at = 0; at < 120; at++) row[at] = n + at + 0.5;
    kept.push(row);
  }
}

let state = 0;
process.stdin.on('data', () => {
  if (state++) process.exit(kept.length ? 0 : 1);
  for (let n = 0; n < 200; n++) {
    fill(n * 500, 500);
    comeAndGo(n);
  }
  console.log(`grew ${kept.length}`);
});
for (let n = 0; n < 300; n++) { // until it is compiled
  fill(n, 50);
  comeAndGo(n);
}
console.log('ready');
