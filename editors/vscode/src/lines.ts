// What steps did to memory, by line.

import type { Step, Stop } from './documents.js';
import { change, count } from './text.js';

export interface Note {
  line: number; // from 1
  text: string;
}

interface Line {
  last: Step;
  isWhole: boolean; // the last step ran this line, and stopped at the next
  sum_bytes: number; // of steps whose change is known
  steps: number;
  unknown: number;
}

const QUANTITIES: Record<string, string> = { massif: 'heap', heap: 'heap' };

/** The steps of one session. */
export class Lines {
  private readonly files = new Map<string, Map<number, Line>>();

  /** Adds the steps of `stop`. `isStep`: an editor's step over a line, which has ended as a step. */
  record(stop: Stop, isStep: boolean): void {
    for (const step of stop.steps) {
      if (step.file === null || step.line === null) continue;
      const lines = this.files.get(step.file) ?? new Map<number, Line>();
      this.files.set(step.file, lines);
      const before = lines.get(step.line);
      const typed = /^next(\s|$)/.test(step.command); // after memwatch, in the console
      lines.set(step.line, {
        last: step,
        isWhole: (typed && !step.ended) || (step.command === 'run' && isStep),
        sum_bytes: (before?.sum_bytes ?? 0) + (step.delta_bytes ?? 0),
        steps: (before?.steps ?? 0) + 1,
        unknown: (before?.unknown ?? 0) + (step.delta_bytes === null ? 1 : 0),
      });
    }
  }

  notes(file: string): Note[] {
    return [...(this.files.get(file) ?? [])].map(([line, one]) => ({ line, text: describe(one) }));
  }
}

function describe({ last, isWhole, sum_bytes, steps, unknown }: Line): string {
  const quantity = QUANTITIES[last.source] ?? 'resident';
  const own = `${change(last.delta_bytes)} ${quantity}${isWhole ? '' : ' from here to the next stop'}`;
  if (steps === 1) return own;
  const known = unknown === steps ? 'unknown' : change(sum_bytes);
  return `${own}; ${count(steps, 'step')} ${known}${unknown && unknown < steps ? ` without ${unknown} unknown` : ''}`;
}
