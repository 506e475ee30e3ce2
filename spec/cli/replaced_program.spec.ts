import { appendFileSync, cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../support/documents.ts";
import { emptyFolder, fileWith, program, PROGRAM } from "../support/process.ts";

const REPLACED = "the program's files have been replaced since the start: restart it";

const config = (...plugins: readonly object[]) => ({
  services: [
    { name: "s", base_path: "/", upstreams: [{ host: "127.0.0.1", port: 1 }], plugins, routes: [{ path: "/" }] },
  ],
});
const ACL = { name: "acl", config: { blacklist: ["10.0.0.1"] } };
const COMPRESS = { name: "compress", config: {} };
const TERMINATION = { name: "request_termination", config: { status: 204 } };
const ADMIN = { ADMIN_USER: "a", ADMIN_PASSWORD: "a long password", ADMIN_PORT: "0" };

/** A copy of the program that may be changed. */
function copied(): string {
  const folder = emptyFolder();
  cpSync(dirname(dirname(PROGRAM)), join(folder, "dist"), { recursive: true });
  cpSync(join(root, "package.json"), join(folder, "package.json"));
  return folder;
}

async function started(folder: string, file: string, environment: Record<string, string> = {}) {
  const words = ["--config", file, "--http-port", "0", "--listen-host", "127.0.0.1"];
  const running = program(words, { main: join(folder, "dist/bin/edge-gateway.js"), environment });
  await running.says(" started");
  return running;
}

async function signedIn(stderr: string) {
  const [, url] = /"admin":"([^"]+)"/.exec(stderr)!;
  const login = await fetch(`${url}/login`, {
    method: "POST",
    headers: { Authorization: `Basic ${btoa("a:a long password")}` },
  });
  const headers = { Cookie: login.headers.get("set-cookie")!.split(";")[0]!, "Content-Type": "application/json" };
  return (path: string, options: RequestInit = {}) => fetch(`${url}${path}`, { ...options, headers });
}

/** What another version may have in the place of a module. It says if it runs. */
const OTHER = `process.stderr.write("other code runs\\n"); export const acl = { name: "acl" };`;

