import { createHash, createHmac, generateKeyPairSync } from "node:crypto";
import { describe, expect, it } from "vitest";
import { ClientFailure } from "../../lib/client/client.ts";
import { headerValue, headerValues } from "../../lib/http/headers.ts";
import { oidc } from "../../lib/plugins/oidc.ts";
import { gate } from "../journeys/harness.ts";
import { checked } from "../support/exercise.ts";
import {
  accepts,
  browser,
  claimsFor,
  es256,
  gatewayAt,
  HOST,
  KEY,
  logIn,
  NOW,
  provider,
  SECRET,
  sentTo,
  tools,
  wayBack,
  type Asked,
} from "./oidc_provider.ts";

const SESSION = "__Host-session";
const setCookies = ({ reply }: Asked) => headerValues(reply.headers, "set-cookie");

describe("the way to the provider", () => {
  it("leads a page to the provider with PKCE, state and nonce, and binds them to the browser", async () => {
    const at = await provider();
    const { ask } = gatewayAt(at, { scopes: ["openid", "email"] });
    const asked = await ask("/a/page?x=1");
    expect(asked.status).toBe(302);
    expect(asked.location!.startsWith(`${at.issuer}/authorize?tenant=1&`)).toBe(true);
    const sent = Object.fromEntries(sentTo(asked));
    expect(sent).toMatchObject({
      response_type: "code",
      client_id: "gw",
      redirect_uri: `https://${HOST}/a/.oidc/callback`,
      scope: "openid email",
      code_challenge_method: "S256",
    });
    expect([sent["state"]!.length, sent["nonce"]!.length, sent["code_challenge"]!.length]).toEqual([22, 22, 43]);
    const [cookie] = setCookies(asked);
    expect(cookie).toMatch(
      new RegExp(
        `^${SESSION}\\.${sent["state"]!.slice(0, 8)}=[\\w-]+; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure$`,
      ),
    );
    expect(cookie).not.toContain("page");
    expect([headerValue(asked.reply.headers, "cache-control"), headerValue(asked.reply.headers, "vary")]).toEqual([
      "no-store",
      "Cookie, Accept",
    ]);
    const again = sentTo(await ask("/a/page?x=1"));
    for (const name of ["state", "nonce", "code_challenge"]) expect(again.get(name)).not.toBe(sent[name]);
  });

  it.each<[string, Parameters<ReturnType<typeof gatewayAt>["ask"]>[1]]>([
    ["JSON", { accept: "application/json" }],
    ["anything", { accept: "*/*" }],
    ["no page", { accept: "text/html;q=0, */*" }],
    ["something like a page", { accept: "text/html5, application/xhtml+xml" }],
    ["a page by a script", { headers: ["Sec-Fetch-Mode", "cors"] }],
    ["a WebSocket", { upgrade: "websocket" }],
  ])("answers 401 session_required to a request for %s, and begins no login", async (_title, parts) => {
    const at = await provider();
    const asked = await gatewayAt(at).ask("/a/page", parts);
    expect([asked.status, asked.code, setCookies(asked), headerValue(asked.reply.headers, "www-authenticate")]).toEqual(
      [401, "session_required", [], 'OpenIDConnect realm="edge-gateway"'],
    );
    expect(headerValue(asked.reply.headers, "content-type")).toBe("application/problem+json");
  });

  it("leaves no more than five logins of a browser under way: the oldest are removed", async () => {
    const at = await provider();
    const gateway = gatewayAt(at);
    const own = browser(gateway);
    const begun = [];
    for (let i = 0; i < 8; i++) begun.push(await own.open("/a/page"));
    expect(own.cookies.size).toBe(5);
    accepts(at, begun[7]!);
    expect((await own.open(wayBack(begun[7]!))).status).toBe(303);
    accepts(at, begun[0]!);
    expect((await own.open(wayBack(begun[0]!))).code).toBe("login_failed");
  });

  it.each([
    ["http", HOST, SESSION, "Use HTTPS: sessions are not sent in the clear."],
    ["http", HOST, "session", "Use HTTPS: sessions are not sent in the clear."],
    ["http", "127.0.0.1:8008", SESSION, "give it a name without underscores in front"],
    ["http", "localhost.evil.example", "session", "Use HTTPS"],
    ["https", "", SESSION, "Send a Host header"],
  ] as const)(
    "begins no login that could not end: over %s at %j with the cookie %s",
    async (scheme, authority, cookie, said) => {
      const asked = await gatewayAt(await provider(), { session: { secret: SECRET, cookie } }).ask("/a/page", {
        scheme,
        authority,
      });
      expect([asked.status, asked.code]).toEqual([400, "bad_request"]);
      expect(asked.body).toContain(said);
    },
  );

  it.each(["127.0.0.1:8008", "localhost", "[::1]:80"])(
    "works over plain HTTP on this machine (%s) with a cookie of another name, which is not Secure",
    async (authority) => {
      const asked = await gatewayAt(await provider(), { session: { secret: SECRET, cookie: "session" } }).ask(
        "/a/page",
        { scheme: "http", authority },
      );
      expect(sentTo(asked).get("redirect_uri")).toBe(`http://${authority}/a/.oidc/callback`);
      expect(setCookies(asked)[0]).not.toContain("Secure");
    },
  );
});

