// What meets the editor: everything else is in modules that know nothing of it.

import { randomBytes } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { isAbsolute } from 'node:path';
import * as vscode from 'vscode';

import type { Containers, Diff, Ledger, Snapshot, Steps, Stop } from './documents.js';
import * as gdb from './gdb.js';
import { Lines } from './lines.js';
import { isRecipe, recipeWords } from './recipes.js';
import { ask, sentence } from './requests.js';
import { diffTable, page, stepsTable, type Place, type Table } from './tables.js';
import { printable, size, unlinked } from './text.js';
import { containersTree, ledgerTree, type Node } from './trees.js';

const TYPE = 'gdbmem';

/** What is known of a debug session. */
class Known {
  readonly lines = new Lines();
  readonly trees = new Map<string, { nodes: Node[]; stops: number }>(); // by view
  stops = 0;
  resumedBy = ''; // the last request that let the program run
  stoppedBy = ''; // the reason of the stop since; empty while it runs
}

const sessions = new Map<string, Known>(); // those that gdbmem answers in
let views: View[] = [];
let decoration: vscode.TextEditorDecorationType;

export function activate(context: vscode.ExtensionContext): void {
  const script = vscode.Uri.joinPath(context.extensionUri, 'massif.sh').fsPath;
  decoration = vscode.window.createTextEditorDecorationType({
    after: { margin: '0 0 0 3em', color: new vscode.ThemeColor('editorCodeLens.foreground') },
  });
  views = [
    new View('gdbmem.ledger', async (session) => ledgerTree(await ask<Ledger>(session, 'explain'))),
    new View('gdbmem.containers', async (session) => containersTree(await ask<Containers>(session, 'containers'))),
  ];
  const command = (name: string, action: (session: vscode.DebugSession) => Promise<void>) =>
    vscode.commands.registerCommand(name, () => inSession(action));
  context.subscriptions.push(
    decoration,
    ...views,
    vscode.debug.registerDebugConfigurationProvider(TYPE, {
      // Without a launch.json it is empty: null has the editor open one.
      resolveDebugConfiguration: (_folder, configuration) => (configuration.request ? configuration : null),
      resolveDebugConfigurationWithSubstitutedVariables: resolve(script),
    }),
    vscode.debug.registerDebugAdapterDescriptorFactory(TYPE, { createDebugAdapterDescriptor: start }),
    vscode.debug.registerDebugAdapterTrackerFactory('*', { createDebugAdapterTracker: track }),
    vscode.debug.onDidReceiveDebugSessionCustomEvent(receive),
    vscode.debug.onDidTerminateDebugSession((session) => {
      sessions.delete(session.id);
      refresh();
    }),
    vscode.debug.onDidChangeActiveDebugSession(refresh),
    vscode.window.onDidChangeVisibleTextEditors(showLines),
    vscode.workspace.onDidChangeConfiguration(showLines),
    ...views.map((view) => command(view.name, (session) => view.read(session))),
    command('gdbmem.snapshot', takeSnapshot),
    command('gdbmem.compare', compare),
    command('gdbmem.steps', async (session) => showTable(context, stepsTable(await ask<Steps>(session, 'steps')))),
    vscode.tasks.registerTaskProvider(TYPE, { provideTasks, resolveTask: (task) => recipeTask(task.definition, task.scope) }),
  );

  async function compare(session: vscode.DebugSession): Promise<void> {
    const { snapshots } = await ask<{ snapshots: Snapshot[] }>(session, 'snapshots');
    if (snapshots.length < 2) throw new Error('A comparison needs two heap snapshots; take one, let the program run, take another.');
    const before = await choose('The earlier snapshot', snapshots.slice(0, -1).reverse());
    const after = before && (await choose('The later snapshot', snapshots.slice(snapshots.indexOf(before) + 1).reverse()));
    if (before && after) showTable(context, diffTable(await ask<Diff>(session, 'diff', [before.name, after.name])));
  }
}

// A session: its configuration, gdb, and what passes between the two.

function resolve(script: string) {
  return async (folder: vscode.WorkspaceFolder | undefined, configuration: vscode.DebugConfiguration) => {
    const fault = gdb.wrong(configuration) ?? (await missing(configuration));
    if (fault !== null) {
      void vscode.window.showErrorMessage(unlinked(fault));
      return undefined;
    }
    const cwd = configuration['cwd'] ?? folder?.uri.fsPath;
    return { ...gdb.adapted(configuration, script), gdbmem: { ...configuration, cwd } } as unknown as vscode.DebugConfiguration;
  };
}

async function missing({ request, program, cwd }: vscode.DebugConfiguration): Promise<string | null> {
  const found = async (path: string) => stat(path).catch(() => null);
  if (cwd && !(await found(cwd))?.isDirectory()) return `"cwd" is not a folder: ${cwd}`;
  if (request !== 'launch') return null;
  if (!isAbsolute(program)) return `"program" must be a full path, as in "\${workspaceFolder}/program", not ${program}`;
  return (await found(program))?.isFile() ? null : `There is no program ${program}; build it first.`;
}

