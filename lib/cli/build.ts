/**
 * `edge-gateway build`: makes a package that has the modules which a configuration, settings and `--with` name, with
 * their sources, and no others.
 */
import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { messageOf } from "../base/errors.ts";
import type { Destination } from "../base/egress.ts";
import { MANIFEST } from "../base/own_code.ts";
import { whyUnreadable } from "../base/regular_file.ts";
import { isInBuild } from "../base/version.ts";
import type { Settings } from "../config/settings_types.ts";
import { FEATURES, KINDS } from "../features/table.ts";
import type { FeatureName, LoadedFeatures } from "../gateway/loaded_features.ts";
import type { Commands, RunCommand } from "./arguments.ts";
import { textOf } from "./audit.ts";
import {
  auditedFile,
  FOR_RELOADS,
  isAmong,
  IS_SOURCE,
  loadedAtStart,
  loadedOnRequest,
  modulesOf,
  packageFile,
  PACKAGE_FOLDER,
  rowsOf,
  sourceOf,
  sourcePath,
  type AuditedModule,
  type Row,
} from "./audit_modules.ts";
import { auditOf, type Audit, type Audited } from "./audit_sources.ts";
import { billOfMaterials, type BillSubject } from "./bill_of_materials.ts";
import { namedFile, openCandidate } from "./config_file.ts";
import { counted } from "./counted.ts";
import { Failure } from "./failure.ts";
import { featuresNamedBy } from "./on_demand.ts";
import { printable, withoutControls } from "./terminal.ts";
import { realPath } from "./touched_files.ts";
import { AUDIT, SUMS } from "./verify.ts";

type Files = Map<string, Buffer>;

export const build: RunCommand = async (given, commands) => {
  const config = namedFile(given);
  const { output, with: _names, ...shared } = given.flags;
  if (typeof output !== "string")
    throw new Failure("build needs a folder for the package: edge-gateway build --config gw.json --output DIR", 2);
  if (IS_SOURCE)
    throw new Failure(
      "build copies what is in dist/, and this is the program as its sources: npm run build, " +
        "and run dist/bin/edge-gateway.js",
      2,
    );
  refuseFilled(output);
  const asked = given.repeated.with ?? [];
  const known = namesForBuild(commands);
  const unknown = asked.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new Failure(`--with: there is no "${unknown}"; there are ${known.join(", ")}`, 2);
  const audited = await auditOf({ ...shared, config });
  await check(audited);
  const rows = rowsOf(commands);
  const needed = await needs(rows, audited, asked.flatMap(broughtBy));
  const modules = modulesOf(
    rows.filter(({ name }) => needed.has(name)),
    "any",
  );
  const names = new Set([...needed, ...alreadyThere(rows, modules)].sort());
  const { url } = audited.settings.source ?? { url: null };
  const files = filesOf(audited.audit, names, modules, url?.name ?? resolve(config));
  write(output, files);
  const kinds = Object.keys(KINDS)
    .filter((name) => names.has(name))
    .join(", ");
  const lines = modules.reduce((sum, each) => sum + each.lines, 0);
  process.stdout.write(
    printable([
      `${output} has ${counted(modules.length, "module")} with ${lines} ` +
        `lines${kinds === "" ? "" : `, and the plugin kinds ${kinds}`}; ${join(output, AUDIT)} lists them`,
      `start it with: node ${join(output, "dist/bin/edge-gateway.js")} --config ${url?.name ?? config}`,
    ]),
  );
  return 0;
};

function refuseFilled(folder: string): void {
  let found: string[];
  try {
    found = readdirSync(folder);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return;
    throw new Failure(
      code === "ENOTDIR"
        ? `${folder} (--output) is a file: name a folder`
        : `cannot read the folder ${folder} (--output): ${whyUnreadable(error)}`,
      2,
    );
  }
  if (found.length > 0) throw new Failure(`${folder} (--output) is not empty: name a folder that is not there yet`, 2);
}

/** Throws the `ConfigError` that a start would. */
async function check({ settings, from }: Audited): Promise<void> {
  const candidate = await openCandidate(from);
  try {
    if (settings.tests === "run") await candidate.configuration.testFirst("strict");
  } finally {
    await candidate.close();
  }
}

