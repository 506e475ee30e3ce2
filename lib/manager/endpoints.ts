/**
 * The endpoints of the management UI: serves pages, forwards /api to the admin interface, and adds security headers to
 * every reply.
 */
import { version } from "../base/version.ts";
import { hasHeader, isHost, withHeader, type HeaderList } from "../http/headers.ts";
import { isForeign } from "../http/own_pages.ts";
import { allowedHosts, HOST_NOT_ALLOWED } from "../operator/allowed_hosts.ts";
import { problem, type Reply } from "../http/reply.ts";
import { ENCODED_SLASH, readTarget } from "../route/path.ts";
import type { Inbound } from "../server/inbound.ts";
import type { FindFile } from "./static_files.ts";

/** Forwards a request to `path` of the admin interface, query included: "/gateway/status". */
type Forward = (inbound: Inbound, path: string) => Promise<Reply>;

/** The meaning of both is that of `ManagerOptions`. */
export function createEndpoints(
  findFile: FindFile,
  forward: Forward,
  { hosts, basePath }: { readonly hosts: readonly string[]; readonly basePath: string },
): (inbound: Inbound) => Promise<Reply> {
  const isKnown = allowedHosts(hosts);
  return async (inbound) => guarded(await answer(inbound), basePath);

  function answer(inbound: Inbound): Reply | Promise<Reply> {
    const { call, method, refusal } = inbound;
    if (refusal !== null) return problem(call, refusal.code, { detail: refusal.detail });
    if (inbound.upgrade !== null)
      return problem(call, "bad_request", { detail: "The management UI has no WebSockets." });
    const target = readTarget(inbound.target);
    if ("code" in target) return problem(call, target.code, { detail: sentence(target.detail) });
    if (target.encodedSlash) return problem(call, ENCODED_SLASH.code, { detail: sentence(ENCODED_SLASH.detail) });
    const authority = target.authority ?? inbound.authority;
    if (!isHost(authority)) return problem(call, "bad_request", { detail: "The request target has no valid host." });
    if (inbound.scheme === "http" && !isKnown(authority))
      return problem(call, "misdirected", { detail: `${HOST_NOT_ALLOWED} ${TO_LOG_IN}` });
    const { query } = target;
    if (`${target.path}/` === basePath)
      return READING.has(method) ? startPage(query) : wrongMethod(inbound, "GET, HEAD");
    if (!target.path.startsWith(basePath)) return noPage(inbound);
    const path = target.path.slice(basePath.length - 1);
    if (path === "/api" || path.startsWith("/api/")) {
      if (!FORWARDED.has(method)) return wrongMethod(inbound, "GET, HEAD, POST, PUT, DELETE");
      if (!READING.has(method) && isForeign(inbound, authority)) {
        const detail =
          "Only pages of this server may make changes. A proxy in front of it must not change the Host header.";
        return problem(call, "forbidden", { detail });
      }
      return path === "/api/gateway/now"
        ? withVersion(forward(inbound, path.slice(4) + query))
        : forward(inbound, (path.slice(4) || "/") + query);
    }
    const file = findFile(path, inbound.headers);
    if (file === null) return noPage(inbound);
    return READING.has(method) ? file : wrongMethod(inbound, "GET, HEAD");
  }

  function noPage({ call }: Inbound): Reply {
    return problem(call, "route_not_found", {
      detail: `There is no such page; the management UI starts at ${basePath}.`,
    });
  }

  /** The addresses in the start page are relative: without the slash at the end they would lead elsewhere. */
  function startPage(query: string): Reply {
    return { status: 308, headers: ["Location", basePath + query], body: null };
  }
}

/** The UI's own version, to be compared with the gateway's: for who has signed in, like that. */
async function withVersion(reply: Promise<Reply>): Promise<Reply> {
  const answered = await reply;
  return answered.status === 200
    ? { ...answered, headers: withHeader(answered.headers, "Management-UI-Version", version) }
    : answered;
}

const TO_LOG_IN =
  "To log in, open http://localhost on the gateway's machine, or open a tunnel (ssh -L 5173:localhost:5173 …), " +
  "or set MANAGER_TLS=true: browsers store the session cookie only over HTTPS and on http://localhost.";

const READING = new Set(["GET", "HEAD"]);
const FORWARDED = new Set([...READING, "POST", "PUT", "DELETE"]);

/** `readTarget` returns clauses: "the path has a “..” segment". */
function sentence(clause: string): string {
  return `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`;
}

function wrongMethod({ call }: Inbound, allow: string): Reply {
  return problem(call, "method_not_allowed", { detail: `This path accepts ${allow}.`, headers: ["Allow", allow] });
}

/**
 * Replaces the admin interface's security headers with ours, drops its CORS headers, and limits its cookies to
 * `basePath`.
 */
function guarded(reply: Reply, basePath: string): Reply {
  const { headers } = reply;
  const kept: string[] = [];
  // A path refused today may be a page after an upgrade.
  if (!hasHeader(headers, "cache-control")) kept.push("Cache-Control", "no-store");
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!.toLowerCase();
    const value = headers[i + 1]!;
    if (name === "set-cookie") kept.push(headers[i]!, cookieBelow(value, basePath));
    else if (!GUARD_NAMES.has(name) && !name.startsWith("access-control-")) kept.push(headers[i]!, value);
  }
  return { ...reply, headers: [...kept, ...GUARD] };
}

/** Browsers refuse a cookie named __Host-… that has another path than "/". */
function cookieBelow(cookie: string, basePath: string): string {
  return /^__Host-/i.test(cookie) ? cookie : cookie.replace("; Path=/;", `; Path=${basePath};`);
}

/** Prevents injected scripts from loading, sending data elsewhere, and framing. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "font-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join("; ");

const GUARD: HeaderList = [
  ...["Content-Security-Policy", POLICY],
  ...["X-Content-Type-Options", "nosniff"],
  ...["Referrer-Policy", "no-referrer"],
  ...["Cross-Origin-Opener-Policy", "same-origin"],
  ...["Cross-Origin-Resource-Policy", "same-origin"],
  ...["Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"],
];
const GUARD_NAMES = new Set(GUARD.filter((_text, i) => i % 2 === 0).map((name) => name.toLowerCase()));