describe("the way back", () => {
  it("exchanges the code with the verifier, and returns to the page that was asked for with a session", async () => {
    const at = await provider();
    const gateway = gatewayAt(at);
    const own = browser(gateway);
    const begun = await own.open("/a/page?x=1&y=%20");
    accepts(at, begun);
    const back = await own.open(wayBack(begun, { iss: at.issuer }));
    expect([back.status, back.location]).toEqual([303, "/a/page?x=1&y=%20"]);
    const [{ form, authorization } = { form: new URLSearchParams(), authorization: "" }] = at.asked;
    expect(Object.fromEntries(form)).toEqual({
      grant_type: "authorization_code",
      code: "c0de",
      redirect_uri: `https://${HOST}/a/.oidc/callback`,
      code_verifier: expect.any(String) as unknown,
    });
    expect(createHash("sha256").update(form.get("code_verifier")!).digest("base64url")).toBe(
      sentTo(begun).get("code_challenge"),
    );
    expect(authorization).toBe(`Basic ${Buffer.from("gw:hunter2").toString("base64")}`);
    expect([...own.cookies.keys()]).toEqual([SESSION]);
    expect(setCookies(back)[1]).toMatch(/; Path=\/; Max-Age=28800; HttpOnly; SameSite=Lax; Secure$/);
    expect(JSON.stringify(back.reply.headers)).not.toMatch(/ada|c0de/);
    const page = await own.open("/a/page");
    expect([
      page.status,
      page.forwarded!.identity,
      page.forwarded!.claims!["sub"],
      headerValue(page.forwarded!.headers, "cookie"),
    ]).toEqual([200, "ada", "ada", undefined]);
  });

  it("sends the secret in the form where the provider takes it there only", async () => {
    const at = await provider();
    at.behaviour.metadata = { token_endpoint_auth_methods_supported: ["client_secret_post"] };
    expect((await logIn(at, browser(gatewayAt(at)))).status).toBe(303);
    expect([at.asked[0]!.form.get("client_secret"), at.asked[0]!.authorization]).toEqual(["hunter2", undefined]);
  });

  it("completes the logins of several tabs, each at its own page", async () => {
    const at = await provider();
    const own = browser(gatewayAt(at));
    const [first, second] = [await own.open("/a/one"), await own.open("/a/two")];
    accepts(at, second);
    expect((await own.open(wayBack(second))).location).toBe("/a/two");
    accepts(at, first);
    expect((await own.open(wayBack(first))).location).toBe("/a/one");
    expect([...own.cookies.keys()]).toEqual([SESSION]);
  });

  it(
    "refuses an answer that is used again, also with another code or a copy of its cookie: " +
      "the provider gets one request",
    async () => {
      const at = await provider();
      const gateway = gatewayAt(at);
      const own = browser(gateway);
      const begun = await own.open("/a/page");
      accepts(at, begun);
      const copied = browser(gateway, new Map(own.cookies));
      await own.open(wayBack(begun));
      for (const { cookies } of [own, copied]) {
        for (const url of [wayBack(begun), wayBack(begun, { code: "other" })]) {
          expect(await browser(gateway, new Map(cookies)).open(url)).toMatchObject({
            status: 400,
            code: "login_failed",
            fault: "oidc: state",
          });
        }
      }
      expect(at.asked).toHaveLength(1);
    },
  );

  it("refuses the state of another browser, of another gateway, and made-up ones: the code stays unused", async () => {
    const at = await provider();
    const gateway = gatewayAt(at);
    const [victim, attacker] = [browser(gateway), browser(gateway)];
    const begun = await attacker.open("/a/page");
    accepts(at, begun);
    expect(await victim.open(wayBack(begun))).toMatchObject({ code: "login_failed", fault: "oidc: state" });
    // The cookie of the attacker's login under the name of the victim's.
    const own = await victim.open("/a/page");
    const nameOf = (asked: Asked) => `${SESSION}.${sentTo(asked).get("state")!.slice(0, 8)}`;
    const mixed = browser(gateway, new Map([[nameOf(own), attacker.cookies.get(nameOf(begun))!]]));
    expect((await mixed.open(wayBack(own))).fault).toBe("oidc: state");
    const elsewhere = browser(gatewayAt(at, { session: { secret: `${SECRET}!` } }), attacker.cookies);
    expect((await elsewhere.open(wayBack(begun))).fault).toBe("oidc: state");
    for (const state of ["", "x", "../../../../../../../..", "%00".repeat(22), "a".repeat(22), "é".repeat(22)]) {
      expect((await victim.open(`/a/.oidc/callback?code=c&state=${state}`)).fault, state).toBe("oidc: state");
    }
    expect((await victim.open("/a/.oidc/callback")).fault).toBe("oidc: state");
    expect(at.asked).toEqual([]);
  });

  it("refuses the cookie of a session in the place of that of a login, and the other way round", async () => {
    const at = await provider();
    const gateway = gatewayAt(at);
    const own = browser(gateway);
    const begun = await own.open("/a/page");
    const [[, login] = ["", ""]] = [...own.cookies];
    accepts(at, begun);
    await own.open(wayBack(begun));
    const session = own.cookies.get(SESSION)!.slice(2);
    const state = "a".repeat(22);
    expect(
      (
        await browser(gateway, new Map([[`${SESSION}.${state.slice(0, 8)}`, session]])).open(
          `/a/.oidc/callback?code=c&state=${state}`,
        )
      ).fault,
    ).toBe("oidc: state");
    expect((await browser(gateway, new Map([[SESSION, `1~${login}`]])).open("/a/page")).status).toBe(302);
  });

  it("refuses a login that took more than ten minutes", async () => {
    const at = await provider();
    const gateway = gatewayAt(at);
    const own = browser(gateway);
    const begun = await own.open("/a/page");
    accepts(at, begun);
    gateway.tools.clock.advance(600_000);
    expect(await own.open(wayBack(begun))).toMatchObject({ code: "login_failed", fault: "oidc: late" });
  });

  it.each<[string, Record<string, string> | string, object, string]>([
    ["of another provider (RFC 9207)", { iss: "https://evil.example" }, {}, "oidc: iss"],
    [
      "without iss of a provider that always sends it",
      {},
      { authorization_response_iss_parameter_supported: true },
      "oidc: iss",
    ],
    ["with an error", { error: "access_denied" }, {}, "oidc: the provider says access_denied"],
    ["with an error that is no code", { error: "<script>\n" }, {}, "oidc: error"],
    ["without a code", { code: "" }, {}, "oidc: no code"],
    ["with two codes", "&code=other", {}, "oidc: ambiguous"],
    ["with two states", "&state=other", {}, "oidc: ambiguous"],
    ["with two issuers", "&iss=a&iss=b", {}, "oidc: ambiguous"],
  ])("refuses an answer %s", async (_title, more, metadata, fault) => {
    const at = await provider();
    at.behaviour.metadata = metadata;
    const own = browser(gatewayAt(at));
    const begun = await own.open("/a/page");
    accepts(at, begun);
    const answer = await own.open(typeof more === "string" ? wayBack(begun) + more : wayBack(begun, more));
    expect(answer).toMatchObject({ status: 400, code: "login_failed", fault });
    expect(answer.body).not.toContain("<script>");
    expect([at.asked.length, own.cookies.size]).toEqual([0, 0]);
    expect(answer.body).toContain('<a href="/a/page">Log in again</a>');
  });

  it("accepts GET alone", async () => {
    const { ask } = gatewayAt(await provider());
    expect(await ask("/a/.oidc/callback?code=c&state=s", { method: "POST" })).toMatchObject({
      status: 405,
      code: "method_not_allowed",
    });
  });

  it.each<[string, number, object | string, number, string, RegExp]>([
    [
      "refuses the code",
      400,
      { error: "invalid_grant", error_description: "used" },
      400,
      "login_failed",
      /answered with status 400 and "invalid_grant"$/,
    ],
    [
      "refuses the gateway's secret",
      401,
      { error: "invalid_client" },
      503,
      "auth_unavailable",
      /answered with status 401 and "invalid_client"$/,
    ],
    ["fails", 500, "<html>", 503, "auth_unavailable", /its answer with status 500 is no JSON object$/],
    ["sends a list", 200, [], 503, "auth_unavailable", /is no JSON object$/],
    ["sends no ID token", 200, { access_token: "a" }, 400, "login_failed", /^oidc: no ID token$/],
    ["sends an ID token that is no text", 200, { id_token: {} }, 400, "login_failed", /^oidc: no ID token$/],
    ["sends an ID token that is none", 200, { id_token: "a.b" }, 400, "login_failed", /^oidc: ID token: malformed$/],
  ])("answers when the token endpoint %s", async (_title, status, body, expected, code, fault) => {
    const at = await provider();
    const own = browser(gatewayAt(at));
    const begun = await own.open("/a/page");
    at.behaviour.token = () => [status, body];
    const answer = await own.open(wayBack(begun));
    expect([answer.status, answer.code, answer.fault]).toEqual([expected, code, expect.stringMatching(fault)]);
    expect([...own.cookies.keys()]).toEqual([]);
    expect(answer.body).not.toMatch(/invalid_|hunter2|status/);
  });
});

