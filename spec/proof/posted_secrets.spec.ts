/**
 * The dry run of a text that somebody has sent tells nothing of what references and files hold: one attack for each
 * place.
 */
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { dryRunView } from "../../lib/admin/reload_request.ts";
import { createGateway } from "../../lib/index.ts";
import { loadPluginModules } from "../../lib/features/plugin_modules.ts";
import { oneService } from "../support/gateway.ts";
import { emptyFolder } from "../support/process.ts";

const SECRETS = {
  ATTACKED: "s3cret-of-the-environment",
  ADMIN_JWT_SECRET: "s-32-bytes-that-sign-the-sessions-of-all",
  IN_FORCE: "s-in-force-and-never-told",
  IN_FORCE_URL: "https://s-host.internal/s-path",
  IN_FORCE_NET: "198.51.100.64/26",
};

const SET = { name: "request_headers", config: { set: { "X-Token": "Bearer ${env:IN_FORCE}" } } };
const KEY = { name: "key_auth", config: { key: "${env:IN_FORCE}" } };
const FORWARD = { name: "forward_auth", config: { url: "${env:IN_FORCE_URL}" } };
const NET = { name: "acl", config: { whitelist: ["${env:IN_FORCE_NET}"] } };
const TOKEN = {
  name: "introspection",
  config: { url: "${env:IN_FORCE_URL}", client_id: "c", client_secret: "a-secret-of-some-length", scopes: ["a"] },
};
/** In force: its references are known. */
const ASKED = {
  name: "asked",
  request: { url: "/a/ask" },
  answers: [{ url: "${env:IN_FORCE_URL}", status: 401 }],
  expect: { status: 401 },
};
const routes = (...more: object[]) =>
  oneService(9, {
    routes: [
      { name: "set", path: "/set", plugins: [SET] },
      { name: "key", path: "/key", plugins: [KEY] },
      { name: "ask", path: "/ask", plugins: [FORWARD] },
      { name: "net", path: "/net", plugins: [NET] },
      { name: "token", path: "/token", plugins: [TOKEN] },
      ...more,
    ] as never,
  });

/** A gateway with references in force, and the answer to a text as it is sent to clients. */
async function gateway() {
  const folder = emptyFolder();
  const [file, secret, module] = [join(folder, "gw.json"), join(folder, "secret.txt"), join(folder, "kind.mjs")];
  writeFileSync(secret, "s-in-a-file\n");
  writeFileSync(module, "export default [];");
  writeFileSync(file, JSON.stringify({ ...routes(), tests: [ASKED] }));
  const running = createGateway({
    configFile: file,
    environment: SECRETS,
    modules: await loadPluginModules(file, SECRETS),
  });
  onTestFinished(async () => void (await running.close(0)));
  const post = async (config: object) =>
    JSON.stringify(dryRunView(await running.dryRun(Buffer.from(JSON.stringify(config)))));
  /** The different answers to texts that have one of these texts each, without that text and its place. */
  const answers = async (texts: readonly string[], configOf: (text: string) => object) => {
    const found = new Set<string>();
    for (const text of texts) {
      const answer = await post(configOf(text));
      for (const value of [...Object.values(SECRETS), "s-in-a-file"]) expect(answer).not.toContain(value);
      found.add(withoutPlaces(answer.replaceAll(text, "#")));
    }
    return [...found];
  };
  /** Variables and files; the last two are neither. */
  const references = [
    "${env:ATTACKED}",
    "${env:ADMIN_JWT_SECRET}",
    `\${file:${secret}}`,
    "${file:/etc/hostname}",
    "${env:toString}",
    "${env:NOT_SET}",
    "${file:/no/such/file}",
  ];
  return { folder, secret, module, post, answers, references };
}

/** The columns of issues and warnings depend on the lengths of texts before them. */
const withoutPlaces = (answer: string) => answer.replace(/,"column":\d+/g, "");

/** None fits the random text that stands for the value. */
const GUESSES = ["^Bearer s", "^Bearer x", "s-in", "^Bearer s-in-force-and-never-told$", "^Bearer .{24}$"];
const testOf = (expected: object, request: object = {}) => ({
  name: "guess",
  request: { url: "/a/set", ...request },
  expect: expected,
});

