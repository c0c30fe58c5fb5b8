// The gdb to start: whether it is fit, its arguments, and what it is asked to debug.

import { execFile } from 'node:child_process';

/** The least that is needed of a run of gdb: what it printed; null where it could not be started. */
export type Run = (file: string, words: string[]) => Promise<string | null>;

export const run: Run = (file, words) =>
  new Promise((resolve) => {
    execFile(file, words, { timeout: 30_000, maxBuffer: 1 << 20 }, (error, out, err) => {
      const failed = error as NodeJS.ErrnoException | null;
      resolve(typeof failed?.code === 'string' && failed.syscall?.startsWith('spawn') ? null : out + err);
    });
  });

/** Returns why `gdb` can't be used, as a sentence with what to do; null if it can. */
export async function unfit(gdb: string, start: Run = run): Promise<string | null> {
  const has = ['python print("has " + "python")', 'python import gdb.dap; print("has " + "dap")'];
  const printed = await start(gdb, ['-nx', '-q', '-batch', ...has.flatMap((command) => ['-ex', command])]);
  const other = 'Install gdb 14 or later with Python, or name another in the setting gdbmem.gdb.';
  if (printed === null) return `'${gdb}' can't be started as gdb. ${other}`;
  if (printed.includes('has dap')) return null;
  const version = (await start(gdb, ['-nx', '--version']))?.split('\n')[0]?.trim() || 'it prints no version';
  if (!/gdb/i.test(version)) return `'${gdb}' is not gdb (${version}). ${other}`;
  if (!printed.includes('has python')) return `The gdb '${gdb}' (${version}) has no working Python. ${other}`;
  return `The gdb '${gdb}' (${version}) has no debug adapter; gdb has one since 14. ${other}`;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
// A line end would begin another command of gdb's.
const CONTROL = /[\0-\x1f\x7f]/;

/** What a launch.json says; checked, because nobody else does. */
export interface Configuration {
  request?: unknown;
  program?: unknown;
  args?: unknown;
  cwd?: unknown;
  env?: unknown;
  engine?: unknown;
  gdb?: unknown;
  [key: string]: unknown;
}

/** Returns what is wrong with a configuration, as a sentence; null if nothing is. */
export function wrong(configuration: Configuration): string | null {
  const { request, program, args, cwd, env, engine, pid, target, gdb } = configuration;
  for (const [name, value] of Object.entries({ program, cwd, target, gdb })) {
    if (value !== undefined && (typeof value !== 'string' || CONTROL.test(value)))
      return `"${name}" must be a text of one line.`;
  }
  if (args !== undefined && !(Array.isArray(args) && args.every((one) => typeof one === 'string' && !one.includes('\0'))))
    return '"args" must be a list of texts, one for each argument.';
  if (engine === 'massif' && (args as string[] | undefined)?.some((one) => CONTROL.test(one)))
    return 'Under massif, "args" can only have texts of one line.';
  for (const [name, value] of Object.entries(env ?? {})) {
    if (!NAME.test(name)) return `"env" can't set the variable ${JSON.stringify(name)}: it is not a name.`;
    if (typeof value !== 'string' || CONTROL.test(value)) return `"env" must have a text of one line for ${name}.`;
  }
  if (engine !== undefined && engine !== 'none' && engine !== 'massif') return '"engine" must be "none" or "massif".';
  if (request === 'launch') return program ? null : 'A launch needs the "program" to debug.';
  if (!pid && !target) return 'To attach, set "pid" (of a process here) or "target" (as after \'target remote\').';
  return pid === undefined || Number.isInteger(pid) ? null : '"pid" must be the number of a process.';
}

/** Returns gdb's arguments: its debug adapter, gdbmem, and the variables of the program, not of gdb, in `env`. */
export function gdbArguments(load: string, env: Record<string, string> = {}): string[] {
  const variables = Object.entries(env).flatMap(([name, value]) => ['-iex', `set environment ${name} ${value}`]);
  return ['-q', '-i=dap', ...(load ? ['-ix', load] : ['-iex', 'source gdbmem']), ...variables];
}

/** Returns `text` as one word of a shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Returns the request that gdb's adapter gets for `configuration`. With massif that is an attach to `script`. */
export function adapted(configuration: Configuration, script: string): Configuration {
  const { engine, args, cwd: _cwd, env, gdb: _gdb, ...others } = configuration; // gdb itself has cwd and env
  if (engine !== 'massif') return args === undefined ? others : { ...others, args };
  const variables = Object.entries((env ?? {}) as Record<string, string>).map(([name, value]) => `${name}=${value}`);
  const words = ['env', ...variables, 'sh', script, String(others.program), ...((args ?? []) as string[])];
  return { ...others, request: 'attach', target: `| exec ${words.map(quoted).join(' ')}` };
}
