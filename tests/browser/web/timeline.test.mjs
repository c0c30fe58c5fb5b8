// What zooms pictures over time, without a browser: node --test tests/browser/web/*.test.mjs
import assert from "node:assert/strict";
import test from "node:test";

const web = new URL("../../../gdbmem/page/web/", import.meta.url);
const scales = await import(new URL("scales.js", web));
const { valueNear } = await import(new URL("timeline.js", web));
const { movedRange, zoomedRange, rangeThrough, nearestTo, linePath, areaPath, levelOf, logRange, sizeTicks, timeTicks, formatTime } = scales;

const texts = (ticks) => ticks.map((tick) => tick.text);
const KIB = 1024;
const MIB = 1024 * KIB;

test("what is under the pointer stays there while one zooms, up to the ends of the axis", () => {
  const whole = { low: 0, high: 100 };
  assert.deepEqual(zoomedRange(whole, whole, 2, 25, 1), { low: 12.5, high: 62.5 });
  assert.deepEqual(zoomedRange({ low: 12.5, high: 62.5 }, whole, 0.5, 25, 1), whole);
  assert.deepEqual(zoomedRange(whole, whole, 2, 0, 1), { low: 0, high: 50 });
  assert.equal(zoomedRange(whole, whole, 1e9, 50, 1).high - zoomedRange(whole, whole, 1e9, 50, 1).low, 1);
});

test("nobody moves past the ends of the axis", () => {
  const whole = { low: 5, high: 105 };
  assert.deepEqual(movedRange({ low: 10, high: 20 }, whole, -50), { low: 5, high: 15 });
  assert.deepEqual(movedRange({ low: 10, high: 20 }, whole, 500), { low: 95, high: 105 });
});

test("two fingers keep hold of what was under them", () => {
  const found = rangeThrough([20, 40], [0.25, 0.75]);
  assert.deepEqual(found, { low: 10, high: 50 });
});

test("the nearest sample is the one that is read", () => {
  assert.deepEqual([-1, 0, 1.4, 1.6, 9].map((t) => nearestTo([0, 1, 2, 4], t)), [0, 0, 1, 2, 3]);
  assert.equal(nearestTo([], 1), -1);
});

test("nothing is read of a process that is not there, nor in a gap", () => {
  const curve = { times: [10, 20, 30, 40], values: [1, 2, 3, 4] };
  const read = (moment) => valueNear(curve, new Set([2]), moment);
  assert.deepEqual([5, 10, 16, 24, 30, 34, 45].map(read), [-1, 0, 1, -1, 2, 2, -1]);
});

test("a line is cut where it was, and of many points in a pixel none that stands out is lost", () => {
  const plain = (t) => t;
  assert.equal(linePath([0, 1, 2, 3], [5, 6, 7, 8], new Set([2]), { low: 0, high: 3 }, plain, plain), "M0.0 5.0L1.0 6.0M2.0 7.0L3.0 8.0");
  const times = Array.from({ length: 1000 }, (_, at) => at / 100);
  const values = times.map((_, at) => (at === 555 ? 99 : at === 557 ? -9 : 1));
  const drawn = linePath(times, values, new Set(), { low: 0, high: 10 }, plain, plain);
  assert.ok(drawn.includes("5.5 99.0") && drawn.includes("5.6 -9.0"));
  assert.ok(drawn.split(/[ML]/).length < 45);
});

test("of a range what lies beside it is drawn too, so that lines go on to the edges", () => {
  const plain = (t) => t;
  const times = [0, 1, 2, 3, 4];
  assert.equal(linePath(times, times, new Set(), { low: 1.5, high: 2.5 }, plain, plain), "M1.0 1.0L2.0 2.0L3.0 3.0");
  assert.equal(areaPath(times, [0, 0, 0, 0, 0], times, { low: 1.5, high: 1.6 }, plain, plain), "M1.0 1.0L2.0 2.0L2.0 0.0L1.0 0.0Z");
});

test("sizes on the axis are round, and no two of them read alike however far one has zoomed", () => {
  assert.deepEqual(texts(sizeTicks({ low: 0, high: 1000 * KIB }, false)), ["0 B", "200.0 KiB", "400.0 KiB", "600.0 KiB", "800.0 KiB", "1,000.0 KiB"]);
  for (const isLog of [false, true]) {
    for (const [low, high] of [[1000 * MIB, 1000.02 * MIB], [0.2 * MIB, 0.9 * MIB], [40 * KIB, 3000 * MIB], [1, 7]]) {
      const ticks = sizeTicks({ low: levelOf(low, isLog), high: levelOf(high, isLog) }, isLog);
      assert.ok(ticks.length >= 2 && ticks.length <= 12, `${low}: ${texts(ticks)}`);
      assert.equal(new Set(texts(ticks)).size, ticks.length, `${texts(ticks)}`);
    }
  }
});

test("a logarithmic axis has room for the least that is more than nothing, and nothing is below it", () => {
  const range = logRange(3 * KIB, 5 * MIB);
  assert.ok(range.low <= Math.log2(3 * KIB) && range.high >= Math.log2(5 * MIB));
  assert.ok(levelOf(0, true) < range.low);
  assert.ok(logRange(1, 1).low < logRange(1, 1).high);
  assert.deepEqual(texts(sizeTicks({ low: 10, high: 30 }, true)), ["1.0 KiB", "32.0 KiB", "1.0 MiB", "32.0 MiB", "1.0 GiB"]);
});

test("times on the axis are round, in each unit, and no two read alike", () => {
  assert.deepEqual(texts(timeTicks({ low: 0, high: 300 }, "s")), ["0", "1 min", "2 min", "3 min", "4 min", "5 min"]);
  assert.deepEqual(texts(timeTicks({ low: 61.2, high: 61.7 }, "s")), ["1 min 1.2 s", "1 min 1.3 s", "1 min 1.4 s", "1 min 1.5 s", "1 min 1.6 s", "1 min 1.7 s"]);
  assert.deepEqual(texts(timeTicks({ low: 0, high: 200 * 3600 }, "s")).at(-1), "192 h");
  assert.equal(timeTicks({ low: 0, high: 25e6 }, "i")[0].text, "0 instructions");
  for (const unit of ["s", "ms", "i", "B", "#"]) {
    for (const [low, high] of [[0, 31.4e6], [5.6e6, 5.60001e6], [3, 4], [0, 12]]) {
      const ticks = timeTicks({ low, high }, unit);
      assert.equal(new Set(texts(ticks)).size, ticks.length, `${unit}: ${texts(ticks)}`);
    }
  }
});

test("a moment is told as finely as one sees it", () => {
  assert.equal(formatTime(83.4567, "s", 1), "1 min 23 s");
  assert.equal(formatTime(83.4567, "s", 0.001), "1 min 23.457 s");
  assert.equal(formatTime(59.9996, "s", 0.01), "1 min 0.00 s");
  assert.equal(formatTime(3600, "s", 60), "1 h");
  assert.equal(formatTime(1500, "ms", 100), "1.5 s");
  assert.equal(formatTime(31.42e6, "i", 1, 3), "31.420 M instructions");
  assert.equal(formatTime(2048, "B", 1), "2.0 KiB allocated");
});
