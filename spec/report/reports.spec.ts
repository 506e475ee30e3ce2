import { describe, expect, it } from "vitest";
import { ConfigError, version, type ConfigInput } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { fragile } from "../gateway/plugins.ts";

const wrong = { services: [{ name: "s" }] } as unknown as ConfigInput;

describe("status", () => {
  it(
    "status reports version, uptime, the configuration in force and when it was loaded, " +
      "and the last reload, accepted or refused",
    async () => {
      const clock = manualClock();
      const { gateway } = await running(oneService(9), { clock });
      const made = clock.wall();
      const { digest } = gateway;
      clock.advance(1_500);
      expect(gateway.status).toEqual({
        version,
        state: "serving",
        ready: true,
        uptimeMs: 1_500,
        inFlight: 0,
        digest,
        loadedAt: made,
        counts: { services: 1, routes: 2, upstreams: 1 },
        lastReload: null,
        lastChange: null,
        counters: null,
        workers: null,
        tests: null,
        pluginFaults: [],
        certificates: [],
        revocationLists: [],
        source: null,
        acme: null,
        warnings: [],
      });
      const { changes } = await gateway.reload({ services: [] }, "signal");
      expect(gateway.status).toMatchObject({ loadedAt: made + 1_500, digest: gateway.digest, counts: { services: 0 } });
      expect(gateway.status.lastReload).toEqual({
        at: made + 1_500,
        by: "signal",
        digest: gateway.digest,
        outcome: "taken",
        changes,
      });
      clock.advance(500);
      await expect(gateway.reload(wrong)).rejects.toThrow(ConfigError);
      expect(gateway.status.loadedAt).toBe(made + 1_500);
      expect(gateway.status.lastReload).toMatchObject({
        at: made + 2_000,
        by: "api",
        digest: gateway.digest,
        outcome: "refused",
      });
      expect((gateway.status.lastReload as { readonly issues: readonly object[] }).issues.length).toBeGreaterThan(2);
      await gateway.reload({ services: [] });
      expect(gateway.status.lastReload).toMatchObject({ by: "api", outcome: "taken", changes: [] });
      expect(gateway.status.lastChange).toEqual({
        at: made + 1_500,
        by: "signal",
        digest: gateway.digest,
        outcome: "taken",
        changes,
      });
    },
  );

  it("status reports why a plugin could not be created in a reload", async () => {
    const { gateway } = await running(oneService(9), { plugins: [fragile] });
    await expect(
      gateway.reload(oneService(9, { plugins: [{ name: "fragile", config: { broken: true } }] })),
    ).rejects.toThrow("the fragile thing broke");
    expect(gateway.status.lastReload).toMatchObject({
      outcome: "refused",
      issues: [{ message: expect.stringContaining("the fragile thing broke") as string }],
    });
  });

  it("health lists the upstreams of every service", async () => {
    const { gateway } = await running(oneService([8, 9]));
    const upstream = (port: number) => ({ id: `127.0.0.1:${port}`, host: "127.0.0.1", port });
    expect(gateway.health).toMatchObject({ services: [{ name: "s", upstreams: [upstream(8), upstream(9)] }] });
  });
});
