import { describe, expect, it } from "vitest";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, byteBackend, client, codeIn, gate, get, headBackend, rawBackend, statusesIn } from "./harness.ts";

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

describe("response_ms", () => {
  it(
    "answers 504 without a response in time, closes the upstream's connection and " + "frees its place in the pool",
    async () => {
      const clock = manualClock();
      const upstream = await headBackend(({ socket, text }) => {
        if (text.includes("/next")) socket.write(ok);
      });
      const { port } = await running(
        oneService(upstream.port, { pool: { max_connections: 1 }, timeouts: { response_ms: 500 } }),
        { clock },
      );
      const answer = ask(port, { path: "/a/x" });
      await eventually(() => upstream.heads.length === 1, "a request at the upstream");
      clock.advance(499);
      await ask(port, { path: "/none" });
      expect(upstream.sockets.size).toBe(1);
      clock.advance(1);
      const { status, body } = await answer;
      expect(`${status} ${codeIn(body.toString())}`).toBe("504 upstream_timeout");
      expect(body.toString()).not.toContain("500 ms");
      await eventually(() => upstream.sockets.size === 0, "the connections to the upstream closing");
      expect((await ask(port, { path: "/a/next" })).status).toBe(200);
    },
  );

  it("counts from the end of the request", async () => {
    const clock = manualClock();
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port, { timeouts: { response_ms: 500 } }), { clock });
    const connection = await client(port);
    connection.send("POST /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na");
    await eventually(() => upstream.connections.total === 1, "a connection to the upstream");
    clock.advance(5000);
    connection.send("b");
    expect(statusesIn(await connection.until("\r\nok"))).toEqual([200]);
  });

  it("ends with the head of the response: the body may take longer", async () => {
    const clock = manualClock();
    const more = gate();
    const upstream = await rawBackend(async (_request, response) => {
      response.write("begun");
      await more.opened;
      response.end("ended");
    });
    const { port } = await running(oneService(upstream.port, { timeouts: { response_ms: 500 } }), { clock });
    const connection = await client(port);
    connection.send(get());
    await connection.until("begun");
    clock.advance(5000);
    more.open();
    await connection.until("ended");
  });

  it("leaves no timer behind", async () => {
    const clock = manualClock();
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port), { clock });
    const idle = clock.pending;
    for (const method of ["GET", "POST", "HEAD", "PROPFIND"]) {
      await ask(port, { method, path: "/a/x", ...(method === "POST" ? { body: "hello" } : {}) });
      await ask(port, { method, path: "/none", ...(method === "POST" ? { body: "hello" } : {}) });
    }
    await eventually(() => clock.pending === idle, "no timer pending");
  });
});

describe("connect_ms", () => {
  it("answers 504 when the upstream accepts and never finishes the TLS handshake", async () => {
    const clock = manualClock();
    const upstream = await byteBackend((socket) => void socket.resume());
    const parts = { protocol: "https", pool: { max_connections: 1 }, timeouts: { connect_ms: 400 } } as const;
    const { port } = await running(oneService(upstream.port, parts), { clock });
    for (let i = 1; i <= 2; i++) {
      const answer = ask(port, { method: "POST", path: "/a/x", body: "hello" });
      await eventually(() => upstream.connections === i, "the next connection to the upstream");
      clock.advance(400);
      const { status, body } = await answer;
      expect(`${status} ${codeIn(body.toString())}`).toBe("504 upstream_timeout");
      await eventually(() => upstream.sockets.size === 0, "the connections to the upstream closing");
    }
  });

  it("answers 502 when the upstream answers a TLS handshake with something else", async () => {
    const upstream = await byteBackend(
      (socket) => void socket.once("data", () => socket.write("HTTP/1.1 400 Bad Request\r\n\r\n")),
    );
    const { port } = await running(oneService(upstream.port, { protocol: "https", pool: { max_connections: 1 } }));
    for (let i = 0; i < 2; i++) {
      const { status, body } = await ask(port, { path: "/a/x" });
      expect(`${status} ${codeIn(body.toString())}`).toBe("502 upstream_connect_failed");
    }
  });
});

