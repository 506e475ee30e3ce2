/**
 * The callers of a configuration, of the field `callers` and of files: ids, groups and keys, and every error in them.
 */
import { createHash, hash } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { CallerList } from "../../lib/config/caller_list.ts";
import { CallerReader } from "../../lib/config/callers.ts";
import { nodeFrom } from "../../lib/config/json.ts";
import { formatIssues, type LoadResult } from "../../lib/config/load.ts";
import { maskedConfig } from "../../lib/config/masked.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { CallerRegistry } from "../../lib/plugins/callers.ts";
import { loadConfig, type CheckedOptions } from "../support/schema.ts";

interface Files {
  readonly [path: string]: string | object;
}

const sha256 = (text: string) => createHash("sha256").update(text).digest();

function load(config: object, files: Files = {}, more: Partial<CheckedOptions> = {}): LoadResult {
  const readFile = (path: string) => {
    const content = files[path];
    if (content === undefined) throw Object.assign(new Error(path), { code: "ENOENT" });
    return typeof content === "string" || Buffer.isBuffer(content) ? content : JSON.stringify(content);
  };
  return loadConfig(
    { text: JSON.stringify({ services: [], ...config }), file: "/etc/gw/gw.json" },
    { kinds: builtinPlugins, environment: { ADA_KEY: "from the environment" }, readFile, ...more },
  );
}

function callersOf(...args: Parameters<typeof load>): CallerRegistry {
  const result = load(...args);
  if (!result.ok) throw new Error(formatIssues(result.issues));
  return new CallerRegistry(result.callerLists!);
}

/** Rows of place, path and message. */
function issuesOf(...args: Parameters<typeof load>): string[] {
  const result = load(...args);
  return result.ok
    ? []
    : formatIssues(result.issues, "gw.json")
        .split("\n")
        .map((row) => row.replace(/ {2,}/g, "  ").replace(/^gw\.json:1:\d+ {2}/, ""));
}

