/** GET /gateway/history and POST /gateway/rollback. */
import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { GatewayCore } from "../../lib/gateway/gateway.ts";
import { startAdmin } from "./harness.ts";
import { digestOf, VIEWER, withPort, writable, type Writable } from "./writable.ts";

const text = (port: number, more?: object) => JSON.stringify(withPort(port, more));
const sha256 = (key: string) => createHash("sha256").update(key).digest("hex");
const entriesOf = async ({ asAdmin }: Writable) => (await asAdmin("GET", "/gateway/history")).json.entries as any[];
const rollBack = (all: Writable, digest: unknown, headers = {}) =>
  all.asAdmin("POST", "/gateway/rollback", {
    body: JSON.stringify({ digest }),
    headers: { "content-type": "application/json", ...headers },
  });

/** Waits for entries that are written after a reload. */
async function until(all: Writable, count: number) {
  for (;;) {
    const entries = await entriesOf(all);
    if (entries.length >= count) return entries;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe("without ADMIN_WRITE", () => {
  it.each([
    ["GET", "/gateway/history"],
    ["POST", "/gateway/rollback"],
  ])("%s %s is 404", async (method, path) => {
    const { ask, session } = await startAdmin();
    expect((await ask(method, path, { headers: { cookie: await session() } })).status).toBe(404);
  });
});

describe("GET /gateway/history", () => {
  it(
    "begins with the configuration of the start, and has each that came into force, " + "by whom and what changed",
    async () => {
      const all = await writable(text(1));
      expect(await until(all, 1)).toEqual([
        {
          digest: digestOf(text(1)),
          at: expect.any(String),
          by: { cause: "start" },
          changes: [],
          in_force: true,
          can_roll_back: true,
          reason: null,
        },
      ]);
      await all.put(text(2));
      await until(all, 2);
      writeFileSync(all.file, text(3));
      await all.gateway.reload(undefined, "file");
      const entries = await until(all, 3);
      expect(entries.map(({ digest, by, in_force }) => [digest, by, in_force])).toEqual([
        [digestOf(text(3)), { cause: "file" }, true],
        [digestOf(text(2)), { user: "ädmin", address: "127.0.0.1" }, false],
        [digestOf(text(1)), { cause: "start" }, false],
      ]);
      expect(entries[1].changes).toEqual([
        { kind: "upstream", name: expect.any(String), change: "altered", fields: ["port"] },
      ]);
      const shown = await all.asViewer("GET", `/gateway/history?digest=${digestOf(text(2))}`);
      expect([shown.status, shown.text]).toEqual([200, text(2)]);
      expect((await all.asAdmin("GET", "/gateway/history?digest=0123456789ab")).status).toBe(404);
    },
  );

  it("does not name the author of a text that was refused when somebody else writes it into the file", async () => {
    const environment: Record<string, string> = {};
    const all = await writable(text(1), { environment });
    const refused = text(2, { plugins: [{ name: "request_headers", config: { set: { "X-Later": "${env:LATER}" } } }] });
    expect((await all.put(refused)).status).toBe(422);
    writeFileSync(all.file, refused);
    environment["LATER"] = "is set";
    await all.gateway.reload(undefined, "file");
    expect((await until(all, 2))[0].by).toEqual({ cause: "file" });
  });

  it("names who brought a text into force this time, not who did so before", async () => {
    const all = await writable(text(1));
    await all.put(text(2));
    await until(all, 2);
    for (const port of [1, 2]) {
      writeFileSync(all.file, text(port));
      await all.gateway.reload(undefined, "file");
    }
    const entries = await until(all, 4);
    expect(entries.map(({ digest, by }) => [digest, by])).toEqual([
      [digestOf(text(2)), { cause: "file" }],
      [digestOf(text(1)), { cause: "file" }],
      [digestOf(text(2)), { user: "ädmin", address: "127.0.0.1" }],
      [digestOf(text(1)), { cause: "start" }],
    ]);
  });

  it(
    "has a configuration that the next reload replaces at once, " + "and of both whose it is and what changed",
    async () => {
      const all = await writable(text(1));
      const { configuration } = GatewayCore.internalsOf(all.gateway);
      const { onReplaced } = configuration;
      const next: Promise<unknown>[] = [];
      configuration.onReplaced = (before, after) => {
        onReplaced(before, after);
        if (next.length > 0) return;
        writeFileSync(all.file, text(2, { name: "renamed" }));
        next.push(all.gateway.reload(undefined, "signal"));
      };
      expect((await all.put(text(2))).json).toMatchObject({ digest: digestOf(text(2)), changed: true });
      await Promise.all(next);
      const upstream = expect.objectContaining({ kind: "upstream", change: "altered", fields: ["port"] }) as unknown;
      expect((await until(all, 3)).map(({ digest, by, changes }) => [digest, by, changes])).toEqual([
        [digestOf(text(2, { name: "renamed" })), { cause: "signal" }, expect.not.arrayContaining([upstream])],
        [digestOf(text(2)), { user: "ädmin", address: "127.0.0.1" }, [upstream]],
        [digestOf(text(1)), { cause: "start" }, []],
      ]);
    },
  );

  it("is in a folder beside the file that only its owner reads, and survives a restart", async () => {
    const all = await writable(text(1));
    await all.put(text(2));
    await until(all, 2);
    const folder = join(all.folder, ".gw.json.history");
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    expect(readdirSync(folder).map((name) => statSync(join(folder, name)).mode & 0o777)).toEqual([0o600, 0o600]);
    const again = await writable("", { path: all.file });
    expect((await until(again, 2)).map(({ digest, in_force }) => [digest, in_force])).toEqual([
      [digestOf(text(2)), true],
      [digestOf(text(1)), false],
    ]);
  });

  it("has the last 20", async () => {
    const all = await writable(text(1));
    for (let port = 2; port <= 24; port++) expect((await all.put(text(port))).status).toBe(200);
    const digest = digestOf(text(24));
    for (let entries = await entriesOf(all); entries[0].digest !== digest; entries = await entriesOf(all))
      await new Promise((resolve) => setImmediate(resolve));
    expect(await entriesOf(all)).toHaveLength(20);
    expect(readdirSync(join(all.folder, ".gw.json.history"))).toHaveLength(20);
  });

  it(
    "never has a secret that is written in a configuration, " + "and says why such an entry cannot be rolled back to",
    async () => {
      const plugins = [{ name: "key_auth", config: { key: "hush-hush" } }];
      const all = await writable(text(1, { plugins }));
      const digest = digestOf(text(1, { plugins }));
      expect(await until(all, 1)).toMatchObject([
        { digest, can_roll_back: false, reason: expect.stringContaining("has one written in it") },
      ]);
      expect((await all.put(text(1))).status).toBe(200);
      await until(all, 2);
      const folder = join(all.folder, ".gw.json.history");
      expect(readdirSync(folder).some((name) => readFileSync(join(folder, name), "utf8").includes("hush"))).toBe(false);
      expect((await all.asAdmin("GET", `/gateway/history?digest=${digest}`)).text).toBe(
        text(1, { plugins }).replace("hush-hush", "********"),
      );
      const got = await rollBack(all, digest);
      expect([got.status, got.json.code, all.content()]).toEqual([409, "conflict", text(1)]);
    },
  );

  it(
    "has digests of keys as they are written, so that it can be rolled back to, " + "and no plain key or password",
    async () => {
      const digest = sha256("hush-hush");
      const keys = (...more: object[]) => ({
        plugins: [{ name: "key_auth", config: { keys: [{ id: "a", key_sha256: digest }, ...more] } }],
      });
      const callers = [{ id: "ada", keys: [{ key_sha256: sha256("other") }] }];
      const hashed = JSON.stringify({ ...JSON.parse(text(1, keys())), callers });
      const all = await writable(hashed, { viewer: VIEWER });
      const plain = text(1, keys({ id: "b", key: "plain" }));
      expect((await all.put(plain)).status).toBe(200);
      const password = `scrypt$32768$8$1$${"A".repeat(22)}$${"A".repeat(43)}`;
      const basic = text(1, { plugins: [{ name: "basic_auth", config: { username: "a", password } }] });
      expect((await all.put(basic)).status).toBe(200);
      expect((await until(all, 3)).map((entry: { can_roll_back: boolean }) => entry.can_roll_back)).toEqual([
        false,
        false,
        true,
      ]);
      expect((await all.asAdmin("GET", `/gateway/history?digest=${digestOf(plain)}`)).text).toBe(
        plain.replace('"plain"', '"********"'),
      );
      expect(await rollBack(all, digestOf(hashed))).toMatchObject({ status: 200 });
      expect(all.content()).toBe(hashed);
      // Viewers might guess a weak key from its digest.
      const kept = `/gateway/history?digest=${digestOf(hashed)}`;
      for (const path of ["/gateway", "/gateway/source", kept]) {
        expect((await all.asViewer("GET", path)).text).not.toContain(digest);
        expect((await all.asViewer("GET", path)).text).toMatch(/"key_sha256":\s*"\*{8}"/);
      }
      expect((await all.asAdmin("GET", kept)).text).toBe(hashed);
      expect((await all.asAdmin("GET", `${kept}&secrets=masked`)).text).toBe(
        hashed.replace(/[0-9a-f]{64}/g, "********"),
      );
    },
  );

  it.each([
    ["a file that has to be signed", { keyFile: "/keys.pem" }, () => {}, /^The configuration has to be signed/],
    ["a file that is read-only", {}, ({ file }: Writable) => chmodSync(file, 0o444), /gw\.json is read-only/],
    ["a file that is missing", {}, ({ file }: Writable) => renameSync(file, `${file}.away`), /no such file/],
  ])("says of %s that no entry can be rolled back to, and why", async (_title, changes, become, reason) => {
    const all = await writable(text(1), changes);
    await until(all, 1);
    become(all);
    expect(await entriesOf(all)).toMatchObject([{ can_roll_back: false, reason: expect.stringMatching(reason) }]);
    expect(await rollBack(all, digestOf(text(1)))).toMatchObject({
      status: 409,
      json: { code: "conflict", detail: expect.stringMatching(reason) },
    });
  });

  it("leaves what is no entry alone, with one line in the log, and shows the rest", async () => {
    const all = await writable(text(1));
    await until(all, 1);
    const folder = join(all.folder, ".gw.json.history");
    writeFileSync(join(folder, "notes.txt"), "x");
    writeFileSync(join(folder, "000000000000001-0123456789ab"), "{ broken\n{}");
    writeFileSync(
      join(folder, "000000000000002-0123456789ab"),
      '{"digest":"ffffffffffff","at":1,"by":{"cause":"x"},"changes":[],"masked":0}\n{}',
    );
    mkdirSync(join(folder, "000000000000003-0123456789ab"));
    writeFileSync(join(folder, `${"a".repeat(24)}.new`), "of a process that was killed");
    const again = await writable("", { path: all.file });
    expect(await until(again, 1)).toHaveLength(1);
    expect(again.lines().filter(({ message }) => /are no entries/.test(String(message)))).toMatchObject([{ count: 4 }]);
    expect(readdirSync(folder)).toContain("notes.txt");
    expect(readdirSync(folder).filter((name) => name.endsWith(".new"))).toEqual([]);
  });
});

describe("POST /gateway/rollback", () => {
  it("brings an earlier text back, byte for byte, and is a change as any other", async () => {
    const all = await writable(text(1));
    await all.put(text(2));
    await until(all, 2);
    const got = await rollBack(all, digestOf(text(1)));
    expect([got.status, got.json.digest, all.content()]).toEqual([200, digestOf(text(1)), text(1)]);
    expect(
      all
        .lines()
        .filter(({ message }) => message === "admin change")
        .map(({ action, before, after }) => [action, before, after]),
    ).toEqual([
      ["source", digestOf(text(1)), digestOf(text(2))],
      ["rollback", digestOf(text(2)), digestOf(text(1))],
    ]);
    expect((await until(all, 3)).map(({ in_force }) => in_force)).toEqual([true, false, false]);
  });

  it("refuses an unknown digest, a damaged entry, a stale If-Match, other bodies, and a viewer", async () => {
    const all = await writable(text(1));
    await all.put(text(2));
    await until(all, 2);
    expect((await rollBack(all, "0123456789ab")).status).toBe(404);
    for (const digest of [null, 7, "x", "../../etc/passwd"]) expect((await rollBack(all, digest)).status).toBe(400);
    expect((await rollBack(all, digestOf(text(1)), { "if-match": '"0123456789ab"' })).status).toBe(412);
    expect(
      (
        await all.asViewer("POST", "/gateway/rollback", {
          body: "{}",
          headers: { "content-type": "application/json" } as never,
        })
      ).json.code,
    ).toBe("forbidden");
    const folder = join(all.folder, ".gw.json.history");
    const name = readdirSync(folder).find((each) => each.endsWith(digestOf(text(1))))!;
    writeFileSync(join(folder, name), readFileSync(join(folder, name), "utf8").replace('"port":1', '"port":9'));
    expect((await rollBack(all, digestOf(text(1)))).status).toBe(409);
    expect(all.content()).toBe(text(2));
  });
});
