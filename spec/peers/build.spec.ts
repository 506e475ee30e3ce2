/**
 * A build of each example, and of each plugin kind alone: it answers as the whole program does, and opens no file of
 * the package that AUDIT.md does not list.
 */
import { execFile, spawn, spawnSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { KINDS } from "../../lib/features/table.ts";
import { blocksOf, document, read, root } from "../support/documents.ts";
import { emptyFolder, PROGRAM } from "./built.ts";

const EXAMPLES = readdirSync(`${root}/examples`).filter((name) => name.endsWith(".json"));
const configurations: readonly (readonly [string, string])[] = [
  ...EXAMPLES.map((name) => [`examples/${name}`, read(`examples/${name}`)] as const),
  ...Object.keys(KINDS).map((kind) => [kind, blocksOf(document(`docs/plugins/${kind}.md`), "json")[0]!] as const),
];

interface Given {
  readonly file: string;
  readonly environment: Record<string, string>;
}

/** With a value for each reference, all from the environment, and the key of `identity_token`. */
function given(text: string): Given {
  const written = text.replace(/\$\{file:([^}]*)\}/g, (_all, path: string) => `\${env:${path.replace(/\W/g, "_")}}`);
  const file = join(emptyFolder(), "gw.json");
  writeFileSync(file, written);
  cpSync(join(root, "examples/errors"), join(file, "../errors"), { recursive: true });
  const key = join(file, "../ed25519.pem");
  writeFileSync(key, generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));
  // What the tests of examples/tested.json expect.
  const fixed: Readonly<Record<string, string>> = { IDENTITY_KEY_FILE: key, AUDITOR_PASSWORD: "auditor" };
  const names = [...written.matchAll(/\$\{env:(\w+)\}/g)].map(([, name]) => name!);
  return {
    file,
    environment: {
      PATH: process.env.PATH!,
      ...Object.fromEntries(names.map((name) => [name, fixed[name] ?? `the-secret-${name}-of-thirty-two-bytes`])),
    },
  };
}

function run(
  main: string,
  words: readonly string[],
  environment: Record<string, string>,
): Promise<{ readonly status: unknown; readonly stderr: string }> {
  return new Promise((resolve) =>
    execFile(process.execPath, [main, ...words], { env: environment }, (error, _stdout, stderr) =>
      resolve({ status: error === null ? 0 : error.code, stderr }),
    ),
  );
}

/** Resolves with the port when it has started. */
async function started(words: readonly string[], { file, environment }: Given): Promise<number> {
  const child = spawn(
    words[0]!,
    [...words.slice(1), "--config", file, "--http-port", "0", "--listen-host", "127.0.0.1"],
    { env: environment, stdio: ["ignore", "ignore", "pipe"], detached: true },
  );
  const ended = once(child, "exit");
  onTestFinished(async () => {
    process.kill(-child.pid!, "SIGKILL"); // strace and the program
    await ended;
  });
  let text = "";
  for await (const piece of child.stderr) {
    text += String(piece);
    const port = /"http":\["http:\/\/127\.0\.0\.1:(\d+)"\]/.exec(text)?.[1];
    if (port !== undefined) return (child.stderr.resume(), Number(port));
  }
  throw new Error(`it ended: ${text}`);
}

const REQUESTS = [
  "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
  "GET /shop/items/7?a=b HTTP/1.1\r\nHost: shop.example.com\r\nConnection: close\r\n\r\n",
  "PUT /shop HTTP/1.1\r\nHost: pay.example.com\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
  "GET /orders/../x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
  "GET /shop HTTP/1.1\r\nBad Header: 1\r\n\r\n",
];

