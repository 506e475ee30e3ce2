import { cpSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../support/documents.ts";
import { emptyFolder, fileWith, program, PROGRAM } from "../support/process.ts";

const config = (...plugins: readonly object[]) => ({
  services: [
    { name: "s", base_path: "/", upstreams: [{ host: "127.0.0.1", port: 1 }], plugins, routes: [{ path: "/" }] },
  ],
});

/** A copy of the program that may be changed. */
function copied(): string {
  const folder = emptyFolder();
  cpSync(dirname(dirname(PROGRAM)), join(folder, "dist"), { recursive: true });
  cpSync(join(root, "package.json"), join(folder, "package.json"));
  return folder;
}

describe("a gateway whose program files are replaced while it runs", () => {
  it.each([
    ["is gone", (path: string) => rmSync(path), "Cannot find module"],
    [
      "needs what the loaded part does not have",
      (path: string) => writeFileSync(path, `import { later } from "../http/reply.js"; export const acl = later;`),
      "does not provide an export named 'later'",
    ],
  ])(
    "refuses a reload whose part %s and says to restart; other reloads still work",
    { timeout: 30_000 },
    async (_what, replace, reason) => {
      const folder = copied();
      const file = fileWith(config());
      const { child, says, stderr } = program(["--config", file, "--http-port", "0", "--listen-host", "127.0.0.1"], {
        main: join(folder, "dist/bin/edge-gateway.js"),
      });
      await says(" started");
      replace(join(folder, "dist/lib/plugins/acl.js"));
      writeFileSync(file, JSON.stringify(config({ name: "acl", config: { blacklist: ["10.0.0.1"] } })));
      child.kill("SIGHUP");
      await says("reload refused");
      expect(stderr()).toContain(
        "a part of the program cannot be loaded; if its files were replaced since it started, restart it: ",
      );
      expect(stderr()).toContain(reason);
      writeFileSync(file, JSON.stringify(config({ name: "request_termination", config: { status: 204 } })));
      await says("configuration reloaded");
    },
  );

  it(
    "answers a request of the admin interface whose part is gone with 500, and its log says to restart; " +
      "other requests still work",
    { timeout: 30_000 },
    async () => {
      const folder = copied();
      const admin = { ADMIN_USER: "a", ADMIN_PASSWORD: "a long password", ADMIN_PORT: "0" };
      const { says, stderr } = program(
        ["--config", fileWith(config()), "--http-port", "0", "--listen-host", "127.0.0.1"],
        { main: join(folder, "dist/bin/edge-gateway.js"), environment: admin },
      );
      await says(" started");
      const [, url] = /"admin":"([^"]+)"/.exec(stderr())!;
      rmSync(join(folder, "dist/lib/admin/explain_request.js"));
      const login = await fetch(`${url}/login`, {
        method: "POST",
        headers: { Authorization: `Basic ${btoa("a:a long password")}` },
      });
      const headers = { Cookie: login.headers.get("set-cookie")!.split(";")[0]!, "Content-Type": "application/json" };
      const asked = await fetch(`${url}/gateway/explain`, {
        method: "POST",
        headers,
        body: '{"method":"GET","url":"/"}',
      });
      expect(asked.status).toBe(500);
      await says("a part of the program cannot be loaded");
      expect(stderr()).toContain("if its files were replaced since it started, restart it: Cannot find module");
      expect((await fetch(`${url}/gateway/status`, { headers })).status).toBe(200);
    },
  );
});
