// Prints, as JSON, what the table of a page has for each pair of snapshots: node pairs.mjs PROFILE, which is JSON as a page holds it.
import { readFileSync } from "node:fs";

const web = new URL("../../../gdbmem/page/web/", import.meta.url);
const { columnsOf } = await import(new URL("profile.js", web));
const { makeCalls } = await import(new URL("calls.js", web));
const { rowsOf } = await import(new URL("table.js", web));

const profile = columnsOf(JSON.parse(readFileSync(process.argv[2], "utf8")));
const shape = { by: "line", inverted: !profile.written.outermost_first, only: null };
const count = profile.written.snapshots.length;
const found = [];
for (let before = -1; before < count; before++) {
  for (let after = before + 1; after < count; after++) {
    const view = { before, after };
    const rows = rowsOf(profile, view, "line", makeCalls(profile, view, shape));
    found.push({ before, after, rows: rows.map((row) => [row.after - row.before, row.before, row.after, row.bound]) });
  }
}
console.log(JSON.stringify(found));
