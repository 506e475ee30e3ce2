/**
 * Runs in the process of one version: opens the configuration with it and answers questions from standard input. It is
 * imported before the version, so that the version finds no way to dial.
 */
import { writeSync } from "node:fs";
import { Socket } from "node:net";
import type { Question } from "../../proof/explain.ts";

/** What a version does with one request. */
export interface VersionAnswer {
  /** "shop / items"; null: no route takes it. */
  readonly route: string | null;
  /** Why it is refused before any plugin: "404 not_found"; null: it is not. */
  readonly refused: string | null;
  readonly forwarded: string | null;
  /** In the order in which they run. `verdict`: "passes", "answers 401 key_missing"; null: the version does not say. */
  readonly plugins: readonly (readonly [name: string, verdict: string | null])[];
  /** By their names in lower case. Null: a plugin answers, or the version does not say. */
  readonly headers: Readonly<Record<string, string>> | null;
}

/** What a version makes of the configuration. */
export interface VersionReport {
  /** None if it accepts the configuration. */
  readonly issues: readonly string[];
  /** How many there are of each: "guard_bypassed services.s.routes.r". */
  readonly warnings: Readonly<Record<string, number>>;
  /** What was found, by the names of tests. */
  readonly tests: Readonly<Record<string, string>>;
  /** The configuration with its defaults, secrets masked. */
  readonly defaults: unknown;
  /** What the version does not say. */
  readonly silent: readonly string[];
}

/**
 * The interface for programs (`createGateway`), or, in a package of `build`, that of the commands (`openCandidate`).
 * Versions differ in it, so that nothing of it can be typed.
 */
type Version = any;

const UNKNOWN = "it has no createGateway with explain, as versions since 0.2.0 have";
const NOTHING_DIALLED = "nothing is dialled here";

Socket.prototype.connect = function refuse(this: Socket) {
  return this.destroy(new Error(NOTHING_DIALLED));
};

/** The report, then an answer to each of the questions. */
export async function answerFor(version: Version, file: string): Promise<void> {
  const open = version.createGateway !== undefined ? created : version.openCandidate !== undefined ? opened : null;
  if (open === null) throw new Error(UNKNOWN);
  let gateway: Version;
  try {
    gateway = await open(version, file);
  } catch (error) {
    // A `ConfigError`, or the error of a plugin that cannot be created.
    return say({ issues: [(error as Error).message], warnings: {}, tests: {}, defaults: null, silent: [] });
  }
  if (gateway.explain === undefined) throw new Error(UNKNOWN);
  const probe = await gateway.explain({ method: "GET", url: "/" }, "masked");
  const run = await gateway.test?.();
  // Each came with a version of its own.
  const said = {
    "results of tests": run !== undefined,
    "verdicts of plugins": "candidates" in probe,
    "headers to the upstream": "upstreamHeaders" in probe,
  };
  const warnings: Record<string, number> = {};
  for (const { code, path, service, route } of gateway.status?.warnings ?? []) {
    const place = `${code} ${path ?? [service, route].filter(Boolean).join(" / ")}`;
    warnings[place] = (warnings[place] ?? 0) + 1;
  }
  say({
    issues: [],
    warnings,
    tests: Object.fromEntries(
      (run?.tests ?? []).map(({ name, passed, found, differences }: any) => [
        name,
        JSON.stringify({ passed, found, differences }),
      ]),
    ),
    defaults: gateway.maskedConfig,
    silent: Object.entries(said).flatMap(([what, isSaid]) => (isSaid ? [] : [what])),
  });
  let questions = "";
  for await (const piece of process.stdin.setEncoding("utf8")) questions += piece;
  for (const question of JSON.parse(questions) as Question[]) say(await answered(gateway, question));
}

async function created({ createGateway, loadPluginModules }: Version, configFile: string): Promise<Version> {
  const modules = await loadPluginModules(configFile);
  return createGateway({ configFile, modules, lookup: () => Promise.reject(new Error(NOTHING_DIALLED)) });
}

async function opened({ openCandidate }: Version, file: string): Promise<Version> {
  const candidate = await openCandidate(file);
  const { configuration } = candidate;
  return {
    explain: (question: Question) => candidate.explain(question),
    test: async () => (await configuration.features.onDemand.tests()).testInForce(configuration),
  };
}

async function answered(gateway: Version, question: Question): Promise<VersionAnswer> {
  try {
    const { outcome, status, code, service, route, forwarded, plugins, upstreamHeaders } = await gateway.explain(
      question,
      "masked",
    );
    const said = plugins.map(({ name, level, id, action, status, code }: any) => {
      const verdict =
        action === undefined ? null : action === "answers" ? [action, status, code].filter(Boolean).join(" ") : action;
      return [`${name}${id === null ? "" : ` (${id})`} of the ${level}`, verdict];
    });
    const refused = outcome === "refused" ? [status, code].filter(Boolean).join(" ") : null;
    return {
      route: route === null ? null : `${service} / ${route}`,
      refused,
      forwarded,
      plugins: said,
      headers: upstreamHeaders ? byName(upstreamHeaders) : null,
    };
  } catch (error) {
    return { route: null, refused: `fails: ${(error as Error).message}`, forwarded: null, plugins: [], headers: null };
  }
}

/** A token that is signed anew each time is equal to any other. */
function byName(list: readonly string[]): Record<string, string> {
  const values: Record<string, string> = {};
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!.toLowerCase();
    const value = list[i + 1]!.replace(/eyJ[\w-]+\.[\w-]+\.[\w-]+/, "(token)");
    values[name] = Object.hasOwn(values, name) ? `${values[name]}, ${value}` : value;
  }
  return values;
}

/** In one line: readline of Node 24 ends one at U+2028, too. Not to standard output, to which the version may write. */
function say(value: VersionReport | VersionAnswer): void {
  let rest = Buffer.from(`${JSON.stringify(value).replace(/[\u2028\u2029]/g, " ")}\n`);
  while (rest.length > 0) rest = rest.subarray(writeSync(3, rest));
}
