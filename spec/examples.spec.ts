/**
 * The files in examples/ are valid and run, and the version is the same everywhere. The documents are checked by
 * `documents.spec.ts`.
 */
import { spawn } from "node:child_process";
import { createHash, generateKeyPairSync } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync, writeFileSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { formatIssues, type LoadResult } from "../lib/config/load.ts";
import { SETTINGS } from "../lib/config/settings_table.ts";
import type { Setting } from "../lib/config/start_settings.ts";
import { createGateway, loadPluginModules, version, type ConfigInput } from "../lib/index.ts";
import { builtinPlugins } from "../lib/plugins/builtin.ts";
import { blocksOf, document, documents, found, read, root, tableUnder } from "./support/documents.ts";
import { emptyFolder, program } from "./support/process.ts";
import { checkRoutes, loadConfig } from "./support/schema.ts";

const changelog = read("CHANGELOG.md");
const jsonExamples = readdirSync(`${root}/examples`).filter((name) => name.endsWith(".json"));
const settings = Object.values(SETTINGS) as Setting<unknown>[];

const folder = mkdtempSync(join(tmpdir(), "edge-gateway-examples-"));
afterAll(() => rmSync(folder, { recursive: true }));
const IDENTITY_KEY_FILE = join(folder, "identity.pem");
const identityKey = String(generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));
writeFileSync(IDENTITY_KEY_FILE, identityKey);
const environment = {
  SHOP_WEB_KEY: "web",
  SHOP_OLD_KEY: "old",
  STATUS_KEY: "status",
  ORDERS_KEY: "orders",
  SHOP_MOBILE_KEY: "mobile",
  AUDITOR_PASSWORD: "auditor",
  INTROSPECTION_SECRET: "a secret",
  IDENTITY_KEY_FILE,
  OIDC_CLIENT_SECRET: "a secret",
  OIDC_SESSION_SECRET: "s3cr3t".repeat(8),
};
const secretFiles: Readonly<Record<string, string>> = {
  "/run/secrets/shop_mobile_key": "mobile\n",
  [IDENTITY_KEY_FILE]: identityKey,
};

