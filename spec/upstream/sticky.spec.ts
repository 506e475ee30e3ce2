import { describe, expect, it } from "vitest";
import type { Exchange } from "../../lib/http/exchange.ts";
import { problem, type Reply } from "../../lib/http/reply.ts";
import { Sticky, type StickyOptions } from "../../lib/upstream/sticky.ts";
import type { Peer } from "../../lib/upstream/upstream_set.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { madeUpPeer } from "../support/peer.ts";

const OK: Reply = { status: 200, headers: ["X", "y"], body: null };

/** Sticky sessions over the upstreams "a", "b" and "c", each request of which `strategy` sends to "a". */
function bench(more: Partial<StickyOptions> = {}) {
  const clock = manualClock();
  const peers = more.peers ?? ["a", "b", "c"].map((id) => madeUpPeer(id));
  const sticky = new Sticky({
    service: { name: "s", basePath: "/s" },
    peers,
    former: new Map(),
    cookie: "route",
    ttlS: 0,
    key: "key",
    signed: new Map(),
    clock,
    ...more,
  });
  const picker = sticky.picker({ pick: (_exchange, tried) => peers.find((peer) => !tried.includes(peer)) ?? null });
  const pick = (cookies: readonly string[], tried: readonly Peer[] = []) =>
    picker.pick(withCookies(cookies), tried)?.id ?? null;
  /** The reply to a request with these cookies that `upstream` answers. */
  const reply = (
    cookies: readonly string[],
    upstream: string | null = "b",
    more: Parameters<typeof madeUpExchange>[0] = {},
    given: (exchange: Exchange) => Reply = () => OK,
  ) => {
    const exchange = withCookies(cookies, more);
    exchange.call.notes.upstream = upstream;
    return sticky.handler(given)(exchange) as Reply;
  };
  /** The cookie that names the upstream: "route=…". */
  const cookieOf = (upstream: string) => setCookie(reply([], upstream))!.split(";")[0]!;
  return { clock, peers, pick, reply, cookieOf, sticky };
}

// A call of its own for each exchange: notes are part of it.
const withCookies = (cookies: readonly string[], more: Parameters<typeof madeUpExchange>[0] = {}) =>
  madeUpExchange({ headers: cookies.flatMap((cookie) => ["Cookie", cookie]), ...more });

const setCookie = ({ headers }: Reply): string | undefined =>
  headers.includes("Set-Cookie") ? headers[headers.indexOf("Set-Cookie") + 1] : undefined;

