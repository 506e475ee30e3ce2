/** `edge-gateway --config URL`: start, reload and end, whatever the server of the configuration does. */
import { createHash, sign } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { StateFolder } from "../../lib/base/state_folder.ts";
import { ConfigurationCopies } from "../../lib/cli/configuration_copy.ts";
import { configServer } from "../support/config_server.ts";
import { emptyFolder, fileWith, logLines } from "../support/process.ts";
import { configWith, remoteProgram, type RemoteProgram } from "../support/remote_program.ts";
import { signingKeys, type SigningKeys } from "../support/signing_keys.ts";

const STARTED = /"message":"edge-gateway [^"]+ started".*\n/;
const RELOADED = '"message":"configuration reloaded"';
const REFUSED = /"message":"reload refused.*\n/;
const WAITS = /"message":"the gateway waits for its configuration.*\n/;
const COPY = /"message":"the copy of an earlier configuration comes into force.*\n/;
const COPY_FILE = "configuration_copy";

const signatureOf = (text: string, { privateKey }: SigningKeys) =>
  sign(null, Buffer.from(text), privateKey).toString("base64");

/** The last line of the log with this message. */
function line(running: RemoteProgram, message: string) {
  return logLines(running.stderr()).findLast((each) => String(each.message).startsWith(message));
}

/** A folder with the copy of a configuration that was in force, and its server, which has another text by now. */
async function withCopy(text: string, environment: Record<string, string> = {}, query = "") {
  const server = await configServer();
  const served = { ...server, url: server.url + query };
  served.files.set("/gw.json", text);
  const stateDir = emptyFolder();
  const running = await remoteProgram({ ...environment, STATE_DIR: stateDir }, served);
  await running.says(STARTED);
  running.child.kill("SIGTERM");
  expect((await running.ended).code).toBe(0);
  return { served, stateDir };
}

/** A module whose kind "held" stops at the moment that the variable HOLDS names, and says so on the standard output. */
const HELD = `
const stops = (moment) => process.env.HOLDS === moment && (console.log("holds: " + moment), true);
const forever = () => new Promise((done) => setTimeout(done, 30_000));
if (stops("loading")) await forever();
export default (kit) => kit.definePlugin({
  name: "held",
  schema: kit.schema.object({}),
  create() {
    // Code that runs: the signal waits for it, and must not be lost.
    if (stops("creating")) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400);
    return (next) => async (exchange) => {
      if (stops("testing")) await forever();
      return next(exchange);
    };
  },
});
`;

/** As `configWith`, with a test, and `HELD` before each answer. */
function heldConfig(path: string): string {
  const sha256 = createHash("sha256").update(HELD).digest("hex");
  const plugin_modules = [{ path: fileWith(HELD, "held.mjs"), sha256 }];
  const tests = [{ name: "t", request: { method: "GET", url: path }, expect: { status: 200 } }];
  return configWith(path, { global: { plugin_modules, plugins: [{ name: "held", config: {} }] }, tests });
}

