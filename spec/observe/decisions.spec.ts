import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { Notes } from "../../lib/http/exchange.ts";
import { redactedPath } from "../../lib/http/redact.ts";
import { loggedHost, pathOf, plainPath } from "../../lib/observe/access_line.ts";
import { SLOT_BYTES } from "../../lib/observe/decisions.ts";
import { CACHE, DIGEST, KEYS, LIMIT, remembering, SERVICE, tried } from "../support/remembered.ts";
import { inThreads } from "../support/threads.ts";

const turn = () => new Promise<void>((resolve) => void setImmediate(resolve));

/** Each look at the clock takes longer than a slice may. */
function slow() {
  let now = 0;
  const spy = vi.spyOn(performance, "now").mockImplementation(() => (now += 10));
  onTestFinished(() => spy.mockRestore());
}

describe("a decision", () => {
  it("has the facts of the access log, and who has answered", async () => {
    const { end, find, clock } = remembering();
    const arrived = clock.now() - 5;
    const first = tried("a", null, 1, null, arrived + 0.5);
    end(
      "r-1",
      {},
      { service: "shop", route: "items", attempts: 2, tried: tried("b", 200, 3.25, first, arrived + 1.75) },
    );
    const time = new Date(clock.wall()).toISOString();
    const tries = [
      { upstream: "a", status: null, at_ms: 0.5, ms: 1 },
      { upstream: "b", status: 200, at_ms: 1.75, ms: 3.25 },
    ];
    const of = {
      time,
      client: "192.0.2.1",
      method: "GET",
      host: "shop.example",
      path: "/a/b",
      service: "shop",
      route: "items",
      caller: null,
      mcp: null,
    };
    expect(await find("r-1")).toEqual({
      id: "r-1",
      ...of,
      status: 200,
      code: null,
      by: "upstream",
      plugin: null,
      rule: null,
      tries,
      plugins: [],
      ms: 5,
      digest: DIGEST,
      trace_id: null,
    });
    expect(await find("r-2")).toBeNull();
    expect(Object.keys((await find("r-1"))!)).toEqual([
      "id",
      "time",
      "client",
      "method",
      "host",
      "path",
      "service",
      "route",
      "caller",
      "mcp",
      "status",
      "code",
      "by",
      "plugin",
      "rule",
      "tries",
      "plugins",
      "ms",
      "digest",
      "trace_id",
    ]);
  });

  it.each<readonly [string, Partial<Notes>, string | null]>([
    ["an upstream", { tried: tried("a", 503, 1), status: 503 }, "upstream"],
    [
      "an upstream whose reply breaks off",
      { tried: tried("a", 200, 1), status: 200, code: "upstream_reset" },
      "upstream",
    ],
    ["the gateway, after a try", { tried: tried("a", null, 1), status: 502, code: "upstream_reset" }, "gateway"],
    [
      "the gateway, where a plugin throws behind an upstream's 500",
      { tried: tried("a", 500, 1), status: 500, code: "internal" },
      "gateway",
    ],
    ["the gateway, without a try", { status: 404, code: "route_not_found" }, "gateway"],
    ["the gateway, by a redirect", { status: 308 }, "gateway"],
    [
      "a plugin",
      {
        status: 401,
        code: "key_missing",
        by: { name: "key_auth", scope: KEYS },
      },
      "key_auth",
    ],
    [
      "a cache that has asked in vain",
      { status: 200, by: { name: "response_cache", scope: CACHE }, tried: tried("a", 503, 1) },
      "response_cache",
    ],
    ["nobody", { status: null }, null],
  ])("of %s", async (_title, notes, by) => {
    const { end, find } = remembering();
    end("r", {}, notes);
    expect(await find("r")).toMatchObject({ by, status: notes.status, code: notes.code ?? null });
  });

  it("of a client that has gone has the try that was under way", async () => {
    const { end, find, clock } = remembering();
    clock.advance(1_000);
    end(
      "r",
      {},
      { status: null, attempts: 2, upstream: "b", askedAt: clock.now() - 4, tried: tried("a", 503, 1) },
      true,
    );
    expect(await find("r")).toMatchObject({
      status: null,
      code: "client_closed",
      by: null,
      tries: [
        { upstream: "a", status: 503, at_ms: 0, ms: 1 },
        { upstream: "b", status: null, at_ms: 1, ms: 4 },
      ],
    });
  });

  it(
    "has when plugins held the request for long, and leaves these out before " + "tries where there is no room",
    async () => {
      const { end, find, clock } = remembering();
      const arrived = clock.now() - 5;
      const first = { plugin: KEYS.key, from: arrived + 0.25, ms: 0.5, before: null };
      const held = { plugin: LIMIT.key, from: arrived + 0.75, ms: 1.5, before: first };
      end("r", {}, { held, tried: tried("a", 200, 2, null, arrived + 2.25) });
      expect(await find("r")).toMatchObject({
        plugins: [
          { plugin: "services.shop.routes.items.plugins.1", at_ms: 0.25, ms: 0.5 },
          { plugin: "services.shop.routes.items.plugins.rate_limit#2", at_ms: 0.75, ms: 1.5 },
        ],
        tries: [{ upstream: "a", status: 200, at_ms: 2.25, ms: 2 }],
      });
      end("long", { target: `/${"p".repeat(300)}` }, { held, tried: tried("a", 200, 2, tried("b", 503, 1)) });
      const { tries, plugins, path } = (await find("long"))!;
      expect([tries.length, plugins.length]).toEqual([2, 2]);
      expect(path).toMatch(/^\/p{20,}…$/);
      let many = tried("a", 503, 1);
      for (let i = 0; i < 20; i++) many = tried("a", 503, 1, many);
      end("many", {}, { held, tried: many });
      expect(await find("many")).toMatchObject({ plugins: [], path: "/a/b" });
    },
  );

  it("of a fetch that began before the request, or that took days, keeps the steps within their bounds", async () => {
    const { end, find, clock } = remembering();
    end("r", {}, { tried: tried("a", 200, 86_400_000, null, clock.now() - 1_000) });
    expect((await find("r"))!.tries).toEqual([{ upstream: "a", status: 200, at_ms: 0, ms: (2 ** 32 - 1) / 100 }]);
  });

  it("has neither query nor secrets", async () => {
    const { end, find, memory } = remembering();
    const targets = [
      "/a?key=hush",
      "http://user:hush@shop.example/a?hush",
      "/a;token=hush/b",
      "/a/eyJhushhush",
      "/a%3Ftoken=hush",
      "/a#hush",
      "*?hush",
      "/a%3Bpassword=hush",
    ];
    targets.forEach((target, i) =>
      end(`r${i}`, {
        target,
        headers: ["Authorization", "hush", "Cookie", "hush"],
        authority: "user:hush@shop.example",
      }),
    );
    for (const [i] of targets.entries()) expect(JSON.stringify(await find(`r${i}`))).not.toContain("hush");
    for (const bytes of memory.values()) expect(Buffer.from(bytes).includes("hush")).toBe(false);
    expect(await find("r0")).toMatchObject({ path: "/a", host: null });
  });

  it("has the host of its own request, whatever the one before had", async () => {
    const { end, find } = remembering();
    const hosts = ["", "a.example", "a.example", "user:hush@a.example", "b.example", "a.example"];
    hosts.forEach((authority, i) => end(`r${i}`, { authority }));
    end("absolute", { authority: "a.example", target: "http://c.example/x" });
    end("after", { authority: "a.example" });
    const found: unknown[] = [];
    for (const id of [...hosts.map((_, i) => `r${i}`), "absolute", "after"]) found.push((await find(id))!.host);
    expect(found).toEqual([null, "a.example", "a.example", null, "b.example", "a.example", "c.example", "a.example"]);
  });

  it("of the longest facts keeps id, client, code and the last try, and cuts host and path", async () => {
    const { end, find } = remembering();
    const client = "2001:db8:1111:2222:3333:4444:5555:6666";
    const many = Array.from({ length: 11 }, (_, i) => i).reduce<Notes["tried"]>(
      (before, i) => tried(i % 2 === 0 ? "a" : "b", 503, i, before),
      null,
    );
    const id = "i".repeat(39);
    end(
      id,
      {
        clientAddress: client,
        method: "M".repeat(100),
        authority: `${"h".repeat(250)}.example`,
        target: `/${"p".repeat(8_000)}`,
      },
      { status: 503, code: "c".repeat(200), service: "shop", route: "items", tried: many },
    );
    const found = (await find(id))!;
    expect(found).toMatchObject({ client, status: 503, service: "shop", route: "items", digest: DIGEST });
    expect(found.tries.at(-1)).toEqual({ upstream: "a", status: 503, at_ms: 5, ms: 10 });
    expect([found.host!.endsWith("…"), found.path!.endsWith("…"), found.code, found.method]).toEqual([
      true,
      true,
      `${"c".repeat(27)}…`,
      "MMMMMMMMM…",
    ]);
    end("mapped", { clientAddress: "0000:0000:0000:0000:0000:fffe:192.168.100.228" });
    expect((await find("mapped"))!.client).toBe("0000:0000:0000:0000:0000:fffe:192.168.1…");
    end("short", { target: `/${"p".repeat(300)}` }, { tried: many });
    expect((await find("short"))!.tries.length).toBeGreaterThan(3);
    expect((await find("short"))!.path).toMatch(/^\/p{8,}…$/);
  });

  it.each([
    "x",
    "a".repeat(39),
    "a".repeat(40),
    "b".repeat(128),
    "Root=1-67891233-abcdef012345678912345678",
    "..",
    "a:b/c+d=e@f-._",
    "__proto__",
  ])("is found by the id %s", async (id) => {
    const { end, find } = remembering();
    end(id, {}, { status: 403 });
    end(`${id}x`.slice(-128), {}, { status: 404 });
    end(id.slice(1) || "y", {}, { status: 405 });
    if (id.length < 128) expect(await find(id)).toMatchObject({ id, status: 403 });
    else expect(await find(id)).toMatchObject({ id });
  });

  it.each(["", " ", "a\n192.0.2.1", "#".padEnd(40, "a"), "ä", "\0", "a".repeat(129), "../x y", "%"])(
    "is not found by %j, which is no id",
    async (id) => {
      const { end, find, metrics } = remembering();
      end("a");
      end("b".repeat(128));
      expect(await find(id)).toBeNull();
      expect(metrics.decisions!.ring!.count).toBe(100);
    },
  );

  it(
    "has no secret of a long path, wherever that is cut, " + "and no more of it is looked at than a slot has room for",
    async () => {
      const { end, find, memory } = remembering(1_000);
      const secrets = [";token=hush", "%3Btoken=hush%26hush", "/eyJhushhush.hush", "%3FapiKey=hush", ";%74oken=hush"];
      for (const [i, secret] of secrets.entries()) {
        for (let length = 220; length <= 256; length++)
          end(`r${i}-${length}`, { target: `/;x=1${"a".repeat(length - 5)}${secret}${"b".repeat(9)}/end` });
      }
      for (const bytes of memory.values()) expect(Buffer.from(bytes).includes("hush")).toBe(false);
      end("long", { target: `/a;token=${"x".repeat(300)}/end` });
      expect((await find("long"))!.path).toBe("/a;token=[redacted]…");
      end("many", { target: `/a${";token=hush".repeat(700)}/end` });
      expect((await find("many"))!.path).toMatch(/^\/a(;token=\[redacted\])+;?.*…$/);
    },
  );

  it("has a path and a host as the access log has them, whatever characters they have", async () => {
    const { end, find } = remembering(1_000);
    const marks = Array.from({ length: 0x100 }, (_, code) => String.fromCharCode(code)).filter(
      (mark) => mark !== "\n" && mark !== "\x85",
    );
    const texts = [...marks, "J", "eyJ", "eyJhbGciOi", "x?y", "x#y?z", "%3Btoken=hush", "J?eyJ"].map(
      (mark) => `a${mark}b`,
    );
    for (const [i, text] of texts.entries()) {
      end(`r${i}`, { target: `/${text}`, authority: text });
      const path = plainPath(`/${text}`) ?? redactedPath(pathOf(`/${text}`));
      expect(await find(`r${i}`), JSON.stringify(text)).toMatchObject({
        path,
        host: loggedHost({ authority: text, target: "/" }),
      });
    }
    for (let length = 30; length < 110; length++) {
      const host = "h".repeat(length);
      end(host.slice(0, 30), { authority: host, target: `/${"p".repeat(110 - length)}?${"q".repeat(length)}` });
      const found = (await find(host.slice(0, 30)))!;
      expect(
        [found.host!.replace(/…$/, ""), found.path!.replace(/…$/, "")].every((text, i) =>
          [host, `/${"p".repeat(110 - length)}`][i]!.startsWith(text),
        ),
      ).toBe(true);
    }
  });

  it("has a path as it was, where that has the byte by which a slot marks a cut", async () => {
    const { end, find } = remembering();
    end("r", { target: "/a/\x85x" });
    expect((await find("r"))!.path).toBe("/a/\x85x");
  });

  it("has its names, however many the configuration has", async () => {
    const { end, find, metrics } = remembering();
    const plan = metrics.plan(100, () => metrics.decisions!.ring!.bytes.buffer);
    plan.service({ ...SERVICE, routes: Array.from({ length: 70_000 }, (_, i) => ({ name: `route ${i}` })) });
    plan.apply();
    end("r", {}, { service: "shop", route: "route 0", tried: tried("a", 200, 1) });
    expect(await find("r")).toMatchObject({
      service: "shop",
      route: "route 0",
      by: "upstream",
      tries: [{ upstream: "a" }],
    });
  });

  it("has its names, which are looked up once for a configuration, and again where they were forgotten", async () => {
    const { end, find, metrics, reload } = remembering();
    const lookUp = vi.spyOn(metrics.decisions!, "numberOf");
    const found = () => find("r").then((decision) => [decision?.service, decision?.route]);
    end("r", {}, { service: "shop", route: "items" });
    expect(await found()).toEqual(["shop", "items"]);
    lookUp.mockClear();
    expect([await found(), lookUp.mock.calls.length]).toEqual([["shop", "items"], 0]);
    for (let i = metrics.decisions!.names.size; i <= metrics.decisions!.maxNames; i++)
      metrics.decisions!.numberOf(`name ${i}`);
    expect(await found()).toEqual(["shop", "items"]);
    await reload(100);
    lookUp.mockClear();
    expect(await found()).toEqual(["shop", "items"]);
    expect(lookUp).toHaveBeenCalledWith("items");
  });

  it("has the method and the name that the plugin mcp has read, with and without caller and rule", async () => {
    const { end, find } = remembering();
    const mcp = { method: "tools/call", name: "search" };
    end("m1", {}, { mcp });
    expect(await find("m1")).toMatchObject({ mcp, caller: null, rule: null, path: "/a/b" });
    end("m2", {}, { mcp, identity: "ada" });
    expect(await find("m2")).toMatchObject({ mcp, caller: "ada", rule: null });
    end(
      "m3",
      {},
      { mcp, status: 400, code: "mcp_not_allowed", by: { name: "rate_limit", scope: LIMIT }, rule: "tools" },
    );
    expect(await find("m3")).toMatchObject({ mcp, caller: null, rule: "tools", code: "mcp_not_allowed" });
    end("m4", {}, { mcp: { method: "tools/list", name: null } });
    expect(await find("m4")).toMatchObject({ mcp: { method: "tools/list", name: null } });
    end("m5", {}, { mcp: { method: "tools/call", name: "a:\n\u010a" + "b".repeat(100) } });
    expect(await find("m5")).toMatchObject({ mcp: { method: "tools/call", name: `a:??${"b".repeat(32)}…` } });
  });

  it("of a refusal names the instance and the member of its config, whatever its names are", async () => {
    const { end, find } = remembering();
    const by = { name: "rate_limit", scope: LIMIT };
    const plugin = "services.shop.routes.items.plugins.rate_limit#2";
    const refused = (id: string, rule: string | null, notes: Partial<Notes> = {}) =>
      end(id, {}, { status: 429, code: "rate_limited", by, rule, ...notes });
    refused("r1", "limit_min");
    expect(await find("r1")).toMatchObject({ by: "rate_limit", plugin, code: "rate_limited", rule: "limit_min" });
    refused("r2", null);
    expect(await find("r2")).toMatchObject({ by: "rate_limit", plugin, code: "rate_limited", rule: null });
    refused("r3", "limits_by_group.g\n\u010a\t.limit_min", { code: "a\nb" });
    expect(await find("r3")).toMatchObject({ code: "a?b", rule: "limits_by_group.g???.limit_min", path: "/a/b" });
    refused("r4", `limits_by_group.${"g".repeat(100)}`);
    const { rule, path } = (await find("r4"))!;
    expect([rule, path]).toEqual([`limits_by_group.${"g".repeat(31)}…`, "/a/b"]);
    refused("r5", "limit_min", { by: null, tried: tried("a", 429, 1) });
    expect(await find("r5")).toMatchObject({ by: "upstream", plugin: null, rule: null });
  });

  it("of a refusal has a try and an end of the path, however long all other texts are", async () => {
    const { end, find } = remembering();
    const [address, method, authority] = ["f".repeat(39), "M".repeat(40), `${"h".repeat(200)}.example`];
    for (const tries of [0, 1, 9]) {
      let all: Notes["tried"] = null;
      for (let i = 0; i < tries; i++) all = tried("a", 500, 1, all);
      const id = `${"i".repeat(30)}${tries}`;
      end(
        id,
        { clientAddress: address, method, authority, target: `/${"p".repeat(200)}/end` },
        { code: "c".repeat(80), by: { name: "acl", scope: KEYS }, rule: "r".repeat(80), tried: all },
      );
      const found = (await find(id))!;
      expect(found.path).not.toBeNull();
      expect(found.tries.length).toBe(Math.min(tries, 1));
      expect(found.code).toMatch(/^c+…$/);
    }
  });

  it("of an id that is used twice is the newest", async () => {
    const { end, find } = remembering();
    for (const status of [401, 403, 200]) end("twice", {}, { status });
    end("other");
    expect(await find("twice")).toMatchObject({ status: 200 });
  });
});

