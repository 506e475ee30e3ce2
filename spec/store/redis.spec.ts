/** What a real server cannot be made to do; all else meets a real one (`spec/peers/redis_counters.spec.ts`). */
import net, { type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import { systemClock, type Clock } from "../../lib/base/clock.ts";
import { ALONE } from "../../lib/base/threads.ts";
import { WriteBatch } from "../../lib/base/event_loop.ts";
import { memoryCounters } from "../../lib/store/memory.ts";
import { RedisCounters, SharedState, type RedisSettings } from "../../lib/store/redis.ts";
import { slotOf } from "../../lib/store/redis_cluster.ts";
import { ReplyParser } from "../../lib/store/resp.ts";
import { manualClock } from "../support/clock.ts";
import { listening } from "../support/loopback.ts";
import { eventually } from "../support/raw_client.ts";
import { threadsOf } from "../support/threads.ts";

const ADMITTED = "*4\r\n:1\r\n:0\r\n:2\r\n:60000000\r\n";

interface Fake {
  readonly port: number;
  /** The commands so far, without the greeting's script. */
  readonly commands: string[][];
  readonly sockets: Socket[];
}

/**
 * A server of one's own; `answer` gives the bytes for a command, or null for none, and `greet` those for the script of
 * a greeting.
 */
async function fake(answer: (parts: string[], socket: Socket) => string | null, greet = () => ADMITTED): Promise<Fake> {
  const commands: string[][] = [];
  const sockets: Socket[] = [];
  const server = net.createServer((socket) => {
    const parser = new ReplyParser();
    sockets.push(socket);
    socket.on("data", (chunk: Buffer) => {
      parser.feed(chunk, (command) => {
        const parts = command as string[];
        const isProbe = parts[3]?.endsWith("{probe}") === true;
        if (!isProbe) commands.push(parts);
        const bytes = isProbe ? greet() : answer(parts, socket);
        if (bytes !== null) socket.write(bytes, "latin1");
      });
    });
  });
  return { port: await listening(server), commands, sockets };
}

function countersOn(
  ports: readonly number[],
  settings: Partial<RedisSettings> = {},
  clock: Clock = systemClock,
  threads = ALONE,
  log: string[] = [],
) {
  const errors = new Map<string, number>();
  const attempts: number[] = [];
  const servers = ports.map((port) => ({ host: "127.0.0.1", port }));
  const fixed = {
    servers,
    isCluster: ports.length > 1,
    credentials: null,
    database: 0,
    timeoutMs: 5_000,
    onError: "deny",
    prefix: "p:",
  } as const;
  const counters = new RedisCounters(
    { ...fixed, ...settings },
    {
      ...{
        clock,
        errors,
        local: memoryCounters(clock),
        writeBatch: new WriteBatch(),
        random: () => 1,
        shared: new SharedState(threads),
      },
      log: createLog({ write: (line) => log.push(line) }),
      connect({ host, port }) {
        attempts.push(clock.now());
        return { socket: net.connect(port, host), ready: "connect" };
      },
    },
  );
  onTestFinished(() => counters.close());
  counters.start();
  const limiter = counters.limiter("k", { windows: [{ name: "minute", limit: 3, ms: 60_000 }], maxCallers: 10 });
  return { counters, errors, log, attempts, limiter };
}

describe("the counters in Redis", () => {
  it.each([
    ["bytes that are no RESP2", "hello\r\n", /does not speak RESP2: a reply has an unknown type/],
    ["a reply to no command", `${ADMITTED}+OK\r\n`, /the server sent a reply to no command/],
    ["a reply without an end of its line", ":12\n:13\r\n", /does not speak RESP2: a line of a reply/],
  ])("give a server up that sends %s", async (_what, bytes, reason) => {
    const { port } = await fake(() => bytes);
    const { counters, limiter } = countersOn([port]);
    await limiter.decide("a");
    await eventually(() => reason.test(counters.report.servers[0]!.reason ?? ""));
  });

  it.each([
    ["text", "+OK\r\n"],
    ["nothing", "$-1\r\n"],
    ["too few numbers", "*2\r\n:1\r\n:0\r\n"],
    ["too many numbers", "*6\r\n:1\r\n:0\r\n:2\r\n:6\r\n:2\r\n:6\r\n"],
    ["a text among the numbers", "*4\r\n:1\r\n:0\r\n$1\r\n2\r\n:6\r\n"],
  ])("take no decision from a reply with %s", async (_what, bytes) => {
    const { port } = await fake(() => bytes);
    const { limiter, errors, log } = countersOn([port]);
    expect(await limiter.decide("a")).toBe("deny");
    expect(errors.get("server")).toBe(1);
    expect(log.join("")).toContain("the script got an unknown reply");
  });

  it.each([
    "READONLY You can't write against a read only replica.",
    "OOM command not allowed when used memory > 'maxmemory'.",
  ])("give a server up whose script replies with the error of a command as Redis 6 does: %s", async (error) => {
    const sha = "f".repeat(40);
    const { port } = await fake(
      () => `-ERR Error running script (call to f_${sha}): @user_script:76: @user_script: 76: -${error} \r\n`,
    );
    const { limiter, counters } = countersOn([port]);
    await eventually(() => counters.report.state === "up");
    expect(await limiter.decide("a")).toBe("deny");
    expect(counters.report).toMatchObject({
      state: "down",
      servers: [{ state: "down", reason: expect.stringContaining(error) as string }],
    });
  });

  it("report an error about AUTH by its code alone: servers may repeat the password in it", async () => {
    const { port } = await fake(() => "-ERR unknown command 'AUTH', with args beginning with: 'gateway' 'hunter2'\r\n");
    const { counters, log, limiter } = countersOn([port], { credentials: { user: "gateway", password: "hunter2" } });
    await eventually(() => counters.report.state === "down");
    expect(await limiter.decide("a")).toBe("deny");
    expect(counters.report.servers[0]!.reason).toBe("AUTH: ERR");
    expect(log.join("") + JSON.stringify(counters.report)).not.toContain("hunter2");
  });

  it("name the reason when the server has too many clients", async () => {
    const { port } = await fake(() => "-ERR max number of clients reached\r\n");
    const { counters } = countersOn([port], { credentials: { user: null, password: "hunter2" } });
    await eventually(() => counters.report.servers[0]!.reason === "AUTH: ERR max number of clients reached");
  });

  it("do not use a server that needs longer than timeout_ms for each decision, and log that once", async () => {
    const server = net.createServer((socket) => {
      const parser = new ReplyParser();
      // The first script of a connection is answered at once, all else never.
      socket.on("data", (chunk: Buffer) =>
        parser.feed(chunk, (parts) => (parts as string[])[0] === "EVAL" && socket.write(ADMITTED)),
      );
    });
    const { counters, attempts, log } = countersOn([await listening(server)], { timeoutMs: 20 });
    await eventually(() => attempts.length >= 3);
    expect(counters.report).toMatchObject({ state: "down", servers: [{ reason: "no answer within 20 ms" }] });
    expect(log).toHaveLength(1);
  });

  it(
    "wait for a late reply, which costs no other decision, " +
      "and give a server up that is silent for three times timeout_ms",
    async () => {
      const clock = manualClock();
      const { port, commands, sockets } = await fake(() => null);
      const { counters, limiter, errors, attempts } = countersOn([port], { timeoutMs: 50, onError: "allow" }, clock);
      await eventually(() => counters.report.state === "up");
      const late = limiter.decide("a");
      await eventually(() => commands.length === 1);
      clock.advance(40);
      const next = limiter.decide("b");
      await eventually(() => commands.length === 2);
      clock.advance(10);
      expect(await late).toBe("allow");
      expect(counters.report.state).toBe("up");
      sockets[0]!.write(ADMITTED.repeat(2));
      expect(await next).toMatchObject({ admitted: true });
      expect(attempts).toHaveLength(1);
      expect([...errors]).toEqual([
        ["timeout", 1],
        ["connection", 0],
        ["server", 0],
        ["queue", 0],
      ]);
      const lost = limiter.decide("a");
      await eventually(() => commands.length === 3);
      clock.advance(50);
      expect(await lost).toBe("allow");
      clock.advance(99);
      expect(counters.report.state).toBe("up");
      clock.advance(1);
      await eventually(() => counters.report.state === "down");
      expect(counters.report).toMatchObject({ servers: [{ reason: "no answer within 150 ms" }] });
    },
  );

  it(
    "log the outage of several workers once, and its end when the last of them is up, " +
      "also where one has ended meanwhile",
    async () => {
      let isUsable = true;
      const script = () => (isUsable ? ADMITTED : "-ERR no\r\n");
      const { port, sockets } = await fake(script, script);
      const [threads, log] = [threadsOf(3), [] as string[]];
      const worker = (place: number) => countersOn([port], {}, systemClock, threads(place), log).counters;
      const workers = [0, 1, 2].map(worker);
      const all = (state: string) => eventually(() => workers.every(({ report }) => report.state === state));
      const logged = () => log.map((line) => /rate counters are (?:not )?shared/.exec(line)?.[0]);
      await all("up");
      for (const _outage of [1, 2]) {
        isUsable = false;
        for (const socket of sockets.splice(0)) socket.destroy();
        await all("down");
        await workers[2]!.close();
        new SharedState(threads(-1)).forget(2);
        isUsable = true;
        workers[2] = worker(2);
        await all("up");
      }
      expect(logged()).toEqual(
        ["shared", "not shared", "shared", "not shared", "shared"].map((state) => `rate counters are ${state}`),
      );
    },
  );

  it.each(["local", "allow"] as const)(
    "queue at most 10,000 commands; further decisions are made in memory at once, also where on_error says %s: " +
      "the server has not failed",
    async (onError) => {
      const { port, commands, sockets } = await fake(() => null);
      const { counters, limiter, errors } = countersOn([port], { onError });
      await eventually(() => counters.report.state === "up");
      const decisions = Array.from({ length: 10_004 }, () => limiter.decide("a"));
      const inMemory = await Promise.all(decisions.slice(10_000));
      expect(inMemory.map((decision) => typeof decision === "object" && decision.admitted)).toEqual([
        true,
        true,
        true,
        false,
      ]);
      expect(errors.get("queue")).toBe(4);
      await eventually(() => commands.length === 10_000);
      sockets[0]!.write(ADMITTED.repeat(10_000));
      expect(await decisions[9_999]).toMatchObject({ admitted: true });
    },
  );

  it("refuse further decisions if the queue is full and on_error says deny", async () => {
    const { port } = await fake(() => null);
    const { counters, limiter } = countersOn([port], { onError: "deny" });
    await eventually(() => counters.report.state === "up");
    expect(await Array.from({ length: 10_001 }, () => limiter.decide("a")).at(-1)).toBe("deny");
  });

  it("wait for decisions that are awaited when they are closed, and then decide in memory", async () => {
    const { port, commands, sockets } = await fake(() => null);
    const { counters, limiter } = countersOn([port]);
    const awaited = limiter.decide("a");
    await eventually(() => commands.length === 1);
    const closed = counters.close();
    expect(limiter.decide("b")).toMatchObject({ admitted: true, remaining: [2] });
    sockets[0]!.write(ADMITTED);
    expect(await awaited).toMatchObject({ admitted: true, remaining: [2] });
    await closed;
    await eventually(() => sockets[0]!.destroyed || sockets[0]!.readableEnded);
    expect(counters.report.servers.map(({ state }) => state)).toEqual(["closed"]);
  });

  it("do not wait longer than timeout_ms when they are closed", async () => {
    const { port } = await fake(() => null);
    const { counters, limiter } = countersOn([port], { timeoutMs: 20 });
    const awaited = limiter.decide("a");
    await counters.close();
    expect(await awaited).toBe("deny");
  });

  it("take a reply that arrived while this process was busy itself", async () => {
    const { port, commands, sockets } = await fake(() => null);
    const clock = manualClock();
    const { limiter, counters } = countersOn([port], { timeoutMs: 50 }, clock);
    const awaited = limiter.decide("a");
    await eventually(() => commands.length === 1);
    await new Promise<void>((resolve) => sockets[0]!.write(ADMITTED, () => resolve()));
    clock.advance(51);
    expect(await awaited).toMatchObject({ admitted: true });
    expect(counters.report.state).toBe("up");
  });

  it(
    "count in memory with on_error allow what was not on the wire in time, " + "however long this process was blocked",
    async () => {
      const { port } = await fake(() => ADMITTED);
      const clock = manualClock();
      const { limiter, counters, errors } = countersOn([port], { timeoutMs: 50, onError: "allow" }, clock);
      // The connection is not up yet.
      const early = limiter.decide("a");
      clock.stall(60_000);
      expect(await early).toMatchObject({ admitted: true, remaining: [2] });
      await eventually(() => counters.report.state === "up");
      const late = limiter.decide("b");
      // Before the end of this round, in which it is written.
      clock.stall(60_000);
      expect(await late).not.toBe("allow");
      expect(counters.report.state).toBe("up");
      expect([errors.get("timeout"), errors.get("connection")]).toEqual([0, 0]);
    },
  );

  it("connect again after 0.1, 0.2, 0.4, 0.8, 1.6 and then each 2 seconds", async () => {
    const clock = manualClock();
    const { attempts, counters } = countersOn([1], {}, clock);
    for (let i = 0; i < 8; i++) {
      await eventually(() => attempts.length === i + 1 && counters.report.servers[0]!.state === "down");
      await new Promise((resolve) => setImmediate(resolve));
      while (clock.pending === 0) await new Promise((resolve) => setImmediate(resolve));
      while (attempts.length === i + 1) clock.advance(50);
    }
    expect(attempts.map((at, i) => at - (attempts[i - 1] ?? 0)).slice(1)).toEqual([
      100, 200, 400, 800, 1_600, 2_000, 2_000, 2_000,
    ]);
    expect(attempts).toHaveLength(9);
  });

  it("have no timer and no socket once they are closed", async () => {
    const clock = manualClock();
    const { counters, attempts } = countersOn([1], {}, clock);
    await eventually(() => counters.report.state === "down");
    await counters.close();
    expect(clock.pending).toBe(0);
    clock.advance(60_000);
    expect(attempts).toHaveLength(1);
  });
});

describe("the counters in a Cluster", () => {
  const slots = (...ports: number[]) => {
    const ranges = ports.map(
      (port, i) =>
        `*3\r\n:${Math.floor((i * 16_384) / ports.length)}\r\n:` +
        `${Math.floor(((i + 1) * 16_384) / ports.length) - 1}\r\n*3\r\n$0\r\n\r\n:${port}\r\n$2\r\nid\r\n`,
    );
    return `*${ports.length}\r\n${ranges.join("")}`;
  };

  it("compute hash slots as CRC-16 modulo 16384", () => {
    // From the specification of Redis Cluster, and `CLUSTER KEYSLOT`.
    expect([slotOf("123456789"), slotOf(""), slotOf("foo"), slotOf("user1000")]).toEqual([0x31c3, 0, 12_182, 3_443]);
  });

  it("follow a command to at most five servers", async () => {
    const ports: number[] = [];
    const answer = (parts: string[]) =>
      parts[0] === "CLUSTER" ? slots(...ports) : `-MOVED 1 127.0.0.1:${ports[0]}\r\n`;
    const servers = [await fake(answer), await fake(answer)];
    ports.push(...servers.map(({ port }) => port));
    const { limiter, errors } = countersOn(ports);
    expect(await limiter.decide("a")).toBe("deny");
    expect(errors.get("server")).toBe(1);
    const scripts = servers.flatMap(({ commands }) => commands.filter(([name]) => name === "EVALSHA"));
    expect(scripts).toHaveLength(6);
  });

  it(
    "read the table of slots again when one has moved, " + "and ask the right server for the others from then on",
    async () => {
      let owner = 0;
      const servers: Fake[] = [];
      const answer =
        (self: number) =>
        ([name]: string[]) => {
          if (name === "CLUSTER") return slots(servers[owner]!.port);
          return owner === self ? ADMITTED : `-MOVED 1 127.0.0.1:${servers[owner]!.port}\r\n`;
        };
      servers.push(await fake(answer(0)), await fake(answer(1)));
      const { limiter, counters } = countersOn([servers[0]!.port], { isCluster: true });
      await eventually(() => counters.report.state === "up");
      owner = 1;
      const asked = (i: number, name: string) => servers[i]!.commands.filter(([each]) => each === name).length;
      const before = asked(0, "CLUSTER") + asked(1, "CLUSTER");
      expect(await limiter.decide("a")).toMatchObject({ admitted: true });
      await eventually(() => asked(0, "CLUSTER") + asked(1, "CLUSTER") > before);
      await eventually(() => counters.servers.find("another slot").address === `127.0.0.1:${servers[1]!.port}`);
      await eventually(() => counters.report.servers.every(({ state }) => state === "up"));
      for (const caller of ["b", "c", "d", "e"]) expect(await limiter.decide(caller)).toMatchObject({ admitted: true });
      expect([asked(0, "EVALSHA"), asked(1, "EVALSHA")]).toEqual([1, 5]);
    },
  );

  it.each([
    "-MOVED 1\r\n",
    "-MOVED 16384 127.0.0.1:1\r\n",
    "-MOVED 99999999 127.0.0.1:1\r\n",
    "-MOVED 1 nowhere\r\n",
    "-MOVED 1 127.0.0.1:0\r\n",
    "-MOVED 1 127.0.0.1:99999\r\n",
    "-MOVED 1 127.0.0.1/x:1\r\n",
  ])("do not follow %j", async (reply) => {
    const { port } = await fake(() => reply);
    const { limiter, errors } = countersOn([port]);
    expect(await limiter.decide("a")).toBe("deny");
    expect(errors.get("server")).toBe(1);
  });

  it.each([
    ["an error", "-NOPERM no\r\n"],
    ["slots out of range", "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n"],
    ["a port that is none", "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\na\r\n:0\r\n"],
    ["a host that ends a line", "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$6\r\na\r\nX:b\r\n:1\r\n"],
    ["texts for slots", "*1\r\n*3\r\n$1\r\n0\r\n$1\r\n9\r\n*2\r\n$1\r\na\r\n:1\r\n"],
  ])("do not use a server whose reply to CLUSTER SLOTS has %s", async (_what, reply) => {
    const { port } = await fake((parts) => (parts[0] === "CLUSTER" ? reply : ADMITTED));
    const { counters } = countersOn([port], { isCluster: true });
    await eventually(() => counters.report.state === "down");
    expect(counters.report.servers[0]!.reason).toMatch(/^CLUSTER SLOTS( got an unknown reply|: NOPERM no)$/);
  });

  it("are down while some slots have no server, and decide for the callers of the others", async () => {
    const ports: number[] = [];
    const { port } = await fake(([name], _socket) =>
      name === "CLUSTER" ? `*1\r\n*3\r\n:0\r\n:9000\r\n*2\r\n$0\r\n\r\n:${ports[0]}\r\n` : ADMITTED,
    );
    ports.push(port);
    const { limiter, counters, log } = countersOn([port], { isCluster: true });
    await eventually(() => counters.report.state === "down");
    expect(log.join("")).toContain("some hash slots have no server");
    expect(await limiter.decide("a")).toMatchObject({ admitted: true });
  });

  it("use a server that has no table of slots yet", async () => {
    const { port } = await fake((parts) => (parts[0] === "CLUSTER" ? "*0\r\n" : ADMITTED));
    const { limiter, counters } = countersOn([port], { isCluster: true });
    expect(await limiter.decide("a")).toMatchObject({ admitted: true });
    expect(counters.report.state).toBe("connecting");
  });

  it("send ASKING before a command that is asked for elsewhere, and nothing of it is remembered", async () => {
    const ports: number[] = [];
    const first = await fake(([name]) => (name === "CLUSTER" ? slots(ports[0]!) : `-ASK 1 127.0.0.1:${ports[1]}\r\n`));
    const second = await fake(([name]) => (name === "ASKING" ? "+OK\r\n" : ADMITTED));
    ports.push(first.port, second.port);
    const { limiter, counters } = countersOn([first.port], { isCluster: true });
    await eventually(() => counters.report.state === "up");
    for (let i = 0; i < 2; i++) expect(await limiter.decide("a")).toMatchObject({ admitted: true });
    expect(second.commands.map(([name]) => name)).toEqual(["ASKING", "EVALSHA", "ASKING", "EVALSHA"]);
    expect(first.commands.filter(([name]) => name === "EVALSHA")).toHaveLength(2);
  });
});
