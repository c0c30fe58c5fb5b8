// The protocol with a real gdb, started as the extension starts it: GDB=/path/to/gdb-14-or-later npm test
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { DebugClient } from '@vscode/debugadapter-testsupport';

import gdb from '../out/gdb.js';

const here = fileURLToPath(new URL('.', import.meta.url));
const script = join(here, '../massif.sh');
const load = join(here, '../../../gdbinit/gdbmem');
const file = process.env['GDB'] ?? 'gdb';
const skip = (await gdb.unfit(file)) ?? false;
let folder = '';
let program = '';

before(() => {
  folder = mkdtempSync(join(process.env['GDBMEM_TEST_FOLDER'] ?? tmpdir(), 'gdbmem vscode '));
  mkdirSync(join(folder, `it's "a" \\b`));
  program = join(folder, `it's "a" \\b`, 'program <b>');
  execFileSync('cc', ['-g', '-o', program, join(here, 'program.c')]);
});
after(() => rmSync(folder, { recursive: true, force: true }));

/** A session as the editor has it: gdb, the requests that begin it, and what has come since. */
async function start(configuration, { breakpoints = ['keep'], stops = true } = {}) {
  assert.equal(gdb.wrong(configuration), null);
  const { request, ...words } = gdb.adapted(configuration, script);
  const env = configuration.engine === 'massif' ? {} : configuration.env;
  const settings = ['-nx', '-iex', 'set debuginfod enabled off', '-iex', 'set auto-load no'];
  const child = spawn(file, [...settings, ...gdb.gdbArguments(load, env)], { cwd: configuration.cwd ?? folder, stdio: 'pipe' });
  const client = new DebugClient(file, '', 'gdb');
  client.defaultTimeout = 60_000;
  client.connect(child.stdout, child.stdin);
  child.stderr.resume();
  const session = { client, child, output: '', stops: [], waiting: [], ended: new Promise((done) => child.on('exit', done)) };
  client.on('output', ({ body }) => (session.output += body.output));
  for (const name of ['stopped', 'gdbmem/stopped']) client.on(name, (event) => session.stops.push(event));
  session.stopped = async (action) => {
    const done = [client.waitForEvent('stopped'), client.waitForEvent('gdbmem/stopped')];
    await action();
    return Promise.all(done).then((all) => all.map((event) => event.body));
  };
  const initialized = client.waitForEvent('initialized');
  const able = await client.initializeRequest({ adapterID: 'gdbmem', linesStartAt1: true, columnsStartAt1: true, pathFormat: 'path', supportsProgressReporting: true });
  assert.equal(able.body.supportsGdbmem, true);
  const begin = async () => {
    const asked = client.send(request, words);
    await initialized;
    await client.setFunctionBreakpointsRequest({ breakpoints: breakpoints.map((name) => ({ name })) });
    await client.configurationDoneRequest();
    await asked;
  };
  session.first = stops ? await session.stopped(begin) : await begin();
  return session;
}

async function end({ client, ended }) {
  await client.disconnectRequest({ terminateDebuggee: true });
  return ended;
}

test('a step over a line says what the line did to memory, and the ledger adds up', { skip }, async () => {
  const args = ['a b', "it's", '"', '$HOME', '*', ''];
  const session = await start({ request: 'launch', program, args, env: { GIVEN: `x 'y' "z"` } });
  const { client } = session;
  await session.stopped(() => client.nextRequest({ threadId: 1 }));
  const [stop, memory] = await session.stopped(() => client.nextRequest({ threadId: 1 }));
  assert.equal(stop.reason, 'step');
  const [step] = memory.steps;
  assert.equal(step.line, 13);
  assert.ok(Math.abs(step.delta_bytes - 1_000_000) <= 8192, String(step.delta_bytes));
  assert.ok(session.stops.findIndex((one) => one.event === 'stopped') < session.stops.findIndex((one) => one.event === 'gdbmem/stopped'));
  const { body: ledger } = await client.customRequest('gdbmem/explain', {});
  assert.equal(ledger.entries.reduce((sum, one) => sum + one.resident_bytes, 0), ledger.rss_bytes);
  assert.equal((await client.customRequest('gdbmem/containers', {})).body.kind, 'containers');
  assert.equal((await client.customRequest('gdbmem/steps', { top: 1000 })).body.sums[0].line, 13);
  await assert.rejects(client.customRequest('gdbmem/snapshot', {}), /\[not-under-massif\]/);
  for (const word of args) assert.ok(session.output.includes(`word <${word}>`), session.output);
  assert.ok(session.output.includes(`variable <x 'y' "z">`));
  assert.ok(session.output.includes(`folder <${folder}>`));
  assert.equal(await end(session), 0);
});

