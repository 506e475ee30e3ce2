/** Where in the file of the configuration something is that the admin interface reports. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { writtenTests } from "../../lib/admin/written_tests.ts";
import { RIGHT, source, startAdmin, STATUS } from "./harness.ts";
import { emptyFolder, withPort, writable } from "./writable.ts";

type Placed = readonly {
  readonly code: string;
  readonly path: string | null;
  readonly line: number | null;
  readonly column: number | null;
}[];

const route = (name: string, more: object = {}) => ({ name, path: `/${name}`, ...more });
const guarded = (...more: object[]) =>
  withPort(1, { routes: [route("a", { plugins: [{ name: "key_auth", config: { key: "<key>" } }] }), ...more] });
const lined = (config: object) => JSON.stringify(config, null, 2);
/** Where a line of the text begins that has this. */
const placeOf = (text: string, part: string) => {
  const lines = text.split("\n");
  const i = lines.findIndex((line) => line.includes(part));
  return { line: i + 1, column: lines[i]!.search(/\S/) + 1 };
};

describe("a warning of GET /gateway/status and /gateway/now", () => {
  it(
    "has the line and column of its item in the text that is in force, for viewers too, " +
      "and after a reload those of the new text",
    async () => {
      const text = lined(guarded());
      const { asAdmin, asViewer, gateway, file } = await writable(text);
      const warnings = async (as = asAdmin) => (await as("GET", "/gateway/status")).json.warnings as Placed;
      const key = text.split("\n").findIndex((line) => line.includes('"<key>"'));
      const place = { line: key + 1, column: text.split("\n")[key]!.indexOf('"<key>"') + 1 };
      expect(await warnings()).toMatchObject([
        { code: "placeholder_secret", path: "services.s.routes.a.plugins.key_auth", ...place },
      ]);
      expect(await warnings(asViewer)).toEqual(await warnings());
      expect((await asAdmin("GET", "/gateway/now")).json.status.warnings).toEqual(await warnings());
      writeFileSync(file, "{ broken");
      expect(await warnings()).toMatchObject([place]);
      writeFileSync(file, `\n\n${text}`);
      await gateway.reload();
      expect(await warnings()).toMatchObject([{ line: place.line + 2, column: place.column }]);
    },
  );

  it("has its place also behind numbers, true, false and null, of one character or more", async () => {
    const plugins = [
      { name: "rate_limit", config: { limit_min: 12_345 } },
      { name: "key_auth", enabled: true, config: { key: "<key>" } },
    ];
    const { services, ...others } = withPort(65_001, { preserve_host: false, plugins });
    const text = lined({ global: { decisions: 16_384, plugins: [] }, ...others, services });
    const { asViewer } = await writable(text);
    const { status, json } = await asViewer("GET", "/gateway/status");
    expect(status).toBe(200);
    const line = text.split("\n").findIndex((each) => each.includes('"<key>"')) + 1;
    expect((json.warnings as Placed).find(({ code }) => code === "placeholder_secret")).toMatchObject({ line });
  });

  it("has the place of the service or upstream whose state it is about, also where their names have dots", async () => {
    const config = withPort(1, {
      name: "s.upstreams.u",
      upstreams: [
        { id: "u.v", host: "127.0.0.1", port: 1 },
        { id: "w", host: "127.0.0.1", port: 2 },
      ],
    });
    const text = lined(config);
    const { asAdmin } = await writable(text);
    for (const id of ["u.v", "w"])
      await asAdmin("POST", `/gateway/upstreams/s.upstreams.u/${id}`, {
        body: '{"state":"eject"}',
        headers: { "content-type": "application/json" },
      });
    const { warnings } = (await asAdmin("GET", "/gateway/status")).json as { readonly warnings: Placed };
    const [service, first, second] = ['"name": "s.upstreams.u"', '"id": "u.v"', '"id": "w"'].map((part) => ({
      line: placeOf(text, part).line - 1,
      column: placeOf(text, part).column - 2,
    }));
    expect(warnings.map(({ code, line, column }) => [code, { line, column }])).toEqual([
      ["no_upstream", service],
      ["upstream_taken_out", first],
      ["upstream_taken_out", second],
    ]);
  });

  it("has the place of a global setting, and none where it is about no part of the text", async () => {
    const { asAdmin } = await writable(
      lined({ ...withPort(1, { plugins: [{ name: "quota", config: { limit: 1, per: "day" } }] }) }),
    );
    const { warnings } = (await asAdmin("GET", "/gateway/status")).json as { readonly warnings: Placed };
    expect(warnings).toMatchObject([{ code: "quota_not_durable", path: null, line: null, column: null }]);
    const warning = {
      code: "circuit_open",
      path: "services.s",
      message: "Open.",
      example: null,
      remedy: "Wait.",
      service: "s",
      route: null,
    } as const;
    const { ask, session } = await startAdmin({
      source: { ...source, status: () => ({ ...STATUS, warnings: [warning] }) },
    });
    expect((await ask("GET", "/gateway/status", { headers: { cookie: await session() } })).json.warnings).toMatchObject(
      [{ line: null, column: null }],
    );
  });
});

