// A ledger and a scan of containers as trees.

import type { Containers, Ledger, Unread } from './documents.js';
import { count, printable, size } from './text.js';

export interface Node {
  label: string;
  description: string;
  tooltip?: string;
  children: Node[];
}

const MOST = 1000; // children of a node

/** Returns the groups of a ledger, largest first; they add up to the resident set. */
export function ledgerTree(ledger: Ledger): Node[] {
  const groups = new Map<string, { bytes: number; children: [number, Node][] }>();
  for (const entry of ledger.entries) {
    const name = entry.category.split('.')[0] ?? '';
    const group = groups.get(name) ?? { bytes: 0, children: [] };
    groups.set(name, group);
    group.bytes += entry.resident_bytes;
    const allocated = entry.allocated_bytes === null ? '' : `; ${size(entry.allocated_bytes)} allocated`;
    const largest = (entry.detail.largest ?? []).map((one) => leaf(one.name, size(one.resident_bytes)));
    const label = [entry.category, entry.label].filter(Boolean).join(' ');
    group.children.push([entry.resident_bytes, { ...leaf(label, size(entry.resident_bytes) + allocated), children: largest }]);
  }
  const found = [...groups].sort(([, a], [, b]) => b.bytes - a.bytes);
  const returned = leaf('malloc_trim(0) would return', size(ledger.releasable_bytes));
  return [
    { ...leaf(ledger.program, `${size(ledger.rss_bytes)} resident`) },
    ...found.map(([name, { bytes, children }]) => ({
      ...leaf(name, size(bytes)),
      children: children.sort(([a], [b]) => b - a).map(([, node]) => node),
    })),
    returned,
  ];
}

/** Returns the containers, largest first, and after them what could not be read. */
export function containersTree(scan: Containers): Node[] {
  const containers = [...scan.containers].sort((a, b) => b.held_bytes - a.held_bytes);
  const omitted = containers.slice(MOST);
  const held = omitted.reduce((sum, one) => sum + one.held_bytes, 0);
  const heap = scan.live_heap_bytes === null ? '' : ` of ${size(scan.live_heap_bytes)} in use`;
  return [
    leaf('all containers', `${size(scan.held_bytes)}${heap}, ${size(scan.slack_bytes)} unused`),
    ...containers.slice(0, MOST).map((one) => {
      const many = one.containers === 1 ? '' : `${count(one.containers, 'container')}, `;
      const unused = one.slack_bytes ? `, ${size(one.slack_bytes)} unused` : '';
      return { ...leaf(one.path, `${size(one.held_bytes)}: ${many}${count(one.size, 'element')}${unused}`), tooltip: printable(one.type) };
    }),
    ...(omitted.length ? [leaf(`${count(omitted.length, 'more path')}`, size(held))] : []),
    ...unread('not read: unknown layout', scan.unread),
    ...unread('not read: not a valid container', scan.unsound),
  ];
}

function unread(label: string, objects: Unread[]): Node[] {
  if (!objects.length) return [];
  const children = objects.slice(0, MOST).map((one) => ({ ...leaf(one.path, count(one.objects, 'object')), tooltip: printable(one.type) }));
  return [{ ...leaf(label, count(objects.length, 'path')), children }];
}

function leaf(label: string, description: string): Node {
  return { label: printable(label), description, children: [] };
}