/** The names of rows. */
async function needs(
  rows: readonly Row[],
  { settings, features, hasTests, config }: Audited,
  asked: readonly string[],
): Promise<ReadonlySet<string>> {
  const all = withNames(settings, asked);
  await loadNamed(features, all, asked);
  const named = config.global.acme === undefined ? [] : (["acme"] as const);
  const loaded = [...loadedAtStart(all, named, features, hasTests), ...loadedOnRequest(all)];
  // Warnings, which any reload can bring, need none of the commands.
  const broughtWith = (name: string) => (name === "proof" ? [name] : broughtBy(name));
  return new Set(
    [...ALWAYS, ...asked, ...loaded.flatMap(({ name }) => broughtWith(name))]
      .filter((name) => rows.some((row) => row.name === name))
      .sort(),
  );
}

/** The names of which the package has everything, as it is needed for something else. */
function alreadyThere(rows: readonly Row[], modules: readonly AuditedModule[]): readonly string[] {
  const [there, missing] = [true, false].map((is) =>
    rows.filter((row) => isAmong(row, modules) === is).map(({ name }) => name),
  ) as [string[], string[]];
  return there.filter((name) => !missing.includes(name));
}

/** By their paths below the folder of the package. `config`: an absolute path, or the name of a URL. */
function filesOf(audit: Audit, names: ReadonlySet<string>, modules: readonly AuditedModule[], config: string): Files {
  const files: Files = new Map();
  for (const { path } of modules) {
    const source = sourceOf(path);
    if (source === null)
      throw new Failure(
        `this package does not have ${sourcePath(path)}, the source of ${path}: ` +
          `build from the package of npm, or from a clone`,
        1,
      );
    files.set(path, packageFile(path)).set(sourcePath(path), source);
  }
  files.set(`dist/${MANIFEST}`, manifestOf(modules));
  if (names.has("manager")) for (const path of pages()) files.set(path, packageFile(path));
  const own = JSON.parse(packageFile("package.json").toString()) as BillSubject & Readonly<Record<string, unknown>>;
  const { name, version, description, license, type, engines, bin } = own;
  files.set(
    "package.json",
    jsonOf({ name, version, description, license, type, engines, bin, edgeGateway: { parts: [...names] } }),
  );
  files.set("LICENSE", packageFile("LICENSE"));
  files.set(AUDIT, Buffer.from(auditText(own, audit, modules, config)));
  const properties = [{ name: "edge-gateway:parts", value: [...names].join(",") }];
  files.set("sbom.cdx.json", jsonOf(billOfMaterials(own, auditedFile("", sumsOf(files)).sha256, { properties })));
  return files.set(SUMS, sumsOf(files));
}

/** See `base/own_code.ts`. */
function manifestOf(modules: readonly AuditedModule[]): Buffer {
  const compiled = modules.filter(({ path }) => path.startsWith("dist/"));
  return jsonOf(Object.fromEntries(compiled.map(({ path, sha256 }) => [path.slice("dist/".length), sha256])));
}

/** The management UI, as browsers get it, and its sources. */
function pages(): string[] {
  const inFolder = (folder: string, ends: RegExp) =>
    readdirSync(join(PACKAGE_FOLDER, folder))
      .filter((name) => ends.test(name))
      .map((name) => `${folder}/${name}`);
  return [...inFolder("dist/lib/manager/assets", /\.(?:js|html|css|svg)$/), ...inFolder("lib/manager/assets", /\.ts$/)];
}

function jsonOf(value: unknown): Buffer {
  return Buffer.from(`${JSON.stringify(value, null, 2)}\n`);
}

function sumsOf(files: Files): Buffer {
  const sorted = [...files].sort(([a], [b]) => (a < b ? -1 : 1));
  return Buffer.from(
    sorted.map(([path, content]) => `${createHash("sha256").update(content).digest("hex")}  ${path}\n`).join(""),
  );
}

/**
 * Paths of the configuration's folder and of the package are written without these folders, so that the same input
 * gives the same text.
 */