test('under massif snapshots are taken here, and their difference leads to the line', { skip }, async () => {
  const args = ['much', 'a b', "it's"];
  const session = await start({ request: 'launch', program, args, env: { GIVEN: `x 'y'` }, engine: 'massif' });
  const { client } = session;
  await session.stopped(() => client.continueRequest({ threadId: 1 }));
  const taken = [(await client.customRequest('gdbmem/snapshot', {})).body];
  const [, memory] = await session.stopped(() => client.nextRequest({ threadId: 1 }));
  assert.equal(memory.steps[0].delta_bytes, 1_000_000);
  taken.push((await client.customRequest('gdbmem/snapshot', {})).body);
  const { body: diff } = await client.customRequest('gdbmem/diff', { snapshots: taken.map((one) => one.name), top: 200 });
  assert.equal(diff.paths[0].delta_bytes, 1_000_000);
  assert.deepEqual([diff.paths[0].site.line, diff.paths[0].site.file.endsWith('/program.c')], [12, true]);
  assert.equal((await client.customRequest('gdbmem/snapshots', {})).body.snapshots.length, 2);
  await client.setFunctionBreakpointsRequest({ breakpoints: [] });
  const exited = client.waitForEvent('exited');
  await client.continueRequest({ threadId: 1 });
  assert.equal((await exited).body.exitCode, 3);
  assert.equal(await end(session), 0);
  assert.equal(session.output.split('a line of a program').length, 20_001);
  for (const text of ['word <a b>', "word <it's>", `variable <x 'y'>`, `folder <${folder}>`]) assert.ok(session.output.includes(text), text);
  assert.deepEqual(readdirSync(folder).filter((name) => name.startsWith('massif.out')), []);
});

test('a program that ends at once is not an error', { skip }, async () => {
  for (const engine of ['none', 'massif']) {
    const session = await start({ request: 'launch', program, args: ['nothing'], engine }, { breakpoints: [], stops: engine === 'massif' });
    const exited = session.client.waitForEvent('exited');
    if (engine === 'massif') await session.client.continueRequest({ threadId: 1 });
    assert.equal((await exited).body.exitCode, 5);
    await assert.rejects(session.client.customRequest('gdbmem/explain', {}));
    assert.equal(await end(session), 0);
  }
});

/** The processes that have `text` among the words of their command. */
const processes = (text) =>
  readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(text);
    } catch {
      return false;
    }
  });

const name = (pid) => readFileSync(`/proc/${pid}/comm`, 'utf8').trim();

/** The gdb that `pid` is, or has started: GDB may be a script. */
function gdbOf(pid) {
  if (name(pid) === 'gdb') return pid;
  return processes('').filter((one) => parent(one) === pid).map((one) => gdbOf(Number(one))).find(Boolean);
}

function parent(pid) {
  try {
    return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/.*\)/s, '').split(' ')[2]);
  } catch {
    return null; // it has ended
  }
}

async function until(met) {
  for (let tries = 0; tries < 600 && !met(); tries++) await new Promise((done) => setTimeout(done, 100));
}

async function gone(text) {
  await until(() => !processes(text).length);
  return processes(text);
}

test('a gdb that is killed, or leaves the program, leaves no valgrind behind', { skip }, async () => {
  const killed = await start({ request: 'launch', program, args: ['killed'], engine: 'massif' });
  const pid = gdbOf(killed.child.pid);
  assert.ok(processes(program).length);
  process.kill(Number(pid), 'SIGKILL');
  await killed.ended;
  assert.deepEqual(await gone(program), []);
  const left = await start({ request: 'launch', program, args: ['left'], engine: 'massif' });
  await left.client.disconnectRequest({ terminateDebuggee: false });
  await left.ended;
  assert.deepEqual(await gone(program), []);
});

