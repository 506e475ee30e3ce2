import { describe, expect, it } from "vitest";
import type { AnyConfigInput, PluginInput } from "../../lib/config/model.ts";
import { oneService, running } from "../support/gateway.ts";
import { HANDSHAKE } from "../gateway/plugins.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { ask } from "../support/raw_client.ts";
import { backend, byteBackend, client, codeIn, headBackend } from "./harness.ts";

type Global = NonNullable<AnyConfigInput["global"]>;
type Fields = readonly (readonly [string, string])[];

const POSING: Fields = [
  ["X_Forwarded_For", "1.2.3.4"],
  ["X-Forwarded_Proto", "https"],
  ["x_real_ip", "1.2.3.4"],
  ["X_Request_Id", "forged"],
  ["X_Client-Cert_Subject", "CN=root"],
  ["Content_Length", "5"],
  ["Transfer_Encoding", "chunked"],
  ["Keep_Alive", "timeout=9"],
  ["Proxy", "http://evil.example"],
  ["pROXY", "http://evil.example"],
];
const PLAIN: Fields = [
  ["X_Tenant", "acme"],
  ["_", "1"],
  ["user_id", "7"],
];
const KEPT: Fields = [
  ["X-Tenant", "acme"],
  ["Prox", "1"],
  ["Proxy-Hint", "2"],
];

/** The fields of these names that reach the upstream, in the head and in the trailers. */
type Send = (port: number, fields: Fields) => Promise<void>;

const overHttp1: Send = async (port, fields) => {
  const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  const connection = await client(port);
  connection.send(
    `POST /a/x HTTP/1.1\r\nHost: gw.example\r\nTransfer-Encoding: ` +
      `chunked\r\n${lines}\r\n2\r\nhi\r\n0\r\n${lines.replace(/^Transfer-Encoding.*\r\n/gim, "")}\r\n`,
  );
  await connection.until("\r\nok");
};

const overHttp2: Send = async (port, fields) => {
  const lower: Record<string, string> = {};
  for (const [name, value] of fields) lower[name.toLowerCase()] = value;
  await h2Ask(h2Session(port), { method: "POST", headers: lower, body: "hi", trailers: lower });
};

async function passed(send: Send, fields: Fields, global: Global = {}) {
  const upstream = await backend();
  const { port } = await running(oneService(upstream.port, {}, { h2c: true, ...global }));
  await send(port, fields);
  const [seen] = upstream.seen;
  const pick = (list: readonly string[]) =>
    list.flatMap((name, i) => (i % 2 === 0 ? [`${name.toLowerCase()}: ${list[i + 1]}`] : []));
  return { head: pick(seen!.headers), trailers: pick(seen!.trailers), body: seen!.body.toString() };
}

const lower = (fields: Fields) => fields.map(([name, value]) => `${name.toLowerCase()}: ${value}`);

describe.each([
  ["HTTP/1.1", overHttp1],
  ["HTTP/2", overHttp2],
] as const)("request headers and trailers over %s", (_protocol, send) => {
  it("request headers and trailers are removed when their names have an underscore, and so is Proxy", async () => {
    const { head, trailers, body } = await passed(send, [...POSING, ...PLAIN, ...KEPT]);
    for (const line of lower([...POSING, ...PLAIN])) expect([...head, ...trailers]).not.toContain(line);
    expect(head).toEqual(expect.arrayContaining(lower(KEPT)));
    expect(trailers).toEqual(lower(KEPT));
    expect(body).toBe("hi");
  });

  it(
    'request headers and trailers pass with "underscore_headers": "allow", ' +
      "except names that read like a gateway or framing header",
    async () => {
      const { head, trailers, body } = await passed(send, [...POSING, ...PLAIN, ...KEPT], {
        underscore_headers: "allow",
      });
      for (const line of lower(POSING)) expect([...head, ...trailers]).not.toContain(line);
      expect(head).toEqual(expect.arrayContaining(lower([...PLAIN, ...KEPT])));
      expect(trailers).toEqual(expect.arrayContaining(lower([...PLAIN, ...KEPT])));
      expect(body).toBe("hi");
    },
  );

  it("request headers and trailers reach the upstream as X-Real-IP only from a trusted proxy", async () => {
    const fields: Fields = [["X-Real-IP", "1.2.3.4"]];
    expect((await passed(send, fields)).head.join()).not.toContain("1.2.3.4");
    expect((await passed(send, fields, { trusted_proxies: ["127.0.0.1"] })).head).toContain("x-real-ip: 1.2.3.4");
  });
});

