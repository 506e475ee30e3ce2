/**
 * Which headers of a request a configuration may set, and the schema of `request_headers` of upstreams.
 */
import { FIELD_VALUE, FORWARDING, HOP_BY_HOP, TOKEN } from "../base/http_grammar.ts";
import { isSecretName } from "../base/secret_names.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./whole_schema.ts";

const HOP_BY_HOP_NAMES: ReadonlySet<string> = new Set(HOP_BY_HOP);
const SET_BY_GATEWAY = new Set(["via", "x-request-id", ...FORWARDING]);
/** Many upstreams read `_` as `-`. */
const CERTIFICATE = /^x[-_]client[-_]cert[-_]/;

/** Why a header of this name is no plugin's to change, in requests and replies; undefined: it is. */
export function framingProblem(name: string): string | undefined {
  if (!TOKEN.test(name)) return "is not the name of a header";
  if (HOP_BY_HOP_NAMES.has(name.toLowerCase())) return "is a header of a single connection: the gateway itself sets it";
  return /^(?:content-length|trailer)$/i.test(name)
    ? "is part of how the message is framed: the gateway itself sets it"
    : undefined;
}

/** Why this header (lower case) of requests must not be removed ("away") or set ("here"); undefined: it may. */
export function sentHeaderProblem(lower: string, change: "away" | "here"): string | undefined {
  if (lower === "host") return "is the upstream's own, or the client's with \"preserve_host\" of the service";
  if (lower === "expect" || lower === "sec-websocket-key")
    return "is part of how the request is sent: the gateway itself sets it";
  if (lower === "x-real-ip")
    return "passes from trusted proxies only: upstreams find the client's address in X-Forwarded-For";
  if (SET_BY_GATEWAY.has(lower)) return "is set by the gateway itself";
  if (change === "here" && CERTIFICATE.test(lower)) return 'is set by the plugin "mtls" only';
  return undefined;
}

const valueOf = (secret: boolean) =>
  s.string({ min: 1, pattern: FIELD_VALUE, hint: "the value of a header", describe: "The value.", secret });
const [OPEN, SECRET] = [valueOf(false), valueOf(true)];

/** A secret if its name says so, or if it has a reference. */
const VALUE: typeof SECRET = {
  ...SECRET,
  check(node, at, context) {
    const isSecret = isSecretName(String(at.at(-1))) || (node.kind === "string" && node.value.includes("${"));
    return (isSecret ? SECRET : OPEN).check(node, at, context);
  },
};

export const UPSTREAM_REQUEST_HEADERS = s.record(VALUE, {
  describe: "Headers that only this upstream gets, by name; those of the client by the same name are replaced.",
});

interface WithHeaders {
  readonly requestHeaders?: Readonly<Record<string, string>>;
}

export const fields: FeatureFields = {
  schemas: { upstream_request_headers: UPSTREAM_REQUEST_HEADERS },
  checkService({ upstreams }: { readonly upstreams: readonly WithHeaders[] }, report) {
    upstreams.forEach(({ requestHeaders = {} }, i) => {
      const seen = new Set<string>();
      for (const name of Object.keys(requestHeaders)) {
        const lower = name.toLowerCase();
        const twice = seen.has(lower) ? "occurs twice, in different cases" : undefined;
        const problem = framingProblem(name) ?? sentHeaderProblem(lower, "here") ?? twice;
        if (problem !== undefined) report(problem, "upstreams", i, "request_headers", name);
        seen.add(lower);
      }
    });
  },
};
