// Connects the choices on the page with the graph and the table.

import { makeCalls, pathsThrough, searchCalls } from "./calls.js";
import { FlameGraph } from "./flame.js";
import { boundOf, doubtOf, framesOf, fullNameOf, isBounded, nameOf, ofThread, placeOf, readProfile } from "./profile.js";
import { formatChange, formatShare, formatSize, percentOf } from "./sizes.js";
import { csvOf, neighboursOf, rowsOf } from "./table.js";
import { namesIn } from "./wrappers.js";

/** @typedef {import("./profile.js").Columns} Columns */
/** @typedef {import("./profile.js").View} View */
/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {import("./calls.js").Shape} Shape */
/** @typedef {import("./table.js").Row} Row */
/** @typedef {import("./table.js").Grouping} Grouping */

const ROWS = 50; // shown at once
const PATHS = 10; // of a row, shown at once

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${id}`);
  return found;
}

/**
 * Return an element that holds *text*, and its exact *value* if that is a number.
 *
 * @param {string} tag
 * @param {string} text
 * @param {{value?: number, kind?: string}} [more]
 */
function element(tag, text, more = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (more.kind) made.className = more.kind;
  if (more.value !== undefined) made.dataset.value = String(more.value);
  return made;
}

/**
 * Return a test of *text* as a regular expression, as plain text if it is not one; null for an empty one.
 *
 * @param {string} text
 * @returns {((name: string) => boolean) | null}
 */
export function matcherOf(text) {
  if (!text) return null;
  try {
    const pattern = new RegExp(text, "i");
    return (name) => pattern.test(name);
  } catch {
    const plain = text.toLowerCase();
    return (name) => name.toLowerCase().includes(plain);
  }
}

export class Explorer {
  /** @param {Columns} profile */
  constructor(profile) {
    this.whole = profile;
    this.profile = profile; // or the part of one thread
    /** @type {Shape} */
    this.plainShape = { by: "line", inverted: !profile.written.outermost_first, only: null }; // as it is written
    const [before, after] = profile.written.shown;
    /** @type {View} */
    this.view = { before, after };
    this.doubt = doubtOf(profile, this.view);
    this.byLine = makeCalls(profile, this.view, this.plainShape);
    this.calls = this.byLine;
    /** @type {Map<number, boolean>} */
    this.doubtful = new Map();
    this.shown = ROWS;
    this.picked = -1; // the snapshot that the next one is compared with; -1: none
    this.sorting = { by: "change", down: true };
    /** @type {Row[]} */
    this.rows = [];
    this.graph = new FlameGraph(byId("graph", HTMLElement), byId("tip", HTMLElement), byId("voice", HTMLElement), {
      isOwn: (group) => this.isOwn(group),
      isDoubtful: (call) => this.isDoubtful(call),
      describe: (call) => this.describe(call),
      bytesOf: (call) => this.calls.after[call] - this.calls.before[call],
      picked: (call) => this.showRoute(call),
    });
    this.fillChoices();
    this.listen();
    this.showView();
  }

  fillChoices() {
    const { snapshots } = this.profile.written;
    for (const id of ["before", "after"]) {
      const choice = byId(id, HTMLSelectElement);
      if (id === "before") choice.append(new Option("nothing", "-1"));
      snapshots.forEach((one, number) => {
        const option = new Option(`${one.name}, ${formatSize(one.total)}`, String(number));
        option.dataset.value = String(one.total);
        choice.append(option);
      });
    }
    byId("sides", HTMLElement).hidden = snapshots.length < 2;
    const { threads } = this.profile.written;
    byId("threads", HTMLElement).hidden = !threads;
    if (!threads) return;
    const choice = byId("thread", HTMLSelectElement);
    threads.names.forEach((name, number) => choice.append(new Option(name, String(number))));
    if (threads.of.includes(-1)) choice.append(new Option("of several: the smallest paths", "-1"));
  }

  listen() {
    for (const id of ["before", "after"]) {
      byId(id, HTMLSelectElement).addEventListener("change", () => {
        this.choose(Number(byId("before", HTMLSelectElement).value), Number(byId("after", HTMLSelectElement).value));
      });
    }
    byId("thread", HTMLSelectElement).addEventListener("change", () => {
      const { value } = byId("thread", HTMLSelectElement);
      this.profile = value ? ofThread(this.whole, Number(value)) : this.whole;
      this.choose(this.view.before, this.view.after);
    });
    for (const id of ["by", "inverted", "own"]) byId(id, HTMLElement).addEventListener("change", () => this.showCalls());
    byId("search", HTMLInputElement).addEventListener("input", () => this.search());
    byId("whole", HTMLButtonElement).addEventListener("click", () => this.graph.zoom(0));
    byId("copy", HTMLButtonElement).addEventListener("click", () => this.copyRoute());
    byId("rows-by", HTMLSelectElement).addEventListener("change", () => this.showTable());
    byId("filter", HTMLInputElement).addEventListener("input", () => this.fillTable());
    byId("more", HTMLButtonElement).addEventListener("click", () => {
      this.shown *= 4;
      this.fillTable();
    });
    byId("csv", HTMLButtonElement).addEventListener("click", () => this.saveTable());
    for (const head of document.querySelectorAll("#rows th button")) {
      head.addEventListener("click", () => this.sort(/** @type {HTMLElement} */ (head).dataset.by || "change"));
    }
    for (const pick of document.querySelectorAll("[data-snapshot]")) {
      const act = () => this.pick(Number(/** @type {HTMLElement} */ (pick).dataset.snapshot));
      pick.addEventListener("click", act);
      pick.addEventListener("keydown", (event) => {
        const { key } = /** @type {KeyboardEvent} */ (event);
        if (key !== "Enter" && key !== " ") return;
        event.preventDefault();
        act();
      });
    }
  }

  /** Show one snapshot; a second one is compared with it. @param {number} number */
  pick(number) {
    const former = this.picked;
    this.picked = former < 0 ? number : -1;
    if (former < 0 || former === number) this.choose(-1, number);
    else this.choose(Math.min(former, number), Math.max(former, number));
  }

  /**
   * @param {number} before
   * @param {number} after
   */
  choose(before, after) {
    this.view = { before: before === after ? -1 : before, after };
    this.doubt = doubtOf(this.profile, this.view);
    this.byLine = makeCalls(this.profile, this.view, this.plainShape);
    this.showView();
  }

  get isChange() {
    return this.view.before >= 0;
  }

  /** @param {number} bytes */
  size(bytes) {
    return this.isChange ? formatChange(bytes) : formatSize(bytes);
  }

  showView() {
    const { snapshots, unit, relative } = this.profile.written;
    const { before, after } = this.view;
    byId("before", HTMLSelectElement).value = String(before);
    byId("after", HTMLSelectElement).value = String(after);
    const total = snapshots[after].total - (this.isChange ? snapshots[before].total : 0);
    const said = byId("explored", HTMLElement);
    said.dataset.value = String(total);
    if (!this.isChange) said.textContent = `${snapshots[after].name}: ${formatSize(total)} (${unit})`;
    else if (relative) said.textContent = `${formatChange(total)} (${unit})`;
    else {
      const sides = `${formatSize(snapshots[before].total)} → ${formatSize(snapshots[after].total)}`;
      said.textContent = `from ${snapshots[before].name} to ${snapshots[after].name}: ${formatChange(total)}, ${sides} (${unit})`;
    }
    const { selectedIndex, options } = byId("thread", HTMLSelectElement);
    if (selectedIndex > 0) said.textContent += `, of ${options[selectedIndex].text}`;
    byId("unbounded", HTMLElement).hidden = isBounded(this.profile, this.view);
    byId("of-change", HTMLElement).hidden = !this.isChange;
    byId("share", HTMLElement).textContent = this.isChange ? "of all changes" : "of all";
    for (const pick of document.querySelectorAll("[data-snapshot]")) {
      const number = Number(/** @type {HTMLElement} */ (pick).dataset.snapshot);
      pick.classList.toggle("picked", number === before || number === after);
    }
    this.showCalls();
    this.showTable();
  }

  showCalls() {
    /** @type {Shape} */
    const shape = {
      by: /** @type {Shape["by"]} */ (byId("by", HTMLSelectElement).value),
      inverted: byId("inverted", HTMLInputElement).checked,
      only: byId("own", HTMLInputElement).checked ? namesIn(this.profile, this.view).own : null,
    };
    const { by, inverted } = this.plainShape;
    const isPlain = shape.by === by && shape.inverted === inverted && !shape.only;
    this.calls = isPlain ? this.byLine : makeCalls(this.profile, this.view, shape);
    this.doubtful.clear();
    const rows = Math.min(this.calls.deepest + 1, 36);
    byId("graph", HTMLElement).style.height = `${rows * 18 + 2}px`;
    this.graph.show(this.calls);
    this.showRoute(0);
    this.search();
  }

  search() {
    const text = byId("search", HTMLInputElement).value;
    const test = matcherOf(text);
    const calls = this.calls;
    const found = byId("found", HTMLElement);
    if (!test) {
      this.graph.mark(null);
      found.textContent = "";
      return;
    }
    const result = searchCalls(calls, (group) => test(calls.names[group]) || test(placeOf(this.profile, calls.example[group])));
    this.graph.mark(result.matches);
    found.dataset.value = String(this.isChange ? result.change : result.weight);
    found.textContent = `${this.size(this.isChange ? result.change : result.weight)}, ${formatShare(result.weight, calls.weight[0])}`;
  }

  /** @param {number} group */
  isOwn(group) {
    const frame = this.calls.example[group];
    return frame >= 0 && namesIn(this.profile, this.view).own[frame] === 1;
  }

  /** @param {number} call */
  isDoubtful(call) {
    if (!this.doubt) return false;
    let found = this.doubtful.get(call);
    if (found === undefined) {
      const calls = this.calls;
      const bound = this.boundOf(call);
      found = bound > 0 && bound >= Math.abs(calls.after[call] - calls.before[call]);
      this.doubtful.set(call, found);
    }
    return found;
  }

  /** @param {number} call */
  boundOf(call) {
    return this.doubt ? boundOf(this.doubt, pathsThrough(this.calls, call), call > 0) : 0;
  }

  /** Return the known facts of a call, one per line. @param {number} call */
  describe(call) {
    const calls = this.calls;
    const frame = calls.example[calls.group[call]];
    const change = calls.after[call] - calls.before[call];
    const amount = this.isChange
      ? `${formatChange(change)} (${formatSize(calls.before[call])} → ${formatSize(calls.after[call])})`
      : formatSize(calls.after[call]);
    const share = `${formatShare(calls.weight[call], calls.weight[0])} of ${this.isChange ? "all changes" : "all"}`;
    const isByLine = byId("by", HTMLSelectElement).value === "line";
    const where = isByLine && call ? placeOf(this.profile, frame) : "";
    const bound = this.boundOf(call);
    const name = isByLine && call ? fullNameOf(this.profile, frame) : calls.names[calls.group[call]];
    return [name, where, amount, share, bound ? `± ${formatSize(bound)}` : "", this.blocks(call)].filter(Boolean);
  }

  /** Return the number of blocks of a call, "" if they are not counted. @param {number} call */
  blocks(call) {
    const { snapshots } = this.profile.written;
    const after = snapshots[this.view.after].blocks;
    const before = this.isChange ? snapshots[this.view.before].blocks : null;
    if (!after || (this.isChange && !before)) return "";
    let sum = 0;
    for (const path of pathsThrough(this.calls, call)) sum += after[path] - (before ? before[path] : 0);
    return `${this.isChange && sum > 0 ? "+" : ""}${sum.toLocaleString("en-US")} blocks`;
  }

  /** Write the calls from the outermost to *call* below the graph. @param {number} call */
  showRoute(call) {
    const calls = this.calls;
    const lines = [];
    for (let at = call; at > 0; at = calls.parent[at]) {
      const frame = calls.example[calls.group[at]];
      const where = byId("by", HTMLSelectElement).value === "line" ? placeOf(this.profile, frame) : "";
      lines.unshift(`${calls.names[calls.group[at]]}${where ? `  ${where}` : ""}`);
    }
    byId("route", HTMLElement).textContent = lines.join("\n");
    byId("copy", HTMLButtonElement).hidden = !lines.length;
    byId("whole", HTMLButtonElement).hidden = !lines.length;
  }

  async copyRoute() {
    const route = byId("route", HTMLElement);
    try {
      await navigator.clipboard.writeText(route.textContent || "");
      byId("voice", HTMLElement).textContent = "copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(route);
      const selection = /** @type {Selection} */ (getSelection());
      selection.removeAllRanges();
      selection.addRange(range);
    }
  }

  get grouping() {
    return /** @type {Grouping} */ (byId("rows-by", HTMLSelectElement).value);
  }

  showTable() {
    this.rows = rowsOf(this.profile, this.view, this.grouping, this.byLine);
    this.shown = ROWS;
    this.fillTable();
  }

  /** @param {string} by */
  sort(by) {
    this.sorting = { by, down: this.sorting.by === by ? !this.sorting.down : true };
    this.fillTable();
  }

  /** Return the rows that the filter leaves, in the order that is chosen. */
  chosenRows() {
    const test = matcherOf(byId("filter", HTMLInputElement).value);
    const rows = test ? this.rows.filter((row) => test(row.name) || test(row.place)) : this.rows.slice();
    const { by, down } = this.sorting;
    const weight = (/** @type {Row} */ row) =>
      ({ change: Math.abs(row.after - row.before), before: row.before, after: row.after, through: Math.abs(row.through) })[by] || 0;
    const sign = down ? 1 : -1;
    if (by === "name") return rows.sort((a, b) => sign * rowTitle(a).localeCompare(rowTitle(b)));
    return rows.sort((a, b) => sign * (weight(b) - weight(a)));
  }

  fillTable() {
    const rows = this.chosenRows();
    const body = byId("rows", HTMLTableElement).tBodies[0];
    body.replaceChildren(...rows.slice(0, this.shown).map((row) => this.line(row)));
    const total = rows.reduce((sum, row) => sum + row.after - row.before, 0);
    const sum = byId("sum", HTMLElement);
    sum.textContent = `${rows.length.toLocaleString("en-US")} rows, together ${this.size(total)}`;
    sum.dataset.value = String(total);
    byId("more", HTMLButtonElement).hidden = rows.length <= this.shown;
    byId("rows", HTMLTableElement).classList.toggle("of-one", !this.isChange);
    for (const head of document.querySelectorAll("#rows th")) {
      const button = head.querySelector("button");
      const isIt = button !== null && button.dataset.by === this.sorting.by;
      head.setAttribute("aria-sort", isIt ? (this.sorting.down ? "descending" : "ascending") : "none");
    }
  }

  /** @param {Row} row */
  line(row) {
    const change = row.after - row.before;
    const line = document.createElement("tr");
    const sign = !this.isChange || !change ? "none" : change > 0 ? "grew" : "shrank";
    const doubt = row.bound > 0 ? ` ± ${formatSize(row.bound)}` : row.bound < 0 ? " ± ?" : "";
    const where = document.createElement("td");
    const opener = element("button", rowTitle(row), { kind: "opener" });
    opener.setAttribute("aria-expanded", "false");
    opener.addEventListener("click", () => this.toggle(line, opener, row));
    where.append(opener, element("span", ` ${row.isNamedByPlace ? row.name : row.place}`, { kind: "mono dim" }));
    const share = percentOf(Math.abs(change), this.byLine.weight[0]);
    line.append(
      element("td", this.size(change) + doubt, { value: change, kind: `number ${sign}` }),
      element("td", formatShare(Math.abs(change), this.byLine.weight[0]), { value: share, kind: "number" }),
      element("td", formatSize(row.before), { value: row.before, kind: "number two" }),
      element("td", formatSize(row.after), { value: row.after, kind: "number two" }),
      element("td", this.size(row.through), { value: row.through, kind: "number" }),
      where,
    );
    return line;
  }

  /**
   * Open or close the details of a row.
   *
   * @param {HTMLTableRowElement} line
   * @param {HTMLElement} opener
   * @param {Row} row
   */
  toggle(line, opener, row) {
    const isOpen = opener.getAttribute("aria-expanded") === "true";
    opener.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) {
      line.nextElementSibling?.remove();
      return;
    }
    const cell = document.createElement("td");
    cell.colSpan = 6;
    cell.append(...this.pathsOf(row, PATHS), ...this.around(row));
    const more = document.createElement("tr");
    more.append(cell);
    line.after(more);
    byId("search", HTMLInputElement).value = escapePattern(rowTitle(row));
    this.search();
  }

  /**
   * @param {Row} row
   * @param {number} most
   */
  pathsOf(row, most) {
    const before = this.isChange ? this.profile.written.snapshots[this.view.before].bytes : null;
    const after = this.profile.written.snapshots[this.view.after].bytes;
    const change = (/** @type {number} */ path) => after[path] - (before ? before[path] : 0);
    const paths = row.paths.slice().sort((a, b) => Math.abs(change(b)) - Math.abs(change(a)));
    const parts = paths.slice(0, most).map((path) => {
      const frames = framesOf(this.profile, path).reverse();
      const text = frames.map((frame) => `${fullNameOf(this.profile, frame)}  ${placeOf(this.profile, frame)}`.trim());
      const part = document.createElement("div");
      part.append(element("p", `${this.size(change(path))}${threadOf(this.whole, path)}`, { value: change(path), kind: "dim" }), element("pre", text.join("\n← ")));
      return part;
    });
    if (paths.length > most) {
      const rest = paths.slice(most).reduce((sum, path) => sum + change(path), 0);
      const button = element("button", `and ${paths.length - most} more paths, ${this.size(rest)}`, { value: rest });
      button.addEventListener("click", () => button.parentElement?.replaceChildren(...this.pathsOf(row, most * 10), ...this.around(row)));
      parts.push(/** @type {HTMLDivElement} */ (button));
    }
    return parts;
  }

  /** Return the callers and the callees of a row. @param {Row} row */
  around(row) {
    const sides = neighboursOf(this.profile, this.view, this.grouping, row);
    return ["called by", "calls"].flatMap((title, number) => {
      const lines = sides[number].slice(0, PATHS).flatMap(([frame, bytes]) => [element("span", this.size(bytes).padStart(12), { value: bytes }), `  ${nameOf(this.profile, frame)}\n`]);
      if (sides[number].length > PATHS) lines.push(`and ${sides[number].length - PATHS} more`);
      const shown = document.createElement("pre");
      shown.append(...lines);
      return lines.length ? [element("p", title, { kind: "dim" }), shown] : [];
    });
  }

  saveTable() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csvOf(this.chosenRows())], { type: "text/csv" }));
    link.download = "gdbmem.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

/**
 * Return the thread of a path, to be appended; "" if it is unknown, or there is only one.
 *
 * @param {Columns} profile
 * @param {number} path
 */
function threadOf(profile, path) {
  const { threads } = profile.written;
  return threads && threads.of[path] >= 0 ? `, ${threads.names[threads.of[path]]}` : "";
}

/** Return the first name of a row. @param {Row} row */
function rowTitle(row) {
  return row.isNamedByPlace ? row.place : row.name;
}

/** @param {string} text */
function escapePattern(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/** Open the profile in the page, or show why that is impossible. */
export async function start() {
  const held = document.getElementById("profile");
  if (!held) return;
  const said = byId("explored", HTMLElement);
  byId("explore", HTMLElement).hidden = false;
  try {
    if (typeof DecompressionStream === "undefined") throw new Error("this browser can't unpack it; what stands below needs no script");
    const explorer = new Explorer(await readProfile(held.textContent || ""));
    byId("exploring", HTMLElement).hidden = false;
    document.getElementById("choosing")?.removeAttribute("hidden");
    document.body.classList.add("explored");
    explorer.graph.draw();
  } catch (error) {
    said.textContent = `The call graph can't be shown: ${error instanceof Error ? error.message : error}.`;
  }
}