/** Without what differs between two runs of one program: times, and identifiers. */
async function answers(port: number): Promise<string[]> {
  const all: string[] = [];
  for (const request of REQUESTS) {
    const socket = net.connect(port, "127.0.0.1");
    socket.write(request);
    let text = "";
    for await (const piece of socket) text += String(piece);
    all.push(
      text
        .replace(/^(Date|RateLimit-Reset|RateLimit|Retry-After|X-RateLimit-Reset): .*$/gim, "$1")
        .replace(/[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{32}\b/g, "id"),
    );
  }
  return all;
}

describe("a build", () => {
  it.each(configurations)(
    "of %s answers as the whole program does, and opens only what AUDIT.md lists",
    async (_name, text) => {
      const set = given(text);
      const folder = join(emptyFolder(), "build");
      const { status, stderr } = await run(
        PROGRAM,
        ["build", "--config", set.file, "--output", folder],
        set.environment,
      );
      expect([status, stderr]).toEqual([0, ""]);
      const [main, trace] = [join(folder, "dist/bin/edge-gateway.js"), join(emptyFolder(), "trace.txt")];
      // Beside each other: none of them knows of the others.
      const traced = [
        "strace",
        "-f",
        "-qq",
        "-s",
        "4096",
        "-e",
        "trace=openat,open",
        "-o",
        trace,
        process.execPath,
        main,
      ];
      const checks = Promise.all([
        run(main, ["validate", set.file], set.environment),
        run(main, ["verify", folder], set.environment),
      ]);
      const [part, whole] = await Promise.all(
        [traced, [process.execPath, PROGRAM]].map((words) => started(words, set).then(answers)),
      );
      expect(part).toEqual(whole);
      expect((await checks).map((each) => each.status)).toEqual([0, 0]);
      // Calls of several threads are traced in pieces: what was opened is what was tried, and is there.
      const opened = () =>
        [...readFileSync(trace, "utf8").matchAll(/\bopen(?:at)?\((?:\w+, )?"([^"]+)"/g)]
          .map(([, path]) => path!)
          .filter(existsSync);
      const [reads, atStart = ""] = readFileSync(join(folder, "AUDIT.md"), "utf8").split(
        "## The modules that it loads",
      );
      const others = ["package.json", "dist/lib/modules.json"];
      for (const path of others) expect(reads).toMatch(new RegExp(`\\s${path}$`, "m"));
      const listed = [...atStart.split("\n## ")[0]!.matchAll(/^\| (dist\/\S+) /gm)].map(([, path]) =>
        join(folder, path!),
      );
      // What reads named files again is loaded once they are watched, which may be after the last answer.
      await expect
        .poll(() => [...new Set(opened().filter((path) => path.startsWith(`${folder}/`)))].sort())
        .toEqual([...listed, ...others.map((path) => join(folder, path))].sort());
      expect(opened().filter((path) => path.startsWith(`${root}/`))).toEqual([]);
    },
  );

  it("can be made from the installed package, without a network", async () => {
    const [folder, output] = [emptyFolder(), join(emptyFolder(), "build")];
    const environment = Object.fromEntries(
      Object.entries(process.env).filter(([name]) => !name.toLowerCase().startsWith("npm_")),
    );
    const npm = (cwd: string, ...words: string[]) =>
      spawnSync("npm", words, { cwd, env: environment, encoding: "utf8" });
    const [packed] = JSON.parse(
      npm(root, "pack", "--json", "--ignore-scripts", "--pack-destination", folder).stdout,
    ) as { filename: string }[];
    expect(npm(folder, "install", "--offline", "--no-audit", "--no-fund", `./${packed!.filename}`).status).toBe(0);
    const installed = join(folder, "node_modules/edge-gateway/dist/bin/edge-gateway.js");
    const clone = join(emptyFolder(), "build");
    const config = `${root}/examples/quickstart.json`;
    for (const [main, to] of [
      [installed, output],
      [PROGRAM, clone],
    ] as const)
      expect((await run(main, ["build", "--config", config, "--output", to], { PATH: process.env.PATH! })).status).toBe(
        0,
      );
    expect(existsSync(join(output, "SHA256SUMS"))).toBe(true);
    expect(readFileSync(join(output, "SHA256SUMS"), "utf8")).toBe(readFileSync(join(clone, "SHA256SUMS"), "utf8"));
  });
});
