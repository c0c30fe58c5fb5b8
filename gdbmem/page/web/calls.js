// A view of a profile as a tree of calls, each with its inclusive size.

import { bytesBefore, nameOf } from "./profile.js";

/** @typedef {import("./profile.js").Columns} Columns */
/** @typedef {import("./profile.js").View} View */

/**
 * @typedef {object} Shape
 * @property {"line" | "function" | "library"} by the unit that counts as one call
 * @property {boolean} inverted the allocation site is outermost
 * @property {ArrayLike<number> | null} only for each frame, whether it is kept; null: all are
 */

/**
 * Calls in columns: number 0 is the root, a caller precedes its callees.
 *
 * @typedef {object} Calls
 * @property {boolean} isChange
 * @property {number} count
 * @property {Int32Array} group of each call
 * @property {string[]} names of the groups
 * @property {Int32Array} example of each group: a frame; -2: places that are not listed
 * @property {Int32Array} parent
 * @property {Int32Array} depth
 * @property {Float64Array} before bytes, inclusive
 * @property {Float64Array} after bytes, inclusive
 * @property {Float64Array} weight bytes; for a change the sum of growth and shrinkage
 * @property {Float64Array} start bytes from the left, in weights
 * @property {Int32Array} first place in `order` of a call's children
 * @property {Int32Array} order calls, siblings side by side, the largest first
 * @property {Int32Array} last of each path: the call in which it ends; -1: it is in none
 * @property {number} deepest
 */

/**
 * Number the frames of *profile* by the unit that counts as one call.
 *
 * @param {Columns} profile
 * @param {Shape["by"]} by
 * @returns {{of: Int32Array, names: string[], example: number[]}} group 0 is the root's, 1 that of places not listed
 */
export function groupFrames(profile, by) {
  const { frames, strings } = profile.written;
  const of = new Int32Array(frames.name.length);
  const names = ["all", nameOf(profile, -2)];
  const example = [-1, -2];
  /** @type {Map<string | number, number>} */
  const known = new Map();
  for (let frame = 0; frame < of.length; frame++) {
    const library = frames.object[frame] >= 0 ? frames.object[frame] : frames.file[frame];
    const key = by === "line" ? frame : by === "function" ? frames.name[frame] : library;
    let group = known.get(key);
    if (group === undefined) {
      group = names.length;
      known.set(key, group);
      names.push(by === "library" ? (library < 0 ? "no file known" : strings[library]) : nameOf(profile, frame));
      example.push(frame);
    }
    of[frame] = group;
  }
  return { of, names, example };
}

/** Calls while they are made: found by caller and group through a table of open addressing. */
class Growing {
  constructor() {
    this.count = 1;
    this.room = 1 << 12;
    this.parent = new Int32Array(this.room).fill(-1);
    this.group = new Int32Array(this.room);
    this.depth = new Int32Array(this.room);
    this.table = new Int32Array(this.room * 2).fill(-1);
  }

  /**
   * Return the call that *parent* makes to *group*, made now if it is new.
   *
   * @param {number} parent
   * @param {number} group
   * @returns {number}
   */
  call(parent, group) {
    const mask = this.table.length - 1;
    let slot = (Math.imul(parent, 0x9e3779b1) ^ Math.imul(group, 0x85ebca6b)) & mask;
    for (;;) {
      const found = this.table[slot];
      if (found < 0) break;
      if (this.parent[found] === parent && this.group[found] === group) return found;
      slot = (slot + 1) & mask;
    }
    if (this.count === this.room) {
      this.grow();
      return this.call(parent, group);
    }
    const made = this.count++;
    this.parent[made] = parent;
    this.group[made] = group;
    this.depth[made] = this.depth[parent] + 1;
    this.table[slot] = made;
    return made;
  }

  grow() {
    this.room *= 2;
    for (const name of /** @type {const} */ (["parent", "group", "depth"])) {
      const longer = new Int32Array(this.room);
      longer.set(this[name]);
      this[name] = longer;
    }
    this.table = new Int32Array(this.room * 2).fill(-1);
    const mask = this.table.length - 1;
    for (let call = 1; call < this.count; call++) {
      let slot = (Math.imul(this.parent[call], 0x9e3779b1) ^ Math.imul(this.group[call], 0x85ebca6b)) & mask;
      while (this.table[slot] >= 0) slot = (slot + 1) & mask;
      this.table[slot] = call;
    }
  }
}

/**
 * Return the tree of calls that *view* shows.
 *
 * @param {Columns} profile
 * @param {View} view
 * @param {Shape} shape
 * @returns {Calls}
 */
export function makeCalls(profile, view, shape) {
  const { of, names, example } = groupFrames(profile, shape.by);
  const before = bytesBefore(profile, view);
  const after = profile.written.snapshots[view.after].bytes;
  const rest = { names, example, before, after, isChange: view.before >= 0 };
  if (shape.by === "line" && !shape.only && shape.inverted !== profile.written.outermost_first) {
    return laidOut(asWritten(profile, of), { ...rest, last: profile.ends });
  }
  return gathered(profile, shape, of, rest);
}

/**
 * Return the tree as the profile has it already.
 *
 * @param {Columns} profile
 * @param {Int32Array} of
 */
function asWritten(profile, of) {
  const { parent, frame } = profile;
  const depth = new Int32Array(parent.length);
  const group = new Int32Array(parent.length);
  for (let node = 1; node < parent.length; node++) {
    depth[node] = depth[parent[node]] + 1;
    group[node] = frame[node] < 0 ? 1 : of[frame[node]];
  }
  return { count: parent.length, parent, group, depth };
}

