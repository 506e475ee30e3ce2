/**
 * The plugin kind `mcp`: a guard in front of servers of the Model Context Protocol (Streamable HTTP). It reads each
 * message, refuses what the caller may not use, and takes it out of lists.
 */
import { Fault } from "../../base/errors.ts";
import { array, integer, object, oneOf, optional, record, withDefault } from "../../config/whole_schema.ts";
import type { Exchange } from "../../http/exchange.ts";
import type { Handler } from "../../http/handler.ts";
import { dashed, headerValues, type HeaderList } from "../../http/headers.ts";
import { readBody } from "../../http/whole_body.ts";
import type { Reply } from "../../http/reply.ts";
import type { Plugin, Tools } from "../plugin.ts";
import { protectedResource, RESOURCE_METADATA } from "../resource_metadata.ts";
import { filteredReply, initializedReply, repliedSession, unlistedReply } from "./replies.ts";
import { readMessage, type Message } from "./message.ts";
import { stringOf } from "./members.ts";
import { headerMismatch, METHOD_HEADER, NAME_HEADER, REVISION_HEADER, soleValue } from "./mirrored_headers.ts";
import { METHOD_PATTERN, NAME_PATTERN, URI_PATTERN } from "./patterns.ts";
import { Permissions } from "./permissions.ts";
import {
  HEADER_MISMATCH,
  INVALID_PARAMS,
  INVALID_REQUEST,
  METHOD_NOT_FOUND,
  refusedMessage,
  UNSUPPORTED_REVISION,
  UNASKED,
  type McpRefusal,
} from "./refusal.ts";
import {
  ASSUMED,
  INITIALIZE,
  isRevision,
  LIST_METHODS,
  META_CAPABILITIES,
  META_REVISION,
  REVISIONS,
  STATELESS,
  type Revision,
} from "./revisions.ts";
import { SessionKeys } from "./session_keys.ts";
import { ownerOf, sessionIn, type McpSession } from "./sessions.ts";
import { mcpTargets, type McpTarget, type TargetKind } from "./targets.ts";

const patterns = (what: string, pattern = NAME_PATTERN) =>
  optional(array(pattern, { describe: `${what} that callers may use, "*" for any characters; default: all.` }));

const schema = object(
  {
    tools: patterns("Tools"),
    tools_by_group: optional(
      record(array(NAME_PATTERN), { describe: "Further tools, for callers of a group: by group, names as in tools." }),
    ),
    resources: patterns("URIs of resources", URI_PATTERN),
    prompts: patterns("Prompts"),
    methods: optional(
      array(METHOD_PATTERN, { describe: 'Methods of MCP, "*" for any characters; default: those of the revision.' }),
    ),
    max_body_bytes: withDefault(
      integer({ min: 1, max: 67_108_864, describe: "Maximum length of a message, in bytes." }),
      1_048_576,
    ),
    revisions: withDefault(array(oneOf(REVISIONS), { min: 1, describe: "Revisions of MCP that clients may speak." }), [
      ...REVISIONS,
    ]),
    resource_metadata: optional(RESOURCE_METADATA),
  },
  {
    describe: "Admits requests to an MCP server by their method, tool, resource or prompt.",
    refine({ tools, toolsByGroup }, report) {
      if (toolsByGroup !== undefined && tools === undefined)
        report('adds to "tools", without which everybody may use all: write "tools", if need be []', "tools_by_group");
    },
  },
);

export const mcp: Plugin<typeof schema> = {
  name: "mcp",
  schema,
  guards: true,
  ownHeaders: () => [REVISION_HEADER, METHOD_HEADER, NAME_HEADER, SESSION_HEADER],
  resource: ({ resourceMetadata }) => protectedResource(resourceMetadata),
  create(config, tools) {
    const guard = new Guard(new Permissions(config), config.revisions, config.maxBodyBytes, tools);
    return (next) => (exchange) => guard.answer(exchange, next);
  },
};

export const SESSION_HEADER = "mcp-session-id";

const NEVER_FORWARDED: ReadonlySet<string> = new Set([SESSION_HEADER, "accept-encoding", "range"]);

