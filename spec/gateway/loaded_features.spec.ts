/**
 * Which features of the program a configuration has loaded; which modules a start loads is in
 * `spec/cli/loaded_modules.spec.ts`.
 */
import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { nodeFrom, NOWHERE, type JsonNode } from "../../lib/config/json.ts";
import { parsed, type ConfigSource } from "../../lib/config/source.ts";
import { ConfigError } from "../../lib/gateway/config_error.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { LoadedFeatures } from "../../lib/gateway/loaded_features.ts";
import { KINDS, TABLE } from "../../lib/features/table.ts";
import { freshFeatures, readForStart } from "../../lib/features/load.ts";
import { loadPluginModules } from "../../lib/features/plugin_modules.ts";
import { createGateway, type ConfigInput } from "../../lib/index.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { blocksOf, document } from "../support/documents.ts";
import { fileWith } from "../support/process.ts";

const NOT_LOADED =
  "has not been loaded: await loadPluginModules(…) before createGateway, and gateway.loadModules() before reload";

const service = { name: "s", base_path: "/", upstreams: [{ host: "127.0.0.1", port: 1 }], routes: [{ path: "/" }] };
const withPlugins = (...plugins: ConfigInput["services"][number]["plugins"] & object): ConfigInput => ({
  services: [{ ...service, plugins }],
});
const terminating = withPlugins({ name: "request_termination", config: { status: 418 } });

/** A file with the key of `identity_token`. */
function signingKey(): string {
  return fileWith(generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }) as string);
}

/** The names of the kinds that are there after loading. */
async function kindsLoadedFor(source: ConfigSource): Promise<string[]> {
  const features = new LoadedFeatures(TABLE);
  await features.loadNeeded(source);
  return features.kinds.filter((kind) => builtinPlugins.includes(kind)).map(({ name }) => name);
}

const text = (json: string): ConfigSource => ({ text: json, file: "gw.json" });

/** Counts in `looks` how often a member of an object is looked up. */
function watched(node: JsonNode, looks: { count: number }): JsonNode {
  if (node.kind === "array") return { ...node, items: node.items.map((item) => watched(item, looks)) };
  if (node.kind !== "object") return node;
  const members = new Map<string, JsonNode>(
    Array.from(node.members, ([name, member]) => [name, watched(member, looks)]),
  );
  const get = members.get.bind(members);
  members.get = (name) => (looks.count++, get(name));
  return { ...node, members };
}

describe("the table of plugin kinds", () => {
  it("is looked for in a configuration without walking through all of its routes for each feature", async () => {
    const routes = 1_000;
    const looks = { count: 0 };
    const source = {
      value: {
        services: [{ ...service, routes: Array.from({ length: routes }, (_, i) => ({ path: `/${i}`, plugins: [] })) }],
      },
    };
    parsed.set(source, { node: watched(nodeFrom(source.value), looks), issues: [], positionOf: NOWHERE });
    await new LoadedFeatures(TABLE).loadNeeded(source);
    expect(looks.count).toBeGreaterThan(routes);
    expect(looks.count / routes).toBeLessThan(20);
  });

  it("has every built-in kind under its name, in the order of messages", async () => {
    expect(await Promise.all(Object.values(KINDS).map((load) => load()))).toEqual(builtinPlugins);
    expect(Object.keys(KINDS)).toEqual(builtinPlugins.map(({ name }) => name));
  });
});

