"""The page that a map of the heap is put into, and the script that draws it."""

from __future__ import annotations

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>@TITLE@</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>
body{font:14px sans-serif;margin:16px;color:#222;background:#fff}
h1{font-size:17px}td{padding:1px 10px 1px 0}td:last-child{text-align:right}
i{display:inline-block;width:12px;height:12px}
#box{overflow:auto;border:1px solid #bbb;max-height:75vh}
#tip{min-height:1.4em;margin:6px 0;font-family:monospace}
canvas{display:block}
</style></head><body>
<h1>@TITLE@</h1>
<table>@ROWS@</table>
<p><button id="out">smaller</button> <button id="in">larger</button> (or Ctrl and the wheel)</p>
<div id="tip"></div><div id="box"><canvas id="map"></canvas></div>
<script type="application/json" id="data">@DATA@</script>
<script>@SCRIPT@</script>
</body></html>
"""

SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const [box, canvas, tip] = ["box", "map", "tip"].map(name => document.getElementById(name));
const parts = data.parts.length, gap = 20;
let side = 8, columns = 1, places = [];
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return (unit ? bytes.toFixed(1) : bytes) + " " + units[unit];
}
// A cell is a stack of its parts.
function fill(pen, cells, at, x, y, drawn) {
  let whole = 0, below = 0;
  for (let part = 0; part < parts; part++) whole += cells[at + part];
  for (let part = 0; part < parts; part++) {
    if (!cells[at + part]) continue;
    const bottom = drawn * below / whole;
    below += cells[at + part];
    pen.fillStyle = data.colors[part];
    pen.fillRect(x, y + drawn - drawn * below / whole, drawn, drawn * below / whole - bottom);
  }
}
function draw() {
  columns = Math.max(16, Math.floor((box.clientWidth - 20) / 8));
  let top = 0;
  places = data.regions.map(region => {
    const place = {top: top + gap, region: region, count: region.cells.length / parts};
    top += gap + side * Math.ceil(place.count / columns) + 6;
    return place;
  });
  // A canvas has its limits.
  if ((top > 30000 || side * columns > 30000) && side > 1) {
    side = Math.max(1, Math.floor(side / 1.5));
    draw();
    return;
  }
  canvas.width = side * columns;
  canvas.height = top;
  const pen = canvas.getContext("2d");
  pen.font = "12px sans-serif";
  const drawn = side > 4 ? side - 1 : side;
  for (const place of places) {
    pen.fillStyle = "#222";
    pen.fillText(place.region.name, 0, place.top - 6);
    for (let n = 0; n < place.count; n++) {
      const x = side * (n % columns), y = place.top + side * Math.floor(n / columns);
      fill(pen, place.region.cells, n * parts, x, y, drawn);
    }
  }
}
function zoom(factor) {
  const x = box.scrollLeft / canvas.width, y = box.scrollTop / canvas.height;
  side = Math.min(48, Math.max(1, Math.round(side * factor) || 1));
  draw();
  box.scrollLeft = x * canvas.width;
  box.scrollTop = y * canvas.height;
}
function cellAt(event) {
  const place = places.filter(one => event.offsetY >= one.top).pop();
  if (!place) return "";
  const n = Math.floor((event.offsetY - place.top) / side) * columns + Math.floor(event.offsetX / side);
  if (n >= place.count) return "";
  const cell = place.region.cells.slice(n * parts, (n + 1) * parts);
  const start = BigInt("0x" + place.region.start) + BigInt(n) * BigInt(data.cell);
  const shown = cell.map((bytes, part) => bytes ? size(bytes) + " " + data.parts[part] : "").filter(text => text);
  return "0x" + start.toString(16) + "  " + shown.join("; ");
}
canvas.addEventListener("mousemove", event => { tip.textContent = cellAt(event); });
box.addEventListener("wheel", event => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoom(event.deltaY < 0 ? 1.5 : 1 / 1.5);
}, {passive: false});
document.getElementById("in").addEventListener("click", () => zoom(1.5));
document.getElementById("out").addEventListener("click", () => zoom(1 / 1.5));
window.addEventListener("resize", draw);
draw();
"""
