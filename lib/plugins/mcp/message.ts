/**
 * Reads a body as one message of JSON-RPC 2.0, and refuses what two readers might understand differently: batches,
 * members that differ from known ones in case, "_" or "-" only, and all that `strict_json.ts` refuses.
 */
import type { JsonNode } from "../../config/json.ts";
import { membersOf, MemberNames, NO_MEMBERS, stringOf, type Members } from "./members.ts";
import { INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, type McpRefusal } from "./refusal.ts";
import { META_CAPABILITIES, META_REVISION } from "./revisions.ts";
import { withJson } from "./strict_json.ts";

export interface Message {
  readonly kind: "request" | "notification" | "response";
  /** As JSON; null of a notification. */
  readonly id: string | null;
  /** "" of a response. */
  readonly method: string;
  readonly params: Members;
  /** `params._meta` */
  readonly meta: Members;
}

/** What is wrong with a message, and its id, as JSON, where that can be read. */
export interface Malformed {
  readonly refusal: McpRefusal;
  readonly id: string | null;
}

/** Of any message. */
export const TOP = new MemberNames(["jsonrpc", "id", "method", "params", "result", "error"]);
/** Of the parameters of requests, as far as a server decides by them. */
const PARAMS = new MemberNames([
  "_meta",
  "name",
  "uri",
  "arguments",
  "ref",
  "argument",
  "context",
  "cursor",
  "notifications",
  "protocolVersion",
  "capabilities",
  "clientInfo",
  "inputResponses",
  "requestState",
  "requestId",
  "level",
  "task",
  "taskId",
]);
const META = new MemberNames([META_REVISION, META_CAPABILITIES, "io.modelcontextprotocol/clientInfo", "progressToken"]);

/** Reads a body, in slices of time. */
export function readMessage(bytes: Buffer): Promise<Message | Malformed> {
  return withJson(bytes, (node) =>
    typeof node === "string" ? malformed(PARSE_ERROR, `the body cannot be read: ${node}`) : messageIn(node),
  );
}

function malformed(rpc: number, message: string, id: string | null = null): Malformed {
  return { refusal: { code: "mcp_invalid", rpc, message }, id };
}

function messageIn(node: JsonNode): Message | Malformed {
  const top = membersOf(node);
  if (top === null) {
    const found = node.kind === "array" ? "a batch: send one message in each request" : `${node.kind}`;
    return malformed(INVALID_REQUEST, `the body has to be one object, found ${found}`);
  }
  const id = top.has("id") ? idText(top.get("id")!) : null;
  const wrong = (message: string, rpc = INVALID_REQUEST) => malformed(rpc, message, id);
  const lookalike = TOP.lookalikeIn(top);
  if (lookalike !== null) return wrong(unclear(lookalike));
  if (stringOf(top.get("jsonrpc")) !== "2.0") return wrong('"jsonrpc" has to be "2.0"');
  if (top.has("id") && id === null) return wrong('"id" has to be a string or an integer of at most 53 bits');
  const isResponse = top.has("result") || top.has("error");
  if (isResponse) {
    if (top.has("method") || top.has("params") || (top.has("result") && top.has("error")) || id === null)
      return wrong('a response has an "id", either "result" or "error", and neither "method" nor "params"');
    return { kind: "response", id, method: "", params: NO_MEMBERS, meta: NO_MEMBERS };
  }
  const method = stringOf(top.get("method"));
  if (method === null || !isPlain(method)) return wrong('"method" has to be a text of visible ASCII');
  if ((id === null) !== method.startsWith(NOTIFICATION))
    return wrong(id === null ? `${method} needs an "id"` : `${method} is a notification: it has no "id"`);
  const params = top.has("params") ? membersOf(top.get("params")) : NO_MEMBERS;
  const meta = params?.has("_meta") ? membersOf(params.get("_meta")) : NO_MEMBERS;
  if (params === null || meta === null) return wrong('"params" and its "_meta" have to be objects', INVALID_PARAMS);
  const unclearName = PARAMS.lookalikeIn(params) ?? META.lookalikeIn(meta);
  if (unclearName !== null) return wrong(unclear(unclearName), INVALID_PARAMS);
  return { kind: id === null ? "notification" : "request", id, method, params, meta };
}

const NOTIFICATION = "notifications/";

function unclear(name: string): string {
  return `${JSON.stringify(name.slice(0, 60))} differs from a name of MCP in case, "_" or "-" only`;
}

/** Readers round larger numbers, each in its own way. */
function idText(node: JsonNode): string | null {
  if (node.kind === "string") return JSON.stringify(node.value);
  return node.kind === "number" && Number.isSafeInteger(node.value) && String(node.value) === node.text
    ? node.text
    : null;
}

/** Whether a text has visible ASCII alone. */
function isPlain(text: string): boolean {
  return /^[\x21-\x7e]{1,256}$/.test(text);
}