describe("what a configuration has loaded", () => {
  it("are the kinds that it names at any level, in a value and in a text, and no other", async () => {
    const global = { plugins: [{ name: "cors", config: { allow_origins: ["*"] } }] };
    const config = { global, services: [{ ...service, routes: [{ path: "/", plugins: [{ name: "acl" }] }] }] };
    for (const source of [
      { value: config },
      text(JSON.stringify(config)),
      { text: Buffer.from(JSON.stringify(config, null, 2)), file: "gw.json" },
    ]) {
      expect(await kindsLoadedFor(source)).toEqual(["acl", "cors"]);
    }
  });

  it("are also kinds whose names are written with escapes", async () => {
    expect(await kindsLoadedFor(text('{ "services": [{ "plugins": [{ "name": "\\u006awt" }] }] }'))).toEqual(["jwt"]);
  });

  it(
    "is nothing for a file that is no JSON, or that breaks off: " + "nothing but the error of its text is reported",
    async () => {
      expect(await kindsLoadedFor(text("\\u0000 nothing"))).toEqual([]);
      expect(await kindsLoadedFor(text('{ "services": [{ "plugins": [{ "name": "jwt", '))).toEqual([]);
    },
  );

  it("is nothing for a text that only equals the name of a kind or of a field", async () => {
    const named = {
      ...service,
      name: "jwt",
      hosts: ["split"],
      routes: [{ path: "/", name: "acl", plugins: [{ name: "request_headers", config: { set: { name: "cors" } } }] }],
    };
    expect(await kindsLoadedFor({ value: { services: [named] } })).toEqual(["request_headers"]);
  });

  it("is nothing for a value that is no configuration", async () => {
    for (const value of [null, undefined, 7, "jwt_", []]) expect(await kindsLoadedFor({ value })).toEqual([]);
  });

  it.each([
    ["http2", { services: [{ ...service, protocol: "h2c" }] }],
    ["http2", { services: [{ ...service, protocol: "h2" }] }],
    [
      "balancing",
      {
        services: [
          {
            ...service,
            upstreams: [{ host: "127.0.0.1", port: 1, group: "canary" }],
            split: [{ group: "canary", percent: 5 }],
          },
        ],
      },
    ],
    ["balancing", { services: [{ ...service, sticky: {} }] }],
    ["sharedCounters", { global: { counters: { store: "redis", url: "redis://127.0.0.1" } }, services: [] }],
  ] as const)("is the feature %s, which is not there before", async (name, value) => {
    const features = new LoadedFeatures(TABLE);
    await features.loadNeeded({ value: { services: [service] } });
    expect(() => features[name]).toThrow(`the feature "${name}" ${NOT_LOADED}`);
    await features.loadNeeded({ value });
    expect(features[name]).toBeDefined();
  });
});

describe("a gateway whose features are loaded on demand", () => {
  it("serves with the features that loadPluginModules has loaded", async () => {
    const configFile = fileWith(terminating);
    const gateway = new Gateway({ configFile, modules: await loadPluginModules(configFile) });
    expect(await gateway.inject({ url: "/" })).toMatchObject({ status: 418 });
    await gateway.close(0);
  });

  it("starts with what was read for its features, also if the file has been replaced since then", async () => {
    const configFile = fileWith(terminating);
    const { modules, source } = await readForStart({ configFile }, {});
    writeFileSync(configFile, JSON.stringify({ services: [{ ...service, circuit_breaker: {} }] }));
    const gateway = new Gateway({ configFile, modules, ...(source && { source }) });
    expect(await gateway.inject({ url: "/" })).toMatchObject({ status: 418 });
    await gateway.reload();
    expect(await gateway.inject({ url: "/" })).toMatchObject({ status: 502 });
    await gateway.close(0);
  });

  it(
    "refuses a kind that was not loaded, at the place of its configuration, " + "and reports other names as always",
    async () => {
      const issuesOf = async (config: ConfigInput) => {
        const modules = freshFeatures();
        try {
          new Gateway({ config, modules });
        } catch (error) {
          return (error as ConfigError).issues.map(({ at, message }) => `${at.join(".")}: ${message}`);
        }
        return [];
      };
      expect(await issuesOf(terminating)).toEqual([
        `services.0.plugins.0.config: the plugin kind "request_termination" ${NOT_LOADED}`,
      ]);
      expect(await issuesOf(withPlugins({ name: "request_terminatio" }))).toEqual([
        expect.stringContaining('did you mean "request_termination"?'),
      ]);
    },
  );

  it("loads what a reload needs, a value or a file, without a further call", async () => {
    const gateway = new Gateway({
      config: { services: [service] },
      modules: await loadPluginModules({ services: [] }),
    });
    await gateway.reload(terminating);
    expect(await gateway.inject({ url: "/" })).toMatchObject({ status: 418 });
    await gateway.reload({ services: [{ ...service, protocol: "h2c" }] });
    expect(await gateway.inject({ url: "/" })).toMatchObject({ status: 502 });
    await gateway.close(0);
  });

  it("loads what the text of a dry run needs", async () => {
    const gateway = new Gateway({ config: { services: [service] }, modules: freshFeatures() });
    expect(await gateway.dryRun(Buffer.from(JSON.stringify(terminating)))).toMatchObject({
      outcome: "accepted",
      issues: [],
    });
    const basic = { name: "basic_auth", config: { username: "ada", password: "x" } };
    for (const more of [{ protocol: "h2c" }, { plugins: [basic] }])
      expect(await gateway.dryRun(Buffer.from(JSON.stringify({ services: [{ ...service, ...more }] })))).toMatchObject({
        outcome: "accepted",
        issues: [],
      });
    await gateway.close(0);
  });

  it("explains a request and runs tests with the features that these need", async () => {
    const test = {
      name: "it is a teapot",
      request: { method: "GET", url: "http://localhost/" },
      expect: { status: 418 },
    };
    const config = { ...terminating, tests: [test] };
    const gateway = new Gateway({ config, modules: await loadPluginModules(config) });
    expect(await gateway.explain({ method: "GET", url: "http://localhost/" })).toMatchObject({ outcome: "matched" });
    expect(await gateway.test()).toMatchObject({ passed: 1, failed: 0 });
    await gateway.close(0);
  });
});

