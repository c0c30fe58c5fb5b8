// Asking gdbmem in a debug session: by a request of gdb's adapter, or by a command in the console of another one.

import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The least that is needed of a vscode.DebugSession. */
export interface Session {
  readonly type: string;
  customRequest(command: string, words?: unknown): Thenable<unknown>;
}

export type Request = 'explain' | 'containers' | 'snapshot' | 'snapshots' | 'diff' | 'steps';

const COMMANDS: Record<Request, string> = {
  explain: 'memexplain',
  containers: 'memcontainers',
  snapshot: 'massif-snap',
  snapshots: 'massif-list',
  diff: 'massif-diff',
  steps: 'memwatch report',
};
const WORD = /^[\w.][\w.#:+-]*$/; // nothing that gdb, or a shell, would take for an option, or for more than a word

/** Returns the document that answers `request`. `names`: the snapshots of a diff. Rejects with gdbmem's sentence. */
export async function ask<Document>(session: Session, request: Request, names: string[] = []): Promise<Document> {
  if (session.type === 'cppdbg') return (await askConsole(session, request, names)) as Document;
  const words = { ...(request === 'diff' ? { snapshots: names, top: 200 } : {}), ...(request === 'steps' ? { top: 1000 } : {}) };
  return (await session.customRequest(`gdbmem/${request}`, words)) as Document;
}

// Microsoft's C/C++ extension passes what follows -exec to gdb. The document goes through a file, because its console
// mixes what gdb and the program print.
async function askConsole(session: Session, request: Request, names: string[]): Promise<unknown> {
  const odd = names.find((name) => !WORD.test(name));
  if (odd !== undefined) throw new Error(`The name ${JSON.stringify(odd)} can't be typed in this session's console.`);
  const exec = (command: string) =>
    session.customRequest('evaluate', { expression: `-exec ${command}`, context: 'repl' }) as Thenable<{ result?: string }>;
  if (request === 'snapshot') {
    const { result } = await exec(COMMANDS.snapshot);
    const list = (await askConsole(session, 'snapshots', [])) as { snapshots: unknown[] };
    const last = list.snapshots.at(-1);
    if (last === undefined) throw new Error(result?.trim() || 'No snapshot was taken.');
    return last;
  }
  const folder = await mkdtemp(join(tmpdir(), 'gdbmem-'));
  try {
    const file = join(folder, 'answer.json');
    if (!WORD.test(file.replaceAll('/', ''))) throw new Error(`The path ${file} can't be typed in this session's console.`);
    const { result } = await exec([COMMANDS[request], '--json', '-o', file, ...names].join(' '));
    const text = await readFile(file, 'utf8').catch(() => null);
    if (text === null) throw new Error(result?.trim() || 'gdbmem did not answer; load it by a "setupCommands" of this configuration.');
    return JSON.parse(text);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const UNDER_MASSIF = '[not-under-massif]';

/** Returns the sentence of a request that failed, with what to do in this editor. */
export function sentence(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  if (!text.includes(UNDER_MASSIF)) return text;
  return `Heap snapshots need "engine": "massif" in the launch configuration ${UNDER_MASSIF}`;
}
