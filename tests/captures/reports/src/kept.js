// Keeps objects of some classes, strings and buffers, and writes what V8 knows of them.
'use strict';
const v8 = require('v8');
class Basket {
  constructor(n) { this.items = new Array(n).fill(n); this.name = 'basket number ' + n; }
}
function fillShop(count) {
  const baskets = [];
  for (let n = 0; n < count; n++) baskets.push(new Basket(n % 50));
  return baskets;
}
const kept = { baskets: fillShop(Number(process.argv[2] || 200)), names: new Map() };
for (let n = 0; n < 300; n++) kept.names.set('key' + n, { n });
kept.typed = new Float64Array(10000);
globalThis.kept = kept;
v8.writeHeapSnapshot(process.argv[3] || 'kept.heapsnapshot');