describe("a test of GET /gateway/tests", () => {
  const test = (name: string, status: number, request: object = {}) => ({
    name,
    request: { url: "/s/a", ...request },
    expect: { status },
  });
  const shown = (got: { readonly json: any }) =>
    got.json.tests as (Placed[number] & { readonly name: string; readonly request: any; readonly file?: string })[];

  it(
    "has its place, and its request as written, secrets for an administrator alone, " +
      "and not with credentials in place of a session",
    async () => {
      const request = {
        method: "POST",
        headers: { apikey: "hush-hush", Authorization: "Bearer ${env:KEY}", "X-Count": ["1", "2"] },
        body: { password: "hush-hush", n: 1 },
        as: { caller: "c" },
        times: 2,
      };
      const text = lined({
        ...withPort(1, { plugins: [{ name: "key_auth", config: { key: "hush-hush" } }] }),
        tests: [test("one", 404), test("two", 404, request)],
      });
      const { asAdmin, asViewer, ask, gateway } = await writable(text, { environment: { KEY: "from-environment" } });
      await gateway.test();
      const tests = shown(await asAdmin("GET", "/gateway/tests"));
      expect(tests.map(({ name, path, line, column }) => [name, path, line, column])).toEqual(
        ["one", "two"].map((name, i) => [name, `tests[${i}]`, placeOf(text, `"name": "${name}"`).line - 1, 5]),
      );
      expect(tests[1]!.request).toEqual({ url: "/s/a", ...request });
      const masked = {
        ...request,
        headers: { ...request.headers, apikey: "********", Authorization: "********${env:KEY}" },
        body: { password: "********", n: 1 },
      };
      const credentials = { headers: { authorization: RIGHT } };
      for (const got of [
        await asViewer("GET", "/gateway/tests"),
        await asAdmin("GET", "/gateway/tests?secrets=masked"),
        await ask("GET", "/gateway/tests", credentials),
      ]) {
        expect(shown(got)[1]!.request).toEqual({ url: "/s/a", ...masked });
        expect(got.text).not.toContain("hush");
      }
    },
  );

  it(
    "is looked for once in a text, for each of those who see secrets and who do not, " + "and again after a reload",
    async () => {
      const text = lined({ ...withPort(1), tests: [test("one", 404, { headers: { apikey: "hush-hush" } })] });
      const { gateway, file } = await writable(text);
      await gateway.test();
      const [all, masked] = [writtenTests(gateway, "shown"), writtenTests(gateway, "masked")];
      expect(
        [writtenTests(gateway, "shown"), writtenTests(gateway, "masked")].map((tests, i) => tests === [all, masked][i]),
      ).toEqual([true, true]);
      expect([all, masked].map((tests) => JSON.stringify(tests).includes("hush"))).toEqual([true, false]);
      writeFileSync(file, `\n\n${text}`);
      await gateway.reload();
      expect(writtenTests(gateway, "masked")).toMatchObject([{ line: masked[0]!.line! + 2 }]);
    },
  );

  it("of a file of test_files has its place there", async () => {
    const folder = emptyFolder();
    const path = join(folder, "gw.json");
    writeFileSync(join(folder, "t.json"), `\uFEFF\n[\n  ${JSON.stringify(test("in a file", 502))}]`);
    writeFileSync(path, JSON.stringify({ ...withPort(1), test_files: ["t.json"], tests: [test("own", 404)] }));
    const { asAdmin, gateway } = await writable(undefined, { path });
    await gateway.test();
    const tests = shown(await asAdmin("GET", "/gateway/tests"));
    expect(
      tests.map(({ name, path: at, file, line, column, request }) => [name, at, file, line, column, request.url]),
    ).toEqual([
      ["own", "tests[0]", undefined, 1, expect.any(Number), "/s/a"],
      ["in a file", "[0]", join(folder, "t.json"), 3, 3, "/s/a"],
    ]);
  });

  it(
    "of a refused configuration has its place while the file has that text, and no request: " +
      "nobody knows the secrets in it",
    async () => {
      const { asAdmin, gateway, file } = await writable();
      const refused = lined({ ...withPort(1), tests: [test("wrong", 201)] });
      writeFileSync(file, refused);
      await expect(gateway.reload()).rejects.toThrow("wrong");
      const found = async () =>
        shown(await asAdmin("GET", "/gateway/tests")).map(({ name, path, line, request }) => [
          name,
          path,
          line,
          request,
        ]);
      expect(await found()).toEqual([["wrong", "tests[0]", placeOf(refused, '"name": "wrong"').line - 1, null]]);
      writeFileSync(file, "{ broken");
      expect(await found()).toEqual([["wrong", null, null, null]]);
    },
  );
});

describe("a dry run of the file", () => {
  it("names the tests that have passed, and of those that failed what they expected and found", async () => {
    const headers = { "X-Camel": "a", via: null };
    const tests = [
      { name: "good", request: { url: "/s/none" }, expect: { status: 404 } },
      { name: "bad", request: { url: "/s/none" }, expect: { status: 404, headers } },
    ];
    const { asAdmin, file } = await writable();
    writeFileSync(file, lined({ ...withPort(1), tests }));
    const got = (await asAdmin("POST", "/gateway/reload?dry_run=true")).json.tests;
    expect(got).toMatchObject({
      passed: 1,
      failed: 1,
      not_run: 0,
      passes: ["good"],
      failures: [
        {
          name: "bad",
          path: "tests[1]",
          expected: { status: 404, headers },
          found: { status: 404, headers: { "X-Camel": null, via: null } },
          differing: ["headers.X-Camel"],
        },
      ],
    });
    expect(got.failures[0].line).toBeGreaterThan(1);
    const posted = (
      await asAdmin("POST", "/gateway/validate", {
        body: lined({ ...withPort(1), tests }),
        headers: { "content-type": "application/json" },
      })
    ).json.tests;
    expect(posted).toEqual({ passed: 1, failed: 1, not_run: 0, failures: got.failures });
  });
});