describe("a start with a configuration from a URL", () => {
  it("serves it, takes a new text by itself, and names the source in its log", async () => {
    const served = await configServer();
    served.files.set("/gw.json", configWith("/one"));
    const running = await remoteProgram({}, served);
    await running.says(STARTED);
    expect(line(running, "edge-gateway")).toMatchObject({ config: served.url });
    expect([await running.traffic("/one"), await running.probe("/readyz")]).toEqual([200, 200]);
    served.files.set("/gw.json", configWith("/two"));
    await running.says(RELOADED);
    expect(line(running, "configuration reloaded")).toMatchObject({ by: "source" });
    expect([await running.traffic("/one"), await running.traffic("/two")]).toEqual([404, 200]);
    running.child.kill("SIGTERM");
    expect((await running.ended).code).toBe(0);
  });

  it.each<[string, (served: Awaited<ReturnType<typeof configServer>>) => unknown, RegExp]>([
    ["does not listen", (served) => served.close(), /ECONNREFUSED/],
    ["has no such file", () => {}, /no such configuration/],
    ["has an empty file", (served) => served.files.set("/gw.json", ""), /empty/],
    ["answers 401", (served) => (served.answer = (_request, reply) => void reply.writeHead(401).end()), /401/],
    ["answers 503", (served) => (served.answer = (_request, reply) => void reply.writeHead(503).end()), /503/],
  ])(
    "waits while the server %s: it is alive, not ready, and opens no port for traffic; then it serves",
    async (_what, prepare, why) => {
      const served = await configServer();
      await prepare(served);
      const running = await remoteProgram({}, served);
      await running.says(WAITS);
      expect(line(running, "the gateway waits")).toMatchObject({
        level: "warn",
        source: served.url,
        why: expect.stringMatching(why),
        to_do: expect.stringContaining("CONFIG_FILE_PATH"),
      });
      expect([
        await running.probe("/healthz"),
        await running.probe("/readyz"),
        await running.probe("/metrics"),
        await running.traffic("/one"),
      ]).toEqual([200, 503, 200, null]);
      served.answer = null;
      served.files.set("/gw.json", configWith("/one"));
      if (why.test("ECONNREFUSED")) await served.open();
      await running.says(STARTED);
      expect([await running.probe("/readyz"), await running.traffic("/one")]).toEqual([200, 200]);
    },
  );

  it("ends at once at SIGTERM with 0 while it waits, and while the server does not answer", async () => {
    const waits = await remoteProgram();
    await waits.says(WAITS);
    const hangs = await configServer();
    const asked = new Promise<void>((done) => (hangs.answer = () => done()));
    const waiting = await remoteProgram({}, hangs);
    await asked;
    for (const running of [waits, waiting]) {
      const at = performance.now();
      running.child.kill("SIGTERM");
      expect(await running.ended).toMatchObject({ code: 0, signal: null });
      expect(performance.now() - at).toBeLessThan(1_000);
    }
  });

  it.each<[string, Record<string, string>, ("source" | "copy")?]>([
    ["while code that it names is loaded", { HOLDS: "loading" }],
    ["while it is compiled", { HOLDS: "creating" }],
    ["while its tests run", { HOLDS: "testing" }],
    ["while a text beside a copy is tried out", { HOLDS: "testing" }, "source"],
    ["while code that the copy names is loaded", { HOLDS: "loading" }, "copy"],
    ["while the copy is tried out", { HOLDS: "testing" }, "copy"],
  ])("ends at once at SIGTERM with 0 %s, and leaves nothing behind", async (_when, environment, copyFor) => {
    const served = await configServer();
    served.files.set("/gw.json", heldConfig("/one"));
    const stateDir = emptyFolder();
    if (copyFor !== undefined) {
      const before = await remoteProgram({ STATE_DIR: stateDir }, served);
      await before.says(STARTED);
      before.child.kill("SIGTERM");
      expect((await before.ended).code).toBe(0);
      if (copyFor === "copy") await served.close();
      else served.files.set("/gw.json", heldConfig("/two"));
    }
    const running = await remoteProgram({ STATE_DIR: stateDir, ...environment }, served);
    await running.says(`holds: ${environment.HOLDS}`, "stdout");
    if (environment.HOLDS !== "creating")
      expect([await running.probe("/healthz"), await running.probe("/readyz")]).toEqual([200, 503]);
    const at = performance.now();
    running.child.kill("SIGTERM");
    expect(await running.ended).toMatchObject({ code: 0, signal: null });
    expect(performance.now() - at).toBeLessThan(1_000);
    // Nobody holds the folder, and what is in it can be used.
    if (copyFor === "copy") await served.open();
    const after = await remoteProgram({ STATE_DIR: stateDir }, served);
    await after.says(STARTED);
  });

  it("is refused with 2 where the text is, and no copy is there; nothing is kept of it", async () => {
    const served = await configServer();
    served.files.set("/gw.json", '{"services":[{}]}');
    const stateDir = emptyFolder();
    const running = await remoteProgram({ STATE_DIR: stateDir }, served);
    const { code, stderr } = await running.ended;
    expect(code).toBe(2);
    expect(stderr).toContain(`${served.url}:1:`);
    expect(() => statSync(join(stateDir, COPY_FILE))).toThrow("ENOENT");
  });

  it("refuses relative names of files, which have no folder, and says so", async () => {
    const served = await configServer();
    served.files.set("/gw.json", configWith("/one", { test_files: ["tests.json"] }));
    const { code, stderr } = await (await remoteProgram({}, served)).ended;
    expect(code).toBe(2);
    expect(stderr).toContain("tests.json is relative to the folder of the configuration, which is from a URL");
  });
});

