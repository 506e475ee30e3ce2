/** The configuration on Debian's nginx: files with ETags, TLS, a token, and an nginx that goes away. */
import { sign } from "node:crypto";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { CA, SERVER } from "../support/certs.ts";
import { fileWith, logLines } from "../support/process.ts";
import { configWith, remoteProgram, type RemoteProgram } from "../support/remote_program.ts";
import { signingKeys } from "../support/signing_keys.ts";
import { emptyFolder } from "./built.ts";
import { nginxWithFiles } from "./nginx.ts";

const STARTED = /"message":"edge-gateway [^"]+ started".*\n/;
const WAITS = /"message":"the gateway waits for its configuration.*\n/;
const COPY = '"message":"the copy of an earlier configuration comes into force';
const DOWN = '"message":"the source of the configuration does not answer"';
const UP = '"message":"the source of the configuration answers again"';

/** Replaces a file as a careful publisher does. */
function replace(folder: string, name: string, content: string): void {
  const beside = join(folder, `.${name}.new`);
  writeFileSync(beside, content);
  renameSync(beside, join(folder, name));
}

async function ended(running: RemoteProgram) {
  running.child.kill("SIGTERM");
  expect((await running.ended).code).toBe(0);
}

const last = (running: RemoteProgram, message: string) =>
  logLines(running.stderr()).findLast((each) => String(each.message).startsWith(message));

describe("a configuration on nginx", () => {
  it("is taken over TLS, asked for by its ETag, replaced, and outlives nginx by its copy", async () => {
    const keys = signingKeys();
    const folder = emptyFolder();
    const put = (text: string) => {
      replace(folder, "gw.json.sig", sign(null, Buffer.from(text), keys.privateKey).toString("base64"));
      replace(folder, "gw.json", text);
    };
    put(configWith("/one", { serial: 1 }));
    const nginx = await nginxWithFiles(folder, { tls: SERVER });
    const url = `https://localhost:${nginx.port}/gw.json`;
    const environment = {
      CONFIG_CA_PATH: fileWith(CA.cert, "ca.pem"),
      CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem"),
      STATE_DIR: emptyFolder(),
    };
    const running = await remoteProgram(environment, { url });
    await running.says(STARTED);
    expect(await running.traffic("/one")).toBe(200);
    await expect.poll(nginx.requests).toEqual(expect.arrayContaining(["/gw.json 304", "/gw.json.sig 304"]));
    const asked = nginx.requests();
    expect(asked.slice(0, 2)).toEqual(["/gw.json 200", "/gw.json.sig 200"]);
    expect(asked.filter((request) => request.endsWith(" 200"))).toHaveLength(2);

    put(configWith("/second", { serial: 2 }));
    await expect.poll(() => running.traffic("/second")).toBe(200);

    await nginx.stop();
    await running.says(DOWN);
    expect([await running.traffic("/second"), await running.probe("/readyz")]).toEqual([200, 200]);
    // The next start is without nginx.
    await ended(running);
    const again = await remoteProgram(environment, { url });
    await again.says(COPY);
    await again.says(STARTED);
    expect([await again.traffic("/second"), await again.probe("/readyz")]).toEqual([200, 200]);
    put(configWith("/number-three", { serial: 3 }));
    await nginx.start();
    await again.says(UP);
    await expect.poll(() => again.traffic("/number-three")).toBe(200);
    await ended(again);
  });

  it("is waited for while nginx refuses the token or has an unknown CA, and asked for with a new token", async () => {
    const folder = emptyFolder();
    writeFileSync(join(folder, "gw.json"), configWith("/one"));
    const nginx = await nginxWithFiles(folder, {
      tls: SERVER,
      location: 'if ($http_authorization != "Bearer right") { return 401; }',
    });
    const [token, ca] = [fileWith("wrong", "token"), fileWith(CA.cert, "ca.pem")];
    const url = `https://127.0.0.1:${nginx.port}/gw.json`;
    const unknown = await remoteProgram({}, { url });
    await unknown.says(WAITS);
    expect(last(unknown, "the gateway waits")).toMatchObject({ why: expect.stringMatching(/certificate|issuer/i) });
    const running = await remoteProgram({ CONFIG_CA_PATH: ca, CONFIG_TOKEN_FILE: token }, { url });
    await running.says(WAITS);
    expect(last(running, "the gateway waits")).toMatchObject({ why: expect.stringContaining("401") });
    expect([await running.probe("/healthz"), await running.probe("/readyz")]).toEqual([200, 503]);
    expect(await running.traffic("/one")).toBeNull();
    writeFileSync(token, "right");
    await running.says(STARTED);
    writeFileSync(token, "wrong");
    await expect.poll(() => running.stderr().split(DOWN).length).toBe(3);
    expect(await running.traffic("/one")).toBe(200);
    expect(running.stderr()).not.toMatch(/Bearer|"wrong"|"right"/);
    await ended(running);
    await ended(unknown);
  });
});
