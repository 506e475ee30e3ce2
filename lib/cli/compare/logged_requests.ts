/**
 * Reads an access log and keeps some requests of each class: of a method, a route and a status. The log is JSON lines,
 * as the gateway writes them, or in the combined format.
 */
import { createReadStream } from "node:fs";
import { shownOf, type Sample } from "./samples.ts";

export interface LoggedRequests {
  readonly samples: readonly Sample[];
  readonly lines: number;
  readonly unreadable: number;
}

/** Of one class: the first ones, then one for each doubling of the class, so that the end of a long log counts. */
const MAX_FIRST = 4;
const MAX_KEPT = 16;
/** Requests of further classes count to one class for all. */
const MAX_CLASSES = 2_000;
const MAX_LINE = 2 ** 16;

/** Rejects with the error of the file system. */
export async function loggedRequests(file: string): Promise<LoggedRequests> {
  const classes = new Map<string, { count: number; readonly kept: Map<string, Sample> }>();
  let lines = 0;
  let unreadable = 0;
  for await (const line of linesOf(file)) {
    if (line === "") continue;
    lines++;
    const [method, path, host, place] = requestOf(line);
    if (!/^[A-Z]{1,20}$/.test(String(method)) || !/^\/[\x21-\x7e]*$/.test(String(path))) {
      unreadable++;
      continue;
    }
    const name = `${method} ${place}`;
    const one = classes.get(name) ??
      classes.get(classes.size < MAX_CLASSES ? name : "") ?? { count: 0, kept: new Map() };
    if (one.count++ === 0) classes.set(classes.size < MAX_CLASSES ? name : "", one);
    if (one.kept.size >= MAX_FIRST && (one.kept.size >= MAX_KEPT || !Number.isInteger(Math.log2(one.count)))) continue;
    const headers = { Host: typeof host === "string" && /^[\x21-\x7e]+$/.test(host) ? host : "localhost" };
    const sample = { question: { method: String(method), url: String(path), headers }, form: "of the access log" };
    one.kept.set(shownOf(sample), sample);
  }
  return { samples: [...classes.values()].flatMap(({ kept }) => [...kept.values()]), lines, unreadable };
}

/** Of a line that is too long, the beginning, which is no request. */
async function* linesOf(file: string): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of createReadStream(file, {
    encoding: "latin1",
    highWaterMark: 2 ** 20,
  }) as AsyncIterable<string>) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop()!.slice(0, MAX_LINE);
    for (const line of lines) yield line.length < MAX_LINE ? line.trim() : "too long";
  }
  yield rest.trim();
}

/**
 * Method, target and host (in the combined format there is none) of a line, and what tells its class from others; none:
 * it cannot be read.
 */
function requestOf(line: string): readonly unknown[] {
  const [, method, target, status] = /^[^{].*?\[[^[\]]*\] "([A-Z]+) (\S+) HTTP\/[\d.]+" (\d{3}|-) /.exec(line) ?? [];
  if (target !== undefined)
    return [method, target, null, `${target.split("/", 3).join("/").replace(/\d+/g, "N")} ${status}`];
  try {
    const { method, path, host, service, route, status } = JSON.parse(line) as Readonly<Record<string, unknown>>;
    return [method, path, host, `${service} ${route} ${status}`];
  } catch {
    return [];
  }
}
