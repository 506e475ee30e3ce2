import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmdirSync,
  writeFileSync,
} from "node:fs";
import type { IncomingMessage } from "node:http";
import https from "node:https";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import { ConfigError, createGateway } from "../../lib/index.ts";
import { CA, SERVER } from "../support/certs.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session, h2TlsSession } from "../support/h2_client.ts";
import { emptyFolder, fileWith, logLines, PROGRAM, program, runningProgram, textOf } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { client, get, headBackend } from "./harness.ts";

const paths = (file: string) => logLines(existsSync(file) ? readFileSync(file, "utf8") : "").map(({ path }) => path);
const logged = (port: number, accessLog: object, more: object = {}) =>
  oneService(port, {}, { access_log: { ...accessLog }, ...more });

describe("the program with global.access_log.file", () => {
  it(
    "writes the access log to that file instead of standard output, " + "reopens it on SIGUSR1, and flushes it on exit",
    async () => {
      const origin = await backend();
      const file = join(emptyFolder(), "access.log");
      const { port, child, says, ended } = await runningProgram(logged(origin.port, { file }));
      await ask(port, { path: "/a/before" });
      await eventually(() => paths(file).length === 1, "a line in the file");
      renameSync(file, `${file}.1`);
      await ask(port, { path: "/a/renamed" });
      await eventually(() => paths(`${file}.1`).length === 2, "two lines in the file");
      child.kill("SIGUSR1");
      await says("the access log has been reopened");
      await ask(port, { path: "/a/after" });
      child.kill("SIGTERM");
      const { code, stdout, stderr } = await ended;
      expect([paths(`${file}.1`), paths(file)]).toEqual([["/a/before", "/a/renamed"], ["/a/after"]]);
      expect([code, stdout]).toEqual([0, ""]);
      // Without a handler, Node starts its debugger on this signal.
      expect(stderr).not.toContain("Debugger");
    },
  );

  it(
    "does not start when the access log file cannot be opened: exit status 2, " + "and an error with its place",
    async () => {
      const folder = emptyFolder();
      const { code, stderr } = await program(["--config", fileWith(logged(9, { file: folder })), "--http-port", "0"])
        .ended;
      expect(code).toBe(2);
      expect(stderr).toContain("global.access_log.file");
      expect(stderr).toContain(`cannot write to ${folder}: it is a folder`);
    },
  );

  it("ignores SIGUSR1 when no access log file is configured", async () => {
    const origin = await backend();
    const { port, child, stdout, stderr } = await runningProgram(oneService(origin.port));
    child.kill("SIGUSR1");
    await ask(port, { path: "/a/x" });
    await eventually(() => stdout() !== "", "output of the program");
    expect(logLines(stdout())).toMatchObject([{ path: "/a/x" }]);
    expect(stderr()).not.toContain("Debugger");
  });

  it.skipIf(!existsSync("/dev/full"))(
    "reports a full disk behind standard output once, and answers every request",
    async () => {
      const origin = await backend();
      const full = openSync("/dev/full", "w");
      onTestFinished(() => closeSync(full));
      const words = ["--config", fileWith(oneService(origin.port)), "--http-port", "0", "--listen-host", "127.0.0.1"];
      const child = spawn(process.execPath, [PROGRAM, ...words], {
        env: { PATH: process.env.PATH },
        stdio: ["ignore", full, "pipe"],
      });
      const gone = new Promise((resolve) => child.once("close", resolve));
      onTestFinished(async () => {
        child.kill("SIGKILL");
        await gone;
      });
      let logged = "";
      const lost = () => logged.split("lines of the access log are lost").length - 1;
      // A start may take long on a busy machine: the test's own time limit is the bound.
      await new Promise<void>((resolve) => {
        child.stderr!.setEncoding("utf8").on("data", (text: string) => {
          logged += text;
          if (/ started".*\n/.test(logged)) resolve();
        });
      });
      const started = logLines(logged).find(({ http }) => http !== undefined) as unknown as { http: string[] };
      const port = Number(new URL(started.http[0]!).port);
      for (let i = 0; i < 3; i++) {
        expect((await ask(port, { path: "/a/x" })).status).toBe(200);
        await eventually(() => lost() >= 1, "a lost line in the log");
      }
      expect(lost()).toBe(1);
    },
  );
});

describe("a reload of global.access_log", () => {
  it(
    "a reload of global.access_log switches to another file and back to standard output, " +
      "and leaves every earlier line in the old file",
    async () => {
      const origin = await backend();
      const folder = emptyFolder();
      const [one, two] = [join(folder, "one.log"), join(folder, "two.log")];
      let said = "";
      const { gateway, port } = await running(logged(origin.port, { file: one }), {
        accessLog: (text) => void (said += text),
      });
      for (const [path, next] of [
        ["/a/1", { file: two }],
        ["/a/2", {}],
        ["/a/3", { enabled: false, file: one }],
        ["/a/4", { file: one }],
      ] as const) {
        await ask(port, { path });
        await eventually(() => gateway.inFlight === 0, "no request being in flight");
        await gateway.reload(logged(origin.port, next));
      }
      await ask(port, { path: "/a/5" });
      await gateway.close();
      expect([paths(one), paths(two), logLines(said).map(({ path }) => path)]).toEqual([
        ["/a/1", "/a/5"],
        ["/a/2"],
        ["/a/3"],
      ]);
    },
  );

  it(
    "a reload of global.access_log is refused when the new access log file cannot be opened, " +
      "and the old file is still written",
    async () => {
      const origin = await backend();
      const folder = emptyFolder();
      const file = join(folder, "access.log");
      const { gateway, port } = await running(logged(origin.port, { file }));
      const { digest } = gateway;
      await expect(gateway.reload(logged(origin.port, { file: join(folder, "none", "access.log") }))).rejects.toThrow(
        ConfigError,
      );
      expect(gateway.status.lastReload).toMatchObject({
        outcome: "refused",
        issues: [
          {
            path: "global.access_log.file",
            message: expect.stringMatching(/^cannot write to .*: there is no such folder$/) as string,
          },
        ],
      });
      expect(gateway.digest).toBe(digest);
      await ask(port, { path: "/a/x" });
      await eventually(() => paths(file).length === 1, "a line in the file");
    },
  );

  it("createGateway throws a ConfigError when the access log file cannot be opened", () => {
    expect(() => createGateway({ config: logged(9, { file: "/" }) })).toThrow(/cannot write to \/: it is a folder/);
  });

  it(
    "a reload of global.access_log creates the access log file when the gateway listens or gets its " +
      "first request, not earlier",
    async () => {
      const one = join(emptyFolder(), "access.log");
      const listening = createGateway({ config: logged(9, { file: one }) });
      onTestFinished(async () => void (await listening.close(0)));
      await listening.reload(logged(9, { file: `${one}.2` }));
      expect([existsSync(one), existsSync(`${one}.2`)]).toEqual([false, false]);
      await listening.listen({ port: 0 });
      expect([existsSync(one), existsSync(`${one}.2`)]).toEqual([false, true]);
    },
  );

  it(
    "a reload of global.access_log answers requests and logs the reason when a gateway that does not listen can " +
      "no longer open its access log",
    async () => {
      const folder = join(emptyFolder(), "logs");
      mkdirSync(folder);
      const lines: string[] = [];
      const log = createLog({ write: (line) => void lines.push(line) });
      const gateway = createGateway({ config: logged(9, { file: join(folder, "access.log") }), log });
      onTestFinished(async () => void (await gateway.close(0)));
      rmdirSync(folder);
      expect((await gateway.inject({ url: "/none" })).status).toBe(404);
      expect((await gateway.inject({ url: "/none" })).status).toBe(404);
      expect(lines.filter((line) => line.includes("the access log's file cannot be opened"))).toHaveLength(1);
      mkdirSync(folder);
      await gateway.reload();
      await gateway.inject({ url: "/none" });
      await gateway.close();
      expect(paths(join(folder, "access.log"))).toEqual(["/none"]);
    },
  );

  it("a reload of global.access_log refuses to listen when the access log file can no longer be opened", async () => {
    const folder = join(emptyFolder(), "logs");
    mkdirSync(folder);
    const gateway = createGateway({ config: logged(9, { file: join(folder, "access.log") }) });
    rmdirSync(folder);
    await expect(gateway.listen({ port: 0 })).rejects.toThrow(/cannot write to .*: there is no such folder/);
  });

  it(
    "a reload of global.access_log resolves a relative access log path against the folder " +
      "of the configuration file",
    async () => {
      const folder = emptyFolder();
      mkdirSync(join(folder, "logs"));
      const configFile = join(folder, "gw.json");
      writeFileSync(configFile, textOf(logged(9, { file: "logs/access.log" })));
      const gateway = createGateway({ configFile });
      await gateway.inject({ url: "/none" });
      await gateway.close();
      expect(paths(join(folder, "logs", "access.log"))).toEqual(["/none"]);
    },
  );

  it("a reload of global.access_log opens no file for an access log that is not enabled", () => {
    expect(() => createGateway({ config: logged(9, { enabled: false, file: "/" }) })).not.toThrow();
  });
});

describe("fields of the access log", () => {
  it(
    "the fields log host, scheme and TLS version of a request over HTTP/1.1 and HTTP/2, " +
      "and leave out what does not apply",
    async () => {
      const origin = await backend();
      const said: Record<string, unknown>[] = [];
      const { gateway, port } = await running(
        oneService(origin.port, {}, { h2c: true, trusted_proxies: ["127.0.0.2"] }),
        { accessLog: (text) => void said.push(...logLines(text)) },
      );
      const tls = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };
      const secure = (await gateway.listen({ port: 0, tls })).port;
      await ask(port, { path: "/a/plain", headers: { Host: "shop.example:8008" } });
      await h2Ask(h2Session(port), { path: "/a/h2c" });
      await h2Ask(await h2TlsSession(secure), { path: "/a/h2" });
      for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
        const request = https.get({
          host: "localhost",
          port: secure,
          path: `/a/${version}`,
          ca: CA.cert,
          agent: false,
          minVersion: version,
          maxVersion: version,
        });
        const [response] = (await once(request, "response")) as [IncomingMessage];
        await once(response.resume(), "end");
      }
      await eventually(() => said.length === 5, "five log lines");
      expect(
        said.map(({ path, protocol, scheme, host, tls: version }) => [path, protocol, scheme, host, version]),
      ).toEqual([
        ["/a/plain", "HTTP/1.1", "http", "shop.example:8008", null],
        ["/a/h2c", "HTTP/2.0", "http", `127.0.0.1:${port}`, null],
        ["/a/h2", "HTTP/2.0", "https", `localhost:${secure}`, "TLSv1.3"],
        ["/a/TLSv1.2", "HTTP/1.1", "https", `localhost:${secure}`, "TLSv1.2"],
        ["/a/TLSv1.3", "HTTP/1.1", "https", `localhost:${secure}`, "TLSv1.3"],
      ]);
    },
  );
});

