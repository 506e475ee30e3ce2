/**
 * The endpoints that change something, with ADMIN_WRITE.
 */
import { Fault, messageOf } from "../base/errors.ts";
import { createTaskQueue } from "../base/task_queue.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import { withoutDigests } from "../config/masked.ts";
import { MASK } from "../config/schema_core.ts";
import type { Settings } from "../config/settings_types.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import type { Prepared } from "../gateway/configuration.ts";
import { ConfigError, GatewayCore } from "../gateway/gateway.ts";
import { loadCode } from "../gateway/loaded_features.ts";
import { whyRefused } from "../gateway/refusal.ts";
import { headerValues, type HeaderList } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";
import type { Endpoint, OnRequest, Who } from "./endpoints.ts";
import { logChange } from "./change_log.ts";
import { ConfigHistory, historyBeside, historyIn, type HistoryEntry } from "./history.ts";
import { readConfiguration, readJsonBody } from "./json_body.ts";
import { maskIn, maskSteps } from "./masked_text.ts";
import { validateRequest } from "./reload_request.ts";
import { json, jsonReply, queryOf, retryAfter } from "./replies.ts";
import { SourceFile, type FileState } from "./source_file.ts";
import type { InterfaceOptions } from "./views.ts";

export interface WritingOptions extends Pick<
  InterfaceOptions,
  "reload" | "refresh" | "log" | "audit" | "clock" | "redactSecrets"
> {
  readonly gateway: ReportedGateway;
  readonly onRequest: Pick<OnRequest, "upstream" | "rollover">;
  /** `configKeyPath`: null: the configuration needs no signature. */
  readonly settings: Pick<Settings, "configPath" | "configKeyPath" | "source" | "stateDir">;
}

const UPSTREAM = /^\/gateway\/upstreams\/[^/]+\/[^/]+$/;
/** One writes at a time, with up to 16 MiB each. */
const MAX_WAITING = 4;
/** Texts that are being received: slow ones take no place from those that wait, and 256 MiB of memory at most. */
const MAX_ARRIVING = 16;
const MAX_ROLLBACK_BYTES = 1024;
const KEY_DIGEST = /("key_sha256"\s*:\s*)"(?:[^"\\]|\\.)*"/g;

interface Change {
  readonly action: "source" | "rollback";
  readonly text: Buffer;
  /** Digests, one of which the file must have; null: any. */
  readonly expected: readonly string[] | null;
}

