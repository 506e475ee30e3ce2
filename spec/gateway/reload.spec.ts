import { writeFileSync } from "node:fs";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import {
  ConfigError,
  createGateway,
  definePlugin,
  schema,
  type GatewayOptions,
  type Reloaded,
} from "../../lib/index.ts";
import { SERVER } from "../support/certs.ts";
import { oneService } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";

/** A configuration named so, with a test that expects this status of GET /a/x. */
function named(name: string, status = 200, parts: Parameters<typeof oneService>[1] = {}): AnyConfigInput {
  return {
    ...oneService(9, parts, { name }),
    tests: [{ name: `of ${name}`, request: { url: "/a/x" }, expect: { status } }],
  };
}

const nameOf = ({ shownConfig }: { readonly shownConfig: unknown }) =>
  (shownConfig as { global: { name: string } }).global.name;

/**
 * A gateway that ends with the test; its plugin kind "gate" holds requests of the gateway of that name until it is
 * opened.
 */
function gated(options: GatewayOptions) {
  const events: string[] = [];
  const gates = new Map<string, () => void>();
  const gate = definePlugin({
    name: "gate",
    schema: schema.object({}),
    create(_config, { gatewayName }) {
      return (next) => async (exchange) => {
        events.push(`${gatewayName} begins`);
        await new Promise<void>((resolve) => gates.set(gatewayName, resolve));
        events.push(`${gatewayName} ends`);
        return next(exchange);
      };
    },
  });
  const gateway = createGateway({ plugins: [gate], ...options });
  onTestFinished(async () => {
    for (const open of gates.values()) open();
    await gateway.close(0);
  });
  /** Resolves when a test of the configuration of this name waits. */
  const waiting = async (name: string) => {
    while (!gates.has(name)) await new Promise(setImmediate);
  };
  return { gateway, events, waiting, open: (name: string) => gates.get(name)!() };
}

const GATE = { plugins: [{ name: "gate" }] };

