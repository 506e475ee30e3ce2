/** When a plugin's reply body differs from its stated length, the connection stays in step or is closed. */
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import type { Reply } from "../../lib/index.ts";
import { behaving, HANDSHAKE } from "../gateway/plugins.ts";
import { oneService, running } from "../support/gateway.ts";
import { client, get, statusesIn } from "./harness.ts";

/** A gateway whose plugin answers with `reply`, and with "fine" at /a/fine. */
async function answering(reply: () => Partial<Reply>) {
  const lines: string[] = [];
  const fine: Reply = { status: 200, headers: [], body: Buffer.from("fine") };
  const plugin = behaving(
    () => (exchange) => (exchange.path === "/a/fine" ? fine : { status: 200, headers: [], body: null, ...reply() }),
  );
  return { lines, ...(await running(oneService(9, { plugins: [{ name: "behave" }] }), { plugins: [plugin] })) };
}

const parts = (...texts: string[]) =>
  Readable.from(
    texts.map((text) => Buffer.from(text)),
    { objectMode: false },
  );
const FINE = get("/a/fine");

describe("a reply stream of a plugin", () => {
  it.each<[string, string, string]>([
    ["longer", "4", "four"],
    ["shorter", "12", "fourmore"],
  ])(
    "a reply stream of a plugin closes the connection when it is %s than its Content-Length, " +
      "and sends no byte beyond that length",
    async (_how, length, body) => {
      const { port, gateway } = await answering(() => ({
        headers: ["Content-Length", length],
        body: parts("four", "more"),
      }));
      const connection = await client(port);
      connection.send(get() + FINE);
      const text = await connection.closed();
      expect(statusesIn(text).length).toBeLessThan(2);
      expect(body.startsWith(text.split("\r\n\r\n")[1] ?? "")).toBe(true);
      expect(gateway.inFlight).toBe(0);
    },
  );

  it.each<[string, string]>([
    ["longer", "4"],
    ["shorter", "12"],
  ])(
    "a reply stream of a plugin closes the connection when it answers an upgrade and is %s than its " +
      "Content-Length, and sends no byte beyond that length",
    async (_how, length) => {
      const { port } = await answering(() => ({ headers: ["Content-Length", length], body: parts("four", "more") }));
      const connection = await client(port);
      connection.send(HANDSHAKE);
      expect(
        "fourmore".slice(0, Number(length)).startsWith((await connection.closed()).split("\r\n\r\n")[1] ?? ""),
      ).toBe(true);
    },
  );

  it.each(["HEAD", "GET"])(
    "a reply stream of a plugin affects only its own request when it yields no bytes: %s",
    async (method) => {
      const { port } = await answering(() => ({ body: Readable.from([{}]) }));
      const connection = await client(port);
      connection.send(get().replace("GET", method));
      connection.send(FINE);
      if (method === "HEAD") expect(statusesIn(await connection.until("fine"))).toEqual([200, 200]);
      else expect(statusesIn(await connection.closed()).length).toBeLessThan(2);
      const next = await client(port);
      next.send(FINE);
      await next.until("fine");
    },
  );
});

describe("a connection after an unusual reply of a plugin", () => {
  it.each<[string, Partial<Reply>, string]>([
    ["a reply to HEAD that says a length", { headers: ["Content-Length", "12"], body: null }, "HEAD"],
    [
      "a reply to HEAD that has a body all the same",
      { headers: ["Content-Length", "4"], body: parts("four", "more") },
      "HEAD",
    ],
    [
      "a 204 with a length and a body",
      { status: 204, headers: ["Content-Length", "8"], body: parts("four", "more") },
      "GET",
    ],
    ["a 204 with bytes", { status: 204, body: Buffer.from("four") }, "GET"],
    ["a 205 with a body", { status: 205, body: parts("four") }, "GET"],
    [
      "a 304 with a length and a body",
      { status: 304, headers: ["Content-Length", "8"], body: parts("four", "more") },
      "GET",
    ],
    ["a reply without a body that says a length", { headers: ["Content-Length", "12"], body: null }, "GET"],
    ["bytes of another length", { headers: ["Content-Length", "12"], body: Buffer.from("four") }, "GET"],
    ["a framing of the plugin's own", { headers: ["Transfer-Encoding", "gzip, chunked"], body: parts("four") }, "GET"],
  ])("serves the next request after %s", async (_what, reply, method) => {
    const { port } = await answering(() => reply);
    const connection = await client(port);
    connection.send(get().replace("GET", method) + FINE);
    const text = await connection.until(/fine$/);
    expect(statusesIn(text)).toEqual([reply.status ?? 200, 200]);
    expect(text.match(/transfer-encoding: gzip/i)).toBeNull();
    if (reply.status === 204) expect(text.split("HTTP/1.1 200")[0]).not.toMatch(/content-length|four/i);
  });
});

it.each([
  [["Content-Length", "4", "content-length", "4"]],
  [["Content-Length", "4, 4"]],
  [["Content-Length", "-4"]],
  [["Content-Length", "four"]],
  [["Content-Length", "9007199254740993"]],
])("answers 500 to a plugin's reply with %j", async (headers) => {
  const { port } = await answering(() => ({ headers, body: parts("four") }));
  const connection = await client(port);
  connection.send(get() + FINE);
  expect(statusesIn(await connection.until(/fine$/))).toEqual([500, 200]);
});

it.each<[string, (call: { inform(status: number, headers: readonly string[]): void }) => void]>([
  ["a final status", (call) => call.inform(200, [])],
  ["a 101", (call) => call.inform(101, [])],
  ["a line break", (call) => call.inform(103, ["Link", "a\r\n\r\nHTTP/1.1 200 OK"])],
  ["a length", (call) => call.inform(103, ["Content-Length", "5"])],
  ["no list", (call) => call.inform(103, { a: "b" } as never)],
])("does not send an informational response with %s", async (_what, inform) => {
  const plugin = behaving(() => (exchange) => {
    inform(exchange.call);
    exchange.call.inform(103, ["Link", "</a.css>"]);
    return { status: 200, headers: [], body: Buffer.from("fine") };
  });
  const { port } = await running(oneService(9, { plugins: [{ name: "behave" }] }), { plugins: [plugin] });
  const connection = await client(port);
  connection.send(get());
  expect(statusesIn(await connection.until("fine"))).toEqual([103, 200]);
});
