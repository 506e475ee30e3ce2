import { once } from "node:events";
import { createServer, request, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { request as tlsRequest } from "node:https";
import { connect, type AddressInfo } from "node:net";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import { EventStreams } from "../../lib/admin/events.ts";
import { OF_ADMIN } from "../../lib/cli/admin_requests.ts";
import { createLog, silentLog } from "../../lib/base/log.ts";
import type { GatewayHealth, GatewayStatus } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { eventually } from "../support/raw_client.ts";
import { CERT, KEY } from "./certificate.ts";
import {
  HEALTH,
  optionsFrom,
  source,
  startAdmin,
  STATS,
  STATUS,
  UI,
  type AdminChanges,
  type AdminSource,
  type Running,
} from "./harness.ts";

interface Stream {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Names of the events so far. */
  readonly names: () => string[];
  readonly last: (name: string) => any;
  readonly text: () => string;
  /** Whether it ended, and how. */
  readonly ended: () => "no" | "whole" | "cut";
  readonly response: IncomingMessage;
}

const opened: IncomingMessage[] = [];
afterEach(() => opened.splice(0).forEach((response) => response.destroy()));

function stream(
  { port }: Running,
  cookie: string,
  options: { tls?: boolean; method?: string; headers?: Record<string, string>; paused?: boolean } = {},
): Promise<Stream> {
  return new Promise((resolve, reject) => {
    const { tls = false, method = "GET", headers = {}, paused = false } = options;
    const where = {
      host: "127.0.0.1",
      port,
      path: "/gateway/events",
      method,
      headers: { cookie, ...headers },
      agent: false,
      rejectUnauthorized: false,
    } as const;
    const asking = (tls ? tlsRequest : request)(where, (response) => {
      let text = "";
      let ended: "no" | "whole" | "cut" = "no";
      opened.push(response);
      response.setEncoding("utf8");
      if (!paused) response.on("data", (part: string) => void (text += part));
      response
        .on("error", () => {})
        .on("end", () => void (ended = "whole"))
        .on("close", () => void (ended = ended === "no" ? "cut" : ended));
      const events = () =>
        [...text.matchAll(/^event: (.*)\ndata: (.*)\n\n/gm)].map(([, name, data]) => ({ name: name!, data: data! }));
      resolve({
        response,
        status: response.statusCode!,
        headers: response.headers,
        names: () => events().map(({ name }) => name),
        last: (name) => JSON.parse(events().findLast((event) => event.name === name)!.data),
        text: () => text,
        ended: () => ended,
      });
    });
    asking.on("error", reject).end();
  });
}

/** A source whose status and health can be exchanged, and that counts how often it is asked. */
function changing() {
  const now = { status: STATUS as GatewayStatus, health: HEALTH as GatewayHealth, asked: 0 };
  const told: AdminSource = {
    ...source,
    status: () => now.status,
    health: () => now.health,
    stats: (extent) => {
      now.asked++;
      expect(extent).toBe("active");
      return STATS;
    },
  };
  return { now, source: told };
}

async function listening(changes: AdminChanges = {}) {
  const { now, source: told } = changing();
  const running = await startAdmin({ source: told, ...changes });
  const cookie = await running.session();
  const first = await stream(running, cookie, { tls: changes.tls != null });
  await eventually(() => first.names().length === 3);
  return { ...running, running, now, cookie, first };
}

describe("GET /gateway/events", () => {
  it("starts with the status, the health, the statistics and the time to reconnect", async () => {
    const { first, ask, cookie } = await listening();
    expect([first.status, first.headers["content-type"], first.headers["cache-control"]]).toEqual([
      200,
      "text/event-stream",
      "no-store",
    ]);
    expect(first.text()).toMatch(/^retry: 2000\n\nevent: status\n/);
    expect(first.names()).toEqual(["status", "health", "stats"]);
    for (const name of ["status", "health"])
      expect(first.last(name)).toEqual((await ask("GET", `/gateway/${name}`, { headers: { cookie } })).json);
    expect(first.last("stats")).toMatchObject({
      at: "2026-01-01T00:00:07.000Z",
      window_s: 60,
      total: { requests_per_s: 0.3333, in_flight: 2 },
    });
  });

  it(
    "sends the statistics each second, and status and health when more than uptime and " +
      "requests in flight has changed",
    async () => {
      const { first, clock, now } = await listening();
      clock.advance(1_000);
      await eventually(() => first.names().length === 4);
      now.status = { ...STATUS, uptimeMs: 99_000, inFlight: 77 };
      now.health = {
        services: HEALTH.services.map((service) => ({
          ...service,
          upstreams: service.upstreams.map((upstream) => ({ ...upstream, inFlight: 9 })),
        })),
      };
      clock.advance(1_000);
      await eventually(() => first.names().length === 5);
      expect(first.names().slice(3)).toEqual(["stats", "stats"]);
      now.status = { ...now.status, digest: "ba9876543210" };
      clock.advance(1_000);
      await eventually(() => first.names().length === 7);
      now.health = { services: [] };
      clock.advance(2_000);
      await eventually(() => first.names().length === 10);
      expect(first.names().slice(5)).toEqual(["status", "stats", "health", "stats", "stats"]);
      expect([first.last("status").digest, first.last("health")]).toEqual(["ba9876543210", { services: [] }]);
    },
  );

  it("computes each event once for all readers, and none without readers", async () => {
    const { running, cookie, first, clock, now } = await listening();
    const second = await stream(running, cookie);
    await eventually(() => second.names().length === 3);
    now.asked = 0;
    clock.advance(3_000);
    await eventually(() => second.names().length === 6 && first.names().length === 6);
    expect(now.asked).toBe(3);
    first.response.destroy();
    second.response.destroy();
    await eventually(() => clock.pending === 0);
    clock.advance(10_000);
    expect(now.asked).toBe(3);
    const third = await stream(running, cookie);
    await eventually(() => third.names().length === 3);
  });

  it("gives 401 without a token, 405 for other methods, and for HEAD a head without a stream", async () => {
    const { running, ask, cookie, clock, first } = await listening();
    expect((await ask("GET", "/gateway/events")).status).toBe(401);
    const post = await ask("POST", "/gateway/events", { headers: { cookie } });
    expect([post.status, post.headers.allow]).toEqual([405, "GET, HEAD, OPTIONS"]);
    first.response.destroy();
    await eventually(() => clock.pending === 0);
    const head = await stream(running, cookie, { method: "HEAD" });
    await eventually(() => head.ended() === "whole");
    expect([head.status, head.headers["content-type"], head.text()]).toEqual([200, "text/event-stream", ""]);
    await eventually(() => clock.pending === 0);
  });

  it("the stream is readable by pages of the allowed origins with their cookie", async () => {
    const { running, cookie } = await listening();
    const own = await stream(running, cookie, { headers: { origin: UI } });
    expect(own.headers).toMatchObject({
      "access-control-allow-origin": UI,
      "access-control-allow-credentials": "true",
      vary: "Origin",
    });
    const foreign = await stream(running, cookie, { headers: { origin: "http://evil.example" } });
    expect(foreign.headers["access-control-allow-origin"]).toBeUndefined();
  });

  it("gives 503 overloaded beyond 32 streams, until one has ended", async () => {
    const { running, cookie, ask, first } = await listening();
    const others = await Promise.all(Array.from({ length: 31 }, () => stream(running, cookie)));
    const refused = await ask("GET", "/gateway/events", { headers: { cookie } });
    expect([refused.status, refused.json.code, refused.headers["retry-after"]]).toEqual([503, "overloaded", "5"]);
    first.response.destroy();
    others[0]!.response.destroy();
    let next = await stream(running, cookie);
    while (next.status === 503) next = await stream(running, cookie);
    expect(next.status).toBe(200);
  });

  it("leaves places to the administrator: a viewer has 24 of 32", () => {
    const streams = new EventStreams({ ...optionsFrom(source), clock: manualClock(), log: silentLog });
    onTestFinished(() => streams.close());
    const [viewer, admin] = [
      { user: "eve", role: "viewer" },
      { user: "anna", role: "admin" },
    ] as const;
    for (const [who, most, other] of [
      [viewer, 24, "open"],
      [admin, 8, "full"],
    ] as const) {
      for (let i = 0; i < most; i++) {
        expect(streams.stateFor(who)).toBe("open");
        streams.open(() => true, "", who.user).resume();
      }
      expect([streams.stateFor(who), streams.stateFor(who === viewer ? admin : viewer)]).toEqual(["full", other]);
    }
  });

  it("works over TLS", async () => {
    const { first, clock } = await listening({ tls: { cert: CERT, key: KEY } });
    clock.advance(1_000);
    await eventually(() => first.names().length === 4);
  });
});

describe("with workers, which are asked first", () => {
  /** A source that has to be brought up to date, which takes until `answer` is called. */
  function asking() {
    const { now, source: told } = changing();
    let waiting: (() => void)[] = [];
    const refresh: AdminSource["refresh"] = (extent) => {
      expect(extent).toBe("counts");
      return new Promise((resolve) => void waiting.push(resolve));
    };
    const answer = async () => {
      await eventually(() => waiting.length > 0);
      const asked = waiting;
      waiting = [];
      for (const resolve of asked) resolve();
      await new Promise((resolve) => setImmediate(resolve));
    };
    return { now, source: { ...told, refresh }, answer, waits: () => waiting.length };
  }

  it("begins and continues a stream with figures of after the answers", async () => {
    const { now, source: told, answer, waits } = asking();
    const running = await startAdmin({ source: told });
    const opening = stream(running, await running.session());
    await eventually(() => waits() === 1);
    now.status = { ...STATUS, digest: "000000000001" };
    await answer();
    const first = await opening;
    await eventually(() => first.names().length === 3);
    expect(first.last("status").digest).toBe("000000000001");
    running.clock.advance(1_000);
    await eventually(() => waits() === 1);
    now.status = { ...STATUS, digest: "000000000002" };
    await answer();
    await eventually(() => first.names().length === 5);
    expect(first.last("status").digest).toBe("000000000002");
  });

  it("a stream ends whose session ended while figures were awaited for it", async () => {
    const { source: told, answer, waits } = asking();
    const running = await startAdmin({ source: told });
    const cookie = await running.session();
    const opening = stream(running, cookie);
    await eventually(() => waits() === 1);
    await running.ask("DELETE", "/logout", { headers: { cookie } });
    await answer();
    const opened = await opening;
    running.clock.advance(1_000);
    await eventually(() => waits() === 1);
    await answer();
    await eventually(() => opened.ended() === "whole");
  });

  it(
    "asks once a second for all readers, also when the last one leaves and another comes " +
      "while an answer is awaited",
    async () => {
      const { source: told, answer, waits } = asking();
      const clock = manualClock();
      const streams = new EventStreams({ ...optionsFrom(told), clock, log: silentLog });
      const first = streams.open(() => true, "", "anna");
      clock.advance(1_000);
      expect([waits(), clock.pending]).toEqual([1, 0]);
      first.destroy();
      await once(first, "close");
      const second = streams.open(() => true, "", "anna").resume();
      streams.open(() => true, "", "anna").resume();
      await answer();
      expect(clock.pending).toBe(1);
      clock.advance(1_000);
      await answer();
      expect([waits(), clock.pending]).toEqual([0, 1]);
      streams.close();
      await once(second, "close");
      expect(clock.pending).toBe(0);
    },
  );

  it("sends nothing after the streams were closed while an answer was awaited", async () => {
    const { source: told, answer } = asking();
    const clock = manualClock();
    const streams = new EventStreams({ ...optionsFrom(told), clock, log: silentLog });
    const body = streams.open(() => true, "", "anna").resume();
    clock.advance(1_000);
    streams.close();
    await once(body, "close");
    await answer();
    expect(clock.pending).toBe(0);
  });
});

describe("the end of a stream", () => {
  it("follows its session: at once on logout, within a second on expiry; other streams continue", async () => {
    const { running, ask, cookie, first, clock } = await listening({ sessionTtlS: 10 });
    clock.advance(5_000);
    const second = await stream(running, await running.session());
    await ask("DELETE", "/logout", { headers: { cookie } });
    await eventually(() => first.ended() === "whole");
    clock.advance(9_000);
    await eventually(() => second.names().length > 3);
    expect(second.ended()).toBe("no");
    clock.advance(2_000);
    await eventually(() => second.ended() === "whole");
    expect(clock.pending).toBe(0);
  });

  it(
    "a stream ends when the gateway drains, after an event that says so, " + "and no new stream can be opened",
    async () => {
      const { ask, cookie, first, clock, now } = await listening();
      now.status = { ...STATUS, state: "draining", ready: false };
      clock.advance(1_000);
      await eventually(() => first.ended() === "whole");
      expect(first.last("status").state).toBe("draining");
      const refused = await ask("GET", "/gateway/events", { headers: { cookie } });
      expect([refused.status, refused.json.detail]).toEqual([503, "The gateway is being shut down."]);
    },
  );

  it("a stream ends when the admin interface closes, after the last changes, without waiting for readers", async () => {
    const { running, admin, cookie, first, now } = await listening();
    const paused = await stream(running, cookie, { paused: true });
    expect(paused.status).toBe(200);
    now.status = { ...STATUS, state: "closed", ready: false };
    await admin.close();
    await eventually(() => first.ended() === "whole");
    expect(first.last("status").state).toBe("closed");
  });

  it(
    "a stream that is asked for as the first one is refused when the admin interface closes " +
      "before what it needs is loaded",
    async () => {
      let asked = false;
      let load = () => {};
      const loading = new Promise<void>((resolve) => (load = resolve));
      const events = async () => {
        asked = true;
        await loading;
        return OF_ADMIN.events();
      };
      const { admin, ask, session, inTime } = await startAdmin({ onRequest: { ...OF_ADMIN, events } });
      const answer = ask("GET", "/gateway/events", { headers: { cookie: await session() } });
      await eventually(() => asked);
      const closed = admin.close();
      load();
      expect((await answer).status).toBe(503);
      await inTime(closed);
    },
  );

  it("a stream ends when reading the state fails: the log says why, and the interface keeps working", async () => {
    let log = "";
    const { ask, cookie, first, clock, now } = await listening({
      log: createLog({ write: (line) => void (log += line) }),
    });
    Object.defineProperty(now, "health", {
      get: () => {
        throw new Error("inside story");
      },
    });
    clock.advance(1_000);
    await eventually(() => first.ended() === "whole");
    expect(log).toContain("inside story");
    expect((await ask("GET", "/gateway/status", { headers: { cookie } })).status).toBe(200);
  });
});

describe("a reader that does not read", () => {
  /** A status of about 1 MB, so that few of them fill every buffer on the way. */
  const large = (digest: string): GatewayStatus => ({
    ...STATUS,
    digest,
    warnings: [
      { code: "more", path: null, message: "x".repeat(1 << 20), example: null, remedy: "", service: null, route: null },
    ],
  });

  /** One who reads, and one who does not yet, of at most two. */
  async function slow() {
    const clock = manualClock();
    const { now, source: told } = changing();
    const events = new EventStreams({ ...optionsFrom(told), clock, log: silentLog, maxStreams: 2 });
    const server = createServer((_, response) =>
      events.open(() => true, "", "anna").pipe(response.writeHead(200)),
    ).listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => void server.close().closeAllConnections());
    const read = () => {
      const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
      let text = "";
      socket
        .on("error", () => {})
        .setEncoding("latin1")
        .on("data", (part: string) => void (text += part));
      socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
      return { socket, text: () => text };
    };
    const quick = read();
    const blocked = read();
    blocked.socket.pause();
    await eventually(() => events.stateFor({ user: "anna", role: "admin" }) === "full");
    for (let i = 1; i <= 20; i++) {
      now.status = large(`round ${i}`);
      clock.advance(1_000);
      await eventually(() => quick.text().includes(`"round ${i}"`));
    }
    return { clock, events, blocked };
  }

  it(
    "a reader that does not read gets nothing more while its connection is full and the latest state when it " +
      "reads on, and delays no other reader",
    async () => {
      const { clock, blocked } = await slow();
      blocked.socket.resume();
      await eventually(() => {
        clock.advance(1);
        return blocked.text().includes('"round 1"');
      });
      await eventually(() => {
        clock.advance(1_000);
        return blocked.text().includes('"round 20"');
      });
      expect(blocked.text().match(/event: status\n/g)!.length).toBeLessThan(20);
    },
  );

  it("a reader that does not read loses its connection after half a minute", async () => {
    const { clock, events } = await slow();
    expect(events.stateFor({ user: "anna", role: "admin" })).toBe("full");
    clock.advance(31_000);
    expect(events.stateFor({ user: "anna", role: "admin" })).toBe("open");
  });
});
