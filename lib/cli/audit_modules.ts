/**
 * Lists the modules of the program that a gateway loads: from the first one along all imports, and those of the tables
 * of what is loaded on demand that its configuration and its settings need.
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { isInBuild } from "../base/version.ts";
import type { Settings } from "../config/settings_types.ts";
import { FEATURES, KINDS, ON_DEMAND as OF_GATEWAY, TABLE } from "../features/table.ts";
import type { FeatureName, LoadedFeatures } from "../gateway/loaded_features.ts";
import type { Commands } from "./arguments.ts";
import { OF_ADMIN } from "./admin_requests.ts";
import { ON_DEMAND as OF_RUN, onDemandOf } from "./on_demand.ts";
import { PACKAGE, PROGRAM } from "./touched_files.ts";

export interface AuditedModule {
  /** Below the folder of the package; absolute: a plugin module. */
  readonly path: string;
  /** In hexadecimal. */
  readonly sha256: string;
  /** Of the source, where the package has it. */
  readonly lines: number;
}

/** `lib/`, in the package that is `dist/lib/`. */
const LIB = new URL("../", import.meta.url);
export const PACKAGE_FOLDER = fileURLToPath(PACKAGE);
/** Whether these are the sources, as specs run them. */
export const IS_SOURCE = import.meta.url.endsWith(".ts");
const SUFFIX = IS_SOURCE ? "ts" : "js";

type Load = () => Promise<unknown>;

/** A row of a table: of what is loaded on demand. */
export interface Row {
  readonly name: string;
  readonly load: Load;
  /** Its imports are relative to it. */
  readonly folder: URL;
}

const inFolder = (folder: URL, table: Readonly<Record<string, Load>>): Row[] =>
  Object.entries(table).map(([name, load]) => ({ name, load, folder }));
const loadsOf = (table: Readonly<Record<string, { load(): Promise<unknown> }>>) =>
  Object.fromEntries(Object.entries(table).map(([name, { load }]) => [name, load]));
const CLI = new URL("cli/", LIB);
const OF_TABLE = new URL("features/", LIB);
const ADMIN_ROWS: readonly Row[] = Object.values(OF_ADMIN).map((load: Load) => ({ name: "admin", load, folder: CLI }));

/** Of all tables, with that of the commands. What has one name belongs together. */
export const rowsOf = (commands: Commands): readonly Row[] => [...inFolder(CLI, loadsOf(commands)), ...ROWS];
export const ROWS: readonly Row[] = [
  ...inFolder(CLI, OF_RUN),
  ...inFolder(OF_TABLE, KINDS),
  ...inFolder(OF_TABLE, FEATURES),
  ...inFolder(OF_TABLE, { foreignKinds: TABLE.foreignKinds }),
  ...inFolder(OF_TABLE, OF_GATEWAY as unknown as Readonly<Record<string, Load>>),
  ...ADMIN_ROWS,
];

/** The first modules of threads and processes, which no import leads to, by the names of rows. */
const THREADS = new Map<string, readonly string[]>([
  ["dryRuns", ["base/thread_code", "features/dry_run_thread"]],
  ["workers", ["base/thread_code", "cluster/worker"]],
  ["compare", ["cli/compare/child"]],
]);

/** What a start loads after its first modules. `hasTests`: whether the configuration is tested then. */
export function loadedAtStart(
  settings: Settings,
  named: ReturnType<typeof onDemandOf>,
  features: LoadedFeatures,
  hasTests: boolean,
): readonly Row[] {
  const isReported = features.loaded.reporting !== undefined;
  const loads: readonly Load[] = [
    ...[...named, ...onDemandOf(settings), ...(isReported ? (["reporting"] as const) : [])].map((name) => OF_RUN[name]),
    ...features.called,
    ...(hasTests ? [OF_GATEWAY.tests] : []),
    ...(settings.audit !== null && settings.workers !== 1 ? [OF_GATEWAY.workerAudit] : []),
  ];
  return ROWS.filter(({ load }) => loads.includes(load));
}

/** What any reload may load, besides what the new configuration names. */
export const FOR_RELOADS: readonly FeatureName[] = ["proof"];

