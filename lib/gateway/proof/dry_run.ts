/**
 * Tries a reload without doing it: whether the configuration would be accepted, what would change, and what recent requests would meet.
 */
import { dirname, join } from "node:path";
import { messageOf } from "../../base/errors.ts";
import { createTimeSlices, paced, type NextTimeSlice } from "../../base/time_slices.ts";
import { hasReference } from "../../config/references.ts";
import { redactedPath } from "../../http/redact.ts";
import { ConfigError } from "../config_reader.ts";
import type { Configuration } from "../configuration.ts";
import type { DisplayedConfig } from "../displayed_config.ts";
import type { RecentRequest } from "../serve.ts";
import type { Snapshot } from "../snapshot.ts";
import type { Warning } from "../status.ts";
import { Candidate } from "./candidate.ts";
import { configWarningsInSlices } from "./config_warnings.ts";
import type { RoutePlace } from "./guards_lost.ts";
import { routeDiff, type RouteDiff } from "./route_diff.ts";

export interface DryRun {
  readonly outcome: "accepted" | "refused";
  /** One line each, as a reload logs them; empty when it would be accepted. */
  readonly issues: readonly string[];
  readonly warnings: readonly Warning[];
  /** Null: there are none, or they were not run. */
  readonly tests: { readonly passed: number; readonly failed: number } | null;
  /** Why tests were not run; null: they were, or there are none. */
  readonly untested: string | null;
  /** From the configuration in force to this one. Null: it has errors. */
  readonly diff: RouteDiff | null;
  /** Null: it has errors. */
  readonly requests: MovedRequests | null;
}

/** Recent requests that would get another route, or none. */
export interface MovedRequests {
  readonly checked: number;
  /** Would get another route than now, or one instead of none. */
  readonly otherRoute: number;
  /** Would get none instead of one. */
  readonly noRoute: number;
  /** Have or would have a route that depends on their headers, query or cookies (`match`), which are not kept. */
  readonly undecided: number;
  /** Different ones, ten at most. */
  readonly examples: readonly MovedRequest[];
}

export interface MovedRequest {
  /** "GET http://shop.example.com/items/7" */
  readonly request: string;
  /** Null: no route. */
  readonly before: RoutePlace | null;
  readonly after: RoutePlace | null;
}

/** The name of a text that came without a file, in messages. */
export const POSTED = "(posted)";

/**
 * `text` is a whole configuration; null: the source of the configuration in force, read again, with plugin modules that are new in it. No
 * module is loaded for a text. Nothing else of the gateway changes.
 */
export async function dryRun(current: Configuration, recent: readonly RecentRequest[], text: Buffer | null): Promise<DryRun> {
  if (text === null) await current.loadModules();
  const { options, snapshot: before } = current;
  const { configKeyFile, ...unsigned } = options;
  const posted = text === null ? undefined : { text, file: join(dirname(options.configFile ?? ""), POSTED) };
  const lacks = posted === undefined || configKeyFile === undefined ? [] : [`${posted.file}  ${UNSIGNED}`];
  if (posted !== undefined) await current.loadParts(posted);
  let candidate: Candidate;
  try {
    candidate = posted === undefined ? new Candidate(options) : new Candidate(unsigned, posted);
  } catch (error) {
    return { outcome: "refused", issues: [...lacks, ...linesOf(error)], warnings: [], tests: null, untested: null, diff: null, requests: null };
  }
  const { configuration } = candidate;
  const { snapshot } = configuration;
  try {
    const slice = paced();
    const untested = text === null || snapshot.tests.length === 0 ? null : whyUntested(text, snapshot);
    const issues = [...lacks, ...(untested !== null ? [] : await configuration.prove("strict").then(() => [], linesOf))];
    const { passed, failed } = configuration.lastTests?.report ?? { passed: 0, failed: 0 };
    const warnings = await configWarningsInSlices(snapshot, createTimeSlices());
    const result: DryRun = {
      outcome: issues.length === 0 ? "accepted" : "refused",
      issues,
      warnings,
      tests: passed + failed === 0 ? null : { passed, failed },
      untested,
      diff: await routeDiff(before, snapshot, slice),
      requests: await movedRequests(recent, [before, snapshot], slice),
    };
    return text === null ? result : withoutSecrets(result, snapshot);
  } finally {
    await candidate.close();
  }
}