describe("the choice of an upstream", () => {
  it("a cookie leads to the upstream that it names; without one the strategy decides", () => {
    const { pick, cookieOf } = bench();
    expect(pick([])).toBe("a");
    expect(pick([cookieOf("b")])).toBe("b");
    expect(pick([`x=1; ${cookieOf("c")}; y=2`])).toBe("c");
  });

  it("a cookie goes before weight 0, so that an upstream that drains keeps its sessions", () => {
    const { pick, cookieOf, peers } = bench();
    peers[1]!.weight = 0;
    expect(pick([cookieOf("b")])).toBe("b");
  });

  it(
    "a cookie that names an unhealthy or ejected upstream leaves the choice to the strategy, " +
      "until the upstream is back",
    () => {
      const peers = ["a", "b"].map((id) => madeUpPeer(id));
      let usable = false;
      Object.defineProperty(peers[1]!, "health", {
        value: {
          get usable() {
            return usable;
          },
        },
      });
      const { pick, cookieOf } = bench({ peers });
      expect(pick([cookieOf("b")])).toBe("a");
      usable = true;
      expect(pick([cookieOf("b")])).toBe("b");
    },
  );

  it("a retry goes to an upstream that was not tried, whatever the cookie says", () => {
    const { pick, cookieOf, peers } = bench();
    expect(pick([cookieOf("b")], [peers[1]!])).toBe("a");
  });

  it.each([
    ["is made up", "route=AAAAAAAAAAAAAAAAAAAAAA"],
    ["is the upstream's id", "route=b"],
    ["is empty", "route="],
    ["has a name of an object's properties", "route=constructor"],
    ["begins like a term", "route=zzzzzzzzzzzzzzzz.AAAAAAAAAAAAAAAAAAAAAA"],
  ])("a cookie that %s is ignored", (_title, cookie) => {
    expect(bench().pick([cookie])).toBe("a");
    expect(bench({ ttlS: 60 }).pick([cookie])).toBe("a");
  });

  it("a cookie is ignored if one character of it is changed", () => {
    for (const ttlS of [0, 60]) {
      const { pick, cookieOf } = bench({ ttlS });
      const cookie = cookieOf("b");
      for (let i = "route=".length; i < cookie.length; i++)
        expect(pick([cookie.slice(0, i) + (cookie[i] === "A" ? "B" : "A") + cookie.slice(i + 1)])).toBe("a");
    }
  });

  it("of several cookies with the name the first valid one counts", () => {
    const { pick, cookieOf } = bench();
    expect(pick(["route=forged; " + cookieOf("c"), cookieOf("b")])).toBe("c");
  });

  it("a cookie of another service, another key, or with another name is ignored", () => {
    const { pick } = bench();
    expect(pick([bench({ service: { name: "t", basePath: "/s" } }).cookieOf("b")])).toBe("a");
    expect(pick([bench({ key: "another" }).cookieOf("b")])).toBe("a");
    expect(pick([bench({ cookie: "other" }).cookieOf("b")])).toBe("a");
  });

  it("gateways with the same key accept each other's cookies, and a reload keeps them", () => {
    expect(bench().pick([bench().cookieOf("b")])).toBe("b");
    expect(bench({ ttlS: 60 }).pick([bench({ ttlS: 60 }).cookieOf("b")])).toBe("b");
  });

  it("of more than four cookies with the name the first four count", () => {
    const { pick, cookieOf } = bench();
    const forged = (count: number) => Array.from({ length: count }, (_none, i) => `route=forged${i}`).join("; ");
    expect(pick([forged(3), cookieOf("b")])).toBe("b");
    expect(pick([forged(4), cookieOf("b")])).toBe("a");
  });

  it("another set of upstreams has only the names of new ones signed, and keeps none of those that are gone", () => {
    for (const ttlS of [0, 60]) {
      const signed = new Map();
      const before = bench({ ttlS, signed, peers: ["a", "b", "c"].map((id) => madeUpPeer(id)) });
      const [b, c] = [before.cookieOf("b"), before.cookieOf("c")];
      // The key shows who signed.
      const after = bench({ ttlS, signed, key: "later", peers: ["a", "b", "d"].map((id) => madeUpPeer(id)) });
      expect([b, c].map((cookie) => after.pick([cookie]))).toEqual(["b", "a"]);
      expect(after.cookieOf("b")).toBe(b);
      const alone = bench({ ttlS, key: "later", peers: [madeUpPeer("d")] });
      expect(after.cookieOf("d")).toBe(alone.cookieOf("d"));
      expect(Array.from(signed.values(), (names) => [...names.keys()])).toEqual([["a", "b", "d"]]);
    }
  });

  it("a cookie that names an upstream which is no longer configured is ignored", () => {
    expect(bench({ peers: [madeUpPeer("a"), madeUpPeer("b")] }).pick([bench().cookieOf("c")])).toBe("a");
  });
});

