/**
 * Callers of a running program: their file is watched and may need a signature, and the admin interface tells who was
 * there.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { fileWith, logLines, program, runningFile, runningProgram, type RunningProgram } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";
import { signed, signingKeys } from "../support/signing_keys.ts";

const KEYS = { plugins: [{ name: "key_auth", config: { callers: true } }] };
const callersOf = (...names: string[]) =>
  JSON.stringify(names.map((id) => ({ id, groups: ["gold"], keys: [{ key: `${id}-key-hush` }] })));
const status = async (port: number, id: string) =>
  (await ask(port, { path: "/x", headers: { apiKey: `${id}-key-hush` } })).status;

async function configured(more: object = {}) {
  const origin = await backend();
  const file = fileWith("[]", "callers.json");
  writeFileSync(file, callersOf("ada"));
  return { file, config: { ...oneService(origin.port, { base_path: "/", ...KEYS }), caller_files: [file], ...more } };
}

/** Requests of a logged-in administrator to a running program. */
async function admin({ started }: RunningProgram) {
  const port = Number(new URL(String(started.admin)).port);
  const login = await ask(port, {
    method: "POST",
    path: "/login",
    headers: { Authorization: `Basic ${Buffer.from("a:b").toString("base64")}` },
  });
  const Cookie = login.headers["set-cookie"]![0]!.split(";")[0]!;
  return async (path: string) => (await ask(port, { path, headers: { Cookie } })).body.toString();
}

describe("the callers of a running program", () => {
  it(
    "change with their file, and stay as they were while it has an error, " +
      "which is logged with its place and without its keys",
    async () => {
      const { file, config } = await configured();
      const running = await runningProgram(config);
      expect(await status(running.port, "ada")).toBe(200);
      writeFileSync(file, callersOf("bob"));
      await running.says(/"message":"configuration read again/);
      expect([await status(running.port, "ada"), await status(running.port, "bob")]).toEqual([401, 200]);
      writeFileSync(file, '[{"id":"eve","keys":[{"key":"hush-eve"},{"key":"hush-eve"}]}]');
      await running.says(/"message":"reload refused/);
      expect(logLines(running.stderr()).at(-1)).toMatchObject({ issues: [expect.stringContaining(`${file}:1:`)] });
      expect(await status(running.port, "bob")).toBe(200);
      expect(running.stderr() + running.stdout()).not.toContain("hush");
    },
  );

  it("need the digest of their file where the configuration needs a signature", async () => {
    const { file, config } = await configured();
    const keys = signingKeys();
    const gateway = signed(fileWith(config), keys);
    const environment = { CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem") };
    const refused = await program(["validate", gateway], { environment }).ended;
    expect([refused.code, refused.stderr]).toEqual([
      2,
      expect.stringMatching(/caller_files\[0\] +has no SHA-256, .*: run edge-gateway pin FILE, then edge-gateway sign/),
    ]);
    const key = fileWith(keys.privateKey, "private.pem");
    const signedAnew = async () => (await program(["sign", gateway, "--key", key]).ended).code;
    expect(await signedAnew()).toBe(0);
    const running = await runningFile(gateway, [], environment);
    expect(await status(running.port, "ada")).toBe(200);
    writeFileSync(file, callersOf("mallory"));
    await running.says(/is not the digest of \S*callers\.json/);
    expect([await status(running.port, "ada"), await status(running.port, "mallory")]).toEqual([200, 401]);
    expect((await program(["pin", gateway]).ended).code).toBe(0);
    expect(await signedAnew()).toBe(0);
    await running.says(/"message":"configuration re/);
    expect(await status(running.port, "mallory")).toBe(200);
  });

  it("are in the admin interface, which tells who was there, with plugins and groups and without keys", async () => {
    // Only the next end is told.
    const JOES = ["2126-01-31T12:00:00Z", "2127-01-31T12:00:00Z", "2001-01-31T12:00:00Z"].map((expires_at, i) => ({
      key: `hush ${i}`,
      expires_at,
    }));
    const { file, config } = await configured({ callers: [{ id: "joe", enabled: false, keys: JOES }] });
    writeFileSync(file, callersOf("ada", "bob"));
    const running = await runningProgram(config, [], { ADMIN_USER: "a", ADMIN_PASSWORD: "b" });
    const get = await admin(running);
    const view = async (query = "") =>
      JSON.parse(await get(`/gateway/callers${query}`)) as { callers: { id: string; used: boolean }[] };
    const known = {
      groups: ["gold"],
      enabled: true,
      file,
      key_ends: null,
      plugins: [{ kind: "key_auth", service: expect.any(String) as string, route: null, level: "service" }],
    };
    expect(await view()).toEqual({
      total: 3,
      matching: 3,
      callers: [
        {
          id: "joe",
          groups: [],
          enabled: false,
          file: null,
          key_ends: "2126-01-31T12:00:00.000Z",
          plugins: known.plugins,
          used: false,
        },
        { id: "ada", ...known, used: false },
        { id: "bob", ...known, used: false },
      ],
    });
    expect(await status(running.port, "ada")).toBe(200);
    expect((await view()).callers.filter(({ used }) => used).map(({ id }) => id)).toEqual(["ada"]);
    expect(await view("?search=BO")).toMatchObject({ total: 3, matching: 1, callers: [{ id: "bob" }] });
    expect(await view("?search=gold")).toMatchObject({ matching: 2 });
    expect(await get("/gateway/callers")).not.toContain("hush");
    for (const path of ["/gateway", "/gateway/config", "/gateway/status"])
      expect(await get(path)).not.toContain("hush");
  });
});

describe("commands", () => {
  it("audit lists the file of callers and what it refers to, and no key", async () => {
    const { file, config } = await configured();
    writeFileSync(file, JSON.stringify([{ id: "ada", keys: [{ key: "${env:ADA_KEY}" }, { key: "hush" }] }]));
    const { code, stdout } = await program(["audit", fileWith(config), "--json"], {
      environment: { ADA_KEY: "hush-ada" },
    }).ended;
    expect(code).toBe(0);
    expect(stdout).toContain(file);
    expect(stdout).toContain("env:ADA_KEY");
    expect(stdout).not.toContain("hush");
  });

  it("build makes a package that has callers and serves them", async () => {
    const { config } = await configured();
    const [gateway, output] = [fileWith(config), `${fileWith("", "beside")}-package`];
    const built = await program(["build", "--config", gateway, "--output", output]).ended;
    expect([built.stderr.includes("rror"), built.code]).toEqual([false, 0]);
    expect(readFileSync(`${output}/AUDIT.md`, "utf8")).toContain("lib/config/callers");
    expect(existsSync(`${output}/dist/lib/plugins/jwt.js`)).toBe(false);
  });
});
