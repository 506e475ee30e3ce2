/** What the admin interface says about the settings of one item of the configuration. */
import { describe, expect, it } from "vitest";
import { placeSteps } from "../../lib/config/places.ts";
import { withPort, writable } from "./writable.ts";

const TEXT = JSON.stringify(
  {
    global: { name: "gw" },
    callers: [{ id: "ada", keys: [{ key: "hush-ada" }] }],
    services: [
      ...(withPort(1, { name: "other", base_path: "/other" }) as { services: object[] }).services,
      {
        name: "shop",
        base_path: "/shop",
        hosts: ["a.example", "b.example"],
        upstreams: [{ id: "till", host: "127.0.0.1", port: 2 }],
        plugins: [{ name: "key_auth", config: { key: "hush-key" } }],
        routes: [
          { name: "first", path: "/first" },
          {
            name: "a/b",
            path: "/second",
            methods: ["GET"],
            plugins: [{ name: "rate_limit", config: { limit_min: 5 } }],
          },
        ],
      },
    ],
  },
  null,
  2,
);

interface Settings {
  readonly path: string;
  readonly line: number;
  readonly digest: string;
  readonly complete: boolean;
  readonly settings: readonly { name: string; value: unknown; default: boolean | null; line: number | null }[];
}

async function opened(text = TEXT) {
  const { asAdmin, asViewer } = await writable(text);
  const settings = async (query: Record<string, string>, as = asViewer) => {
    const { status, json } = await as("GET", `/gateway/settings?${new URLSearchParams(query)}`);
    return { status, json: json as unknown as Settings & { detail: string } };
  };
  return { asAdmin, settings };
}

const lineOf = (part: string) => TEXT.split("\n").findIndex((line) => line.includes(part)) + 1;

describe("GET /gateway/settings", () => {
  it(
    "has each setting of a route with its line, marks defaults, " + "and names the digest of the text, for viewers",
    async () => {
      const { settings, asAdmin } = await opened();
      const { status, json } = await settings({ service: "shop", route: "a/b" });
      expect(status).toBe(200);
      const { settings: all, ...place } = json;
      const { digest } = (await asAdmin("GET", "/gateway/status")).json as unknown as { digest: string };
      expect(place).toMatchObject({ path: "services[1].routes[1]", line: lineOf('"a/b"') - 1, digest, complete: true });
      const named = new Map(all.map(({ name, ...setting }) => [name, setting]));
      const written = (value: unknown, part: string) => ({ value, default: false, line: lineOf(part) });
      expect(named.get("path")).toMatchObject(written("/second", '"/second"'));
      expect(named.get("methods")).toMatchObject(written(["GET"], '"methods"'));
      expect(named.get("plugins[0].config.limit_min")).toMatchObject(written(5, '"limit_min"'));
      expect(named.get("plugins[0].enabled")).toEqual({ value: true, default: true, line: null, column: null });
    },
  );

  it(
    "has those of a service without its routes and upstreams, with secrets masked," + " also for administrators",
    async () => {
      const { settings, asAdmin } = await opened();
      const { json } = await settings({ service: "shop" }, asAdmin);
      const named = new Map(json.settings.map(({ name, ...setting }) => [name, setting]));
      expect([...named.keys()].filter((name) => /^(?:routes|upstreams)/.test(name))).toEqual([]);
      expect(named.get("hosts")).toMatchObject({ value: ["a.example", "b.example"], default: false });
      expect(named.get("plugins[0].config.key")).toMatchObject({ value: "********", line: lineOf("hush-key") });
      expect(named.get("load_balancing_strategy")).toMatchObject({ default: true });
      expect(JSON.stringify(json)).not.toContain("hush");
    },
  );

  it("has those of an upstream and of a caller of the configuration", async () => {
    const { settings } = await opened();
    const upstream = (await settings({ service: "shop", upstream: "till" })).json;
    expect(upstream).toMatchObject({ path: "services[1].upstreams[0]", line: lineOf('"till"') - 1 });
    expect(upstream.settings.find(({ name }) => name === "weight")).toMatchObject({ value: 1, default: true });
    const caller = (await settings({ caller: "ada" })).json;
    expect(caller).toMatchObject({ path: "callers[0]", line: lineOf('"ada"') - 1 });
    expect(caller.settings.find(({ name }) => name === "keys[0].key")).toMatchObject({ value: "********" });
  });

  it("ends after 1,000 settings, and says so", async () => {
    const plugins = Array.from({ length: 300 }, () => ({ name: "rate_limit", config: { limit_min: 5 } }));
    const { settings } = await opened(JSON.stringify(withPort(1, { plugins })));
    const { complete, settings: all } = (await settings({ service: "s" })).json;
    expect([complete, all.length]).toEqual([false, 1000]);
  });

  it("looks through a long text in steps, between which requests are served", () => {
    const services = Array.from({ length: 2_000 }, (_, i) => ({ name: `s${i}` }));
    const text = JSON.stringify({ services, last: true }, null, 1);
    const steps = placeSteps({ text, file: "gw.json" }, [["last"], ["services", 1_999, "name"]]);
    let count = 0;
    let step = steps.next();
    for (; step.done !== true; step = steps.next()) count++;
    expect(step.value).toEqual([
      { line: 2_000 * 3 + 4, column: 10 },
      { line: 2_000 * 3 + 1, column: 12 },
    ]);
    expect(count).toBeGreaterThan(6);
  });

  it("says what is wrong with a question, and that there is no such item", async () => {
    const { settings } = await opened();
    for (const query of [{}, { service: "shop", caller: "ada" }, { service: "shop", route: "first", upstream: "till" }])
      expect(await settings(query as Record<string, string>)).toMatchObject({ status: 400 });
    expect(await settings({ route: "first" })).toMatchObject({ status: 400 });
    for (const query of [
      { service: "gone" },
      { service: "shop", route: "gone" },
      { service: "shop", upstream: "gone" },
      { caller: "__proto__" },
    ] as Record<string, string>[])
      expect((await settings(query)).status).toBe(404);
  });
});
