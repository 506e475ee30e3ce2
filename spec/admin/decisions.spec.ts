import { describe, expect, it } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import { basic, cookieOf, startAdmin } from "./harness.ts";

describe("GET /gateway/requests/{id}", () => {
  it("shows it to viewers as well, and nothing to others", async () => {
    const { gateway } = await running(oneService(9, {}, { trusted_proxies: ["127.0.0.1"] }));
    const viewer = { user: "viewer", password: "another long password" };
    const { ask, session, login } = await startAdmin({ gateway: gateway as never, viewer });
    const given = (
      await gateway.inject({ url: "/a/x", headers: { Host: "shop.example" }, clientIp: "203.0.113.9" })
    ).header("x-request-id")!;
    const cookie = await session();
    const shown = await ask("GET", `/gateway/requests/${encodeURIComponent(given)}`, { headers: { cookie } });
    expect(shown).toMatchObject({
      status: 200,
      json: { id: given, host: "shop.example", path: "/a/x", status: 502, by: "gateway" },
    });
    expect((await ask("GET", `/gateway/requests/${given}`)).status).toBe(401);
    const asViewer = await login(basic(viewer.user, viewer.password));
    expect((await ask("GET", `/gateway/requests/${given}`, { headers: { cookie: cookieOf(asViewer) } })).json).toEqual(
      shown.json,
    );
    expect((await ask("POST", `/gateway/requests/${given}`, { headers: { cookie } })).status).toBe(405);
    for (const wrong of [
      "",
      "unknown",
      "%",
      "%zz",
      "%00",
      "..%2f..%2fx",
      "a".repeat(129),
      "%F0%9F%98%80",
      "__proto__",
      `${given}/`,
      `${given}%0a`,
      "a".repeat(4_000),
    ]) {
      expect(await ask("GET", `/gateway/requests/${wrong}`, { headers: { cookie } }), wrong).toMatchObject({
        status: 404,
        json: { code: "route_not_found", id: expect.any(String) },
      });
    }
    expect((await ask("GET", "/gateway/requests/a%2Fb", { headers: { cookie } })).json.id).toBe("a/b");
  });
});
