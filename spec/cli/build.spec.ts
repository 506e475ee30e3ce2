/**
 * `edge-gateway build`: the package that it makes, what runs from it, and what it refuses because it does not have it.
 */
import { spawnSync } from "node:child_process";
import { createHash, generateKeyPairSync } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it, onTestFinished } from "vitest";
import { version } from "../../lib/base/version.ts";
import { configServer } from "../support/config_server.ts";
import { origin } from "../support/origin.ts";
import { emptyFolder, fileWith, program, PROGRAM, runningFile, textOf, type Ended } from "../support/process.ts";
import { connect } from "../support/raw_client.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const ENTRIES = ["AUDIT.md", "LICENSE", "SHA256SUMS", "bin", "dist", "lib", "package.json", "sbom.cdx.json"];
const ADMIN = { ADMIN_USER: "admin", ADMIN_PASSWORD: "a long password" };
const service = (more: object = {}) => ({
  name: "s",
  base_path: "/a",
  upstreams: [{ host: "127.0.0.1", port: 9 }],
  routes: [{ path: "/{rest*}", methods: ["GET"] }],
  ...more,
});
const config = (more: object = {}) => ({ services: [service(more)] });
const KEYED = config({
  plugins: [
    { name: "key_auth", config: { key: "k" } },
    { name: "rate_limit", config: { limit_min: 9 } },
  ],
});
const JWT = config({
  plugins: [{ name: "jwt", config: { alg: "HS256", secret: "a secret of more than thirty-two bytes" } }],
});
const NO_JWT =
  'services[0].plugins[0].name  "jwt" is not in this build, which has key_auth, rate_limit: ' +
  "build again with this configuration, or with --with jwt";

const mainOf = (folder: string) => join(folder, "dist/bin/edge-gateway.js");

function build(
  file: string,
  output: string,
  words: readonly string[] = [],
  environment: Record<string, string> = {},
): Promise<Ended> {
  return program(["build", "--config", file, "--output", output, ...words], { environment }).ended;
}

/** The folder of a build. */
async function built(
  text: object,
  words: readonly string[] = [],
  environment: Record<string, string> = {},
): Promise<string> {
  const folder = join(emptyFolder(), "build");
  expect(await build(fileWith(text), folder, words, environment)).toMatchObject({ code: 0, stderr: "" });
  return folder;
}

function filesBelow(folder: string, above = ""): string[] {
  return readdirSync(join(folder, above))
    .flatMap((name) =>
      statSync(join(folder, above, name)).isDirectory() ? filesBelow(folder, `${above}${name}/`) : [above + name],
    )
    .sort();
}

const contentOf = (folder: string) =>
  filesBelow(folder).map((name) => [
    name,
    readFileSync(join(folder, name), "latin1"),
    statSync(join(folder, name)).mode,
  ]);

/** What the program in `folder` says of `text`. */
const said = (folder: string, text: object, words: readonly string[] = [], environment: Record<string, string> = {}) =>
  program([...words, "--config", fileWith(text), "--http-port", "0", "--listen-host", "127.0.0.1"], {
    environment,
    main: mainOf(folder),
  }).ended;

const REQUESTS = [
  "GET /a/x?q=1 HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nConnection: close\r\n\r\n",
  "HEAD /a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
  "GET /nowhere HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
  "POST /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
  "GET /a/../x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
  "GET /a/x HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
  "GET /a/x HTTP/1.1\r\nBad Header: 1\r\n\r\n",
  "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
  "\x16\x03\x01 hello\r\n\r\n",
];

