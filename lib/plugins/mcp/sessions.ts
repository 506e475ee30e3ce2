/**
 * Sessions of MCP servers (2025-11-25, "Session Management") that belong to the caller who opened them: clients get the
 * server's id with the revision of the session, and with a code that only gateways with the same key can make. Nothing
 * is kept, so that nobody can fill a memory, and a session lasts for as long as its server has it.
 */
import { createHmac, timingSafeEqual } from "node:crypto";
import type { Exchange } from "../../http/exchange.ts";
import { isRevision, type Revision } from "./revisions.ts";

export interface McpSession {
  /** As the server knows it. */
  readonly id: string;
  readonly revision: Revision;
}

/** Characters of a server's id. */
const MAX_ID = 1024;
/** 132 bits, in base64url. */
const CODE_LENGTH = 22;
/** "2025-11-25." */
const REVISION_LENGTH = 10;

/** The id for the client; null for one that a server may not give (visible ASCII), or that is too long. */
export function sessionText({ id, revision }: McpSession, owner: string, key: Buffer): string | null {
  if (!/^[\x21-\x7e]+$/.test(id) || id.length > MAX_ID) return null;
  return `${revision}.${codeOf({ id, revision }, owner, key)}.${id}`;
}

/** The session that a client names; null: it is not this owner's, or none by this key. */
export function sessionIn(text: string, owner: string, key: Buffer): McpSession | null {
  const revision = text.slice(0, REVISION_LENGTH);
  const code = text.slice(REVISION_LENGTH + 1, REVISION_LENGTH + 1 + CODE_LENGTH);
  const id = text.slice(REVISION_LENGTH + CODE_LENGTH + 2);
  if (!isRevision(revision) || code.length !== CODE_LENGTH || id.length > MAX_ID) return null;
  if (text !== `${revision}.${code}.${id}`) return null;
  const expected = codeOf({ id, revision }, owner, key);
  return timingSafeEqual(Buffer.from(code, "latin1"), Buffer.from(expected, "latin1")) ? { id, revision } : null;
}

function codeOf({ id, revision }: McpSession, owner: string, key: Buffer): string {
  const text = JSON.stringify([revision, owner, id]);
  return createHmac("sha256", key).update(text).digest("base64url").slice(0, CODE_LENGTH);
}

/** Who owns the sessions of a request: a caller, or a client's address where nobody has identified the caller. */
export function ownerOf({ identity, clientAddress, service }: Exchange): string {
  return JSON.stringify([service.name, identity === null ? "address" : "caller", identity ?? clientAddress]);
}
