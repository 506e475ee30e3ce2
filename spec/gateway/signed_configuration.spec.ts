import { createHash } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { GatewayOptions } from "../../lib/index.ts";
import { createGateway, loadPluginModules } from "../../lib/index.ts";
import { EXPIRED, SERVER } from "../support/certs.ts";
import { oneService } from "../support/gateway.ts";
import { issueLines } from "../support/issue_lines.ts";
import { fileWith } from "../support/process.ts";
import { fingerprintOf, signed, signingKeys } from "../support/signing_keys.ts";

const [keys, next] = [signingKeys(), signingKeys()];

function gatewayOf(options: GatewayOptions): Gateway {
  const gateway = createGateway(options);
  onTestFinished(async () => void (await gateway.close(0)));
  return gateway;
}

/** A gateway whose configuration must be signed. */
function signedGateway(config: unknown = oneService(9)) {
  const [configFile, configKeyFile] = [signed(fileWith(config), keys), fileWith(keys.publicKey, "public.pem")];
  return { configFile, configKeyFile, gateway: gatewayOf({ configFile, configKeyFile }) };
}

const test = (status: number) => [{ name: "t", request: { url: "/a/x" }, expect: { status } }];
const write = (file: string, value: unknown) => writeFileSync(file, JSON.stringify(value));
const issuesOf = ({ status }: Gateway) => (status.lastReload?.outcome === "refused" ? issueLines(status.lastReload) : null);

describe("a gateway with configKeyFile", () => {
  it("is made from a signed file, and refused without the signature", () => {
    const { configFile, configKeyFile, gateway } = signedGateway();
    expect(Gateway.partsOf(gateway).configuration.signer).toBe(fingerprintOf(keys));
    write(configFile, oneService(10));
    expect(() => gatewayOf({ configFile, configKeyFile })).toThrow(/gw\.json is not signed by the public key: it was changed after signing/);
    expect(Gateway.partsOf(gatewayOf({ configFile })).configuration.signer).toBeUndefined();
  });

  it("keeps the configuration at a reload without a valid signature, reports it as the last reload, and takes it once it is signed", async () => {
    const { configFile, gateway } = signedGateway();
    const { digest } = gateway;
    write(configFile, oneService(10));
    await expect(gateway.reload()).rejects.toThrow(/is not signed by the public key/);
    expect([gateway.digest, issuesOf(gateway)]).toEqual([digest, [expect.stringMatching(/^\S*gw\.json +\S*gw\.json is not signed by .* sign it: edge-gateway sign \S*gw\.json --key private\.pem$/)]]);
    signed(configFile, keys);
    expect(await gateway.reload()).toMatchObject({ changed: true });
  });

  it("reads the keys at each reload: with both during a rotation, and then refuses what the old key has signed", async () => {
    const { configFile, configKeyFile, gateway } = signedGateway();
    writeFileSync(configKeyFile, keys.publicKey + next.publicKey);
    await gateway.reload();
    signed(configFile, next);
    await gateway.reload();
    expect(Gateway.partsOf(gateway).configuration.signer).toBe(fingerprintOf(next));
    writeFileSync(configKeyFile, next.publicKey);
    await gateway.reload();
    signed(configFile, keys);
    await expect(gateway.reload()).rejects.toThrow(/is not signed by the public key: .* another key signed it/);
  });

  it("takes each of test_files only with its own signature, and names the place that lists it", async () => {
    const tests = fileWith(test(200), "tests.json");
    const config = { ...oneService(9), test_files: [tests] };
    expect(() => signedGateway(config)).toThrow(/gw\.json:1:\d+ +test_files\[0\] +\S*tests\.json is not signed: cannot read \S*tests\.json\.sig: no such file; sign it: edge-gateway sign \S*tests\.json/);
    signed(tests, next);
    expect(() => signedGateway(config)).toThrow(/test_files\[0\] +\S*tests\.json is not signed by the public key/);
    signed(tests, keys);
    const { gateway } = signedGateway(config);
    expect(await gateway.reload()).toMatchObject({ changed: false });
    write(tests, test(201));
    await expect(gateway.reload()).rejects.toThrow(/tests\.json is not signed by the public key: it was changed after signing/);
  });

  it("does not run a plugin module that a file without a valid signature names", async () => {
    const { configFile, configKeyFile, gateway } = signedGateway();
    const [module, trace] = [join(dirname(configFile), "plugin.mjs"), join(dirname(configFile), "it-ran")];
    const code = `import { writeFileSync } from "node:fs"; writeFileSync(${JSON.stringify(trace)}, ""); export default () => [];`;
    writeFileSync(module, code);
    const config = oneService(9, {}, { plugin_modules: [{ path: module, sha256: createHash("sha256").update(code).digest("hex") }] });
    write(configFile, config);
    await gateway.loadModules();
    await gateway.loadModules(config);
    await loadPluginModules(configFile, process.env, configKeyFile);
    await gateway.dryRun();
    expect(existsSync(trace)).toBe(false);
    signed(configFile, keys);
    await loadPluginModules(configFile, process.env, configKeyFile);
    expect(existsSync(trace)).toBe(true);
  });

  it("takes new certificates under the configuration in force, whatever has become of signature, tests and keys", () => {
    const tests = signed(fileWith(test(200), "tests.json"), keys);
    const [cert, key] = [fileWith(SERVER.cert, "cert.pem"), fileWith(SERVER.key, "key.pem")];
    const { configFile, configKeyFile, gateway } = signedGateway({ ...oneService(9, {}, { certificates: [{ hosts: ["localhost"], cert, key }] }), test_files: [tests] });
    for (const file of [`${configFile}.sig`, `${tests}.sig`, configKeyFile]) writeFileSync(file, "");
    writeFileSync(cert, EXPIRED.cert);
    expect(gateway.rereadFiles()).toBe(true);
  });

  it("refuses a configuration that is given as a value", async () => {
    const { configKeyFile, gateway } = signedGateway();
    const message = "a configuration that is given as a value has no signature: with configKeyFile it must be a file";
    expect(() => gatewayOf({ config: oneService(9) as never, configKeyFile })).toThrow(message);
    await expect(gateway.reload(oneService(9) as never)).rejects.toThrow(message);
  });
});

