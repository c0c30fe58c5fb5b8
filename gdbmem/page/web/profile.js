// The profile that stands in the page: columns over the paths of one merged call tree.

import { doubtBetween } from "./hiding.js";
import { unpacked } from "./unpacking.js";

/**
 * As page/explorer.py writes it. A node's parent stands before it; node 0 is the root, and a path goes
 * from a child of the root to the node at which it ends.
 *
 * @typedef {object} Written
 * @property {string} unit the unit of the sizes
 * @property {boolean} relative only growth and shrinkage are known
 * @property {string[]} strings
 * @property {{name: number[], full: number[], file: number[], line: number[], object: number[], own: number[]}} frames
 *   numbers of strings; -1: unknown; own: 1 for the user's own code
 * @property {boolean} outermost_first paths begin at their outermost function; else at the allocation site
 * @property {number[]} parent how many nodes before it each node's parent stands; 0 for the root
 * @property {number[]} frame of each node; -1: the root, -2: places that are not listed
 * @property {number[]} ends how many nodes after the former one each path ends
 * @property {number[]} site of each path: the frame that its row is named by; -1: not listed, -2: known and accepted
 * @property {import("./wrappers.js").Naming | null} [naming] for a series: the data from which `site` and `own` of any other view are derived
 * @property {{names: string[], of: number[]} | null} [threads] those that allocated, and the number of that of each path; -1: of several
 * @property {number[]} shown the numbers of View that are chosen at first
 * @property {{name: string, total: number, bytes: number[], blocks: number[] | null}[]} snapshots bytes of each path
 * @property {Doubt | null} doubt of the difference of the first and the last snapshot
 * @property {boolean} hides a snapshot leaves small paths out
 * @property {import("./hiding.js").Hiding | null} [hiding] of a series: how far any other difference may be off
 */

/**
 * How far a difference may be off. Paths with one origin share its most.
 *
 * @typedef {object} Doubt
 * @property {ArrayLike<number>} bound of each path, bytes
 * @property {ArrayLike<number>} origin of each path; -1: none
 * @property {ArrayLike<number>} most of each origin, bytes
 * @property {number} elsewhere bytes that may belong to any listed line
 * @property {ArrayLike<number> | null} variance of each path, bytes²
 */

/**
 * The same with the numbers spelled out.
 *
 * @typedef {object} Columns
 * @property {Written} written
 * @property {Int32Array} parent
 * @property {Int32Array} frame
 * @property {Int32Array} ends
 * @property {Columns} [whole] that these are one thread's part of
 */

/** @typedef {{before: number, after: number}} View numbers of snapshots; before is -1 if one is shown by itself */

/**
 * Return the content of the element.
 *
 * @param {string} text
 * @returns {Promise<Columns>}
 */
export async function readProfile(text) {
  return columnsOf(await unpacked(text));
}

/**
 * @param {Written} written
 * @returns {Columns}
 */
export function columnsOf(written) {
  const parent = Int32Array.from(written.parent, (distance, node) => (distance ? node - distance : -1));
  const ends = Int32Array.from(written.ends);
  for (let path = 1; path < ends.length; path++) ends[path] += ends[path - 1];
  return { written, parent, frame: Int32Array.from(written.frame), ends };
}

/**
 * Return the part of *profile* that the thread of this number allocated; -1: that of paths of several threads.
 *
 * @param {Columns} profile
 * @param {number} thread
 * @returns {Columns}
 */
export function ofThread(profile, thread) {
  const { written } = profile;
  const of = written.threads?.of || [];
  const its = (/** @type {number[]} */ column) => column.map((value, path) => (of[path] === thread ? value : 0));
  const snapshots = written.snapshots.map((one) => {
    const bytes = its(one.bytes);
    return { ...one, bytes, blocks: one.blocks && its(one.blocks), total: bytes.reduce((sum, value) => sum + value, 0) };
  });
  return { ...profile, written: { ...written, snapshots }, whole: profile };
}