type MaybeLater<T> = T | Promise<T>;

/** A request that may pass. */
interface Admitted {
  readonly revision: Revision;
  readonly session: McpSession | null;
}

class Guard {
  readonly #permissions: Permissions;
  readonly #revisions: readonly Revision[];
  readonly #maxBodyBytes: number;
  readonly #keys: SessionKeys;
  readonly #tools: Pick<Tools, "groupsOf" | "tally">;

  constructor(permissions: Permissions, revisions: readonly Revision[], maxBodyBytes: number, tools: Tools) {
    this.#permissions = permissions;
    this.#revisions = revisions;
    this.#maxBodyBytes = maxBodyBytes;
    this.#keys = new SessionKeys(tools);
    this.#tools = tools;
  }

  answer(exchange: Exchange, next: Handler): Reply | Promise<Reply> {
    const { method, upgrade } = exchange;
    // Behind a WebSocket nobody would read the messages.
    if (upgrade !== null) return this.#refuse(exchange, invalid("MCP is not spoken over an upgraded connection"), null);
    if (method === "POST") return this.#post(exchange, next);
    const isOfSession = method === "GET" || method === "DELETE";
    return isOfSession ? this.#ofSession(exchange, next) : this.#refuse(exchange, this.#wrongMethod(), null);
  }

