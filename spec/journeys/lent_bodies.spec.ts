import { once } from "node:events";
import http, { type ServerResponse } from "node:http";
import type { IncomingHttpHeaders } from "node:http2";
import net, { type Socket } from "node:net";
import { Duplex } from "node:stream";
import { expect, it, onTestFinished } from "vitest";
import { createGateway, definePlugin, schema, type Reply } from "../../lib/index.ts";
import { hosted, oneService, running } from "../support/gateway.ts";
import { h2Session } from "../support/h2_client.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { codec } from "../support/codec.ts";
import { turn } from "../support/loopback.ts";
import { byteBackend, client, headBackend, rawBackend } from "./harness.ts";

// Large responses wait for their clients in buffers that later responses reuse: none may be overwritten before it is
// sent.

const BYTES = 100 * 1024;
const MANY = 60;
const SLOW = ["a", "b", "c", "d"];
const FAST = ["e", "f", "g"];

/** Answers `GET …/x` with 100 KiB of x, in one write. */
async function letters() {
  return headBackend(({ text, socket }) => {
    const letter = /^GET \S*\/(\w)\b/.exec(text)?.[1] ?? "?";
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${BYTES}\r\n\r\n${letter.repeat(BYTES)}`);
  });
}

/** A client that requests 6 MB of a letter and reads nothing until `read()`. */
async function stalled(port: number, letter: string) {
  const socket = net.connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.pause();
  socket.write(`GET /a/${letter} HTTP/1.1\r\nHost: h\r\n\r\n`.repeat(MANY));
  return {
    socket,
    /** Resolves with the number of body bytes, and whether each was the letter. */
    async read(): Promise<{ bytes: number; isPure: boolean }> {
      const heads = /HTTP\/1\.1 200 OK\r\n(?:[^\r]+\r\n)+\r\n/g;
      let text = "";
      socket.on("data", (chunk: Buffer) => void (text += chunk.toString("latin1")));
      socket.resume();
      // The heads are counted apart: together they are longer than the end of the last body may be that is still to
      // come.
      await eventually(() => {
        if (text.length <= MANY * BYTES) return false;
        const all = text.match(heads) ?? [];
        const headBytes = all.reduce((sum, head) => sum + head.length, 0);
        return all.length === MANY && text.length - headBytes >= MANY * BYTES;
      }, `all of ${letter}`);
      const bodies = text.replace(heads, "");
      return { bytes: bodies.length, isPure: bodies === letter.repeat(bodies.length) };
    },
  };
}

it("never overwrites a response that one client reads slowly with another client's response", async () => {
  const upstream = await letters();
  const { port } = await running(oneService(upstream.port));
  const slow = await Promise.all(SLOW.map((letter) => stalled(port, letter)));
  for (let round = 0; round < 20; round++) {
    const answers = await Promise.all(FAST.map((letter) => ask(port, { path: `/a/${letter}` })));
    for (const [i, { body }] of answers.entries()) expect(body.toString()).toBe(FAST[i]!.repeat(BYTES));
  }
  // Some clients are held back in the middle of a response.
  expect(upstream.heads.length).toBeLessThan(SLOW.length * MANY + 20 * FAST.length);
  for (const { read } of slow) expect(await read()).toEqual({ bytes: MANY * BYTES, isPure: true });
});

it("keeps responses intact when other clients disconnect while their memory is in use", async () => {
  const upstream = await letters();
  const { port } = await running(oneService(upstream.port));
  const slow = await Promise.all(SLOW.map((letter) => stalled(port, letter)));
  await eventually(() => upstream.heads.length > SLOW.length * 10, "the first responses");
  slow[0]!.socket.destroy();
  slow[1]!.socket.resetAndDestroy();
  for (let round = 0; round < 10; round++) {
    const answers = await Promise.all(FAST.map((letter) => ask(port, { path: `/a/${letter}` })));
    for (const [i, { body }] of answers.entries()) expect(body.toString()).toBe(FAST[i]!.repeat(BYTES));
  }
  for (const { read } of slow.slice(2)) expect(await read()).toEqual({ bytes: MANY * BYTES, isPure: true });
});

it("never changes bytes of a response that a plugin keeps", async () => {
  const upstream = await letters();
  const kept: Buffer[] = [];
  const keeper = definePlugin({
    name: "keeper",
    schema: schema.object({}),
    create: () => (next) => async (exchange) => {
      const reply = await next(exchange);
      if (reply.body !== null && !Buffer.isBuffer(reply.body))
        reply.body.on("data", (chunk: Buffer) => void kept.push(chunk));
      return reply;
    },
  });
  const config = oneService(upstream.port, { plugins: [{ name: "keeper" }] });
  const { port } = await running(config, { plugins: [keeper] });
  for (const letter of FAST)
    expect((await ask(port, { path: `/a/${letter}` })).body.toString()).toBe(letter.repeat(BYTES));
  expect(Buffer.concat(kept).toString()).toBe(FAST.map((letter) => letter.repeat(BYTES)).join(""));
});

/** A host's own server with the gateway in it; `mount` is called with each response before the gateway is. */
async function hosting(upstreamPort: number, mount: (response: ServerResponse) => void) {
  const gateway = createGateway({ config: oneService(upstreamPort) });
  const host = http.createServer((request, response) => {
    mount(response);
    gateway.handler(request, response);
  });
  return { host, port: await hosted(gateway, host) };
}

it("never changes bytes of a response that a host's own `end` keeps", async () => {
  const upstream = await letters();
  const kept: Buffer[] = [];
  const { port } = await hosting(upstream.port, (response) => {
    const { write, end } = response;
    response.write = ((chunk: Buffer) => (kept.push(chunk), write.call(response, chunk, "latin1"))) as typeof write;
    response.end = ((chunk?: Buffer) => (
      chunk !== undefined && kept.push(chunk),
      end.call(response, chunk, "latin1")
    )) as typeof end;
  });
  for (const letter of FAST)
    expect((await ask(port, { path: `/a/${letter}` })).body.toString()).toBe(letter.repeat(BYTES));
  expect(Buffer.concat(kept).toString()).toBe(FAST.map((letter) => letter.repeat(BYTES)).join(""));
});

it("never changes bytes of a response that a host's own stream keeps in place of a socket", async () => {
  const upstream = await letters();
  const { host } = await hosting(upstream.port, () => {});
  const kept: Buffer[] = [];
  const duplex = new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      kept.push(chunk);
      done();
    },
  });
  host.emit("connection", duplex);
  for (const [i, letter] of FAST.entries()) {
    duplex.push(`GET /a/${letter} HTTP/1.1\r\nHost: h\r\n\r\n`);
    await eventually(() => kept.reduce((sum, chunk) => sum + chunk.length, 0) > (i + 1) * BYTES, letter);
  }
  const bodies = Buffer.concat(kept)
    .toString("latin1")
    .replace(/HTTP\/1\.1 200 OK\r\n(?:[^\r]+\r\n)+\r\n/g, "");
  expect(bodies).toBe(FAST.map((letter) => letter.repeat(BYTES)).join(""));
});

it.each(["1.1", "2.0"])(
  "sends a reply that a plugin returns for two requests once: the second request gets 500, " +
    "and the next one its own reply (HTTP/%s)",
  async (version) => {
    const upstream = await letters();
    let shared: Reply | null = null;
    const sharer = definePlugin({
      name: "sharer",
      schema: schema.object({}),
      create: () => (next) => async (exchange) =>
        exchange.path.endsWith("z") ? next(exchange) : (shared ??= await next(exchange)),
    });
    const config = oneService(upstream.port, { plugins: [{ name: "sharer" }] }, { h2c: true });
    const { port } = await running(config, { plugins: [sharer] });
    expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("x".repeat(BYTES));
    if (version === "1.1") {
      const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
      onTestFinished(() => agent.destroy());
      expect(await ask(port, { path: "/a/y", agent })).toMatchObject({ status: 500 });
      expect((await ask(port, { path: "/a/z", agent })).body.toString()).toBe("z".repeat(BYTES));
      return;
    }
    const session = h2Session(port);
    const stream = session.request({ ":path": "/a/y" });
    const [head] = (await once(stream, "response")) as [IncomingHttpHeaders];
    expect(head[":status"]).toBe(500);
  },
);

it("delivers a response whole when it arrives in several pieces", async () => {
  const upstream = await headBackend(({ socket }) => {
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${BYTES}\r\n\r\n`);
    let left = BYTES;
    const more = () => {
      const bytes = Math.min(left, 20 * 1024);
      socket.write("x".repeat(bytes));
      left -= bytes;
      if (left > 0) setImmediate(more);
    };
    setImmediate(more);
  });
  const { port } = await running(oneService(upstream.port));
  for (let i = 0; i < 5; i++) expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("x".repeat(BYTES));
});

