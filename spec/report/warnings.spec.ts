import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { definePlugin, schema } from "../../lib/index.ts";
import type { State } from "../../lib/gateway/status.ts";
import { keyEnds } from "../../lib/report/key_ends.ts";
import { warningsOf, type WarningsSource } from "../../lib/report/warnings.ts";
import { CA, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { SHOP } from "../support/more_certs.ts";
import { closedPort } from "../support/origin.ts";
import { emptyFolder } from "../support/process.ts";

const NOW = Date.UTC(2026, 0, 1);
const DAY = 86_400_000;

const quiet: WarningsSource = {
  lastReload: null,
  digest: "0123456789ab",
  certificates: [],
  revocationLists: [],
  source: null,
  plainSecret: null,
  acme: null,
  counters: null,
  workers: null,
  state: "serving",
  pluginFaults: [],
  upstreamSets: [],
  unresolved: [],
  callers: null,
  shown: { global: { certificates: [], plugins: [] }, services: [] },
  listeners: null,
  areQuotasKept: true,
  isProgramReplaced: false,
  expiresAt: null,
  configWarnings: [],
  wall: NOW,
};

const codes = (changes: Partial<WarningsSource>) => warningsOf({ ...quiet, ...changes }).map(({ code }) => code);
const issue = (line: number | null, message: string) => ({ path: "", line, column: line, message });
const upstream = {
  id: "u",
  host: "h",
  port: 1,
  weight: 1,
  group: null,
  backup: false,
  state: "healthy",
  usable: true,
  since: null,
  until: null,
  reason: null,
  inFlight: 0,
  adminState: null,
  adminSince: null,
  adminId: null,
  share: 1,
  rest: true,
} as const;

describe("warnings", () => {
  it("a healthy gateway has no warnings", () => {
    expect(codes({})).toEqual([]);
    expect(
      codes({
        upstreamSets: [{ name: "s", circuitBreaker: { state: "closed", since: null }, upstreams: [upstream] }],
        listeners: { https: true, asksForCertificates: true },
      }),
    ).toEqual([]);
  });

  it("warns of certificates that a fleet does not share, and of shared ones that this gateway cannot use", () => {
    const source = {
      name: "etcd://10.0.0.1/gw.json",
      up: true,
      since: NOW,
      revision: "rev:1",
      problem: null,
      copy: null,
    };
    const acme = {
      directory: "https://ca/",
      hosts: [],
      error: null,
      nextAt: null,
      orders: { succeeded: 0, failed: 0 },
    };
    const of = (fleet: NonNullable<WarningsSource["acme"]>["fleet"], from: WarningsSource["source"] = source) =>
      codes({ source: from, acme: { ...acme, state: "valid", fleet } });
    expect(of(null)).toEqual(["acme_not_shared"]);
    expect(of(null, { ...source, name: "https://config.example/gw.json" })).toEqual([]);
    expect(of(null, null)).toEqual([]);
    expect(codes({ source })).toEqual([]);
    expect(of({ holder: null, isHolder: false, problem: null })).toEqual([]);
    expect(of({ holder: null, isHolder: false, problem: "another key" })).toEqual(["acme_unusable"]);
  });

  it("warns of certificates that have expired or expire within 14 days, with the date", () => {
    const certificate = (days: number) => ({
      where: "global.certificates[0]",
      path: "/c.pem",
      names: ["a.example", "b.example", "c.example", "d.example"],
      commonName: null,
      notAfter: NOW + days * DAY,
    });
    expect(codes({ certificates: [certificate(15), certificate(14)] })).toEqual([]);
    expect(
      warningsOf({ ...quiet, certificates: [certificate(-1), certificate(13.9)] }).map(({ message }) => message),
    ).toEqual([
      "The certificate /c.pem (global.certificates[0]) for a.example, b.example, c.example, " +
        "… expired on 2025-12-31, and clients refuse it.",
      expect.stringMatching(/expires on 2026-01-14\.$/),
    ]);
    expect(
      warningsOf({
        ...quiet,
        certificates: [{ where: "listen", path: null, names: [], commonName: null, notAfter: 0 }],
      })[0]!.message,
    ).toMatch(/^The certificate of listen expired on 1970-01-01/);
  });

  it("warns of a refused reload, with the first issue and how many more there are", () => {
    const refused = {
      at: NOW,
      by: "file",
      digest: "x",
      outcome: "refused",
      file: "gw.json",
      issues: [issue(1, "bad"), issue(null, "worse")],
    } as const;
    expect(warningsOf({ ...quiet, lastReload: refused })).toEqual([
      {
        code: "reload_refused",
        path: null,
        message:
          "The last reload was refused (gw.json:1:1  bad, and 1 more); configuration 0123456789ab stays in force.",
        example: null,
        remedy: "Correct the configuration; it is then reloaded.",
        service: null,
        route: null,
      },
    ]);
    expect(codes({ lastReload: { ...refused, outcome: "taken", changes: [] } })).toEqual([]);
  });

  it(
    "warns of missing workers, also when none is left, until the gateway drains: " +
      "then they end because they are asked to",
    () => {
      const of = (serving: number, state: State = "serving") =>
        codes({ workers: { configured: 4, serving, restarts: 1 }, state });
      expect([of(4), of(3), of(0), of(3, "draining")]).toEqual([[], ["workers_missing"], ["workers_missing"], []]);
    },
  );

  it("warns of upstreams that are down or ejected, of services without a usable upstream, and of open circuits", () => {
    const upstreamSets: WarningsSource["upstreamSets"] = [
      {
        name: "s",
        circuitBreaker: { state: "open", since: NOW },
        upstreams: [{ ...upstream, state: "unhealthy", usable: false, reason: "status 500" }],
      },
      {
        name: "t",
        circuitBreaker: { state: "half_open", since: NOW },
        upstreams: [{ ...upstream, state: "ejected", usable: false }, upstream],
      },
    ];
    const told = warningsOf({ ...quiet, upstreamSets });
    expect(told.map(({ code, service }) => [code, service])).toEqual([
      ["no_upstream", "s"],
      ["circuit_open", "s"],
      ["upstream_down", "s"],
      ["upstream_ejected", "t"],
    ]);
    expect(told[2]!.message).toBe('Upstream "u" (h:1) of service "s" is unhealthy: its checks fail (status 500).');
    expect(told.map(({ path }) => path)).toEqual([
      "services.s",
      "services.s",
      "services.s.upstreams.u",
      "services.t.upstreams.u",
    ]);
  });

  it("warns of upstreams that an administrator has taken out, and says so where none is left", () => {
    const upstreams = [
      { ...upstream, adminState: "drain", adminId: "u", usable: false },
      { ...upstream, id: "v", adminState: "eject", adminId: "v", usable: false },
      { ...upstream, id: "w/10.0.0.1:1", adminState: "eject", adminId: "w", usable: false },
      { ...upstream, id: "w/10.0.0.2:1", adminState: "eject", adminId: "w", usable: false },
    ] as const;
    const told = warningsOf({ ...quiet, upstreamSets: [{ name: "s", circuitBreaker: null, upstreams }] });
    expect(told.map(({ code, path }) => [code, path])).toEqual([
      ["no_upstream", "services.s"],
      ["upstream_taken_out", "services.s.upstreams.u"],
      ["upstream_taken_out", "services.s.upstreams.v"],
      ["upstream_taken_out", "services.s.upstreams.w"],
    ]);
    expect(told.map(({ message }) => message).slice(1)).toEqual([
      'Upstream "u" (h:1) of service "s" is taken out (drained): it gets no new requests, ' +
        "but those of its sticky sessions.",
      'Upstream "v" (h:1) of service "s" is taken out (ejected): it gets no requests.',
      'Upstream "w" of service "s" is taken out (ejected): it gets no requests.',
    ]);
    expect(told[0]!.remedy).toBe("Use an upstream again that was taken out.");
  });

  it("says where none but backups of a service can be used", () => {
    const told = (primary: object, backup: object) => {
      const upstreams = [
        { ...upstream, ...primary } as const,
        { ...upstream, id: "b", backup: true, ...backup } as const,
      ];
      return warningsOf({ ...quiet, upstreamSets: [{ name: "s", circuitBreaker: null, upstreams }] });
    };
    const down = { state: "unhealthy", usable: false };
    expect(told({}, {})).toEqual([]);
    expect(told({}, down).map(({ code }) => code)).toEqual(["upstream_down"]);
    expect(told(down, {}).map(({ code, path }) => [code, path])).toEqual([
      ["backups_serve", "services.s"],
      ["upstream_down", "services.s.upstreams.u"],
    ]);
    expect(told({ adminState: "eject", adminId: "u", usable: false }, {}).map(({ code }) => code)).toEqual([
      "backups_serve",
      "upstream_taken_out",
    ]);
    expect(told(down, down).map(({ code }) => code)).toEqual(["no_upstream", "upstream_down", "upstream_down"]);
  });

  it("lists injected faults first, before any number of other warnings", () => {
    const other = { message: "m", example: null, remedy: "r", path: "p", service: null, route: null, at: [] };
    const configWarnings = [
      { ...other, code: "faults_injected" },
      { ...other, code: "token_for_anyone" },
    ] as const;
    const told = warningsOf({
      ...quiet,
      lastReload: {
        at: 0,
        by: "file",
        digest: "0123456789ab",
        outcome: "refused",
        file: null,
        issues: [issue(null, "bad")],
      },
      configWarnings,
    });
    expect(told.map(({ code }) => code)).toEqual(["faults_injected", "reload_refused", "token_for_anyone"]);
  });

  it("lists at most 100 warnings, and how many more there are", () => {
    const upstreams = Array.from({ length: 300 }, () => ({ ...upstream, state: "unhealthy", usable: false }) as const);
    const told = warningsOf({ ...quiet, upstreamSets: [{ name: "s", circuitBreaker: null, upstreams }] });
    expect([told.length, told.at(-1)]).toEqual([
      101,
      expect.objectContaining({ code: "more", message: expect.stringMatching(/^There are 201 more/), path: null }),
    ]);
  });
});

describe("the gateway's status", () => {
  const certificates = () => {
    const folder = emptyFolder();
    const paths = { cert: join(folder, "shop.pem"), key: join(folder, "shop.key") };
    writeFileSync(paths.cert, SHOP.cert);
    writeFileSync(paths.key, SHOP.key);
    return [{ hosts: ["shop.example.com"], ...paths }];
  };
  const files = {
    cert: Buffer.from(SERVER.cert),
    key: Buffer.from(SERVER.key),
    ca: Buffer.from(CA.cert),
    requireClientCert: false,
  };

  it(
    "status reports the gateway's certificates: their places in the configuration, " +
      "names and expiry, never their keys",
    async () => {
      const given = certificates();
      const { gateway } = await running(oneService(9, {}, { certificates: given }));
      expect(gateway.status.certificates.map(({ where, path }) => [where, path])).toEqual([
        ["global.certificates[0]", given[0]!.cert],
      ]);
      expect(gateway.status.warnings.map(({ code }) => code)).toEqual(["certificates_unused"]);
      await gateway.listen({ port: 0, tls: files });
      const [own, shop] = gateway.status.certificates;
      expect(own).toEqual({
        where: "listen",
        path: null,
        names: expect.arrayContaining(["localhost", "127.0.0.1"]),
        commonName: null,
        notAfter: Date.UTC(2120, 0, 1),
      });
      expect(shop!.names.length).toBeGreaterThan(0);
      expect(gateway.status.warnings).toEqual([]);
      gateway.renewTls({ ...files, path: "/etc/gw/cert.pem" });
      expect(gateway.status.certificates[0]).toMatchObject({ where: "SERVER_CERT_PATH", path: "/etc/gw/cert.pem" });
      expect(JSON.stringify(gateway.status)).not.toMatch(/BEGIN|PRIVATE/);
    },
  );

  it("the gateway's status has no certificate of a listener that serves global.certificates alone", async () => {
    const { gateway } = await running(oneService(9, {}, { certificates: certificates() }));
    await gateway.listen({ port: 0, tls: { ...files, cert: null, key: null } });
    expect(gateway.status.certificates.map(({ where }) => where)).toEqual(["global.certificates[0]"]);
    expect(gateway.status.warnings).toEqual([]);
    const ends = (await gateway.metrics()).match(/^edge_gateway_tls_certificate_expiry_timestamp_seconds.*$/gm);
    expect(ends).toEqual([expect.stringContaining('host="shop.example.com"')]);
    gateway.renewTls(files);
    expect(gateway.status.certificates).toHaveLength(2);
    gateway.renewTls({ ...files, cert: null, key: null });
    expect(gateway.status.certificates).toHaveLength(1);
  });

  it("the gateway's status warns of mtls at any level until a listener asks for certificates", async () => {
    const mtls = [{ name: "mtls" }];
    for (const parts of [{ plugins: mtls }, { routes: [{ path: "/x", plugins: mtls }] }]) {
      const { gateway } = await running(oneService(9, parts as never));
      expect(gateway.status.warnings.map(({ code }) => code)).toEqual(["mtls_idle"]);
      await gateway.listen({ port: 0, tls: files });
      expect(gateway.status.warnings).toEqual([]);
    }
  });

  it("a warning disappears when its cause is removed", async () => {
    const clock = manualClock();
    const broken = definePlugin({
      name: "broken",
      schema: schema.object({}),
      create: () => () => () => {
        throw new Error("no");
      },
    });
    const [bad, good] = [await closedPort(), await backend()];
    const config = oneService([bad, good.port], {
      health: { passive: { max_failures: 1, eject_ms: 1000 } },
      routes: [
        { path: "/x", name: "x" },
        { path: "/broken", name: "b", plugins: [{ name: "broken", config: {} }] },
      ],
    } as never);
    const { gateway } = await running(config, { clock, plugins: [broken] });
    const warned = () => gateway.status.warnings.map(({ code, service, route }) => [code, service, route]);
    for (const path of ["/a/x", "/a/x", "/a/broken"]) await gateway.inject({ url: path });
    await expect(gateway.reload({ services: [{}] } as never)).rejects.toThrow();
    expect(warned()).toEqual([
      ["reload_refused", null, null],
      ["upstream_ejected", "s", null],
      ["plugin_faults", "s", "b"],
    ]);
    clock.advance(1_000);
    await gateway.reload(config);
    expect(warned()).toEqual([["plugin_faults", "s", "b"]]);
  });
});

describe("keys that end", () => {
  const at = (days: number) => new Date(NOW + days * DAY).toISOString();
  const keysOf = (...days: readonly number[]) =>
    days.map((each, i) => ({ id: `k${i}`, key: `key ${i}`, expires_at: at(each) }));
  const guarded = (keys: readonly object[], more: object = {}) =>
    ({
      ...oneService(9, { plugins: [{ name: "key_auth", config: { keys } }] } as never),
      ...more,
    }) as never;

  async function warned(config: never, clock = manualClock(NOW)) {
    const { gateway } = await running(config, { clock });
    return () =>
      gateway.status.warnings.filter(({ code }) => code === "key_expires").map(({ message, path }) => [message, path]);
  }

  it(
    "are warned of from 14 days before to 14 days after, " + "with the id and never the key, without a reload",
    async () => {
      const clock = manualClock(NOW);
      const now = await warned(guarded(keysOf(20, 400)), clock);
      expect(now()).toEqual([]);
      clock.advance(6 * DAY + 3_600_000);
      const path = "services.s.plugins.key_auth";
      expect(now()).toEqual([[`A key of "k0" ends at ${at(20)}: from then on requests with it get 401.`, path]]);
      clock.advance(14 * DAY);
      expect(now()).toEqual([[`A key of "k0" has ended at ${at(20)}: requests with it get 401.`, path]]);
      clock.advance(14 * DAY);
      expect(now()).toEqual([]);
    },
  );

  it("of callers are named by their place, those of a file by the id alone", async () => {
    const file = join(emptyFolder(), "callers.json");
    writeFileSync(file, JSON.stringify([{ id: "bob", keys: [{ key: "b", expires_at: at(3) }] }]));
    const callers = [{ id: "ada", keys: [{ key: "a" }, { key: "c", expires_at: at(2) }] }];
    const plugins = [{ name: "key_auth", config: { callers: true } }];
    const now = await warned({ ...oneService(9, { plugins } as never), callers, caller_files: [file] } as never);
    expect(now()).toEqual([
      [`A key of "ada" ends at ${at(2)}: from then on requests with it get 401.`, "callers[0].keys[1]"],
      [`A key of "bob" ends at ${at(3)}: from then on requests with it get 401.`, null],
    ]);
  });

  it("are ten, those that end first, and the number of the others", async () => {
    const now = await warned(guarded(keysOf(...Array.from({ length: 25 }, (_, i) => (25 - i) / 2))));
    const lines = now().map(([message]) => String(message));
    expect(lines).toHaveLength(11);
    expect(lines[0]).toContain('"k24"');
    expect(lines[10]).toBe("There are 15 more keys that end within 14 days, or have ended within the last 14.");
  });

  it("of thousands of callers at once are not described, but for those that are named", () => {
    const described: number[] = [];
    const list = {
      callers: [{}],
      ends: new Map(Array.from({ length: 5000 }, (_, i) => [i, NOW + (i + 1) * 1000] as const)),
      placeOfKey: (key: number) => (described.push(key), { index: key, key: 0 }),
      ownerOf: (key: number) => ({ id: `k${key}` }),
    };
    const { near, more } = keyEnds({ ...quiet.shown }, { lists: [list] } as never, NOW);
    expect([near.length, near[9]!.id, more, described.length]).toEqual([10, "k9", 4990, 10]);
  });

  it("are named before those that have ended, however many those are", async () => {
    const now = await warned(guarded(keysOf(...Array.from({ length: 12 }, (_, i) => -1 - i / 4), 1, 13)));
    const lines = now().map(([message]) => String(message));
    expect([lines.length, lines[0], lines[1]]).toEqual([
      11,
      `A key of "k12" ends at ${at(1)}: from then on requests with it get 401.`,
      `A key of "k13" ends at ${at(13)}: from then on requests with it get 401.`,
    ]);
  });

  it("are in the metrics: the end of the next one, and no sample without one", async () => {
    const clock = manualClock(NOW);
    const { gateway } = await running(guarded(keysOf(30, 1)), { clock });
    const sample = () => /^edge_gateway_key_expiry_timestamp_seconds (\S+)$/m.exec(gateway.metrics())?.[1];
    expect(Number(sample())).toBe((NOW + DAY) / 1000);
    clock.advance(2 * DAY);
    expect(Number(sample())).toBe((NOW + 30 * DAY) / 1000);
    clock.advance(40 * DAY);
    expect(sample()).toBeUndefined();
  });

  it("of a plugin that is off are of no interest", async () => {
    const plugins = [{ name: "key_auth", enabled: false, config: { keys: keysOf(1) } }];
    expect((await warned(oneService(9, { plugins } as never) as never))()).toEqual([]);
  });
});
