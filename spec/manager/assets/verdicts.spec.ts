import { describe, expect, it } from "vitest";
import type { ExplainedPlugin } from "../../../lib/manager/assets/admin_types.ts";
import { answering } from "../../../lib/manager/assets/verdicts.ts";

const plugin = (name: string, action: NonNullable<ExplainedPlugin["action"]>, status: number | null = null, code: string | null = null) => ({ level: "route" as const, name, id: null, config: {}, action, status, code });

describe("the plugins of an explanation", () => {
  it("have the first one that answers the request itself, and none if all pass it on", () => {
    const plugins = [plugin("cors", "passes"), plugin("key_auth", "answers", 401, "key_missing"), plugin("rate_limit", "not_reached")];
    expect(answering(plugins)).toEqual(plugins[1]);
    expect(answering(plugins.slice(0, 1))).toBeNull();
  });
});