describe("idle_ms", () => {
  const idle = { pool: { max_connections: 1 }, timeouts: { idle_ms: 60 } };

  it("breaks off the response when the upstream falls silent in the middle of a body", async () => {
    const upstream = await headBackend(({ socket, text }) => {
      socket.write(text.includes("/next") ? ok : "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun");
    });
    const { port } = await running(oneService(upstream.port, idle));
    await expect(ask(port, { path: "/a/x" })).rejects.toThrow();
    await eventually(() => upstream.sockets.size === 0, "the connections to the upstream closing");
    expect((await ask(port, { path: "/a/next" })).status).toBe(200);
  });

  it("answers 408 when the client stops in the middle of its upload, and cancels the upstream request", async () => {
    const upstream = await headBackend(({ socket, text }) => {
      if (text.includes("/next")) socket.write(ok);
    });
    const { port } = await running(oneService(upstream.port, idle));
    const connection = await client(port);
    connection.send("POST /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    expect(await connection.until("request_timeout")).toContain("HTTP/1.1 408");
    await eventually(() => upstream.sockets.size === 0, "the connections to the upstream closing");
    expect((await ask(port, { path: "/a/next" })).status).toBe(200);
  });

  it("answers 504 when the upstream stops reading an upload", async () => {
    const upstream = await byteBackend((socket) => void socket.pause());
    // On a machine that stalls before all buffers are full, the client would be the silent one.
    const { port } = await running(oneService(upstream.port, { timeouts: { idle_ms: 400 } }));
    const connection = await client(port);
    connection.send("POST /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n");
    const piece = Buffer.alloc(64 * 1024);
    const push = () => {
      while (connection.socket.write(piece));
    };
    connection.socket.on("drain", push);
    push();
    expect(await connection.until("upstream_timeout")).toContain("HTTP/1.1 504");
  });

  it("answers 504 when the upstream never sends the 100 that the client waits for", async () => {
    const upstream = await headBackend(() => {});
    const { port } = await running(oneService(upstream.port, idle));
    const connection = await client(port);
    connection.send("POST /a/x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    const received = await connection.closed();
    expect(received).toContain("HTTP/1.1 504");
    expect(codeIn(received)).toBe("upstream_timeout");
  });

  it("does not limit the wait for the response", async () => {
    const upstream = await rawBackend((_request, response) => void setTimeout(() => response.end("ok"), 200));
    const { port } = await running(oneService(upstream.port, idle));
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });

  it("keeps a body alive that sends bytes now and then", async () => {
    const upstream = await rawBackend((_request, response) => {
      let left = 13;
      const tick = setInterval(() => {
        if (--left > 0) return void response.write("tick");
        clearInterval(tick);
        response.end("done");
      }, 50);
    });
    // A machine that stalls for half a second must not look like a silent upstream.
    const { port } = await running(oneService(upstream.port, { timeouts: { idle_ms: 500 } }));
    expect((await ask(port, { path: "/a/x" })).body.toString()).toMatch(/done$/);
  });
});

describe("the pool of upstream connections", () => {
  it(
    "the pool of upstream connections queues a request beyond max_connections, " +
      "and answers 503 upstream_saturated after connect_ms",
    async () => {
      const clock = manualClock();
      const hold = gate();
      const upstream = await rawBackend(async (request, response) => {
        if (request.url === "/slow") await hold.opened;
        response.end("ok");
      });
      const parts = { pool: { max_connections: 1 }, timeouts: { connect_ms: 700 } };
      const { port } = await running(oneService(upstream.port, parts), { clock });
      const slow = ask(port, { path: "/a/slow" });
      await eventually(() => upstream.connections.total === 1, "a connection to the upstream");
      const before = clock.pending;
      const waiting = ask(port, { path: "/a/x" });
      await eventually(() => clock.pending > before, "the second waiting");
      clock.advance(700);
      const { status, body } = await waiting;
      expect(`${status} ${codeIn(body.toString())}`).toBe("503 upstream_saturated");
      hold.open();
      expect((await slow).status).toBe(200);
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
      expect(upstream.connections.total).toBe(1);
    },
  );

  it(
    "the pool of upstream connections gives waiting requests the freed connection at " + "once, in order of arrival",
    async () => {
      const order: string[] = [];
      const hold = gate();
      const upstream = await rawBackend(async (request, response) => {
        order.push(request.url!);
        if (request.url === "/0") await hold.opened;
        response.end("ok");
      });
      const clock = manualClock();
      const { port } = await running(oneService(upstream.port, { pool: { max_connections: 1 } }), { clock });
      const answers = [ask(port, { path: "/a/0" })];
      await eventually(() => order.length === 1, "a request at the upstream");
      for (let i = 1; i <= 5; i++) {
        const before = clock.pending;
        answers.push(ask(port, { path: `/a/${i}` }));
        await eventually(() => clock.pending > before, `request ${i} waiting`);
      }
      hold.open();
      for (const answer of await Promise.all(answers)) expect(answer.status).toBe(200);
      expect(order).toEqual(["/0", "/1", "/2", "/3", "/4", "/5"]);
      expect(upstream.connections.total).toBe(1);
    },
  );

  it("the pool of upstream connections reuses an idle connection within keepalive_idle_ms", async () => {
    const upstream = await headBackend(({ socket }) => void socket.write(ok));
    const { port } = await running(oneService(upstream.port, { pool: { keepalive_idle_ms: 60_000 } }));
    await ask(port, { path: "/a/x" });
    await ask(port, { path: "/a/x" });
    expect(upstream.connections).toBe(1);
  });

  it(
    "the pool of upstream connections closes an idle connection after keepalive_idle_ms, " +
      "and opens a new one for the next request",
    async () => {
      const upstream = await headBackend(({ socket }) => void socket.write(ok));
      const { port } = await running(oneService(upstream.port, { pool: { keepalive_idle_ms: 1 } }));
      await ask(port, { path: "/a/x" });
      await eventually(() => upstream.sockets.size === 0, "the idle connection closing");
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
      expect(upstream.connections).toBe(2);
    },
  );

  it("the pool of upstream connections never opens more than max_connections, whatever clients do", async () => {
    let most = 0;
    const upstream = await rawBackend((request, response) => {
      most = Math.max(most, upstream.connections.open);
      setTimeout(() => {
        if (request.url === "/cut") response.destroy();
        else response.end("ok");
      }, 1);
    });
    const { port } = await running(
      oneService(upstream.port, { pool: { max_connections: 3 } }, { limits: { max_client_share: 1 } }),
    );
    const all = Array.from({ length: 60 }, (_, i) => ask(port, { path: i % 4 === 0 ? "/a/cut" : "/a/x" }));
    const statuses = (await Promise.all(all)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(45);
    expect(statuses.filter((status) => status === 502)).toHaveLength(15);
    expect(most).toBeLessThanOrEqual(3);
  });
});
