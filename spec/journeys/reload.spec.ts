import { readdirSync, renameSync, writeFileSync } from "node:fs";
import type { Duplex } from "node:stream";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { fileWith, logLines, program, runningProgram, type RunningProgram, textOf } from "../support/process.ts";
import { HANDSHAKE } from "../gateway/plugins.ts";
import { ask } from "../support/raw_client.ts";
import { client } from "./harness.ts";
import { load } from "./load.ts";

async function started() {
  const origin = await backend();
  const running = await runningProgram(oneService(origin.port), [], { ADMIN_USER: "a", ADMIN_PASSWORD: "b" });
  const next = textOf(oneService(origin.port, { base_path: "/next" }));
  return { ...running, origin, next };
}

const RELOADED = /"message":"configuration reloaded"/;
const REFUSED = /"message":"reload refused, configuration [0-9a-f]{12} stays in force"/;

/** Requests of a logged-in administrator to a running program. */
async function admin({ started }: RunningProgram) {
  const port = Number(new URL(String(started.admin)).port);
  const login = await ask(port, {
    method: "POST",
    path: "/login",
    headers: { Authorization: `Basic ${Buffer.from("a:b").toString("base64")}` },
  });
  const Cookie = login.headers["set-cookie"]![0]!.split(";")[0]!;
  return async (method: string, path: string) => {
    const { status, body } = await ask(port, { method, path, headers: { Cookie } });
    return { status, json: JSON.parse(body.toString()) as any };
  };
}

async function statuses({ port }: RunningProgram): Promise<number[]> {
  return [(await ask(port, { path: "/a/x" })).status, (await ask(port, { path: "/next/x" })).status];
}

describe("the configuration file", () => {
  it("the configuration file is reloaded when it is written in place, without a signal", async () => {
    const running = await started();
    expect(await statuses(running)).toEqual([200, 404]);
    writeFileSync(running.file, running.next);
    await running.says(RELOADED);
    expect(await statuses(running)).toEqual([404, 200]);
    const line = logLines(running.stderr()).at(-1)!;
    expect(line.digest).not.toBe(running.started.digest);
    expect(line).toMatchObject({ services: 1, routes: 2, upstreams: 1 });
    expect(line).toMatchObject({
      by: "file",
      added: 0,
      altered: 1,
      removed: 0,
      changes: ['altered  service "s" (base_path)'],
    });
  });

  it("the configuration file is reloaded when an editor replaces it by a rename, each time", async () => {
    const running = await started();
    for (const text of [running.next, textOf(oneService(running.origin.port))]) {
      const seen = logLines(running.stderr()).length;
      writeFileSync(`${running.file}.new`, text);
      renameSync(`${running.file}.new`, running.file);
      await running.says(new RegExp(`^(.*\\n){${seen}}.*configuration reloaded`));
    }
    expect(await statuses(running)).toEqual([200, 404]);
  });

  it("the configuration file is reloaded on SIGHUP, which reports when only secrets may have changed", async () => {
    const running = await started();
    running.child.kill("SIGHUP");
    await running.says("configuration read again: its text is the same, its secrets were resolved again");
    expect(logLines(running.stderr()).at(-1)).toMatchObject({ digest: running.started.digest });
  });

  it("the configuration file reloads the files it refers to on SIGHUP", async () => {
    const origin = await backend();
    const running = await runningProgram({ services: [] });
    const key = `${running.file}.key`;
    writeFileSync(key, "first\n");
    const config = oneService(origin.port, { plugins: [{ name: "key_auth", config: { key: `\${file:${key}}` } }] });
    writeFileSync(running.file, textOf(config));
    await running.says(RELOADED);
    expect((await ask(running.port, { path: "/a/x?apiKey=first" })).status).toBe(200);
    writeFileSync(key, "second\n");
    running.child.kill("SIGHUP");
    await running.says("configuration read again");
    expect((await ask(running.port, { path: "/a/x?apiKey=first" })).status).toBe(401);
    expect((await ask(running.port, { path: "/a/x?apiKey=second" })).status).toBe(200);
  });

  it.each([
    ["is broken JSON", '{ "services": [', ":1:"],
    ["has errors", '{\n  "services": [{}],\n  "servces": []\n}', ":3:3"],
    ["is empty", "", ":1:1"],
  ])(
    "the configuration file is refused when it %s: the last good configuration stays, " +
      "and every error is logged with its place",
    async (_what, text, place) => {
      const running = await started();
      writeFileSync(running.file, text);
      await running.says(REFUSED);
      const line = logLines(running.stderr()).find(({ message }) => /^reload refused/.test(String(message)))!;
      expect(line).toMatchObject({ level: "error", file: running.file });
      expect((line.issues as string[]).join("\n")).toContain(`${running.file}${place}`);
      expect(line.message).toContain(running.started.digest);
      expect(await statuses(running)).toEqual([200, 404]);
      writeFileSync(running.file, running.next);
      await running.says(RELOADED);
      expect(await statuses(running)).toEqual([404, 200]);
    },
  );

  it("the configuration file reports its errors line by line with LOG_FORMAT=text", async () => {
    const file = fileWith(oneService(9));
    const running = program([
      "--config",
      file,
      "--http-port",
      "0",
      "--listen-host",
      "127.0.0.1",
      "--log-format",
      "text",
    ]);
    await running.says(/^ {2}reload/m);
    writeFileSync(file, "{}");
    const text = await running.says(/error .*\n\S+ error .*\n/);
    expect(text).toMatch(
      new RegExp(
        String.raw`error +reload refused, configuration [0-9a-f]{12} stays in force file=\S` +
          String.raw`+gw\.json by=file\n\S+ error +\S+gw\.json:1:1 .*services.*\n$`,
      ),
    );
  });

  it("the configuration file is shown by GET /gateway as it is in force, after a reload too", async () => {
    const running = await started();
    const asked = await admin(running);
    const shown = async () => {
      const { json } = await asked("GET", "/gateway");
      return (json as { services: { base_path: string }[] }).services.map((service) => service.base_path);
    };
    expect(await shown()).toEqual(["/a"]);
    writeFileSync(running.file, running.next);
    await running.says(RELOADED);
    expect(await shown()).toEqual(["/next"]);
  });
});

