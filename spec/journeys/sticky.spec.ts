import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { createGateway, type Gateway } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { together } from "../support/following.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, type Ask } from "../support/raw_client.ts";
import {
  backend,
  byteBackend,
  client,
  get,
  PROTOCOLS,
  restartableBackend,
  speaking,
  type Protocol,
} from "./harness.ts";

type Parts = Partial<AnyConfigInput["services"][number]>;

const SECRET = "0123456789abcdef0123456789abcdef";

/** Three backends "a", "b" and "c" of a sticky service, and a gateway in front of them. */
async function three(parts: Parts = {}, protocol: Protocol = "http") {
  const backends = [
    await restartableBackend(protocol),
    await restartableBackend(protocol),
    await restartableBackend(protocol),
  ] as const;
  const ids = ["a", "b", "c"];
  backends.forEach((each, i) => (each.answer = (_request, response) => void response.end(ids[i])));
  const config = (weights = [1, 1, 1], more: Parts = {}): AnyConfigInput => {
    const upstreams = backends.map(({ port }, i) => ({ id: ids[i]!, host: "127.0.0.1", port, weight: weights[i]! }));
    return oneService(
      [],
      { ...speaking(protocol), upstreams, sticky: {}, ...parts, ...more },
      { trusted_proxies: ["127.0.0.1"] },
    );
  };
  const clock = manualClock();
  return { clock, backends, config, ...(await running(config(), { clock })) };
}

/** One client that stores the cookies of the gateway. */
function browser(port: number) {
  let cookie: string | null = null;
  const self = {
    get cookie() {
      return cookie;
    },
    /** The upstream that answers, and the status if it is another than 200; "+" where the reply sets a cookie. */
    async ask(more: Ask = {}) {
      const headers = cookie === null ? {} : { Cookie: `theme=dark; ${cookie}` };
      const answer = await ask(port, { path: "/a/x", ...more, headers: { ...headers, ...(more.headers as object) } });
      const set = answer.headers["set-cookie"];
      if (set !== undefined) cookie = set[0]!.split(";")[0]!;
      return `${answer.status === 200 ? answer.body.toString() : answer.status}${set === undefined ? "" : "+"}`;
    },
    /** The upstream of a first request, and then of this many more. */
    async times(n: number) {
      const all: string[] = [];
      for (let i = 0; i < n; i++) all.push(await self.ask());
      return all.join(" ");
    },
  };
  return self;
}

