import { hash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { atOnce, inSlices } from "../../lib/base/time_slices.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { itemsOf, nodeAt } from "../../lib/config/json.ts";
import { parsedFrom, parseInSlices } from "../../lib/config/source.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { ConfigError, definePlugin, schema, type GatewayOptions } from "../../lib/index.ts";
import { compileSteps, type Snapshot } from "../../lib/gateway/snapshot.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { written } from "../../lib/proof/written.ts";
import { UpstreamSet } from "../../lib/upstream/upstream_set.ts";
import { manualClock } from "../support/clock.ts";
import { backend } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";
import { random } from "../support/random.ts";
import { ask, eventually } from "../support/raw_client.ts";

type ServiceInput = AnyConfigInput["services"][number];

/** A gateway whose configuration is in a file, and `change`, which replaces that and reloads it. */
async function inFile(config: AnyConfigInput, options: GatewayOptions = {}) {
  const configFile = fileWith(JSON.stringify(config));
  const gateway = new Gateway({ configFile, modules: withAllFeatures(), clock: manualClock(), ...options });
  onTestFinished(async () => void (await gateway.close(0)));
  const change = async (next: AnyConfigInput) => {
    writeFileSync(configFile, JSON.stringify(next));
    await gateway.reload();
  };
  return { gateway, change, snapshot: () => Gateway.internalsOf(gateway).configuration.snapshot };
}

function service(name: string, parts: Partial<ServiceInput> = {}): ServiceInput {
  return {
    name,
    base_path: `/${name}`,
    upstreams: [{ host: "127.0.0.1", port: 9 }],
    routes: [{ path: "/x", plugins: [{ name: "key_auth", config: { key: `key of ${name}` } }] }],
    ...parts,
  };
}

/** The text with the object on one line. */
function withCompact(text: string, value: ServiceInput): string {
  const wide = JSON.stringify({ services: [value] }, null, 2)
    .split("\n")
    .slice(2, -2)
    .join("\n")
    .trim();
  expect(text).toContain(wide);
  return text.replace(wide, () => JSON.stringify(value));
}

/** The names of the services that are what they were compiled to before. */
function keptOf(before: Snapshot, now: Snapshot): readonly string[] {
  const former = new Set(before.services.values());
  return [...now.services].flatMap(([{ name }, compiled]) => (former.has(compiled) ? [name] : []));
}

describe("a reload", () => {
  const [a, b, c] = [service("a"), service("b"), service("c")];
  const matching = service("m", { routes: [{ path: "/x", match: { headers: { "X-A": "1" } } }] });
  const other = service("b", { timeouts: { connect_ms: 7 } });
  const cases: readonly [what: string, before: AnyConfigInput, after: AnyConfigInput, kept: readonly string[]][] = [
    ["nothing changes", { services: [a, b, c] }, { services: [a, b, c] }, ["a", "b", "c"]],
    ["one service changes", { services: [a, b, c] }, { services: [a, other, c] }, ["a", "c"]],
    ["the order changes", { services: [a, b, c] }, { services: [c, a, b] }, ["c", "a", "b"]],
    ["one is added and one removed", { services: [a, b] }, { services: [b, c] }, ["b"]],
    ["only tests change", { services: [a] }, { services: [a], tests: [] }, ["a"]],
    ["global changes", { services: [a, b] }, { services: [a, b], global: { name: "x" } }, []],
    ["another service matches a header", { services: [a] }, { services: [a, matching] }, []],
    ["callers change", { services: [a], callers: [] }, { services: [a], callers: [{ id: "ada" }] }, []],
    [
      "callers stay",
      { services: [a, b], callers: [{ id: "ada" }] },
      { services: [a], callers: [{ id: "ada" }] },
      ["a"],
    ],
  ];

  it.each(cases)("compiles only services that have changed: %s", async (_what, before, after, kept) => {
    const { snapshot, change } = await inFile(before);
    const former = snapshot();
    await change(after);
    expect(keptOf(former, snapshot())).toEqual(kept);
  });

  it("reads of a text only the services that are not as they were", async () => {
    const { gateway, snapshot } = await inFile({ services: [a, b, c] });
    const before = snapshot();
    const { reader } = Gateway.internalsOf(gateway).configuration;
    const added = service("d", { routes: [{ path: "/z" }] });
    const text = JSON.stringify({ services: [c, added, other, a], tests: [] }, null, 2);
    // Written as in the configuration before.
    const source = { text: [a, c].reduce((all, each) => withCompact(all, each), text), file: before.file! };
    await parseInSlices(source, before.checked);
    const items = itemsOf(nodeAt(parsedFrom(source).node!, ["services"]));
    const known = items.filter((item) => item.readSteps !== undefined);
    expect(known).toEqual([items[0], items[3]]);
    const members = {
      get(): never {
        throw new Error("it is read");
      },
    };
    for (const item of known) Object.defineProperty(item, "members", members);
    const { valid } = await inSlices(reader.loadSteps(source, { before }), async () => {});
    const former = before.config.services;
    expect(valid.config.services.map((each) => former.includes(each))).toEqual([true, false, false, true]);
    expect(valid.shown).toEqual(reader.load({ ...source }).valid.shown);
  });

  it.each([1, 60])(
    "neither reads nor checks %d callers that are as they were, nor compiles for them",
    async (length) => {
      const callers = Array.from({ length }, (_none, i) => ({ id: `c${i}`, keys: [{ key: `key ${i}` }] }));
      const { gateway, snapshot } = await inFile({ services: [a, b], callers });
      const before = snapshot();
      const { reader, features } = Gateway.internalsOf(gateway).configuration;
      const read = async (next: AnyConfigInput) => {
        const source = { text: JSON.stringify(next), file: before.file! };
        await parseInSlices(source, before.checked);
        const node = nodeAt(parsedFrom(source).node!, ["callers"])!;
        const isKnown = node.readSteps !== undefined;
        if (isKnown) Object.defineProperty(node, "items", { get: () => expect.unreachable("it is read") });
        await features.loadNeeded(source);
        return { isKnown, ...(await inSlices(reader.loadSteps(source, { before }), async () => {})).valid };
      };
      const { isKnown, ...same } = await read({ services: [a, other], callers });
      expect(isKnown).toBe(true);
      const callersOf = (config: object) => (config as { readonly callers?: unknown }).callers;
      expect(callersOf(same.config)).toBe(callersOf(before.config));
      expect(same.callers).toBe(before.callers);
      const listOf = ({ shown }: Pick<Snapshot, "shown">) => (shown as { readonly callers?: unknown }).callers;
      expect(listOf(same)).toBe(listOf(before));
      const changed = await read({ services: [a, b], callers: [...callers, { id: "new" }] });
      expect(changed.isKnown).toBe(false);
      expect(changed.callers!.withId("new")).toBeDefined();
      expect(changed.callers!.withId("c0")).toBeDefined();
    },
  );

  it("reads the keys of callers again where what a reference stands for has changed", async () => {
    const keyFile = fileWith("first");
    const callers = Array.from({ length: 60 }, (_none, i) => ({ id: `c${i}`, keys: [{ key: `key ${i}` }] }));
    callers[7]!.keys[0]!.key = `\${file:${keyFile}}`;
    const guarded = service("g", {
      routes: [{ path: "/x", plugins: [{ name: "key_auth", config: { callers: true } }] }],
    });
    const { gateway, snapshot } = await inFile({ services: [guarded], callers });
    const has = (key: string) => snapshot().callers!.withKey(hash("sha256", key, "buffer")) !== undefined;
    expect([has("first"), has("second")]).toEqual([true, false]);
    writeFileSync(keyFile, "second");
    await gateway.reload();
    expect([has("first"), has("second")]).toEqual([false, true]);
  });

  it("refuses a text in which only the brackets that end a service have changed, as a start does", async () => {
    const { gateway, snapshot } = await inFile({ services: [a, b] });
    const text = JSON.stringify({ services: [a, b] });
    for (const end of ["]", ",}", "}}"]) {
      const wrong = [a, b]
        .map((each) => JSON.stringify(each))
        .map((each) => text.replace(each, each.slice(0, -1) + end));
      for (const each of wrong) {
        writeFileSync(snapshot().file!, each);
        await expect(gateway.reload(), each).rejects.toThrow(ConfigError);
      }
    }
    writeFileSync(snapshot().file!, text);
    await gateway.reload();
  });

  const long = service("long", { routes: Array.from({ length: 1000 }, (_none, i) => ({ path: `/r${i}` })) });
  const onItsBase = (path: string) => service("other", { base_path: "/long", routes: [{ path }] });

  it.each<readonly [what: string, before: readonly ServiceInput[], after: readonly ServiceInput[]]>([
    ["another one is wrong", [long, b], [long, { ...b, base_path: "b" }]],
    ["another one has its base_path", [long, onItsBase("/x")], [long, onItsBase("/y")]],
    ["it is alone", [long], [long]],
  ])("reads a large service that is as it was in steps, where it has to be read: %s", async (_what, before, after) => {
    const { gateway, snapshot } = await inFile({ services: before });
    const { reader, features } = Gateway.internalsOf(gateway).configuration;
    const source = { text: JSON.stringify({ services: after }), file: snapshot().file! };
    await parseInSlices(source, snapshot().checked);
    const [item] = itemsOf(nodeAt(parsedFrom(source).node!, ["services"]));
    if (item?.readSteps === undefined) throw new Error("it is not known");
    let [isRead, isAsked] = [false, false];
    const { readSteps } = item;
    Object.defineProperty(item, "readSteps", {
      *value() {
        yield* readSteps();
        isRead = true;
      },
    });
    const { get } = Object.getOwnPropertyDescriptor(item, "members")!;
    Object.defineProperty(item, "members", {
      get(): unknown {
        expect(isRead).toBe(true);
        isAsked = true;
        return get!.call(item);
      },
    });
    await features.loadNeeded(source);
    const outcome = inSlices(reader.loadSteps(source, { before: snapshot() }), async () => {});
    await outcome.catch((error: unknown) => expect(error).toBeInstanceOf(ConfigError));
    expect(isAsked).toBe(true);
  });

  it("holds nothing of the texts that services which stay are from but their own values", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const named = (i: number, connect_ms: number) => service(`service-number-${i}`, { timeouts: { connect_ms } });
    const services = Array.from({ length: 20 }, (_none, i) => named(i, 1));
    const { gateway, snapshot } = await inFile({ services });
    const heap = () => (collect(), process.memoryUsage().heapUsed);
    const before = heap();
    for (let i = 0; i < services.length; i++) {
      services[i] = named(i, 2);
      writeFileSync(snapshot().file!, JSON.stringify({ services }) + " ".repeat(2_000_000));
      await gateway.reload();
    }
    expect(heap() - before).toBeLessThan(10_000_000);
  });

  it("looks for warnings in what the services that stay were read to before", async () => {
    const routes = Array.from({ length: 200 }, (_none, i) => ({ path: `/r${i}` }));
    const services = [service("a", { routes }), service("b", { routes })];
    const { gateway, snapshot } = await inFile({ services });
    expect(gateway.configWarnings).toEqual([]);
    const before = snapshot();
    const { reader } = Gateway.internalsOf(gateway).configuration;
    const countOf = (next: readonly ServiceInput[]) => {
      const source = { text: JSON.stringify({ services: next }), file: before.file! };
      const { valid } = atOnce(reader.loadSteps(source, { before }));
      let count = 0;
      const steps = written(valid);
      while (steps.next().done !== true) count++;
      return count;
    };
    expect(countOf(services)).toBe(2);
    expect(countOf([services[0]!, service("b", { routes: routes.slice(0, 100) })])).toBe(2 + 1);
    // Places are others.
    expect(countOf(services.toReversed())).toBe(2 + 4);
  });

  it("finds the same errors as a start, where services stay and others change", async () => {
    const { pick, int } = random(7);
    const made = (name: string) =>
      service(name, {
        base_path: pick(["/a", "/a/", "/{x}", "/{y}", "/b", "/b/c", "/%61"]),
        hosts: pick([[], ["h.test"], ["H.test", "i.test"]]),
        routes: Array.from({ length: int(1, 2) }, () => ({
          path: pick(["/x", "/y", "/{z}"]),
          methods: pick([[], ["GET"]]),
        })),
      });
    const { gateway, snapshot } = await inFile({ services: [] });
    const { configuration } = Gateway.internalsOf(gateway);
    const { reader } = configuration;
    const outcome = (read: () => unknown) => {
      try {
        return read() === null;
      } catch (error) {
        return (error as { issues?: unknown }).issues ?? error;
      }
    };
    let services = ["a", "b", "c", "d"].map(made);
    let [refused, taken] = [0, 0];
    for (let step = 0; step < 400; step++) {
      const next = services.map((each) => (int(0, 2) === 0 ? made(pick(["a", "b", "c", "d", "e"])) : each));
      if (int(0, 4) === 0) next.push(pick(next));
      const source = () => ({ text: JSON.stringify({ services: next }), file: snapshot().file! });
      const steps = reader.loadSteps(source(), { before: snapshot() });
      const found = outcome(() => atOnce(steps));
      expect(found, JSON.stringify(next)).toEqual(outcome(() => reader.load(source())));
      if (found !== false) {
        refused++;
        continue;
      }
      taken++;
      services = next;
      configuration.apply(configuration.compile(atOnce(reader.loadSteps(source(), { before: snapshot() })), null));
    }
    expect(Math.min(refused, taken)).toBeGreaterThan(40);
  });

  it(
    "compiles a service again if a file or a variable has another value, " + "and if a service has a plugin of others",
    async () => {
      const secret = fileWith("first");
      const keyed = (name: string, key: string) => service(name, { plugins: [{ name: "key_auth", config: { key } }] });
      let created = 0;
      const foreign = definePlugin({
        name: "foreign",
        schema: schema.object({}),
        create: () => (created++, (next) => (exchange) => next(exchange)),
      });
      const environment: Record<string, string> = { KEY: "one" };
      const config = {
        services: [
          a,
          keyed("f", `\${file:${secret}}`),
          keyed("e", "${env:KEY}"),
          service("p", { plugins: [{ name: "foreign" }] }),
        ],
      } as AnyConfigInput;
      const { snapshot, change } = await inFile(config, { environment, plugins: [foreign] });
      let former = snapshot();
      const reloaded = async () => {
        former = snapshot();
        await change(config);
        return keptOf(former, snapshot());
      };
      expect(await reloaded()).toEqual(["a", "f", "e"]);
      expect(created).toBe(2);
      writeFileSync(secret, "second");
      expect(await reloaded()).toEqual(["a", "e"]);
      environment.KEY = "two";
      expect(await reloaded()).toEqual([]);
      expect(await reloaded()).toEqual(["a", "f", "e"]);
    },
  );

  it(
    "keeps the counts of limits and the connections of services that stay, " + "and closes those of services that go",
    async () => {
      const origin = await backend();
      const upstreams = [{ host: "127.0.0.1", port: origin.port }];
      const limit = { name: "rate_limit", config: { limit_hour: 3 } };
      const limited = service("a", { upstreams, routes: [{ path: "/x", plugins: [limit] }] });
      const { gateway, change, snapshot } = await inFile({ services: [limited, b] });
      const { port } = await gateway.listen({ port: 0 });
      const status = async () => (await ask(port, { path: "/a/x" })).status;
      expect([await status(), await status()]).toEqual([200, 200]);
      const former = snapshot();
      for (const timeouts of [{ connect_ms: 7 }, { connect_ms: 8 }])
        await change({ services: [limited, service("b", { timeouts })] });
      expect(keptOf(former, snapshot())).toEqual(["a"]);
      expect([await status(), await status()]).toEqual([200, 429]);
      const [pool] = [...snapshot().inUse.pools.get("a")!.values()];
      expect(pool!.pool.open).toBe(1);
      await change({ services: [b] });
      await eventually(() => pool!.pool.open === 0, "the connection is closed");
      expect(gateway.shownConfig).toMatchObject({ services: [{ name: "b" }] });
    },
  );

  it(
    "puts into force what services that stay were compiled to as it is, " + "and makes no health in that turn",
    async () => {
      const balanced = (name: string, id: string) =>
        service(name, { upstreams: ["1", "2"].map((each) => ({ id: `${id}${each}`, host: "127.0.0.1", port: 9 })) });
      const { gateway, change } = await inFile({ services: [balanced("a", "u"), balanced("b", "u")] });
      const { runtime } = Gateway.internalsOf(gateway);
      const { healthTools } = runtime;
      const [make, apply] = [vi.spyOn(healthTools, "make"), vi.spyOn(UpstreamSet.prototype, "apply")];
      onTestFinished(() => void vi.restoreAllMocks());
      const inForce = runtime.apply.bind(runtime);
      let madeInTurn = 0;
      vi.spyOn(runtime, "apply").mockImplementation((inUse) => {
        const before = make.mock.calls.length;
        inForce(inUse);
        madeInTurn += make.mock.calls.length - before;
      });
      await change({ services: [balanced("a", "u"), balanced("b", "v")] });
      expect(apply.mock.contexts.map((each) => (each as UpstreamSet).service)).toEqual(["b"]);
      expect(make.mock.calls.map(([{ upstream }]) => upstream)).toEqual(["v1", "v2"]);
      expect(madeInTurn).toBe(0);
    },
  );

  it("begins again where files were read again meanwhile", async () => {
    const { gateway, snapshot } = await inFile({ services: [a, b, c] });
    const { configuration } = Gateway.internalsOf(gateway);
    const read = configuration.reader.load(configuration.reader.source());
    let runs = 0;
    const made = await configuration.compileInSlices(read, {
      during: (run) => {
        // Before the second step the same configuration comes into force once more.
        if (++runs === 2) configuration.apply(configuration.compile(configuration.inForce, null));
        return run();
      },
    });
    expect(runs).toBeGreaterThan(4);
    configuration.apply(made);
    expect([...snapshot().inUse.upstreamSets.keys()]).toEqual(["a", "b", "c"]);
  });
});