function load(text: string, references: "given" | "missing" = "given"): LoadResult {
  return loadConfig(
    { text, file: `${root}/examples/gw.json` },
    {
      kinds: builtinPlugins,
      environment: references === "given" ? environment : {},
      readFile(path) {
        if (path.includes("/examples/errors/")) return readFileSync(path);
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
  it("quickstart, plugins, balancing and tls are there", () => {
    expect(jsonExamples).toEqual(
      expect.arrayContaining(["balancing.json", "plugins.json", "quickstart.json", "tls.json"]),
    );
  });

  it.each(jsonExamples)("%s is a valid configuration", (name) => {
    expect(issuesOf(read(`examples/${name}`))).toBe("");
  });

  it("plugins.json is refused, reference by reference, while its secrets are missing", () => {
    const loaded = load(read("examples/plugins.json"), "missing");
    const places = loaded.ok ? [] : loaded.issues.map(({ message }) => /\$\{[^}]*\}/.exec(message)?.[0]);
    expect(places).toEqual([
      "${env:SHOP_WEB_KEY}",
      "${file:/run/secrets/shop_mobile_key}",
      "${env:SHOP_OLD_KEY}",
      "${env:STATUS_KEY}",
    ]);
  });

  it("tested.json contains all of plugins.json, except that its keys need no file", () => {
    const written = JSON.parse(
      read("examples/plugins.json").replace("${file:/run/secrets/shop_mobile_key}", "${env:SHOP_MOBILE_KEY}"),
    ) as ConfigInput;
    expect(tested().global).toMatchObject(written.global!);
    expect(tested().services.slice(0, written.services.length)).toEqual(written.services);
  });

  it.each(jsonExamples)("edge-gateway validate --strict accepts %s: it has no warning, or accepts it", async (name) => {
    const file = join(emptyFolder(), name);
    writeFileSync(
      file,
      read(`examples/${name}`)
        .replace("${file:/run/secrets/shop_mobile_key}", "${env:SHOP_MOBILE_KEY}")
        .replace('"errors/', `"${root}/examples/errors/`),
    );
    expect(await program(["validate", "--strict", file], { environment }).ended).toMatchObject({ code: 0, stderr: "" });
  });

  it("edge-gateway test runs the tests of tested.json, and all pass", async () => {
    const { code, stdout } = await program(["test", `${root}/examples/tested.json`], { environment }).ended;
    expect([code, stdout]).toEqual([0, expect.stringMatching(/\n\d\d passed\n$/)]);
  });

  it("edge-gateway test runs the tests of errors.json, and all pass", async () => {
    const { code, stdout } = await program(["test", `${root}/examples/errors.json`]).ended;
    expect([code, stdout]).toEqual([0, expect.stringContaining("3 passed")]);
  });

  it("tested.json uses every built-in plugin kind", () => {
    const used = pluginsOf(tested()).map(({ name }) => name);
    expect(builtinPlugins.map(({ name }) => name).filter((name) => !used.includes(name))).toEqual([]);
  });

  it(
    "every plugin of tested.json is tested: without it a test fails, " +
      "and so does one if it is disabled or in shadow mode and would take effect",
    { timeout: 60_000 },
    async () => {
      expect(await failed(tested())).toEqual([]);
      const untested = [];
      for (let i = 0; i < pluginsOf(tested()).length; i++) {
        const config = tested();
        const plugin = pluginsOf(config)[i]!;
        const settings = plugin.config as { mode?: string };
        if (plugin.enabled === false) plugin.enabled = true;
        else if (settings.mode === "shadow") settings.mode = "enforce";
        else plugin.enabled = false;
        if ((await failed(config)).length === 0) untested.push(plugin.name);
      }
      // They never change a reply of one request after another.
      expect(untested).toEqual(["mirror", "http_log", "concurrency"]);
    },
  );

  it("the configuration of the Compose example is valid", () => {
    const text = read("examples/docker/gateway/gw.json").replace(
      "${file:/run/secrets/orders_key}",
      "${env:ORDERS_KEY}",
    );
    expect(issuesOf(text)).toBe("");
  });

  it("the ConfigMap for Kubernetes holds a valid configuration", () => {
    const yaml = read("examples/kubernetes/edge-gateway.yaml");
    const block = /^  gw\.json: \|\n((?: {4}.*\n)+)/m.exec(yaml)?.[1] ?? "";
    expect(issuesOf(block.replace(/^ {4}/gm, ""))).toBe("");
  });

  it(
    "every variable that the Docker, systemd and Kubernetes examples set is a setting or one of " +
      "the configuration's secrets",
    () => {
      const lines = [...read("examples/systemd/edge-gateway.service").matchAll(/^#?Environment=(.+)$/gm)];
      const assignments = lines.flatMap((line) => line[1]!.split(" "));
      const set = [
        ...found(read("examples/docker/Dockerfile"), /^ENV (?!PATH=)(\w+)=/gm),
        ...found(read("examples/docker/compose.yaml"), /^ {6}((?!GF_|ECHO_)[A-Z]\w+): /gm),
        ...assignments.map((assignment) => assignment.split("=", 1)[0]!),
        ...[...read("examples/kubernetes/edge-gateway.yaml").matchAll(/\bname: ([A-Z]\w+)/g)].map((match) => match[1]!),
        ...found(read("examples/docker/fleet.yaml"), /^ {4}([A-Z]\w+): /gm),
      ];
      expect(set).toEqual(
        expect.arrayContaining([
          "CONFIG_FILE_PATH",
          "PROBE_PORT",
          "PROBE_HOST",
          "METRICS_TOKEN",
          "METRICS_TOKEN_FILE",
          "ADMIN_PASSWORD",
          "ADMIN_PASSWORD_FILE",
          "ORDERS_KEY",
        ]),
      );
      // NODE_OPTIONS is Node's own.
      const known = [...settings.map(({ variable }) => variable), ...Object.keys(environment), "NODE_OPTIONS"];
      expect(set.filter((name) => !known.includes(name) && !/^Compared with \d+\.\d+\.\d+$/.test(name))).toEqual([]);
    },
  );

  it("no deployment example opens the admin interface or the management UI to other machines", () => {
    const texts = [
      "docker/Dockerfile",
      "docker/compose.yaml",
      "docker/fleet.yaml",
      "systemd/edge-gateway.service",
      "kubernetes/edge-gateway.yaml",
      "kubernetes/fleet.yaml",
    ].map((name) => read(`examples/${name}`));
    expect(texts.join("\n")).not.toMatch(/\b(ADMIN|MANAGER)_HOST\b/);
  });

  it("the base images of the Dockerfile are arguments, and both have Node 24, which has long-term support", () => {
    const text = read("examples/docker/Dockerfile");
    expect(found(text, /^FROM (\S+)/gm)).toEqual(["${NODE_IMAGE}", "${BASE_IMAGE}"]);
    expect(found(text, /^ARG (\S+)/gm)).toEqual([
      "NODE_IMAGE=node:24-slim",
      "BASE_IMAGE=gcr.io/distroless/nodejs24-debian12:nonroot",
    ]);
  });

  it("every metric of the alert rules is in the documentation, whose table is that of the program", () => {
    const documented = tableUnder("Metrics", document("docs/observability.md")).map(([name]) => name!);
    const used = new Set(found(read("examples/prometheus/alerts.yml"), /\b((?:edge_gateway|process)_\w+)/g));
    expect(used.size).toBeGreaterThan(10);
    expect([...used].filter((name) => !documented.includes(name.replace(/_bucket$/, "")))).toEqual([]);
  });

  it.each([
    ["embed.ts", /^injected: 401 200\n[^]*\nclosed: +drained\n$/],
    ["plugin_test.ts", /^exercised: 503, 200\nfrom a module: 400\n$/],
    ["custom_plugin.ts", /^tenant plugin: 403, 200, 200, 429, 200\n[^]*did you mean "plans"\?[^]*$/],
  ])("%s runs, does what it shows and ends by itself", async (name, output) => {
    const { code, out, err } = await run(`examples/${name}`);
    expect(err).toBe("");
    expect(out).toMatch(output);
    expect(code).toBe(0);
  });

  it("every example in TypeScript is one of those that are run here", () => {
    const programs = readdirSync(`${root}/examples`).filter((name) => name.endsWith(".ts"));
    expect(programs).toEqual(["custom_plugin.ts", "embed.ts", "plugin_test.ts"]);
  });

  it(
    "plugin_module.mjs runs from a configuration that names its digest, " + "as docs/writing-plugins.md shows",
    async () => {
      const [shown = ""] = blocksOf(document("docs/writing-plugins.md"), "json");
      const sha256 = createHash("sha256").update(read("examples/plugin_module.mjs")).digest("hex");
      const service = {
        name: "s",
        base_path: "/",
        upstreams: [{ host: "127.0.0.1", port: 1 }],
        routes: [{ path: "/" }],
      };
      const text = shown.replace("DIGEST", sha256).replace("plugin_module.mjs", `${root}/examples/plugin_module.mjs`);
      const config = { ...JSON.parse(text), services: [service] };
      const gateway = createGateway({ config, modules: await loadPluginModules(config) });
      const refused = await gateway.inject({ url: "/" });
      await gateway.close(0);
      expect([refused.status, (refused.json() as { code: string }).code]).toEqual([400, "deadline_missing"]);
    },
  );
});

describe("the version", () => {
  it("the version is the same in package.json, package-lock.json, the Kubernetes examples and the documents", () => {
    const lock = JSON.parse(read("package-lock.json")) as {
      version: string;
      packages: Record<string, { version?: string }>;
    };
    const shown = documents.flatMap(({ text }) =>
      found(text, /(?:edge-gateway[- :]|"version":")(\d+\.\d+\.\d+(?:-dev)?)\b/g),
    );
    const images = ["edge-gateway", "fleet"].map(
      (name) => /image: edge-gateway:(\S+)/.exec(read(`examples/kubernetes/${name}.yaml`))?.[1],
    );
    expect(shown.length).toBeGreaterThan(2);
    expect([lock.version, lock.packages[""]!.version, ...images, ...shown].filter((each) => each !== version)).toEqual(
      [],
    );
  });

  it(
    "the version is that of the newest release in CHANGELOG.md, or names no release and ends in -dev: " +
      "with unreleased changes it does",
    () => {
      const releases = found(changelog, /^## \[(\d[^\]]*)\]/gm);
      const isReleased = version === releases[0] && !/^## \[Unreleased\]\n+(?!## )./m.test(changelog);
      expect(isReleased || (version.endsWith("-dev") && !releases.includes(version.slice(0, -"-dev".length)))).toBe(
        true,
      );
    },
  );

  it(
    "every release in CHANGELOG.md has a date, and its headings are the headings of Keep a Changelog, " +
      "'What may break' and what `compare` finds",
    () => {
      const releases = found(changelog, /^## (.+)$/gm);
      expect(releases.filter((line) => !/^\[(Unreleased\]|\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2})$/.test(line))).toEqual(
        [],
      );
      const known = ["What may break", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
      expect(
        found(changelog, /^### (.+)$/gm).filter(
          (name) => !known.includes(name) && !/^Compared with \d+\.\d+\.\d+$/.test(name),
        ),
      ).toEqual([]);
    },
  );
});

interface WrittenPlugin {
  readonly name: string;
  enabled?: boolean;
  readonly config: object;
}

function tested(): ConfigInput {
  return JSON.parse(read("examples/tested.json")) as ConfigInput;
}

function pluginsOf({ global = {}, services }: ConfigInput): WrittenPlugin[] {
  const levels = [global, ...services, ...services.flatMap(({ routes }) => routes)];
  return levels.flatMap(({ plugins = [] }) => plugins) as WrittenPlugin[];
}

/** The names of the tests that fail. */
async function failed(config: ConfigInput): Promise<string[]> {
  const gateway = createGateway({ config, environment });
  const { tests } = await gateway.test();
  await gateway.close(0);
  return tests.filter(({ passed }) => !passed).map(({ name }) => name);
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
