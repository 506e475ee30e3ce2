import { writeFileSync } from "node:fs";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { silentLog } from "../../lib/base/log.ts";
import { readSourceSettings } from "../../lib/config/source_settings.ts";
import type { SourceSettings } from "../../lib/config/settings_types.ts";
import { openHttp } from "../../lib/source/http_text_server.ts";
import { RemoteSource } from "../../lib/source/remote_source.ts";
import { textSourceContract } from "../contracts/text_source.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { configServer } from "../support/config_server.ts";
import { fileWith } from "../support/process.ts";

const never = new AbortController().signal;

function settingsOf(url: string, environment: Record<string, string> = {}): SourceSettings {
  const read = readSourceSettings(url, {}, environment);
  if (!read.ok) throw new Error(read.issues.join("\n"));
  return read.settings!;
}

/** With a signature, as with CONFIG_PUBLIC_KEY. */
function opened(url: string, environment: Record<string, string> = {}, clock = systemClock) {
  const server = openHttp(settingsOf(url, { CONFIG_PUBLIC_KEY: "key.pem", ...environment }), clock);
  onTestFinished(() => server.close());
  return server;
}

textSourceContract("HTTP", async () => {
  const { url, files } = await configServer();
  const source = new RemoteSource(
    openHttp({ ...settingsOf(url, { CONFIG_PUBLIC_KEY: "key.pem" }), pollMs: 20 }, systemClock),
    { clock: systemClock, log: silentLog },
  );
  onTestFinished(() => source.close());
  return {
    source,
    put(text, signature) {
      if (signature === null) files.delete("/gw.json.sig");
      else files.set("/gw.json.sig", signature);
      files.set("/gw.json", text);
    },
    remove: () => files.clear(),
  };
});

