/**
 * Finds the functions of `lib` that one small GET with a key and a rate limit runs through, in the order in which they
 * are first called, in a gateway that has the parts which its configuration names, as the program starts it where
 * nobody can ask for metrics.
 *
 *     npm run way             prints them, file by file, and the look-ups
 *     npm run way -- --json   the same for programs
 *
 * V8 counts the calls (precise coverage) of one of several equal requests on a warm keep-alive connection; a further
 * request runs with a breakpoint in each of these functions, whose condition notes the order and the caller, and never
 * holds. Lines are those of the TypeScript sources.
 *
 * A look-up is a call from one file of `lib` to another where "go to definition" does not lead to the file whose code
 * runs: through a field, a callback or an interface that is declared elsewhere. The reader has to find out who is
 * behind it. Each declared type counts once, whatever the number of its members and calls: `Handler`, `ResponseSink`.
 * The compiler says where the called name is declared.
 */
import { readFileSync } from "node:fs";
import http from "node:http";
import { Session, type Debugger, type Profiler } from "node:inspector";
import { SourceMap, type SourceMapping } from "node:module";
import type { AddressInfo } from "node:net";
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import { API } from "typescript/unstable/sync";
import type { ConfigInput } from "../../lib/gateway/config_input.ts";
import { GatewayCore } from "../../lib/gateway/gateway.ts";
import { loadPluginModules } from "../../lib/features/plugin_modules.ts";

export interface CalledFunction {
  /** Below the root, with forward slashes. */
  readonly file: string;
  /** As V8 names it; "" for a function without a name. */
  readonly name: string;
  /** First line, from 1. */
  readonly line: number;
  readonly lines: number;
}

export interface Way {
  /** In the order of their first calls. */
  readonly calls: readonly CalledFunction[];
  /** Every file once, with the number of its lines that belong to called functions. */
  readonly files: Readonly<Record<string, number>>;
  /** By the declared type: the calls through it. */
  readonly lookUps: Readonly<Record<string, readonly string[]>>;
}

/** A call from one file to another. */
interface Crossing {
  /** Where the called name stands. */
  readonly from: { readonly file: string; readonly offset: number };
  readonly to: CalledFunction;
}

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** V8 names the place of this word for a call of a constructor. */
const NEW = "new ";

/** V8's name for the function that sets the fields of an instance. */
const FIELDS = "<instance_members_initializer>";
const FIELD = /^  (?:(?:static|readonly|declare) )*#?\w+(?:\??: .*|\s=.*)$/;

const LIB = new URL("../../lib/", import.meta.url).href;
/** `SymbolFlags.Alias` of the compiler: a name that is imported. */
const ALIAS = 1 << 21;

const KEY = "a key of twenty-four letters";

const session = new Session();
session.connect();

/** The inspector of this thread answers before `post` returns. */
function post<T>(method: string, params: object = {}): T {
  let answer: T | undefined;
  session.post(method, params, (error: Error | null, result?: object) => {
    if (error !== null) throw error;
    answer = result as T;
  });
  return answer as T;
}

const way = await run();
if (process.argv.includes("--json")) console.log(JSON.stringify(way));
else print(way);