describe("a plugin kind alone", () => {
  it.each(Object.keys(KINDS))("%s has what it needs: the example of its page can be used", async (kind) => {
    const text = blocksOf(document(`docs/plugins/${kind}.md`), "json")[0]!
      .replace(/\$\{file:[^}]*\}/g, "${env:FILE}")
      .replace('"ed25519.pem"', () => JSON.stringify(signingKey()));
    const environment = Object.fromEntries(
      Array.from(text.matchAll(/\$\{env:(\w+)\}/g), ([, name]) => [name!, `the-secret-${name}-of-thirty-two-bytes`]),
    );
    const configFile = fileWith(text);
    const gateway = new Gateway({ configFile, modules: await loadPluginModules(configFile, environment), environment });
    expect(gateway.counts.routes).toBeGreaterThan(0);
    await gateway.close(0);
  });
});

describe("a gateway that somebody can ask", () => {
  it(
    "answers every question with the features of the smallest configuration, " + "and with none of the others",
    async () => {
      const modules = await loadPluginModules({ services: [service] });
      await modules.loadFeature("reporting");
      const gateway = new Gateway({ config: { services: [service] }, modules });
      await gateway.listen({ port: 0 });
      expect(gateway.status).toMatchObject({ state: "serving", warnings: [], counters: null });
      expect(gateway.health.services).toHaveLength(1);
      expect(gateway.stats.services).toHaveLength(1);
      expect(gateway.metrics()).toContain("edge_gateway_http_requests_in_flight 0");
      expect(gateway.configWarnings).toEqual([]);
      expect(gateway.maskedConfig).toEqual(gateway.shownConfig);
      expect(await gateway.routePlugins("s", "/")).toEqual([]);
      expect(await gateway.explain({ method: "GET", url: "http://localhost/" })).toMatchObject({ outcome: "matched" });
      expect(await gateway.test()).toMatchObject({ passed: 0, failed: 0 });
      expect(await gateway.dryRun()).toMatchObject({ outcome: "accepted" });
      await gateway.close(0);
    },
  );
});

describe("a gateway that nobody can ask", () => {
  it("serves requests and drains, and counts and times nothing of them", async () => {
    const config = withPlugins({ name: "request_termination", config: { status: 418 } });
    const modules = await loadPluginModules(config);
    const gateway = new Gateway({ config, modules });
    const { port } = await gateway.listen({ port: 0 });
    expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(418);
    expect(gateway.inFlight).toBe(0);
    expect(Gateway.internalsOf(gateway)).toMatchObject({ metrics: null, reports: null });
    expect(() => gateway.stats).toThrow('the feature "reporting" has not been loaded');
    expect(await gateway.close(1_000)).toBe("drained");
  });
});

describe("createGateway, for embedding", () => {
  it("has all features at once, whatever was loaded before", async () => {
    const gateway = createGateway({ config: terminating, modules: await loadPluginModules({}) });
    expect(await gateway.inject({ url: "/" })).toMatchObject({ status: 418 });
    await gateway.close(0);
  });

  it("accepts only the built-in kinds of a list, and the host's own", async () => {
    const kinds = ["request_termination"];
    const gateway = createGateway({ config: terminating, kinds });
    await expect(gateway.reload(withPlugins({ name: "acl" }))).rejects.toThrow("a plugin kind (request_termination)");
    expect(await gateway.dryRun(Buffer.from(JSON.stringify(withPlugins({ name: "acl" }))))).toMatchObject({
      outcome: "refused",
    });
    await gateway.close(0);
    expect(() => createGateway({ config: withPlugins({ name: "acl" }), kinds: [] })).toThrow(ConfigError);
  });

  it("refuses a list with a kind that is not built in", () => {
    expect(() => createGateway({ config: terminating, kinds: ["key-auth"] })).toThrow(
      /^kinds: there is no built-in plugin kind "key-auth"; there are key_auth, rate_limit, /,
    );
  });
});
