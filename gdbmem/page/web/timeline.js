// Pictures over time that can be zoomed and moved, with a logarithmic axis and the values at the pointer.

import { areaPath, drawnPart, formatTime, levelOf, linePath, logRange, movedRange, nearestTo, rangeThrough, sizeTicks, timeTicks, zoomedRange } from "./scales.js";
import { formatSize } from "./sizes.js";
import { unpacked } from "./unpacking.js";

/** @typedef {import("./scales.js").Range} Range */

/**
 * Parts of a picture, in the order of its elements, as series/charts.py and page/pictures.py
 * write it.
 *
 * @typedef {object} Course
 * @property {[number, number, number, number]} plot left, top, width and height of the part that is zoomed
 * @property {string} unit of time: s, ms, i (instructions), B (allocated), # (numbered)
 * @property {[number, number]} span the first time and the last
 * @property {number} most bytes at the top
 * @property {boolean} stacked the curves lie on each other, over the same times; one of them at least
 * @property {Curve[]} curves
 * @property {{name: string, top: number, height: number, most: number}[]} panels smaller plots of counts below
 * @property {string[]} moments names of the times of a stack
 * @property {[number, string][]} marks
 * @property {[number, number, string][]} regimes begin, end, kind
 */

/**
 * @typedef {object} Curve
 * @property {string} name
 * @property {string} color
 * @property {number[]} times rising
 * @property {number[]} values
 * @property {number[]} begins points to which no line leads
 * @property {number} panel -1: in the plot of bytes
 */

const SVG = "http://www.w3.org/2000/svg";
const LETTER = 6; // pixels a letter of a mark is wide, about
const CLICK = 4; // pixels that a pointer may move and still click
const STRETCH = 24; // pixels that two fingers must be apart along an axis to zoom it
const HINT =
  "Drag to move, Shift and drag to zoom to a part, Ctrl and the wheel or two fingers to zoom (on the sizes: those). " +
  "Keys: ← → read, + − zoom, Shift ← → move, * / zoom the sizes, ↑ ↓ move them, L log scale, F fit sizes, 0 whole.";

let count = 0; // of pictures on this page

/**
 * @param {string} name
 * @param {Record<string, string | number>} attributes
 * @param {string} [text]
 */
function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/**
 * @param {Element | null} where
 * @param {Record<string, number>} numbers
 */
function place(where, numbers) {
  for (const [key, value] of Object.entries(numbers)) where?.setAttribute(key, value.toFixed(1));
}

export class Timeline {
  /**
   * @param {HTMLElement} figure
   * @param {Course} course
   */
  constructor(figure, course) {
    this.figure = figure;
    this.course = course;
    this.svg = /** @type {SVGSVGElement} */ (figure.querySelector("svg"));
    this.plot = /** @type {SVGGElement} */ (figure.querySelector("g.plot"));
    this.begins = course.curves.map((curve) => new Set(curve.begins));
    /** @type {number[][]} upper edges of a stack, from nothing up */
    this.tops = [course.curves[0].times.map(() => 0)];
    if (course.stacked) {
      for (const { values } of course.curves) this.tops.push(values.map((size, at) => size + this.tops[this.tops.length - 1][at]));
    }
    /** @type {Range} */
    this.wholeTime = { low: course.span[0], high: course.span[1] };
    this.time = this.wholeTime;
    this.isLog = false;
    this.level = this.wholeLevel();
    this.moment = NaN; // that is read
    this.asked = 0;
    /** @type {Map<number, DOMPoint>} */
    this.pointers = new Map();
    /** @type {{kind: "none" | "move" | "box" | "pinch", from: DOMPoint, time: Range, level: Range, other?: DOMPoint}} */
    this.drag = { kind: "none", from: new DOMPoint(), time: this.time, level: this.level };
    this.isDragged = false;
    this.prepare();
    this.listen();
    this.draw(); // axes read from the first as they will when zoomed
  }

  get bytes() {
    return this.course.curves.filter((curve) => curve.panel < 0);
  }

