import { describe, expect, it } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually, type RawConnection } from "../support/raw_client.ts";
import { backend, byteBackend, client, gate, get, headBackend, rawBackend } from "./harness.ts";

/** One connection to the upstream: a leaked connection would block the next request. */
const one = { pool: { max_connections: 1 } };
const upload = "POST /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n";
const ways: [string, (connection: RawConnection) => void][] = [
  ["closes", (connection) => connection.socket.destroy()],
  ["resets", (connection) => connection.socket.resetAndDestroy()],
  ["half-closes", (connection) => connection.socket.end()],
];

describe.each(ways)("a client that %s", (_way, leave) => {
  it("cancels the upstream request when the client disconnects before the response", async () => {
    const upstream = await headBackend(({ socket, text }) => {
      if (text.includes("/next")) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    const { port, gateway } = await running(oneService(upstream.port, one));
    const connection = await client(port);
    connection.send(get());
    await eventually(() => upstream.heads.length === 1, "a request at the upstream");
    leave(connection);
    await eventually(() => upstream.sockets.size === 0, "the upstream's connection closing");
    expect((await ask(port, { path: "/a/next" })).status).toBe(200);
    expect(await gateway.close(5_000)).toBe("drained");
  });

  it("cancels the upstream request when the client disconnects in the middle of the response", async () => {
    const upstream = await headBackend(({ socket, text }) => {
      if (text.includes("/next")) return void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n");
    });
    const { port, gateway } = await running(oneService(upstream.port, one));
    const connection = await client(port);
    connection.send(get());
    await connection.until("begun");
    leave(connection);
    await eventually(() => upstream.sockets.size === 0, "the upstream's connection closing");
    expect((await ask(port, { path: "/a/next" })).status).toBe(200);
    expect(await gateway.close(5_000)).toBe("drained");
  });

  it(
    "cancels the upstream request when the client disconnects during its upload: " +
      "the upstream never sees a complete request",
    async () => {
      let whole = false;
      let received = 0;
      const upstream = await rawBackend((request, response) => {
        request.on("data", (chunk: Buffer) => (received += chunk.length));
        request.on("error", () => {});
        request.on("end", () => (whole = true));
        if (request.method === "GET") response.end("ok");
      });
      const { port, gateway } = await running(oneService(upstream.port, one));
      const connection = await client(port);
      connection.send(upload + "half of it");
      await eventually(() => received === 10, "ten bytes at the upstream");
      leave(connection);
      await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
      expect(whole).toBe(false);
      expect((await ask(port, { path: "/a/next" })).status).toBe(200);
      expect(await gateway.close(5_000)).toBe("drained");
    },
  );

  it("cancels the upstream request when the client disconnects while the upstream holds its upload back", async () => {
    const upstream = await byteBackend((socket) => void socket.pause());
    const { port, gateway } = await running(oneService(upstream.port, one));
    const connection = await client(port);
    connection.send(upload + "x".repeat(100_000));
    await eventually(() => upstream.connections === 1, "a connection to the upstream");
    leave(connection);
    await upstreamGone();
    expect(await gateway.close(5_000)).toBe("drained");
    async function upstreamGone(): Promise<void> {
      // A paused socket does not notice the end of the connection, so it reads.
      for (const socket of upstream.sockets) socket.resume();
      await eventually(() => upstream.sockets.size === 0, "the upstream's connection closing");
    }
  });

  it("drops the request when the client disconnects while it waits for a pooled connection", async () => {
    const hold = gate();
    const urls: string[] = [];
    const upstream = await rawBackend(async (request, response) => {
      urls.push(request.url!);
      if (request.url === "/first") await hold.opened;
      response.end("ok");
    });
    const { port } = await running(oneService(upstream.port, one));
    const first = ask(port, { path: "/a/first" });
    await eventually(() => urls.length === 1, "a request at the upstream");
    const connection = await client(port);
    connection.send(get("/a/waiting"));
    // A pipelined request: when it is answered, the gateway has read the one before.
    await ask(port, { path: "/none" });
    leave(connection);
    await connection.closed();
    const third = ask(port, { path: "/a/third" });
    await ask(port, { path: "/none" });
    hold.open();
    expect((await first).status).toBe(200);
    expect((await third).status).toBe(200);
    expect(urls).toEqual(["/first", "/third"]);
  });

  it(
    "returns the pooled connection when the client disconnects after an early response, " +
      "with its upload unfinished",
    async () => {
      const upstream = await headBackend(({ socket, text }) => {
        socket.write(`HTTP/1.1 ${text.startsWith("POST") ? "413 Too Large" : "200 OK"}\r\nContent-Length: 2\r\n\r\nok`);
      });
      const { port, gateway } = await running(oneService(upstream.port, one));
      const connection = await client(port);
      connection.send(upload);
      await connection.until("\r\nok");
      leave(connection);
      await eventually(() => upstream.sockets.size === 0, "the upstream's connection closing");
      expect((await ask(port, { path: "/a/next" })).status).toBe(200);
      expect(await gateway.close(5_000)).toBe("drained");
    },
  );
});

it("sends the upstream no request when the client disconnects while a plugin is still deciding", async () => {
  const { definePlugin, schema } = await import("../../lib/index.ts");
  const thinking = gate();
  const done = gate();
  let aborted = false;
  const slow = definePlugin({
    name: "slow",
    schema: schema.object({}),
    create: () => (next) => async (exchange) => {
      exchange.signal.addEventListener("abort", () => (aborted = true));
      thinking.open();
      await done.opened;
      return next(exchange);
    },
  });
  const upstream = await backend();
  const { port, gateway } = await running(oneService(upstream.port, { ...one, plugins: [{ name: "slow" }] }), {
    plugins: [slow],
  });
  const connection = await client(port);
  connection.send(get());
  await thinking.opened;
  connection.socket.destroy();
  await eventually(() => aborted, "the exchange's signal");
  done.open();
  expect(await gateway.close(5_000)).toBe("drained");
  expect(upstream.seen).toEqual([]);
});
