/** URLs and cookie paths that the gateway writes itself: what a client has asked a trusted proxy for counts in them. */
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { headerValue } from "../../lib/http/headers.ts";
import { es256, provider } from "../plugins/oidc_provider.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { backend } from "./harness.ts";

const TRUSTED = ["127.0.0.1"];
/** Nobody who sends requests here. */
const ELSEWHERE = ["10.9.9.9"];
const HOST = "inner.example:8008";
const VARY = "X-Forwarded-Host, X-Forwarded-Prefix";

const LOCATIONS = {
  path: "/new?x=1",
  same: "${request.path}",
  host: "https://${request.host}${request.path}",
  root: "//${request.host}",
  port: "http://${request.host}:8080/x",
  longer: "https://${request.host}.eu/x",
  asked: "https://other.example/x?from=${request.host}",
  other: "https://other.example/x",
};

async function gateway(trusted: readonly string[], global: object = {}) {
  const origin = await backend();
  const upstreams = [{ host: "127.0.0.1", port: origin.port }];
  const routes = Object.entries(LOCATIONS).map(([name, location]) => ({
    path: `/${name}`,
    plugins: [{ name: "redirect", config: { location, keep_query: false } }],
  }));
  const rest = [{ path: "/{rest*}" }];
  const config = {
    global: { h2c: true, trusted_proxies: trusted, ...global },
    services: [
      { name: "a", base_path: "/a", upstreams, routes },
      { name: "s", base_path: "/s", upstreams, sticky: {}, routes: rest },
      { name: "t", base_path: "/{tenant}/t", upstreams, sticky: {}, routes: rest },
    ],
  };
  const made = await running(config as unknown as AnyConfigInput);
  const asked = (path: string, headers: readonly string[] = []) =>
    ask(made.port, { path, headers: ["Host", HOST, ...headers] });
  return {
    ...made,
    led: async (name: string, ...headers: string[]) => {
      const { status, headers: got } = await asked(`/a/${name}`, headers);
      expect(status).toBe(308);
      return [got.location, got.vary];
    },
    cookiePath: async (path: string, ...headers: string[]) =>
      /; Path=([^;]*)(?:; Secure)?(?:; HttpOnly; SameSite=Lax)(?:; Secure)?$/.exec(
        (await asked(path, headers)).headers["set-cookie"]![0]!,
      )?.[1],
  };
}

const BEHIND = [
  ...["X-Forwarded-Proto", "https", "X-Forwarded-Host", "shop.example:8443"],
  ...["X-Forwarded-Prefix", "/edge/v1.2/"],
];

describe("redirects behind a trusted proxy", () => {
  it.each([
    ["path", "/edge/v1.2/new?x=1", VARY],
    ["same", "/edge/v1.2/a/same", VARY],
    ["host", "https://shop.example/edge/v1.2/a/host", VARY],
    ["root", "//shop.example/edge/v1.2", VARY],
    ["port", "http://shop.example:8080/edge/v1.2/x", VARY],
    ["longer", "https://shop.example.eu/x", VARY],
    ["asked", "https://other.example/x?from=shop.example", VARY],
    ["other", "https://other.example/x", undefined],
  ])(
    "redirects behind a trusted proxy have the host and prefix that clients ask it for: %s leads to %s",
    async (name, location, vary) => {
      const { led, port, gateway: made } = await gateway(TRUSTED);
      expect(await led(name, ...BEHIND)).toEqual([location, vary]);
      const headers = { "x-forwarded-host": "shop.example:8443", "x-forwarded-prefix": "/edge/v1.2/" };
      const session = h2Session(port);
      expect((await h2Ask(session, { path: `/a/${name}`, headers })).headers["location"]).toBe(location);
      session.close();
      const injected = await made.inject({ url: `/a/${name}`, clientIp: "127.0.0.1", headers });
      expect(headerValue(injected.headers, "location")).toBe(location);
    },
  );

  it.each([
    ["path", "/new?x=1"],
    ["same", "/a/same"],
    ["host", "https://inner.example/a/host"],
    ["asked", "https://other.example/x?from=inner.example"],
  ])("redirects to %s have the Host header and no prefix for anybody else", async (name, location) => {
    const { led } = await gateway(ELSEWHERE);
    expect(await led(name, ...BEHIND)).toEqual([location, undefined]);
    expect(await (await gateway(TRUSTED)).led(name)).toEqual([location, VARY]);
  });
});

