/**
 * Which fields may stand behind a body (RFC 9110 §6.5.1). Sending them is `forward.ts` on the one side, `server/` on the other.
 */
import { isHopByHop, type HeaderList } from "../http/headers.ts";

/**
 * A copy without what a trailer must not say: how the message is framed, routed, who sends it, and what its content is. A recipient
 * that merges trailers into the headers would otherwise let a client rewrite what was checked.
 */
export function trailerFields(list: HeaderList): HeaderList {
  const kept: string[] = [];
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!.toLowerCase();
    if (!isHopByHop(name) && !FORBIDDEN.has(name) && !name.startsWith("x-forwarded-")) kept.push(list[i]!, list[i + 1]!);
  }
  return kept;
}

const FORBIDDEN = new Set([
  "authorization",
  "cache-control",
  "content-encoding",
  "content-length",
  "content-range",
  "content-type",
  "cookie",
  "expect",
  "forwarded",
  "host",
  "max-forwards",
  "proxy-authenticate",
  "proxy-authorization",
  "set-cookie",
  "trailer",
  "via",
  "x-request-id",
]);
