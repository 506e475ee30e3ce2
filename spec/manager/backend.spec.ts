import https from "node:https";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { failureOf } from "../../lib/manager/backend.ts";
import { startAdmin } from "../admin/harness.ts";
import { CA, EXPIRED, SERVER, STRANGER } from "../support/certs.ts";
import { OTHER_CA, SHOP } from "../support/more_certs.ts";
import { problemOf, startManager } from "./harness.ts";

type Pem = { readonly cert: string; readonly key: string };

async function secureAdmin(pair: Pem) {
  let requests = 0;
  const server = https.createServer({ cert: pair.cert, key: pair.key }, (_request, response) => {
    requests++;
    response.end("{}");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close().closeAllConnections());
  return { url: `https://localhost:${(server.address() as AddressInfo).port}`, requests: () => requests };
}

const signedBy = (ca: string | null) => (ca === null ? {} : { ca: Buffer.from(ca) });

describe("an admin interface over HTTPS", () => {
  it("an admin interface over HTTPS receives requests when the configured CA has signed its certificate", async () => {
    const admin = await secureAdmin(SERVER);
    const { ask } = await startManager(admin.url, signedBy(CA.cert));
    expect((await ask("GET", "/api/gateway")).status).toBe(200);
    const byAddress = await startManager(admin.url.replace("localhost", "127.0.0.1"), signedBy(CA.cert));
    expect((await byAddress.ask("GET", "/api/gateway")).status).toBe(200);
  });

  it.each([
    [
      "no known authority has signed it",
      SERVER,
      signedBy(null),
      /signed by a trusted authority.*MANAGER_BACKEND_CA_PATH/,
    ],
    ["another authority has signed it", SERVER, signedBy(OTHER_CA.cert), /signed by a trusted authority/],
    ["it is a client's", STRANGER, signedBy(CA.cert), /not a server certificate/],
    ["it is for another name", SHOP, signedBy(OTHER_CA.cert), /not valid for the host name/],
    ["it has expired", EXPIRED, signedBy(CA.cert), /expired/],
  ] as [string, Pem, { ca?: Buffer }, RegExp][])(
    "an admin interface over HTTPS gets no byte, and the client 502, when %s",
    async (_what, pair, trusted, detail) => {
      const admin = await secureAdmin(pair);
      const { ask } = await startManager(admin.url, trusted);
      const got = problemOf(await ask("POST", "/api/login", { headers: { Authorization: "Basic eDp5" } }));
      expect(got.slice(0, 2)).toEqual([502, "upstream_connect_failed"]);
      expect(got[2]).toMatch(detail);
      expect(admin.requests()).toBe(0);
    },
  );

  it("an admin interface over HTTPS needs a valid certificate even if NODE_TLS_REJECT_UNAUTHORIZED is 0", async () => {
    const before = process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
    onTestFinished(() => {
      if (before === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
      else process.env.NODE_TLS_REJECT_UNAUTHORIZED = before;
    });
    const admin = await secureAdmin(STRANGER);
    const { ask } = await startManager(admin.url);
    expect((await ask("GET", "/api/gateway")).status).toBe(502);
  });

  it("an admin interface over HTTPS differs in the error from an admin interface without TLS", async () => {
    const plain = await startAdmin();
    const { ask } = await startManager(`https://127.0.0.1:${plain.port}`, signedBy(CA.cert));
    expect(problemOf(await ask("GET", "/api/healthz"))[2]).toMatch(/does not speak TLS/);
    const secure = await secureAdmin(SERVER);
    const other = await startManager(secure.url.replace("https:", "http:").replace("localhost", "127.0.0.1"));
    expect(problemOf(await other.ask("GET", "/api/healthz"))[2]).toMatch(
      /with ADMIN_TLS=true it speaks HTTPS|does not speak HTTP/,
    );
  });
});

describe("the detail of a failure", () => {
  it.each([
    ["ENOTFOUND", "its name has no address (ENOTFOUND)."],
    ["EHOSTUNREACH", "its address cannot be reached (EHOSTUNREACH)."],
    ["ENOBUFS", "ENOBUFS."],
    ["http://secret", "the connection failed."],
    ["", "the connection failed."],
  ])("the detail of a failure describes the code %j as %j", (code, end) => {
    expect(failureOf(Object.assign(new Error("10.0.0.1 secret"), { code })).detail).toBe(
      `The admin interface does not answer: ${end}`,
    );
  });
});
