/**
 * Configurations read with the fields of all features, and their routes checked with them, whatever has been loaded.
 */
import { loadConfig as load, type LoadOptions, type LoadResult } from "../../lib/config/load.ts";
import type { ConfigSource } from "../../lib/config/source.ts";
import { declarations, type RouteDeclaration, type RouteIssue } from "../../lib/config/declarations.ts";
import { CallerReader } from "../../lib/config/callers.ts";
import type { PluginKind } from "../../lib/config/model.ts";
import * as tests from "../../lib/config/read_tests.ts";
import * as references from "../../lib/config/references.ts";
import { CallerRegistry } from "../../lib/plugins/callers.ts";
import { ALL_FIELDS } from "../../lib/features/all.ts";
import { checkRoutes as check } from "../../lib/route/checks.ts";
import * as conditions from "../../lib/route/conditions.ts";
import * as ownErrors from "../../lib/gateway/own_errors.ts";
import * as upstreamPaths from "../../lib/route/upstream_path.ts";
import * as proxies from "../../lib/server/trusted_proxies.ts";
import { atOnce } from "../../lib/base/time_slices.ts";

/** For `match` and `upstream_path`, `trusted_proxies` and `errors`. */
export const routing = { ...conditions, ...upstreamPaths, ...proxies, ...ownErrors };

export interface CheckedOptions<K extends PluginKind = PluginKind> extends LoadOptions<K> {
  /** Default: the routes are not checked. */
  readonly checkRoutes?: (declarations: readonly RouteDeclaration[]) => readonly RouteIssue[];
}

export function loadConfig<K extends PluginKind>(
  source: ConfigSource,
  { checkRoutes = () => [], ...options }: CheckedOptions<K>,
) {
  const readRoutes: LoadOptions["readRoutes"] = function* (root, sources) {
    const declared = yield* declarations(root, sources, ALL_FIELDS);
    return { declared, issues: checkRoutes(declared) };
  };
  const result: LoadResult<K> = load(source, {
    features: ALL_FIELDS,
    tests,
    callers: new CallerReader(),
    references,
    readRoutes,
    ...options,
  });
  return result.ok
    ? { ...result, callers: result.callerLists && new CallerRegistry(result.callerLists), routing }
    : result;
}

export function checkRoutes(declarations: readonly RouteDeclaration[]): RouteIssue[] {
  return atOnce(check(declarations, conditions));
}
