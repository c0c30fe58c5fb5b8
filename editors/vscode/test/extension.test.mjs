// The extension against a stub of the editor.
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { after, test } from 'node:test';

import { editor, open, session } from './vscode.mjs';

const folder = mkdtempSync(join(tmpdir(), 'gdbmem vscode '));
after(() => rmSync(folder, { recursive: true }));
const program = join(folder, "a 'program'");
writeFileSync(program, '');

/** Begins `one` in the editor, whose adapter has gdbmem or not. */
function begin({ api, kept }, one, body = { supportsGdbmem: true }) {
  const tracker = kept.trackers.createDebugAdapterTracker(one);
  tracker.onDidSendMessage({ type: 'response', command: 'initialize', success: true, body });
  activate({ api, kept }, one);
  return {
    tracker,
    resumed: (command) => tracker.onWillReceiveMessage({ type: 'request', command }),
    stopped: (reason, steps) => {
      tracker.onDidSendMessage({ type: 'event', event: 'stopped', body: { reason } });
      kept.custom.fire({ session: one, event: 'gdbmem/stopped', body: { source: 'statm', size_bytes: 1, steps, omitted_steps: 0 } });
    },
  };
}

function activate({ api, kept }, one) {
  api.debug.activeDebugSession = one;
  kept.activated.fire(one);
}

const step = (line, delta_bytes) => ({ command: 'run', function: 'f', file: '/a.c', line, delta_bytes, source: 'statm', ended: '' });

test('a step is shown beside its line, of two sessions that of the one in front, and none after the end', () => {
  const at = editor();
  const shown = open(at.api, '/a.c');
  const [one, two] = [session('1'), session('2')];
  const first = begin(at, one);
  first.stopped('breakpoint', []);
  first.resumed('next');
  first.stopped('step', [step(3, 4096)]);
  assert.deepEqual(shown(), [[3, '+4.0 KiB resident']]);
  const second = begin(at, two);
  assert.deepEqual(shown(), []);
  second.resumed('next');
  second.stopped('breakpoint', [step(5, null)]);
  assert.deepEqual(shown(), [[5, 'unknown resident from here to the next stop']]);
  activate(at, one);
  assert.deepEqual(shown(), [[3, '+4.0 KiB resident']]);
  at.api.debug.activeDebugSession = undefined;
  at.kept.terminated.fire(one);
  assert.deepEqual([shown(), at.kept.context['gdbmem.session']], [[], false]);
});

test('a line beyond the end of a changed file, and a setting against it, show nothing', () => {
  const at = editor();
  const shown = open(at.api, '/a.c', 4);
  const { stopped } = begin(at, session('1'));
  stopped('step', [step(5, 1), step(4, 1)]);
  assert.equal(shown().length, 1);
  at.kept.settings.showSteps = false;
  stopped('step', [step(4, 1)]);
  assert.deepEqual(shown(), []);
});

const ledger = { kind: 'ledger', program: 'p', rss_bytes: 10, releasable_bytes: 0, entries: [{ category: 'heap.live', label: '', resident_bytes: 10, allocated_bytes: null, detail: {} }] };

test('the ledger is read when it is asked for, and then marked as old once the program has run', async () => {
  const at = editor();
  const one = session('1', { 'gdbmem/explain': ledger });
  const { stopped } = begin(at, one);
  const view = at.kept.views['gdbmem.ledger'];
  stopped('breakpoint', []);
  assert.deepEqual([one.asked.length, view.provider.getChildren().length], [0, 0]);
  await at.kept.commands['gdbmem.ledger']();
  assert.equal(view.provider.getTreeItem(view.provider.getChildren()[1]).label, 'heap');
  assert.equal(view.message, '');
  stopped('step', []);
  assert.match(view.message, /has run since/);
  begin(at, session('2'));
  assert.deepEqual([view.message, view.provider.getChildren()], ['', []]);
});

const place = (file, line) => ({ function: '<b onclick=x>\x1b[31m', file, line, object: null });