describe("the page that is returned to", () => {
  it.each([
    ["//evil.example/x", "/evil.example/x"],
    ["/\\evil.example", "/%5Cevil.example"],
    ["///evil.example", "/evil.example"],
    ["/a/b?to=https://evil.example", "/a/b?to=https://evil.example"],
    ["/a\r\nSet-Cookie: x=y", "/a%0D%0ASet-Cookie:%20x=y"],
    [`/a?${"x".repeat(1_500)}`, "/a"],
    [`/${"x".repeat(1_500)}`, "/"],
  ])("is one of this gateway: %j", async (url, location) => {
    const at = await provider();
    const own = browser(gatewayAt(at));
    const begun = await own.open(url);
    accepts(at, begun);
    expect((await own.open(wayBack(begun))).location).toBe(location);
  });

  it("is not chosen by the answer of the provider", async () => {
    const at = await provider();
    const own = browser(gatewayAt(at));
    const begun = await own.open("/a/page");
    accepts(at, begun);
    expect(
      (
        await own.open(
          wayBack(begun, {
            to: "https://evil.example",
            return_to: "//evil.example",
            redirect_uri: "https://evil.example",
          }),
        )
      ).location,
    ).toBe("/a/page");
  });
});

describe("an ID token", () => {
  const other = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const encoded = (part: object) => Buffer.from(JSON.stringify(part)).toString("base64url");
  const hmac = (claims: object, secret: string) => {
    const signed = `${encoded({ alg: "HS256" })}.${encoded(claims)}`;
    return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
  };

  it.each<[string, object, string | null]>([
    ["of another issuer", { iss: "https://evil.example" }, "issuer"],
    ["of an issuer with a slash more", { iss: "ISSUER/" }, "issuer"],
    ["for another client", { aud: "other" }, "audience"],
    ["for no client", { aud: undefined }, "audience"],
    ["for clients of similar names", { aud: ["gw2", "g"] }, "audience"],
    ["for several clients without azp", { aud: ["gw", "other"] }, "authorized party"],
    ["for several clients with azp", { aud: ["gw", "other"], azp: "gw" }, null],
    ["given to another client", { azp: "other" }, "authorized party"],
    ["that has expired, beyond the leeway", { exp: NOW - 60 }, "expired"],
    ["that has expired within the leeway", { exp: NOW - 59 }, null],
    ["without exp", { exp: undefined }, "malformed"],
    ["with exp as a text", { exp: String(NOW + 60) }, "malformed"],
    ["of the future, beyond the leeway", { iat: NOW + 61 }, "early"],
    ["of the future within the leeway", { iat: NOW + 60 }, null],
    ["without iat", { iat: undefined }, "malformed"],
    ["that is not valid yet", { nbf: NOW + 61 }, "early"],
    ["with the nonce of another login", { nonce: "other" }, "nonce"],
    ["without a nonce", { nonce: undefined }, "nonce"],
    ["without a subject", { sub: undefined }, "subject"],
    ["with an empty subject", { sub: "" }, "subject"],
    ["with a number as the subject", { sub: 7 }, "subject"],
  ])("%s is judged by OpenID Connect Core §3.1.3.7", async (_title, changes, why) => {
    const at = await provider();
    const own = browser(gatewayAt(at));
    const fixed = JSON.parse(JSON.stringify(changes).replace("ISSUER", at.issuer)) as object;
    const undefineds = Object.fromEntries(Object.entries(changes).filter(([, value]) => value === undefined));
    const answer = await logIn(at, own, {}, { ...fixed, ...undefineds });
    expect([answer.status, answer.fault]).toEqual(why === null ? [303, null] : [400, `oidc: ID token: ${why}`]);
    expect(own.cookies.has(SESSION)).toBe(why === null);
  });

  it.each<[string, (claims: object) => string, string]>([
    ["signed by nobody", (claims) => `${encoded({ alg: "none" })}.${encoded(claims)}.`, "algorithm"],
    ["with the client's secret", (claims) => hmac(claims, "hunter2"), "algorithm"],
    [
      "with the provider's public key as a secret",
      (claims) => hmac(claims, String(KEY.publicKey.export({ type: "spki", format: "pem" }))),
      "algorithm",
    ],
    ["with another key under the same kid", (claims) => es256(claims, {}, other.privateKey), "signature"],
    [
      "with a key of its own",
      (claims) => es256(claims, { kid: "k2", jwk: other.publicKey.export({ format: "jwk" }) }, other.privateKey),
      "unknown key",
    ],
    [
      "with a key under a URL of its own",
      (claims) => es256(claims, { kid: "k2", jku: "https://evil.example/jwks" }, other.privateKey),
      "unknown key",
    ],
    ["as an access token", (claims) => es256(claims, { typ: "at+jwt" }), "type"],
    ["with crit", (claims) => es256(claims, { crit: ["exp"] }), "critical"],
    [
      "with another algorithm than its key has",
      (claims) => es256(claims, { alg: "RS256" }, rsa.privateKey).replace(/\.[^.]+$/, ".AAAA"),
      "unknown key",
    ],
    [
      "with the signature of another token",
      (claims) => `${es256({ ...claims, sub: "root" }).replace(/\.[^.]+$/, "")}.${es256(claims).split(".")[2]!}`,
      "signature",
    ],
    ["that is too long", (claims) => es256({ ...claims, x: "x".repeat(16 * 1024) }), "malformed"],
  ])("signed %s is refused", async (_title, forge, why) => {
    const at = await provider();
    const own = browser(gatewayAt(at));
    const begun = await own.open("/a/page");
    at.behaviour.token = () => {
      try {
        return [200, { id_token: forge(claimsFor(at.issuer, sentTo(begun).get("nonce"))) }];
      } catch {
        return [200, { id_token: "broken" }];
      }
    };
    const { status, fault } = await own.open(wayBack(begun));
    expect([status, fault]).toEqual([400, `oidc: ID token: ${why}`]);
    expect(own.cookies.size).toBe(0);
  });
});