describe("a large configuration", () => {
  it("is checked and compiled in steps of at most fifty routes, also those of one service", async () => {
    let [checked, created] = [0, 0];
    const counted = definePlugin({
      name: "counted",
      schema: {
        ...schema.object({}),
        check(_node, _at) {
          checked++;
          return {};
        },
      },
      create: () => (created++, (next) => (exchange) => next(exchange)),
    });
    const plugins = [{ name: "counted" }];
    const routes = (count: number) => Array.from({ length: count }, (_none, i) => ({ path: `/r${i}`, plugins }));
    const services = [
      service("long", { routes: routes(300) }),
      ...Array.from({ length: 20 }, (_none, i) => service(`s${i}`, { routes: routes(40) })),
    ];
    const config = { services } as AnyConfigInput;
    const { gateway } = await inFile(config, { plugins: [counted] });
    const { configuration, ...tools } = Gateway.internalsOf(gateway);
    [checked, created] = [0, 0];
    const most = { checked: 0, created: 0 };
    const slice = async () => {
      most.checked = Math.max(most.checked, checked);
      most.created = Math.max(most.created, created);
      [checked, created] = [0, 0];
    };
    const read = await inSlices(configuration.reader.loadSteps(configuration.reader.source()), slice);
    const compiling = { ...tools, tracer: null, onFault: () => {} };
    const compiled = await inSlices(compileSteps(read.valid, compiling, null), slice);
    expect(compiled.counts).toMatchObject({ routes: 1100, services: 21 });
    expect(most.checked).toBeLessThanOrEqual(50);
    expect(most.created).toBeLessThanOrEqual(50);
    expect(most.created).toBeGreaterThan(10);
  });
});

