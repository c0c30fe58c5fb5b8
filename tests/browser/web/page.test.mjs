// What the page's script computes, without a browser: node --test tests/browser/web/*.test.mjs
import assert from "node:assert/strict";
import test from "node:test";
import { gzipSync } from "node:zlib";

const web = new URL("../../../gdbmem/page/web/", import.meta.url);
const { columnsOf, readProfile, framesOf, boundOf, ofThread, placeOf } = await import(new URL("profile.js", web));
const { makeCalls, searchCalls, pathsThrough } = await import(new URL("calls.js", web));
const { rowsOf, neighboursOf, csvOf } = await import(new URL("table.js", web));
const { formatSize, formatChange } = await import(new URL("sizes.js", web));
const { matcherOf } = await import(new URL("explorer.js", web));

// main calls load (which allocates 100, then 300) and keep (50, then 0); load calls itself once.
const strings = ["malloc", "load", "keep", "main", "/src/a.cpp", "libc.so"];
function written(more = {}) {
  return {
    unit: "bytes of heap",
    relative: false,
    strings,
    frames: { name: [0, 1, 2, 3], full: [-1, -1, -1, -1], file: [-1, 4, 4, 4], line: [-1, 7, 9, 20], object: [5, -1, -1, -1], own: [0, 1, 1, 1] },
    outermost_first: false,
    //       0   1:malloc 2:load 3:main 4:load 5:main 6:keep 7:main
    parent: [0, 1, 1, 1, 2, 1, 5, 1],
    frame: [-1, 0, 1, 3, 1, 3, 2, 3],
    ends: [3, 2, 2],
    site: [1, 1, 2],
    shown: [0, 1],
    snapshots: [
      { name: "a", total: 150, bytes: [70, 30, 50], blocks: [7, 3, 5] },
      { name: "b", total: 300, bytes: [200, 100, 0], blocks: [20, 10, 0] },
    ],
    doubt: null,
    hides: false,
    ...more,
  };
}
const profile = columnsOf(written());
const rows = (data, view, by) => rowsOf(data, view, by, makeCalls(data, view, { by: "line", inverted: !data.written.outermost_first, only: null }));
const change = { before: 0, after: 1 };
const whole = { by: "line", inverted: false, only: null };

test("a profile is unpacked as it was written", async () => {
  const text = gzipSync(JSON.stringify(written())).toString("base64");
  assert.deepEqual(await readProfile(text), profile);
});

test("a path is told from its outermost function inward, whichever way it was written", () => {
  assert.deepEqual(framesOf(profile, 1), [3, 1, 1, 0]);
  const turned = columnsOf(written({ outermost_first: true, parent: [0, 1, 1, 1], frame: [-1, 3, 1, 0], ends: [3], snapshots: [] }));
  assert.deepEqual(framesOf(turned, 0), [3, 1, 0]);
});

test("callers hold what they call, and a change is as wide as what came and what went", () => {
  const calls = makeCalls(profile, change, whole);
  assert.equal(calls.weight[0], 130 + 70 + 50);
  assert.equal(calls.after[0] - calls.before[0], 150);
  for (let call = 0; call < calls.count; call++) {
    let inner = 0;
    for (let place = calls.first[call]; place < calls.first[call + 1]; place++) inner += calls.weight[calls.order[place]];
    assert.ok(inner <= calls.weight[call]);
  }
  const main = calls.order[calls.first[0]];
  assert.equal(calls.names[calls.group[main]], "main");
  assert.deepEqual([...calls.order.subarray(calls.first[main], calls.first[main + 1])].map((call) => calls.names[calls.group[call]]), ["load", "keep"]);
});

test("siblings lie side by side from the left, the largest first", () => {
  const calls = makeCalls(profile, { before: -1, after: 0 }, whole);
  for (let call = 0; call < calls.count; call++) {
    let at = calls.start[call];
    for (let place = calls.first[call]; place < calls.first[call + 1]; place++) {
      assert.equal(calls.start[calls.order[place]], at);
      at += calls.weight[calls.order[place]];
    }
  }
});

test("turned over, the allocation is outermost; with own code only, no frame of others is left", () => {
  const turned = makeCalls(profile, change, { ...whole, inverted: true });
  assert.equal(turned.names[turned.group[turned.order[0]]], "malloc");
  const own = makeCalls(profile, change, { ...whole, only: profile.written.frames.own });
  assert.ok(![...own.group.subarray(1, own.count)].some((group) => own.names[group] === "malloc"));
  assert.equal(own.weight[0], 250);
});

