import { describe, expect, it } from "vitest";
import type { Warning } from "../../../lib/manager/assets/admin_types.ts";
import { hashFor, hashWith, linkForWarning, loginHash, parseHash } from "../../../lib/manager/assets/url_hash.ts";

describe("the hash of an address", () => {
  it.each([
    ["", "", []],
    ["#/", "", []],
    ["#/services", "services", []],
    ["#/routes/shop/list%20all", "routes", ["shop", "list all"]],
    ["#/services/a%2Fb", "services", ["a/b"]],
    ["#/services/%E2%98%83/", "services", ["☃"]],
    ["#/services/100%", "services", ["100%"]],
    ["#/services/a?b=c", "services", ["a"]],
  ])("the hash %s names a page and its parameters", (hash, page, segments) => {
    expect(parseHash(hash)).toEqual({ page, segments, returnTo: "#/" });
  });

  it.each([
    'a/b ?#%"',
    "<script>",
    "..",
    "100%",
    "%uD800",
    "\u2603 \ud83d\ude80",
    "half \ud83d of a pair",
    "\ude80 the other",
    "\ud800",
  ])("the hash of an address holds %j as it is", (name) => {
    expect(parseHash(hashFor("routes", name, name))).toMatchObject({ page: "routes", segments: [name, name] });
    expect(hashFor(name)).toMatch(/^#\/[!-~]+$/);
  });

  it.each([
    ["#/a", { x: "1" }, "#/a?x=1"],
    ["#/a?x=1&y=?", { x: "" }, "#/a?y=%3F"],
    ["#/a?x=1", { x: "" }, "#/a"],
    ["", { x: "a b" }, "?x=a+b"],
  ])("the hash %s with %j is %s", (hash, values, expected) => {
    expect(hashWith(hash, values)).toBe(expected);
  });

  it("the hash of an address leads from the login page back to the previous page", () => {
    const hash = loginHash("#/routes/shop/list%20all");
    expect(hash).toBe("#/login?back=%23%2Froutes%2Fshop%2Flist%2520all");
    expect(parseHash(hash)).toEqual({ page: "login", segments: [], returnTo: "#/routes/shop/list%20all" });
    expect(loginHash("")).toBe("#/login");
  });

  it.each([
    "https://evil.example",
    "//evil.example",
    "javascript:alert(1)",
    "#/login",
    "#/login?back=x",
    "#//login",
    "",
  ])("the hash of an address never leads back to %s", (back) => {
    expect(parseHash(`#/login?back=${encodeURIComponent(back)}`).returnTo).toBe("#/");
    expect(loginHash(back)).toBe("#/login");
  });
});

describe("the link of a warning", () => {
  const warning = (
    code: Warning["code"],
    service: string | null = null,
    route: string | null = null,
    path: string | null = null,
  ) => linkForWarning({ code, path, service, route })?.hash;

  it("the link of a warning leads to the page with the details", () => {
    expect(warning("reload_refused")).toBe("#/config");
    expect(warning("plugin_faults", "a/b", "c d")).toBe("#/routes/a%2Fb/c%20d");
    expect(warning("upstream_down", "shop")).toBe("#/services/shop");
    expect(warning("plugin_faults")).toBe("#/plugins");
    expect(warning("circuit_open")).toBe("#/upstreams");
    expect(warning("certificate_expires")).toBeUndefined();
    expect(warning("stale_acceptance")).toBe("#/config");
    expect(warning("token_for_anyone", null, null, "global.plugins.jwt")).toBe("#/plugins");
  });
});
