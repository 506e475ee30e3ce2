/** The plugin kind `oidc` in a whole gateway, before a made-up provider. */
import { describe, expect, it } from "vitest";
import { headerValue, headerValues } from "../../lib/http/headers.ts";
import { es256, provider } from "../plugins/oidc_provider.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { backend } from "./harness.ts";

/** A gateway whose service has the plugin, and a person who has logged in: the Cookie header of the session. */
async function loggedIn() {
  const [origin, at] = [await backend(), await provider()];
  const config = {
    issuer: at.issuer,
    client_id: "gw",
    client_secret: "s",
    session: { secret: "s3cr3t".repeat(8), cookie: "desk" },
    groups_claim: "groups",
    claims_to_headers: { email: "X-Email" },
  };
  const headers = { name: "request_headers", config: { set: { "X-Groups": "${caller.groups}" } } };
  const { port } = await running(
    oneService(
      origin.port,
      { plugins: [{ name: "oidc", config }, headers], routes: [{ path: "/{page*}" }] },
      { h2c: true },
    ),
  );
  const get = (path: string, cookie?: string) =>
    ask(port, { path, headers: { Accept: "text/html", ...(cookie !== undefined && { Cookie: cookie }) } });
  const begun = await get("/a/page?x=1");
  const sent = new URL(begun.headers.location!).searchParams;
  const now = Math.floor(Date.now() / 1000);
  const claims = {
    iss: at.issuer,
    aud: "gw",
    sub: "ada",
    iat: now,
    exp: now + 300,
    nonce: sent.get("nonce"),
    email: "ada@shop.example",
    groups: ["staff", "gold"],
  };
  at.behaviour.token = () => [200, { access_token: "a", id_token: es256(claims) }];
  const cookieOf = (lines: readonly string[] | undefined) =>
    lines!
      .filter((line) => !line.includes("Max-Age=0;"))
      .map((line) => line.split(";")[0]!)
      .join("; ");
  const back = await get(
    `/a/.oidc/callback?code=c0de&state=${sent.get("state")!}`,
    cookieOf(begun.headers["set-cookie"]),
  );
  expect([begun.status, back.status, back.headers.location]).toEqual([302, 303, "/a/page?x=1"]);
  return { origin, port, get, cookie: cookieOf(back.headers["set-cookie"]) };
}

describe("oidc", () => {
  it(
    "oidc admits a person with a session over HTTP/1.1 and HTTP/2, as the caller of the ID token, " +
      "and forwards no cookie of its own",
    async () => {
      const { origin, port, get, cookie } = await loggedIn();
      expect((await get("/a/page", `theme=dark; ${cookie}`)).status).toBe(200);
      const session = h2Session(port);
      expect(
        (
          await h2Ask(session, {
            path: "/a/page",
            headers: { accept: "text/html", cookie: `${cookie}; theme=dark`, "x-email": "root@shop.example" },
          })
        ).status,
      ).toBe(200);
      session.close();
      for (const { headers } of origin.seen) {
        expect([
          headerValues(headers, "x-email"),
          headerValue(headers, "x-groups"),
          headerValue(headers, "cookie"),
        ]).toEqual([["ada@shop.example"], "staff,gold", "theme=dark"]);
      }
      expect(origin.seen).toHaveLength(2);
    },
  );

  it(
    "oidc refuses what has no session: pages are led to the provider, other requests get 401, " +
      "and nothing reaches the upstream",
    async () => {
      const { origin, port, get, cookie } = await loggedIn();
      expect((await get("/a/page", `${cookie.slice(0, -1)}${cookie.endsWith("A") ? "B" : "A"}`)).status).toBe(302);
      const refused = await ask(port, {
        method: "POST",
        path: "/a/page",
        headers: { Accept: "application/json" },
        body: "x",
      });
      expect([refused.status, (JSON.parse(refused.body.toString()) as { code: string }).code]).toEqual([
        401,
        "session_required",
      ]);
      expect((await get("/a/.oidc/callback?code=c&state=s")).status).toBe(400);
      expect(origin.seen).toEqual([]);
    },
  );
});
