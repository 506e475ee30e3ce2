import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { fileWith, logLines, program, runningFile, textOf } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";
import { fingerprintOf, pinned, signed, signingKeys } from "../support/signing_keys.ts";

const [keys, next] = [signingKeys(), signingKeys()];
const TOKEN = "a token for metrics".replaceAll(" ", "-");
const CREDENTIALS = { ADMIN_USER: "a", ADMIN_PASSWORD: "b", METRICS_TOKEN: TOKEN };
const REFUSED = /"message":"reload refused, configuration [0-9a-f]{12} stays in force"/;
const RELOADED = '"message":"configuration reloaded"';

/** A running gateway whose configuration must be signed. */
async function started(more: object = {}) {
  const origin = await backend();
  const config = (basePath: string) => ({ ...oneService(origin.port, { base_path: basePath }), ...more });
  const [file, keyFile] = [signed(fileWith(config("/a")), keys), fileWith(keys.publicKey, "public.pem")];
  const running = await runningFile(file, ["--config-key", keyFile], CREDENTIALS);
  const environment = { ...CREDENTIALS, ADMIN_URL: String(running.started.admin) };
  return {
    ...running,
    keyFile,
    write: (basePath: string) => writeFileSync(file, textOf(config(basePath))),
    reload: (...words: string[]) => program(["reload", ...words], { environment }).ended,
    status: async (path: string) => (await ask(running.port, { path })).status,
    metrics: async () =>
      (await fetch(`${environment.ADMIN_URL}/metrics`, { headers: { Authorization: `Bearer ${TOKEN}` } })).text(),
    last: () => logLines(running.stderr()).at(-1)!,
  };
}

/** Signs elsewhere, and puts the signature in its place by renaming. */
function place(file: string, signer = keys) {
  const text = `${file}.new`;
  signed(file, signer);
  renameSync(`${file}.sig`, text);
  return () => renameSync(text, `${file}.sig`);
}

describe("a running gateway whose configuration must be signed", () => {
  it("logs at the start which key has signed", async () => {
    const { started: line } = await started();
    expect(line.signed_by).toBe(fingerprintOf(keys));
  });

  it(
    "refuses a changed file, reports that in log, metric and edge-gateway reload, " +
      "and takes it when its signature is there",
    async () => {
      const { file, write, says, last, status, metrics, reload } = await started();
      expect(await metrics()).toContain("\nedge_gateway_config_last_reload_successful 1\n");
      write("/b");
      await says(REFUSED);
      expect(await metrics()).toContain("\nedge_gateway_config_last_reload_successful 0\n");
      expect(last()).toMatchObject({
        by: "file",
        issues: [
          expect.stringMatching(
            new RegExp(
              String.raw`gw\.json is not signed by the public key: it was changed after signing, ` +
                String.raw`.*; sign it: edge-gateway sign \S+gw\.json --key private\.pem$`,
            ),
          ),
        ],
      });
      expect(await reload()).toMatchObject({
        code: 2,
        stderr: expect.stringMatching(
          /is not signed by the public key[^]*The configuration was refused; [0-9a-f]{12} stays in force\.\n$/,
        ) as unknown,
      });
      expect([await status("/a/x"), await status("/b/x")]).toEqual([200, 404]);
      signed(file, keys);
      await says(RELOADED);
      expect(last()).toMatchObject({ by: "file", signed_by: fingerprintOf(keys) });
      expect(await status("/b/x")).toBe(200);
    },
  );

  it("a signature that was removed is missed at the next reload, and its return is noticed", async () => {
    const { file, write, says, status } = await started();
    const put = place(file);
    write("/b");
    await says(/is not signed: cannot read \S+gw\.json\.sig: no such file/);
    put();
    await says(/it was changed after signing/); // it belongs to the file as it was
    expect(await status("/a/x")).toBe(200);
    rmSync(`${file}.sig`);
    signed(file, keys);
    await says(RELOADED);
    expect(await status("/b/x")).toBe(200);
  });

  it(
    "changes keys without a restart: new keys are read when their file changes, " + "and the old key counts no longer",
    async () => {
      const { file, keyFile, write, says, last, status, reload } = await started();
      write("/b");
      signed(file, next);
      await says(/another key signed it/);
      writeFileSync(keyFile, keys.publicKey + next.publicKey);
      await says(RELOADED);
      expect(last()).toMatchObject({ by: "file", signed_by: fingerprintOf(next) });
      writeFileSync(keyFile, next.publicKey);
      await says(/configuration read again/);
      signed(file, keys);
      expect((await reload()).stderr).toMatch(/is not signed by the public key: .* another key signed it/);
      expect(await status("/b/x")).toBe(200);
    },
  );

  it("a change of a file with tests that only a refused configuration names is a reload", async () => {
    const { file, says, status } = await started();
    const tests = fileWith(textOf([]), "tests.json");
    const right = pinned(tests);
    writeFileSync(tests, "[ ]");
    const named = JSON.parse(readFileSync(file, "utf8").replace('"/a"', '"/b"')) as object;
    const renewed = signed(fileWith(textOf({ ...named, test_files: [right] })), keys);
    // One after the other, so that no reload for them is left when the tests are signed.
    renameSync(`${renewed}.sig`, `${file}.sig`);
    await says(/it was changed after signing/);
    renameSync(renewed, file);
    await says(/test_files\[0\]\.sha256 +is not the digest of \S+tests\.json/);
    writeFileSync(tests, textOf([]));
    await says(RELOADED);
    expect(await status("/b/x")).toBe(200);
  });

  it(
    "a dry run refuses the own file without a signature, " + "and says of a file that it was sent without one",
    async () => {
      const { file, write, reload } = await started({
        tests: [{ name: "t", request: { url: "/a/x" }, expect: { status: 200 } }],
      });
      expect(await reload("--dry-run")).toMatchObject({ code: 0 });
      write("/b");
      expect(await reload("--dry-run")).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(
          new RegExp(
            String.raw`is not signed by the public key[^]*the gateway's configuration file would ` +
              String.raw`be refused; nothing has been changed\n$`,
          ),
        ) as unknown,
      });
      const { code, stderr } = await reload("--dry-run", file);
      expect([code, stderr]).toEqual([
        1,
        expect.stringMatching(
          new RegExp(
            String.raw`^\S+gw\.json {2}came without a signature, and this gateway accepts signed ` +
              String.raw`configurations only \(CONFIG_PUBLIC_KEY\): .*\n[^]*gw\.json would be ` +
              String.raw`refused \(0 of 1 test passed\); nothing has been changed\n$`,
          ),
        ),
      ]);
    },
  );
});
