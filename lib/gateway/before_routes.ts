/**
 * Lets global plugins complete what is answered before a route is known, such as 404.
 */
import { Exchange, type Call } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";
import { composeChain } from "../plugins/chain.ts";
import type { BeforeRoutes, PluginContext, PluginLink } from "./compile_types.ts";

/**
 * The global instances that take preflights also see what is answered before a route is known: pages of other origins
 * could else not read why. Null: there are none.
 */
export function beforeRoutes(
  globals: readonly PluginLink[],
  { runtime, onFault }: Pick<PluginContext, "runtime" | "onFault">,
): BeforeRoutes | null {
  const links = globals.filter(({ kind }) => kind.takes === "preflights");
  if (links.length === 0) return null;
  const replies = new WeakMap<Call, Reply>();
  const handler = composeChain(links, ({ call }) => replies.get(call)!, runtime.clock, onFault);
  return (inbound, reply) => {
    replies.set(inbound.call, reply);
    const { httpVersion, scheme, authority, clientAddress, headers, method, target, trailers, call } = inbound;
    const known = { httpVersion, scheme, authority, clientAddress, headers, method, target, trailers, call };
    return handler(new Exchange({ ...known, ...UNROUTED }));
  };
}

const UNROUTED = {
  path: "/",
  upstreamPath: "/",
  query: "",
  params: {},
  service: { name: "", basePath: "/" },
  route: { name: "", path: "/" },
  identity: null,
  claims: null,
  groups: [],
  body: null,
  upgrade: null,
} as const;
