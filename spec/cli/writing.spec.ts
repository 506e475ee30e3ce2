/** PUT /gateway/source of the running program, beside what watches its file, and in programs that have none. */
import { readdirSync, readFileSync, renameSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { digestOf } from "../admin/writable.ts";
import { CA } from "../support/certs.ts";
import { backend } from "../support/gateway.ts";
import { loggedIn } from "../support/logged_in.ts";
import { fileWith, logLines, program, runningFile } from "../support/process.ts";
import { eventually, type Answer } from "../support/raw_client.ts";

const CREDENTIALS = { ADMIN_USER: "anna", ADMIN_PASSWORD: "a-password" };
const config = (more: object = {}) => ({
  services: [
    {
      name: "s",
      base_path: "/s",
      protocol: "https",
      tls: { ca: "ca.pem" },
      upstreams: [{ host: "127.0.0.1", port: 9 }],
      routes: [{ path: "/x" }],
      ...more,
    },
  ],
});
const json = ({ body }: Answer): any => JSON.parse(body.toString());

describe("PUT /gateway/source of a program that watches its file", () => {
  it(
    "is one reload, by the administrator, and the watcher takes it for no change; " +
      "the next change by hand is one by the file",
    async () => {
      const file = fileWith(config());
      const ca = join(dirname(file), "ca.pem");
      writeFileSync(ca, CA.cert);
      const running = await runningFile(file, [], { ...CREDENTIALS, ADMIN_WRITE: "true" });
      const admin = await loggedIn(Number(new URL(String(running.started.admin)).port), CREDENTIALS);
      const text = JSON.stringify(config({ base_path: "/t" }));
      const put = await admin("PUT", "/gateway/source", text, { "if-match": `"${digestOf(readFileSync(file))}"` });
      expect([put.status, put.headers.etag, readFileSync(file, "utf8")]).toEqual([200, `"${digestOf(text)}"`, text]);
      const status = json(await admin("GET", "/gateway/status"));
      expect(status).toMatchObject({ digest: digestOf(text), last_reload: { by: "admin", outcome: "taken" } });
      // The watch of this file has waited as long as that of the configuration, and began to wait later.
      writeFileSync(ca, `${CA.cert}\n`);
      await running.says("files that the configuration names reloaded");
      const reloads = () =>
        logLines(running.stderr()).filter(({ message }) => /^configuration re/.test(String(message)));
      expect(reloads()).toMatchObject([{ message: "configuration reloaded", by: "admin", digest: digestOf(text) }]);
      expect(json(await admin("GET", "/gateway/status")).last_reload).toMatchObject({ by: "admin" });
      writeFileSync(file, JSON.stringify(config({ base_path: "/u" })));
      await running.says(/"by":"file".*\n/);
      expect(reloads().map(({ by }) => by)).toEqual(["admin", "file"]);
      const { entries } = json(await admin("GET", "/gateway/history")) as { entries: { by: object }[] };
      expect(entries.map(({ by }) => by)).toEqual([
        { cause: "file" },
        { user: "anna", address: "127.0.0.1" },
        { cause: "start" },
      ]);
    },
  );
});

describe("the history of a program whose start fails", () => {
  const failing = { tests: [{ name: "t", request: { url: "/nowhere" }, expect: { status: 200 } }] };

  it.each([
    ["a test of its configuration fails", failing, {}, /expected 200, found 404/],
    ["its port is taken", {}, { HTTP_PORT: "taken" }, /EADDRINUSE|already in use/],
    [
      "the port of its management UI is taken",
      {},
      { MANAGER: "true", MANAGER_PORT: "taken" },
      /EADDRINUSE|already in use/,
    ],
  ])("has no entry of it: %s", async (_why, more, environment, reason) => {
    const { port } = await backend();
    const text = (base: string, also: object = {}) =>
      JSON.stringify({ ...config({ base_path: base, protocol: "http", tls: undefined }), ...also });
    const file = fileWith(text("/s"));
    const settings = { ...CREDENTIALS, ADMIN_WRITE: "true" };
    const first = await runningFile(file, [], settings);
    const names = () => readdirSync(join(dirname(file), ".gw.json.history")).map((name) => name.slice(-12));
    await eventually(() => names().length === 1, "the entry of the first start");
    first.child.kill("SIGTERM");
    await first.ended;
    writeFileSync(file, text("/t", more));
    const ports = {
      HTTP_PORT: "0",
      HTTPS_PORT: "0",
      ADMIN_PORT: "0",
      LISTEN_HOST: "127.0.0.1",
      MANAGER_HOST: "127.0.0.1",
    };
    const taken = Object.fromEntries(
      Object.entries({ ...ports, ...environment }).map(([name, value]) => [
        name,
        value === "taken" ? String(port) : value,
      ]),
    );
    const { code, stderr } = await program(["--config", file], { environment: { ...settings, ...taken } }).ended;
    expect([code === 0, stderr]).toEqual([false, expect.stringMatching(reason)]);
    expect(names()).toEqual([digestOf(text("/s"))]);
  });
});

describe("edge-gateway demo", () => {
  it.each([
    [{}, 404, "route_not_found"],
    [{ ADMIN_WRITE: "true" }, 409, "conflict"],
  ])("with %j has no file to change: %i", async (environment, status, code) => {
    const demo = program(["demo", "--http-port", "0", "--admin-port", "0", "--manager", "false"], {
      environment: { ...environment },
    });
    const said = await demo.says("Ctrl-C ends the demo.\n", "stdout");
    const [, port, password] = /admin on http:\/\/[^:]+:(\d+) \(admin \/ (\S+)\)/.exec(said)!;
    const admin = await loggedIn(Number(port), { ADMIN_USER: "admin", ADMIN_PASSWORD: password! });
    const put = await admin("PUT", "/gateway/source", JSON.stringify(config()), { "if-match": '"0123456789ab"' });
    expect([put.status, json(put).code]).toEqual([status, code]);
  });
});

describe("PUT /gateway/source of a program that is killed", () => {
  it(
    "leaves the file with one of the texts, whole; what is left beside it goes with a later start",
    { timeout: 60_000 },
    async () => {
      // White space makes a file that takes a while to write.
      const text = (n: number) =>
        JSON.stringify({
          services: [
            { name: "s", base_path: `/p${n}`, upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path: "/x" }] },
          ],
        }) + " ".repeat(300_000);
      const file = fileWith(text(0));
      const environment = { ...CREDENTIALS, ADMIN_WRITE: "true" };
      const isUnfinished = (name: string) => name.startsWith(".gw.json.") && name.endsWith(".new");
      const besides = () =>
        readdirSync(dirname(file)).filter((name) => name !== "gw.json" && name !== ".gw.json.history");
      let [n, last] = [0, text(0)];
      const deadline = performance.now() + 6_000;
      for (let kills = 0; kills < 25 && (kills < 2 || performance.now() < deadline); kills++) {
        const running = await runningFile(file, [], environment);
        const admin = await loggedIn(Number(new URL(String(running.started.admin)).port), CREDENTIALS);
        const refused: number[] = [];
        const puts = (async () => {
          while (refused.length === 0) {
            const { status } = await admin("PUT", "/gateway/source", text(++n), { "if-match": `"${digestOf(last)}"` });
            if (status === 200) last = text(n);
            else refused.push(status);
          }
        })().catch(() => {});
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 60));
        running.child.kill("SIGKILL");
        await Promise.all([running.ended, puts]);
        const content = readFileSync(file, "utf8");
        expect([refused, content === last || content === text(n), besides().every(isUnfinished)]).toEqual([
          [],
          true,
          true,
        ]);
        last = content;
      }
      writeFileSync(join(dirname(file), `.gw.json.${"0".repeat(24)}.new`), "the rest of a crash");
      // Another program on the same file may be writing younger ones.
      for (const name of besides()) utimesSync(join(dirname(file), name), 1, 1);
      await runningFile(file, [], environment);
      await expect.poll(besides).toEqual([]);
      expect(readFileSync(file, "utf8") === last).toBe(true);
    },
  );
});

