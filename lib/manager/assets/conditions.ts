/**
 * Writes conditions on a request (`match` of a route, a split or a fault) as texts, and finds a request that meets
 * them.
 */
import type { Condition, Conditions } from "./api.ts";
import { MASK } from "./setting_lines.ts";

const KINDS = [
  ["headers", "header"],
  ["query", "query"],
  ["cookies", "cookie"],
] as const;

/**
 * "header X-Version = 2", "query beta absent", "cookie plan matches ^gold": in the order headers, query, cookies,
 * scheme.
 */
export function conditionTexts(match: Conditions | undefined): readonly string[] {
  const named = KINDS.flatMap(([kind, word]) =>
    Object.entries(match?.[kind] ?? {}).map(([name, condition]) => `${word} ${name} ${conditionText(condition)}`),
  );
  const scheme = match?.scheme;
  if (scheme === undefined) return named;
  return [...named, `scheme ${typeof scheme === "string" ? `= ${scheme}` : `not = ${scheme.not}`}`];
}

/** " where header X-Version = 2 and query beta absent"; "" without conditions. */
export function whereText(match: Conditions | undefined): string {
  const texts = conditionTexts(match);
  return texts.length === 0 ? "" : ` where ${texts.join(" and ")}`;
}

function conditionText(condition: Condition): string {
  if (condition === null) return "absent";
  if (condition === true) return "present";
  if (typeof condition === "object" && "not" in condition) return `not ${conditionText(condition.not)}`;
  if (typeof condition === "object") return `matches ${condition.matches}`;
  return condition === "" ? "empty" : `= ${condition}`;
}

interface ConditionExample {
  /** "beta=1&plan=a%20b" */
  readonly query: string;
  /** One in each line: "X-Version: 2". */
  readonly headers: string;
}

/** The parts of a request that meet the conditions, as far as they name a value that is not masked. */
export function exampleFor(match: Conditions | undefined): ConditionExample {
  const given = (kind: (typeof KINDS)[number][0]): readonly (readonly [string, string])[] =>
    Object.entries(match?.[kind] ?? {}).flatMap(([name, condition]) => {
      const isPresent =
        condition === true ||
        (condition !== null && typeof condition === "object" && "not" in condition && condition.not === null);
      if (isPresent) return [[name, "1"] as const];
      return typeof condition === "string" && !condition.includes(MASK) ? [[name, condition] as const] : [];
    });
  const cookies = given("cookies").map(([name, value]) => `${name}=${value}`);
  const headers = given("headers").map(([name, value]) => `${name}: ${value}`);
  return {
    query: new URLSearchParams(given("query").map((pair) => [...pair])).toString(),
    headers: [...headers, ...(cookies.length === 0 ? [] : [`Cookie: ${cookies.join("; ")}`])].join("\n"),
  };
}
