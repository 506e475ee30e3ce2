import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { describe, expect, it, onTestFinished } from "vitest";
import {
  ConfigError,
  createGateway,
  definePlugin,
  loadPluginModules,
  schema,
  type ConfigInput,
  type GatewayOptions,
} from "../../lib/index.ts";
import * as everything from "../../lib/index.ts";
import { kit } from "../../lib/plugins/kit.ts";
import { oneService } from "../support/gateway.ts";
import { emptyFolder } from "../support/process.ts";

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** A module with the kind `hello`, which answers with a text. */
const saying = (text: string, name = "hello") => `export default (kit) => kit.definePlugin({
  name: ${JSON.stringify(name)},
  schema: kit.schema.object({ times: kit.schema.withDefault(kit.schema.integer({ min: 1, max: 3 }), 1) }),
  create: ({ times }) => () => () => ({ status: 200, headers: [], body: \
Buffer.from(${JSON.stringify(text)}.repeat(times)) }),
});`;

/** A folder with modules in it, and a configuration in the file gw.json that names them. */
function folder(modules: Readonly<Record<string, string>> = {}) {
  const path = emptyFolder();
  const file = `${path}/gw.json`;
  const put = (name: string, text: string) => writeFileSync(`${path}/${name}`, text);
  for (const [name, text] of Object.entries(modules)) put(name, text);
  const listed = Object.entries(modules).map(([name, text]) => ({ path: name, sha256: sha256(text) }));
  const config = (plugin_modules: unknown = listed, plugin: object = { name: "hello" }) =>
    oneService(9, { plugins: [plugin as never] }, { plugin_modules: plugin_modules as never });
  const save = (value: ConfigInput = config()) => put("gw.json", JSON.stringify(value));
  save();
  return { path, file, put, config, save };
}

async function started(file: string, options: Partial<GatewayOptions> = {}) {
  const gateway = createGateway({ configFile: file, modules: await loadPluginModules(file), ...options });
  onTestFinished(async () => void (await gateway.close(0)));
  return { gateway, text: async () => (await gateway.inject({ url: "/a/x" })).text() };
}

/** The issues, without the columns that they stand in. */
async function refused(file: string, options: Partial<GatewayOptions> = {}): Promise<string[]> {
  try {
    await started(file, options);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.issues.map(({ at, message, position }) => {
      expect(position).not.toBe(null);
      return `${at.join(".")}: ${message}`;
    });
  }
  throw new Error("the configuration was taken");
}

