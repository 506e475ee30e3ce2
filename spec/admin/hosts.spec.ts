import { describe, expect, it } from "vitest";
import { CERT, KEY } from "./certificate.ts";
import { RIGHT, startAdmin } from "./harness.ts";

describe("a request over plain HTTP under a name that is not in ADMIN_HOSTS", () => {
  it.each(["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT"])(
    "a request over plain HTTP under a name that is not in ADMIN_HOSTS gets 421 for %s on every path, " +
      "before its credentials are checked",
    async (method) => {
      const { ask, session, login } = await startAdmin();
      const headers = { host: "evil.example", cookie: await session(), authorization: RIGHT };
      for (const path of ["/login", "/logout", "/gateway", "/metrics", "/healthz", "/readyz", "/nowhere"]) {
        const got = await ask(method, path, { headers });
        expect([got.status, got.headers["set-cookie"]]).toEqual([421, undefined]);
        if (method !== "HEAD")
          expect(got.json).toMatchObject({
            code: "misdirected",
            detail: expect.stringContaining("ADMIN_HOSTS") as string,
          });
      }
      // No failure was counted, and no session ended.
      expect((await ask("GET", "/gateway", { headers: { cookie: headers.cookie } })).status).toBe(200);
      expect((await login()).status).toBe(200);
    },
  );

  it("the request is recognised by the host of an absolute-form target, which overrides Host", async () => {
    const { ask } = await startAdmin({ hosts: ["gateway.lan"] });
    expect((await ask("GET", "http://evil.example/healthz", { headers: { host: "localhost" } })).status).toBe(421);
    expect((await ask("GET", "http://gateway.lan/healthz", { headers: { host: "evil.example" } })).status).toBe(200);
  });

  it(
    "a request over plain HTTP under a name that is not in ADMIN_HOSTS does not use up " + "the guesses of its address",
    async () => {
      const { ask, login } = await startAdmin();
      for (let i = 0; i < 10; i++)
        expect(
          (await ask("POST", "/login", { headers: { host: "evil.example", authorization: "Basic eDp5" } })).status,
        ).toBe(421);
      expect((await login()).status).toBe(200);
    },
  );
});

describe("a host that is known", () => {
  it("a known host is an IP address, localhost, a name in ADMIN_HOSTS, or none at all in HTTP/1.0", async () => {
    const { ask, port, raw } = await startAdmin({ hosts: ["gateway.lan"] });
    for (const host of ["127.0.0.1", `[::1]:${port}`, "localhost:1", "Gateway.LAN"]) {
      expect((await ask("GET", "/healthz", { headers: { host } })).status).toBe(200);
    }
    expect(await raw("GET /healthz HTTP/1.0\r\n\r\n")).toMatch(/^HTTP\/1\.1 200 /);
  });

  it("a known host is any host over HTTPS, where the certificate proves the name", async () => {
    const { ask } = await startAdmin({ tls: { cert: CERT, key: KEY } });
    expect((await ask("GET", "/healthz", { headers: { host: "admin.example" } })).status).toBe(200);
  });
});
