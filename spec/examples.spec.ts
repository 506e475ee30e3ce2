/**
 * The examples are valid and run; what README says of fields, defaults, settings, errors and code is what the code says.
 * What the features do is promised in the specs of their folders.
 */
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { ERRORS } from "../lib/base/errors.ts";
import { formatIssues, loadConfig, type LoadResult } from "../lib/config/load.ts";
import { configJsonSchema, type ConfigInput } from "../lib/config/model.ts";
import type { JsonSchema } from "../lib/config/schema.ts";
import { CLIENT_SETTINGS, SETTINGS, type Setting } from "../lib/config/settings_table.ts";
import * as everything from "../lib/index.ts";
import { builtinPlugins } from "../lib/plugins/builtin.ts";
import { checkRoutes } from "../lib/route/table.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const read = (path: string) => readFileSync(`${root}/${path}`, "utf8");
const readme = read("README.md");
const changelog = read("CHANGELOG.md");
const jsonExamples = readdirSync(`${root}/examples`).filter((name) => name.endsWith(".json"));
const tsExamples = readdirSync(`${root}/examples`).filter((name) => name.endsWith(".ts"));
const settings = Object.values(SETTINGS) as Setting<unknown>[];

const environment = { SHOP_WEB_KEY: "web", SHOP_OLD_KEY: "old", STATUS_KEY: "status", ORDERS_KEY: "orders" };
const secretFiles: Readonly<Record<string, string>> = { "/run/secrets/shop_mobile_key": "mobile\n" };

function load(text: string, references: "given" | "missing" = "given"): LoadResult {
  return loadConfig(
    { text, file: `${root}/examples/gw.json` },
    {
      kinds: builtinPlugins,
      environment: references === "given" ? environment : {},
      readFile(path) {
        const content = references === "given" ? secretFiles[path] : undefined;
        if (content === undefined) throw Object.assign(new Error(path), { code: "ENOENT" });
        return content;
      },
      checkRoutes,
    },
  );
}

/** "" for a valid configuration, else its issues. */
function issuesOf(text: string): string {
  const loaded = load(text);
  return loaded.ok ? "" : formatIssues(loaded.issues, "gw.json");
}

