// How far the difference of any two snapshots of a series may be off, since each leaves small call sites out.
// It has the results of profiles/diff.py for two snapshots; a test compares the two.

/** @typedef {import("./profile.js").Columns} Columns */
/** @typedef {import("./profile.js").View} View */
/** @typedef {import("./profile.js").Doubt} Doubt */

/**
 * @typedef {object} Hiding
 * @property {Side[]} sides of each snapshot
 * @property {number[]} address_frames of each address that a side numbers: the frame that calls from there
 * @property {number[]} inlined frames
 * @property {number[]} unknown frames of which neither function nor file is known
 * @property {number[]} many frames that may stand for any number of call sites
 * @property {number[]} unsited paths that end at places that are not listed, and in no line's call
 */

/**
 * @typedef {object} Side
 * @property {number[]} sites how many call sites of the snapshot each node stands for; 0: it is not there
 * @property {number[] | null} addresses numbers, each as its distance from the former one; null: of none known
 * @property {number} threshold bytes: each call site that is not listed is smaller; 0: unknown
 * @property {boolean} cut unlisted memory may lie anywhere
 * @property {number[] | null} variance of each path, bytes²; null: nothing is sampled
 * @property {number} recording sides of one share their samples, so that variances only grow; -1: of none
 */

const ANY_NUMBER = 2 ** 20; // of call sites
const PRUNED = -2;

/**
 * The nodes of two snapshots.
 *
 * @typedef {object} Pair
 * @property {Columns} profile
 * @property {Int32Array} nodes those that are in either, parents first
 * @property {Uint8Array} inner of each node: it has others under it
 * @property {Uint8Array} parting of each node: further out, its inlined calls part
 * @property {Uint8Array} unknown of each frame
 * @property {Uint8Array} inlined of each frame
 * @property {Float64Array | null} known of each frame: how many call sites it stands for; null: that is not known
 */

/**
 * Return how far the difference of the snapshots of *view* may be off.
 *
 * @param {Columns} profile
 * @param {Hiding} hiding
 * @param {View} view
 * @returns {Doubt | null}
 */
export function doubtBetween(profile, hiding, view) {
  const numbers = [view.before, view.after];
  const sides = numbers.map((number) => hiding.sides[number]);
  const sizes = numbers.map((number) => hiddenSizes(profile, number));
  const uncertain = new Float64Array(profile.parent.length);
  if (sizes.some((found) => found.size)) {
    const pair = pairOf(profile, hiding, sides);
    sides.forEach((side, at) => addHidden(uncertain, pair, side, sides[1 - at], sizes[at]));
  }
  const elsewhere = sides.every((side) => side.addresses) ? Math.max(...numbers.map((number) => sizeOf(profile, number, hiding.unsited))) : 0;
  const variance = sides.some((side) => side.variance) ? varianceOf(sides, profile.ends.length) : null;
  return { ...claims(profile, uncertain, numbers), elsewhere, variance };
}

/**
 * Return the variance of each path's change.
 *
 * @param {Side[]} sides
 * @param {number} count of paths
 */
function varianceOf([before, after], count) {
  const sign = before.recording >= 0 && before.recording === after.recording ? -1 : 1;
  return Float64Array.from({ length: count }, (_, path) => Math.abs((after.variance?.[path] || 0) + sign * (before.variance?.[path] || 0)));
}

/**
 * @param {Columns} profile
 * @param {number} snapshot
 * @param {number[]} paths
 */
function sizeOf(profile, snapshot, paths) {
  const { bytes } = profile.written.snapshots[snapshot];
  return paths.reduce((sum, path) => sum + bytes[path], 0);
}

/**
 * Return the memory that a snapshot omits beside the calls of each node.
 *
 * @param {Columns} profile
 * @param {number} snapshot
 * @returns {Map<number, number>}
 */
function hiddenSizes(profile, snapshot) {
  const { bytes } = profile.written.snapshots[snapshot];
  const found = new Map();
  profile.ends.forEach((end, path) => {
    if (profile.frame[end] === PRUNED && bytes[path]) found.set(profile.parent[end], bytes[path]);
  });
  return found;
}

/**
 * @param {Columns} profile
 * @param {Hiding} hiding
 * @param {Side[]} sides
 * @returns {Pair}
 */