test('a program that runs can be paused, and left while it runs', { skip }, async () => {
  for (const engine of ['none', 'massif']) {
    const session = await start({ request: 'launch', program, args: ['deaf', engine], engine }, { breakpoints: [], stops: engine === 'massif' });
    if (engine === 'massif') await session.client.continueRequest({ threadId: 1 });
    await until(() => existsSync(join(folder, 'deaf')));
    await session.stopped(() => session.client.pauseRequest({ threadId: 1 }));
    await session.client.continueRequest({ threadId: 1 });
    // gdb answers before it continues, and can hang if it shall kill meanwhile, with or without gdbmem.
    await new Promise((done) => setTimeout(done, 700));
    assert.equal(await end(session), 0);
    assert.deepEqual(await gone(program), []);
    rmSync(join(folder, 'deaf'));
  }
});

test('Stop ends a program that runs under massif, and gdb, and keeps the snapshots', { skip }, async () => {
  for (const request of ['terminate', 'disconnect']) {
    const session = await start({ request: 'launch', program, args: ['deaf', request], engine: 'massif' }, { breakpoints: ['main'] });
    const { client } = session;
    await session.stopped(() => client.continueRequest({ threadId: 1 }));
    await client.customRequest('gdbmem/snapshot', {});
    const [run] = readdirSync(folder).filter((name) => name.startsWith('gdbmem.'));
    const snapshots = () => readdirSync(join(folder, run, 'snapshots'));
    const kept = snapshots();
    await client.continueRequest({ threadId: 1 });
    await until(() => existsSync(join(folder, 'deaf')));
    const terminated = client.waitForEvent('terminated');
    if (request === 'terminate') await client.customRequest('terminate', {});
    assert.equal(await end(session), 0);
    await terminated;
    assert.deepEqual(await gone(program), []);
    assert.deepEqual([kept.length, snapshots()], [1, kept]);
    rmSync(join(folder, 'deaf'));
    rmSync(join(folder, run), { recursive: true });
  }
});

test('a process that gdb has attached to and left goes on as it was', { skip }, async () => {
  const child = spawn(program, ['deaf', 'attached'], { cwd: folder, stdio: 'ignore' });
  await until(() => existsSync(join(folder, 'deaf')));
  const session = await start({ request: 'attach', pid: child.pid }, { breakpoints: [] });
  const { body: ledger } = await session.client.customRequest('gdbmem/explain', {});
  assert.equal(ledger.entries.reduce((sum, one) => sum + one.resident_bytes, 0), ledger.rss_bytes);
  await session.client.disconnectRequest({ terminateDebuggee: false });
  assert.equal(await session.ended, 0);
  const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
  assert.match(status, /State:\tS.*\nTgid/s);
  assert.match(status, /TracerPid:\t0\n/);
  child.kill('SIGKILL');
  rmSync(join(folder, 'deaf'));
});

test('a program that ignores SIGTERM ends when gdb has gone, and with it what waits for gdb', { skip }, async () => {
  const child = spawn('sh', [script, program, 'deaf'], { cwd: folder, stdio: ['pipe', 'pipe', 'ignore'] });
  child.stdout.resume();
  child.stdin.write('+$c#63'); // as gdb says: continue
  await until(() => existsSync(join(folder, 'deaf')));
  child.stdin.end();
  await new Promise((done) => child.on('exit', done));
  assert.deepEqual(await gone(program), []);
});

test('two sessions at once know nothing of each other', { skip }, async () => {
  const [plain, massif] = await Promise.all([
    start({ request: 'launch', program, args: ['one'] }), start({ request: 'launch', program, args: ['two'], engine: 'massif' }),
  ]);
  await massif.stopped(() => massif.client.continueRequest({ threadId: 1 }));
  await massif.client.customRequest('gdbmem/snapshot', {});
  await assert.rejects(plain.client.customRequest('gdbmem/snapshots', {}), /\[not-under-massif\]/);
  assert.deepEqual([await end(plain), await end(massif)], [0, 0]);
  assert.ok(!plain.output.includes('word <two>') && !massif.output.includes('word <one>'));
});
