/**
 * The path that an upstream is asked for, where it is another one than the path below base_path: `upstream_path` of
 * services, which is put before it, and of routes, which replaces it.
 */
import type { Route, Service } from "../config/model.ts";
import type { FeatureFields, Report } from "../config/feature_fields.ts";
import { ROUTE_PATH, SERVICE_PATH } from "../config/upstream_path.ts";
import type { UpstreamPath } from "./contracts.ts";
import { comparable, normalisePath } from "./path.ts";
import { parsePattern, type Segment } from "./pattern.ts";

/** Undefined: the path below base_path. */
export function upstreamPath(
  { basePath, upstreamPath: written = "/" }: Service,
  route: Route,
): UpstreamPath | undefined {
  const prefix = written.replace(/\/$/, "");
  const template = route.upstreamPath;
  if (template === undefined && prefix === "") return undefined;
  const pattern = patternOf(basePath, route.path) ?? { base: [], below: [] };
  const before = literals(prefix);
  if (template === undefined)
    return { of: (_params, below) => prefix + below || "/", segments: [...before, ...pattern.below], isOfRoute: false };
  const parameters = parametersOf(pattern);
  const segments = segmentsOf(template).map(
    (text) => parameters.get(nameOf(text) ?? "") ?? { kind: "literal" as const, text: comparable(text) },
  );
  const parts = (prefix + template).split(/\{(\w+)\}/);
  const endsInRest = segments.at(-1)?.kind === "rest";
  const of: UpstreamPath["of"] = (params, below) => {
    let path = parts[0]!;
    for (let i = 1; i < parts.length; i += 2) path += params[parts[i]!]! + parts[i + 1]!;
    // A "/" at the end belongs to the rest, which is never empty.
    return endsInRest && below.endsWith("/") ? `${path}/` : path;
  };
  return { of, segments: [...before, ...segments], isOfRoute: true };
}

export const fields: FeatureFields = {
  schemas: { upstream_path: SERVICE_PATH, route_upstream_path: ROUTE_PATH },
  checkService({ basePath, upstreamPath: prefix, routes }: Service, report) {
    if (prefix !== undefined) check(prefix, NO_PARAMETERS, (message) => report(message, "upstream_path"));
    routes.forEach((route, i) => {
      const pattern = patternOf(basePath, route.path);
      if (route.upstreamPath === undefined || pattern === null) return;
      check(route.upstreamPath, parametersOf(pattern), (message) => report(message, "routes", i, "upstream_path"));
    });
  },
};

/** A service's: it has no parameters, since its routes have different ones. */
const NO_PARAMETERS: Parameters = new Map();

function check(written: string, parameters: Parameters, report: Report): void {
  const texts = segmentsOf(written);
  texts.forEach((text, i) => {
    const isRepeated = nameOf(text) !== undefined && texts.indexOf(text) < i;
    const problem = isRepeated
      ? "stands there twice: a parameter can be inserted once"
      : problemOf(text, parameters, written.endsWith(text));
    if (problem !== undefined) report(`${JSON.stringify(text)} ${problem}`);
  });
}

function problemOf(text: string, parameters: Parameters, isLast: boolean): string | undefined {
  const name = nameOf(text);
  if (name !== undefined) {
    const kind = parameters.get(name)?.kind;
    if (kind === "rest" && !isLast)
      return 'stands for the rest of the path, a "/" at its end included: nothing can stand behind it';
    if (kind !== undefined) return undefined;
    if (parameters === NO_PARAMETERS)
      return "cannot stand in the upstream_path of a service: its routes can have an upstream_path of their own";
    const known = [...parameters.keys()].map((each) => `"{${each}}"`).join(", ");
    return `is no parameter of base_path and path: ${known === "" ? "they have none" : `they have ${known}`}`;
  }
  if (/^\{\w+\*\}$/.test(text)) return `needs no "*" here: write "${text.replace("*", "")}"`;
  if (/[{}]/.test(text))
    return (
      "mixes text and parameters: a parameter is a whole segment, " +
      'like "{id}" (%7B and %7D are the braces themselves)'
    );
  if (/^(:\w+|\*+|\$\d)$/.test(text))
    return 'is no parameter: a parameter is written like "{id}" (%3A, %2A and %24 are the characters themselves)';
  if (text === "") return 'is an empty segment: write "/" once';
  if (/[?#]/.test(text))
    return 'has a "?" or a "#": the query of the client is forwarded as it is, and none can be added';
  const normal = normalisePath(`/${text}`);
  if ("code" in normal) return `cannot be forwarded: ${normal.detail}`;
  if (normal.encodedSlash) return 'has an encoded "/", which some servers read as "/": write "/"';
  return normal.path === `/${text}`
    ? undefined
    : `is not in the form in which paths are forwarded: write "${normal.path.slice(1)}"`;
}

/** "/a/{id}/" has two: a "/" at the end is forwarded, and is no segment. */
function segmentsOf(text: string): readonly string[] {
  return text.length < 2 ? [] : text.slice(1).replace(/\/$/, "").split("/");
}

function literals(prefix: string): readonly Segment[] {
  return segmentsOf(prefix).map((text) => ({ kind: "literal", text: comparable(text) }));
}

function nameOf(segment: string): string | undefined {
  return /^\{(\w+)\}$/.exec(segment)?.[1];
}

type Parameters = ReadonlyMap<string, Segment>;

function parametersOf({ base, below }: Pattern): Parameters {
  return new Map(
    [...base, ...below].flatMap((segment) => (segment.kind === "literal" ? [] : [[segment.name, segment] as const])),
  );
}

interface Pattern {
  readonly base: readonly Segment[];
  readonly below: readonly Segment[];
}

/** Null where one of the patterns is wrong, which is reported elsewhere. */
function patternOf(basePath: string, path: string): Pattern | null {
  const base = parsePattern(basePath, "base_path");
  const below = "error" in base ? base : parsePattern(path, "path", base.segments);
  return "error" in base || "error" in below ? null : { base: base.segments, below: below.segments };
}
