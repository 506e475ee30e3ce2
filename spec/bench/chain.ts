/** Measures a chain of five plugin kinds in nanoseconds a request, without sockets, beside an empty chain. */
import { INVALID } from "../../lib/config/schema.ts";
import { nodeFrom } from "../../lib/config/json.ts";
import { silentLog } from "../../lib/base/log.ts";
import { verifyPassword } from "../../lib/base/password.ts";
import { SharedCount } from "../../lib/base/shared_counts.ts";
import { HeldCounts } from "../../lib/store/held_counts.ts";
import { SharedMemory } from "../../lib/base/shared_memory.ts";
import { ALONE } from "../../lib/base/threads.ts";
import { systemClock } from "../../lib/base/clock.ts";
import * as costs from "../../lib/plugins/costs.ts";
import * as groupLimits from "../../lib/plugins/group_limits.ts";
import * as shadow from "../../lib/plugins/shadow.ts";
import { HttpClient } from "../../lib/client/client.ts";
import { Call, groupsOf, Exchange } from "../../lib/http/exchange.ts";
import type { Handler } from "../../lib/http/handler.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { composeChain } from "../../lib/plugins/chain.ts";
import type { Link } from "../../lib/plugins/plugin.ts";
import type { AnyPlugin } from "../../lib/plugins/plugin.ts";
import { memoryCounters } from "../../lib/store/memory.ts";
import { ANYWHERE } from "../support/anywhere.ts";

/** In the order of the chain, each with a typical configuration. */
const CHAIN: readonly (readonly [name: string, config: object])[] = [
  ["cors", { allow_origins: ["https://shop.example.com", "https://*.example.org"], allow_credentials: true }],
  ["acl", { blacklist: ["198.51.100.0/24", "203.0.113.7", "2001:db8::/32"] }],
  [
    "key_auth",
    {
      keys: [
        { id: "web", key: "a-key-of-the-web" },
        { id: "app", key: "a-key-of-the-app" },
      ],
    },
  ],
  ["request_headers", { set: { "X-Gateway": "edge" }, remove: ["X-Debug"] }],
  ["rate_limit", { limit_min: 1_000_000_000, limit_by: "credential" }],
];

/** Target for all five together on a quiet machine, in nanoseconds. */
const MAX_NS = 3_000;
const ROUNDS = 9;

/**
 * Takes the requests of a round, 100000 by default. Prints a table; true when the whole chain keeps within its bound.
 */
export async function chain([given = "100000"]: readonly string[]): Promise<boolean> {
  const requests = Number(given);
  if (!(requests >= 1_000)) throw new RangeError("a round has a thousand requests at least");
  const links = CHAIN.flatMap(
    ([name, config]) =>
      linkOf(
        builtinPlugins.find((kind) => kind.name === name),
        config,
      ) ?? [],
  );
  const missing = CHAIN.map(([name]) => name).filter((name) => !links.some((link) => link.name === name));
  const rows: (readonly [string, readonly Link[]])[] = [
    ["none", []],
    ...links.map((link) => [link.name, [link]] as const),
    ["all", links],
  ];
  const chained = (some: readonly Link[], innermost: Handler) => ({
    handler: composeChain(some, innermost, systemClock, ignore),
    rounds: [],
  });
  const measures: Measured[] = rows.map(([title, some]) => ({
    title,
    atOnce: chained(some, () => REPLY),
    promised: chained(some, () => Promise.resolve(REPLY)),
  }));
  // Interleaved, so that a busy moment of the machine affects all of them; the first round warms up.
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { atOnce, promised } of measures) {
      for (const each of [atOnce, promised]) {
        const ns = await nanoseconds(each.handler, requests);
        if (round > 0) each.rounds.push(ns);
      }
    }
  }
  return told(measures, missing);
}

interface Measured {
  readonly title: string;
  readonly atOnce: { readonly handler: Handler; readonly rounds: number[] };
  readonly promised: { readonly handler: Handler; readonly rounds: number[] };
}

const REPLY: Reply = {
  status: 200,
  headers: ["Content-Type", "text/plain", "Content-Length", "2"],
  body: Buffer.from("ok"),
};

