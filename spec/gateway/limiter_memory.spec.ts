import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import { together } from "../support/following.ts";
import { backend, oneService } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";

const limited = (port: number, ...configs: object[]) =>
  oneService(port, { plugins: configs.map((config, i) => ({ id: `l${i}`, name: "rate_limit", config })) } as never);

/** The address space that the limiters of a configuration reserve with workers, in MB. */
function reserved(main: Gateway): readonly number[] {
  const { memory } = Gateway.internalsOf(main).configuration.bundle;
  return [...memory]
    .filter(([name]) => name.startsWith("rate limit "))
    .map(([, { byteLength }]) => Math.round(byteLength / 1e6));
}

const SECOND = { limit_second: 64 };
const TWO = { ...SECOND, limit_min: 1000 };
const THREE = { ...TWO, limit_hour: 100_000 };

describe("with workers a rate limit reserves address space", () => {
  it(
    "for max_callers callers with every window full, as docs/scale.md has it, " +
      "and for one caller where it counts all together",
    async () => {
      const { main } = await together({
        config: limited(9, SECOND, TWO, THREE, { ...TWO, max_callers: 5000 }, { ...THREE, limit_by: "all" }),
      });
      const [one, two, three, fewer, all] = reserved(main);
      expect([one, two, three, fewer]).toEqual([76, 148, 221, 8]);
      expect(all).toBeLessThan(4);
      expect(readFileSync(new URL("../../docs/scale.md", import.meta.url), "utf8")).toContain(
        `| ${one} MB | ${two} MB | ${three} MB | ${fewer} MB |`,
      );
    },
  );

  it("for more callers once a reload no longer counts them together, and keeps what was counted", async () => {
    const { port } = await backend();
    const { main, ports } = await together({ config: limited(port, { limit_hour: 3, limit_by: "all" }) });
    const statuses = async (...from: number[]) =>
      Promise.all(from.map(async (i) => (await ask(ports[i]!, { path: "/a/x" })).status));
    expect(await statuses(0)).toEqual([200]);
    expect(await statuses(1)).toEqual([200]);
    expect(reserved(main)[0]).toBeLessThan(2);
    await main.reload(limited(port, { limit_hour: 3 }));
    expect(reserved(main)[0]).toBeGreaterThan(10);
    expect([await statuses(0), await statuses(1), await statuses(0), await statuses(1)].flat()).toEqual([
      200, 200, 200, 429,
    ]);
    await main.reload(limited(port, { limit_hour: 3, limit_by: "all" }));
    expect([await statuses(0), await statuses(1)].flat()).toEqual([200, 429]);
  });
});
