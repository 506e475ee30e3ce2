/**
 * The routes of a configuration that may be invalid, so that their patterns and conflicts are reported together with
 * all other errors.
 */
import { formatPath, itemsOf, nodeAt, type JsonNode, type Path } from "./json.ts";
import { defaultRouteName, type Route } from "./model.ts";
import type { FeatureSchemas } from "./feature_schemas.ts";
import { fieldsOf, type FeatureFields } from "./feature_fields.ts";
import { INVALID, type Sources } from "./schema_core.ts";

/** The readable part of a route in a configuration that may be invalid. */
export interface RouteDeclaration {
  /** `basePath` is null when it cannot be read: the route's own pattern can still be checked. */
  readonly service: {
    readonly name: string;
    readonly basePath: string | null;
    readonly hosts: readonly string[];
    readonly at: Path;
  };
  /** No methods: all of them. */
  readonly route: Pick<Route, "name" | "path" | "methods"> & {
    readonly match?: Route["match"] | undefined;
    readonly at: Path;
  };
}

/** An error of a declared route: its own pattern, or a conflict with another route. */
export interface RouteIssue {
  readonly at: Path;
  readonly message: string;
}

export interface RoutesRead {
  readonly declared: readonly RouteDeclaration[];
  readonly issues: readonly RouteIssue[];
}

/**
 * The routes as far as they can be read, so that their patterns are checked together with everything else. Missing and
 * wrong paths are left out: the schema reports them. `known`: services that have nothing which could
 * be wrong.
 */
export function* declarations(
  root: JsonNode,
  sources: Sources,
  features: readonly FeatureFields[] = [],
  known: ReadonlySet<JsonNode> = new Set(),
): Generator<void, RouteDeclaration[]> {
  const matchSchema = fieldsOf<FeatureSchemas>(features)("match");
  const nameIn =
    sources.references?.nameIn ?? ((node: JsonNode | undefined) => (node?.kind === "string" ? node.value : undefined));
  const texts = (nodes: readonly JsonNode[]) => nodes.map(nameIn).filter((found) => found !== undefined);
  const path = (node: JsonNode | undefined) => {
    const found = nameIn(node);
    return found?.startsWith("/") ? found : undefined;
  };
  const declared: RouteDeclaration[] = [];
  for (const [i, service] of itemsOf(nodeAt(root, ["services"])).entries()) {
    if (known.has(service)) continue;
    yield* service.readSteps?.() ?? [];
    const basePath = path(nodeAt(service, ["base_path"])) ?? null;
    const hosts = texts(itemsOf(nodeAt(service, ["hosts"]))).map((host) => host.toLowerCase());
    const at: Path = ["services", i];
    const declaredService = { name: nameIn(nodeAt(service, ["name"])) ?? formatPath(at), basePath, hosts, at };
    for (const [j, route] of itemsOf(nodeAt(service, ["routes"])).entries()) {
      if (j % ROUTES_OF_A_STEP === 0) yield;
      const routePath = path(nodeAt(route, ["path"]));
      const written = itemsOf(nodeAt(route, ["methods"]));
      const methods = texts(written);
      const conditions = nodeAt(route, ["match"]);
      const match =
        conditions === undefined ? undefined : matchSchema.check(conditions, [], { issues: [], sources, root });
      // Without its invalid methods or conditions the route would appear to accept all requests.
      if (routePath === undefined || methods.length < written.length || match === INVALID) continue;
      const name = nameIn(nodeAt(route, ["name"])) ?? defaultRouteName(methods, routePath);
      const place = at.concat("routes", j);
      declared.push({ service: declaredService, route: { name, path: routePath, methods, match, at: place } });
    }
  }
  return declared;
}

/** Less than a millisecond of work. */
export const ROUTES_OF_A_STEP = 100;