test('a difference is a table whose rows lead to lines of files, and to nothing else', async () => {
  const at = editor();
  const source = join(folder, 'a.c');
  writeFileSync(source, 'x');
  const row = (file) => ({ delta_bytes: 1, before_bytes: 0, after_bytes: 1, uncertain_bytes: 0, site: place(file, 7), frames: [] });
  const diff = { kind: 'diff', answer: 'grew', unit: 'bytes', delta_bytes: 3, before: { name: '1', total_bytes: 0 }, after: { name: '2', total_bytes: 3 }, paths: [row(source), row('/dev/zero'), row('/nonexistent')] };
  const snapshots = ['1', '$(x)\x1b', '2'].map((name) => ({ name, heap_bytes: 1, place: null }));
  const one = session('1', { 'gdbmem/snapshots': { snapshots }, 'gdbmem/diff': diff });
  begin(at, one);
  at.kept.picked.push('1', '2');
  await at.kept.commands['gdbmem.compare']();
  assert.deepEqual(one.asked.at(-1), ['gdbmem/diff', { snapshots: ['1', '2'], top: 200 }]);
  assert.equal(at.kept.picks[0][0].label, '$ (x)\\x1b');
  const [panel] = at.kept.panels;
  assert.equal(panel.title, '1 → 2');
  assert.doesNotMatch(panel.webview.html, /onclick/);
  const say = (message) => Promise.all(panel.received.listeners.map((listener) => listener(message)));
  await say({ ready: true });
  assert.equal(panel.sent[0].rows[0].where, '<b onclick=x>\\x1b[31m a.c:7');
  assert.equal(panel.sent[0].places, undefined);
  for (const number of [0, 1, 2, 9, -1, 'length', '__proto__']) await say({ open: number });
  assert.deepEqual(at.kept.opened, [[source, 6]]);
  assert.equal(at.kept.errors.length, 2);
});

test('a snapshot is reported, and a request that fails says what gdbmem says, without a link', async () => {
  const at = editor();
  const answers = { 'gdbmem/snapshot': { name: '1', heap_bytes: 2048, place: '[f](command:x) at a.c:1' } };
  begin(at, session('1', answers));
  await at.kept.commands['gdbmem.snapshot']();
  assert.deepEqual(at.kept.notices, ['snapshot 1: heap 2.0 KiB, in [f] (command:x) at a.c:1']);
  answers['gdbmem/snapshot'] = new Error('not here [not-under-massif]');
  await at.kept.commands['gdbmem.snapshot']();
  assert.match(at.kept.errors[0], /"engine": "massif"/);
  answers['gdbmem/snapshots'] = { snapshots: [] };
  await at.kept.commands['gdbmem.compare']();
  assert.match(at.kept.errors[1], /needs two heap snapshots/);
  answers['gdbmem/explain'] = new Error('the adapter has ended [x](command:y)');
  await at.kept.commands['gdbmem.ledger']();
  assert.equal(at.kept.errors[2], 'the adapter has ended [x] (command:y)');
  at.api.debug.activeDebugSession = undefined;
  await at.kept.commands['gdbmem.ledger']();
  assert.match(at.kept.errors[3], /start one of the type gdbmem/);
});

test('a gdb without gdbmem is told about once, and other debuggers are left alone', () => {
  const at = editor();
  begin(at, session('1'), {});
  assert.equal(at.kept.warnings.length, 1);
  begin(at, session('2', {}, 'lldb'), {});
  assert.deepEqual([at.kept.warnings.length, at.kept.context['gdbmem.session']], [1, false]);
  begin(at, session('3', {}, 'cppdbg'), {});
  assert.equal(at.kept.context['gdbmem.session'], true);
});

