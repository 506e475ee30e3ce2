import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { tokensOf } from "./support/tokens.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Folders by floor: an import goes down, or stays inside its folder. */
const FLOORS: Readonly<Record<string, number>> = {
  "lib/base": 0,
  "lib/http": 1,
  "lib/config": 1,
  "lib/store": 1,
  "lib/json_schema": 1,
  "lib/client": 2,
  "lib/source": 3,
  "lib/server": 3,
  "lib/route": 3,
  "lib/plugins": 3,
  "lib/upstream": 3,
  "lib/observe": 3,
  "lib/gateway": 4,
  "lib/operator": 4,
  "lib/acme": 4,
  "lib/proof": 5,
  "lib/report": 5,
  "lib/embed": 6,
  "lib/features": 7,
  "lib/admin": 8,
  "lib/manager": 8,
  "lib/cluster": 8,
  "lib/cli": 9,
  "lib/index.ts": 9,
  bin: 10,
};

interface Source {
  /** Below the root, with forward slashes. */
  readonly path: string;
  readonly folder: string;
  readonly text: string;
  /** Without doc comments and line comments. */
  readonly code: string;
  readonly imports: readonly string[];
}

const sources = [...filesBelow("lib"), ...filesBelow("bin")].map(read);
const known = new Map(sources.map((source) => [source.path, source]));

function filesBelow(folder: string): string[] {
  return readdirSync(join(ROOT, folder)).flatMap((name) => {
    const path = join(folder, name);
    if (statSync(join(ROOT, path)).isDirectory()) return filesBelow(path);
    return /\.[cm]?[jt]sx?$/.test(name) ? [path.replaceAll("\\", "/")] : [];
  });
}

/** Sources of programs and of pages, also for tests and benchmarks. */
function allFilesBelow(folder: string): string[] {
  return readdirSync(join(ROOT, folder)).flatMap((name) => {
    const path = join(folder, name);
    if (name === "node_modules" || name === "results") return [];
    if (statSync(join(ROOT, path)).isDirectory()) return allFilesBelow(path);
    return /\.(?:[cm]?[jt]s|css|html)$/.test(name) ? [path] : [];
  });
}