async function run(): Promise<Way> {
  const scripts = new Map<string, Debugger.ScriptParsedEventDataType>();
  session.on("Debugger.scriptParsed", ({ params }) => scripts.set(params.scriptId, params));
  post("Debugger.enable");

  const upstream = http.createServer((_request, response) => response.end("a small reply")).listen(0, "127.0.0.1");
  await new Promise((resolve) => upstream.once("listening", resolve));
  const config = {
    services: [
      {
        name: "shop",
        base_path: "/shop",
        upstreams: [{ host: "127.0.0.1", port: (upstream.address() as AddressInfo).port }],
        plugins: [
          { name: "key_auth", config: { key: KEY } },
          { name: "rate_limit", config: { limit_min: 1_000 } },
        ],
        routes: [{ name: "items", path: "/items/{id}", methods: ["GET"] }],
      },
    ],
  } satisfies ConfigInput;
  const gateway = new GatewayCore({ config, modules: await loadPluginModules(config) });
  const { port } = await gateway.listen({ port: 0, host: "127.0.0.1" });
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const get = () =>
    new Promise<void>((resolve, reject) => {
      http
        .get({ port, host: "127.0.0.1", path: "/shop/items/1", headers: { apiKey: KEY }, agent }, (response) => {
          if (response.statusCode !== 200) reject(new Error(`the gateway answered ${response.statusCode}`));
          // The connection is free again one round of the event loop after the reply has ended.
          response.resume().once("end", () => setImmediate(() => setImmediate(resolve)));
        })
        .once("error", reject);
    });

  await get();
  post("Profiler.enable");
  post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  await get();
  post("Profiler.takePreciseCoverage");
  // Timers of the gateway may run beside a request: of five requests, the one with the fewest calls ran alone.
  const taken: Profiler.TakePreciseCoverageReturnType[] = [];
  for (let i = 0; i < 5; i++) {
    await get();
    taken.push(post<Profiler.TakePreciseCoverageReturnType>("Profiler.takePreciseCoverage"));
  }
  const { result } = taken.sort((one, other) => callsOf(one) - callsOf(other))[0]!;
  post("Profiler.stopPreciseCoverage");

  const sources = new Map<string, Source>();
  for (const { scriptId, url } of result) {
    const file = url.startsWith("file:") ? relative(ROOT, fileURLToPath(url)).replaceAll("\\", "/") : "";
    if (file.startsWith("lib/")) sources.set(scriptId, sourceOf(scriptId, file));
  }
  const order = new Map<string, number>();
  const callers = new Map<string, { readonly id: string; readonly caller: CallSite }>();
  (globalThis as { wayCalled?: (id: string) => boolean }).wayCalled = (id) => {
    if (!order.has(id)) order.set(id, order.size);
    const caller = callerOf();
    if (caller !== undefined) callers.set(`${id} ${caller.url}:${caller.line}:${caller.column}`, { id, caller });
    return false;
  };
  const found: { id: string; called: CalledFunction }[] = [];
  const files: Record<string, number> = {};
  for (const { scriptId, functions } of result) {
    const source = sources.get(scriptId);
    if (source === undefined) continue;
    const lines = new Set<number>();
    for (const { functionName: name, ranges } of functions) {
      const [{ startOffset, endOffset, count }] = ranges as [Profiler.CoverageRange];
      // The module itself is a function as well, and `__name` is what the loader adds.
      if (startOffset === 0 || count === 0 || name === "__name") continue;
      const [first, last] = [source.lineAt(startOffset), source.lineAt(endOffset - 1)];
      const id = `${scriptId}:${startOffset}`;
      found.push({ id, called: { file: source.file, name, line: first, lines: last - first + 1 } });
      // The fields of a class lie anywhere between its methods.
      if (name === FIELDS) for (const line of source.fieldsBetween(first, last)) lines.add(line);
      else for (let line = first; line <= last; line++) lines.add(line);
      breakAt(scriptId, source, startOffset, endOffset, id);
    }
    // Functions inside the called ones that were not called themselves.
    for (const { ranges } of functions) {
      const [{ startOffset, endOffset, count }] = ranges as [Profiler.CoverageRange];
      if (count > 0) continue;
      const [first, last] = [source.lineAt(startOffset), source.lineAt(endOffset - 1)];
      for (let line = first + 1; line < last; line++) lines.delete(line);
    }
    if (lines.size > 0) files[source.file] = lines.size;
  }
  await get();

  session.disconnect();
  agent.destroy();
  await gateway.close(0);
  upstream.close();
  upstream.closeAllConnections();
  const place = ({ id }: { id: string }) => order.get(id) ?? Infinity;
  const byUrl = new Map(result.map(({ scriptId, url }) => [url, sources.get(scriptId)]));
  const crossings = [...callers.values()].flatMap(({ id, caller: { url, line, column } }): Crossing[] => {
    const to = found.find((each) => each.id === id)!.called;
    const source = byUrl.get(url);
    if (source === undefined || source.file === to.file) return [];
    return [{ from: { file: source.file, offset: source.offsetAt(line, column) }, to }];
  });
  return {
    calls: found.sort((one, other) => place(one) - place(other)).map(({ called }) => called),
    files,
    lookUps: lookUpsAmong(crossings),
  };
}

/** A place in code that runs; line and column count from 0. */
interface CallSite {
  readonly url: string;
  readonly line: number;
  readonly column: number;
}

/** What has called the function that runs: the next frame of `lib` below it, whatever of Node's own is between them. */
function callerOf(): CallSite | undefined {
  const { prepareStackTrace, stackTraceLimit } = Error;
  Error.stackTraceLimit = 30;
  Error.prepareStackTrace = (_error, frames) => frames;
  const frames = new Error().stack as unknown as NodeJS.CallSite[];
  Object.assign(Error, { prepareStackTrace, stackTraceLimit });
  const ofLib = frames.filter((frame) => frame.getFileName()?.startsWith(LIB) === true);
  const caller = ofLib[1];
  if (caller === undefined) return undefined;
  return { url: caller.getFileName()!, line: caller.getLineNumber()! - 1, column: caller.getColumnNumber()! - 1 };
}

