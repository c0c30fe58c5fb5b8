// Foreign text, made safe to show, and sizes.

/** Returns `text` with control, format and unassigned characters as visible escapes: names come from strangers. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, (char) => {
    const code = (char.codePointAt(0) ?? 0).toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, '0')}` : code.length <= 4 ? `\\u${code.padStart(4, '0')}` : `\\u{${code}}`;
  });
}

/** Returns `text` for a notification, which would make a link, even one that runs a command, of `[text](command:…)`. */
export function unlinked(text: string): string {
  return printable(text).replaceAll('](', '] (');
}

/** Returns `bytes` as gdbmem prints them: `0 B`, `1,023 B`, `1.5 KiB`, `-2.0 MiB`; `unknown` for null. */
export function size(bytes: number | null): string {
  if (bytes === null) return 'unknown';
  let magnitude = Math.abs(bytes);
  const sign = bytes < 0 ? '-' : '';
  if (magnitude < 1024) return `${sign}${magnitude.toLocaleString('en-US', { maximumFractionDigits: 0 })} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  for (magnitude /= 1024; magnitude >= 1023.95 && unit < units.length - 1; unit++) magnitude /= 1024;
  return `${sign}${magnitude.toLocaleString('en-US', { minimumFractionDigits: 1, maximumFractionDigits: 1 })} ${units[unit]}`;
}

/** Returns a change: `+1.5 KiB`, `-2.0 MiB`, `0 B`. */
export function change(bytes: number | null): string {
  return bytes !== null && bytes > 0 ? `+${size(bytes)}` : size(bytes);
}

/** Returns `1 block` or `2,000 blocks`. */
export function count(number: number, noun: string): string {
  return `${number.toLocaleString('en-US')} ${noun}${number === 1 ? '' : 's'}`;
}