  /** Return the whole axis of sizes. @returns {Range} */
  wholeLevel() {
    const { most } = this.course;
    if (!this.isLog) return { low: 0, high: most };
    let least = most;
    for (const { values } of this.bytes) for (const size of values) if (size > 0 && size < least) least = size;
    return logRange(least, most);
  }

  prepare() {
    const { plot, svg, course } = this;
    const parts = (/** @type {string} */ selector) => /** @type {SVGElement[]} */ ([...plot.querySelectorAll(selector)]);
    this.paths = parts("path.curve");
    this.marks = parts("g.mark");
    this.regimes = parts("g.regime");
    this.picks = parts("g.pick");
    const picture = ++count;
    const clips = [course.plot, ...course.panels.map((panel) => [course.plot[0], panel.top, course.plot[2], panel.height])].map(([x, y, width, height], number) => {
      const clip = shape("clipPath", { id: `clip-${picture}-${number}` });
      clip.append(shape("rect", { x, y: y - 1, width, height: height + 2 }));
      return clip;
    });
    plot.prepend(...clips);
    const clipped = (/** @type {SVGElement} */ part, panel = -1) => part.setAttribute("clip-path", `url(#clip-${picture}-${panel + 1})`);
    this.paths.forEach((path, number) => clipped(path, course.curves[number].panel));
    for (const part of [...this.marks, ...this.regimes, ...this.picks]) clipped(part);
    this.marks.forEach((mark, number) => {
      if (!mark.querySelector("text")) mark.append(shape("text", { y: course.plot[1] + 10, fill: "#777777", "font-size": 10 }, course.marks[number][1]));
    });
    this.together = shape("path", { fill: "none", stroke: "currentColor", "stroke-width": 1.5, class: "together" });
    this.cursor = shape("line", { class: "cursor", stroke: "currentColor", display: "none", y1: course.plot[1], y2: this.bottom });
    this.box = shape("rect", { class: "box", fill: "#1f5fbf", "fill-opacity": 0.15, stroke: "#1f5fbf", display: "none" });
    clipped(this.together);
    this.paths[this.paths.length - 1].after(this.together);
    plot.append(this.cursor, this.box);
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("role", "application");
    if (!svg.hasAttribute("aria-label")) svg.setAttribute("aria-label", "memory over time");
    svg.setAttribute("aria-description", HINT);
    this.reading = document.createElement("p");
    this.reading.className = "reading";
    this.figure.append(this.controls(), this.reading);
    this.figure.classList.add("live");
  }

  /** The lower edge of all plots. */
  get bottom() {
    const { plot, panels } = this.course;
    const last = panels[panels.length - 1];
    return last ? last.top + last.height : plot[1] + plot[3];
  }

  controls() {
    const row = document.createElement("div");
    row.className = "controls";
    const button = (/** @type {string} */ text, /** @type {() => void} */ act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      made.addEventListener("click", act);
      return made;
    };
    this.logBox = document.createElement("input");
    this.logBox.type = "checkbox";
    this.logBox.addEventListener("change", () => this.setLog(this.logBox?.checked === true));
    const label = document.createElement("label");
    label.append(this.logBox, " log scale");
    const hint = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "mouse, fingers, keys";
    hint.className = "dim";
    hint.append(summary, HINT);
    row.append(
      button("zoom in", () => this.zoomTime(2)),
      button("zoom out", () => this.zoomTime(0.5)),
      button("fit sizes", () => this.fitSizes()),
      label,
      button("whole", () => this.showWhole()),
      hint,
    );
    return row;
  }

  listen() {
    const { svg } = this;
    svg.addEventListener("pointerdown", (event) => this.down(event));
    svg.addEventListener("pointermove", (event) => this.move(event));
    for (const kind of /** @type {const} */ (["pointerup", "pointercancel"])) svg.addEventListener(kind, (event) => this.up(event));
    svg.addEventListener("pointerleave", () => {
      if (!this.pointers.size && document.activeElement !== svg) this.read(NaN);
    });
    svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    svg.addEventListener("keydown", (event) => this.key(event));
    svg.addEventListener("focusin", (event) => this.reveal(event.target));
    // A drag that ends over a snapshot does not choose it.
    svg.addEventListener(
      "click",
      (event) => {
        if (!this.isDragged) return;
        this.isDragged = false;
        event.stopPropagation();
      },
      true,
    );
  }

