/** The rule by which the code that finds warnings is loaded: it must hold for every configuration that has one. */
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { nodeFrom } from "../../lib/config/json.ts";
import { atOnce } from "../../lib/base/time_slices.ts";
import { needsIn } from "../../lib/config/needs.ts";
import { configWarnings } from "../../lib/proof/config_warnings.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import type { AnyPlugin } from "../../lib/plugins/plugin.ts";
import { document } from "../support/documents.ts";
import { random, type Random } from "../support/random.ts";
import { checkRoutes, loadConfig } from "../support/schema.ts";

const EXAMPLES = new URL("../../examples/", import.meta.url);
const limit = (by: string) => ({ name: "rate_limit", config: { limit_min: 1, ...(by !== "" && { limit_by: by }) } });
/** Plugins of the kinds that alone cause no warning, and limits, some of which do. */
const PLAIN_PLUGINS = [
  ...["", "client_ip", "all", "credential", "credential", "header:x-a"].map(limit),
  ...[
    { name: "key_auth", config: { key: "k" } },
    { name: "basic_auth", config: { username: "u", password: "p" } },
    { name: "mtls", config: {} },
    { name: "acl", config: { whitelist: ["10.0.0.0/8"] } },
  ],
  ...[
    { name: "request_termination", config: { status: 503 } },
    { name: "bot_protection", config: { blacklist: ["a"] } },
    { name: "compress", config: {} },
    { name: "cors", config: { allow_origins: ["*"] } },
  ],
  ...[
    { name: "request_headers", config: { set: { "x-a": "1" } } },
    { name: "response_headers", config: { set: { "x-a": "1" } } },
  ],
  ...[
    { name: "request_size_limit", config: { max_payload_size: 1 } },
    { name: "request_validation", config: { body: {} } },
  ],
];
const KINDS = builtinPlugins.filter(({ name }) =>
  ["fault", "redirect", ...PLAIN_PLUGINS.map((plugin) => plugin.name)].includes(name),
);
/** Whether what finds warnings is loaded for it. */
function can(config: unknown): boolean {
  const names = new Set<string>();
  atOnce(needsIn(nodeFrom(config), (name) => names.add(name)));
  return names.has("proof");
}

/** The codes of the warnings; null: the configuration is refused. */
function codesOf(config: unknown): readonly string[] | null {
  const loaded = loadConfig<AnyPlugin>({ value: config }, { kinds: KINDS, environment: {}, checkRoutes });
  return loaded.ok ? configWarnings(loaded).map(({ code }) => code) : null;
}

/** Below a base_path, or one; each placeholder has a name of its own. */
function pattern(from: Random, name: string, most: number): string {
  let count = 0;
  const segment = () =>
    from
      .pick(most < 2 ? ["a", "{}"] : ["a", "b", "x", "x2", "a;v", "%7Ba", "{}", "{}", "<>"])
      .replace(/^([{<])(?=[}>])/, (open) => `${open}${name}${count++}`);
  const segments = from.list(0, most, segment);
  if (name === "p" && from.chance(0.5)) segments.push(from.pick(["{rest*}", "<rest*>"]));
  return `/${segments.join("/")}${from.chance(0.1) ? "/" : ""}`.replace("//", "/");
}

/** Fields that cause warnings are rare, so that many configurations have none of them. */
function config(from: Random): unknown {
  const few = from.chance(0.3) ? 1 : 3;
  const rarely = (field: object) => (from.chance(0.03) ? field : {});
  const route = (_: unknown, i: number) => ({
    ...{
      name: `r${i}`,
      path: pattern(from, "p", few),
      methods: from.list(0, 2, () => from.pick(["GET", "HEAD", "POST", "TRACE"])),
    },
    ...rarely({ match: { headers: { "x-a": "1" } } }),
    ...rarely({
      plugins: [
        from.pick([
          { name: "key_auth", config: { key: "k" } },
          { name: "fault", config: { status: 500 } },
          { name: "cors", enabled: false },
        ]),
      ],
    }),
  });
  const service = (_: unknown, i: number) => ({
    ...{
      name: `s${i}`,
      base_path: pattern(from, "base", few),
      hosts: from.list(0, few - 1, () => from.pick(["a.test", "*.test", "b.a.test", "*.a.test", "x.test"])),
    },
    ...{ upstreams: [{ host: "127.0.0.1", port: 1 }], routes: from.list(1, 6, () => null).map(route) },
    ...{ encoded_slashes: from.pick(["reject", "allow"]), path_parameters: from.pick(["reject", "allow"]) },
    ...rarely({ sticky: { secret: "$" + "A".repeat(40) } }),
    ...rarely({ sticky: { secret: "a secret of more than thirty-two bytes" } }),
  });
  const url = "redis://user:password@redis.test:6379";
  const global = {
    ...rarely({ accept_warnings: ["route_unreachable:services.s0.routes.r0"] }),
    ...rarely({ counters: { store: "redis", url } }),
    ...rarely({ plugins: [{ name: "redirect", config: { location: "/a" } }] }),
  };
  return { global, services: from.list(1, few === 1 ? 3 : 1, () => null).map(service) };
}

/** Plain plugins at every level, often the same ones at several places. */
function withPlugins(from: Random): unknown {
  const some = from.list(1, 4, () => from.pick(PLAIN_PLUGINS));
  const plugins = (most: number) => from.list(0, most, () => from.pick(some));
  const routes = from
    .list(1, from.chance(0.3) ? 1 : 4, () => null)
    .map((_, i) => ({
      name: `r${i}`,
      path: pattern(from, "p", 3),
      methods: from.list(0, 2, () => from.pick(["GET", "POST"])),
      plugins: plugins(from.chance(0.3) ? 3 : 0),
    }));
  const service = {
    name: "s",
    base_path: "/",
    upstreams: [{ host: "localhost", port: 1 }],
    routes,
    plugins: plugins(3),
  };
  return { global: { plugins: plugins(1) }, services: [service] };
}

