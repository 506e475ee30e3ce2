/**
 * A configuration from a URL: opens its source, waits for the first text while nothing else listens but the probes,
 * uses the copy of an earlier one where there is none, and keeps a copy of what is in force.
 */
import { systemClock } from "../base/clock.ts";
import { ignore, messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { StateFolder } from "../base/state_folder.ts";
import { signedBy } from "../config/signed.ts";
import type { SourceUrl } from "../config/source_url.ts";
import {
  givenText,
  SourceFailure,
  type ReadableSource,
  type SourceText,
  type TextServer,
  type TextSource,
} from "../config/text_source.ts";
import type { Settings, SourceSettings } from "../config/settings_types.ts";
import { readForStart } from "../features/load.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { linesOf, whyRefused } from "../gateway/refusal.ts";
import { Candidate } from "../proof/candidate.ts";
import type { openEtcd } from "../source/etcd_server.ts";
import type { openHttp } from "../source/http_text_server.ts";
import { RemoteSource, type TextCopy } from "../source/remote_source.ts";
import { ConfigurationCopies, readCopy } from "./configuration_copy.ts";
import { Failure } from "./failure.ts";
import type { EarlyProbes, openProbes } from "./probes.ts";
import type { readSeen } from "./state_dir.ts";

/** How the code is loaded that settings name. */
export interface LoadServers {
  readonly httpSource: () => Promise<{ readonly openHttp: typeof openHttp }>;
  readonly etcdSource: () => Promise<{ readonly openEtcd: typeof openEtcd }>;
}

interface Load extends LoadServers {
  readonly probes: () => Promise<{ readonly openProbes: typeof openProbes }>;
  readonly stateDir: () => Promise<{ readonly readSeen: typeof readSeen }>;
}

/** A change is in force within 2 s. */
const MOST_SPREAD_MS = 1_000;

const TO_DO = "make its server answer, or name another one with --config URL or CONFIG_FILE_PATH";

export class RemoteConfig {
  readonly source: RemoteSource;
  /** Null: there is no PROBE_PORT. */
  readonly probes: EarlyProbes | null;
  readonly #settings: Settings;
  readonly #log: Log;
  readonly #load: Load;
  /** Why the text of the source is not in force since the start; null: it is, or there is none. */
  #refusal: unknown = null;

  private constructor(
    { source, probes }: Pick<RemoteConfig, "source" | "probes">,
    settings: Settings,
    log: Log,
    load: Load,
  ) {
    this.#load = load;
    this.source = source;
    this.probes = probes;
    this.#settings = settings;
    this.#log = log;
  }

  /** Nothing is asked yet. Rejects with a `Failure`. */
  static async open(settings: Settings, from: SourceSettings, log: Log, load: Load): Promise<RemoteConfig> {
    const source = await openSource(from, settings.configKeyPath, log, load);
    const probes = settings.probe && (await load.probes()).openProbes(settings.probe, settings.metricsToken, log);
    return new RemoteConfig({ source, probes }, settings, log, load);
  }

  /**
   * Resolves once there is a text to start with: that of the source, or a copy. Rejects with a `Failure` when the port
   * for probes cannot be opened.
   */
  async arrive(): Promise<void> {
    const { source } = this;
    const { stateDir } = this.#settings;
    // The requests of a source may leave no handle that keeps the process.
    const alive = setInterval(ignore, 1_000_000);
    try {
      await this.probes?.listen();
      const { copy, problem } = stateDir === null ? { copy: null, problem: null } : readCopy(stateDir, this.#url);
      if (problem !== null) this.#log.error("there is no copy of the configuration", { problem });
      await source.refresh().catch(ignore);
      const first = nowIn(source);
      if (!(first instanceof SourceFailure)) await this.#tryFirst(first, copy);
      else if (copy === null || !(await this.#useSound(copy, first, first))) await this.#wait(first);
    } finally {
      clearInterval(alive);
    }
  }

  /** A text that is another one than that of the copy is tried out first: whether it can be refused is known then. */
  async #tryFirst(first: SourceText, copy: TextCopy | null): Promise<void> {
    if (copy === null || (copy.text.equals(first.text) && copy.signature === first.signature)) return;
    const refusal = await this.#triedOut(first);
    // Without a sound copy the start is refused, for the reasons of this text.
    if (refusal !== null) await this.#useSound(copy, first, refusal.why);
  }

  /** A copy may be refused by now: it has ended, or its key is another one. Whether it is used. */
  async #useSound(copy: TextCopy, first: SourceText | SourceFailure, why: unknown): Promise<boolean> {
    const refusal = await this.#triedOut(copy);
    if (refusal === null) this.#useCopy(copy, first, why);
    else
      this.#log.error("the copy of an earlier configuration is refused, and is not used", {
        source: this.source.name,
        kept_at: new Date(copy.keptAt).toISOString(),
        why: linesOf(whyRefused(refusal.why)),
      });
    return refusal === null;
  }

  /** Null: it could come into force. */
  async #triedOut(text: SourceText): Promise<{ readonly why: unknown } | null> {
    const { configPath, configKeyPath, stateDir, tests, serverCertPath, httpPort } = this.#settings;
    const textSource = givenText(this.source.name, text);
    const { readSeen } = await this.#load.stateDir();
    const signed = configKeyPath === null ? {} : { configKeyFile: configKeyPath };
    try {
      const from = { configFile: configPath, textSource, ...signed };
      const { modules } = await readForStart(from);
      const candidate = new Candidate({
        ...from,
        seen: { read: () => readSeen(stateDir!), write: ignore },
        modules,
        tests,
        https: serverCertPath !== null,
        acme: { stateDir: true, plainPort: httpPort !== null },
      });
      await candidate.configuration.testFirst("lenient").finally(() => candidate.close());
      return null;
    } catch (why) {
      return { why };
    }
  }

  #useCopy(copy: TextCopy, refused: SourceText | SourceFailure, why: unknown): void {
    this.source.useCopy(copy, refused);
    this.#refusal = why;
    const refusal = whyRefused(why);
    this.#log.error("the copy of an earlier configuration comes into force in place of that of the source", {
      source: this.source.name,
      kept_at: new Date(copy.keptAt).toISOString(),
      why: linesOf(refusal),
    });
  }

  async #wait(first: SourceFailure): Promise<void> {
    const { source } = this;
    const say = (why: SourceFailure) =>
      this.#log.warn("the gateway waits for its configuration, and opens no port for traffic", {
        source: source.name,
        why: why.message,
        to_do: TO_DO,
      });
    // It may have answered while the copy was tried out.
    if (!(nowIn(source) instanceof SourceFailure)) return;
    say(first);
    await new Promise<void>((done) => {
      const stop = source.onChange(() => {
        const now = nowIn(source);
        if (now instanceof SourceFailure) return say(now);
        stop();
        done();
      });
    });
  }

  /** Of the configuration in force, from the start on. */
  follow({ gateway, stateFolder }: Running): void {
    const { configuration } = GatewayCore.internalsOf(gateway);
    const copies = stateFolder && new ConfigurationCopies(stateFolder, this.#url, this.#log);
    const keep = () => {
      const { source } = configuration.inForce;
      const text = "text" in source ? this.source.taken(source.text) : null;
      if (text !== null) void copies?.keep(text, systemClock.wall());
    };
    const { onReplaced } = configuration;
    configuration.onReplaced = (before, next) => {
      onReplaced(before, next);
      keep();
    };
    keep();
    if (this.#refusal === null) return;
    if (this.#refusal instanceof SourceFailure && this.#refusal.kind === "unreachable") return;
    const { digest } = configuration.snapshot;
    configuration.lastReload = {
      at: systemClock.wall(),
      by: "source",
      digest,
      outcome: "refused",
      ...whyRefused(this.#refusal),
    };
    this.#refusal = null;
  }

  get #url(): SourceUrl {
    return this.#settings.source!.url;
  }
}

interface Running {
  readonly gateway: GatewayCore;
  /** Null: there is no STATE_DIR. */
  readonly stateFolder: StateFolder | null;
}

/** Nothing is asked yet. */
async function openSource(
  settings: SourceSettings,
  keyPath: string | null,
  log: Log,
  load: LoadServers,
): Promise<RemoteSource> {
  const { url, tokenPath, user } = settings;
  const secret = tokenPath !== null ? "CONFIG_TOKEN_FILE" : user !== null ? "ETCD_USER" : null;
  const isPlain = !url.isLocal && (url.scheme === "http" || url.scheme === "etcd");
  const server = await openServer(settings, log, load);
  const check = keyPath === null ? null : signedBy(keyPath);
  return new RemoteSource(server, {
    clock: systemClock,
    log,
    plainSecret: isPlain ? secret : null,
    spreadMs: Math.random() * MOST_SPREAD_MS,
    ...(check && { isPair: (read) => check(server.name, read).problem === undefined }),
  });
}

async function openServer(settings: SourceSettings, log: Log, load: LoadServers): Promise<TextServer> {
  try {
    return settings.url.scheme.startsWith("etcd")
      ? (await load.etcdSource()).openEtcd(settings, log, systemClock)
      : (await load.httpSource()).openHttp(settings, systemClock);
  } catch (error) {
    throw new Failure(messageOf(error), 2);
  }
}

function nowIn(source: TextSource): SourceText | SourceFailure {
  try {
    const { done, value } = source.current().next();
    if (done !== true) throw new Error("a text that was received takes no time");
    return value;
  } catch (error) {
    if (error instanceof SourceFailure) return error;
    throw error;
  }
}

/** For a command: asks once. Rejects with a `Failure`. Its caller closes it. */
export async function receivedOnce(
  settings: SourceSettings,
  keyPath: string | null,
  log: Log,
  load: LoadServers,
): Promise<ReadableSource & Pick<RemoteSource, "close">> {
  const source = await openSource(settings, keyPath, log, load);
  try {
    await source.refresh();
  } catch (error) {
    throw new Failure(`${source.name}: ${messageOf(error)}`, 1);
  } finally {
    source.close();
  }
  return source;
}