async function start(session: vscode.DebugSession): Promise<vscode.DebugAdapterDescriptor> {
  const settings = vscode.workspace.getConfiguration(TYPE, session.workspaceFolder);
  const own = session.configuration['gdbmem'] as gdb.Configuration;
  const file = (own.gdb as string | undefined) || settings.get('gdb', 'gdb');
  const fault = await gdb.unfit(file);
  if (fault !== null) throw new Error(unlinked(fault));
  const env = own.engine === 'massif' ? {} : (own.env as Record<string, string> | undefined);
  const options = typeof own.cwd === 'string' ? { cwd: own.cwd } : {};
  return new vscode.DebugAdapterExecutable(file, gdb.gdbArguments(settings.get('load', ''), env), options);
}

interface Message {
  type: string;
  command?: string;
  event?: string;
  success?: boolean;
  body?: { supportsGdbmem?: boolean; reason?: string };
}

const RESUMES = new Set(['next', 'stepIn', 'stepOut', 'continue', 'goto', 'reverseContinue', 'stepBack']);

function track(session: vscode.DebugSession): vscode.DebugAdapterTracker {
  let isEnding = false; // the editor has said so
  return {
    onExit: (code: number | undefined) => {
      if (isEnding || session.type !== TYPE) return; // the editor itself says nothing
      const how = typeof code === 'number' ? `with status ${code}` : 'by a signal';
      void vscode.window.showErrorMessage(`gdb has ended unexpectedly, ${how}, and the session with it.`);
    },
    onWillReceiveMessage: ({ type, command }: Message) => {
      isEnding ||= command === 'disconnect';
      const known = sessions.get(session.id);
      if (type !== 'request' || !RESUMES.has(command ?? '') || !known) return;
      known.resumedBy = command ?? '';
      known.stoppedBy = '';
    },
    onDidSendMessage: (message: Message) => {
      if (message.command === 'initialize' && message.type === 'response') begin(session, message);
      const known = sessions.get(session.id);
      if (message.event !== 'stopped' || !known) return;
      known.stops += 1;
      known.stoppedBy = message.body?.reason ?? '';
      views.forEach((view) => view.show());
    },
  };
}

function begin(session: vscode.DebugSession, { body }: Message): void {
  if (body?.supportsGdbmem || session.type === 'cppdbg') {
    sessions.set(session.id, new Known());
    refresh();
  } else if (session.type === TYPE) {
    const text = "This gdb has not loaded gdbmem, so it debugs without it. Run 'gdbmem install' in a terminal, or name the file gdbinit/gdbmem in the setting gdbmem.load.";
    void vscode.window.showWarningMessage(text);
  }
}

function receive({ session, event, body }: vscode.DebugSessionCustomEvent): void {
  const known = sessions.get(session.id);
  if (event !== 'gdbmem/stopped' || !known) return;
  known.lines.record(body as Stop, known.resumedBy === 'next' && known.stoppedBy === 'step');
  showLines();
}

function active(): [vscode.DebugSession, Known] | undefined {
  const session = vscode.debug.activeDebugSession;
  const known = session && sessions.get(session.id);
  return known && [session, known];
}

function refresh(): void {
  void vscode.commands.executeCommand('setContext', 'gdbmem.session', active() !== undefined);
  views.forEach((view) => view.show());
  showLines();
}

async function inSession(action: (session: vscode.DebugSession) => Promise<void>): Promise<void> {
  const found = active();
  try {
    if (!found) throw new Error('gdbmem answers in a debug session with gdb; start one of the type gdbmem.');
    await action(found[0]);
  } catch (error) {
    void vscode.window.showErrorMessage(unlinked(sentence(error)));
  }
}

// What is shown.

function showLines(): void {
  const lines = vscode.workspace.getConfiguration(TYPE).get('showSteps', true) ? active()?.[1].lines : undefined;
  for (const editor of vscode.window.visibleTextEditors) {
    const { uri, lineCount } = editor.document;
    const notes = (uri.scheme === 'file' && lines?.notes(uri.fsPath)) || [];
    editor.setDecorations(
      decoration,
      notes.filter(({ line }) => line <= lineCount).map(({ line, text }) => ({
        range: new vscode.Range(line - 1, Number.MAX_SAFE_INTEGER, line - 1, Number.MAX_SAFE_INTEGER),
        renderOptions: { after: { contentText: text } },
      })),
    );
  }
}