/** All that a snapshot has made for others, in its order. */
function described(snapshot: Snapshot): unknown {
  return JSON.parse(JSON.stringify(partsOf(snapshot)));
}

function partsOf({ inUse, instances, table, counts, metrics }: Snapshot): object {
  const lists: string[] = [];
  const walk = (
    place: string,
    node: (typeof table.trees.roots extends Map<string, infer N> ? N : never) | null,
  ): void => {
    if (node === null) return;
    for (const [end, routes] of Object.entries({ "": node.ends, "*": node.rest })) {
      const names = routes?.map(({ target: { service, route } }) =>
        [service.name, route.name, route.audience].join(" "),
      );
      if (names !== undefined) lists.push([place + end, ...names].join(", "));
    }
    for (const [text, child] of node.literals ?? []) walk(`${place}/${text}`, child);
    walk(`${place}/{}`, node.one);
  };
  for (const [host, root] of table.trees.roots) walk(host, root);
  const sets = [...inUse.upstreamSets].map(([name, { upstreamSet, plans, breaker, checks, split, sticky }]) => ({
    name,
    peers: upstreamSet.peers.map(({ id, weight, group, authority }) => ({ id, weight, group, authority })),
    members: plans.map(({ peer, weight, health }) => [peer.id, weight, health]),
    has: [breaker?.settings, checks?.settings, split !== null, sticky !== null, upstreamSet.breaker !== null],
  }));
  return {
    lists: lists.sort(),
    sets,
    pools: [...inUse.pools].map(([service, pools]) => [
      service,
      ...Array.from(pools, ([key, { maxConnections }]) => [key, maxConnections]),
    ]),
    limiters: [...inUse.limiters],
    kept: [...inUse.pluginState.keys()],
    instances: [...instances],
    counts,
    meters: [[...metrics!.services.keys()], [...metrics!.plugins.keys()]],
  };
}

