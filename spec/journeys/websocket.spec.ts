import type { Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { manualClock } from "../support/clock.ts";
import { closedPort } from "../support/origin.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, byteBackend, client, codeIn, gate, get, headBackend, statusesIn } from "./harness.ts";

const upgradeHeaders = [
  "Connection: keep-alive, Upgrade",
  "Upgrade: websocket",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  "Sec-WebSocket-Version: 13",
];
const yes =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
  "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const one = { pool: { max_connections: 1 } };
const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/** An upstream that accepts WebSockets and echoes in upper case, and answers other requests with "ok". */
async function upperCase(behindHead = "") {
  const heads: string[] = [];
  const tunnels: Socket[] = [];
  const upstream = await byteBackend((socket) => {
    let tunnel = false;
    socket.on("data", (chunk: Buffer) => {
      const text = chunk.toString("latin1");
      if (tunnel) return void socket.write(text.toUpperCase(), "latin1");
      const end = text.indexOf("\r\n\r\n") + 4;
      heads.push(text.slice(0, end));
      if (!/\r\nupgrade: websocket\r\n/i.test(text)) return void socket.write(ok);
      tunnel = true;
      tunnels.push(socket);
      socket.write(yes + behindHead + text.slice(end).toUpperCase());
    });
  });
  return { upstream, heads, tunnels, port: upstream.port };
}

describe("a WebSocket upgrade", () => {
  it("a WebSocket upgrade becomes a tunnel that passes bytes both ways", async () => {
    const echo = await upperCase();
    const { port } = await running(oneService(echo.port));
    const connection = await client(port);
    connection.send(get("/a/chat?room=1", ...upgradeHeaders));
    const head = await connection.until("\r\n\r\n");
    expect(head).toMatch(/^HTTP\/1\.1 101 Switching Protocols\r\n/);
    expect(head).toMatch(/\r\nUpgrade: websocket\r\n/);
    expect(head).toMatch(/\r\nConnection: Upgrade\r\n/);
    expect(head).toMatch(/\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=\r\n/);
    expect(head).toMatch(/\r\nX-Request-Id: /);
    expect(echo.heads[0]).toMatch(/^GET \/chat\?room=1 HTTP\/1\.1\r\n/);
    expect(echo.heads[0]).toMatch(/\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n/);
    expect(echo.heads[0]).toMatch(/\r\nX-Forwarded-For: 127\.0\.0\.1\r\n/);
    for (let i = 0; i < 5; i++) {
      connection.send(`hello${i};\x00\xe9`);
      await connection.until(`HELLO${i};\x00\xc9`);
    }
  });

  it("a WebSocket upgrade tunnels bytes that follow the head on either side", async () => {
    const echo = await upperCase("<first>");
    const { port } = await running(oneService(echo.port));
    const connection = await client(port);
    connection.send(get("/a/x", ...upgradeHeaders) + "early");
    expect(await connection.until("EARLY")).toMatch(/\r\n\r\n<first>EARLY$/);
  });

  it(
    "a WebSocket upgrade keeps bytes that the client sends before the upstream answers, " +
      "and forwards them in order",
    async () => {
      const answer = gate();
      let received = "";
      const upstream = await byteBackend((socket) => {
        socket.once("data", async (head: Buffer) => {
          received = head.toString().split("\r\n\r\n")[1]!;
          socket.on("data", (chunk: Buffer) => (received += chunk.toString()));
          await answer.opened;
          socket.write(yes);
        });
      });
      const { port } = await running(oneService(upstream.port));
      const connection = await client(port);
      connection.send(get("/a/x", ...upgradeHeaders) + "one,");
      await eventually(() => upstream.connections === 1, "a connection to the upstream");
      const piece = "x".repeat(100_000);
      connection.send(`two,${piece},end`);
      await ask(port, { path: "/none" });
      answer.open();
      await connection.until("101");
      await eventually(() => received.endsWith("end"), "the end of the bytes");
      expect(received).toBe(`one,two,${piece},end`);
    },
  );

  it("a WebSocket upgrade passes megabytes unchanged, both ways", async () => {
    const echo = await byteBackend((socket) => {
      socket.once("data", () => {
        socket.write(yes);
        socket.pipe(socket);
      });
    });
    const { port } = await running(oneService(echo.port));
    const connection = await client(port);
    connection.send(get("/a/x", ...upgradeHeaders));
    const head = (await connection.until("\r\n\r\n")).length;
    const sent = Buffer.alloc(4_000_000, "0123456789-");
    connection.send(sent);
    await eventually(() => connection.text().length - head >= sent.length, "all of it");
    expect(connection.text().slice(head)).toBe(sent.toString("latin1"));
  });

  it("a WebSocket upgrade passes half-closes on: each side may continue alone", async () => {
    let upstreamEnd: Socket | null = null;
    const upstream = await byteBackend((socket) => {
      // The server allows half-open connections: it answers after the client's FIN.
      socket.allowHalfOpen = true;
      socket.once("data", () => {
        socket.write(yes);
        upstreamEnd = socket;
        socket.on("data", () => {});
        socket.on("end", () => socket.end("last words"));
      });
    });
    const { port } = await running(oneService(upstream.port, one));
    const connection = await client(port);
    connection.socket.allowHalfOpen = true;
    connection.send(get("/a/x", ...upgradeHeaders));
    await connection.until("\r\n\r\n");
    connection.socket.end("bye");
    expect(await connection.closed()).toMatch(/last words$/);
    await eventually(() => upstreamEnd!.destroyed, "the connection closing");

    // And in the other direction.
    let received = "";
    const other = await byteBackend((socket) => {
      socket.allowHalfOpen = true;
      socket.once("data", () => {
        socket.end(yes + "bye");
        socket.on("data", (chunk: Buffer) => (received += chunk.toString()));
      });
    });
    const { port: second } = await running(oneService(other.port, one));
    const back = await client(second);
    back.socket.allowHalfOpen = true;
    let ended = false;
    back.socket.on("end", () => (ended = true));
    back.send(get("/a/x", ...upgradeHeaders));
    await eventually(() => ended, "the upstream's end");
    back.socket.end("last words");
    await eventually(() => received === "last words", "the bytes 'last words'");
    await eventually(() => other.sockets.size === 0, "the connections to the other upstream closing");
  });

  it.each([
    ["client closes", (connection: Socket) => connection.destroy()],
    ["client resets", (connection: Socket) => connection.resetAndDestroy()],
  ])("a WebSocket upgrade closes the upstream's connection and frees its place when the %s", async (_who, leave) => {
    const echo = await upperCase();
    const { port, gateway } = await running(oneService(echo.port, { ...one, timeouts: { connect_ms: 1000 } }));
    const connection = await client(port);
    connection.send(get("/a/x", ...upgradeHeaders));
    await connection.until("\r\n\r\n");
    leave(connection.socket);
    await eventually(() => echo.upstream.sockets.size === 0, "the connections to the upstream closing");
    expect((await ask(port, { path: "/a/next" })).status).toBe(200);
    expect(await gateway.close(5_000)).toBe("drained");
  });

  it("a WebSocket upgrade closes the client's connection when the upstream breaks the tunnel off", async () => {
    for (const end of ["destroy", "resetAndDestroy"] as const) {
      const echo = await upperCase();
      const { port } = await running(oneService(echo.port, one));
      const connection = await client(port);
      connection.send(get("/a/x", ...upgradeHeaders));
      await connection.until("\r\n\r\n");
      echo.tunnels[0]![end]();
      await connection.closed();
      expect((await ask(port, { path: "/a/next" })).status).toBe(200);
    }
  });

  it("a WebSocket upgrade counts as a request in flight at its upstream while the tunnel is open", async () => {
    const clock = manualClock();
    const echo = await upperCase();
    const { port } = await running(oneService(echo.port, { ...one, timeouts: { connect_ms: 50 } }), { clock });
    const connection = await client(port);
    connection.send(get("/a/x", ...upgradeHeaders));
    await connection.until("\r\n\r\n");
    const before = clock.pending;
    const refused = ask(port, { path: "/a/next" });
    await eventually(() => clock.pending > before, "the second waiting");
    clock.advance(50);
    expect(codeIn((await refused).body.toString())).toBe("upstream_saturated");
    connection.socket.destroy();
    await eventually(() => echo.upstream.sockets.size === 0, "the connections to the upstream closing");
    expect((await ask(port, { path: "/a/next" })).status).toBe(200);
  });

  it(
    "a WebSocket upgrade closes a tunnel after idle_ms without a byte either way, " + "and keeps one that has traffic",
    async () => {
      const echo = await upperCase();
      // Many times the pause between two beats: a busy machine makes each longer.
      const { port } = await running(oneService(echo.port, { ...one, timeouts: { idle_ms: 700 } }));
      const connection = await client(port);
      connection.send(get("/a/x", ...upgradeHeaders));
      await connection.until("\r\n\r\n");
      let beats = 0;
      const beat = setInterval(() => {
        connection.send("beat");
        if (++beats === 20) clearInterval(beat);
      }, 40);
      // The test's own time limit bounds the wait.
      await connection.closed();
      clearInterval(beat);
      expect(beats).toBe(20);
      await eventually(() => echo.upstream.sockets.size === 0, "the connections to the upstream closing");
      expect((await ask(port, { path: "/a/next" })).status).toBe(200);
    },
  );

  it("a WebSocket upgrade counts a tunnel as idle when one side does not read", async () => {
    const upstream = await byteBackend((socket) => {
      socket.once("data", () => {
        socket.write(yes);
        socket.pause();
      });
    });
    const clock = manualClock();
    const { port } = await running(oneService(upstream.port, one), { clock });
    const connection = await client(port);
    connection.send(get("/a/x", ...upgradeHeaders));
    await connection.until("\r\n\r\n");
    // It may be a while before that side could have read what its system took.
    const passing = setInterval(() => clock.advance(10_000), 1);
    onTestFinished(() => clearInterval(passing));
    const piece = Buffer.alloc(64 * 1024);
    const fill = () => {
      while (connection.socket.write(piece));
    };
    connection.socket.on("drain", fill);
    fill();
    await connection.closed();
  }, 60_000);
});

describe("plugins of a WebSocket upgrade", () => {
  const guarded = { ...one, plugins: [{ name: "key_auth", config: { key: "secret" } }] };

  it(
    "plugins of a WebSocket upgrade refuse it without a key: 401 with a readable body, " +
      "and nothing is sent to the upstream",
    async () => {
      const echo = await upperCase();
      const { port } = await running(oneService(echo.port, guarded));
      const connection = await client(port);
      connection.send(get("/a/x", ...upgradeHeaders) + "frames that came too early");
      const received = await connection.closed();
      expect(statusesIn(received)).toEqual([401]);
      const [, body] = received.split("\r\n\r\n");
      expect(JSON.parse(body!)).toMatchObject({ code: "key_missing", status: 401 });
      expect(received).toMatch(/\r\nWWW-Authenticate: Key /);
      expect(received).toMatch(/\r\nConnection: close\r\n/);
      expect(echo.heads).toEqual([]);
    },
  );

  it("plugins of a WebSocket upgrade let it pass with a key in the query or a header", async () => {
    for (const [path, lines] of [
      ["/a/x?apiKey=secret", []],
      ["/a/x", ["apiKey: secret"]],
    ] as const) {
      const echo = await upperCase();
      const { port } = await running(oneService(echo.port, guarded));
      const connection = await client(port);
      connection.send(get(path, ...upgradeHeaders, ...lines));
      await connection.until("101 Switching");
      connection.send("hello");
      await connection.until("HELLO");
    }
  });

  it("plugins of a WebSocket upgrade answer 404 for a path without a route", async () => {
    const { port } = await running(oneService((await upperCase()).port));
    const connection = await client(port);
    connection.send(get("/none", ...upgradeHeaders));
    expect(codeIn(await connection.closed())).toBe("route_not_found");
  });

  it("plugins of a WebSocket upgrade answer 405 for a method that the route does not accept", async () => {
    const { port } = await running(oneService(1, { routes: [{ path: "/x", methods: ["POST"] }] }));
    const connection = await client(port);
    connection.send(get("/a/x", ...upgradeHeaders));
    expect(statusesIn(await connection.closed())).toEqual([405]);
  });
});

describe("an upstream that does not switch protocols", () => {
  it("an upstream that does not switch protocols has its ordinary response passed on with its body", async () => {
    const upstream = await backend((_request, response) => {
      response.writeHead(426, { "X-Why": "old", Trailer: "X-Sum" });
      response.write("please ");
      response.end("upgrade");
    });
    upstream.server.on("upgrade", (_request, socket: Socket) => {
      socket.end(
        "HTTP/1.1 426 Upgrade Required\r\nX-Why: old\r\nTrailer: X\r\nTransfer-Encoding: " +
          "chunked\r\n\r\n7\r\nplease \r\n7\r\nupgrade\r\n0\r\n\r\n",
      );
    });
    const { port } = await running(oneService(upstream.port, one));
    const connection = await client(port);
    connection.send(get("/a/x", ...upgradeHeaders));
    const received = await connection.closed();
    expect(received).toMatch(/^HTTP\/1\.1 426 Upgrade Required\r\nX-Why: old\r\n/);
    expect(received).not.toMatch(/transfer-encoding|trailer/i);
    expect(received).toMatch(/\r\nConnection: close\r\n\r\nplease upgrade$/);
    expect(upstream.seen).toEqual([]);
  });

  it(
    "an upstream that does not switch protocols makes the gateway reset the client's connection when it breaks " +
      "off a body without a length",
    async () => {
      const begun = gate();
      const upstream = await headBackend(({ socket }) => {
        socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n");
        void begun.opened.then(() => socket.destroy());
      });
      const { port } = await running(oneService(upstream.port, one));
      const connection = await client(port);
      let end = "clean";
      connection.socket.on("error", (error: NodeJS.ErrnoException) => (end = error.code!));
      connection.send(get("/a/x", ...upgradeHeaders));
      await connection.until("begun");
      begun.open();
      await connection.closed();
      expect(end).toBe("ECONNRESET");
    },
  );

  it.each([
    ["is down", null, 502, "upstream_connect_failed"],
    ["closes", (socket: Socket) => socket.destroy(), 502, "upstream_reset"],
    ["sends garbage", (socket: Socket) => void socket.write("garbage\r\n\r\n"), 502, "upstream_invalid"],
    [
      "switches to another protocol",
      (socket: Socket) => void socket.write("HTTP/1.1 101 OK\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
      502,
      "upstream_invalid",
    ],
    [
      "does not name the protocol",
      (socket: Socket) => void socket.write("HTTP/1.1 101 OK\r\n\r\n"),
      502,
      "upstream_invalid",
    ],
  ])(
    "an upstream that does not switch protocols makes the gateway answer 502 when it %s",
    async (_what, talks, status, code) => {
      const upstream =
        talks === null ? null : await byteBackend((socket) => void socket.once("data", () => talks(socket)));
      const { port } = await running(oneService(upstream?.port ?? (await closedPort()), one));
      for (let i = 0; i < 2; i++) {
        const connection = await client(port);
        connection.send(get("/a/x", ...upgradeHeaders));
        const received = await connection.closed();
        expect(statusesIn(received)).toEqual([status]);
        expect(codeIn(received)).toBe(code);
      }
      if (upstream !== null)
        await eventually(() => upstream.sockets.size === 0, "the connections to the upstream closing");
    },
  );

  it.each([
    ["closes", (socket: Socket) => socket.destroy()],
    ["resets", (socket: Socket) => socket.resetAndDestroy()],
    ["half-closes", (socket: Socket) => void socket.end()],
  ])(
    "an upstream that does not switch protocols loses the request when its client %s before the answer",
    async (_how, leave) => {
      const upstream = await headBackend(({ socket, text }) => {
        if (text.includes("/next")) socket.write(ok);
      });
      const { port, gateway } = await running(oneService(upstream.port, one));
      const connection = await client(port);
      connection.send(get("/a/x", ...upgradeHeaders));
      await eventually(() => upstream.heads.length === 1, "a request at the upstream");
      leave(connection.socket);
      await eventually(() => upstream.sockets.size === 0, "the upstream's connection closing");
      expect((await ask(port, { path: "/a/next" })).status).toBe(200);
      expect(await gateway.close(5_000)).toBe("drained");
    },
  );
});

describe("a large reply pipelined before a WebSocket upgrade", () => {
  it(
    "a large reply pipelined before a WebSocket upgrade arrives whole at a slow reader, " +
      "and so does the response to the upgrade",
    async () => {
      const bytes = 8 * 1024 * 1024;
      const upstream = await byteBackend((socket) => {
        socket.on("data", (chunk: Buffer) => {
          if (/\r\nupgrade: websocket\r\n/i.test(chunk.toString("latin1"))) return void socket.write(yes);
          socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${bytes}\r\n\r\n`);
          socket.write(Buffer.alloc(bytes, "x"));
        });
      });
      const { port } = await running(oneService(upstream.port));
      const connection = await client(port);
      connection.send(get("/a/large") + get("/a/chat", ...upgradeHeaders));
      const text = await connection.until("HTTP/1.1 101 Switching Protocols");
      expect(text.indexOf("HTTP/1.1 101")).toBe(text.indexOf("\r\n\r\n") + 4 + bytes);
    },
  );
});
