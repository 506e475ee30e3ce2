/**
 * Turns what a route of Kong asks of a request beside its path and methods into conditions (`match`).
 */
import * as references from "../../config/references.ts";
import { CONDITIONS, type ConditionsConfig } from "../../config/conditions.ts";
import { nodeFrom } from "../../config/json.ts";
import { accepts } from "../../config/schema_further.ts";
import { HOST } from "./draft.ts";
import type { SourceValue } from "./source_value.ts";

/**
 * Why requests that Kong tells apart cannot be told apart here; leaving the condition out would let more of them
 * through.
 */
export function whyUnroutable(route: SourceValue): string | undefined {
  const wrong = ["hosts", "methods", "paths", "protocols"].find((name) => !route.isTexts(name));
  if (wrong !== undefined) return `"${wrong}" is no list of texts`;
  const condition = ["snis", "sources", "destinations", "expression"].find((name) => isGiven(route.get(name)));
  if (condition !== undefined) return `it matches by "${condition}"`;
  const match = matchOf(route);
  if (match !== undefined && !accepts(CONDITIONS, nodeFrom(match), references))
    return 'it matches by "headers" that cannot be conditions here';
  if (match?.headers !== undefined)
    route
      .get("headers")
      .note(
        "values are compared with case here, and a longer path goes before headers: " +
          "a request that fits none gets 404, and no route of a shorter path",
      );
  const protocols = route.texts("protocols");
  const odd = protocols.find((name) => !/^(https?|grpcs?|wss?)$/.test(name));
  if (odd !== undefined) return `the protocol "${odd}" is not served`;
  if (schemeOf(route) === "https")
    route
      .get("protocols")
      .note(
        "requests over HTTP get 404 here, unless global.https_redirect redirects all of them; " +
          "a proxy that ends TLS has to be in global.trusted_proxies",
      );
  const host = route.texts("hosts").find((each) => !HOST.test(each));
  return host === undefined ? undefined : `the host "${host}" has a port, or a wildcard that is not its first label`;
}

function isGiven({ value }: SourceValue): boolean {
  return value !== undefined && Object.keys(Object(value)).length > 0;
}

/**
 * The headers and the scheme of a route as conditions, which may be invalid: each header has a list of values, of which
 * one has to fit.
 */
export function matchOf(route: SourceValue): Partial<ConditionsConfig> | undefined {
  const headers = route.get("headers");
  const scheme = schemeOf(route);
  const ofScheme = scheme === undefined ? undefined : { scheme };
  if (!isGiven(headers)) return ofScheme;
  const wanted = (values: SourceValue) => {
    const texts = values.isTexts() ? values.texts() : [];
    // "~*" begins a regular expression, which ignores case.
    if (texts.length === 0 || texts.some((text) => text.startsWith("~*"))) return null;
    return texts.length === 1 ? texts[0]!.replaceAll("${", () => "$${") : oneOfTexts(texts);
  };
  const conditions = Object.keys(Object(headers.value)).map((name) => [name, wanted(headers.get(name))] as const);
  const isValid = conditions.every(([, value]) => value !== null);
  return isValid
    ? ({ headers: Object.fromEntries(conditions), ...ofScheme } as Partial<ConditionsConfig>)
    : { headers: {} };
}

/** The only scheme of the protocols of a route. */
function schemeOf(route: SourceValue): "http" | "https" | undefined {
  const schemes = new Set(
    route.texts("protocols").map((name) => (name.endsWith("s") ? ("https" as const) : ("http" as const))),
  );
  return schemes.size === 1 ? [...schemes][0] : undefined;
}

/** The route table reads the texts from this form. */
export function oneOfTexts(texts: readonly string[]): { readonly matches: string } {
  return { matches: `^(?:${texts.map(quoted).join("|")})$` };
}

/** As a part of a regular expression that matches this text. */
function quoted(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}
