/** GET and PUT /gateway/source: the configuration's file, read and replaced. */
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { maskedText } from "../../lib/admin/masked_text.ts";
import type { ConfigSecrets } from "../../lib/config/load.ts";
import { basic, PASSWORD, startAdmin, USER } from "./harness.ts";
import { AS_VIEWER, digestOf, emptyFolder, withPort, writable } from "./writable.ts";

const text = (port: number, more?: object) => JSON.stringify(withPort(port, more), null, 2);
const portOf = ({ gateway }: { readonly gateway: { readonly shownConfig: unknown } }) =>
  (gateway.shownConfig as any).services[0].upstreams[0].port as number;

describe("without ADMIN_WRITE", () => {
  it.each([
    ["GET", "/gateway/source"],
    ["PUT", "/gateway/source"],
  ])("%s %s is 404", async (method, path) => {
    const { ask, session } = await startAdmin();
    const refused = await ask(method, path, { headers: { cookie: await session() } });
    expect([refused.status, refused.json.code]).toEqual([404, "route_not_found"]);
  });
});

describe("GET /gateway/source", () => {
  it(
    "gives the bytes of the file, and their digest, which is that of the " + "configuration in force, as ETag",
    async () => {
      const written = `\uFEFF  ${text(1)}\n\n`;
      const { asAdmin, gateway } = await writable(written);
      const got = await asAdmin("GET", "/gateway/source");
      expect([got.status, got.text, got.headers.etag]).toEqual([200, written, `"${gateway.digest}"`]);
      expect(got.headers["content-type"]).toBe("application/json");
      expect(gateway.digest).toBe(digestOf(written));
    },
  );

  it("gives what the file has now, also where the gateway has refused it", async () => {
    const { asAdmin, file } = await writable();
    writeFileSync(file, "{ broken");
    const got = await asAdmin("GET", "/gateway/source");
    expect([got.text, got.headers.etag]).toEqual(["{ broken", `"${digestOf("{ broken")}"`]);
  });

  it("gives a viewer each literal secret masked, and the rest byte for byte", async () => {
    const plugins = [
      {
        name: "key_auth",
        config: {
          keys: [
            { id: "a", key: "hush-hush" },
            { id: "b", key: "${env:KEY}" },
          ],
        },
      },
    ];
    const tests = [
      {
        name: "t",
        request: {
          url: "/s/x?apiKey=other-key",
          headers: {
            apiKey: "hush-hush",
            Cookie: ["sid=1"],
            Accept: "text/plain",
            Authorization: "Bearer ${env:KEY}",
            "X-Vault-Token": "hush",
          },
        },
        expect: { status: 200, upstream_headers: { "X-Vault-Token": { matches: "^hush" } } },
      },
    ];
    const written = JSON.stringify({ ...withPort(1, { plugins }), tests }, null, 2).replace(
      '"hush-hush"',
      '"hush\\u002dhush"',
    );
    const { asViewer, asAdmin, gateway } = await writable(written, { environment: { KEY: "from-environment" } });
    const got = await asViewer("GET", "/gateway/source");
    const shown = written
      .replace('"hush\\u002dhush"', '"********"')
      .replace('"hush-hush"', '"********"')
      .replace("apiKey=other-key", "apiKey=********")
      .replace('"sid=1"', '"********"')
      .replace('"hush"', '"********"')
      .replace('"^hush"', '"********"');
    expect([got.status, got.text, got.headers.etag]).toEqual([
      200,
      shown.replace("Bearer ${env:KEY}", "********${env:KEY}"),
      `"${gateway.digest}"`,
    ]);
    expect((await asAdmin("GET", "/gateway/source?secrets=masked")).text).toBe(got.text);
    expect((await asAdmin("GET", "/gateway/source")).text).toBe(written);
  });

  it("masks bodies of tests that seem to have a secret, since only their readers know where it is", async () => {
    const test = (body: string) => ({
      name: body.slice(0, 4),
      request: { method: "POST", url: "/s/x", body },
      expect: { status: 502 },
    });
    const { asViewer } = await writable({
      ...withPort(1),
      tests: ["password=hush-hush&x=1", '{"api_key":"hush-hush"}', "plain text"].map(test),
    });
    const { text: shown } = await asViewer("GET", "/gateway/source");
    expect(shown).not.toContain("hush-hush");
    expect(shown).toContain("plain text");
  });

  it("reads strings of millions of characters and escapes", () => {
    const secrets = {
      marked: [{ at: ["b"], text: "hush", masked: "********" }],
      sources: { resolved: new Map() },
    } as unknown as ConfigSecrets;
    for (const long of ["x".repeat(9_000_000), "\\n".repeat(4_500_000), '\\"'.repeat(4_500_000)]) {
      const { text: shown, masked } = maskedText(Buffer.from(`{"a":"${long}","b":"hush"}`), { secrets });
      expect([masked, shown.equals(Buffer.from(`{"a":"${long}","b":"********"}`))]).toEqual([1, true]);
    }
  });

  it("shows an administrator no secrets with ADMIN_REDACT_SECRETS", async () => {
    const { asAdmin } = await writable(withPort(1, { plugins: [{ name: "key_auth", config: { key: "hush-hush" } }] }), {
      redactSecrets: true,
    });
    expect((await asAdmin("GET", "/gateway/source")).text).toContain('"key":"********"');
  });

  it("says why the file cannot be replaced from here, so that a page can offer its text as a draft", async () => {
    const readOnly = async ({ asAdmin }: Awaited<ReturnType<typeof writable>>) => {
      const { status, headers } = await asAdmin("GET", "/gateway/source");
      return [
        status,
        headers["source-read-only"] === undefined ? null : decodeURIComponent(String(headers["source-read-only"])),
      ];
    };
    const plain = await writable();
    expect(await readOnly(plain)).toEqual([200, null]);
    chmodSync(plain.file, 0o444);
    expect(await readOnly(plain)).toEqual([
      200,
      expect.stringMatching(/gw\.json is read-only \(nobody may write there\)/),
    ]);
    const signed = await writable(undefined, { keyFile: "/keys.pem" });
    expect(await readOnly(signed)).toEqual([
      200,
      expect.stringMatching(/^The configuration has to be signed \(CONFIG_PUBLIC_KEY\): sign it elsewhere/),
    ]);
    expect(await signed.put(text(2))).toMatchObject({
      status: 409,
      json: { code: "conflict", detail: expect.stringContaining("has to be signed") as string },
    });
    expect(signed.content()).toBe(JSON.stringify(withPort(1)));
  });

  it("tells a viewer nothing of a file that has not been checked", async () => {
    const { asViewer, file } = await writable();
    writeFileSync(file, '{"key":"a secret"');
    const got = await asViewer("GET", "/gateway/source");
    expect([got.status, got.json.code, got.text.includes("a secret")]).toEqual([409, "conflict", false]);
  });

  it("says that the file is missing", async () => {
    const { asAdmin, file } = await writable();
    renameSync(file, `${file}.away`);
    const got = await asAdmin("GET", "/gateway/source");
    expect([got.status, got.json.detail]).toEqual([
      409,
      expect.stringMatching(/^The configuration file \S+gw\.json cannot be read: no such file\.$/),
    ]);
  });

  it("does not take credentials in place of a session where secrets are shown", async () => {
    const { ask } = await writable();
    for (const authorization of [basic(USER, PASSWORD), AS_VIEWER]) {
      const [source, status] = [
        await ask("GET", "/gateway/source", { headers: { authorization } }),
        await ask("GET", "/gateway/status", { headers: { authorization } }),
      ];
      expect([source.status, source.json.code, status.status]).toEqual([401, "unauthenticated", 200]);
    }
  });
});

