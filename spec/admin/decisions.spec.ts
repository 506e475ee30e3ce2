import { describe, expect, it } from "vitest";
import { FILTER_FIELDS } from "../../lib/observe/request_filter.ts";
import { backend, oneService, running } from "../support/gateway.ts";
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

describe("GET /gateway/requests", () => {
  async function asking(global: object = {}) {
    const upstream = await backend((_request, response) => response.writeHead(200).end("ok"));
    const key = { name: "key_auth", config: { callers: true } };
    const { gateway } = await running({
      ...oneService(
        upstream.port,
        {
          routes: [
            { name: "closed", path: "/closed", plugins: [key] },
            { name: "all", path: "/{rest*}" },
          ],
        } as never,
        { trusted_proxies: ["127.0.0.1"], ...global },
      ),
      callers: [{ id: "ada", keys: [{ key: "a-key-of-ada-that-is-long" }] }],
    } as never);
    const viewer = { user: "viewer", password: "another long password" };
    const admin = await startAdmin({ gateway: gateway as never, viewer });
    const cookie = await admin.session();
    const list = (query = "", headers: Record<string, string> = { cookie }) =>
      admin.ask("GET", `/gateway/requests${query}`, { headers });
    const get = (url: string, headers: Record<string, string> = {}, clientIp = "203.0.113.9") =>
      gateway.inject({ url, headers: { Host: "shop.example", ...headers }, clientIp });
    return { ...admin, gateway, viewer, list, get };
  }

  it("lists what fits, the newest first, with counts of each choice and over time", async () => {
    const { list, get } = await asking();
    await get("/a/x");
    await get("/a/closed", { apiKey: "wrong" });
    await get("/a/closed?apiKey=a-key-of-ada-that-is-long");
    await get("/nowhere", {}, "203.0.113.10");
    const all = (await list()).json;
    const paths = (answer: { requests: { path: string }[] }) => answer.requests.map(({ path }) => path);
    expect(all).toMatchObject({ looked: 4, matching: 4, before: null, since: expect.any(String) });
    expect(paths(all)).toEqual(["/nowhere", "/a/closed", "/a/closed", "/a/x"]);
    expect(all.requests[1]).toMatchObject({ caller: "ada", status: 200, by: "upstream", route: "closed" });
    expect(JSON.stringify(all)).not.toContain("a-key-of-ada");
    expect(all.facets).toMatchObject({
      status: {
        values: [
          { value: "2xx", count: 2 },
          { value: "4xx", count: 2 },
        ],
        others: 0,
      },
      client: {
        values: [
          { value: "203.0.113.9", count: 3 },
          { value: "203.0.113.10", count: 1 },
        ],
      },
      caller: { values: [{ value: "ada", count: 1 }] },
    });
    expect(all.histogram.bars.reduce((sum: number, { count }: { count: number }) => sum + count, 0)).toBe(4);
    const failed = (await list("?status=4xx,5xx")).json;
    expect(paths(failed)).toEqual(["/nowhere", "/a/closed"]);
    // Other statuses are still counted: they are what another choice would give.
    expect(failed.facets.status.values).toHaveLength(2);
    expect(failed.facets.code.values).toEqual([
      { value: "key_invalid", count: 1 },
      { value: "route_not_found", count: 1 },
    ]);
    expect(paths((await list("?caller=ada&service=s&route=closed&path=/a/&method=GET&min_ms=0")).json)).toEqual([
      "/a/closed",
    ]);
    expect(paths((await list("?client=203.0.113.1")).json)).toEqual([]);
    expect(paths((await list("?client=203.0.113.&by=key_auth")).json)).toEqual(["/a/closed"]);
    expect(paths((await list("?max_ms=0&min_ms=0&code=none")).json)).toEqual([]);
    const { time } = all.requests[0]!;
    expect(paths((await list(`?until=${time}`)).json)).not.toContain(all.requests[0]!.path);
    expect(paths((await list(`?since=${time}`)).json)).toContain(all.requests[0]!.path);
  });

  it("goes on behind the last one, while new requests arrive and ids are used twice", async () => {
    const { list, get } = await asking({ decisions: 100 });
    for (let i = 0; i < 7; i++) await get(`/a/${i}`, { "X-Request-Id": i < 5 ? "same" : `r${i}` }, "127.0.0.1");
    const seen: string[] = [];
    let before: string | null = "";
    for (let page = 0; before !== null && page < 9; page++) {
      const { json } = await list(`?limit=2${before === "" ? "" : `&before=${encodeURIComponent(before)}`}`);
      seen.push(...json.requests.map(({ path }: { path: string }) => path));
      before = json.before;
      await get("/a/new", {}, "127.0.0.1");
    }
    expect(seen).toEqual(["/a/6", "/a/5", "/a/4", "/a/3", "/a/2", "/a/1", "/a/0"]);
    // An id alone is the latest request with it.
    expect((await list("?before=r5&limit=1")).json.requests).toMatchObject([{ path: "/a/4" }]);
    for (let i = 0; i < 100; i++) await get("/a/later");
    expect(await list("?before=r5")).toMatchObject({ status: 404, json: { code: "route_not_found", before: "r5" } });
  });

  it("shows and finds ids that are too long to be kept, by a hash", async () => {
    const { list, get, ask, session } = await asking();
    const id = "a".repeat(60);
    await get("/a/x", { "X-Request-Id": id }, "127.0.0.1");
    const [{ id: shown }] = (await list()).json.requests;
    const headers = { cookie: await session() };
    const found = await ask("GET", `/gateway/requests/${encodeURIComponent(shown)}`, { headers });
    expect(found).toMatchObject({ status: 200, json: { id: shown, path: "/a/x" } });
    expect((await list(`?before=${id}`)).json.requests).toEqual([]);
  });

  it("is read by viewers and by callers with credentials, and by nobody else", async () => {
    const { list, get, ask, login, viewer, session } = await asking();
    await get("/a/x");
    const { json } = await list();
    const authorization = basic(viewer.user, viewer.password);
    expect((await list("", { cookie: cookieOf(await login(authorization)) })).json).toEqual(json);
    expect((await list("", { authorization })).json).toEqual(json);
    expect((await list("", {})).status).toBe(401);
    expect((await ask("POST", "/gateway/requests", { headers: { cookie: await session() } })).status).toBe(405);
    expect((await ask("GET", "/gateway/requestsx", { headers: { cookie: await session() } })).status).toBe(404);
  });

  it.each([
    ["?statuses=4xx", `The query can have ${[...FILTER_FIELDS, "since", "until", "before", "limit"].join(", ")}.`],
    ["?limit=0", '"limit" must be a whole number from 1 to 500.'],
    ["?limit=501", '"limit" must be a whole number from 1 to 500.'],
    ["?limit=1.5", '"limit" must be a whole number from 1 to 500.'],
    ["?limit=1&limit=2", '"limit" must be there once, with at most 1024 characters.'],
    ["?since=yesterday", '"since" and "until" must be times such as 2027-01-31T12:00:00Z (RFC 3339).'],
    ["?until=2027-02-30T12:00:00Z", '"since" and "until" must be times such as 2027-01-31T12:00:00Z (RFC 3339).'],
    ["?until=", '"since" and "until" must be times such as 2027-01-31T12:00:00Z (RFC 3339).'],
    ["?min_ms=soon", '"min_ms" must be milliseconds, such as 250 or 0.5.'],
  ])("refuses the query %s and says what is allowed", async (query, detail) => {
    const { list } = await asking();
    expect(await list(query)).toMatchObject({ status: 400, json: { code: "request_invalid", detail } });
  });

  it("answers 404 to a place that is not one, and an empty list where nothing is remembered", async () => {
    const { list } = await asking();
    for (const before of ["x", "", "~", "x~1", "x~0", "%00", "__proto__", "x~99999999999"])
      expect((await list(`?before=${before}`)).status, before).toBe(404);
    expect((await list()).json).toMatchObject({ requests: [], looked: 0, matching: 0, since: null, before: null });
    const none = await asking({ decisions: 0 });
    await none.get("/a/x");
    expect((await none.list()).json).toMatchObject({ requests: [], looked: 0, before: null });
    expect((await none.list("?before=x")).status).toBe(404);
  });
});
