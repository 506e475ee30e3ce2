/**
 * Metadata of a protected resource (RFC 9728): the field `resource_metadata` of plugins that admit by access tokens,
 * the document that the gateway serves of it, and the challenges that lead clients to it.
 *
 * A kind takes part by the field in its schema and by `resource` beside its `create`:
 * `resource: (config) => protectedResource(config.resourceMetadata, { scopes: config.scopes })`.
 * The document is then served (`gateway/protected_resources.ts`), and each 401 and 403 of any plugin of its routes
 * has the challenge (`gateway/plugin_instances.ts`). `audiencesOf` says which `aud` its tokens need.
 */
import { isLoopback } from "../base/url_destination.ts";
import { array, object, oneOf, optional, string, withDefault, type Infer, type Schema } from "../config/schema.ts";
import { headerValue, quotedString, sameName, type HeaderList } from "../http/headers.ts";
import { problem } from "../http/reply.ts";
import type { ProtectedResource } from "./plugin.ts";

/** RFC 6749 §3.3. */
export const SCOPE = string({ pattern: /^[\x21\x23-\x5b\x5d-\x7e]+$/, hint: "one scope, without spaces and quotes" });

export const RESOURCE_METADATA = object(
  {
    resource: url(
      "The address of the resource as its clients know it, such as https://api.example.com/mcp.",
      resourceProblem,
    ),
    authorization_servers: array(
      url("The issuer of an authorization server, as its own metadata has it.", urlProblem),
      {
        min: 1,
        describe: "The authorization servers whose access tokens are accepted here.",
      },
    ),
    scopes_supported: optional(array(SCOPE, { describe: "The scopes that clients may ask these servers for." })),
    audience: withDefault(
      oneOf(["resource", "any"], {
        describe: 'Whether tokens must name the resource in aud, unless the plugin names another audience; "any": no.',
      }),
      "resource",
    ),
  },
  { describe: "What clients are told of this resource and of its authorization servers (RFC 9728)." },
);

export type ResourceMetadata = Infer<typeof RESOURCE_METADATA>;

function url(describe: string, problemOf: (text: string) => string | undefined): Schema<string, string> {
  return string({ hint: "an https:// URL", describe, references: "address", check: problemOf });
}

