import { writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import https from "node:https";
import { describe, expect, it } from "vitest";
import { createGateway, type ConfigInput } from "../../lib/index.ts";
import { CA, SERVER } from "../support/certs.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { fileWith, logLines, program, runningFile, textOf } from "../support/process.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";

async function redirecting(https_redirect: object, global: object = {}) {
  const origin = await backend();
  const made = await running(
    oneService(origin.port, { base_path: "/a" }, { https_redirect, ...global } as ConfigInput["global"]),
  );
  const { port: secure } = await made.gateway.listen({
    port: 0,
    tls: { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false },
  });
  return { ...made, origin, secure };
}

describe("global.https_redirect", () => {
  it(
    "redirects requests over plain HTTP to the host that they name, with path and query as they were sent, " +
      "whether or not a route takes them",
    async () => {
      const { port, origin } = await redirecting({});
      const led = async (path: string, headers: Record<string, string> = {}, method = "GET") => {
        const {
          status,
          headers: { location, "content-length": length },
        } = await ask(port, { method, path, headers: { Host: "shop.example.com", ...headers } });
        return [status, location, length];
      };
      expect(await led("/a/x?b=1&c=%2F")).toEqual([308, "https://shop.example.com/a/x?b=1&c=%2F", "0"]);
      expect(await led("/nothing//here", { Host: "Shop.example.com:8008" })).toEqual([
        308,
        "https://Shop.example.com/nothing//here",
        "0",
      ]);
      expect(await led("/a/x", { Host: "[::1]:8008" }, "POST")).toEqual([308, "https://[::1]/a/x", "0"]);
      expect(await led("http://other.example.com:81?b=1")).toEqual([308, "https://other.example.com/?b=1", "0"]);
      expect(await led("/a/x", { "X-Forwarded-Proto": "https" })).toEqual([308, "https://shop.example.com/a/x", "0"]);
      expect(origin.connections.total).toBe(0);
    },
  );

  it("redirects with the status and to the port that are configured", async () => {
    const { port } = await redirecting({ status: 301, port: 8443 });
    expect(await ask(port, { path: "/a/x", headers: { Host: "a.test:80" } })).toMatchObject({
      status: 301,
      headers: { location: "https://a.test:8443/a/x" },
    });
  });

  it(
    "serves requests over HTTPS, those that a trusted proxy received over HTTPS, " +
      "and challenges of certificate authorities",
    async () => {
      const { port, secure, origin } = await redirecting({}, { trusted_proxies: ["127.0.0.1"] });
      expect((await ask(port, { path: "/a/x", headers: { "X-Forwarded-Proto": "https" } })).status).toBe(200);
      expect((await ask(port, { path: "/a/x", headers: { "X-Forwarded-Proto": "http" } })).status).toBe(308);
      expect((await ask(port, { path: "/.well-known/acme-challenge/x" })).status).toBe(404);
      for (const headers of [{}, { "X-Forwarded-Proto": "http" }]) {
        const agent = new https.Agent({ ca: CA.cert, servername: "localhost" });
        const response = await new Promise<IncomingMessage>((resolve, reject) =>
          https.get({ host: "127.0.0.1", port: secure, path: "/a/x", headers, agent }, resolve).on("error", reject),
        );
        response.resume();
        expect(response.statusCode).toBe(200);
        agent.destroy();
      }
      expect(origin.seen).toHaveLength(3);
    },
  );

  it("refuses requests without a valid host, and ambiguous ones, as without it", async () => {
    const { port } = await redirecting({});
    const answer = async (head: string) => {
      const client = await connect(port);
      client.send(`${head}\r\n\r\n`);
      await eventually(() => client.text().includes("\r\n"));
      client.socket.destroy();
      return client.text().split("\r\n")[0];
    };
    expect(await answer("GET /a/x HTTP/1.0")).toMatch(/ 400 /);
    expect(await answer("GET /a/x HTTP/1.1\r\nHost: evil.test/@a.test")).toMatch(/ 400 /);
    expect(await answer("GET http://evil.test\\@a.test/ HTTP/1.1\r\nHost: a.test")).toMatch(/ 400 /);
    expect(await answer("GET /a/../b HTTP/1.1\r\nHost: a.test")).toMatch(/ 400 /);
  });

  it("is an error without an HTTPS listener: the start ends with exit code 2, and a reload is refused", async () => {
    const origin = await backend();
    const wanting = { ...oneService(origin.port, {}, { https_redirect: {} }) };
    const file = fileWith(wanting);
    const ended = await program(["--config", file, "--http-port", "0", "--listen-host", "127.0.0.1"]).ended;
    expect([ended.code, ended.stderr]).toEqual([
      2,
      expect.stringMatching(
        new RegExp(
          String.raw`gw\.json:1:\d+ +global\.https_redirect +needs an HTTPS listener: add ` +
            String.raw`global\.certificates or global\.acme, or set SERVER_CERT_PATH`,
        ),
      ),
    ]);
    writeFileSync(file, textOf(oneService(origin.port)));
    const started = await runningFile(file);
    writeFileSync(file, textOf(wanting));
    await started.says(/reload refused/);
    expect(logLines(started.stderr()).at(-1)).toMatchObject({
      issues: [expect.stringContaining("global.https_redirect  needs an HTTPS listener")],
    });
  });

  it("starts with an HTTPS listener and redirects to it", async () => {
    const origin = await backend();
    const [cert, key] = [fileWith(SERVER.cert, "cert.pem"), fileWith(SERVER.key, "key.pem")];
    const started = await runningFile(fileWith(oneService(origin.port, {}, { https_redirect: { port: 8443 } })), [
      "--server-cert-path",
      cert,
      "--server-key-path",
      key,
    ]);
    expect((await ask(started.port, { path: "/x", headers: { Host: "localhost" } })).headers.location).toBe(
      "https://localhost:8443/x",
    );
  });

  it(
    "leads tests and explanations whose URL is a path to their route, " + "and those with http:// to the redirect",
    async () => {
      const tests = [
        { name: "path", request: { url: "/a/x" }, expect: { status: 200, upstream_path: "/x" } },
        {
          name: "http",
          request: { url: "http://a.test/a/x" },
          expect: { status: 308, headers: { Location: "https://a.test/a/x" }, upstream_path: null },
        },
      ];
      const gateway = createGateway({
        config: { ...oneService(9, { base_path: "/a" }, { https_redirect: {} }), tests },
      });
      expect(await gateway.test()).toMatchObject({ passed: 2, failed: 0 });
      expect(await gateway.explain({ method: "GET", url: "/a/x" })).toMatchObject({ outcome: "matched" });
      const refused = await gateway.explain({ method: "GET", url: "http://a.test/a/x" });
      expect(refused).toMatchObject({
        outcome: "refused",
        status: 308,
        code: null,
        reasons: ["global.https_redirect leads to https://a.test/a/x."],
      });
      await gateway.close();
    },
  );

  it.each([
    [{ status: 303 }, /status .*301, 302, 307/],
    [{ port: 0 }, /port .*1–65535/],
    [{ sttus: 301 }, /did you mean "status"/],
  ])("refuses %j", (https_redirect, message) => {
    expect(() => createGateway({ config: oneService(9, {}, { https_redirect } as never) })).toThrow(message);
  });
});
