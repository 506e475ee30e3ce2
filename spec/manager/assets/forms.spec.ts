import { describe, expect, it } from "vitest";
import { putJson, readJson } from "../../../lib/manager/assets/edit_json.ts";
import { FORMS } from "../../../lib/manager/assets/forms.ts";
import { hashForForm, parseHash, queryIn } from "../../../lib/manager/assets/url_hash.ts";
import { loadConfig } from "../../support/schema.ts";
import { builtinPlugins } from "../../../lib/plugins/builtin.ts";

const FILE = `{
  "services": [
    {
      "name": "shop",
      "base_path": "/shop",
      "upstreams": [
        { "id": "v1", "host": "127.0.0.1", "port": 3000 },
        { "id": "v2", "host": "127.0.0.1", "port": 3001, "group": "canary" }
      ],
      "split": [{ "group": "canary", "percent": 5 }],
      "routes": [
        { "name": "items", "path": "/items/{id}" }
      ]
    }
  ]
}
`;

/** The text after a form has been filled in; `choice`: its label. */
function filled(name: string, choice: string | null, given: Readonly<Record<string, string>>, text = FILE): string {
  const form = FORMS[name]!;
  const fields = form.fields(readJson(text));
  const values = Object.fromEntries(fields.map((field) => [field.name, given[field.name] ?? ""]));
  const chosen = fields.flatMap(({ choices = [] }) => choices).find(({ label }) => label === choice)?.path ?? [];
  const { path, value } = form.put(readJson(text), chosen, { ...values, ...given });
  return putJson(text, path, value).text;
}

const KEY = "9b94dc1a51a38769f135edf04033ad7f2f487b6c25929be7a861cfc1ab10cf98";
const cases: readonly (readonly [string, string | null, Readonly<Record<string, string>>, string, string])[] = [
  [
    "route",
    "shop",
    { name: "new", path: "/new", methods: "get, POST" },
    '"/items/{id}" }',
    '"/items/{id}" },\n        { "name": "new", "path": "/new", "methods": ["GET", "POST"] }',
  ],
  [
    "route",
    "shop",
    { name: "new", path: "/new" },
    '"/items/{id}" }',
    '"/items/{id}" },\n        { "name": "new", "path": "/new" }',
  ],
  [
    "upstream",
    "shop",
    { host: "::1", port: "3002", weight: "0" },
    '"group": "canary" }\n      ]',
    '"group": "canary" },\n        { "host": "::1", "port": 3002, "weight": 0 }\n      ]',
  ],
  [
    "upstream",
    "shop",
    { host: "spare", port: "3003", backup: "on" },
    '"group": "canary" }\n      ]',
    '"group": "canary" },\n        { "host": "spare", "port": 3003, "backup": true }\n      ]',
  ],
  ["share", "shop: canary, now 5 %", { percent: "12.5" }, '"percent": 5', '"percent": 12.5'],
  [
    "limit",
    "shop / items",
    { limit_min: "60" },
    '"/items/{id}" }',
    '"/items/{id}", "plugins": [{ "name": "rate_limit", "config": { "limit_min": 60 } }] }',
  ],
];

