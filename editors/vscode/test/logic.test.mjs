// What the extension computes, without an editor and without gdb.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import gdb from '../out/gdb.js';
import { Lines } from '../out/lines.js';
import recipes from '../out/recipes.js';
import requests from '../out/requests.js';
import tables from '../out/tables.js';
import text from '../out/text.js';
import trees from '../out/trees.js';
import { readFileSync, writeFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';

const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));

test('sizes are those that gdbmem prints', () => {
  const sizes = [0, 1023, 1024, 1536, -2097152, 1048575, 1099511627776, null];
  assert.deepEqual(sizes.map(text.size), ['0 B', '1,023 B', '1.0 KiB', '1.5 KiB', '-2.0 MiB', '1.0 MiB', '1.0 TiB', 'unknown']);
  assert.deepEqual([5, 0, -5, null].map(text.change), ['+5 B', '0 B', '-5 B', 'unknown']);
});

test('a name from a stranger has no escape for a terminal, no hidden direction, and is no link', () => {
  assert.equal(text.printable('a\x1b[31mb\u202ec\n\ud800é'), 'a\\x1b[31mb\\u202ec\\x0a\\ud800é');
  assert.equal(text.unlinked('[see](command:evil)'), '[see] (command:evil)');
});

const step = (more) => ({ command: 'run', function: 'f', file: '/a.c', line: 3, delta_bytes: 4096, source: 'statm', ended: '', ...more });
const stop = (...steps) => ({ source: 'statm', size_bytes: 1, omitted_steps: 0, steps });

test('a line has what its step did, and says where more than the line ran', () => {
  const lines = new Lines();
  lines.record(stop(step()), true);
  assert.deepEqual(lines.notes('/a.c'), [{ line: 3, text: '+4.0 KiB resident' }]);
  lines.record(stop(step({ delta_bytes: 8192, source: 'massif' })), false);
  assert.deepEqual(lines.notes('/a.c'), [{ line: 3, text: '+8.0 KiB heap from here to the next stop; 2 steps +12.0 KiB' }]);
  assert.deepEqual(lines.notes('/b.c'), []);
});

test('an unknown change is not zero, neither of a step nor in a sum', () => {
  const lines = new Lines();
  lines.record(stop(step({ delta_bytes: null })), true);
  assert.equal(lines.notes('/a.c')[0].text, 'unknown resident');
  lines.record(stop(step()), true);
  assert.equal(lines.notes('/a.c')[0].text, '+4.0 KiB resident; 2 steps +4.0 KiB without 1 unknown');
  lines.record(stop(step({ file: null }), step({ line: null })), true);
});

test('steps that memwatch made in the console count as steps', () => {
  const lines = new Lines();
  lines.record(stop(step({ command: 'next 2' }), step({ command: 'next', line: 4, ended: 'breakpoint 1' })), false);
  assert.deepEqual(lines.notes('/a.c').map((one) => one.text), ['+4.0 KiB resident', '+4.0 KiB resident from here to the next stop']);
});

const ledger = {
  kind: 'ledger', program: 'p', rss_bytes: 6000, releasable_bytes: null,
  entries: [
    { category: 'heap.live', label: '', resident_bytes: 1000, allocated_bytes: 1200, detail: {} },
    { category: 'file.code', label: '', resident_bytes: 4000, allocated_bytes: null, detail: { largest: [{ name: '/lib\x1b[2J', resident_bytes: 4000 }] } },
    { category: 'heap.free.pinned', label: 'x', resident_bytes: 1000, allocated_bytes: null, detail: {} },
  ],
};

test('the groups of a ledger add up, largest first, and what is unknown says so', () => {
  const tree = trees.ledgerTree(ledger);
  assert.deepEqual(tree.map((node) => [node.label, node.description]), [
    ['p', '5.9 KiB resident'], ['file', '3.9 KiB'], ['heap', '2.0 KiB'], ['malloc_trim(0) would return', 'unknown'],
  ]);
  assert.deepEqual(tree[1].children[0].children[0].label, '/lib\\x1b[2J');
  assert.equal(tree[2].children[0].description, '1,000 B; 1.2 KiB allocated');
});

test('containers that are not listed and those that could not be read are counted', () => {
  const one = (path, held_bytes) => ({ path, type: 'T', containers: 1, size: 1, capacity: 1, held_bytes, slack_bytes: 0 });
  const containers = Array.from({ length: 1002 }, (_, i) => one(`c${i}`, i));
  const tree = trees.containersTree({
    kind: 'containers', containers, held_bytes: 501501, slack_bytes: 0, live_heap_bytes: null, unread: [{ path: 'u', type: 'U', objects: 2 }], unsound: [],
  });
  assert.equal(tree.length, 1 + 1000 + 1 + 1);
  assert.equal(tree[1].label, 'c1001');
  assert.deepEqual([tree[1001].label, tree[1001].description], ['2 more paths', '1 B']);
  assert.equal(tree[1002].children[0].description, '2 objects');
});

