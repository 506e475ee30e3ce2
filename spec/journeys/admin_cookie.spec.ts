/**
 * Sessions of the admin interface, which browsers send to every port of a host, and the upstreams behind the traffic
 * ports.
 */
import { describe, expect, it } from "vitest";
import { signJwt } from "../../lib/base/jwt.ts";
import { HANDSHAKE } from "../gateway/plugins.ts";
import { startAdmin } from "../admin/harness.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { runningProgram } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";
import { backend, byteBackend, client } from "./harness.ts";

const theirs = signJwt({ sub: "ann", iss: "shop", aud: "shop" }, "k");
const reflecting = () => backend((request, response) => void response.end(request.headers.cookie ?? "none"));

describe("a session of the admin interface", () => {
  it(
    "a session of the admin interface reaches no upstream and no auth server, over HTTP/1.1 and HTTP/2, " +
      "and an application's own token does",
    async () => {
      const { session } = await startAdmin();
      const [origin, auth] = [await reflecting(), await reflecting()];
      const plugins = [{ name: "forward_auth", config: { url: `http://127.0.0.1:${auth.port}/`, timeout_ms: 60_000 } }];
      const { port } = await running(oneService(origin.port, { plugins }, { h2c: true }), { adminCookie: "token" });
      const ours = await session();
      const cookie = `a=b; ${ours}; token=${theirs}`;
      expect((await ask(port, { path: "/a/x", headers: { cookie } })).body.toString()).toBe(`a=b; token=${theirs}`);
      expect((await ask(port, { path: "/a/x", headers: { cookie: ours } })).body.toString()).toBe("none");
      const http2 = h2Session(port);
      expect((await h2Ask(http2, { path: "/a/x", headers: { cookie } })).body).toBe(`a=b; token=${theirs}`);
      http2.close();
      const secret = ours.slice("token=".length);
      for (const { headers } of [...origin.seen, ...auth.seen]) expect(headers.join()).not.toContain(secret);
    },
  );

  it("a session of the admin interface reaches no upstream with a WebSocket", async () => {
    const { session } = await startAdmin();
    const heads: string[] = [];
    const origin = await byteBackend(
      (socket) =>
        void socket.once("data", (chunk: Buffer) => {
          heads.push(chunk.toString());
          socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }),
    );
    const { port } = await running(oneService(origin.port), { adminCookie: "token" });
    const connection = await client(port);
    connection.send(HANDSHAKE.replace("\r\n", `\r\nCookie: a=b; ${await session()}\r\nConnection: close\r\n`));
    await connection.closed();
    expect(heads.join()).toMatch(/^cookie: a=b\r$/im);
  });

  it(
    "a session of the admin interface is dropped by the program if it has an admin interface, " +
      "by the name in ADMIN_COOKIE_NAME",
    async () => {
      const origin = await reflecting();
      const settings = { ADMIN_USER: "admin", ADMIN_PASSWORD: "right", ADMIN_PORT: "0" };
      for (const name of ["token", "edge-gateway.session"]) {
        const { started } = await runningProgram(oneService(origin.port), [], { ...settings, ADMIN_COOKIE_NAME: name });
        const login = await fetch(`${String(started.admin)}/login`, {
          method: "POST",
          headers: { authorization: `Basic ${btoa("admin:right")}` },
        });
        const [ours, device] = login.headers.getSetCookie().map((line) => line.split(";")[0]!);
        expect(ours!.startsWith(`${name}=ey`) && device!.startsWith(`${name}-device=ey`)).toBe(true);
        expect((await fetch(`${String(started.admin)}/gateway`, { headers: { cookie: ours! } })).status).toBe(200);
        const traffic = new URL("/a/x", (started.http as string[])[0]);
        const headers = { cookie: `${device!}; ${ours!}; token=own` };
        expect(await (await fetch(traffic, { headers })).text()).toBe("token=own");
      }
      const { started } = await runningProgram(oneService(origin.port), [], {});
      const kept = `token=${signJwt({ iss: "edge-gateway", aud: "edge-gateway-admin" }, "k")}`;
      expect(
        await (await fetch(new URL("/a/x", (started.http as string[])[0]), { headers: { cookie: kept } })).text(),
      ).toBe(kept);
    },
  );
});

describe("ADMIN_COOKIE_NAME", () => {
  it(
    "ADMIN_COOKIE_NAME names the cookie of a login, of a logout, " +
      "and of the 401 that tells of another program's cookie",
    async () => {
      const { ask: admin, session } = await startAdmin({ cookie: "gw" });
      const cookie = await session();
      const told = async (sent: string) => {
        const { status, headers, json } = await admin("GET", "/gateway", { headers: { cookie: sent } });
        return [status, json.cookie, headers["www-authenticate"]] as const;
      };
      const challenge = 'Cookie realm="edge-gateway admin", form-action="/login", cookie-name="gw"';
      expect(cookie.startsWith("gw=ey")).toBe(true);
      expect((await told(`token=x; ${cookie}`))[0]).toBe(200);
      expect(await told(cookie.replace("gw=", "token="))).toEqual([401, undefined, challenge]);
      expect(await told(`gw=${theirs}`)).toEqual([401, "gw", challenge]);
      expect((await admin("DELETE", "/logout")).headers["set-cookie"]).toEqual([
        "gw=; HttpOnly; Secure; SameSite=Strict; Path=/; Max-Age=0",
      ]);
    },
  );
});
