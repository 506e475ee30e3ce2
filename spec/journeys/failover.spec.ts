import type { Http2ServerResponse } from "node:http2";
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { closedPort } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";
import {
  byteBackend,
  client,
  closedLoop,
  get,
  restartableBackend,
  PROTOCOLS,
  recordedLog,
  speaking,
  type Protocol,
} from "./harness.ts";

type Parts = Partial<AnyConfigInput["services"][number]>;

const EJECT_MS = 5_000;
const passive = { max_failures: 3, eject_ms: EJECT_MS };

/** Three backends behind a gateway whose clock only the test advances. */
async function three(parts: Parts = {}, protocol: Protocol = "http") {
  const clock = manualClock();
  const recorded = recordedLog();
  const backends = [
    await restartableBackend(protocol),
    await restartableBackend(protocol),
    await restartableBackend(protocol),
  ] as const;
  const ports = backends.map(({ port }) => port);
  const config = oneService(ports, { ...speaking(protocol), retries: {}, health: { passive }, ...parts });
  const { port, gateway } = await running(config, { clock, log: recorded.log });
  /** Sends `count` requests one after the other; resolves with the number that each backend got. */
  const shares = async (requests: number) => {
    const before = backends.map(({ requests }) => requests);
    for (let i = 0; i < requests; i++) expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    return backends.map(({ requests }, i) => requests - before[i]!);
  };
  return { clock, recorded, backends, config, port, gateway, shares };
}

describe("one of three backends, under load", () => {
  it.each(PROTOCOLS)(
    "one of three backends under load is killed over %s without costing a request, is ejected, " +
      "and gets requests again when it is back",
    async (protocol) => {
      const { clock, recorded, backends, port } = await three({}, protocol);
      const failing = backends[1];
      const load = closedLoop(port);
      await load.more(100);
      await failing.kill();
      await eventually(() => recorded.upstreams("upstream ejected").length > 0, "the ejection");
      await load.more(100);
      await failing.start();
      const before = failing.requests;
      await load.more(100);
      expect(failing.requests).toBe(before);
      clock.advance(EJECT_MS);
      await eventually(() => failing.requests >= before + 20, "requests to the one that is back");
      await load.stop();
      expect(load.lost).toEqual([]);
      expect(load.outcomes).toHaveLength(load.requests);
      expect(recorded.upstreams("upstream ejected")).toEqual([failing.id]);
      expect(recorded.upstreams("upstream back")).toEqual([failing.id]);
    },
  );

  it("one of three backends under load is restarted, each in turn, without costing a request", async () => {
    const { clock, backends, port } = await three();
    const load = closedLoop(port);
    for (const failing of backends) {
      await load.more(50);
      await failing.kill();
      await load.more(50);
      await failing.start();
      clock.advance(EJECT_MS);
    }
    await load.more(50);
    await load.stop();
    expect(load.lost).toEqual([]);
    expect(load.outcomes).toHaveLength(load.requests);
  });

  it(
    "one of three backends under load stays down without costing a request when an ejection ends, " +
      "and is ejected for longer each time",
    async () => {
      const { clock, recorded, backends, port } = await three();
      const load = closedLoop(port);
      await backends[1].kill();
      for (let times = 1; times <= 3; times++) {
        await eventually(() => recorded.upstreams("upstream ejected").length === times, "the next ejection");
        clock.advance(EJECT_MS * 2 ** (times - 1));
      }
      await load.stop();
      expect(load.lost).toEqual([]);
      const ejections = recorded.lines.filter(({ message }) => String(message).startsWith("upstream ejected"));
      expect(ejections.slice(0, 3).map(({ for_ms }) => for_ms)).toEqual([EJECT_MS, 2 * EJECT_MS, 4 * EJECT_MS]);
    },
  );

  it.each<Protocol>(["http", "h2c"])(
    "one of three backends under load hangs over %s without costing a request, and is ejected",
    async (protocol) => {
      const recorded = recordedLog();
      const backends = [
        await restartableBackend(protocol),
        await restartableBackend(protocol),
        await restartableBackend(protocol),
      ] as const;
      const config = oneService(
        backends.map(({ port }) => port),
        { protocol, retries: { per_try_ms: 600 }, health: { passive } },
      );
      const { port } = await running(config, { log: recorded.log });
      const load = closedLoop(port);
      await load.more(100);
      const [, hung] = backends;
      hung.answer = () => {};
      await eventually(() => recorded.upstreams("upstream ejected").length > 0, "the ejection");
      // By then the requests already on their way have arrived.
      await load.more(100);
      const { requests } = hung;
      await load.more(100);
      await load.stop();
      expect(load.lost).toEqual([]);
      expect(load.outcomes).toHaveLength(load.requests);
      expect(recorded.upstreams("upstream ejected")).toEqual([hung.id]);
      expect(hung.requests).toBe(requests);
    },
  );

  it(
    "one of three backends under load gets fewer requests by least_connections when it is " +
      "slow, and no request fails",
    async () => {
      const { recorded, backends, port } = await three({ load_balancing_strategy: "least_connections" });
      const [slow, ...quick] = backends;
      const held: (() => void)[] = [];
      let answered = 0;
      slow.answer = (_request, response) => void held.push(() => response.end("late"));
      for (const each of quick) {
        each.answer = (_request, response) => {
          response.end("at once");
          if (++answered % 20 === 0) for (const answer of held.splice(0)) answer();
        };
      }
      const load = closedLoop(port);
      await load.more(400);
      slow.answer = (_request, response) => void response.end("late");
      for (const answer of held.splice(0)) answer();
      expect(slow.requests).toBeGreaterThan(0);
      expect(slow.requests).toBeLessThan(quick[0]!.requests / 2);
      await load.stop();
      expect(load.lost).toEqual([]);
      expect(recorded.lines).toEqual([]);
    },
  );
});

