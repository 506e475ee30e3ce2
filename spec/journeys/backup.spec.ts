/** Upstreams that get requests only while no other one can be used. */
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { STRATEGIES } from "../../lib/config/model.ts";
import { takeOut } from "../../lib/upstream/taken_out.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually, type Ask } from "../support/raw_client.ts";
import { gate, PROTOCOLS, restartableBackend, speaking, type Protocol } from "./harness.ts";

type Parts = Partial<AnyConfigInput["services"][number]>;

/** Backends named by these ids, of which those with "!" are backups, and a gateway in front of them. */
async function service(names: string, parts: Parts = {}, protocol: Protocol = "http") {
  const ids = names.split(" ").map((name) => name.replace("!", ""));
  const backends = await Promise.all(ids.map(() => restartableBackend(protocol)));
  backends.forEach((each, i) => (each.answer = (_request, response) => void response.end(ids[i])));
  const upstreams = names.split(" ").map((name, i) => ({
    ...{ id: ids[i]!, host: "127.0.0.1", port: backends[i]!.port },
    ...(name.endsWith("!") && { backup: true }),
  }));
  const clock = manualClock();
  const config = (more: Parts = {}) => oneService([], { ...speaking(protocol), upstreams, ...parts, ...more });
  const started = await running(config(), { clock });
  const asked = async (more: Ask = {}) => {
    const { status, body, headers } = await ask(started.port, { path: "/a/x", ...more });
    return { from: status === 200 ? body.toString() : String(status), headers };
  };
  const answers = async (times: number, more: Ask = {}) => {
    const found: string[] = [];
    for (let i = 0; i < times; i++) found.push((await asked(more)).from);
    return found.join(" ");
  };
  const of = (id: string) => backends[ids.indexOf(id)]!;
  const set = (id: string, state: "drain" | "eject" | "use") => {
    const { runtime } = Gateway.internalsOf(started.gateway as Gateway);
    takeOut(runtime.upstreamsOf("s")!.upstreamSet, { id, state }, runtime.healthTools.changes);
  };
  return { ...started, clock, config, answers, asked, of, set };
}

const ejecting = { health: { passive: { max_failures: 1, eject_ms: 1000 } } } satisfies Parts;

describe.each(PROTOCOLS)("a backup over %s", (protocol) => {
  it("gets no request while another upstream can be used, and each request once that refuses connections", async () => {
    const { answers, of, clock } = await service("main spare!", ejecting, protocol);
    expect(await answers(4)).toBe("main main main main");
    await of("main").kill();
    expect(await answers(3)).toBe("spare spare spare");
    await of("main").start();
    expect(await answers(1)).toBe("spare");
    clock.advance(1000);
    expect(await answers(2)).toBe("main main");
    expect(of("spare").requests).toBe(4);
  });

  it("is the last place of retries, over three upstreams", async () => {
    const failing = { retries: { on: [503], attempts: 3 }, health: { passive: { max_failures: 0 } } } satisfies Parts;
    const { answers, of } = await service("spare! one two", failing, protocol);
    const order: string[] = [];
    for (const id of ["one", "two", "spare"])
      of(id).answer = (_request, response) => {
        order.push(id);
        response.writeHead(id === "spare" ? 200 : 503);
        response.end(id);
      };
    expect(await answers(2)).toBe("spare spare");
    expect([order[2], order[5]]).toEqual(["spare", "spare"]);
    expect([...order].sort()).toEqual(["one", "one", "spare", "spare", "two", "two"]);
  });
});