describe("canHaveWarnings", () => {
  /** Judges so many random configurations: those without warnings by the rule must have none. */
  function judged(rounds: number, make: (from: Random) => unknown) {
    const seen = new Set<string>();
    const plain: unknown[] = [];
    for (let seed = 0; seed < rounds; seed++) {
      const made = make(random(seed));
      const codes = codesOf(made);
      if (codes === null) continue;
      if (can(made)) for (const code of codes) seen.add(code);
      else {
        expect(codes, JSON.stringify(made)).toEqual([]);
        plain.push(made);
      }
    }
    expect(plain.length).toBeGreaterThan(400);
    return { seen: [...seen].sort(), plain };
  }

  it("is true for each random configuration of plugins that has a warning, and false for many that have none", () => {
    const { seen, plain } = judged(3_000, withPlugins);
    const kinds = new Set(Array.from(JSON.stringify(plain).matchAll(/"name":"(\w{3,})"/g), ([, kind]) => kind!));
    expect([...kinds].sort()).toEqual([...new Set(PLAIN_PLUGINS.map(({ name }) => name))].sort());
    expect(seen).toEqual(["guard_bypassed", "limit_before_identity", "limit_by_any_header", "route_unreachable"]);
  }, 60_000);

  it("is true for each random configuration that has a warning", () => {
    const { seen } = judged(1_500, config);
    expect(seen).toEqual([
      "faults_injected",
      "guard_bypassed",
      "placeholder_secret",
      "plain_http_secret",
      "redirect_loop",
      "route_unreachable",
      "stale_acceptance",
    ]);
  });

  it("is true for the example of each warning in docs/warnings.md", () => {
    const examples = Array.from(
      document("docs/warnings.md").text.matchAll(/^### (\w+)[^#]*?```json example\n([^]*?)```/gm),
      ([, code, json]) => [code!, JSON.parse(json!) as unknown] as const,
    );
    expect(examples.length).toBeGreaterThan(10);
    for (const [code, example] of examples) expect(can(example), code).toBe(true);
  });

  it("is true where conditions leave nothing to a route without some", () => {
    const routes = [true, null, undefined].map((value, i) => ({
      name: `r${i}`,
      path: "/a",
      ...(value !== undefined && { match: { headers: { "x-a": value } } }),
    }));
    const made = { services: [{ name: "s", base_path: "/", upstreams: [{ host: "localhost", port: 1 }], routes }] };
    expect(codesOf(made)).toEqual(["route_unreachable"]);
    expect(can(made)).toBe(true);
  });

  it("is true for each text that looks like a template, wherever it stands", () => {
    const withSecret = (secret: string) => ({
      services: [
        {
          name: "s",
          base_path: "/",
          sticky: { secret },
          upstreams: [{ host: "localhost", port: 1 }],
          routes: [{ path: "/" }],
        },
      ],
    });
    for (const secret of ["$${" + "A".repeat(40) + "}", "<" + "a".repeat(40) + ">"]) {
      expect(codesOf(withSecret(secret)), secret).toEqual(["placeholder_secret"]);
      expect(can(withSecret(secret)), secret).toBe(true);
    }
    expect(can(withSecret("a".repeat(40)))).toBe(false);
  });

  it(
    "is false for a key and a limit of a route that is alone, and true where another route lacks its key, " +
      "or the limit comes first",
    () => {
      const plugins = [{ name: "key_auth", config: { key: "k" } }, limit("credential")];
      const of = (own: readonly object[], outer: readonly object[] = [], more: readonly object[] = []) => ({
        services: [
          {
            name: "s",
            base_path: "/",
            plugins: outer,
            upstreams: [{ host: "localhost", port: 1 }],
            routes: [{ path: "/{a}/{b*}", plugins: own }, ...more],
          },
        ],
      });
      expect([codesOf(of(plugins)), can(of(plugins))]).toEqual([[], false]);
      expect([codesOf(of(plugins.toReversed())), can(of(plugins.toReversed()))]).toEqual([
        ["limit_before_identity"],
        true,
      ]);
      expect([
        codesOf(of(plugins.slice(0, 1), plugins.slice(1))),
        can(of(plugins.slice(0, 1), plugins.slice(1))),
      ]).toEqual([["limit_before_identity"], true]);
      expect(can(of(plugins, [], [{ path: "/c" }]))).toBe(true);
    },
  );

  it("is false for a key and a limit of a service, and true for those of a route", () => {
    const plugins = [{ name: "key_auth", config: { key: "k" } }, limit("credential")];
    const of = (service: object, route: object) => ({
      services: [
        {
          name: "s",
          base_path: "/",
          upstreams: [{ host: "localhost", port: 1 }],
          routes: [{ path: "/a", ...route }, { path: "/{b}" }],
          ...service,
        },
      ],
    });
    expect(can(of({ plugins }, {}))).toBe(false);
    expect(can(of({ plugins: plugins.toReversed() }, {}))).toBe(true);
    expect(can(of({}, { plugins }))).toBe(true);
    expect(can(of({}, { plugins: [limit("all")] }))).toBe(false);
  });

  it(
    "is false for examples/quickstart.json and tls.json, and true for the other examples, " +
      "which have several services or plugins that can cause warnings",
    () => {
      const examples = readdirSync(EXAMPLES).filter((name) => name.endsWith(".json"));
      const plain = examples.filter((name) => !can(JSON.parse(readFileSync(new URL(name, EXAMPLES), "utf8"))));
      expect(plain.sort()).toEqual(["quickstart.json", "tls.json"]);
    },
  );
});