describe("PUT /gateway/source", () => {
  it("writes the text, takes it, and gives its digest and what has changed", async () => {
    const all = await writable();
    const before = digestOf(all.content());
    const got = await all.put(text(2));
    expect(got.json).toEqual({
      digest: digestOf(text(2)),
      changed: true,
      changes: [{ kind: "upstream", name: expect.any(String), change: "altered", fields: ["port"] }],
    });
    expect([got.status, got.headers.etag, all.content(), portOf(all)]).toEqual([
      200,
      `"${digestOf(text(2))}"`,
      text(2),
      2,
    ]);
    expect(all.gateway.status.lastReload).toMatchObject({ by: "admin", outcome: "taken", digest: digestOf(text(2)) });
    const line = all.lines().find(({ message }) => message === "admin change");
    expect(line).toMatchObject({
      level: "info",
      user: "ädmin",
      address: "127.0.0.1",
      action: "source",
      before,
      after: digestOf(text(2)),
      request_id: got.headers["x-request-id"],
    });
    expect(readdirSync(all.folder).filter((name) => name !== "gw.json" && !name.endsWith(".history"))).toEqual([]);
  });

  it("takes the same text again, and one that differs in white space alone", async () => {
    const all = await writable();
    expect((await all.put(all.content())).json).toMatchObject({ changed: false, changes: [] });
    expect((await all.put(`${all.content()}\n`)).json).toMatchObject({ changed: true, changes: [] });
    expect(all.content()).toMatch(/\n$/);
  });

  it.each([
    ["no If-Match", null, {}, 428, "precondition_required"],
    ["the digest of another text", "0123456789ab", {}, 412, "precondition_failed"],
    ["If-Match: *", null, { "if-match": "*" }, 412, "precondition_failed"],
    ["an If-Match that is no ETag", null, { "if-match": "x" }, 412, "precondition_failed"],
    ["an empty If-Match", null, { "if-match": "" }, 412, "precondition_failed"],
    ["another type", undefined, { "content-type": "text/plain" }, 400, "bad_request"],
  ])("refuses %s", async (_title, expected, headers, status, code) => {
    const all = await writable();
    const before = all.content();
    const got = await all.put(text(2), expected, headers);
    expect([got.status, got.json.code, all.content(), portOf(all)]).toEqual([status, code, before, 1]);
    expect(all.lines().filter(({ message }) => message === "admin change")).toEqual([]);
  });

  it("refuses a weak ETag, and finds the digest in a list", async () => {
    const all = await writable();
    const digest = digestOf(all.content());
    expect((await all.put(text(2), null, { "if-match": `W/"${digest}"` })).status).toBe(412);
    expect((await all.put(text(2), null, { "if-match": `"0123456789ab" , "${digest}"` })).status).toBe(200);
  });

  it(
    "gives 422 with each issue and its place, and changes nothing: " +
      "neither the file nor what the status says of the last reload",
    async () => {
      const all = await writable();
      const before = all.content();
      const got = await all.put('{\n  "services": [{ "name": "s" }]\n}');
      expect([got.status, got.json.code, got.json.digest, all.content()]).toEqual([
        422,
        "configuration_refused",
        digestOf(before),
        before,
      ]);
      expect(got.json.issues[0]).toEqual({
        path: expect.stringMatching(/^services\[0\]/),
        line: 2,
        column: expect.any(Number),
        message: expect.any(String),
      });
      expect(all.gateway.status.lastReload).toBeNull();
      expect((await all.put("")).status).toBe(422);
    },
  );

  it("gives 422 where a test fails", async () => {
    const all = await writable();
    const tests = [{ name: "t", request: { url: "/s/x" }, expect: { status: 204 } }];
    const got = await all.put(JSON.stringify({ ...withPort(2), tests }));
    expect([got.status, got.json.issues]).toEqual([
      422,
      [expect.objectContaining({ path: "tests[0]", line: 1, message: expect.stringContaining('"t" failed') })],
    ]);
    expect(portOf(all)).toBe(1);
  });

  it("resolves references, as a reload does, and tells none of their values in errors", async () => {
    const environment = { HOST: "127.0.0.9", SECRET: "hunter2 is no host" };
    const all = await writable(withPort(1), { environment });
    const withHost = (host: string) => JSON.stringify(withPort(1, { upstreams: [{ host, port: 1 }] }));
    expect((await all.put(withHost("${env:HOST}"))).status).toBe(200);
    for (const host of ["${env:SECRET}", "x ${env:SECRET}", "${env:MISSING}"]) {
      const got = await all.put(withHost(host));
      expect([got.status, got.text.includes("hunter2")]).toEqual([422, false]);
    }
  });

  it("refuses a text of millions of brackets at the hundredth level, before anything reads all of them", async () => {
    const all = await writable();
    const parse = vi.spyOn(JSON, "parse");
    for (const text of ["[".repeat(1_400_000), '{"a":'.repeat(1_000_000)]) {
      const got = await all.put(text);
      expect([got.status, got.json.issues]).toEqual([
        422,
        [{ path: expect.any(String), line: 1, column: expect.any(Number), message: "nested deeper than 100 levels" }],
      ]);
    }
    expect(parse.mock.calls.filter(([text]) => text.length > 100_000)).toEqual([]);
    parse.mockRestore();
  });

  it("refuses a text in which a secret is masked, which would replace the secret", async () => {
    const plugins = [{ name: "key_auth", config: { key: "hush-hush" } }];
    const all = await writable(withPort(1, { plugins }));
    const masked = (await all.asViewer("GET", "/gateway/source")).text;
    const body = masked.replace(/,"plugins"/, ',\n"plugins"');
    const got = await all.put(body);
    const issue = { path: "", line: 2, column: expect.any(Number), message: expect.stringContaining("masks a secret") };
    expect([got.status, got.json.issues]).toEqual([422, [issue]]);
    expect(all.content()).toContain("hush-hush");
    // The check before says so, too.
    const headers = { "content-type": "application/json" };
    const checked = (await all.asAdmin("POST", "/gateway/validate", { body, headers })).json;
    expect([checked.outcome, checked.issues]).toEqual(["refused", [issue]]);
    const own = (await all.asAdmin("POST", "/gateway/validate", { body: all.content(), headers })).json;
    expect([own.outcome, own.issues]).toEqual(["accepted", []]);
  });

  it("refuses a text in which a part of a text is masked; one that the file has as it is stays possible", async () => {
    const tests = [{ name: "a ******** b", request: { url: "/s/x?apiKey=other-key" }, expect: { status: 200 } }];
    const all = await writable({ ...withPort(1), tests });
    const masked = (await all.asAdmin("GET", "/gateway/source?secrets=masked")).text;
    const got = await all.put(masked);
    const column = masked.indexOf('"/s/x?') + 1;
    expect([got.status, got.json.issues]).toEqual([
      422,
      [{ path: "", line: 1, column, message: expect.stringContaining("masks a secret") }],
    ]);
    expect((await all.put(`${all.content()} `)).status).toBe(200);
    expect(all.content()).toContain("other-key");
  });

  it(
    "never overwrites a change by hand: 412, also where the change comes while " + "the text is being checked",
    async () => {
      const all = await writable();
      const read = digestOf(all.content());
      writeFileSync(all.file, text(7));
      const got = await all.put(text(2), read);
      expect([got.status, got.json.digest, all.content()]).toEqual([412, digestOf(text(7)), text(7)]);
      expect((await all.put(text(2))).status).toBe(200);
    },
  );

  it("takes one of two at once, and the other gets 412", async () => {
    const all = await writable();
    const expected = digestOf(all.content());
    const got = await Promise.all([all.put(text(2), expected), all.put(text(3), expected)]);
    expect(got.map(({ status }) => status).sort()).toEqual([200, 412]);
    expect(all.content()).toBe(text(got[0]!.status === 200 ? 2 : 3));
  });

  it("refuses a viewer, a page of another origin, and a request without a session, whatever they send", async () => {
    const all = await writable();
    const before = all.content();
    const asked = {
      body: text(2),
      headers: { "content-type": "application/json", "if-match": `"${digestOf(before)}"` },
    };
    expect((await all.asViewer("PUT", "/gateway/source", asked)).json.code).toBe("forbidden");
    expect((await all.ask("PUT", "/gateway/source", asked)).json.code).toBe("unauthenticated");
    for (const headers of [
      { origin: "http://evil.example" },
      { origin: "null" },
      { "sec-fetch-site": "cross-site" },
      { "sec-fetch-site": "same-site" },
    ]) {
      const got = await all.asAdmin("PUT", "/gateway/source", {
        ...asked,
        headers: { ...asked.headers, ...headers } as never,
      });
      expect([got.status, got.json.code]).toEqual([403, "forbidden"]);
    }
    expect(all.content()).toBe(before);
  });

  it("keeps the mode of the file", async () => {
    const all = await writable();
    chmodSync(all.file, 0o640);
    expect((await all.put(text(2))).status).toBe(200);
    expect(statSync(all.file).mode & 0o7777).toBe(0o640);
  });

  it("keeps the owner of the file (as root)", async ({ skip }) => {
    if (process.getuid?.() !== 0) skip();
    const all = await writable();
    const { chownSync } = await import("node:fs");
    chownSync(all.file, 12345, 23456);
    expect((await all.put(text(2))).status).toBe(200);
    expect(statSync(all.file)).toMatchObject({ uid: 12345, gid: 23456 });
  });

  it("replaces what a link leads to, and not the link", async () => {
    const [folder, elsewhere] = [emptyFolder(), emptyFolder()];
    const [path, target] = [join(folder, "gw.json"), join(elsewhere, "real.json")];
    writeFileSync(target, text(1));
    symlinkSync(target, path);
    const all = await writable("", { path });
    expect((await all.put(text(2))).status).toBe(200);
    expect([lstatSync(path).isSymbolicLink(), readFileSync(target, "utf8")]).toEqual([true, text(2)]);
    expect(readdirSync(elsewhere)).toEqual(["real.json"]);
  });

  it("refuses a file from a ConfigMap of Kubernetes, which would be written back", async () => {
    const folder = emptyFolder();
    mkdirSync(join(folder, "..2026_01_02"));
    writeFileSync(join(folder, "..2026_01_02", "gw.json"), text(1));
    symlinkSync("..2026_01_02", join(folder, "..data"));
    symlinkSync("..data/gw.json", join(folder, "gw.json"));
    const all = await writable("", { path: join(folder, "gw.json") });
    const got = await all.put(text(2));
    expect([got.status, got.json.code, got.json.detail]).toEqual([
      409,
      "conflict",
      expect.stringContaining("ConfigMap"),
    ]);
    expect(all.content()).toBe(text(1));
  });

  it.each([
    ["a file", (all: { file: string }) => chmodSync(all.file, 0o444)],
    ["a folder", (all: { folder: string }) => chmodSync(all.folder, 0o555)],
  ])("refuses %s that is read-only", async (_title, protect) => {
    const all = await writable();
    protect(all);
    const got = await all.put(text(2));
    chmodSync(all.folder, 0o755);
    expect([got.status, got.json.code, got.json.detail]).toEqual([
      409,
      "conflict",
      expect.stringMatching(/ is read-only \(/),
    ]);
    expect([all.content(), portOf(all)]).toEqual([JSON.stringify(withPort(1)), 1]);
  });

  it("refuses where the file is gone, and does not make a new one", async () => {
    const all = await writable();
    renameSync(all.file, `${all.file}.away`);
    expect((await all.put(text(2), "0123456789ab")).status).toBe(409);
    expect(existsSync(all.file)).toBe(false);
  });
});

describe("a crash while the file is being replaced", () => {
  it(
    "leaves a file beside it that the next start removes, " + "once it is older than a minute, and nothing else",
    async () => {
      const folder = emptyFolder();
      const path = join(folder, "gw.json");
      const hex = "0123456789abcdef01234567";
      const [old, young, ...others] = [
        `.gw.json.${hex}.new`,
        `.gw.json.f${hex.slice(1)}.new`,
        `.other.json.${hex}.new`,
        `.gw.json.${hex}`,
        "gw.json.new",
      ];
      for (const name of [old!, young!, ...others]) writeFileSync(join(folder, name), "{}");
      for (const name of [old!, ...others]) utimesSync(join(folder, name), 1, 1);
      writeFileSync(path, text(1));
      await writable("", { path });
      await expect.poll(() => existsSync(join(folder, old!))).toBe(false);
      expect(readdirSync(folder)).toEqual(expect.arrayContaining([young, ...others]));
    },
  );
});