/**
 * What reloads and requests of the admin interface can load, besides what a text can name that is posted for a dry run.
 */
export function loadedOnRequest({ admin }: Pick<Settings, "admin">): readonly Row[] {
  const asked: readonly Load[] = [
    ...FOR_RELOADS.map((name) => FEATURES[name]),
    ...(admin === null ? [] : Object.values(OF_GATEWAY).filter((load) => load !== OF_GATEWAY.workerAudit)),
  ];
  return [...ROWS.filter(({ load }) => asked.includes(load)), ...(admin === null ? [] : ADMIN_ROWS)];
}

/** What a text can name that is posted for a dry run. */
export const OF_TEXTS: readonly Row[] = ROWS.filter(
  ({ name, folder }) =>
    folder === OF_TABLE && !(name in OF_GATEWAY) && name !== "workers" && name !== "tracing" && isInBuild(name),
);

/**
 * What `main` can load: a start without a command's name, and with flags of every start alone, needs no table of
 * commands.
 */
const RUN = "cli/run";
const COMMAND_LINE = "cli/command_line";

/**
 * Of a start with these rows, and all that they import; in the order of their paths. `flags`: whether `readArguments`
 * has to read them.
 */
export function modulesOf(rows: readonly Row[], flags: "plain" | "any"): readonly AuditedModule[] {
  const found = new Map<string, AuditedModule>();
  visit(new URL(`bin/edge-gateway.${SUFFIX}`, PROGRAM), found);
  for (const first of flags === "plain" ? [RUN] : [COMMAND_LINE, RUN]) visit(new URL(`${first}.${SUFFIX}`, LIB), found);
  for (const file of rows.flatMap(filesOf)) visit(file, found);
  return [...found.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** Whether all that the row loads is among these. */
export function isAmong(row: Row, modules: readonly AuditedModule[]): boolean {
  const paths = new Set(modules.map(({ path }) => path));
  return filesOf(row).every((file) => paths.has(fileURLToPath(file).slice(PACKAGE_FOLDER.length)));
}

/** `source`: what its lines are counted in; default: the file itself. */
export function auditedFile(path: string, content: Buffer, source = content): AuditedModule {
  const lines = source.toString("latin1").split("\n");
  return {
    path,
    sha256: createHash("sha256").update(content).digest("hex"),
    lines: lines.length - (lines.at(-1) === "" ? 1 : 0),
  };
}

/**
 * What the row loads: the names in `import("…")` of its function, whose source Node keeps, and the first modules of its
 * thread.
 */
function filesOf({ name: row, load, folder }: Row): URL[] {
  const imports = Array.from(String(load).matchAll(/\bimport\("([^"]+)"\)/g), ([, name]) => new URL(name!, folder));
  const ofThread = (THREADS.get(row) ?? []).map((path) => new URL(`${path}.${SUFFIX}`, LIB));
  return [...imports, ...ofThread];
}

function visit(file: URL, found: Map<string, AuditedModule>): void {
  if (found.has(file.href)) return;
  const content = readFileSync(file);
  const path = fileURLToPath(file).slice(PACKAGE_FOLDER.length);
  found.set(file.href, auditedFile(path, content, sourceOf(path) ?? content));
  for (const [, name] of content.toString("utf8").matchAll(STATIC_IMPORT)) visit(new URL(name!, file), found);
}

/** The source of a module: "dist/lib/x.js" is compiled from "lib/x.ts". Null: it is not in this package. */
export function sourceOf(path: string): Buffer | null {
  const file = new URL(sourcePath(path), PACKAGE);
  return existsSync(file) ? readFileSync(file) : null;
}

/** `path` is below the folder of the package. */
export function packageFile(path: string): Buffer {
  return readFileSync(new URL(path, PACKAGE));
}

export function sourcePath(path: string): string {
  return path.replace(/^dist\/(.*)\.js$/, "$1.ts");
}

/** `import … from "./x.js"`, `export … from`, `import "./x.js"`. */
const STATIC_IMPORT = /^(?:import|export)\s(?:[^;"']*?\sfrom\s)?\s*["'](\.[^"']+)["']/gm;