describe("a plugin module", () => {
  it(
    "a plugin module is found relative to the configuration's folder, " + "and its kind has schema and defaults",
    async () => {
      const { file } = folder({ "hello.mjs": saying("hi") });
      const { gateway, text } = await started(file);
      expect(await text()).toBe("hi");
      expect(JSON.stringify(gateway.shownConfig)).toContain('"name":"hello","enabled":true,"config":{"times":1}');
    },
  );

  it("the configuration of a module's plugin is validated like the configuration of any other plugin", async () => {
    const { file, save, config } = folder({ "hello.mjs": saying("hi") });
    save(config(undefined, { name: "hello", config: { times: 4 } }));
    expect(await refused(file)).toEqual(["services.0.plugins.0.config.times: expected an integer 1–3, found 4"]);
  });

  const plugin = (name: string) =>
    `({ name: "${name}", schema: kit.schema.object({}), create: () => () => () => ({ status: 200, headers: [], ` +
    `body: Buffer.from("${name}") }) })`;

  it.each([
    ["a list", `export default (kit) => [${plugin("hello")}, ${plugin("other")}];`],
    ["a promise", `export default async (kit) => ${plugin("hello")};`],
    [
      "a plugin as it is",
      `const any = { expects: "", describe: undefined, kinds: ["object"], check: () => ({}), show: () => ({}), \
jsonSchema: () => ({}) };
      export default { name: "hello", schema: any, create: () => () => () => ({ status: 200, headers: [], body: \
Buffer.from("hello") }) };`,
    ],
    [
      "a plugin whose texts speak of imports",
      `const from = "import x from y"; Buffer.from("data:x"); export default (kit) ` +
        `=> ${plugin("hello")}; "from ftp://x";`,
    ],
    [
      "a plugin with a rule of slashes behind a comment",
      `// import ${"/".repeat(200)}\nBuffer.from /* a */ ("data:x"); export default (kit) => ${plugin("hello")};`,
    ],
    [
      "a plugin made with node's modules",
      `import { format } from "node:util"; export default (kit) => ${plugin("hello")}; format("");`,
    ],
  ])("a plugin module may export %s", async (_what, text) => {
    const { file } = folder({ "m.mjs": text });
    expect(await (await started(file)).text()).toBe("hello");
  });

  it("a plugin module gets the exports of the package under the same names", () => {
    for (const [name, value] of Object.entries(kit)) expect(everything[name as keyof typeof everything]).toBe(value);
  });

  const USAGE =
    "Its default export has to be a plugin, a list of plugins, or a function that makes them: " +
    "export default (kit) => kit.definePlugin({ … })";

  it.each([
    ["that is no JavaScript", "export default {{", /SyntaxError: Unexpected token '\{' \(line 1, column 17\)$/],
    [
      "with a syntax error in the middle of a line",
      "const one = 1;\nexport default () => {\n\tconst é = 'é😀' two;\n};\n",
      /SyntaxError: Unexpected identifier.* \(line 3, column 18\)$/,
    ],
    [
      "with a syntax error in an import",
      "\n  import { a from 'node:fs';\nexport default 1;",
      /SyntaxError: Unexpected identifier.* \(line 2, column 14\)$/,
    ],
    [
      "with a name that is declared twice",
      "let a;\n  let a;",
      /SyntaxError: Identifier 'a' has already been declared \(line 2, column 7\)$/,
    ],
    [
      "that ends in the middle",
      "export default () => {\n  one();",
      /SyntaxError: Unexpected end of input \(line 2, column 9\)$/,
    ],
    [
      "that imports what a module does not export",
      "\nimport { nope } from 'node:fs'; export default nope;",
      /SyntaxError: .*'nope' \(line 2, column 10\)$/,
    ],
    [
      "that throws a syntax error of another text",
      "const one = 1;\n  JSON.parse('{one}'); export default one;",
      /SyntaxError: .* in JSON .*\(line 2, column 8\)$/,
    ],
    [
      "that throws",
      '\n  throw new RangeError("out of luck\\nsecond line");',
      /RangeError: out of luck \(line 2, column 9\)$/,
    ],
    ["that throws what is no error", "throw 7;", /it threw 7$/],
    [
      "whose function throws",
      'export default () => { throw new Error("no luck"); };',
      /no luck \(line 1, column 30\)$/,
    ],
    ["that exports nothing", "const a = 1;", USAGE],
    ["that exports nothing as default", "export const plugin = {};", USAGE],
    ["that exports an empty list", "export default [];", USAGE],
    ["that exports a text", 'export default "hello";', `a plugin is an object with name, schema and create. ${USAGE}`],
    ["that exports null", "export default null;", `a plugin is an object with name, schema and create. ${USAGE}`],
    ["whose plugin has no name", "export default {};", /plugin name missing: use lower-case/],
    [
      "whose plugin has a bad name",
      'export default { name: "Hello" };',
      /plugin name "Hello": use lower-case letters, digits and underscores/,
    ],
    [
      "whose plugin has no schema",
      'export default { name: "hello" };',
      /plugin hello: "schema" is none: make it with schema\.object/,
    ],
    [
      "whose plugin has no create",
      'export default (kit) => ({ name: "hello", schema: kit.schema.object({}) });',
      /plugin hello: "create" is no function/,
    ],
    [
      "whose plugin guards something odd",
      'export default (kit) => ({ name: "hello", schema: kit.schema.object({}), create() {}, guards: "all" });',
      /"guards" is "all"; it is true or false/,
    ],
    [
      "whose plugin identifies something odd",
      'export default (kit) => ({ name: "hello", schema: kit.schema.object({}), create() {}, identifies: "sub" });',
      /"identifies" is "sub"; it is true or false/,
    ],
    [
      "whose plugin stores something odd",
      'export default (kit) => ({ name: "hello", schema: kit.schema.object({}), create() {}, stores: 1 });',
      /"stores" is a number; it is true or false/,
    ],
    [
      "whose plugin guards and stores",
      'export default (kit) => ({ name: "hello", schema: kit.schema.object({}), create() {}, ' +
        "guards: true, stores: true });",
      /cannot guard and store: make two kinds of it/,
    ],
    [
      "whose plugin takes something odd",
      'export default (kit) => ({ name: "hello", schema: kit.schema.object({}), create() {}, takes: "all" });',
      /"takes" is "all"/,
    ],
    [
      "that brings a kind twice",
      `export default (kit) => [${plugin("hello")}, ${plugin("hello")}];`,
      /it brings the plugin kind "hello" twice$/,
    ],
    [
      "that imports another file",
      'import "./other.mjs"; export default 1;',
      /it imports another file or package\. A module is one file, which may import node: modules only$/,
    ],
    ["that imports a package", 'import "vitest"; export default 1;', /it imports another file or package/],
    [
      "that imports from the network",
      'import "https://127.0.0.1:9/x.mjs"; export default 1;',
      /begins with https:, and its digest does not cover that\. A module is one file/,
    ],
    [
      "that imports a file by its URL",
      'import x from "file:///etc/x.mjs"; export default x;',
      /begins with file:, and its digest/,
    ],
    [
      "that imports data, spelt with a space in front",
      `import x from " data:text/javascript,0"; export default x;`,
      /begins with data:, and its digest/,
    ],
    [
      "that imports data, spelt with a tab",
      `import x from "da\tta:text/javascript,0"; export default x;`,
      /begins with data:, and its digest/,
    ],
    [
      "that imports data behind a comment with a quote",
      `/* from "*/ import x from "data:text/javascript,0"; export default x;`,
      /begins with data:, and its digest/,
    ],
    [
      "that imports data, on a line of its own",
      "const x = await import(`\ndata:text/javascript,0`); export default x;",
      /begins with data:, and its digest/,
    ],
    [
      "that imports data",
      `import x from 'data:text/javascript,export { default } from "file:///etc/x.mjs"'; export default x;`,
      /begins with data:, and its digest/,
    ],
    [
      "that exports from a file by its URL",
      'export * from"FILE:///etc/x.mjs"; export { default } from "node:fs";',
      /begins with file:/,
    ],
    [
      "that imports a file behind comments",
      'import /* " */ x from // why\n /**/ "file:///etc/x.mjs" with { type: "json" }; export default x;',
      /begins with file:/,
    ],
    [
      "that imports a file when it runs",
      "export default async () => (await import( /* now */ `file:///etc/x.mjs`)).default;",
      /begins with file:/,
    ],
    [
      "that imports a file by a name with escapes",
      'import x from "\\x66ile:///etc/x.mjs"; export default x;',
      /by a name that is written with escapes/,
    ],
    [
      "that imports a file by a name with an escaped line end",
      'import x from "fi\\\nle:///etc/x.mjs"; export default x;',
      /by a name that is written with escapes/,
    ],
  ])("a module %s fails to load, with its file and the reason", async (_what, text, message) => {
    const { file, path } = folder({ "m.mjs": text });
    const [issue] = await refused(file);
    expect(issue).toMatch(/^global\.plugin_modules\.0: /);
    expect(issue).toContain(`${path}/m.mjs: `);
    if (typeof message === "string") expect(issue).toContain(message);
    else expect(issue).toMatch(message);
    expect(issue).not.toContain("base64");
  });

  it("a plugin module with another digest is refused, and does not run", async () => {
    const { file, path, put } = folder({ "m.mjs": saying("hi") });
    const changed = "globalThis.wasRun = true; export default 1;";
    put("m.mjs", changed);
    expect((await refused(file))[0]).toBe(
      `global.plugin_modules.0.sha256: is not the digest of ${path}/m.mjs: its SHA-256 is ${sha256(changed)}; ` +
        "once you trust the file, run edge-gateway pin FILE",
    );
    expect(globalThis).not.toHaveProperty("wasRun");
  });

  it("a plugin module without a digest is refused, and the message has the file's digest", async () => {
    const { file, save, config } = folder({ "m.mjs": saying("hi") });
    save(config([{ path: "m.mjs" }]));
    expect((await refused(file))[0]).toBe(
      `global.plugin_modules.0.sha256: is required; once you trust the file: "${sha256(saying("hi"))}"`,
    );
  });

  it("a missing plugin module is refused, with or without a digest", async () => {
    const { file, path, save, config } = folder();
    save(config([{ path: "gone.mjs", sha256: sha256("") }, { path: "gone.mjs" }]));
    const issues = await refused(file);
    expect(issues).toContain(`global.plugin_modules.0.path: cannot read ${path}/gone.mjs: no such file`);
    expect(issues).toContain("global.plugin_modules.1.sha256: is required (SHA-256 of the file, in hexadecimal.)");
  });

  it(
    "a plugin module cannot bring a kind that exists already: built in, " +
      "given by the program, or of another module",
    async () => {
      const builtin = folder({ "m.mjs": saying("hi", "key_auth") });
      expect((await refused(builtin.file))[0]).toContain('there is already a plugin kind "key_auth"');
      const own = definePlugin({ name: "hello", schema: schema.object({}), create: () => (next) => next });
      const given = folder({ "m.mjs": saying("hi") });
      expect((await refused(given.file, { plugins: [own] }))[0]).toContain(
        'm.mjs: there is already a plugin kind "hello"',
      );
      const two = folder({ "one.mjs": saying("hi"), "two.mjs": saying("ho") });
      const issues = await refused(two.file);
      expect(issues).toHaveLength(1);
      expect(issues[0]).toMatch(/^global\.plugin_modules\.1: .*two\.mjs: there is already a plugin kind "hello"/);
    },
  );

  it("a plugin module that was not loaded before createGateway is refused, with the remedy", async () => {
    const { file } = folder({ "m.mjs": saying("hi") });
    expect(() => createGateway({ configFile: file })).toThrow(
      /has not been loaded: await loadPluginModules\(…\) before createGateway/,
    );
  });

  it("a plugin module of a configuration value is found relative to the working directory", async () => {
    const { path, config } = folder({ "m.mjs": saying("hi") });
    const value = config([{ path: `${path}/m.mjs`, sha256: sha256(saying("hi")).toUpperCase() }]);
    const gateway = createGateway({ config: value, modules: await loadPluginModules(value) });
    expect((await gateway.inject({ url: "/a/x" })).text()).toBe("hi");
    await gateway.close(0);
  });
});

