/** PUT /gateway/source of the running program, beside what watches its file, and in programs that have none. */
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { digestOf } from "../admin/writable.ts";
import { CA } from "../support/certs.ts";
import { fileWith, logLines, program, runningFile } from "../support/process.ts";
import { ask, type Answer } from "../support/raw_client.ts";

const CREDENTIALS = { ADMIN_USER: "anna", ADMIN_PASSWORD: "a-password" };
const config = (more: object = {}) => ({
  services: [{ name: "s", base_path: "/s", protocol: "https", tls: { ca: "ca.pem" }, upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path: "/x" }], ...more }],
});
const json = ({ body }: Answer): any => JSON.parse(body.toString());

async function loggedIn(port: number, { ADMIN_USER, ADMIN_PASSWORD } = CREDENTIALS) {
  const basic = `Basic ${Buffer.from(`${ADMIN_USER}:${ADMIN_PASSWORD}`).toString("base64")}`;
  const { headers } = await ask(port, { method: "POST", path: "/login", headers: { authorization: basic } });
  const cookie = headers["set-cookie"]![0]!.split(";")[0]!;
  return (method: string, path: string, body?: string, more: Record<string, string> = {}) =>
    ask(port, { method, path, headers: { cookie, ...(body !== undefined && { "content-type": "application/json" }), ...more }, ...(body !== undefined && { body }) });
}

describe("PUT /gateway/source of a program that watches its file", () => {
  it("is one reload, by the administrator, and the watcher takes it for no change; the next change by hand is one by the file", async () => {
    const file = fileWith(config());
    const ca = join(dirname(file), "ca.pem");
    writeFileSync(ca, CA.cert);
    const running = await runningFile(file, [], { ...CREDENTIALS, ADMIN_WRITE: "true" });
    const admin = await loggedIn(Number(new URL(String(running.started.admin)).port));
    const text = JSON.stringify(config({ base_path: "/t" }));
    const put = await admin("PUT", "/gateway/source", text, { "if-match": `"${digestOf(readFileSync(file))}"` });
    expect([put.status, put.headers.etag, readFileSync(file, "utf8")]).toEqual([200, `"${digestOf(text)}"`, text]);
    const status = json(await admin("GET", "/gateway/status"));
    expect(status).toMatchObject({ digest: digestOf(text), last_reload: { by: "admin", outcome: "taken" } });
    // The watch of this file has waited as long as that of the configuration, and began to wait later.
    writeFileSync(ca, `${CA.cert}\n`);
    await running.says("files that the configuration names reloaded");
    const reloads = () => logLines(running.stderr()).filter(({ message }) => /^configuration re/.test(String(message)));
    expect(reloads()).toMatchObject([{ message: "configuration reloaded", by: "admin", digest: digestOf(text) }]);
    expect(json(await admin("GET", "/gateway/status")).last_reload).toMatchObject({ by: "admin" });
    writeFileSync(file, JSON.stringify(config({ base_path: "/u" })));
    await running.says(/"by":"file".*\n/);
    expect(reloads().map(({ by }) => by)).toEqual(["admin", "file"]);
    const { entries } = json(await admin("GET", "/gateway/history")) as { entries: { by: object }[] };
    expect(entries.map(({ by }) => by)).toEqual([{ cause: "file" }, { user: "anna", address: "127.0.0.1" }, { cause: "start" }]);
  });
});

describe("edge-gateway demo", () => {
  it.each([[{}, 404, "route_not_found"], [{ ADMIN_WRITE: "true" }, 409, "conflict"]])("with %j has no file to change: %i", async (environment, status, code) => {
    const demo = program(["demo", "--http-port", "0", "--admin-port", "0", "--manager", "false"], { environment: { ...environment } });
    const said = await demo.says("Ctrl-C ends the demo.\n", "stdout");
    const [, port, password] = /admin on http:\/\/[^:]+:(\d+) \(admin \/ (\S+)\)/.exec(said)!;
    const admin = await loggedIn(Number(port), { ADMIN_USER: "admin", ADMIN_PASSWORD: password! });
    const put = await admin("PUT", "/gateway/source", JSON.stringify(config()), { "if-match": '"0123456789ab"' });
    expect([put.status, json(put).code]).toEqual([status, code]);
  });
});
