/** Reloads in two steps: the main thread prepares, all workers prepare, and then all take the configuration or none. */
import { rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import { ConfigError } from "../../lib/gateway/gateway.ts";
import { definePlugin, schema, type GatewayOptions } from "../../lib/index.ts";
import { rewrite, together } from "../support/following.ts";
import { backend, oneService } from "../support/gateway.ts";
import { keptClient } from "../support/kept_client.ts";
import { emptyFolder, fileWith } from "../support/process.ts";
import { eventually } from "../support/raw_client.ts";

/** A plugin that answers with the text of its configuration; `events` gets what is created and closed. */
function telling(events: string[] = [], refuses: string | null = null) {
  return definePlugin({
    name: "telling",
    schema: schema.object({ text: schema.string({ describe: "The answer." }) }),
    create({ text }, { keep, log }) {
      if (text === refuses) throw new Error(`cannot say ${text}`);
      log.warn(`telling ${text}`);
      keep("state", text, () => {
        events.push(`open ${text}`);
        return { close: () => void events.push(`close ${text}`) };
      });
      return () => () => ({
        status: 200,
        headers: ["Content-Length", String(Buffer.byteLength(text))],
        body: Buffer.from(text),
      });
    },
  });
}

const config = (text: string, global: object = {}) =>
  oneService(9, { plugins: [{ name: "telling", config: { text } }] }, global);
const said = async (port: number) => {
  const client = await keptClient(port);
  const { body } = await client.ask("/a/x");
  client.close();
  return body;
};

describe("workers", () => {
  it("compile from what the main thread has read: the file, secrets and certificates may be gone", async () => {
    const secret = fileWith("from a file", "secret");
    const file = fileWith(config("${file:" + secret + "} ${env:NAME}"));
    const kinds = { plugins: [telling()], environment: { NAME: "and a variable" } };
    const removing: Partial<GatewayOptions> = {
      get environment() {
        for (const path of [secret, file]) rmSync(path, { force: true });
        return { NAME: "another" };
      },
    };
    const { main, ports, workers } = await together({ configFile: file, ...kinds, ofWorkers: [removing, removing] });
    for (const port of ports) expect(await said(port)).toBe("from a file and a variable");
    expect(workers.map(({ digest }) => digest)).toEqual([main.digest, main.digest]);
  });

  it("take a reload at their next request, over a connection that stays too, without a message", async () => {
    const { main, ports, events } = await together({ config: config("one"), plugins: [telling()] });
    const clients = await Promise.all(ports.map(keptClient));
    for (const client of clients) expect((await client.ask("/a/x")).body).toBe("one");
    await main.reload(config("two"));
    expect(events).toEqual(["prepare", "commit"]);
    for (const client of clients) expect((await client.ask("/a/x")).body).toBe("two");
    for (const client of clients) client.close();
  });

  it("answer by the old configuration until all have prepared the new one", async () => {
    const { main, ports, hold } = await together({ config: config("one"), plugins: [telling()] });
    const go = hold();
    const reloading = main.reload(config("two"));
    await expect(Promise.race([reloading, said(ports[0]!)])).resolves.toBe("one");
    go();
    await reloading;
    expect(await Promise.all(ports.map(said))).toEqual(["two", "two"]);
  });

  it(
    "refuse together: where one cannot create a plugin, none takes the configuration, " +
      "what was created for it is closed, and lastReload has the reason",
    async () => {
      const [first, second, third] = [[], [], []] as [string[], string[], string[]];
      const { main, ports, workers, events } = await together({
        ...{ config: config("one"), plugins: [telling(first)] },
        ofWorkers: [{ plugins: [telling(second)] }, { plugins: [telling(third, "two")] }],
      });
      const before = main.digest;
      await expect(main.reload(config("two"))).rejects.toThrow("cannot say two");
      expect(events).toEqual(["prepare", "abandon"]);
      expect(main.status.lastReload).toMatchObject({
        outcome: "refused",
        digest: before,
        issues: [{ message: expect.stringContaining("cannot say two") as string }],
      });
      expect(await Promise.all(ports.map(said))).toEqual(["one", "one"]);
      expect([main, ...workers].map(({ digest }) => digest)).toEqual([before, before, before]);
      expect([first, second, third]).toEqual([
        ["open one", "open two", "close two"],
        ["open one", "open two", "close two"],
        ["open one"],
      ]);
      await main.reload(config("three"));
      expect(await Promise.all(ports.map(said))).toEqual(["three", "three"]);
    },
  );

  it("are not asked for a configuration that has an error or a failing test", async () => {
    const { main, events } = await together({ config: config("one"), plugins: [telling()] });
    await expect(main.reload({ services: [{ name: "s" }] } as never)).rejects.toThrow(ConfigError);
    await expect(
      main.reload({ ...config("two"), tests: [{ name: "t", request: { url: "/a/x" }, expect: { status: 201 } }] }),
    ).rejects.toThrow(ConfigError);
    expect(events).toEqual([]);
  });

  it(
    "drop a configuration whose access log the main thread cannot open, " +
      "or that was prepared while the gateway closed",
    async () => {
      const { main, ports, events, hold } = await together({ config: config("one"), plugins: [telling()] });
      await main.listen({ port: 0 });
      const file = join(emptyFolder(), "none", "access.log");
      await expect(main.reload(config("two", { access_log: { enabled: true, file } }))).rejects.toThrow(
        `cannot write to ${file}`,
      );
      expect(events).toEqual(["prepare", "abandon"]);
      const go = hold();
      const reloading = expect(main.reload(config("three"))).rejects.toThrow("the gateway has been closed");
      await eventually(() => events.length === 3, "the second preparation");
      await main.close(0);
      go();
      await reloading;
      expect(events).toEqual(["prepare", "abandon", "prepare", "close", "abandon"]);
      expect(await Promise.all(ports.map(said))).toEqual(["one", "one"]);
    },
  );

  it("load plugin modules from the bytes that the main thread has read", async () => {
    const { createHash } = await import("node:crypto");
    const code =
      'export default (kit) => kit.definePlugin({ name: "own", schema: kit.schema.object({}), create: () => () ' +
      '=> () => ({ status: 200, headers: ["Content-Length", "3"], body: Buffer.from("own") }) });';
    const module = fileWith(code, "own.mjs");
    const next = oneService(
      9,
      { plugins: [{ name: "own" }] },
      { plugin_modules: [{ path: module, sha256: createHash("sha256").update(code).digest("hex") }] },
    );
    const { main, ports, events, hold } = await together({ config: config("one"), plugins: [telling()] });
    await main.loadModules(next);
    const go = hold();
    const reloading = main.reload(next);
    await eventually(() => events.length === 1, "the preparation");
    rmSync(dirname(module), { recursive: true });
    go();
    await reloading;
    expect(await Promise.all(ports.map(said))).toEqual(["own", "own"]);
  });

  it("get new content of files after the reloads that are under way, all or none", async () => {
    const keys = fileWith("one", "text");
    const seen: string[] = [];
    const reading = (refused: string | null) =>
      definePlugin({
        name: "reading",
        schema: schema.object({ file: schema.file({ describe: "A text." }) }),
        create({ file }) {
          const text = file.content.toString();
          if (text === refused) throw new Error(`cannot use ${text}`);
          seen.push(text);
          return () => () => ({
            status: 200,
            headers: ["Content-Length", String(text.length)],
            body: Buffer.from(text),
          });
        },
      });
    const own = (name: string) => oneService(9, { plugins: [{ name: "reading", config: { file: keys } }] }, { name });
    const { main, ports, events, hold } = await together({
      ...{ config: own("one"), plugins: [reading(null)] },
      ofWorkers: [{}, { plugins: [reading("four")] }],
    });
    const { reloads } = Gateway.internalsOf(main);
    expect(await reloads.rereadFilesInAll()).toBe(false);
    const go = hold();
    const reloading = main.reload(own("two"));
    await eventually(() => events.length === 1, "the preparation");
    rewrite(keys, "three");
    const rereading = reloads.rereadFilesInAll();
    expect(await Promise.all(ports.map(said))).toEqual(["one", "one"]);
    go();
    await reloading;
    expect(await rereading).toBe(true);
    expect(events).toEqual(["prepare", "commit", "prepare", "commit"]);
    expect(await Promise.all(ports.map(said))).toEqual(["three", "three"]);
    rewrite(keys, "four");
    await expect(reloads.rereadFilesInAll()).rejects.toThrow("cannot use four");
    expect(await Promise.all(ports.map(said))).toEqual(["three", "three"]);
    expect(events.slice(4)).toEqual(["prepare", "abandon"]);
  });

  it(
    "share memory by name with the main thread, the same before and after a reload, " + "also those that start later",
    async () => {
      const { main, workers } = await together({ config: config("one"), plugins: [telling()] });
      const memoryOf = (gateway: Gateway) => Gateway.internalsOf(gateway).configuration.bundle.memory;
      const lasting = Gateway.internalsOf(main).runtime.lasting.memory("lasting", 8);
      expect(lasting).toBeInstanceOf(SharedArrayBuffer);
      const before = memoryOf(main);
      expect(before.size).toBeGreaterThan(1);
      expect(before.get("lasting")).toBe(lasting);
      await main.reload(config("two"));
      for (const [name, memory] of before) expect(memoryOf(main).get(name)).toBe(memory);
      for (const worker of workers) {
        for (const [name, memory] of memoryOf(worker))
          expect([name, memory === before.get(name)]).toEqual([name, true]);
      }
    },
  );

  it("are told of an announced stop, of new certificates and of the end", async () => {
    const { main, events } = await together({ config: config("one"), plugins: [telling()] });
    main.announceStop();
    main.announceStop();
    expect(await main.close(1_000)).toBe("drained");
    expect(events).toEqual(["announceStop", "close"]);
  });
});

describe("the gateway of a main thread", () => {
  it("takes the ports that it is told to listen on, tells them, and gives them back", async () => {
    const { main, ports } = await together({ config: config("one"), plugins: [telling()] });
    const { port } = await main.listen({ port: 0 });
    await expect(keptClient(port)).rejects.toThrow("ECONNREFUSED");
    await expect(main.listen({ port: ports[0]! })).rejects.toThrow("EADDRINUSE");
    const busy = await backend();
    await expect(main.listen({ port: busy.port })).rejects.toThrow("EADDRINUSE");
  });
});