describe("plugin modules over reloads", () => {
  it("a reload loads a plugin module whose file and digest changed, and keeps the other modules", async () => {
    const counting = (name: string) =>
      `globalThis.counted_${name} = (globalThis.counted_${name} ?? 0) + 1;\n${saying(name, name)}`;
    const { path, file, put, save, config } = folder({ "m.mjs": saying("hi"), "kept.mjs": counting("steady") });
    const { gateway, text } = await started(file);
    put("m.mjs", saying("ho"));
    save(
      config([
        { path: "m.mjs", sha256: sha256(saying("ho")) },
        { path: "kept.mjs", sha256: sha256(counting("steady")) },
      ]),
    );
    await gateway.loadModules();
    expect(await text()).toBe("hi");
    expect((await gateway.reload()).changed).toBe(true);
    expect(await text()).toBe("ho");
    expect(globalThis).toHaveProperty("counted_steady", 1);
    expect(gateway.files).toEqual([`${path}/m.mjs`, `${path}/kept.mjs`]);
  });

  it.each([
    ["does not have its digest", (put: (text: string) => void) => (put("export default 1;"), sha256("else"))],
    ["throws", (put: (text: string) => void) => (put('throw new Error("x");'), sha256('throw new Error("x");'))],
    ["was not loaded before", null],
  ])(
    "plugin modules over reloads keep the old configuration in force when a file %s, and report the issues",
    async (_what, change) => {
      const { file, put, save, config } = folder({ "m.mjs": saying("hi") });
      const { gateway, text } = await started(file);
      const { digest } = gateway;
      put("m.mjs", saying("ho"));
      save(config([{ path: "m.mjs", sha256: change?.((changed) => put("m.mjs", changed)) ?? sha256(saying("ho")) }]));
      if (change !== null) await gateway.loadModules();
      await expect(gateway.reload()).rejects.toThrow(ConfigError);
      expect(await text()).toBe("hi");
      expect(gateway.status.lastReload).toMatchObject({ outcome: "refused", digest });
    },
  );

  it("a reload tries a failed plugin module again", async () => {
    const { path, config } = folder();
    const text =
      `import { readFileSync } from ` +
      `"node:fs";\nreadFileSync(${JSON.stringify(`${path}/needed`)});\n${saying("hi")}`;
    const { gateway } = await started(folder({ "m.mjs": saying("first") }).file);
    writeFileSync(`${path}/m.mjs`, text);
    const value = config([{ path: `${path}/m.mjs`, sha256: sha256(text) }]);
    await gateway.loadModules(value);
    await expect(gateway.reload(value)).rejects.toThrow(/no such file/);
    writeFileSync(`${path}/needed`, "");
    await gateway.loadModules(value);
    await gateway.reload(value);
    expect((await gateway.inject({ url: "/a/x" })).text()).toBe("hi");
  });

  it(
    "a plugin module whose file changes without its digest has no effect, " + "not even on renewed certificates",
    async () => {
      const { file, put } = folder({ "m.mjs": saying("hi") });
      const { gateway, text } = await started(file);
      put("m.mjs", "export default 1;");
      expect(gateway.rereadFiles()).toBe(false);
      expect(await text()).toBe("hi");
      await expect(gateway.reload()).rejects.toThrow(/is not the digest of/);
      expect(await text()).toBe("hi");
    },
  );
});
