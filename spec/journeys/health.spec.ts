import http from "node:http";
import { describe, expect, it } from "vitest";
import type { LogFields } from "../../lib/base/log.ts";
import { createGateway } from "../../lib/index.ts";
import { LOOPBACK, NOBODY, site } from "../support/addresses.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpTools } from "../support/exercise.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { codec } from "../support/codec.ts";
import { closedPort } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";

const HEALTH = {
  enabled: true,
  path: "/up",
  interval_ms: 1000,
  timeout_ms: 60_000,
  healthy_threshold: 1,
  unhealthy_threshold: 2,
};

/** A backend whose /up answers with its health as the status, and whose other responses have its name as the body. */
async function patient(name: string) {
  const state = { status: 200, checks: 0 };
  const made = await backend((request, response) => {
    if (request.url !== "/up") return void response.end(name);
    state.checks++;
    response.statusCode = state.status;
    response.end();
  });
  return Object.assign(state, { port: made.port });
}

function listening() {
  const { log, lines } = madeUpTools();
  return {
    log,
    messages: () =>
      lines.filter(({ level }) => level !== "debug").map(({ message, fields }) => `${message} [${upstreamOf(fields)}]`),
  };
}

const upstreamOf = (fields: LogFields | undefined) => String(fields?.["upstream"] ?? fields?.["host"]);

describe("active health checks", () => {
  async function checked(parts: object = {}) {
    const clock = manualClock();
    const { log, messages } = listening();
    const [one, two] = [await patient("1"), await patient("2")];
    const config = oneService([], {
      upstreams: [
        { id: "one", host: "127.0.0.1", port: one.port },
        { id: "two", host: "127.0.0.1", port: two.port },
      ],
      health: HEALTH,
      ...parts,
    });
    const { gateway, port } = await running(config, { clock, log });
    /** Advances the clock, and waits for the probes, until the log has the line. */
    const until = async (line: string, times = 1) => {
      await eventually(() => {
        clock.advance(50);
        return messages().filter((each) => each === line).length === times;
      }, line);
    };
    const answers = async (n: number) => {
      let text = "";
      for (let i = 0; i < n; i++) text += (await ask(port, { path: "/a/x" })).body.toString();
      return text;
    };
    return { clock, messages, one, two, config, gateway, until, answers };
  }

  it("active health checks eject an upstream and take it back, and log each once", async () => {
    const { one, messages, clock, until, answers } = await checked();
    await until("upstream healthy: its checks pass [one]");
    one.status = 500;
    await until("upstream unhealthy: its checks fail [one]");
    expect(await answers(3)).toBe("222");
    const { checks } = one;
    await eventually(() => {
      clock.advance(50);
      return one.checks > checks;
    }, "another probe");
    one.status = 204;
    await until("upstream healthy: its checks pass [one]", 2);
    expect([...(await answers(4))].sort().join("")).toBe("1122");
    expect(messages().filter((line) => line.includes("[one]"))).toHaveLength(3);
  });

  it("active health checks answer 503 upstream_unavailable when all upstreams are unhealthy", async () => {
    const { one, two, until, answers } = await checked();
    one.status = two.status = 503;
    await until("upstream unhealthy: its checks fail [one]");
    await until("upstream unhealthy: its checks fail [two]");
    expect(JSON.parse(await answers(1))).toMatchObject({ status: 503, code: "upstream_unavailable" });
  });

  it(
    "active health checks keep their results over a reload, " + "and a reload that removes them discards the results",
    async () => {
      const { one, config, gateway, clock, until, answers } = await checked();
      one.status = 500;
      await until("upstream unhealthy: its checks fail [one]");
      await gateway.reload({ ...config, global: { name: "other" } });
      expect(await answers(3)).toBe("222");
      const [service] = config.services;
      await gateway.reload({ services: [{ ...service!, health: { enabled: false } }] });
      expect([...(await answers(4))].sort().join("")).toBe("1122");
      // The timers of the statistics and of the codec's sweep of client connections, once a second.
      expect(clock.pending).toBe(codec === "wire" ? 2 : 1);
    },
  );

  it("active health checks stop with the gateway, and leave no timer", async () => {
    const { gateway, clock } = await checked();
    await gateway.close(0);
    clock.advance(100_000);
    expect(clock.pending).toBe(0);
  });
});