describe("the ring of decisions", () => {
  const present = async (find: (id: string) => Promise<unknown>, ids: readonly number[]) => {
    const found: number[] = [];
    for (const id of ids) if ((await find(`r${id}`)) !== null) found.push(id);
    return found;
  };
  const upTo = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

  it.each([1, 2, 63, 64, 65, 100])("keeps the last %d and no more, however many there were", async (count) => {
    const { end, find } = remembering(count);
    for (let i = 0; i < 1_000; i++) end(`r${i}`);
    expect(await present(find, upTo(0, 1_000))).toEqual(upTo(1_000 - count, 1_000));
  });

  it("has 200 bytes for each of 10,000 by default, and nothing without any", async () => {
    const { memory } = remembering(undefined);
    expect([...memory].map(([name, { byteLength }]) => [name, Math.floor(byteLength / 10_000)])).toEqual([
      ["decisions 100", 2],
    ]);
    const all = remembering(10_000);
    expect(all.memory.get("decisions 10000")!.byteLength).toBe(10_000 * SLOT_BYTES + 8);
    const none = remembering(0);
    none.end("r");
    expect([await none.find("r"), none.memory.size]).toEqual([null, 0]);
  });

  it.each([
    [100, 10],
    [10, 100],
    [100, 99],
    [64, 63],
    [1, 1_000],
  ])("keeps the newest where a reload changes %d to %d", async (before, after) => {
    const { end, find, reload } = remembering(before);
    for (let i = 0; i < 250; i++) end(`r${i}`);
    await reload(after);
    const stay = Math.min(before, after);
    expect(await present(find, upTo(0, 250))).toEqual(upTo(250 - stay, 250));
    for (let i = 250; i < 255; i++) end(`r${i}`);
    expect(await present(find, upTo(0, 255))).toEqual(upTo(255 - Math.min(after, stay + 5), 255));
  });

  it("is moved in slices, and as a whole where reloads follow one another", async () => {
    const { end, find, reload, metrics } = remembering(5_000);
    for (let i = 0; i < 5_000; i++) end(`r${i}`);
    slow();
    let isMoved = false;
    const first = reload(4_000)!.then(() => (isMoved = true));
    await turn();
    expect(isMoved).toBe(false);
    end("new");
    const second = reload(6_000);
    await Promise.all([first, second]);
    vi.restoreAllMocks();
    expect(metrics.decisions!.ring!.count).toBe(6_000);
    expect(await present(find, [1_000, 1_001, 2_000, 3_000, 4_999])).toEqual([1_001, 2_000, 3_000, 4_999]);
    expect(await find("new")).not.toBeNull();
  });

  it("is searched by one at a time, in slices: many hold up requests for no longer than one", async () => {
    const { end, find } = remembering(100);
    end("r1");
    let found = 0;
    const all = Promise.all(
      Array.from({ length: 10 }, async (_, i) => {
        await find(i % 2 === 0 ? "r1" : "none");
        found++;
      }),
    );
    const inTurns: number[] = [];
    for (let before = 0; found < 10; before = found) {
      await turn();
      inTurns.push(found - before);
    }
    await all;
    expect(Math.max(...inTurns)).toBe(1);
  });

  it("is kept by a reload of other things, and dropped by one to 0", async () => {
    const { end, find, reload } = remembering(100);
    end("r1", {}, { service: "shop", route: "items" });
    await reload(100);
    end("r2");
    expect(await present(find, [1, 2])).toEqual([1, 2]);
    expect(await find("r1")).toMatchObject({ service: "shop", route: "items" });
    await reload(0);
    end("r3");
    expect(await present(find, [1, 2, 3])).toEqual([]);
    await reload(100);
    end("r4");
    expect(await present(find, [3, 4])).toEqual([4]);
  });

  it("takes over what another thread ends before it has the new configuration", async () => {
    const { end, find, reload, metrics, clock } = remembering(100);
    const late = metrics.decisions!.ring;
    end("r1");
    await reload(200);
    const next = metrics.decisions!.ring;
    metrics.decisions!.ring = late;
    end("r2");
    metrics.decisions!.ring = next;
    end("r3");
    clock.advance(1_000);
    expect(await present(find, [1, 2, 3])).toEqual([1, 2, 3]);
  });

  it("goes on where its numbers begin again", async () => {
    const { end, find, metrics } = remembering(100);
    const ring = metrics.decisions!.ring!;
    ring.words[0] = ring.lap - 130;
    for (let i = 0; i < 250; i++) end(`r${i}`);
    expect(await present(find, upTo(0, 250))).toEqual(upTo(150, 250));
    expect(ring.words[0]).toBe(120);
  });

  it("has nothing of a slot that is being written, or whose writer was overtaken", async () => {
    const { end, find, metrics } = remembering(64);
    end("r0");
    const ring = metrics.decisions!.ring!;
    const slow = ring.begin();
    expect(await find("r0")).not.toBeNull();
    ring.bytes.write("r1\n", ring.at(slow) + 56);
    expect(await find("r1")).toBeNull();
    for (let i = 2; i < 66; i++) end(`r${i}`);
    expect(await find("r65")).not.toBeNull();
    ring.end(slow);
    expect(await find("r65")).toBeNull();
    expect(await find("r64")).not.toBeNull();
  });
});

