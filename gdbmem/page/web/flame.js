// The calls drawn as a flame graph that hangs: callers above their callees, with the width of their inclusive size.

/** @typedef {import("./calls.js").Calls} Calls */

const ROW = 18; // pixels
const LETTER = 6.7; // pixels a letter of the labels is wide, about
const LEAST = 0.7; // pixels: narrower calls are drawn as one with their smaller siblings
const LABEL_LEAST = 34; // pixels
const GREW = ["#fdbe85", "#fd8d3c", "#d94801"]; // orange and blue: told apart by colour-blind readers too
const SHRANK = ["#bdd7e7", "#6baed6", "#2171b5"];
const MIXED = "#c9c9c9";
const REST = "#b5b5b5";
const OWN = ["#f6c177", "#efb266", "#e9a557", "#f2bd86", "#ebb77a"];
const OTHERS = ["#c5cfdb", "#b9c6d4", "#cfd8e2", "#c0cbd7", "#b4c2d1"];

/**
 * Requirements of a graph on the page around it.
 *
 * @typedef {object} Host
 * @property {(group: number) => boolean} isOwn the user's own code
 * @property {(call: number) => boolean} isDoubtful its change may be none
 * @property {(call: number) => string[]} describe lines of text
 * @property {(call: number) => number} bytesOf exact
 * @property {(call: number) => void} picked a call was zoomed to
 */

export class FlameGraph {
  /**
   * @param {HTMLElement} frame scrolls; holds the canvas, which can be focused
   * @param {HTMLElement} tip
   * @param {HTMLElement} voice read out when the focus moves
   * @param {Host} host
   */
  constructor(frame, tip, voice, host) {
    this.frame = frame;
    this.tip = tip;
    this.voice = voice;
    this.host = host;
    this.canvas = /** @type {HTMLCanvasElement} */ (frame.querySelector("canvas"));
    this.filler = /** @type {HTMLElement} */ (frame.querySelector(".filler"));
    this.context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d", { alpha: false }));
    /** @type {Calls | null} */
    this.calls = null;
    /** @type {Uint8Array | null} */
    this.matches = null;
    this.zoomed = 0;
    this.focused = 0;
    this.asked = 0;
    this.background = "#ffffff";
    this.width = this.height = this.top = 0; // pixels, of what is seen
    this.listen();
  }

