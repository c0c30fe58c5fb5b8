// The parts that are used of gdbmem's JSON documents (docs/reference/json.md). An unknown amount is null, never 0.

export interface Step {
  command: string;
  function: string | null;
  file: string | null;
  line: number | null;
  delta_bytes: number | null;
  source: string;
  ended: string;
}

/** The body of the event gdbmem/stopped. */
export interface Stop {
  source: string;
  size_bytes: number | null;
  steps: Step[];
  omitted_steps: number;
}

export interface Ledger {
  kind: 'ledger';
  program: string;
  rss_bytes: number;
  releasable_bytes: number | null;
  entries: LedgerEntry[];
}

export interface LedgerEntry {
  category: string;
  label: string;
  resident_bytes: number;
  allocated_bytes: number | null;
  detail: { largest?: { name: string; resident_bytes: number }[] };
}

export interface Containers {
  kind: 'containers';
  containers: Container[];
  held_bytes: number;
  slack_bytes: number;
  live_heap_bytes: number | null;
  unread: Unread[];
  unsound: Unread[];
}

export interface Container {
  path: string;
  type: string;
  containers: number;
  size: number;
  capacity: number;
  held_bytes: number;
  slack_bytes: number;
}

export interface Unread {
  path: string;
  type: string;
  objects: number;
}

export interface Snapshot {
  name: string;
  place: string | null;
  heap_bytes: number | null;
}

export interface Frame {
  function: string | null;
  file: string | null;
  line: number | null;
  object: string | null;
}

/** A row of a difference; a sum of rows that are not listed has neither site nor frames. */
export interface Row {
  delta_bytes: number | null;
  before_bytes: number | null;
  after_bytes: number | null;
  uncertain_bytes?: number;
  site?: Frame | null;
  below_threshold?: boolean;
  frames?: Frame[];
  paths?: number;
}

export interface Diff {
  kind: 'diff';
  answer: string;
  unit: string;
  delta_bytes: number | null;
  before: { name: string | null; total_bytes: number };
  after: { name: string | null; total_bytes: number };
  paths: Row[];
  rest?: Row | null;
  unmatched?: Row | null;
  known?: Row | null;
}

export interface Steps {
  kind: 'steps';
  total_bytes: number | null;
  sums: StepSum[];
}

export interface StepSum {
  function: string | null;
  file: string | null;
  line: number | null;
  delta_bytes: number | null;
  hits: number;
  unknown_hits: number;
}
