import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import tls from "node:tls";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { createGateway, createLog, type ConfigInput } from "../../lib/index.ts";
import { SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { backend, hosted, oneService, running } from "../support/gateway.ts";
import { ask, connect, eventually, refused } from "../support/raw_client.ts";
import { HANDSHAKE } from "./plugins.ts";

const TLS = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };

describe("listen", () => {
  it("a gateway listens on several addresses at once", async () => {
    const origin = await backend();
    const { gateway, port } = await running(oneService(origin.port));
    const second = await gateway.listen({ port: 0 });
    expect(second.port).not.toBe(port);
    for (const each of [port, second.port]) expect((await ask(each, { path: "/a/x" })).status).toBe(200);
  });

  it("listen rejects with EADDRINUSE for an occupied port, and the other listeners continue", async () => {
    const origin = await backend();
    const { gateway, port } = await running(oneService(origin.port));
    await expect(gateway.listen({ port })).rejects.toMatchObject({ code: "EADDRINUSE" });
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });

  it("listen opens an HTTPS listener without a plain one", async () => {
    const gateway = createGateway({ config: oneService((await backend()).port) });
    onTestFinished(async () => void (await gateway.close(0)));
    const { port } = await gateway.listen({ port: 0, tls: TLS });
    const socket = tls.connect({ host: "127.0.0.1", port, rejectUnauthorized: false });
    socket.write("GET /a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  });

  it("listen rejects after close, and while closing", async () => {
    const { gateway } = await running(oneService(9));
    const closing = gateway.close(0);
    await expect(gateway.listen({ port: 0 })).rejects.toThrow("the gateway is being closed");
    await closing;
    await expect(gateway.listen({ port: 0 })).rejects.toThrow("the gateway is being closed");
  });

  it("listen leaves no socket open when close is called before it has finished", async () => {
    const gateway = createGateway({ config: oneService(9) });
    const server = http.createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    const listening = gateway.listen({ port });
    const refused = expect(listening).rejects.toThrow("the gateway is being closed");
    await gateway.close(0);
    await refused;
    await expect(connect(port)).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });
});

describe("announceStop", () => {
  it(
    "announceStop turns ready to false while requests and connections are still accepted, " +
      "and asks HTTP/1 clients to reconnect",
    async () => {
      const origin = await backend();
      const { gateway, port } = await running(oneService(origin.port));
      gateway.announceStop();
      expect([gateway.ready, gateway.status.state]).toEqual([false, "stopping"]);
      const answer = await ask(port, { path: "/a/x", headers: { Connection: "keep-alive" } });
      expect([answer.status, answer.headers.connection]).toEqual([200, "close"]);
      expect((await gateway.listen({ port: 0 })).port).toBeGreaterThan(0);
      expect(await gateway.close()).toBe("drained");
      gateway.announceStop();
      expect(gateway.status.state).toBe("closed");
    },
  );
});

describe("close", () => {
  it("close waits for the whole grace period, even if it is longer than the longest timer of node", async () => {
    const answers: (() => void)[] = [];
    const { port: upstream } = await backend((_request, response) => void answers.push(() => response.end("late")));
    const { gateway, port } = await running(oneService(upstream));
    const answer = ask(port, { path: "/a/x" });
    await eventually(() => answers.length === 1, "one request to answer");
    const closed = gateway.close(Infinity);
    await new Promise((resolve) => setImmediate(resolve));
    answers[0]!();
    expect((await answer).body.toString()).toBe("late");
    expect(await closed).toBe("drained");
  });

  it("close resolves at once when nothing is open, and connections are refused afterwards", async () => {
    const { gateway, port } = await running(oneService(9));
    expect(await gateway.close()).toBe("drained");
    expect(gateway.ready).toBe(false);
    await expect(connect(port)).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });

  it("reload throws after close, and starts no probes", async () => {
    const clock = manualClock();
    const { gateway } = await running(oneService(9), { clock });
    await gateway.close();
    const pending = clock.pending;
    await expect(gateway.reload(oneService(9, { health: { enabled: true } }))).rejects.toThrow(
      "the gateway has been closed",
    );
    expect(gateway.status.lastReload).toMatchObject({
      outcome: "refused",
      file: null,
      issues: [{ path: "", line: null, column: null, message: "the gateway has been closed" }],
    });
    expect(gateway.rereadFiles()).toBe(false);
    expect(clock.pending).toBe(pending);
  });

  it(
    "close ends idle keep-alive connections to clients and upstreams without " + "waiting for the grace period",
    async () => {
      const origin = await backend();
      const clock = manualClock();
      const { gateway, port } = await running(oneService(origin.port), { clock });
      const client = await connect(port);
      client.send("GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n");
      await client.until(/\r\n\r\n(.|\r|\n)*ok/);
      const closing = gateway.close();
      await refused(port);
      expect(client.socket.readyState).toBe("open");
      clock.advance(1_000);
      expect(await closing).toBe("drained");
      await client.closed();
      await eventually(() => origin.connections.open === 0, "no open connection at the upstream");
    },
  );

  it("close ends connections that never sent a request after half of a short grace", async () => {
    const clock = manualClock();
    // The grace itself is timed by the system, and on a busy machine could be over before the connections are closed.
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const { gateway, port } = await running(oneService(9), { clock });
    const client = await connect(port);
    const closing = gateway.close(1_500);
    await refused(port);
    clock.advance(750);
    expect(await closing).toBe("drained");
    await client.closed();
  });

  it("close lets requests in flight finish with Connection: close, and accepts no new connections", async () => {
    let finish = () => {};
    const origin = await backend((_request, response) => (finish = () => void response.end("whole")));
    const { gateway, port } = await running(oneService(origin.port));
    const answer = ask(port, { path: "/a/x" });
    await eventually(() => origin.seen.length === 1, "one request at the upstream");
    const closing = gateway.close();
    expect(gateway.ready).toBe(false);
    expect(gateway.inFlight).toBe(1);
    await eventually(() => !gateway.ready, "a gateway that is not ready");
    await refused(port);
    finish();
    const { status, headers, body } = await answer;
    expect([status, headers.connection, body.toString()]).toEqual([200, "close", "whole"]);
    expect(await closing).toBe("drained");
  });

  it(
    "close resets the remaining connections when the grace period is over, " +
      "so that a client does not mistake a truncated reply for a complete one",
    async () => {
      const origin = await backend((_request, response) => void response.write("part"));
      const { gateway, port } = await running(oneService(origin.port));
      const client = await connect(port);
      client.send("GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n");
      await client.until("part");
      expect(await gateway.close(5)).toBe("cut");
      expect(await client.closed()).not.toContain("\r\n0\r\n");
      await eventually(() => origin.connections.open === 0, "no open connection at the upstream");
      expect(gateway.inFlight).toBe(0);
    },
  );

  it("close cuts open WebSockets on both sides", async () => {
    const { port, server, connections } = await backend();
    server.on("upgrade", (_request, socket: Duplex) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
      socket.pipe(socket);
    });
    const gateway = await running(oneService(port));
    const client = await connect(gateway.port);
    client.send(HANDSHAKE);
    await client.until("\r\n\r\n");
    expect(await gateway.gateway.close(5)).toBe("cut");
    await client.closed();
    await eventually(() => connections.open === 0, "no open connection at the upstream");
  });

  it("close called twice gives the same outcome, and the shorter grace counts", async () => {
    const origin = await backend(() => {});
    const { gateway, port } = await running(oneService(origin.port));
    const answer = expect(ask(port, { path: "/a/x" })).rejects.toThrow();
    await eventually(() => origin.seen.length === 1, "one request at the upstream");
    const first = gateway.close(60_000);
    const second = gateway.close(5);
    expect(await Promise.all([first, second, gateway.close()])).toEqual(["cut", "cut", "cut"]);
    await answer;
    expect(await gateway.close()).toBe("cut");
  });

  it(
    "close writes the last lines of the access log before it resolves, " +
      "including the lines of requests that were cut off",
    async () => {
      const origin = await backend(() => {});
      let log = "";
      const { gateway, port } = await running(oneService(origin.port), { accessLog: (lines) => void (log += lines) });
      const answer = expect(ask(port, { path: "/a/x" })).rejects.toThrow();
      await eventually(() => origin.seen.length === 1, "one request at the upstream");
      await gateway.close(0);
      expect(JSON.parse(log)).toMatchObject({ path: "/a/x", status: null, code: "client_closed" });
      await answer;
    },
  );
});

describe("handler and upgrade in a host's own server", () => {
  async function host(config: ConfigInput) {
    const gateway = createGateway({ config, log: createLog({ level: "silent" }) });
    const server = http.createServer((request, response) => {
      if (request.url === "/own") response.end("the host's");
      else gateway.handler(request, response);
    });
    server.on("upgrade", gateway.upgrade);
    return { gateway, port: await hosted(gateway, server) };
  }

  it("handler answers the requests that a host's own server forwards", async () => {
    const origin = await backend((_request, response, body) => response.end(`got ${body.toString()}`));
    const { port } = await host(oneService(origin.port));
    expect((await ask(port, { path: "/own" })).body.toString()).toBe("the host's");
    expect((await ask(port, { method: "POST", path: "/a/x", body: "this" })).body.toString()).toBe("got this");
    expect((await ask(port, { path: "/none" })).status).toBe(404);
  });

  it("upgrade serves WebSockets of a host's own server, and close cuts them on both sides", async () => {
    const origin = await backend();
    origin.server.on("upgrade", (_request, socket: Duplex) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
      socket.pipe(socket);
    });
    const { gateway, port } = await host(oneService(origin.port));
    const client = await connect(port);
    client.send(HANDSHAKE);
    await client.until("\r\n\r\n");
    client.send("echo me");
    await client.until("echo me");
    expect(await gateway.close(5)).toBe("cut");
    await client.closed();
    await eventually(() => origin.connections.open === 0, "no open connection at the upstream");
  });

  it("close ends requests to upstreams that are no longer configured when the grace is over", async () => {
    const origin = await backend((_request, response) => void response.write("part"));
    const { gateway, port } = await host(oneService(origin.port));
    const client = await connect(port);
    client.send("GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n");
    await client.until("part");
    await gateway.reload({ services: [] });
    await gateway.reload({ services: [] });
    expect(await gateway.close(5)).toBe("cut");
    await client.closed();
    await eventually(() => origin.connections.open === 0, "no open connection at the upstream");
  });

  it("handler answers 503 overloaded after close, and ends the connection", async () => {
    const { gateway, port } = await host(oneService(9));
    await gateway.close();
    const answer = await ask(port, { path: "/a/x" });
    expect(answer.status).toBe(503);
    expect(answer.headers.connection).toBe("close");
    expect(JSON.parse(answer.body.toString())).toMatchObject({ code: "overloaded" });
    const client = await connect(port);
    client.send(HANDSHAKE);
    expect(await client.closed()).toMatch(/^HTTP\/1\.1 503 /);
  });
});
