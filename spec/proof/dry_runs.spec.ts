/** The thread of dry runs, of the built package: its limits, and that it leaves nothing behind. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it, onTestFinished } from "vitest";
import type { createGateway } from "../../lib/index.ts";
import type { DryRunLimits, DryRuns } from "../../lib/proof/dry_runs.ts";
import type { Gateway } from "../../lib/embed/gateway.ts";
import { oneService } from "../support/gateway.ts";
import { turnsDuring } from "../support/turns.ts";

const built = async <T>(path: string) => (await import(new URL(`../../dist/lib/${path}`, import.meta.url).href)) as T;

async function dryRuns(limits?: DryRunLimits) {
  const { createGateway: create } = await built<{ createGateway: typeof createGateway }>("index.js");
  const { DryRuns: Runs } = await built<{ DryRuns: typeof DryRuns }>("proof/dry_runs.js");
  const { Gateway: Class } = await built<{ Gateway: typeof Gateway }>("embed/gateway.js");
  const gateway = create({ config: oneService(9) });
  onTestFinished(async () => void (await gateway.close(0)));
  const { configuration, recent } = Class.internalsOf(gateway);
  const runs = new Runs(configuration, limits);
  return { gateway, runs, run: (config: object) => runs.run(Buffer.from(JSON.stringify(config)), recent) };
}

/** Twice as many routes. */
const large = (services: number) => ({
  services: Array.from({ length: services }, (_, i) => ({
    name: `s${i}`,
    base_path: `/${i}`,
    upstreams: [{ host: "h", port: 1 }],
    routes: [{ path: "/{x}" }, { path: "/{x}/{y*}" }],
  })),
});

describe("dry runs", () => {
  it("run in a thread: the event loop turns while the configuration is read, checked and compared", async () => {
    const { run } = await dryRuns();
    const turns = await turnsDuring(async () =>
      expect(await run(large(2_000))).toMatchObject({ outcome: "accepted", requests: { checked: 0 } }),
    );
    // Reading it alone blocks a thread for a hundred milliseconds, in which this one turns many times.
    expect(turns).toBeGreaterThan(50);
  }, 60_000);

  it("are ended at their limit of time, and say so", async () => {
    const { run } = await dryRuns({ ms: 1, megabytes: 512 });
    await expect(run(large(20_000))).rejects.toMatchObject({
      code: "overloaded",
      message: "The dry run needs more than 0.001 seconds. Check the configuration with edge-gateway validate FILE.",
    });
    await expect(run(large(20_000))).rejects.toMatchObject({ code: "overloaded" });
  });

  it("are ended at their limit of time however often garbage is collected meanwhile", async () => {
    setFlagsFromString("--expose-gc");
    const collecting = setInterval(runInNewContext("gc") as () => void, 20);
    onTestFinished(() => clearInterval(collecting));
    const { run } = await dryRuns({ ms: 200, megabytes: 512 });
    await expect(run(large(20_000))).rejects.toMatchObject({
      code: "overloaded",
      message: expect.stringContaining("more than 0.2 seconds"),
    });
  }, 60_000);

  it("are ended at their limit of memory, and say so, and the next one is done", async () => {
    const { run } = await dryRuns({ ms: 60_000, megabytes: 40 });
    await expect(run(large(20_000))).rejects.toMatchObject({
      code: "overloaded",
      message: "The dry run needs more than 40 MB. Check the configuration with edge-gateway validate FILE.",
    });
    expect(await run(oneService(9))).toMatchObject({ outcome: "accepted" });
  }, 60_000);

  it("end when the gateway has been closed", async () => {
    const { gateway, run } = await dryRuns();
    const pending = expect(run(large(20_000))).rejects.toMatchObject({
      code: "overloaded",
      message: "The gateway has been closed.",
    });
    await gateway.close(0);
    await pending;
    await expect(run(oneService(9))).rejects.toMatchObject({ message: "The gateway has been closed." });
  });
});