const GOOD_HOSTS = ["shop.example", "SHOP.example:443", "192.0.2.1:8443", "[2001:db8::1]", "[::1]:8443", "a_b.example"];
const BAD_HOSTS = [
  ...["", " ", ":443", "//evil.example", "/\\evil.example", "\\\\evil.example", "https:evil.example"],
  ...["https://evil.example", "user@evil.example", "shop.example@evil.example", "shop.example:pw@evil.example"],
  ...["evil.example/", "evil.example?x", "evil.example#x", "evil.example\\x", "evil.example;x", "evil.example%2f"],
  ...["shop.example:65536", "shop.example:99999999999999999999", "shop.example:-1", "shop.example:8o", "a:1:2"],
  ...["shop.example, evil.example", "shop.example,evil.example", "shop.example evil.example", "shop.example\tx"],
  ...["::1", "2001:db8::1", "[::1", "::1]", "[::g]", "[shop.example]", "[fe80::1%25eth0]", "[::1]evil.example"],
  ...["\xe9vil.example", '"evil.example"', "<evil>", `${"a".repeat(260)}.example`],
];
const GOOD_PREFIXES = ["/edge", "/edge/", "/~me/x_y-z/1.0", "/...", `/${"a".repeat(199)}`];
const BAD_PREFIXES = [
  ...["", "edge", "//evil.example", "/\\evil.example", "\\evil.example", "https://evil.example", "/edge//", "/a//b"],
  ...["/..", "/.", "/a/../b", "/a/..", "/a/.", "/../", "/%2e%2e", "/%2Fevil.example", "/a%0d%0ax", "/a?x", "/a#x"],
  ...["/a; Domain=evil.example", "/a;Path=/", "/a, /b", "/a,/b", "/a b", "/a\tb", "/a:b", "/a@b", '/"a"', "/<b>"],
  ...["/\xe9", "/{id}", "/a*", "/a'b", `/${"a".repeat(200)}`],
];

describe("what a trusted proxy passes on of a hostile client", () => {
  it.each(GOOD_HOSTS)("a redirect takes X-Forwarded-Host %j", async (host) => {
    const { led } = await gateway(TRUSTED);
    const [location] = await led("host", "X-Forwarded-Host", host);
    expect(location).toBe(`https://${host.replace(/:\d+$/, "")}/a/host`);
    expect(new URL(location!).pathname).toBe("/a/host");
  });

  it.each(GOOD_PREFIXES)("a redirect and a cookie take X-Forwarded-Prefix %j", async (prefix) => {
    const { led, cookiePath } = await gateway(TRUSTED);
    const plain = prefix.replace(/\/$/, "");
    expect((await led("path", "X-Forwarded-Prefix", prefix))[0]).toBe(`${plain}/new?x=1`);
    expect(new URL((await led("host", "X-Forwarded-Prefix", prefix))[0]!).pathname).toBe(`${plain}/a/host`);
    expect(await cookiePath("/s/x", "X-Forwarded-Prefix", prefix)).toBe(`${plain}/s`);
  });

  it("an X-Forwarded-Host that is no host counts as absent", async () => {
    const { led } = await gateway(TRUSTED);
    for (const host of BAD_HOSTS)
      expect([host, ...(await led("host", "X-Forwarded-Host", host))]).toEqual([
        host,
        "https://inner.example/a/host",
        VARY,
      ]);
  });

  it("an X-Forwarded-Prefix that is no plain path counts as absent", async () => {
    const { led, cookiePath } = await gateway(TRUSTED);
    for (const prefix of BAD_PREFIXES) {
      const headers = ["X-Forwarded-Prefix", prefix] as const;
      expect([prefix, ...(await led("path", ...headers))]).toEqual([prefix, "/new?x=1", VARY]);
      expect([prefix, await cookiePath("/s/x", ...headers)]).toEqual([prefix, "/s"]);
    }
  });

  it("both count as absent where a header is there twice, whichever is the proxy's", async () => {
    const { led, cookiePath } = await gateway(TRUSTED);
    const hosts = ["X-Forwarded-Host", "shop.example", "x-forwarded-host", "shop.example"];
    expect((await led("host", ...hosts))[0]).toBe("https://inner.example/a/host");
    const prefixes = ["X-Forwarded-Prefix", "/a", "X-Forwarded-Prefix", "/b"];
    expect((await led("path", ...prefixes))[0]).toBe("/new?x=1");
    expect(await cookiePath("/s/x", ...prefixes)).toBe("/s");
  });

  it.each(["X-Forwarded-Host: a\rSet-Cookie: b=1", "X-Forwarded-Prefix: /a\0", "X-Forwarded-Prefix: /a\r\n b"])(
    "a line break or NUL within a header is refused before anything is written: %j",
    async (line) => {
      const { port } = await gateway(TRUSTED);
      const client = await connect(port);
      client.send(`GET /a/host HTTP/1.1\r\nHost: ${HOST}\r\n${line}\r\n\r\n`);
      await eventually(() => client.text().includes("\r\n\r\n"));
      client.socket.destroy();
      expect(client.text()).toMatch(/^HTTP\/1\.1 400 /);
      expect(client.text()).not.toMatch(/set-cookie|location/i);
    },
  );
});

