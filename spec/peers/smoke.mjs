// Runs the built gateway on the Node that runs this file: start, one proxied request, a login, SIGTERM. Exits 0 when all of it works.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const program = fileURLToPath(new URL("../../dist/bin/edge-gateway.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "edge-gateway-smoke-"));
const backend = createServer((request, response) => response.end(`got ${request.url}`));
backend.listen(0, "127.0.0.1");
await once(backend, "listening");

const config = {
  services: [{ name: "s", base_path: "/a", upstreams: [{ host: "127.0.0.1", port: backend.address().port }], routes: [{ path: "/{id}" }] }],
};
writeFileSync(join(folder, "gw.json"), JSON.stringify(config));
const gateway = spawn(process.execPath, [program, "--config", join(folder, "gw.json"), "--http-port", "0", "--admin-port", "0", "--listen-host", "127.0.0.1"], {
  env: { ADMIN_USER: "admin", ADMIN_PASSWORD: "smoke", LOG_FORMAT: "text" },
  stdio: ["ignore", "ignore", "pipe"],
});
const deadline = setTimeout(() => gateway.kill("SIGKILL"), 20_000);
try {
  let said = "";
  for await (const chunk of gateway.stderr) {
    said += chunk;
    if (/^ {2}reload/m.test(said)) break;
  }
  const url = /^ {2}http +(\S+)/m.exec(said)?.[1];
  const admin = /^ {2}admin +(\S+)/m.exec(said)?.[1];
  assert(url && admin, `the gateway said: ${said}`);
  assert.equal(await (await fetch(`${url}/a/7`)).text(), "got /7");
  const authorization = `Basic ${Buffer.from("admin:smoke").toString("base64")}`;
  const login = await fetch(`${admin}/login`, { method: "POST", headers: { authorization } });
  assert.equal(login.status, 200);
  assert.match(login.headers.get("set-cookie"), /^token=.+HttpOnly; Secure/);
  const exited = once(gateway, "exit");
  gateway.kill("SIGTERM");
  assert.deepEqual(await exited, [0, null]);
  console.log(`smoke on Node ${process.version}: ok`);
} finally {
  clearTimeout(deadline);
  gateway.kill("SIGKILL");
  backend.close();
  backend.closeAllConnections();
  rmSync(folder, { recursive: true, force: true });
}
