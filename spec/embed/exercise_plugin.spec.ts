import { describe, expect, it } from "vitest";
import {
  ConfigError,
  definePlugin,
  discard,
  exercisePlugin,
  headerValue,
  problem,
  readBody,
  readReply,
  schema,
  withHeader,
  type Middleware,
} from "../../lib/index.ts";
import { keyAuth } from "../../lib/plugins/key_auth.ts";
import { rateLimit } from "../../lib/plugins/rate_limit.ts";

const greeting = definePlugin({
  name: "greeting",
  schema: schema.object({ word: schema.string({ min: 1 }), loud: schema.withDefault(schema.boolean(), false) }),
  create:
    ({ word, loud }, tools) =>
    (next) =>
    async (exchange) => {
      tools.log.info("greeted", { caller: exchange.identity });
      const reply = await next(
        exchange.with({ headers: withHeader(exchange.headers, "X-Word", loud ? word.toUpperCase() : word) }),
      );
      return {
        ...reply,
        headers: withHeader(reply.headers, "X-Level", `${tools.scope.level} ${tools.scope.id} ${tools.gatewayName}`),
      };
    },
});

describe("exercisePlugin", () => {
  it("exercisePlugin refuses to send a request with a name that it does not know, or a body that is none", async () => {
    const { send } = exercisePlugin(greeting, { word: "hi" });
    await expect(send({ ulr: "/b" } as never)).rejects.toThrow(/^send has no option "ulr": did you mean "url"\?$/);
    await expect(send({ path: "/b" } as never)).rejects.toThrow(/^send has no option "path": write "url"$/);
    await expect(send({ scheme: "https" } as never)).rejects.toThrow(
      /^send has no option "scheme": the url says it, such as "https:\/\/localhost\/"$/,
    );
    await expect(send({ body: 1 } as never)).rejects.toThrow(/^send: body must be a string or a Buffer$/);
  });

  it("exercisePlugin returns the reply, the forwarded request and the log lines", async () => {
    const { send, lines } = exercisePlugin(
      greeting,
      { word: "hi", loud: true },
      { id: "one", level: "service", gatewayName: "gw" },
    );
    const done = await send({
      method: "POST",
      url: "/b?c",
      headers: { "X-Own": "d" },
      body: "text",
      identity: "alice",
      params: { e: "f" },
    });
    expect([done.status, done.text(), done.header("x-level"), done.code, done.atOnce]).toEqual([
      200,
      "from upstream",
      "service one gw",
      null,
      false,
    ]);
    const { method, path, query, headers, params } = done.forwarded!;
    expect([method, path, query, headerValue(headers, "x-own"), headerValue(headers, "x-word"), params]).toEqual([
      "POST",
      "/b",
      "?c",
      "d",
      "HI",
      { e: "f" },
    ]);
    expect(done.forwardedBody.toString()).toBe("text");
    expect(lines).toEqual([{ level: "info", message: "greeted", fields: { caller: "alice" } }]);
  });

  it("exercisePlugin validates the configuration like a file, and reports every issue", () => {
    const wrong = { wrd: "x", loud: "yes" } as never;
    expect(() => exercisePlugin(greeting, wrong)).toThrow(ConfigError);
    expect(() => exercisePlugin(greeting, wrong)).toThrow(
      new RegExp(
        String.raw`config\.wrd +is not a known field; did you mean "word"\?\nconfig\.word +is ` +
          String.raw`required[^]*\nconfig\.loud +expected true or false, found "yes"`,
      ),
    );
  });

  it("exercisePlugin resolves references in the given environment only", async () => {
    const { send } = exercisePlugin(greeting, { word: "${env:WORD}" }, { environment: { WORD: "secret" } });
    expect(headerValue((await send()).forwarded!.headers, "x-word")).toBe("secret");
    expect(() => exercisePlugin(greeting, { word: "${env:PATH}" })).toThrow(/PATH is not set/);
  });

  it("exercisePlugin uses one instance for all requests, and its clock moves only by hand", async () => {
    const { send, clock } = exercisePlugin(rateLimit, { limit_second: 1 });
    expect([(await send()).status, (await send()).status]).toEqual([200, 429]);
    clock.advance(2_000);
    expect((await send()).status).toBe(200);
  });

  it("exercisePlugin returns the code of a refusal, and null as the forwarded request", async () => {
    const { send } = exercisePlugin(keyAuth, { key: "k" });
    expect(await send()).toMatchObject({ status: 401, code: "key_missing", forwarded: null, atOnce: true });
    expect(await send({ url: "/?apiKey=k" })).toMatchObject({ status: 200, code: null, atOnce: true });
  });

  it("exercisePlugin accepts an upstream as a value and as a function", async () => {
    const one = exercisePlugin(
      greeting,
      { word: "a" },
      { upstream: { status: 404, headers: { "X-B": "c" }, body: "none" } },
    );
    const first = await one.send();
    expect([first.status, first.header("X-B"), first.text()]).toEqual([404, "c", "none"]);
    const two = exercisePlugin(
      greeting,
      { word: "a" },
      { upstream: async (exchange) => problem(exchange.call, "upstream_timeout") },
    );
    expect(await two.send()).toMatchObject({ status: 504, code: "upstream_timeout" });
  });

  it("exercisePlugin keeps concurrent requests apart", async () => {
    const { send } = exercisePlugin(greeting, { word: "a" });
    const [one, two] = await Promise.all([
      send({ url: "/1", method: "POST", body: "x" }),
      send({ url: "/2", method: "POST", body: "y" }),
    ]);
    expect([
      one.forwarded!.path,
      one.forwardedBody.toString(),
      two.forwarded!.path,
      two.forwardedBody.toString(),
    ]).toEqual(["/1", "x", "/2", "y"]);
  });

  it("send runs a plugin that reads whole bodies, and answers as a gateway where a body is too large", async () => {
    const count = definePlugin({
      name: "count",
      schema: schema.object({ most: schema.integer() }),
      create:
        ({ most }) =>
        (next) =>
        async (exchange) => {
          const sent = await readBody(exchange, most);
          const reply = await next(exchange);
          const got = await readReply(reply, most);
          return {
            ...reply,
            headers: withHeader(reply.headers, "X-Bytes", `${exchange.target} ${sent.length} ${got.length}`),
          };
        },
    });
    const done = await exercisePlugin(count, { most: 13 }).send({ url: "/%61?b", method: "POST", body: "hello" });
    expect([done.header("x-bytes"), done.text(), done.forwardedBody.toString()]).toEqual([
      "/%61?b 5 13",
      "from upstream",
      "hello",
    ]);
    expect(await exercisePlugin(count, { most: 4 }).send({ method: "POST", body: "hello" })).toMatchObject({
      status: 413,
      code: "body_too_large",
      forwarded: null,
    });
    expect(await exercisePlugin(count, { most: 5 }).send({ method: "POST", body: "hello" })).toMatchObject({
      status: 502,
      code: "upstream_invalid",
    });
  });

  it("send rejects with what the plugin throws, and with a TypeError when it returns no Reply", async () => {
    const make = (handler: () => never) =>
      exercisePlugin(definePlugin({ name: "odd", schema: schema.object({}), create: () => () => handler }), {});
    await expect(
      make(() => {
        throw new Error("lost");
      }).send(),
    ).rejects.toThrow("lost");
    await expect(make(() => undefined as never).send()).rejects.toThrow("the plugin returned no Reply");
    await expect(exercisePlugin(greeting, { word: "a" }).send({ url: "/a/../../b" })).rejects.toThrow(
      /the gateway itself would refuse this request/,
    );
    expect(() => exercisePlugin({ ...greeting, name: "No" }, { word: "a" })).toThrow(/plugin name "No"/);
  });

  it("exercisePlugin creates each kept state once, and close() closes it", async () => {
    const told: string[] = [];
    const holding = definePlugin({
      name: "holding",
      schema: schema.object({}),
      create: (_config, { keep }) => {
        for (const settings of [1, 1, 2])
          keep("thing", settings, () => (told.push(`+${settings}`), { close: () => void told.push(`-${settings}`) }));
        return (next) => async (exchange) => (discard(await next(exchange)), { status: 204, headers: [], body: null });
      },
    });
    const { send, close } = exercisePlugin(holding, {});
    expect((await send({ upgrade: "websocket", claims: { sub: "a" } })).status).toBe(204);
    await close();
    expect(told).toEqual(["+1", "+2", "-1", "-2"]);
  });

  it("exercisePlugin answers requests of the plugin's own by their URLs, and gives it verified claims", async () => {
    const asking = definePlugin({
      name: "asking",
      schema: schema.object({}),
      create(_config, { client, verifiedClaims }) {
        return (next) => async (exchange) => {
          const answers = ["http://one.example", "http://two.example/x"].map((url) =>
            client().ask({ url: new URL(url), timeoutMs: 1_000, maxBytes: 10 }),
          );
          const texts = await Promise.all(
            answers.map((answer) =>
              answer.then(
                ({ status, body }) => `${status} ${String(body)}`,
                (error: Error) => error.message,
              ),
            ),
          );
          return next(exchange.with({ headers: ["X-Texts", texts.join(", "), "X-Sub", String(verifiedClaims?.sub)] }));
        };
      },
    });
    const { send } = exercisePlugin(
      asking,
      {},
      { answers: [{ url: "http://one.example/", body: "hello" }], verifiedClaims: { sub: "ada" } },
    );
    const { forwarded } = await send();
    expect(forwarded!.headers).toEqual([
      "X-Texts",
      "200 hello, the test has no answer of http://two.example/x",
      "X-Sub",
      "ada",
    ]);
  });

  it.each<[string, Middleware, RegExp]>([
    [
      "adds a line break to a reply's headers",
      (next) => async (exchange) => ({ ...(await next(exchange)), headers: ["X-A", "b\nc"] }),
      /header X-A has a value/,
    ],
    [
      "adds a line break to a request's headers",
      (next) => (exchange) => next(exchange.with({ headers: ["X-A", "b\nc"] })),
      /header X-A has a value/,
    ],
    [
      "changes the reply's headers in place",
      (next) => async (exchange) => {
        const reply = await next(exchange);
        (reply.headers as string[]).push("X-A", "b");
        return reply;
      },
      /not extensible/,
    ],
    [
      "changes the request's headers in place",
      (next) => (exchange) => {
        (exchange.headers as string[]).push("X-A", "b");
        return next(exchange);
      },
      /not extensible/,
    ],
    [
      "changes a body and leaves its Content-Length",
      (next) => async (exchange) => ({ ...(await next(exchange)), body: Buffer.from("longer") }),
      /has 6 bytes, and its Content-Length is "2"/,
    ],
    [
      "removes a body and leaves its Content-Length",
      (next) => async (exchange) => ({ ...(await next(exchange)), body: null }),
      /has 0 bytes, and its Content-Length is "2"/,
    ],
  ])("exercisePlugin rejects for a plugin that %s", async (_what, middleware, message) => {
    const faulty = definePlugin({ name: "faulty", schema: schema.object({}), create: () => middleware });
    const { send } = exercisePlugin(faulty, {}, { upstream: { headers: { "Content-Length": "2" }, body: "ok" } });
    await expect(send()).rejects.toThrow(message);
  });
});
