/**
 * Runs in the process of one version: opens the configuration with it and answers questions from standard input. It is imported before the
 * version, so that the version finds no way to dial.
 */
import { writeSync } from "node:fs";
import { Socket } from "node:net";
import { createInterface } from "node:readline";

/** A request that is only explained. */
export interface AskedRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly clientIp?: string;
}

/** What a version does with one request. */
export interface VersionAnswer {
  /** "shop / items"; null: no route takes it. */
  readonly route: string | null;
  /** Why it is refused before any plugin: "404 not_found"; null: it is not. */
  readonly refused: string | null;
  readonly forwarded: string | null;
  /** In the order in which they run. `verdict`: "passes", "answers 401 key_missing"; null: the version does not say. */
  readonly plugins: readonly (readonly [name: string, verdict: string | null])[];
  /** Null: a plugin answers, or the version does not say. */
  readonly headers: readonly string[] | null;
}

/** What a version makes of the configuration. */
export interface VersionReport {
  /** None if it accepts the configuration. */
  readonly issues: readonly string[];
  /** "guard_bypassed services.s.routes.r" */
  readonly warnings: readonly string[];
  /** What was found, by the names of tests. */
  readonly tests: Readonly<Record<string, string>>;
  /** With its defaults, secrets masked. */
  readonly config: unknown;
  /** What the version does not say. */
  readonly silent: readonly string[];
}

/**
 * The interface for programs (`createGateway`), or, in a package of `build`, that of the commands (`openCandidate`). Versions differ in it, so that
 * nothing of it can be typed.
 */
type Version = any;

const UNKNOWN = "it has no createGateway with explain, as versions since 0.2.0 have";
const NOTHING_DIALLED = "nothing is dialled here";

Socket.prototype.connect = function refuse(this: Socket) {
  return this.destroy(new Error(NOTHING_DIALLED));
};

/** Ends with standard input. */
export async function answerFor(version: Version, file: string): Promise<void> {
  const open = version.createGateway !== undefined ? created : version.openCandidate !== undefined ? opened : null;
  if (open === null) throw new Error(UNKNOWN);
  let gateway: Version;
  try {
    gateway = await open(version, file);
  } catch (error) {
    // A `ConfigError`, or the error of a plugin that cannot be created.
    return say({ issues: [(error as Error).message], warnings: [], tests: {}, config: null, silent: [] });
  }
  if (gateway.explain === undefined) throw new Error(UNKNOWN);
  const probe = await gateway.explain({ method: "GET", url: "/" }, "masked");
  const run = await gateway.test?.();
  say({
    issues: [],
    warnings: (gateway.status?.warnings ?? []).map(({ code, path, service, route }: any) => [code, path ?? [service, route].filter(Boolean).join(" / ")].join(" ")),
    tests: Object.fromEntries((run?.tests ?? []).map(({ name, passed, found, differences }: any) => [name, JSON.stringify({ passed, found, differences })])),
    config: gateway.maskedConfig,
    // Both came with one version each.
    silent: [...(run === undefined ? ["results of tests"] : []), ...("candidates" in probe ? [] : ["verdicts of plugins"]), ...("upstreamHeaders" in probe ? [] : ["headers to the upstream"])],
  });
  for await (const line of createInterface({ input: process.stdin })) {
    const answers: VersionAnswer[] = [];
    for (const question of JSON.parse(line) as AskedRequest[]) answers.push(await answered(gateway, question));
    say(answers);
  }
}

async function created({ createGateway, loadPluginModules }: Version, configFile: string): Promise<Version> {
  const modules = await loadPluginModules(configFile);
  return createGateway({ configFile, modules, lookup: () => Promise.reject(new Error(NOTHING_DIALLED)) });
}

async function opened({ openCandidate }: Version, file: string): Promise<Version> {
  const candidate = await openCandidate(file);
  const { configuration } = candidate;
  return { explain: (question: AskedRequest) => candidate.explain(question), test: async () => (await configuration.parts.onDemand.tests()).testInForce(configuration) };
}

async function answered(gateway: Version, question: AskedRequest): Promise<VersionAnswer> {
  try {
    const { outcome, status, code, service, route, forwarded, plugins, upstreamHeaders: headers = null } = await gateway.explain(question, "masked");
    const said = plugins.map(({ name, level, id, action, status, code }: any) => {
      const verdict = action === undefined ? null : action === "answers" ? [action, status, code].filter(Boolean).join(" ") : action;
      return [`${name}${id === null ? "" : ` (${id})`} of the ${level}`, verdict];
    });
    return { route: route === null ? null : `${service} / ${route}`, refused: outcome === "refused" ? [status, code].filter(Boolean).join(" ") : null, forwarded, plugins: said, headers };
  } catch (error) {
    return { route: null, refused: `fails: ${(error as Error).message}`, forwarded: null, plugins: [], headers: null };
  }
}

/** Not to standard output, to which the version may write. */
function say(value: VersionReport | readonly VersionAnswer[]): void {
  let rest = Buffer.from(`${JSON.stringify(value)}\n`);
  while (rest.length > 0) rest = rest.subarray(writeSync(3, rest));
}