describe("a configuration on an HTTP server", () => {
  it("is asked for with what was received, and its signature behind the path and before the query", async () => {
    const { url, files, requests } = await configServer();
    files.set("/gw.json", "{}").set("/gw.json.sig", "s");
    const server = opened(`${url}?v=1&x=a%20b`);
    const first = await server.ask(never);
    expect(first).toMatchObject({ signature: "s", revision: expect.stringMatching(/^"[0-9a-f]{12}"$/) });
    expect(await server.ask(never)).toBeNull();
    files.set("/gw.json.sig", "t");
    expect(await server.ask(never)).toMatchObject({ text: Buffer.from("{}"), signature: "t" });
    expect(requests.map(({ url: asked, status }) => `${asked} ${status}`)).toEqual([
      "/gw.json?v=1&x=a%20b 200",
      "/gw.json.sig?v=1&x=a%20b 200",
      "/gw.json?v=1&x=a%20b 304",
      "/gw.json.sig?v=1&x=a%20b 304",
      "/gw.json?v=1&x=a%20b 304",
      "/gw.json.sig?v=1&x=a%20b 200",
    ]);
    expect(requests[0]!.headers).not.toHaveProperty("authorization");
  });

  it("is asked for no signature where none is needed", async () => {
    const { url, files, requests } = await configServer();
    files.set("/gw.json", "{}");
    const server = openHttp(settingsOf(url), systemClock);
    onTestFinished(() => server.close());
    expect(await server.ask(never)).toMatchObject({ signature: null });
    expect(requests).toHaveLength(1);
  });

  it("is another text each time where the server has no ETags", async () => {
    const served = await configServer();
    served.answer = (_request, reply) => void reply.end("{}");
    const server = opened(served.url);
    expect(await server.ask(never)).toMatchObject({ revision: null });
    expect(await server.ask(never)).not.toBeNull();
    expect(served.requests.every(({ headers }) => headers["if-none-match"] === undefined)).toBe(true);
  });

  it("is asked for without what was received, text and signature, once that is forgotten", async () => {
    const { url, files, requests } = await configServer();
    files.set("/gw.json", "{}").set("/gw.json.sig", "s");
    const server = opened(url);
    await server.ask(never);
    server.forget!();
    expect(await server.ask(never)).toMatchObject({ text: Buffer.from("{}"), signature: "s" });
    expect(requests.map(({ headers }) => headers["if-none-match"])).toEqual(Array(4).fill(undefined));
  });

  it("gets the token of the file, which is read at each request", async () => {
    const { url, files, requests } = await configServer();
    files.set("/gw.json", "{}");
    const token = fileWith("one\n", "token");
    const server = opened(url, { CONFIG_TOKEN_FILE: token });
    await server.ask(never);
    writeFileSync(token, "two");
    await server.ask(never);
    expect(requests.map(({ headers }) => headers.authorization)).toEqual([
      "Bearer one",
      "Bearer one",
      "Bearer two",
      "Bearer two",
    ]);
  });

  it.each([
    ["", "is empty"],
    ["a secret text", "has more than one word"],
  ])("is not asked for with the token %j, which no message repeats", async (content, expected) => {
    const { url, requests } = await configServer();
    const error = (await opened(url, { CONFIG_TOKEN_FILE: fileWith(content, "token") })
      .ask(never)
      .catch((failed: unknown) => failed)) as Error;
    expect(error).toMatchObject({ kind: "unreachable", message: expect.stringContaining(expected) });
    expect(error.message).not.toContain("secret text");
    expect(requests).toEqual([]);
  });

  it.each([
    [401, "the server answers 401: check CONFIG_TOKEN_FILE and what the server allows"],
    [403, "the server answers 403: check CONFIG_TOKEN_FILE and what the server allows"],
    [500, "the server answers 500"],
    [503, "the server answers 503"],
    [418, "the server answers 418"],
    [206, "the server answers 206"],
    [304, "the server answers 304"],
    [302, "the server answers 302, and redirects are not followed: name the place itself in CONFIG_FILE_PATH"],
  ])("is unreachable for the status %d, of the text or of its signature", async (status, expected) => {
    const served = await configServer();
    for (const of of ["/gw.json", "/gw.json.sig"]) {
      served.answer = (request, reply) => {
        reply.writeHead(request.url === of ? status : 200, { Location: "http://127.0.0.1:1/x" });
        reply.end(status === 304 && request.url === of ? undefined : "x");
      };
      await expect(opened(served.url).ask(never)).rejects.toMatchObject({
        kind: "unreachable",
        message: expect.stringContaining(expected),
      });
    }
    expect(served.requests.every(({ url }) => url.startsWith("/gw.json"))).toBe(true);
  });

  it.each([404, 410, 204, 200])(
    "is missing for the status %d without a text, and asked for as a whole then",
    async (status) => {
      const served = await configServer();
      served.files.set("/gw.json", "{}");
      const server = opened(served.url);
      await server.ask(never);
      served.answer = (_request, reply) => void reply.writeHead(status).end();
      await expect(server.ask(never)).rejects.toMatchObject({ kind: "missing" });
      served.answer = null;
      expect(await server.ask(never)).toMatchObject({ text: Buffer.from("{}") });
    },
  );

  it("is unreachable where it is compressed, or too large, and says so", async () => {
    const served = await configServer();
    served.answer = (_request, reply) => void reply.writeHead(200, { "Content-Encoding": "gzip" }).end("x");
    await expect(opened(served.url).ask(never)).rejects.toMatchObject({
      kind: "unreachable",
      message: expect.stringContaining("compressed"),
    });
    served.answer = (request, reply) => {
      reply.writeHead(200);
      reply.end(request.url === "/gw.json.sig" ? Buffer.alloc(64 * 1024 + 1, "x") : "{}");
    };
    await expect(opened(served.url).ask(never)).rejects.toMatchObject({
      kind: "unreachable",
      message: "the answer has more than 65536 bytes",
    });
    const piece = Buffer.alloc(1024 * 1024, "x");
    served.answer = (_request, reply) => {
      reply.writeHead(200);
      const write = (left: number) => void (left === 0 ? reply.end("x") : reply.write(piece, () => write(left - 1)));
      write(64);
    };
    await expect(opened(served.url).ask(never)).rejects.toMatchObject({
      kind: "unreachable",
      message: "the answer has more than 67108864 bytes",
    });
  });

  it.each(["/gw.json", "/gw.json.sig"])(
    "is given up after 10 s with its body, also in the middle of %s",
    async (of) => {
      const served = await configServer();
      const clock = manualClock();
      let begun = () => {};
      const hangs = new Promise<void>((done) => (begun = done));
      served.answer = (request, reply) => {
        if (request.url !== of) return void reply.end("{}");
        reply.write("{");
        begun();
      };
      const asked = opened(served.url, {}, clock).ask(never);
      await hangs;
      clock.advance(9_999);
      clock.advance(1);
      await expect(asked).rejects.toMatchObject({ kind: "unreachable", message: "no answer within 10 s" });
    },
  );

  it("is given up when its source is closed", async () => {
    const served = await configServer();
    const ends = new AbortController();
    served.answer = () => ends.abort();
    await expect(opened(served.url).ask(ends.signal)).rejects.toMatchObject({ kind: "unreachable" });
  });

  it("is unreachable where nothing listens, and where the answer is cut off", async () => {
    const served = await configServer();
    served.answer = (_request, reply) => {
      reply.writeHead(200, { "Content-Length": "10" });
      reply.write("x", () => reply.destroy());
    };
    await expect(opened(served.url).ask(never)).rejects.toMatchObject({ kind: "unreachable" });
    await served.close();
    await expect(opened(served.url).ask(never)).rejects.toMatchObject({
      kind: "unreachable",
      message: expect.stringContaining("ECONNREFUSED"),
    });
  });

  describe("over HTTPS", () => {
    const secure = () =>
      configServer({ cert: SERVER.cert, key: SERVER.key, ca: CA.cert, requestCert: true, rejectUnauthorized: false });

    it("is received from a server that the CA of CONFIG_CA_PATH has signed, with a client certificate", async () => {
      const served = await secure();
      const seen: unknown[] = [];
      served.answer = (request, reply) => {
        seen.push((request.socket as unknown as { authorized: boolean }).authorized);
        reply.end("{}");
      };
      const server = opened(served.url, {
        CONFIG_CA_PATH: fileWith(CA.cert, "ca.pem"),
        CONFIG_CERT_PATH: fileWith(CLIENT.cert, "cert.pem"),
        CONFIG_KEY_PATH: fileWith(CLIENT.key, "key.pem"),
      });
      expect(await server.ask(never)).toMatchObject({ text: Buffer.from("{}") });
      expect(seen).toEqual([true, true]);
    });

    it("is unreachable where the server's certificate is not verified, whatever the environment says", async () => {
      const served = await secure();
      served.files.set("/gw.json", "{}");
      const before = process.env.NODE_TLS_REJECT_UNAUTHORIZED;
      process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
      onTestFinished(() => {
        if (before === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
        else process.env.NODE_TLS_REJECT_UNAUTHORIZED = before;
      });
      await expect(opened(served.url).ask(never)).rejects.toMatchObject({ kind: "unreachable" });
      expect(served.requests).toEqual([]);
    });

    it("is asked for with the CA that the file has by now", async () => {
      const served = await secure();
      served.files.set("/gw.json", "{}");
      const ca = fileWith("nonsense", "ca.pem");
      const server = opened(served.url, { CONFIG_CA_PATH: ca });
      await expect(server.ask(never)).rejects.toMatchObject({ kind: "unreachable" });
      writeFileSync(ca, CA.cert);
      expect(await server.ask(never)).not.toBeNull();
    });

    it.each([
      ["CONFIG_CA_PATH", { CONFIG_CA_PATH: "/nowhere/ca.pem" }],
      ["CONFIG_CERT_PATH", { CONFIG_CERT_PATH: "/nowhere/c.pem", CONFIG_KEY_PATH: "/nowhere/k.pem" }],
    ])("is unreachable while %s cannot be read, and the message names the setting", async (name, environment) => {
      const served = await secure();
      await expect(opened(served.url, environment as Record<string, string>).ask(never)).rejects.toMatchObject({
        kind: "unreachable",
        message: expect.stringContaining(`${name}: cannot read /nowhere/`),
      });
    });
  });
});
