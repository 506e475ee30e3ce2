import { describe, expect, it } from "vitest";
import type { ExplainedPlugin, Explanation } from "../../../lib/manager/assets/admin_types.ts";
import { testOf } from "../../../lib/manager/assets/test_json.ts";
import { isOpen } from "../../../lib/manager/assets/verdicts.ts";

const REFUSED: Explanation = {
  ...{ outcome: "refused", status: 405, code: "method_not_allowed", reasons: [], path: "/shop/items", service: null, route: null },
  ...{ pattern: null, params: {}, forwarded: null, plugins: [], strategy: null, upstreams: [] },
};
const REQUEST = { method: "GET", url: "/shop/items", headers: {} };

type Action = NonNullable<ExplainedPlugin["action"]>;

/** What a plugin does: "passes", or the status and the code of its answer. */
type Done = Action | readonly [number, string | null] | undefined;

function matched(...actions: readonly Done[]): Explanation {
  const plugins = actions.map((each, i): ExplainedPlugin => {
    const [status, code] = typeof each === "object" ? each : [null, null];
    const action = typeof each === "object" ? "answers" : each;
    return { level: "route", name: `p${i}`, id: null, config: {}, status, code, ...(action !== undefined && { action }) };
  });
  return { ...REFUSED, outcome: "matched", status: null, code: null, service: "shop", route: "list", plugins };
}

describe("the test made of an explanation", () => {
  it("expects status and code of a request that is refused before any plugin", () => {
    expect(testOf(REQUEST, REFUSED)).toEqual({
      name: "GET /shop/items gets 405 method_not_allowed",
      request: { method: "GET", url: "/shop/items" },
      expect: { status: 405, code: "method_not_allowed" },
    });
  });

  it("expects the route and the 200 of the upstream if every plugin passes the request on", () => {
    expect(testOf(REQUEST, matched("passes"))).toMatchObject({
      name: "GET /shop/items reaches shop, list",
      expect: { status: 200, service: "shop", route: "list" },
    });
  });

  it("expects the route, status and code of the plugin that answers", () => {
    expect(testOf(REQUEST, matched("passes", [401, "key_missing"], "not_reached"))).toMatchObject({
      name: "GET /shop/items gets 401 key_missing",
      expect: { status: 401, code: "key_missing", service: "shop", route: "list" },
    });
    expect(testOf(REQUEST, matched([204, null])).expect).toEqual({ status: 204, service: "shop", route: "list" });
  });

  it.each<readonly [string, readonly Done[]]>([
    ["a plugin asks another machine", ["asks", "passes"]],
    ["a plugin asks another machine before another one answers", ["asks", [429, "rate_limited"]]],
    ["a plugin has not answered", ["hangs"]],
    ["the plugins could not be run", ["not_reached", "not_reached"]],
    ["the gateway sends no verdicts", [undefined]],
  ])("expects no status if %s", (_, verdicts) => {
    expect(testOf(REQUEST, matched(...verdicts)).expect).toEqual({ service: "shop", route: "list" });
    expect(isOpen(matched(...verdicts).plugins)).toBe(true);
  });

  it("expects the status if the plugin that asks another machine is not reached", () => {
    const plugins = [[403, "forbidden"], "asks"] as const;
    expect(testOf(REQUEST, matched(...plugins)).expect).toMatchObject({ status: 403 });
  });

  it("has a name of at most 200 characters", () => {
    expect(testOf({ ...REQUEST, url: `/${"x".repeat(500)}` }, REFUSED).name).toHaveLength(200);
  });

  it("has headers, body and client IP as they were entered", () => {
    const request = { ...REQUEST, headers: { Host: "a.example" }, body: " x\n", client_ip: "203.0.113.9" };
    expect(testOf(request, REFUSED).request).toEqual(request);
  });
});
