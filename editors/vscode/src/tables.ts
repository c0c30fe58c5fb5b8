// Differences and sums of steps as tables whose rows lead to lines, and the page that shows a table.

import type { Diff, Frame, Row, Steps } from './documents.js';
import { change, count, printable, size } from './text.js';

export interface Place {
  file: string;
  line: number;
}

export interface TableRow {
  cells: string[];
  where: string;
  callers: { text: string; place: number | null }[];
  place: number | null; // in places
}

/** A table for the page, and the places that its rows lead to: the page knows only their numbers. */
export interface Table {
  title: string;
  answer: string;
  heads: string[];
  rows: TableRow[];
  places: Place[];
}

const CALLERS = 8;

class Places {
  readonly all: Place[] = [];

  number(frame: Frame | null | undefined): number | null {
    if (!frame?.file || !frame.line || frame.line < 1 || !frame.file.startsWith('/')) return null;
    return this.all.push({ file: frame.file, line: frame.line }) - 1;
  }
}

function nameOf(frame: Frame): string {
  const place = frame.file && frame.line ? ` ${frame.file.split('/').pop()}:${frame.line}` : frame.object ? ` in ${frame.object}` : '';
  return printable((frame.function ?? '??') + place);
}

/** Returns the rows of a difference, and those that stand for what isn't listed: all add up to the change. */
export function diffTable(diff: Diff): Table {
  const places = new Places();
  const rows = diff.paths.map((row) => {
    const frames = row.frames ?? [];
    const site = row.site ?? frames[0];
    const at = frames.findIndex((one) => one.file === site?.file && one.line === site?.line);
    const callers = frames.slice(at + 1, at + 1 + CALLERS).map((one) => ({ text: nameOf(one), place: places.number(one) }));
    const where = site ? nameOf(site) : row.below_threshold ? 'below the threshold' : 'unknown';
    return { cells: amounts(row), where, callers, place: places.number(site) };
  });
  const sums: [string, Row | null | undefined][] = [
    ['other paths', diff.rest], ['left out', diff.unmatched], ['known', diff.known],
  ];
  for (const [where, row] of sums) if (row?.delta_bytes || row?.paths) rows.push({ cells: amounts(row), where, callers: [], place: null });
  const total = { delta_bytes: diff.delta_bytes, before_bytes: diff.before.total_bytes, after_bytes: diff.after.total_bytes };
  rows.push({ cells: amounts(total), where: `total, ${printable(diff.unit)}`, callers: [], place: null });
  return {
    title: printable(`${diff.before.name ?? 'before'} → ${diff.after.name ?? 'after'}`),
    answer: printable(diff.answer),
    heads: ['change', 'before', 'after', 'where'],
    rows,
    places: places.all,
  };
}

function amounts(row: Row): string[] {
  const error = row.uncertain_bytes ? ` ± ${size(row.uncertain_bytes)}` : '';
  return [change(row.delta_bytes) + error, size(row.before_bytes), size(row.after_bytes)];
}

/** Returns the lines that steps ran, as listed. */
export function stepsTable(steps: Steps): Table {
  const places = new Places();
  const rows = steps.sums.map((sum) => {
    const unknown = sum.unknown_hits ? `, ${sum.unknown_hits} unknown` : '';
    const frame = { function: sum.function, file: sum.file, line: sum.line, object: null };
    return { cells: [change(sum.delta_bytes), count(sum.hits, 'step') + unknown], where: nameOf(frame), callers: [], place: places.number(frame) };
  });
  const answer = `The recorded steps changed memory by ${change(steps.total_bytes)} in all, as far as is known. A row counts what ran from its line to the next stop.`;
  return { title: 'Memory by line', answer, heads: ['change', 'steps', 'from'], rows, places: places.all };
}

/** What the page shows of a table. */
export type Shown = Pick<Table, 'answer' | 'heads' | 'rows'>;

/** Returns the page of a table. It has no data: its script asks for them, and sets text only. */
export function page(script: string, style: string, source: string, nonce: string): string {
  const policy = `default-src 'none'; script-src 'nonce-${nonce}'; style-src ${source}`;
  return `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<link rel="stylesheet" href="${style}">
</head><body><p id="answer"></p><table id="table"></table><script nonce="${nonce}" src="${script}"></script></body></html>`;
}
