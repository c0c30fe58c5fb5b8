// Which functions only allocate for their callers, and so which frame names each path: both depend on the compared snapshots.
// It has the results of profiles/own_code.py and paths.py for the same snapshots; a test compares the two.

import { makeCalls } from "./calls.js";
import { framesOf } from "./profile.js";

/** @typedef {import("./profile.js").Columns} Columns */
/** @typedef {import("./profile.js").View} View */
/** @typedef {import("./calls.js").Calls} Calls */

/**
 * @typedef {object} Naming
 * @property {number[]} rank of each frame: how much it is the user's own
 * @property {number[]} functions number of each frame's function; -1: it has no name
 * @property {number[]} mine frames that the user called their own
 * @property {number[]} allocators frames
 * @property {number[]} nameless frames
 * @property {number[]} wrappers functions that have an allocator's name
 * @property {number[]} named functions with "alloc" in their names
 * @property {[number, number] | null} known the View that `site` and `own` belong to
 */

/** @typedef {{site: ArrayLike<number>, own: ArrayLike<number>}} Names for each path its frame, -1 or -2; for each frame whether it is the user's own */

const RANKS = { nobody: 0, other: 1, nameless: 2, wrapper: 3, own: 5 }; // as profiles/own_code.py has them
const MANY_CALLERS = 8;
const CALLERS_OF_NAMED = 2;
const WHOLE = 0.9; // the least part of a function's bytes that it asks the allocator for itself
const DEEPEST = 6; // wrappers of wrappers

/** @type {WeakMap<View, Names>} */
const namesOfViews = new WeakMap();

/**
 * Return the names of the paths and frames of *view*.
 *
 * @param {Columns} profile
 * @param {View} view
 * @returns {Names}
 */
export function namesIn(profile, view) {
  const { naming, site, frames } = profile.written;
  if (!naming || (naming.known && naming.known[0] === view.before && naming.known[1] === view.after)) return { site, own: frames.own };
  let names = namesOfViews.get(view);
  if (!names) {
    const calls = makeCalls(profile.whole || profile, view, { by: "line", inverted: true, only: null });
    const ranks = ranksOf(naming, wrappersOf(naming, calls));
    names = { site: sitesOf(profile, ranks), own: ranks.map((rank) => Number(rank === RANKS.own)) };
    namesOfViews.set(view, names);
  }
  return names;
}

/**
 * @param {Naming} naming
 * @param {ReadonlySet<number>} wrappers
 */
function ranksOf(naming, wrappers) {
  const ranks = Uint8Array.from(naming.rank, (rank, frame) => (wrappers.has(naming.functions[frame]) ? Math.min(rank, RANKS.wrapper) : rank));
  for (const frame of naming.mine) ranks[frame] = RANKS.own;
  return ranks;
}

/**
 * Return the frame of each path that is the user's own before all others, the innermost of them.
 *
 * @param {Columns} profile
 * @param {Uint8Array} ranks
 */
function sitesOf(profile, ranks) {
  const { site } = profile.written;
  return Int32Array.from(site, (known, path) => {
    if (known === -2) return known; // accepted, whatever it is called by
    let [chosen, best] = [-1, RANKS.nobody];
    const frames = framesOf(profile, path);
    for (let at = frames.length - 1; at >= 0 && best !== RANKS.own; at--) {
      const frame = frames[at];
      if (frame < 0 && best < RANKS.nameless) [chosen, best] = [-1, RANKS.nobody]; // bytes that are not listed have no library's name
      else if (frame >= 0 && ranks[frame] > best) [chosen, best] = [frame, ranks[frame]];
    }
    return chosen;
  });
}

/**
 * Return the functions that only allocate for their callers.
 *
 * @param {Naming} naming
 * @param {Calls} calls by line, the allocator's outermost
 */
export function wrappersOf(naming, calls) {
  const search = new WrapperSearch(naming, calls);
  const nameless = new Set(naming.nameless);
  const wrappers = new Set(naming.wrappers);
  let tops = search.tops();
  for (let turn = 0; turn < DEEPEST; turn++) {
    tops = search.beyond(tops, (frame) => wrappers.has(naming.functions[frame]) || (turn > 0 && nameless.has(frame)));
    const more = search.calledByMany(tops, nameless, turn === 0);
    if (!more.length && (turn || !nameless.size)) break;
    more.forEach((name) => wrappers.add(name));
  }
  return wrappers;
}