describe("a gateway that has had many configurations", () => {
  it("answers as one that has had only the last, and holds what that holds", { timeout: 60_000 }, async () => {
    const origin = await backend();
    const { pick, int, chance } = random(20);
    const secret = fileWith("0123456789abcdef0123456789abcdef");
    const host = "127.0.0.1";
    const one = [{ host, port: origin.port }];
    const two = [
      { id: "u", host, port: origin.port, weight: 3 },
      { id: "v", host: "localhost", port: origin.port },
    ];
    const variants: readonly (() => Partial<ServiceInput>)[] = [
      () => ({}),
      () => ({ plugins: [{ name: "key_auth", config: { key: pick(["k", "l"]) } }] }),
      () => ({ plugins: [{ name: "rate_limit", config: { limit_hour: pick([1, 1000]) } }] }),
      () => ({ upstreams: two, health: { enabled: true, path: "/up" } }),
      () => ({ upstreams: two, circuit_breaker: {}, retries: { attempts: pick([1, 2]) } }),
      () => ({ upstreams: two, sticky: { cookie: "c", secret: `\${file:${secret}}` } }),
      () => ({ hosts: [pick(["a.test", "*.test"])] }),
      () => ({ upstream_path: pick(["/v1", "/v2"]) }),
      () => ({
        routes: [
          { path: "/x", methods: ["GET"] },
          { path: "/{id}", match: { headers: { "X-A": pick(["1", "2"]) } } },
        ],
      }),
      () => ({ routes: [{ path: "/x", plugins: [{ name: "response_cache", config: {} }] }, { path: "/y" }] }),
      () => ({ plugins: [{ name: "request_termination", config: { status: pick([403, 418]) } }] }),
    ];
    const made = (name: string): ServiceInput => ({
      ...{ name, base_path: `/${name}`, upstreams: one, routes: [{ path: "/{rest*}" }] },
      ...pick(variants)(),
    });
    const globals = [{}, { name: "x" }, { plugins: [{ name: "cors", config: { allow_origins: ["https://e.test"] } }] }];
    let services = ["a", "b", "c", "d", "e", "f"].map(made);
    let global = globals[0]!;
    const configOf = () => ({ global, services }) as AnyConfigInput;
    const options = { clock: manualClock() } as GatewayOptions;
    const old = await inFile(configOf(), options);
    const { port } = await old.gateway.listen({ port: 0 });
    const asked = async (at: number) => {
      const answers: unknown[] = [];
      for (const { name } of services)
        for (const path of ["/x", "/y"])
          for (const headers of [{}, { apiKey: "k", "X-A": "1", Host: "a.test", Origin: "https://e.test" }]) {
            const { status, headers: got, body } = await ask(at, { path: `/${name}${path}`, headers });
            // Counts, ids and times differ between two gateways.
            const { date: _, "set-cookie": cookie, age: _age, ...others } = got as Record<string, unknown>;
            const text = body.toString().replace(/"request_id":"[^"]*"/, "");
            const shown = Object.entries(others).filter(([key]) => !/request-id|ratelimit|retry-after|etag/.test(key));
            answers.push([
              name,
              path,
              status === 429 ? 200 : status,
              status === 429 ? "" : text,
              shown.length,
              cookie !== undefined,
            ]);
          }
      return answers;
    };
    for (let step = 1; step <= 40; step++) {
      for (let n = int(0, 2); n > 0; n--) {
        const { name } = pick(services);
        services = services.map((each) => (each.name === name ? made(name) : each));
      }
      if (chance(0.2)) services = services.toReversed();
      if (chance(0.15)) services = services.filter(({ name }) => name !== "f");
      else if (services.every(({ name }) => name !== "f")) services = [made("f"), ...services];
      if (chance(0.1)) global = pick(globals);
      if (chance(0.1)) writeFileSync(secret, pick(["0", "1"]).repeat(32));
      await old.change(configOf());
      if (chance(0.2)) {
        writeFileSync(secret, pick(["2", "3"]).repeat(32));
        old.gateway.rereadFiles();
      }
      const fresh = await inFile(configOf(), options);
      expect(described(old.snapshot()), `after ${step} reloads`).toEqual(described(fresh.snapshot()));
      expect(old.gateway.configWarnings, `after ${step} reloads`).toEqual(fresh.gateway.configWarnings);
      if (step % 8 !== 0) continue;
      const { port: other } = await fresh.gateway.listen({ port: 0 });
      expect(await asked(port), `after ${step} reloads`).toEqual(await asked(other));
    }
  });
});