describe("host names of upstreams", () => {
  it(
    "host names of upstreams resolve to all their addresses, over IPv4 and IPv6, " + "and follow a new DNS answer",
    async () => {
      const clock = manualClock();
      const made = await site(LOOPBACK, () =>
        http.createServer((request, response) => void response.end(request.socket.localAddress)),
      );
      let addresses = LOOPBACK.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
      const lookups: string[] = [];
      const { port, gateway } = await running(
        oneService([], { upstreams: [{ host: "backend.test", port: made.port }] }, { dns_ttl_ms: 1000 }),
        {
          clock,
          lookup: async (host) => (lookups.push(host), addresses),
        },
      );
      const used = async () =>
        new Set(
          await Promise.all(
            Array.from({ length: 12 }, async () => (await ask(port, { path: "/a/x" })).body.toString()),
          ),
        );
      const count = () => gateway.health.services[0]!.upstreams.length;
      // Changes are put into force together.
      await eventually(() => (clock.advance(10), count() === LOOPBACK.length));
      expect([...(await used())].sort()).toEqual([...LOOPBACK].sort());
      addresses = addresses.slice(1, 2);
      clock.advance(1000);
      await eventually(() => lookups.length === 2, "the second look-up");
      await eventually(() => (clock.advance(10), count() === 1));
      expect([...(await used())]).toEqual(["127.0.0.2"]);
      expect(lookups).toEqual(["backend.test", "backend.test"]);
    },
  );

  it(
    "host names of upstreams are looked up only by a gateway that listens, " +
      "never while a configuration is validated",
    async () => {
      const origin = await patient("1");
      const lookups: string[] = [];
      const config = oneService([], { upstreams: [{ host: "backend.test", port: origin.port }], health: HEALTH });
      const clock = manualClock();
      const gateway = createGateway({
        config,
        clock,
        lookup: async (host) => (lookups.push(host), [{ address: "127.0.0.1", family: 4 }]),
      });
      await gateway.reload({ ...config, global: { name: "other" } });
      clock.advance(100_000);
      await new Promise((resolve) => setImmediate(resolve));
      expect({ lookups, checks: origin.checks, pending: clock.pending }).toEqual({
        lookups: [],
        checks: 0,
        pending: 0,
      });
      expect((await gateway.inject({ url: "/a/x" })).text()).toBe("1");
      expect(lookups).toEqual(["backend.test"]);
      await gateway.close(0);
    },
  );

  it("host names of upstreams keep the last DNS answer when a look-up fails, and log that once", async () => {
    const clock = manualClock();
    const { log, messages } = listening();
    const origin = await backend();
    let fails = false;
    let lookups = 0;
    const { port } = await running(
      oneService([], { upstreams: [{ host: "backend.test", port: origin.port }] }, { dns_ttl_ms: 1000 }),
      {
        clock,
        log,
        lookup: async () => {
          lookups++;
          if (fails) throw new Error("EAI_AGAIN");
          return [{ address: "127.0.0.1", family: 4 }];
        },
      },
    );
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    fails = true;
    for (let i = 2; i < 4; i++) {
      clock.advance(1000);
      await eventually(() => lookups === i, "the next look-up");
      await new Promise((resolve) => setImmediate(resolve));
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    }
    expect(messages()).toEqual(["a name could not be looked up: its last addresses stay in use [backend.test]"]);
  });

  it("host names of upstreams cost no request when one of their addresses refuses connections", async () => {
    const made = await site(["127.0.0.1"], () => http.createServer((_request, response) => void response.end("ok")));
    const { port } = await running(oneService([], { upstreams: [{ host: "backend.test", port: made.port }] }), {
      lookup: async () => [NOBODY, "127.0.0.1"].map((address) => ({ address, family: 4 })),
    });
    for (let i = 0; i < 6; i++) expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("ok");
  });

  it(
    "host names of upstreams answer 502 when they cannot be resolved, " +
      "and the upstream is ejected beside a healthy one",
    async () => {
      const origin = await backend();
      const { log, messages } = listening();
      const upstreams = [
        { id: "unknown", host: "backend.test", port: await closedPort() },
        { id: "good", host: "127.0.0.1", port: origin.port },
      ];
      const { port } = await running(
        oneService([], { upstreams, retries: { attempts: 0 }, health: { passive: { max_failures: 2 } } }),
        {
          log,
          lookup: async () => Promise.reject(new Error("ENOTFOUND")),
        },
      );
      const statuses: number[] = [];
      for (let i = 0; i < 6; i++) statuses.push((await ask(port, { path: "/a/x" })).status);
      expect(statuses).toEqual([502, 200, 502, 200, 200, 200]);
      expect(messages()).toContain("upstream ejected: it fails requests [unknown]");
    },
  );
});