  /** Return the position of a pointer on the picture. @param {MouseEvent} event */
  pointAt(event) {
    const matrix = this.plot.getScreenCTM();
    const point = new DOMPoint(event.clientX, event.clientY);
    return matrix ? point.matrixTransform(matrix.inverse()) : point;
  }

  /** @param {DOMPoint} point */
  isOnPlot(point) {
    const [left, , width] = this.course.plot;
    return point.x >= left && point.x <= left + width;
  }

  /** @param {DOMPoint} point */
  timeAt(point) {
    const [left, , width] = this.course.plot;
    return this.time.low + ((point.x - left) / width) * (this.time.high - this.time.low);
  }

  /** @param {DOMPoint} point */
  levelAt(point) {
    const [, top, , height] = this.course.plot;
    return this.level.high - ((point.y - top) / height) * (this.level.high - this.level.low);
  }

  /** @param {PointerEvent} event */
  down(event) {
    const point = this.pointAt(event);
    if (event.button !== 0 || !this.isOnPlot(point)) return;
    this.isDragged = false;
    this.pointers.set(event.pointerId, point);
    this.beginDrag(event.shiftKey && event.pointerType === "mouse" ? "box" : "move");
    if (this.drag.kind === "box") event.preventDefault();
  }

  /** @param {"move" | "box"} kind */
  beginDrag(kind) {
    const [from, other] = [...this.pointers.values()];
    this.drag = { kind: other ? "pinch" : kind, from, time: this.time, level: this.level, other };
  }

  /** @param {PointerEvent} event */
  move(event) {
    const point = this.pointAt(event);
    if (!this.pointers.has(event.pointerId)) {
      if (event.pointerType === "mouse") this.read(this.isOnPlot(point) ? this.timeAt(point) : NaN);
      return;
    }
    this.pointers.set(event.pointerId, point);
    const { drag } = this;
    if (drag.kind === "pinch") {
      this.isDragged = true;
      this.pinch();
      return;
    }
    const scale = this.plot.getScreenCTM()?.a || 1;
    const isFar = Math.hypot(point.x - drag.from.x, point.y - drag.from.y) * scale > CLICK;
    if (!this.isDragged && !isFar) return;
    this.isDragged = true;
    this.svg.setPointerCapture(event.pointerId);
    if (drag.kind === "box") this.showBox(drag.from, point);
    else {
      const [, , width, height] = this.course.plot;
      const [across, up] = [(drag.from.x - point.x) / width, (point.y - drag.from.y) / height];
      this.time = movedRange(drag.time, this.wholeTime, across * (drag.time.high - drag.time.low));
      this.level = movedRange(drag.level, this.wholeLevel(), up * (drag.level.high - drag.level.low));
      this.drawSoon();
    }
  }

  /** Keep the points under two fingers under them. */
  pinch() {
    const { time, level, from, other } = this.drag;
    const [first, second] = [...this.pointers.values()];
    if (!other || !second) return;
    const [left, top, width, height] = this.course.plot;
    const held = (/** @type {Range} */ range, /** @type {number} */ share) => range.low + share * (range.high - range.low);
    const along = (/** @type {Range} */ range, /** @type {Range} */ whole, /** @type {(p: DOMPoint) => number} */ share, /** @type {number} */ apart, /** @type {number} */ least) => {
      const begun = [share(from), share(other)];
      const now = [share(first), share(second)];
      if (Math.abs(begun[1] - begun[0]) < apart || (now[1] - now[0]) * (begun[1] - begun[0]) <= 0) {
        return movedRange(range, whole, ((begun[0] + begun[1] - now[0] - now[1]) / 2) * (range.high - range.low));
      }
      const found = rangeThrough([held(range, begun[0]), held(range, begun[1])], [now[0], now[1]]);
      const middle = (found.low + found.high) / 2;
      return zoomedRange(found, whole, 1, middle, least);
    };
    this.time = along(time, this.wholeTime, (point) => (point.x - left) / width, STRETCH / width, this.leastTime);
    this.level = along(level, this.wholeLevel(), (point) => 1 - (point.y - top) / height, STRETCH / height, this.leastLevel);
    this.drawSoon();
  }