describe("a reload of a configuration with tests", () => {
  it("takes the configuration when all tests pass, and reports them in lastTests and status", async () => {
    const { gateway } = gated({ config: oneService(9) });
    expect([gateway.lastTests, gateway.status.tests]).toEqual([null, null]);
    const { digest } = await gateway.reload(named("one"));
    expect(nameOf(gateway)).toBe("one");
    expect(gateway.lastTests).toMatchObject({
      digest,
      report: {
        passed: 1,
        failed: 0,
        tests: [{ name: "of one", passed: true, expected: { status: 200 }, found: { status: 200 } }],
      },
    });
    expect(gateway.status.tests).toEqual({ passed: 1, failed: 0 });
    await gateway.reload(oneService(9));
    expect([gateway.lastTests!.report, gateway.status.tests]).toEqual([{ passed: 0, failed: 0, tests: [] }, null]);
  });

  it(
    "refuses the configuration when a test fails, keeps the old one, and says so in the error, lastReload, " +
      "lastTests, status and metrics",
    async () => {
      const { gateway } = gated({ config: named("one") });
      const { digest } = gateway;
      const refused = await gateway.reload(named("two", 401), "signal").catch((error: unknown) => error as ConfigError);
      expect(refused).toBeInstanceOf(ConfigError);
      const message = '"of two" failed: status: expected 401, found 200';
      expect(refused).toMatchObject({ issues: [{ at: ["tests", 0], message }] });
      expect([nameOf(gateway), gateway.digest]).toEqual(["one", digest]);
      expect(gateway.status).toMatchObject({
        tests: { passed: 0, failed: 1 },
        lastReload: {
          by: "signal",
          outcome: "refused",
          digest,
          file: null,
          issues: [{ path: "tests[0]", line: null, column: null, message }],
        },
      });
      expect(gateway.status.warnings.map(({ code }) => code)).toContain("reload_refused");
      expect(gateway.lastTests!.digest).not.toBe(digest);
      expect(gateway.metrics()).toContain("edge_gateway_config_last_reload_successful 0");
      await gateway.reload(named("three"));
      expect(gateway.metrics()).toContain("edge_gateway_config_last_reload_successful 1");
    },
  );

  it("names file, line and column of a test that fails, in the configuration and in a file of test_files", async () => {
    const tests = fileWith(
      '[\n  { "name": "in a file", "request": { "url": "/a/x" }, "expect": { "status": 404 } }\n]',
      "tests.json",
    );
    const config = {
      ...oneService(9),
      tests: [{ name: "in the text", request: { url: "/a/x" }, expect: { code: "key_missing" } }],
      test_files: [tests],
    };
    const configFile = fileWith(JSON.stringify(oneService(9)));
    const { gateway } = gated({ configFile });
    writeFileSync(configFile, JSON.stringify(config, null, 1));
    await expect(gateway.reload()).rejects.toThrow(ConfigError);
    const { lastReload } = gateway.status;
    expect(lastReload).toMatchObject({
      file: configFile,
      issues: [
        {
          path: "tests[0]",
          line: expect.any(Number) as number,
          column: 3,
          message: '"in the text" failed: code: expected "key_missing", found null',
        },
        {
          path: "[0]",
          line: 2,
          column: 3,
          message: '"in a file" failed: status: expected 404, found 200',
          file: tests,
        },
      ],
    });
    expect(lastReload).not.toHaveProperty("issues.0.file");
  });

  it("runs one reload after another, and the last one wins", async () => {
    const { gateway, events, waiting, open } = gated({ config: oneService(9) });
    const first = gateway.reload(named("first", 200, GATE));
    const second = gateway.reload(named("second", 200, GATE));
    await waiting("first");
    for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
    expect(events).toEqual(["first begins"]);
    open("first");
    expect((await first).changed).toBe(true);
    expect(nameOf(gateway)).toBe("first");
    await waiting("second");
    open("second");
    await second;
    expect(nameOf(gateway)).toBe("second");
    expect(events).toEqual(["first begins", "first ends", "second begins", "second ends"]);
  });

  it("goes on with the next reload after one that is refused", async () => {
    const { gateway } = gated({ config: oneService(9) });
    const outcomes = await Promise.allSettled([
      gateway.reload(named("wrong", 500)),
      gateway.reload(named("right")),
      gateway.reload({} as never),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "fulfilled", "rejected"]);
    expect(nameOf(gateway)).toBe("right");
  });

  it(
    "reads the file once for all reloads of it that wait, with its newest content, " +
      "and never before a reload that came earlier",
    async () => {
      const configFile = fileWith(JSON.stringify(oneService(9)));
      const { gateway, waiting, open } = gated({ configFile });
      const held = expect(gateway.reload(named("held", 200, GATE))).resolves.toMatchObject({ changed: true });
      await waiting("held");
      const ofFile: Promise<Reloaded>[] = [gateway.reload(), gateway.reload(undefined, "signal")];
      const given = gateway.reload(named("given"));
      const last = gateway.reload();
      writeFileSync(configFile, JSON.stringify(named("newest")));
      open("held");
      await held;
      const [first, second] = await Promise.all(ofFile);
      expect(first).toMatchObject({ changed: true });
      // Each reload lists its changes anew: these two are one.
      expect(second!.changes).toBe(first!.changes);
      expect((await last).changes).not.toBe(first!.changes);
      expect(await given).toMatchObject({ changed: true });
      expect(await last).toMatchObject({ changed: true });
      expect(nameOf(gateway)).toBe("newest");
      expect(await gateway.reload()).toMatchObject({ changed: false });
    },
  );

  it("is refused when the gateway closes meanwhile, and changes nothing", async () => {
    const { gateway, waiting } = gated({ config: named("one") });
    const reload = gateway.reload(named("two", 200, GATE));
    await waiting("two");
    const refused = expect(reload).rejects.toThrow("the gateway has been closed");
    await gateway.close(0);
    await refused;
    expect(nameOf(gateway)).toBe("one");
    await expect(gateway.reload(named("three"))).rejects.toThrow("the gateway has been closed");
  });

  it("serves requests under the old configuration while tests of the new one run", async () => {
    const { gateway, waiting, open } = gated({
      config: oneService(9, { plugins: [{ name: "request_termination", config: { status: 204 } }] }),
    });
    const reload = gateway.reload(named("two", 200, GATE));
    await waiting("two");
    expect((await gateway.inject({ url: "/a/x" })).status).toBe(204);
    open("two");
    await reload;
  });

  it("takes what files hold that were reread while its tests ran", async () => {
    const [cert, key] = [fileWith(String(SERVER.cert), "cert.pem"), fileWith(String(SERVER.key), "key.pem")];
    const certificates = [{ hosts: ["localhost"], cert, key }];
    const config = (name: string, parts = {}): AnyConfigInput => ({
      ...named(name, 200, parts),
      global: { name, certificates },
    });
    const { gateway, waiting, open } = gated({ config: config("one") });
    const reload = gateway.reload(config("two", GATE));
    await waiting("two");
    writeFileSync(cert, `${String(SERVER.cert)}\n`);
    expect(gateway.rereadFiles()).toBe(true);
    open("two");
    await reload;
    expect(nameOf(gateway)).toBe("two");
    expect(gateway.rereadFiles()).toBe(false);
  });
});