describe("a backup", () => {
  it.each(STRATEGIES)("waits whatever the strategy is: %s", async (load_balancing_strategy) => {
    const hash = load_balancing_strategy === "hash" ? { hash_on: "client_ip" as const } : {};
    const { answers, set } = await service("spare! one two more!", { load_balancing_strategy, ...hash });
    expect(await answers(12)).not.toMatch(/spare|more/);
    set("one", "eject");
    expect(await answers(4)).toBe("two two two two");
    set("two", "drain");
    expect(await answers(12)).toMatch(/^(?:(?:spare|more) ?)+$/);
  });

  it("does not get what waits for a busy upstream", async () => {
    const { answers, asked, of } = await service("main spare!", { pool: { max_connections: 1 } });
    const hold = gate();
    of("main").answer = async (_request, response) => {
      await hold.opened;
      response.end("main");
    };
    const first = asked();
    await eventually(() => of("main").requests === 1, "the first request at the upstream");
    const second = answers(1);
    hold.open();
    expect([(await first).from, await second]).toEqual(["main", "main"]);
    expect(of("spare").requests).toBe(0);
  });

  it("is no place of a retry because an upstream is busy, and another upstream is", async () => {
    for (const [names, expected] of [
      ["main spare!", "503"],
      ["main other spare!", "other"],
    ] as const) {
      const parts = { pool: { max_connections: 1 }, retries: {}, timeouts: { connect_ms: 500 } };
      const { asked, of, clock } = await service(names, parts);
      const hold = gate();
      of("main").answer = async (_request, response) => {
        await hold.opened;
        response.end("main");
      };
      const first = asked();
      await eventually(() => of("main").requests === 1, "the first request at the upstream");
      if (names.includes("other")) expect((await asked()).from).toBe("other");
      const before = clock.pending;
      const second = asked();
      await eventually(() => clock.pending > before, "the second request waiting");
      clock.advance(500);
      expect((await second).from).toBe(expected);
      hold.open();
      expect((await first).from).toBe("main");
      expect(of("spare").requests).toBe(0);
    }
  });

  it("is asked before an upstream that has been ejected, which is not asked at all", async () => {
    const { answers, of } = await service("main spare!", { ...ejecting, retries: { on: ["connect", 503] } });
    await of("main").kill();
    expect(await answers(1)).toBe("spare");
    await of("main").start();
    of("spare").answer = (_request, response) => void response.writeHead(503).end();
    expect(await answers(2)).toBe("503 503");
    expect(of("main").requests).toBe(0);
  });

  it("serves alone if the others have weight 0, until a reload gives them some", async () => {
    const { answers, gateway, config } = await service("main spare!");
    const { upstreams } = config().services[0]!;
    const drained = upstreams.map((each) => (each.backup === true ? each : { ...each, weight: 0 }));
    await gateway.reload(config({ upstreams: drained }));
    expect(await answers(2)).toBe("spare spare");
    await gateway.reload(config());
    expect(await answers(2)).toBe("main main");
    await gateway.reload(config({ upstreams: upstreams.map(({ backup: _, ...each }) => each) }));
    expect((await answers(2)).split(" ").sort()).toEqual(["main", "spare"]);
  });

  it("is checked like any other, and does not serve while its checks fail", async () => {
    const checked = { health: { enabled: true, interval_ms: 100, healthy_threshold: 1, unhealthy_threshold: 1 } };
    const { answers, of, clock, gateway, set } = await service("main spare!", checked);
    const stateOf = (id: string) => gateway.health.services[0]!.upstreams.find((each) => each.id === id)!.state;
    await of("spare").kill();
    await eventually(() => {
      clock.advance(200);
      return stateOf("spare") === "unhealthy" && stateOf("main") === "healthy";
    }, "both upstreams checked");
    set("main", "eject");
    expect(await answers(1)).toBe("503");
  });

  it("loses its sticky sessions once another upstream is back", async () => {
    const { asked, set } = await service("main spare!", { sticky: {} });
    const cookieOf = async (cookie?: string) => {
      const { from, headers } = await asked(cookie === undefined ? {} : { headers: { Cookie: cookie } });
      return [from, String(headers["set-cookie"] ?? "").split(";")[0]!] as const;
    };
    const [, main] = await cookieOf();
    set("main", "eject");
    const [from, spare] = await cookieOf(main);
    expect(from).toBe("spare");
    expect(await cookieOf(spare)).toEqual(["spare", ""]);
    set("main", "use");
    expect(await cookieOf(spare)).toEqual(["main", main]);
    expect(await cookieOf(main)).toEqual(["main", ""]);
  });

  it("keeps the session of a client at an upstream that is drained, as long as that is there", async () => {
    const { asked, set } = await service("main spare!", { sticky: {} });
    const { headers } = await asked();
    const Cookie = String(headers["set-cookie"]).split(";")[0]!;
    set("main", "drain");
    expect((await asked({ headers: { Cookie } })).from).toBe("main");
    expect((await asked()).from).toBe("spare");
  });

  it("is named by explain and the health, with its share", async () => {
    const { gateway, set } = await service("main spare!");
    const shown = () => gateway.health.services[0]!.upstreams.map(({ id, backup, share }) => [id, backup, share]);
    const explained = async () => {
      const { upstreams, reasons } = await gateway.explain({ method: "GET", url: "/a/x" });
      const served = "No other upstream of the service can be used: its backups get the requests.";
      return [...upstreams.map(({ backup, share }) => [backup, share]), reasons.includes(served)];
    };
    expect(shown()).toEqual([
      ["main", false, 1],
      ["spare", true, 0],
    ]);
    expect(await explained()).toEqual([[false, 1], [true, 0], false]);
    set("main", "eject");
    expect(shown()).toEqual([
      ["main", false, 0],
      ["spare", true, 1],
    ]);
    expect(await explained()).toEqual([[false, 0], [true, 1], true]);
  });
});