describe("a service that does not mention retries", () => {
  /** Two backends, one of which is killed under load. */
  async function two(protocol: Protocol, parts: Parts): Promise<void> {
    const backends = [await restartableBackend(protocol), await restartableBackend(protocol)] as const;
    const ports = backends.map(({ port }) => port);
    const { port } = await running(oneService(ports, { ...speaking(protocol), ...parts }));
    const load = closedLoop(port);
    await load.more(200);
    await backends[1].kill();
    await load.more(300);
    await load.stop();
    expect(load.lost).toEqual([]);
    expect(load.outcomes).toHaveLength(load.requests);
  }

  const checks = { enabled: true, interval_ms: 100, timeout_ms: 1000 };
  const loads = PROTOCOLS.flatMap(
    (protocol) =>
      [
        [protocol, "off", {}],
        [protocol, "on", { health: checks }],
      ] as [Protocol, string, Parts][],
  );
  it.each(loads)(
    "a service that does not mention retries loses no GET when one of two upstreams is killed under load " +
      "over %s, active checks %s",
    (protocol, _checks, parts) => two(protocol, parts),
  );

  it.each(["off", "on"])(
    "a service that does not mention retries loses no request either without passive checks, active checks %s",
    (active) => {
      return two("http", { health: { ...(active === "on" && checks), passive: { max_failures: 0 } } });
    },
  );

  it.each(["GET", "POST"])(
    "a service that does not mention retries tries each upstream once, and no more, for a %s",
    async (method) => {
      const closed = [await closedPort(), await closedPort(), await closedPort()];
      const { port } = await running(oneService(closed, { health: { passive: { max_failures: 0 } } }));
      const parts = method === "POST" ? { body: "text" } : {};
      const answer = await ask(port, { path: "/a/x", method, ...parts });
      expect(answer.status).toBe(502);
      const alive = await restartableBackend();
      const { gateway, port: other } = await running(
        oneService([...closed, alive.port], { health: { passive: { max_failures: 0 } } }),
      );
      for (let i = 0; i < 4; i++) expect((await ask(other, { path: "/a/x", method, ...parts })).status).toBe(200);
      expect(await gateway.metrics()).toMatch(/edge_gateway_retries_total\{service="s"\} 6\n/);
    },
  );

  it(
    "a service that does not mention retries does not repeat a request that was sent, " +
      "and with attempts 0 not even one that was not",
    async () => {
      const [resets, alive] = [
        await byteBackend((socket) => void socket.once("data", () => socket.resetAndDestroy())),
        await restartableBackend(),
      ];
      const health = { passive: { max_failures: 0 } };
      const { port } = await running(oneService([resets.port, alive.port], { health }));
      expect([(await ask(port, { path: "/a/1" })).status, (await ask(port, { path: "/a/2" })).status]).toEqual([
        502, 200,
      ]);
      const { port: strict } = await running(
        oneService([await closedPort(), alive.port], { health, retries: { attempts: 0 } }),
      );
      expect([(await ask(strict, { path: "/a/1" })).status, (await ask(strict, { path: "/a/2" })).status]).toEqual([
        502, 200,
      ]);
    },
  );
});

