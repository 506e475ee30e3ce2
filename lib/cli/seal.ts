/**
 * Gives up what flags of Node's permission model grant and no reload needs, for the setting SEAL.
 */
import { isAbsolute, resolve, sep } from "node:path";
import { messageOf } from "../base/errors.ts";
import { giveUpInAll, type Permission, type Right } from "../base/rights.ts";
import type { Settings } from "../config/settings_types.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { Failure } from "./failure.ts";
import { readable, touchedFiles } from "./touched_files.ts";

type Access = "read" | "write";
/** Absolute paths: folders end with a slash, an asterisk stands for all that begin so. */
export type Needs = Readonly<Record<Access, readonly string[]>> & { readonly threads: boolean };
/** As `process` has them. */
export interface HostProcess {
  readonly version: string;
  readonly permission?: Permission;
  readonly execArgv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
}

const PRINTED = "edge-gateway audit --permission prints all flags";
/** What a gateway never needs: the flag of each scope. */
const NEVER = {
  child: "--allow-child-process",
  addon: "--allow-addons",
  wasi: "--allow-wasi",
  inspector: "--allow-inspector",
  ffi: "--allow-ffi",
};

/** Before the first port is open. Throws a `Failure` where a right that nothing needs would stay. */
export function seal(settings: Settings, gateway: GatewayCore): void {
  const { snapshot } = GatewayCore.internalsOf(gateway).configuration;
  const needs = needsOf(settings, { ...snapshot, ...snapshot.global, named: gateway.files });
  try {
    giveUpInAll(superfluous(needs, process as unknown as HostProcess));
  } catch (error) {
    throw error instanceof Failure ? error : refusal(messageOf(error));
  }
}

export function needsOf(settings: Settings, naming: Parameters<typeof touchedFiles>[1]): Needs {
  const touched = touchedFiles(settings, naming);
  return { read: readable(touched), write: touched.writes, threads: settings.workers !== 1 || settings.admin !== null };
}

/** The rights to give up. Throws a `Failure` for those that cannot be given up. */
export function superfluous(needs: Needs, { version, permission, execArgv, env }: HostProcess): readonly Right[] {
  const [major = 0] = version.replace("v", "").split(".").map(Number);
  if (permission === undefined && major >= 24)
    throw refusal(
      `needs Node's permission model: start node with --permission and the flags for what the ` +
        `gateway needs; ${PRINTED}`,
    );
  if (permission?.drop === undefined)
    throw refusal(`needs a Node that can give up rights, 24.21 or newer, and this is Node ${version.replace("v", "")}`);
  const rights: Right[] = [];
  for (const [scope, flag] of Object.entries(NEVER)) {
    if (!permission.has(scope)) continue;
    // A plugin module could start a thread, and that has all rights of the flags.
    if (needs.threads)
      throw refusal(
        `cannot give up ${flag} where there are workers or dry runs, whose threads start with it: ` +
          `start node without ${flag}`,
      );
    rights.push({ scope });
  }
  if (!needs.threads) rights.push({ scope: "worker" });
  for (const grant of grantsIn(execArgv, env.NODE_OPTIONS ?? "")) {
    if (isSuperfluous(grant, needs)) rights.push({ scope: `fs.${grant.access}`, path: grant.path });
  }
  for (const access of ["read", "write"] as const) {
    if (permission.has(`fs.${access}`)) throw tooWide({ access, path: "*" }, needs[access]);
  }
  return rights;
}

interface Grant {
  readonly access: Access;
  readonly path: string;
}

/** Throws a `Failure` for flags that cannot be read, since the rights that they grant would stay. */
export function grantsIn(words: readonly string[], options: string): Grant[] {
  if (/["'\\]/.test(options))
    throw refusal(
      "cannot read NODE_OPTIONS with quotes or backslashes: name the flags of the permission model on the command line",
    );
  const all = [...words, ...options.split(/\s+/)];
  const config = all.find((word) => /^--[\w-]*config[-_]file\b/.test(word));
  if (config !== undefined)
    throw refusal(`cannot tell what Node's configuration file grants: start node without ${config}`);
  return all.flatMap((word, i) => {
    const [, access, value = all[i + 1] ?? ""] = /^--allow[-_]fs[-_](read|write)(?:=(.*))?$/s.exec(word) ?? [];
    if (access === undefined) return [];
    // The working directory may be another one by now.
    if (value !== "*" && !isAbsolute(value))
      throw refusal(`needs absolute paths: --allow-fs-${access}=${value} has none`);
    return { access: access as Access, path: value };
  });
}

/** Throws a `Failure` for a grant that is wider than what is needed of it: Node gives up all of it, or nothing. */
function isSuperfluous(grant: Grant, needs: Needs): boolean {
  const needed = needs[grant.access];
  if (needed.some((need) => isWithin(grant.path, need))) return false;
  if (grant.path === "*" || needed.some((need) => isWithin(need, grant.path, true))) throw tooWide(grant, needed);
  return true;
}

/**
 * Whether `outer` is the same path, the beginning with an asterisk, or (a flag does not say so) a folder with `inner`
 * in it.
 */
function isWithin(inner: string, outer: string, isFolder = /[\\/]\*?$/.test(outer)): boolean {
  const one = normal(inner);
  const other = normal(outer);
  if (one === other) return true;
  if (other.endsWith("*")) return one.startsWith(other.slice(0, -1));
  return isFolder && one.startsWith(other.endsWith(sep) ? other : other + sep);
}

/** Without a slash or `/*` at the end, which mean the same for Node. */
function normal(path: string): string {
  return resolve(path).replace(/(?<=.)[\\/]\*$/, "");
}

function tooWide(grant: Grant, needed: readonly string[]): Failure {
  const { access, path } = grant;
  const flags = needed
    .filter((need) => path === "*" || isWithin(need, path, true))
    .map((need) => `--allow-fs-${access}=${need}`);
  const instead = flags.length === 0 ? "leave it out" : `write ${flags.join(" ")} in its place`;
  return refusal(`cannot give up a part of --allow-fs-${access}=${path}: ${instead} (${PRINTED})`);
}

function refusal(message: string): Failure {
  return new Failure(`SEAL (--seal) ${message}`, 2);
}
