/** POST /gateway/validate: a text is checked beside the traffic, and tells nothing that its sender may not know. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { startAdmin } from "./harness.ts";
import { digestOf, withPort, writable, type Writable } from "./writable.ts";

const JSON_TYPE = { "content-type": "application/json" };
const post = (
  { asAdmin }: Pick<Writable, "asAdmin">,
  text: string | Buffer,
  headers: Record<string, string> = JSON_TYPE,
) => asAdmin("POST", "/gateway/validate", { body: text, headers });

describe("POST /gateway/validate", () => {
  it("answers with the digest of the text and what a dry run finds, and changes nothing", async () => {
    const running = await writable();
    const before = [running.content(), running.gateway.digest];
    const tests = [{ name: "t", request: { url: "/s/x" }, expect: { status: 404 } }];
    const text = JSON.stringify({ ...withPort(2), tests }, null, 2);
    const { status, json } = await post(running, text);
    expect([status, json.digest, json.outcome, json.file]).toEqual([200, digestOf(text), "refused", "(posted)"]);
    const line = text.split("\n").findIndex((each) => each.includes('"tests"')) + 2;
    expect(json.tests).toEqual({
      ...{ passed: 0, failed: 1, not_run: 0 },
      failures: [
        {
          name: "t",
          path: "tests[0]",
          line,
          column: 5,
          expected: { status: 404 },
          found: { status: 200 },
          differences: ["status: expected 404, found 200"],
          differing: ["status"],
        },
      ],
    });
    expect(json.issues).toEqual([
      { path: "tests[0]", line, column: 5, message: '"t" failed: status: expected 404, found 200' },
    ]);
    expect(json.diff.changed).toHaveLength(1);
    expect([running.content(), running.gateway.digest, running.gateway.status.lastReload]).toEqual([...before, null]);
  });

  it("has warnings with their places, of routes and plugins, too", async () => {
    const text = JSON.stringify(
      withPort(1, { plugins: [{ name: "rate_limit", config: { limit_second: 5, limit_by: "header:X-Tenant" } }] }),
      null,
      2,
    );
    const { status, json } = await post(await writable(), text);
    const line = text.split("\n").findIndex((each) => each.includes('"plugins"')) + 2;
    expect([status, json.outcome, json.warnings]).toEqual([
      200,
      "accepted",
      [expect.objectContaining({ code: "limit_by_any_header", line, column: 9 })],
    ]);
    expect(Object.keys(json.warnings[0])).not.toContain("at");
  });

  it("is 404 without ADMIN_WRITE, 403 for viewers, 401 without a session, and 405 for GET", async () => {
    const { ask, session } = await startAdmin();
    expect(
      (await ask("POST", "/gateway/validate", { headers: { ...JSON_TYPE, cookie: await session() }, body: "{}" }))
        .status,
    ).toBe(404);
    const running = await writable();
    const refused = await running.asViewer("POST", "/gateway/validate", { headers: JSON_TYPE, body: "{}" });
    expect([refused.status, refused.json.code]).toEqual([403, "forbidden"]);
    expect((await running.ask("POST", "/gateway/validate", { headers: JSON_TYPE, body: "{}" })).status).toBe(401);
    expect(
      (
        await running.asAdmin("POST", "/gateway/validate", {
          headers: { ...JSON_TYPE, origin: "https://evil.example" },
          body: "{}",
        })
      ).status,
    ).toBe(403);
    expect((await running.asAdmin("GET", "/gateway/validate")).status).toBe(405);
  });

  it.each<[string, string | Buffer, object]>([
    ["nothing", "", { path: "", line: 1, column: 1 }],
    ["no JSON", "services: []", { path: "", line: 1, column: 1 }],
    ["an unfinished text", '{\n "services": [', { path: "services[0]", line: 2, column: 15 }],
    ["bytes that are not UTF-8", Buffer.from([0x7b, 0x0a, 0xff, 0x7d]), { path: "", line: 2, column: 1 }],
    ["another document", "[]", { path: "", line: 1, column: 1 }],
    ["1,500,000 brackets", "[".repeat(1_500_000), { line: 1, column: 101, message: "nested deeper than 100 levels" }],
    ["1,500,000 braces", '{"a":'.repeat(1_500_000), { line: 1, message: "nested deeper than 100 levels" }],
  ])("names the place of the error in %s", async (_what, text, issue) => {
    const { status, json } = await post(await writable(), text);
    expect([status, json.outcome, json.digest, json.diff]).toEqual([200, "refused", digestOf(text), null]);
    expect(json.issues).toEqual([expect.objectContaining(issue)]);
  });

  it("refuses another type, and more than 16 MiB", async () => {
    const running = await writable();
    for (const type of ["text/plain", "application/x-www-form-urlencoded", ""]) {
      expect((await post(running, "{}", { "content-type": type })).json).toMatchObject({
        status: 400,
        detail: "Send the configuration as application/json.",
      });
    }
    expect((await post(running, "x".repeat(16 * 1024 * 1024 + 1))).json).toMatchObject({
      status: 413,
      code: "body_too_large",
    });
  });

  it.each([
    ["of 1,500,001 commas", `[${"1,".repeat(1_500_001)}1]`, "1500001 and 1"],
    // Seven million arrays, none deeper than the reader allows, with a comma for every ninety.
    ["of arrays within arrays", `[${`${"[".repeat(90)}${"]".repeat(90)},`.repeat(80_000)}[]]`, "80000 and 7200002"],
    ["of objects within objects", `${'{"a":'.repeat(1_500_001)}1`, "0 and 1500001"],
  ])("refuses a text %s before it is parsed", async (_what, text, found) => {
    const { status, json } = await post(await writable(), text);
    const most = "at most 1500000 commas, and as many opening brackets and braces";
    expect([status, json.code, json.detail]).toEqual([
      413,
      "body_too_large",
      `The text of a configuration may have ${most}; this one has ${found}.`,
    ]);
  });

  it.each<[string, object]>([
    ["services that are none", { services: Array(150_000).fill(1) }],
    [
      "addresses that are none, beside a variable",
      withPort(1, { plugins: [{ name: "acl", config: { whitelist: ["${env:X}", ...Array(150_000).fill(1)] } }] }),
    ],
  ])("names the first 100 of 150,000 errors, and says how many more there are: %s", async (_what, config) => {
    const { status, json } = await post(await writable(), JSON.stringify(config));
    expect([status, json.outcome]).toEqual([200, "refused"]);
    expect(json.issues).toHaveLength(101);
    expect(json.issues.at(-1)).toEqual({
      ...{ path: "", line: null, column: null, more: expect.any(Number) },
      message: `and ${json.issues.at(-1).more} more errors`,
    });
    expect(json.issues.at(-1).more).toBeGreaterThanOrEqual(149_900);
  });

  it.each(["/gateway/validate", "/gateway/reload?dry_run=true"])(
    "%s receives five texts at once, also slow ones, and refuses the next before it arrives, " +
      "until one of them has gone",
    async (path) => {
      const running = await writable();
      const send = () => running.asAdmin("POST", path, { body: "{}", headers: JSON_TYPE });
      const uploads = Array.from({ length: 5 }, () => running.sendSlowly("POST", path));
      let got = await send();
      while (got.status !== 503) got = await send();
      expect([got.json.code, got.json.detail, got.headers["retry-after"]]).toEqual([
        "overloaded",
        "Too many configurations are being received, or waiting.",
        "5",
      ]);
      uploads[0]!.destroy();
      while (got.status !== 200) got = await send();
      expect(got.json.outcome).toBe("refused");
      // Those that have no text of their own do not wait for uploads.
      uploads.push(running.sendSlowly("POST", path));
      expect((await running.asAdmin("POST", "/gateway/reload?dry_run=true")).status).toBe(200);
    },
  );

  it("answers the same whether a variable is set, and whether a file is there, and tells neither", async () => {
    const running = await writable(undefined, { environment: { SET: "v4lue-of-it", NUMBER: "8080" } });
    writeFileSync(join(running.folder, "secret.txt"), "v4lue-of-it");
    mkdirSync(join(running.folder, "sub"));
    const files = ["secret.txt", "none.txt", "sub", "gw.json"].map((name) => join(running.folder, name));
    const references = ["${env:SET}", "${env:NOT_SET}", "${env:NUMBER}", ...files.map((file) => `\${file:${file}}`)];
    const plugin = (name: string, config: object) => withPort(1, { plugins: [{ name, config }] });
    const places: readonly ((text: string) => object)[] = [
      (text) => plugin("key_auth", { key: text }),
      (text) => plugin("jwt", { alg: "HS256", secret: text, aud: "a" }),
      (text) => ({
        ...withPort(1),
        tests: [
          {
            name: "guess",
            request: { url: "/s/x", headers: { X: text } },
            expect: { upstream_headers: { X: "v4lue-of-it" } },
          },
        ],
      }),
      (text) => ({
        ...plugin("request_headers", { set: { X: text } }),
        tests: [{ name: "guess", request: { url: "/s/x" }, expect: { upstream_headers: { X: { matches: "^v" } } } }],
      }),
      (text) => plugin("redirect", { location: `/${text}`, status: Number.NaN }),
    ];
    for (const configOf of places) {
      const answers = new Set<string>();
      for (const reference of references) {
        const { text } = await post(running, JSON.stringify(configOf(reference)));
        expect(text).not.toContain("v4lue");
        answers.add(text.replaceAll(reference, "#").replace(/"column":\d+|"digest":"\w+"/g, ""));
      }
      expect([...answers]).toHaveLength(1);
    }
  });
});