describe("a form", () => {
  it.each(cases)(
    "%s writes into the item that was chosen, and nothing else changes",
    (name, choice, values, before, after) => {
      expect(filled(name, choice, values)).toBe(FILE.replace(before, after));
    },
  );

  it.each([
    ...cases,
    ["limit", "All requests", { limit_second: "9", limit_by: "credential" }, "", ""],
    ["limit", "shop", { limit_hour: "9" }, "", ""],
    ["caller", null, { id: "ada", groups: "gold, silver", key_sha256: KEY }, "", ""],
  ] as const)("%s of %s makes a configuration that the gateway reads", (name, choice, values) => {
    expect(
      loadConfig({ text: filled(name, choice, values), file: "gw.json" }, { kinds: builtinPlugins, environment: {} }),
    ).toMatchObject({ ok: true });
  });

  it("adds the SHA-256 of a caller's key, and groups only where some are given", () => {
    expect(readJson(filled("caller", null, { id: "ada", groups: "gold, ", key_sha256: KEY }))).toMatchObject({
      callers: [{ id: "ada", groups: ["gold"], keys: [{ key_sha256: KEY }] }],
    });
    expect(readJson(filled("caller", null, { id: "bob", key_sha256: KEY }, '{"callers":[{"id":"ada"}]}'))).toEqual({
      callers: [{ id: "ada" }, { id: "bob", keys: [{ key_sha256: KEY }] }],
    });
  });

  it("adds a key to a caller, and gives the others an end where days are given, but none a later one", () => {
    const soon = new Date(Date.now() + 86_400_000).toISOString();
    const keys = [
      { key: "a" },
      { key_sha256: KEY, expires_at: soon },
      { key: "c", expires_at: "2999-01-01T00:00:00Z" },
    ];
    const text = JSON.stringify({ services: [], callers: [{ id: "bob" }, { id: "ada", keys }] });
    const keysAfter = (days: string, choice = "ada") => {
      const file = readJson(filled("key", choice, { days, key_sha256: "0".repeat(64) }, text));
      return (file as { callers: { id: string; keys: { expires_at?: string }[] }[] }).callers.find(
        ({ id }) => id === choice,
      )!.keys;
    };
    expect(keysAfter("")).toEqual([...keys, { key_sha256: "0".repeat(64) }]);
    expect(keysAfter("", "bob")).toEqual([{ key_sha256: "0".repeat(64) }]);
    const [first, second, third, made] = keysAfter("7");
    expect(Date.parse(first!.expires_at!) - Date.now()).toBeGreaterThan(6.9 * 86_400_000);
    expect([second, third]).toEqual([keys[1], { key: "c", expires_at: first!.expires_at }]);
    expect(made).toEqual({ key_sha256: "0".repeat(64) });
  });

  it("disables and enables a caller, and says which is disabled", () => {
    const text = '{ "callers": [{ "id": "ada" }, { "id": "bob", "enabled": false }] }';
    expect(filled("caller_state", "ada", { enabled: "" }, text)).toBe(
      text.replace('"ada" }', '"ada", "enabled": false }'),
    );
    expect(filled("caller_state", "bob, disabled", { enabled: "on" }, text)).toBe(text.replace("false", "true"));
  });

  it.each(["a/b", "100%", "#/x?of=y&of=z", "a+b c", "%2F", "<img src=x onerror=alert(1)>", "☃ 🚀", ""])(
    "is led to by a link with the service %j chosen, and its route and group of that name",
    (name) => {
      const service = {
        name,
        routes: [{ name }, { path: name, methods: ["GET", "PUT"] }, { path: name }, { name: `${name}/${name}` }],
        split: [{ group: name, percent: 1 }],
      };
      const file = {
        services: [
          { name: `${name}/${name}` },
          { name: "other", routes: service.routes, split: service.split },
          service,
        ],
      };
      const chosenBy = (form: string, ...names: readonly string[]) => {
        const of = queryIn(hashForForm(form, ...names)).getAll("of");
        const choices = FORMS[form]!.fields(file).flatMap((field) => field.choices ?? []);
        return choices.filter((choice) => JSON.stringify(choice.of) === JSON.stringify(of)).map(({ path }) => path);
      };
      expect(parseHash(hashForForm("limit", name, name))).toMatchObject({ page: "add", segments: ["limit"] });
      for (const form of ["route", "upstream", "limit"]) expect(chosenBy(form, name)).toEqual([["services", 2]]);
      expect(chosenBy("limit", name, name).at(0)).toEqual(["services", 2, "routes", 0]);
      expect(chosenBy("limit", name, `GET,PUT ${name}`)).toEqual([["services", 2, "routes", 1]]);
      expect(chosenBy("limit", name, `${name}/${name}`)).toEqual([["services", 2, "routes", 3]]);
      expect(chosenBy("share", name, name)).toEqual([["services", 2, "split", 0]]);
      expect(chosenBy("limit")).toEqual([["global"]]);
      expect(chosenBy("limit", name, "gone")).toEqual([]);
    },
  );

  it("adds a service to a configuration that has none, which is then valid", () => {
    const given = { name: "shop", base_path: "/shop", host: "127.0.0.1", port: "3000" };
    const route = { path: "/{rest*}" };
    const service = {
      name: "shop",
      base_path: "/shop",
      upstreams: [{ host: "127.0.0.1", port: 3000 }],
      routes: [route],
    };
    for (const empty of ["{}", '{ "services": [] }', '{\n  "services": []\n}\n']) {
      const text = filled("service", null, given, empty);
      expect(JSON.parse(text)).toEqual({ services: [service] });
      expect(loadConfig({ text, file: "gw.json" }, { kinds: builtinPlugins, environment: {} }).ok).toBe(true);
    }
    expect(filled("service", null, { ...given, path: "/items" })).toContain('"path": "/items"');
  });

  it("survives a file that is no configuration, and offers what there is", () => {
    for (const file of [
      null,
      1,
      "x",
      [],
      { services: 7 },
      { services: [null, 1, {}, { name: 5, routes: {}, split: [null] }] },
      JSON.parse('{"__proto__": {"services": [{"name": "x"}]}}'),
    ]) {
      for (const { fields } of Object.values(FORMS)) expect(fields(file).length).toBeGreaterThan(1);
    }
  });
});