describe("examples", () => {
  test("quickstart, plugins, balancing and tls are there", () => {
    expect(jsonExamples).toEqual(expect.arrayContaining(["balancing.json", "plugins.json", "quickstart.json", "tls.json"]));
  });

  test.each(jsonExamples)("%s is a valid configuration", (name) => {
    expect(issuesOf(read(`examples/${name}`))).toBe("");
  });

  test("plugins.json is refused, reference by reference, while its secrets are missing", () => {
    const loaded = load(read("examples/plugins.json"), "missing");
    const places = loaded.ok ? [] : loaded.issues.map(({ message }) => /\$\{[^}]*\}/.exec(message)?.[0]);
    expect(places).toEqual(["${env:SHOP_WEB_KEY}", "${file:/run/secrets/shop_mobile_key}", "${env:SHOP_OLD_KEY}", "${env:STATUS_KEY}"]);
  });

  test("the ConfigMap for Kubernetes holds a valid configuration", () => {
    const yaml = read("examples/kubernetes/edge-gateway.yaml");
    const block = /^  gw\.json: \|\n((?: {4}.*\n)+)/m.exec(yaml)?.[1] ?? "";
    expect(issuesOf(block.replace(/^ {4}/gm, ""))).toBe("");
  });

  test("every variable that the Docker, systemd and Kubernetes examples set is a setting or one of the configuration's secrets", () => {
    const lines = [...read("examples/systemd/edge-gateway.service").matchAll(/^#?Environment=(.+)$/gm)];
    const assignments = lines.flatMap((line) => line[1]!.split(" "));
    const set = [
      ...[...read("examples/docker/Dockerfile").matchAll(/^ENV (\w+)=/gm)].map((match) => match[1]!),
      ...assignments.map((assignment) => assignment.split("=", 1)[0]!),
      ...[...read("examples/kubernetes/edge-gateway.yaml").matchAll(/\bname: ([A-Z]\w+)/g)].map((match) => match[1]!),
    ];
    expect(set).toEqual(expect.arrayContaining(["CONFIG_FILE_PATH", "ADMIN_HOST", "ADMIN_PASSWORD", "ADMIN_PASSWORD_FILE", "ORDERS_KEY"]));
    const known = [...settings.map(({ variable }) => variable), ...Object.keys(environment)];
    expect(set.filter((name) => !known.includes(name))).toEqual([]);
  });

  test("both stages of the Dockerfile use Node 24, which has long-term support", () => {
    const images = [...read("examples/docker/Dockerfile").matchAll(/^FROM (\S+)/gm)].map((match) => match[1]);
    expect(images).toEqual(["node:24-slim", "node:24-slim"]);
  });

  test("everything the Dockerfile copies from the repository is there", () => {
    const copied = [...read("examples/docker/Dockerfile").matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap((match) => match[1]!.split(" "));
    expect(copied).toContain("package.json");
    expect(copied.filter((name) => !existsSync(`${root}/${name}`))).toEqual([]);
  });

  test.each([
    ["embed.ts", /^injected: 401 200\n[^]*\nclosed: +drained\n$/],
    ["plugin_test.ts", /^exercised: 503, 200\nfrom a module: 400\n$/],
    ["custom_plugin.ts", /^tenant plugin: 403, 200, 200, 429, 200\n[^]*did you mean "plans"\?[^]*$/],
  ])("%s runs, does what it shows and ends by itself", async (name, output) => {
    const { code, out, err } = await run(`examples/${name}`);
    expect(err).toBe("");
    expect(out).toMatch(output);
    expect(code).toBe(0);
  });
});

describe("README", () => {
  test("every block of JSON is JSON, and every whole configuration among them is valid", () => {
    const blocks = codeBlocks("json");
    const whole = blocks.filter((text) => "services" in (JSON.parse(text) as object));
    expect(whole.length).toBeGreaterThanOrEqual(2);
    expect(whole.map(issuesOf).filter((issues) => issues !== "")).toEqual([]);
  });

  test("shows quickstart.json as it is, and its digest", () => {
    const quickstart = read("examples/quickstart.json");
    const loaded = load(quickstart);
    expect(codeBlocks("json")).toContain(quickstart);
    expect(readme).toContain(`digest ${loaded.ok ? loaded.digest : "none"}`);
  });

  test("every block of TypeScript stands word for word in an example that is run here", () => {
    const sources = tsExamples.map((name) => read(`examples/${name}`));
    const blocks = codeBlocks("ts");
    expect(blocks.length).toBeGreaterThanOrEqual(4);
    expect(blocks.filter((block) => !sources.some((source) => source.includes(block)))).toEqual([]);
  });

  test("every block of JavaScript stands word for word in the plugin module that an example loads", () => {
    const blocks = codeBlocks("js");
    expect(blocks).toHaveLength(1);
    expect(blocks.filter((block) => !read("examples/plugin_module.mjs").includes(block))).toEqual([]);
    expect(read("examples/plugin_test.ts")).toContain('new URL("plugin_module.mjs"');
  });

  test("every example in TypeScript is one of those that are run here", () => {
    expect(tsExamples).toEqual(["custom_plugin.ts", "embed.ts", "plugin_test.ts"]);
  });

  describe("lists exactly the fields of the schema, with their defaults, under", () => {
    const schema = configJsonSchema(builtinPlugins) as Node;
    const definitions = schema.$defs!;
    const kinds = builtinPlugins.map(({ name, schema: own }) => [name, own.jsonSchema() as Node] as const);
    const sections: readonly (readonly [string, Node])[] = [
      ["Root", { ...schema, properties: { ...schema.properties, global: leaf(schema.properties!.global!) } }],
      ["global", schema.properties!.global!],
      ...["Service", "Upstream", "Route", "Plugin"].map((name) => [name, definitions[name]!] as const),
      ...kinds,
    ];

    test.each(sections)("%s", (heading, node) => {
      const rows = tableUnder(heading);
      const fields = fieldsOf(node);
      expect(rows.map(([field]) => field).sort()).toEqual([...fields.keys()].sort());
      for (const [field = "", , fallback = ""] of rows) {
        const { presence, value } = fields.get(field)!;
        // A name that is derived from other fields has no default in JSON Schema: README says it in words.
        if (presence === "optional") expect([field, fallback]).not.toEqual([field, "required"]);
        else expect([field, fallback]).toEqual([field, presence === "required" ? "required" : JSON.stringify(value)]);
      }
    });

    test("sections of which none is missing", () => {
      expect(sections.map(([name]) => name)).toEqual(expect.arrayContaining(Object.keys(definitions)));
    });
  });

  test("lists every family of metrics with its type", async () => {
    const config = JSON.parse(read("examples/quickstart.json")) as ConfigInput;
    const gateway = everything.createGateway({ config, tracing: { url: "http://127.0.0.1:9/v1/traces" } });
    const families = [...gateway.metrics().matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name, type]);
    await gateway.close(0);
    const rows = tableUnder("Metrics").map(([name, type]) => [name, type]);
    expect(rows.filter(([name]) => process.platform === "linux" || name !== "process_open_fds")).toEqual(families);
  });

  test("lists every setting with its flag, variable and default, and in the order of --help", () => {
    const rows = tableUnder("Settings").map(([flag, variable, fallback]) => [flag, variable, fallback]);
    expect(rows).toEqual(settings.map(({ flag, variable, fallback }) => [flag === null ? "none" : `--${flag}`, variable, fallback ?? "none"]));
  });

  test("lists the flags of the command reload", () => {
    const rows = tableUnder("Reload and shutdown").map(([flag, variable, fallback]) => [flag, variable, fallback]);
    expect(rows).toEqual(Object.values(CLIENT_SETTINGS).map(({ flag, variable, fallback }) => [`--${flag}`, variable, fallback ?? "none"]));
  });

  test("lists every error with its status and title", () => {
    const rows = tableUnder("Errors").map(([code, status, title]) => [code, Number(status), title]);
    expect(rows).toEqual(Object.entries(ERRORS).map(([code, { status, title }]) => [code, status, title]));
  });

  test("names every value that the package exports", () => {
    expect(Object.keys(everything).filter((name) => !readme.includes(`\`${name}\``))).toEqual([]);
  });

  test("every link leads to a file or a heading that is there", () => {
    const targets = [...readme.matchAll(/\]\(([^)]+)\)/g)].map((match) => match[1]!);
    const headings = [...readme.matchAll(/^#+ (.+)$/gm)].map((match) => match[1]!.toLowerCase());
    const anchors = headings.map((heading) => `#${heading.replace(/[^\w -]/g, "").replaceAll(" ", "-")}`);
    const exists = (target: string) => (target.startsWith("#") ? anchors.includes(target) : existsSync(`${root}/${target}`));
    expect(targets.length).toBeGreaterThan(20);
    expect(targets.filter((target) => !/^https?:/.test(target) && !exists(target))).toEqual([]);
  });
});

describe("CHANGELOG", () => {
  test("has an entry for the version of the package, below what is unreleased", () => {
    const headings = [...changelog.matchAll(/^## \[([^\]]+)\]/gm)].map((match) => match[1]);
    expect(headings.slice(0, 2)).toEqual(["Unreleased", everything.version]);
  });
});

interface Node extends JsonSchema {
  readonly properties?: Readonly<Record<string, Node>>;
  readonly required?: readonly string[];
  readonly items?: Node;
  readonly default?: unknown;
  readonly $defs?: Readonly<Record<string, Node>>;
}

interface FieldFacts {
  readonly presence: "required" | "defaulted" | "optional";
  readonly value: unknown;
}

/** Fields by dotted name, down to those of nested objects; what `$ref` leads to has a section of its own. */
function fieldsOf(node: Node, prefix = ""): Map<string, FieldFacts> {
  const fields = new Map<string, FieldFacts>();
  for (const [key, field] of Object.entries(node.properties ?? {})) {
    const name = prefix + key;
    const nested = field.properties !== undefined;
    const presence = node.required?.includes(key) ? "required" : "default" in field ? "defaulted" : "optional";
    if (!nested) fields.set(name, { presence, value: field.default });
    for (const entry of fieldsOf(field, `${name}.`)) fields.set(...entry);
    for (const entry of fieldsOf(field.items ?? {}, `${name}[].`)) fields.set(...entry);
  }
  return fields;
}

/** The field without what is below it. */
function leaf({ properties: _, ...field }: Node): Node {
  return field;
}

/** The rows of the first table under a heading, without the backticks around cells. */
function tableUnder(heading: string): string[][] {
  const lines = readme.split("\n");
  const start = lines.findIndex((line) => /^#+ /.test(line) && line.replace(/^#+ /, "") === heading);
  if (start < 0) throw new Error(`README has no heading "${heading}"`);
  const rows: string[][] = [];
  for (const line of lines.slice(start + 1)) {
    if (line.startsWith("|")) rows.push(line.slice(1, -1).split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/^`([^`]*)`$/, "$1")));
    else if (rows.length > 0 || line.startsWith("#")) break;
  }
  if (rows.length < 3) throw new Error(`README has no table under "${heading}"`);
  return rows.slice(2); // below the header and its rule
}

function codeBlocks(language: string): string[] {
  return [...readme.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\`$`, "gm"))].map((match) => match[1]!);
}

/** Runs a program against the sources, as `npx tsx` does against the built package. */
function run(file: string): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(process.execPath, ["--import", "tsx", file], {
    cwd: root,
    env: { PATH: process.env.PATH, TSX_TSCONFIG_PATH: `${root}/spec/tsconfig.json` },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 12_000,
    killSignal: "SIGKILL",
  });
  let out = "";
  let err = "";
  child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (err += chunk.toString()));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, out, err }));
  });
}
