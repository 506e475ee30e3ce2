import http from "node:http";
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { startAdmin } from "../admin/harness.ts";
import { origin, rawOrigin, closedPort, freePort, socketOrigin } from "../support/origin.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { problemOf, startManager } from "./harness.ts";

async function backend(answer: Parameters<typeof rawOrigin>[0]) {
  const running = await rawOrigin(answer);
  onTestFinished(() => running.close());
  return running;
}

async function bytes(talk: (socket: Socket) => void) {
  const running = await socketOrigin(talk);
  onTestFinished(() => running.close());
  return running;
}

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;

describe("a request below /api", () => {
  it(
    "a request below /api reaches the admin interface with its path below /api, its query, " +
      "its headers and its body",
    async () => {
      const admin = await origin();
      onTestFinished(() => admin.close());
      const { ask } = await startManager(admin.port);
      const headers = {
        Cookie: "token=a.b.c; other=1",
        Authorization: "Basic eDp5",
        "Content-Type": "application/json",
        "Last-Event-ID": "7",
      };
      await ask("POST", "/api/gateway/explain?a=%2F&b=..", { headers, body: '{"x":1}' });
      await ask("GET", "/api");
      await ask("GET", "/api/");
      await ask("DELETE", "/api/logout");
      expect(admin.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
        "POST /gateway/explain?a=%2F&b=..",
        "GET /",
        "GET /",
        "DELETE /logout",
      ]);
      const [seen] = admin.seen;
      expect(seen!.body.toString()).toBe('{"x":1}');
      const list = seen!.headers;
      for (const [name, value] of [
        ...Object.entries(headers),
        ["Host", `127.0.0.1:${admin.port}`],
        ["Content-Length", "7"],
      ] as const) {
        expect(list.filter((_text, i) => i % 2 === 1 && list[i - 1]!.toLowerCase() === name.toLowerCase())).toEqual([
          value,
        ]);
      }
    },
  );

  it("a request below /api goes to a path below the path of MANAGER_BACKEND_API_URL", async () => {
    const admin = await origin();
    onTestFinished(() => admin.close());
    for (const prefix of ["/admin", "/admin/", "/a/b"]) {
      const { ask } = await startManager(`http://127.0.0.1:${admin.port}${prefix}`);
      await ask("GET", "/api/gateway?x=1");
    }
    expect(admin.seen.map(({ url }) => url)).toEqual(["/admin/gateway?x=1", "/admin/gateway?x=1", "/a/b/gateway?x=1"]);
  });

  it("a request below /api reaches the admin interface without Origin and hop-by-hop headers", async () => {
    const admin = await origin();
    onTestFinished(() => admin.close());
    const { port } = await startManager(admin.port);
    const talk = await connect(port);
    talk.send(
      `GET /api/gateway HTTP/1.1\r\nHost: localhost\r\nOrigin: http://h\r\nConnection: close, X-Hop\r\nX-Hop: ` +
        `1\r\nKeep-Alive: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nProxy-Connection: x\r\nX-Kept: 1\r\n\r\n`,
    );
    await talk.closed();
    const names = admin.seen[0]!.headers.filter((_text, i) => i % 2 === 0).map((name) => name.toLowerCase());
    // Sec-Fetch-Dest is the UI's own: scripts of its pages ask.
    expect(names.sort()).toEqual(["connection", "host", "sec-fetch-dest", "via", "x-kept"]);
  });

  it("a request below /api gets status, headers and body unchanged, without hop-by-hop headers", async () => {
    const admin = await bytes((socket) => {
      socket.once("data", () => {
        socket.end(
          "HTTP/1.1 418 Teapot\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=1\r\nSet-Cookie: " +
            "a=1; Path=/\r\nSet-Cookie: b=2\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\nno",
        );
      });
    });
    const { ask } = await startManager(admin.port);
    const got = await ask("GET", "/api/gateway");
    expect([got.status, got.body.toString(), got.headers["retry-after"]]).toEqual([418, "no", "3"]);
    expect(got.headers["set-cookie"]).toEqual(["a=1; Path=/", "b=2"]);
    expect(got.headers).not.toHaveProperty("x-hop");
  });

  it("a request below /api gets the length of GET and no body for HEAD", async () => {
    const admin = await backend((_request, response) => void response.end("12345"));
    const { ask } = await startManager(admin.port);
    const got = await ask("HEAD", "/api/gateway");
    expect([got.status, got.body.length]).toEqual([200, 0]);
    await eventually(() => admin.connections.open === 0, "the connections to the admin closing");
  });
});