  /** @param {PointerEvent} event */
  up(event) {
    const end = this.pointers.get(event.pointerId);
    if (!end) return;
    this.pointers.delete(event.pointerId);
    const { drag } = this;
    if (drag.kind === "box") {
      this.box?.setAttribute("display", "none");
      if (this.isDragged && event.type === "pointerup") this.zoomToBox(drag.from, end);
    } else if (!this.isDragged && event.type === "pointerup") this.read(this.timeAt(end));
    if (this.pointers.size) this.beginDrag("move");
    else if (this.isDragged) setTimeout(() => (this.isDragged = false)); // after the click that this may be
  }

  /**
   * @param {DOMPoint} from
   * @param {DOMPoint} to
   */
  showBox(from, to) {
    place(this.box || null, {
      x: Math.min(from.x, to.x),
      y: Math.min(from.y, to.y),
      width: Math.abs(from.x - to.x),
      height: Math.abs(from.y - to.y),
    });
    this.box?.setAttribute("display", "inline");
  }

  /**
   * Zoom to the area between two points; an axis on which they hardly differ stays unchanged.
   *
   * @param {DOMPoint} from
   * @param {DOMPoint} to
   */
  zoomToBox(from, to) {
    const between = (/** @type {number} */ one, /** @type {number} */ other, /** @type {Range} */ whole, /** @type {number} */ least) =>
      zoomedRange({ low: Math.min(one, other), high: Math.max(one, other) }, whole, 1, (one + other) / 2, least);
    const [times, levels] = [[this.timeAt(from), this.timeAt(to)], [this.levelAt(from), this.levelAt(to)]];
    if (Math.abs(from.x - to.x) > STRETCH / 2) this.time = between(times[0], times[1], this.wholeTime, this.leastTime);
    if (Math.abs(from.y - to.y) > STRETCH / 2) this.level = between(levels[0], levels[1], this.wholeLevel(), this.leastLevel);
    this.drawSoon();
  }

  get leastTime() {
    return (this.wholeTime.high - this.wholeTime.low) / 10000;
  }