/**
 * Return the possible error of the difference of *view*; null if it is unknown, or nothing is uncertain.
 *
 * @param {Columns} profile
 * @param {View} view
 * @returns {Doubt | null}
 */
export function doubtOf(profile, view) {
  const { doubt, snapshots, hiding } = profile.written;
  if (view.before < 0) return null;
  if (view.before === 0 && view.after === snapshots.length - 1) return doubt;
  return hiding ? doubtBetween(profile, hiding, view) : null;
}

/**
 * Return whether the possible error of the difference of *view* is known.
 *
 * @param {Columns} profile
 * @param {View} view
 */
export function isBounded(profile, view) {
  const { snapshots, hides, hiding } = profile.written;
  return view.before < 0 || !hides || Boolean(hiding) || (view.before === 0 && view.after === snapshots.length - 1);
}

/**
 * Return the bytes of each path before; zeros if one snapshot is shown by itself.
 *
 * @param {Columns} profile
 * @param {View} view
 * @returns {ArrayLike<number>}
 */
export function bytesBefore(profile, view) {
  return view.before < 0 ? new Float64Array(profile.ends.length) : profile.written.snapshots[view.before].bytes;
}

/**
 * Return how far the sum of these paths may be off, in bytes.
 *
 * @param {Doubt} doubt
 * @param {ArrayLike<number>} paths
 * @param {boolean} isListed their line is known
 */
export function boundOf(doubt, paths, isListed) {
  /** @type {Map<number, number>} */
  const origins = new Map();
  let variance = 0;
  for (let at = 0; at < paths.length; at++) {
    const path = paths[at];
    if (doubt.bound[path]) {
      const origin = doubt.origin[path];
      origins.set(origin, Math.min((origins.get(origin) || 0) + doubt.bound[path], doubt.most[origin]));
    }
    if (doubt.variance) variance += doubt.variance[path];
  }
  let hidden = 0;
  for (const bytes of origins.values()) hidden += bytes;
  return Math.max(hidden, isListed ? doubt.elsewhere : 0) + Math.round(Math.sqrt(variance));
}

/**
 * Return the name of a row whose paths have no frame.
 *
 * @param {number} site
 */
export function namelessSite(site) {
  return site === -2 ? "known and accepted" : "call sites that are not listed";
}

/**
 * Return the name of a frame's function; for unlisted places that word.
 *
 * @param {Columns} profile
 * @param {number} frame
 */
export function nameOf(profile, frame) {
  if (frame < 0) return "places that are not listed";
  return profile.written.strings[profile.written.frames.name[frame]];
}

/**
 * Return the function of a frame as in its symbol, including parameters.
 *
 * @param {Columns} profile
 * @param {number} frame
 */
export function fullNameOf(profile, frame) {
  const full = frame < 0 ? -1 : profile.written.frames.full[frame];
  return full < 0 ? nameOf(profile, frame) : profile.written.strings[full];
}

/**
 * Return the file and line of a frame, or its library; "" if neither is known.
 *
 * @param {Columns} profile
 * @param {number} frame
 */
export function placeOf(profile, frame) {
  if (frame < 0) return "";
  const { strings, frames } = profile.written;
  if (frames.file[frame] < 0) return frames.object[frame] < 0 ? "" : `in ${strings[frames.object[frame]]}`;
  const line = frames.line[frame];
  return line < 0 ? strings[frames.file[frame]] : `${strings[frames.file[frame]]}:${line}`;
}

/**
 * Return the frames of a path from its outermost function, `main`, inward.
 *
 * @param {Columns} profile
 * @param {number} path
 */
export function framesOf(profile, path) {
  const found = [];
  for (let node = profile.ends[path]; node > 0; node = profile.parent[node]) found.push(profile.frame[node]);
  return profile.written.outermost_first ? found.reverse() : found;
}
