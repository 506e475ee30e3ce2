import { describe, expect, it } from "vitest";
import { atOnce } from "../../lib/base/time_slices.ts";
import type { ValidConfig } from "../../lib/gateway/compile_types.ts";
import { ofCallers } from "../../lib/proof/known_callers.ts";
import type { WrittenPlugin } from "../../lib/proof/written.ts";

describe("the warning caller_unused", () => {
  it(
    "does not look at a caller for each plugin, however many plugins there are: " +
      "a reload goes on beside the traffic",
    () => {
      let looks = 0;
      const caller = {
        id: "ada",
        get keys() {
          looks++;
          return 0;
        },
      };
      const plugin = (config: object) =>
        ({ kind: { name: "key_auth", identifies: true }, config, path: "p", id: null }) as unknown as WrittenPlugin;
      const plugins = Array.from({ length: 1000 }, (_, i) => [
        plugin({ callers: true }),
        plugin({ keys: [{ id: `c${i}` }] }),
      ]).flat();
      const warnings = atOnce(
        ofCallers({ callers: { lists: [{ callers: [caller] }] }, callerFiles: [] } as unknown as ValidConfig, plugins),
      );
      expect(warnings.map(({ path }) => path)).toEqual(["callers.ada"]);
      expect(looks).toBeLessThanOrEqual(2);
    },
  );
});