describe("a service without retries", () => {
  it("a service without retries shows clients only the failures that eject an upstream", async () => {
    const { backends, recorded, port } = await three({ retries: { attempts: 0 } });
    const load = closedLoop(port, 1);
    await load.more(10);
    await backends[1].kill();
    await load.more(50);
    await load.stop();
    expect(recorded.upstreams("upstream ejected")).toEqual([backends[1].id]);
    expect(load.lost).toHaveLength(passive.max_failures);
    expect(load.lost.every((outcome) => outcome.startsWith("502 "))).toBe(true);
  });
});

it.each(["GET", "POST"])(
  "answers every %s although an upstream over HTTP/2 refuses its stream unread",
  async (method) => {
    const { backends, port } = await three({}, "h2c");
    const REFUSED_STREAM = 7;
    backends[1].answer = (_request, response) =>
      (response as unknown as Http2ServerResponse).stream.close(REFUSED_STREAM);
    const parts = method === "POST" ? { body: "once" } : {};
    for (let i = 0; i < 6; i++) expect((await ask(port, { path: "/a/x", method, ...parts })).status).toBe(200);
    expect(backends[1].requests).toBeGreaterThan(0);
  },
);

describe("the last upstream that is not ejected", () => {
  it(
    "the last upstream that is not ejected still gets requests however often it fails, " +
      "so the service is back as soon as it is",
    async () => {
      const { backends, recorded, port } = await three();
      for (const each of backends) await each.kill();
      for (let i = 0; i < 20; i++) expect((await ask(port, { path: "/a/x" })).status).toBe(502);
      const out = recorded.upstreams("upstream ejected");
      expect(out).toHaveLength(2);
      const last = backends.find(({ id }) => !out.includes(id))!;
      await last.start();
      expect((await ask(port, { path: "/a/x" })).body.toString()).toBe(`from ${last.id}`);
    },
  );
});

describe("an upstream that has recovered", () => {
  it("an upstream that has recovered gets its share of requests gradually within slow_start_ms", async () => {
    const { clock, backends, shares } = await three({ health: { passive: { ...passive, slow_start_ms: 10_000 } } });
    expect(await shares(30)).toEqual([10, 10, 10]);
    await backends[1].kill();
    const [, gone] = await shares(30);
    expect(gone).toBe(0);
    await backends[1].start();
    clock.advance(EJECT_MS);
    const [first, back, last] = await shares(42);
    expect(back).toBe(2);
    expect([first, last]).toEqual([20, 20]);
    clock.advance(10_000);
    expect(await shares(30)).toEqual([10, 10, 10]);
  });
});

