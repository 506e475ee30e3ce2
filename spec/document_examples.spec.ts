/**
 * Every example in the documents works: configurations are valid, commands exist, and what they print is what the
 * documents show.
 */
import { spawnSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { silentLog } from "../lib/base/log.ts";
import { UsersFile } from "../lib/cli/users_file.ts";
import type { AnyConfigInput } from "../lib/config/model.ts";
import { formatIssues } from "../lib/config/load.ts";
import { createGateway } from "../lib/index.ts";
import { builtinPlugins } from "../lib/plugins/builtin.ts";
import { SERVER } from "./support/certs.ts";
import { readCurl, runCurl, wordsOf } from "./support/curl.ts";
import { blocksOf, document, documents, found, patternOf, read, root, type Document } from "./support/documents.ts";
import { authority } from "./support/pki.ts";
import { fileWith, program } from "./support/process.ts";
import { checkRoutes, loadConfig } from "./support/schema.ts";

const { echo } = (await import(new URL("../examples/echo.mjs", import.meta.url).href)) as {
  echo: (name: string) => http.RequestListener;
};
const ED25519 = String(generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));
const scripts = Object.keys((JSON.parse(read("package.json")) as { scripts: object }).scripts);
const benchmarks = readdirSync(`${root}/spec/bench`).map((name) => name.replace(/\.ts$/, ""));

describe("JSON", () => {
  const all = documents.flatMap(({ path, blocks }) => blocks.map(({ info, text }) => ({ path, info, text })));
  const blocks = all.filter(({ info }) => info.startsWith("json"));

  it("every block is JSON", () => {
    expect(blocks.length).toBeGreaterThan(25);
    const broken = blocks.filter(({ text }) => {
      try {
        return typeof JSON.parse(text) !== "object";
      } catch {
        return true;
      }
    });
    expect(broken).toEqual([]);
  });

  it("every block that is not output, or a file of users, is a valid configuration, or a valid plugin of one", () => {
    const given = blocks.filter(({ info }) => !["json output", "json users"].includes(info));
    const wrong = given
      .map(({ path, text }) => ({ path, issues: issuesOf(asConfiguration(text)) }))
      .filter(({ issues }) => issues !== "");
    expect(wrong).toEqual([]);
  });

  it("users of the admin interface are a file that a start accepts", () => {
    const [users] = blocks.filter(({ info }) => info === "json users");
    const usersPath = fileWith(users!.text, "users.json");
    expect(new UsersFile({ user: null, viewer: null, usersPath }, silentLog).accounts.length).toBeGreaterThan(1);
  });

  it("README.md and docs/configuration.md show examples/quickstart.json as it is", () => {
    const quickstart = read("examples/quickstart.json");
    for (const path of ["README.md", "docs/configuration.md"]) {
      expect(blocksOf(document(path), "json")).toContain(quickstart);
    }
  });
});

describe("programs", () => {
  const examples = readdirSync(`${root}/examples`);

  it.each([
    ["ts", ".ts"],
    ["js", ".mjs"],
  ])("every block of %s stands word for word in an example that is run", (info, ending) => {
    const files = examples.filter((name) => name.endsWith(ending)).map((name) => read(`examples/${name}`));
    const blocks = documents.flatMap((page) => blocksOf(page, info));
    expect(blocks.length).toBeGreaterThan(0);
    expect(blocks.filter((block) => !files.some((file) => file.includes(block)))).toEqual([]);
  });
});