describe("the redirect to HTTPS", () => {
  it("the redirect to HTTPS leads to the host and prefix that clients ask a trusted proxy for", async () => {
    const { led } = await gateway(TRUSTED, { https_redirect: { port: 8443 } });
    const plain = ["X-Forwarded-Host", "shop.example:8080", "X-Forwarded-Prefix", "/edge"];
    expect(await led("x", ...plain)).toEqual(["https://shop.example:8443/edge/a/x", VARY]);
    expect(await led("x", "X-Forwarded-Host", "//evil.example", "X-Forwarded-Prefix", "//evil.example")).toEqual([
      "https://inner.example:8443/a/x",
      VARY,
    ]);
    const others = await gateway(ELSEWHERE, { https_redirect: {} });
    expect(await others.led("x", ...plain)).toEqual(["https://inner.example/a/x", undefined]);
  });

  it("the redirect to HTTPS refuses a Host header without a host: browsers would read the path as one", async () => {
    const { port } = await gateway(ELSEWHERE, { https_redirect: {} });
    for (const host of [":80", ":", ""])
      expect((await ask(port, { path: "/evil.example", headers: { Host: host } })).status).toBe(400);
  });
});

describe("the cookie of a sticky service", () => {
  it("the cookie of a sticky service has the prefix of a trusted proxy before its path, and comes back", async () => {
    const { cookiePath } = await gateway(TRUSTED);
    expect(await cookiePath("/s/x", ...BEHIND)).toBe("/edge/v1.2/s");
    expect(await cookiePath("/s/x")).toBe("/s");
    expect(await cookiePath("/me/t/x", "X-Forwarded-Prefix", "/edge")).toBe("/edge");
    expect(await cookiePath("/me/t/x", "X-Forwarded-Prefix", "/")).toBe("/");
    expect(await cookiePath("/me/t/x")).toBe("/");
    const others = await gateway(ELSEWHERE);
    expect(await others.cookiePath("/s/x", ...BEHIND)).toBe("/s");
  });
});

/** A gateway whose service has the plugin `oidc`, asked as through a proxy that takes "/edge" from the path. */
async function behind(trusted: readonly string[], given: readonly string[] = EDGE) {
  const [origin, at] = [await backend(), await provider()];
  const config = {
    issuer: at.issuer,
    client_id: "gw",
    client_secret: "s",
    session: { secret: "s3cr3t".repeat(8) },
    after_logout_path: "/bye",
  };
  const service = { plugins: [{ name: "oidc", config }], routes: [{ path: "/{page*}" }] };
  const { port } = await running(oneService(origin.port, service, { trusted_proxies: [...trusted] }));
  const asked = async (path: string, more: readonly string[] = [], method = "GET") => {
    const headers = ["Host", HOST, "Accept", "text/html", ...given, ...more];
    const { status, headers: got, body } = await ask(port, { method, path, headers });
    const cookies = (got["set-cookie"] ?? []).filter((line) => !line.includes("Max-Age=0;"));
    return { status, location: got.location, body: body.toString(), cookies };
  };
  /** The Cookie header of a session. */
  const logIn = async () => {
    const begun = await asked("/a/page?x=1");
    const sent = new URL(begun.location!).searchParams;
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: at.issuer, aud: "gw", sub: "ada", iat: now, exp: now + 300, nonce: sent.get("nonce") };
    at.behaviour.token = () => [200, { access_token: "a", id_token: es256(claims) }];
    const cookie = begun.cookies.map((line) => line.split(";")[0]!).join("; ");
    const back = await asked(`/a/.oidc/callback?code=c0de&state=${sent.get("state")!}`, ["Cookie", cookie]);
    return { begun, sent, back, session: back.cookies.map((line) => line.split(";")[0]!).join("; ") };
  };
  return { at, asked, logIn };
}