describe("an upstream that answers with errors", () => {
  it("an upstream that answers with errors is ejected for the statuses listed", async () => {
    const { backends, recorded, port } = await three({ health: { passive: { ...passive, statuses: [500] } } });
    backends[1].answer = (_request, response) => void response.writeHead(500).end();
    const statuses = [];
    for (let i = 0; i < 12; i++) statuses.push((await ask(port, { path: "/a/x" })).status);
    expect(statuses.filter((status) => status === 500)).toHaveLength(passive.max_failures);
    expect(recorded.upstreams("upstream ejected")).toEqual([backends[1].id]);
  });

  /** The RST_STREAM code that breaks the response off; null: the connection is closed. */
  const breaks: [Protocol, number | null][] = [
    ...PROTOCOLS.map((protocol): [Protocol, null] => [protocol, null]),
    ["h2c", 2],
    ["h2c", 8],
    ["h2", 0],
  ];
  it.each(breaks)(
    "an upstream that answers with errors is ejected over %s for responses that break off in the " +
      "middle (RST_STREAM code: %s)",
    async (protocol, code) => {
      const { backends, recorded, port } = await three({}, protocol);
      backends[1].answer = (request, response) => {
        response.writeHead(200, { "Content-Length": "10" });
        response.write("half", () => {
          if (code === null) request.socket.destroy();
          else (response as unknown as Http2ServerResponse).stream.close(code);
        });
      };
      const ends: string[] = [];
      for (let i = 0; i < 12; i++)
        ends.push(
          await ask(port, { path: "/a/x" }).then(
            ({ status }) => String(status),
            () => "broken",
          ),
        );
      expect(backends[1].requests).toBe(passive.max_failures);
      const broken = ends.filter((end) => end === "broken").length;
      expect(ends.filter((end) => end === "200")).toHaveLength(12 - broken);
      // Over HTTP/2 the end may be read with the head: then nothing has passed to the client, and another is asked.
      if (protocol.startsWith("h2")) expect(broken).toBeLessThanOrEqual(passive.max_failures);
      else expect(broken).toBe(passive.max_failures);
      expect(recorded.upstreams("upstream ejected")).toEqual([backends[1].id]);
    },
  );
});

it.each(PROTOCOLS)(
  "does not eject an upstream over %s whose clients disconnect in the middle of its responses",
  async (protocol) => {
    const { backends, recorded, port } = await three({}, protocol);
    let open = 0;
    for (const each of backends) {
      each.answer = (_request, response) => {
        open++;
        response.on("close", () => open--);
        response.write("begun");
      };
    }
    for (let i = 0; i < 12; i++) {
      const connection = await client(port);
      connection.send(get());
      await connection.until("begun");
      connection.socket.destroy();
      await eventually(() => open === 0, "the end of the response");
    }
    expect(recorded.upstreams("upstream ejected")).toEqual([]);
  },
);

describe("an upstream that a reload removes or drains", () => {
  it(
    "an upstream that a reload removes or drains gets no new requests once a reload sets its weight to 0, " +
      "and finishes the response in progress",
    async () => {
      const { backends, config, port, gateway, shares } = await three();
      let streaming: ((text: string) => void) | null = null;
      for (const each of backends) {
        each.answer = (request, response) => {
          if (request.url !== "/stream") return void response.end(`from ${each.id}`);
          response.write(`from ${each.id},begun,`);
          streaming = (text) => void response.end(text);
        };
      }
      const connection = await client(port);
      connection.send(get("/a/stream", "Connection: close"));
      const begun = await connection.until("begun");
      const leaving = backends.find(({ id }) => begun.includes(`from ${id}`))!;
      const service = config.services[0]!;
      const upstreams = backends.map((each) => ({
        host: "127.0.0.1",
        port: each.port,
        weight: each === leaving ? 0 : 1,
      }));
      await gateway.reload({ ...config, services: [{ ...service, upstreams }] });
      const given = await shares(20);
      expect(given[backends.indexOf(leaving)]).toBe(0);
      streaming!("ended");
      expect(await connection.closed()).toContain("ended");
      await gateway.reload(config);
      expect(await shares(30)).toEqual([10, 10, 10]);
    },
  );

  it("an upstream that a reload removes or drains is replaced by reloads under load that cost no request", async () => {
    const { backends, config, port, gateway } = await three();
    const service = config.services[0]!;
    const only = (...which: number[]) =>
      gateway.reload({
        ...config,
        services: [{ ...service, upstreams: which.map((i) => ({ host: "127.0.0.1", port: backends[i]!.port })) }],
      });
    await only(0);
    const load = closedLoop(port);
    for (const which of [[0, 1], [1], [1, 2], [2], [2, 0], [0, 1, 2]]) {
      await only(...which);
      await load.more(40);
    }
    await load.stop();
    expect(load.lost).toEqual([]);
    expect(load.outcomes).toHaveLength(load.requests);
    for (const { requests } of backends) expect(requests).toBeGreaterThan(20);
  });
});