export class Writing {
  readonly #options: WritingOptions;
  readonly #file: SourceFile;
  readonly #arriving = createTaskQueue(MAX_ARRIVING, 0);
  readonly #queue = createTaskQueue(1, MAX_WAITING);
  /** Resolves when all configurations so far are in the history. */
  #remembered = Promise.resolve();
  /** Null: the configuration is not in a file. */
  #history: ConfigHistory | null = null;
  readonly #table: Readonly<Record<string, readonly Endpoint[]>> = {
    "/gateway/validate": [
      { method: "POST", answer: (inbound) => validateRequest(inbound, this.#options, (text) => this.#maskError(text)) },
    ],
    "/gateway/source": [
      { method: "GET", answer: (inbound, who) => this.#source(inbound, who) },
      { method: "PUT", answer: (inbound, who) => this.#put(inbound, who) },
    ],
    "/gateway/history": [{ method: "GET", answer: (inbound, who) => this.#showHistory(inbound, who) }],
    "/gateway/acme/rollover": [
      {
        method: "POST",
        answer: async (inbound, who) =>
          (await loadCode(this.#options.onRequest.rollover)).rolloverRequest(inbound, who, this.#options),
      },
    ],
    "/gateway/rollback": [{ method: "POST", answer: (inbound, who) => this.#rollBack(inbound, who) }],
  };
  readonly #upstream: readonly Endpoint[] = [
    {
      method: "POST",
      isFor: "operators",
      answer: async (inbound, who) =>
        (await loadCode(this.#options.onRequest.upstream)).upstreamRequest(inbound, who, this.#options),
    },
  ];

  constructor(options: WritingOptions) {
    this.#options = options;
    this.#file = new SourceFile(options.settings.configPath);
  }

  /** From now on each configuration that comes into force is in the history, beginning with the present one. */
  followGateway(): void {
    const configuration = this.#configuration;
    const { configFile } = configuration.options;
    const { source, stateDir } = this.#options.settings;
    if (configFile === undefined || (source !== null && stateDir === null)) return;
    if (source === null)
      this.#file
        .removeUnfinished()
        .catch((error: unknown) =>
          this.#options.log.debug("unfinished files beside the configuration stay", { error: messageOf(error) }),
        );
    const folder = source === null ? historyBeside(configFile) : historyIn(stateDir!);
    this.#history = new ConfigHistory(folder, this.#options.log);
    const { inForce, loadedAt: at } = configuration;
    this.#remember(inForce, { at, by: { cause: "start" }, changes: [] });
    configuration.onApplied = ({ inForce: next, at: readAt, askers: [asked], changes }) => {
      const { by: cause, user, address } = asked;
      const by = user === undefined || address === undefined ? { cause } : { user, address };
      this.#remember(next, { at: readAt, by, changes });
    };
  }

  /** Masks the text beside the traffic, one after the other. */
  #remember({ source, valid }: Prepared, facts: Pick<HistoryEntry, "at" | "by" | "changes">): void {
    if (!("text" in source)) return;
    const masking = async () => {
      const secrets = withoutDigests(valid.secrets);
      const { text, masked } = await inSlices(maskSteps(Buffer.from(source.text), { secrets }), paced());
      this.#history!.add({ digest: valid.digest, ...facts, masked }, text);
    };
    this.#remembered = this.#remembered.then(masking);
  }

  /** Those of a path; none if there is no such path. */
  readonly at = (path: string): readonly Endpoint[] => this.#table[path] ?? (UPSTREAM.test(path) ? this.#upstream : []);

  #isMasked(target: string, { role }: Who): boolean {
    return role !== "admin" || this.#options.redactSecrets || queryOf(target).get("secrets") === "masked";
  }

  async #source({ target }: Inbound, who: Who): Promise<Reply> {
    const isMasked = this.#isMasked(target, who);
    const state = this.#state();
    const { text, digest } = state;
    const body = isMasked ? await this.#masked(text, digest) : text;
    const readOnly = this.#whyReadOnly(state);
    const reason = readOnly === null ? [] : ["Source-Read-Only", encodeURIComponent(readOnly)];
    return jsonReply(body, ["ETag", `"${digest}"`, ...reason]);
  }

  /** Null: the file can be replaced from here. */
  #whyReadOnly(state?: FileState): string | null {
    try {
      const file = this.#checkedFile();
      file.checkWritable(state ?? file.read());
      return null;
    } catch (error) {
      if (error instanceof Fault) return error.message;
      throw error;
    }
  }

  async #masked(text: Buffer, digest: string): Promise<Buffer> {
    const { snapshot } = this.#configuration;
    // Only a configuration that has been checked shows what in it is a secret.
    if (digest !== snapshot.digest)
      throw new Fault(
        "conflict",
        "The file is not the configuration in force: nobody knows yet which of its texts are secrets.",
      );
    return (await inSlices(maskSteps(text, snapshot), paced())).text;
  }

  async #put(inbound: Inbound, who: Who): Promise<Reply> {
    const { call, headers } = inbound;
    const expected = expectedBy(headers);
    if (expected === null)
      return problem(call, "precondition_required", {
        detail:
          'Send If-Match: "DIGEST" with the digest of the text that was changed, the ETag of GET /gateway/source.',
      });
    if (!this.#queue.room || !this.#arriving.room) return tooMany(call);
    const text = await this.#arriving.take(() => readConfiguration(inbound));
    // Others have sent theirs meanwhile.
    if (!this.#queue.room) return tooMany(call);
    return this.#queue.take(() => this.#replace(inbound, who, { action: "source", text, expected }));
  }

  async #showHistory({ target }: Inbound, who: Who): Promise<Reply> {
    const digest = queryOf(target).get("digest");
    await this.#remembered;
    if (digest === null) {
      const readOnly = this.#whyReadOnly();
      return json(200, {
        entries: (await (this.#history?.entries() ?? [])).map((each, _i, all) => this.#entryView(each, all, readOnly)),
      });
    }
    if (this.#history === null) throw new Fault("route_not_found", "There is no history.");
    const { text } = await this.#history.text(digest);
    // An entry has no other secrets; those who see these masked might guess a weak key from its digest.
    const shown = this.#isMasked(target, who) ? String(text).replace(KEY_DIGEST, `$1"${MASK}"`) : text;
    return jsonReply(Buffer.from(shown), ["ETag", `"${digest}"`]);
  }

  #entryView(entry: HistoryEntry, all: readonly HistoryEntry[], readOnly: string | null) {
    const { digest, at, by, changes } = entry;
    const isInForce =
      digest === this.#configuration.snapshot.digest && all.find((each) => each.digest === digest) === entry;
    const reason = readOnly ?? whyNoRollback(entry);
    return {
      digest,
      at: new Date(at).toISOString(),
      by,
      changes,
      in_force: isInForce,
      can_roll_back: reason === null,
      reason,
    };
  }

  async #rollBack(inbound: Inbound, who: Who): Promise<Reply> {
    const { call, headers } = inbound;
    const body = await readJsonBody(inbound, MAX_ROLLBACK_BYTES, "the digest");
    const digest = digestIn(body);
    if (digest === null)
      return problem(call, "request_invalid", {
        detail: 'Send the digest of an entry of the history: {"digest":"0123456789ab"}.',
      });
    if (!this.#queue.room) return tooMany(call);
    return this.#queue.take(async () => {
      await this.#remembered;
      if (this.#history === null) throw new Fault("conflict", "There is no history.");
      const { entry: found, text } = await this.#history.text(digest);
      const reason = whyNoRollback(found);
      if (reason !== null) throw new Fault("conflict", reason);
      return this.#replace(inbound, who, { action: "rollback", text, expected: expectedBy(headers) });
    });
  }

  async #replace({ call, clientAddress }: Inbound, who: Who, { action, text, expected }: Change): Promise<Reply> {
    if (!who.isLive())
      return problem(call, "unauthenticated", { detail: "The session has ended meanwhile. Nothing has been changed." });
    const { reload } = this.#options;
    try {
      const file = this.#checkedFile();
      const before = file.read();
      if (expected !== null && !expected.includes(before.digest)) {
        return problem(call, "precondition_failed", {
          detail: `The file has been changed: its digest is ${before.digest}.`,
          members: { digest: before.digest },
        });
      }
      file.checkWritable(before);
      // What comes back had no secret.
      const masked = action === "source" ? this.#maskError(text, before) : null;
      if (masked !== null) throw masked;
      const user = who.user;
      const address = clientAddress;
      const reloaded = await reload(
        { text, write: (expect) => file.replace(text, before, expect) },
        { user, address, request_id: call.id },
      );
      const { digest } = reloaded;
      await logChange(this.#options, {
        user,
        address,
        action,
        before: before.digest,
        after: digest,
        request_id: call.id,
      });
      return json(
        200,
        {
          digest,
          changed: reloaded.outcome === "taken" && reloaded.changed,
          changes: "changes" in reloaded ? reloaded.changes : [],
        },
        ["ETag", `"${digest}"`],
      );
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      const { digest } = this.#configuration.snapshot;
      return problem(call, "configuration_refused", {
        detail: `Configuration ${digest} stays in force, and the file as it is.`,
        members: { digest, ...whyRefused(error) },
      });
    }
  }

  /** Null: the text has no mask that the file has not. */
  #maskError(text: Buffer, before?: FileState): ConfigError | null {
    if (!text.includes(MASK)) return null;
    const written = text.toString();
    const at = maskIn(written, (before ?? this.#state()).text.toString());
    return at < 0 ? null : refused(written, at);
  }

  get #configuration() {
    return GatewayCore.internalsOf(this.#options.gateway).configuration;
  }

  /** What the file has; of a configuration from a URL what is in force. Throws a `Fault`. */
  #state(): FileState {
    if (this.#options.settings.source === null) return this.#ownFile().read();
    const { inForce, options } = this.#configuration;
    const text = "text" in inForce.source ? Buffer.from(inForce.source.text) : Buffer.alloc(0);
    return { target: options.configFile!, text, digest: inForce.snapshot.digest };
  }

  /** Throws a `Fault` where there is none. */
  #ownFile(): SourceFile {
    if (this.#configuration.options.configFile !== undefined) return this.#file;
    throw new Fault("conflict", "The configuration is not in a file: the program that embeds the gateway gives it.");
  }

  /** Throws a `Fault` also where it cannot be changed from here. */
  #checkedFile(): SourceFile {
    const { configPath, configKeyPath, source } = this.#options.settings;
    if (source !== null)
      throw new Fault(
        "conflict",
        `The configuration is from ${configPath}: change it there; this gateway only reads it.`,
      );
    if (configKeyPath === null) return this.#ownFile();
    throw new Fault(
      "conflict",
      `The configuration has to be signed (CONFIG_PUBLIC_KEY): sign it elsewhere (edge-gateway sign), ` +
        `and replace ${configPath} and ${configPath}.sig.`,
    );
  }
}

/**
 * Digests in If-Match; none that a file could have for "*" and what is no list of ETags. Null: there is no If-Match.
 * Weak ones never match (RFC 9110 §13.1.1).
 */
function expectedBy(headers: HeaderList): readonly string[] | null {
  const lines = headerValues(headers, "if-match");
  if (lines.length === 0) return null;
  return lines.flatMap((line) => line.split(",")).map((tag) => /^[ \t]*"([0-9a-f]{12})"[ \t]*$/.exec(tag)?.[1] ?? "");
}

/** A text with a mask in it was shown to somebody who does not see secrets, and would replace them. */
function refused(text: string, at: number): ConfigError {
  const before = text.slice(0, at).split("\n");
  const position = { line: before.length, column: before.at(-1)!.length + 1 };
  return new ConfigError(
    [{ at: [], message: `has "${MASK}", which masks a secret: write the secret itself, or a reference`, position }],
    undefined,
  );
}

function tooMany(call: Inbound["call"]): Reply {
  return problem(call, "overloaded", { detail: "Too many changes are waiting.", headers: retryAfter(1000) });
}

/** Null: it can come into force again. */
function whyNoRollback({ masked }: HistoryEntry): string | null {
  if (masked === 0) return null;
  return (
    `The history keeps no secrets, and this configuration has ${masked === 1 ? "one" : masked} written in it: ` +
    `write references in their place.`
  );
}

/** Null: the body has none. */
function digestIn(body: Buffer): string | null {
  try {
    const { digest } = JSON.parse(body.toString()) as { readonly digest?: unknown };
    return typeof digest === "string" && /^[0-9a-f]{12}$/.test(digest) ? digest : null;
  } catch {
    return null;
  }
}