describe("commands", () => {
  const lines = documents.flatMap((page) => {
    const typed = blocksOf(page, "console").flatMap((text) => found(text, /^\$ (.*)$/gm));
    return [...blocksOf(page, "sh").flatMap(linesOf), ...typed].map((line) => ({ path: page.path, line }));
  });
  // Code spans that are commands, in the tables of commands and in sentences.
  const spans = documents.flatMap(({ path, prose }) =>
    found(prose, /`((?:npx |npm |node )[^`]+|edge-gateway(?: [^`]+)?)`/g).map((line) => ({ path, line })),
  );

  it("every npm script, benchmark and file that a command names is there", () => {
    const missing = [...lines, ...spans].filter(({ line }) => {
      const words = wordsOf(line.replace(/#.*$/, ""));
      return words.some((word, i) => {
        const [before, after] = [words[i - 1], words[i + 1]];
        if (word === "run" && before === "npm" && !scripts.includes(after!)) return true;
        if (word === "--" && before === "bench" && !benchmarks.includes(after!)) return true;
        if (/^(examples|spec|docs|lib|bin)\//.test(word))
          return !existsSync(`${root}/${word}`) && !existsSync(`${root}/${word}.spec.ts`);
        return false;
      });
    });
    expect(missing).toEqual([]);
  });

  it(
    "every command of edge-gateway has the verb and the flags that it is shown with",
    { timeout: 60_000 },
    async () => {
      const help = await program(["--help"]).ended;
      const verbs = found(help.stdout, /^ {2}([a-z][a-z-]+) /gm);
      const texts = await Promise.all(verbs.map(async (verb) => (await program([verb, "--help"]).ended).stdout));
      const flagsOf = new Map(verbs.map((verb, i) => [verb, found(texts[i]!, /(--[a-z0-9-]+)/g)]));
      const uses = [...lines, ...spans].flatMap(({ path, line }) =>
        usesOf(line).map((words) => ({ path, line, words })),
      );
      expect(uses.length).toBeGreaterThan(20);
      const wrong = uses.filter(({ words }) => {
        const verb = words.find((word) => !word.startsWith("-") && verbs.includes(word)) ?? "run";
        const known = [...(flagsOf.get(verb) ?? []), "--help", "--version"];
        const first = words[0];
        const unknownVerb =
          first !== undefined && !/^[-[("]/.test(first) && !verbs.includes(first) && first !== "COMMAND";
        return unknownVerb || words.some((word) => word.startsWith("--") && !known.includes(word.split("=")[0]!));
      });
      expect(wrong).toEqual([]);
    },
  );

  it("every curl line has flags that exist, and quotes the characters that a shell would interpret", () => {
    const curls = lines.filter(({ line }) => line.startsWith("curl "));
    expect(curls.length).toBeGreaterThan(30);
    for (const { line } of curls) if (!/--cacert|--http2/.test(line)) expect(() => readCurl(line, "")).not.toThrow();
    expect(curls.filter(({ line }) => /[;&?*{}]/.test(line.replace(/'[^']*'|"[^"]*"/g, "")))).toEqual([]);
  });
});

describe("what the documents show on a console is what happens", () => {
  const shown = documents.filter(({ blocks }) => blocks.some(({ info }) => info === "console"));

  it.each(shown)("the commands in $path print what it shows", { timeout: 60_000 }, async (page) => {
    for (const { command, expected, run } of stepsOf(page)) {
      const out = await run();
      if (out !== null)
        expect({ command, out: out.trimEnd() }).toEqual({ command, out: expect.stringMatching(patternOf(expected)) });
    }
  });
});

const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;

describe.skipIf(!hasOpenssl)("docs/tls.md", () => {
  it(
    "makes certificates with which HTTPS serves, and with which a client certificate is required",
    { timeout: 60_000 },
    async () => {
      const folder = emptyFolder();
      const commands = blocksOf(document("docs/tls.md"), "sh").map(linesOf);
      for (const line of commands[0]!.filter((line) => /^(openssl|printf) /.test(line))) {
        expect({ line, status: spawnSync("sh", ["-c", line], { cwd: folder }).status }).toEqual({ line, status: 0 });
      }
      writeFileSync(join(folder, "gw.json"), read("examples/quickstart.json").replace("3000", "1"));
      writeFileSync(join(folder, "https.json"), blocksOf(document("docs/tls.md"), "json")[0]!.replace("3000", "1"));
      const file = (name: string) => readFileSync(join(folder, name));
      const client = { cert: file("client.crt"), key: file("client.key") };
      for (const [block, own] of [
        [commands[0]!, {}],
        [commands[1]!, {}],
        [commands[2]!, client],
      ] as const) {
        const words = wordsOf(block.find((line) => line.startsWith("npx edge-gateway"))!).slice(2);
        const ports = ["--http-port", "0", "--https-port", "0", "--listen-host", "127.0.0.1"];
        const running = program([...words, ...ports], { cwd: folder, environment: { LOG_FORMAT: "text" } });
        const port = Number(
          /^ {2}https +https:\/\/127\.0\.0\.1:(\d+)/m.exec(await running.says(/^ {2}reload.*$/m, "stderr"))![1],
        );
        const status = await new Promise((resolve, reject) => {
          const options = {
            host: "127.0.0.1",
            servername: "localhost",
            port,
            path: "/orders/1",
            ca: file("ca.crt"),
            ...own,
            agent: false,
          };
          https.get(options, (response) => resolve(response.resume().statusCode)).on("error", reject);
        });
        expect(status).toBe(502); // through the gateway, to an upstream that is not there
      }
    },
  );
});

describe("a configuration with errors", () => {
  it(
    "a configuration with errors gets the messages that README.md and docs/configuration.md show",
    { timeout: 30_000 },
    async () => {
      const broken = read("examples/quickstart.json")
        .replace('      "base_path": "/orders",\n', '      "base_pth": "/orders",\n      "base_path": "orders",\n')
        .replace("3000", '"80a"');
      const folder = emptyFolder();
      writeFileSync(join(folder, "gw.json"), broken);
      const { code, stderr } = await program(["validate", "gw.json"], { cwd: folder }).ended;
      expect(code).toBe(2);
      for (const path of ["README.md", "docs/configuration.md"]) {
        const shown = blocksOf(document(path), "text").map((text) => text.replace(/^\$.*\n/, ""));
        expect(shown).toContain(stderr);
      }
    },
  );
});

/** The commands that are run in the folder of the page. */
const OFFLINE: readonly string[] = ["validate", "test", "explain", "diff", "import", "help"];

interface Step {
  readonly command: string;
  readonly expected: string;
  /** Null: the command is not run. */
  run(): Promise<string | null>;
}

/**
 * The commands of a page in order; each runs with the last configuration above it and the variables that were exported
 * by then.
 */
function stepsOf(page: Document): Step[] {
  const folder = emptyFolder();
  writeFileSync(join(folder, "password.txt"), "a password\n");
  const environment: Record<string, string> = {};
  let text: string | null = page.path === "README.md" ? null : read("examples/quickstart.json");
  let cookie = "";
  let running = new Map<"traffic" | "admin", Promise<Running>>();
  const steps: Step[] = [];
  for (const { info, text: block } of page.blocks) {
    if (info === "json") {
      text =
        JSON.stringify(asConfiguration(block)) === JSON.stringify(JSON.parse(block))
          ? block
          : JSON.stringify(asConfiguration(block));
      running = new Map();
    } else if (info === "json output" && block.includes('"openapi":')) {
      writeFileSync(join(folder, "openapi.json"), block);
    } else if (info === "sh") {
      for (const [, name, value] of block.matchAll(/export (\w+)=("[^"$]*"|[^\s"]+)/g))
        environment[name!] = value!.replaceAll('"', "");
    } else if (info === "console") {
      for (const part of block.split(/^\$ /m).slice(1)) {
        const [command = "", ...expected] = part.replace(/\n$/, "").split("\n");
        const [inForce, variables, servers] = [text, { ...environment }, running];
        const needs = /:8081\/|--dry-run/.test(block) ? "admin" : "traffic";
        const start = () =>
          inForce === null
            ? startDemo()
            : needs === "admin"
              ? startProgram(folder, inForce, variables)
              : startGateway(inForce, variables);
        const started = () => {
          if (!servers.has(needs)) servers.set(needs, start());
          return servers.get(needs)!;
        };
        steps.push({ command, expected: expected.join("\n"), run: () => runLine(command) });

        async function runLine(line: string): Promise<string | null> {
          const loop = /^for \w+ in ([\d ]+); do (.*); done$/.exec(line);
          if (loop !== null) {
            let out = "";
            for (const _ of loop[1]!.split(" ")) out += await runLine(loop[2]!);
            return out;
          }
          if (line.startsWith("curl ")) {
            const { portOf, asShown } = await started();
            const got = await runCurl(line.replace("$(cat password.txt)", "a password"), portOf, cookie);
            cookie = got.cookie;
            return asShown(got.out);
          }
          const words = wordsOf(line);
          writeFileSync(join(folder, "gw.json"), inForce ?? "");
          if (words[0] === "sed") return spawnSync("sh", ["-c", line], { cwd: folder, encoding: "utf8" }).stdout;
          if (OFFLINE.includes(words[2]!)) {
            const { stderr, stdout } = await program(words.slice(2), { cwd: folder, environment: variables }).ended;
            return words[2] === "import" ? stdout + stderr : stderr + stdout;
          }
          if (line.includes(" reload --dry-run ")) {
            const address = ["--admin-url", `http://127.0.0.1:${(await started()).portOf(8081)}`];
            return (
              await program([...words.slice(2), ...address], { cwd: folder, environment: { ...variables, ...ADMIN } })
                .ended
            ).stdout;
          }
          if (words[2] === "--config") return startText(folder, variables);
          return null;
        }
      }
    }
  }
  return steps;
}

interface Running {
  /** Where a port of the documents really is. */
  portOf(port: number): number;
  /** Output with the ports of the documents. */
  asShown(out: string): string;
}

/** A gateway in this process; upstreams show what reaches them. */
async function startGateway(text: string, environment: Readonly<Record<string, string>>): Promise<Running> {
  const config = JSON.parse(text) as AnyConfigInput;
  const ports = new Map<number, number>();
  for (const upstream of config.services.flatMap(({ upstreams }) => [...upstreams])) {
    const port = "srv" in upstream ? 1 : upstream.port;
    if (port !== 1 && !ports.has(port)) ports.set(port, await listen(echo(String(port))));
  }
  const judge = await listen((request, response) => {
    const isGood = request.headers.authorization === "Bearer good";
    response.writeHead(isGood ? 204 : 401, isGood ? { "X-User": "ada" } : {}).end();
  });
  const moved = text
    .replace(/"port": ?(\d+)/g, (whole, port: string) =>
      ports.has(Number(port)) ? `"port": ${ports.get(Number(port))}` : whole,
    )
    .replaceAll("127.0.0.1:4000/", `127.0.0.1:${judge}/`);
  const gateway = createGateway({ config: JSON.parse(moved) as AnyConfigInput, environment });
  const { port } = await gateway.listen({ port: 0, host: "127.0.0.1" });
  onTestFinished(async () => void (await gateway.close(0)));
  const asShown = (out: string) => {
    for (const [documented, real] of ports) out = out.replaceAll(`127.0.0.1:${real}`, `127.0.0.1:${documented}`);
    return out;
  };
  return { portOf: () => port, asShown };
}

const ADMIN = { ADMIN_USER: "admin", ADMIN_PASSWORD: "a password" };

/** The program with its admin interface. */
async function startProgram(
  folder: string,
  text: string,
  variables: Readonly<Record<string, string>>,
): Promise<Running> {
  writeFileSync(join(folder, "gw.json"), text);
  const environment = { ...variables, ...ADMIN, LOG_FORMAT: "text" };
  const words = ["--config", "gw.json", "--http-port", "0", "--admin-port", "0", "--listen-host", "127.0.0.1"];
  const running = program(words, { environment, cwd: folder });
  const said = await running.says(/^ {2}reload.*$/m, "stderr");
  return portsOf(
    /^ {2}http +http:\/\/127\.0\.0\.1:(\d+)/m.exec(said)![1]!,
    /^ {2}admin +http:\/\/127\.0\.0\.1:(\d+)/m.exec(said)![1]!,
  );
}

async function startDemo(): Promise<Running> {
  const demo = program([
    "demo",
    "--http-port",
    "0",
    "--admin-port",
    "0",
    "--manager-port",
    "0",
    "--listen-host",
    "127.0.0.1",
  ]);
  const said = await demo.says("Ctrl-C ends the demo.\n", "stdout");
  const [, traffic, admin] = /gateway on http:\/\/localhost:(\d+), admin on http:\/\/localhost:(\d+)/.exec(said)!;
  return portsOf(traffic!, admin!);
}

function portsOf(traffic: string, admin: string): Running {
  return { portOf: (port) => Number(port === 8081 ? admin : traffic), asShown: (out) => out };
}

/** What the gateway prints when it has started, with the ports of the documents. */
async function startText(folder: string, environment: Readonly<Record<string, string>>): Promise<string> {
  const words = ["--config", "gw.json", "--http-port", "0", "--listen-host", "127.0.0.1"];
  const said = await program(words, { environment: { ...environment, LOG_FORMAT: "text" }, cwd: folder }).says(
    /^ {2}reload.*$/m,
    "stderr",
  );
  return said.replace(/^( {2}http +).*$/m, "$1http://0.0.0.0:8008  http://[::]:8008");
}

function emptyFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-documents-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function listen(answer: http.RequestListener): Promise<number> {
  const server = http.createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

/** Lines of a shell, those that end with a backslash joined with the next. */
function linesOf(text: string): string[] {
  const lines = text.replace(/\\\n\s*/g, " ").split("\n");
  return lines.map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"));
}

/** The words behind each `edge-gateway` of a line that is run as a program. */
function usesOf(line: string): string[][] {
  const runs = line.replace(/#.*$/, "").matchAll(/(?:npx |^)edge-gateway( [^|&<>)]*)?/g);
  return [...runs].map((match) => wordsOf(match[1] ?? ""));
}

/** A whole configuration: the text itself, or one with the plugin that the text is. */
function asConfiguration(text: string): AnyConfigInput {
  const value = JSON.parse(text) as Record<string, unknown>;
  if ("services" in value) return value as unknown as AnyConfigInput;
  if ("global" in value) return { services: [], ...value } as unknown as AnyConfigInput;
  const service = {
    name: "shop",
    base_path: "/shop",
    upstreams: [{ host: "127.0.0.1", port: 3000 }],
    routes: [{ path: "/items/{id}" }],
  };
  return { services: [{ ...service, plugins: [value] }] } as unknown as AnyConfigInput;
}

const REVOCATION_LIST = authority("Example CA").list();

/** "" for a valid configuration, else its issues. */
function issuesOf(config: AnyConfigInput): string {
  const modules = (config.global as { plugin_modules?: unknown } | undefined)?.plugin_modules;
  if (modules !== undefined) return ""; // shown with a digest to fill in; spec/examples.spec.ts loads the module
  const text = JSON.stringify(config);
  const environment = Object.fromEntries(
    found(text, /\$\{env:(\w+)\}/g).map((name) => [name, "a secret of thirty-two bytes, or more"]),
  );
  const readFile = (path: string) =>
    path.endsWith(".crt")
      ? SERVER.cert
      : path.endsWith(".key")
        ? SERVER.key
        : path.endsWith("ed25519.pem")
          ? ED25519
          : path.endsWith(".crl")
            ? REVOCATION_LIST
            : "a secret\n";
  const loaded = loadConfig(
    { text, file: `${root}/examples/gw.json` },
    { kinds: builtinPlugins, environment, readFile, checkRoutes },
  );
  return loaded.ok ? "" : formatIssues(loaded.issues, "gw.json");
}
