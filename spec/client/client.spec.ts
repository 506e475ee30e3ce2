import { once } from "node:events";
import type { ServerResponse } from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { ClientFailure, HttpClient, type ClientRequestOptions } from "../../lib/client/client.ts";
import { backend, byteBackend, gate, rawBackend } from "../journeys/harness.ts";
import { ANYWHERE } from "../support/anywhere.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { OTHER_CA } from "../support/more_certs.ts";
import { manualClock } from "../support/clock.ts";
import { closedPort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

function client(options: Partial<ConstructorParameters<typeof HttpClient>[0]> = {}): HttpClient {
  const made = new HttpClient({ clock: systemClock, ...ANYWHERE, ...options });
  onTestFinished(() => made.close());
  return made;
}

const to = (port: number, options: Partial<ClientRequestOptions> = {}): ClientRequestOptions => ({
  url: new URL(`http://127.0.0.1:${port}/path?q=1`),
  timeoutMs: 60_000,
  maxBytes: 1024,
  ...options,
});

/** How a request failed. */
async function failure(asked: Promise<unknown>): Promise<string> {
  const error = await asked.then(
    () => null,
    (reason: unknown) => reason,
  );
  return error instanceof ClientFailure ? error.kind : String(error);
}

const failed = (asked: Promise<unknown>) =>
  asked.then(
    () => null,
    (reason: unknown) => reason as ClientFailure,
  );

describe("an answer in chunks of one byte", () => {
  it("is held in few pieces: each of them takes a hundred bytes of memory", async () => {
    const chunk = "1\r\nx\r\n";
    const origin = await byteBackend((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunk.repeat(50_000)}0\r\n\r\n`);
    });
    const concat = vi.spyOn(Buffer, "concat");
    onTestFinished(() => concat.mockRestore());
    const { body } = await client().ask(to(origin.port, { maxBytes: 50_000 }));
    expect(body.toString()).toBe("x".repeat(50_000));
    expect(Math.max(...concat.mock.calls.map(([list]) => list.length))).toBeLessThan(1000);
  });
});

describe("a request", () => {
  it("a request has its method, target, headers and body, and resolves with the whole answer", async () => {
    const origin = await backend(
      (_request, response) => void response.writeHead(201, ["X-A", "1", "X-A", "2"]).end("made"),
    );
    const answer = await client().ask(
      to(origin.port, { method: "POST", headers: ["X-B", "caf\xe9"], body: Buffer.from("body") }),
    );
    expect(answer.status).toBe(201);
    expect(answer.headers.slice(0, 4)).toEqual(["X-A", "1", "X-A", "2"]);
    expect(answer.body.toString()).toBe("made");
    const [seen] = origin.seen;
    expect(seen).toMatchObject({ method: "POST", url: "/path?q=1" });
    expect(seen!.body.toString()).toBe("body");
    expect(seen!.headers.slice(0, 6)).toEqual([
      "Host",
      `127.0.0.1:${origin.port}`,
      "X-B",
      "caf\xe9",
      "Content-Length",
      "4",
    ]);
  });

  it("a request has its target as it is, where one is given", async () => {
    const origin = await backend();
    const target = "/a//b/../c?x='|\\";
    await client().ask(to(origin.port, { target }));
    expect(origin.seen[0]!.url).toBe(target);
  });

  it(
    "a request whose answer is discarded resolves with its head, " + "once all of it has arrived within the limit",
    async () => {
      const origin = await backend(
        (_request, response) => void response.writeHead(201, { "X-A": "1" }).end("x".repeat(1024)),
      );
      const asking = client();
      for (let i = 0; i < 2; i++)
        expect(await asking.ask(to(origin.port, { discards: true }))).toMatchObject({
          status: 201,
          body: Buffer.alloc(0),
        });
      expect(origin.connections.total).toBe(1);
      expect(await failure(asking.ask(to(origin.port, { discards: true, maxBytes: 1023 })))).toBe("too_large");
    },
  );

  it("a request resolves with redirects and errors without following them", async () => {
    const origin = await backend((_request, response) => void response.writeHead(302, { Location: "/other" }).end());
    expect((await client().ask(to(origin.port))).status).toBe(302);
    expect(origin.seen).toHaveLength(1);
  });

  it("a request reuses a kept connection, and opens a new one after it has closed", async () => {
    const origin = await backend();
    const asking = client();
    for (let i = 0; i < 3; i++) await asking.ask(to(origin.port));
    for (let i = 0; i < 3; i++)
      await asking.ask(to(origin.port, { method: "POST", body: Buffer.alloc(8 * 1024 * 1024) }));
    expect(origin.connections.total).toBe(1);
    origin.server.closeIdleConnections();
    expect((await asking.ask(to(origin.port))).status).toBe(200);
    expect(origin.connections.total).toBe(2);
  });

  it(
    "a request runs once more on a new connection when the kept connection breaks, " +
      "if the method is GET or HEAD or it is repeatable",
    async () => {
      let served = 0;
      const origin = await byteBackend((socket) => {
        let nth = 0;
        socket.on("data", () =>
          nth++ === 0 ? (served++, socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) : socket.destroy(),
        );
      });
      const asking = client();
      await asking.ask(to(origin.port));
      expect((await asking.ask(to(origin.port))).status).toBe(200);
      expect(served).toBe(2);
      expect(await failure(asking.ask(to(origin.port, { method: "POST", body: Buffer.from("x") })))).toBe(
        "unreachable",
      );
      await asking.ask(to(origin.port));
      expect(
        (await asking.ask(to(origin.port, { method: "POST", body: Buffer.from("x"), isRepeatable: true }))).status,
      ).toBe(200);
      expect(await failure(asking.ask(to(origin.port, { isRepeatable: false })))).toBe("unreachable");
    },
  );

  it("a request does not reuse a connection whose request was answered before it was read", async () => {
    const origin = await byteBackend((socket) => {
      // Nothing that has come after its first bytes is ever read.
      socket.once("data", () => void socket.pause().write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    });
    const asking = client({ maxConnections: 1 });
    const ask = (bytes: number) => asking.ask(to(origin.port, { method: "POST", body: Buffer.alloc(bytes) }));
    expect((await ask(32 * 1024 * 1024)).status).toBe(200);
    expect((await ask(1)).status).toBe(200);
    expect(origin.connections).toBe(2);
  });

  it("a request uses HTTPS only with servers whose certificate is verified", async () => {
    const url = await secureServer();
    expect((await client({ tls: { ca: Buffer.from(CA.cert) } }).ask(to(0, { url }))).body.toString()).toBe("secure");
    expect(await failure(client().ask(to(0, { url })))).toBe("unreachable");
    expect(await failure(client({ tls: { ca: Buffer.from(OTHER_CA.cert) } }).ask(to(0, { url })))).toBe("unreachable");
  });

  it("a request presents its client certificate to HTTPS servers that ask for it", async () => {
    const url = await secureServer({ ca: CA.cert, requestCert: true, rejectUnauthorized: true });
    const ca = Buffer.from(CA.cert);
    const identified = client({ tls: { ca, cert: Buffer.from(CLIENT.cert), key: Buffer.from(CLIENT.key) } });
    expect((await identified.ask(to(0, { url }))).body.toString()).toBe("secure");
    expect(await failure(client({ tls: { ca } }).ask(to(0, { url })))).toBe("unreachable");
  });

  it.each([
    ["localhost", "localhost"],
    ["127.0.0.1", ""],
  ])("a request verifies the HTTPS server as %s when given that name", async (servername, asked) => {
    const names: string[] = [];
    const url = await secureServer({
      SNICallback: (name: string, done: (error: Error | null) => void) => (names.push(name), done(null)),
    });
    const ca = Buffer.from(CA.cert);
    expect((await client({ tls: { ca, servername } }).ask(to(0, { url }))).status).toBe(200);
    expect(names).toEqual(asked === "" ? [] : [asked]);
    expect(await failure(client({ tls: { ca, servername: "other.example.com" } }).ask(to(0, { url })))).toBe(
      "unreachable",
    );
    expect(await failure(client({ tls: { ca, servername: "127.0.0.2" } }).ask(to(0, { url })))).toBe("unreachable");
  });
});

async function secureServer(options: https.ServerOptions = {}): Promise<URL> {
  const server = https.createServer(
    { cert: SERVER.cert, key: SERVER.key, ...options },
    (_request, response) => void response.end("secure"),
  );
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return new URL(`https://127.0.0.1:${(server.address() as AddressInfo).port}/`);
}

describe("a request that fails", () => {
  it("a request that fails rejects when no server listens", async () => {
    expect(await failure(client().ask(to(await closedPort())))).toBe("unreachable");
  });

  it("a request that fails rejects when its time is over, before the head or in the middle of the body", async () => {
    const clock = manualClock();
    const begun = gate();
    const silent = await rawBackend(() => begun.open());
    const asked = client({ clock }).ask(to(silent.port, { timeoutMs: 1_000 }));
    await begun.opened;
    clock.advance(999);
    clock.advance(1);
    expect(await failure(asked)).toBe("timeout");
    const slow = gate();
    const half = await rawBackend((_request, response) => {
      response.write("half");
      slow.open();
    });
    const waiting = client({ clock }).ask(to(half.port, { timeoutMs: 1_000 }));
    await slow.opened;
    clock.advance(1_000);
    expect(await failure(waiting)).toBe("timeout");
    await eventually(() => silent.connections.open + half.connections.open === 0, "the connections closing");
    expect(clock.pending).toBe(0);
  });

  it("a request that fails rejects when the answer is larger than allowed", async () => {
    const origin = await backend((_request, response) => void response.end("x".repeat(1025)));
    expect(await failure(client().ask(to(origin.port)))).toBe("too_large");
    expect((await client().ask(to(origin.port, { maxBytes: 1025 }))).body).toHaveLength(1025);
  });

  it(
    "a request that fails rejects when its signal aborts, before or while it is sent, " + "and closes its connection",
    async () => {
      const begun = gate();
      const origin = await rawBackend(() => begun.open());
      const controller = new AbortController();
      const asked = client().ask(to(origin.port, { signal: controller.signal }));
      await begun.opened;
      controller.abort();
      expect(await failure(asked)).toBe("cancelled");
      expect(await failure(client().ask(to(origin.port, { signal: controller.signal })))).toBe("cancelled");
      await eventually(() => origin.connections.open === 0, "the connections to the upstream closing");
      expect(origin.connections.total).toBe(1);
    },
  );

  it.each<[string, string, string]>([
    ["breaks off", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "unreachable"],
    ["is no HTTP", "what?\r\n\r\n", "invalid"],
    ["switches protocols", "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "invalid"],
    ["has a status that there is not", "HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", "invalid"],
    ["does not come", "", "unreachable"],
  ])("a request that fails rejects when the answer %s", async (_what, bytes, kind) => {
    const origin = await byteBackend((socket) => void socket.once("data", () => void socket.end(bytes)));
    expect(await failure(client().ask(to(origin.port)))).toBe(kind);
  });

  it("a request that fails rejects when its headers cannot be sent", async () => {
    const origin = await backend();
    expect(await failure(client().ask(to(origin.port, { headers: ["X-A", "a\r\nb"] })))).toBe("unsendable");
  });

  it("a request that waits in vain for a connection of the client is not the server's failure", async () => {
    const clock = manualClock();
    const begun = gate();
    const origin = await rawBackend(() => begun.open());
    const asking = client({ clock, maxConnections: 1 });
    const all = [2_000, 1_000].map((timeoutMs) => failed(asking.ask(to(origin.port, { timeoutMs }))));
    await begun.opened;
    clock.advance(1_000);
    expect(await all[1]).toMatchObject({ kind: "saturated", isOfServer: false });
    clock.advance(1_000);
    expect(await all[0]).toMatchObject({ kind: "timeout", isOfServer: true });
  });

  it("the time of a request begins when all of it is on the wire, not while it waits for a connection", async () => {
    const clock = manualClock();
    const answers: ServerResponse[] = [];
    const origin = await rawBackend((_request, response) => void answers.push(response));
    const asking = client({ clock, maxConnections: 1 });
    const all = [1, 2].map(() => failed(asking.ask(to(origin.port, { timeoutMs: 1_000 }))));
    await eventually(() => answers.length === 1, "the first request");
    clock.advance(900);
    answers[0]!.end();
    expect(await all[0]).toBeNull();
    await eventually(() => answers.length === 2, "the second request, which has waited");
    clock.advance(999);
    for (let rounds = 0; rounds < 2; rounds++) await new Promise((resolve) => setImmediate(resolve));
    answers[1]!.end();
    expect(await all[1]).toBeNull();
  });

  it(
    "a request whose process is blocked before it is on the wire, " + "or before its answer is read, is answered",
    async () => {
      const clock = manualClock();
      const origin = await backend();
      const asking = client({ clock });
      for (let i = 0; i < 2; i++) {
        const asked = asking.ask(to(origin.port, { timeoutMs: 1_000 }));
        clock.stall(60_000);
        process.nextTick(() => clock.stall(60_000));
        expect((await asked).status).toBe(200);
      }
    },
  );

  it("a connection that breaks is the server's failure only if this process was not late itself", async () => {
    const clock = manualClock();
    let whenAsked = () => {};
    const origin = await byteBackend((socket) => {
      socket.once("data", () => {
        whenAsked();
        socket.destroy();
      });
    });
    const ask = () => failed(client({ clock }).ask(to(origin.port, { timeoutMs: 1_000 })));
    expect(await ask()).toMatchObject({ kind: "unreachable", isOfServer: true });
    whenAsked = () => clock.stall(251);
    expect(await ask()).toMatchObject({ kind: "saturated", isOfServer: false });
    // Whoever refuses connections does so to every process.
    const refused = failed(client({ clock }).ask(to(await closedPort(), { timeoutMs: 1_000 })));
    clock.stall(251);
    expect(await refused).toMatchObject({ kind: "unreachable", isOfServer: true });
  });

  it(
    "a request that fails because this machine has no file descriptor or port left is " + "not the server's failure",
    async () => {
      for (const code of ["EMFILE", "EADDRNOTAVAIL"]) {
        // Node gives it to the same callback as a destination that is not permitted.
        const check = () => {
          throw Object.assign(new Error(code), { code });
        };
        const egress = Object.assign(Object.create(ANYWHERE.egress) as typeof ANYWHERE.egress, { check });
        expect(await failure(client({ egress }).ask(to(1)))).toBe("saturated");
      }
    },
  );

  it(
    "a request that fails by its time does not fail if its answer has arrived " + "while the process was busy",
    async () => {
      const clock = manualClock();
      const late = () => {
        setTimeout(() => clock.advance(1_000), 1);
        // The timer is due before the next round of reads.
        for (const until = performance.now() + 5; performance.now() < until;);
      };
      const origin = await rawBackend((_request, response) => void response.end("late, but there", late));
      const asked = client({ clock }).ask(to(origin.port, { timeoutMs: 1_000 }));
      expect((await asked).status).toBe(200);
    },
  );
});

describe("a closed client", () => {
  it("a closed client keeps no connection, lets requests in progress end, and still accepts new requests", async () => {
    const clock = manualClock();
    const held = gate<() => void>();
    const origin = await rawBackend((request, response) => {
      if (request.url === "/slow") held.open(() => void response.end("late"));
      else response.end("ok");
    });
    const asking = client({ clock });
    const slow = asking.ask(to(origin.port, { url: new URL(`http://127.0.0.1:${origin.port}/slow`) }));
    const answer = await held.opened;
    await asking.ask(to(origin.port));
    asking.close();
    await eventually(() => origin.connections.open === 1, "a connection to the upstream");
    answer();
    expect((await slow).body.toString()).toBe("late");
    await eventually(() => origin.connections.open === 0, "the connections to the upstream closing");
    expect((await asking.ask(to(origin.port))).status).toBe(200);
    await eventually(() => origin.connections.open === 0, "the connections to the upstream closing");
    expect(clock.pending).toBe(0);
  });
});
