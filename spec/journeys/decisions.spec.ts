import { connect as tcp } from "node:net";
import { once } from "node:events";
import { describe, expect, it } from "vitest";
import { codec } from "../support/codec.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { closedPort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";
import { byteBackend, client, decided, get } from "./harness.ts";

const id = (response: { readonly headers: Headers }) => response.headers.get("x-request-id")!;

describe("what became of a request", () => {
  it("is known for every kind of answer, by the id in its reply", async () => {
    const origin = await backend(
      (request, response) => void response.writeHead(request.url === "/teapot" ? 418 : 200).end("ok"),
    );
    const plugins = [{ name: "key_auth" as const, config: { key: "k" } }];
    const services = [
      ...oneService(origin.port, {
        routes: [
          { path: "/{rest*}" },
          { name: "keyed", path: "/keyed", plugins },
          { name: "put", path: "/put", methods: ["PUT"] },
        ],
      }).services,
      { ...oneService(await closedPort()).services[0]!, name: "down", base_path: "/down" },
      {
        ...oneService([await closedPort(), origin.port]).services[0]!,
        name: "half",
        base_path: "/half",
        retries: { attempts: 1 },
      },
    ];
    const { gateway, url } = await running({ services });
    const of = async (path: string, init: RequestInit = {}) => decided(gateway, id(await fetch(url + path, init)));
    const { digest } = gateway;
    const [upstream] = [`127.0.0.1:${origin.port}`];
    expect(await of("/a/x?key=hush")).toMatchObject({
      method: "GET",
      host: url.slice(7),
      path: "/a/x",
      client: "127.0.0.1",
      service: "s",
      route: "/{rest*}",
      status: 200,
      code: null,
      by: "upstream",
      tries: [{ upstream, status: 200 }],
      digest,
    });
    expect(await of("/a/teapot", { method: "POST", body: "b" })).toMatchObject({
      method: "POST",
      status: 418,
      by: "upstream",
      tries: [{ status: 418 }],
    });
    expect(await of("/a/keyed")).toMatchObject({
      route: "keyed",
      status: 401,
      code: "key_missing",
      by: "key_auth",
      tries: [],
    });
    expect(await of("/a/keyed", { headers: { apiKey: "x" } })).toMatchObject({ status: 401, by: "key_auth" });
    expect(await of("/a/keyed", { headers: { apiKey: "k" } })).toMatchObject({ status: 200, by: "upstream" });
    expect(await of("/nowhere")).toMatchObject({
      service: null,
      route: null,
      status: 404,
      code: "route_not_found",
      by: "gateway",
      tries: [],
    });
    expect(await of("/down/x")).toMatchObject({
      service: "down",
      status: 502,
      code: "upstream_connect_failed",
      by: "gateway",
      tries: [{ status: null }],
    });
    for (let i = 0; i < 2; i++) expect(await of("/half/x")).toMatchObject({ status: 200, by: "upstream" });
    const retried = await Promise.all([1, 2].map(() => of("/half/x")));
    expect(retried.flatMap(({ tries }) => tries.map(({ status }) => status))).toContain(null);
    expect(retried.every(({ tries }) => tries.at(-1)!.status === 200)).toBe(true);
    const [first, second] = retried.find(({ tries }) => tries.length === 2)!.tries;
    expect(second!.at_ms).toBeGreaterThanOrEqual(first!.at_ms + first!.ms - 0.01);
  });

  it(
    "has when a plugin that took its time held the request, " + "before an upstream was asked and where it answered",
    async () => {
      const origin = await backend();
      const slow = (config: object) => [{ name: "fault", id: "slow", config: { delay_ms: 20, ...config } }];
      const { gateway, url } = await running(
        oneService(origin.port, {
          routes: [
            { name: "late", path: "/late", plugins: slow({}) },
            { name: "refused", path: "/refused", plugins: slow({ status: 503 }) },
          ],
        }),
      );
      const of = async (path: string) => decided(gateway, id(await fetch(url + path)));
      const late = await of("/a/late");
      const [held] = late.plugins;
      expect(late).toMatchObject({
        plugins: [{ plugin: "services.s.routes.late.plugins.slow" }],
        tries: [{ status: 200 }],
      });
      expect(held!.ms).toBeGreaterThanOrEqual(18);
      expect(late.tries[0]!.at_ms).toBeGreaterThanOrEqual(held!.at_ms + held!.ms - 0.01);
      expect(await of("/a/refused")).toMatchObject({
        status: 503,
        plugins: [{ plugin: "services.s.routes.refused.plugins.slow" }],
        tries: [],
      });
    },
  );

  it("is known for requests that were refused before a route, also those that could not be read", async () => {
    const { gateway, port } = await running(oneService(9));
    const refused = async (text: string) => {
      const socket = tcp(port, "127.0.0.1");
      socket.write(text);
      let answer = "";
      socket.on("data", (part) => (answer += part.toString("latin1")));
      await once(socket, "close");
      return decided(gateway, /x-request-id: (\S+)/i.exec(answer)![1]!);
    };
    const unread = {
      client: "127.0.0.1",
      method: null,
      host: null,
      path: null,
      service: null,
      route: null,
      by: "gateway",
      tries: [],
      digest: gateway.digest,
    };
    expect(await refused("GE(T / HTTP/1.1\r\n\r\n")).toMatchObject({ ...unread, status: 400, code: "bad_request" });
    expect(await refused(`GET / HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(40_000)}\r\n\r\n`)).toMatchObject({
      ...unread,
      ...(codec === "wire" && { method: "GET", path: "/" }),
      status: 431,
      code: "headers_too_large",
    });
    expect(await refused("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")).toMatchObject(
      { ...(codec === "wire" ? { method: "GET", path: "/a" } : unread), status: 400, by: "gateway" },
    );
    for (const text of [
      "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
      "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx",
    ]) {
      expect(await refused(text)).toMatchObject({
        client: "127.0.0.1",
        status: 400,
        code: "bad_request",
        by: "gateway",
      });
    }
    expect(await refused("GET /a/../../x?hush HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).toMatchObject({
      status: 400,
      path: "/a/../../x",
      by: "gateway",
    });
  });

  it("is known for a client that has gone", async () => {
    let asked = 0;
    const origin = await backend(() => void asked++);
    const { gateway, port } = await running(oneService(origin.port, {}, { trusted_proxies: ["127.0.0.1"] }));
    const socket = tcp(port, "127.0.0.1");
    socket.write("GET /a/x HTTP/1.1\r\nHost: a\r\nX-Request-Id: gone-1\r\n\r\n");
    await eventually(() => gateway.inFlight === 1 && asked === 1);
    socket.destroy();
    expect(await decided(gateway, "gone-1")).toMatchObject({
      status: null,
      code: "client_closed",
      by: null,
      tries: [{ upstream: `127.0.0.1:${origin.port}`, status: null }],
    });
  });

  it("is found by the id that a trusted proxy gives, and not by one that others invent", async () => {
    const origin = await backend();
    const chosen = { headers: { "X-Request-Id": "order:7/retry+1" } };
    const trusting = await running(oneService(origin.port, {}, { trusted_proxies: ["127.0.0.1"] }));
    await fetch(`${trusting.url}/a/x`, chosen);
    expect(await decided(trusting.gateway, "order:7/retry+1")).toMatchObject({ status: 200 });
    const other = await running(oneService(origin.port));
    await decided(other.gateway, id(await fetch(`${other.url}/a/x`, chosen)));
    expect(await other.gateway.decision("order:7/retry+1")).toBeNull();
  });

  it("stays known over reloads, with the configuration that has decided", async () => {
    const origin = await backend();
    const { gateway, url } = await running(oneService(origin.port, {}, { decisions: 50 }));
    const before = gateway.digest;
    const first = await decided(gateway, id(await fetch(`${url}/a/x`)));
    const { changed } = await gateway.reload(oneService(origin.port, { name: "other" }, { decisions: 60 }));
    expect(changed).toBe(true);
    const second = await decided(gateway, id(await fetch(`${url}/a/x`)));
    expect([await gateway.decision(first.id), first.digest, second.digest]).toEqual([first, before, gateway.digest]);
    expect(second.service).toBe("other");
    await gateway.reload(oneService(origin.port, {}, { decisions: 0 }));
    expect(await gateway.decision(second.id)).toBeNull();
  });

  it(
    "is known for a WebSocket once it has ended, and for an upgrade that a " + "plugin or the upstream refuses",
    async () => {
      const yes =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
      const no = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
      const origin = await byteBackend((socket) =>
        socket.once("data", (head: Buffer) => socket.write(head.includes("/no ") ? no : yes)),
      );
      const plugins = [{ name: "key_auth" as const, config: { key: "k" } }];
      const { gateway, port } = await running(
        oneService(origin.port, { routes: [{ path: "/{rest*}" }, { name: "keyed", path: "/keyed", plugins }] }),
      );
      const upgraded = async (path: string) => {
        const connection = await client(port);
        connection.send(
          get(
            path,
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
          ),
        );
        return { connection, id: /x-request-id: (\S+)/i.exec(await connection.until("\r\n\r\n"))![1]! };
      };
      const upstream = `127.0.0.1:${origin.port}`;
      const { connection, id: open } = await upgraded("/a/chat?token=hush");
      expect(await gateway.decision(open)).toBeNull();
      connection.socket.destroy();
      expect(await decided(gateway, open)).toMatchObject({
        method: "GET",
        path: "/a/chat",
        status: 101,
        by: "upstream",
        tries: [{ upstream, status: 101 }],
      });
      expect(await decided(gateway, (await upgraded("/a/no")).id)).toMatchObject({
        path: "/a/no",
        status: 403,
        code: null,
        by: "upstream",
        tries: [{ upstream, status: 403 }],
      });
      expect(await decided(gateway, (await upgraded("/a/keyed")).id)).toMatchObject({
        route: "keyed",
        status: 401,
        code: "key_missing",
        by: "key_auth",
        tries: [],
      });
    },
  );

  it("is known for HTTP/2", async () => {
    const origin = await backend();
    const { gateway, port } = await running(oneService(origin.port, {}, { h2c: true }));
    const { headers } = await h2Ask(h2Session(port));
    expect(await decided(gateway, String(headers["x-request-id"]))).toMatchObject({
      method: "GET",
      path: "/a/x",
      status: 200,
      by: "upstream",
    });
  });
});
