/** Without a server: with one see `spec/peers/redis_gateway.spec.ts`. */
import { describe, expect, it, onTestFinished } from "vitest";
import { statusView } from "../../lib/admin/views.ts";
import { createLog } from "../../lib/base/log.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { oneService, running } from "../support/gateway.ts";
import { closedPort, origin } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";

type CountersInput = NonNullable<NonNullable<AnyConfigInput["global"]>["counters"]>;

async function started(counters: Partial<CountersInput> = {}, limit: Record<string, unknown> = {}) {
  const upstream = await origin();
  onTestFinished(() => upstream.close());
  const closed = await closedPort();
  const log: string[] = [];
  const config = oneService(
    upstream.port,
    { plugins: [{ name: "rate_limit", config: { limit_min: 2, ...limit } }] },
    { counters: { store: "redis", url: `redis://gateway:hunter2@127.0.0.1:${closed}`, ...counters } },
  );
  const made = await running(config, { log: createLog({ format: "json", write: (line) => log.push(line) }) });
  await eventually(() => made.gateway.status.counters?.state === "down");
  const statuses = async (count: number) => {
    const all: number[] = [];
    for (let i = 0; i < count; i++) all.push((await ask(made.port, { path: "/a/x" })).status);
    return all;
  };
  return { ...made, config, closed, log, statuses };
}

describe("a gateway whose shared counters cannot be reached", () => {
  it.each([
    ["local", [200, 200, 429]],
    ["allow", [200, 200, 200]],
    ["deny", [503, 503, 503]],
  ] as const)("answers three requests of a limit of two by on_error %s: %j", async (on_error, expected) => {
    const { statuses, gateway } = await started({ on_error });
    expect(await statuses(3)).toEqual(expected);
    expect(gateway.metrics()).toContain('\nedge_gateway_counters_errors_total{reason="connection"} 3\n');
  });

  it('counts a plugin with "counters": "memory" in memory whatever on_error says', async () => {
    const { statuses, gateway } = await started({ on_error: "deny" }, { counters: "memory" });
    expect(await statuses(3)).toEqual([200, 200, 429]);
    expect(gateway.metrics()).toContain('\nedge_gateway_counters_errors_total{reason="connection"} 0\n');
  });

  it("explains a request, and runs its tests, with counters in memory: nothing is asked of the server", async () => {
    const { gateway, config } = await started({ on_error: "deny" });
    const { plugins } = await gateway.explain({ method: "GET", url: "/a/x" });
    expect(plugins.map(({ verdict }) => verdict)).toEqual(["passes the request on"]);
    const tests = [
      {
        name: "the limit admits a request",
        request: { url: "/a/x" },
        expect: { status: 200, headers: { RateLimit: '"minute";r=1;t=60' } },
      },
    ];
    await gateway.reload({ ...config, tests } as AnyConfigInput);
    expect(gateway.status.tests).toEqual({ passed: 1, failed: 0 });
    expect(gateway.metrics()).toContain('\nedge_gateway_counters_errors_total{reason="connection"} 0\n');
  });

  it("reports state, server and reason in its status, and no password anywhere", async () => {
    const { gateway, closed, log, statuses } = await started({ on_error: "deny" });
    await statuses(1);
    const address = `127.0.0.1:${closed}`;
    expect(statusView(gateway.status).counters).toEqual({
      store: "redis",
      state: "down",
      on_error: "deny",
      since: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
      servers: [{ address, state: "down", reason: `connect ECONNREFUSED ${address}` }],
    });
    expect(gateway.metrics()).toContain("\nedge_gateway_counters_up 0\n");
    expect(gateway.status.warnings).toEqual([
      expect.objectContaining({
        code: "counters_down",
        path: "global.counters",
        message:
          `Rate limits are not shared with other gateways: ` +
          `${address} cannot be used (connect ECONNREFUSED ${address}); on_error "deny" decides meanwhile.`,
      }),
    ]);
    expect(log.filter((line) => line.includes("rate counters"))).toHaveLength(1);
    expect(JSON.stringify([gateway.status, log, gateway.maskedConfig]) + gateway.metrics()).not.toContain("hunter2");
  });

  it("without global.counters has null in its status and no samples", async () => {
    const { gateway } = await running(oneService(9));
    expect(gateway.status.counters).toBeNull();
    expect(gateway.metrics()).not.toMatch(/^edge_gateway_counters/m);
  });
});
