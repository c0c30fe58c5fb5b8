// A stub of the editor: what the extension registers and shows is kept, to be asked and looked at.
import Module, { createRequire } from 'node:module';

class Emitter {
  listeners = [];
  event = (listener) => {
    this.listeners.push(listener);
    return { dispose() {} };
  };
  fire = (value) => this.listeners.forEach((listener) => listener(value));
  dispose() {}
}
const disposable = { dispose() {} };
const uri = (fsPath, scheme = 'file') => ({ fsPath, scheme, toString: () => `${scheme}://${fsPath}` });

export function editor() {
  const kept = {
    commands: {}, context: {}, errors: [], warnings: [], notices: [], views: {}, panels: [], opened: [], settings: {}, picks: [], picked: [],
    terminated: new Emitter(), custom: new Emitter(), activated: new Emitter(), files: {},
  };
  const say = (where) => (message) => {
    where.push(message);
    return Promise.resolve(undefined);
  };
  const api = {
    EventEmitter: Emitter,
    ThemeColor: class {},
    Range: class { constructor(...at) { this.at = at; } },
    Position: class { constructor(line, column) { this.line = line; this.column = column; } },
    Uri: { file: (path) => uri(path), joinPath: (base, ...parts) => uri([base.fsPath, ...parts].join('/')) },
    TreeItem: class { constructor(label, collapsibleState) { this.label = label; this.collapsibleState = collapsibleState; } },
    TreeItemCollapsibleState: { None: 0, Collapsed: 1 },
    ViewColumn: { One: 1, Beside: -2 },
    TaskScope: { Workspace: 2 },
    Task: class { constructor(...all) { [this.definition, this.scope, this.name, this.source, this.execution, this.problemMatchers] = all; } },
    ProcessExecution: class { constructor(command, words, options) { Object.assign(this, { command, words, options }); } },
    DebugAdapterExecutable: class { constructor(command, words, options) { Object.assign(this, { command, words, options }); } },
    commands: {
      registerCommand: (name, action) => ((kept.commands[name] = action), disposable),
      executeCommand: async (_name, key, value) => void (kept.context[key] = value),
    },
    debug: {
      activeDebugSession: undefined,
      registerDebugConfigurationProvider: (_type, provider) => ((kept.provider = provider), disposable),
      registerDebugAdapterDescriptorFactory: (_type, factory) => ((kept.factory = factory), disposable),
      registerDebugAdapterTrackerFactory: (_type, factory) => ((kept.trackers = factory), disposable),
      onDidReceiveDebugSessionCustomEvent: kept.custom.event,
      onDidTerminateDebugSession: kept.terminated.event,
      onDidChangeActiveDebugSession: kept.activated.event,
    },
    tasks: { registerTaskProvider: (_type, provider) => ((kept.tasks = provider), disposable) },
    window: {
      visibleTextEditors: [],
      createTextEditorDecorationType: () => disposable,
      onDidChangeVisibleTextEditors: new Emitter().event,
      createTreeView: (name, { treeDataProvider }) => (kept.views[name] = { provider: treeDataProvider, message: '', dispose() {} }),
      createWebviewPanel: (_type, title) => {
        const received = new Emitter();
        const panel = { title, sent: [], received, webview: {
          cspSource: 'https://source', html: '', asWebviewUri: (one) => one, onDidReceiveMessage: received.event,
          postMessage: async (message) => void panel.sent.push(message),
        } };
        kept.panels.push(panel);
        return panel;
      },
      withProgress: (_options, action) => action(),
      showErrorMessage: say(kept.errors),
      showWarningMessage: say(kept.warnings),
      showInformationMessage: say(kept.notices),
      showQuickPick: async (items) => {
        kept.picks.push(items);
        const label = kept.picked.shift();
        return items.find((item) => item.label === label);
      },
      showTextDocument: async (file, options) => void kept.opened.push([file.fsPath, options.selection.at[0].line]),
    },
    workspace: {
      getConfiguration: () => ({ get: (name, otherwise) => kept.settings[name] ?? otherwise }),
      onDidChangeConfiguration: new Emitter().event,
      findFiles: async () => Object.keys(kept.files).map((path) => uri(path)),
      getWorkspaceFolder: () => ({ uri: uri('/w') }),
      asRelativePath: ({ fsPath }) => fsPath.replace('/w/', ''),
      fs: { stat: async ({ fsPath }) => ({ size: kept.files[fsPath].length }), readFile: async ({ fsPath }) => Buffer.from(kept.files[fsPath]) },
    },
  };
  const load = Module._load;
  Module._load = (name, ...others) => (name === 'vscode' ? api : load(name, ...others));
  const require = createRequire(import.meta.url);
  delete require.cache[require.resolve('../out/extension.js')];
  const extension = require('../out/extension.js');
  Module._load = load;
  extension.activate({ subscriptions: [], extensionUri: uri('/ext') });
  return { api, kept };
}

/** A document that is open in `api`'s window. */
export function open(api, path, lineCount = 100) {
  const shown = { document: { uri: uri(path), lineCount }, decorations: [], setDecorations: (_type, all) => (shown.decorations = all) };
  api.window.visibleTextEditors.push(shown);
  return () => shown.decorations.map(({ range, renderOptions }) => [range.at[0] + 1, renderOptions.after.contentText]);
}

/** A debug session whose adapter answers from `answers`, which has bodies or errors. */
export function session(id, answers = {}, type = 'gdbmem', configuration = {}) {
  const asked = [];
  return { id, type, configuration, asked, customRequest: async (name, words) => {
    asked.push([name, words]);
    const answer = answers[name];
    if (answer instanceof Error) throw answer;
    return typeof answer === 'function' ? answer(words) : answer;
  } };
}