describe("an event stream", () => {
  async function streaming() {
    const streams: ServerResponse[] = [];
    const admin = await backend((_request, response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.flushHeaders();
      streams.push(response);
    });
    const running = await startManager(admin.port);
    return { admin, streams, ...running };
  }

  it(
    "an event stream passes on each event as it arrives, " + "the head before the first, and has no time limit",
    async () => {
      const { port, streams, clock } = await streaming();
      const talk = await connect(port);
      talk.send(get("/api/gateway/tail"));
      await talk.until(/Content-Type: text\/event-stream\r\n[\s\S]*\r\n\r\n/);
      for (let i = 0; i < 3; i++) {
        clock.advance(3_600_000);
        streams[0]!.write(`data: ${i}\n\n`);
        await talk.until(`data: ${i}\n\n`);
      }
      streams[0]!.end();
      await talk.until(/\r\n0\r\n\r\n$/);
    },
  );

  it("an event stream ends at the admin interface when its client disconnects", async () => {
    const { port, streams, admin } = await streaming();
    const talk = await connect(port);
    talk.send(get("/api/gateway/tail"));
    await talk.until("text/event-stream");
    talk.socket.destroy();
    await eventually(
      () => admin.connections.open === 0 && streams[0]!.destroyed,
      "the connection to the admin interface closing",
    );
  });

  it("an event stream breaks off when the admin interface disconnects, so that the page reconnects", async () => {
    const { port, streams } = await streaming();
    const talk = await connect(port);
    talk.send(get("/api/gateway/tail"));
    await talk.until("text/event-stream");
    streams[0]!.write("data: 1\n\n");
    await talk.until("data: 1");
    streams[0]!.destroy();
    expect(await talk.closed()).not.toMatch(/\r\n0\r\n\r\n$/);
  });

  it(
    "an event stream slows the admin interface down when its client does not read, " + "instead of filling memory",
    async () => {
      const { ask, port, streams } = await streaming();
      const talk = await connect(port);
      talk.socket.pause();
      talk.send(get("/api/gateway/tail"));
      await eventually(() => streams.length === 1, "a stream");
      const [stream] = streams;
      const most = 48 * 1024 * 1024;
      stream!.write(Buffer.alloc(most, "x"));
      // Time for everything to come through, if nothing held it back.
      for (let i = 0; i < 50; i++) await ask("GET", "/");
      expect(stream!.writableLength).toBeGreaterThan(most / 2);
      talk.socket.removeAllListeners("data").on("data", () => {});
      talk.socket.resume();
      await new Promise((resolve) => stream!.once("drain", resolve));
    },
  );
});