  /** Also counts it. */
  #refuse({ call }: Exchange, refusal: McpRefusal, id: string | null): Reply {
    this.#tools.tally(refusal.code);
    return refusedMessage(call, refusal, id);
  }

  #wrongMethod(): McpRefusal {
    const methods = this.#revisions.some((revision) => revision !== STATELESS) ? "GET, POST, DELETE" : "POST";
    const message = `messages are sent by POST (allowed: ${methods})`;
    return { code: "method_not_allowed", rpc: INVALID_REQUEST, message, headers: ["Allow", methods] };
  }

  async #post(exchange: Exchange, next: Handler): Promise<Reply> {
    const wrongType = wrongContent(exchange.headers);
    if (wrongType !== null) return this.#refuse(exchange, wrongType, null);
    let bytes: Buffer;
    try {
      bytes = await readBody(exchange, this.#maxBodyBytes);
    } catch (error) {
      if (!(error instanceof Fault) || error.code !== "body_too_large") throw error;
      return this.#refuse(exchange, tooLarge(this.#maxBodyBytes), null);
    }
    const message = await readMessage(bytes);
    if ("refusal" in message) return this.#refuse(exchange, message.refusal, message.id);
    const { id, method } = message;
    const targets = mcpTargets(message);
    const named = typeof targets === "string" ? undefined : targets[0];
    exchange.call.notes.mcp = { method, name: named === undefined || named.kind === "resources" ? null : named.name };
    const admitted = await this.#admitted(exchange, message);
    if ("code" in admitted) return this.#refuse(exchange, admitted, id);
    if (typeof targets === "string") return this.#refuse(exchange, invalid(targets, INVALID_PARAMS), id);
    const pattern = this.#allowing(exchange, targets);
    if (typeof pattern !== "string") return this.#refuse(exchange, pattern, id);
    const counted = method === "" ? "response" : this.#permissions.allowingMethod(method, admitted.revision);
    this.#tools.tally(`${counted}${pattern === "" ? "" : ` ${pattern}`}`);
    const reply = await next(forwarded(exchange, admitted.session));
    return this.#replied(exchange, reply, message, admitted);
  }

  /** The revision and the session of a request, whose method and headers these allow. */
  async #admitted(exchange: Exchange, message: Message): Promise<Admitted | McpRefusal> {
    const { method, kind } = message;
    const { headers } = exchange;
    const found = await this.#revisionOf(exchange, message);
    if ("code" in found) return found;
    const { revision } = found;
    const isStateless = revision === STATELESS;
    if (isStateless) {
      const wrong = wrongMeta(message);
      if (wrong !== null) return wrong;
    }
    if (kind === "response" ? isStateless : this.#permissions.allowingMethod(method, revision) === null)
      return {
        code: "mcp_method_unknown",
        rpc: METHOD_NOT_FOUND,
        message: kind === "response" ? "responses are not sent in this revision" : `${method} is no method here`,
        rule: "methods",
      };
    const targets = mcpTargets(message);
    const name = MIRRORED.has(method) && typeof targets !== "string" ? (targets[0]?.name ?? null) : null;
    const different = headerMismatch(headers, method, name, isStateless && kind === "request");
    return different === null ? found : mismatch(different);
  }

  #revisionOf(exchange: Exchange, { method, meta }: Message): MaybeLater<Admitted | McpRefusal> {
    const { headers } = exchange;
    const written = soleValue(headers, REVISION_HEADER);
    if (written === undefined) return mismatch(`${REVISION_HEADER} comes more than once`);
    // Sessions were given up in this revision: the header means nothing.
    if (written === STATELESS) return this.#offered(STATELESS, null);
    if (meta.has(META_REVISION)) return mismatch(`${REVISION_HEADER} differs from the body`);
    if (method === INITIALIZE && written === null) {
      const oldest = this.#revisions.findLast((revision) => revision !== STATELESS);
      return oldest === undefined ? this.#unsupported(ASSUMED) : { revision: oldest, session: null };
    }
    return this.#inSession(exchange, written, method === INITIALIZE);
  }

  /** Of a request with the revision header `written` that belongs to a session, or to a server without sessions. */
  async #inSession(exchange: Exchange, written: string | null, isFirst: boolean): Promise<Admitted | McpRefusal> {
    const text = isFirst ? null : soleValue(exchange.headers, SESSION_HEADER);
    if (text === undefined) return mismatch(`${SESSION_HEADER} comes more than once`);
    if (text === null) return this.#offered(written ?? ASSUMED, null);
    const session = await this.#keys.find((key) => sessionIn(text, ownerOf(exchange), key));
    if (session === "unasked") return UNASKED;
    // The same for a session of somebody else: it tells nothing.
    if (session === null) return NO_SESSION;
    // The revision of a session is known, so that a header which says less need not be believed.
    if (written !== null && written !== session.revision && written !== ASSUMED)
      return mismatch(`${REVISION_HEADER} differs from the revision of the session, ${session.revision}`);
    return this.#offered(session.revision, session);
  }

  #offered(revision: string, session: McpSession | null): Admitted | McpRefusal {
    return isRevision(revision) && this.#revisions.includes(revision)
      ? { revision, session }
      : this.#unsupported(revision);
  }

  #unsupported(requested: string): McpRefusal {
    return {
      code: "mcp_revision_unsupported",
      rpc: UNSUPPORTED_REVISION,
      message: "this revision of MCP is not served here",
      data: { supported: this.#revisions, requested },
      rule: "revisions",
    };
  }

  /** The pattern that allows the last of the targets; "": there are none. */
  #allowing(exchange: Exchange, targets: readonly McpTarget[]): string | McpRefusal {
    let pattern = "";
    for (const { kind, name } of targets) {
      const found = this.#permissions.allowing(kind, name, this.#tools.groupsOf(exchange));
      if (found === null)
        return {
          code: "mcp_not_allowed",
          rpc: INVALID_PARAMS,
          message: `${SINGULAR[kind]} ${JSON.stringify(name.slice(0, 200))} is not allowed`,
          rule: kind,
        };
      pattern = found;
    }
    return pattern;
  }

  /** GET opens a stream of messages of a session, DELETE ends it. */
  async #ofSession(exchange: Exchange, next: Handler): Promise<Reply> {
    const { method, headers, body } = exchange;
    const written = soleValue(headers, REVISION_HEADER);
    const isServed = this.#revisions.some((revision) => revision !== STATELESS);
    if (!isServed || written === STATELESS) return this.#refuse(exchange, this.#wrongMethod(), null);
    if (written === undefined) return this.#refuse(exchange, mismatch(`${REVISION_HEADER} comes more than once`), null);
    if (body !== null) return this.#refuse(exchange, invalid(`${method} has no body`), null);
    const admitted = await this.#inSession(exchange, written, false);
    if ("code" in admitted) return this.#refuse(exchange, admitted, null);
    const { session, revision } = admitted;
    exchange.call.notes.mcp = { method: "", name: null };
    this.#tools.tally(method === "GET" ? "stream" : "end of session");
    const reply = repliedSession(await next(forwarded(exchange, session)), headers, session);
    return method === "GET" ? filteredReply(reply, this.#filterFor(exchange, revision)) : reply;
  }

  async #replied(exchange: Exchange, reply: Reply, { method, id }: Message, admitted: Admitted): Promise<Reply> {
    const { revision, session } = admitted;
    if (method === INITIALIZE) {
      const found = await initializedReply(reply, ownerOf(exchange), this.#keys, (text) => this.#offered(text, null));
      return "refusal" in found ? this.#refuse(exchange, found.refusal, id) : found;
    }
    const known = repliedSession(reply, exchange.headers, session);
    if (LIST_METHODS.has(method)) return filteredReply(known, this.#filterFor(exchange, revision));
    return revision === STATELESS ? known : unlistedReply(known, this.#filterFor(exchange, revision));
  }

  #filterFor(exchange: Exchange, revision: Revision) {
    const groups = this.#tools.groupsOf(exchange);
    return {
      limited: new Set(KINDS.filter((kind) => this.#permissions.limits(kind))),
      mayUse: (kind: TargetKind, name: string) => this.#permissions.allowing(kind, name, groups) !== null,
      hasCacheScope: revision === STATELESS,
    };
  }
}

const KINDS: readonly TargetKind[] = ["tools", "prompts", "resources"];
const SINGULAR: Readonly<Record<TargetKind, string>> = { tools: "tool", prompts: "prompt", resources: "resource" };
/** The methods whose name is repeated in Mcp-Name. */
const MIRRORED: ReadonlySet<string> = new Set(["tools/call", "prompts/get", "resources/read"]);

function invalid(message: string, rpc = INVALID_REQUEST): McpRefusal {
  return { code: "mcp_invalid", rpc, message };
}

function mismatch(message: string): McpRefusal {
  return { code: "mcp_header_mismatch", rpc: HEADER_MISMATCH, message };
}

const NO_SESSION: McpRefusal = {
  code: "mcp_session_unknown",
  rpc: INVALID_REQUEST,
  message: "there is no such session: initialize anew",
};

function tooLarge(most: number): McpRefusal {
  const message = `a message may have at most ${most} bytes`;
  return { code: "body_too_large", rpc: INVALID_REQUEST, message, rule: "max_body_bytes" };
}

/** What `_meta` of each request has to have since 2026-07-28. */
function wrongMeta({ kind, meta }: Message): McpRefusal | null {
  if (kind !== "request") return null;
  const revision = stringOf(meta.get(META_REVISION));
  if (revision === null || meta.get(META_CAPABILITIES)?.kind !== "object")
    return invalid(`params._meta needs "${META_REVISION}" and "${META_CAPABILITIES}"`, INVALID_PARAMS);
  return revision === STATELESS ? null : mismatch(`${REVISION_HEADER} differs from the body`);
}

const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*charset[ \t]*=[ \t]*"?utf-8"?[ \t]*)?$/i;

/** A body that others might decode, or take for something else. */
function wrongContent(headers: HeaderList): McpRefusal | null {
  const types = headerValues(headers, "content-type");
  const isJson = types.length === 1 && JSON_TYPE.test(types[0]!);
  const isPlain = headerValues(headers, "content-encoding").every((coding) => coding.toLowerCase() === "identity");
  if (isJson && isPlain) return null;
  const message = isJson ? "send the body without Content-Encoding" : "send Content-Type: application/json";
  return { code: "unsupported_media_type", rpc: INVALID_REQUEST, message };
}

/** What the server gets: its own id of the session, and nothing that would hide its reply. */
function forwarded(exchange: Exchange, session: McpSession | null): Exchange {
  const headers = exchange.headers.filter((_text, i) => !NEVER_FORWARDED.has(dashed(exchange.headers[i & ~1]!)));
  return exchange.with({ headers: session === null ? headers : [...headers, "Mcp-Session-Id", session.id] });
}
