import { createHash, generateKeyPairSync } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { Gateway as ProgramsGateway } from "../../lib/embed/gateway.ts";
import { createGateway, definePlugin, schema, type Gateway } from "../../lib/index.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { loadPluginModules } from "../../lib/features/plugin_modules.ts";
import { backend, oneService } from "../support/gateway.ts";
import { issueLines } from "../support/issue_lines.ts";
import { emptyFolder, fileWith } from "../support/process.ts";

const KEY = { name: "key_auth", config: { key: "k" } };
type Routes = AnyConfigInput["services"][number]["routes"];

const ITEMS: Routes[number] = { name: "items", path: "/items/{id}", methods: ["GET"], plugins: [KEY] };
const REST: Routes[number] = { name: "rest", path: "/{rest*}" };
const withRoutes = (...routes: Routes[number][]): AnyConfigInput => oneService(9, { routes });
const base = withRoutes(ITEMS, REST);

/** A gateway with this configuration in a file. */
async function fromFile(config: unknown): Promise<{ readonly gateway: Gateway; readonly file: string }> {
  const file = fileWith(config);
  const gateway = createGateway({ configFile: file, modules: await loadPluginModules(file) });
  onTestFinished(async () => void (await gateway.close(0)));
  return { gateway, file };
}

const textOf = (value: unknown) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value));

/** A test that passes when the route "items" needs its key. */
const test = (status: number) => ({ name: "needs a key", request: { url: "/a/items/7" }, expect: { status } });