describe("an admin interface that does not answer", () => {
  const reason = (logged: readonly (readonly [string, string, object?])[]) =>
    logged.filter(([severity]) => severity === "warn");

  it(
    "an admin interface that does not answer leads to 502 with a sentence for an operator when nothing listens " +
      "there, and one log line with the address",
    async () => {
      const port = await closedPort();
      const { ask, logged } = await startManager(port);
      const [status, code, detail] = problemOf(await ask("GET", "/api/gateway"));
      expect([status, code]).toEqual([502, "upstream_connect_failed"]);
      expect(detail).toMatch(
        new RegExp(
          String.raw`^The admin interface does not answer: nothing listens at its address; ` +
            String.raw`.*MANAGER_BACKEND_API_URL.* \(ECONNREFUSED\)\.$`,
        ),
      );
      expect(detail).not.toContain(String(port));
      for (let i = 0; i < 3; i++) await ask("GET", "/api/gateway");
      expect(reason(logged)).toEqual([
        [
          "warn",
          "the admin interface does not answer",
          { url: `http://127.0.0.1:${port}/`, error: expect.stringContaining("ECONNREFUSED") as string },
        ],
      ]);
    },
  );

  it(
    "an admin interface that does not answer causes a log line when it answers " + "again, and when it fails again",
    async () => {
      const held: ServerResponse[] = [];
      let well = false;
      const admin = await backend((request, response) => {
        if (well) response.end("{}");
        else request.socket.destroy();
        held.push(response);
      });
      const { ask, logged } = await startManager(admin.port);
      for (const state of [false, false, true, true, false]) {
        well = state;
        expect((await ask("GET", "/api/gateway")).status).toBe(state ? 200 : 502);
      }
      expect(logged.map(([severity]) => severity)).toEqual(["warn", "info", "warn"]);
    },
  );

  it.each([
    ["GET", 10_000],
    ["DELETE", 10_000],
    ["POST", 30_000], // a reload
  ] as const)(
    "an admin interface that does not answer leads to 504 when a %s has no reply after %i ms, " +
      "and the request is cancelled",
    async (method, ms) => {
      let asked = 0;
      const admin = await backend(() => void asked++);
      const { ask, clock } = await startManager(admin.port);
      const got = ask(method, "/api/gateway");
      await eventually(() => asked === 1, "a request at the upstream");
      clock.advance(ms - 1);
      expect(admin.connections.open).toBe(1);
      clock.advance(1);
      expect(problemOf(await got)).toEqual([
        504,
        "upstream_timeout",
        `The admin interface did not answer within ${ms / 1000} s.`,
      ]);
      await eventually(() => admin.connections.open === 0, "the connections to the admin closing");
    },
  );

  it.each([
    ["closes the connection", "", "upstream_reset", /closed without an answer/],
    ["is no HTTP", "SSH-2.0-OpenSSH_9.6\r\n\r\n", "upstream_invalid", /does not speak HTTP/],
    ["breaks off in its head", "HTTP/1.1 200 OK\r\nContent-", "upstream_reset", /closed without an answer/],
    [
      "sends a head beyond 32 KiB",
      `HTTP/1.1 200 OK\r\nX: ${"x".repeat(40_000)}\r\n\r\n`,
      "upstream_invalid",
      /does not speak HTTP/,
    ],
    [
      "switches protocols",
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
      "upstream_invalid",
      /switched protocols/,
    ],
    [
      "switches to nothing",
      "HTTP/1.1 101 Switching Protocols\r\n\r\n",
      "upstream_invalid",
      /(cannot be forwarded|switched protocols)/,
    ],
    [
      "has a status of its own",
      "HTTP/1.1 700 Own\r\nContent-Length: 0\r\n\r\n",
      "upstream_invalid",
      /(cannot be forwarded|switched protocols)/,
    ],
    [
      "smuggles",
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "upstream_invalid",
      /does not speak HTTP/,
    ],
  ])(
    "an admin interface that does not answer leads to 502 when the answering server %s",
    async (_what, text, code, detail) => {
      const admin = await bytes((socket) => void socket.once("data", () => socket.end(text)));
      const { ask } = await startManager(admin.port);
      const got = problemOf(await ask("GET", "/api/gateway"));
      expect(got.slice(0, 2)).toEqual([502, code]);
      expect(got[2]).toMatch(detail);
    },
  );

  it.each([
    ["the port for traffic", 404, "application/problem+json"],
    ["a server of other things", 405, "text/plain"],
    ["a redirect to HTTPS", 301, "text/html"],
    ["the page of another program", 200, "text/html; charset=utf-8"],
    ["a login that is not ours", 401, "text/html"],
  ])(
    "an admin interface that does not answer leads to 502 that names the setting when the answer comes from %s",
    async (_what, status, type) => {
      const admin = await backend(
        (_request, response) =>
          void response.writeHead(status, { "Content-Type": type, Location: "https://elsewhere.example/" }).end("{}"),
      );
      const { ask, logged } = await startManager(admin.port);
      for (const [method, path] of [
        ["POST", "/api/login"],
        ["GET", "/api/gateway/status"],
        ["GET", "/api/gateway/now?figures=total"],
      ] as const) {
        const got = problemOf(await ask(method, path));
        expect(got.slice(0, 2)).toEqual([502, "upstream_invalid"]);
        expect(got[2]).toMatch(/MANAGER_BACKEND_API_URL is not an admin interface/);
      }
      expect(logged.map(([severity, , fields]) => [severity, fields!.error])).toEqual([
        ["warn", expect.stringContaining("is not an admin interface")],
      ]);
      expect((await ask("GET", "/api/gateway/later")).status).toBe(status);
      await eventually(() => admin.connections.open === 0, "the connections to the admin closing");
    },
  );

  it(
    "an admin interface that does not answer leads to 502 that names ADMIN_HOSTS when it does not " +
      "accept the name in its address",
    async () => {
      const admin = await backend(
        (_request, response) => void response.writeHead(421, { "Content-Type": "application/problem+json" }).end("{}"),
      );
      const { ask, logged } = await startManager(admin.port);
      const got = problemOf(await ask("GET", "/api/gateway/status"));
      expect(got).toEqual([502, "upstream_invalid", expect.stringMatching(/MANAGER_BACKEND_API_URL.*ADMIN_HOSTS/)]);
      expect(logged).toMatchObject([
        ["warn", "the admin interface does not answer", { error: expect.stringContaining("ADMIN_HOSTS") as string }],
      ]);
    },
  );

  it.each([
    ["GET", "/api/login", "POST, OPTIONS"],
    ["DELETE", "/api/login", "POST, OPTIONS"],
    ["POST", "/api/gateway/status", "GET, HEAD, OPTIONS"],
  ])(
    "an admin interface that does not answer differs from an admin interface that answers 405 for %s %s",
    async (method, path, allow) => {
      const admin = await startAdmin();
      const { ask, logged } = await startManager(admin.port);
      for (let i = 0; i < 2; i++) {
        const got = await ask(method, path);
        expect([...problemOf(got).slice(0, 2), got.headers.allow]).toEqual([405, "method_not_allowed", allow]);
        expect((await ask("GET", "/api/gateway/status")).status).toBe(401);
      }
      expect(logged).toEqual([]);
    },
  );

  it(
    "an admin interface that does not answer differs from a proxy in front of it that " +
      "answers 503, which is passed on",
    async () => {
      const admin = await backend(
        (_request, response) => void response.writeHead(503, { "Content-Type": "text/html" }).end("soon"),
      );
      const { ask } = await startManager(admin.port);
      expect((await ask("GET", "/api/gateway/status")).status).toBe(503);
    },
  );

  it(
    "an admin interface that does not answer leads to 502 at once when the address belongs to " +
      "the management UI itself",
    async () => {
      const port = await freePort();
      const { manager, logged } = await startManager(`http://127.0.0.1:${port}/api`);
      await manager.listen({ host: "127.0.0.1", port });
      for (let i = 0; i < 2; i++) {
        const got = problemOf(await ask(port, { path: "/api/gateway/status" }));
        expect(got.slice(0, 2)).toEqual([502, "upstream_invalid"]);
        expect(got[2]).toMatch(/points to this management UI/);
      }
      expect(logged.map(([severity, , fields]) => [severity, fields!.error])).toEqual([
        ["warn", expect.stringContaining("points to")],
      ]);
    },
  );

  it("an admin interface that does not answer leads to a broken reply when its own breaks off", async () => {
    const admin = await bytes(
      (socket) => void socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")),
    );
    const { ask } = await startManager(admin.port);
    await expect(ask("GET", "/api/gateway")).rejects.toThrow();
  });

  it(
    "an admin interface that does not answer loses the request without a warning " + "when the client disconnects",
    async () => {
      let asked = 0;
      const admin = await backend(() => void asked++);
      const { port, logged } = await startManager(admin.port);
      const talk = await connect(port);
      talk.send(get("/api/gateway"));
      await eventually(() => asked === 1, "a request at the upstream");
      talk.socket.destroy();
      await eventually(() => admin.connections.open === 0, "the connections to the admin closing");
      expect(reason(logged)).toEqual([]);
    },
  );

  it("an admin interface that does not answer does not stop the pages from being served", async () => {
    const { ask } = await startManager(await closedPort());
    expect((await ask("GET", "/")).status).toBe(200);
  });

  it("an admin interface that does not answer delays no other request of the same client", async () => {
    const held: ServerResponse[] = [];
    const admin = await backend((request, response) =>
      request.url === "/slow" ? void held.push(response) : void response.end("{}"),
    );
    const { ask } = await startManager(admin.port);
    const agent = new http.Agent();
    const slow = ask("GET", "/api/slow", { agent });
    await eventually(() => held.length === 1, "a request at the server");
    expect((await ask("GET", "/api/fast", { agent })).status).toBe(200);
    held[0]!.end("{}");
    expect((await slow).status).toBe(200);
  });
});
