// A call tree of n calls with a fixed seed, in the shape that each page wants; benchmarks/bench_page.py puts this into all of them.
function makeTree(n) {
  let seed = 12345;
  const random = () => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff;
  const parent = new Int32Array(n).fill(-1);
  const depth = new Int32Array(n);
  const isInner = new Uint8Array(n);
  for (let call = 1; call < n; call++) {
    let caller = random() < 0.7 ? call - 1 : Math.floor(random() * call);
    while (depth[caller] >= 40) caller = parent[caller];
    parent[call] = caller;
    depth[call] = depth[caller] + 1;
    isInner[caller] = 1;
  }
  const own = Float64Array.from(parent, (_, call) => (isInner[call] ? 0 : Math.ceil(100 / (random() + 1e-4))));
  return { parent, own, frame: (call) => (call * 7919) % 4000, name: (frame) => `ns${frame % 37}::Class${frame % 211}::method_${frame}` };
}

// As gdbmem's page holds it.
function asProfile(n) {
  const { parent, own, frame, name } = makeTree(n);
  const frames = Array.from({ length: 4000 }, (_, at) => at);
  const paths = [...own.keys()].filter((call) => own[call]);
  return {
    unit: "bytes of heap", relative: false, hides: false, doubt: null, shown: [-1, 0], outermost_first: true,
    strings: [...frames.map(name), "/src/a.cpp"],
    frames: { name: frames, full: frames.map(() => -1), file: frames.map(() => 4000), line: frames, object: frames.map(() => -1), own: frames.map(() => 1) },
    parent: Array.from(parent, (caller, call) => (call ? call - caller : 0)),
    frame: Array.from(parent, (_, call) => (call ? frame(call) : -1)),
    ends: paths.map((call, at) => call - (at ? paths[at - 1] : 0)),
    site: paths.map(frame),
    snapshots: [{ name: "one", total: own.reduce((a, b) => a + b), bytes: paths.map((call) => own[call]), blocks: null }],
  };
}

// As nested objects; key names the size, and each has where it begins.
function asNested(n, key) {
  const { parent, own, frame, name } = makeTree(n);
  const nodes = Array.from(parent, (_, call) => ({ name: call ? name(frame(call)) : "all", [key]: own[call], start: 0, children: [] }));
  for (let call = n - 1; call > 0; call--) nodes[parent[call]][key] += nodes[call][key];
  for (let call = 1; call < n; call++) nodes[parent[call]].children.push(nodes[call]);
  for (const node of nodes) {
    let at = node.start;
    for (const child of node.children) {
      child.start = at;
      at += child[key];
    }
  }
  return nodes;
}

// As folded stacks.
function asFolded(n) {
  const { parent, own, frame, name } = makeTree(n);
  const texts = new Array(n).fill("");
  for (let call = 1; call < n; call++) texts[call] = texts[parent[call]] + ";" + name(frame(call));
  return [...own.keys()].filter((call) => own[call]).map((call) => `${texts[call].slice(1) || "all"} ${own[call]}`).join("\n");
}
// As speedscope's own format: each call opens where its bytes begin and closes where they end.
function asSpeedscope(n) {
  const { frame } = makeTree(n);
  const nodes = asNested(n, "value");
  const frames = Array.from({ length: 4000 }, (_, at) => ({ name: makeTree(1).name(at) }));
  const numbers = new Map(nodes.map((node, call) => [node, frame(call)]));
  const events = [];
  const waiting = [{ node: nodes[0], isOpen: false }];
  while (waiting.length) {
    const { node, isOpen } = waiting.pop();
    events.push({ type: isOpen ? "C" : "O", frame: numbers.get(node), at: isOpen ? node.start + node.value : node.start });
    if (isOpen) continue;
    waiting.push({ node, isOpen: true });
    for (let at = node.children.length - 1; at >= 0; at--) waiting.push({ node: node.children[at], isOpen: false });
  }
  const profile = { type: "evented", name: "a tree", unit: "bytes", startValue: 0, endValue: nodes[0].value, events };
  return { $schema: "https://www.speedscope.app/file-format-schema.json", shared: { frames }, profiles: [profile] };
}
if (typeof module !== "undefined") module.exports = { asProfile, asFolded, asSpeedscope };