/** RFC 9728 §1.2, RFC 8414 §2. Plain HTTP is for this machine alone. */
function urlProblem(text: string): string | undefined {
  if (!URL.canParse(text)) return "";
  const { protocol, hostname, username, password } = new URL(text);
  if (protocol !== "https:" && !(protocol === "http:" && isLoopback(hostname)))
    return "clients reach it with https:// alone (http:// is accepted for localhost)";
  if (username !== "" || password !== "") return "leave user name and password out";
  return /[?#]/.test(text) ? "leave query and fragment out" : undefined;
}

/** Clients compare it with the address that they asked, byte for byte (RFC 9728 §3.3). */
function resourceProblem(text: string): string | undefined {
  const problem = urlProblem(text);
  if (problem !== undefined) return problem;
  const { href } = new URL(text);
  return text === href || `${text}/` === href ? undefined : `clients write it as "${href}"`;
}

/** What a kind says of its tokens besides `resource_metadata`. */
interface TokenFacts {
  /** Scopes that every token needs. */
  readonly scopes?: readonly string[];
  /** Members of the document beside those of the field (RFC 9728 §2). */
  readonly members?: object;
}

/** The resource that an instance describes; undefined: its configuration has no `resource_metadata`. */
export function protectedResource(
  metadata: ResourceMetadata | undefined,
  { scopes = [], members }: TokenFacts = {},
): ProtectedResource | undefined {
  if (metadata === undefined) return undefined;
  const { resource, authorizationServers, scopesSupported } = metadata;
  const { host, pathname, origin } = new URL(resource);
  const path = `${WELL_KNOWN}${withoutFinalSlash(pathname)}`;
  const document = { resource, authorization_servers: authorizationServers, scopes_supported: scopesSupported };
  const body = Buffer.from(JSON.stringify({ ...document, ...members }));
  const added: Parameter[] = [
    { there: /[ ,]resource_metadata *=/i, text: `resource_metadata=${quotedString(origin + path)}` },
  ];
  if (scopes.length > 0) added.push({ there: /[ ,]scope *=/i, text: `scope=${quotedString(scopes.join(" "))}` });
  return {
    resource,
    authority: host,
    path,
    rootPath: WELL_KNOWN,
    answer: ({ call, method, headers }) => {
      if (method === "GET" || method === "HEAD") {
        const described = [...DOCUMENT_HEADERS, "Content-Length", String(body.length)];
        return { status: 200, headers: described, body: method === "HEAD" ? null : body };
      }
      if (method === "OPTIONS" && headerValue(headers, "access-control-request-method") !== undefined)
        return { status: 204, headers: PREFLIGHT_HEADERS, body: null };
      return problem(call, "method_not_allowed", {
        detail: `The metadata of a protected resource can be read alone: ${METHODS}.`,
        headers: ["Allow", METHODS, ...ANY_ORIGIN],
      });
    },
    challenged: (reply) => ({ ...reply, headers: challengedHeaders(reply.headers, added) }),
  };
}

/** RFC 9728 §3. The path of the resource follows (§3.1). */
const WELL_KNOWN = "/.well-known/oauth-protected-resource";

const METHODS = "GET, HEAD";
/** The document is public: clients in browsers read it from any page. */
const ANY_ORIGIN: HeaderList = ["Access-Control-Allow-Origin", "*"];
const DOCUMENT_HEADERS = [
  ...["Content-Type", "application/json", "Cache-Control", "max-age=300", "X-Content-Type-Options", "nosniff"],
  ...ANY_ORIGIN,
];
/** Clients of MCP send MCP-Protocol-Version with it. */
const PREFLIGHT_HEADERS = [
  ...["Access-Control-Allow-Methods", METHODS, "Access-Control-Allow-Headers", "*", "Access-Control-Max-Age", "86400"],
  ...ANY_ORIGIN,
];

function withoutFinalSlash(path: string): string {
  return path.endsWith("/") ? path.slice(0, -1) : path;
}

/** Of a challenge; `there`: matches a challenge that has it already. */
interface Parameter {
  readonly there: RegExp;
  readonly text: string;
}

/**
 * Adds parameters to each challenge for access tokens that lacks them (RFC 9728 §5.1). Without such a challenge, one is
 * put before the others: there are clients that read the first one alone.
 */
function challengedHeaders(headers: HeaderList, added: readonly Parameter[]): HeaderList {
  const list = [...headers];
  let isFound = false;
  for (let i = 0; i < list.length; i += 2) {
    const value = list[i + 1]!;
    if (!sameName(list[i]!, "www-authenticate") || !TOKEN_CHALLENGE.test(value)) continue;
    isFound = true;
    const missing = added.filter(({ there }) => !there.test(value));
    if (missing.length > 0) list[i + 1] = value + (value.includes(" ") ? ", " : " ") + textOf(missing);
  }
  return isFound ? list : ["WWW-Authenticate", `Bearer ${textOf(added)}`, ...list];
}

function textOf(parameters: readonly Parameter[]): string {
  return parameters.map(({ text }) => text).join(", ");
}

/** A parameter of a challenge (RFC 9110 §11.2). */
const PARAMETER = String.raw`[\w-]+ *= *(?:"(?:[^"\\]|\\.)*"|[^\s",=]+)`;
/** One challenge with its parameters, and no other one behind it (RFC 9110 §11.6.1). */
const TOKEN_CHALLENGE = new RegExp(`^(?:Bearer|DPoP)(?: +${PARAMETER}(?: *, *${PARAMETER})*)? *$`, "i");

/**
 * The audiences of which `aud` must have one; null: any. What an instance names itself (`aud`, or `claims` with `aud`)
 * counts, else the resource, which is the same with and without a slash where it has no path (RFC 3986 §6.2.3).
 */
export function audiencesOf(
  metadata: ResourceMetadata | undefined,
  named: readonly string[] | null,
  claims: object | undefined,
): readonly string[] | null {
  if (named !== null || metadata?.audience !== "resource" || Object.hasOwn(claims ?? {}, "aud")) return named;
  const { resource } = metadata;
  return new URL(resource).pathname === "/" ? [withoutFinalSlash(resource), new URL(resource).href] : [resource];
}
