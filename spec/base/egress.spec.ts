import { once } from "node:events";
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { Egress } from "../../lib/base/egress.ts";
import { destinationOf } from "../../lib/base/url_destination.ts";
import { agentOf, requestBy } from "../../lib/base/egress_clients.ts";

async function listening() {
  const accepted = { count: 0 };
  const server = net.createServer((socket) => {
    accepted.count++;
    socket.on("error", () => {});
    socket.end("HTTP/1.1 204 No Content\r\n\r\n");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { accepted, port: (server.address() as AddressInfo).port };
}

const REFUSED = (host: string, port: number, why: string) =>
  `no connection is opened to ${host} port ${port} (${why}): neither the configuration nor a setting names this server`;

describe("Egress", () => {
  it("opens a connection to a destination that it is given", async () => {
    const { port } = await listening();
    const egress = new Egress([{ host: "127.0.0.1", port, why: "upstream" }]);
    const socket = egress.dialer({ host: "127.0.0.1", port, why: "upstream" })({}, null);
    await once(socket, "connect");
    socket.destroy();
  });

  it.each([
    ["another host", { host: "127.0.0.2" }],
    ["another port", { port: 1 }],
    ["another reason", { why: "jwks" }],
    ["a host in other letters", { host: "LOCALHOST" }],
  ])("throws, and opens no connection, for %s", async (_what, change) => {
    const { port, accepted } = await listening();
    const egress = new Egress([{ host: "127.0.0.1", port, why: "upstream" }]);
    const to = { host: "127.0.0.1", port, why: "upstream", ...change };
    expect(() => egress.dialer(to)).toThrow(REFUSED(to.host, to.port, to.why));
    expect(accepted.count).toBe(0);
  });

  it('the host "*" permits every host, at its port and for its reason only', () => {
    const egress = new Egress([{ host: "*", port: 6379, why: "redis" }]);
    expect(egress.permits({ host: "10.0.0.7", port: 6379, why: "redis" })).toBe(true);
    expect(egress.permits({ host: "10.0.0.7", port: 6380, why: "redis" })).toBe(false);
    expect(egress.permits({ host: "10.0.0.7", port: 6379, why: "upstream" })).toBe(false);
  });

  it("a request by its agent succeeds at a destination that it is given, and fails at all others", async () => {
    const { port, accepted } = await listening();
    const egress = new Egress([{ host: "127.0.0.1", port, why: "jwks" }]);
    const agent = agentOf(egress, "jwks", "http:", {});
    const ask = (options: http.RequestOptions) =>
      once(requestBy(agent, options).end(), "response").then(
        ([response]) => (response as http.IncomingMessage).statusCode,
      );
    expect(await ask({ host: "127.0.0.1", port })).toBe(204);
    await expect(ask({ host: "127.0.0.1", port: 1 })).rejects.toThrow(REFUSED("127.0.0.1", 1, "jwks"));
    const secure = agentOf(egress, "jwks", "https:", {});
    await expect(once(requestBy(secure, { host: "localhost", port }).end(), "response")).rejects.toThrow(
      REFUSED("localhost", port, "jwks"),
    );
    expect(accepted.count).toBe(1);
  });

  it("a URL without a port has the port of its scheme, and IPv6 addresses lose their brackets", () => {
    const texts = ["http://a.example/x", "https://a.example", "http://[::1]:81/", "https://A.example:8443"];
    expect(texts.map((text) => destinationOf(new URL(text), "w"))).toEqual([
      { host: "a.example", port: 80, why: "w" },
      { host: "a.example", port: 443, why: "w" },
      { host: "::1", port: 81, why: "w" },
      { host: "a.example", port: 8443, why: "w" },
    ]);
  });
});