describe("rereadFiles", () => {
  it(
    "leaves files with tests as they were loaded: a broken one does not keep a " + "certificate from being renewed",
    async () => {
      const [cert, key] = [fileWith(String(SERVER.cert), "cert.pem"), fileWith(String(SERVER.key), "key.pem")];
      const tests = fileWith("[]", "tests.json");
      const config = {
        ...oneService(9, {}, { certificates: [{ hosts: ["localhost"], cert, key }] }),
        test_files: [tests],
      };
      const { gateway } = gated({ config });
      expect(gateway.testFiles).toEqual([tests]);
      expect(gateway.files).toEqual(expect.arrayContaining([cert, key, tests]));
      writeFileSync(tests, "broken");
      expect(gateway.rereadFiles()).toBe(false);
      writeFileSync(cert, `${String(SERVER.cert)}\n`);
      expect(gateway.rereadFiles()).toBe(true);
      await expect(gateway.reload()).rejects.toThrow(ConfigError);
    },
  );
});

describe("the first listen", () => {
  it("runs the tests of the configuration once, before anything listens", async () => {
    const { gateway, events, waiting, open } = gated({ config: named("one", 200, GATE) });
    let bound = 0;
    const listening = [1, 2].map(() => gateway.listen({ port: 0 }).then(() => bound++));
    await waiting("one");
    for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
    expect([events, bound]).toEqual([["one begins"], 0]);
    open("one");
    await Promise.all(listening);
    await gateway.listen({ port: 0 });
    expect(events).toEqual(["one begins", "one ends"]);
    expect(gateway.lastTests).toMatchObject({ digest: gateway.digest, report: { passed: 1 } });
  });

  it(
    "rejects with a ConfigError when a test fails, again and again, " +
      "until a reload brings a configuration whose tests pass",
    async () => {
      const { gateway } = gated({ config: named("one", 404) });
      for (let i = 0; i < 2; i++) await expect(gateway.listen({ port: 0 })).rejects.toThrow(ConfigError);
      expect(gateway.status).toMatchObject({ lastReload: null, tests: { passed: 0, failed: 1 } });
      await gateway.reload(named("two"));
      expect((await gateway.listen({ port: 0 })).port).toBeGreaterThan(0);
    },
  );

  it("rejects when the gateway is closed while its tests run", async () => {
    const { gateway, waiting } = gated({ config: named("one", 200, GATE) });
    const refused = expect(gateway.listen({ port: 0 })).rejects.toThrow("the gateway has been closed");
    await waiting("one");
    await gateway.close(0);
    await refused;
  });
});

describe("gateway.test", () => {
  it("runs the tests of the configuration in force, all or those whose names contain a text", async () => {
    const { gateway } = gated({
      config: {
        ...oneService(9),
        tests: ["one", "two"].map((name) => ({
          name,
          request: { url: "/a/x" },
          expect: { status: name === "one" ? 200 : 404 },
        })),
      },
    });
    expect(await gateway.test({ only: "one" })).toMatchObject({ passed: 1, failed: 0, tests: [{ name: "one" }] });
    expect(gateway.lastTests).toBeNull();
    expect(await gateway.test()).toMatchObject({
      passed: 1,
      failed: 1,
      tests: [{ name: "one" }, { name: "two", passed: false }],
    });
    expect(gateway.lastTests).toMatchObject({ digest: gateway.digest, report: { failed: 1 } });
    expect(await gateway.test({ only: "three" })).toEqual({ passed: 0, failed: 0, tests: [] });
  });
});

describe("a reload of a file of millions of brackets", () => {
  it("is refused at the hundredth level, before anything reads all of them, and the file is parsed once", async () => {
    const configFile = fileWith(oneService(9));
    const gateway = createGateway({ configFile });
    onTestFinished(async () => void (await gateway.close(0)));
    const parse = vi.spyOn(JSON, "parse");
    onTestFinished(() => parse.mockRestore());
    writeFileSync(configFile, "[".repeat(4_000_000));
    await expect(gateway.reload()).rejects.toThrow(/nested deeper than 100 levels/);
    const text = JSON.stringify(oneService(10));
    writeFileSync(configFile, text);
    expect(await gateway.reload()).toMatchObject({ changed: true });
    expect(parse.mock.calls.filter(([given]) => given.length > 100_000 || given === text)).toEqual([]);
  });
});