describe("a session", () => {
  it("sends claims to the upstream, and none of the client's own headers and cookies of these names", async () => {
    const at = await provider();
    const gateway = gatewayAt(at, { claims_to_headers: { email: "X-Email", name: "X-Name" } });
    const own = browser(gateway);
    await logIn(at, own, {}, { email: "ada@shop.example" });
    own.cookies.set(`${SESSION}.1`, "old").set(`${SESSION}s`, "kept").set("theme", "dark");
    const { forwarded } = await own.open("/a/page", {
      headers: ["X-Email", "root@shop.example", "X_Email", "root", "X-Name", "root"],
    });
    expect(headerValues(forwarded!.headers, "x-email")).toEqual(["ada@shop.example"]);
    expect(JSON.stringify(forwarded!.headers)).not.toContain("root");
    expect(headerValues(forwarded!.headers, "cookie")).toEqual([`${SESSION}s=kept; theme=dark`]);
    expect(oidc.ownHeaders!({ claimsToHeaders: { email: "X-Email" } } as never)).toEqual(["X-Email"]);
  });

  it("whose claims are not those required gets 403, and no login again", async () => {
    const at = await provider();
    const own = browser(gatewayAt(at, { claims: { role: "admin" } }));
    await logIn(at, own, {}, { role: "user" });
    expect(await own.open("/a/page")).toMatchObject({
      status: 403,
      code: "forbidden",
      fault: "oidc: claims",
      forwarded: null,
    });
  });

  it("lasts ttl_s, counted from the login", async () => {
    const at = await provider();
    const gateway = gatewayAt(at, { session: { secret: SECRET, ttl_s: 3600 } });
    const own = browser(gateway);
    await logIn(at, own);
    gateway.tools.clock.advance(3_599_000);
    expect((await own.open("/a/page")).status).toBe(200);
    gateway.tools.clock.advance(1_000);
    expect((await own.open("/a/page")).status).toBe(302);
    expect((await own.open("/a/page", { headers: ["Sec-Fetch-Mode", "cors"] })).body).toContain(
      "The session has ended.",
    );
  });

  it(
    "that has ended loses no form: the POST gets 401 with a page that says so, " + "and a link to the page of the form",
    async () => {
      const at = await provider();
      const own = browser(gatewayAt(at));
      const headers = ["Referer", `https://${HOST}/a/form?id="7"`, "Sec-Fetch-Mode", "navigate"];
      const answer = await own.open("/a/save", { method: "POST", headers });
      expect([answer.status, answer.code, headerValue(answer.reply.headers, "content-type"), answer.forwarded]).toEqual(
        [401, "session_required", "text/html; charset=utf-8", null],
      );
      expect(answer.body).toContain("This POST was not carried out, and nothing was changed.");
      expect(answer.body).toContain('<a href="/a/form?id=%227%22" target="_blank" rel="noopener">Log in</a>');
      expect(setCookies(answer)).toEqual([]);
      const foreign = await own.open("/a/save", {
        method: "POST",
        headers: ["Referer", `https://${HOST}.evil.example/`],
      });
      expect(foreign.body).toContain('<a href="/a/save"');
      expect((await own.open("/a/save", { method: "POST", headers: ["Sec-Fetch-Mode", "cors"] })).body).toContain(
        '"code":"session_required"',
      );
    },
  );

  it("of another secret, issuer, client or name is none, nor is one with a bit changed", async () => {
    const at = await provider();
    const gateway = gatewayAt(at);
    const own = browser(gateway);
    await logIn(at, own);
    const text = own.cookies.get(SESSION)!;
    const opens = async (to: Pick<typeof gateway, "ask">, value: string, name = SESSION) =>
      (await browser(to, new Map([[name, value]])).open("/a/page")).status;
    expect(await opens(gateway, text)).toBe(200);
    // Another instance with the same settings, such as another gateway behind the same load balancer.
    expect(await opens(gatewayAt(at), text)).toBe(200);
    for (const config of [{ session: { secret: `${SECRET}.` } }, { client_id: "other" }, { issuer: `${at.issuer}/` }]) {
      at.behaviour.metadata = { issuer: (config as { issuer?: string }).issuer ?? at.issuer };
      expect(await opens(gatewayAt(at, config), text), JSON.stringify(config)).toBe(302);
    }
    at.behaviour.metadata = {};
    expect(
      await opens(gatewayAt(at, { session: { secret: SECRET, cookie: "__Host-other" } }), text, "__Host-other"),
    ).toBe(302);
    for (let i = 2; i < text.length; i += 31) {
      const changed = text.slice(0, i) + (text[i] === "A" ? "B" : "A") + text.slice(i + 1);
      expect(await opens(gateway, changed), `character ${i}`).toBe(302);
    }
    for (const value of [
      "",
      "1~",
      "1~A",
      "4~AAAA",
      "0~AAAA",
      `2~${text.slice(2)}`,
      text.slice(2),
      text.slice(0, -4),
      `1~${"A".repeat(20_000)}`,
      '"',
      "=",
      `${text}=`,
    ]) {
      // Two parts of which the second is missing are the whole text here.
      expect(await opens(gateway, value), value.slice(0, 20)).toBe(value === `2~${text.slice(2)}` ? 200 : 302);
    }
  });

  it(
    "that is too long for one cookie is split, and one that is too long for three " + "is refused with the reason",
    async () => {
      const at = await provider();
      const gateway = gatewayAt(at);
      const own = browser(gateway);
      await logIn(at, own, {}, { groups: Array.from({ length: 300 }, (_, i) => `group-${i}`) });
      expect([...own.cookies.keys()]).toEqual([SESSION, `${SESSION}.1`]);
      for (const [name, value] of own.cookies) expect(name.length + value.length).toBeLessThan(4_000);
      const { forwarded } = await own.open("/a/page");
      expect([(forwarded!.claims!["groups"] as string[]).length, headerValue(forwarded!.headers, "cookie")]).toEqual([
        300,
        undefined,
      ]);
      own.cookies.delete(`${SESSION}.1`);
      expect((await own.open("/a/page")).status).toBe(302);

      const other = browser(gatewayAt(at));
      const answer = await logIn(at, other, {}, { groups: Array.from({ length: 700 }, (_, i) => `group-${i}`) });
      expect([answer.status, answer.code, answer.fault]).toEqual([
        400,
        "login_failed",
        "oidc: tokens too long for cookies",
      ]);
      expect(answer.body).toContain("Ask for fewer claims or scopes.");
    },
  );

  it("keeps replies out of shared caches, and its own cookies out of all", async () => {
    const at = await provider();
    const gateway = gatewayAt(at);
    const own = browser(gateway);
    await logIn(at, own);
    const kept = async (headers: string[]) => {
      gateway.answersWith({ status: 200, headers, body: null });
      const { reply } = await own.open("/a/page");
      return [headerValues(reply.headers, "cache-control").join("|"), headerValues(reply.headers, "vary").join("|")];
    };
    expect(await kept([])).toEqual(["private", "Cookie"]);
    expect(await kept(["Cache-Control", "public, max-age=5", "Vary", "Accept"])).toEqual([
      "public, max-age=5",
      "Accept, Cookie",
    ]);
    expect(await kept(["Vary", "*"])).toEqual(["private", "*"]);
    expect(await kept(["Vary", "cookie"])).toEqual(["private", "cookie"]);
  });

  it("stands for the claims of as.jwt in tests of a configuration", async () => {
    const at = await provider();
    const { ask } = gatewayAt(
      at,
      { claims: { role: "admin" } },
      tools({ verifiedClaims: { sub: "ada", role: "admin" } }),
    );
    expect((await ask("/a/page")).forwarded).toMatchObject({ identity: "ada", claims: { role: "admin" } });
    expect(at.paths).toEqual([]);
  });
});

