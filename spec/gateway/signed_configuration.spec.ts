import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { GatewayOptions } from "../../lib/index.ts";
import { createGateway, loadPluginModules } from "../../lib/index.ts";
import { EXPIRED, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { oneService } from "../support/gateway.ts";
import { issueLines } from "../support/issue_lines.ts";
import { fileWith } from "../support/process.ts";
import { fingerprintOf, pinned, signed, signingKeys } from "../support/signing_keys.ts";

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
const metric = (gateway: Gateway) =>
  Number(/^edge_gateway_config_expiry_timestamp_seconds (.*)$/m.exec(gateway.metrics())?.[1]);
const issuesOf = ({ status }: Gateway) =>
  status.lastReload?.outcome === "refused" ? issueLines(status.lastReload) : null;

describe("a gateway with configKeyFile", () => {
  it("is made from a signed file, and refused without the signature", () => {
    const { configFile, configKeyFile, gateway } = signedGateway();
    expect(Gateway.internalsOf(gateway).configuration.signer).toBe(fingerprintOf(keys));
    write(configFile, oneService(10));
    expect(() => gatewayOf({ configFile, configKeyFile })).toThrow(
      /gw\.json is not signed by the public key: it was changed after signing/,
    );
    expect(Gateway.internalsOf(gatewayOf({ configFile })).configuration.signer).toBeUndefined();
  });

  it(
    "keeps the configuration at a reload without a valid signature, reports it as the last reload, " +
      "and takes it once it is signed",
    async () => {
      const { configFile, gateway } = signedGateway();
      const { digest } = gateway;
      write(configFile, oneService(10));
      await expect(gateway.reload()).rejects.toThrow(/is not signed by the public key/);
      expect([gateway.digest, issuesOf(gateway)]).toEqual([
        digest,
        [
          expect.stringMatching(
            /^\S*gw\.json +\S*gw\.json is not signed by .* sign it: edge-gateway sign \S*gw\.json --key private\.pem$/,
          ),
        ],
      ]);
      signed(configFile, keys);
      expect(await gateway.reload()).toMatchObject({ changed: true });
    },
  );

  it(
    "reads the keys at each reload: with both during a rotation, " + "and then refuses what the old key has signed",
    async () => {
      const { configFile, configKeyFile, gateway } = signedGateway();
      writeFileSync(configKeyFile, keys.publicKey + next.publicKey);
      await gateway.reload();
      signed(configFile, next);
      await gateway.reload();
      expect(Gateway.internalsOf(gateway).configuration.signer).toBe(fingerprintOf(next));
      writeFileSync(configKeyFile, next.publicKey);
      await gateway.reload();
      signed(configFile, keys);
      await expect(gateway.reload()).rejects.toThrow(/is not signed by the public key: .* another key signed it/);
    },
  );

  it("takes each of test_files only with its digest, and names the place that lists it", async () => {
    const tests = fileWith(test(200), "tests.json");
    const config = (file: unknown) => ({ ...oneService(9), test_files: [file] });
    expect(() => signedGateway(config(signed(tests, keys)))).toThrow(
      new RegExp(
        String.raw`gw\.json:1:\d+ +test_files\[0\] +has no SHA-256, which a signed configuration ` +
          String.raw`needs: run edge-gateway pin FILE, then edge-gateway sign FILE`,
      ),
    );
    const { gateway } = signedGateway(config(pinned(tests)));
    expect(await gateway.reload()).toMatchObject({ changed: false });
    write(tests, test(201));
    await expect(gateway.reload()).rejects.toThrow(
      new RegExp(
        String.raw`test_files\[0\]\.sha256 +is not the digest of \S*tests\.json: its SHA-256 is ` +
          String.raw`\w{64}; once you trust the file, run edge-gateway pin FILE`,
      ),
    );
  });

  it.each(["caller_files", "test_files"])(
    "does not take an older file of %s back, although signed once, under a configuration with a higher serial",
    async (list) => {
      const file = fileWith("[]", "named.json");
      const { configFile, gateway } = signedGateway({ serial: 1, ...oneService(9), [list]: [pinned(file)] });
      const older = readFileSync(file);
      writeFileSync(file, "[ ]");
      write(configFile, { serial: 2, ...oneService(9), [list]: [pinned(file)] });
      signed(configFile, keys);
      await gateway.reload();
      writeFileSync(file, older);
      signed(file, keys);
      await expect(gateway.reload()).rejects.toThrow(/is not the digest of \S*named\.json/);
    },
  );

  it("does not run a plugin module that a file without a valid signature names", async () => {
    const { configFile, configKeyFile, gateway } = signedGateway();
    const [module, trace] = [join(dirname(configFile), "plugin.mjs"), join(dirname(configFile), "it-ran")];
    const code =
      `import { writeFileSync } from "node:fs"; writeFileSync(${JSON.stringify(trace)}, ""); ` +
      `export default () => [];`;
    writeFileSync(module, code);
    const config = oneService(
      9,
      {},
      { plugin_modules: [{ path: module, sha256: createHash("sha256").update(code).digest("hex") }] },
    );
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

  it(
    "takes new certificates under the configuration in force, " + "whatever has become of signature, tests and keys",
    () => {
      const tests = fileWith(test(200), "tests.json");
      const [cert, key] = [fileWith(SERVER.cert, "cert.pem"), fileWith(SERVER.key, "key.pem")];
      const { configFile, configKeyFile, gateway } = signedGateway({
        ...oneService(9, {}, { certificates: [{ hosts: ["localhost"], cert, key }] }),
        test_files: [pinned(tests)],
      });
      for (const file of [`${configFile}.sig`, tests, configKeyFile]) writeFileSync(file, "");
      writeFileSync(cert, EXPIRED.cert);
      expect(gateway.rereadFiles()).toBe(true);
    },
  );

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
    expect(await gateway.dryRun()).toMatchObject({
      outcome: "refused",
      diff: null,
      issues: [{ path: "", line: null, message: expect.stringMatching(/is not signed by the public key/) as string }],
    });
    signed(configFile, keys);
    expect(await gateway.dryRun()).toMatchObject({ outcome: "accepted", diff: expect.anything() as unknown });
  });

  it(
    "says of a posted text that it is unsigned and would be refused, " +
      "beside what would change and its other errors",
    async () => {
      const { gateway } = signedGateway();
      const unsigned = expect.stringMatching(
        new RegExp(
          String.raw`^\(posted\) +came without a signature, and this gateway accepts signed ` +
            String.raw`configurations only \(CONFIG_PUBLIC_KEY\)`,
        ),
      ) as unknown;
      const text = (value: unknown) => Buffer.from(JSON.stringify(value));
      const tried = await gateway.dryRun(text({ ...oneService(9, { base_path: "/b" }), tests: test(201) }));
      expect(tried).toMatchObject({
        outcome: "refused",
        diff: { added: [], changed: [expect.anything(), expect.anything()] },
      });
      expect(issueLines(tried)).toEqual([unsigned, expect.stringContaining('"t" failed')]);
      expect(tried.issues.map(({ code }) => code)).toEqual(["unsigned", undefined]);
      const wrong = await gateway.dryRun(text({}));
      expect(wrong).toMatchObject({ outcome: "refused", diff: null });
      expect(issueLines(wrong)).toEqual([unsigned, expect.stringContaining("services")]);
    },
  );
});

describe("the order and the end of signed configurations", () => {
  const inForce = (more: object, options: Partial<GatewayOptions> = {}) => {
    const [configFile, configKeyFile] = [
      signed(fileWith({ ...oneService(9), ...more }), keys),
      fileWith(keys.publicKey, "public.pem"),
    ];
    const gateway = gatewayOf({ configFile, configKeyFile, ...options });
    const next = (others: object) => {
      write(configFile, { ...oneService(9, { base_path: "/b" }), ...others });
      signed(configFile, keys);
      return gateway.reload();
    };
    return { gateway, next, configFile, configKeyFile };
  };

  it(
    "a reload with a lower serial, or with none, is refused with its place, " + "and the same or a higher one is taken",
    async () => {
      const { gateway, next } = inForce({ serial: 7 });
      await gateway.listen({ port: 0 });
      await expect(next({ serial: 6 })).rejects.toThrow(
        /gw\.json:1:\d+ +serial +6 is older than 7, which has been in force/,
      );
      expect(JSON.stringify(await gateway.dryRun(null))).toContain("6 is older than 7");
      await expect(next({})).rejects.toThrow(/serial +is missing, and serial 7 has been in force/);
      expect(await next({ serial: 7 })).toMatchObject({ changed: true });
      expect(await next({ serial: 8, tests: [] })).toMatchObject({ digest: gateway.digest });
      await expect(next({ serial: 7 })).rejects.toThrow(/7 is older than 8/);
    },
  );

  it("a configuration whose tests fail raises nothing", async () => {
    const { gateway, next } = inForce({ serial: 1 });
    await gateway.listen({ port: 0 });
    await expect(next({ serial: 9, tests: test(418) })).rejects.toThrow(/tests\[0\]/);
    expect(await next({ serial: 2 })).toMatchObject({ changed: true });
  });

  it(
    "after its end no start and no reload takes it, while files of the one in force are still read again; " +
      "a warning says so from 14 days before",
    async () => {
      const clock = manualClock();
      const end = new Date(clock.wall() + 15 * 86_400_000).toISOString();
      const [cert, key] = [fileWith(SERVER.cert, "cert.pem"), fileWith(SERVER.key, "key.pem")];
      const { gateway, next, configFile, configKeyFile } = inForce(
        { global: { certificates: [{ hosts: ["a.example"], cert, key }] }, expires_at: end },
        { clock },
      );
      const codes = () =>
        gateway.status.warnings.map(({ code }) => code).filter((code) => code.startsWith("configuration_"));
      expect(codes()).toEqual([]);
      clock.advance(2 * 86_400_000);
      expect(codes()).toEqual(["configuration_expires"]);
      expect(metric(gateway)).toBe(Date.parse(end) / 1000);
      clock.advance(13 * 86_400_000);
      expect(codes()).toEqual(["configuration_expired"]);
      expect(gateway.status.warnings.find(({ code }) => code === "configuration_expired")).toMatchObject({
        path: "expires_at",
        message: `The signed configuration has ended at ${end}: a restart would refuse it.`,
      });
      for (const [path, other] of [
        [cert, EXPIRED.cert],
        [key, EXPIRED.key],
      ] as const)
        writeFileSync(path, other);
      expect(gateway.rereadFiles()).toBe(true);
      await expect(gateway.reload()).rejects.toThrow(/expires_at +the configuration has ended at/);
      expect(() => gatewayOf({ configFile, configKeyFile, clock })).toThrow(/the configuration has ended at/);
      expect(await next({ expires_at: new Date(clock.wall() + 60_000).toISOString() })).toMatchObject({
        changed: true,
      });
    },
  );

  it("without configKeyFile both are checked for their form only", async () => {
    const configFile = fileWith({ ...oneService(9), serial: 7, expires_at: "2001-01-01T00:00:00Z" });
    const gateway = gatewayOf({ configFile });
    write(configFile, { ...oneService(10), serial: 6 });
    expect(await gateway.reload()).toMatchObject({ changed: true });
    expect(gateway.status.warnings).toEqual([]);
  });

  it.each([
    [{ serial: -1 }, "serial  expected an integer ≥ 0, found -1"],
    [{ serial: "7" }, "serial  expected an integer"],
    [{ serial: 1.5 }, "serial  expected an integer"],
    [
      { expires_at: "tomorrow" },
      'expires_at  expected a time such as "2027-01-31T12:00:00Z" (RFC 3339), found "tomorrow"',
    ],
    [{ expires_at: 1801396800 }, "expires_at  expected"],
    [{ expires_at: "${env:END}" }, "expires_at"],
    [{ expire_at: "2027-01-31T12:00:00Z" }, '"expires_at"'],
  ])("%j is refused with its place", (more, message) => {
    const read = () => gatewayOf({ configFile: fileWith({ ...oneService(9), ...more }) });
    expect(read).toThrow(message);
  });
});
