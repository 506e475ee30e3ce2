/** Objects of Kubernetes for specs, and a gateway that serves what is imported from them. */
import { backend, running } from "../../support/gateway.ts";
import type { Origin } from "../../support/origin.ts";
import { ask } from "../../support/raw_client.ts";
import { fromKubernetes, type Result } from "./imported.ts";

type Fields = Readonly<Record<string, unknown>>;

const GATEWAY_API = "gateway.networking.k8s.io/v1";

export function object(kind: string, name: string, spec: Fields, metadata: Fields = {}): object {
  const version =
    kind === "Service"
      ? "v1"
      : kind === "Ingress"
        ? "networking.k8s.io/v1"
        : kind === "ReferenceGrant"
          ? "gateway.networking.k8s.io/v1beta1"
          : GATEWAY_API;
  return { apiVersion: version, kind, metadata: { name, namespace: "shop", ...metadata }, spec };
}

export const service = (name: string, spec: Fields = {}, metadata: Fields = {}) =>
  object("Service", name, { ports: [{ name: "web", port: 80, targetPort: 8080 }], ...spec }, metadata);

export const listener = (name: string, more: Fields = {}) => ({ name, port: 80, protocol: "HTTP", ...more });
export const SECURE = { port: 443, protocol: "HTTPS" };

export const gateway = (listeners: readonly object[] = [listener("web")], name = "front", metadata: Fields = {}) =>
  object("Gateway", name, { gatewayClassName: "any", listeners }, metadata);

export const to = (name: string, more: Fields = {}) => ({ name, port: 80, ...more });
/** A rule for a Service. */
export const rule = (name: string, ...matches: readonly object[]) => ({
  ...(matches.length === 0 ? {} : { matches }),
  backendRefs: [to(name)],
});
export const prefix = (value: string, more: Fields = {}) => ({ path: { type: "PathPrefix", value }, ...more });
export const exact = (value: string, more: Fields = {}) => ({ path: { type: "Exact", value }, ...more });
export const header = (name: string, value: string) => ({ name, value });

export const route = (name: string, rules: readonly object[], spec: Fields = {}, metadata: Fields = {}) =>
  object("HTTPRoute", name, { parentRefs: [{ name: "front" }], rules, ...spec }, metadata);

/** The Services of most cases. */
export const SERVICES = ["blue", "green", "red"].map((name) => service(name));

/** Sends `"POST /a?b"` with headers; resolves with `"blue POST /a?b"`, or the status and location of another reply. */
export type Send = (request: string, headers?: Readonly<Record<string, string>>) => Promise<string>;

/** Serves a result before a stand-in for each upstream; `seen` has the headers of what reached them last. */
export async function serve({ services, global, callers }: Result) {
  const origins = new Map<string, Origin>();
  const stood = [];
  for (const each of services) {
    const upstreams = [];
    for (const upstream of each.upstreams as { host: string; port: number }[]) {
      if (!origins.has(upstream.host)) origins.set(upstream.host, await backend());
      upstreams.push({
        ...upstream,
        id: `${upstream.host}:${upstream.port}`,
        host: "127.0.0.1",
        port: origins.get(upstream.host)!.port,
      });
    }
    // Stand-ins speak HTTP/1.1.
    stood.push({ ...each, protocol: "http", upstreams });
  }
  const config = {
    ...(callers === undefined ? {} : { callers }),
    global: { ...global, trusted_proxies: ["127.0.0.1"] },
    services: stood,
  };
  const { port } = await running(config as never);
  const last: { headers: readonly string[] } = { headers: [] };
  const send: Send = async (request, headers = {}) => {
    const [method = "", path = ""] = request.split(" ");
    const reply = await ask(port, { method, path, headers: { Host: "any.test", ...headers } });
    for (const [host, { seen }] of origins) {
      for (const each of seen.splice(0)) {
        last.headers = each.headers;
        return `${host.split(".")[0]} ${each.method} ${each.url}`;
      }
    }
    const location = reply.headers.location;
    return location === undefined ? String(reply.status) : `${reply.status} ${String(location)}`;
  };
  return { send, last };
}

export async function importAndServe(objects: readonly object[], options = {}) {
  const result = await fromKubernetes(objects, options);
  return { ...(await serve(result)), notes: result.notes, services: result.services };
}