const UPLOAD = 60_000;
/** More than the buffers of a connection hold: the last of them wait in the memory that they were lent. */
const UPLOADS = 100;
const letterOf = (i: number) => String.fromCharCode(97 + (i % 25));
const post = (letter: string) =>
  `POST /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: ${UPLOAD}\r\n\r\n${letter.repeat(UPLOAD)}`;

/** An upstream that answers when it is told to, and reads when it is told to. */
async function unreading() {
  const sockets: Socket[] = [];
  let received = "";
  const { port } = await byteBackend((socket) => {
    sockets.push(socket.pause());
    socket.on("data", (chunk: Buffer) => void (received += chunk.toString("latin1")));
  });
  return {
    port,
    answer: () => void sockets.at(-1)!.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nanswered"),
    read: () => sockets.forEach((socket) => void socket.resume()),
    bodies: () => received.replace(/POST \/x HTTP\/1\.1\r\n(?:[^\r]+\r\n)+\r\n/g, ""),
  };
}

it.runIf(codec === "wire")(
  "never overwrites an upload that its upstream has answered and not read with another one",
  { timeout: 30_000 },
  async () => {
    const upstream = await unreading();
    const echo = await rawBackend((request, response) => void request.pipe(response));
    const [slow, fast] = [await running(oneService(upstream.port)), await running(oneService(echo.port))];
    const [to, other] = [await client(slow.port), await client(fast.port)];
    for (let i = 0; i < UPLOADS; i++) {
      to.discard();
      to.send(post(letterOf(i)));
      for (let turns = 0; turns < 20; turns++) await turn();
      upstream.answer();
      await to.until("answered");
      other.discard();
      other.send(post("z"));
      await other.until("z".repeat(UPLOAD));
    }
    upstream.read();
    await eventually(() => upstream.bodies().length >= UPLOADS * UPLOAD, "all uploads");
    expect(
      upstream.bodies() === Array.from({ length: UPLOADS }, (_none, i) => letterOf(i).repeat(UPLOAD)).join(""),
    ).toBe(true);
  },
);