/** With what differs between two runs of one program left out: the time, and the identifier of the request. */
async function answers(port: number): Promise<string[]> {
  const all: string[] = [];
  for (const request of REQUESTS) {
    const connection = await connect(port);
    connection.send(request);
    all.push(
      (await connection.closed())
        .replace(/^Date: .*$/gim, "Date")
        .replace(/[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{32}\b/g, "id"),
    );
  }
  return all;
}

describe("edge-gateway build", () => {
  it(
    "makes a package whose program answers as the whole program does, and loads what audit lists",
    { timeout: 30_000 },
    async () => {
      const upstream = await origin((_request, response) => void response.setHeader("Date", "now").end("ok"));
      onTestFinished(() => upstream.close());
      const file = fileWith(config({ upstreams: [{ host: "127.0.0.1", port: upstream.port }] }));
      const folder = join(emptyFolder(), "build");
      expect(await build(file, folder)).toMatchObject({
        code: 0,
        stderr: "",
        stdout: expect.stringContaining(`node ${mainOf(folder)} --config ${file}`),
      });
      const [whole, part] = [await runningFile(file), await runningFile(file, [], {}, undefined, mainOf(folder))];
      const expected = await answers(whole.port);
      expect(expected.map((text) => text.slice(9, 12))).toEqual([
        "200",
        "200",
        "404",
        "405",
        "400",
        "400",
        "400",
        "400",
        "400",
      ]);
      expect(await answers(part.port)).toEqual(expected);
    },
  );

  it("has eight entries: the modules with their sources, what is said of them, and no others", async () => {
    const folder = await built(KEYED);
    expect(readdirSync(folder).sort()).toEqual(ENTRIES);
    const { name, ...own } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Record<string, unknown>;
    expect([name, own.version]).toEqual(["edge-gateway", version]);
    for (const field of ["dependencies", "devDependencies", "scripts"]) expect(own).not.toHaveProperty(field);
    const manifest = "dist/lib/modules.json";
    const modules = filesBelow(folder).filter((path) => path.startsWith("dist/") && path !== manifest);
    expect(modules.filter((path) => !path.endsWith(".js"))).toEqual([]);
    const sums = JSON.parse(readFileSync(join(folder, manifest), "utf8")) as Record<string, string>;
    expect(Object.keys(sums).map((path) => `dist/${path}`)).toEqual(modules);
    expect(modules).toEqual(expect.arrayContaining(["dist/lib/plugins/key_auth.js", "dist/lib/plugins/rate_limit.js"]));
    expect(modules.filter((path) => /plugins\/jwt|admin\/|cli\/(?:build|import|demo)/.test(path))).toEqual([]);
    expect(filesBelow(folder).filter((path) => path.endsWith(".ts"))).toEqual(
      modules.map((path) => path.replace(/^dist\/(.*)\.js$/, "$1.ts")).sort(),
    );
    const copies = filesBelow(folder).filter((each) => /^(?:dist|lib|bin)\/|LICENSE/.test(each) && each !== manifest);
    for (const path of copies)
      expect([path, readFileSync(join(folder, path), "utf8")]).toEqual([path, readFileSync(join(ROOT, path), "utf8")]);
    const audit = readFileSync(join(folder, "AUDIT.md"), "utf8");
    for (const path of modules) {
      const sha256 = createHash("sha256")
        .update(readFileSync(join(folder, path)))
        .digest("hex");
      const lines = readFileSync(join(folder, path.replace(/^dist\/(.*)\.js$/, "$1.ts")), "utf8")
        .trimEnd()
        .split("\n").length;
      expect(audit).toContain(`| ${path} | ${lines} | ${sha256} |`);
    }
    expect(audit).toContain("127.0.0.1:9  upstream");
    expect(spawnSync("sha256sum", ["--check", "--strict", "--quiet", "SHA256SUMS"], { cwd: folder }).status).toBe(0);
    const bill = JSON.parse(readFileSync(join(folder, "sbom.cdx.json"), "utf8")) as {
      specVersion: string;
      metadata: { component: unknown };
      components: unknown;
    };
    expect(bill).toMatchObject({
      bomFormat: "CycloneDX",
      specVersion: "1.6",
      metadata: { component: { name: "edge-gateway", version, purl: `pkg:npm/edge-gateway@${version}` } },
      components: [],
    });
  });

  it("has the same bytes and modes for the same input, whatever the folders", async () => {
    const [first, second] = [await built(KEYED, ["--with", "cors"]), await built(KEYED, ["--with", "cors"])];
    expect(contentOf(first)).toEqual(contentOf(second));
    expect(readFileSync(join(first, "AUDIT.md"), "utf8")).toContain("built for gw.json");
  });

  it("refuses a folder that is not empty, and a file; accepts an empty folder", async () => {
    const [file, folder] = [fileWith(config()), emptyFolder()];
    expect(await build(file, folder)).toMatchObject({ code: 0 });
    const content = contentOf(folder);
    expect(await build(file, folder)).toMatchObject({
      code: 2,
      stdout: "",
      stderr: `edge-gateway: ${folder} (--output) is not empty: name a folder that is not there yet\n`,
    });
    expect(contentOf(folder)).toEqual(content);
    expect(await build(file, file)).toMatchObject({
      code: 2,
      stderr: `edge-gateway: ${file} (--output) is a file: name a folder\n`,
    });
    expect(await program(["build", "--config", file]).ended).toMatchObject({
      code: 2,
      stderr: "edge-gateway: build needs a folder for the package: edge-gateway build --config gw.json --output DIR\n",
    });
  });

  it.each([
    ["with an error", { services: [service({ base_pat: "/x" })] }, /base_pat/],
    [
      "that cannot be read",
      { services: [service({ plugins: [{ name: "key_auth", config: { key: "${file:nowhere}" } }] })] },
      /nowhere/,
    ],
    [
      "whose test fails",
      { services: [service()], tests: [{ name: "t", request: { url: "/a/x" }, expect: { status: 404 } }] },
      /tests\[0\]/,
    ],
  ])("refuses a configuration %s with exit code 2, and makes no folder", async (_title, text, message) => {
    const folder = join(emptyFolder(), "build");
    const ended = await build(fileWith(text), folder);
    expect(ended).toMatchObject({ code: 2, stdout: "", stderr: expect.stringMatching(message) });
    expect(ended.stderr).toMatch(/\nThe configuration has an error; no package was made\.\n$/);
    expect(existsSync(folder)).toBe(false);
  });

  it("refuses a name that there is not, and help lists those that there are", async () => {
    const folder = join(emptyFolder(), "build");
    expect(await build(fileWith(config()), folder, ["--with", "jwz"])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/^edge-gateway: --with: there is no "jwz"; there are .*\bjwt\b/),
    });
    expect(existsSync(folder)).toBe(false);
    const { stdout } = await program(["build", "--help"]).ended;
    for (const name of ["admin", "manager", "probes", "workers", "tracing", "proof", "jwt", "http2", "sign"])
      expect(stdout).toMatch(new RegExp(`^For --with: .*\\b${name}\\b`, "m"));
  });
});