describe("a dry run of a gateway with configKeyFile", () => {
  it("refuses the gateway's own file without a valid signature, and accepts it with one", async () => {
    const { configFile, gateway } = signedGateway();
    expect(await gateway.dryRun()).toMatchObject({ outcome: "accepted", issues: [] });
    write(configFile, oneService(10));
    expect(await gateway.dryRun()).toMatchObject({ outcome: "refused", diff: null, issues: [{ path: "", line: null, message: expect.stringMatching(/is not signed by the public key/) as string }] });
    signed(configFile, keys);
    expect(await gateway.dryRun()).toMatchObject({ outcome: "accepted", diff: expect.anything() as unknown });
  });

  it("says of a posted text that it is unsigned and would be refused, beside what would change and its other errors", async () => {
    const { gateway } = signedGateway();
    const unsigned = expect.stringMatching(/^\(posted\) +came without a signature, and this gateway accepts signed configurations only \(CONFIG_PUBLIC_KEY\)/) as unknown;
    const text = (value: unknown) => Buffer.from(JSON.stringify(value));
    const tried = await gateway.dryRun(text({ ...oneService(9, { base_path: "/b" }), tests: test(201) }));
    expect(tried).toMatchObject({ outcome: "refused", diff: { added: [], changed: [expect.anything(), expect.anything()] } });
    expect(issueLines(tried)).toEqual([unsigned, expect.stringContaining('"t" failed')]);
    const wrong = await gateway.dryRun(text({}));
    expect(wrong).toMatchObject({ outcome: "refused", diff: null });
    expect(issueLines(wrong)).toEqual([unsigned, expect.stringContaining("services")]);
  });
});