it.runIf(codec === "wire")(
  "an upload whose upstream resets its connection leaves those of others as they are",
  async () => {
    const received: string[] = [];
    let isDead = false;
    const upstream = await byteBackend((socket) => {
      let text = "";
      socket.on("data", (chunk: Buffer) => {
        if (isDead) {
          isDead = false;
          return socket.resetAndDestroy();
        }
        text += chunk.toString("latin1");
        const start = text.indexOf("\r\n\r\n") + 4;
        if (text.length < start + UPLOAD) return;
        received.push(text.slice(start));
        text = "";
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nanswered");
      });
    });
    const { port } = await running(oneService(upstream.port));
    const [to, other] = [await client(port), await client(port)];
    const expected: string[] = [];
    for (let i = 0; i < 20; i++) {
      isDead = i % 4 === 3;
      const [one, two] = [letterOf(2 * i), letterOf(2 * i + 1)];
      to.discard();
      other.discard();
      to.send(post(one));
      other.send(post(two));
      const answers = await Promise.all([to, other].map((each) => each.until(/"code"|answered/)));
      for (const [j, letter] of [one, two].entries())
        if (answers[j]!.includes("200 OK")) expected.push(letter.repeat(UPLOAD));
    }
    expect(expected).toHaveLength(35);
    expect(received.toSorted()).toEqual(expected.toSorted());
  },
);

it("gives each of many clients its own upload back, in memory that is used again", async () => {
  const echo = await rawBackend((request, response) => void request.pipe(response));
  const { port } = await running(oneService(echo.port));
  for (let round = 0; round < 5; round++) {
    const sent = [..."abcdefghijklmnop"].map((letter, i) => letter.repeat(4000 + 3800 * i));
    const answers = await Promise.all(sent.map((body) => ask(port, { method: "POST", path: "/a/x", body })));
    expect(answers.map(({ body }, i) => body.toString() === sent[i])).toEqual(sent.map(() => true));
  }
});

it("gives each upload the head of its own request, short or long, in memory that is used again", async () => {
  const received: unknown[] = [];
  const upstream = await rawBackend((request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => void (body += chunk.toString("latin1")));
    request.on("end", () => {
      const { "x-letter": letter, "x-long": long } = request.headers;
      received.push([
        letter,
        long === String(letter).repeat(String(long).length),
        body === String(letter).repeat(body.length),
        body.length,
      ]);
      response.end(letter);
    });
  });
  const { port } = await running(oneService(upstream.port));
  for (let round = 0; round < 5; round++) {
    received.length = 0;
    const sent = [..."abcdefghijklmnop"].map((letter, i) => ({
      letter,
      length: 4000 + 3800 * i,
      long: letter.repeat(((i * 5) % 16) * 200 + 1),
    }));
    const posts = sent.map(({ letter, length, long }) =>
      ask(port, {
        method: "POST",
        path: "/a/x",
        headers: { "X-Letter": letter, "X-Long": long },
        body: letter.repeat(length),
      }),
    );
    expect((await Promise.all(posts)).map(({ body }) => body.toString())).toEqual(sent.map(({ letter }) => letter));
    expect(received.toSorted()).toEqual(sent.map(({ letter, length }) => [letter, true, true, length]));
  }
});
