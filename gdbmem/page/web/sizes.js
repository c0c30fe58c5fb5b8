// Sizes as gdbmem's other outputs write them.

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/**
 * Return bytes for people: 0 B, 1,023 B, 1.5 KiB, -2.0 MiB.
 *
 * @param {number} bytes
 */
export function formatSize(bytes) {
  return formatSizeTo(bytes, 1);
}

/**
 * Return the same with so many *digits* after the point.
 *
 * @param {number} bytes
 * @param {number} digits
 */
export function formatSizeTo(bytes, digits) {
  let size = Math.abs(bytes);
  const sign = bytes < 0 ? "-" : "";
  if (size < 1024) return `${sign}${size.toLocaleString("en-US", { maximumFractionDigits: 0 })} B`;
  let unit = "";
  for (unit of UNITS) {
    size /= 1024;
    if (size < 1023.95) break;
  }
  return `${sign}${size.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

/**
 * Return a change with its sign.
 *
 * @param {number} bytes
 */
export function formatChange(bytes) {
  return bytes > 0 ? `+${formatSize(bytes)}` : formatSize(bytes);
}

/**
 * Return the exact percentage of a part; undefined if the whole is missing.
 *
 * @param {number} part
 * @param {number} whole
 */
export function percentOf(part, whole) {
  return whole ? (100 * part) / whole : undefined;
}

/**
 * Return a part of a whole in percent, "" if the whole is missing.
 *
 * @param {number} part
 * @param {number} whole
 */
export function formatShare(part, whole) {
  const percent = percentOf(part, whole);
  return percent === undefined ? "" : `${percent.toFixed(1)} %`;
}
