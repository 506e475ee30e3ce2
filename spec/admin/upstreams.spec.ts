/** POST /gateway/upstreams/{service}/{id}: who may, what is refused, and what the answer and the log of changes say. */
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import { eventually } from "../support/raw_client.ts";
import { RIGHT, startAdmin, USER } from "./harness.ts";
import { AS_VIEWER, withPort, writable } from "./writable.ts";

const JSON_TYPE = { "content-type": "application/json" };
const upstream = (id: string) => ({ id, host: "127.0.0.1", port: 1 });
const stateful = (state: string) => ({ body: JSON.stringify({ state }), headers: JSON_TYPE });

describe("POST /gateway/upstreams/{service}/{id}", () => {
  it("without ADMIN_WRITE is 404, as is everything but one service and one upstream", async () => {
    const { ask, session } = await startAdmin();
    const refused = await ask("POST", "/gateway/upstreams/s/u", {
      ...stateful("drain"),
      headers: { ...JSON_TYPE, cookie: await session() },
    });
    expect([refused.status, refused.json.code]).toEqual([404, "route_not_found"]);
    const { asAdmin } = await writable();
    for (const path of [
      "/gateway/upstreams",
      "/gateway/upstreams/s",
      "/gateway/upstreams/s/",
      "/gateway/upstreams/s/u/x",
      "/gateway/upstreams//u",
      "/gateway/upstreams/t/u",
      "/gateway/upstreams/s/v",
      "/gateway/upstreams/s/constructor",
    ]) {
      const { status, json } = await asAdmin("POST", path, stateful("drain"));
      expect([path, status, json.code]).toEqual([path, 404, "route_not_found"]);
    }
  });

  it("answers with the upstream as in /gateway/health, and reports it in status as a warning", async () => {
    const { asAdmin } = await writable(withPort(1, { upstreams: [upstream("u"), { ...upstream("v"), weight: 3 }] }));
    const states = async () => {
      const { json } = await asAdmin("GET", "/gateway/health");
      return json.services[0].upstreams as Record<string, unknown>[];
    };
    expect((await states()).map(({ admin_state }) => admin_state)).toEqual([null, null]);
    for (const [state, shown, usable] of [
      ["drain", "drain", false],
      ["eject", "eject", false],
      ["eject", "eject", false],
      ["use", null, true],
    ] as const) {
      const got = await asAdmin("POST", "/gateway/upstreams/s/v", stateful(state));
      expect([got.status, got.json]).toEqual([200, (await states())[1]]);
      expect(got.json).toMatchObject({ id: "v", weight: 3, state: "unknown", admin_state: shown, usable });
      const warnings = (await asAdmin("GET", "/gateway/status")).json.warnings as {
        readonly code: string;
        readonly path: string;
      }[];
      expect(warnings.flatMap(({ code, path }) => (code === "upstream_taken_out" ? [path] : []))).toEqual(
        shown === null ? [] : ["services.s.upstreams.v"],
      );
    }
    expect((await states())[0]).toMatchObject({ admin_state: null, usable: true });
  });

  it("says since when it is out, whoever asks for it again, and over a reload that changes it", async () => {
    const { asAdmin, gateway, file } = await writable(withPort(1));
    const since = async () =>
      (await asAdmin("GET", "/gateway/health")).json.services[0].upstreams[0].admin_since as string | null;
    expect(await since()).toBeNull();
    const before = Date.now();
    await asAdmin("POST", "/gateway/upstreams/s/u", stateful("eject"));
    const first = (await since())!;
    expect(Date.parse(first)).toBeGreaterThanOrEqual(before);
    expect(Date.parse(first)).toBeLessThanOrEqual(Date.now());
    await asAdmin("POST", "/gateway/upstreams/s/u", stateful("eject"));
    writeFileSync(file, JSON.stringify(withPort(1, { upstreams: [{ ...upstream("u"), weight: 7 }] })));
    await gateway.reload();
    expect(gateway.health.services[0]!.upstreams[0]).toMatchObject({ weight: 7, adminState: "eject" });
    expect(await since()).toBe(first);
    await asAdmin("POST", "/gateway/upstreams/s/u", stateful("use"));
    expect(await since()).toBeNull();
  });

  it("holds over a reload that comes meanwhile, and is 404 where that has removed the upstream", async () => {
    let meanwhile: (() => Promise<unknown>) | null = null;
    const refresh = () => {
      const during = meanwhile?.() ?? null;
      meanwhile = null;
      return during as Promise<void> | null;
    };
    const { asAdmin, gateway, file } = await writable(withPort(1), { refresh });
    for (const state of ["drain", "eject"]) {
      meanwhile = () => gateway.reload();
      const { status, json } = await asAdmin("POST", "/gateway/upstreams/s/u", stateful(state));
      expect([status, json.admin_state]).toEqual([200, state]);
    }
    meanwhile = () => {
      writeFileSync(file, JSON.stringify(withPort(1, { upstreams: [upstream("v")] })));
      return gateway.reload();
    };
    const { status, json } = await asAdmin("POST", "/gateway/upstreams/s/u", stateful("drain"));
    expect([status, json.code]).toEqual([404, "route_not_found"]);
  });

  it.each([
    ["removes the upstream", { upstreams: [upstream("v")] }],
    ["gives it another id", { upstreams: [{ ...upstream("u"), id: "w" }, upstream("v")] }],
    ["gives the service another name", { name: "t" }],
  ])("ends with a reload that %s, which is logged once; added again, it gets requests", async (_what, parts) => {
    const config = withPort(1, { upstreams: [upstream("u"), upstream("v")] });
    const { asAdmin, gateway, file, lines } = await writable(config);
    await asAdmin("POST", "/gateway/upstreams/s/u", stateful("eject"));
    for (const each of [withPort(1, { ...config.services[0], ...parts }), config, config]) {
      writeFileSync(file, JSON.stringify(each));
      await gateway.reload();
    }
    expect(gateway.health.services[0]!.upstreams.map(({ adminState }) => adminState)).toEqual([null, null]);
    const about = { service: "s", upstream: "u", was: "eject" };
    expect(lines().filter(({ message }) => String(message).startsWith("upstream is no longer"))).toMatchObject([
      { level: "warn", message: "upstream is no longer taken out: the configuration has it no longer", ...about },
    ]);
  });

  it("takes names percent-encoded, and refuses what is no encoding", async () => {
    const odd = "a/b %?#ü";
    const { asAdmin } = await writable(withPort(1, { name: "shop ü", upstreams: [upstream("u"), upstream(odd)] }));
    const got = await asAdmin(
      "POST",
      `/gateway/upstreams/${encodeURIComponent("shop ü")}/${encodeURIComponent(odd)}?x=1`,
      stateful("drain"),
    );
    expect([got.status, got.json.id, got.json.admin_state]).toEqual([200, odd, "drain"]);
    for (const path of ["/gateway/upstreams/%/u", "/gateway/upstreams/s/%ff"]) {
      const { status, json } = await asAdmin("POST", path, stateful("drain"));
      expect([path, status, json.code]).toEqual([path, 400, "bad_request"]);
    }
  });

  it("refuses any other body, and says what is allowed", async () => {
    const { asAdmin } = await writable();
    const bodies = [
      "",
      "null",
      "[]",
      '"drain"',
      "{}",
      '{"state":"Drain"}',
      '{"state":null}',
      '{"state":["use"]}',
      '{"state":"drain","for_s":5}',
      '{"state":"drain"',
      '{"__proto__":{"state":"drain"}}',
      '{"state":"drain\xff"}',
    ];
    for (const body of bodies) {
      const { status, json } = await asAdmin("POST", "/gateway/upstreams/s/u", { body, headers: JSON_TYPE });
      expect([body, status, json.code, json.detail]).toEqual([
        body,
        400,
        "request_invalid",
        'Send {"state":"drain"}, {"state":"eject"} or {"state":"use"}, and nothing else.',
      ]);
    }
    const long = await asAdmin("POST", "/gateway/upstreams/s/u", {
      body: `{"state":"drain"${" ".repeat(1_024)}}`,
      headers: JSON_TYPE,
    });
    expect([long.status, long.json.detail]).toEqual([413, "The body may have at most 1024 bytes."]);
    const typed = await asAdmin("POST", "/gateway/upstreams/s/u", {
      body: '{"state":"drain"}',
      headers: { "content-type": "text/plain" },
    });
    expect([typed.status, typed.json.code]).toEqual([400, "bad_request"]);
    expect((await asAdmin("GET", "/gateway/health")).json.services[0].upstreams[0].admin_state).toBe(null);
    const other = await asAdmin("GET", "/gateway/upstreams/s/u");
    expect([other.status, other.headers["allow"]]).toEqual([405, "POST, OPTIONS"]);
  });

  it("is for the session of an administrator: no viewer, no credentials, no page of another origin", async () => {
    const { ask, asAdmin, asViewer } = await writable();
    const codeOf = async (asked: ReturnType<typeof asAdmin>) =>
      asked.then(({ status, json }) => [status, json.code] as const);
    const withHeaders = (headers: Record<string, string>) => ({
      ...stateful("drain"),
      headers: { ...JSON_TYPE, ...headers },
    });
    expect(await codeOf(asViewer("POST", "/gateway/upstreams/s/u", stateful("drain")))).toEqual([403, "forbidden"]);
    expect(await codeOf(ask("POST", "/gateway/upstreams/s/u", stateful("drain")))).toEqual([401, "unauthenticated"]);
    for (const authorization of [RIGHT, AS_VIEWER])
      expect(await codeOf(ask("POST", "/gateway/upstreams/s/u", withHeaders({ authorization })))).toEqual([
        401,
        "unauthenticated",
      ]);
    for (const headers of [
      { origin: "http://evil.example" },
      { origin: "null" },
      { "sec-fetch-site": "cross-site" },
      { "sec-fetch-site": "same-site" },
    ]) {
      expect(
        await codeOf(asAdmin("POST", "/gateway/upstreams/s/u", withHeaders(headers as Record<string, string>))),
      ).toEqual([403, "forbidden"]);
    }
    expect((await asViewer("GET", "/gateway/health")).json.services[0].upstreams[0].admin_state).toBe(null);
  });

  it("takes an upstream out with all its endpoints, answers with these, and refuses use of one of them", async () => {
    const lookup = async () => ["127.0.0.1", "127.0.0.2"].map((address) => ({ address, family: 4 }));
    const config = withPort(1, { upstreams: [{ id: "u", host: "orders.test", port: 1 }] });
    const { asAdmin, gateway } = await writable(config, { lookup });
    Gateway.internalsOf(gateway).requests.activate();
    await eventually(() => gateway.health.services[0]!.upstreams.length === 2, "both addresses");
    const set = async (id: string, state: string) => {
      const { status, json } = await asAdmin("POST", `/gateway/upstreams/s/${encodeURIComponent(id)}`, stateful(state));
      return [status, json] as const;
    };
    const [one, two] = ["u/127.0.0.1:1", "u/127.0.0.2:1"] as const;
    const ofAll = { admin_state: "drain", admin_id: "u" };
    expect(await set("u", "drain")).toMatchObject([
      200,
      {
        id: "u",
        admin_state: "drain",
        endpoints: [
          { id: one, ...ofAll },
          { id: two, ...ofAll },
        ],
      },
    ]);
    const { warnings } = (await asAdmin("GET", "/gateway/status")).json as { readonly warnings: { path: string }[] };
    expect(warnings.map(({ path }) => path)).toContain("services.s.upstreams.u");
    expect(await set(one, "use")).toMatchObject([
      409,
      { code: "conflict", detail: 'It is taken out with all endpoints of the upstream "u": use that.' },
    ]);
    expect(await set(one, "eject")).toMatchObject([200, { id: one, admin_state: "eject", admin_id: one }]);
    expect(await set("u", "use")).toMatchObject([
      200,
      { id: "u", admin_state: null, endpoints: [{ admin_state: null }, { admin_state: null }] },
    ]);
    expect((await set("u/127.0.0.3:1", "drain"))[0]).toBe(404);
  });

  it("is a line in the log, with the state before and after", async () => {
    const { asAdmin, lines } = await writable(withPort(1));
    for (const state of ["drain", "eject", "use"]) await asAdmin("POST", "/gateway/upstreams/s/u", stateful(state));
    await asAdmin("POST", "/gateway/upstreams/s/u", stateful("stop"));
    const about = {
      message: "admin change",
      user: USER,
      address: "127.0.0.1",
      action: "upstream",
      service: "s",
      upstream: "u",
    };
    expect(lines().filter(({ message }) => message === "admin change")).toMatchObject(
      [
        ["use", "drain"],
        ["drain", "eject"],
        ["eject", "use"],
      ].map(([before, after]) => ({ ...about, before, after })),
    );
  });
});
