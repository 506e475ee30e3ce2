/**
 * A gateway as one of a fleet, whose configuration is in etcd: keeps its entry there, and lists those of all.
 */
import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { systemClock } from "../base/clock.ts";
import { ignore, messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { StateFolder } from "../base/state_folder.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import { version } from "../base/version.ts";
import type { SourceSettings } from "../config/settings_types.ts";
import { SourceFailure, type SourceText, type TextSource } from "../config/text_source.ts";
import { digestSteps } from "../config/value_text.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { linesOf } from "../gateway/refusal.ts";
import type { LastReload } from "../gateway/status.ts";
import { EtcdClient } from "../source/etcd_client.ts";
import { etcdOptions } from "../source/etcd_options.ts";
import { fleetEntries, type Fleet, type FleetEntry, type ListedEntry } from "../source/fleet_entries.ts";
import { OwnEntry } from "../source/own_entry.ts";

/** A gateway that has started. */
interface Member {
  readonly gateway: GatewayCore;
  /** Its URLs: "http://0.0.0.0:8008", … */
  readonly http: readonly string[];
  readonly https: readonly string[];
  /** Where its id is kept; null: it is another one after each start. */
  readonly stateFolder: StateFolder | null;
}

/** Who a gateway is in its fleet. */
export interface Identity {
  /** Of its entry; null: it has none, as it writes nothing to etcd. */
  readonly id: string | null;
  /** "web-1:8008" */
  readonly name: string;
}

type Texts = Pick<TextSource, "current">;
type Refused = NonNullable<FleetEntry["refused"]>;

export class FleetMember implements Fleet {
  readonly name: string;
  ownId: string | null = null;
  /** Resolves once the gateway has joined. */
  readonly identity: Promise<Identity>;
  #identify: (identity: Identity) => void = ignore;
  readonly #settings: SourceSettings;
  readonly #log: Log;
  readonly #client: EtcdClient;
  #entry: OwnEntry | null = null;
  #hasLeft = false;
  /** The list that is on its way, or is a second old at most. `at`: infinite while it is on its way. */
  #listed: { readonly at: number; readonly entries: Promise<ListedEntry[]> } | null = null;
  #since = { digest: "", at: "" };
  /** See `FleetEntry`. */
  #acme: number | null = null;
  /** What was made of the last refusal. */
  #refused: { readonly of: LastReload; readonly shown: Refused } | null = null;

  constructor(settings: SourceSettings, log: Log) {
    this.name = settings.url.name;
    this.#settings = settings;
    this.#log = log;
    this.#client = this.openClient();
    this.identity = new Promise((resolve) => (this.#identify = resolve));
  }

  /** Of the cluster that the configuration is in. */
  openClient(): EtcdClient {
    return new EtcdClient(etcdOptions(this.#settings, systemClock));
  }

  /** Of the configuration in etcd. */
  get key(): string {
    return this.#settings.url.path;
  }

  /** Keeps the entry from now on, unless nothing may be written to etcd. `texts`: of the configuration. */
  async join(member: Member, texts: Texts): Promise<void> {
    const name = nameOf(member);
    if (this.#settings.isReadOnly) return this.#identify({ id: null, name });
    let id = await this.#idIn(member.stateFolder);
    if (member.stateFolder !== null && (await this.#isOfAnother(id, name))) {
      this.#log.warn("another gateway of the fleet has the id of this one, which takes a new one", { id, name });
      id = await this.#idIn(member.stateFolder, "new");
    }
    if (this.#hasLeft) return;
    this.ownId = id;
    this.#identify({ id, name });
    this.#entry = new OwnEntry({
      client: this.openClient(),
      key: this.key,
      id,
      clock: systemClock,
      log: this.#log,
      entry: () => this.#entryOf(member, texts),
    });
  }

  /** Up to which revision this gateway serves what the fleet shares of `global.acme`; null: it shares nothing. */
  serveAcme(revision: number | null): void {
    this.#acme = revision;
    this.#entry?.look();
  }

  list(): Promise<ListedEntry[]> {
    if (this.#listed === null || systemClock.now() - this.#listed.at > LIST_MS) {
      const entries = fleetEntries(this.#client, this.key);
      const listed = { at: Infinity, entries };
      this.#listed = listed;
      const end = () => void (listed.at = systemClock.now());
      entries.then(end, end);
    }
    return this.#listed.entries;
  }

  /** Takes the entry back, within a second. Never rejects. */
  async leave(): Promise<void> {
    this.#hasLeft = true;
    await this.#entry?.close();
    this.#client.close();
  }

  async #entryOf(member: Member, texts: Texts): Promise<FleetEntry> {
    const { gateway } = member;
    const { digest } = gateway;
    const { configuration, reloads } = GatewayCore.internalsOf(gateway);
    if (this.#since.digest !== digest) this.#since = { digest, at: new Date(configuration.loadedAt).toISOString() };
    const { lastReload } = configuration;
    // While a reload runs, the text that the source has may be another one than that which was refused.
    if (lastReload?.outcome !== "refused") this.#refused = null;
    else if (this.#refused?.of !== lastReload && !reloads.isBusy)
      this.#refused = { of: lastReload, shown: await refusedOf(lastReload, texts) };
    return {
      name: nameOf(member),
      host: hostname(),
      version,
      digest,
      since: this.#since.at,
      ready: gateway.ready,
      ...(this.#acme !== null && { acme: this.#acme }),
      ...(this.#refused !== null && { refused: this.#refused.shown }),
    };
  }

  /** A copy of a STATE_DIR has the id of the gateway that it is from. False where the entries may not be read. */
  async #isOfAnother(id: string, name: string): Promise<boolean> {
    const entries = await this.list().catch(() => []);
    return entries.some((each) => each.id === id && each.entry !== null && each.entry.name !== name);
  }

  async #idIn(folder: StateFolder | null, which: "kept" | "new" = "kept"): Promise<string> {
    const fresh = randomBytes(8).toString("hex");
    if (folder === null) return fresh;
    try {
      const kept = folder.read(ID_FILE)?.toString().trim() ?? "";
      if (which === "kept" && /^[0-9a-f]{16}$/.test(kept)) return kept;
      await folder.write(ID_FILE, [Buffer.from(`${fresh}\n`)]);
    } catch (error) {
      folder.failures++;
      this.#log.error("the id of this gateway in its fleet cannot be kept: it is another one after a restart", {
        folder: folder.path,
        error: messageOf(error),
      });
    }
    return fresh;
  }
}

function nameOf({ http, https }: Member): string {
  const [, port] = /:(\d+)$/.exec(http[0] ?? https[0] ?? "") ?? [];
  return port === undefined ? hostname() : `${hostname()}:${port}`;
}

async function refusedOf(
  { at, ...refusal }: Extract<LastReload, { readonly outcome: "refused" }>,
  texts: Texts,
): Promise<Refused> {
  const text = await inSlices(textIn(texts), paced());
  const digest = text === null ? null : await inSlices(digestSteps(text, 0, text.length), paced());
  const reason = linesOf(refusal).join("; ");
  return {
    digest: digest?.slice(0, 12) ?? null,
    at: new Date(at).toISOString(),
    reason: reason.length > MAX_REASON ? `${reason.slice(0, MAX_REASON)}…` : reason,
  };
}

/** Null: there is none. */
function* textIn(texts: Texts): Generator<void, Buffer | null> {
  try {
    const { text }: SourceText = yield* texts.current();
    return text;
  } catch (error) {
    if (error instanceof SourceFailure) return null;
    throw error;
  }
}

const ID_FILE = "fleet_id";
const LIST_MS = 1_000;
const MAX_REASON = 500;