describe("a build", () => {
  it(
    "refuses what it does not have, at a start: kinds, fields, settings and commands",
    { timeout: 30_000 },
    async () => {
      const folder = await built(KEYED);
      const of = async (text: object, words: readonly string[] = [], environment: Record<string, string> = {}) => {
        const { code, stdout, stderr } = await said(folder, text, words, environment);
        expect([code, stdout]).toEqual([2, ""]);
        return stderr
          .split("\n")
          .filter((line) => line.includes("is not in this build"))
          .map((line) => line.replace(/^.*?gw\.json:\d+:\d+ {2}|^edge-gateway: /, ""));
      };
      expect(await of(JWT)).toEqual([NO_JWT]);
      expect(await program(["validate", fileWith(JWT)], { main: mainOf(folder) }).ended).toMatchObject({
        code: 2,
        stderr: expect.stringContaining(NO_JWT),
      });
      expect(await of(config({ sticky: {} }))).toEqual([
        "services[0].sticky  is not in this build: build again with this configuration, or with --with balancing",
      ]);
      expect(await of(config({ protocol: "h2c" }))).toEqual([
        'services[0].protocol  "h2c" is not in this build: build again with this configuration, or with --with http2',
      ]);
      expect(await of({ ...config(), tests: [] })).toEqual([
        "tests  is not in this build: build again with this configuration, or with --with tests",
      ]);
      expect(await of(KEYED, [], ADMIN)).toEqual([
        'the settings name "admin", which is not in this build: build again with these settings, or with --with admin',
      ]);
      const traces = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" };
      expect(await of(KEYED, [], traces)).toEqual([
        'the settings name "tracing", which is not in this build: ' +
          "build again with these settings, or with --with tracing",
      ]);
      const [signed, unsigned] = [
        { CONFIG_PUBLIC_KEY: "public.pem" },
        'the settings name "sources", which is not in this build: build again with these settings, ' +
          "or with --with sources",
      ];
      expect(await of(KEYED, [], signed)).toEqual([unsigned]);
      expect(
        await program(["validate", fileWith(KEYED)], { environment: signed, main: mainOf(folder) }).ended,
      ).toMatchObject({ code: 2, stderr: expect.stringContaining(unsigned) });
      expect(await of(KEYED, ["test"])).toEqual([
        '"test" is not in this build, which has run, validate, healthcheck, audit, hash-password, verify, help: ' +
          "build again with --with test",
      ]);
      const help = await program(["--help"], { main: mainOf(folder) }).ended;
      expect(help.stdout).toMatch(/^ {2}validate /m);
      expect(help.stdout).not.toMatch(/^ {2}(?:test|build|import) /m);
      const explained = await program(["help", "key_missing"], { main: mainOf(folder) }).ended;
      expect(explained).toMatchObject({
        code: 0,
        stdout: expect.stringMatching(
          new RegExp(
            String.raw`Status: 401\n {2}Title: An API key is required\n {2}This package has no ` +
              String.raw`documentation: docs\/troubleshooting\.md`,
          ),
        ),
      });
      for (const words of [["--version"], ["validate", fileWith(KEYED)], ["audit", fileWith(KEYED)]])
        expect(await program(words, { main: mainOf(folder) }).ended).toMatchObject({ code: 0, stderr: "" });
      expect(
        await program(["hash-password"], { main: mainOf(folder), input: "a long password\n" }).ended,
      ).toMatchObject({ code: 0 });
    },
  );

  it("refuses a reload that names what it does not have, and stays as it is", async () => {
    const folder = await built(KEYED);
    const file = fileWith(KEYED);
    const running = await runningFile(file, [], {}, undefined, mainOf(folder));
    writeFileSync(file, JSON.stringify(JWT));
    running.child.kill("SIGHUP");
    const log = await running.says(/"message":"reload refused.*\n/);
    expect(log).toContain(JSON.stringify(NO_JWT).slice(1, -1));
    const connection = await connect(running.port);
    connection.send("GET /a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    expect(await connection.closed()).toContain("401"); // by key_auth
  });

  it("takes a reload that names nothing else, and says what it changes and warns of", async () => {
    const folder = await built(config());
    const file = fileWith(config());
    const running = await runningFile(file, [], {}, undefined, mainOf(folder));
    const [all, one, more] = ["/{rest*}", "/{x}", "/{x}/{rest*}"].map((path, i) => ({ name: `r${i}`, path }));
    writeFileSync(file, JSON.stringify(config({ routes: [all, one, more] })));
    running.child.kill("SIGHUP");
    expect(await running.says(/"code":"route_unreachable".*\n/)).toContain('"changes":["added    service');
  });

  it("has what --with names, and what settings of the environment name", { timeout: 30_000 }, async () => {
    const folder = await built(config(), ["--with", "jwt", "--with", "sharedCounters", "--with", "proof"], ADMIN);
    for (const text of [JWT, { ...config(), global: { counters: { store: "redis", url: "redis://127.0.0.1:1" } } }]) {
      expect(await program(["validate", fileWith(text)], { main: mainOf(folder) }).ended).toMatchObject({ code: 0 });
    }
    const tested = { ...config(), tests: [{ name: "t", request: { url: "/b" }, expect: { status: 404 } }] };
    expect(await program(["test", fileWith(tested)], { main: mainOf(folder) }).ended).toMatchObject({ code: 0 });
    expect(
      await program(["explain", "GET", "http://h/a/x", "--config", fileWith(config())], { main: mainOf(folder) }).ended,
    ).toMatchObject({ code: 0 });
    expect(
      await program(["diff", fileWith(config()), fileWith(config())], { main: mainOf(folder) }).ended,
    ).toMatchObject({ code: 0 });
    const { port, started } = await runningFile(fileWith(config()), [], ADMIN, undefined, mainOf(folder));
    const answered = await fetch(`http://127.0.0.1:${port}/nowhere`);
    const words = ["explain", "--id", answered.headers.get("x-request-id")!, "--admin", String(started.admin)];
    expect(await program(words, { main: mainOf(folder), environment: ADMIN }).ended).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("got 404 route_not_found") as string,
    });
  });

  it(
    "with the interfaces of operators serves their pages, and refuses in dry runs what it does not have",
    { timeout: 30_000 },
    async () => {
      const environment = { ...ADMIN, MANAGER: "true" };
      const folder = await built(config(), [], environment);
      expect(await program(["verify", folder], { main: mainOf(folder) }).ended).toMatchObject({ code: 0 });
      const { started } = await runningFile(fileWith(config()), [], environment, undefined, mainOf(folder));
      const page = await (await fetch(String(started.manager))).text();
      const scripts = [...page.matchAll(/(?:src|href)="([^":]+\.(?:js|css))"/g)].map(
        ([, path]) => new URL(path!, String(started.manager)),
      );
      expect(scripts.length).toBeGreaterThan(0);
      for (const url of scripts) expect([url.pathname, (await fetch(url)).status]).toEqual([url.pathname, 200]);
      const tried = await program(["reload", "--dry-run", fileWith(JWT), "--admin-url", String(started.admin)], {
        environment: ADMIN,
        main: mainOf(folder),
      }).ended;
      expect(tried).toMatchObject({
        code: 1,
        stderr: expect.stringContaining(
          'services[0].plugins[0].name  "jwt" is not in this build, which has no plugin kind',
        ),
      });
      const { code, stderr } = await said(folder, config(), [], { ...ADMIN, WORKERS: "2" });
      expect([code, stderr]).toEqual([
        2,
        expect.stringContaining('the settings name "workers", which is not in this build'),
      ]);
    },
  );

  it("brings what runs the tests of its configuration", async () => {
    const tested = { ...config(), tests: [{ name: "t", request: { url: "/b" }, expect: { status: 404 } }] };
    const folder = await built(tested);
    expect(await program(["validate", fileWith(tested)], { main: mainOf(folder) }).ended).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("1 test passed"),
    });
  });

  it("takes a URL, whose query no file of it has: it starts from there, and from no other kind of source", async () => {
    const served = await configServer();
    served.files.set("/gw.json", textOf(config()));
    const url = `${served.url}?token=t0ken`;
    const folder = join(emptyFolder(), "build");
    const { code, stdout, stderr } = await build(url, folder);
    expect([code, stderr]).toEqual([0, ""]);
    expect(served.requests.map((request) => request.url)).toEqual(["/gw.json?token=t0ken"]);
    expect(readFileSync(join(folder, "AUDIT.md"), "utf8")).toContain(`, built for ${served.url}?…\n`);
    expect(stdout).toContain(`--config ${served.url}?…`);
    for (const [, content] of contentOf(folder)) expect(content).not.toContain("t0ken");
    const start = (from: string) =>
      program(["--config", from, "--http-port", "0", "--https-port", "0", "--listen-host", "127.0.0.1"], {
        main: mainOf(folder),
      });
    await start(url).says(/"message":"edge-gateway [^"]+ started"/);
    expect(await start("etcd://127.0.0.1:9/gw.json").ended).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("is not in this build: build again with these settings"),
    });
  });

  it("is whole for verify, unsigned with a note; with --key only with a good signature", async () => {
    const folder = await built(config());
    const { code, stdout } = await program(["verify", folder]).ended;
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^dist\/bin\/edge-gateway\.js: OK$[^]*as SHA256SUMS lists them; it is not signed/m),
    ]);
    expect(await program(["verify", folder], { main: mainOf(folder) }).ended).toMatchObject({ code: 0 });
    const { publicKey, privateKey } = generateKeyPairSync("ed25519");
    const pem = fileWith(publicKey.export({ type: "spki", format: "pem" }), "public.pem");
    expect(await program(["verify", folder, "--key", pem]).ended).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("SHA256SUMS.sig is missing"),
    });
    const secret = fileWith(privateKey.export({ type: "pkcs8", format: "pem" }), "private.pem");
    expect(await program(["sign", join(folder, "SHA256SUMS"), "--key", secret]).ended).toMatchObject({ code: 0 });
    expect(await program(["verify", folder, "--key", pem]).ended).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("as signed with the key"),
    });
    writeFileSync(mainOf(folder), "");
    mkdirSync(join(folder, "lib/more"));
    expect(await program(["verify", folder, "--key", pem]).ended).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/edge-gateway\.js has another SHA-256[^]*lib\/more is not listed/),
    });
    expect(await program(["verify", folder]).ended).toMatchObject({ code: 2 }); // signed, and no key
  });
});

it("the whole program knows no build", () => {
  expect(JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"))).not.toHaveProperty("edgeGateway");
  expect(existsSync(PROGRAM)).toBe(true);
});