describe("threads", () => {
  it.each([2, 8])("of %d workers share one ring, exactly", async (count) => {
    const { memory, find } = remembering(1_000);
    type Module = typeof import("../../lib/observe/decisions.ts");
    await inThreads<Module, number>(count, "observe/decisions", memory, ({ module, threads, meet }) => {
      const clock = { now: () => 5, wall: () => 1e12, after: () => ({ cancel() {}, restart() {} }) };
      const decisions = new module.Decisions(clock);
      decisions.ring = decisions.ringFor(1_000, threads.memory);
      meet();
      for (let i = 0; i < 40; i++) {
        const notes = {
          status: 200,
          code: null,
          digest: "0123456789ab",
          service: "shop",
          route: "items",
          by: null,
          rule: null,
          identity: null,
          mcp: null,
          span: null,
          askedAt: null,
          held: null,
          upstream: "a",
          tried: { upstream: "a", from: 0, status: 200, ms: 1, before: null },
        };
        decisions.add(
          {
            call: { id: `t${threads.worker}-${i}`, startedAt: 0, notes, aborted: false },
            method: "GET",
            target: "/a",
            authority: "a.test",
            clientAddress: "192.0.2.1",
            headers: [],
          } as never,
          5,
        );
      }
      return 0;
    });
    for (let place = 0; place < count; place++) {
      for (let i = 0; i < 40; i++)
        expect(await find(`t${place}-${i}`), `t${place}-${i}`).toMatchObject({
          service: "shop",
          route: "items",
          by: "upstream",
          tries: [{ upstream: "a" }],
          path: "/a",
        });
    }
  });
});
