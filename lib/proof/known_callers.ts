/**
 * Which plugins can identify a caller, by the configuration alone; and the warning about callers whom none can.
 */
import type { Caller } from "../config/caller_list.ts";
import type { ValidConfig } from "../gateway/compile_types.ts";
import type { PluginOwner } from "../gateway/compile_types.ts";
import type { ConfigWarning } from "../gateway/status.ts";
import type { WrittenPlugin } from "./written.ts";

export interface Identifying {
  readonly plugin: PluginOwner & { readonly kind: string };
  /** Everybody, everybody with a key in the registry, or those with these ids. */
  readonly whom: "all" | "keys" | ReadonlySet<string>;
}

interface Named {
  readonly id?: string;
  readonly username?: string;
}

/** The plugins that identify callers. One whose tokens, certificates or answers may name anybody knows all. */
export function identifying(plugins: readonly WrittenPlugin[]): readonly Identifying[] {
  return plugins
    .filter(({ kind }) => kind.identifies === true)
    .map(({ kind: { name }, config, service, route, id }) => {
      const plugin = {
        kind: name,
        service,
        route,
        level: service === null ? "global" : route === null ? "service" : "route",
      } as const;
      const {
        callers,
        key,
        keys = [],
        username,
        users = [],
      } = config as {
        callers?: boolean;
        key?: string;
        keys?: readonly Named[];
        username?: string;
        users?: readonly Named[];
      };
      if (name === "key_auth" && callers === true) return { plugin, whom: "keys" };
      if (name !== "key_auth" && name !== "basic_auth") return { plugin, whom: "all" };
      return {
        plugin,
        whom: new Set(
          [...keys, ...users]
            .map((each) => each.id ?? each.username!)
            .concat(key === undefined ? [] : (id ?? "default"), username ?? []),
        ),
      };
    });
}

export function knows({ whom }: Pick<Identifying, "whom">, { id, keys }: Caller): boolean {
  return typeof whom === "string" ? whom === "all" || keys > 0 : whom.has(id);
}

/** One for each caller whom no plugin can identify; of more than a few, one for the rest. A step for each caller. */
export function* ofCallers(
  { callers, callerFiles }: ValidConfig,
  plugins: readonly WrittenPlugin[],
): Generator<undefined, readonly ConfigWarning[]> {
  if (callers === null) return [];
  // A caller is looked up in one of each: there may be a million callers, and ten thousand plugins.
  const kinds = new Set(identifying(plugins).map(({ whom }) => whom));
  const ids = new Set(Array.from(kinds).flatMap((whom) => (typeof whom === "string" ? [] : [...whom])));
  const known = [...Array.from(kinds).filter((whom) => typeof whom === "string"), ids].map((whom) => ({ whom }));
  /** Of the first ones that are told. */
  const unused: { readonly id: string; readonly at: ConfigWarning["at"] }[] = [];
  let rest = -MAX_TOLD;
  for (const list of callers.lists) {
    const at = list.file === undefined ? ["callers"] : ["caller_files", callerFiles.indexOf(list.file)];
    for (const caller of list.callers) {
      yield;
      if (known.some((each) => knows(each, caller))) continue;
      if (rest++ <= 0) unused.push({ id: caller.id, at: list.file === undefined ? [...at, caller.index] : at });
    }
  }
  const remedy =
    'Give the caller a key and a key_auth with "callers": true, add a plugin that identifies it, or remove it.';
  const warning = (path: string, message: string, at: ConfigWarning["at"]) =>
    ({ code: "caller_unused", path, message, example: null, remedy, service: null, route: null, at }) as const;
  const told = unused
    .slice(0, MAX_TOLD)
    .map(({ id, at }) =>
      warning(`callers.${id}`, `No plugin can identify the caller ${JSON.stringify(id)}: it has no effect.`, at),
    );
  return rest > 0
    ? [
        ...told,
        warning(
          "callers",
          `No plugin can identify ${rest} more ${rest === 1 ? "caller" : "callers"}.`,
          unused[MAX_TOLD]!.at,
        ),
      ]
    : told;
}

const MAX_TOLD = 20;
