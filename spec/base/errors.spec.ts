import net from "node:net";
import tls from "node:tls";
import { describe, expect, it } from "vitest";
import { connectFailure } from "../../lib/base/errors.ts";
import { CA, SERVER } from "../support/certs.ts";
import { listening } from "../support/loopback.ts";

describe("why there is no connection", () => {
  it("names the failure of each address that was tried", () => {
    const errors = [new Error("connect ECONNREFUSED 127.0.0.1:80"), new Error("connect ETIMEDOUT ::1:80")];
    expect(connectFailure(new AggregateError(errors))).toBe(
      "connect ECONNREFUSED 127.0.0.1:80, connect ETIMEDOUT ::1:80",
    );
    expect(connectFailure(errors[0]!)).toBe("connect ECONNREFUSED 127.0.0.1:80");
  });

  const own = { cert: SERVER.cert, key: SERVER.key, ca: CA.cert, requestCert: true, rejectUnauthorized: true };

  it.each([
    [
      "requires a client certificate, with TLS 1.3",
      () => tls.createServer({ ...own, maxVersion: "TLSv1.3" }),
      /^TLS: [\w/ ]*alert certificate required$/,
    ],
    [
      "requires a client certificate, with TLS 1.2",
      () => tls.createServer({ ...own, maxVersion: "TLSv1.2" }),
      /^TLS: [\w/ ]*alert handshake failure$/,
    ],
    ["does not speak TLS", () => net.createServer((socket) => void socket.end("-ERR no\r\n")), /^TLS: [\w ]+$/],
  ])("is in one line, without OpenSSL's numbers and files, where the server %s", async (_what, server, said) => {
    const socket = tls.connect({ port: await listening(server()), host: "127.0.0.1", rejectUnauthorized: false });
    const error = await new Promise<Error>((resolve) => socket.once("error", resolve).resume());
    expect(connectFailure(error)).toMatch(said);
  });
});