function pairOf(profile, hiding, sides) {
  const { parent, frame } = profile;
  const count = profile.written.frames.name.length;
  const [inlined, unknown] = [hiding.inlined, hiding.unknown].map((numbers) => {
    const found = new Uint8Array(count);
    for (const number of numbers) found[number] = 1;
    return found;
  });
  const nodes = Int32Array.from(parent.keys()).filter((node) => node === 0 || sides.some((side) => side.sites[node]));
  const [inner, parting, children] = [0, 0, 0].map(() => new Uint8Array(parent.length));
  for (let at = nodes.length - 1; at > 0; at--) {
    const node = nodes[at];
    const above = parent[node];
    inner[above] = 1;
    if (!above || frame[above] < 0 || !inlined[frame[above]]) continue;
    parting[above] |= parting[node] | children[above];
    children[above] = 1;
  }
  return { profile, nodes, inner, parting, unknown, inlined, known: knownSites(hiding, sides, count) };
}

/**
 * @param {Hiding} hiding
 * @param {Side[]} sides
 * @param {number} count of frames
 */
function knownSites(hiding, sides, count) {
  const found = new Set();
  for (const { addresses } of sides) {
    if (!addresses) return null;
    let number = 0;
    for (const distance of addresses) found.add((number += distance));
  }
  const known = new Float64Array(count);
  for (const number of found) known[hiding.address_frames[number]]++;
  for (const frame of hiding.many) known[frame] = ANY_NUMBER;
  return known;
}

/**
 * Add to *uncertain* the memory that *side* may hide of the calls that *other* shows.
 *
 * @param {Float64Array} uncertain
 * @param {Pair} pair
 * @param {Side} side
 * @param {Side} other
 * @param {ReadonlyMap<number, number>} sizes the omitted memory
 */
function addHidden(uncertain, pair, side, other, sizes) {
  if (!sizes.size) return;
  const { nodes, inner, parting, unknown, inlined, known } = pair;
  const { parent, frame } = pair.profile;
  const [here, there] = [side.sites, other.sites];
  const [largest, total, own] = [0, 0, 0].map(() => new Float64Array(parent.length)); // the first two: hidden under a call
  const nameless = new Uint8Array(parent.length);
  for (const node of nodes) {
    const [number, above] = [frame[node], parent[node]];
    if (number === PRUNED) continue;
    const [aboveLargest, aboveTotal] = node ? [largest[above], total[above]] : [0, 0];
    if (node) nameless[node] = nameless[above] | unknown[number];
    let isPlain = here[node] <= 1 && there[node] <= 1 && !nameless[node] && !parting[node];
    let missing = isPlain ? there[node] - here[node] : there[node];
    if (known && node) {
      const others = known[number] * Math.max(here[above], 1) - here[node];
      isPlain = isPlain && others <= 0;
      missing = Math.max(missing, others);
    }
    if (missing > 0 && aboveTotal) own[node] = side.cut && inner[node] ? aboveTotal : Math.min(aboveTotal, missing * aboveLargest);
    if (known && node) own[node] = Math.max(own[node], own[above]);
    uncertain[node] += own[node];
    const hidden = sizes.get(node) || 0;
    const isSingle = !side.cut && (node === 0 || (isPlain && here[node] === there[node] && !inlined[number]));
    const capped = side.threshold ? Math.min(hidden, side.threshold) : hidden;
    largest[node] = isSingle ? capped : Math.max(capped, aboveLargest);
    total[node] = isSingle ? hidden : hidden + aboveTotal;
  }
}

/**
 * Return the part of the hidden memory that each path may claim where its uncertainty begins.
 *
 * @param {Columns} profile
 * @param {Float64Array} uncertain of each node
 * @param {number[]} numbers of the two snapshots
 */
function claims(profile, uncertain, numbers) {
  const { parent, frame, ends } = profile;
  const begin = Int32Array.from(parent.keys());
  for (let node = 1; node < begin.length; node++) if (uncertain[parent[node]]) begin[node] = begin[parent[node]];
  const most = Float64Array.from(uncertain);
  ends.forEach((end, path) => {
    if (frame[end] === PRUNED && uncertain[begin[end]]) most[begin[end]] += sizeOf(profile, numbers[0], [path]) + sizeOf(profile, numbers[1], [path]);
  });
  const bound = Float64Array.from(ends, (end) => uncertain[end]);
  return { bound, origin: Int32Array.from(ends, (end) => begin[end]), most };
}
