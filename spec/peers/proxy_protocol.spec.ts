/** A gateway behind Debian's HAProxy, and before it: they say by the PROXY protocol whose a connection is. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import tls from "node:tls";
import { expect, it, onTestFinished } from "vitest";
import { CA, SERVER } from "../support/certs.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { freePort } from "../support/origin.ts";
import { ask, connect, eventually, overSocket } from "../support/raw_client.ts";
import { soon } from "./browser.ts";
import { emptyFolder } from "./built.ts";
import { haproxyWith } from "./haproxy.ts";
import { nginxListening, nginxPassingTo } from "./nginx.ts";

/** Not trusted: HAProxy connects from 127.0.0.1. */
const CLIENT = "127.0.0.7";
const GET = "GET /a/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const TLS = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };

/** From `CLIENT`, over HTTP and over TLS. */
async function askBoth(plainFront: number, secureFront: number): Promise<void> {
  const plain = await connect(plainFront, CLIENT);
  plain.send(GET);
  expect(await plain.closed()).toMatch(/^HTTP\/1\.1 200 /);
  const below = (await connect(secureFront, CLIENT)).socket.removeAllListeners("data");
  const socket = tls.connect({ socket: below, ca: CA.cert, servername: "localhost" });
  onTestFinished(() => void socket.destroy());
  const connection = overSocket(socket);
  connection.send(GET);
  expect(await connection.closed()).toMatch(/^HTTP\/1\.1 200 /);
}

it("takes headers of nginx before HTTP and before TLS", async () => {
  const upstream = await backend();
  const global = { trusted_proxies: ["127.0.0.1"], proxy_protocol: "require" } as const;
  const { gateway, port } = await running(oneService(upstream.port, {}, global));
  const secure = await gateway.listen({ port: 0, tls: TLS });
  await askBoth(await nginxPassingTo(port), await nginxPassingTo(secure.port));
  const forwarded = upstream.seen.map(({ headers }) => headers[headers.indexOf("X-Forwarded-For") + 1]);
  expect(forwarded).toEqual([CLIENT, CLIENT]);
});

it.each([
  ["version 1", "send-proxy check-send-proxy"],
  ["version 2", "send-proxy-v2 check-send-proxy"],
  [
    "version 2 with other values and a checksum",
    "send-proxy-v2 check-send-proxy proxy-v2-options crc32c,unique-id,authority",
  ],
])("takes headers of HAProxy, %s, before HTTP and before TLS, and its checks", async (_version, options) => {
  const upstream = await backend();
  const global = { trusted_proxies: ["127.0.0.1"], proxy_protocol: "require" } as const;
  const { gateway, port } = await running(oneService(upstream.port, {}, global));
  const secure = await gateway.listen({ port: 0, tls: TLS });
  const [plainFront, secureFront] = [await freePort(), await freePort()];
  const front = (name: string, front: number, to: number) =>
    `listen ${name}\n bind 127.0.0.1:${front}\n unique-id-format id\n server gw 127.0.0.1:` +
    `${to} ${options} check inter 50ms`;
  await haproxyWith(
    [plainFront, secureFront],
    front("plain", plainFront, port),
    front("secure", secureFront, secure.port),
  );
  await askBoth(plainFront, secureFront);
  const forwarded = upstream.seen.map(({ headers }) => headers[headers.indexOf("X-Forwarded-For") + 1]);
  expect(forwarded).toEqual([CLIENT, CLIENT]);
  // Its checks are connections with a header that says so; none was refused.
  expect(gateway.metrics()).toMatch(/^edge_gateway_client_connections_refused_total 0$/m);
  await eventually(() => gateway.status.inFlight === 0);
});

it.each(["v1", "v2"] as const)(
  "HAProxy and nginx behind it know the client by its headers, %s, and its checks",
  async (version) => {
    const [plain, secure] = [await freePort(), await freePort()];
    const certificate = join(emptyFolder(), "server.pem");
    writeFileSync(certificate, SERVER.cert + SERVER.key);
    const says = 'http-request return status 200 content-type text/plain lf-string "%[src]"';
    await haproxyWith(
      [plain, secure],
      `frontend plain\n mode http\n bind 127.0.0.1:${plain} accept-proxy\n ${says}`,
      `frontend secure\n mode http\n bind 127.0.0.1:${secure} accept-proxy ssl crt ${certificate}\n ${says}`,
    );
    const nginx = await nginxListening("proxy_protocol", "location / { return 200 $proxy_protocol_addr; }");
    const told = { "X-Forwarded-For": "192.0.2.77" };
    for (const [port, protocol] of [
      [plain, "http"],
      [secure, "https"],
      [nginx, "http"],
    ] as const) {
      const tls = protocol === "https" ? { tls: { verify: false } } : {};
      const health = { enabled: true, path: "/", interval_ms: 100 };
      const service = { protocol, proxy_protocol: version, health, ...tls };
      const made = await running(oneService(port, service, { trusted_proxies: ["127.0.0.1"] }));
      for (let i = 0; i < 2; i++) {
        const reply = await ask(made.port, { path: "/a/x", headers: told });
        expect([port, reply.status, reply.body.toString()]).toEqual([port, 200, "192.0.2.77"]);
      }
      await soon(async () => made.gateway.health.services[0]!.upstreams[0]!.state).toBe("healthy");
    }
  },
);
