/**
 * Answers requests for the metadata of the protected resources that plugins describe (RFC 9728 §3), without a key and
 * before routes: a route of the same path does not get them.
 */
import { formatPath, type Path } from "../config/json.ts";
import type { PluginInstance } from "../config/model.ts";
import { placesIn } from "../config/places.ts";
import { givenAuthority } from "../http/given_origin.ts";
import type { AnyPlugin, ProtectedResource } from "../plugins/plugin.ts";
import { hostOf } from "../route/tree.ts";
import type { EarlyAnswer, ValidConfig } from "./compile_types.ts";
import { ConfigError } from "./config_error.ts";

/**
 * Null: no plugin describes a resource. Throws a `ConfigError` for two of one path and host, whatever their ports: a
 * client could not tell which one it reads.
 */
export function resourceAnswers(valid: Pick<ValidConfig, "config" | "kinds" | "source">): EarlyAnswer | null {
  const described = new Map<string, Described>();
  const ofHosts = new Map<string, ProtectedResource[]>();
  for (const each of describedBy(valid)) {
    const { resource } = each;
    const host = hostOf(resource.authority);
    const other = described.get(host + resource.path);
    if (other !== undefined) throw twice(other, each, valid);
    described.set(host + resource.path, each);
    ofHosts.set(host, [...(ofHosts.get(host) ?? []), resource]);
  }
  if (described.size === 0) return null;
  const byPlace = new Map(Array.from(described, ([place, { resource }]) => [place, resource]));
  for (const [host, [only, ...others]] of ofHosts) if (others.length === 0) byPlace.set(host + only!.rootPath, only!);
  return ({ call, method, headers, target }, authority) => {
    if (!target.includes(WELL_KNOWN)) return null;
    const path = target.replace(AROUND_PATH, "");
    const host = hostOf(givenAuthority({ call, headers, authority }));
    return byPlace.get(host + path)?.answer({ call, method, headers }) ?? null;
  };
}

/** RFC 8615. */
const WELL_KNOWN = "/.well-known/";
/** The origin of a target in absolute-form (RFC 9112 §3.2.2), the query, and a slash at the end of the path. */
const AROUND_PATH = /^[a-zA-Z]+:\/\/[^/?]*|\/?(?:\?.*)?$/g;

interface Described {
  readonly resource: ProtectedResource;
  readonly at: Path;
}

function describedBy({ config: { global, services }, kinds }: Pick<ValidConfig, "config" | "kinds">): Described[] {
  const describing = new Map(kinds.filter(({ resource }) => resource !== undefined).map((kind) => [kind.name, kind]));
  if (describing.size === 0) return [];
  return [
    ...inList(global.plugins, ["global"], describing),
    ...services.flatMap(({ plugins, routes }, i) => [
      ...inList(plugins, ["services", i], describing),
      ...routes.flatMap((route, j) => inList(route.plugins, ["services", i, "routes", j], describing)),
    ]),
  ];
}

function inList(
  plugins: readonly PluginInstance[],
  owner: Path,
  describing: ReadonlyMap<string, AnyPlugin>,
): readonly Described[] {
  return plugins.flatMap(({ name, enabled, config }, i) => {
    const resource = enabled ? describing.get(name)?.resource?.(config) : undefined;
    return resource === undefined ? [] : { resource, at: [...owner, "plugins", i, "config", "resource_metadata"] };
  });
}

function twice(one: Described, other: Described, { source }: Pick<ValidConfig, "source">): ConfigError {
  const [first = null, second = null] = placesIn(source, [one.at, other.at]);
  const issue = ({ at, resource }: Described, position: typeof first, beside: Described) => ({
    at: [...at, "resource"],
    message:
      `has its metadata at ${resource.path}, as that of ${formatPath(beside.at)} has: describe a resource once, ` +
      `with a plugin of the service or of "global" that all its routes have`,
    position,
  });
  return new ConfigError([issue(one, first, other), issue(other, second, one)], source.file);
}