describe("callers", () => {
  it("are found by their keys and by their ids, in the configuration and in all files", () => {
    const files = {
      "/etc/gw/a.json": [
        { id: "bob", groups: ["gold", "beta"], keys: [{ key_sha256: sha256("bob's").toString("hex").toUpperCase() }] },
      ],
      "/srv/b.json": [{ id: "eve", keys: [{ key: "eve's" }], enabled: false }],
    };
    const callers = callersOf(
      { callers: [{ id: "ada", keys: [{ key: "one" }, { key: "two" }] }], caller_files: ["a.json", "/srv/b.json"] },
      files,
    );
    expect(["one", "two", "bob's", "eve's", "none"].map((key) => callers.withKey(sha256(key))?.identity)).toEqual([
      "ada",
      "ada",
      "bob",
      undefined,
      undefined,
    ]);
    expect([callers.withId("bob")?.groups, callers.withId("eve")?.enabled, callers.withId("nobody")]).toEqual([
      ["gold", "beta"],
      false,
      undefined,
    ]);
  });

  it("are found among thousands whose hashes begin alike or not", () => {
    const many = Array.from({ length: 3000 }, (_, i) => ({ id: `caller ${i}`, keys: [{ key: `key ${i}` }] }));
    const callers = callersOf({ caller_files: ["many.json"] }, { "/etc/gw/many.json": many });
    for (let i = 0; i < 3000; i++) expect(callers.withKey(sha256(`key ${i}`))?.identity).toBe(`caller ${i}`);
    expect(callers.withKey(sha256("key 3000"))).toBeUndefined();
  });

  it("join the groups of the token and their own, each once", () => {
    const callers = callersOf({ callers: [{ id: "ada", groups: ["gold", "beta"] }, { id: "bob" }] });
    expect(callers.groupsOf("ada", [])).toEqual(["gold", "beta"]);
    expect(callers.groupsOf("ada", ["beta", "staff"])).toEqual(["beta", "staff", "gold"]);
    expect([callers.groupsOf("bob", ["x"]), callers.groupsOf("nobody", ["x"]), callers.groupsOf(null, [])]).toEqual([
      ["x"],
      ["x"],
      [],
    ]);
    expect(callers.groupsOf("__proto__", [])).toEqual([]);
  });

  it("have keys that are references, in the configuration and in files", () => {
    const files = {
      "/etc/gw/a.json": [{ id: "bob", keys: [{ key: "${file:bob.key}" }] }],
      "/etc/gw/bob.key": "from a file\n",
    };
    const callers = callersOf(
      { callers: [{ id: "ada", keys: [{ key: "${env:ADA_KEY}" }] }], caller_files: ["a.json"] },
      files,
    );
    expect([
      callers.withKey(sha256("from the environment"))?.identity,
      callers.withKey(sha256("from a file"))?.identity,
    ]).toEqual(["ada", "bob"]);
  });

  it("are shown with their keys masked, and files by their names only", () => {
    const result = load(
      {
        callers: [
          { id: "ada", keys: [{ key: "hush-ada" }, { key_sha256: "ab".repeat(32) }, { key: "${env:ADA_KEY}" }] },
        ],
        caller_files: ["a.json"],
      },
      { "/etc/gw/a.json": [{ id: "bob", keys: [{ key: "hush-bob" }] }] },
    );
    if (!result.ok) throw new Error(formatIssues(result.issues));
    expect(maskedConfig(result)).toMatchObject({
      callers: [
        {
          id: "ada",
          groups: [],
          enabled: true,
          keys: [{ key: "********" }, { key_sha256: "********" }, { key: "${env:ADA_KEY}" }],
        },
      ],
      caller_files: ["a.json"],
    });
    expect(JSON.stringify(result.shown)).not.toContain("hush-bob");
  });

  it.each<readonly [string, object, string]>([
    [
      "no id",
      { groups: [] },
      "callers[0].id  is required (Who it is: the identity in rate limits and logs, and the subject, " +
        "user or sub by which other plugins know it.)",
    ],
    [
      "an empty id",
      { id: "" },
      'callers[0].id  expected an id of 1–200 characters without control characters, found ""',
    ],
    [
      "an id with a line break",
      { id: "a\nb" },
      'callers[0].id  expected an id of 1–200 characters without control characters, found "a\\nb"',
    ],
    [
      "an id that is too long",
      { id: "a".repeat(201) },
      `callers[0].id  expected an id of 1–200 characters without control characters, found "${"a".repeat(57)}…"`,
    ],
    [
      "a reference as the id",
      { id: "${env:ADA_KEY}" },
      "callers[0].id  ${env:ADA_KEY} is not replaced here: " +
        ("write the text itself (references are for secrets and addresses, not for names, ids, paths, " +
          "hosts, methods and conditions)"),
    ],
    [
      "a number as the id",
      { id: 7 },
      "callers[0].id  expected an id of 1–200 characters without control characters, found 7",
    ],
    ["a text as groups", { id: "a", groups: "gold" }, 'callers[0].groups  expected an array, found "gold"'],
    [
      "a group with a control character",
      { id: "a", groups: ["a\rb"] },
      'callers[0].groups[0]  expected a group of 1–200 characters without control characters, found "a\\rb"',
    ],
    ["a group twice", { id: "a", groups: ["b", "c", "b"] }, "callers[0].groups[2]  is there twice"],
    [
      "too many groups",
      { id: "a", groups: Array.from({ length: 101 }, String) },
      "callers[0].groups  expected at most 100 items, found 101",
    ],
    [
      "too many keys",
      { id: "a", keys: Array.from({ length: 101 }, (_, i) => ({ key: `k${i}` })) },
      "callers[0].keys  expected at most 100 items, found 101",
    ],
    ["a key that is a text", { id: "a", keys: ["hush"] }, "callers[0].keys[0]  expected an object, found a string"],
    ["neither key nor hash", { id: "a", keys: [{}] }, 'callers[0].keys[0]  needs either "key" or "key_sha256"'],
    [
      "both key and hash",
      { id: "a", keys: [{ key: "hush", key_sha256: "ab".repeat(32) }] },
      'callers[0].keys[0]  needs either "key" or "key_sha256"',
    ],
    [
      "an empty key",
      { id: "a", keys: [{ key: "" }] },
      "callers[0].keys[0].key  expected a string of 1–4096 characters, found a string",
    ],
    [
      "a key that is too long",
      { id: "a", keys: [{ key: "x".repeat(4097) }] },
      "callers[0].keys[0].key  expected a string of 1–4096 characters, found a string",
    ],
    [
      "a hash that is none",
      { id: "a", keys: [{ key_sha256: "hush" }] },
      "callers[0].keys[0].key_sha256  expected 64 hex digits, found a string",
    ],
    [
      "the hash of the empty key",
      { id: "a", keys: [{ key_sha256: sha256("").toString("hex").toUpperCase() }] },
      "callers[0].keys[0].key_sha256  is the hash of the empty key",
    ],
    [
      "a variable that is not set",
      { id: "a", keys: [{ key: "${env:NONE}" }] },
      "callers[0].keys[0].key  ${env:NONE} cannot be resolved: the environment variable NONE is not set",
    ],
    ["a text as enabled", { id: "a", enabled: "no" }, 'callers[0].enabled  expected true or false, found "no"'],
    [
      "a field that is misspelt",
      { id: "a", group: ["b"] },
      'callers[0].group  is not a known field; did you mean "groups"?',
    ],
  ])("are refused with %s", (_title, caller, issue) => {
    expect(issuesOf({ callers: [caller] })).toEqual([issue]);
  });

  it("are refused in a file in the same words, with the place in the file", () => {
    const text = '[\n  { "id": "ada" },\n  { "id": "", "keys": [{ "key": "" }] },\n  { "id": "ada", "keys": [{}] }\n]';
    expect(issuesOf({ caller_files: ["a.json"] }, { "/etc/gw/a.json": text })).toEqual([
      '/etc/gw/a.json:3:11  [1].id  expected an id of 1–200 characters without control characters, found ""',
      "/etc/gw/a.json:3:33  [1].keys[0].key  expected a string of 1–4096 characters, found a string",
      '/etc/gw/a.json:4:27  [2].keys[0]  needs either "key" or "key_sha256"',
    ]);
  });

  it("are refused in a file that is not UTF-8: ids that differ would be the same", () => {
    const content = Buffer.from('[{ "id": "Ren\xe9" },\n{ "id": "Ren\xe8" }]', "latin1");
    expect(issuesOf({ caller_files: ["a.json"] }, { "/etc/gw/a.json": content })).toEqual([
      "/etc/gw/a.json:1:14  expected UTF-8, found bytes that are not UTF-8: save the file as UTF-8",
    ]);
  });

  it(
    "have the right line and column in a file of any length, " +
      "also behind characters that UTF-16 writes in two halves",
    () => {
      const many = Array.from({ length: 2000 }, (_, i) => `{"id":"😀 ${i}","groups":["a,b","]}\\"[{"]}`);
      const lines = `[${many.join(",\n")},\n{"id":"last","enabled":1},{"id":"😀 7"}]`;
      const line = `[${many.join(",")},{"id":"last","enabled":1},{"id":"😀 7"}]`;
      const column = [...line.slice(0, line.indexOf("1},"))].length;
      expect(issuesOf({ caller_files: ["a.json"] }, { "/etc/gw/a.json": lines })).toEqual([
        "/etc/gw/a.json:2001:24  [2000].enabled  expected true or false, found 1",
        '/etc/gw/a.json:2001:33  [2001].id  "😀 7" is already used by [7]',
      ]);
      expect(issuesOf({ caller_files: ["a.json"] }, { "/etc/gw/a.json": line })[0]).toMatch(
        `/etc/gw/a.json:1:${column + 1} `,
      );
    },
  );

  it("are refused where two share an id or a key, with both places", () => {
    const files = {
      "/etc/gw/a.json": [
        { id: "ann", keys: [{ key: "hush-a" }, { key: "hush-b" }] },
        { id: "bob", keys: [{ key_sha256: sha256("hush-b").toString("hex") }] },
      ],
      "/etc/gw/b.json": [{ id: "ann" }, { id: "joe", keys: [{ key: "hush-joe" }] }],
      "/etc/gw/c.json": [{ id: "ann", keys: [{ key: "hush-a" }, { key: "hush-b" }] }],
    };
    expect(
      issuesOf({
        callers: [
          { id: "ada", keys: [{ key: "hush" }, { key: "hush" }] },
          { id: "ada" },
          { id: "eve", keys: [{ key: "hush" }] },
        ],
      }),
    ).toEqual([
      "callers[0].keys[1]  is the same key as callers[0].keys[0]",
      'callers[1].id  "ada" is already used by callers[0]',
      "callers[2].keys[0]  is the same key as callers[0].keys[0]",
    ]);
    expect(issuesOf({ caller_files: ["a.json"] }, files)).toEqual([
      expect.stringMatching(/^\/etc\/gw\/a\.json:1:\d+ {2}\[1\]\.keys\[0\] {2}is the same key as \[0\]\.keys\[1\]$/),
    ]);
    expect(
      issuesOf(
        { caller_files: ["b.json", "c.json"], callers: [{ id: "joe" }, { id: "lea", keys: [{ key: "hush-joe" }] }] },
        files,
      ),
    ).toEqual([
      expect.stringMatching(/^\/etc\/gw\/b\.json:1:\d+ {2}\[1\]\.id {2}"joe" is already used by callers\[0\]$/),
      "/etc/gw/b.json  [1].keys[0]  is the same key as callers[1].keys[0]",
      expect.stringMatching(
        /^\/etc\/gw\/c\.json:1:\d+ {2}\[0\]\.id {2}"ann" is already used by \[0\] of \/etc\/gw\/b\.json$/,
      ),
    ]);
  });

  it.each<readonly [string, string | object, string]>([
    ["is no JSON", '[{"id": "a",}]', '/etc/gw/a.json:1:12  [0]  expected a key after ",", found "}"'],
    ["ends too early", '[{"id": "a"}', '/etc/gw/a.json:1:13  expected "," or "]", found the end of the file'],
    ["has an open string", '[{"id": "a}]', "/etc/gw/a.json:1:9  [0].id  expected the closing quote of this string"],
    ["has more behind it", '[{"id": "a"}] x', "/etc/gw/a.json:1:15  expected the end of the file"],
    ["has a comma too many", '[{"id": "a"},]', "/etc/gw/a.json:1:13  expected a value after"],
    ["is empty", "", "/etc/gw/a.json:1:1  expected a value"],
    ["is an object", { id: "a" }, "/etc/gw/a.json:1:1  expected an array, found an object"],
    [
      "has a key twice",
      '[{"id": "a", "id": "b"}]',
      '/etc/gw/a.json:1:14  [0].id  duplicate key: the first "id" is at 1:3',
    ],
    [
      "is not UTF-8",
      Buffer.from([0x5b, 0xff, 0x5d]),
      "/etc/gw/a.json:1:2  expected UTF-8, found bytes that are not UTF-8",
    ],
  ])("are refused where the file %s, with line and column", (_title, content, issue) => {
    const issues = issuesOf({ caller_files: ["a.json"] }, { "/etc/gw/a.json": content });
    expect(issues).toEqual([expect.stringContaining(issue)]);
  });

  it("are refused where a file is missing, is named twice or needs a digest", () => {
    expect(issuesOf({ caller_files: ["none.json"] })).toEqual([
      "caller_files[0]  cannot read /etc/gw/none.json: no such file",
    ]);
    expect(issuesOf({ caller_files: ["a.json", "/etc/gw/a.json"] }, { "/etc/gw/a.json": [] })).toEqual([
      "caller_files[1]  is the same file as caller_files[0]",
    ]);
    expect(issuesOf({ caller_files: ["a.json"] }, { "/etc/gw/a.json": [] }, { mustPin: true })).toEqual([
      "caller_files[0]  has no SHA-256, which a signed configuration needs: " +
        "run edge-gateway pin FILE, then edge-gateway sign FILE --key private.pem",
    ]);
    const sha256 = hash("sha256", "[]");
    const named = (digest: string) => ({ caller_files: [{ path: "a.json", sha256: digest }] });
    expect(issuesOf(named(sha256), { "/etc/gw/a.json": [] }, { mustPin: true })).toEqual([]);
    expect(issuesOf(named("0".repeat(64)), { "/etc/gw/a.json": [] })).toEqual([
      `caller_files[0].sha256  is not the digest of /etc/gw/a.json: its SHA-256 is ${sha256}; ` +
        "once you trust the file, run edge-gateway pin FILE",
    ]);
    expect(issuesOf({ caller_files: Array.from({ length: 17 }, (_, i) => `${i}.json`) }).at(0)).toBe(
      "caller_files  expected at most 16 items, found 17",
    );
  });

  it("tell at most a hundred errors of a file, and how many more there are", () => {
    const issues = issuesOf(
      { caller_files: ["a.json"] },
      { "/etc/gw/a.json": Array.from({ length: 5000 }, () => ({})) },
    );
    expect(issues).toHaveLength(101);
    expect(issues.at(-1)).toMatch(/^\/etc\/gw\/a\.json {2,}and 4900 more errors$/);
    const twice = Array.from({ length: 5000 }, (_, i) => ({ id: `c${i}` }));
    const files = { "/etc/gw/a.json": twice, "/etc/gw/b.json": twice };
    expect(issuesOf({ caller_files: ["a.json", "b.json"] }, files).at(-1)).toContain("and 4900 more errors");
  });

  it("are needed where key_auth takes their keys", () => {
    const plugins = [{ name: "key_auth", config: { callers: true } }];
    expect(issuesOf({ global: { plugins } })).toEqual([
      "global.plugins[0].config.callers  there are no callers: " +
        'the configuration needs "callers" or "caller_files" beside "services"',
    ]);
    expect(issuesOf({ global: { plugins }, callers: [] })).toEqual([]);
    expect(
      issuesOf({ global: { plugins: [{ name: "key_auth", config: { callers: true, key: "k" } }] }, callers: [] }),
    ).toEqual(['global.plugins[0].config  has "callers" and keys of its own']);
    expect(issuesOf({ global: { plugins: [{ name: "key_auth", config: { callers: false } }] } })).toEqual([
      'global.plugins[0].config  needs "key" or "keys", or "callers": true',
    ]);
  });
});

