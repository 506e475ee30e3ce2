import { createHash } from "node:crypto";
import { request as tlsRequest } from "node:https";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { version } from "../../lib/base/version.ts";
import { createGateway } from "../../lib/index.ts";
import { PASSWORD, RIGHT, startAdmin, USER, WRONG } from "../admin/harness.ts";
import { CA, SERVER } from "../support/certs.ts";
import { oneService } from "../support/gateway.ts";
import { h2Ask, h2TlsSession } from "../support/h2_client.ts";
import { OTHER_CA, RENEWED } from "../support/more_certs.ts";
import { closedPort, rawOrigin } from "../support/origin.ts";
import { emptyFolder } from "../support/process.ts";
import { ask, connect, eventually, refused } from "../support/raw_client.ts";
import { json, problemOf, startManager } from "./harness.ts";

const MIB16 = 16 * 1024 * 1024;

const FIRM = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
};

describe("MANAGER_BASE_PATH", () => {
  const edge = async () => startManager((await startAdmin()).admin, { basePath: "/edge/" });

  it("has the start page, every file that it names and the admin interface below the path", async () => {
    const { ask } = await edge();
    const page = await ask("GET", "/edge/");
    expect([page.status, page.headers["content-type"]]).toEqual([200, "text/html; charset=utf-8"]);
    const names = [...page.body.toString().matchAll(/(?:src|href)="([^"]+)"/g)].map(([, name]) => name!);
    expect(names.length).toBeGreaterThan(5);
    for (const name of names) {
      const { pathname } = new URL(name, "http://h/edge/");
      expect([pathname, (await ask("GET", pathname)).status]).toEqual([expect.stringMatching(/^\/edge\//), 200]);
    }
    expect((await ask("GET", "/edge/index.html")).body).toEqual(page.body);
    expect((await ask("GET", "/edge/api/healthz")).status).toBe(200);
    expect((await ask("GET", "/edge/api/gateway")).status).toBe(401);
  });

  it.each([
    ["GET", "/edge", "/edge/"],
    ["HEAD", "/edge?a=1&b=%2F", "/edge/?a=1&b=%2F"],
    ["GET", "/%65dge", "/edge/"],
    ["GET", "http://localhost/edge", "/edge/"],
  ])("leads %s %s to the start page", async (method, path, location) => {
    const answer = await (await edge()).ask(method, path);
    expect([answer.status, answer.headers.location, answer.body.length]).toEqual([308, location, 0]);
    expect(answer.headers).toMatchObject(FIRM);
  });

  it("has no redirect for what is no question", async () => {
    const answer = await (await edge()).ask("POST", "/edge");
    expect([answer.status, answer.headers.allow]).toEqual([405, "GET, HEAD"]);
  });

  it.each(["/", "/main.js", "/api/healthz", "/api", "/edgeX", "/Edge/", "/edge/edge/", "/edgeapi/healthz", "/x/edge/"])(
    "has nothing at %s, and says where the pages are",
    async (path) => {
      const { ask } = await edge();
      expect(problemOf(await ask("GET", path))).toEqual([
        404,
        "route_not_found",
        "There is no such page; the management UI starts at /edge/.",
      ]);
    },
  );

  it("has cookies for the path alone, whether the session begins, goes on or ends", async () => {
    const { ask } = await edge();
    const login = await ask("POST", "/edge/api/login", { headers: { Authorization: RIGHT } });
    const cookies = login.headers["set-cookie"]!;
    expect(cookies.map((cookie) => cookie.match(/^[^=]+|; Path=[^;]*/g))).toEqual([
      ["token", "; Path=/edge/"],
      ["token-device", "; Path=/edge/"],
    ]);
    const headers = { Cookie: cookies[0]!.split(";")[0]! };
    expect((await ask("GET", "/edge/api/gateway", { headers })).status).toBe(200);
    const ended = await ask("DELETE", "/edge/api/logout", { headers });
    expect([ended.status, ended.headers["set-cookie"]]).toEqual([
      204,
      [expect.stringMatching(/^token=; .*; Path=\/edge\/; Max-Age=0$/)],
    ]);
  });

  it("is not in the path that an admin interface elsewhere gets", async () => {
    const paths: string[] = [];
    const origin = await rawOrigin((request, response) => {
      paths.push(request.url!);
      response.setHeader("Set-Cookie", "token=x; HttpOnly; Secure; SameSite=Strict; Path=/; Max-Age=9").end("{}");
    });
    const { ask } = await startManager(origin.port, { basePath: "/edge/" });
    const { headers } = await ask("GET", "/edge/api/gateway/status?a=/edge/");
    expect(paths).toEqual(["/gateway/status?a=/edge/"]);
    expect(headers["set-cookie"]).toEqual(["token=x; HttpOnly; Secure; SameSite=Strict; Path=/edge/; Max-Age=9"]);
  });

  it("is not the path of a cookie named __Host-…, which browsers refuse with another one than /", async () => {
    const cookie = "__Host-token=x; HttpOnly; Secure; SameSite=Strict; Path=/; Max-Age=9";
    const origin = await rawOrigin((_request, response) => {
      response.setHeader("Set-Cookie", cookie).end("{}");
    });
    const { ask } = await startManager(origin.port, { basePath: "/edge/" });
    expect((await ask("GET", "/edge/api/gateway")).headers["set-cookie"]).toEqual([cookie]);
  });
});

describe("the pages", () => {
  it("the pages start with index.html at /, which loads existing files", async () => {
    const { ask } = await startManager(9);
    const page = await ask("GET", "/");
    expect([page.status, page.headers["content-type"]]).toEqual([200, "text/html; charset=utf-8"]);
    for (const [, name] of page.body.toString().matchAll(/(?:src|href)="([^"]+)"/g))
      expect((await ask("GET", `/${name}`)).status).toBe(200);
  });

  it("the pages give HEAD the headers of GET and no body, and 304 neither body nor length", async () => {
    const { ask } = await startManager(9);
    const [get, head] = [await ask("GET", "/main.js"), await ask("HEAD", "/main.js")];
    expect([head.status, head.body.length]).toEqual([200, 0]);
    for (const name of ["content-length", "etag", "content-type"]) expect(head.headers[name]).toBe(get.headers[name]);
    const known = await ask("GET", "/main.js", { headers: { "If-None-Match": get.headers.etag! } });
    expect([known.status, known.body.length, known.headers["content-length"]]).toEqual([304, 0, undefined]);
  });

  it.each(["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])(
    "the pages give 405 with Allow for %s",
    async (method) => {
      const { ask } = await startManager(9);
      const got = await ask(method, "/");
      expect([...problemOf(got).slice(0, 2), got.headers.allow]).toEqual([405, "method_not_allowed", "GET, HEAD"]);
    },
  );

  it.each([
    "/server.ts",
    "/endpoints.js",
    "/package.json",
    "/apis",
    "/API/healthz",
    "/favicon.ico",
    "/main.js/",
    "/%252e%252e/x",
  ])("the pages give 404 for %s", async (path) => {
    const { ask } = await startManager(9);
    expect(problemOf(await ask("GET", path)).slice(0, 2)).toEqual([404, "route_not_found"]);
  });

  it.each([
    "/../server.js",
    "/..%2fserver.js",
    "/%2e%2e/server.js",
    "/./main.js",
    "/..",
    "/main.js%00",
    "/main.js%2f..",
    "/..;/server.js",
    "/..\\server.js",
    "/%5c..%5cserver.js",
    "/main.js#x",
    "/%zz",
    "*",
    "main.js",
    "/api/../main.js",
    "/api/..%2f..%2fx",
    "/api%2fhealthz",
    "/api/gateway%2fconfig",
    "//%2e%2e//etc/passwd",
  ])("the pages give 400 for %s without asking the admin interface", async (path) => {
    const backend = await rawOrigin((_request, response) => void response.end());
    onTestFinished(() => backend.close());
    const { port } = await startManager(backend.port);
    const talk = await connect(port);
    talk.send(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
    expect(await talk.closed()).toMatch(/^HTTP\/1\.1 400 /);
    expect(backend.connections.total).toBe(0);
  });

  it("the pages accept an absolute-form target", async () => {
    const { ask } = await startManager(9);
    expect((await ask("GET", "http://localhost:5173/icon.svg")).headers["content-type"]).toBe("image/svg+xml");
    expect((await ask("GET", "http://user@evil/icon.svg")).status).toBe(400);
  });

  it("the pages must exist for the manager to start", async () => {
    await expect(startManager(9, { assets: emptyFolder() })).rejects.toThrow(/npm run build/);
  });
});

describe("every reply", () => {
  it("every reply has the security headers: pages, 304, errors, and replies of the admin interface", async () => {
    const backend = await rawOrigin((_request, response) => {
      response.writeHead(200, {
        "Content-Security-Policy": "default-src *",
        "Referrer-Policy": "unsafe-url",
        "Access-Control-Allow-Origin": "*",
        "X-Own": "1",
      });
      response.end("{}");
    });
    onTestFinished(() => backend.close());
    const { ask } = await startManager(backend.port);
    const etag = (await ask("GET", "/")).headers.etag!;
    const answers = [
      await ask("GET", "/"),
      await ask("GET", "/", { headers: { "If-None-Match": etag } }),
      await ask("GET", "/none"),
      await ask("PUT", "/"),
      await ask("GET", "/api/gateway"),
      await ask("PATCH", "/api/gateway"),
      await ask("POST", "/api/login", { headers: { Origin: "http://evil.example" } }),
      await ask("GET", "/api/%2e%2e"),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 304, 404, 405, 200, 405, 403, 400]);
    for (const { headers, rawHeaders } of answers) {
      expect(headers).toMatchObject(FIRM);
      expect(headers).not.toHaveProperty("server");
      expect(headers).not.toHaveProperty("x-powered-by");
      expect(headers).not.toHaveProperty("access-control-allow-origin");
      expect(rawHeaders.filter((text) => /^(content-security-policy|referrer-policy|date)$/i.test(text))).toHaveLength(
        3,
      );
    }
    expect(answers[4]!.headers["x-own"]).toBe("1");
    for (const refusal of [answers[2]!, answers[3]!, answers[6]!])
      expect(refusal.headers["cache-control"]).toBe("no-store");
  });
});

describe("/api", () => {
  it.each(["another", "the same"])(
    "logs in, reads, reloads and logs out through the real admin interface in %s process, without an Origin",
    async (which) => {
      const admin = await startAdmin({ corsOrigins: [] });
      const { ask, port } = await startManager(which === "another" ? admin.port : admin.admin);
      const own = { Origin: `http://127.0.0.1:${port}` };
      expect((await ask("GET", "/api/gateway")).status).toBe(401);
      const wrong = await ask("POST", "/api/login", { headers: { ...own, Authorization: WRONG } });
      expect(wrong.status).toBe(401);
      // "Basic" would make browsers ask for a password in a window of their own.
      expect(wrong.headers["www-authenticate"]).toMatch(/^Cookie realm=/);
      const login = await ask("POST", "/api/login", { headers: { ...own, Authorization: RIGHT } });
      expect([login.status, json(login).user]).toEqual([200, USER]);
      const [cookie, device] = login.headers["set-cookie"]!;
      expect(cookie).toMatch(/^token=[\w.-]+; HttpOnly; Secure; SameSite=Strict; Path=\/; Max-Age=3600$/);
      const Cookie = cookie!.split(";")[0]!;
      const config = await ask("GET", "/api/gateway/config", { headers: { Cookie } });
      expect(json(config).AdminPassword).toBe(PASSWORD);
      expect(config.headers["cache-control"]).toBe("no-store");
      expect((await ask("POST", "/api/gateway/reload", { headers: { ...own, Cookie } })).status).toBe(200);
      // Like the gateway's, the version is for who has signed in.
      const versions = await Promise.all(
        [{ Cookie }, {}].map((headers) => ask("GET", "/api/gateway/now?figures=total", { headers })),
      );
      expect(versions.map(({ status, headers }) => [status, headers["management-ui-version"]])).toEqual([
        [200, version],
        [401, undefined],
      ]);
      const out = await ask("DELETE", "/api/logout", { headers: { ...own, Cookie } });
      expect([out.status, out.body.length]).toEqual([204, 0]);
      expect(out.headers["set-cookie"]![0]).toMatch(/^token=; .*Max-Age=0$/);
      expect((await ask("GET", "/api/gateway", { headers: { Cookie } })).status).toBe(401);
      // All users of this UI may have its address.
      for (let i = 0; i < 4; i++) await ask("POST", "/api/login", { headers: { ...own, Authorization: WRONG } });
      const right = { ...own, Authorization: RIGHT };
      expect([
        (await ask("POST", "/api/login", { headers: right })).status,
        (await ask("POST", "/api/login", { headers: { ...right, Cookie: device!.split(";")[0]! } })).status,
      ]).toEqual([429, 200]);
    },
  );

  it("keeps the request id of the admin interface, and gives replies of its own another", async () => {
    const admin = await startAdmin();
    const { ask } = await startManager(admin.port);
    for (const [path, status] of [
      ["/api/gateway", 401],
      ["/none", 404],
    ] as const) {
      const { headers, ...answer } = await ask("GET", path);
      expect(answer.status).toBe(status);
      expect(headers["x-request-id"]).toBe(json({ headers, ...answer }).request_id);
    }
    expect((await ask("HEAD", "/api/healthz")).headers["x-request-id"]).toMatch(/^[\w-]{36}$/);
  });

  it.each(["PATCH", "OPTIONS", "TRACE", "LOGIN"])("gives 405 for %s", async (method) => {
    const { port } = await startManager(9);
    const talk = await connect(port);
    talk.send(
      `${method === "LOGIN" ? "PROPFIND" : method} /api/gateway HTTP/1.1\r\nHost: ` +
        `localhost\r\nConnection: close\r\n\r\n`,
    );
    expect(await talk.closed()).toMatch(/^HTTP\/1\.1 405 [\s\S]*\r\nAllow: GET, HEAD, POST, PUT, DELETE\r\n/);
  });

  it(
    "gives 403 for unsafe methods from pages of other origins before asking the admin interface; " +
      "SameSite protects reading",
    async () => {
      const backend = await rawOrigin((_request, response) => void response.end("{}"));
      onTestFinished(() => backend.close());
      const { ask, port } = await startManager(backend.port);
      const foreign: Record<string, string>[] = [
        { Origin: "http://localhost:5173" },
        { Origin: "null" },
        { "Sec-Fetch-Site": "cross-site" },
      ];
      for (const headers of foreign) {
        for (const method of ["POST", "DELETE"])
          expect(problemOf(await ask(method, "/api/login", { headers })).slice(0, 2)).toEqual([403, "forbidden"]);
      }
      expect(backend.connections.total).toBe(0);
      for (const headers of foreign) expect((await ask("GET", "/api/gateway", { headers })).status).toBe(200);
      expect((await ask("POST", "/api/login", { headers: { Origin: `http://127.0.0.1:${port}` } })).status).toBe(200);
      expect(
        (await ask("POST", "/api/login", { headers: { Host: "127.0.0.1", Origin: "https://127.0.0.1" } })).status,
      ).toBe(200);
      expect((await ask("POST", "/api/login")).status).toBe(200);
    },
  );

  it.each(["GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS"])(
    "gives 421 for a %s over plain HTTP under a name that is not in ADMIN_HOSTS, before asking the admin interface",
    async (method) => {
      const backend = await rawOrigin((_request, response) => void response.end("{}"));
      onTestFinished(() => backend.close());
      const { ask, port } = await startManager(backend.port, { hosts: ["ui.lan"] });
      const rebound = { Host: `evil.example:${port}`, Origin: `http://evil.example:${port}`, Authorization: RIGHT };
      for (const path of ["/", "/main.js", "/api/login", "/api/gateway", "/none"]) {
        const got = await ask(method, path, { headers: rebound });
        expect(got.status).toBe(421);
        if (method === "HEAD") continue;
        const [, code, detail] = problemOf(got);
        expect(code).toBe("misdirected");
        expect(detail).toMatch(/ADMIN_HOSTS.*only over HTTPS and on http:\/\/localhost/);
      }
      expect(backend.connections.total).toBe(0);
      expect((await ask("GET", "/", { headers: { Host: `UI.lan.:${port}` } })).status).toBe(200);
    },
  );

  it("answers under any name over HTTPS, where the certificate proves the name", async () => {
    const { port } = await startManager(9, { tls: { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key) } });
    const status = await new Promise((resolve, reject) => {
      const asking = tlsRequest(
        { host: "127.0.0.1", port, headers: { Host: "ui.example" }, agent: false, rejectUnauthorized: false },
        (response) => {
          response.resume();
          resolve(response.statusCode);
        },
      );
      asking.on("error", reject).end();
    });
    expect(status).toBe(200);
  });

  it("gives 413 beyond 16 MiB, whether the length is stated or not, and forwards smaller bodies whole", async () => {
    const backend = await rawOrigin((request, response) => {
      const hash = createHash("sha256");
      request
        .on("data", (chunk: Buffer) => hash.update(chunk))
        .on("end", () => response.end(hash.digest("hex")))
        .on("error", () => {});
    });
    onTestFinished(() => backend.close());
    const { ask } = await startManager(backend.port);
    const digestOf = (body: Buffer) => createHash("sha256").update(body).digest("hex");
    for (const headers of [{}, { "Transfer-Encoding": "chunked" }]) {
      for (const size of [64 * 1024, 64 * 1024 + 1, MIB16]) {
        const body = Buffer.alloc(size, "0123456789");
        expect((await ask("POST", "/api/gateway/validate", { body, headers })).body.toString()).toBe(digestOf(body));
      }
      expect(
        problemOf(await ask("POST", "/api/gateway/validate", { body: Buffer.alloc(MIB16 + 1), headers })).slice(0, 2),
      ).toEqual([413, "body_too_large"]);
    }
  });

  it(
    "passes on the answer to a large body that comes before its end, " +
      "and an admin interface that closes the connection meanwhile is a 502",
    async () => {
      const backend = await rawOrigin((request, response) => {
        if (request.url === "/close") return void request.socket.destroy();
        request.resume();
        response.writeHead(401, { "Content-Type": "application/problem+json" }).end('{"code":"unauthenticated"}');
      });
      onTestFinished(() => backend.close());
      const { ask } = await startManager(backend.port);
      const body = Buffer.alloc(MIB16);
      expect(await ask("POST", "/api/early", { body })).toMatchObject({
        status: 401,
        body: Buffer.from('{"code":"unauthenticated"}'),
      });
      expect((await ask("POST", "/api/close", { body })).status).toBe(502);
    },
  );

  it("sends 100 (Continue) when the client waits for it", async () => {
    const backend = await rawOrigin((request, response) => void request.pipe(response));
    onTestFinished(() => backend.close());
    const { port } = await startManager(backend.port);
    const talk = await connect(port);
    talk.send(
      "POST /api/x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " +
        "2\r\nConnection: close\r\n\r\n",
    );
    await talk.until("HTTP/1.1 100 Continue\r\n\r\n");
    talk.send("ok");
    expect(await talk.closed()).toMatch(/ 200 OK[\s\S]*ok/);
  });

  it.each(["another", "the same"])(
    "asks for the body of a question and streams the tail of an admin interface in %s process",
    async (which) => {
      const gateway = createGateway({ config: oneService(9) });
      onTestFinished(async () => void (await gateway.close(0)));
      const admin = await startAdmin({ gateway });
      const { port } = await startManager(which === "another" ? admin.port : admin.admin);
      const cookie = await admin.session();
      const question = '{"method":"GET","url":"/"}';
      const asking = await connect(port);
      asking.send(
        `POST /api/gateway/explain HTTP/1.1\r\nHost: localhost\r\nCookie: ${cookie}\r\nContent-Type: ` +
          `application/json\r\nExpect: 100-continue\r\nContent-Length: ${question.length}\r\n\r\n`,
      );
      await asking.until("HTTP/1.1 100 Continue\r\n\r\n");
      asking.send(question);
      await asking.until('"outcome":');
      const tail = await connect(port);
      tail.send(`GET /api/gateway/tail HTTP/1.1\r\nHost: localhost\r\nCookie: ${cookie}\r\n\r\n`);
      await tail.until("retry: ");
      const closed = admin.admin.close();
      await tail.until("\r\n0\r\n\r\n");
      await closed;
    },
  );

  it("refuses WebSockets", async () => {
    const { port } = await startManager(9);
    for (const path of ["/", "/api/gateway"]) {
      const talk = await connect(port);
      talk.send(
        `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: ` +
          `websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`,
      );
      expect(await talk.closed()).toMatch(/^HTTP\/1\.1 400 /);
    }
  });
});

describe("connections", () => {
  it("connections get 400 for bytes that are no request, and 431 for a head that is too large", async () => {
    const { port } = await startManager(9);
    const [noise, large] = [await connect(port), await connect(port)];
    noise.send("nonsense\r\n\r\n");
    expect(await noise.closed()).toMatch(/^HTTP\/1\.1 400 /);
    large.send(`GET / HTTP/1.1\r\nHost: localhost\r\nX: ${"x".repeat(17 * 1024)}\r\n\r\n`);
    expect(await large.closed()).toMatch(/^HTTP\/1\.1 431 /);
  });

  it("connections end at once on close if they are idle or event streams, and free the port", async () => {
    let asked = 0;
    const backend = await rawOrigin((_request, response) => {
      asked++;
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write("data: 1\n\n");
    });
    onTestFinished(() => backend.close());
    const { manager, port } = await startManager(backend.port);
    const [idle, stream] = [await connect(port), await connect(port)];
    stream.send("GET /api/gateway/tail HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await stream.until("data: 1\n\n");
    expect(asked).toBe(1);
    await Promise.all([manager.close(), manager.close(), idle.closed(), stream.closed()]);
    await eventually(() => backend.connections.open === 0, "the connections to the upstream closing");
    expect((await refused(port)).code).toBe("ECONNREFUSED");
  });

  it("may finish a pending reply on close, for two seconds at most", async () => {
    const waiting: (() => void)[] = [];
    const backend = await rawOrigin((_request, response) => void waiting.push(() => response.end("{}")));
    onTestFinished(() => backend.close());
    const { manager, port, clock } = await startManager(backend.port);
    const [first, second] = [await connect(port), await connect(port)];
    for (const talk of [first, second]) talk.send("GET /api/gateway HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await eventually(() => waiting.length === 2, "two requests at the server");
    const closed = manager.close();
    waiting[0]!();
    const one = await Promise.race([first.closed(), second.closed()]);
    expect(one).toMatch(/^HTTP\/1\.1 200 OK/);
    clock.advance(1_999);
    await eventually(() => backend.connections.open === 1, "a connection to the upstream");
    clock.advance(1);
    await closed;
    await eventually(() => backend.connections.open === 0, "the connections to the upstream closing");
  });

  it("cannot arrive after a failed start: listen rejects with the error", async () => {
    const { port } = await startManager(9);
    const { manager } = await startManager(await closedPort());
    await expect(manager.listen({ host: "127.0.0.1", port })).rejects.toMatchObject({ code: "EADDRINUSE" });
  });
});

describe("the management UI over TLS", () => {
  const pair = (of: { cert: string; key: string }) => ({ cert: Buffer.from(of.cert), key: Buffer.from(of.key) });

  function get(
    port: number,
    path: string,
    headers: Record<string, string> = {},
    method = "GET",
  ): Promise<{ status: number; serial: string }> {
    return new Promise((resolve, reject) => {
      const asking = tlsRequest(
        {
          host: "127.0.0.1",
          port,
          path,
          method,
          headers,
          agent: false,
          ca: [CA.cert, OTHER_CA.cert],
          checkServerIdentity: () => undefined,
        },
        (response) => {
          const serial = (response.socket as tls.TLSSocket).getPeerX509Certificate()!.serialNumber;
          response.resume().on("end", () => resolve({ status: response.statusCode!, serial }));
        },
      );
      asking.on("error", reject).end();
    });
  }

  it("the management UI over TLS serves HTTP/1.1 and HTTP/2 without asking for a client certificate", async () => {
    const admin = await startAdmin();
    const { port } = await startManager(admin.port, { tls: pair(SERVER) });
    expect((await get(port, "/")).status).toBe(200);
    expect((await get(port, "/api/healthz")).status).toBe(200);
    expect((await get(port, "/api/logout", { Origin: `https://127.0.0.1:${port}` }, "DELETE")).status).toBe(204);
    expect((await get(port, "/api/logout", { Origin: `http://127.0.0.1:${port}` }, "DELETE")).status).toBe(403);
    const { headers } = await h2Ask(await h2TlsSession(port), { path: "/api/readyz", headers: { cookie: "a=1" } });
    expect(headers).toMatchObject({ ":status": 200, ...FIRM });
  });

  it("the management UI over TLS serves no plain HTTP on that port", async () => {
    const { port } = await startManager(9, { tls: pair(SERVER) });
    const talk = await connect(port);
    talk.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect(await talk.closed()).not.toContain("200");
  });

  it("the management UI over TLS shows a renewed certificate to new connections", async () => {
    const { port, manager } = await startManager(9, { tls: pair(SERVER) });
    const before = (await get(port, "/")).serial;
    manager.renewTls(pair(RENEWED));
    expect((await get(port, "/")).serial).not.toBe(before);
    expect(() => manager.renewTls({ cert: Buffer.from("x"), key: Buffer.from("y") })).toThrow();
    expect((await get(port, "/")).status).toBe(200);
  });

  it("the management UI over TLS ignores a renewed certificate on plain HTTP", async () => {
    const { ask: plain, manager } = await startManager(9);
    manager.renewTls(pair(RENEWED));
    expect((await plain("GET", "/")).status).toBe(200);
  });
});

it("the management UI serves its pages without an admin interface", async () => {
  const { port } = await startManager(await closedPort());
  expect((await ask(port)).status).toBe(200);
});