describe("a posted dry run", () => {
  it.each<[string, (reference: string) => object]>([
    [
      "a condition on a header",
      (text) =>
        routes(
          { path: "/x", name: "1", match: { headers: { X: text } } },
          { path: "/x", name: "2", match: { headers: { X: { matches: "^s" } } } },
        ),
    ],
    ["a path", (text) => routes({ path: `/${text}` }, { path: "/s3cret-of-the-environment", name: "2" })],
    ["a host", (text) => oneService(9, { hosts: [text] })],
    ["the name of a route", (text) => routes({ path: "/x", name: text })],
    ["a method", (text) => routes({ path: "/x", name: "x", methods: [text] })],
    [
      "an API key",
      (text) =>
        routes({
          path: "/x",
          name: "x",
          plugins: [
            {
              ...KEY,
              config: {
                keys: [
                  { id: "a", key: text },
                  { id: "b", key: SECRETS.ATTACKED },
                ],
              },
            },
          ],
        }),
    ],
    [
      "the digest of an API key",
      (text) =>
        routes({ path: "/x", name: "x", plugins: [{ ...KEY, config: { keys: [{ id: "a", key_sha256: text }] } }] }),
    ],
    [
      "the key of tokens",
      (text) =>
        routes({ path: "/x", name: "x", plugins: [{ name: "jwt", config: { alg: "HS512", secret: text, aud: "a" } }] }),
    ],
    [
      "the public key of tokens",
      (text) =>
        routes({
          path: "/x",
          name: "x",
          plugins: [{ name: "jwt", config: { alg: "RS256", public_key: text, aud: "a" } }],
        }),
    ],
    [
      "the password of a user",
      (text) =>
        routes({ path: "/x", name: "x", plugins: [{ name: "basic_auth", config: { username: "u", password: text } }] }),
    ],
    [
      "an address, with settings for another scheme",
      (text) =>
        routes({
          path: "/x",
          name: "x",
          plugins: [{ name: "forward_auth", config: { url: text, tls: { servername: "a.test" } } }],
        }),
    ],
    [
      "an address that is asked",
      (text) => routes({ path: "/x", name: "x", plugins: [{ name: "forward_auth", config: { url: text } }] }),
    ],
    [
      "a part of an address",
      (text) =>
        routes({
          path: "/x",
          name: "x",
          plugins: [{ name: "forward_auth", config: { url: `http://h.example/${text}` } }],
        }),
    ],
    [
      "where a client is redirected",
      (text) => routes({ path: "/x", name: "x", plugins: [{ name: "redirect", config: { location: `/${text}` } }] }),
    ],
    [
      "the host of an upstream",
      (text) =>
        oneService(9, {
          upstreams: [
            { host: text, port: 9 },
            { host: "10.0.0.1", port: 9 },
          ],
        }),
    ],
    [
      "the server of shared counters",
      (text) => oneService(9, {}, { counters: { store: "redis", url: [text, "redis://other.internal"] } as never }),
    ],
    ["a range of addresses", (text) => oneService(9, {}, { trusted_proxies: [text] })],
    ["the secret of cookies", (text) => oneService(9, { sticky: { secret: text } as never })],
    [
      "the expectation of a test",
      (text) => ({ ...routes(), tests: [testOf({ status: 404, upstream_headers: { "X-Token": text } })] }),
    ],
    [
      "the pattern of a test",
      (text) => ({ ...routes(), tests: [testOf({ upstream_headers: { "X-Token": { matches: text } } })] }),
    ],
    [
      "the request of a test",
      (text) => ({
        ...routes({ path: "/x", name: "x", plugins: [{ ...KEY, config: { key: SECRETS.ATTACKED } }] }),
        tests: [testOf({ status: 200 }, { url: "/a/x", headers: { apiKey: text } })],
      }),
    ],
    [
      "a key that begins like a property of every object",
      (text) => ({
        ...routes(),
        tests: [testOf({ status: 200 }, { body: { ["__proto__"]: text, constructor: text } })],
      }),
    ],
  ])("answers the same for every reference, set or unset, readable or not: %s", async (_place, configOf) => {
    const { answers, references } = await gateway();
    expect(await answers(references, configOf)).toHaveLength(1);
  });

  it.each<[string, (guess: string) => object]>([
    [
      "a test of a header that has it",
      (guess) => ({ ...routes(), tests: [testOf({ upstream_headers: { "X-Token": { matches: guess } } })] }),
    ],
    [
      "a plugin that looks at such a header",
      (guess) => ({
        ...oneService(9, {
          routes: [
            {
              name: "set",
              path: "/set",
              plugins: [
                SET,
                { name: "fault", config: { status: 503, match: { headers: { "X-Token": { matches: guess } } } } },
              ],
            },
          ] as never,
        }),
        tests: [testOf({ status: 503 })],
      }),
    ],
  ])("answers the same for every guess at a value in force: %s", async (_way, configOf) => {
    const { answers } = await gateway();
    expect(await answers(GUESSES, configOf)).toHaveLength(1);
  });

  it("answers the same for a right and a wrong guess at a whole key in force", async () => {
    const { post } = await gateway();
    const guesses = [SECRETS.IN_FORCE, "x-in-force-and-never-told"];
    const found = new Set<string>();
    for (const apiKey of guesses)
      found.add(await post({ ...routes(), tests: [testOf({ status: 200 }, { url: "/a/key", headers: { apiKey } })] }));
    expect(found.size).toBe(1);
    expect(JSON.parse([...found][0]!)).toMatchObject({ tests: { passed: 0, failed: 0, not_run: 1 } });
  });

  it.each<[string, readonly string[], (guess: string) => object]>([
    [
      "the URL that forward_auth asks",
      [SECRETS.IN_FORCE_URL, "https://x-host.internal/x-path"],
      (url) => ({ ...testOf({ status: 401 }, { url: "/a/ask" }), answers: [{ url, status: 401 }] }),
    ],
    [
      "the URL that introspection asks",
      [SECRETS.IN_FORCE_URL, "https://x-host.internal/x-path"],
      (url) => ({
        ...testOf({ code: "token_invalid" }, { url: "/a/token", headers: { Authorization: "Bearer t" } }),
        answers: [{ url, body: { active: false } }],
      }),
    ],
    [
      "a network that may send requests",
      ["198.51.100.65", "203.0.113.1"],
      (client_ip) => testOf({ status: 200 }, { url: "/a/net", client_ip }),
    ],
  ])("does not run a test that would tell whether a guess is right: %s", async (_what, guesses, test) => {
    const { post } = await gateway();
    const found = new Set<string>();
    for (const guess of guesses) found.add(withoutPlaces(await post({ ...routes(), tests: [test(guess)] })));
    expect(found.size).toBe(1);
    expect(JSON.parse([...found][0]!)).toMatchObject({ tests: { passed: 0, failed: 0, not_run: 1 } });
  });

  it("answers the same for a right and a wrong guess at the URL of another answer of the same test", async () => {
    const { post } = await gateway();
    const found = new Set<string>();
    for (const url of [SECRETS.IN_FORCE_URL, "https://x-host.internal/x-path"])
      found.add(
        withoutPlaces(await post({ ...routes(), tests: [{ ...ASKED, answers: [...ASKED.answers, { url }] }] })),
      );
    expect([...found]).toEqual([expect.stringContaining('"outcome":"accepted"')]);
  });

  it("runs a test that names the URL by the same reference as the plugin", async () => {
    const { post } = await gateway();
    expect(JSON.parse(await post({ ...routes(), tests: [ASKED] }))).toMatchObject({
      tests: { passed: 1, failed: 0, not_run: 0 },
    });
  });

  it("tells no digest of a file, and not whether there is one", async () => {
    const { module, post } = await gateway();
    const digest = createHash("sha256").update(readFileSync(module)).digest("hex");
    const found = new Set<string>();
    for (const entry of [
      { path: module },
      { path: module, sha256: digest },
      { path: module, sha256: "0".repeat(64) },
      { path: "/no/such/file" },
      { path: "/etc/shadow", sha256: "0".repeat(64) },
    ]) {
      const answer = await post(oneService(9, {}, { plugin_modules: [entry] } as never));
      expect(answer).not.toContain(digest);
      found.add(withoutPlaces(answer));
    }
    expect([...found]).toEqual([
      expect.stringContaining(
        '"path":"global.plugin_modules[0]","line":1,"message":"is not a module of the configuration in force',
      ),
    ]);
  });

  it.each<[string, (path: string) => object]>([
    ["tests", (path) => ({ ...routes(), test_files: [path] })],
    ["certificates", (path) => oneService(9, {}, { certificates: [{ hosts: ["a.test"], cert: path, key: path }] })],
    ["the authorities of an upstream", (path) => oneService(9, { protocol: "https", tls: { ca: path } } as never)],
    [
      "a set of keys",
      (path) =>
        routes({
          path: "/x",
          name: "x",
          plugins: [{ name: "jwt", config: { algs: ["ES256"], jwks_file: path, aud: "a" } }],
        }),
    ],
  ])("reads no file that the configuration in force does not name: %s", async (_what, configOf) => {
    const { answers, secret, module, folder } = await gateway();
    expect(await answers([secret, module, "/etc/shadow", "/no/such/file", "/dev/zero", folder], configOf)).toHaveLength(
      1,
    );
  });

  it("takes references that are in force as they are: its tests run, and nothing is missing", async () => {
    const { post } = await gateway();
    const passing = { ...testOf({ status: 200 }, { url: "/a/set" }), name: "passes" };
    const answer = JSON.parse(await post({ ...routes(), tests: [passing] })) as Record<string, unknown>;
    expect(answer).toMatchObject({
      outcome: "accepted",
      issues: [],
      warnings: [],
      tests: { passed: 1, failed: 0, not_run: 0 },
      diff: { guards_lost: [], changed: [], other: [] },
    });
  });
});