  listen() {
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => this.hideTip());
    this.canvas.addEventListener("click", (event) => {
      const call = this.callAt(event.offsetX, event.offsetY);
      if (call >= 0) this.zoom(call);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.drawSoon());
    this.canvas.addEventListener("blur", () => this.drawSoon());
    this.frame.addEventListener("scroll", () => this.drawSoon());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.background = getComputedStyle(this.frame).backgroundColor;
      this.drawSoon();
    });
    new ResizeObserver(() => this.drawSoon()).observe(this.frame);
  }

  /** @param {Calls} calls */
  show(calls) {
    this.calls = calls;
    this.matches = null;
    this.zoomed = this.focused = 0;
    this.background = getComputedStyle(this.frame).backgroundColor;
    this.frame.scrollTop = 0;
    this.draw();
  }

  /** @param {Uint8Array | null} matches groups */
  mark(matches) {
    this.matches = matches;
    this.drawSoon();
  }

  /** @param {number} call */
  zoom(call) {
    if (!this.calls) return;
    this.zoomed = this.focused = call;
    this.hideTip();
    this.drawSoon();
    this.host.picked(call);
    this.say();
  }

  drawSoon() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      this.draw();
    });
  }

  /** The call's left edge and width in pixels, as the graph is zoomed. @param {number} call */
  extent(call) {
    const calls = /** @type {Calls} */ (this.calls);
    const scale = this.width / (calls.weight[this.zoomed] || 1);
    return [(calls.start[call] - calls.start[this.zoomed]) * scale, calls.weight[call] * scale];
  }

  draw() {
    const calls = this.calls;
    if (!calls) return;
    this.fit(calls);
    const { context } = this;
    context.fillStyle = this.background;
    context.fillRect(0, 0, this.width, this.height);
    context.font = "12px ui-monospace, monospace";
    context.textBaseline = "middle";
    this.top = this.frame.scrollTop;
    for (let call = this.zoomed; call > 0; call = calls.parent[call]) {
      if (call !== this.zoomed) this.box(call, 0, this.width);
    }
    if (this.zoomed) this.box(0, 0, this.width);
    this.descend(calls);
    if (document.activeElement === this.canvas) this.ring();
  }

  /** Give the canvas the size of its visible part. @param {Calls} calls */
  fit(calls) {
    this.filler.style.height = `${(calls.deepest + 1) * ROW + 1}px`;
    const [width, height] = [this.frame.clientWidth, this.frame.clientHeight];
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.width = width;
    this.height = height;
  }

  /** Draw the zoomed call and its callees, as far as they are visible. @param {Calls} calls */
  descend(calls) {
    const scale = this.width / (calls.weight[this.zoomed] || 1);
    const origin = calls.start[this.zoomed];
    const lowest = (this.top + this.height) / ROW;
    const waiting = [this.zoomed];
    while (waiting.length) {
      const call = /** @type {number} */ (waiting.pop());
      const depth = calls.depth[call];
      this.box(call, (calls.start[call] - origin) * scale, calls.weight[call] * scale);
      if (depth + 1 > lowest) continue;
      const end = calls.first[call + 1];
      for (let place = calls.first[call]; place < end; place++) {
        const child = calls.order[place];
        if (calls.weight[child] * scale < LEAST) {
          this.rest(calls, place, end, scale, origin);
          break;
        }
        waiting.push(child);
      }
    }
  }

  /**
   * Draw calls that are too narrow as one.
   *
   * @param {Calls} calls
   * @param {number} place
   * @param {number} end
   * @param {number} scale
   * @param {number} origin
   */
  rest(calls, place, end, scale, origin) {
    const [one, other] = [calls.order[place], calls.order[end - 1]];
    const from = (calls.start[one] - origin) * scale;
    const width = (calls.start[other] + calls.weight[other] - calls.start[one]) * scale;
    if (width < LEAST) return;
    this.context.fillStyle = REST;
    this.context.fillRect(from, calls.depth[one] * ROW - this.top, Math.max(width - 0.5, 0.5), ROW - 1);
  }

  /**
   * @param {number} call
   * @param {number} from pixels
   * @param {number} width pixels
   */
  box(call, from, width) {
    const calls = /** @type {Calls} */ (this.calls);
    const y = calls.depth[call] * ROW - this.top;
    if (y < -ROW || y > this.height) return;
    const { context, matches } = this;
    const isOut = matches !== null && !matches[calls.group[call]];
    context.globalAlpha = isOut || (call !== this.zoomed && calls.depth[call] < calls.depth[this.zoomed]) ? 0.45 : 1;
    context.fillStyle = this.color(call);
    const seen = Math.max(width - 1, 0.5);
    context.fillRect(from, y, seen, ROW - 1);
    if (width > 3 && this.host.isDoubtful(call)) this.hatch(from, y, seen);
    if (width >= LABEL_LEAST) this.label(calls, call, from, y, width);
    context.globalAlpha = 1;
  }

  /**
   * @param {Calls} calls
   * @param {number} call
   * @param {number} from
   * @param {number} y
   * @param {number} width
   */
  label(calls, call, from, y, width) {
    const left = Math.max(from, 0);
    const room = Math.floor((Math.min(from + width, this.width) - left - 6) / LETTER);
    let text = calls.names[calls.group[call]];
    if (calls.isChange && call && !calls.before[call]) text = `new: ${text}`;
    else if (calls.isChange && call && !calls.after[call]) text = `gone: ${text}`;
    if (text.length > room) text = room > 3 ? `${text.slice(0, room - 1)}…` : "";
    this.context.fillStyle = calls.isChange && this.isStrong(call) ? "#ffffff" : "#1c2126";
    this.context.fillText(text, left + 3, y + ROW / 2);
  }

  /** Return the balance of growth and shrinkage: -1 (all shrank) to 1 (all grew). @param {number} call */
  lean(call) {
    const calls = /** @type {Calls} */ (this.calls);
    return calls.weight[call] ? (calls.after[call] - calls.before[call]) / calls.weight[call] : 0;
  }

  /** @param {number} call */
  isStrong(call) {
    return Math.abs(this.lean(call)) > 0.8;
  }

  /** @param {number} call */
  color(call) {
    const calls = /** @type {Calls} */ (this.calls);
    if (calls.isChange) {
      const lean = this.lean(call);
      const step = Math.abs(lean) > 0.8 ? 2 : Math.abs(lean) > 0.4 ? 1 : 0;
      if (Math.abs(lean) < 0.02) return MIXED;
      return (lean > 0 ? GREW : SHRANK)[step];
    }
    const group = calls.group[call];
    return (this.host.isOwn(group) ? OWN : OTHERS)[Math.imul(group, 0x9e3779b1) >>> 29 & 3];
  }

  /**
   * @param {number} from
   * @param {number} y
   * @param {number} width
   */
  hatch(from, y, width) {
    const { context } = this;
    const left = Math.max(from, 0);
    const right = Math.min(from + width, this.width);
    context.strokeStyle = "#00000066";
    context.lineWidth = 1;
    context.save();
    context.beginPath();
    context.rect(left, y, right - left, ROW - 1);
    context.clip();
    context.beginPath();
    for (let x = left - ROW; x < right; x += 6) {
      context.moveTo(x, y + ROW);
      context.lineTo(x + ROW, y);
    }
    context.stroke();
    context.restore();
  }

  ring() {
    const calls = /** @type {Calls} */ (this.calls);
    const isAbove = calls.depth[this.focused] < calls.depth[this.zoomed];
    const [from, width] = isAbove ? [0, this.width] : this.extent(this.focused);
    this.context.strokeStyle = "#000000";
    this.context.lineWidth = 2;
    this.context.strokeRect(from + 1, calls.depth[this.focused] * ROW - this.top + 1, Math.max(width - 3, 2), ROW - 3);
  }

  /**
   * Return the call that is drawn there; -1: none.
   *
   * @param {number} x
   * @param {number} y
   */
  callAt(x, y) {
    const calls = this.calls;
    const depth = Math.floor((y + this.frame.scrollTop) / ROW);
    if (!calls || depth > calls.deepest) return -1;
    if (depth <= calls.depth[this.zoomed]) {
      let call = this.zoomed;
      while (calls.depth[call] > depth) call = calls.parent[call];
      return call;
    }
    const at = calls.start[this.zoomed] + (x / this.width) * calls.weight[this.zoomed];
    let call = this.zoomed;
    while (calls.depth[call] < depth) {
      const child = this.childAt(calls, call, at);
      if (child < 0 || (calls.weight[child] * this.width) / calls.weight[this.zoomed] < LEAST) return -1;
      call = child;
    }
    return call;
  }

  /**
   * @param {Calls} calls
   * @param {number} call
   * @param {number} at
   */
  childAt(calls, call, at) {
    let [low, high] = [calls.first[call], calls.first[call + 1] - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      const child = calls.order[middle];
      if (at < calls.start[child]) high = middle - 1;
      else if (at >= calls.start[child] + calls.weight[child]) low = middle + 1;
      else return child;
    }
    return -1;
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const call = this.callAt(event.offsetX, event.offsetY);
    if (call < 0) {
      this.hideTip();
      return;
    }
    this.tip.replaceChildren(
      ...this.host.describe(call).map((line) => {
        const part = document.createElement("div");
        part.textContent = line;
        return part;
      }),
    );
    this.tip.dataset.value = String(this.host.bytesOf(call));
    this.tip.hidden = false;
    const left = Math.min(event.clientX + 14, window.innerWidth - this.tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const fits = below + this.tip.offsetHeight < window.innerHeight;
    this.tip.style.left = `${Math.max(left, 4)}px`;
    this.tip.style.top = `${fits ? below : Math.max(event.clientY - this.tip.offsetHeight - 10, 4)}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const calls = this.calls;
    if (!calls || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = this.neighbour(calls, event.key);
    if (next >= 0) {
      this.focused = next;
      this.revealFocus(calls);
    } else if (event.key === "Enter") this.zoom(this.focused);
    else if (event.key === "Escape") this.zoom(this.zoomed ? calls.parent[this.zoomed] : 0);
    else if (event.key === "Home") this.zoom(0);
    else return;
    event.preventDefault();
  }

  /**
   * Return the call to which a key leads from the focused one; -1 if there is none.
   *
   * @param {Calls} calls
   * @param {string} key
   */
  neighbour(calls, key) {
    const { focused } = this;
    if (key === "ArrowUp") return focused ? calls.parent[focused] : 0;
    if (key === "ArrowDown") {
      return calls.first[focused] < calls.first[focused + 1] ? calls.order[calls.first[focused]] : focused;
    }
    if (key !== "ArrowLeft" && key !== "ArrowRight") return -1;
    const caller = calls.parent[focused];
    if (caller < 0) return focused;
    const row = calls.order.subarray(calls.first[caller], calls.first[caller + 1]);
    const place = row.indexOf(focused) + (key === "ArrowRight" ? 1 : -1);
    return row[Math.min(Math.max(place, 0), row.length - 1)];
  }

  /** @param {Calls} calls */
  revealFocus(calls) {
    const y = calls.depth[this.focused] * ROW;
    if (y < this.frame.scrollTop) this.frame.scrollTop = y;
    if (y + ROW > this.frame.scrollTop + this.height) this.frame.scrollTop = y + ROW - this.height;
    this.drawSoon();
    this.say();
  }

  say() {
    this.voice.textContent = this.host.describe(this.focused).join(", ");
  }
}