describe("PUT /gateway/source beside changes by hand and SIGHUP", () => {
  it(
    "in the end file and configuration in force are the same, and each change that was answered with 200 was in force",
    { timeout: 60_000 },
    async () => {
      const text = (name: string) =>
        JSON.stringify({
          services: [
            { name: "s", base_path: `/${name}`, upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path: "/x" }] },
          ],
        });
      const file = fileWith(text("start"));
      const running = await runningFile(file, [], { ...CREDENTIALS, ADMIN_WRITE: "true" });
      const admin = await loggedIn(Number(new URL(String(running.started.admin)).port), CREDENTIALS);
      const inForce = async () => json(await admin("GET", "/gateway/status")).digest as string;
      for (let round = 0; round < 8; round++) {
        const before = readFileSync(file, "utf8");
        const expected = { "if-match": `"${digestOf(before)}"` };
        const texts = [text(`a${round}`), text(`b${round}`)];
        if (round % 3 !== 1) running.child.kill("SIGHUP");
        const puts = texts.map((each) => admin("PUT", "/gateway/source", each, expected));
        const hand = round % 2 === 1 ? text(`hand${round}`) : null;
        if (hand !== null) {
          await Promise.race([...puts, new Promise((resolve) => setTimeout(resolve, round * 3))]);
          writeFileSync(`${file}.hand`, hand);
          renameSync(`${file}.hand`, file);
        }
        if (round % 3 === 1) running.child.kill("SIGHUP");
        const statuses = (await Promise.all(puts)).map(({ status }) => status);
        const taken = texts.filter((_, i) => statuses[i] === 200);
        expect(statuses.filter((status) => status !== 200 && status !== 412)).toEqual([]);
        expect(taken.length).toBeLessThanOrEqual(1);
        if (hand === null) expect(taken).toHaveLength(1);
        const content = readFileSync(file, "utf8");
        expect(hand === null ? taken : [hand, ...taken]).toContain(content);
        await expect.poll(inForce, { timeout: 10_000 }).toBe(digestOf(content));
        expect(readFileSync(file, "utf8")).toBe(content);
        const logged = () =>
          logLines(running.stderr())
            .filter(({ message, by }) => message === "configuration reloaded" && by === "admin")
            .map(({ digest }) => digest);
        for (const each of taken) await expect.poll(logged).toContain(digestOf(each));
      }
    },
  );
});
