/**
 * Turns the filters of a rule of the Gateway API into plugins, a redirect or another path at the upstream.
 */
import type { Draft, DraftPlugin } from "./draft.ts";
import type { ServiceBackend } from "./kube_objects.ts";
import { filled, segmentsOf, type Redirect, type Rewrite } from "./kube_targets.ts";
import { ALL_METHODS } from "./prefixes.ts";
import { fixedText, literal, type SourceValue } from "./source_value.ts";

export interface Filtered {
  plugins: DraftPlugin[];
  redirect?: Redirect;
  rewrite?: Rewrite;
  /** The upstream gets its own host, not the client's. */
  isHostReplaced?: boolean;
  /** What cannot be carried over, and may decide who passes. */
  closed?: string;
}

export interface FilterContext {
  readonly draft: Draft;
  /** Of the path that a prefix match names; null: the path is no prefix. */
  readonly prefix: readonly string[] | null;
  backendOf(ref: SourceValue): ServiceBackend | string;
}

type Read = (own: SourceValue, made: Filtered, context: FilterContext) => void;

export const FILTERS: Readonly<Record<string, Read>> = {
  RequestHeaderModifier: (own, made) => made.plugins.push(...headers("request_headers", own)),
  ResponseHeaderModifier: (own, made) => made.plugins.push(...headers("response_headers", own)),
  RequestMirror: mirror,
  RequestRedirect: redirect,
  URLRewrite: rewrite,
  CORS: cors,
};

/** In the order in which they are written. */
export function filtersOf(filters: readonly SourceValue[], context: FilterContext): Filtered {
  const made: Filtered = { plugins: [] };
  for (const filter of filters) {
    const type = filter.text("type") ?? "";
    const count = made.plugins.length;
    const member =
      type === "CORS" ? "cors" : type === "URLRewrite" ? "urlRewrite" : type.replace(/^./, (c) => c.toLowerCase());
    const read = Object.hasOwn(FILTERS, type) ? FILTERS[type] : undefined;
    if (read === undefined) {
      filter.ignore(member);
      made.closed = type;
    } else read(filter.get(member), made, context);
    for (const plugin of made.plugins.slice(count)) context.draft.from(filter.at, plugin);
  }
  return made;
}

function headers(name: string, own: SourceValue): DraftPlugin[] {
  const seen = new Set<string>();
  const pairs = (action: string) =>
    Object.fromEntries(
      own
        .items(action)
        .map((item) => [item.text("name") ?? "", item.text("value") ?? ""] as const)
        .filter(([key]) => !seen.has(key.toLowerCase()) && seen.add(key.toLowerCase()))
        .map(([key, value]) => [key, fixedText(value)]),
    );
  const config = filled({ remove: own.texts("remove"), set: pairs("set"), add: pairs("add") });
  return Object.keys(config).length === 0 ? [] : [{ name, config }];
}

function mirror(own: SourceValue, made: Filtered, context: FilterContext): void {
  const backend = context.backendOf(own.get("backendRef"));
  if (typeof backend === "string") return own.leaveOut(`no copies are sent: ${backend}`);
  if (backend.protocol.startsWith("h2")) return own.leaveOut("no copies are sent: mirror speaks HTTP/1.1 only");
  const fraction = own.get("fraction");
  const [part, whole] = [fraction.number("numerator"), fraction.number("denominator") ?? 100];
  const percent = part === undefined ? own.number("percent") : Math.round((part / whole) * 10_000) / 100;
  const url = `${backend.protocol}://${backend.host}:${backend.port}`;
  made.plugins.push({ name: "mirror", config: filled({ url, percent }) });
}

/** `modifier`: the path of a redirect or a rewrite. Null: it cannot be said here, which closes the rule. */
function pathOf(modifier: SourceValue, { prefix }: FilterContext): Rewrite | undefined | null {
  const type = modifier.text("type");
  if (modifier.value === undefined) return undefined;
  if (type === "ReplaceFullPath") return { full: literal(modifier.text("replaceFullPath") ?? "/") || "/" };
  if (type !== "ReplacePrefixMatch" || prefix === null) return null;
  const to = literal((modifier.text("replacePrefixMatch") ?? "").replace(/\/+$/, ""));
  return { segments: prefix.length, to };
}

const PORTS: Readonly<Record<string, number>> = { http: 80, https: 443 };

/** The scheme of the request is written as "scheme", for `schemeOf` in `kube_routes.ts`. */
function redirect(own: SourceValue, made: Filtered, context: FilterContext): void {
  const path = pathOf(own.get("path"), context);
  const [scheme, host, port] = [own.text("scheme"), own.text("hostname"), own.number("port")];
  if (path === null) return void (made.closed = "RequestRedirect");
  const isOther = scheme !== undefined || host !== undefined || port !== undefined;
  const named = scheme ?? "scheme";
  const suffix = port === undefined || port === PORTS[named] ? "" : `:${port}`;
  const origin = isOther ? `${named}://${host ?? "${request.host}"}${suffix}` : "";
  made.redirect = { status: own.number("statusCode") ?? 302, origin, rewrite: path };
}

function rewrite(own: SourceValue, made: Filtered, context: FilterContext): void {
  const path = pathOf(own.get("path"), context);
  if (path === null) return void (made.closed = "URLRewrite");
  const isSame = path !== undefined && "to" in path && path.to === ["", ...(context.prefix ?? [])].join("/");
  if (path !== undefined && !isSame) made.rewrite = path;
  const host = own.get("hostname");
  if (host.text() === undefined) return;
  made.isHostReplaced = true;
  host.note("the upstream gets its own host and port as Host here, not this one");
}

const SIMPLE = ["GET", "HEAD", "POST"];

function cors(own: SourceValue, made: Filtered): void {
  const credentials = own.flag("allowCredentials") === true;
  const origins = own.texts("allowOrigins");
  const [methods, allowed, exposed] = ["allowMethods", "allowHeaders", "exposeHeaders"].map((name) =>
    own.texts(name),
  ) as [string[], string[], string[]];
  const isAny = origins.includes("*");
  if (credentials && isAny)
    own.get("allowCredentials").note("is not carried over: with credentials, write the origins that may read replies");
  const isStrict = credentials && !isAny;
  const without = (list: string[]) => (isStrict ? list.filter((each) => each !== "*") : list);
  // Without the list, the headers that a page asks for are allowed, which is what "*" is with credentials.
  const headers = isStrict && allowed.includes("*") ? {} : { allow_headers: allowed };
  const every = isStrict && methods.includes("*") ? ALL_METHODS : methods;
  made.plugins.push({
    name: "cors",
    config: {
      allow_origins: isAny ? ["*"] : origins,
      allow_methods: every.length === 0 ? SIMPLE : every,
      ...headers,
      expose_headers: without(exposed),
      ...(isStrict ? { allow_credentials: true } : {}),
      ...filled({ max_age: own.number("maxAge") }),
    },
  });
}

/** The segments of a path of Kubernetes, escaped where they would be a pattern. */
export function literalSegments(path: string): string[] {
  return segmentsOf(literal(path));
}