function auditText(
  { name, version }: BillSubject,
  audit: Audit,
  modules: readonly AuditedModule[],
  config: string,
): string {
  const folders = [...(isAbsolute(config) ? [dirname(config)] : []), PACKAGE_FOLDER]
    .flatMap((folder) => [folder, realPath(folder)])
    .map((folder) => `${folder.replace(/\/$/, "")}/`);
  const short = (text: string) => folders.reduce((left, folder) => left.replace(folder, ""), text);
  const shortened = (texts: readonly string[]) => [...new Set(texts.map(short))].sort();
  const dials = audit.dials.filter(({ why }) => why !== "dns");
  // Those of another machine are others.
  const servers: readonly Destination[] =
    dials.length === audit.dials.length ? [] : [{ host: "the name servers of the machine", port: 53, why: "dns" }];
  const text = textOf({
    ...audit,
    reads: shortened(audit.reads),
    writes: shortened(audit.writes),
    secrets: shortened(audit.secrets),
    dials: [...dials, ...servers],
  });
  const atStart = new Set(audit.modules.map(({ path }) => path));
  const table = (rows: readonly AuditedModule[]) => [
    "| Module | Lines | SHA-256 |",
    "|---|---|---|",
    ...rows.map(({ path, lines, sha256 }) => `| ${short(path)} | ${lines} | ${sha256} |`),
  ];
  const all = [
    `# ${name} ${version}, built for ${short(config)}`,
    ...["", "Files are named from the folder of the configuration, and those of the package from its folder.", ""],
    ...["## What a start can do", "", "```text", ...text.map(withoutControls), "```", ""],
    ...["## The modules that it loads", "", ...table(audit.modules), ""],
    ...[
      "## The other modules of this package",
      "",
      "A reload may load them, other commands do, and whatever needs what was asked for with `--with`.",
      "",
      ...table(modules.filter(({ path }) => !atStart.has(path))),
    ],
  ];
  return `${all.join("\n")}\n`;
}

/** All of it, or nothing. */
function write(folder: string, files: Files): void {
  const isNew = !existsSync(folder);
  try {
    for (const [path, content] of files) {
      const file = join(folder, path);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, content, { flag: "wx" });
      chmodSync(file, path.endsWith("/bin/edge-gateway.js") ? 0o755 : 0o644);
    }
  } catch (error) {
    for (const name of isNew ? [""] : new Set(Array.from(files.keys(), (path) => path.split("/")[0]!)))
      rmSync(join(folder, name), { recursive: true, force: true });
    throw new Failure(`cannot write the package to ${folder} (--output): ${messageOf(error)}`, 1);
  }
}

/** Every build has them. What a service manager passes is no setting. */
const ALWAYS: readonly string[] = [
  "settings",
  "sockets",
  "run",
  "validate",
  "audit",
  "healthcheck",
  "hash-password",
  "verify",
  "help",
  ...FOR_RELOADS,
];

/** What settings name, as the settings that name it. */
const OF_SETTINGS: Readonly<Record<string, object>> = {
  admin: { admin: {} },
  probes: { probe: {} },
  manager: { manager: {} },
  workers: { workers: 2 },
};
/** What a name brings besides what has this name. */
const BRINGS: Readonly<Record<string, readonly string[]>> = {
  proof: ["test", "explain", "diff"],
  test: ["tests"],
  admin: ["reload"],
  manager: ["managerProxy"],
  auditLog: ["verify-log", "workerAudit"],
};

/** For `--with`. */
export function namesForBuild(commands: Commands): readonly string[] {
  const all = new Set([
    ...Object.keys(OF_SETTINGS),
    ...Object.keys(KINDS),
    ...Object.keys(FEATURES),
    "tests",
    ...Object.keys(commands),
  ]);
  return [...all].filter((name) => (name === "proof" || !ALWAYS.includes(name)) && isInBuild(name));
}

/** All names that this one stands for, and itself. */
function broughtBy(name: string): readonly string[] {
  return [name, ...(BRINGS[name] ?? []).flatMap(broughtBy)];
}

/** The settings as if they named these features, too. */
function withNames(settings: Settings, names: readonly string[]): Settings {
  const given = settings as unknown as Readonly<Record<string, unknown>>;
  const added = Object.assign({}, ...names.map((name) => OF_SETTINGS[name])) as Readonly<Record<string, unknown>>;
  const isNamed = (field: string) => given[field] !== null && given[field] !== 1;
  return { ...settings, ...Object.fromEntries(Object.entries(added).filter(([field]) => !isNamed(field))) };
}

/** Loads the plugin kinds and features of these names and of the settings, with what a configuration would need. */
async function loadNamed(features: LoadedFeatures, settings: Settings, names: readonly string[]): Promise<void> {
  const kinds = names.filter((name) => name in KINDS).map((name) => ({ name }));
  await features.loadNeeded({ value: { global: { plugins: kinds } } });
  for (const name of [...featuresNamedBy(settings), ...names])
    if (name in FEATURES) await features.loadFeature(name as FeatureName);
}