const EDGE = ["X-Forwarded-Proto", "https", "X-Forwarded-Host", "shop.example", "X-Forwarded-Prefix", "/edge"];
const linkIn = (body: string) => /<a href="([^"]*)"/.exec(body)?.[1];

describe("a login behind a trusted proxy", () => {
  it("a login behind a trusted proxy leads back to the host and prefix of the client, and to its page", async () => {
    const { at, logIn } = await behind(TRUSTED);
    const { begun, sent, back } = await logIn();
    const uri = "https://shop.example/edge/a/.oidc/callback";
    expect([begun.status, sent.get("redirect_uri")]).toEqual([302, uri]);
    expect(at.asked[0]!.form.get("redirect_uri")).toBe(uri);
    expect([back.status, back.location]).toEqual([303, "/edge/a/page?x=1"]);
    // For the whole host, as the prefix __Host- demands.
    for (const cookie of [...begun.cookies, ...back.cookies]) expect(cookie).toMatch(/; Path=\/;.*; Secure$/);
  });

  it("a login behind a trusted proxy that fails has a link below the prefix", async () => {
    const { asked } = await behind(TRUSTED);
    const failed = await asked("/a/.oidc/callback?code=c&state=s");
    expect([failed.status, linkIn(failed.body)]).toEqual([400, "/edge/a"]);
    const long = await asked(`/a/${"x".repeat(1_500)}`, [], "POST");
    expect([long.status, linkIn(long.body)]).toEqual([401, "/edge/"]);
  });

  it("a form whose session has ended links to its page by the host and prefix of the client", async () => {
    const { asked } = await behind(TRUSTED);
    const linked = async (referer: string) => linkIn((await asked("/a/save", ["Referer", referer], "POST")).body);
    expect(await linked("https://shop.example/edge/a/form?id=7")).toBe("/edge/a/form?id=7");
    expect(await linked("https://shop.example/edge//evil.example")).toBe("/edge/evil.example");
    for (const other of ["https://shop.example/edges/x", "https://shop.example/x", `https://${HOST}/edge/a/form`])
      expect(await linked(other)).toBe("/edge/a/save");
  });

  it("a logout behind a trusted proxy compares the page's origin with that of the client's URL", async () => {
    const { asked, logIn } = await behind(TRUSTED);
    const { session } = await logIn();
    const from = (origin: string) => asked("/a/.oidc/logout", ["Origin", origin, "Cookie", session], "POST");
    for (const other of [`https://${HOST}`, "https://evil.example", "null"])
      expect((await from(other)).status).toBe(403);
    const own = await from("https://shop.example");
    expect(own.status).toBe(303);
    expect(new URL(own.location!).searchParams.get("post_logout_redirect_uri")).toBe("https://shop.example/edge/bye");
  });

  it("a login leads to the Host header where the proxy passes on what is no host or prefix", async () => {
    const given = ["X-Forwarded-Proto", "https", "X-Forwarded-Host", "shop.example, evil.example"];
    const { logIn } = await behind(TRUSTED, [...given, "X-Forwarded-Prefix", "//evil.example"]);
    const { sent, back } = await logIn();
    expect(sent.get("redirect_uri")).toBe(`https://${HOST}/a/.oidc/callback`);
    expect(back.location).toBe("/a/page?x=1");
  });

  it(
    "nobody but a trusted proxy can make a login over plain HTTP look like one of " + "this machine or over HTTPS",
    async () => {
      for (const host of ["localhost", "shop.example"]) {
        const { asked } = await behind(ELSEWHERE, ["X-Forwarded-Proto", "https", "X-Forwarded-Host", host]);
        expect((await asked("/a/page")).status).toBe(400);
      }
    },
  );
});