describe("a dry run", () => {
  it(
    "says that the text would be accepted, what would change, " +
      "and which recent requests would get another route or none",
    async () => {
      const { gateway } = await fromFile(base);
      for (const path of ["/a/items/7?key=secret", "/a/items/7", "/a/other", "/a/new/x", "/nowhere"])
        await gateway.inject({ url: path, headers: { Host: "h.test" } });
      const text = textOf({
        ...withRoutes({ ...REST, name: "new", path: "/new/{x}" }, { ...REST, name: "all", path: "/items/{id}" }),
        tests: [test(200)],
      });
      expect(await gateway.dryRun(text)).toEqual({
        outcome: "accepted",
        file: "(posted)",
        issues: [],
        warnings: [],
        tests: { passed: 1, failed: 0, notRun: 0, failures: [] },
        untested: null,
        diff: {
          guardsLost: [
            {
              service: "s",
              route: "all",
              guards: ["key_auth"],
              altered: [],
              before: { service: "s", route: "items" },
              example: "GET http://localhost/a/items/x",
            },
          ],
          added: [
            { service: "s", route: "new" },
            { service: "s", route: "all" },
          ],
          removed: [
            { service: "s", route: "items" },
            { service: "s", route: "rest" },
          ],
          changed: [],
          other: [],
        },
        requests: {
          checked: 5,
          otherRoute: 3,
          noRoute: 1,
          undecided: 0,
          examples: [
            {
              request: "GET http://h.test/a/items/7",
              before: { service: "s", route: "items" },
              after: { service: "s", route: "all" },
            },
            { request: "GET http://h.test/a/other", before: { service: "s", route: "rest" }, after: null },
            {
              request: "GET http://h.test/a/new/x",
              before: { service: "s", route: "rest" },
              after: { service: "s", route: "new" },
            },
          ],
        },
      });
    },
  );

  it("has the warnings about the text, and none about the moment", async () => {
    const { gateway } = await fromFile(base);
    const { warnings } = await gateway.dryRun(
      textOf(withRoutes(ITEMS, { name: "news", path: "/items/news", methods: ["GET"] })),
    );
    expect(warnings.map(({ code, path }) => [code, path])).toEqual([
      ["guard_bypassed", "services.s.routes.items by services.s.routes.news"],
    ]);
    expect((await gateway.dryRun(textOf(withRoutes(ITEMS)))).warnings).toEqual([]);
  });

  it("has the places of warnings in the text, and in the gateway's own file", async () => {
    const { gateway, file } = await fromFile(base);
    const text = JSON.stringify(withRoutes(ITEMS, { name: "news", path: "/items/news", methods: ["GET"] }), null, 1);
    const line = text.slice(0, text.indexOf('"/items/{id}"')).split("\n").length;
    const places = async (given: Buffer | null) =>
      (await gateway.dryRun(given)).warnings.map((each) => [each.code, each.line, each.column]);
    expect(await places(textOf(text))).toEqual([["guard_bypassed", line, 14]]);
    writeFileSync(file, text);
    expect(await places(null)).toEqual([["guard_bypassed", line, 14]]);
  });

  it("lists the tests that have failed, with their places and differences, the first hundred", async () => {
    const { gateway } = await fromFile(base);
    const tests = Array.from({ length: 120 }, (_, i) => ({ ...test(i === 0 ? 401 : 404), name: `t${i}` }));
    const { tests: found, issues } = await gateway.dryRun(textOf({ ...base, tests }));
    expect([found!.passed, found!.failed, found!.failures.length, issues.length]).toEqual([1, 119, 100, 101]);
    expect(found!.failures[0]).toEqual({
      name: "t1",
      path: "tests[1]",
      line: 1,
      column: issues[0]!.column,
      expected: { status: 404 },
      found: { status: 401 },
      differences: ["status: expected 404, found 401", "the error code is key_missing"],
      differing: ["status"],
    });
  });

  it("gives ten examples at most, and counts all", async () => {
    const { gateway } = await fromFile(base);
    for (let i = 0; i < 25; i++) await gateway.inject({ url: `/a/${i}` });
    const { requests } = await gateway.dryRun(textOf({ services: [] }));
    expect([requests!.checked, requests!.otherRoute, requests!.noRoute, requests!.examples.length]).toEqual([
      25, 0, 25, 10,
    ]);
  });

  it("counts a request that has no route now and would get one", async () => {
    const { gateway } = await fromFile({ services: [] });
    await gateway.inject({ url: "/a/items/7" });
    expect((await gateway.dryRun(textOf(base))).requests).toMatchObject({
      otherRoute: 1,
      noRoute: 0,
      examples: [{ before: null, after: { service: "s", route: "items" } }],
    });
  });

  it(
    "counts requests whose route depends on headers, query or cookies, " +
      "which are not kept, and compares the others",
    async () => {
      const beta: Routes[number] = {
        name: "beta",
        path: "/items/{id}",
        methods: ["GET"],
        match: { query: { beta: "1" } },
      };
      const { gateway } = await fromFile(base);
      for (const path of ["/a/items/7", "/a/items/7?beta=1", "/a/other"]) await gateway.inject({ url: path });
      expect((await gateway.dryRun(textOf(withRoutes(beta, ITEMS)))).requests).toMatchObject({
        checked: 3,
        otherRoute: 0,
        noRoute: 1,
        undecided: 2,
      });
      expect((await gateway.dryRun(textOf(withRoutes(beta)))).requests).toMatchObject({
        checked: 3,
        otherRoute: 0,
        noRoute: 1,
        undecided: 2,
      });
      expect(
        (await gateway.dryRun(textOf(withRoutes({ ...beta, methods: ["PUT"] }, ITEMS, REST)))).requests,
      ).toMatchObject({ otherRoute: 0, noRoute: 0, undecided: 0 });
    },
  );

  it("matches a recent request with %2F by what each configuration says about it", async () => {
    const config = (encoded_slashes: "allow" | "reject") => oneService(9, { routes: [REST], encoded_slashes });
    const { gateway } = await fromFile(config("allow"));
    await gateway.inject({ url: "/a/x%2fy" });
    expect((await gateway.dryRun()).requests).toMatchObject({ checked: 1, otherRoute: 0, noRoute: 0 });
    const { requests } = await gateway.dryRun(textOf(config("reject")));
    expect(requests).toMatchObject({
      noRoute: 1,
      examples: [{ request: "GET http://localhost/a/x%2Fy", before: { route: "rest" }, after: null }],
    });
  });

  it("reads the gateway's own file when there is no text", async () => {
    const { gateway, file } = await fromFile(base);
    expect(await gateway.dryRun()).toMatchObject({
      outcome: "accepted",
      issues: [],
      diff: { added: [], removed: [], changed: [], other: [], guardsLost: [] },
    });
    writeFileSync(file, JSON.stringify(withRoutes(ITEMS)));
    expect(await gateway.dryRun()).toMatchObject({ outcome: "accepted", diff: { removed: [{ route: "rest" }] } });
    writeFileSync(file, "{}");
    expect(await gateway.dryRun()).toMatchObject({
      outcome: "refused",
      file,
      issues: [{ path: "services", line: 1, column: 1, message: expect.stringMatching(/^is required/) as string }],
      diff: null,
      requests: null,
    });
  });

  it("reports the errors of a text with their places", async () => {
    const { gateway } = await fromFile(base);
    const wrong: readonly (readonly [string, RegExp])[] = [
      ["{", /^\(posted\):1:2 +.*expected/],
      ["[]", /^\(posted\):1:1 +expected an object/],
      ['{"services":[],"x":1}', /^\(posted\):1:16 +x +is not a known field/],
      [JSON.stringify(withRoutes(ITEMS, { ...ITEMS, name: "twin" })), /\(posted\):1:\d+ +services\[0\]\.routes\[1\]/],
    ];
    for (const [text, issue] of wrong) {
      const { outcome, diff, requests, tests, ...refusal } = await gateway.dryRun(textOf(text));
      expect([outcome, diff, requests, tests]).toEqual(["refused", null, null, null]);
      expect(issueLines(refusal)[0]).toMatch(issue);
    }
    expect((await gateway.dryRun(Buffer.from([0x7b, 0xff, 0x7d]))).outcome).toBe("refused");
    for (const text of ["[", '{"a":']) {
      const deep = await gateway.dryRun(textOf(text.repeat(100_000)));
      expect([deep.outcome, deep.issues]).toEqual([
        "refused",
        [
          {
            path: deep.issues[0]!.path,
            line: 1,
            column: 100 * text.length + 1,
            message: "nested deeper than 100 levels",
          },
        ],
      ]);
    }
  });

  it("refuses a text whose test fails, and still shows what would change", async () => {
    const { gateway } = await fromFile(base);
    const result = await gateway.dryRun(textOf({ ...withRoutes({ ...ITEMS, plugins: [] }, REST), tests: [test(401)] }));
    expect(result).toMatchObject({
      outcome: "refused",
      tests: { passed: 0, failed: 1 },
      diff: { guardsLost: [{ route: "items" }] },
      requests: { checked: 0 },
    });
    expect(result.issues).toEqual([
      {
        path: "tests[0]",
        line: 1,
        column: expect.any(Number) as number,
        message: '"needs a key" failed: status: expected 401, found 200',
      },
    ]);
  });

  it(
    "refuses a redirect to HTTPS where there is no such listener, " + "in a text and in the gateway's own file",
    async () => {
      const file = fileWith(base);
      const gateway = new ProgramsGateway({ configFile: file, modules: withAllFeatures(), https: false });
      onTestFinished(async () => void (await gateway.close(0)));
      const redirecting = { ...base, global: { https_redirect: {} } };
      const issue = { path: "global.https_redirect", message: expect.stringMatching(/^needs an HTTPS listener/) };
      const refused = { outcome: "refused", issues: [expect.objectContaining(issue)] };
      expect(await gateway.dryRun(textOf(redirecting))).toMatchObject(refused);
      writeFileSync(file, textOf(redirecting));
      expect(await gateway.dryRun()).toMatchObject(refused);
    },
  );

  it("runs no tests where the gateway runs none before a reload, and says so", async () => {
    const file = fileWith(base);
    const gateway = createGateway({ configFile: file, tests: "skip" });
    onTestFinished(async () => void (await gateway.close(0)));
    const failing = { ...base, tests: [test(200)] };
    const taken = { outcome: "accepted", issues: [], tests: null, untested: expect.stringContaining("runs no tests") };
    expect(await gateway.dryRun(textOf(failing))).toMatchObject(taken);
    expect((await gateway.dryRun(textOf(base))).untested).toBe(null);
    writeFileSync(file, textOf(failing));
    expect(await gateway.dryRun()).toMatchObject(taken);
  });

  it("refuses a text with a plugin that cannot be created", async () => {
    const fragile = definePlugin({
      name: "fragile",
      schema: schema.object({}),
      create: () => {
        throw new Error("no luck");
      },
    });
    const gateway = createGateway({ config: base, plugins: [fragile] });
    const { outcome, ...refusal } = await gateway.dryRun(textOf(oneService(9, { plugins: [{ name: "fragile" }] })));
    expect([outcome, issueLines(refusal)]).toEqual([
      "refused",
      [
        expect.stringMatching(
          /^\(posted\):1:\d+ +services\[0\]\.plugins\[0\] +plugin fragile of service "s" cannot be created: no luck$/,
        ),
      ],
    ]);
    await gateway.close(0);
  });

  it("changes nothing in the gateway: no reload, tests, metrics, health, files or connections", async () => {
    const origin = await backend();
    const config = oneService(origin.port, { routes: [ITEMS, REST] });
    const { gateway, file } = await fromFile(config);
    await gateway.inject({ url: "/a/x" });
    const facts = () => ({
      status: { ...gateway.status, uptimeMs: 0 },
      health: gateway.health,
      digest: gateway.digest,
      tests: gateway.lastTests,
      files: gateway.files,
    });
    const counts = () =>
      gateway
        .metrics()
        .split("\n")
        .filter((line) => line.startsWith("gateway_"));
    const before = [facts(), counts()];
    const log = join(dirname(file), "other.log");
    const text = {
      ...oneService(
        origin.port,
        { name: "t", plugins: [{ name: "http_log", config: { http_endpoint: `http://127.0.0.1:${origin.port}` } }] },
        { access_log: { file: log } },
      ),
      tests: [{ ...test(200), expect: { status: 200 } }],
    };
    expect(await gateway.dryRun(textOf(text))).toMatchObject({ outcome: "accepted", tests: { passed: 1 } });
    expect(await gateway.dryRun(textOf("{}"))).toMatchObject({ outcome: "refused" });
    expect([facts(), counts()]).toEqual(before);
    expect(origin.seen).toHaveLength(1);
  });

  it("closes what the plugins of the text hold, also when it is refused", async () => {
    const open = new Set<object>();
    const holder = definePlugin({
      name: "holder",
      schema: schema.object({}),
      create(_config, { keep }) {
        const state = { close: () => void open.delete(state) };
        keep("state", {}, () => (open.add(state), state));
        return (next) => next;
      },
    });
    const fragile = definePlugin({
      name: "fragile",
      schema: schema.object({}),
      create: () => {
        throw new Error("no luck");
      },
    });
    const gateway = createGateway({ config: base, plugins: [holder, fragile] });
    expect((await gateway.dryRun(textOf(oneService(9, { plugins: [{ name: "holder" }] })))).outcome).toBe("accepted");
    expect(
      (await gateway.dryRun(textOf(oneService(9, { plugins: [{ name: "holder" }, { name: "fragile" }] })))).outcome,
    ).toBe("refused");
    expect(open.size).toBe(0);
    await gateway.close(0);
  });

  it(
    "runs the tests of files that the configuration in force names, " +
      "with the content that they had then, and no others",
    async () => {
      const folder = dirname(fileWith([test(401)], "more.json"));
      const file = join(folder, "gw.json");
      writeFileSync(file, JSON.stringify({ ...base, test_files: ["more.json"] }));
      const gateway = createGateway({ configFile: file, modules: await loadPluginModules(file) });
      onTestFinished(async () => void (await gateway.close(0)));
      writeFileSync(join(folder, "more.json"), "changed");
      const tried = (...test_files: string[]) => gateway.dryRun(textOf({ ...base, test_files }));
      expect(await tried("more.json")).toMatchObject({
        outcome: "accepted",
        issues: [],
        tests: { passed: 1, failed: 0, notRun: 0 },
        untested: null,
      });
      const [one, none] = [await tried("more.json", "gw.json"), await tried("more.json", "none.json")];
      expect(one).toMatchObject({
        outcome: "accepted",
        tests: { passed: 1 },
        untested: expect.stringMatching(/^Files of test_files .* were not read/),
      });
      expect(none).toEqual(one);
    },
  );

  const guarded = (key: string, more: readonly object[] = [], routes: readonly Routes[number][] = []) => ({
    ...withRoutes({ ...ITEMS, plugins: [{ name: "key_auth", config: { key } }] }, REST, ...routes),
    tests: [{ ...test(200), request: { url: "/a/items/7", headers: { apiKey: key } } }, ...more],
  });

  it(
    "runs tests that meet the same reference on both sides, " +
      "where the configuration in force has it at the same places",
    async () => {
      const { gateway } = await fromFile(guarded("${env:PATH}"));
      const closed = { ...test(401), name: "closed", request: { url: "/a/items/7", headers: { apiKey: "wrong" } } };
      const open = { name: "rest", request: { url: "/a/x" }, expect: { status: 200 } };
      expect(await gateway.dryRun(textOf(guarded("${env:PATH}", [closed, open])))).toMatchObject({
        outcome: "accepted",
        tests: { passed: 3, failed: 0, notRun: 0 },
        untested: null,
      });
    },
  );

  it("does not run tests that meet a reference at another place, or whose result depends on its value", async () => {
    const { gateway } = await fromFile(guarded("${env:PATH}"));
    const elsewhere = {
      name: "other",
      request: { url: "/a/x", headers: { "X-A": "${env:PATH}" } },
      expect: { status: 200 },
    };
    const guess = {
      ...test(200),
      name: "guess",
      request: { url: "/a/items/7", headers: { apiKey: process.env["PATH"]! } },
    };
    const added: Routes[number] = {
      name: "added",
      path: "/added",
      plugins: [{ name: "key_auth", config: { key: "${env:PATH}" } }],
    };
    const unknown = { name: "new route", request: { url: "/a/added" }, expect: { status: 401 } };
    const result = await gateway.dryRun(textOf(guarded("${env:PATH}", [elsewhere, guess, unknown], [added])));
    expect(result).toMatchObject({ outcome: "accepted", issues: [], tests: { passed: 1, failed: 0, notRun: 3 } });
    expect(result.untested).toContain("were not run");
    expect(await gateway.dryRun(textOf(guarded("${env:HOME}")))).toMatchObject({
      outcome: "accepted",
      tests: { passed: 0, failed: 0, notRun: 1 },
    });
  });

  it(
    "accepts references in force whatever form their values need, " + "and takes addresses and public keys as they are",
    async () => {
      const strict = definePlugin({
        name: "strict",
        schema: schema.object({
          code: {
            ...schema.string(),
            check: (node, at, context) => {
              const text = schema.string().check(node, at, context);
              return text === schema.INVALID || text.startsWith("c-")
                ? text
                : schema.report(context, at, node, "must start with c-");
            },
          },
        }),
        create({ code }) {
          if (!code.startsWith("c-")) throw new Error("no code");
          return (next) => next;
        },
      });
      const publicKey = generateKeyPairSync("rsa", { modulusLength: 2048 }).publicKey.export({
        type: "spki",
        format: "pem",
      });
      const environment = {
        KEY: String(publicKey),
        CODE: "c-1",
        URL: "http://auth.internal/",
        REDIS: "rediss://:pw@r.internal:6379/0",
        HOST: "up.internal",
        HASH: "b".repeat(64),
      };
      const at = (name: string, plugin: string, config: object): Routes[number] => ({
        name,
        path: `/${name}`,
        plugins: [{ name: plugin, config } as never],
      });
      const routes = [
        at("jwt", "jwt", { alg: "RS256", public_key: "${env:KEY}", aud: "a" }),
        at("code", "strict", { code: "${env:CODE}" }),
        at("ask", "forward_auth", { url: "${env:URL}" }),
        at("hash", "key_auth", { keys: [{ id: "a", key_sha256: "${env:HASH}" }] }),
      ];
      const ok = (name: string, more: object = {}) => ({
        name,
        request: { url: `/a/${name}`, ...(name === "jwt" && { as: { jwt: { aud: "a", sub: "x" } } }) },
        expect: { status: 200 },
        ...more,
      });
      const tests = [
        ok("jwt"),
        ok("code"),
        ok("ask", { answers: [{ url: "${env:URL}", status: 200 }] }),
        ok("hash", { expect: { status: 401 } }),
      ];
      const config = {
        ...oneService(
          9,
          { routes, upstreams: [{ host: "${env:HOST}", port: 80 }] },
          { counters: { store: "redis", url: "${env:REDIS}" } },
        ),
        tests,
      };
      const gateway = createGateway({
        configFile: fileWith(config),
        environment,
        plugins: [strict],
        modules: await loadPluginModules(config, environment),
      });
      onTestFinished(async () => void (await gateway.close(0)));
      const [own, posted] = [await gateway.dryRun(), await gateway.dryRun(textOf(config))];
      expect(own).toMatchObject({
        outcome: "accepted",
        tests: { passed: 4, failed: 0, notRun: 0 },
        warnings: [{ code: "plain_http_secret" }],
      });
      expect(posted).toMatchObject({
        outcome: "accepted",
        issues: [],
        tests: { passed: 3, failed: 0, notRun: 1 },
        diff: own.diff,
        warnings: [{ code: "plain_http_secret" }],
      });
      expect(JSON.stringify(posted)).not.toContain("auth.internal");
      const wrong = {
        ...config,
        services: [{ ...config.services[0]!, routes: [at("code", "strict", { code: "${env:CODE}", more: 1 })] }],
        tests: [],
      };
      expect(issueLines(await gateway.dryRun(textOf(wrong)))).toEqual([
        expect.stringContaining("more  is not a known field"),
      ]);
    },
  );

  it("loads no plugin module for a text, and loads those of the gateway's own file", async () => {
    const folder = emptyFolder();
    const { gateway, file } = await fromFile(base);
    const path = join(folder, "kind.mjs");
    const counting = "globalThis.dryRunLoads = (globalThis.dryRunLoads ?? 0) + 1;";
    writeFileSync(
      path,
      `${counting} export default (kit) => kit.definePlugin({ name: "mine", schema: kit.schema.object({}), ` +
        `create: () => (next) => next });`,
    );
    const sha256 = createHash("sha256").update(readFileSync(path)).digest("hex");
    const config = { ...base, global: { plugin_modules: [{ path, sha256 }] } };
    const loads = () => (globalThis as { dryRunLoads?: number }).dryRunLoads ?? 0;
    const refused = await gateway.dryRun(textOf(config));
    expect([refused.outcome, loads()]).toEqual(["refused", 0]);
    expect(refused.issues[0]!.message).toContain("is not a module of the configuration in force");
    writeFileSync(file, JSON.stringify(config));
    expect([(await gateway.dryRun()).outcome, loads()]).toEqual(["accepted", 1]);
    await gateway.loadModules();
    await gateway.reload();
    expect((await gateway.dryRun(textOf(config))).outcome).toBe("accepted");
    expect(loads()).toBe(1);
  });
});