describe("a refresh", () => {
  const LIFE = { refresh_token: "r1", expires_in: 300 };

  /** Logged in with an access token that is about to end. */
  async function nearlyOver(config: object = {}, own = tools()) {
    const at = await provider();
    const gateway = gatewayAt(at, config, own);
    const person = browser(gateway);
    const begun = await person.open("/a/page");
    accepts(at, begun, LIFE);
    await person.open(wayBack(begun));
    at.asked.length = 0;
    const answers = (body: object, status = 200) => (at.behaviour.token = () => [status, body]);
    answers({ access_token: "b", ...LIFE, refresh_token: "r2" });
    gateway.tools.clock.advance(239_000);
    expect((await person.open("/a/page")).status).toBe(200);
    expect(at.asked).toEqual([]);
    gateway.tools.clock.advance(2_000);
    return { at, gateway, person, begun, answers, old: new Map(person.cookies) };
  }

  it(
    "comes a minute before the end of the access token, " +
      "and gives the browser a new cookie for the rest of the session",
    async () => {
      const { at, person, gateway } = await nearlyOver();
      const before = person.cookies.get(SESSION);
      const page = await person.open("/a/page");
      expect([page.status, page.forwarded!.identity]).toEqual([200, "ada"]);
      expect(at.asked.map(({ form }) => Object.fromEntries(form))).toEqual([
        { grant_type: "refresh_token", refresh_token: "r1" },
      ]);
      expect(person.cookies.get(SESSION)).not.toBe(before);
      expect([setCookies(page)[0], headerValue(page.reply.headers, "cache-control")]).toEqual([
        expect.stringContaining("; Max-Age=28559;"),
        "no-store",
      ]);
      await person.open("/a/page");
      expect(at.asked).toHaveLength(1);
      gateway.tools.clock.advance(250_000);
      await person.open("/a/page");
      expect(at.asked[1]!.form.get("refresh_token")).toBe("r2");
    },
  );

  it("is one for all requests that arrive together, and those with the old cookie get its outcome later", async () => {
    const { at, gateway, old } = await nearlyOver();
    const held = gate();
    at.behaviour.token = async () => {
      await held.opened;
      return [200, { ...LIFE, refresh_token: "r2" }];
    };
    const all = Array.from({ length: 10 }, () => browser(gateway, new Map(old)).open("/a/page"));
    held.open();
    const answers = await Promise.all(all);
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 10 }, () => 200));
    expect(new Set(answers.map((answer) => setCookies(answer)[0])).size).toBe(1);
    const late = browser(gateway, new Map(old));
    expect((await late.open("/a/page")).status).toBe(200);
    expect(at.asked).toHaveLength(1);
    gateway.tools.clock.advance(250_000);
    at.behaviour.token = () => [200, { ...LIFE, refresh_token: "r3" }];
    expect((await browser(gateway, new Map(old)).open("/a/page")).status).toBe(200);
    expect(at.asked.map(({ form }) => form.get("refresh_token"))).toEqual(["r1", "r2"]);
  });

  it("is one for all instances with the same session, each of which judges the claims by itself", async () => {
    const kept = new Map<string, unknown>();
    const common: Partial<Parameters<typeof tools>[0]> = {
      common: <T>(name: string, make: () => T) => (kept.has(name) || kept.set(name, make()), kept.get(name) as T),
    };
    const { at, gateway, old } = await nearlyOver({}, tools(common));
    const second = gatewayAt(at, { claims: { role: "root" } }, tools({ ...common, clock: gateway.tools.clock }));
    const held = gate();
    at.behaviour.token = async () => {
      await held.opened;
      return [200, { ...LIFE, refresh_token: "r2" }];
    };
    const asked = [gateway, second].map((each) => browser(each, new Map(old)).open("/a/page"));
    held.open();
    const [one, other] = await Promise.all(asked);
    expect([one!.status, other!.status, at.asked.length]).toEqual([200, 403, 1]);
    expect(setCookies(other!)).toEqual(setCookies(one!));
  });

  it("is one for all workers of the program: another one goes on with the old session for a minute", async () => {
    const memory = new Map<string, SharedArrayBuffer>();
    const shared: Partial<Parameters<typeof tools>[0]> = {
      shared: (name, bytes) => memory.get(name) ?? (memory.set(name, new SharedArrayBuffer(bytes)), memory.get(name)!),
    };
    const { at, person, gateway, old } = await nearlyOver({}, tools(shared));
    await person.open("/a/page");
    const worker = tools({ ...shared, clock: gateway.tools.clock });
    const second = browser(gatewayAt(at, {}, worker), new Map(old));
    const answer = await second.open("/a/page");
    expect([answer.status, setCookies(answer), at.asked.length]).toEqual([200, [], 1]);
    gateway.tools.clock.advance(61_000);
    at.behaviour.token = () => [400, { error: "invalid_grant" }];
    expect((await second.open("/a/page")).status).toBe(302);
    expect(at.asked).toHaveLength(2);
  });

  it(
    "comes again and again where the refresh token stays the same, " + "also for a browser that keeps its first cookie",
    async () => {
      const { at, person, gateway, answers, old } = await nearlyOver();
      answers({ access_token: "b", expires_in: 300 });
      for (let i = 1; i <= 4; i++) {
        expect((await person.open("/a/page")).status).toBe(200);
        expect((await browser(gateway, new Map(old)).open("/a/page")).status).toBe(200);
        expect(at.asked.map(({ form }) => form.get("refresh_token"))).toEqual(Array.from({ length: i }, () => "r1"));
        gateway.tools.clock.advance(250_000);
      }
    },
  );

  it("that the provider refuses ends the session, and is not asked for again", async () => {
    const { at, person, answers } = await nearlyOver();
    answers({ error: "invalid_grant" }, 400);
    expect(await person.open("/a/page", { headers: ["Sec-Fetch-Mode", "cors"] })).toMatchObject({
      status: 401,
      code: "session_required",
      fault: "oidc: ended",
      forwarded: null,
    });
    expect((await person.open("/a/page")).status).toBe(302);
    expect(at.asked).toHaveLength(1);
  });

  it(
    "that cannot be asked for changes nothing until the access token ends; " + "then requests get 503 until it can",
    async () => {
      const { at, person, gateway, answers } = await nearlyOver();
      at.behaviour.isDown = true;
      expect((await person.open("/a/page")).status).toBe(200);
      gateway.tools.clock.advance(60_000);
      expect(await person.open("/a/page")).toMatchObject({ status: 503, code: "auth_unavailable", forwarded: null });
      at.behaviour.isDown = false;
      answers(LIFE);
      gateway.tools.clock.advance(4_000);
      expect((await person.open("/a/page")).status).toBe(200);
    },
  );

  it.each([401, 429, 500, 503])(
    "that is answered with %i is tried less and less often, and each try is logged once",
    async (status) => {
      const { at, person, gateway, answers, old } = await nearlyOver();
      answers({ error: "server_error" }, status);
      gateway.tools.lines.length = 0;
      for (const pauseMs of [2_000, 4_000, 8_000]) {
        const all = Array.from({ length: 3 }, () => browser(gateway, new Map(old)).open("/a/page"));
        expect((await Promise.all(all)).map((each) => each.status)).toEqual([200, 200, 200]);
        gateway.tools.clock.advance(pauseMs - 1);
        expect((await person.open("/a/page")).status).toBe(200);
        gateway.tools.clock.advance(1);
      }
      expect(at.asked).toHaveLength(3);
      answers(LIFE);
      expect((await person.open("/a/page")).status).toBe(200);
      expect(at.asked).toHaveLength(4);
      expect(gateway.tools.lines.map(({ level, message, fields }) => [level, message, fields!["error"]])).toEqual([
        ...Array.from({ length: 3 }, () => [
          "warn",
          "oidc gets no tokens from its provider",
          `its token endpoint answered with status ${status} and "server_error"`,
        ]),
        ["info", "oidc has tokens from its provider again", undefined],
      ]);
    },
  );

  it("for a code that is refused with 401 keeps nobody else from logging in", async () => {
    const { at, person, gateway, old } = await nearlyOver();
    const other = browser(gateway, new Map());
    const begun = await other.open("/a/page");
    at.behaviour.token = () => [401, { error: "invalid_grant" }];
    expect((await other.open(wayBack(begun))).status).toBe(400);
    at.asked.length = 0;
    await browser(gateway, new Map(old)).open("/a/page");
    expect([at.asked.length, (await person.open("/a/page")).status]).toEqual([1, 302]);
  });

  it.each<[string, number, object | string]>([
    ["refused for what is in it", 400, { error: "invalid_request" }],
    ["refused by a server in front, with a page", 403, "<html>"],
  ])("that is %s keeps nobody else from logging in", async (_how, status, answer) => {
    const { at, person, gateway } = await nearlyOver();
    at.behaviour.token = () => [status, answer];
    gateway.tools.lines.length = 0;
    for (let i = 1; i <= 2; i++) {
      expect((await person.open("/a/page")).status).toBe(200);
      expect(at.asked).toHaveLength(i);
    }
    expect(gateway.tools.lines).toEqual([]);
  });

  it.each<[string, object, object, boolean]>([
    ["of the same person", {}, {}, true],
    ["without a nonce", { nonce: undefined }, {}, true],
    ["of somebody else", { sub: "root" }, {}, false],
    ["of another login", { nonce: "other" }, {}, false],
    ["for another client", { aud: "other" }, {}, false],
    ["of another issuer", { iss: "https://evil.example" }, {}, false],
    ["signed with another key", {}, { key: generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey }, false],
  ])(
    "with a new ID token %s is judged as at the login",
    async (_title, claims, { key }: { key?: typeof KEY.privateKey }, isGood) => {
      const { at, person, begun, answers } = await nearlyOver();
      const nonce = sentTo(begun).get("nonce");
      answers({
        ...LIFE,
        refresh_token: "r2",
        id_token: es256({ ...claimsFor(at.issuer, nonce), role: "new", ...claims }, {}, key ?? KEY.privateKey),
      });
      const page = await person.open("/a/page");
      expect(page.status).toBe(isGood ? 200 : 302);
      if (isGood) expect(page.forwarded!.claims!["role"]).toBe("new");
    },
  );

  it(
    "is not made without a refresh token, or where the provider does not say how " + "long the access token lasts",
    async () => {
      for (const more of [
        { expires_in: 300 },
        { refresh_token: "r" },
        { refresh_token: "r", expires_in: -1 },
        { refresh_token: 7, expires_in: 300 },
      ]) {
        const at = await provider();
        const gateway = gatewayAt(at);
        const person = browser(gateway);
        await logIn(at, person, more);
        gateway.tools.clock.advance(3_600_000);
        expect((await person.open("/a/page")).status).toBe(200);
        expect(at.asked).toHaveLength(1);
      }
    },
  );
});

