/**
 * The jobs of docs/cookbook.md that need more than a console: TLS, tokens, WebSockets, copies of requests, files of
 * teams. The others: `document_examples.spec.ts`.
 */
import { spawn, spawnSync } from "node:child_process";
import { generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../lib/config/model.ts";
import { createGateway } from "../lib/index.ts";
import { backend, running } from "./support/gateway.ts";
import { document, patternOf, root } from "./support/documents.ts";
import { h2Ask, h2Session } from "./support/h2_client.ts";
import { emptyFolder, fileWith, program, runningFile } from "./support/process.ts";
import { ask, connect, eventually } from "./support/raw_client.ts";

const { text: cookbook } = document("docs/cookbook.md");

/** The blocks of this kind in the section of a job. */
function blocks(job: string, info: string): string[] {
  const section = cookbook.split(/^## /m).find((each) => each.startsWith(`${job}\n`));
  if (section === undefined) throw new Error(`docs/cookbook.md has no job "${job}"`);
  return [...section.matchAll(new RegExp(`^\`\`\`${info}\n([^]*?)^\`\`\`$`, "gm"))].map(([, block]) => block!);
}

/** The configuration of a job, with other ports. */
function configOf(job: string, ports: Readonly<Record<number, number>>): AnyConfigInput {
  const [text = ""] = blocks(job, "json");
  const moved = text.replace(/("port": |127\.0\.0\.1:)(\d+)/g, (whole, before: string, port: string) =>
    Number(port) in ports ? `${before}${ports[Number(port)]}` : whole,
  );
  return JSON.parse(moved) as AnyConfigInput;
}

/** Starts a server of examples/peers.mjs; resolves with its port. */
async function peer(kind: string): Promise<number> {
  const child = spawn(process.execPath, ["examples/peers.mjs", kind, "0"], { cwd: root });
  onTestFinished(() => void child.kill());
  const [said] = (await once(child.stdout, "data")) as [Buffer];
  return Number(/:(\d+)$/m.exec(String(said))![1]);
}

/**
 * Runs what a job shows on a console, with other ports, and compares what is printed. A shell keeps the variables from
 * line to line.
 */
async function runAsShown(job: string, ports: Readonly<Record<number, number>>): Promise<void> {
  const steps = blocks(job, "console peers")
    .join("")
    .split(/^\$ /m)
    .slice(1)
    .map((step) => step.trimEnd().split("\n"));
  const placed = (line: string) =>
    line.replace(/(?:localhost|127\.0\.0\.1):(\d+)/g, (_, port: string) => `127.0.0.1:${ports[Number(port)]}`);
  const script = steps.map(([line = ""]) => `${placed(line)}\necho; echo @@@`);
  const shell = spawn("sh", ["-c", script.join("\n")], { cwd: root });
  let out = "";
  shell.stdout.on("data", (chunk: Buffer) => (out += chunk));
  await once(shell, "close");
  for (const [documented, real] of Object.entries(ports))
    out = out.replaceAll(`upstream ${real} got`, `upstream ${documented} got`);
  const printed = out
    .split("\n@@@\n")
    .slice(0, -1)
    .map((each) => each.trimEnd());
  expect(steps.length).toBeGreaterThan(0);
  expect(printed).toEqual(
    steps.map(([, ...expected]) => expect.stringMatching(patternOf(expected.join("\n"))) as string),
  );
}

const hasCurl = spawnSync("curl", ["--version"]).status === 0;

describe("the cookbook", () => {
  it("has eighteen jobs, each with a configuration", () => {
    const jobs = [...cookbook.matchAll(/^## (.+)$/gm)].map(([, job]) => job!);
    expect(jobs).toHaveLength(18);
    // Each page that counts them.
    expect(cookbook).toContain("\nEighteen everyday jobs");
    expect(document("docs/README.md").text).toContain("eighteen everyday jobs");
    expect(document("README.md").text).toContain("eighteen of them");
    expect(jobs.filter((job) => blocks(job, "json").length === 0)).toEqual([]);
  });

  it(
    "its HTTPS answers with the certificate that its command makes, and its plain port redirects to it",
    { timeout: 60_000 },
    async () => {
      const upstream = await backend();
      const folder = emptyFolder();
      const job = "HTTPS, with a redirect from HTTP";
      const [make, start] = blocks(job, "sh")[0]!.split("\n") as [string, string];
      expect(spawnSync("sh", ["-c", make], { cwd: folder }).status).toBe(0);
      writeFileSync(join(folder, "gw.json"), JSON.stringify(configOf(job, { 3000: upstream.port })));
      const ports = ["--http-port", "0", "--https-port", "0", "--listen-host", "127.0.0.1"];
      const said = await program([...start.split(" ").slice(2), ...ports], {
        cwd: folder,
        environment: { LOG_FORMAT: "text" },
      }).says(/^ {2}reload.*$/m, "stderr");
      const portOf = (scheme: string) =>
        Number(new RegExp(`^ {2}${scheme} +${scheme}://127\\.0\\.0\\.1:(\\d+)`, "m").exec(said)![1]);
      const redirected = await ask(portOf("http"), { path: "/items?page=2", headers: { Host: "localhost:8008" } });
      expect([redirected.status, redirected.headers.location]).toEqual([308, "https://localhost:8443/items?page=2"]);
      const asked = https.get({
        host: "127.0.0.1",
        servername: "localhost",
        port: portOf("https"),
        path: "/items?page=2",
        ca: readFileSync(join(folder, "server.crt")),
        agent: false,
      });
      const [response] = (await once(asked, "response")) as [import("node:http").IncomingMessage];
      expect([response.resume().statusCode, upstream.seen[0]!.url]).toEqual([200, "/items?page=2"]);
    },
  );

  it(
    "its tokens are accepted from the provider alone, for this API alone, " + "and the subject reaches the upstream",
    async () => {
      const [own, other] = [
        generateKeyPairSync("rsa", { modulusLength: 2048 }),
        generateKeyPairSync("rsa", { modulusLength: 2048 }),
      ];
      const keys = await backend(
        (_request, response) =>
          void response.end(
            JSON.stringify({
              keys: [{ ...own.publicKey.export({ format: "jwk" }), kid: "1", use: "sig", alg: "RS256" }],
            }),
          ),
      );
      const upstream = await backend();
      const { port } = await running(
        configOf("Tokens of an identity provider", { 3000: upstream.port, 9000: keys.port }),
      );
      const exp = Math.floor(Date.now() / 1000) + 300;
      const token = (claims: object, { privateKey } = own) => {
        const text = [
          { alg: "RS256", kid: "1" },
          { iss: "https://login.example.com/", aud: "orders", sub: "ada", exp, ...claims },
        ]
          .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
          .join(".");
        return `${text}.${sign("sha256", Buffer.from(text), privateKey).toString("base64url")}`;
      };
      const status = async (given: string | null) =>
        (await ask(port, { path: "/orders/7", headers: given === null ? {} : { Authorization: `Bearer ${given}` } }))
          .status;
      expect(await status(token({}))).toBe(200);
      const { headers } = upstream.seen[0]!;
      expect(headers[headers.indexOf("X-User") + 1]).toBe("ada");
      for (const bad of [
        null,
        token({ iss: "https://evil.example/" }),
        token({ aud: "shop" }),
        token({ exp: 1 }),
        token({}, other),
      ])
        expect(await status(bad)).toBe(401);
    },
  );

  it.skipIf(!hasCurl)("its commands for tokens print what it shows", { timeout: 60_000 }, async () => {
    const job = "Tokens of an identity provider";
    const { echo } = (await import(new URL("../examples/echo.mjs", import.meta.url).href)) as {
      echo: (name: string) => http.RequestListener;
    };
    const [keys, upstream] = [await peer("tokens"), http.createServer(echo("3000")).listen(0, "127.0.0.1")];
    await once(upstream, "listening");
    onTestFinished(() => void upstream.close());
    const { port } = await running(configOf(job, { 3000: (upstream.address() as AddressInfo).port, 9000: keys }));
    await runAsShown(job, { 8008: port, 9000: keys });
  });

  it(
    "its complaint is explained by the id in the mail, without the query, " +
      "and says when the configuration is another one",
    { timeout: 60_000 },
    async () => {
      const job = "A customer's complaint";
      const [before = "", after = ""] = blocks(job, "console complaint");
      const [asked, ...expected] = [before, after].flatMap((block) => block.split(/^\$ /m).slice(1));
      const ADMIN = { ADMIN_USER: "anna", ADMIN_PASSWORD: "0123456789abcdef" };
      const config = blocks(job, "json")[0]!.replace("3000", "9");
      const { port, started, file } = await runningFile(fileWith(config), [], ADMIN);
      const environment = { ...ADMIN, ADMIN_URL: String(started.admin) };
      const path = /'http:\/\/localhost:8008(.*)'/.exec(asked!)![1]!;
      const mail = await ask(port, { path, headers: { Host: "localhost:8008" } });
      expect(mail.status).toBe(403);
      const answers: string[] = [];
      for (const [i, step] of expected.entries()) {
        if (i === 1) {
          writeFileSync(file, config.replace('"10.0.0.0/8"', '"10.0.0.0/8", "127.0.0.1"'));
          expect(await program(["reload"], { environment }).ended).toMatchObject({ code: 0 });
        }
        const [command = "", ...lines] = step.trimEnd().split("\n");
        const { code, stdout } = await program(
          command
            .replace('"$ID"', mail.headers["x-request-id"] as string)
            .split(" ")
            .slice(2),
          { environment },
        ).ended;
        expect([code, stdout.trimEnd()]).toEqual([0, expect.stringMatching(patternOf(lines.join("\n"))) as string]);
        answers.push(stdout);
      }
      expect(answers).toHaveLength(2);
      expect(answers.join("")).not.toContain("1234");
      expect((await ask(port, { path })).status).not.toBe(403);
    },
  );

  it(
    "its upgrade on Friday finds the version that lets a backslash pass, and nothing in the version that does not",
    { timeout: 60_000 },
    async () => {
      const job = "An upgrade on Friday";
      const folder = emptyFolder();
      const [old, next] = ["node_modules/edge-gateway", "next/node_modules/edge-gateway"];
      for (const name of [old, next])
        for (const each of ["package.json", "dist"])
          cpSync(join(root, each), join(folder, name, each), { recursive: true });
      writeFileSync(join(folder, "gw.json"), blocks(job, "json")[0]!);
      const lines = ["/shop/items", "/shop/admin/users"].map((path) =>
        JSON.stringify({ method: "GET", host: "localhost", path, service: "shop", route: "open", status: 200 }),
      );
      writeFileSync(join(folder, "access.log"), `${lines.join("\n")}\n`);
      const words = blocks(job, "sh")[0]!.split("npx edge-gateway ")[1]!.trim().split(" ");
      const run = () => program(words, { cwd: folder, environment: { ADMIN_KEY: "any" } }).ended;
      expect(await run()).toMatchObject({ code: 0, stdout: expect.stringMatching(/\nnothing differs\n$/) as string });
      const file = join(folder, next, "dist/lib/route/path.js");
      writeFileSync(file, readFileSync(file, "utf8").replace("return BACKSLASH_FOUND", 'segment = "other"'));
      const { code, stdout } = await run();
      expect([code, stdout.trimEnd()]).toEqual([
        1,
        expect.stringMatching(patternOf(blocks(job, "text")[0]!.trimEnd())) as string,
      ]);
    },
  );

  it(
    "its auditor finds the log whole, with the refused requests, and the line behind one that was edited",
    { timeout: 60_000 },
    async () => {
      const job = "The auditor's visit";
      const folder = emptyFolder();
      const path = join(folder, "audit.log");
      writeFileSync(join(folder, "gw.json"), blocks(job, "json")[0]!);
      const [start, verify, edit] = blocks(job, "sh") as [string, string, string];
      const [line, whole, broken] = blocks(job, "text").map(
        (text) => expect.stringMatching(patternOf(text.trimEnd())) as string,
      );
      const variables = start
        .split(" npx edge-gateway ")[0]!
        .split(" ")
        .map((each) => each.split("=") as [string, string]);
      const environment = {
        ...Object.fromEntries(variables),
        LOG_FORMAT: "text",
        LISTEN_HOST: "127.0.0.1",
        HTTP_PORT: "0",
      };
      const said = await program(["--config", "gw.json"], { cwd: folder, environment }).says(
        /^ {2}reload.*$/m,
        "stderr",
      );
      const port = Number(/^ {2}http +http:\/\/127\.0\.0\.1:(\d+)/m.exec(said)![1]);
      for (let i = 0; i < 2; i++) expect((await ask(port, { path: "/orders/7" })).status).toBe(401);
      const lines = () => readFileSync(path, "utf8").trimEnd().split("\n");
      await eventually(() => lines().length === 4, "four lines");
      expect(lines()[2]).toEqual(line);
      const run = async (text: string) => {
        const { code, stdout, stderr } = await program(text.split("npx edge-gateway ")[1]!.trim().split(" "), {
          cwd: folder,
        }).ended;
        return [code, (stdout + stderr).trimEnd()];
      };
      expect(await run(verify)).toEqual([0, whole]);
      expect(spawnSync("sh", ["-c", edit.split("\n")[0]!], { cwd: folder }).status).toBe(0);
      expect(await run(edit)).toEqual([1, broken]);
    },
  );

  it("its commands for WebSockets print what it shows", { timeout: 60_000 }, async () => {
    const upstream = await peer("websocket");
    const { port } = await running(configOf("WebSockets", { 3002: upstream }));
    await runAsShown("WebSockets", { 8008: port, 3002: upstream });
  });

  it("its commands for gRPC print what it shows", { timeout: 60_000 }, async () => {
    const { port } = await running(configOf("gRPC", { 50051: await peer("grpc") }));
    await runAsShown("gRPC", { 8008: port });
  });

  it.skipIf(!hasCurl)("its commands for a mirror print what it shows", { timeout: 60_000 }, async () => {
    const job = "Mirror requests to a new version";
    const [upstream, next] = [await backend(), await backend()];
    const { gateway, port } = await running(configOf(job, { 3000: upstream.port, 3001: next.port }));
    // The copy is on its way when its request has been answered.
    const probes = await backend(async (_request, response) => {
      await eventually(() => gateway.metrics().includes('result="sent"'), "the copy");
      response.end(gateway.metrics());
    });
    await runAsShown(job, { 8008: port, 9090: probes.port });
  });

  it("its mirror sends a tenth of the requests to the new version", async () => {
    const [upstream, next] = [await backend(), await backend()];
    const { port } = await running(
      configOf("Mirror requests to a new version", { 3000: upstream.port, 3001: next.port }),
    );
    for (let i = 0; i < 20; i++) expect((await ask(port, { path: `/shop/items/${i}` })).status).toBe(200);
    await eventually(() => next.seen.length === 2, "two copies");
    expect(next.seen[0]).toMatchObject({ method: "GET", url: expect.stringMatching(/^\/next\/items\/\d+$/) as string });
    expect(next.seen[0]!.headers.join(": ")).toContain("X-Mirrored: 1");
  });

  it.skipIf(!hasCurl)(
    "its spare provider gets the requests that the usual one refuses, with its own key, as its commands show",
    { timeout: 60_000 },
    async () => {
      const job = "Two providers, one of them a spare";
      const keys = Object.fromEntries(
        [...blocks(job, "sh")[0]!.matchAll(/^export (\w+)=(\S+)$/gm)].map(([, name, value]) => [name!, value!]),
      );
      const seen: string[] = [];
      const provider = async (name: string, refusesFrom: number) => {
        let asked = 0;
        return backend((request, response) => {
          seen.push(`${name} ${request.headers.authorization}`);
          if (++asked >= refusesFrom) return void response.writeHead(429).end("too many\n");
          response.end(
            `upstream ${name} got ${request.method} ${request.url}\nAuthorization: ${request.headers.authorization}\n`,
          );
        });
      };
      const [usual, spare] = [await provider("3000", 2), await provider("3001", Infinity)];
      const config = configOf(job, { 3000: usual.port, 3001: spare.port });
      const { port } = await running(config, { environment: keys });
      await runAsShown(job, { 8008: port });
      expect(seen).toEqual(["3000 Bearer usual-key", "3000 Bearer usual-key", "3001 Bearer spare-key"]);
      for (let i = 0; i < 6; i++)
        await ask(port, {
          method: "POST",
          path: "/ai/chat/completions",
          body: "{}",
          headers: { authorization: "mine" },
        });
      // Five refusals have ejected the usual one.
      expect(seen.filter((each) => each.startsWith("3000"))).toHaveLength(6);
      expect(seen.join()).not.toContain("mine");
    },
  );

  describe("One key, two model providers, a budget", () => {
    const job = "One key, two model providers, a budget";
    const keys = { ADA_KEY: "ada-key", USUAL_KEY: "usual-key", SPARE_KEY: "spare-key" };
    const asking = { method: "POST", path: "/ai/chat/completions" };
    const headers = { "Content-Type": "application/json", Authorization: "Bearer ada-key" };

    /** Both providers stream, and state 700 tokens only if they are asked to, as the API reference has it. */
    async function providers(limit = 1_000_000) {
      const seen: string[] = [];
      /** Streams that have begun, and end with `finish`. */
      const open: (() => void)[] = [];
      const state = { usual: 200, isHeld: false };
      const provider = (name: "usual" | "spare") =>
        backend((request, response, body) => {
          const { stream, stream_options: options } = JSON.parse(body.toString()) as Record<string, never>;
          seen.push(`${name} ${request.headers.authorization} ${body.toString()}`);
          if (name === "usual" && state.usual !== 200) return void response.writeHead(state.usual).end("{}");
          if (stream !== true) return void response.writeHead(400).end("{}");
          response.writeHead(200, { "Content-Type": "text/event-stream" });
          response.write(`data: {"choices":[{"delta":{"content":"Hello from ${name}"}}],"usage":null}\n\n`);
          const finish = () => {
            if ((options as { include_usage?: boolean } | undefined)?.include_usage === true)
              response.write('data: {"choices":[],"usage":{"total_tokens":700}}\n\n');
            response.end("data: [DONE]\n\n");
          };
          if (state.isHeld) open.push(finish);
          else finish();
        });
      const [usual, spare] = [await provider("usual"), await provider("spare")];
      const config = configOf(job, { 3000: usual.port, 3001: spare.port });
      const { config: quota } = config.services[0]!.plugins!.find(({ name }) => name === "quota")!;
      Object.assign(quota as object, { limit });
      const made = await running(config, { environment: keys });
      const chat = (body: string | Buffer = '{"messages":[]}', more: Record<string, string> = {}) =>
        ask(made.port, { ...asking, headers: { ...headers, ...more }, body });
      /** What is used once all replies have ended, by a refused request, which costs nothing. */
      const used = async () => {
        await eventually(() => made.gateway.inFlight === 0);
        const { headers: told } = await chat("no JSON");
        return limit - 20_000 - Number(/;r=(\d+)/.exec(String(told.ratelimit))![1]);
      };
      return { ...made, state, seen, open, chat, used };
    }

    it("answers as the page shows, with the keys of the providers and the tokens stated", async () => {
      const { port, seen, used } = await providers();
      await runAsShown(job, { 8008: port });
      expect(seen).toEqual([
        'usual Bearer usual-key {"messages":[],"stream_options":{"include_usage":true},"stream":true,' +
          '"max_completion_tokens":2000}',
      ]);
      expect(await used()).toBe(700);
      const refused = await ask(port, {
        ...asking,
        headers: { ...headers, Authorization: "Bearer other" },
        body: "{}",
      });
      expect(refused.status).toBe(401);
    });

    it.each([429, 503])("goes to the spare before the first byte after a %i, and charges once", async (status) => {
      const { state, seen, chat, used } = await providers();
      state.usual = status;
      const reply = await chat();
      expect([reply.status, reply.body.toString()]).toEqual([200, expect.stringContaining("Hello from spare")]);
      expect(seen.map((each) => each.split(" {")[0])).toEqual(["usual Bearer usual-key", "spare Bearer spare-key"]);
      expect(new Set(seen.map((each) => each.slice(each.indexOf("{"))))).toEqual(
        new Set(['{"messages":[],"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":2000}']),
      );
      expect(await used()).toBe(700);
    });

    it("is not evaded by leaving include_usage out, by duplicate members, or by gzip", async () => {
      const { chat, used, seen } = await providers();
      for (const body of ['{"stream":false}', '{"stream_options":null}', '{"stream_options":{"include_usage":false}}'])
        expect((await chat(body)).status).toBe(200);
      expect((await chat("{}", { "Accept-Encoding": "gzip, br" })).headers["content-encoding"]).toBe(undefined);
      expect(await used()).toBe(4 * 700);
      const twice = '{"stream_options":{"include_usage":true},"stream_options":{"include_usage":false}}';
      expect((await chat(twice)).status).toBe(400);
      expect((await chat(gzipSync("{}"), { "Content-Encoding": "gzip" })).status).toBe(400);
      expect((await chat("{}", { "Content-Type": "text/plain" })).status).toBe(400);
      expect(seen).toHaveLength(4);
      expect(await used()).toBe(4 * 700);
    });

    it("is not evaded by an early disconnect, also from a very long answer or from many", async () => {
      const { port, state, seen, used } = await providers();
      state.isHeld = true;
      const connection = await connect(port);
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
      const body = '{"n":9,"max_tokens":1000000,"max_completion_tokens":1000000}';
      const length = `Content-Length: ${body.length}\r\n`;
      connection.send(`POST ${asking.path} HTTP/1.1\r\nHost: a\r\n${length}${lines.join("")}\r\n${body}`);
      await connection.until("Hello");
      connection.socket.destroy();
      expect(seen[0]).toMatch(/ {"max_completion_tokens":2000,[^n]/);
      expect(await used()).toBe(20_000);
    });

    it("is not evaded by many streams at once", async () => {
      const { state, open, chat, used, seen } = await providers(200_000);
      state.isHeld = true;
      const statuses: number[] = [];
      const all = Array.from({ length: 14 }, () => chat().then(({ status }) => statuses.push(status)));
      await eventually(() => open.length === 10 && statuses.length === 4, "ten streams to be open");
      expect(statuses).toEqual(Array(4).fill(429));
      for (const finish of open) finish();
      await Promise.all(all);
      expect(seen).toHaveLength(10);
      expect(await used()).toBe(10 * 700);
    });
  });

  it("its WebSockets pass", async () => {
    const upstream = await backend();
    upstream.server.on(
      "upgrade",
      (_request, socket) =>
        void socket.end(
          "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
            "websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello",
        ),
    );
    const { port } = await running(configOf("WebSockets", { 3002: upstream.port }));
    const client = await connect(port);
    client.send(
      "GET /chat/room HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: " +
        "websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    await client.closed();
    expect(client.text()).toMatch(/^HTTP\/1\.1 101 [^]*\r\n\r\nhello$/);
  });

  it("its gRPC has its trailers", async () => {
    const server = http2.createServer().on("stream", (stream, headers) => {
      stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
      stream.respond(
        { ":status": 200, "content-type": "application/grpc", "x-path": headers[":path"]! },
        { waitForTrailers: true },
      );
      stream.resume().end("reply");
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => void server.close());
    const { port } = await running(configOf("gRPC", { 50051: (server.address() as AddressInfo).port }));
    const call = {
      method: "POST",
      path: "/helloworld.Greeter/SayHello",
      headers: { "content-type": "application/grpc", te: "trailers" },
      body: "request",
    };
    expect(await h2Ask(h2Session(port), call)).toMatchObject({
      status: 200,
      headers: { "x-path": "/helloworld.Greeter/SayHello" },
      trailers: { "grpc-status": "0" },
    });
  });

  it("its files of teams are joined, checked and compared by its commands", { timeout: 60_000 }, async () => {
    const job = "One gateway for many services, a file for each team";
    const folder = emptyFolder();
    mkdirSync(join(folder, "teams"));
    const [shared = "", orders = ""] = blocks(job, "json");
    writeFileSync(join(folder, "gateway.json"), shared);
    writeFileSync(join(folder, "gw.json"), JSON.stringify({ services: [] }));
    writeFileSync(join(folder, "teams/orders.json"), orders);
    writeFileSync(
      join(folder, "teams/shop.json"),
      orders
        .replaceAll("orders", "shop")
        .replace('"tests"', '"not_tests"')
        .replace(/,\s*"not_tests"[^]*\]\s*\}\s*$/, "}"),
    );
    const lines = blocks(job, "sh")[0]!.trim().split("\n");
    const outputs: string[] = [];
    for (const line of lines.flatMap((each) => each.split(" && "))) {
      if (!line.startsWith("npx edge-gateway "))
        expect(spawnSync("sh", ["-c", line], { cwd: folder, encoding: "utf8" })).toMatchObject({
          status: 0,
          stderr: "",
        });
      else outputs.push((await program(line.split(" ").slice(2), { cwd: folder }).ended).stdout);
    }
    expect(outputs[0]).toContain("routes added:\n  orders / /{rest*}\n  shop / /{rest*}\n");
    expect(outputs[1]).toContain("next.json is valid (2 services, 2 routes; 1 test passed");
    expect(JSON.parse(readFileSync(join(folder, "gw.json"), "utf8"))).toHaveProperty(
      "global.limits.max_body_bytes",
      10485760,
    );
    const gateway = createGateway({
      config: JSON.parse(readFileSync(join(folder, "gw.json"), "utf8")) as AnyConfigInput,
    });
    expect(gateway.counts).toMatchObject({ services: 2 });
    await gateway.close(0);
  });
});
