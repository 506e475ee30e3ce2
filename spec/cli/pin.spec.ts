import { createHash } from "node:crypto";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { emptyFolder, program } from "../support/process.ts";
import { signingKeys } from "../support/signing_keys.ts";

const digestOf = (text: string) => createHash("sha256").update(text).digest("hex");
const MODULE = 'globalThis.wasRun = true;\nprocess.stdout.write("run");\nexport default 1;\n';
const RIGHT = digestOf(MODULE);
const OTHER = "0".repeat(64);

/** A folder with gw.json and m.mjs. */
function folder(text: string | Buffer): string {
  const at = emptyFolder();
  writeFileSync(join(at, "m.mjs"), MODULE);
  writeFileSync(join(at, "gw.json"), text);
  return join(at, "gw.json");
}

const pin = (...words: string[]) => program(["pin", ...words]).ended;
const fileOf = (config: string) => join(dirname(config), "m.mjs");

describe("edge-gateway pin", () => {
  it(
    "writes the digests of the modules into the configuration and leaves everything else as it is, " +
      "without running a module",
    async () => {
      const written = (first: string, second: string, third: string) => `\uFEFF{
  "services" : [ ],   "global": {"name": "\\u00e9😀", "plugin_modules": [
    { "path": "m.mjs", "sha256": ${first} }, {"path": "./m.mjs"${second}},
    {
\t"path": "\${env:PIN_MODULE}"${third}
    }
  ] }
}`;
      const config = folder(written(`"${OTHER}"`, "", ""));
      const { code, stdout, stderr } = await program(["pin", config], { environment: { PIN_MODULE: "m.mjs" } }).ended;
      expect([code, stderr]).toEqual([0, ""]);
      expect(readFileSync(config, "utf8")).toBe(
        written(`"${RIGHT}"`, `, "sha256": "${RIGHT}"`, `,\n\t"sha256": "${RIGHT}"`),
      );
      const place = (i: number) => `global.plugin_modules[${i}].sha256 of ${fileOf(config)}: ${RIGHT}`;
      expect(stdout).toBe(
        `${place(0)}, was ${OTHER}\n${place(1)}, was missing\n${place(2)}, was missing\n${config} is written: ` +
          `it trusts these files now\n`,
      );
      expect(readdirSync(dirname(config)).sort()).toEqual(["gw.json", "m.mjs"]);
    },
  );

  it("makes a configuration valid whose module has changed, and does nothing when called again", async () => {
    const text = (sha256: string) =>
      JSON.stringify({ global: { plugin_modules: [{ sha256, path: "p.mjs" }] }, services: [] });
    const config = folder(text(OTHER));
    writeFileSync(
      join(dirname(config), "p.mjs"),
      'export default ({ definePlugin, schema }) => definePlugin({ name: "own", schema: schema.object({}), ' +
        "create: () => (next) => next });",
    );
    expect((await program(["validate", config]).ended).code).toBe(2);
    expect((await pin("--config", config)).code).toBe(0);
    expect((await program(["validate", config]).ended).code).toBe(0);
    const { mtimeMs } = statSync(config);
    expect(await pin(config)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/, as before\n\S+gw\.json has these digests already\n$/),
    });
    expect(statSync(config).mtimeMs).toBe(mtimeMs);
  });

  it("writes through a symbolic link, keeps the mode of the file, and says that a signature is void", async () => {
    const config = folder('{"global":{"plugin_modules":[{"path":"m.mjs"}]},"services":[]}');
    chmodSync(config, 0o640);
    writeFileSync(`${config}.sig`, "signature");
    mkdirSync(join(dirname(config), "links"));
    const link = join(dirname(config), "links/gw.json");
    symlinkSync("../gw.json", link);
    // The file is read from the folder of the link, as by the gateway.
    symlinkSync("../m.mjs", join(dirname(link), "m.mjs"));
    symlinkSync("../gw.json.sig", `${link}.sig`);
    const { code, stdout } = await pin(link);
    expect([code, stdout.split("\n").at(-2)]).toEqual([
      0,
      `${link} is written: it trusts these files now; sign it again, ${link}.sig is of the text before`,
    ]);
    expect(lstatSync(link).isSymbolicLink()).toBe(true);
    expect(statSync(config).mode & 0o777).toBe(0o640);
    expect(readFileSync(config, "utf8")).toBe(
      `{"global":{"plugin_modules":[{"path":"m.mjs", "sha256": "${RIGHT}"}]},"services":[]}`,
    );
  });

  const modules = (entry: string) => `{"global": {"plugin_modules": [{"path": "m.mjs"}, ${entry}]}, "services": []}`;
  it.each([
    [
      "a module that is missing",
      modules('{"path": "gone.mjs"}'),
      /gw\.json:1:60 +global\.plugin_modules\[1\]\.path +cannot read \S+gone\.mjs: no such file/,
    ],
    ["a module without a path", modules("{}"), /gw\.json:1:51 +global\.plugin_modules\[1\]\.path +is required/],
    [
      "a module that is no object",
      modules('"m.mjs"'),
      /gw\.json:1:51 +global\.plugin_modules\[1\] +expected an object with path and sha256/,
    ],
    [
      "a digest that is no text",
      modules('{"path": "m.mjs", "sha256": 5}'),
      /gw\.json:1:79 +global\.plugin_modules\[1\]\.sha256 +expected a string/,
    ],
    ["a text that is no JSON", "{", /gw\.json:1:2/],
    ["a key that occurs twice", modules('{"path": "m.mjs", "path": "m.mjs"}'), /duplicate key/],
    [
      "a configuration without modules",
      '{"services": []}',
      new RegExp(
        String.raw`^edge-gateway: \S+gw\.json names no plugin modules \(global\.plugin_modules\) ` +
          String.raw`and no files of callers and tests \(caller_files, test_files\): there is ` +
          String.raw`nothing to pin\n$`,
      ),
    ],
  ])("exits 2 for %s, names the place, and writes nothing", async (_what, text, message) => {
    const config = folder(text);
    const { code, stdout, stderr } = await pin(config);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(message);
    expect(readFileSync(config, "utf8")).toBe(text);
    expect(readdirSync(dirname(config)).sort()).toEqual(["gw.json", "m.mjs"]);
  });

  it.each([
    [
      "with a module in place of the configuration",
      (config: string) => [fileOf(config)],
      /^edge-gateway: \S+m\.mjs is a module: name the configuration that names it, edge-gateway pin gw\.json\n$/,
    ],
    ["with a file that is missing", () => ["/nowhere/gw.json"], /cannot read \/nowhere\/gw\.json|no such file/],
    ["with two files", () => ["a", "b"], /^edge-gateway: too many arguments for "pin"/],
    [
      "with a flag of another command",
      (config: string) => [config, "--strict"],
      /^edge-gateway: --strict is not a known flag/,
    ],
  ])("exits 2 %s, and says so", async (_what, words, message) => {
    const { code, stdout, stderr } = await pin(...words(folder("{}")));
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(message);
  });

  it.each(["pin", "sign"])(
    "%s writes the digests of callers and tests, also where only their paths are",
    async (command) => {
      const config = folder(`{ "services": [], "caller_files": ["c.json"],
  "test_files": [{ "path": "t.json" }, "u.json"] }`);
      for (const name of ["c", "t", "u"])
        writeFileSync(join(dirname(config), `${name}.json`), `[]${name === "t" ? " " : ""}`);
      const key = join(dirname(config), "key.pem");
      writeFileSync(key, signingKeys().privateKey);
      const words = command === "pin" ? ["pin", config] : ["sign", config, "--key", key];
      const { code, stdout, stderr } = await program(words).ended;
      expect([code, stderr]).toEqual([0, ""]);
      const [one, other] = [digestOf("[]"), digestOf("[] ")];
      expect(readFileSync(config, "utf8")).toBe(
        `{ "services": [], "caller_files": [{ "path": "c.json", "sha256": "${one}" }],
  "test_files": [{ "path": "t.json", "sha256": "${other}" }, { "path": "u.json", "sha256": "${one}" }] }`,
      );
      expect(stdout).toContain(`caller_files[0].sha256 of ${join(dirname(config), "c.json")}: ${one}, was missing\n`);
      expect((await program(["validate", config]).ended).code).toBe(0);
    },
  );

  it("sign keeps a digest that is there, so that it trusts no file that has changed since", async () => {
    const config = folder(JSON.stringify({ services: [], caller_files: [{ path: "m.mjs", sha256: OTHER }] }));
    const key = join(dirname(config), "key.pem");
    writeFileSync(key, signingKeys().privateKey);
    const before = readFileSync(config, "utf8");
    expect((await program(["sign", config, "--key", key]).ended).code).toBe(0);
    expect(readFileSync(config, "utf8")).toBe(before);
  });
});