describe("a provider", () => {
  it(
    "that is down keeps nobody from starting: pages get 503 with a reason, others 401, " +
      "and logins work once it is back",
    async () => {
      const at = await provider();
      at.behaviour.isDown = true;
      const gateway = gatewayAt(at);
      const own = browser(gateway);
      const answer = await own.open("/a/page");
      expect(answer).toMatchObject({ status: 503, code: "auth_unavailable" });
      expect([answer.body, headerValue(answer.reply.headers, "retry-after")]).toEqual([
        expect.stringContaining("The login provider could not be asked."),
        "2",
      ]);
      const asked = at.paths.length;
      await own.open("/a/page");
      expect(at.paths.length).toBe(asked);
      expect((await own.open("/a/page", { headers: ["Sec-Fetch-Mode", "cors"] })).status).toBe(401);
      at.behaviour.isDown = false;
      gateway.tools.clock.advance(2_000);
      expect((await logIn(at, own)).status).toBe(303);
    },
  );

  it.each<[string, object, RegExp]>([
    [
      "name another issuer",
      { issuer: "https://evil.example" },
      /name "https:\/\/evil\.example" as the issuer, not http/,
    ],
    ["name none", { issuer: undefined }, /name nothing as the issuer/],
    [
      "have the token endpoint elsewhere",
      { token_endpoint: "https://evil.example/token" },
      /token_endpoint of its metadata is on another server: add "https:\/\/evil\.example" to "origins"/,
    ],
    [
      "have the keys elsewhere",
      { jwks_uri: "http://127.0.0.1:1/jwks" },
      /jwks_uri of its metadata is on another server/,
    ],
    [
      "have no authorization endpoint",
      { authorization_endpoint: undefined },
      /authorization_endpoint of its metadata is nothing, not a URL/,
    ],
    [
      "have a script as one",
      { authorization_endpoint: "javascript:alert(1)" },
      /authorization_endpoint of its metadata is "javascript:alert\(1\)", not a URL/,
    ],
    ["have a logout that is no URL", { end_session_endpoint: 7 }, /end_session_endpoint of its metadata is 7/],
  ])("whose metadata %s is not used", async (_title, metadata, message) => {
    const at = await provider();
    at.behaviour.metadata = metadata;
    const { ask, tools: own } = gatewayAt(at);
    const answer = await ask("/a/page");
    expect([answer.status, answer.fault]).toEqual([503, expect.stringMatching(message)]);
    expect(answer.body).not.toContain("evil");
    expect(own.lines).toMatchObject([{ level: "warn", message: "oidc cannot use the metadata of its provider" }]);
  });

  it("is asked for its metadata once an hour, and its old metadata stay while it is down", async () => {
    const at = await provider();
    const { ask, tools: own } = gatewayAt(at);
    for (let i = 0; i < 3; i++) expect((await ask("/a/page")).status).toBe(302);
    expect(at.paths).toHaveLength(1);
    at.behaviour.isDown = true;
    own.clock.advance(3_600_000);
    for (let i = 0; i < 3; i++) expect((await ask("/a/page")).status).toBe(302);
  });

  it("is not taken for down by others when a request to it found no free connection", async () => {
    const at = await provider();
    const own = tools();
    let isFull = false;
    const client: typeof own.client = (options) => {
      const real = own.client(options);
      return {
        ask: (request) =>
          isFull ? Promise.reject(new ClientFailure("saturated", "no free connection")) : real.ask(request),
        close: () => real.close(),
      };
    };
    const gateway = gatewayAt(at, {}, tools({ client }));
    const person = browser(gateway);
    const begun = await person.open("/a/page");
    isFull = true;
    expect(await person.open(wayBack(begun))).toMatchObject({
      status: 503,
      code: "auth_unavailable",
      fault: "oidc: no free connection",
    });
    isFull = false;
    expect((await logIn(at, browser(gateway))).status).toBe(303);
  });

  it(
    "whose metadata are broken later is asked for tokens with the old ones, " + "and for metadata less and less often",
    async () => {
      const at = await provider();
      const gateway = gatewayAt(at);
      const own = browser(gateway);
      await own.open("/a/page");
      at.behaviour.metadata = { issuer: "https://other.example" };
      gateway.tools.clock.advance(3_600_000);
      const begun = await own.open("/a/page");
      await expect.poll(() => gateway.tools.lines).toHaveLength(1);
      accepts(at, begun, {}, { iat: NOW + 3_600, exp: NOW + 3_900 });
      expect((await own.open(wayBack(begun))).status).toBe(303);
      expect(at.paths.filter((path) => path.includes("well-known"))).toHaveLength(2);
    },
  );

  it("may have its token endpoint and keys at a server that origins names", async () => {
    const [at, other] = [await provider(), await provider()];
    at.behaviour.metadata = { token_endpoint: `${other.issuer}/token`, jwks_uri: `${other.issuer}/jwks` };
    const own = browser(gatewayAt(at, { origins: [other.issuer] }));
    const begun = await own.open("/a/page");
    accepts({ behaviour: other.behaviour, issuer: at.issuer }, begun);
    expect((await own.open(wayBack(begun))).status).toBe(303);
    expect(oidc.dials!.urls({ issuer: at.issuer, origins: [other.issuer] } as never)).toEqual([
      at.issuer,
      other.issuer,
    ]);
  });
});

