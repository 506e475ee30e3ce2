import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { countingReserves } from "../contracts/reserves.ts";
import { backend, oneService } from "../support/gateway.ts";
import { emptyFolder } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { RELEASES } from "./nodes.ts";
import { withWorkers } from "./workers.ts";

describe.each(RELEASES)("quotas over the workers of Node %i", (release) => {
  it(
    "admits exactly N requests, whichever worker they reach, keeps the counts over kill -9, " +
      "and loses none at SIGTERM",
    async () => {
      const [upstream, folder] = [await backend(), emptyFolder()];
      const config = oneService(upstream.port, {
        plugins: [{ name: "quota", config: { limit: 60, per: "month", limit_by: "all" } }],
      });
      const start = () => withWorkers(config, { release, workers: 3, environment: { STATE_DIR: folder } });
      const admitted = async (port: number, times: number) =>
        (await Promise.all(Array.from({ length: times }, () => ask(port, { path: "/a/x" })))).filter(
          ({ status }) => status === 200,
        ).length;
      const written = () => {
        if (!existsSync(join(folder, "quotas"))) return 0;
        const content = readFileSync(join(folder, "quotas"));
        return content.includes('"callers":1') ? content.readDoubleLE(content.length - 16) : 0;
      };
      const first = await start();
      expect(await admitted(first.port, 25)).toBe(25);
      await eventually(() => written() === 25, "the counts to be written");
      first.child.kill("SIGKILL");
      await first.ended;
      const second = await start();
      expect(await admitted(second.port, 20)).toBe(20);
      second.child.kill("SIGTERM");
      await second.ended;
      expect(written()).toBe(45);
      const third = await start();
      expect(await admitted(third.port, 30)).toBe(15);
    },
  );

  countingReserves(async () => async (upstream, plugins) => {
    return [(await withWorkers(oneService(upstream, { plugins: plugins as never }), { release, workers: 3 })).port];
  });
});
