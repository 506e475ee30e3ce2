/** Commands that take the URL of a configuration in place of a file, and the admin interface of a gateway with one. */
import { sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { configServer } from "../support/config_server.ts";
import { loggedIn } from "../support/logged_in.ts";
import { freePort } from "../support/origin.ts";
import { emptyFolder, fileWith, logLines, program } from "../support/process.ts";
import { configWith, remoteProgram } from "../support/remote_program.ts";
import { signingKeys } from "../support/signing_keys.ts";

const keys = signingKeys();
const keyFile = () => fileWith(keys.publicKey, "public.pem");

async function servedConfig(more: object = {}) {
  const served = await configServer();
  const text = configWith("/one", more);
  served.files.set("/gw.json", text);
  served.files.set("/gw.json.sig", sign(null, Buffer.from(text), keys.privateKey).toString("base64"));
  return served;
}

const TEST = { tests: [{ name: "t", request: { method: "GET", url: "/one" }, expect: { status: 200 } }] };

describe("a command with the URL of a configuration", () => {
  it.each<[string, (url: string) => string[], RegExp]>([
    ["validate", (url) => ["validate", url], /^http:.*\/gw\.json is valid \(1 service, 1 route; 1 test passed/],
    ["validate --settings none", (url) => ["validate", url, "--settings", "none"], /is valid/],
    ["test", (url) => ["test", url], /1 passed/],
    ["explain", (url) => ["explain", "GET", "/one", "--config", url], /^GET \/one gets route /],
    ["diff", (url) => ["diff", url, url], /^nothing differs\n$/],
    ["schema", (url) => ["schema", "--config", url], /"\$schema"/],
    ["audit", (url) => ["audit", url], / {2}127\.0\.0\.1:\d+ {2}config\n/],
  ])("%s asks for it, with its signature", async (_name, words, said) => {
    const served = await servedConfig(TEST);
    const token = fileWith("t0ken", "token");
    const { code, stdout, stderr } = await program(words(served.url), {
      environment: { CONFIG_PUBLIC_KEY: keyFile(), CONFIG_TOKEN_FILE: token },
    }).ended;
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(said);
    expect(served.requests[0]!.headers.authorization).toBe("Bearer t0ken");
  });

  it.each([
    ["pin", (url: string) => ["pin", url]],
    ["sign", (url: string) => ["sign", url, "--key", "private.pem"]],
  ])("%s exits with 2, says that it writes a file, and asks nobody", async (name, words) => {
    const served = await servedConfig();
    const { code, stdout, stderr } = await program(words(served.url.replace("://", "://user:hush@"))).ended;
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(
      new RegExp(`^edge-gateway: ${name} writes a file, and what is named is a URL: ${name} the file before it is put`),
    );
    expect(stderr).not.toContain("hush");
    expect(served.requests).toEqual([]);
  });

  it("diff compares it with a file", async () => {
    const served = await servedConfig();
    const file = fileWith("");
    writeFileSync(file, configWith("/two"));
    const { code, stdout } = await program(["diff", served.url, file]).ended;
    expect([code, stdout]).toEqual([1, expect.stringContaining("path /one is now /two")]);
  });

  it.each([
    ["is down", 1, /^edge-gateway: http:.*\/gw\.json: connect ECONNREFUSED/],
    ["has no such file", 2, /gw\.json +the server has no such configuration/],
    ["has a text with an error", 2, /gw\.json:1:14 /],
  ])("validate exits and says why where the server %s", async (what, exit, said) => {
    const served = await configServer();
    if (what === "is down") await served.close();
    if (what === "has a text with an error") served.files.set("/gw.json", '{"services":[{}]}');
    const { code, stdout, stderr } = await program(["validate", served.url]).ended;
    expect([code, stdout]).toEqual([exit, ""]);
    expect(stderr).toMatch(said);
  });

  it("audit lists the files of its settings, and no file of that name", async () => {
    const served = await servedConfig();
    const [token, stateDir] = [fileWith("t0ken", "token"), emptyFolder()];
    const { stdout } = await program(["audit", served.url, "--json"], {
      environment: { CONFIG_TOKEN_FILE: token, STATE_DIR: stateDir },
    }).ended;
    const audit = JSON.parse(stdout) as Record<"reads" | "writes" | "secrets", string[]> & { dials: object[] };
    expect(audit.reads).toContain(token);
    expect(audit.secrets).toContain(`file:${token}`);
    expect(JSON.stringify([audit.reads, audit.writes])).not.toContain("gw.json");
    expect(audit.dials).toContainEqual({ host: "127.0.0.1", port: served.port, why: "config" });
  });
});

describe("the admin interface of a gateway with a configuration from a URL", () => {
  it("shows the source, answers 409 to changes, and 503 to a reload while the server is down", async () => {
    const served = await servedConfig();
    const adminPort = await freePort();
    const running = await remoteProgram(
      {
        CONFIG_POLL_S: "3600",
        STATE_DIR: emptyFolder(),
        ADMIN_USER: "admin",
        ADMIN_PASSWORD: "a long password",
        ADMIN_PORT: String(adminPort),
        ADMIN_WRITE: "true",
      },
      served,
    );
    await running.says(/"message":"edge-gateway [^"]+ started".*\n/);
    const session = await loggedIn(adminPort, { ADMIN_USER: "admin", ADMIN_PASSWORD: "a long password" });
    const ask = async (method: string, path: string, body?: string, more: Record<string, string> = {}) => {
      const reply = await session(method, path, body, more);
      const json = JSON.parse(reply.body.toString()) as Record<string, unknown>;
      return { status: reply.status, headers: reply.headers, json };
    };
    const { json: status } = await ask("GET", "/gateway/status");
    expect(status["source"]).toEqual({
      name: served.url,
      up: true,
      since: expect.stringMatching(/^20.*Z$/),
      revision: expect.stringMatching(/^"[0-9a-f]{12}"$/),
      problem: null,
      copy: null,
    });
    const text = await ask("GET", "/gateway/source");
    expect([text.status, text.json]).toEqual([200, JSON.parse(configWith("/one"))]);
    expect(decodeURIComponent(String(text.headers["source-read-only"]))).toContain(
      `The configuration is from ${served.url}`,
    );
    const digest = String(status["digest"]);
    const put = await ask("PUT", "/gateway/source", configWith("/two"), { "If-Match": `"${digest}"` });
    expect(put).toMatchObject({ status: 409, json: { code: "conflict", detail: expect.stringContaining(served.url) } });
    expect(await ask("POST", "/gateway/rollback", JSON.stringify({ digest }))).toMatchObject({ status: 409 });
    const history = await ask("GET", "/gateway/history");
    expect(history.json["entries"]).toMatchObject([{ digest, in_force: true, can_roll_back: false }]);
    const process = await ask("GET", "/gateway/process");
    expect(process.json["source"]).toEqual(status["source"]);
    expect(await ask("POST", "/gateway/reload?dry_run=true", "")).toMatchObject({
      status: 200,
      json: { outcome: "accepted" },
    });
    const posted = configWith("/two", { test_files: ["t.json"] });
    expect(await ask("POST", "/gateway/validate", posted)).toMatchObject({ status: 200, json: { outcome: "refused" } });

    served.files.set("/gw.json", configWith("/two"));
    expect(await ask("POST", "/gateway/reload", "")).toMatchObject({ status: 200, json: { changed: true } });
    await served.close();
    const reload = await ask("POST", "/gateway/reload", "");
    expect(reload).toMatchObject({
      status: 503,
      json: { code: "source_unreachable", detail: expect.stringMatching(/ECONNREFUSED.*stays in force/) },
    });
    const down = await ask("GET", "/gateway/status");
    expect(down.json).toMatchObject({
      source: { up: false, problem: expect.stringContaining("ECONNREFUSED") },
      warnings: expect.arrayContaining([expect.objectContaining({ code: "source_unreachable" })]),
    });
    expect(await running.traffic("/two")).toBe(200);
    const metrics = await (await fetch(`http://127.0.0.1:${running.probePort}/metrics`)).text();
    expect(metrics).toContain("\nedge_gateway_config_source_up 0\n");
    expect(metrics).not.toContain("\nedge_gateway_config_copy_age_seconds ");
    expect(logLines(running.stderr()).some(({ message }) => message === "admin request failed")).toBe(false);
  });
});
