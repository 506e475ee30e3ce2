/** Which servers the plugins of a configuration may ask. */
import { describe, expect, it } from "vitest";
import { kindProblem } from "../../lib/plugins/foreign_kind.ts";
import { definePlugin } from "../../lib/plugins/kit.ts";
import type { Plugin } from "../../lib/plugins/plugin.ts";
import * as schema from "../../lib/config/schema.ts";
import { destinationsOf } from "../../lib/gateway/all_destinations.ts";
import { Candidate } from "../../lib/proof/candidate.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { withAllFeatures } from "../../lib/features/all.ts";

const SCHEMA = schema.object({ url: schema.string({}) });

/**
 * Asks `url`, and answers with the answer's status or with the error. Its client is kept under settings that do not
 * change.
 */
const asking = (more: Pick<Plugin<typeof SCHEMA>, "dials">) =>
  definePlugin({
    name: "asking",
    schema: SCHEMA,
    ...more,
    create({ url }, tools) {
      const client = tools.keep("client", {}, () => tools.client());
      const said = (text: string) => ({ status: 200, headers: [], body: Buffer.from(text) });
      return () => () =>
        client.ask({ url: new URL(url), timeoutMs: 5_000, maxBytes: 100 }).then(
          ({ status }) => said(String(status)),
          (error: Error) => said(error.message),
        );
    },
  });

const withPlugin = (port: number, url: string) => oneService(port, { plugins: [{ name: "asking", config: { url } }] });

describe("tools.client", () => {
  it("asks a server that the kind names in dials, and after a reload the server of the new configuration", async () => {
    const [first, second] = [await backend(), await backend()];
    const kind = asking({ dials: { why: "asking", urls: ({ url }) => [url] } });
    const gateway = await running(withPlugin(first.port, `http://127.0.0.1:${first.port}/`), { plugins: [kind] });
    expect((await ask(gateway.port, { path: "/a/r" })).body.toString()).toBe("200");
    await gateway.gateway.reload(withPlugin(first.port, `http://127.0.0.1:${second.port}/`));
    expect((await ask(gateway.port, { path: "/a/r" })).body.toString()).toBe("200");
  });

  it.each([
    ["whose kind names no servers", {}, 'plugin asking, whose kind has no "dials"'],
    ["whose kind names another server", { dials: { why: "other", urls: () => ["http://127.0.0.1:1/"] } }, "other"],
  ])("asks no server for a plugin %s", async (_title, more, why) => {
    const { port } = await backend();
    const gateway = await running(withPlugin(port, `http://127.0.0.1:${port}/`), { plugins: [asking(more)] });
    expect((await ask(gateway.port, { path: "/a/r" })).body.toString()).toBe(
      `no connection is opened to 127.0.0.1 port ${port} (${why}): ` +
        `neither the configuration nor a setting names this server`,
    );
  });

  it.each<[string, () => never, string]>([
    [
      "throw",
      () => {
        throw new TypeError("no store");
      },
      'urls of its "dials" has thrown: no store',
    ],
    ["return a text", () => "http://127.0.0.1:1/" as never, 'urls of its "dials" has to return a list of URLs'],
    [
      "return a scheme without a known port",
      () => ["smtp://127.0.0.1"] as never,
      'urls of its "dials" has to return a list of URLs',
    ],
    ["return no host", () => ["redis:store"] as never, 'urls of its "dials" has to return a list of URLs'],
  ])(
    "a configuration with a kind whose dials %s is refused, also by a reload, and the kind is named",
    async (_what, urls, message) => {
      const { port } = await backend();
      const broken = { ...asking({ dials: { why: "asking", urls } }), name: "broken" };
      const [good, bad] = [
        oneService(port),
        oneService(port, { plugins: [{ name: "broken", config: { url: "http://127.0.0.1:1/" } }] }),
      ];
      const whole = `services[0].plugins[0]  plugin broken of service "s" cannot be created: ${message}`;
      await expect(running(bad, { plugins: [broken] })).rejects.toThrow(whole);
      const { gateway } = await running(good, { plugins: [broken] });
      await expect(gateway.reload(bad)).rejects.toThrow(whole);
      expect(gateway.status.lastReload).toMatchObject({
        outcome: "refused",
        issues: [{ path: "services[0].plugins[0]", message: expect.stringContaining(whole.slice(24)) as string }],
      });
    },
  );

  it("a kind whose dials are redis URLs, or others with a port, names these servers", () => {
    const urls = ["redis://store", "rediss://[::1]:6380/0", "tcp://log.example:5170", "https://a.example"];
    const kind = { ...asking({ dials: { why: "stores", urls: () => urls } }), name: "stores" };
    const candidate = new Candidate({
      modules: withAllFeatures(),
      config: oneService(9, { plugins: [{ name: "stores", config: { url: "http://127.0.0.1:1/" } }] }),
      plugins: [kind],
    });
    const { config, kinds } = candidate.configuration.snapshot;
    const named = destinationsOf(config, kinds, withAllFeatures()).filter(({ why }) => why === "stores");
    expect(named.map(({ host, port }) => `${host} ${port}`)).toEqual([
      "store 6379",
      "::1 6380",
      "log.example 5170",
      "a.example 443",
    ]);
    return candidate.close();
  });

  it.each([[{ why: 1, urls: () => [] }], [{ why: "x" }], ["x"]])("a kind whose dials are %j is refused", (dials) => {
    expect(kindProblem({ ...asking({}), dials })).toBe(
      'plugin asking: "dials" is { why, urls }: a reason, and a function that returns the URLs of a configuration',
    );
  });
});

describe("a configuration that is only checked", () => {
  it("dials nothing for a plugin that asks its server as soon as it is created", async () => {
    const { port } = await backend();
    const asked: Promise<unknown>[] = [];
    const eager = definePlugin({
      name: "eager",
      schema: SCHEMA,
      dials: { why: "eager", urls: ({ url }) => [url] },
      create({ url }, tools) {
        asked.push(
          tools
            .client()
            .ask({ url: new URL(url), timeoutMs: 5_000, maxBytes: 100 })
            .then(
              ({ status }) => status,
              (error: Error) => error.message,
            ),
        );
        return (next) => next;
      },
    });
    const { services } = oneService(port, {
      plugins: [{ name: "eager", config: { url: `http://127.0.0.1:${port}/` } }],
    });
    const candidate = new Candidate({ modules: withAllFeatures(), config: { services }, plugins: [eager] });
    await candidate.close();
    expect(await Promise.all(asked)).toEqual(["nothing is dialled here"]);
  });
});