test("by library, calls within one library are one call", () => {
  const calls = makeCalls(profile, change, { ...whole, by: "library" });
  assert.deepEqual([...calls.group.subarray(1, calls.count)].map((group) => calls.names[group]), ["/src/a.cpp", "libc.so"]);
});

test("a match inside a match counts once", () => {
  const calls = makeCalls(profile, change, whole);
  const found = searchCalls(calls, (group) => calls.names[group] === "load");
  assert.equal(found.weight, 200);
  assert.equal(found.change, 200);
});

test("the paths through a call are those that its bytes are of", () => {
  const calls = makeCalls(profile, change, whole);
  assert.deepEqual(pathsThrough(calls, 0), [0, 1, 2]);
});

test("rows add up to the total, and what came through a line counts once on a path that passes it twice", () => {
  const listed = rows(profile, change, "line");
  assert.deepEqual(listed.map((row) => [row.place, row.before, row.after, row.through]), [
    ["/src/a.cpp:7", 100, 300, 200],
    ["/src/a.cpp:9", 50, 0, -50],
  ]);
  assert.equal(listed.reduce((sum, row) => sum + row.after - row.before, 0), 150);
  assert.deepEqual(rows(profile, { before: -1, after: 1 }, "file").map((row) => [row.name, row.after]), [["/src/a.cpp", 300]]);
});

test("callers and callees of a line have the bytes of the paths that go that way", () => {
  const [row] = rows(profile, change, "line");
  const [callers, callees] = neighboursOf(profile, change, "line", row);
  assert.deepEqual(callers, [[3, 200], [1, 70]]);
  assert.deepEqual(callees, [[0, 200], [1, 70]]);
});

test("the parts of the threads add up to the whole, row by row and in the graph", () => {
  const told = columnsOf(written({ threads: { names: ["main", "worker"], of: [0, 1, -1] } }));
  const parts = [0, 1, -1].map((thread) => ofThread(told, thread));
  assert.deepEqual(parts.map((part) => part.written.snapshots.map((one) => one.total)), [[70, 200], [30, 100], [50, 0]]);
  assert.deepEqual(parts.map((part) => rows(part, change, "line").map((row) => [row.place, row.before, row.after, row.through])), [
    [["/src/a.cpp:7", 70, 200, 130]],
    [["/src/a.cpp:7", 30, 100, 70]],
    [["/src/a.cpp:9", 50, 0, -50]],
  ]);
  assert.deepEqual(parts.map((part) => makeCalls(part, change, whole).weight[0]), [130, 70, 50]);
  assert.deepEqual(parts[1].written.snapshots[0].blocks, [0, 3, 0]);
});

test("paths that one place hides share its bound, and a pair that was not judged has none", () => {
  const doubt = { bound: [40, 40, 0], origin: [0, 0, -1], most: [50], elsewhere: 0, variance: null };
  const doubtful = columnsOf(written({ doubt, hides: true }));
  assert.equal(boundOf(doubt, [0, 1], true), 50);
  assert.deepEqual(rows(doubtful, change, "line").map((row) => row.bound), [50, 0]);
  const three = written({ doubt, hides: true });
  three.snapshots.push({ name: "c", total: 0, bytes: [0, 0, 0], blocks: null });
  assert.deepEqual(rows(columnsOf(three), change, "line").map((row) => row.bound), [-1, -1]);
});

test("sizes are written as everywhere in gdbmem", () => {
  assert.deepEqual([0, 1023, 1024, 1536, 1023.96 * 1024, -2097152].map(formatSize), ["0 B", "1,023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "-2.0 MiB"]);
  assert.deepEqual([0, 3, -3].map(formatChange), ["0 B", "+3 B", "-3 B"]);
});

test("a search that is no regular expression is plain text", () => {
  assert.equal(matcherOf(""), null);
  assert.ok(matcherOf("operator[](")("A::operator[](int)"));
  assert.ok(matcherOf("^Lo")("load"));
});

test("a spreadsheet takes no cell of the CSV for a formula", () => {
  const row = { name: '=cmd("x")', place: "a,b", before: 1, after: 3, bound: -1, through: 2, paths: [0], frame: 0 };
  assert.equal(csvOf([row]).split("\r\n")[1], `"'=cmd(""x"")","a,b",1,3,2,,2,1`);
});

test("a frame of which nothing is known has no place", () => {
  assert.equal(placeOf(profile, -2), "");
  assert.equal(placeOf(profile, 0), "in libc.so");
});