describe("byte counts in the access log", () => {
  it("byte counts in the access log count the payload of DATA frames both ways for a request over HTTP/2", async () => {
    const origin = await backend((_request, response) => void response.end("12345"));
    let said = "";
    const { port, gateway } = await running(logged(origin.port, {}, { h2c: true }), {
      accessLog: (text) => void (said += text),
    });
    const session = h2Session(port);
    const stream = session.request({ ":method": "POST", ":path": "/a/x" });
    stream.end("four");
    await new Promise<void>((resolve, reject) => stream.resume().on("end", resolve).on("error", reject));
    session.close();
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
    await gateway.close();
    expect(logLines(said)).toMatchObject([{ protocol: "HTTP/2.0", bytes_received: 4, bytes_sent: 5 }]);
  });

  it(
    "byte counts in the access log count both directions of a WebSocket, " +
      "including bytes that arrive with the head",
    async () => {
      const upstream = await headBackend(({ socket }) => {
        socket.write(
          "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n12",
        );
        socket.on("data", () => socket.end("345"));
      });
      let said = "";
      const { port, gateway } = await running(logged(upstream.port, {}), { accessLog: (text) => void (said += text) });
      const connection = await client(port);
      connection.send(
        get(
          "/a/x",
          "Connection: Upgrade",
          "Upgrade: websocket",
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
          "Sec-WebSocket-Version: 13",
        ),
      );
      await connection.until("12");
      connection.send("four");
      await connection.until("345");
      connection.socket.end();
      await eventually(() => gateway.inFlight === 0, "no request being in flight");
      await gateway.close();
      expect(logLines(said)).toMatchObject([{ status: 101, bytes_received: 4, bytes_sent: 5 }]);
    },
  );
});
