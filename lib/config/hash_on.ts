/**
 * The schemas of what sends equal requests to the same upstream: `hash_on`, and cookies (`sticky`).
 */
import { TOKEN } from "../base/http_grammar.ts";
import { suggest } from "../base/suggest.ts";
import { integer } from "./fields.ts";
import type { Path } from "./json.ts";
import * as s from "./schema.ts";

/** What stands alone, and what has a name behind it, with an example. */
const ALONE = ["client_ip", "credential"];
const NAMED: ReadonlyMap<string, string> = new Map([["header", "X-Tenant"], ["cookie", "session"], ["param", "user_id"]]);

export const HASH_ON = s.string({
  references: "none",
  hint: '"client_ip", "credential", "header:<name>", "cookie:<name>" or "param:<name>"',
  describe: "Part of a request: equal ones go to the same upstream or group. By address (IPv6 by /64), identity, header, cookie or path parameter.",
  check(text) {
    if (ALONE.includes(text)) return undefined;
    const colon = text.indexOf(":");
    const [kind, name] = colon < 0 ? [text, ""] : [text.slice(0, colon), text.slice(colon + 1)];
    const example = NAMED.get(kind);
    if (example === undefined) {
      const nearest = suggest(kind, [...ALONE, ...NAMED.keys()]);
      return nearest === undefined ? "" : `did you mean "${nearest}${NAMED.has(nearest) && name !== "" ? `:${name}` : ""}"?`;
    }
    if (name === "") return `write a name behind it, as in "${kind}:${example}"`;
    if (kind === "param") return PARAMETER.test(name) ? undefined : `write the placeholder's name alone, as in "param:${example}"`;
    return TOKEN.test(name) ? undefined : `"${name}" cannot be the name of a ${kind}`;
  },
});

/** As in patterns, without the braces. */
const PARAMETER = /^[A-Za-z_]\w*$/;

export const HASH_BALANCE_FACTOR = s.integer({ min: 0, max: 1000, describe: "Most load of an upstream in percent of the mean, 101–1000; 0, the default: no bound. For hash and ip_hash." });

export const STICKY = s.object(
  {
    cookie: s.withDefault(
      s.string({
        references: "none",
        max: 200,
        hint: "the name of a cookie",
        describe: "Name of the cookie.",
        check(text) {
          if (!TOKEN.test(text)) return "";
          return /^__Host-/i.test(text) ? "browsers refuse it with the path of a service; leave __Host- out" : undefined;
        },
      }),
      "route",
    ),
    ttl_s: integer(0, 31_536_000, 0, "How long a client stays with its upstream, in seconds; 0: until its browser is closed."),
    secret: s.optional(s.string({ min: 32, max: 1000, secret: true, describe: "Signs the cookies; default: random, for as long as the gateway runs." })),
  },
  { describe: "A cookie leads each client back to the upstream that answered it." },
);

interface Hashing {
  readonly basePath: string;
  readonly routes: readonly { readonly path: string }[];
  readonly loadBalancingStrategy: string;
  readonly hashOn?: string;
  readonly hashBalanceFactor?: number;
}

/** Reports settings of a service that do not fit each other. */
export function checkHashing({ basePath, routes, loadBalancingStrategy, hashOn, hashBalanceFactor = 0 }: Hashing, report: (message: string, ...under: Path) => void): void {
  const isHash = loadBalancingStrategy === "hash";
  if (isHash && hashOn === undefined) report('needs "hash_on" beside it, such as "header:X-Tenant"', "load_balancing_strategy");
  if (!isHash && hashOn !== undefined) report(`is for load_balancing_strategy "hash"; this service has "${loadBalancingStrategy}"`, "hash_on");
  const problem = hashOn === undefined ? undefined : parameterProblem(hashOn, [basePath, ...routes.map(({ path }) => path)]);
  if (problem !== undefined) report(problem, "hash_on");
  if (hashBalanceFactor === 0) return;
  if (hashBalanceFactor < 101) report(`expected 0 or 101–1000, found ${hashBalanceFactor}: no distribution keeps every upstream below the mean`, "hash_balance_factor");
  if (!isHash && loadBalancingStrategy !== "ip_hash") {
    report(`is for load_balancing_strategy "hash" and "ip_hash"; this service has "${loadBalancingStrategy}"`, "hash_balance_factor");
  }
}

interface Cookied {
  readonly name: string;
  readonly basePath: string;
  readonly hosts: readonly string[];
  readonly sticky?: { readonly cookie: string };
}

/** Reports services whose cookies a browser would take for one: each would replace the other's. */
export function checkCookies(services: readonly Cookied[], report: (message: string, ...under: Path) => void): void {
  services.forEach(({ basePath, hosts, sticky }, i) => {
    if (sticky === undefined) return;
    const isSame = (other: Cookied) =>
      other.sticky?.cookie === sticky.cookie &&
      other.basePath === basePath &&
      (hosts.length === 0 ? other.hosts.length === 0 : hosts.some((host) => other.hosts.includes(host)));
    const first = services.slice(0, i).find(isSame);
    if (first === undefined) return;
    report(`replaces the cookie of service "${first.name}", which has the same name and base_path: set another "cookie"`, "services", i, "sticky");
  });
}

/** Undefined unless `hashOn` names a path parameter that none of the patterns has. */
export function parameterProblem(hashOn: string, patterns: readonly string[]): string | undefined {
  const name = hashOn.startsWith("param:") ? hashOn.slice("param:".length) : undefined;
  const names = new Set(patterns.flatMap((pattern) => Array.from(pattern.matchAll(PLACEHOLDER), ([, found]) => found!)));
  if (name === undefined || names.has(name)) return undefined;
  const nearest = suggest(name, names);
  return `no route of this service has a placeholder {${name}}${nearest === undefined ? "" : `: did you mean "param:${nearest}"?`}`;
}

/** `{name}`, `{name*}`, `<name>`, `<name*>`. */
const PLACEHOLDER = /[{<](\w+)\*?[}>]/g;
