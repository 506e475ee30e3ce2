import { describe, expect, it } from "vitest";
import { answering, verdictOf } from "../../../lib/manager/assets/verdicts.ts";

const plugin = (name: string, verdict?: string) => ({ level: "route" as const, name, id: null, config: {}, ...(verdict !== undefined && { verdict }) });

describe("the verdict of a plugin", () => {
  it.each([
    ["passes the request on", { kind: "passes" }],
    ['passes the request on as "ada", sets X-User', { kind: "passes" }],
    ["has not answered within 2 s", { kind: "unknown" }],
    ["not reached", { kind: "skipped" }],
    ["asks http://127.0.0.1:4000/check: not done here", { kind: "asks" }],
    ["answers 401 key_missing", { kind: "answers", status: 401, code: "key_missing" }],
    ["answers 301 to https://shop.example/", { kind: "answers", status: 301, code: null }],
    ["answers 500 internal: it returned no reply", { kind: "answers", status: 500, code: "internal" }],
    ["answers 204", { kind: "answers", status: 204, code: null }],
  ])("%s is read", (verdict, read) => {
    expect(verdictOf({ verdict })).toEqual(read);
  });

  it("is unknown if the gateway sends none", () => expect(verdictOf({})).toEqual({ kind: "unknown" }));

  it("names the first plugin that answers the request itself, and none if all pass it on", () => {
    const plugins = [plugin("cors", "passes the request on"), plugin("key_auth", "answers 401 key_missing"), plugin("rate_limit", "not reached")];
    expect(answering(plugins)).toEqual({ plugin: plugins[1], status: 401, code: "key_missing" });
    expect(answering(plugins.slice(0, 1))).toBeNull();
  });
});
