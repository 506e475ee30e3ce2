import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { readSettings } from "../../lib/config/settings.ts";
import { version } from "../../lib/index.ts";
import { backend } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { json, fullGateway } from "./full_gateway.ts";

describe("9. Versioning", () => {
  it("rule 1: paths of the admin interface carry no version prefix", async () => {
    const { admin, login } = await fullGateway({ services: [] });
    const Cookie = `token=${await login()}`;
    for (const path of ["/gateway", "/gateway/config"]) {
      expect((await admin("GET", path, { Cookie })).status).toBe(200);
      expect((await admin("GET", `/v1${path}`, { Cookie })).status).toBe(404);
    }
  });

  it("rule 1: paths of the traffic interface are base_path and route path, without a prefix", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway({
      services: [
        { name: "s", base_path: "/s", upstreams: [{ host: "127.0.0.1", port: origin.port }], routes: [{ path: "/r" }] },
      ],
    });
    expect((await proxy("/s/r")).status).toBe(200);
    expect((await proxy("/v1/s/r")).status).toBe(404);
    expect((await proxy("/0.1/s/r")).status).toBe(404);
  });

  it(
    "rule 2: the release is major.minor or major.minor.patch, " + "one for the package and the admin interface",
    async () => {
      expect(version).toMatch(/^\d+\.\d+(\.\d+)?(-[\w.]+)?$/);
      const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
        version: string;
      };
      expect(version).toBe(manifest.version);
      const { admin, login } = await fullGateway({ services: [] });
      expect(json(await admin("GET", "/healthz", { Cookie: `token=${await login()}` })).version).toBe(version);
      expect(json(await admin("GET", "/healthz"))).not.toHaveProperty("version");
    },
  );

  it(
    "rule 2: the proxy and the management UI share the release, " +
      "which the UI shows from the proxy it is attached to",
    async () => {
      const { started, login } = await fullGateway({ services: [] }, { MANAGER: "true" });
      const port = Number(new URL(started.managerUrl!).port);
      expect((await ask(port)).headers["content-type"]).toBe("text/html; charset=utf-8");
      const status = await ask(port, { path: "/api/gateway/status", headers: { Cookie: `token=${await login()}` } });
      expect(json(status).version).toBe(version);
    },
  );

  it(
    "rule 3: both reference start-ups are accepted: 0.1 with TLS settings and dbless, " +
      "and 0.4.1 with three settings",
    () => {
      const first = {
        SERVER_CERT_PATH: "/c",
        SERVER_KEY_PATH: "/k",
        CA_CERT_PATH: "/ca",
        PERSISTENCE_CONFIG: "dbless",
        CONFIG_FILE_PATH: "/gw.json",
        ADMIN_USER: "u",
        ADMIN_PASSWORD: "p",
      };
      const later = { CONFIG_FILE_PATH: "/gw.json", ADMIN_USER: "u", ADMIN_PASSWORD: "p" };
      expect(readSettings({}, first)).toMatchObject({
        ok: true,
        settings: { serverCertPath: "/c", clientAuth: "request" },
      });
      expect(readSettings({}, later)).toMatchObject({
        ok: true,
        settings: { serverCertPath: null, clientAuth: "none", persistence: "dbless" },
      });
    },
  );
});