/** The look-ups among the calls, by the type that declares what is called. */
function lookUpsAmong(crossings: readonly Crossing[]): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  const compiler = new API({ cwd: ROOT });
  try {
    const opened = compiler.updateSnapshot({ openProject: `${ROOT}spec/tsconfig.json` });
    const { checker } = opened.getProjects()[0]!;
    for (const { from, to } of crossings) {
      const written = checker.getSymbolAtPosition(ROOT + from.file, from.offset);
      const isImported = written !== undefined && (written.flags & ALIAS) !== 0;
      const called = isImported ? checker.getAliasedSymbol(written) : written;
      const declared = (called?.declarations ?? []).map(({ path }) => relative(ROOT, path).replaceAll("\\", "/"));
      if (declared.includes(to.file)) continue;
      const type = called && checker.getTypeOfSymbol(called)?.getAliasSymbol()?.name;
      const key = type ?? called?.getParent()?.name ?? `${called?.name ?? "?"} in ${from.file}`;
      const call = `${from.file} ${called?.name ?? "?"} -> ${to.file} ${to.name || "(no name)"}`;
      const calls = (found[key] ??= []);
      if (!calls.includes(call)) calls.push(call);
    }
  } finally {
    compiler.close();
  }
  return found;
}

function callsOf({ result }: Profiler.TakePreciseCoverageReturnType): number {
  return result.reduce((sum, { functions }) => sum + functions.filter(({ ranges }) => ranges[0]!.count > 0).length, 0);
}

interface Source {
  readonly file: string;
  /** The code that runs, and the line and column of each offset in it, from 0. */
  readonly text: string;
  placeOf(offset: number): { line: number; column: number };
  /** The line of the TypeScript source, from 1. */
  lineAt(offset: number): number;
  /** The offset in the TypeScript source of a place in the code that runs. */
  offsetAt(line: number, column: number): number;
  /** The lines that declare fields of a class, which spans these lines. */
  fieldsBetween(first: number, last: number): number[];
}

function sourceOf(scriptId: string, file: string): Source {
  const { scriptSource: text } = post<Debugger.GetScriptSourceReturnType>("Debugger.getScriptSource", { scriptId });
  const encoded = /\/\/# sourceMappingURL=data:application\/json;(?:charset=utf-8;)?base64,([\w+/=]+)\s*$/.exec(
    text,
  )?.[1];
  if (encoded === undefined) throw new Error(`${file} runs without a source map`);
  const typescript = readFileSync(`${ROOT}${file}`, "utf8").split("\n");
  const map = new SourceMap(JSON.parse(Buffer.from(encoded, "base64").toString()));
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  const placeOf = (offset: number) => {
    const line = starts.findLastIndex((start) => start <= offset);
    return { line, column: offset - starts[line]! };
  };
  return {
    file,
    text,
    placeOf,
    fieldsBetween: (first, last) => range(first, last).filter((line) => FIELD.test(typescript[line - 1]!)),
    offsetAt(line, column) {
      const { originalLine, originalColumn } = map.findEntry(line, column) as SourceMapping;
      const before = typescript.slice(0, originalLine).reduce((sum, { length }) => sum + length + 1, 0);
      const isNew = typescript[originalLine]!.startsWith(NEW, originalColumn);
      return before + originalColumn + (isNew ? NEW.length : 0);
    },
    lineAt(offset) {
      const { line, column } = placeOf(offset);
      return (map.findEntry(line, column) as { originalLine: number }).originalLine + 1;
    },
  };
}

function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, at) => first + at);
}

function breakAt(scriptId: string, source: Source, start: number, end: number, id: string): void {
  const at = (offset: number) => {
    const { line, column } = source.placeOf(offset);
    return { scriptId, lineNumber: line, columnNumber: column };
  };
  const { locations } = post<Debugger.GetPossibleBreakpointsReturnType>("Debugger.getPossibleBreakpoints", {
    start: at(start),
    end: at(end),
    restrictToFunction: true,
  });
  const [location] = locations;
  if (location === undefined) return;
  post("Debugger.setBreakpoint", { location, condition: `globalThis.wayCalled(${JSON.stringify(id)})` });
}

function print({ calls, files, lookUps }: Way): void {
  for (const { file, name, line, lines } of calls)
    console.log(`${`${file}:${line}`.padEnd(48)} ${name || "(no name)"}${" ".repeat(2)}${lines}`);
  console.log(`\n${"file".padEnd(40)} lines run through   of`);
  for (const [file, lines] of Object.entries(files)) {
    console.log(
      `${file.padEnd(40)} ${String(lines).padStart(17)} ` +
        `${String(readFileSync(`${ROOT}${file}`, "utf8").split("\n").length - 1).padStart(4)}`,
    );
  }
  const sum = Object.values(files).reduce((all, lines) => all + lines, 0);
  console.log("\nlook-ups");
  for (const [type, through] of Object.entries(lookUps)) console.log([type, ...through].join("\n    "));
  const counts = [`${Object.keys(files).length} files`, `${Object.keys(lookUps).length} look-ups`];
  console.log(`\n${[...counts, `${calls.length} functions`, `${sum} lines`].join(", ")}`);
}
