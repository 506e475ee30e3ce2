/** The commands that read a configuration file: with CONFIG_PUBLIC_KEY or --config-key none uses an unsigned one. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { blocksOf, document } from "../support/documents.ts";
import { oneService } from "../support/gateway.ts";
import { emptyFolder, fileWith, program, PROGRAM, textOf } from "../support/process.ts";
import { fingerprintOf, signed, signingKeys } from "../support/signing_keys.ts";

const keys = signingKeys();
const keyFile = () => fileWith(keys.publicKey, "public.pem");

/** Each command with its operands, as it uses a configuration. */
const COMMANDS: [string, (file: string) => string[], RegExp][] = [
  ["validate", (file) => ["validate", file], / is valid \(1 service, 2 routes; signature valid\)\n$/],
  ["test", (file) => ["test", file], / has no tests\n$/],
  ["explain", (file) => ["explain", "GET", "/a/x", "--config", file], /^GET \/a\/x gets route /],
  ["diff", (file) => ["diff", file, file], /^nothing differs\n$/],
  ["schema", (file) => ["schema", "--config", file], /"\$schema"/],
];

describe("a command with a configuration that must be signed", () => {
  it.each(COMMANDS)("%s accepts a signed file", async (_name, words, said) => {
    const { code, stdout, stderr } = await program([
      ...words(signed(fileWith(oneService(9)), keys)),
      "--config-key",
      keyFile(),
    ]).ended;
    expect([code, stderr, stdout]).toEqual([0, "", expect.stringMatching(said)]);
  });

  it.each([...COMMANDS, ["run", (file: string) => ["--config", file, "--http-port", "0"], /no output/] as const])(
    "%s refuses an unsigned file with exit code 2, says what to do, and runs no code that it names",
    async (_name, words) => {
      const file = fileWith("");
      const [module, trace] = [join(dirname(file), "plugin.mjs"), join(dirname(file), "it-ran")];
      const code =
        `import { writeFileSync } from "node:fs"; writeFileSync(${JSON.stringify(trace)}, ""); ` +
        `export default () => [];`;
      writeFileSync(module, code);
      writeFileSync(
        file,
        textOf(
          oneService(
            9,
            {},
            { plugin_modules: [{ path: module, sha256: createHash("sha256").update(code).digest("hex") }] },
          ),
        ),
      );
      const ended = await program(words(file), { environment: { CONFIG_PUBLIC_KEY: keyFile() } }).ended;
      expect([ended.code, ended.stdout]).toEqual([2, ""]);
      expect(ended.stderr).toContain(
        `${file} is not signed: cannot read ${file}.sig: no such file; sign it: ` +
          `edge-gateway sign ${file} --key private.pem`,
      );
      expect(existsSync(trace)).toBe(false);
    },
  );

  it(
    "run refuses an unsigned file with exit code 2, and a foreign key in place of the " + "right one; nothing listens",
    async () => {
      const file = fileWith(oneService(9));
      const run = (key: string) => program(["--config", file, "--http-port", "0", "--config-key", key]).ended;
      const { code, stdout, stderr } = await run(keyFile());
      expect([code, stdout, stderr]).toEqual([
        2,
        "",
        `${file}  ${file} is not signed: cannot read ${file}.sig: no such file; sign it: ` +
          `edge-gateway sign ${file} --key private.pem\nThe configuration has an error; nothing was started.\n`,
      ]);
      signed(file, keys);
      expect(await run(fileWith(signingKeys().publicKey, "foreign.pem"))).toMatchObject({
        code: 2,
        stderr: expect.stringContaining("another key signed it") as unknown,
      });
      expect(await run("/nowhere/public.pem")).toMatchObject({
        code: 2,
        stderr: expect.stringContaining(
          "cannot read the public keys /nowhere/public.pem: no such file; " +
            "name their file with --config-key PATH or CONFIG_PUBLIC_KEY",
        ) as unknown,
      });
    },
  );

  it("validate --json has the fingerprint of the key that has signed", async () => {
    const { stdout } = await program([
      "validate",
      "--json",
      signed(fileWith(oneService(9)), keys),
      "--config-key",
      keyFile(),
    ]).ended;
    expect(JSON.parse(stdout)).toMatchObject({ valid: true, signed_by: fingerprintOf(keys) });
  });

  it.each([
    [["validate", "gw.json", "--config-key"], {}, "--config-key needs a value: the path of a file"],
    [["validate", "gw.json", "--config-key="], {}, "--config-key needs a value: the path of a file"],
    [
      ["diff", "a", "b"],
      { CONFIG_PUBLIC_KEY: keys.publicKey },
      'CONFIG_PUBLIC_KEY: expected the path of a file, found "(the content of a file)"',
    ],
    [["run", "--config-key"], {}, "--config-key needs a value: the path of a file"],
    [["demo", "--config-key", "public.pem"], {}, "the demo has its own configuration: leave --config-key out"],
    [
      ["explain", "GET", "/", "--config-key", "public.pem", "--admin", "http://127.0.0.1:1"],
      {},
      "name a file with --config or a running gateway with --admin, not both",
    ],
    [["reload", "--config-key", "public.pem"], {}, "--config-key is not a flag of this command"],
  ])("%j with %j exits 2", async (words, environment, message) => {
    const { code, stdout, stderr } = await program(words, { environment: environment as Record<string, string> }).ended;
    expect([code, stdout, stderr]).toEqual([2, "", expect.stringContaining(message)]);
  });
});

describe.skipIf(spawnSync("openssl", ["version"]).status !== 0)("docs/security.md", () => {
  it(
    "makes keys and a signature with which the configuration is accepted, by edge-gateway sign and by openssl alike",
    { timeout: 30_000 },
    () => {
      const folder = emptyFolder();
      writeFileSync(join(folder, "gw.json"), textOf(oneService(9)));
      const block = blocksOf(document("docs/security.md"), "sh").find((text) => text.includes("CONFIG_PUBLIC_KEY"))!;
      const done = (line: string) => {
        const { status, stderr } = spawnSync(
          "sh",
          ["-c", line.replace("npx edge-gateway", `"${process.execPath}" "${PROGRAM}"`)],
          { cwd: folder, encoding: "utf8" },
        );
        expect({ line, status, stderr }).toMatchObject({ status: 0 });
        return existsSync(join(folder, "gw.json.sig")) ? readFileSync(join(folder, "gw.json.sig"), "utf8") : "";
      };
      const [check, ...rest] = block.trimEnd().split("\n").reverse();
      expect(check).toBe("CONFIG_PUBLIC_KEY=public.pem npx edge-gateway validate gw.json");
      const signatures = rest
        .reverse()
        .map(done)
        .filter((signature) => signature !== "");
      expect(new Set(signatures).size).toBe(1);
      expect(signatures.length).toBe(2);
      done(check!);
    },
  );
});