class WrapperSearch {
  /**
   * @param {Naming} naming
   * @param {Calls} calls
   */
  constructor(naming, calls) {
    this.naming = naming;
    this.calls = calls;
    this.named = new Set(naming.named);
  }

  /** @param {number} call */
  frameOf(call) {
    return this.calls.example[this.calls.group[call]];
  }

  /** Return the number of a call's function; -1: none. @param {number} call */
  functionOf(call) {
    const frame = this.frameOf(call);
    return frame < 0 ? -1 : this.naming.functions[frame];
  }

  /** @param {number} call */
  sizeOf(call) {
    return Math.max(this.calls.before[call], this.calls.after[call]);
  }

  /** Return the calls under *call* through which bytes came. @param {number} call */
  under(call) {
    const { first, order, before, after } = this.calls;
    return [...order.subarray(first[call], first[call + 1])].filter((one) => before[one] || after[one]);
  }

  /** Return the calls that ask an allocator themselves. */
  tops() {
    const allocators = new Set(this.naming.allocators.filter((frame) => this.naming.rank[frame] === RANKS.other));
    const found = [];
    const waiting = [0];
    for (let call = waiting.pop(); call !== undefined; call = waiting.pop()) {
      if (call && !allocators.has(this.frameOf(call))) found.push(call);
      else waiting.push(...this.under(call));
    }
    return found;
  }

  /**
   * Return the same calls, those that *isPassed* takes replaced by their callers.
   *
   * @param {number[]} tops
   * @param {(frame: number) => boolean} isPassed
   */
  beyond(tops, isPassed) {
    for (let turn = 0; turn < DEEPEST; turn++) {
      const passed = tops.filter((call) => this.frameOf(call) >= 0 && isPassed(this.frameOf(call)));
      if (!passed.length) break;
      const gone = new Set(passed);
      tops = [...tops.filter((call) => !gone.has(call)), ...passed.flatMap((call) => this.under(call))];
    }
    return tops;
  }

  /**
   * Return the functions of *tops* that many call, and that ask for nearly all of their bytes themselves.
   *
   * @param {number[]} tops
   * @param {ReadonlySet<number>} nameless
   * @param {boolean} anyName else only those with "alloc" in their names
   */
  calledByMany(tops, nameless, anyName) {
    /** @type {Map<number, number>} */
    const direct = new Map();
    for (const call of tops) {
      const name = this.functionOf(call);
      if (name < 0 || this.naming.rank[this.frameOf(call)] === RANKS.other || !(anyName || this.named.has(name))) continue;
      direct.set(name, (direct.get(name) || 0) + this.sizeOf(call));
    }
    const callers = this.callersOf(tops.filter((call) => direct.has(this.functionOf(call))), nameless);
    const enough = [...callers].filter(([name, those]) => those.size >= (this.named.has(name) ? CALLERS_OF_NAMED : MANY_CALLERS));
    const totals = this.totals(new Set(enough.map(([name]) => name)));
    return [...totals].filter(([name, size]) => (direct.get(name) || 0) >= WHOLE * size).map(([name]) => name);
  }

  /**
   * Return the functions that call those of *tops*, also through nameless ones.
   *
   * @param {number[]} tops
   * @param {ReadonlySet<number>} nameless
   */
  callersOf(tops, nameless) {
    /** @type {Map<number, Set<number>>} */
    const callers = new Map();
    let called = tops.map((call) => [call, this.functionOf(call)]);
    for (let turn = 0; turn < DEEPEST && called.length; turn++) {
      /** @type {number[][]} */
      const further = [];
      for (const [callee, name] of called) {
        for (const call of this.under(callee)) {
          const caller = this.functionOf(call);
          if (nameless.has(this.frameOf(call))) further.push([call, name]);
          else if (caller >= 0 && caller !== name) callers.set(name, (callers.get(name) || new Set()).add(caller));
        }
      }
      called = further;
    }
    return callers;
  }

  /** Return the bytes of all calls of each of these functions. @param {ReadonlySet<number>} names */
  totals(names) {
    /** @type {Map<number, number>} */
    const sums = new Map();
    for (let call = 1; call < this.calls.count && names.size; call++) {
      const name = this.functionOf(call);
      if (names.has(name)) sums.set(name, (sums.get(name) || 0) + this.sizeOf(call));
    }
    return sums;
  }
}
