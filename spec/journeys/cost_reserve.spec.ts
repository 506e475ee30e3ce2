/** `cost.reserve` and `cost.failed` in a whole gateway: what requests hold while they last, and who pays what. */
import { describe, expect, it } from "vitest";
import { countingReserves } from "../contracts/reserves.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { backend } from "./harness.ts";

describe("reserves in memory", () => {
  countingReserves(async () => async (upstream, plugins) => {
    return [(await running(oneService(upstream, { plugins: plugins as never }))).port];
  });

  it("a request whose reserve is more than the limit is admitted, and its overdraft is carried", async () => {
    const origin = await backend((_request, response) => void response.writeHead(200, { "X-Cost": "60" }).end());
    const cost = { response_header: "X-Cost", reserve: 50 };
    const plugins = [{ name: "quota", config: { limit: 10, per: "month", limit_by: "all", cost } }];
    const { port, gateway } = await running(oneService(origin.port, { plugins }));
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    await eventually(() => gateway.inFlight === 0);
    const refused = await ask(port, { path: "/a/x" });
    expect([refused.status, refused.headers.ratelimit]).toEqual([429, expect.stringContaining(";r=0;")]);
  });

  it("a refusal for the sake of requests in progress says so, and when to try again", async () => {
    const open: (() => void)[] = [];
    const origin = await backend((_request, response) => void open.push(() => void response.end()));
    const cost = { response_header: "X-Cost", reserve: 10 };
    for (const [name, config, why] of [
      ["quota", { limit: 10, per: "month" }, "What is left of this month is reserved for requests in progress."],
      ["rate_limit", { limit_min: 10 }, "What is left is reserved for requests in progress."],
    ] as const) {
      const plugins = [{ name, config: { ...config, limit_by: "all", cost } }];
      const { port } = await running(oneService(origin.port, { plugins }));
      const first = ask(port, { path: "/a/x" });
      await eventually(() => open.length === 1);
      const refused = await ask(port, { path: "/a/x" });
      expect([refused.status, refused.headers["retry-after"]]).toEqual([429, "1"]);
      const { detail } = JSON.parse(refused.body.toString()) as { detail: string };
      expect(detail).toBe(`${why} Try again in 1 second.`);
      open.pop()!();
      expect((await first).status).toBe(200);
    }
  });

  it("a reload keeps what is held, and what ends behind it is given back", async () => {
    const open: (() => void)[] = [];
    const origin = await backend((_request, response) => void open.push(() => void response.end()));
    const cost = { response_header: "X-Cost", reserve: 10, default: 0 };
    const config = (id: string) =>
      oneService(origin.port, {
        name: "s",
        plugins: [
          { name: "quota", config: { limit: 10, per: "month", limit_by: "all", cost } },
          { name: "response_headers", config: { set: { "X-Id": id } } },
        ],
      });
    const { port, gateway } = await running(config("1"));
    const first = ask(port, { path: "/a/x" });
    await eventually(() => open.length === 1);
    await gateway.reload(config("2"));
    expect((await ask(port, { path: "/a/x" })).status).toBe(429);
    open.pop()!();
    await first;
    await eventually(() => gateway.inFlight === 0);
    const again = ask(port, { path: "/a/x" });
    await eventually(() => open.length === 1);
    open.pop()!();
    expect((await again).status).toBe(200);
  });
});

describe("costs of errors", () => {
  /** What is used of a quota after a reply of this status that states a cost of 50. */
  async function used(cost: object, status: number | "down"): Promise<number> {
    const origin = await backend((request, response) => {
      if (request.url === "/free") return void response.writeHead(200, { "X-Cost": "0" }).end();
      if (status === "down") return void response.destroy();
      response.writeHead(status, { "X-Cost": "50" }).end();
    });
    const config = { limit: 10_000, per: "month", limit_by: "all", cost: { response_header: "X-Cost", ...cost } };
    const { port, gateway } = await running(oneService(origin.port, { plugins: [{ name: "quota", config }] }));
    await ask(port, { path: "/a/x" });
    await eventually(() => gateway.inFlight === 0);
    await ask(port, { path: "/a/free" });
    await eventually(() => gateway.inFlight === 0);
    const { headers } = await ask(port, { path: "/a/free" });
    const { reserve = 0 } = cost as { reserve?: number };
    return 10_000 - reserve - Number(/;r=(\d+)/.exec(String(headers.ratelimit))![1]);
  }

  it.each<[object, number | "down", number]>([
    [{}, 200, 50],
    [{}, 400, 50],
    [{ default: 7 }, "down", 7],
    [{ default: 7, reserve: 20 }, 200, 50],
    [{ default: 7, reserve: 20 }, 400, 7],
    [{ default: 7, reserve: 20 }, 503, 7],
    [{ default: 7, reserve: 20 }, "down", 7],
    [{ default: 7, failed: 0 }, 500, 0],
    [{ default: 7, failed: 0 }, "down", 0],
    [{ default: 7, failed: 0, reserve: 20 }, "down", 0],
    [{ default: 7, failed: 3 }, 399, 50],
  ])("with %j a reply of %s costs %i", async (cost, status, expected) => {
    expect(await used(cost, status)).toBe(expected);
  });

  it("an upstream that breaks off costs the default, a client that leaves the reserve", async () => {
    const origin = await backend((request, response) => {
      if (request.url === "/free")
        return void response.writeHead(200, { "Content-Type": "application/json" }).end("{}");
      response.writeHead(200, { "Content-Type": "text/event-stream" }).write("data: {}\n\n");
      if (request.url === "/broken") setImmediate(() => response.destroy());
    });
    const cost = { response_json: "n", reserve: 100, default: 0 };
    const plugins = [{ name: "quota", config: { limit: 1_000, per: "month", limit_by: "all", cost } }];
    const { port, gateway } = await running(oneService(origin.port, { plugins }));
    const left = async () => {
      await eventually(() => gateway.inFlight === 0);
      return Number(/;r=(\d+)/.exec(String((await ask(port, { path: "/a/free" })).headers.ratelimit))![1]);
    };
    await expect(ask(port, { path: "/a/broken" })).rejects.toThrow();
    expect(await left()).toBe(900);
    const connection = await connect(port);
    connection.send("GET /a/x HTTP/1.1\r\nHost: a\r\n\r\n");
    await connection.until("data");
    connection.socket.destroy();
    await eventually(() => gateway.inFlight === 0);
    expect(await left()).toBe(800);
  });
});
