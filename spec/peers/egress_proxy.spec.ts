/** The built gateway behind Debian's tinyproxy: all that it sends goes there, as the system calls of a run show. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import type { Audit } from "../../lib/cli/audit_sources.ts";
import { CA, SERVER } from "../support/certs.ts";
import { freePort } from "../support/origin.ts";
import { isOpen } from "../support/listening.ts";
import { eventually } from "../support/raw_client.ts";
import { emptyFolder, PROGRAM } from "./built.ts";

/** Debian's tinyproxy with a user; it may be asked for these ports alone. */
async function tinyproxy(folder: string, ports: readonly number[]) {
  const [port, log] = [await freePort(), join(folder, "proxy.log")];
  const settings = [
    `Port ${port}`,
    "Listen 127.0.0.1",
    "Timeout 60",
    `LogFile "${log}"`,
    "LogLevel Connect",
    "BasicAuth gateway secret",
    ...ports.map((each) => `ConnectPort ${each}`),
  ];
  writeFileSync(join(folder, "tinyproxy.conf"), `${settings.join("\n")}\n`);
  const child = spawn("tinyproxy", ["-d", "-c", join(folder, "tinyproxy.conf")], { stdio: "ignore" });
  const ended = once(child, "exit");
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  while (!(await isOpen(port))) await new Promise((resolve) => setImmediate(resolve));
  return { port, asked: () => [...readFileSync(log, "utf8").matchAll(/CONNECT (\S+)/g)].map(([, target]) => target) };
}

async function listening(server: http.Server | https.Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

const ok: http.RequestListener = (_request, response) => void response.end("ok");

it(
  "reaches upstreams, health checks, plugins and the collector through tinyproxy, " + "and connects to nothing else",
  async () => {
    const folder = emptyFolder();
    const received: string[] = [];
    const [plain, secure, auth, traces, forbidden] = [
      await listening(http.createServer(ok)),
      await listening(https.createServer({ cert: SERVER.cert, key: SERVER.key }, ok)),
      await listening(http.createServer(ok)),
      await listening(
        http.createServer((request, response) => {
          received.push(request.url!);
          request.resume();
          response.end("{}");
        }),
      ),
      await listening(http.createServer(ok)),
    ];
    const proxy = await tinyproxy(folder, [plain, secure, auth, traces]);
    writeFileSync(join(folder, "ca.pem"), CA.cert);
    const service = (name: string, port: number, more: object = {}) => ({
      name,
      base_path: `/${name}`,
      // A name that the system here could look up, and does not.
      upstreams: [{ host: "localhost", port }],
      routes: [{ path: "/" }],
      ...more,
    });
    const [port, file, trace] = [await freePort(), join(folder, "gw.json"), join(folder, "trace.txt")];
    const config = {
      global: { egress_proxy: { url: `http://gateway:\${env:PROXY_PASSWORD}@127.0.0.1:${proxy.port}` } },
      services: [
        service("plain", plain, {
          health: { enabled: true, interval_ms: 100 },
          plugins: [{ name: "forward_auth", config: { url: `http://localhost:${auth}/check` } }],
        }),
        service("secure", secure, { protocol: "https", tls: { ca: "ca.pem" } }),
        service("forbidden", forbidden),
      ],
    };
    writeFileSync(file, JSON.stringify(config));
    const environment = {
      PATH: process.env.PATH!,
      CONFIG_FILE_PATH: file,
      HTTP_PORT: String(port),
      LISTEN_HOST: "127.0.0.1",
      PROXY_PASSWORD: "secret",
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://localhost:${traces}`,
      LOG_FORMAT: "json",
    };
    const audited = spawnSync(process.execPath, [PROGRAM, "audit", "--json"], { env: environment, encoding: "utf8" });
    const { dials } = JSON.parse(audited.stdout) as Audit;
    expect(audited.stdout).not.toContain("gateway:secret");
    expect(dials.filter(({ via }) => via === undefined)).toEqual([
      { host: "127.0.0.1", port: proxy.port, why: "egress_proxy" },
    ]);
    expect(dials.map(({ port: to, why }) => [to, why])).toEqual(
      expect.arrayContaining([
        [plain, "upstream"],
        [plain, "health"],
        [secure, "upstream"],
        [auth, "forward_auth"],
        [traces, "otlp"],
      ]),
    );
    const child = spawn("strace", ["-f", "-qq", "-e", "trace=connect,sendto", "-o", trace, process.execPath, PROGRAM], {
      env: environment,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const ended = once(child, "exit");
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => void (output += String(chunk)));
    onTestFinished(async () => {
      child.kill("SIGKILL");
      await ended;
    });
    await eventually(() => output.includes(" started"));
    const ask = async (path: string) => {
      const response = await fetch(`http://127.0.0.1:${port}${path}`);
      return [response.status, await response.text()] as const;
    };
    expect(await ask("/plain")).toEqual([200, "ok"]);
    expect(await ask("/secure")).toEqual([200, "ok"]);
    const [status, body] = await ask("/forbidden");
    expect([status, (JSON.parse(body) as { code: string }).code]).toEqual([502, "upstream_connect_failed"]);
    expect(body).not.toMatch(/tinyproxy|403/i);
    await eventually(() => output.includes("the proxy refused the connection with status 403"));
    await eventually(() => received.length > 0);
    const pid = Number(readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").trim().split(" ")[0]);
    process.kill(pid, "SIGTERM");
    expect((await ended)[0]).toBe(0);
    expect(new Set(proxy.asked())).toEqual(
      new Set([plain, secure, auth, traces, forbidden].map((each) => `localhost:${each}`)),
    );
    expect(output).not.toContain("gateway:secret");
    expect(existsSync(trace)).toBe(true);
    const connected = readFileSync(trace, "utf8").matchAll(
      /sin6?_port=htons\((\d+)\).*?(?:inet_addr\("|AF_INET6, ")([^"]+)/g,
    );
    expect(new Set(Array.from(connected, ([, to, host]) => `${host}:${to}`))).toEqual(
      new Set([`127.0.0.1:${proxy.port}`]),
    );
  },
);
