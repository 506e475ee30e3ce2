/**
 * Lists the files that a running gateway reads and writes, now and at its reloads: for `edge-gateway audit`, and for
 * SEAL.
 */
import { existsSync, realpathSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { MANIFEST } from "../base/own_code.ts";
import type { Config } from "../config/model.ts";
import type { Settings } from "../config/settings_types.ts";
import { signatureFile } from "../config/file_source.ts";
import { tlsPaths } from "./tls_files.ts";

/** `bin/` and `lib/` are in it: in the package `dist/`. */
export const PROGRAM = new URL("../../", import.meta.url);
/** The folder of the package. */
export const PACKAGE = isThere(new URL("package.json", PROGRAM)) ? PROGRAM : new URL("../", PROGRAM);

/** A configuration, and the paths of the files that it names. */
export interface TouchingConfig {
  readonly accessLog: Pick<Config["global"]["accessLog"], "enabled" | "file">;
  readonly testFiles: readonly string[];
  readonly callerFiles: readonly string[];
  readonly named: readonly string[];
}

/**
 * Absolute paths, and where their links lead. `watched`: those of `reads` whose changes are noticed. `patterns`: those
 * of `writes` that end with an asterisk, and stand for all that begin so.
 */
export function touchedFiles(
  settings: Settings,
  { accessLog: { enabled, file }, testFiles, callerFiles, named }: TouchingConfig,
) {
  const { source, configPath, configKeyPath } = settings;
  const keys = configKeyPath === null ? [] : [configKeyPath];
  const own = source === null ? [configPath, ...keys.map(() => signatureFile(configPath))] : [];
  const signed = [own, keys, testFiles, callerFiles].flat();
  const ofSettings = [...tlsPaths(settings), settings.admin?.usersPath ?? []].flat();
  const watched = unique([...[...signed, ...ofSettings].map((path) => resolve(path)), ...named]);
  const backendCa = settings.manager?.backendCaPath ?? null;
  const state = settings.stateDir === null ? [] : [resolve(settings.stateDir, "*")];
  const ownLog = settings.audit === null ? [] : [resolve(settings.audit.logPath)];
  const held = ownLog.map((path) => `${path}.lock*`);
  const writes = [
    ...(enabled && file !== undefined ? [file] : []),
    ...state,
    ...ownLog,
    ...held,
    ...writtenByAdmin(settings),
  ];
  const patterns = [...state, ...held, ...(source === null ? besidesOf(resolve(configPath)) : [])];
  const { tokenPath = null, caPath = null, certPath = null, keyPath = null, user = null } = source ?? {};
  const ofSource = [tokenPath, caPath, certPath, keyPath, user?.passwordPath ?? null]
    .filter((path) => path !== null)
    .map((path) => resolve(path));
  const reads = [
    ...ofSource,
    ...state,
    ...ownLog,
    ...held,
    ...watched,
    ...(backendCa === null ? [] : [resolve(backendCa)]),
  ];
  return { watched, reads: unique([...reads, ...reads.map(realPath), ...programFiles(settings)]), writes, patterns };
}

/** What flags of Node's permission model open for reading. Folders have a slash at the end. */
export function readable({
  watched,
  reads,
  writes,
}: Readonly<Record<"watched" | "reads" | "writes", readonly string[]>>): string[] {
  const program = ["bin/", "lib/"].map((folder) => fileURLToPath(new URL(folder, PROGRAM)));
  // A link may lead to another file tomorrow, as in Kubernetes, where both are in one folder.
  const folders = watched.filter((path) => realPath(path) !== path).map((path) => `${dirname(path)}/`);
  const all = unique([...program, ...reads, ...writes, ...folders].filter((path) => !NAME_FILES.includes(path)));
  // Node forbids a folder again when a flag names a file in it.
  return all.filter(
    (path) => !all.some((folder) => folder.endsWith("/") && folder !== path && path.startsWith(folder)),
  );
}

/** What a name look-up of the system (getaddrinfo) reads. */
export const NAME_FILES = ["/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf"];

/** The files of the program that are not modules, and what it reads of the system while it runs. */
function programFiles({ admin, probe, manager }: Settings): string[] {
  const manifest = new URL(MANIFEST, PROGRAM);
  const files = [new URL("package.json", PACKAGE), ...(isThere(manifest) ? [manifest] : [])].map((url) =>
    fileURLToPath(url),
  );
  if (manager !== null) files.push(fileURLToPath(new URL("lib/manager/assets/", PROGRAM)));
  // For metrics of open files and memory.
  if (admin !== null || probe !== null) files.push("/proc/self/fd/", "/proc/self/stat");
  return files;
}

/** The path itself while there is no such file. */
export function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

/**
 * With ADMIN_WRITE: the configuration's file, where its links lead, what is written beside it, and its history.
 */
function writtenByAdmin({ admin, configPath, source }: Settings): string[] {
  if (!admin?.write || source !== null) return [];
  const path = resolve(configPath);
  return unique([realPath(path), ...besidesOf(path)]);
}

function besidesOf(configPath: string): string[] {
  return [configPath, realPath(configPath)].map((path) => join(dirname(path), `.${basename(path)}.*`));
}

export function unique(texts: readonly string[]): string[] {
  return [...new Set(texts)];
}

/** Node's permission model throws for a file that no flag names. */
function isThere(file: URL): boolean {
  try {
    return existsSync(file);
  } catch {
    return false;
  }
}
