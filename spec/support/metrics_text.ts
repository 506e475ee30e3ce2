/**
 * Reads Prometheus' text format 0.0.4 strictly: throws an error that names the line for whatever the format forbids.
 */

export interface ReadSample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface ReadFamily {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly samples: ReadSample[];
}

export class ReadMetrics {
  readonly families: ReadonlyMap<string, ReadFamily>;

  constructor(families: ReadonlyMap<string, ReadFamily>) {
    this.families = families;
  }

  /** Samples of this name that have at least these labels. */
  all(name: string, labels: Record<string, string> = {}): readonly ReadSample[] {
    const samples = [...this.families.values()].flatMap((family) => family.samples);
    return samples.filter(
      (sample) =>
        sample.name === name && Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
    );
  }

  /** The value of the only such sample; undefined when there is none. */
  one(name: string, labels: Record<string, string> = {}): number | undefined {
    const found = this.all(name, labels);
    if (found.length > 1) throw new Error(`${found.length} samples ${name} ${JSON.stringify(labels)}`);
    return found[0]?.value;
  }
}

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*/;
const LABEL = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"/;
const NUMBER = /^(?:[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|[+-]Inf|NaN)$/i;

export function readMetrics(text: string): ReadMetrics {
  if (text === "" || !text.endsWith("\n")) throw new Error("the last line has no end");
  const lines = text.slice(0, -1).split("\n");
  const families = new Map<string, ReadFamily>();
  const seen = new Set<string>();
  let pending: { name: string; help?: string; type?: string } | null = null;
  let family: ReadFamily | null = null;

  lines.forEach((line, i) => {
    const fail = (why: string): never => {
      throw new Error(`line ${i + 1}: ${why}: ${line}`);
    };
    if (line === "") fail("empty");
    if (line.startsWith("#")) {
      const [, keyword, name = "", rest = ""] =
        /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? fail("neither HELP nor TYPE");
      if (NAME.exec(name)?.[0] !== name) fail("no name");
      if (families.has(name)) fail("a family for the second time, or metadata behind its samples");
      if (pending?.name !== name) {
        if (pending !== null) fail(`${pending.name} is not told whole`);
        pending = { name };
      }
      const key = keyword === "HELP" ? "help" : "type";
      if (pending[key] !== undefined) fail("told twice");
      if (key === "help" && !/^(?:[^\\]|\\[\\n])*$/.test(rest)) fail("help that is not rightly escaped");
      if (key === "type" && !/^(?:counter|gauge|histogram)$/.test(rest)) fail("no type");
      pending[key] = rest;
      if (pending.help === undefined || pending.type === undefined) return;
      family = { name, type: pending.type, help: pending.help, samples: [] };
      families.set(name, family);
      pending = null;
      return;
    }
    if (family === null || pending !== null) return fail("a sample without HELP and TYPE");
    const { sample, end } = readSample(line, fail);
    const suffixes = family.type === "histogram" ? ["_bucket", "_sum", "_count"] : [""];
    if (!suffixes.some((suffix) => sample.name === family!.name + suffix)) fail(`not of the family ${family.name}`);
    if (family.type === "counter" && !sample.name.endsWith("_total")) fail("a counter without _total");
    if (family.type === "counter" && !(sample.value >= 0 && Number.isFinite(sample.value)))
      fail("a counter is a number from 0 on");
    if (sample.name.endsWith("_bucket") === (sample.labels.le === undefined)) fail("le is there for buckets alone");
    const series = JSON.stringify([sample.name, Object.entries(sample.labels).sort()]);
    if (seen.has(series)) fail("the same series for the second time");
    seen.add(series);
    if (!NUMBER.test(end)) fail("no number");
    family.samples.push(sample);
  });
  if (pending !== null) throw new Error("the last family is not told whole");
  for (const each of families.values()) if (each.type === "histogram") checkHistogram(each);
  return new ReadMetrics(families);
}

function readSample(line: string, fail: (why: string) => never): { sample: ReadSample; end: string } {
  const name = NAME.exec(line)?.[0] ?? fail("no name");
  let rest = line.slice(name.length);
  const labels: Record<string, string> = {};
  if (rest.startsWith("{")) {
    rest = rest.slice(1);
    while (!rest.startsWith("}")) {
      const [all, label, value] = LABEL.exec(rest) ?? fail("no label");
      if (label! in labels) fail("a label for the second time");
      labels[label!] = value!.replace(/\\(.)/g, (_, escaped: string) => (escaped === "n" ? "\n" : escaped));
      rest = rest.slice(all.length);
      if (rest.startsWith(",") && !rest.startsWith(",}")) rest = rest.slice(1);
      else if (!rest.startsWith("}")) fail("no comma");
    }
    rest = rest.slice(1);
  }
  if (!rest.startsWith(" ")) fail("no space before the value");
  const end = rest.slice(1);
  return { sample: { name, labels, value: Number(end.replace("Inf", "Infinity")) }, end };
}

/**
 * Buckets of one series are adjacent, rise in bound and count, and end with +Inf, whose count is that of the series.
 */
function checkHistogram({ name, samples }: ReadFamily): void {
  let at = 0;
  while (at < samples.length) {
    const labelsOf = ({ labels: { le: _, ...labels } }: ReadSample) => JSON.stringify(labels);
    const series = labelsOf(samples[at]!);
    const fail = (why: string): never => {
      throw new Error(`${name}${series}: ${why}`);
    };
    let [bound, count] = [-Infinity, 0];
    for (; samples[at]?.name === `${name}_bucket` && labelsOf(samples[at]!) === series; at++) {
      const sample = samples[at]!;
      const next = Number(sample.labels.le!.replace("Inf", "Infinity"));
      if (!(next > bound) || !(sample.value >= count)) fail("buckets do not go up");
      [bound, count] = [next, sample.value];
    }
    if (bound !== Infinity) fail("no bucket +Inf");
    const [sum, total] = [samples[at++], samples[at++]];
    if (sum?.name !== `${name}_sum` || labelsOf(sum) !== series) fail("no sum");
    if (total?.name !== `${name}_count` || labelsOf(total) !== series || total.value !== count)
      fail("the count is not that of +Inf");
  }
}