describe("the cookie", () => {
  it(
    "the cookie is HttpOnly and SameSite=Lax, holds for the service's path, " +
      "and ends with the browser if there is no time to live",
    () => {
      expect(setCookie(bench().reply([]))).toMatch(/^route=[\w-]{22}; Path=\/s; HttpOnly; SameSite=Lax$/);
    },
  );

  it("the cookie is Secure if the request came over https", () => {
    expect(setCookie(bench().reply([], "b", { scheme: "https" }))).toMatch(/; HttpOnly; SameSite=Lax; Secure$/);
  });

  it.each([
    ["/", "/"],
    ["/shop/", "/shop"],
    ["/shop/v1.2/a~b_c-d", "/shop/v1.2/a~b_c-d"],
    ["/shop/{tenant}/x", "/shop"],
    ["/<tenant>", "/"],
    ["/shop/caf%C3%A9", "/shop"],
    ["/café/x", "/"],
    ["/shop/a;b", "/shop"],
  ])(
    "the cookie of a service below %s has the path %s, which every request to the service begins with",
    (basePath, path) => {
      expect(setCookie(bench({ service: { name: "s", basePath } }).reply([]))).toContain(`; Path=${path};`);
    },
  );

  it("the cookie does not show the id of the upstream, and differs from service to service", () => {
    const value = bench().cookieOf("b");
    expect(Buffer.from(value.slice("route=".length), "base64url")).toHaveLength(16);
    expect(bench({ service: { name: "t", basePath: "/s" } }).cookieOf("b")).not.toBe(value);
  });

  it(
    "the cookie is set when the client has none, a forged one, " +
      "or one of another upstream than the one that answered; else the reply is untouched",
    () => {
      const { reply, cookieOf } = bench();
      expect(setCookie(reply([]))).toContain(cookieOf("b"));
      expect(setCookie(reply(["route=forged"]))).toContain(cookieOf("b"));
      expect(setCookie(reply([cookieOf("a")]))).toContain(cookieOf("b"));
      expect(reply([cookieOf("b")])).toBe(OK);
      expect(reply([`x=1;${cookieOf("b")}`])).toBe(OK);
      expect(reply([]).headers.slice(0, 2)).toEqual(["X", "y"]);
    },
  );

  it("the cookie is set with errors of the upstream, not with replies of the gateway itself", () => {
    const { reply } = bench();
    expect(setCookie(reply([], "b", {}, () => ({ ...OK, status: 503 })))).toBeDefined();
    expect(setCookie(reply([], null, {}, ({ call }) => problem(call, "upstream_unavailable")))).toBeUndefined();
    expect(setCookie(reply([], "b", {}, ({ call }) => problem(call, "upstream_reset")))).toBeUndefined();
    expect(reply([], null)).toBe(OK);
  });
});

describe("a time to live", () => {
  const TTL_S = 320;
  /** Of a term: a 32nd. */
  const STEP_MS = 10_000;

  it("a cookie with a time to live has Max-Age, and is accepted for that long and at most a 32nd longer", () => {
    const { clock, pick, cookieOf, reply } = bench({ ttlS: TTL_S });
    expect(setCookie(reply([]))).toContain("; Path=/s; Max-Age=320; HttpOnly");
    const cookie = cookieOf("b");
    clock.advance(TTL_S * 1000);
    expect(pick([cookie])).toBe("b");
    expect(reply([cookie])).toBe(OK);
    clock.advance(STEP_MS);
    expect(pick([cookie])).toBe("a");
    expect(setCookie(reply([cookie]))).toBeDefined();
  });

  it("a cookie whose end was moved is ignored", () => {
    const { clock, pick, cookieOf } = bench({ ttlS: TTL_S });
    const old = cookieOf("b").split(".");
    clock.advance(2 * TTL_S * 1000);
    const fresh = cookieOf("b").split(".");
    expect(pick([fresh.join(".")])).toBe("b");
    expect(pick([`${fresh[0]}.${old[1]}`])).toBe("a");
  });

  it("a cookie of a gateway whose clock is behind or ahead is accepted", () => {
    const [one, other] = [bench({ ttlS: TTL_S }), bench({ ttlS: TTL_S })];
    one.clock.advance(TTL_S * 500);
    expect(one.pick([other.cookieOf("b")])).toBe("b");
    expect(other.pick([one.cookieOf("b")])).toBe("b");
  });

  it("cookies with made-up ends cost signatures for two times to live at most, none twice, and a request four", () => {
    let signed = 0;
    const peer = {
      ...madeUpPeer("a"),
      get id() {
        signed++;
        return "a";
      },
    } as Peer;
    const { sticky, cookieOf } = bench({ ttlS: TTL_S, peers: [peer] });
    const end = Number.parseInt(cookieOf("a").slice("route=".length), 36);
    const flood = Array.from({ length: 10_000 }, (_, i) => `route=${(end - 100 + i).toString(36)}.x`);
    signed = 0;
    for (const cookie of flood) sticky.session(withCookies([cookie]));
    // Of each of 63 terms, besides the one of the true cookie: the id is read to sign it, to write it and to find it.
    expect(signed).toBeGreaterThanOrEqual(63);
    expect(signed).toBeLessThan(63 * 3 + 5);
    const once = signed;
    for (const cookie of flood) sticky.session(withCookies([cookie]));
    expect(signed - once).toBeLessThan(5);
    const { sticky: other } = bench({ ttlS: TTL_S, peers: [peer] });
    signed = 0;
    expect(other.session(withCookies(flood.slice(100, 160)))).toBeNull();
    expect(signed).toBe(4 * 2);
  });
});
