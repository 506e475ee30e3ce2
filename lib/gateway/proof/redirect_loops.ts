/**
 * Tells whether a `redirect` leads a request back to the route that answered it.
 */
import type { Template } from "../../plugins/template.ts";
import { readTarget } from "../../route/path.ts";
import type { SampleRequest } from "../../route/sample_requests.ts";
import { compileTable, type RouteTable, type TableEntry } from "../../route/table.ts";
import type { WrittenPlugin, WrittenRoute } from "./written.ts";

/** Whether the plugin, which runs on the route, leads this request of the route back to it. */
export type LeadsBack = (plugin: WrittenPlugin, route: WrittenRoute, request: SampleRequest) => boolean;

/** The table is made when it is needed first. */
export function redirectLoops(entries: readonly TableEntry<WrittenRoute>[]): LeadsBack {
  let table: RouteTable<WrittenRoute> | null = null;
  return ({ config: { status, location, keepQuery } }, route, sent) => {
    table ??= compileTable(entries);
    const target = readTarget(sent.path + sent.query);
    const found = "code" in target ? null : table.find(sent.host, sent.method, target.path, target.encodedSlash, sent.headers, sent.query);
    if (found?.kind !== "route") return false;
    const { method, host: authority, path } = sent;
    const led = (location as Template)({ requestId: "", method, authority, path, params: found.params, clientAddress: "", identity: null, claims: null });
    const [, host = null, rest = ""] = LOCATION.exec(led)!;
    if (host !== null && !isOwn(host, route, sent)) return false;
    const next = readTarget((rest.startsWith("/") ? rest : `/${rest}`) + (keepQuery === true && !rest.includes("?") ? sent.query : ""));
    if ("code" in next) return false;
    const again = table.find(host ?? sent.host, methodAfter(Number(status), sent.method), next.path, next.encodedSlash, sent.headers, next.query);
    return again.kind === "route" && again.target === route;
  };
}

const LOCATION = /^(?:https?:\/\/([^/?#]*))?([^#]*)/i;

/** Whether a host is that of the request, or one of its service. That other names lead to this gateway cannot be known. */
function isOwn(host: string, { service: { hosts } }: WrittenRoute, sent: SampleRequest): boolean {
  const name = host.replace(/:\d*$/, "").toLowerCase();
  return name === sent.host || hosts.some((each) => each.toLowerCase() === name);
}

/** RFC 9110 §15.4: what clients ask with. */
function methodAfter(status: number, method: string): string {
  return (status === 303 && method !== "HEAD") || (status < 303 && method === "POST") ? "GET" : method;
}
