/**
 * Tries a reload without doing it: whether the configuration would be accepted, what would change, and what recent
 * requests would meet.
 */
import type { Right } from "../base/rights.ts";
import { atOnce, paced, type NextTimeSlice } from "../base/time_slices.ts";
import { concealerOf, concealing } from "../config/secrets.ts";
import type { Path } from "../config/json.ts";
import { folderOf, type ConfigSource } from "../config/source.ts";
import { givenText, type SourceText } from "../config/text_source.ts";
import { Placeholders } from "../config/placeholders.ts";
import { asBuffer } from "../gateway/bundle.ts";
import type { Seen } from "../gateway/features.ts";
import type { ConfigTest } from "../config/tests.ts";
import { redactedPath } from "../http/redact.ts";
import * as foreignKinds from "../plugins/foreign_kind.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import { NO_TESTS } from "../gateway/configuration.ts";
import { ConfigReader, readNoFile, readSteps } from "../gateway/config_reader.ts";
import type { ConfigurationOptions } from "../gateway/options.ts";
import type { DisplayedConfig } from "../gateway/displayed_config.ts";
import type { RecentRequest } from "../gateway/recent_requests.ts";
import { whyRefused, shownIssue, unplacedIssue } from "../gateway/refusal.ts";
import type { ValidConfig } from "../gateway/compile_types.ts";
import { ownAnswers } from "../gateway/snapshot.ts";
import type { Refusal, ShownIssue, TestReport } from "../gateway/status.ts";
import { candidatesOf } from "../route/candidates.ts";
import { Candidate, compileApart } from "./candidate.ts";
import { configWarningsInSlices } from "./config_warnings.ts";
import type { ComparedConfig, RoutePlace } from "./guards_lost.ts";
import { routeDiff, type RouteDiff } from "./route_diff.ts";
import { placedWarnings, type PlacedWarning } from "./placed_warnings.ts";
import { failedTests, failuresOf, runTests, type FailedTest, type TestedRoute } from "./run_tests.ts";
import { matchingTable } from "./scratch.ts";

