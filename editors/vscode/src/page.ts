// The script of the page of a table. All text goes into textContent: names come from strangers.

declare function acquireVsCodeApi(): { postMessage(message: { open: number } | { ready: true }): void };

(() => {
  const editor = acquireVsCodeApi();

  function add(parent: Element, name: string, text = ''): HTMLElement {
    const element = document.createElement(name);
    element.textContent = text;
    return parent.appendChild(element);
  }

  function addPlace(parent: Element, text: string, place: number | null): void {
    if (place === null) {
      add(parent, 'span', text);
      return;
    }
    add(parent, 'button', text).addEventListener('click', () => editor.postMessage({ open: place }));
  }

  window.addEventListener('message', ({ data }: MessageEvent<import('./tables.js').Shown>) => {
    (document.getElementById('answer') as HTMLElement).textContent = data.answer;
    const table = document.getElementById('table') as HTMLElement;
    table.replaceChildren();
    const heads = add(add(table, 'thead'), 'tr');
    for (const head of data.heads) add(heads, 'th', head).setAttribute('scope', 'col');
    const body = add(table, 'tbody');
    for (const row of data.rows) {
      const line = add(body, 'tr');
      for (const cell of row.cells) add(line, 'td', cell);
      const where = add(line, 'td');
      addPlace(where, row.where, row.place);
      if (!row.callers.length) continue;
      const more = add(where, 'details');
      add(more, 'summary', 'called by');
      for (const caller of row.callers) addPlace(add(more, 'div'), caller.text, caller.place);
    }
  });
  editor.postMessage({ ready: true });
})();