const UNSIGNED = "came without a signature, and this gateway accepts signed configurations only (CONFIG_PUBLIC_KEY): put it in the gateway's file and sign that with edge-gateway sign";

function linesOf(error: unknown): string[] {
  return error instanceof ConfigError ? error.message.trimEnd().split("\n") : [messageOf(error)];
}

/** A text comes from somebody who may not know the secrets: its tests could find them out value by value. Null: it has none. */
function whyUntested(text: Buffer, { files }: Snapshot): string | null {
  const written = JSON.stringify(JSON.parse(text.toString().replace(/^\uFEFF/, "")));
  const names = [...(hasReference(written) ? ["references"] : []), ...(files.length > 0 ? ["files"] : [])];
  return names.length === 0 ? null : `The tests were not run: the text has ${names.join(" and ")}, whose content they could read out. Run them with edge-gateway test FILE.`;
}

/**
 * A text must not read out what its references stand for. An example has it as it is in a request, perhaps in another form: where the
 * address of a route has references, there are no examples.
 */
function withoutSecrets({ warnings, diff, ...others }: DryRun, { shown, concealed }: Snapshot): DryRun {
  const { services } = shown as unknown as DisplayedConfig;
  const isAddressed = services.some(({ base_path, hosts, routes }) => hasReference(JSON.stringify([base_path, hosts, routes.map(({ path, match }) => [path, match])])));
  const withExample = <T extends { readonly example: string | null }>(each: T): T => (isAddressed ? { ...each, example: null } : each);
  const result: DryRun = {
    ...others,
    warnings: warnings.map(withExample),
    diff: diff === null ? null : { ...diff, guardsLost: diff.guardsLost.map(withExample) },
  };
  return JSON.parse(JSON.stringify(result), (_name, value: unknown) => (typeof value === "string" ? concealed(value) : value)) as DryRun;
}

const MOST_EXAMPLES = 10;

async function movedRequests(recent: readonly RecentRequest[], [before, after]: readonly [Snapshot, Snapshot], slice: NextTimeSlice): Promise<MovedRequests> {
  const examples = new Map<string, MovedRequest>();
  let [otherRoute, noRoute, undecided] = [0, 0, 0];
  for (const request of recent) {
    await slice();
    const [was, is] = [placeOf(before, request), placeOf(after, request)];
    if (was === undefined || is === undefined) {
      undecided++;
      continue;
    }
    if (was?.service === is?.service && was?.route === is?.route) continue;
    if (is === null) noRoute++;
    else otherRoute++;
    const text = `${request.method} http://${request.authority}${redactedPath(request.path)}`;
    if (examples.size < MOST_EXAMPLES) examples.set(text, { request: text, before: was, after: is });
  }
  return { checked: recent.length, otherRoute, noRoute, undecided, examples: [...examples.values()] };
}

/** Undefined: the route depends on what is not kept of a recent request. */
function placeOf({ table }: Snapshot, { method, authority, path }: RecentRequest): RoutePlace | null | undefined {
  const found = table.find(authority, method, path, path.includes("%2F"));
  const asked = table.candidates(authority, path).filter(({ takes }) => takes(method));
  // Routes of one pattern follow each other: those with conditions before the route that takes the rest.
  if (found.kind === "conditions" || (found.kind === "route" && asked[0]?.match !== undefined)) return undefined;
  return found.kind === "route" ? { service: found.target.service.name, route: found.target.route.name } : null;
}
