/** Any HTTPRoutes, and any requests: what the Gateway API says is compared with what the result serves. */
import { describe, expect, it } from "vitest";
import { createGateway } from "../../../lib/index.ts";
import { fromKubernetes } from "./imported.ts";
import { gateway, listener, route, SECURE, service } from "./kubernetes_objects.ts";

interface Match {
  readonly path: { readonly type: string; readonly value: string };
  readonly method?: string;
  readonly headers?: readonly { readonly name: string; readonly value: string }[];
  readonly queryParams?: readonly { readonly name: string; readonly value: string }[];
}

interface Rule {
  readonly backend: string;
  readonly hosts: readonly string[];
  /** The listener of its Gateway; undefined: both. */
  readonly scheme: string | undefined;
  readonly match: Match;
}

interface Request {
  readonly scheme: string;
  readonly host: string;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, string>>;
}

/** Numbers that are the same in each run (mulberry32). */
function random(seed: number): (below: number) => number {
  return (below) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const HOSTS = ["a.x.test", "b.x.test", "*.x.test", "*.a.x.test", "other.test"];
const PATHS = ["/", "/a", "/a/b", "/a/b/c", "/d"];
const ASKED = ["/", "/a", "/a/b", "/a/b/c", "/a/x", "/d", "/e"];
const METHODS = ["GET", "POST", "DELETE"];
const VALUES = ["1", "2"];
const NAMES = ["x", "y"];

function someRules(below: (n: number) => number, isMixed: boolean): Rule[] {
  const one = <T>(list: readonly T[]): T => list[below(list.length)]!;
  return Array.from({ length: 2 + below(5) }, (_, i) => {
    const hosts = below(2) === 0 ? [] : [...new Set([one(HOSTS), one(HOSTS)])];
    const pairs = () => NAMES.filter(() => below(4) === 0).map((name) => ({ name, value: one(VALUES) }));
    const [headers, queryParams] = [pairs(), pairs()];
    const match = {
      path: { type: one(["PathPrefix", "PathPrefix", "Exact"]), value: one(PATHS) },
      ...(below(3) === 0 ? { method: one(METHODS) } : {}),
      ...(headers.length === 0 ? {} : { headers }),
      ...(queryParams.length === 0 ? {} : { queryParams }),
    };
    const scheme = isMixed ? one([undefined, "http", "https"]) : undefined;
    return { backend: `s${i}`, hosts, scheme, match };
  });
}

function hostFits(host: string, wanted: string): boolean {
  return wanted === "" || wanted === host || (wanted.startsWith("*.") && host.endsWith(wanted.slice(1)));
}

function fits({ match, scheme }: Rule, request: Request): boolean {
  if ((scheme ?? request.scheme) !== request.scheme) return false;
  const { type, value } = match.path;
  const isPath =
    request.path === value || (type === "PathPrefix" && (value === "/" || request.path.startsWith(`${value}/`)));
  const holds = (pairs: Match["headers"], found: Readonly<Record<string, string>>) =>
    (pairs ?? []).every(({ name, value: wanted }) => found[name] === wanted);
  return (
    isPath &&
    (match.method ?? request.method) === request.method &&
    holds(match.headers, request.headers) &&
    holds(match.queryParams, request.query)
  );
}

/**
 * By the Gateway API: the host, an exact path, a longer prefix, a method, headers, query, then the order of the file.
 */
function expected(rules: readonly Rule[], request: Request): string {
  const found = rules.flatMap((rule, i) => {
    const hosts = (rule.hosts.length === 0 ? [""] : rule.hosts).filter((host) => hostFits(request.host, host));
    if (hosts.length === 0 || !fits(rule, request)) return [];
    const { match } = rule;
    const best = hosts
      .map((host) => (host === "" ? 0 : host.startsWith("*") ? host.length : 1000))
      .sort((a, b) => b - a)[0]!;
    const path = match.path.type === "Exact" ? 1000 : match.path.value.length;
    const rank = [
      best,
      path,
      Number(match.method !== undefined),
      match.headers?.length ?? 0,
      match.queryParams?.length ?? 0,
      -i,
    ];
    return [{ rule, rank }];
  });
  found.sort(
    (a, b) =>
      b.rank[b.rank.findIndex((each, i) => each !== a.rank[i])]! -
      a.rank[b.rank.findIndex((each, i) => each !== a.rank[i])]!,
  );
  return found[0]?.rule.backend ?? "none";
}

function someRequest(below: (n: number) => number): Request {
  const one = <T>(list: readonly T[]): T => list[below(list.length)]!;
  const pairs = () => Object.fromEntries(NAMES.filter(() => below(2) === 0).map((name) => [name, one(VALUES)]));
  const host = one(["a.x.test", "b.x.test", "c.x.test", "z.a.x.test", "other.test", "none.test"]);
  return {
    scheme: one(["http", "https"]),
    host,
    path: one(ASKED),
    method: one([...METHODS, "PUT"]),
    headers: pairs(),
    query: pairs(),
  };
}

describe("HTTPRoutes that overlap in hosts, paths, methods, headers and query", () => {
  const seeds = Array.from({ length: 24 }, (_, i) => i + 1);

  it.each(seeds)(
    "lead each request where the Gateway API leads it, or list that they do not (seed %i)",
    async (seed) => {
      const isMixed = seed % 3 === 0;
      const rules = someRules(random(seed), isMixed);
      const routes = rules.map(({ backend, hosts, scheme, match }, i) =>
        route(`r${i}`, [{ matches: [match], backendRefs: [{ name: backend, port: 80 }] }], {
          ...(hosts.length === 0 ? {} : { hostnames: hosts }),
          parentRefs: [{ name: "front", ...(scheme === undefined ? {} : { sectionName: scheme }) }],
        }),
      );
      const listeners = [listener("http"), ...(isMixed ? [listener("https", SECURE)] : [])];
      const objects = [gateway(listeners), ...rules.map(({ backend }) => service(backend)), ...routes];
      const { notes, global: _, ...config } = await fromKubernetes(objects);
      const listed = notes.filter(
        (note) => !/a slash at its end|has no route here|certificates are not|is for https? only/.test(note),
      );
      const isClosed = listed.some((note) => note.includes("more than 64 routes"));
      expect(listed.length).toBe(Number(isClosed));
      const served = createGateway({ config: config as never });
      const hosts = new Map(
        config.services.map(({ name, upstreams }) => [name, (upstreams as { host: string }[])[0]!.host]),
      );
      const below = random(-seed);
      const wrong = [];
      for (let i = 0; i < 200; i++) {
        const request = someRequest(below);
        const query = new URLSearchParams(request.query).toString();
        const url = `${request.scheme}://${request.host}${request.path}${query === "" ? "" : `?${query}`}`;
        const { service: name, answer } = await served.explain({
          method: request.method,
          url,
          headers: request.headers,
        });
        if (isClosed && answer?.name === "request_termination") continue;
        const found = (name === null ? "none" : hosts.get(name)!).split(".")[0];
        if (found !== expected(rules, request))
          wrong.push({ request, found, expected: expected(rules, request), rules });
      }
      await served.close(0);
      expect(wrong.slice(0, 1)).toEqual([]);
    },
  );
});