class View implements vscode.TreeDataProvider<Node>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;
  private readonly view: vscode.TreeView<Node>;

  constructor(readonly name: string, private readonly nodes: (session: vscode.DebugSession) => Promise<Node[]>) {
    this.view = vscode.window.createTreeView(name, { treeDataProvider: this });
  }

  dispose(): void {
    this.view.dispose();
    this.changed.dispose();
  }

  /** Reads the program's memory, which takes seconds and is done only when it is asked for. */
  async read(session: vscode.DebugSession): Promise<void> {
    const known = sessions.get(session.id);
    if (!known) return;
    const stops = known.stops;
    await vscode.commands.executeCommand(`${this.name}.focus`);
    const nodes = await vscode.window.withProgress({ location: { viewId: this.name } }, () => this.nodes(session));
    known.trees.set(this.name, { nodes, stops });
    this.show();
  }

  show(): void {
    const found = active()?.[1];
    const tree = found?.trees.get(this.name);
    const isOld = found && tree && tree.stops !== found.stops;
    this.view.message = isOld ? 'Of an earlier stop: the program has run since.' : '';
    this.changed.fire();
  }

  getChildren(node?: Node): Node[] {
    return node ? node.children : active()?.[1].trees.get(this.name)?.nodes ?? [];
  }

  getTreeItem(node: Node): vscode.TreeItem {
    const { None, Collapsed } = vscode.TreeItemCollapsibleState;
    const item = new vscode.TreeItem(node.label, node.children.length ? Collapsed : None);
    item.description = node.description;
    item.tooltip = node.tooltip ?? `${node.label}: ${node.description}`;
    return item;
  }
}

async function takeSnapshot(session: vscode.DebugSession): Promise<void> {
  const { name, heap_bytes, place } = await ask<Snapshot>(session, 'snapshot');
  const text = `snapshot ${name}: heap ${size(heap_bytes)}${place ? `, in ${place}` : ''}`;
  void vscode.window.showInformationMessage(unlinked(text));
}

async function choose(title: string, snapshots: Snapshot[]): Promise<Snapshot | undefined> {
  const plain = (text: string) => printable(text).replaceAll('$(', '$ ('); // else an icon
  const items = snapshots.map((snapshot) => ({
    label: plain(snapshot.name), description: size(snapshot.heap_bytes), detail: plain(snapshot.place ?? ''), snapshot,
  }));
  return (await vscode.window.showQuickPick(items, { title }))?.snapshot;
}

function showTable(context: vscode.ExtensionContext, table: Table): void {
  const panel = vscode.window.createWebviewPanel('gdbmem.table', table.title, vscode.ViewColumn.Beside, {
    enableScripts: true, localResourceRoots: [context.extensionUri],
  });
  const { webview } = panel;
  const uri = (path: string) => webview.asWebviewUri(vscode.Uri.joinPath(context.extensionUri, path)).toString();
  webview.onDidReceiveMessage(async ({ ready, open }: { ready?: boolean; open?: number }) => {
    if (ready) await webview.postMessage({ answer: table.answer, heads: table.heads, rows: table.rows });
    const place = typeof open === 'number' ? table.places[open] : undefined;
    if (place) await openPlace(place);
  });
  webview.html = page(uri('out/page.js'), uri('page.css'), webview.cspSource, randomBytes(16).toString('hex'));
}

async function openPlace({ file, line }: Place): Promise<void> {
  const found = await stat(file).catch(() => null);
  if (!found?.isFile()) {
    void vscode.window.showErrorMessage(unlinked(`The source ${file} is not on this machine.`));
    return;
  }
  const at = new vscode.Position(line - 1, 0);
  await vscode.window.showTextDocument(vscode.Uri.file(file), { selection: new vscode.Range(at, at), viewColumn: vscode.ViewColumn.One });
}

// Recipes.

async function provideTasks(): Promise<vscode.Task[]> {
  const tasks: vscode.Task[] = [];
  for (const file of await vscode.workspace.findFiles('**/*.{yaml,yml}', '**/node_modules/**', 500)) {
    const folder = vscode.workspace.getWorkspaceFolder(file);
    if (!folder || (await vscode.workspace.fs.stat(file)).size > 65_536) continue;
    if (!isRecipe(Buffer.from(await vscode.workspace.fs.readFile(file)).toString())) continue;
    const task = recipeTask({ type: TYPE, recipe: vscode.workspace.asRelativePath(file, false) }, folder);
    if (task) tasks.push(task);
  }
  return tasks;
}

function recipeTask(definition: vscode.TaskDefinition, scope: vscode.Task['scope']): vscode.Task | undefined {
  const { recipe, arguments: others } = definition as unknown as { recipe?: unknown; arguments?: unknown };
  const words = others ?? [];
  if (typeof recipe !== 'string' || !Array.isArray(words) || words.some((word) => typeof word !== 'string')) return undefined;
  const command = vscode.workspace.getConfiguration(TYPE).get('command', 'gdbmem');
  const cwd = typeof scope === 'object' ? { cwd: scope.uri.fsPath } : {};
  const execution = new vscode.ProcessExecution(command, recipeWords(recipe, words as string[]), cwd); // no shell
  return new vscode.Task(definition, scope ?? vscode.TaskScope.Workspace, `recipe ${printable(recipe)}`, TYPE, execution, '$gdbmem');
}