  get leastLevel() {
    return this.isLog ? 0.05 : Math.max(this.course.most / 1e6, 8);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    const by = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 20 : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const factor = 2 ** (-Math.max(Math.min((event.deltaY || event.deltaX) * by, 300), -300) / 200);
      const point = this.pointAt(event);
      if (event.shiftKey || !this.isOnPlot(point)) this.zoomSizes(factor, this.levelAt(point));
      else this.zoomTime(factor, this.timeAt(point));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && this.time.high - this.time.low < this.wholeTime.high - this.wholeTime.low) {
      event.preventDefault();
      this.moveTime((event.deltaX * by) / 1000);
    }
  }

  /**
   * @param {number} factor
   * @param {number} [at]
   */
  zoomTime(factor, at) {
    const middle = this.moment >= this.time.low && this.moment <= this.time.high ? this.moment : (this.time.low + this.time.high) / 2;
    this.time = zoomedRange(this.time, this.wholeTime, factor, at ?? middle, this.leastTime);
    this.drawSoon();
  }

  /**
   * @param {number} factor
   * @param {number} [at]
   */
  zoomSizes(factor, at) {
    this.level = zoomedRange(this.level, this.wholeLevel(), factor, at ?? (this.level.low + this.level.high) / 2, this.leastLevel);
    this.drawSoon();
  }

  /** @param {number} share of the visible part */
  moveTime(share) {
    this.time = movedRange(this.time, this.wholeTime, share * (this.time.high - this.time.low));
    this.drawSoon();
  }

  /** Fit the axis of sizes to the visible part; a stack from 0 up. */
  fitSizes() {
    let [least, most] = [Infinity, -Infinity];
    for (const [times, sizes] of this.seen()) {
      const [first, last] = drawnPart(times, this.time);
      for (let at = first; at < last; at++) {
        const level = levelOf(sizes[at], this.isLog);
        if (this.isLog && sizes[at] <= 0) continue;
        [least, most] = [Math.min(least, level), Math.max(most, level)];
      }
    }
    if (least > most) return;
    if (this.course.stacked && !this.isLog) least = 0;
    const margin = 0.04 * (most - least) || this.leastLevel;
    this.level = zoomedRange({ low: least - margin, high: most + margin }, this.wholeLevel(), 1, (least + most) / 2, this.leastLevel);
    this.drawSoon();
  }

  /** The lines of bytes as they are drawn. @returns {[number[], number[]][]} */
  seen() {
    const { stacked, curves } = this.course;
    /** @type {[number[], number[]][]} */
    const lines = stacked && !this.isLog ? [] : this.bytes.map((curve) => [curve.times, curve.values]);
    return stacked ? [...lines, [curves[0].times, this.tops[this.tops.length - 1]]] : lines;
  }

  /** @param {boolean} isLog */
  setLog(isLog) {
    this.isLog = isLog;
    if (this.logBox) this.logBox.checked = isLog;
    this.level = this.wholeLevel();
    this.drawSoon();
  }

  showWhole() {
    this.time = this.wholeTime;
    this.level = this.wholeLevel();
    this.drawSoon();
  }

  drawSoon() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      this.draw();
    });
  }

  draw() {
    const { course, time, level, isLog } = this;
    const [left, top, width, height] = course.plot;
    const x = (/** @type {number} */ t) => left + ((t - time.low) / (time.high - time.low)) * width;
    const y = (/** @type {number} */ size) => top + ((level.high - Math.max(levelOf(size, isLog), level.low - 1e3 * (level.high - level.low))) / (level.high - level.low)) * height;
    this.drawCurves(x, y);
    this.drawBeside(x);
    const right = left + width;
    const levels = sizeTicks(level, isLog).flatMap(({ at, text }) => {
      const line = shape("line", { x1: left, x2: right, stroke: course.stacked ? "#8884" : "#dddddd" });
      const label = shape("text", { x: left - 6, "text-anchor": "end" }, text);
      const down = top + ((level.high - at) / (level.high - level.low)) * height;
      place(line, { y1: down, y2: down });
      place(label, { y: down + 4 });
      return [line, label];
    });
    this.plot.querySelector("g.levels")?.replaceChildren(...levels);
    const times = timeTicks(time, course.unit).flatMap(({ at, text }) => {
      const half = (LETTER * text.length) / 2;
      const label = shape("text", { y: top + height + 18, "text-anchor": "middle" }, text);
      place(label, { x: Math.min(x(at), right + 18 - half) });
      const line = shape("line", { y1: top + height, y2: top + height + 5, stroke: "#555" });
      place(line, { x1: x(at), x2: x(at) });
      return [line, label];
    });
    this.plot.querySelector("g.times")?.replaceChildren(...times);
    const isSeen = this.moment >= time.low && this.moment <= time.high;
    if (isSeen) place(this.cursor || null, { x1: x(this.moment), x2: x(this.moment) });
    this.cursor?.setAttribute("display", isSeen ? "inline" : "none");
  }

  /**
   * @param {import("./scales.js").Scale} x
   * @param {import("./scales.js").Scale} y
   */
  drawCurves(x, y) {
    const { course, time, isLog } = this;
    this.paths?.forEach((path, number) => {
      const { times, values, panel, color } = course.curves[number];
      if (course.stacked && !isLog) path.setAttribute("d", areaPath(times, this.tops[number], this.tops[number + 1], time, x, y));
      else {
        const plot = course.panels[panel];
        const down = plot ? (/** @type {number} */ value) => plot.top + (1 - value / plot.most) * plot.height : y;
        path.setAttribute("d", linePath(times, values, this.begins[number], time, x, down));
      }
      if (!course.stacked) return;
      // Areas on a logarithmic axis would show wrong sizes: there each line is drawn separately.
      path.setAttribute("fill", isLog ? "none" : color);
      path.setAttribute("stroke", isLog ? color : "none");
      path.setAttribute("stroke-width", "2");
    });
    if (!course.stacked) return;
    const top = this.tops[this.tops.length - 1];
    this.together?.setAttribute("d", isLog ? linePath(course.curves[0].times, top, this.begins[0], time, x, y) : "");
  }

  /** Draw marks, intervals and selectable points. @param {import("./scales.js").Scale} x */
  drawBeside(x) {
    const { course } = this;
    const [left, , width] = course.plot;
    let freeFrom = left;
    this.marks?.forEach((mark, number) => {
      const [t, name] = course.marks[number];
      const at = x(t);
      const line = mark.querySelector("line");
      const label = mark.querySelector("text");
      place(line, { x1: at, x2: at });
      place(label, { x: at + 3 });
      const isShown = at >= freeFrom && at + LETTER * name.length < left + width + 20;
      if (isShown) freeFrom = at + LETTER * name.length + 8;
      label?.setAttribute("display", isShown ? "inline" : "none");
    });
    this.regimes?.forEach((regime, number) => {
      const [begin, end, kind] = course.regimes[number];
      const from = Math.max(x(begin), left);
      const wide = Math.max(Math.min(x(end), left + width) - from, 0);
      place(regime.querySelector("rect"), { x: from, width: wide });
      place(regime.querySelector("line"), { x1: x(begin), x2: x(begin) });
      const label = regime.querySelector("text");
      place(label, { x: from + 4 });
      if (label) label.textContent = wide > LETTER * kind.length + 8 ? kind : "";
    });
    const times = course.curves[0].times;
    this.picks?.forEach((pick, number) => {
      const [before, at, after] = [times[number - 1] ?? NaN, times[number], times[number + 1] ?? NaN].map(x);
      const from = Number.isNaN(before) ? at - 6 : (before + at) / 2;
      const to = Number.isNaN(after) ? at + 6 : (at + after) / 2;
      place(pick.querySelector("rect"), { x: from, width: Math.max(to - from, 1) });
      place(pick.querySelector("line"), { x1: at, x2: at });
    });
  }

  /** The times that arrow keys stop at. */
  get stops() {
    return this.course.curves[0].times;
  }

  /**
   * Show the measurement nearest to *t*; none for NaN.
   *
   * @param {number} t
   * @param {boolean} [isByKey]
   */
  read(t, isByKey = false) {
    const { reading } = this;
    if (!reading) return;
    const nearest = Number.isNaN(t) ? NaN : this.nearestMoment(t);
    reading.setAttribute("aria-live", isByKey ? "polite" : "off");
    if (nearest === this.moment || (Number.isNaN(nearest) && Number.isNaN(this.moment))) return;
    this.moment = nearest;
    this.drawSoon();
    if (Number.isNaN(nearest)) {
      reading.replaceChildren();
      return;
    }
    const { unit, curves, stacked, moments } = this.course;
    const at = stacked ? nearestTo(curves[0].times, nearest) : -1;
    const time = formatTime(nearest, unit, (this.time.high - this.time.low) / 1000, 3);
    const head = document.createElement("b");
    head.textContent = stacked ? `${moments[at]}, ${time}` : time;
    head.dataset.value = String(nearest);
    reading.replaceChildren(head, ...this.partsAt(nearest, at));
  }

  /** @param {number} t */
  nearestMoment(t) {
    let found = NaN;
    for (const { times } of this.bytes) {
      const at = nearestTo(times, t);
      if (at >= 0 && !(Math.abs(times[at] - t) >= Math.abs(found - t))) found = times[at];
    }
    return found;
  }

  /**
   * @param {number} moment
   * @param {number} at of a stack: which moment
   */
  partsAt(moment, at) {
    const { curves, panels, stacked } = this.course;
    const part = (/** @type {string} */ name, /** @type {string} */ color, /** @type {number} */ value, isCount = false) => {
      const made = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.style.background = color;
      const number = document.createElement("span");
      number.dataset.value = String(value);
      number.textContent = isCount ? value.toLocaleString("en-US", { maximumFractionDigits: 1 }) : formatSize(value);
      made.append(swatch, `${name} `, number);
      return made;
    };
    const parts = stacked ? [part("together", "currentColor", this.tops[this.tops.length - 1][at])] : [];
    curves.forEach((curve, number) => {
      const point = valueNear(curve, this.begins[number], moment);
      if (point < 0) return;
      const plot = panels[curve.panel];
      parts.push(part(plot ? `${plot.name}, ${curve.name}` : curve.name, curve.color, curve.values[point], plot !== undefined));
    });
    return parts;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.actOf(event);
    if (!act) return;
    event.preventDefault();
    act();
  }

  /**
   * Return the effect of a key.
   *
   * @param {KeyboardEvent} event
   * @returns {(() => void) | undefined}
   */
  actOf({ key, shiftKey }) {
    const isWhole = this.level.high - this.level.low >= this.wholeLevel().high - this.wholeLevel().low;
    const across = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (across) return () => (shiftKey ? this.moveTime(0.2 * across) : this.step(across));
    const up = { ArrowUp: 1, ArrowDown: -1 }[key];
    if (up) return isWhole ? undefined : () => this.moveSizes(0.2 * up); // the page scrolls
    /** @type {Record<string, () => void>} */
    const acts = {
      "+": () => this.zoomTime(2),
      "=": () => this.zoomTime(2),
      "-": () => this.zoomTime(0.5),
      "*": () => this.zoomSizes(2),
      "/": () => this.zoomSizes(0.5),
      l: () => this.setLog(!this.isLog),
      f: () => this.fitSizes(),
      0: () => this.showWhole(),
      Escape: () => this.showWhole(),
    };
    return acts[key.length === 1 ? key.toLowerCase() : key];
  }

  /** @param {number} share of the visible part */
  moveSizes(share) {
    this.level = movedRange(this.level, this.wholeLevel(), share * (this.level.high - this.level.low));
    this.drawSoon();
  }

  /** Read the next moment that is a pixel away, of a stack the next snapshot. @param {number} direction */
  step(direction) {
    const { stops, time } = this;
    let at = nearestTo(stops, Number.isNaN(this.moment) ? time.low : this.moment);
    if (Number.isNaN(this.moment)) at = Math.max(at, 0);
    else {
      const from = stops[at];
      const pixel = this.picks?.length ? 0 : (time.high - time.low) / this.course.plot[2];
      do at += direction;
      while (at > 0 && at < stops.length - 1 && Math.abs(stops[at] - from) < pixel);
    }
    at = Math.min(Math.max(at, 0), stops.length - 1);
    if (at < 0) return;
    this.show(stops[at]);
    this.read(stops[at], true);
    /** @type {SVGElement | undefined} */ (this.picks?.[at])?.focus({ preventScroll: true });
  }

  /** Move so far that *t* is seen. @param {number} t */
  show(t) {
    const { low, high } = this.time;
    if (t >= low && t <= high) return;
    const margin = 0.1 * (high - low);
    this.moveTime((t < low ? t - low - margin : t - high + margin) / (high - low));
  }

  /** Show and read the snapshot that has got the focus. @param {EventTarget | null} target */
  reveal(target) {
    const at = this.picks?.indexOf(/** @type {SVGElement} */ (target)) ?? -1;
    if (at < 0 || this.pointers.size) return;
    this.show(this.stops[at]);
    this.read(this.stops[at], true);
  }
}

/**
 * Return the point of *curve* nearest to *moment*; -1 if the curve isn't drawn there.
 *
 * @param {Curve} curve
 * @param {ReadonlySet<number>} begins
 * @param {number} moment
 */
export function valueNear({ times }, begins, moment) {
  const at = nearestTo(times, moment);
  if (at < 0 || times[at] === moment) return at;
  const after = times[at] > moment ? at : at + 1; // the line that would lead over it
  return after < 1 || after >= times.length || begins.has(after) ? -1 : at;
}

/** Make the page's pictures over time zoomable; show a message if that is impossible. */
export async function startTimelines() {
  for (const figure of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("figure.timeline"))) {
    try {
      if (typeof DecompressionStream === "undefined") throw new Error("this browser can't unpack its numbers");
      new Timeline(figure, await unpacked(figure.querySelector(".course")?.textContent || ""));
    } catch (error) {
      const note = document.createElement("p");
      note.className = "dim";
      note.textContent = `The picture can't be zoomed: ${error instanceof Error ? error.message : error}.`;
      figure.append(note);
    }
  }
}