function linkOf(kind: AnyPlugin | undefined, config: object): Link | undefined {
  if (kind === undefined) return undefined;
  const issues: { message: string }[] = [];
  const sources = { environment: {}, readFile: () => "", folder: "/" };
  const checked: unknown = kind.schema.check(nodeFrom(config), [], { issues: issues as never, sources });
  if (checked === INVALID) throw new Error(`${kind.name}: ${issues.map(({ message }) => message).join("; ")}`);
  const scope = { level: "route", key: kind.name, path: kind.name, id: null, service: "s", route: "r" } as const;
  const local = memoryCounters(systemClock);
  const tools = { clock: systemClock, log: silentLog, counters: local, gatewayName: "edge-gateway", scope };
  return {
    name: kind.name,
    scope,
    meter: { name: kind.name, requests: 0, answered: 0, ms: 0 },
    middleware: kind.create(checked, {
      ...tools,
      limits: { ...costs, ...groupLimits, ...shadow },
      limiterBy: (make) =>
        make({ clock: systemClock, local, shared: null, quotas: null, memory: undefined }, kind.name),
      keep: (_name, _settings, make) => make(),
      shared: () => null,
      common: (_name, make) => make(),
      count: (name) => new SharedCount(ALONE, name),
      counts: (name) => new HeldCounts(ALONE, name),
      verdicts: new SharedMemory(1024 * 1024),
      client: () => new HttpClient({ ...ANYWHERE, clock: systemClock }),
      verifiedClaims: null,
      callers: null,
      groupsOf,
      secretParameters: new Set(),
      verifyPassword,
      isTrial: false,
      gatewaySecrets: null,
      tally: () => {},
    }),
  };
}

/** Each request gets its own Exchange, as in the gateway; every row includes that cost. */
async function nanoseconds(handler: Handler, requests: number): Promise<number> {
  const start = process.hrtime.bigint();
  for (let i = 0; i < requests; i++) {
    const returned = handler(exchange());
    const reply = returned instanceof Promise ? await returned : returned;
    if (reply.status !== 200) throw new Error(`a plugin refused with ${reply.status}: ${String(reply.body)}`);
  }
  return Number(process.hrtime.bigint() - start) / requests;
}

function exchange(): Exchange {
  return new Exchange({
    call: new Call({
      id: "0b2ce3c5-5d45-4dff-9a19-598eadbdf4e0",
      remoteAddress: "192.0.2.1",
      trustedRemote: false,
      startedAt: 0,
      inform: () => {},
    }),
    method: "GET",
    target: "/a/b",
    httpVersion: "1.1",
    scheme: "http",
    authority: "shop.example.com",
    path: "/shop/items/42",
    upstreamPath: "/items/42",
    query: "?size=large",
    headers: HEADERS,
    params: { id: "42" },
    clientAddress: "192.0.2.1",
    service: SERVICE,
    route: ROUTE,
    identity: null,
    claims: null,
    groups: [],
    body: null,
    trailers: noTrailers,
    upgrade: null,
  });
}

const SERVICE = { name: "shop", basePath: "/shop" };
const ROUTE = { name: "items", path: "/items/{id}" };
const noTrailers = () => [];

const HEADERS = Object.entries({
  Host: "shop.example.com",
  "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
  Accept: "application/json, text/plain, */*",
  "Accept-Encoding": "gzip, deflate, br",
  Origin: "https://shop.example.com",
  Connection: "keep-alive",
  Cookie: "session=0123456789abcdef; theme=dark",
  apiKey: "a-key-of-the-app",
}).flat();

function told(measures: readonly Measured[], missing: readonly string[]): boolean {
  const medians = measures.map(({ title, atOnce, promised }) => ({
    title,
    atOnce: median(atOnce.rounds),
    promised: median(promised.rounds),
  }));
  const [none, all] = [medians[0]!, medians.at(-1)!];
  const row = (cells: readonly string[]) =>
    console.log(cells.map((cell, i) => (i === 0 ? cell.padEnd(18) : cell.padStart(16))).join(""));
  row(["ns per request", "upstream at once", "added", "by a promise", "added"]);
  for (const { title, atOnce, promised } of medians) {
    row([
      title,
      atOnce.toFixed(0),
      (atOnce - none.atOnce).toFixed(0),
      promised.toFixed(0),
      (promised - none.promised).toFixed(0),
    ]);
  }
  if (missing.length > 0) console.log(`not built in, and not measured: ${missing.join(", ")}`);
  const added = Math.max(all.atOnce - none.atOnce, all.promised - none.promised);
  const holds = added < MAX_NS;
  console.log(
    `the chain adds ${added.toFixed(0)} ns to a request, ${holds ? "less" : "NOT less"} than ${MAX_NS}; ` +
      `medians of ${ROUNDS} rounds`,
  );
  return holds && missing.length === 0;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!;
}

function ignore(): void {}
