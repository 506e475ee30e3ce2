/** What clients get when HTTP/1.1 upstreams fail: the same with either upstream client. */
import { describe, expect, it } from "vitest";
import { closedPort } from "../support/origin.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { byteBackend, client, codeIn, gate, get, headBackend, statusesIn } from "../journeys/harness.ts";

export function upstreamFaults(upstreamClient: "wire" | "node"): void {
  /** One connection to the upstream: a leaked lease would block the next request. */
  const one = {
    upstream_client: upstreamClient,
    pool: { max_connections: 1 },
    timeouts: { connect_ms: 1000, response_ms: 1000, idle_ms: 1000 },
  };
  const good = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";

  interface Case {
    readonly title: string;
    readonly bytes: string;
    /** What the upstream does with the connection after the bytes. */
    readonly then?: "open" | "end" | "reset";
    readonly code: string;
    readonly method?: string;
  }

  const answered: Case[] = [
    { title: "closes without a byte", bytes: "", then: "end", code: "upstream_reset" },
    { title: "resets without a byte", bytes: "", then: "reset", code: "upstream_reset" },
    { title: "closes within the status line", bytes: "HTTP/1.1 20", then: "end", code: "upstream_reset" },
    { title: "closes within the head", bytes: "HTTP/1.1 200 OK\r\nContent-Le", then: "end", code: "upstream_reset" },
    { title: "sends garbage", bytes: "lorem ipsum\r\n\r\n", code: "upstream_invalid" },
    { title: "sends binary data", bytes: "\x00\x01\x02\x03\xff", code: "upstream_invalid" },
    { title: "speaks HTTP/0.9", bytes: "<html>hello</html>", then: "end", code: "upstream_invalid" },
    { title: "speaks TLS", bytes: "\x15\x03\x01\x00\x02\x02\x46", then: "end", code: "upstream_invalid" },
    { title: "speaks HTTP/2", bytes: "\x00\x00\x12\x04\x00\x00\x00\x00\x00", code: "upstream_invalid" },
    { title: "states HTTP/2.0", bytes: "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", code: "upstream_invalid" },
    { title: "states HTTP/3.0", bytes: "HTTP/3.0 200 OK\r\n\r\n", code: "upstream_invalid" },
    { title: "sends no status", bytes: "HTTP/1.1 OK\r\n\r\n", code: "upstream_invalid" },
    { title: "sends status 000", bytes: "HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n", code: "upstream_invalid" },
    { title: "sends a header without a colon", bytes: "HTTP/1.1 200 OK\r\nX-A\r\n\r\n", code: "upstream_invalid" },
    { title: "sends a header name with a space", bytes: "HTTP/1.1 200 OK\r\nX A: b\r\n\r\n", code: "upstream_invalid" },
    { title: "sends a header value with NUL", bytes: "HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\n", code: "upstream_invalid" },
    {
      title: "sends a header value with a bare CR",
      bytes: "HTTP/1.1 200 OK\r\nX-A: a\rSet-Cookie: b\r\n\r\n",
      code: "upstream_invalid",
    },
    {
      title: "sends Content-Length twice",
      bytes: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\naa",
      code: "upstream_invalid",
    },
    {
      title: "sends a header after a bare LF",
      bytes: "HTTP/1.1 200 OK\r\nX-A: a\nSet-Cookie: b\r\n\r\n",
      code: "upstream_invalid",
    },
    {
      title: "ends its lines with bare LF",
      bytes: "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
      code: "upstream_invalid",
    },
    { title: "splits its status line with LF", bytes: "HTTP/1.1 200\nSet-Cookie: b\r\n\r\n", code: "upstream_invalid" },
    {
      title: "splits its reason phrase with CR",
      bytes: "HTTP/1.1 200 O\rSet-Cookie: b\r\n\r\n",
      code: "upstream_invalid",
    },
    { title: "folds a header", bytes: "HTTP/1.1 200 OK\r\nX-A: a\r\n Set-Cookie: b\r\n\r\n", code: "upstream_invalid" },
    {
      title: "puts a space before a colon",
      bytes: "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
      code: "upstream_invalid",
    },
    {
      title: "splits a 103 with CR",
      bytes: `HTTP/1.1 103 Early\r\nLink: a\rSet-Cookie: b\r\n\r\n${good}`,
      code: "upstream_invalid",
    },
    {
      title: "sends a 103 of more than 32 KiB",
      bytes: `HTTP/1.1 103 Early\r\nLink: ${"x".repeat(40_000)}\r\n\r\n${good}`,
      code: "upstream_invalid",
    },
    {
      title: "sends a status of four digits",
      bytes: "HTTP/1.1 1000 OK\r\nContent-Length: 2\r\n\r\nok",
      code: "upstream_invalid",
    },
    {
      title: "sends Content-Length as a list",
      bytes: "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
      code: "upstream_invalid",
    },
    {
      title: "sends a Content-Length beyond 64 bits",
      bytes: `HTTP/1.1 200 OK\r\nContent-Length: ${"9".repeat(20)}\r\n\r\nok`,
      code: "upstream_invalid",
    },
    {
      title: "sends a negative Content-Length",
      bytes: "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
      code: "upstream_invalid",
    },
    {
      title: "sends a Content-Length of letters",
      bytes: "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
      code: "upstream_invalid",
    },
    {
      title: "sends Content-Length and Transfer-Encoding",
      bytes: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      code: "upstream_invalid",
    },
    {
      title: "uses an unknown transfer coding",
      bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: zip\r\n\r\nzzz",
      then: "end",
      code: "upstream_invalid",
    },
    {
      title: "uses another transfer coding before chunked",
      bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      code: "upstream_invalid",
    },
    {
      title: "sends Transfer-Encoding twice",
      bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      code: "upstream_invalid",
    },
    {
      title: "uses chunks with HTTP/1.0",
      bytes: "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      code: "upstream_invalid",
    },
    {
      title: "sends a head of more than 32 KiB",
      bytes: `HTTP/1.1 200 OK\r\nX-A: ${"x".repeat(40_000)}\r\n\r\n`,
      code: "upstream_invalid",
    },
    {
      title: "sends a head without end",
      bytes: `HTTP/1.1 200 OK\r\n${"X-A: b\r\n".repeat(10_000)}`,
      code: "upstream_invalid",
    },
    {
      title: "switches protocols without a request for it",
      bytes: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
      code: "upstream_invalid",
    },
    {
      title: "sends 101 without a protocol",
      bytes: "HTTP/1.1 101 Switching Protocols\r\n\r\n",
      code: "upstream_invalid",
    },
  ];

  describe("an upstream that gives no valid response", () => {
    it.each(answered)(
      "gives the client a 502 when the upstream $title",
      async ({ bytes, then = "open", code, method = "GET" }) => {
        const upstream = await headBackend(({ socket, text }) => {
          if (text.includes(" /fine ")) return void socket.write(good);
          socket.write(Buffer.from(bytes, "latin1"));
          if (then === "end") socket.end();
          if (then === "reset") socket.resetAndDestroy();
        });
        const { port } = await running(oneService(upstream.port, one));
        const answer = await ask(port, { method, path: "/a/bad" });
        expect(answer.status).toBe(502);
        expect(codeIn(answer.body.toString())).toBe(code);
        expect(answer.headers["content-type"]).toBe("application/problem+json");
        const next = await ask(port, { path: "/a/fine" });
        expect(`${next.status} ${next.body}`).toBe("200 good");
        expect(upstream.sockets.size).toBe(1);
      },
    );

    it("gives the client a 502 when the upstream refuses connections", async () => {
      const { port } = await running(oneService(await closedPort(), one));
      for (let i = 0; i < 3; i++) {
        const answer = await ask(port, { method: "POST", path: "/a/x", body: "text" });
        expect(`${answer.status} ${codeIn(answer.body.toString())}`).toBe("502 upstream_connect_failed");
      }
    });

    it("gives the client a 502 when the upstream's name does not resolve", async () => {
      const config = oneService(1, one);
      const service = { ...config.services[0]!, upstreams: [{ host: "no-such-host.invalid", port: 80 }] };
      const { port } = await running({ services: [service] });
      const answer = await ask(port, { path: "/a/x" });
      expect(`${answer.status} ${codeIn(answer.body.toString())}`).toBe("502 upstream_connect_failed");
    });
  });

  interface Cut {
    readonly title: string;
    readonly head: string;
    readonly body: string;
    /** What the upstream does when the client has received the body: sends bytes, or ends. */
    readonly then: "end" | "reset" | { readonly bytes: string };
  }

  const cuts: Cut[] = [
    { title: "closes short of its Content-Length", head: "Content-Length: 10", body: "short", then: "end" },
    { title: "resets short of its Content-Length", head: "Content-Length: 10", body: "short", then: "reset" },
    { title: "closes between chunks", head: "Transfer-Encoding: chunked", body: "5\r\nshort\r\n", then: "end" },
    { title: "closes within a chunk", head: "Transfer-Encoding: chunked", body: "9\r\nshort", then: "end" },
    { title: "resets between chunks", head: "Transfer-Encoding: chunked", body: "5\r\nshort\r\n", then: "reset" },
    {
      title: "sends an invalid chunk",
      head: "Transfer-Encoding: chunked",
      body: "5\r\nshort\r\n",
      then: { bytes: "zz\r\n" },
    },
    {
      title: "sends a chunk longer than its size",
      head: "Transfer-Encoding: chunked",
      body: "5\r\nshort",
      then: { bytes: "er\r\n" },
    },
    {
      title: "closes within its trailers",
      head: "Transfer-Encoding: chunked",
      body: "5\r\nshort\r\n0\r\nX-A: b\r\n",
      then: "end",
    },
    { title: "resets a body that lasts until the end", head: "X-A: b", body: "short", then: "reset" },
  ];

  /** Sends head and body, and the rest when `begun` resolves. */
  function cutting({ head, body, then }: Cut, begun: Promise<unknown>) {
    return headBackend(({ socket, text }) => {
      if (text.includes(" /fine ")) return void socket.write(good);
      socket.write(`HTTP/1.1 200 OK\r\n${head}\r\n\r\n`);
      socket.write(body);
      void begun.then(() => {
        if (then === "end") socket.end();
        else if (then === "reset") socket.resetAndDestroy();
        else socket.write(then.bytes);
      });
    });
  }

  describe("an upstream that breaks off its body", () => {
    it.each(cuts)("breaks off the client's response, without a clean end, when the upstream $title", async (cut) => {
      const begun = gate();
      const upstream = await cutting(cut, begun.opened);
      const { port } = await running(oneService(upstream.port, one));
      const connection = await client(port);
      connection.send(get());
      await connection.until("short");
      begun.open();
      const received = await connection.closed();
      expect(statusesIn(received)).toEqual([200]);
      expect(received).not.toMatch(/\r\n0\r\n/);
      expect(received).not.toContain("upstream_");
      await expect(ask(port, { path: "/a/fine" })).resolves.toMatchObject({ status: 200 });
    });

    it.each(cuts)(
      "breaks off the response of an HTTP/1.0 client, with a reset if there is no length, when the upstream $title",
      async (cut) => {
        const begun = gate();
        const upstream = await cutting(cut, begun.opened);
        const { port } = await running(oneService(upstream.port, one));
        const connection = await client(port);
        let end = "clean";
        connection.socket.on("error", (error: NodeJS.ErrnoException) => (end = error.code ?? "?"));
        connection.send("GET /a/x HTTP/1.0\r\n\r\n");
        await connection.until("short");
        begun.open();
        const received = await connection.closed();
        expect(received).toMatch(/\r\n\r\nshort$/);
        if (!/content-length: 10/i.test(received)) expect(end).toBe("ECONNRESET");
      },
    );
  });

  describe("a body that breaks off before any byte of the response was sent", () => {
    it.each([
      {
        title: "a bad chunk",
        bytes: "Transfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nzz\r\n",
        code: "upstream_invalid",
      },
      {
        title: "a chunk longer than its size",
        bytes: "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
        code: "upstream_invalid",
      },
    ])(
      "a body that breaks off before any byte of the response was sent gives the client a 502: " +
        "$title in the segment of the head",
      async ({ bytes, code }) => {
        const upstream = await headBackend(({ socket, text }) => {
          socket.write(text.includes(" /fine ") ? good : `HTTP/1.1 200 OK\r\n${bytes}`);
        });
        const { port } = await running(oneService(upstream.port, one));
        const answer = await ask(port, { path: "/a/x" });
        expect(`${answer.status} ${codeIn(answer.body.toString())}`).toBe(`502 ${code}`);
        await expect(ask(port, { path: "/a/fine" })).resolves.toMatchObject({ status: 200 });
      },
    );
  });

  describe("bytes of an upstream beyond its response", () => {
    const second = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond";

    it("bytes of an upstream beyond its response reach no client when they arrive in the same segment", async () => {
      const upstream = await headBackend(({ socket, text }) => {
        if (text.includes(" /fine ")) socket.write(good);
        else socket.write(good + second);
      });
      const { port } = await running(oneService(upstream.port, one));
      for (let i = 0; i < 3; i++) {
        const first = await ask(port, { path: "/a/two" });
        expect(`${first.status} ${first.body}`).toBe("200 good");
        const next = await ask(port, { path: "/a/fine" });
        expect(`${next.status} ${next.body}`).toBe("200 good");
      }
    });

    it(
      "bytes of an upstream beyond its response reach no client when they are garbage in the same segment, " +
        "and the response before them stays intact",
      async () => {
        const upstream = await headBackend(({ socket, text }) => {
          if (text.includes(" /fine ")) socket.write(good);
          else socket.write(good + "garbage");
        });
        const { port } = await running(oneService(upstream.port, one));
        const first = await ask(port, { path: "/a/two" });
        expect(`${first.status} ${first.body}`).toBe("200 good");
        expect((await ask(port, { path: "/a/fine" })).body.toString()).toBe("good");
      },
    );

    it.each([
      "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
      "HTTP/1.1 101 Switching Protocols\r\n\r\n",
      "HTTP/1.1 103 Early Hints\r\n\r\n",
    ])(
      "bytes of an upstream beyond its response reach no client and end nothing else when they " +
        "are %j in the same segment",
      async (surplus) => {
        const upstream = await headBackend(({ socket, text }) => {
          if (text.includes(" /fine ")) socket.write(good);
          else
            socket.write((text.includes(" /empty ") ? "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" : good) + surplus);
        });
        const { port } = await running(oneService(upstream.port, one));
        for (const path of ["/a/empty", "/a/two"]) {
          expect((await ask(port, { path })).status).toBe(200);
          const next = await ask(port, { path: "/a/fine" });
          expect(`${next.status} ${next.body}`).toBe("200 good");
        }
      },
    );

    it(
      "bytes of an upstream beyond its response reach no client and close the connection when they arrive " +
        "later on the idle connection",
      async () => {
        const upstream = await headBackend(({ socket }) => void socket.write(good));
        const { port } = await running(oneService(upstream.port, one));
        await ask(port, { path: "/a/1" });
        const [idle] = upstream.sockets;
        idle!.write(second);
        await eventually(() => !upstream.sockets.has(idle!), "the connection closing");
        const next = await ask(port, { path: "/a/2" });
        expect(`${next.status} ${next.body}`).toBe("200 good");
        expect(upstream.connections).toBe(2);
      },
    );

    it(
      "bytes of an upstream beyond its response reach no client when they arrive while the client has " +
        "yet to read the response",
      async () => {
        const big = 8_000_000;
        const upstream = await headBackend(({ socket, text }) => {
          if (text.includes(" /fine ")) return void socket.write(good);
          socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${big}\r\n\r\n`);
          socket.write(Buffer.alloc(big));
          socket.write("HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + "s".repeat(30_000));
        });
        const { port } = await running(oneService(upstream.port, one));
        const connection = await client(port);
        connection.socket.pause();
        connection.send(get("/a/big"));
        await eventually(() => upstream.heads.length === 1, "a request at the upstream");
        connection.socket.resume();
        await eventually(() => connection.text().length >= big, "the response");
        expect(connection.text()).not.toContain("sss");
        const next = await ask(port, { path: "/a/fine" });
        expect(`${next.status} ${next.body}`).toBe("200 good");
        expect(upstream.connections).toBe(2);
      },
    );

    it(
      "bytes of an upstream beyond its response reach no client when they are the body of a 204, " +
        "a 304 or a response to HEAD",
      async () => {
        for (const [method, status] of [
          ["GET", "204 No Content"],
          ["GET", "304 Not Modified"],
          ["HEAD", "200 OK"],
        ] as const) {
          const upstream = await headBackend(({ socket, text }) => {
            if (text.includes(" /fine ")) socket.write(good);
            else socket.write(`HTTP/1.1 ${status}\r\nContent-Length: 25\r\n\r\nHTTP/1.1 299 Smuggled\r\n\r\n`);
          });
          const { port } = await running(oneService(upstream.port, one));
          const connection = await client(port);
          connection.send(`${method} /a/x HTTP/1.1\r\nHost: h\r\n\r\n`);
          await connection.until(`HTTP/1.1 ${status.slice(0, 3)}`);
          connection.send(get("/a/fine"));
          const received = await connection.until("good");
          expect(statusesIn(received)).toEqual([Number(status.slice(0, 3)), 200]);
        }
      },
    );

    it(
      "bytes of an upstream beyond its response are cut off behind the Content-Length, " +
        "and the connection is not used again",
      async () => {
        const upstream = await headBackend(
          ({ socket }) => void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngoodbye"),
        );
        const { port } = await running(oneService(upstream.port, one));
        expect((await ask(port, { path: "/a/1" })).body.toString()).toBe("good");
        expect((await ask(port, { path: "/a/2" })).body.toString()).toBe("good");
        expect(upstream.connections).toBe(2);
      },
    );
  });

  describe("a connection that the upstream closes just as it is reused", () => {
    /** Answers the first request of each connection, and closes at the second without a response. */
    const closing = (bytes = "") =>
      headBackend(({ socket, nth }) => {
        if (nth === 0) return void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        if (bytes !== "") socket.write(bytes);
        socket.end();
      });

    it.each(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])(
      "sends %s without a body again on a new connection",
      async (method) => {
        const upstream = await closing();
        const { port } = await running(oneService(upstream.port, one));
        await ask(port, { path: "/a/1" });
        expect((await ask(port, { method, path: "/a/2", headers: { "Content-Length": "0" } })).status).toBe(200);
        expect(upstream.connections).toBe(2);
        expect(upstream.heads).toHaveLength(3);
      },
    );

    it.each(["POST", "PATCH"])(
      "does not send %s again, because the upstream may have carried it out",
      async (method) => {
        const upstream = await closing();
        const { port } = await running(oneService(upstream.port, one));
        await ask(port, { path: "/a/1" });
        const answer = await ask(port, { method, path: "/a/2", headers: { "Content-Length": "0" } });
        expect(`${answer.status} ${codeIn(answer.body.toString())}`).toBe("502 upstream_reset");
        expect(upstream.heads).toHaveLength(2);
        expect((await ask(port, { path: "/a/3" })).status).toBe(200);
      },
    );

    it("does not send a PUT with a body again", async () => {
      const upstream = await closing();
      const { port } = await running(oneService(upstream.port, one));
      await ask(port, { path: "/a/1" });
      expect((await ask(port, { method: "PUT", path: "/a/2", body: "text" })).status).toBe(502);
    });

    it("does not send a request again after a byte of its response has arrived", async () => {
      const upstream = await closing("HTTP/1.1 2");
      const { port } = await running(oneService(upstream.port, one));
      await ask(port, { path: "/a/1" });
      expect((await ask(port, { path: "/a/2" })).status).toBe(502);
      expect(upstream.heads).toHaveLength(2);
    });

    it("sends a request again once, and answers 502 when the new connection closes too", async () => {
      let silent = false;
      const upstream = await headBackend(({ socket }) => {
        if (silent) return void socket.end();
        silent = true;
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      });
      const { port } = await running(oneService(upstream.port, one));
      await ask(port, { path: "/a/1" });
      const answer = await ask(port, { path: "/a/2" });
      expect(`${answer.status} ${codeIn(answer.body.toString())}`).toBe("502 upstream_reset");
      expect(upstream.heads).toHaveLength(3);
      expect(upstream.connections).toBe(2);
    });

    it("does not send a request again that was sent on a new connection", async () => {
      const upstream = await byteBackend((socket) => void socket.once("data", () => socket.end()));
      const { port } = await running(oneService(upstream.port, one));
      expect((await ask(port, { path: "/a/1" })).status).toBe(502);
      expect(upstream.connections).toBe(1);
    });
  });

  it(
    "writes a Content-Length with leading zeros anew, and drops trailers about framing, " +
      "which Node's parser may refuse",
    async () => {
      const upstream = await headBackend(({ socket, text }) => {
        if (text.includes(" /length ")) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0000000004\r\n\r\ngood");
        else
          socket.write(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\nConnection: " +
              "close\r\nContent-Length: 9\r\nX-Sum: 3\r\n\r\n",
          );
      });
      const { port } = await running(oneService(upstream.port, one));
      const length = await ask(port, { path: "/a/length" });
      expect([length.headers["content-length"], String(length.body)]).toEqual(["4", "good"]);
      if (upstreamClient === "node") return;
      const connection = await client(port);
      connection.send(get("/a/trailers", "TE: trailers"));
      const received = await connection.until("0\r\nX-Sum: 3\r\n\r\n");
      expect(statusesIn(received)).toEqual([200]);
      expect(received).not.toMatch(/Content-Length: 9|Connection: close/i);
    },
  );

  it("reveals no internal addresses, ports or error codes to the client", async () => {
    const upstream = await headBackend(({ socket, text }) => {
      if (text.includes("/reset")) socket.resetAndDestroy();
      else if (text.includes("/garbage")) socket.write("garbage");
    });
    const dead = await closedPort();
    const { port } = await running(oneService(upstream.port, one));
    const { port: deadPort } = await running(oneService(dead, one));
    const answers = [
      await ask(port, { path: "/a/reset" }),
      await ask(port, { path: "/a/garbage" }),
      await ask(deadPort, { path: "/a/x" }),
    ];
    for (const answer of answers) {
      const all = answer.rawHeaders.join("\n") + answer.body.toString();
      expect(all).not.toMatch(/127\.0\.0\.1|localhost|ECONN|HPE_|node|\.ts|Error/);
      expect(all).not.toContain(String(upstream.port));
      expect(all).not.toContain(String(dead));
    }
  });
}
