// Runs the built gateway on the Node that runs this file: start, one proxied request, a login, SIGTERM; on Node 26 with
// SEAL as well. Exits 0 when all of it works.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const program = fileURLToPath(new URL("../../dist/bin/edge-gateway.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "edge-gateway-smoke-"));
const backend = createServer((request, response) => response.end(`got ${request.url}`));
backend.listen(0, "127.0.0.1");
await once(backend, "listening");

const peek = `import { readFileSync } from "node:fs";
export default (kit) => kit.definePlugin({ name: "peek", schema: kit.schema.object({}), create: () => () => () => ({ \
status: 200, headers: [], body: readFileSync("/etc/passwd") }) });
`;
writeFileSync(join(folder, "peek.mjs"), peek);
const config = {
  global: { plugin_modules: [{ path: "peek.mjs", sha256: createHash("sha256").update(peek).digest("hex") }] },
  services: [
    {
      ...{ name: "s", base_path: "/a", upstreams: [{ host: "127.0.0.1", port: backend.address().port }] },
      routes: [{ path: "/{id}" }, { path: "/passwd", plugins: [{ name: "peek" }] }],
    },
  ],
};
const file = join(realpathSync(folder), "gw.json");
writeFileSync(file, JSON.stringify(config));
const words = [program, "--config", file, "--http-port", "0", "--admin-port", "0", "--listen-host", "127.0.0.1"];
const env = { ADMIN_USER: "admin", ADMIN_PASSWORD: "smoke", LOG_FORMAT: "text" };

/** `peeked`: the status of a request for which a plugin module reads a file. */
async function smoke(flags, more, peeked) {
  const gateway = spawn(process.execPath, [...flags, ...words], {
    env: { ...env, ...more },
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
    assert.equal((await fetch(`${url}/a/passwd`)).status, peeked);
    const authorization = `Basic ${Buffer.from("admin:smoke").toString("base64")}`;
    const login = await fetch(`${admin}/login`, { method: "POST", headers: { authorization } });
    assert.equal(login.status, 200);
    assert.match(login.headers.get("set-cookie"), /^token=.+HttpOnly; Secure/);
    const exited = once(gateway, "exit");
    gateway.kill("SIGTERM");
    assert.deepEqual(await exited, [0, null]);
  } finally {
    clearTimeout(deadline);
    gateway.kill("SIGKILL");
  }
}

try {
  await smoke([], {}, 200);
  // Peer specs do this with more on Node 24.
  const isSealed = Number(process.versions.node.split(".")[0]) > 24;
  if (isSealed) {
    const { status, stdout, stderr } = spawnSync(process.execPath, [program, "audit", file, "--permission"], {
      env,
      encoding: "utf8",
    });
    assert.equal(status, 0, stderr);
    await smoke([...stdout.trim().split("\n"), "--allow-fs-read=/etc/passwd"], { SEAL: "true" }, 500);
  }
  console.log(`smoke on Node ${process.version}${isSealed ? ", also with SEAL" : ""}: ok`);
} finally {
  backend.close();
  backend.closeAllConnections();
  rmSync(folder, { recursive: true, force: true });
}
