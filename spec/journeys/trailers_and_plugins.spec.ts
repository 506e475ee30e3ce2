/** Request trailers, which some upstreams merge into the headers, and the headers that plugins set, check or remove. */
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { definePlugin, schema, type AnyPlugin } from "../../lib/index.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { backend, client, restartableBackend } from "./harness.ts";

type Lines = readonly (readonly [name: string, value: string])[];
type Send = (port: number, headers: Lines, trailers: Lines) => Promise<void>;

const overHttp1: Send = async (port, headers, trailers) => {
  const connection = await client(port);
  const text = (lines: Lines) => lines.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  connection.send(
    `POST /a/x HTTP/1.1\r\nHost: gw.example\r\nConnection: close\r\nTransfer-Encoding: ` +
      `chunked\r\n${text(headers)}\r\n2\r\nhi\r\n0\r\n${text(trailers)}\r\n`,
  );
  await connection.closed();
};

const overHttp2: Send = async (port, headers, trailers) => {
  const session = h2Session(port);
  const lower = (lines: Lines) => Object.fromEntries(lines.map(([name, value]) => [name.toLowerCase(), value]));
  await h2Ask(session, {
    method: "POST",
    path: "/a/x",
    headers: lower(headers),
    body: "hi",
    trailers: lower(trailers),
  });
  session.close();
};

/** Sets a header that its configuration does not name. */
const own = definePlugin({
  name: "own",
  schema: schema.object({}),
  ownHeaders: () => ["X-Said"],
  create: () => (next) => (exchange) => next(exchange.with({ headers: [...exchange.headers, "X-Own", "set"] })),
});

type Plugins = NonNullable<AnyConfigInput["services"][number]["plugins"]>;

const forged = (...names: string[]): Lines => names.map((name) => [name, "forged"]);

describe.each([
  ["HTTP/1.1", overHttp1],
  ["HTTP/2", overHttp2],
] as const)("request trailers over %s", (_protocol, send) => {
  /** The names of the trailers that an upstream gets. */
  async function passed(
    plugins: Plugins,
    headers: Lines,
    trailers: Lines,
    kinds: readonly AnyPlugin[] = [],
    protocol: "http" | "h2c" = "http",
    routes?: AnyConfigInput["services"][number]["routes"],
  ): Promise<string[]> {
    const origin = await restartableBackend(protocol);
    onTestFinished(() => origin.kill());
    const lists: string[][] = [];
    origin.answer = (request, response) =>
      void request.resume().on("end", () => (lists.push(request.rawTrailers), response.end()));
    const { port } = await running(
      oneService(
        origin.port,
        { plugins, protocol, ...(routes && { routes }) },
        { h2c: true, underscore_headers: "allow" },
      ),
      { plugins: kinds },
    );
    await send(port, headers, trailers);
    expect(lists).toHaveLength(1);
    return lists[0]!.filter((_text, i) => i % 2 === 0).map((name) => name.toLowerCase());
  }

  it(
    "request trailers have no field that request_headers sets, adds, renames or removes, in any spelling, " +
      "also if it has set nothing",
    async () => {
      const config = {
        set: { "X-User": "ann", "X-Sub": "${claim.sub}" },
        add: { "X-Role": "reader" },
        rename: { "X-Old": "X-New" },
        remove: ["X-Gone"],
      };
      const names = ["X-User", "x_user", "X-Sub", "X-Role", "X-Old", "X-New", "X-Gone"];
      expect(await passed([{ name: "request_headers", config }], [], [...forged(...names), ["X-Sum", "1"]])).toEqual([
        "x-sum",
      ]);
    },
  );

  it("request trailers to an upstream that speaks HTTP/2 lack these fields as well", async () => {
    const config = { set: { "X-User": "ann" } };
    expect(
      await passed([{ name: "request_headers", config }], [], [...forged("X-User"), ["X-Sum", "1"]], [], "h2c"),
    ).toEqual(["x-sum"]);
  });

  it("request trailers have no field that a plugin of one's own has set or says to be its own", async () => {
    expect(
      await passed([{ name: "own" }], [], [...forged("X-Own", "x_own", "X-Said"), ["X-Kept", "1"]], [own]),
    ).toEqual(["x-kept"]);
  });

  it("request trailers have no header by which a route is selected, with and without plugins", async () => {
    const routes = [
      {
        name: "admin",
        path: "/x",
        match: { headers: { "X-Admin": true } },
        plugins: [{ name: "key_auth", config: { key: "k" } }],
      },
      { name: "others", path: "/x" },
    ] as const;
    const trailers: Lines = [...forged("X-Admin", "x_admin"), ["X-Sum", "1"]];
    const logged: Plugins = [{ name: "request_headers", config: { set: { "X-User": "ann" } } }];
    for (const plugins of [[], logged])
      expect(await passed(plugins, [], trailers, [], "http", routes)).toEqual(["x-sum"]);
  });

  it("request trailers have no User-Agent where bot_protection has read it", async () => {
    const config = { blacklist: ["evil"], allow_empty: true };
    expect(await passed([{ name: "bot_protection", config }], [], forged("User-Agent", "X-Sum"))).toEqual(["x-sum"]);
  });

  it(
    "request trailers have no header by which a plugin tells who asks, nor credentials, " +
      "also if the plugin removes them from the head",
    async () => {
      const server = await backend((_request, response) => void response.writeHead(200, { "X-Groups": "a" }).end());
      const plugins: Plugins = [
        { name: "key_auth", config: { key: "k", hide_credentials: true } },
        {
          name: "forward_auth",
          config: {
            url: `http://127.0.0.1:${server.port}/`,
            timeout_ms: 60_000,
            response_headers: ["X-Groups", "X-Absent"],
          },
        },
      ];
      const names = [
        "X-Groups",
        "X-Absent",
        "apiKey",
        "X-Api-Key",
        "X-Real-IP",
        "X-Client-Cert-Subject",
        "X-Forwarded-For",
        "X-Forwarded-User",
        "Cookie",
        "Authorization",
      ];
      expect(await passed(plugins, [["apiKey", "k"]], [...forged(...names), ["X-Sum", "1"]])).toEqual(["x-sum"]);
    },
  );
});
