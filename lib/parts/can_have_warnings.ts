/**
 * Tells from the text of a configuration whether there can be warnings about it, so that the code which finds them is loaded only then.
 */
import { valuesAt, type JsonNode } from "../config/json.ts";
import { UNFILLED } from "../config/load.ts";

/** What warnings are about, besides routes that no request reaches and secrets that look like templates. */
const CAUSES = ["global.plugins[]", "services[].plugins[]", "services[].routes[].plugins[]", "global.counters", "global.accept_warnings"];

/**
 * False: `configWarnings` finds none, if the configuration is accepted. True proves nothing.
 *
 * In one service without conditions each route is reached. Routes of one pattern have no method in common (`checkRoutes`). Of the paths that a
 * pattern matches, take one with texts that occur in no pattern in its placeholders, and with more of them in {name*} than any pattern is
 * long. Another pattern that matches it has no literal in the place of a placeholder. So it is less specific, and loses; unless it is longer,
 * and has {a}/{b*} where this one has {name*}.
 */
export function canHaveWarnings(document: JsonNode): boolean {
  const isNamed = (place: string) => valuesAt(document, place).length > 0;
  if (CAUSES.some(isNamed) || isNamed("services[].routes[].match") || valuesAt(document, "services[]").length > 1) return true;
  return textsOf(valuesAt(document, "services[].routes[].path").map(({ value }) => value)).some((path) => /[}>]\/[{<][^/]*\*/.test(path)) || textsOf([document]).some(isUnfilled);
}

/** Whatever fields are secrets. */
function isUnfilled(text: string): boolean {
  return UNFILLED.test(text.replaceAll("$${", "${"));
}

function textsOf(nodes: readonly JsonNode[]): readonly string[] {
  return nodes.flatMap((node) => {
    if (node.kind === "string") return node.value;
    return node.kind === "array" ? textsOf(node.items) : node.kind === "object" ? textsOf(Array.from(node.members.values(), ({ value }) => value)) : [];
  });
}