it("removes headers with an underscore from a WebSocket request too", async () => {
  const upgrades: string[] = [];
  const upstream = await byteBackend(
    (socket) =>
      void socket.once(
        "data",
        (chunk) => (
          upgrades.push(String(chunk)),
          socket.end("HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        ),
      ),
  );
  const { port } = await running(oneService(upstream.port));
  const connection = await client(port);
  connection.send(HANDSHAKE.replace("\r\n\r\n", "\r\nX_Forwarded_For: 1.2.3.4\r\nProxy: evil\r\nX-Kept: 1\r\n\r\n"));
  await connection.until("\r\n\r\n");
  expect(upgrades[0]).toContain("X-Kept: 1");
  expect(upgrades[0]).not.toMatch(/1\.2\.3\.4|evil/);
});

it("hides headers with an underscore from plugins, so a rate limit by header cannot be evaded with one", async () => {
  const upstream = await backend();
  for (const [underscore_headers, limit_by, second] of [
    ["drop", "header:X-User", 429],
    ["allow", "header:X_User", 200],
  ] as const) {
    const plugins = [{ name: "rate_limit", config: { limit_hour: 1, limit_by } }];
    const { port } = await running(oneService(upstream.port, { plugins }, { underscore_headers }));
    const statuses: number[] = [];
    for (const user of ["a", "b"]) statuses.push((await ask(port, { path: "/a/x", headers: { X_User: user } })).status);
    expect(statuses).toEqual([200, second]);
  }
});

describe("the limit of 100 Connection options", () => {
  const options = (count: number) => Array.from({ length: count }, (_, i) => `h${i}`).join(",");
  it.each<[string, string, number]>([
    ["accepts 100 options", `Connection: ${options(100)}`, 200],
    ["answers 400 to 101 options", `Connection: ${options(101)}`, 400],
    ["answers 400 to 101 options in two lines", `Connection: ${options(51)}\r\nConnection: ${options(50)}`, 400],
    ["answers 400 to 30 KB of commas", `Connection: ${",".repeat(30_000)}`, 400],
    [
      "answers 400 to a WebSocket request with 30 KB of options",
      `Upgrade: websocket\r\nConnection: upgrade,${"a,".repeat(15_000)}`,
      400,
    ],
  ])("%s, and forwards no refused request", async (_title, lines, status) => {
    const upstream = await backend();
    const { port, gateway } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(`GET /a/x HTTP/1.1\r\nHost: gw.example\r\nh99: 1\r\n${lines}\r\n\r\n`);
    const text = await connection.until(/HTTP\/1\.1 (?:200[^]*\r\nok|400[^]*\})/);
    expect(Number(text.slice(9, 12))).toBe(status);
    expect(upstream.seen.length).toBe(status === 200 ? 1 : 0);
    if (status === 400) expect(codeIn(text)).toBe("bad_request");
    else expect(upstream.seen[0]!.headers).not.toContain("h99");
    const headers = Object.fromEntries(lines.split("\r\n").map((line) => line.split(": ", 2)));
    if (lines.split("Connection").length === 2)
      expect((await gateway.explain({ method: "GET", url: "/a/x", headers })).outcome).toBe(
        status === 200 ? "matched" : "refused",
      );
  });

  it.each(["wire", "node"] as const)(
    "answers 502 when an upstream response has more than 100 Connection options (%s)",
    async (upstream_client) => {
      for (const [count, status] of [
        [100, 200],
        [101, 502],
      ] as const) {
        const upstream = await headBackend(
          ({ socket }) =>
            void socket.write(`HTTP/1.1 200 OK\r\nConnection: ${options(count)}\r\nContent-Length: 2\r\n\r\nok`),
        );
        const { port } = await running(oneService(upstream.port, { upstream_client }));
        const answer = await ask(port, { path: "/a/x" });
        expect(answer.status).toBe(status);
        if (status === 502) expect(JSON.parse(answer.body.toString())).toMatchObject({ code: "upstream_invalid" });
      }
    },
  );
});

describe("trailers of a request", () => {
  const judge = () => backend((_request, response) => void response.writeHead(204).end());
  const KINDS: [string, (judgePort: number) => PluginInput, Fields, string][] = [
    ["key_auth", () => ({ name: "key_auth", config: { key: "k" } }), [["apiKey", "k"]], "apikey"],
    ["acl", () => ({ name: "acl", config: { whitelist: ["127.0.0.1"] } }), [["X-Seen", "1"]], "x-seen"],
    ["rate_limit", () => ({ name: "rate_limit", config: { limit_min: 9, limit_by: "header:X-A" } }), [], "x-a"],
    ["concurrency", () => ({ name: "concurrency", config: { max_in_flight: 9, limit_by: "header:X-A" } }), [], "x-a"],
    ["quota", () => ({ name: "quota", config: { limit: 9, per: "day", limit_by: "header:X-A" } }), [], "x-a"],
    [
      "request_validation",
      () => ({ name: "request_validation", config: { headers: { properties: { "x-a": { maxLength: 1 } } } } }),
      [],
      "x-a",
    ],
    [
      "forward_auth",
      (port) => ({ name: "forward_auth", config: { url: `http://127.0.0.1:${port}/`, request_headers: ["X-A"] } }),
      [],
      "x-a",
    ],
  ];
  it.each(KINDS)("have no header that %s has read in the head, whether it was there or not", async (...row) => {
    const [, pluginOf, head, name] = row;
    const upstream = await backend();
    const plugins = [pluginOf((await judge()).port)];
    const { port } = await running(oneService(upstream.port, { plugins }, { h2c: true }));
    const trailers = { [name]: "forged", "x-more": "stays" };
    const lines = [...head.flat(), "Transfer-Encoding", "chunked"];
    const connection = await client(port);
    const written = Object.entries(trailers).map(([key, value]) => `${key}: ${value}\r\n`);
    const fields = lines.flatMap((text, i) => (i % 2 === 0 ? `${text}: ${lines[i + 1]}\r\n` : []));
    connection.send(
      `POST /a/x HTTP/1.1\r\nHost: gw.example\r\n${fields.join("")}\r\n2\r\nhi\r\n0\r\n${written.join("")}\r\n`,
    );
    await connection.until("\r\nok");
    const headers = Object.fromEntries(head.map(([key, value]) => [key.toLowerCase(), value]));
    await h2Ask(h2Session(port), { method: "POST", headers, body: "hi", trailers });
    expect(upstream.seen.map(({ trailers: got }) => got.map((text) => text.toLowerCase()))).toEqual([
      ["x-more", "stays"],
      ["x-more", "stays"],
    ]);
  });
});
