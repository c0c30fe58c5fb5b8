// The axes of a picture over time: ranges that are zoomed and moved, round numbers on them, lines drawn between.

import { formatSizeTo } from "./sizes.js";

/** @typedef {{low: number, high: number}} Range */
/** @typedef {{at: number, text: string}} Tick */
/** @typedef {(value: number) => number} Scale pixels */

const TICKS = 7; // at most, about
const SIZE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500]; // times a power of 1024
const SECOND_STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
const LOG_STEPS = [1, 2, 5, 10, 20]; // doublings

/**
 * Return *range* moved by *by*, within *whole*.
 *
 * @param {Range} range
 * @param {Range} whole
 * @param {number} by
 * @returns {Range}
 */
export function movedRange(range, whole, by) {
  const width = Math.min(range.high - range.low, whole.high - whole.low);
  const low = Math.min(Math.max(range.low + by, whole.low), whole.high - width);
  return { low, high: low + width };
}

/**
 * Return *range* with *factor* times less of the axis in it, within *whole*; *at* stays where it is.
 *
 * @param {Range} range
 * @param {Range} whole
 * @param {number} factor
 * @param {number} at
 * @param {number} least the narrowest range
 * @returns {Range}
 */
export function zoomedRange(range, whole, factor, at, least) {
  const width = Math.min(Math.max((range.high - range.low) / factor, least), whole.high - whole.low);
  const share = (at - range.low) / (range.high - range.low);
  return movedRange({ low: at - share * width, high: at + (1 - share) * width }, whole, 0);
}

/**
 * Return the range in which *first* and *second* lie at these shares of its width, 0 to 1.
 *
 * @param {[number, number]} values
 * @param {[number, number]} shares
 * @returns {Range}
 */
export function rangeThrough([first, second], [one, other]) {
  const width = (second - first) / (other - one);
  return { low: first - one * width, high: first + (1 - one) * width };
}

/**
 * Return the index of the first of *times*, which rise, that is not before *t*.
 *
 * @param {ArrayLike<number>} times
 * @param {number} t
 */
export function firstFrom(times, t) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < t) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Return the index of the one of *times*, which rise, that is nearest to *t*; -1 if there is none.
 *
 * @param {ArrayLike<number>} times
 * @param {number} t
 */
export function nearestTo(times, t) {
  const after = firstFrom(times, t);
  if (after === times.length) return times.length - 1;
  return after > 0 && t - times[after - 1] <= times[after] - t ? after - 1 : after;
}

/**
 * Return the indices of the points drawn for *range*: those in it, and one more to either side.
 *
 * @param {ArrayLike<number>} times
 * @param {Range} range
 * @returns {[number, number]}
 */
export function drawnPart(times, range) {
  return [Math.max(firstFrom(times, range.low) - 1, 0), Math.min(firstFrom(times, range.high) + 1, times.length)];
}

/**
 * Return a line as SVG's path; of many points in one column of pixels the first, least, greatest and last.
 *
 * @param {ArrayLike<number>} times
 * @param {ArrayLike<number>} values
 * @param {ReadonlySet<number>} begins points to which no line leads
 * @param {Range} range
 * @param {Scale} x
 * @param {Scale} y
 */
export function linePath(times, values, begins, range, x, y) {
  const [first, last] = drawnPart(times, range);
  /** @type {string[]} */
  const words = [];
  for (let at = first; at < last; ) {
    const isBegin = at === first || begins.has(at);
    const column = Math.floor(x(times[at]));
    let [end, least, greatest] = [at, at, at];
    while (end + 1 < last && !begins.has(end + 1) && Math.floor(x(times[end + 1])) === column) {
      end++;
      if (values[end] < values[least]) least = end;
      if (values[end] > values[greatest]) greatest = end;
    }
    const chosen = [...new Set([at, least, greatest, end])].sort((a, b) => a - b);
    chosen.forEach((point, number) => words.push(`${isBegin && !number ? "M" : "L"}${x(times[point]).toFixed(1)} ${y(values[point]).toFixed(1)}`));
    at = end + 1;
  }
  return words.join("");
}

/**
 * Return the area between two lines over the same times as SVG's path.
 *
 * @param {ArrayLike<number>} times
 * @param {ArrayLike<number>} below
 * @param {ArrayLike<number>} above
 * @param {Range} range
 * @param {Scale} x
 * @param {Scale} y
 */
export function areaPath(times, below, above, range, x, y) {
  const [first, last] = drawnPart(times, range);
  const words = [];
  for (let at = first; at < last; at++) words.push(`${x(times[at]).toFixed(1)} ${y(above[at]).toFixed(1)}`);
  for (let at = last - 1; at >= first; at--) words.push(`${x(times[at]).toFixed(1)} ${y(below[at]).toFixed(1)}`);
  return words.length ? `M${words.join("L")}Z` : "";
}

/**
 * Return the size at *level* of the axis, which is a logarithm if the axis is logarithmic.
 *
 * @param {number} level
 * @param {boolean} isLog
 */
export function sizeAt(level, isLog) {
  return isLog ? 2 ** level : level;
}

/**
 * Return the level of *size*; of nothing, and less, on a logarithmic axis, a level below all others.
 *
 * @param {number} size
 * @param {boolean} isLog
 */
