/**
 * Lists the modules of the program that a gateway loads: from the first one along all imports, and those of the tables of what is loaded on
 * demand that its configuration and its settings need.
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Settings } from "../config/settings.ts";
import { OF_TEXTS, ON_DEMAND as OF_GATEWAY, type Parts } from "../gateway/parts.ts";
import { COMMANDS, ON_DEMAND as OF_RUN } from "./commands.ts";

export interface AuditedModule {
  /** Below the folder of the package; absolute: a plugin module. */
  readonly path: string;
  /** In hexadecimal. */
  readonly sha256: string;
  readonly lines: number;
}

/** `lib/`, in the package that is `dist/lib/`. */
const LIB = new URL("../", import.meta.url);
/** `bin/` and `lib/` are in it: in the package `dist/`. */
export const PROGRAM = new URL("../", LIB);
/** The folder of the package. */
export const PACKAGE = existsSync(new URL("package.json", PROGRAM)) ? PROGRAM : new URL("../", PROGRAM);
const SUFFIX = import.meta.url.endsWith(".ts") ? "ts" : "js";

/** In the order of their paths. `hasTests`: whether the configuration is tested at the start. */
export function modulesOf(settings: Settings, parts: Parts, hasTests: boolean): readonly AuditedModule[] {
  const { admin, probe, manager, workers } = settings;
  const ofRun: (() => Promise<unknown>)[] = [OF_RUN.main, COMMANDS.run.load, ...(admin === null ? [] : [OF_RUN.admin]), ...(probe === null ? [] : [OF_RUN.probes])];
  ofRun.push(...(manager === null ? [] : [OF_RUN.manager]), ...(workers === 1 ? [] : [OF_RUN.workers]));
  // The admin interface answers questions by explanations and dry runs, which load what a posted text names.
  const ofGateway: (() => Promise<unknown>)[] = [...parts.called, ...(hasTests ? [OF_GATEWAY.tests] : []), ...(admin === null ? [] : [OF_GATEWAY.explain, OF_GATEWAY.dryRuns, OF_GATEWAY.dryRun, OF_GATEWAY.tests, ...OF_TEXTS])];
  const found = new Map<string, AuditedModule>();
  visit(new URL(`bin/edge-gateway.${SUFFIX}`, PROGRAM), found);
  if (admin !== null) visit(new URL(`gateway/proof/dry_run_thread.${SUFFIX}`, LIB), found);
  if (workers !== 1) visit(new URL(`cluster/worker.${SUFFIX}`, LIB), found);
  for (const load of ofRun) for (const name of literalImports(load)) visit(new URL(name, import.meta.url), found);
  for (const load of ofGateway) for (const name of literalImports(load)) visit(new URL(name, new URL("gateway/", LIB)), found);
  return [...found.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

export function auditedFile(path: string, content: Buffer): AuditedModule {
  const lines = content.toString("latin1").split("\n");
  return { path, sha256: createHash("sha256").update(content).digest("hex"), lines: lines.length - (lines.at(-1) === "" ? 1 : 0) };
}

/** The names in `import("…")` of a function of a table, whose source Node keeps. */
function literalImports(load: () => Promise<unknown>): string[] {
  return Array.from(String(load).matchAll(/\bimport\("([^"]+)"\)/g), ([, name]) => name!);
}

function visit(file: URL, found: Map<string, AuditedModule>): void {
  if (found.has(file.href)) return;
  const content = readFileSync(file);
  found.set(file.href, auditedFile(fileURLToPath(file).slice(fileURLToPath(PACKAGE).length), content));
  for (const [, name] of content.toString("utf8").matchAll(STATIC_IMPORT)) visit(new URL(name!, file), found);
}

/** `import … from "./x.js"`, `export … from`, `import "./x.js"`. */
const STATIC_IMPORT = /^(?:import|export)\s(?:[^;"']*?\sfrom\s)?\s*["'](\.[^"']+)["']/gm;
