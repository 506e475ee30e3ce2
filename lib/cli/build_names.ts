/**
 * What a build can be asked for by name: `edge-gateway build --with NAME`.
 */
import { isInBuild } from "../base/version.ts";
import type { Settings } from "../config/settings.ts";
import type { PartName, Parts } from "../gateway/parts.ts";
import { KINDS, PARTS } from "../parts/table.ts";
import type { Commands } from "./arguments.ts";
import { FOR_RELOADS } from "./audit_modules.ts";
import { Failure } from "./failure.ts";
import { partsNamedBy } from "./on_demand.ts";

/** Every build has them. What a service manager passes is no setting. */
export const ALWAYS: readonly string[] = ["settings", "sockets", "reloading", "run", "validate", "audit", "healthcheck", "hash-password", "verify", "help", ...FOR_RELOADS];

/** What settings name, as the settings that name it. */
const OF_SETTINGS: Readonly<Record<string, object>> = { admin: { admin: {} }, probes: { probe: {} }, manager: { manager: {} }, workers: { workers: 2 } };
/** What a name brings besides what has this name. */
const BRINGS: Readonly<Record<string, readonly string[]>> = { proof: ["test", "explain", "diff"], test: ["tests"], admin: ["reload"], manager: ["managerProxy"] };

/** For `--with`. */
export function namesForBuild(commands: Commands): readonly string[] {
  const all = new Set([...Object.keys(OF_SETTINGS), "proof", ...Object.keys(KINDS), ...Object.keys(PARTS), ...Object.keys(commands)]);
  return [...all].filter((name) => !ALWAYS.includes(name) && (name === "proof" || isInBuild(name)));
}

/** All names that this one stands for, and itself. */
export function broughtBy(name: string): readonly string[] {
  return [name, ...(BRINGS[name] ?? []).flatMap(broughtBy)];
}

/** Throws a `Failure` for a name that there is not. */
export function refuseUnknown(names: readonly string[], known: readonly string[]): void {
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new Failure(`--with: there is no "${unknown}"; there are ${known.join(", ")}`, 2);
}

/** The settings as if they named these parts, too. */
export function withNames(settings: Settings, names: readonly string[]): Settings {
  const given = settings as unknown as Readonly<Record<string, unknown>>;
  const added = Object.assign({}, ...names.map((name) => OF_SETTINGS[name])) as Readonly<Record<string, unknown>>;
  const isNamed = (field: string) => given[field] !== null && given[field] !== 1;
  return { ...settings, ...Object.fromEntries(Object.entries(added).filter(([field]) => !isNamed(field))) };
}

/** Loads the plugin kinds and parts of these names and of the settings, with the parts that a configuration with them would name. */
export async function loadNamed(parts: Parts, settings: Settings, names: readonly string[]): Promise<void> {
  for (const name of partsNamedBy(settings)) await parts.loadPart(name);
  await parts.loadParts({ value: { global: { plugins: names.filter((name) => name in KINDS).map((name) => ({ name })) } } });
  for (const name of names) if (name in PARTS) for (const part of neededBy(name as PartName)) await parts.loadPart(part);
}

/** A part, and those that are named wherever this one is. */
function neededBy(name: PartName): readonly PartName[] {
  const places = placesOf(name);
  const isNamedToo = (part: PartName) => places.length > 0 && places.every((place) => placesOf(part).includes(place));
  return (Object.keys(PARTS) as PartName[]).filter((part) => part === name || isNamedToo(part));
}

function placesOf(name: PartName): readonly string[] {
  const part = PARTS[name];
  return "named" in part && typeof part.named !== "function" ? part.named : [];
}
