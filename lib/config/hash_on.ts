/**
 * The schema of `hash_on`: which part of a request sends equal ones to the same upstream.
 */
import { TOKEN } from "../base/http_grammar.ts";
import { suggest } from "../base/suggest.ts";
import { droppedProblem } from "./dropped_names.ts";
import type { FeatureFields, Report } from "./feature_fields.ts";
import * as s from "./schema.ts";

/** What stands alone, and what has a name behind it, with an example. */
const ALONE = ["client_ip", "credential"];
const NAMED: ReadonlyMap<string, string> = new Map([
  ["header", "X-Tenant"],
  ["cookie", "session"],
  ["param", "user_id"],
]);

export const HASH_ON = s.string({
  references: "none",
  hint: '"client_ip", "credential", "header:<name>", "cookie:<name>" or "param:<name>"',
  describe:
    "Part of a request: equal ones go to the same upstream or group. By address (IPv6 by /64), identity, " +
    "header, cookie or path parameter.",
  check(text, context) {
    if (ALONE.includes(text)) return undefined;
    const colon = text.indexOf(":");
    const [kind, name] = colon < 0 ? [text, ""] : [text.slice(0, colon), text.slice(colon + 1)];
    const example = NAMED.get(kind);
    if (example === undefined) {
      const nearest = suggest(kind, [...ALONE, ...NAMED.keys()]);
      return nearest === undefined
        ? ""
        : `did you mean "${nearest}${NAMED.has(nearest) && name !== "" ? `:${name}` : ""}"?`;
    }
    if (name === "") return `write a name behind it, as in "${kind}:${example}"`;
    if (kind === "param")
      return PARAMETER.test(name) ? undefined : `write the placeholder's name alone, as in "param:${example}"`;
    if (!TOKEN.test(name)) return `"${name}" cannot be the name of a ${kind}`;
    return kind === "header" ? droppedProblem(name, context) : undefined;
  },
});

/** As in patterns, without the braces. */
const PARAMETER = /^[A-Za-z_]\w*$/;

export const HASH_BALANCE_FACTOR = s.integer({
  min: 0,
  max: 1000,
  describe:
    "Most load of an upstream in percent of the mean, 101–1000; 0, the default: no bound. For hash and ip_hash.",
});

interface Hashing {
  readonly basePath: string;
  readonly routes: readonly { readonly path: string }[];
  readonly loadBalancingStrategy: string;
  readonly hashOn?: string;
  readonly hashBalanceFactor?: number;
}

/** Reports settings of a service that do not fit each other. */
function checkHashing(
  { basePath, routes, loadBalancingStrategy, hashOn, hashBalanceFactor = 0 }: Hashing,
  report: Report,
): void {
  const isHash = loadBalancingStrategy === "hash";
  if (isHash && hashOn === undefined)
    report('needs "hash_on" beside it, such as "header:X-Tenant"', "load_balancing_strategy");
  if (!isHash && hashOn !== undefined)
    report(`is for load_balancing_strategy "hash"; this service has "${loadBalancingStrategy}"`, "hash_on");
  const problem =
    hashOn === undefined ? undefined : parameterProblem(hashOn, [basePath, ...routes.map(({ path }) => path)]);
  if (problem !== undefined) report(problem, "hash_on");
  if (hashBalanceFactor === 0) return;
  if (hashBalanceFactor < 101)
    report(
      `expected 0 or 101–1000, found ${hashBalanceFactor}: no distribution keeps every upstream below the mean`,
      "hash_balance_factor",
    );
  if (!isHash && loadBalancingStrategy !== "ip_hash") {
    report(
      `is for load_balancing_strategy "hash" and "ip_hash"; this service has "${loadBalancingStrategy}"`,
      "hash_balance_factor",
    );
  }
}

/** Undefined unless `hashOn` names a path parameter that none of the patterns has. */
export function parameterProblem(hashOn: string, patterns: readonly string[]): string | undefined {
  const name = hashOn.startsWith("param:") ? hashOn.slice("param:".length) : undefined;
  const names = new Set(
    patterns.flatMap((pattern) => Array.from(pattern.matchAll(PLACEHOLDER), ([, found]) => found!)),
  );
  if (name === undefined || names.has(name)) return undefined;
  const nearest = suggest(name, names);
  return (
    `no route of this service has a placeholder ` +
    `{${name}}${nearest === undefined ? "" : `: did you mean "param:${nearest}"?`}`
  );
}

/** `{name}`, `{name*}`, `<name>`, `<name*>`. */
const PLACEHOLDER = /[{<](\w+)\*?[}>]/g;

export const fields: FeatureFields = {
  schemas: { hash_on: HASH_ON, hash_balance_factor: HASH_BALANCE_FACTOR },
  checkService: checkHashing,
};