/** `issues` are empty when it would be accepted; `file` is `POSTED` for a text. */
export interface DryRun extends Refusal {
  readonly outcome: "accepted" | "refused";
  readonly warnings: readonly PlacedWarning[];
  /**
   * Null: there are none. `failures`: the first 100. `passes`: the names of the others, of the gateway's own source.
   */
  readonly tests: {
    readonly passed: number;
    readonly failed: number;
    readonly notRun: number;
    readonly failures: readonly FailedTest[];
    readonly passes?: readonly string[];
  } | null;
  /** Why tests were not run; null: all were, or there are none. */
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

/**
 * All that a dry run needs of a gateway: plain data, for another thread. Only `environment` holds values of references
 * that are secrets.
 */
export interface DryRunInput {
  /** A whole configuration; null: the gateway's own source, read again. */
  readonly text: Buffer | null;
  /** What that has, or why it has nothing; null: it is a value, or there is a text. */
  readonly received: SourceText | Error | null;
  readonly options: Pick<
    ConfigurationOptions,
    "config" | "configFile" | "configKeyFile" | "kinds" | "https" | "acme" | "tests"
  >;
  /** For the gateway's own source; null with a text. */
  readonly environment: Readonly<Record<string, string | undefined>> | null;
  /**
   * The configuration in force, with the files that it names, and the values of its references for which nothing else
   * can stand.
   */
  readonly inForce: {
    readonly source: ConfigSource;
    readonly files: ReadonlyMap<string, Buffer>;
    readonly formed: ReadonlyMap<string, string>;
  };
  readonly recent: readonly RecentRequest[];
  /** For a thread, to give up before anything else. */
  readonly rights: readonly Right[];
  /** Of the signed configurations so far; null: none need be signed. */
  readonly seen: Seen | null;
}

/** The name of a text that came without a file, in messages. */
export const POSTED = "(posted)";

/**
 * Reads, checks, compares and tests a configuration, and changes nothing. A text may come from somebody who may not
 * know the secrets of this machine: none of its references is resolved, see `Placeholders`. `own`: what of the gateway
 * is no data.
 */
export async function dryRun(
  input: DryRunInput,
  { plugins = [], modules }: Pick<ConfigurationOptions, "plugins" | "modules">,
): Promise<DryRun> {
  const { text, options, inForce } = input;
  const variables = [...inForce.formed].flatMap(([reference, value]) =>
    reference.startsWith("${env:") ? [[reference.slice(6, -1), value] as const] : [],
  );
  const inputs = { environment: Object.fromEntries(variables), files: inForce.files };
  const fromMemory = (path: string) => inForce.files.get(path) ?? readNoFile(path);
  await modules.load(inForce.source, inputs.environment, fromMemory);
  const { kinds, https, acme } = options;
  const settings = { plugins, modules, ...(kinds && { kinds }), ...(https && { https }), ...(acme && { acme }) };
  const reader = new ConfigReader(settings, readNoFile);
  const known = new Placeholders(inForce.formed, null);
  const before = reader.load(inForce.source, inputs, known).valid;
  const recent = (valid: ValidConfig) => ({
    from: { ...before, table: matchingTable(before) },
    to: { ...valid, table: matchingTable(valid) },
    recent: input.recent,
  });
  const folder = folderOf(inForce.source);
  if (text === null)
    return ofOwnSource(
      {
        ...options,
        ...(input.received && { textSource: givenText(options.configFile!, arrived(input.received), folder) }),
        plugins,
        modules,
        environment: input.environment!,
        seen: input.seen && { read: () => input.seen!, write() {} },
      },
      recent,
    );
  const source = { text, file: POSTED, folder };
  const lacks = options.configKeyFile === undefined ? [] : [UNSIGNED];
  await modules.loadNeeded(source);
  // The kinds of `lenient` are nobody's.
  modules.add({}, [], foreignKinds);
  const placeholders = new Placeholders(inForce.formed, known);
  try {
    const { valid } = reader.load(source, inputs, placeholders);
    await compileApart({ ...valid, kinds: valid.kinds.map((kind) => lenient(kind, placeholders.unsure)) }, modules);
    const report = isTested(options)
      ? await runTests(valid, {
          early: ownAnswers(valid, modules),
          isOpen: (test, place, passed) => isOpen(valid, placeholders, test, place, passed),
        })
      : NO_TESTS;
    const failed = report.failed === 0 ? [] : failuresOf(valid.tests, report).map(shownIssue);
    const result = await compared({ file: POSTED, issues: [...lacks, ...failed] }, { valid, report }, recent(valid));
    const isUnread = placeholders.unknown.some(([root]) => root === "test_files");
    const untested = [result.untested ?? [], isUnread && isTested(options) ? UNREAD : [], skipped(valid, options)];
    return concealedBy(concealerOf(valid), { ...result, untested: untested.flat().join(" ") || null });
  } catch (error) {
    return concealedBy(
      concealing(new Map([...inForce.formed].map(([reference, value]) => [value, reference]))),
      refused(refusalOfText(error, lacks)),
    );
  }
}

/** Another thread's Buffer arrives as a Uint8Array. */
function arrived(received: SourceText | Error): SourceText | Error {
  return received instanceof Error ? received : { ...received, text: asBuffer(received.text) };
}

async function ofOwnSource(options: ConfigurationOptions, recent: (valid: ValidConfig) => Comparison): Promise<DryRun> {
  let candidate: Candidate;
  try {
    const { config, configKeyFile, environment } = options;
    if (configKeyFile !== undefined) await options.modules.loadFeature("sources");
    const read = atOnce(readSteps(config, options));
    if (read.ok) await options.modules.load(read, environment ?? {});
    candidate = new Candidate(options);
  } catch (error) {
    return refused(whyRefused(error));
  }
  const { configuration } = candidate;
  try {
    const refusal = await configuration.testFirst("strict").then(() => ({ file: null, issues: [] }), whyRefused);
    const report = configuration.lastTests?.report ?? { passed: 0, failed: 0, tests: [] };
    const result = await compared(refusal, { valid: configuration.snapshot, report }, recent(configuration.snapshot));
    const passes = report.tests.flatMap(({ name, passed }) => (passed ? [name] : []));
    const untested = [result.untested ?? [], skipped(configuration.snapshot, options)].flat().join(" ");
    return { ...result, tests: result.tests && { ...result.tests, passes }, untested: untested || null };
  } finally {
    await candidate.close();
  }
}

function isTested({ tests }: Pick<ConfigurationOptions, "tests">): boolean {
  return tests !== "skip";
}

/** A reload of this gateway would not run them either. */
function skipped(
  { tests }: Pick<ValidConfig, "tests">,
  options: Pick<ConfigurationOptions, "tests">,
): readonly string[] {
  return tests.length === 0 || isTested(options) ? [] : [SKIPPED];
}

interface Comparison {
  readonly from: ComparedConfig;
  readonly to: ComparedConfig;
  readonly recent: readonly RecentRequest[];
}

/** A configuration without errors, and the results of its tests. */
interface Tried {
  readonly valid: ValidConfig;
  readonly report: TestReport;
}

async function compared(refusal: Refusal, { valid, report }: Tried, { from, to, recent }: Comparison): Promise<DryRun> {
  const slice = paced();
  const { passed, failed, notRun = 0 } = report;
  return {
    outcome: refusal.issues.length === 0 ? "accepted" : "refused",
    ...refusal,
    warnings: placedWarnings(await configWarningsInSlices(to), valid),
    tests:
      passed + failed + notRun === 0 ? null : { passed, failed, notRun, failures: failedTests(valid.tests, report) },
    untested: notRun === 0 ? null : UNTESTED,
    diff: await routeDiff(from, to, slice),
    requests: await movedRequests(recent, [from, to], slice),
  };
}

function refused(refusal: Refusal): DryRun {
  return { outcome: "refused", ...refusal, warnings: [], tests: null, untested: null, diff: null, requests: null };
}

const UNSIGNED: ShownIssue = {
  ...unplacedIssue(
    "came without a signature, and this gateway accepts signed configurations only (CONFIG_PUBLIC_KEY): " +
      "put it in the gateway's file and sign that with edge-gateway sign",
  ),
  code: "unsigned",
};
const UNCHECKED: ShownIssue = {
  ...unplacedIssue(
    "cannot be checked without the values of its references: a text that is only tried must not read them out. " +
      "Check it with edge-gateway validate FILE",
  ),
  code: "unchecked",
};
const UNTESTED =
  "Tests whose result could tell the value of a reference were not run: run them with edge-gateway test FILE.";
const SKIPPED = "The gateway runs no tests (--no-tests): run them with edge-gateway test FILE.";
const UNREAD =
  "Files of test_files that the configuration in force does not name were not read, and their tests not run: " +
  "run them with edge-gateway test FILE.";

/** `lacks`: what is wrong with the text besides its content. */
function refusalOfText(error: unknown, lacks: readonly ShownIssue[]): Refusal {
  const { file, issues } = whyRefused(error);
  const isOfText = lacks.length > 0 || (file !== null && issues.length > 0);
  return { file: isOfText ? POSTED : null, issues: [...lacks, ...(issues.length === 0 ? [UNCHECKED] : issues)] };
}

/** Nobody can tell whether a plugin accepts the values that placeholders stand for. */
function lenient(kind: AnyPlugin, unsure: WeakSet<object>): AnyPlugin {
  const { ownHeaders, secretParameters } = kind;
  return {
    ...kind,
    // The members that a placeholder stands for are missing.
    ...(ownHeaders && { ownHeaders: (config) => (unsure.has(config as object) ? [] : ownHeaders(config)) }),
    ...(secretParameters && {
      secretParameters: (config) => (unsure.has(config as object) ? [] : secretParameters(config)),
    }),
    create(config, tools) {
      try {
        return kind.create(config, tools);
      } catch (error) {
        if (unsure.has(config as object)) return (next) => next;
        throw error;
      }
    },
  };
}

/** Whether the result of a test could depend on what a placeholder stands for. `place`: the route of its request. */
function isOpen(
  { shown }: ValidConfig,
  { unknown, random }: Placeholders,
  test: ConfigTest,
  place: TestedRoute,
  passed: boolean,
): boolean {
  const { services } = shown as unknown as DisplayedConfig;
  const isMet = ([root, i, list, j, ...rest]: Path): boolean => {
    if (root === "tests" || typeof root === "number") return test.at.every((step, depth) => [root, i][depth] === step);
    if (root === "global") return i === "plugins" || i === "trusted_proxies";
    if (root !== "services") return false;
    if (place.service === undefined) return true;
    if (services[i as number]?.name !== place.service) return false;
    if (list !== "routes") return list === "plugins" || list === "upstreams";
    return rest.length > 0 && services[i as number]!.routes[j as number]?.name === place.route;
  };
  return unknown.some(isMet) || (!passed && random.some(isMet));
}

function concealedBy(conceal: (text: string) => string, result: DryRun): DryRun {
  return JSON.parse(JSON.stringify(result), (_name, value: unknown) =>
    typeof value === "string" ? conceal(value) : value,
  ) as DryRun;
}

const MAX_EXAMPLES = 10;

async function movedRequests(
  recent: readonly RecentRequest[],
  [before, after]: readonly [ComparedConfig, ComparedConfig],
  slice: NextTimeSlice,
): Promise<MovedRequests> {
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
    if (examples.size < MAX_EXAMPLES) examples.set(text, { request: text, before: was, after: is });
  }
  return { checked: recent.length, otherRoute, noRoute, undecided, examples: [...examples.values()] };
}

/** Undefined: the route depends on what is not kept of a recent request. */
function placeOf({ table }: ComparedConfig, { method, authority, path }: RecentRequest): RoutePlace | null | undefined {
  const found = table.find(authority, method, path, path.includes("%2F"));
  const asked = candidatesOf(table, authority, path).filter(({ takes }) => takes(method));
  // Routes of one pattern follow each other: those with conditions before the route that takes the rest.
  if (found.kind === "conditions" || (found.kind === "route" && asked[0]?.match !== undefined)) return undefined;
  return found.kind === "route" ? { service: found.target.service.name, route: found.target.route.name } : null;
}