function read(path: string): Source {
  const text = readFileSync(join(ROOT, path), "utf8");
  const code = text.replace(/^[ \t]*\/\*\*[\s\S]*?\*\//gm, "").replace(/(^|\s)\/\/.*$/gm, "$1");
  return { path, folder: folderOf(path), text, code, imports: importsOf(code) };
}

function folderOf(path: string): string {
  if (path.startsWith("bin/")) return "bin";
  const parts = path.split("/");
  return parts.length > 2 ? parts.slice(0, 2).join("/") : path;
}

/**
 * They load what is not always needed: the first one the command, the fifth, in browsers, pages of the management UI.
 */
const TABLES = [
  "lib/cli/main.ts",
  "lib/cli/commands.ts",
  "lib/cli/on_demand.ts",
  "lib/cli/admin_requests.ts",
  "lib/manager/assets/sections.ts",
  "lib/features/table.ts",
];

/** Values and types alike: `import … from`, `export … from`, `import "…"`, `import("…")`. */
function importsOf(code: string): string[] {
  const found: string[] = [];
  for (const match of code.matchAll(/^(?:import|export)\s(?:[^;"']*?\sfrom\s)?\s*["']([^"']+)["']/gm))
    found.push(match[1]!);
  for (const match of code.matchAll(/\bimport\s*\(\s*["'`]([^"'`]+)["'`]/g)) found.push(match[1]!);
  return found;
}

/** The file behind a relative import, below the root. */
function target(from: Source, specifier: string): string {
  return relative(ROOT, resolve(ROOT, dirname(from.path), specifier)).replaceAll("\\", "/");
}

function relatives(source: Source): string[] {
  return source.imports.filter((specifier) => specifier.startsWith(".")).map((specifier) => target(source, specifier));
}

/** A count that no layout changes: what 400 lines and 60 had at most when lines had 150 columns. */
const MAX_TOKENS_OF_A_FILE = 5_500;
const MAX_TOKENS_OF_A_FUNCTION = 1_140;

/**
 * Named functions, methods and arrow functions with a body of several lines, found by their indentation, which is the
 * same everywhere.
 */
function functionsIn(text: string): { readonly line: number; readonly lines: number; readonly tokens: number }[] {
  const lines = text.split("\n");
  const indentOf = (line: string) => line.length - line.trimStart().length;
  const sameIndent = (line: string, indent: number) => line !== "" && indentOf(line) === indent;
  return lines.flatMap((head, at) => {
    if (!head.endsWith("{") || CONTROL.test(head)) return [];
    const indent = indentOf(head);
    let first = at;
    // A head of several lines ends with `) {` or `): T {`.
    if (/^\s*\)/.test(head)) for (first--; first > 0 && !sameIndent(lines[first]!, indent);) first--;
    if (!FUNCTION.test(first === at ? head : `${lines[first]!}) {`) || CONTROL.test(lines[first]!)) return [];
    const end = lines.findIndex((line, i) => i > at && sameIndent(line, indent) && line.trimStart().startsWith("}"));
    const tokens = tokensOf(lines.slice(first, end + 1).join("\n"));
    return [{ line: first + 1, lines: end - first + 1, tokens }];
  });
}

const CONTROL = new RegExp(
  String.raw`^\s*(?:\} )?(?:if|else|for|while|do|switch|try|catch|finally|class|export class|` +
    String.raw`interface|export interface|type|export type)\b`,
);
const FUNCTION = new RegExp(
  String.raw`\bfunction\b|=> \{$|^\s*(?:(?:static|async|override|readonly|get|set|protected|` +
    String.raw`private) )*\*?#?\w+(?:<[^>]*>)?\(.*\{$`,
);

describe("the reader of imports", () => {
  it("sees every form of an import", () => {
    const code = [
      'import a from "node:a";',
      'import type { B } from "./b.ts";',
      "import {\n  c,\n  type D,\n} from './c.ts';",
      'import "./e.ts";',
      'export * as f from "./f.ts";',
      'export { g } from "./g.ts";',
      'type H = import("./h.ts").H;',
      'export const text = "i from j";',
    ].join("\n");
    expect(importsOf(code)).toEqual(["node:a", "./b.ts", "./c.ts", "./e.ts", "./f.ts", "./g.ts", "./h.ts"]);
  });

  it("finds as many imports as there are lines that name a file or a module behind from", () => {
    const lines = sources.flatMap(({ code }) => code.match(/ from "[^"]+";$/gm) ?? []);
    const found = sources.flatMap(({ imports }) => imports);
    expect(lines.length).toBeGreaterThan(100);
    expect(found.length).toBeGreaterThanOrEqual(lines.length);
  });
});

describe("floors", () => {
  it("every file stands on one of them", () => {
    expect(sources.filter(({ folder }) => FLOORS[folder] === undefined).map(({ path }) => path)).toEqual([]);
  });

  it("an import goes to a lower floor or stays in its folder", () => {
    const climbing = sources.flatMap((source) =>
      relatives(source)
        .map((path) => ({ path, folder: folderOf(path) }))
        .filter(({ folder }) => folder !== source.folder && !(FLOORS[folder]! < FLOORS[source.folder]!))
        .map(({ path }) => `${source.path} -> ${path}`),
    );
    expect(climbing).toEqual([]);
  });

  it("every relative import names a file that is there, by its .ts name", () => {
    const missing = sources.flatMap((source) =>
      relatives(source)
        .filter((path) => !known.has(path))
        .map((path) => `${source.path} -> ${path}`),
    );
    expect(missing).toEqual([]);
  });

  it(
    "pages of the management UI load nothing but each other, and use nothing of node: " +
      "of the gateway they have types alone",
    () => {
      const strangers =
        /^(?:import|export) (?!type )[^;]*from "(?!\.\/)|(?<![.\w])(?:process|Buffer|setImmediate)[.(]/m;
      expect(
        ['import { a } from "../../base/a.ts";', 'import a from "node:fs";', "process.exit()"].map((code) =>
          strangers.test(code),
        ),
      ).toEqual([true, true, true]);
      const pages = sources.filter(({ path }) => path.startsWith("lib/manager/assets/"));
      expect(pages.length).toBeGreaterThan(50);
      expect(pages.filter(({ code }) => strangers.test(code)).map(({ path }) => path)).toEqual([]);
    },
  );

  it("there are no cycles, counting types and what is loaded on demand", () => {
    const state = new Map<string, "open" | "done">();
    const cycles: string[] = [];
    const visit = (path: string, trail: readonly string[]) => {
      if (state.get(path) === "done") return;
      if (state.get(path) === "open") return void cycles.push([...trail.slice(trail.indexOf(path)), path].join(" -> "));
      state.set(path, "open");
      const source = known.get(path)!;
      for (const next of relatives(source)) if (known.has(next)) visit(next, [...trail, path]);
      state.set(path, "done");
    };
    for (const { path } of sources) visit(path, []);
    expect(cycles).toEqual([]);
  });
});

describe("what an auditor has to trust", () => {
  it("nothing is imported but the project itself and modules of node, by their node: names", () => {
    const foreign = sources.flatMap(({ path, imports }) =>
      imports
        .filter((specifier) => !specifier.startsWith(".") && !specifier.startsWith("node:"))
        .map((specifier) => `${path} -> ${specifier}`),
    );
    expect(foreign).toEqual([]);
  });

  it(
    "no file makes code at run time: no eval, no Function, no vm, no require; " +
      "and only six files, and the first of threads, have dynamic imports",
    () => {
      const makers = new RegExp(
        String.raw`\beval\s*\(|\bnew\s+Function\b|(?<![.\w])Function\s*\(|["']node:(?:vm|module)` +
          String.raw`["']|\brequire\s*\(|(?<!type \w+ = )\bimport\s*\(`,
      );
      expect(makers.test('const made = new Function("x");')).toBe(true);
      expect(makers.test('await import("./x.ts");')).toBe(true);
      const LOADER = "lib/gateway/module_loader.ts";
      // Its hooks compare modules with what they were at the start.
      const HOOKS = "lib/base/own_code.ts";
      // Imports the program of the thread, once its imports are compared.
      const THREAD = "lib/base/thread_code.ts";
      expect(
        sources
          .filter(({ code }) => makers.test(code))
          .map(({ path }) => path)
          .sort(),
      ).toEqual([...TABLES, LOADER, HOOKS, THREAD].sort());
      expect(known.get(THREAD)!.code).toMatch(/\bholdThread\(sums\);\nawait import\(program\);\n$/);
      const hooks = known.get(HOOKS)!.code;
      expect(makers.test(hooks.replace('"node:module"', ""))).toBe(false);
      expect(hooks).not.toMatch(/\bsource:(?! nodeModule\.ModuleSource)/);
      const loader = known.get(LOADER)!.code;
      expect(loader.match(/\bimport\s*\(/g)).toHaveLength(1);
      expect(makers.test(loader.replace(/\bimport\s*\(/, ""))).toBe(false);
      // The bytes that were compared with their digest, and not a path or an address.
      expect(loader).toContain("const url = `data:text/javascript;base64,${Buffer.from(code)");
      expect(loader).toContain("await import(/* @vite-ignore */ url)");
    },
  );

  it(
    "three files open connections: no other one has Node's functions for it, and only compare starts programs: " +
      "the versions that it compares",
    () => {
      const EGRESS = ["lib/base/egress.ts", "lib/base/egress_clients.ts", "lib/base/egress_tls.ts"];
      const dialling = [
        /\b(?:net|tls|https?|http2)\.(?:connect|createConnection|request|get)\b(?!\.)/,
        /\bnew\s+(?:(?:net|tls|https?)\.)?(?:Socket|TLSSocket|Agent|WebSocket|EventSource|XMLHttpRequest)\b/,
        /(?<![.\w#])fetch\s*\(/,
        /["']node:(?:dns(?:\/promises)?|dgram|child_process|cluster|inspector|wasi)["']|process\.binding/,
        new RegExp(
          String.raw`import\s(?!type)[^;]*\{[^}]*\b(?<!type )(?:connect|createConnection|request|` +
            String.raw`get)\b[^}]*\}\s+from "node:(?:net|tls|https?|http2)"`,
        ),
      ];
      const examples = [
        "net.connect(1)",
        "new http.Agent()",
        'await fetch("http://x")',
        'import dns from "node:dns";',
        'import net, { isIP, connect } from "node:net";',
      ];
      expect(examples.map((example, i) => dialling[i]!.test(example))).toEqual(examples.map(() => true));
      // A session within the thread opens no port: only `inspector.open` does, which is not imported.
      const session = 'import { console as toInspector, Session, type Runtime } from "node:inspector";';
      const inspecting = known.get("lib/gateway/module_errors.ts")!;
      expect(inspecting.code.split(session)).toHaveLength(2);
      const spawning = 'import { spawn, type ChildProcess } from "node:child_process";';
      const comparing = known.get("lib/cli/compare/version_process.ts")!;
      expect([comparing.code.split(spawning).length, comparing.code.match(/\bspawn\(/g)]).toEqual([2, ["spawn("]]);
      expect(comparing.code).toContain("spawn(process.execPath, [...rightsOf(");
      const gateway = sources
        // runs in browsers, which its Content-Security-Policy restricts
        .filter(({ path }) => !path.startsWith("lib/manager/assets/"))
        .map((source) => (source === inspecting ? { ...source, code: source.code.replace(session, "") } : source))
        .map((source) => (source === comparing ? { ...source, code: source.code.replace(spawning, "") } : source));
      expect(
        gateway
          .filter(({ code }) => dialling.some((each) => each.test(code.replace(/import type [^;]*;/g, ""))))
          .map(({ path }) => path),
      ).toEqual(EGRESS);
      const code = EGRESS.map((path) => known.get(path)!.code).join("");
      // Beside an open connection, a look-up, and a socket in the file system, which leads to no other host, everything
      // is behind `check`.
      expect(
        code.match(/\b(?:net|tls|http2|dns\.promises)\.(?:connect|lookup)\(|\bnew https?\.Agent|\.request\(/g),
      ).toHaveLength(9);
      expect(code.match(/net\.connect\(path, /g)).toHaveLength(1);
    },
  );

  it(
    "timers, ticks and turns of the event loop enter the gateway through `entry`, " + "which reports what they throw",
    () => {
      const own = sources.filter(({ path }) => !path.startsWith("lib/manager/assets/"));
      const unguarded = ({ path, code }: { readonly path: string; readonly code: string }) => {
        const calls = [
          ...code.matchAll(
            /(?:(?<![\w.#])(?:setTimeout|setInterval|setImmediate|queueMicrotask)|process\.nextTick)\(([^,()]*)/g,
          ),
        ];
        const isEntry = (given: string) =>
          ["entry", "resolve", "ignore"].includes(given) ||
          [code, ...own.map((each) => each.code)].some((each) =>
            new RegExp(`(?:const |readonly )${given.split(".").at(-1)!} = entry\\(`).test(each),
          );
        return calls
          .map(([, given]) => given!.trim())
          .filter((given) => !isEntry(given))
          .map((given) => `${path}: ${given}`);
      };
      expect(
        unguarded({
          path: "x",
          code: "setTimeout(() => f(), 1); process.nextTick(this.#f, 2); setImmediate(entry(g)); socket.setTimeout(1);",
        }),
      ).toEqual(["x: ", "x: this.#f"]);
      expect(own.flatMap(unguarded)).toEqual([]);
    },
  );

  it("every plugin kind that asks servers says which: tools.client opens no connection to others", () => {
    const asking = sources.filter(({ path, code }) => path.startsWith("lib/plugins/") && /\bclient\(\{/.test(code));
    const files = ["forward_auth", "http_log", "introspection", "jwt", "mirror", "oidc"].map(
      (name) => `lib/plugins/${name}.ts`,
    );
    expect(asking.map(({ path }) => path).sort()).toEqual(files);
    expect(asking.filter(({ code }) => !/^  dials: \{ why: /m.test(code))).toEqual([]);
  });

  it("what is loaded on demand is named in five tables, by the literal names of files of this project", () => {
    for (const path of TABLES) {
      const { code } = known.get(path)!;
      const all = code.match(/\bimport\s*\(/g)!;
      expect(all.length).toBeGreaterThan(path === "lib/cli/main.ts" ? 1 : 5);
      expect(code.match(/(?:=>|await|\ball\(|,)\s*import\("\.{1,2}\/[\w/]+\.ts"\)/g)).toHaveLength(all.length);
    }
  });

  it("package.json asks for nothing at run time", () => {
    const manifest = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as Record<string, unknown>;
    const kinds = [
      "dependencies",
      "optionalDependencies",
      "peerDependencies",
      "bundleDependencies",
      "bundledDependencies",
    ];
    expect(kinds.filter((kind) => kind in manifest)).toEqual([]);
    expect(Object.keys(manifest.devDependencies as object).sort()).toEqual([
      "@types/node",
      "tsx",
      "typescript",
      "vitest",
    ]);
  });

  it("the lock file holds nothing that is not for development", () => {
    const lock = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as {
      packages: Record<string, { dev?: boolean; devOptional?: boolean }>;
    };
    const shipped = Object.entries(lock.packages).filter(
      ([name, entry]) => name !== "" && !entry.dev && !entry.devOptional,
    );
    expect(shipped.map(([name]) => name)).toEqual([]);
  });
});

/**
 * Exported by several files. Features have `fields`, tables `ON_DEMAND`, and commands are named as their functions. The
 * list only becomes shorter.
 */
const SAID_TWICE: ReadonlySet<string> = new Set(["fields", "ON_DEMAND", "explain", "hashPassword"]);

const EXPORTED = /^export (?:abstract )?(?:async )?(?:function\*?|class|interface|type|const|let) (\w+)/gm;

describe("names", () => {
  it("no name is exported by two files: who searches for it finds one", () => {
    const files = new Map<string, string[]>();
    for (const { path, code } of sources.filter((each) => !each.path.startsWith("lib/manager/assets/"))) {
      for (const name of new Set([...code.matchAll(EXPORTED)].map(([, found]) => found!)))
        files.set(name, [...(files.get(name) ?? []), path]);
    }
    expect(files.size).toBeGreaterThan(1_000);
    const twice = new Map([...files].filter(([, paths]) => paths.length > 1));
    expect([...twice].filter(([name]) => !SAID_TWICE.has(name))).toEqual([]);
    expect([...SAID_TWICE].filter((name) => !twice.has(name))).toEqual([]);
  });
});

describe("features", () => {
  it("are at most 15, each a member of an interface that is written by hand", () => {
    const { code } = known.get("lib/gateway/features.ts")!;
    const members = /^export interface Features [^{]*\{\n([\s\S]*?)^\}/m.exec(code)![1]!;
    const names = [...members.matchAll(/^  readonly (\w+):/gm)].map(([, name]) => name!);
    const table = known.get("lib/features/table.ts")!.code;
    const rows = table.slice(table.indexOf("export const FEATURES"), table.indexOf("export const ON_DEMAND"));
    const features = [...rows.matchAll(/^  (\w+): \(\) =>/gm)].map(([, name]) => name!);
    expect(features.length).toBeGreaterThan(10);
    expect(features.length).toBeLessThanOrEqual(15);
    expect(names.filter((name) => !features.includes(name))).toEqual([]);
    expect(code).not.toContain("TABLE");
  });
});

describe("house style", () => {
  it("every file of lib opens with a doc comment of whole sentences", () => {
    const silent = sources.filter(
      ({ path, text }) => path.startsWith("lib/") && !/^\/\*\*\n( \* [^\n]+\n| \*\n)+ \*\/\n/.test(text),
    );
    expect(silent.map(({ path }) => path)).toEqual([]);
    const unfinished = sources.filter(
      ({ path, text }) =>
        path.startsWith("lib/") && !/[.:`]\n( \*\n| \* )|\.\n \*\/\n/.test(text.slice(0, text.indexOf("*/") + 3)),
    );
    expect(unfinished.map(({ path }) => path)).toEqual([]);
  });

  it("no line of lib, bin, build and spec is wider than 120 columns", () => {
    const files = ["lib", "bin", "build", "spec"].flatMap(allFilesBelow);
    expect(files.length).toBeGreaterThan(1_000);
    const wide = files.flatMap((path) => {
      const lines = readFileSync(join(ROOT, path), "utf8").split("\n");
      return lines.flatMap((line, i) => (line.length > 120 ? [`${path}:${i + 1}`] : []));
    });
    expect(wide).toEqual([]);
  });

  it("no file has more than 5,500 tokens, and no function more than 1,140", () => {
    const long = sources.filter(({ text }) => tokensOf(text) > MAX_TOKENS_OF_A_FILE);
    expect(long.map(({ path }) => path)).toEqual([]);
    const functions = sources
      .filter(({ path }) => !path.startsWith("lib/manager/assets/"))
      .flatMap(({ path, text }) => functionsIn(text).map(({ line, tokens }) => ({ at: `${path}:${line}`, tokens })));
    expect(functions.length).toBeGreaterThan(1_500);
    expect(functions.filter(({ tokens }) => tokens > MAX_TOKENS_OF_A_FUNCTION)).toEqual([]);
  });

  it("the lines of a function are counted from its head to its closing brace", () => {
    const text = [
      "export function a(b: number): void {",
      "  if (b) {",
      "    return;",
      "  }",
      "}",
      "",
      "class C {",
      "  async #d(",
      "    e: number,",
      "  ): Promise<void> {",
      "    call(() => {",
      "    });",
      "  }",
      "}",
    ];
    expect(functionsIn(text.join("\n"))).toEqual([
      { line: 1, lines: 5, tokens: 20 },
      { line: 8, lines: 6, tokens: 25 },
      { line: 11, lines: 2, tokens: 10 },
    ]);
  });

  it("nothing is left for later", () => {
    expect(sources.filter(({ text }) => /\b(TODO|FIXME|XXX|HACK)\b/.test(text)).map(({ path }) => path)).toEqual([]);
  });
});