const frame = (name, file, line) => ({ function: name, file, line, object: null });
const diff = {
  kind: 'diff', answer: 'heap grew', unit: 'bytes of heap', delta_bytes: 30,
  before: { name: 'a', total_bytes: 10 }, after: { name: 'b', total_bytes: 40 },
  paths: [
    {
      delta_bytes: 20, before_bytes: 0, after_bytes: 20, uncertain_bytes: 4, site: frame('<img src=x onerror=alert(1)>', '/src/a.c', 7),
      frames: [frame('malloc', null, null), frame('<img src=x onerror=alert(1)>', '/src/a.c', 7), frame('main', '/src/a.c', 9)],
    },
    { delta_bytes: 5, before_bytes: 0, after_bytes: 5, uncertain_bytes: 0, site: null, below_threshold: true, frames: [] },
  ],
  rest: { delta_bytes: 5, before_bytes: 10, after_bytes: 15, paths: 3 }, unmatched: null, known: null,
};

test('the rows of a difference lead to lines, and with the sums below add up to the total', () => {
  const table = tables.diffTable(diff);
  assert.deepEqual(table.rows.map((row) => row.cells[0]), ['+20 B ± 4 B', '+5 B', '+5 B', '+30 B']);
  assert.deepEqual(table.rows.map((row) => row.where.replace(/<.*> /, '')), ['a.c:7', 'below the threshold', 'other paths', 'total, bytes of heap']);
  assert.deepEqual(table.places[table.rows[0].place], { file: '/src/a.c', line: 7 });
  assert.deepEqual(table.rows[0].callers, [{ text: 'main a.c:9', place: 0 }].map((one) => ({ ...one, place: table.rows[0].callers[0].place })));
  assert.deepEqual(table.places[table.rows[0].callers[0].place], { file: '/src/a.c', line: 9 });
});

test('a relative path, and a line that cannot be, lead nowhere', () => {
  const sums = [frame('f', 'a.c', 1), frame('f', '/a.c', 0), frame(null, null, null)].map((one) => ({ ...one, delta_bytes: null, hits: 1, unknown_hits: 1 }));
  const table = tables.stepsTable({ kind: 'steps', total_bytes: null, sums });
  assert.deepEqual(table.rows.map((row) => [row.place, row.cells[0], row.where]), [[null, 'unknown', 'f a.c:1'], [null, 'unknown', 'f'], [null, 'unknown', '??']]);
});

