// The rows of a view: lines, functions, files or libraries, with their own and their inclusive sizes.

import { changeThrough } from "./calls.js";
import { boundOf, bytesBefore, doubtOf, framesOf, isBounded, namelessSite, nameOf, placeOf } from "./profile.js";
import { namesIn } from "./wrappers.js";

/** @typedef {import("./profile.js").Columns} Columns */
/** @typedef {import("./profile.js").View} View */
/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {"line" | "function" | "file" | "library"} Grouping */

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {string} place
 * @property {boolean} isNamedByPlace its file and line are known
 * @property {number} before bytes
 * @property {number} after bytes
 * @property {number} bound bytes; -1: not known
 * @property {number} through bytes of all paths that pass it, those that begin here among them; of a change, of the change
 * @property {number[]} paths
 * @property {number} frame an example; -1: not listed
 */

/**
 * Return the key of the rows of this grouping.
 *
 * @param {Columns} profile
 * @param {Grouping} by
 * @returns {(frame: number) => string | number}
 */
function keyOf(profile, by) {
  const { frames } = profile.written;
  if (by === "function") return (frame) => frames.name[frame];
  if (by === "library") return (frame) => frames.object[frame];
  if (by === "file") return (frame) => (frames.file[frame] >= 0 ? `f${frames.file[frame]}` : `o${frames.object[frame]}`);
  return (frame) =>
    frames.file[frame] >= 0
      ? `${frames.file[frame]}:${frames.line[frame]}`
      : `o${frames.object[frame]} ${frames.name[frame]}`;
}

/**
 * Return the rows of *view*, the largest change first; *calls* are its calls by line.
 *
 * @param {Columns} profile
 * @param {View} view
 * @param {Grouping} by
 * @param {Calls} calls
 * @returns {Row[]}
 */
export function rowsOf(profile, view, by, calls) {
  const before = bytesBefore(profile, view);
  const after = profile.written.snapshots[view.after].bytes;
  const { site } = namesIn(profile, view);
  const key = keyOf(profile, by);
  /** @type {Map<string | number, Row>} */
  const rows = new Map();
  for (let path = 0; path < profile.ends.length; path++) {
    if (!before[path] && !after[path]) continue;
    const frame = site[path];
    const its = frame < 0 ? namelessSite(frame) : key(frame);
    let row = rows.get(its);
    if (!row) {
      row = { ...titleOf(profile, frame, by), before: 0, after: 0, bound: 0, through: 0, paths: [], frame };
      rows.set(its, row);
    }
    row.before += before[path];
    row.after += after[path];
    row.paths.push(path);
  }
  addThrough(profile, rows, key, calls);
  const doubt = doubtOf(profile, view);
  const unknown = isBounded(profile, view) ? 0 : -1;
  for (const row of rows.values()) row.bound = doubt ? boundOf(doubt, row.paths, row.frame >= 0) : unknown;
  return [...rows.values()].sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before));
}

/**
 * @param {Columns} profile
 * @param {number} frame
 * @param {Grouping} by
 */
function titleOf(profile, frame, by) {
  if (frame < 0) return { name: namelessSite(frame), place: "", isNamedByPlace: false };
  const { frames, strings } = profile.written;
  const library = frames.object[frame] < 0 ? "no library known" : strings[frames.object[frame]];
  if (by === "library") return { name: library, place: "", isNamedByPlace: false };
  if (by === "file") return { name: frames.file[frame] < 0 ? library : strings[frames.file[frame]], place: "", isNamedByPlace: false };
  const isNamedByPlace = by === "line" && frames.file[frame] >= 0;
  return { name: nameOf(profile, frame), place: by === "line" ? placeOf(profile, frame) : "", isNamedByPlace };
}

/**
 * Add to each row its inclusive size, once for each path however often that passes.
 *
 * @param {Columns} profile
 * @param {Map<string | number, Row>} rows
 * @param {(frame: number) => string | number} key
 * @param {Calls} calls
 */
function addThrough(profile, rows, key, calls) {
  const listed = [...rows.values()].filter((row) => row.frame >= 0);
  const numbers = new Map(listed.map((row, number) => [row, number]));
  const ofFrame = profile.written.frames.name.map((_, frame) => numbers.get(/** @type {Row} */ (rows.get(key(frame)))) ?? -1);
  const classOf = calls.example.map((frame) => (frame < 0 ? -1 : ofFrame[frame]));
  const sums = changeThrough(calls, classOf, listed.length);
  for (const row of rows.values()) row.through = row.frame < 0 ? row.after - row.before : sums[/** @type {number} */ (numbers.get(row))];
}

/**
 * Return the callers and callees of a row's frames, with the bytes of the paths through them, largest first.
 *
 * @param {Columns} profile
 * @param {View} view
 * @param {Grouping} by
 * @param {Row} row
 */
export function neighboursOf(profile, view, by, row) {
  const before = bytesBefore(profile, view);
  const after = profile.written.snapshots[view.after].bytes;
  const key = keyOf(profile, by);
  const mine = row.frame < 0 ? null : key(row.frame);
  /** @type {Map<number, number>[]} */
  const sums = [new Map(), new Map()];
  for (let path = 0; path < profile.ends.length; path++) {
    const change = after[path] - before[path];
    if (!change || mine === null) continue;
    const frames = framesOf(profile, path);
    const found = [new Set(), new Set()];
    frames.forEach((frame, at) => {
      if (frame < 0 || key(frame) !== mine) return;
      if (at > 0) found[0].add(frames[at - 1]);
      if (at + 1 < frames.length) found[1].add(frames[at + 1]);
    });
    found.forEach((side, number) => side.forEach((frame) => sums[number].set(frame, (sums[number].get(frame) || 0) + change)));
  }
  return sums.map((side) => [...side].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])));
}

/**
 * Return the rows as CSV (RFC 4180); cells that a spreadsheet would take for formulas begin with an apostrophe.
 *
 * @param {Row[]} rows
 */
export function csvOf(rows) {
  const cell = (/** @type {string} */ text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replace(/"/g, '""')}"`;
  const lines = rows.map((row) =>
    [cell(row.name), cell(row.place), row.before, row.after, row.after - row.before, row.bound < 0 ? "" : row.bound, row.through, row.paths.length].join(","),
  );
  return ["name,place,before_bytes,after_bytes,delta_bytes,uncertain_bytes,through_bytes,paths", ...lines, ""].join("\r\n");
}