describe("a gateway whose program files are replaced while it runs", () => {
  it.each<readonly [string, (path: string) => void, typeof ACL | typeof COMPRESS]>([
    ["is gone", (path) => rmSync(path), ACL],
    ["is that of another version", (path) => writeFileSync(path, OTHER), ACL],
    ["has a comment more", (path) => appendFileSync(path, "// one more\n"), ACL],
    ["is a folder", (path) => (rmSync(path), cpSync(root + "/examples", path, { recursive: true })), ACL],
    [
      "imports a module that is another one",
      (path) => writeFileSync(join(dirname(path), "compressed_body.js"), OTHER),
      COMPRESS,
    ],
  ])(
    "refuses a reload whose module %s, runs nothing of it, and takes a reload that needs no such module",
    { timeout: 30_000 },
    async (_what, replace, plugin) => {
      const folder = copied();
      const file = fileWith(config());
      const { child, says, stderr } = await started(folder, file);
      replace(join(folder, `dist/lib/plugins/${plugin.name}.js`));
      writeFileSync(file, JSON.stringify(config(plugin)));
      child.kill("SIGHUP");
      await says("reload refused");
      expect(stderr()).toContain(REPLACED);
      writeFileSync(file, JSON.stringify(config(TERMINATION)));
      await says("configuration reloaded");
      expect(stderr()).not.toContain("other code runs");
    },
  );

  it("takes a reload whose module was written again with the same content", { timeout: 30_000 }, async () => {
    const folder = copied();
    const file = fileWith(config());
    const { child, says } = await started(folder, file);
    const path = join(folder, "dist/lib/plugins/acl.js");
    const content = readFileSync(path);
    rmSync(path);
    writeFileSync(path, content);
    writeFileSync(file, JSON.stringify(config(ACL)));
    child.kill("SIGHUP");
    await says("configuration reloaded");
  });

  it(
    "takes its first reload, which needs no other module, although all files are gone",
    { timeout: 30_000 },
    async () => {
      const folder = copied();
      const file = fileWith(config(TERMINATION));
      const { child, says } = await started(folder, file);
      rmSync(join(folder, "dist"), { recursive: true });
      writeFileSync(file, JSON.stringify(config({ ...TERMINATION, config: { status: 410 } })));
      child.kill("SIGHUP");
      await says("configuration reloaded");
    },
  );

  it(
    "answers a request of the admin interface whose module is another one with 503 and the reason; " +
      "log and status have it, and other requests still work",
    { timeout: 30_000 },
    async () => {
      const folder = copied();
      const { says, stderr } = await started(folder, fileWith(config()), ADMIN);
      const ask = await signedIn(stderr());
      writeFileSync(join(folder, "dist/lib/admin/explain_request.js"), OTHER);
      const asked = await ask("/gateway/explain", { method: "POST", body: '{"method":"GET","url":"/"}' });
      expect(asked.status).toBe(503);
      expect(await asked.json()).toMatchObject({ detail: REPLACED });
      await says("admin request failed");
      const status = await ask("/gateway/status");
      expect(status.status).toBe(200);
      expect(await status.json()).toMatchObject({ warnings: [{ code: "program_replaced" }] });
      expect(stderr()).not.toContain("other code runs");
    },
  );

  it("answers a dry run whose thread would run other code with 503 and the reason", { timeout: 30_000 }, async () => {
    const folder = copied();
    const file = fileWith(config());
    const { stderr } = await started(folder, file, { ...ADMIN, ADMIN_WRITE: "true" });
    const ask = await signedIn(stderr());
    const validate = () => ask("/gateway/validate", { method: "POST", body: JSON.stringify(config(ACL)) });
    expect((await validate()).status).toBe(200);
    for (const module of ["features/dry_run_thread", "plugins/acl", "base/thread_code"]) {
      const path = join(folder, `dist/lib/${module}.js`);
      const content = readFileSync(path);
      writeFileSync(path, OTHER);
      const asked = await validate();
      expect(asked.status).toBe(503);
      expect(await asked.json()).toMatchObject({ detail: REPLACED });
      writeFileSync(path, content);
    }
    expect((await validate()).status).toBe(200);
    expect(stderr()).not.toContain("other code runs");
  });
});

describe("a gateway that Node runs with options which a thread cannot have", () => {
  it("answers dry runs, whose thread inherits them", { timeout: 30_000 }, async () => {
    const words = [PROGRAM, "--config", fileWith(config()), "--http-port", "0", "--listen-host", "127.0.0.1"];
    const running = program(words, {
      main: "--max-old-space-size=512",
      environment: { ...ADMIN, ADMIN_WRITE: "true" },
    });
    await running.says(" started");
    const ask = await signedIn(running.stderr());
    const tried = await ask("/gateway/validate", { method: "POST", body: JSON.stringify(config(ACL)) });
    expect(await tried.json()).toMatchObject({ outcome: "accepted" });
  });
});

describe("a program without the list of its modules", () => {
  it("says which file is missing, and what to do", async () => {
    const folder = copied();
    const list = join(folder, "dist/lib/modules.json");
    rmSync(list);
    const { ended } = program(["--config", fileWith(config())], { main: join(folder, "dist/bin/edge-gateway.js") });
    const { code, stderr } = await ended;
    expect(code).toBe(1);
    expect(stderr).toBe(`edge-gateway: ${list} cannot be read: install the program again\n`);
  });

  it("serves within a program that embeds it, whose imports are not checked", async () => {
    const folder = copied();
    rmSync(join(folder, "dist/lib/modules.json"));
    const main = join(folder, "host.mjs");
    writeFileSync(
      main,
      `import { createGateway } from "./dist/lib/index.js";
       await createGateway({ config: ${JSON.stringify(config(ACL))} }).close();
       console.log("closed");`,
    );
    const { stdout, stderr } = await program([], { main }).ended;
    expect({ stdout, stderr }).toEqual({ stdout: "closed\n", stderr: "" });
  });
});