test('the page allows one script and one style, and has no data', () => {
  const html = tables.page('s.js', 's.css', 'https://source', 'abc');
  assert.match(html, /default-src 'none'; script-src 'nonce-abc'; style-src https:\/\/source"/);
  assert.doesNotMatch(html, /unsafe|onclick|style=/);
  const script = readFileSync(new URL('../out/page.js', import.meta.url), 'utf8');
  assert.doesNotMatch(script, /innerHTML|insertAdjacentHTML|outerHTML|document\.write|\beval\b|exports/);
});

test('a gdb that is missing, older, without Python, or no gdb at all is refused by a sentence with what to do', async () => {
  const answers = (has, version) => async (_file, words) => (words.includes('--version') ? version : has);
  const all = [
    [null, null, /^'g' can't be started as gdb\./],
    ['has python\nNo module named gdb.dap', 'GNU gdb (Debian 13.1-3) 13.1\nmore', /13\.1\) has no debug adapter; gdb has one since 14\./],
    ['Python scripting is not supported', 'GNU gdb 16.3', /has no working Python/],
    ['', 'cat 9.1', /is not gdb \(cat 9\.1\)/],
    ['', '', /is not gdb \(it prints no version\)/],
  ];
  for (const [has, version, expected] of all) {
    const found = await gdb.unfit('g', answers(has, version));
    assert.match(found, expected);
    assert.match(found, /Install gdb 14 or later/);
  }
  assert.equal(await gdb.unfit('g', answers('has python\nhas dap\n', '')), null);
  assert.match(await gdb.unfit('/nonexistent/gdb'), /can't be started/);
});

test('a configuration that gdb would take for something else is refused', () => {
  const good = { request: 'launch', program: '/p' };
  assert.equal(gdb.wrong({ ...good, args: ['a\nb'], env: { A: 'b c' }, cwd: '/x' }), null);
  const bad = [
    { request: 'launch' }, { ...good, program: '/p\nshell id' }, { ...good, args: 'a b' }, { ...good, args: [1] }, { ...good, env: { 'A B': 'c' } },
    { ...good, env: { A: 'x\nshell id' } }, { ...good, env: { A: 1 } }, { ...good, engine: 'heaptrack' }, { ...good, engine: 'massif', args: ['a\nshell id'] }, { ...good, cwd: 3 }, { ...good, gdb: 'a\nb' },
    { request: 'attach' }, { request: 'attach', pid: 'x' }, { request: 'attach', pid: 1.5 }, { request: 'attach', target: 'a\nshell id' },
  ];
  for (const one of bad) assert.equal(typeof gdb.wrong(one), 'string', JSON.stringify(one));
});

test('what a launch under massif passes through a shell arrives as it was', () => {
  const args = ['a b', "it's", '"', '$HOME', '`id`', '\\', '', '*', '-z'];
  const { target, request } = gdb.adapted(
    { request: 'launch', program: "/p q/it's", args, env: { A: "b 'c'" }, engine: 'massif' }, '/ext/massif.sh');
  assert.equal(request, 'attach');
  assert.match(target, /^\| exec 'env' 'A=b /);
  const words = execFileSync('sh', ['-c', `for one in ${target.slice('| exec '.length)}; do printf '%s\\0' "$one"; done`]).toString().split('\0');
  assert.deepEqual(words, ['env', "A=b 'c'", 'sh', '/ext/massif.sh', "/p q/it's", ...args, '']);
});

test('a plain launch keeps its own fields only, and variables are those of the program, not of gdb', () => {
  const found = gdb.adapted({ request: 'launch', program: '/p', args: ['x'], env: { A: 'b' }, cwd: '/c', gdb: 'g', engine: 'none', stopAtBeginningOfMainSubprogram: true }, 's');
  assert.deepEqual(found, { request: 'launch', program: '/p', args: ['x'], stopAtBeginningOfMainSubprogram: true });
  assert.deepEqual(gdb.gdbArguments('', { A: 'b c' }), ['-q', '-i=dap', '-iex', 'source gdbmem', '-iex', 'set environment A b c']);
  assert.deepEqual(gdb.gdbArguments('/x y/gdbmem'), ['-q', '-i=dap', '-ix', '/x y/gdbmem']);
});

// A stub of Microsoft's C/C++ extension: what follows -exec is typed into gdb. Not tried with the extension itself.
const cppdbg = (typed, answer) => ({
  type: 'cppdbg',
  customRequest: async (command, { expression, context }) => {
    assert.deepEqual([command, context], ['evaluate', 'repl']);
    typed.push(expression);
    const file = / -o (\S+)/.exec(expression)?.[1];
    if (file && answer !== undefined) writeFileSync(file, JSON.stringify(answer));
    return { result: 'said in the console' };
  },
});

test('a session of cppdbg is asked by -exec, and its document comes by a file', async () => {
  const typed = [];
  assert.deepEqual(await requests.ask(cppdbg(typed, ledger), 'explain'), ledger);
  assert.match(typed[0], /^-exec memexplain --json -o \/\S+\/answer\.json$/);
  const taken = await requests.ask(cppdbg(typed, { snapshots: [{ name: '1' }, { name: '2' }] }), 'snapshot');
  assert.deepEqual([taken.name, typed[1]], ['2', '-exec massif-snap']);
  await requests.ask(cppdbg(typed, diff), 'diff', ['a', 'b#2']);
  assert.match(typed[3], / a b#2$/);
  await assert.rejects(requests.ask(cppdbg(typed), 'explain'), /said in the console/);
  const length = typed.length;
  for (const name of ['a; shell id', '--html=x', 'a\nb'])
    await assert.rejects(requests.ask(cppdbg(typed, diff), 'diff', [name, 'b']), /can't be typed/);
  assert.equal(typed.length, length);
});

test('a snapshot without massif says what to write into launch.json', () => {
  assert.match(requests.sentence(new Error('… quit gdb and type: gdbmem launch [not-under-massif]')), /"engine": "massif"/);
  assert.equal(requests.sentence('x'), 'x');
});

test('recipes are told from other YAML, and played without a shell', () => {
  assert.ok(recipes.isRecipe('# x\nprogram: build/a\npoints:\n  - at: f\n'));
  assert.ok(!recipes.isRecipe('services:\n  program: x\n'));
  assert.deepEqual(recipes.recipeWords('-x y.yaml', ['-q']), ['launch', '--recipe=-x y.yaml', '--ci', 'github', '-q']);
});

test('the problem matcher reads what gdbmem prints for GitHub', () => {
  const [pattern] = manifest.contributes.problemPatterns;
  const found = new RegExp(pattern.regexp).exec('::error file=examples/decoder/decoder.cpp,line=261,title=gdbmem leak.yaml%3A not met::+843.8 KiB: more, than expected');
  assert.deepEqual([found[pattern.severity], found[pattern.file], found[pattern.line], found[pattern.message]], ['error', 'examples/decoder/decoder.cpp', '261', '+843.8 KiB: more, than expected']);
});

test('it starts nothing in a workspace that is not trusted', () => {
  assert.equal(manifest.capabilities.untrustedWorkspaces.supported, false);
  assert.equal(manifest.dependencies, undefined);
});