describe("a logout", () => {
  const FROM_HERE = ["Sec-Fetch-Site", "same-origin"];
  const FROM_ELSEWHERE = ["Sec-Fetch-Site", "cross-site"];

  it("removes all cookies and leads to the provider's logout with the ID token as a hint", async () => {
    const at = await provider();
    const own = browser(gatewayAt(at, { after_logout_path: "/bye" }));
    await logIn(at, own);
    await own.open("/a/page", { headers: [] });
    const answer = await own.open("/a/.oidc/logout", { headers: FROM_HERE });
    expect([answer.status, own.cookies.size]).toEqual([303, 0]);
    const url = new URL(answer.location!);
    expect([
      url.origin + url.pathname,
      url.searchParams.get("client_id"),
      url.searchParams.get("post_logout_redirect_uri"),
    ]).toEqual([`${at.issuer}/end`, "gw", `https://${HOST}/bye`]);
    expect(url.searchParams.get("id_token_hint")).toMatch(/^eyJ/);
    expect((await own.open("/a/page")).status).toBe(302);
  });

  it("that another site causes asks the person first, and changes nothing", async () => {
    const at = await provider();
    const own = browser(gatewayAt(at));
    await logIn(at, own);
    for (const headers of [FROM_ELSEWHERE, ["Sec-Fetch-Site", "same-site"], [...FROM_HERE, ...FROM_ELSEWHERE]]) {
      const question = await own.open("/a/.oidc/logout", { headers });
      expect([question.status, setCookies(question), question.location]).toEqual([200, [], null]);
      expect(question.body).toContain('<form method="post"><button>Log out</button></form>');
      expect(await own.open("/a/.oidc/logout", { method: "POST", headers })).toMatchObject({
        status: 403,
        code: "forbidden",
      });
    }
    for (const origin of ["https://evil.example", "null", `http://${HOST}`])
      expect((await own.open("/a/.oidc/logout", { method: "POST", headers: ["Origin", origin] })).status).toBe(403);
    expect(own.cookies.has(SESSION)).toBe(true);
    expect((await own.open("/a/.oidc/logout", { method: "POST", headers: ["Origin", `https://${HOST}`] })).status).toBe(
      303,
    );
    expect((await own.open("/a/.oidc/logout", { method: "PUT" })).status).toBe(405);
  });

  it("ends the session here even if the provider is down or has no logout, or there is no session", async () => {
    for (const metadata of [{ end_session_endpoint: undefined }, {}]) {
      const at = await provider();
      at.behaviour.metadata = metadata;
      const gateway = gatewayAt(at);
      const own = browser(gateway);
      await logIn(at, own);
      const isDown = !("end_session_endpoint" in metadata);
      const later = isDown ? browser(gatewayAt(at), own.cookies) : own;
      at.behaviour.isDown = isDown;
      const answer = await later.open("/a/.oidc/logout", { headers: FROM_HERE });
      expect([answer.status, own.cookies.size]).toEqual([200, 0]);
      expect(answer.body.includes("may still be logged in there")).toBe(isDown);
      expect((await later.open("/a/.oidc/logout", { headers: FROM_HERE })).status).toBe(200);
    }
  });
});