test('a gdb that crashes is reported, one that the editor ends is not', () => {
  const at = editor();
  begin(at, session('1')).tracker.onExit(undefined, undefined);
  begin(at, session('2')).tracker.onExit(1, undefined);
  assert.deepEqual(at.kept.errors, [
    'gdb has ended unexpectedly, by a signal, and the session with it.', 'gdb has ended unexpectedly, with status 1, and the session with it.',
  ]);
  const ended = begin(at, session('3'));
  ended.resumed('disconnect');
  ended.tracker.onExit(0, undefined);
  begin(at, session('4', {}, 'cppdbg')).tracker.onExit(1, undefined);
  assert.equal(at.kept.errors.length, 2);
});

test('a launch is checked before gdb starts, which gets the folder and the variables of the program', async () => {
  const at = editor();
  const resolve = (configuration) => at.kept.provider.resolveDebugConfigurationWithSubstitutedVariables({ uri: { fsPath: folder } }, configuration);
  const launch = { type: 'gdbmem', request: 'launch', name: 'n', program };
  for (const wrong of [{ program: '/nonexistent' }, { program: 'relative' }, { program: folder }, { cwd: program }, { args: 1 }])
    assert.equal(await resolve({ ...launch, ...wrong }), undefined, JSON.stringify(wrong));
  assert.equal(at.kept.errors.length, 5);
  assert.equal(at.kept.provider.resolveDebugConfiguration(undefined, {}), null);
  assert.equal(at.kept.provider.resolveDebugConfiguration(undefined, launch), launch);
  const gdb = join(folder, 'gdb');
  writeFileSync(gdb, '#!/bin/sh\necho has python; echo has dap\n');
  chmodSync(gdb, 0o755);
  at.kept.settings.gdb = gdb;
  const start = async (configuration) => ({ ...(await at.kept.factory.createDebugAdapterDescriptor(session('1', {}, 'gdbmem', configuration))) });
  const plain = await resolve({ ...launch, env: { A: 'b' } });
  assert.equal(plain.program, program);
  assert.deepEqual(await start(plain), { command: gdb, words: ['-q', '-i=dap', '-iex', 'source gdbmem', '-iex', 'set environment A b'], options: { cwd: folder } });
  const massif = await resolve({ ...launch, engine: 'massif', env: { A: 'b' }, cwd: '/' });
  assert.deepEqual([massif.request, massif.type], ['attach', 'gdbmem']);
  assert.ok(massif.target.startsWith("| exec 'env' 'A=b' 'sh' '/ext/massif.sh' '"));
  assert.deepEqual(await start(massif), { command: gdb, words: ['-q', '-i=dap', '-iex', 'source gdbmem'], options: { cwd: '/' } });
  await assert.rejects(start({ gdbmem: { gdb: '/nonexistent/[x](command:y)' } }), /'\/nonexistent\/\[x\] \(command:y\)' can't be started as gdb/);
});

test('a recipe is a task that no shell sees', async () => {
  const at = editor();
  Object.assign(at.kept.files, { '/w/a/leak.yaml': 'program: x\npoints:\n', '/w/other.yaml': 'a: b', '/w/big.yaml': `program: x\npoints:\n${' '.repeat(70_000)}` });
  const [task, ...more] = await at.kept.tasks.provideTasks();
  assert.deepEqual(more, []);
  assert.deepEqual(task.definition, { type: 'gdbmem', recipe: 'a/leak.yaml' });
  assert.deepEqual({ ...task.execution }, { command: 'gdbmem', words: ['launch', '--recipe=a/leak.yaml', '--ci', 'github'], options: { cwd: '/w' } });
  assert.equal(task.problemMatchers, '$gdbmem');
  const own = at.kept.tasks.resolveTask({ definition: { type: 'gdbmem', recipe: 'b $(id).yaml', arguments: ['-q'] }, scope: undefined });
  assert.deepEqual(own.execution.words, ['launch', '--recipe=b $(id).yaml', '--ci', 'github', '-q']);
  assert.equal(at.kept.tasks.resolveTask({ definition: { type: 'gdbmem', recipe: 3 } }), undefined);
});