/**
 * Return the tree with the paths taken up one by one.
 *
 * @param {Columns} profile
 * @param {Shape} shape
 * @param {Int32Array} of
 * @param {{names: string[], example: number[], before: ArrayLike<number>, after: ArrayLike<number>, isChange: boolean}} rest
 */
function gathered(profile, shape, of, rest) {
  const { before, after } = rest;
  const growing = new Growing();
  const last = new Int32Array(profile.ends.length).fill(-1);
  /** @type {number[]} */
  const route = [];
  for (let path = 0; path < profile.ends.length; path++) {
    if (!before[path] && !after[path]) continue;
    route.length = 0;
    for (let node = profile.ends[path]; node > 0; node = profile.parent[node]) {
      const frame = profile.frame[node];
      if (shape.only && frame >= 0 && !shape.only[frame]) continue;
      const group = frame < 0 ? 1 : of[frame];
      if (shape.by === "library" && route[route.length - 1] === group) continue;
      route.push(group);
    }
    if (shape.inverted !== profile.written.outermost_first) route.reverse();
    let call = 0;
    for (const group of route) call = growing.call(call, group);
    last[path] = call;
  }
  return laidOut(growing, { ...rest, last });
}

/**
 * @param {{count: number, parent: Int32Array, group: Int32Array, depth: Int32Array}} made
 * @param {{names: string[], example: number[], last: Int32Array, before: ArrayLike<number>, after: ArrayLike<number>, isChange: boolean}} rest
 * @returns {Calls}
 */
function laidOut(made, rest) {
  const { count, parent, group, depth } = made;
  const before = new Float64Array(count);
  const after = new Float64Array(count);
  const weight = new Float64Array(count);
  for (let path = 0; path < rest.last.length; path++) {
    const call = rest.last[path];
    if (call < 0) continue;
    before[call] += rest.before[path];
    after[call] += rest.after[path];
    weight[call] += rest.isChange ? Math.abs(rest.after[path] - rest.before[path]) : rest.after[path];
  }
  let deepest = 0;
  for (let call = count - 1; call > 0; call--) {
    const caller = parent[call];
    before[caller] += before[call];
    after[caller] += after[call];
    weight[caller] += weight[call];
    if (weight[call] && depth[call] > deepest) deepest = depth[call];
  }
  const { first, order } = siblings(parent, weight, count);
  const start = new Float64Array(count);
  for (let caller = 0; caller < count; caller++) {
    let at = start[caller];
    for (let place = first[caller]; place < first[caller + 1]; place++) {
      start[order[place]] = at;
      at += weight[order[place]];
    }
  }
  const { names, last, isChange } = rest;
  const example = Int32Array.from(rest.example);
  return { isChange, count, group, names, example, parent, depth, before, after, weight, start, first, order, last, deepest };
}

/**
 * @param {Int32Array} parent
 * @param {Float64Array} weight
 * @param {number} count
 */
function siblings(parent, weight, count) {
  const first = new Int32Array(count + 1);
  for (let call = 1; call < count; call++) first[parent[call] + 1]++;
  for (let call = 0; call < count; call++) first[call + 1] += first[call];
  const next = first.slice();
  const order = new Int32Array(Math.max(count - 1, 0));
  for (let call = 1; call < count; call++) order[next[parent[call]]++] = call;
  for (let call = 0; call < count; call++) {
    if (first[call + 1] - first[call] > 1) {
      order.subarray(first[call], first[call + 1]).sort((a, b) => weight[b] - weight[a] || a - b);
    }
  }
  return { first, order };
}

/**
 * Return the groups that *pattern* matches, and their inclusive size: calls inside a match count once.
 *
 * @param {Calls} calls
 * @param {(group: number) => boolean} isMatch
 */
export function searchCalls(calls, isMatch) {
  const matches = new Uint8Array(calls.names.length);
  for (let group = 1; group < matches.length; group++) matches[group] = isMatch(group) ? 1 : 0;
  const inside = new Uint8Array(calls.count);
  let weight = 0;
  let change = 0;
  for (let call = 1; call < calls.count; call++) {
    if (inside[calls.parent[call]]) inside[call] = 1;
    else if (matches[calls.group[call]]) {
      inside[call] = 1;
      weight += calls.weight[call];
      change += calls.after[call] - calls.before[call];
    }
  }
  return { matches, weight, change };
}

/**
 * Return the change in bytes of the inclusive size of the calls of each class: a call inside another of its class
 * counts no more.
 *
 * @param {Calls} calls
 * @param {Int32Array} classOf of each group; -1: none
 * @param {number} classes
 */
export function changeThrough(calls, classOf, classes) {
  const sums = new Float64Array(classes);
  const inside = new Int32Array(classes);
  const next = calls.first.slice();
  let call = 0;
  while (call >= 0) {
    const its = classOf[calls.group[call]];
    if (next[call] === calls.first[call] && its >= 0 && inside[its]++ === 0) sums[its] += calls.after[call] - calls.before[call];
    if (next[call] < calls.first[call + 1]) {
      call = calls.order[next[call]++];
      continue;
    }
    if (its >= 0) inside[its]--;
    call = calls.parent[call];
  }
  return sums;
}

/**
 * Return the paths that came through *call*.
 *
 * @param {Calls} calls
 * @param {number} call
 */
export function pathsThrough(calls, call) {
  const within = new Uint8Array(calls.count);
  within[call] = 1;
  for (let other = call + 1; other < calls.count; other++) within[other] = within[calls.parent[other]];
  const found = [];
  for (let path = 0; path < calls.last.length; path++) {
    if (calls.last[path] >= 0 && within[calls.last[path]]) found.push(path);
  }
  return found;
}