describe("paths", () => {
  it("are below the base_path of the service, or those of the configuration", async () => {
    const at = await provider();
    const own = gatewayAt(at, { redirect_path: "/login/back", logout_path: "/bye" });
    expect(sentTo(await own.ask("/a/page")).get("redirect_uri")).toBe(`https://${HOST}/login/back`);
    expect((await own.ask("/login/back")).code).toBe("login_failed");
    expect((await own.ask("/bye")).status).toBe(200);
    expect(
      sentTo(await gatewayAt(at).ask("/page", { service: { name: "a", basePath: "/" } })).get("redirect_uri"),
    ).toBe(`https://${HOST}/.oidc/callback`);
  });
});

describe("the configuration", () => {
  const valid = { issuer: "https://id.example", client_id: "gw", client_secret: "s", session: { secret: SECRET } };

  it.each<[object, RegExp]>([
    [{ issuer: "id.example" }, /issuer: expected an http:\/\/ or https:\/\/ URL/],
    [{ issuer: "https://id.example/?a=1" }, /issuer: is an issuer, which has no query and no fragment/],
    [{ issuer: "https://u:p@id.example" }, /issuer: is a URL with a user name or password/],
    [{ client_secret: undefined }, /needs either "client_secret" or "client_key"/],
    [{ scopes: ["email"] }, /scopes: needs "openid"/],
    [{ scopes: ["openid email"] }, /scopes\[0\]: .*one scope/],
    [{ session: { secret: "short" } }, /session\.secret/],
    [{ session: undefined }, /session/],
    [{ session: { secret: SECRET, ttl_s: 59 } }, /session\.ttl_s/],
    [{ session: { secret: SECRET, cookie: "a b" } }, /session\.cookie: .*the name of a cookie/],
    [{ session: { secret: SECRET, cookie: "a=b" } }, /session\.cookie/],
    [{ redirect_path: "login" }, /redirect_path: .*a path such as/],
    [{ redirect_path: "/a/../b" }, /redirect_path/],
    [{ redirect_path: "//evil.example" }, /redirect_path/],
    [{ redirect_path: "/a?b" }, /redirect_path/],
    [{ after_logout_path: "//evil.example" }, /after_logout_path/],
    [{ redirect_path: "/a", logout_path: "/a" }, /logout_path: is also the "redirect_path"/],
    [{ origins: ["https://a.example/token"] }, /origins\[0\]: is no origin/],
    [{ origins: ["a.example"] }, /origins\[0\]/],
    [{ claims_to_headers: { a: "X-A", b: "x-a" } }, /is the header of a already/],
    [{ claims_to_headers: { a: "Host" } }, /the gateway sets this header itself/],
    [{ leeway_s: 3601 }, /leeway_s/],
    [{ timeout_ms: 0 }, /timeout_ms/],
    [{ tls: {}, issuer: "http://127.0.0.1" }, /tls: applies to https:\/\/ URLs/],
  ])("%j is refused with the place and the reason", (changes, message) => {
    const { issues } = checked(oidc.schema, JSON.parse(JSON.stringify({ ...valid, ...changes })));
    expect(issues.join("\n")).toMatch(message);
    expect(issues.join("\n")).not.toContain(SECRET);
  });

  it("needs no more than issuer, client and secrets", () => {
    expect(checked(oidc.schema, valid).issues).toEqual([]);
  });
});
