/**
 * The endpoints that change something, with ADMIN_WRITE.
 */
import { Fault } from "../base/errors.ts";
import { createTaskQueue } from "../base/task_queue.ts";
import { MASK } from "../config/schema_core.ts";
import type { Settings } from "../config/settings.ts";
import type { Gateway } from "../embed/gateway.ts";
import { ConfigError, GatewayCore } from "../gateway/gateway.ts";
import { whyRefused } from "../gateway/refusal.ts";
import { headerValues, type HeaderList } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";
import type { Endpoint, Who } from "./endpoints.ts";
import { readJsonBody } from "./json_body.ts";
import { maskedText } from "./masked_text.ts";
import { MAX_POSTED_BYTES, validateRequest } from "./reload_request.ts";
import { json, queryOf, retryAfter } from "./replies.ts";
import { SourceFile } from "./source_file.ts";
import type { InterfaceOptions } from "./views.ts";

export interface WritingOptions extends Pick<InterfaceOptions, "reload" | "log" | "redactSecrets"> {
  readonly gateway: Gateway;
  /** `configKeyPath`: null: the configuration needs no signature. */
  readonly settings: Pick<Settings, "configPath" | "configKeyPath">;
}

/** One writes at a time, with up to 16 MiB each. */
const MAX_WAITING = 4;

export class Writing {
  readonly #options: WritingOptions;
  readonly #file: SourceFile;
  readonly #queue = createTaskQueue(1, MAX_WAITING);
  readonly #table: Readonly<Record<string, readonly Endpoint[]>> = {
    "/gateway/validate": [{ method: "POST", answer: (inbound) => validateRequest(inbound, this.#options) }],
    "/gateway/source": [
      { method: "GET", answer: (inbound, who) => this.#source(inbound, who) },
      { method: "PUT", answer: (inbound, who) => this.#put(inbound, who) },
    ],
  };

  constructor(options: WritingOptions) {
    this.#options = options;
    this.#file = new SourceFile(options.settings.configPath);
  }

  /** Those of a path; none if there is no such path. */
  readonly at = (path: string): readonly Endpoint[] => this.#table[path] ?? [];

  #source({ call, target }: Inbound, { role }: Who): Reply {
    const { redactSecrets } = this.#options;
    const isMasked = role === "viewer" || redactSecrets || queryOf(target).get("secrets") === "masked";
    return orProblem(call, () => {
      const { text, digest } = this.#checkedFile().read();
      const body = isMasked ? this.#masked(text, digest) : text;
      return { status: 200, headers: ["Content-Type", "application/json", "Content-Length", String(body.length), "ETag", `"${digest}"`], body };
    });
  }

  #masked(text: Buffer, digest: string): Buffer {
    const { snapshot } = this.#configuration;
    // Only a configuration that has been checked shows what in it is a secret.
    if (digest !== snapshot.digest) throw new Fault("conflict", "The file is not the configuration in force: nobody knows yet which of its texts are secrets.");
    return maskedText(text, snapshot).text;
  }

  async #put(inbound: Inbound, who: Who): Promise<Reply> {
    const { call, headers } = inbound;
    const expected = expectedBy(headers);
    if (expected === null) return problem(call, "precondition_required", { detail: 'Send If-Match: "DIGEST" with the digest of the text that was changed, the ETag of GET /gateway/source.' });
    if (!this.#queue.room) return problem(call, "overloaded", { detail: "Too many changes are waiting.", headers: retryAfter(1000) });
    const text = await readJsonBody(inbound, MAX_POSTED_BYTES, "the configuration");
    if ("code" in text) return problem(call, text.code, { detail: text.detail });
    return this.#queue.take(() => this.#replace(inbound, who, text, expected));
  }

  /** `expected`: digests, one of which the file must have. */
  async #replace({ call, clientAddress }: Inbound, who: Who, text: Buffer, expected: readonly string[]): Promise<Reply> {
    if (!who.isLive()) return problem(call, "unauthenticated", { detail: "The session has ended meanwhile. Nothing has been changed." });
    const { reload, log } = this.#options;
    try {
      const file = this.#checkedFile();
      const before = file.read();
      if (!expected.includes(before.digest)) {
        return problem(call, "precondition_failed", { detail: `The file has been changed: its digest is ${before.digest}.`, members: { digest: before.digest } });
      }
      file.checkWritable(before);
      const masked = text.indexOf(`"${MASK}"`);
      if (masked >= 0) throw refused(text, masked);
      const { digest: inForce } = this.#configuration.snapshot;
      const reloaded = await reload({ text, write: (expect) => file.replace(text, before, expect) });
      const { digest } = reloaded;
      log.info("admin change", { user: who.user, address: clientAddress, action: "source", before: before.digest, after: digest, request_id: call.id });
      return json(200, { digest, changed: digest !== inForce, changes: "changes" in reloaded ? reloaded.changes : [] }, ["ETag", `"${digest}"`]);
    } catch (error) {
      if (error instanceof Fault) return problem(call, error.code, { detail: error.message });
      if (!(error instanceof ConfigError)) throw error;
      const { digest } = this.#configuration.snapshot;
      return problem(call, "configuration_refused", { detail: `Configuration ${digest} stays in force, and the file as it is.`, members: { digest, ...whyRefused(error) } });
    }
  }

  get #configuration() {
    return GatewayCore.partsOf(this.#options.gateway).configuration;
  }

  /** Throws a `Fault` where there is none that could be changed from here. */
  #checkedFile(): SourceFile {
    const { configPath, configKeyPath } = this.#options.settings;
    if (this.#configuration.options.configFile === undefined) throw new Fault("conflict", "The configuration is not in a file: the program that embeds the gateway gives it.");
    if (configKeyPath === null) return this.#file;
    throw new Fault("conflict", `The configuration has to be signed (CONFIG_PUBLIC_KEY): sign it elsewhere (edge-gateway sign), and replace ${configPath} and ${configPath}.sig.`);
  }
}

/** Digests in If-Match; none that a file could have for "*" and what is no list of ETags. Null: there is no If-Match. Weak ones never match (RFC 9110 §13.1.1). */
function expectedBy(headers: HeaderList): readonly string[] | null {
  const lines = headerValues(headers, "if-match");
  if (lines.length === 0) return null;
  return lines.flatMap((line) => line.split(",")).map((tag) => /^[ \t]*"([0-9a-f]{12})"[ \t]*$/.exec(tag)?.[1] ?? "");
}

/** A text with a mask in it was shown to somebody who does not see secrets, and would replace them. */
function refused(text: Buffer, at: number): ConfigError {
  const before = text.toString("utf8", 0, at).split("\n");
  const position = { line: before.length, column: before.at(-1)!.length + 1 };
  return new ConfigError([{ at: [], message: `is "${MASK}", which masks a secret: write the secret itself, or a reference`, position }], undefined);
}

function orProblem(call: Inbound["call"], answer: () => Reply): Reply {
  try {
    return answer();
  } catch (error) {
    if (error instanceof Fault) return problem(call, error.code, { detail: error.message });
    throw error;
  }
}
