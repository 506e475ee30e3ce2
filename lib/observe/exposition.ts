/**
 * Writes metrics in Prometheus' text format 0.0.4.
 */
import { Readable } from "node:stream";
import { DURATION_BUCKETS } from "./metrics.ts";

/** Names and values in turn. */
export type Labels = readonly string[];

export type Family = { readonly name: string; readonly help: string } & (
  | { readonly type: "counter" | "gauge"; readonly samples: Iterable<readonly [labels: Labels, value: number]> }
  | { readonly type: "histogram"; readonly samples: Iterable<readonly [labels: Labels, value: Histogram]> }
);

/** Counts in each bucket of `BUCKETS` and above them, and the sum of the times in milliseconds. */
export interface Histogram {
  readonly counts: readonly number[];
  readonly sumMs: number;
}

export function exposition(families: readonly Family[]): string {
  return [...pieces(families)].join("");
}

/**
 * The same as a stream of slices, each made when there is room for it and in its own turn of the event loop, about half
 * a millisecond long:
 * the text of 10 000 busy routes has 20 MB.
 */
export function expositionStream(families: readonly Family[]): Readable {
  return Readable.from(slices(families), { objectMode: false, highWaterMark: SLICE_CHARACTERS });
}

const SLICE_CHARACTERS = 64 * 1024;

async function* slices(families: readonly Family[]): AsyncGenerator<Buffer> {
  let text = "";
  for (const piece of pieces(families)) {
    text += piece;
    if (text.length < SLICE_CHARACTERS) continue;
    yield Buffer.from(text);
    text = "";
    await new Promise((resolve) => setImmediate(resolve));
  }
  yield Buffer.from(text);
}

/** A piece for each sample and for the head of each family. */
function* pieces(families: readonly Family[]): Generator<string> {
  for (const { name, help, type, samples } of families) {
    yield `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}\n`;
    for (const [labels, value] of samples) {
      const text = labelsText(labels);
      yield typeof value === "number" ? sample(name, text, value) : histogram(name, text, value);
    }
  }
}

function histogram(name: string, labels: string, { counts, sumMs }: Histogram): string {
  const before = labels === "" ? "" : `${labels},`;
  let text = "";
  let total = 0;
  for (let i = 0; i < counts.length; i++) {
    total += counts[i]!;
    text += sample(`${name}_bucket`, `${before}le="${DURATION_BUCKETS[i] ?? "+Inf"}"`, total);
  }
  return text + sample(`${name}_sum`, labels, Math.round(sumMs * 1000) / 1e6) + sample(`${name}_count`, labels, total);
}

function sample(name: string, labels: string, value: number): string {
  const text = Number.isFinite(value) || Number.isNaN(value) ? String(value) : value > 0 ? "+Inf" : "-Inf";
  return `${name}${labels === "" ? "" : `{${labels}}`} ${text}\n`;
}

function labelsText(labels: Labels): string {
  let text = "";
  for (let i = 0; i < labels.length; i += 2)
    text += `${i === 0 ? "" : ","}${labels[i]}="${escaped(labels[i + 1]!).replace(/"/g, '\\"')}"`;
  return text;
}

function escaped(text: string): string {
  return text.replace(/\\/g, "\\\\").replace(/\n/g, "\\n");
}