export function levelOf(size, isLog) {
  if (!isLog) return size;
  return size > 0 ? Math.log2(size) : -64;
}

/**
 * Return a logarithmic axis on which *least* and *most* have room; doublings.
 *
 * @param {number} least the smallest size that is more than nothing
 * @param {number} most
 * @returns {Range}
 */
export function logRange(least, most) {
  const high = Math.log2(Math.max(most, 2));
  return { low: Math.max(Math.min(Math.floor(Math.log2(least)), Math.ceil(high) - 1), 0), high };
}

/**
 * Return round sizes on the axis, each with its level.
 *
 * @param {Range} range of levels
 * @param {boolean} isLog
 * @returns {Tick[]}
 */
export function sizeTicks(range, isLog) {
  const width = range.high - range.low;
  if (!isLog || width < 2) {
    const [low, high] = [sizeAt(range.low, isLog), sizeAt(range.high, isLog)];
    const found = multiples(low, high, sizeStep((high - low) / TICKS));
    return distinct(found, formatSizeTo).map(({ at, text }) => ({ at: levelOf(at, isLog), text }));
  }
  const step = LOG_STEPS.find((doublings) => width / doublings <= TICKS) || 20;
  return multiples(range.low, range.high, step).map((at) => ({ at, text: formatSizeTo(2 ** at, at < 10 ? 0 : 1) }));
}

/** @param {number} least */
function sizeStep(least) {
  for (let power = 1; ; power *= 1024) {
    const found = SIZE_STEPS.find((step) => step * power >= least);
    if (found) return found * power;
  }
}

/**
 * Return round times on the axis.
 *
 * @param {Range} range
 * @param {string} unit s, ms, i (instructions), B (allocated), # (numbered)
 * @returns {Tick[]}
 */
export function timeTicks(range, unit) {
  const least = (range.high - range.low) / TICKS;
  const step = unit === "B" ? sizeStep(least) : unit === "s" ? secondStep(least) : unit === "ms" ? 1000 * secondStep(least / 1000) : decimalStep(least);
  const found = multiples(range.low, range.high, unit === "#" || unit === "i" ? Math.max(step, 1) : step);
  return distinct(found, (t, digits) => formatTime(t, unit, step, digits));
}

/** @param {number} least */
function secondStep(least) {
  if (least <= 0.5) return decimalStep(least);
  return SECOND_STEPS.find((step) => step >= least) || Math.ceil(least / 86400) * 86400;
}

/** @param {number} least */
function decimalStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * /** @type {number} */ ([1, 2, 5, 10].find((factor) => factor * power >= least * 0.999999));
}

/**
 * @param {number} low
 * @param {number} high
 * @param {number} step
 */
function multiples(low, high, step) {
  const found = [];
  const slack = 1e-6 * step;
  for (let number = Math.ceil((low - slack) / step); number * step <= high + slack; number++) found.push(number * step || 0); // never -0
  return found;
}

/**
 * Format numbers with as few decimals as distinguish them, at least one.
 *
 * @param {number[]} numbers
 * @param {(number: number, digits: number) => string} write
 * @returns {Tick[]}
 */
function distinct(numbers, write) {
  for (let digits = 1; ; digits++) {
    const texts = numbers.map((number) => write(number, digits));
    if (digits === 9 || new Set(texts).size === texts.length) return numbers.map((at, number) => ({ at, text: texts[number] }));
  }
}

/**
 * Return a moment for people, as finely as *step* from one to the next asks for.
 *
 * @param {number} t
 * @param {string} unit
 * @param {number} step
 * @param {number} [digits] of units that are scaled
 */
export function formatTime(t, unit, step, digits = 1) {
  if (unit === "#") return `number ${Math.round(t).toLocaleString("en-US")}`;
  if (unit === "B") return `${formatSizeTo(t, digits)} allocated`;
  if (unit === "i") return `${formatCount(t, digits)} instructions`;
  return unit === "ms" ? formatSeconds(t / 1000, step / 1000) : formatSeconds(t, step);
}

/**
 * @param {number} count
 * @param {number} digits
 */
function formatCount(count, digits) {
  const [size, suffix] = count >= 1e9 ? [1e9, " G"] : count >= 1e6 ? [1e6, " M"] : count >= 1e3 ? [1e3, " k"] : [1, ""];
  const places = suffix ? digits : 0;
  return (count / size).toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places }) + suffix;
}

/**
 * @param {number} seconds
 * @param {number} step
 */
function formatSeconds(seconds, step) {
  const digits = step >= 1 ? 0 : Math.min(Math.ceil(-Math.log10(step) - 1e-9), 6);
  const rounded = Number(seconds.toFixed(digits));
  if (rounded === 0) return "0";
  if (rounded < 60) return `${rounded.toFixed(digits)} s`;
  const minutes = Math.floor(rounded / 60);
  const rest = rounded - 60 * minutes;
  const words = minutes < 60 ? [`${minutes} min`] : [`${Math.floor(minutes / 60)} h`, ...(minutes % 60 ? [`${minutes % 60} min`] : [])];
  return rest > 1e-9 || step < 1 ? [...words, `${rest.toFixed(digits)} s`].join(" ") : words.join(" ");
}
