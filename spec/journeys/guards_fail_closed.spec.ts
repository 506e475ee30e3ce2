/** What guards do when they cannot ask their server, and with requests that could be read in two ways. */
import { createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, client, codeIn, get, rawBackend, statusesIn } from "./harness.ts";

/** More than a plugin's client opens to one server. */
const MANY = 300;
const MAX_CONNECTIONS = 256;

describe.each([
  ["forward_auth", (url: string) => ({ url, timeout_ms: 400, on_error: "allow" })],
  [
    "introspection",
    (url: string) => ({ url, client_id: "gateway", client_secret: "s", timeout_ms: 400, on_error: "allow" }),
  ],
])("%s with on_error allow", (name, config) => {
  it(
    `${name} with on_error allow answers 503 to requests that have waited for a connection of its own pool, ` +
      `and forwards none of them`,
    async () => {
      const [origin, clock] = [await backend(), manualClock()];
      const server = await rawBackend(() => {});
      const { gateway, port } = await running(
        oneService(origin.port, { plugins: [{ name, config: config(`http://127.0.0.1:${server.port}/`) }] }),
        { clock },
      );
      const all = Array.from({ length: MANY }, (_, i) =>
        ask(port, { path: "/a/x", headers: { authorization: `Bearer t${i}` } }),
      );
      await eventually(() => server.connections.open === MAX_CONNECTIONS, "all connections of the pool");
      // A request that came after the first time-outs would get one of their connections, and wait for the server
      // itself.
      await eventually(() => gateway.inFlight === MANY, "all requests");
      const ticking = setInterval(() => clock.advance(100), 2);
      const statuses = (await Promise.all(all).finally(() => clearInterval(ticking))).map(({ status }) => status);
      expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(MAX_CONNECTIONS);
      expect(statuses.filter((status) => status === 503).length).toBeGreaterThanOrEqual(MANY - MAX_CONNECTIONS);
      expect(origin.seen.length).toBeLessThanOrEqual(MAX_CONNECTIONS);
    },
  );
});

describe("introspection with on_error allow and a token that its server refuses to read", () => {
  it.each([400, 413, 431])("a question that is answered with %i admits nobody", async (status) => {
    const [origin, server] = [
      await backend(),
      await backend((_request, response) => void response.writeHead(status).end()),
    ];
    const config = {
      url: `http://127.0.0.1:${server.port}/`,
      client_id: "gateway",
      client_secret: "s",
      on_error: "allow",
      timeout_ms: 60_000,
    };
    const { port } = await running(oneService(origin.port, { plugins: [{ name: "introspection", config }] }));
    expect((await ask(port, { path: "/a/x", headers: { authorization: "Bearer odd" } })).status).toBe(503);
    expect(origin.seen).toHaveLength(0);
  });
});

describe("forward_auth", () => {
  it("forward_auth refuses two Authorization headers with 400, over HTTP/1.1 and HTTP/2, and asks nobody", async () => {
    const [origin, server] = [await backend(), await backend()];
    const plugins = [
      {
        name: "forward_auth",
        config: {
          url: `http://127.0.0.1:${server.port}/`,
          timeout_ms: 60_000,
          request_headers: ["authorization", "X-Api-Key", "Cookie"],
        },
      },
    ];
    const { port } = await running(oneService(origin.port, { plugins }, { h2c: true }));
    const connection = await client(port);
    for (const lines of [
      ["Authorization: Bearer good", "Authorization: Bearer forged"],
      ["X-Api-Key: good", "x-api-key: forged"],
    ])
      connection.send(get("/a/x", ...lines));
    connection.send(get("/a/x", "Connection: close"));
    const received = await connection.closed();
    expect([statusesIn(received), codeIn(received)]).toEqual([[400, 400, 200], "bad_request"]);
    const session = h2Session(port);
    expect((await h2Ask(session, { path: "/a/x", headers: { "x-api-key": ["good", "forged"] } })).status).toBe(400);
    session.close();
    expect([server.seen.length, origin.seen.length]).toEqual([1, 1]);
  });

  it("forward_auth shows several lines of Cookie to its server and to the upstream as one", async () => {
    const [origin, server] = [await backend(), await backend()];
    const { port } = await running(
      oneService(origin.port, {
        plugins: [{ name: "forward_auth", config: { url: `http://127.0.0.1:${server.port}/`, timeout_ms: 60_000 } }],
      }),
    );
    const connection = await client(port);
    connection.send(get("/a/x", "Cookie: session=good", "Cookie: session=forged", "Connection: close"));
    expect(statusesIn(await connection.closed())).toEqual([200]);
    for (const { headers } of [server.seen[0]!, origin.seen[0]!]) {
      expect(headers.filter((_text, i) => i % 2 === 1 && headers[i - 1]!.toLowerCase() === "cookie")).toEqual([
        "session=good; session=forged",
      ]);
    }
  });
});

describe("a token in several places", () => {
  const SECRET = "a secret of at least thirty-two bytes";
  const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = (claims: object) => {
    const text = `${encode({ alg: "HS256" })}.${encode({ exp: 4_000_000_000, ...claims })}`;
    return `${text}.${createHmac("sha256", SECRET).update(text).digest("base64url")}`;
  };

  it(
    "a token in several places is refused with 401 if another one is in a second place, " +
      "whatever the order of the places",
    async () => {
      const origin = await backend();
      const from = ["header", "cookie:t", "query:t"];
      for (const places of [from, from.toReversed()]) {
        const { port } = await running(
          oneService(origin.port, {
            plugins: [{ name: "jwt", config: { alg: "HS256", secret: SECRET, from: places } }],
          }),
        );
        const [good, forged] = [signed({ sub: "ann" }), `${encode({ alg: "none" })}.${encode({ sub: "root" })}.`];
        const statusOf = async (header: string | null, cookie: string | null, query: string | null) => {
          const headers = {
            ...(header && { authorization: `Bearer ${header}` }),
            ...(cookie && { cookie: `t=${cookie}` }),
          };
          return (await ask(port, { path: query === null ? "/a/x" : `/a/x?t=${query}`, headers })).status;
        };
        expect([
          await statusOf(good, null, null),
          await statusOf(null, good, null),
          await statusOf(null, null, good),
          await statusOf(good, good, good),
        ]).toEqual([200, 200, 200, 200]);
        const refused = [
          await statusOf(good, forged, null),
          await statusOf(good, null, forged),
          await statusOf(null, good, forged),
          await statusOf(good, good, forged),
          await statusOf(forged, good, null),
        ];
        expect(refused).toEqual([401, 401, 401, 401, 401]);
      }
      expect(origin.seen).toHaveLength(8);
    },
  );
});
