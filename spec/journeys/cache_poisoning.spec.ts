/**
 * Attacks on `response_cache`: no client gets a page that was made for another one, or that another one has chosen for
 * it.
 */
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { manualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { client } from "./harness.ts";

/** An upstream whose page repeats every header and the method, and says of itself what `said` has. */
const reflecting = (said: Record<string, string>) =>
  backend((request, response) => {
    const { host: _host, via: _via, connection: _connection, ...rest } = request.headers;
    response
      .writeHead(200, { "last-modified": "Thu, 01 Jan 1970 00:00:00 GMT", ...said })
      .end(JSON.stringify({ method: request.method, ...rest }));
  });

const EXPLICIT = { "cache-control": "max-age=600" };
const PUBLIC = { "cache-control": "public" };

async function gatewayWith(port: number, cache: object = {}, global: AnyConfigInput["global"] = {}) {
  const config = oneService(
    port,
    { plugins: [{ name: "response_cache", config: { ...cache } }] },
    { h2c: true, ...global },
  );
  return (await running(config, { clock: manualClock() })).port;
}

/** `[what the cache did, the page]`, over a connection of its own. */
async function page(
  port: number,
  lines: readonly string[] = [],
  method = "GET",
  path = "/a/x",
): Promise<{ readonly did: "hit" | "stored" | "passed"; readonly body: string }> {
  const connection = await client(port);
  connection.send(
    `${method} ${path} HTTP/1.1\r\nHost: gw.example\r\nConnection: ` +
      `close\r\n${lines.map((line) => `${line}\r\n`).join("")}\r\n`,
  );
  const received = await connection.closed();
  const did = /^cache-status: .*; hit/im.test(received)
    ? "hit"
    : /^cache-status: .*; stored/im.test(received)
      ? "stored"
      : "passed";
  return { did, body: received };
}

const CREDENTIALS = [
  "Cookie: session=alice-s3cret",
  "Authorization: Bearer alice-s3cret",
  "X-Api-Key: alice-s3cret",
  "X-Auth-Token: alice-s3cret",
];

describe.each<[string, Record<string, string>, object]>([
  ["default_ttl_s", {}, { default_ttl_s: 60 }],
  ["default_ttl_s and a reply that is public", PUBLIC, { default_ttl_s: 60 }],
  ["a heuristic lifetime", {}, {}],
  ["a heuristic lifetime and a reply that is public", PUBLIC, {}],
])("%s", (what, said, cache) => {
  it.each(CREDENTIALS)(
    `${what} stores no page of a request with %s, and answers no such request from memory`,
    async (credential) => {
      const port = await gatewayWith((await reflecting(said)).port, cache);
      expect((await page(port, [credential])).did).toBe("passed");
      const bob = await page(port);
      expect([bob.did, bob.body.includes("alice-s3cret")]).toEqual(["stored", false]);
      expect((await page(port)).did).toBe("hit");
      const again = await page(port, [credential]);
      expect([again.did, again.body.includes("alice-s3cret")]).toEqual(["passed", true]);
      // A stale page is not used for others either.
      for (const lenient of ["Cache-Control: max-stale=99999", "Cache-Control: stale-if-error=99999"]) {
        expect((await page(port, [credential.replace("alice", "bob"), lenient])).body).toContain("bob-s3cret");
      }
      expect((await page(port)).did).toBe("hit");
    },
  );
});

describe("vary_by", () => {
  it(
    "vary_by gives each value of a cookie pages of its own with default_ttl_s, " +
      "and a page without the cookie to clients without it",
    async () => {
      const port = await gatewayWith((await reflecting({})).port, { default_ttl_s: 60, vary_by: ["cookie:session"] });
      for (const cookie of ["session=alice", "session=bob", "session="])
        expect((await page(port, [`Cookie: ${cookie}`])).did).toBe("stored");
      for (const name of ["alice", "bob"]) {
        const got = await page(port, [`Cookie: session=${name}`]);
        expect([got.did, got.body.includes(`"cookie":"session=${name}"`)]).toEqual(["hit", true]);
      }
      expect((await page(port, ["Cookie: session=alice", "Cookie: session=bob"])).did).toBe("stored");
      expect([(await page(port)).did, (await page(port)).did]).toEqual(["stored", "hit"]);
    },
  );

  it.each([
    ["lang=en; session=alice"],
    ["session=alice"],
    ["lang=en;session=alice;"],
    ["lang"],
    ["lang=en", "a=b"],
    ["\xa0lang=en"],
  ])(
    "vary_by with one cookie leaves default_ttl_s off for a request that has another one: %j %j",
    async (...cookies) => {
      const port = await gatewayWith((await reflecting({})).port, { default_ttl_s: 60, vary_by: ["cookie:lang"] });
      const lines = cookies.filter(Boolean).map((cookie) => `Cookie: ${cookie}`);
      expect((await page(port, lines)).did).toBe("passed");
      expect((await page(port, ["Cookie: lang=en"])).did).toBe("stored");
    },
  );

  // Upstreams cut off spaces and tabs alone (RFC 9110 §5.5), and may have another page for the rest.
  it("vary_by and Vary take a no-break space at the end of a value for a part of it", async () => {
    const config = { default_ttl_s: 60, vary_by: ["cookie:lang"] };
    const port = await gatewayWith((await reflecting({ vary: "Accept-Language" })).port, config);
    for (const line of ["Cookie: lang=en", "Accept-Language: en"])
      for (const [end, did] of [
        ["\xa0", "stored"],
        ["", "stored"],
        ["\xa0", "hit"],
        [" \t", "hit"],
      ] as const)
        expect((await page(port, [line + end])).did, JSON.stringify(line + end)).toBe(did);
  });

  it("vary_by with the whole Cookie header gives each combination of cookies pages of its own", async () => {
    const port = await gatewayWith((await reflecting({})).port, { default_ttl_s: 60, vary_by: ["header:Cookie"] });
    for (const did of ["stored", "hit"])
      for (const name of ["alice", "bob"])
        expect((await page(port, [`Cookie: lang=en; session=${name}`])).did).toBe(did);
  });

  it(
    "vary_by gives each value of a header pages of its own, " + "which one change of the target invalidates all",
    async () => {
      const port = await gatewayWith((await reflecting(EXPLICIT)).port, { vary_by: ["header:X-Tenant"] });
      const tenants = ["X-Tenant: a", "x-tenant: b"].map((line) => [line]);
      for (const did of ["stored", "hit"]) for (const lines of tenants) expect((await page(port, lines)).did).toBe(did);
      await page(port, ["Content-Length: 0"], "POST");
      for (const lines of tenants) expect((await page(port, lines)).did).toBe("stored");
    },
  );

  it("vary_by without the cookies leaves default_ttl_s off for requests with cookies", async () => {
    const port = await gatewayWith((await reflecting({})).port, { default_ttl_s: 60, vary_by: ["header:X-Tenant"] });
    expect([(await page(port, ["Cookie: a=b"])).did, (await page(port, ["X-Tenant: a"])).did]).toEqual([
      "passed",
      "stored",
    ]);
  });

  it("vary_by with Authorization stores what the upstream calls public, for that caller alone", async () => {
    const port = await gatewayWith((await reflecting(PUBLIC)).port, {
      default_ttl_s: 60,
      vary_by: ["header:Authorization"],
    });
    const [ann, bob] = [["Authorization: Bearer ann"], ["Authorization: Bearer bob"]];
    expect([(await page(port, ann)).did, (await page(port, ann)).did, (await page(port, bob)).did]).toEqual([
      "stored",
      "hit",
      "stored",
    ]);
  });
});

/** Of Param Miner, the Web Cache Vulnerability Scanner and the papers about them. */
const OVERRIDES = [
  ...[
    "X-Original-Host",
    "X-Host",
    "X-Forwarded-Server-Name",
    "X-Rewrite-Url",
    "X-Original-URL",
    "X-Original-Uri",
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
  ],
  ...[
    "X-HTTP-Host-Override",
    "X-Host-Override",
    "X-HTTP-Path-Override",
    "X-Forwarded-Path",
    "X-Forwarded-Uri",
    "X-Forwarded-Protocol",
    "X-Url-Scheme",
    "X-Scheme",
    "X-Real-Host",
  ],
  ...[
    "X-Forwarded-Anything",
    "X-Original-Anything",
    "X-Rewrite-Path",
    "X-HTTP-DestinationURL",
    "X-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "Client-IP",
    "X-ProxyUser-Ip",
  ],
  ...[
    "Front-End-Https",
    "Cf-Visitor",
    "X-Requested-With",
    "Origin",
    "X-Pjax",
    "X-Middleware-Prefetch",
    "X-Invoke-Status",
    "Rsc",
    "X-Wap-Profile",
    "X-Amzn-Remapped-Host",
    "X-Backend-Host",
  ],
];
/** Dropped on arrival from clients that are no trusted proxies. */
const FORWARDING = [
  "X-Forwarded-Host",
  "X-Forwarded-For",
  "X-Forwarded-Proto",
  "X-Forwarded-Port",
  "X-Forwarded-Prefix",
  "X-Forwarded-Scheme",
  "X-Forwarded-Server",
  "X-Forwarded-Ssl",
  "Forwarded",
  "X-Real-IP",
];

describe("a header that upstreams may choose a page by", () => {
  it.each(["HTTP/1.1", "HTTP/2"])(
    "a header that upstreams may choose a page by poisons no page over %s, whatever its case",
    async (protocol) => {
      const { port: origin } = await reflecting(EXPLICIT);
      const port = await gatewayWith(origin);
      const session = h2Session(port);
      const send = async (path: string, headers: Record<string, string> = {}) => {
        if (protocol === "HTTP/2")
          return (
            await h2Ask(session, {
              path,
              headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])),
            })
          ).body;
        return (
          await page(
            port,
            Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
            "GET",
            path,
          )
        ).body;
      };
      for (const [i, name] of [...OVERRIDES, ...FORWARDING].entries()) {
        for (const written of [name, name.toUpperCase()]) {
          const path = `/a/${i}`;
          await send(path, { [written]: "evil.example" });
          expect(await send(path), written).not.toContain("evil.example");
          // Once the page is stored, no such request replaces it.
          await send(path, { [written]: "evil.example", "Cache-Control": "no-cache" });
          expect(await send(path), written).not.toContain("evil.example");
        }
      }
      session.close();
    },
  );

  it(
    "a header that upstreams may choose a page by is part of the key if a trusted proxy sends it, " +
      "but for headers that name the client",
    async () => {
      const port = await gatewayWith((await reflecting(EXPLICIT)).port, {}, { trusted_proxies: ["127.0.0.1"] });
      for (const name of ["X-Original-Host", "X-Forwarded-Host", "X-Scheme", "Origin", "X-Requested-With"]) {
        const did = [];
        for (const value of ["one", "two", "one", "two"])
          did.push((await page(port, [`${name}: ${value}`], "GET", `/a/${name}`)).did);
        expect(did, name).toEqual(["stored", "stored", "hit", "hit"]);
      }
      for (const name of ["X-Forwarded-For", "X-Real-IP", "True-Client-IP", "X-Client-IP"]) {
        const did = [];
        for (const value of ["192.0.2.1", "192.0.2.2"])
          did.push((await page(port, [`${name}: ${value}`], "GET", `/a/${name}`)).did);
        expect(did, name).toEqual(["stored", "hit"]);
      }
      const forwarded = async (value: string) => (await page(port, [`Forwarded: ${value}`])).did;
      expect([
        await forwarded("for=192.0.2.1;host=gw.example"),
        await forwarded('for="[2001:db8::1]:80";host=gw.example'),
      ]).toEqual(["stored", "hit"]);
      expect([
        await forwarded("for=192.0.2.1;host=evil.example"),
        await forwarded("host=gw.example, for=192.0.2.1;host=evil.example"),
      ]).toEqual(["stored", "stored"]);
    },
  );
});

describe("a header with an underscore, where they are allowed", () => {
  it(
    "a header with an underscore neither poisons a page that varies by the same name with a dash, " +
      "nor is answered from memory",
    async () => {
      const port = await gatewayWith(
        (await reflecting({ ...EXPLICIT, vary: "ACCEPT-Lang, X-Tenant" })).port,
        {},
        { underscore_headers: "allow" },
      );
      for (const line of [
        "X_Tenant: evil",
        "Accept_Lang: evil",
        "X_Original_URL: evil",
        "X_Api_Key: evil",
        "Cache_Control: evil",
      ]) {
        expect((await page(port, [line])).did).toBe("passed");
        expect((await page(port)).body).not.toContain("evil");
        expect((await page(port, [line])).body).toContain("evil");
      }
      expect((await page(port, ["x-TENANT: a"])).did).toBe("stored");
      expect([(await page(port, ["X-Tenant: a"])).did, (await page(port, ["X-Tenant: b"])).did]).toEqual([
        "hit",
        "stored",
      ]);
    },
  );
});