describe("a configuration from a URL that is signed", () => {
  const keys = signingKeys();

  it("is taken with its signature alone, and text and signature that do not fit are asked for again", async () => {
    const served = await configServer();
    const [one, two] = [configWith("/one", { serial: 1 }), configWith("/two", { serial: 2 })];
    served.files.set("/gw.json", one).set("/gw.json.sig", signatureOf(one, keys));
    const running = await remoteProgram({ CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem") }, served);
    await running.says(STARTED);
    const { length } = served.requests;
    served.files.set("/gw.json", two);
    await running.says(REFUSED);
    // The new text was asked for twice before it was refused.
    expect(served.requests.slice(length).filter(({ url }) => url === "/gw.json.sig").length).toBeGreaterThanOrEqual(2);
    expect(await running.traffic("/one")).toBe(200);
    served.files.set("/gw.json.sig", signatureOf(two, keys));
    await running.says(RELOADED);
    expect(await running.traffic("/two")).toBe(200);
  });

  it("is refused with 2 without a signature", async () => {
    const served = await configServer();
    served.files.set("/gw.json", configWith("/one"));
    const running = await remoteProgram({ CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem") }, served);
    const { code, stderr } = await running.ended;
    expect([code, stderr]).toEqual([2, expect.stringContaining(`${served.url} is not signed`)]);
  });
});

describe("the copy of a configuration from a URL", () => {
  it("is kept for its owner alone, and serves while the server is down; a text that comes then is taken", async () => {
    const { served, stateDir } = await withCopy(configWith("/one"));
    expect(statSync(join(stateDir, COPY_FILE)).mode & 0o777).toBe(0o600);
    await served.close();
    const running = await remoteProgram({ STATE_DIR: stateDir }, served);
    await running.says(STARTED);
    expect(line(running, "the copy of an earlier")).toMatchObject({
      source: served.url,
      kept_at: expect.stringMatching(/^20.*Z$/),
      why: [expect.stringContaining("ECONNREFUSED")],
    });
    expect([await running.traffic("/one"), await running.probe("/readyz")]).toEqual([200, 200]);
    served.files.set("/gw.json", configWith("/two"));
    await served.open();
    await running.says(RELOADED);
    expect(await running.traffic("/two")).toBe(200);
    running.child.kill("SIGTERM");
    expect((await running.ended).code).toBe(0);
    expect(readFileSync(join(stateDir, COPY_FILE), "utf8")).toContain('"/two"');
  });

  it.each<[string, string]>([
    ["has an error", '{"services":[{}]}'],
    [
      "fails its test",
      configWith("/two", { tests: [{ name: "t", request: { method: "GET", url: "/two" }, expect: { status: 500 } }] }),
    ],
    ["is no JSON", "{"],
    ["is empty", ""],
  ])("serves where the text of the server %s, which does not become the copy", async (_what, text) => {
    const { served, stateDir } = await withCopy(configWith("/one"));
    served.files.set("/gw.json", text);
    const running = await remoteProgram({ STATE_DIR: stateDir }, served);
    await running.says(COPY);
    await running.says(STARTED);
    expect(await running.traffic("/one")).toBe(200);
    await served.asked("/gw.json", served.requests.length + 2);
    expect(running.stderr()).not.toContain(RELOADED);
    running.child.kill("SIGTERM");
    expect((await running.ended).code).toBe(0);
    expect(readFileSync(join(stateDir, COPY_FILE), "utf8")).toContain('"/one"');
  });

  it("is checked by its signature, serial and end, as any text; the start waits where it is refused", async () => {
    const keys = signingKeys();
    const environment = { CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem") };
    const text = configWith("/one", { serial: 5 });
    const served = await configServer();
    served.files.set("/gw.json", text).set("/gw.json.sig", signatureOf(text, keys));
    const stateDir = emptyFolder();
    const first = await remoteProgram({ ...environment, STATE_DIR: stateDir }, served);
    await first.says(STARTED);
    first.child.kill("SIGTERM");
    await first.ended;
    const older = configWith("/one", { serial: 4 });
    served.files.set("/gw.json", older).set("/gw.json.sig", signatureOf(older, keys));
    const second = await remoteProgram({ ...environment, STATE_DIR: stateDir }, served);
    await second.says(COPY);
    expect(line(second, "the copy")).toMatchObject({ why: [expect.stringContaining("is older than 5")] });
    await second.says(STARTED);
    second.child.kill("SIGTERM");
    await second.ended;
    await served.close();
    const others = signingKeys();
    const other = { CONFIG_PUBLIC_KEY: fileWith(others.publicKey, "other.pem") };
    const third = await remoteProgram({ ...other, STATE_DIR: stateDir }, served);
    await third.says(WAITS);
    expect(line(third, "the copy of an earlier configuration is refused")).toMatchObject({
      source: served.url,
      why: [expect.stringContaining("is not signed by the public key")],
    });
    expect(await third.probe("/readyz")).toBe(503);
    const newer = configWith("/two", { serial: 6 });
    served.files.set("/gw.json", newer).set("/gw.json.sig", signatureOf(newer, others));
    await served.open();
    await third.says(STARTED);
    expect(await third.traffic("/two")).toBe(200);
  });

  it("is not used once it has ended: the start says so, is refused as the text is, and else waits", async () => {
    const keys = signingKeys();
    const served = await configServer();
    const put = (text: string) => served.files.set("/gw.json", text).set("/gw.json.sig", signatureOf(text, keys));
    const environment = { CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem"), STATE_DIR: emptyFolder() };
    const ended = configWith("/one", { serial: 1, expires_at: "2020-01-01T00:00:00Z" });
    const folder = await StateFolder.open(environment.STATE_DIR);
    const copy = { text: Buffer.from(ended), signature: signatureOf(ended, keys), revision: null };
    await new ConfigurationCopies(folder, { name: served.url, href: served.url }, silentLog).keep(
      copy,
      Date.parse("2019-12-31T00:00:00Z"),
    );
    await folder.close();
    const notUsed = {
      message: "the copy of an earlier configuration is refused, and is not used",
      kept_at: "2019-12-31T00:00:00.000Z",
      why: [expect.stringContaining("the configuration has ended at 2020-01-01")],
    };
    put('{"services":[{}]}');
    const refused = await remoteProgram(environment, served);
    const { code, stderr } = await refused.ended;
    expect([code, stderr]).toEqual([2, expect.stringContaining("services[0].name")]);
    expect(stderr).toContain(notUsed.message);
    await served.close();
    const waits = await remoteProgram(environment, served);
    await waits.says(WAITS);
    expect(line(waits, "the copy")).toMatchObject(notUsed);
    expect([await waits.probe("/readyz"), await waits.traffic("/one")]).toEqual([503, null]);
    put(configWith("/two", { serial: 2 }));
    await served.open();
    await waits.says(STARTED);
    expect(await waits.traffic("/two")).toBe(200);
  });

  it.each<[string, (path: string) => void, RegExp]>([
    ["is damaged", (path) => writeFileSync(path, readFileSync(path, "utf8").replace("/one", "/two")), /is damaged/],
    ["is cut off", (path) => writeFileSync(path, readFileSync(path).subarray(0, 60)), /is damaged/],
  ])("is not used where it %s, and the start says so", async (_what, harm, problem) => {
    const { served, stateDir } = await withCopy(configWith("/one"));
    harm(join(stateDir, COPY_FILE));
    await served.close();
    const running = await remoteProgram({ STATE_DIR: stateDir }, served);
    await running.says(WAITS);
    expect(line(running, "there is no copy")).toMatchObject({ problem: expect.stringMatching(problem) });
  });

  it.each([
    ["another source", "other.json", /is a copy of \S+\/gw\.json, and is not used$/],
    ["another query, which is not repeated", "gw.json?stage=2", /is a copy of \S+\/gw\.json\?… with another query/],
  ])("is not used for %s", async (_what, path, problem) => {
    const query = path.includes("?") ? "?stage=1" : "";
    const { served, stateDir } = await withCopy(configWith("/one"), {}, query);
    await served.close();
    const other = { ...served, url: served.url.replace(/gw\.json.*/, path) };
    const running = await remoteProgram({ STATE_DIR: stateDir }, other);
    await running.says(WAITS);
    expect(line(running, "there is no copy")).toMatchObject({ problem: expect.stringMatching(problem) });
    expect(running.stderr()).not.toContain("stage");
  });
});

describe("a reload of a configuration from a URL", () => {
  it("by SIGHUP asks the server first, and is none while that does not answer", async () => {
    const served = await configServer();
    served.files.set("/gw.json", configWith("/one"));
    const running = await remoteProgram({ CONFIG_POLL_S: "3600" }, served);
    await running.says(STARTED);
    served.files.set("/gw.json", configWith("/two"));
    running.child.kill("SIGHUP");
    await running.says(RELOADED);
    expect(line(running, "configuration reloaded")).toMatchObject({ by: "signal" });
    await served.close();
    running.child.kill("SIGHUP");
    await running.says(/"message":"no reload, configuration [0-9a-f]{12} stays in force".*ECONNREFUSED/);
    expect(await running.traffic("/two")).toBe(200);
  });

  it("is refused with a reason when the text is deleted, or empty, and the old one stays in force", async () => {
    const served = await configServer();
    served.files.set("/gw.json", configWith("/one"));
    const running = await remoteProgram({}, served);
    await running.says(STARTED);
    served.files.delete("/gw.json");
    await running.says(REFUSED);
    expect(line(running, "reload refused")).toMatchObject({
      file: served.url,
      by: "source",
      issues: [expect.stringContaining("no such configuration")],
    });
    expect(await running.traffic("/one")).toBe(200);
    served.files.set("/gw.json", configWith("/two"));
    await running.says(RELOADED);
  });
});