describe("a sticky service", () => {
  it.each(PROTOCOLS)(
    "a sticky service over %s sets a cookie once, and all requests with it go to one upstream, " +
      "while other clients take turns",
    async (protocol) => {
      const { port } = await three({}, protocol);
      const [one, two, three_] = [browser(port), browser(port), browser(port)];
      expect(await one.times(4)).toBe("a+ a a a");
      expect(await two.times(3)).toBe("b+ b b");
      expect(await three_.times(3)).toBe("c+ c c");
      expect(await one.times(2)).toBe("a a");
    },
  );

  it("a sticky service marks the cookie Secure only if the client came over https", async () => {
    const { port } = await three();
    const setCookie = async (headers: Record<string, string>) =>
      (await ask(port, { path: "/a/x", headers })).headers["set-cookie"];
    expect(await setCookie({})).toEqual([expect.stringMatching(/^route=[\w-]{22}; Path=\/a; HttpOnly; SameSite=Lax$/)]);
    expect(await setCookie({ "X-Forwarded-Proto": "https" })).toEqual([
      expect.stringMatching(/^route=[\w-]{22}; Path=\/a; HttpOnly; SameSite=Lax; Secure$/),
    ]);
  });

  it("a sticky service keeps the cookies that the upstream sets", async () => {
    const { port, backends } = await three();
    backends[0].answer = (_request, response) =>
      void response.writeHead(200, { "Set-Cookie": ["x=1", "y=2"] }).end("a");
    expect((await ask(port, { path: "/a/x" })).headers["set-cookie"]).toEqual([
      "x=1",
      "y=2",
      expect.stringMatching(/^route=/),
    ]);
  });

  it(
    "a sticky service sends clients of an upstream that drains there until it is removed, and no new ones; " +
      "a reload makes no cookie invalid",
    async () => {
      const { port, gateway, config } = await three();
      const [one, two] = [browser(port), browser(port)];
      expect([await one.ask(), await two.ask()]).toEqual(["a+", "b+"]);
      await gateway.reload(config([0, 1, 1]));
      expect(await one.times(3)).toBe("a a a");
      expect(await two.times(2)).toBe("b b");
      for (let i = 0; i < 4; i++) expect(await browser(port).ask()).not.toContain("a");
      const { upstreams, ...rest } = config().services[0]!;
      await gateway.reload({ ...config(), services: [{ ...rest, upstreams: upstreams.slice(1) }] });
      expect(await one.ask()).toMatch(/^[bc]\+$/);
      expect(await one.ask()).toMatch(/^[bc]$/);
      expect(await two.ask()).toBe("b");
    },
  );

  it(
    "a sticky service sends clients of a broken upstream elsewhere, without an error where requests are retried, " +
      "and renews their cookies",
    async () => {
      const { port, backends } = await three({ retries: {}, health: { passive: { max_failures: 1 } } });
      const one = browser(port);
      expect(await one.times(2)).toBe("a+ a");
      await backends[0].kill();
      const moved = await one.ask();
      expect(moved).toMatch(/^[bc]\+$/);
      expect(await one.times(2)).toBe(`${moved[0]} ${moved[0]}`);
      await backends[0].start();
      expect(await one.ask()).toBe(moved[0]);
    },
  );

  it(
    "a sticky service sets no cookie with a reply of the gateway, " +
      "and none with a later reply of the upstream that the client's cookie names",
    async () => {
      const { port, backends } = await three({ retries: { attempts: 0 }, health: { passive: { max_failures: 0 } } });
      const one = browser(port);
      expect(await one.ask()).toBe("a+");
      await backends[0].kill();
      expect(await one.ask()).toBe("502");
      await backends[0].start();
      expect(await one.ask()).toBe("a");
      expect((await ask(port, { path: "/none" })).headers["set-cookie"]).toBeUndefined();
      for (const each of backends) await each.kill();
      const answer = await ask(port, { path: "/a/x" });
      expect([answer.status, answer.headers["set-cookie"]]).toEqual([502, undefined]);
    },
  );

  it("a sticky service sets its cookie with errors of the upstream, too", async () => {
    const { port, backends } = await three();
    backends[0].answer = (_request, response) => void response.writeHead(500).end("a");
    expect(await browser(port).times(2)).toBe("500+ 500");
  });

  it("a sticky service ignores and replaces a forged cookie", async () => {
    const { port } = await three();
    const answer = await ask(port, { path: "/a/x", headers: { Cookie: "route=AAAAAAAAAAAAAAAAAAAAAA" } });
    expect(answer.headers["set-cookie"]).toHaveLength(1);
    const valid = answer.headers["set-cookie"]![0]!.split(";")[0]!;
    const both = await ask(port, {
      path: "/a/x",
      headers: ["Cookie", "route=AAAAAAAAAAAAAAAAAAAAAA", "Cookie", valid],
    });
    expect([both.body.toString(), both.headers["set-cookie"]]).toEqual(["a", undefined]);
  });

  it(
    "a sticky service with a time to live assigns a client anew once its cookie is over, " +
      "whatever the client does with Max-Age",
    async () => {
      const { clock, port } = await three({ sticky: { ttl_s: 60 } });
      const one = browser(port);
      expect(await one.times(2)).toBe("a+ a");
      clock.advance(59_000);
      expect(await one.ask()).toBe("a");
      clock.advance(3_000);
      expect(await one.times(2)).toBe("b+ b");
    },
  );

  it("a sticky service sends the requests after a WebSocket to the upstream that accepted it", async () => {
    const yes =
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
      "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    const accepting = await byteBackend((socket) => void socket.once("data", () => socket.write(yes)));
    const other = await backend((_request, response) => response.end("other"));
    const { port } = await running(oneService([accepting.port, other.port], { sticky: {} }));
    const connection = await client(port);
    const upgrade = [
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
      "Sec-WebSocket-Version: 13",
    ];
    connection.send(get("/a/x", ...upgrade));
    const head = await connection.until("\r\n\r\n");
    expect(head).toMatch(/^HTTP\/1\.1 101 /);
    const cookie = /\r\nSet-Cookie: (route=[\w-]{22});/i.exec(head)![1]!;
    const next = await client(port);
    next.send(get("/a/x", ...upgrade, `Cookie: ${cookie}`));
    const second = await next.until("\r\n\r\n");
    expect(second).toMatch(/^HTTP\/1\.1 101 /);
    expect(second).not.toMatch(/set-cookie/i);
  });
});

describe("several gateways", () => {
  const cookieOf = async (gateway: Gateway) => {
    const { headers } = await gateway.inject({ url: "/a/x" });
    return headers[headers.indexOf("Set-Cookie") + 1]!.split(";")[0]!;
  };
  const accepts = async (gateway: Gateway, cookie: string) =>
    !(await gateway.inject({ url: "/a/x", headers: ["Cookie", cookie] })).headers.includes("Set-Cookie");

  it("gateways with one secret accept each other's cookies; without a secret each has a key of its own", async () => {
    const { config } = await three();
    const gateways = (more: Parts) =>
      [1, 2].map(() => createGateway({ config: config([1, 1, 1], more) })) as [Gateway, Gateway];
    const [one, two] = gateways({ sticky: { secret: SECRET } });
    const [own, other] = gateways({});
    expect(await accepts(two, await cookieOf(one))).toBe(true);
    const cookie = await cookieOf(own);
    expect([await accepts(own, cookie), await accepts(other, cookie), await accepts(one, cookie)]).toEqual([
      true,
      false,
      false,
    ]);
    await Promise.all([one, two, own, other].map((each) => each.close(0)));
  });

  it(
    "all workers of a gateway have one key, also if a reload brings the first sticky service, " +
      "and keep it while no service is sticky",
    async () => {
      const { config } = await three();
      const { sticky: _sticky, ...plain } = config().services[0]!;
      const without = { ...config(), services: [plain] };
      const { main, ports } = await together({ config: without });
      await main.reload(config());
      const [one, two] = ports as [number, number];
      const answer = await ask(one, { path: "/a/x" });
      const cookie = answer.headers["set-cookie"]![0]!.split(";")[0]!;
      const other = await ask(two, { path: "/a/x", headers: { Cookie: cookie } });
      expect([other.body.toString(), other.headers["set-cookie"]]).toEqual([answer.body.toString(), undefined]);
      await main.reload(without);
      await main.reload(config());
      expect((await ask(two, { path: "/a/x", headers: { Cookie: cookie } })).headers["set-cookie"]).toBeUndefined();
    },
  );
});