describe("POST /gateway/reload", () => {
  it("loads the file, reports what has changed, and appears in the status", async () => {
    const running = await started();
    const asked = await admin(running);
    expect((await asked("GET", "/gateway/status")).json).toMatchObject({
      state: "serving",
      digest: running.started.digest,
      last_reload: null,
    });
    writeFileSync(running.file, running.next);
    const { status, json } = await asked("POST", "/gateway/reload");
    expect(status).toBe(200);
    await running.says(RELOADED);
    expect(await statuses(running)).toEqual([404, 200]);
    // The file watcher may have reloaded first: then the reply reports no change, and the status still does.
    const { json: now } = await asked("GET", "/gateway/status");
    expect(json).toMatchObject({ changes: expect.any(Array) as unknown, digest: now.digest });
    expect(now.last_change).toMatchObject({ digest: json.digest, changes: [{ kind: "service", change: "altered" }] });
    expect((await asked("GET", "/gateway/health")).json).toMatchObject({
      services: [{ name: "s", upstreams: [{ port: running.origin.port }] }],
    });
  });

  it(
    "reports every error with its place, keeps the old configuration, " +
      "and appears as failed until a reload succeeds",
    async () => {
      const running = await started();
      const asked = await admin(running);
      writeFileSync(running.file, '{\n  "services": [{}],\n  "servces": []\n}');
      const { status, json } = await asked("POST", "/gateway/reload");
      expect([status, json.code, json.digest]).toEqual([422, "configuration_refused", running.started.digest]);
      expect(json).toMatchObject({
        file: running.file,
        issues: expect.arrayContaining([expect.objectContaining({ path: "servces", line: 3, column: 3 })]) as unknown,
      });
      expect((await asked("GET", "/gateway/status")).json.last_reload).toMatchObject({
        outcome: "refused",
        issues: json.issues,
        digest: running.started.digest,
      });
      expect(await statuses(running)).toEqual([200, 404]);
      writeFileSync(running.file, running.next);
      expect((await asked("POST", "/gateway/reload")).status).toBe(200);
      expect((await asked("GET", "/gateway/status")).json.last_reload.outcome).toBe("taken");
    },
  );
});

describe("fifty reloads under load", () => {
  it(
    "fifty reloads under load fail no request, reset no rate limit, close no WebSocket, " +
      "and leave no connection behind",
    async () => {
      const origin = await backend((request, response) => response.end(request.url));
      origin.server.on("upgrade", (_request, socket: Duplex) => {
        socket.on("error", () => {});
        socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        socket.pipe(socket);
      });
      const other = await backend();
      const limited = { name: "limited", base_path: "/limited", upstreams: [{ host: "127.0.0.1", port: origin.port }] };
      const limit = { name: "rate_limit", config: { limit_hour: 20 } };
      /** Each configuration changes everything except the service under load. */
      const config = (round: number) => ({
        global: { name: `round ${round}`, access_log: { enabled: false } },
        services: [
          ...oneService(origin.port).services,
          { ...limited, routes: [{ path: "/", plugins: [limit] }, { path: `/${round}` }] },
          ...oneService(other.port, { name: `s${round % 2}`, base_path: "/other" }).services,
        ],
      });
      const running = await runningProgram(config(0), [], { ADMIN_USER: "a", ADMIN_PASSWORD: "b" });
      const asked = await admin(running);
      const socket = await client(running.port);
      socket.send(HANDSHAKE);
      await socket.until("\r\n\r\n");
      const clients = load({ ports: [running.port], clients: 6 });
      await clients.more(200);
      const limits: number[] = [];
      const openFiles = () => (process.platform === "linux" ? readdirSync(`/proc/${running.child.pid}/fd`).length : 0);
      const before = openFiles();
      for (let round = 1; round <= 50; round++) {
        writeFileSync(`${running.file}.new`, textOf(config(round)));
        renameSync(`${running.file}.new`, running.file);
        expect((await asked("POST", "/gateway/reload")).status).toBe(200);
        limits.push((await ask(running.port, { path: "/limited" })).status);
        socket.send(`<${round}>`);
        await socket.until(`<${round}>`);
        await clients.more(20);
      }
      expect((await asked("GET", "/gateway")).json.global.name).toBe("round 50");
      await clients.stop();
      expect(clients.failures).toEqual([]);
      expect(clients.answered()).toBeGreaterThan(1_200);
      expect(limits.filter((status) => status === 200)).toHaveLength(20);
      // One connection for each client, one for the WebSocket, and one for the limited route.
      expect(origin.connections.total).toBeLessThanOrEqual(8);
      expect(openFiles()).toBeLessThanOrEqual(before + 3);
    },
    60_000,
  );
});