describe("the reader of callers", () => {
  const source = { text: JSON.stringify({ services: [], caller_files: ["a.json"] }), file: "/etc/gw/a-gateway.json" };

  function read(reader: CallerReader, content: string) {
    const result = loadConfig(source, { kinds: [], environment: {}, readFile: () => content, callers: reader });
    if (!result.ok) throw new Error(formatIssues(result.issues));
    return result.callerLists!.at(-1) as CallerList;
  }

  it("reads a file once for as long as it stays the same, and again when it has changed", () => {
    const reader = new CallerReader();
    const first = read(reader, '[{"id":"ada"}]');
    expect(read(reader, '[{"id":"ada"}]')).toBe(first);
    const second = read(reader, '[{"id":"bob"}]');
    expect([second.withId("ada"), second.withId("bob")?.id]).toEqual([undefined, "bob"]);
  });

  it("reads a file with references each time, since what they stand for may have changed", () => {
    const reader = new CallerReader();
    const content = '[{"id":"ada","keys":[{"key":"a$${b"}]}]';
    expect(read(reader, content)).not.toBe(read(reader, content));
  });

  it("reads the callers of the configuration itself in steps of at most 500", () => {
    const callers = Array.from({ length: 5000 }, (_, i) => ({
      id: `caller ${i}`,
      groups: [],
      keys: [],
      enabled: true,
    }));
    const config = { global: { plugins: [] }, services: [], callers };
    const context = { issues: [], sources: { environment: {}, readFile: () => "", folder: "/" } };
    const steps = new CallerReader().readSteps(nodeFrom({}), config, context);
    let [count, result] = [0, steps.next()];
    for (; result.done !== true; result = steps.next()) count++;
    expect(count).toBeGreaterThanOrEqual(10);
    expect(result.value.lists![0]!.callers).toHaveLength(5000);
  });

  it("reads a file ahead in slices, so that the configuration finds it read", async () => {
    const reader = new CallerReader();
    const many = JSON.stringify(Array.from({ length: 5000 }, (_, i) => ({ id: `caller ${i}` })));
    await reader.readAhead(source, () => Buffer.from(many));
    const list = read(reader, many);
    await reader.readAhead(source, () => Buffer.from(many));
    expect(read(reader, many)).toBe(list);
    expect(list.callers).toHaveLength(5000);
    // A file that cannot be read is left to the reading itself.
    await reader.readAhead(source, () => {
      throw new Error("gone");
    });
  });
});
