/**
 * Stands in for the credentials of a caller whom a test of a configuration names (`as.caller`).
 */
import type { Middleware } from "../http/handler.ts";
import { problem } from "../http/reply.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { CallerRegistry } from "../plugins/callers.ts";

/** Tokens have claims, which stand in for them: `Tools.verifiedClaims`. */
const BY_CLAIMS: ReadonlySet<string> = new Set(["jwt", "introspection"]);

/** The middleware in place of the plugin's own; undefined: the plugin takes no part in it. `id`: of the instance. */
export function asCaller(
  caller: string,
  registry: CallerRegistry | null,
): (kind: AnyPlugin, config: unknown, id: string | null) => Middleware | undefined {
  return (kind, config, id) => {
    if (kind.identifies !== true || BY_CLAIMS.has(kind.name)) return undefined;
    const isKnown = kind.name !== "key_auth" || hasKey(config as KeyAuth, id, caller, registry);
    return (next) => (exchange) =>
      isKnown ? next(exchange.with({ identity: caller })) : problem(exchange.call, "key_invalid");
  };
}

interface KeyAuth {
  readonly callers?: boolean;
  readonly key?: string;
  readonly keys?: readonly { readonly id: string }[];
}

/** Whether one of the keys that this key_auth takes is the caller's. */
function hasKey(
  { callers, key, keys = [] }: KeyAuth,
  id: string | null,
  caller: string,
  registry: CallerRegistry | null,
): boolean {
  const known = callers === true ? registry?.withId(caller) : undefined;
  return (
    (known !== undefined && known.enabled && known.keys > 0) ||
    keys.some((each) => each.id === caller) ||
    (key !== undefined && (id ?? "default") === caller)
  );
}
