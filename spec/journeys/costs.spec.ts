/** Costs that replies state, in a whole gateway: replies pass unchanged and at once, whatever their form. */
import type { ServerResponse } from "node:http";
import zlib from "node:zlib";
import { describe, expect, it } from "vitest";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { backend, get } from "./harness.ts";

const FREE = '{"usage":{"total_tokens":0},"response":{"usage":{"total_tokens":0}},"eval_count":0}';
const TOKENS = { response_json: "usage.total_tokens", default: 7 };

/** A quota of 100,000 with these costs in front of an upstream, and what is left of it. */
async function metered(cost: object, answer: (response: ServerResponse, url: string) => void, global: object = {}) {
  const origin = await backend((request, response) => {
    if (request.url === "/free")
      return void response.writeHead(200, { "X-Cost": "0", "Content-Type": "application/json" }).end(FREE);
    answer(response, request.url!);
  });
  const plugins = [{ name: "quota", config: { limit: 100_000, per: "month", limit_by: "all", cost } }];
  const { port, gateway } = await running(oneService(origin.port, { plugins }, global));
  const left = async () =>
    Number(/;r=(\d+)/.exec(String((await ask(port, { path: "/a/free" })).headers.ratelimit))![1]);
  /** Resolves once so much is booked: the client may have the end of a reply a moment before. */
  const used = async (expected: number) => {
    let seen = NaN;
    for (const end = Date.now() + 20_000; seen !== expected && Date.now() < end;) seen = 100_000 - (await left());
    expect(seen).toBe(expected);
  };
  return { port, gateway, left, used };
}

/** As the API reference of OpenAI has it, with `stream_options: {"include_usage": true}`. */
const CHUNKS = [
  'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,' +
    '"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}\n\n',
  'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,' +
    '"delta":{"content":"{\\"usage\\":{\\"total_tokens\\":1}}"},"finish_reason":null}],"usage":null}\n\n',
  'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,' +
    '"delta":{},"finish_reason":"stop"}],"usage":null}\n\n',
  'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":' +
    '{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}\n\n',
  "data: [DONE]\n\n",
];
const EVENTS = CHUNKS.join("");
const COMPLETION =
  '{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":' +
  '"Hi ü"},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}\n';
/** The events of the Responses API have names. */
const RESPONSES =
  'event: response.created\ndata: {"type":"response.created","response":{"id":"r","usage":null}}\n\nevent: ' +
  ('response.completed\r\ndata: {"type":"response.completed",\r\ndata: ' +
    '"response":{"id":"r","usage":{"total_tokens":29}}}\r\n\r\n');
/** As the API documentation of Ollama has it. */
const OLLAMA = [
  '{"model":"llama3.2","created_at":"2023-08-04T08:52:19.385406455-07:00","message":{"role":"assistant",' +
    '"content":"The"},"done":false}\n',
  '{"model":"llama3.2","created_at":"2023-08-04T19:22:45.499127Z","message":{"role":"assistant","content":""},' +
    ('"done":true,"total_duration":4883583458,"load_duration":1334875,"prompt_eval_count":26,' +
      '"prompt_eval_duration":342546000,"eval_count":282,"eval_duration":4535599000}\n'),
].join("");

const SSE = { "Content-Type": "text/event-stream; charset=utf-8" };
const JSON_TYPE = { "Content-Type": "application/json" };
const whole = (text: string | Buffer, headers: Record<string, string>) => (response: ServerResponse) =>
  void response.writeHead(200, { "Content-Length": String(Buffer.byteLength(text)), ...headers }).end(text);
const chunked =
  (text: string | Buffer, headers: Record<string, string>, size: number) => async (response: ServerResponse) => {
    response.writeHead(200, headers);
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; at += size) {
      response.write(bytes.subarray(at, at + size));
      await new Promise(setImmediate);
    }
    response.end();
  };

describe("costs", () => {
  it.each<[string, string, string | Buffer, Record<string, string>, number]>([
    ["a completion of the OpenAI API", "usage.total_tokens", COMPLETION, JSON_TYPE, 29],
    ["an event stream of it", "usage.total_tokens", EVENTS, SSE, 29],
    ["events with names, in several lines", "response.usage.total_tokens", RESPONSES, SSE, 29],
    ["events whose lines end with CR", "response.usage.total_tokens", RESPONSES.replaceAll(/\r?\n/g, "\r"), SSE, 29],
    [
      "events whose lines end with CR LF",
      "response.usage.total_tokens",
      RESPONSES.replaceAll(/\r?\n/g, "\r\n"),
      SSE,
      29,
    ],
    ["events behind a byte order mark", "usage.total_tokens", `\uFEFF${CHUNKS[3]}`, SSE, 29],
    [
      "an event stream without its last blank line",
      "usage.total_tokens",
      EVENTS.slice(0, EVENTS.indexOf("data: [DONE]") - 2),
      SSE,
      29,
    ],
    ["lines of JSON of Ollama", "eval_count", OLLAMA, { "Content-Type": "application/x-ndjson" }, 282],
    [
      "a reply of Ollama without a stream",
      "eval_count",
      OLLAMA.split("\n")[1]!,
      { "Content-Type": "application/json; charset=utf-8" },
      282,
    ],
    ["a type that is JSON, too", "usage.total_tokens", COMPLETION, { "Content-Type": "application/vnd.api+json" }, 29],
    [
      "a completion in gzip",
      "usage.total_tokens",
      zlib.gzipSync(COMPLETION),
      { ...JSON_TYPE, "Content-Encoding": "gzip" },
      29,
    ],
    [
      "an event stream in gzip",
      "usage.total_tokens",
      zlib.gzipSync(EVENTS),
      { ...SSE, "Content-Encoding": "x-gzip" },
      29,
    ],
    ["JSON without usage", "usage.total_tokens", '{"choices":[]}', JSON_TYPE, 7],
    ["JSON that is broken off", "usage.total_tokens", COMPLETION.slice(0, -3), JSON_TYPE, 7],
    ["a negative number", "usage.total_tokens", '{"usage":{"total_tokens":-5}}', JSON_TYPE, 7],
    ["text", "usage.total_tokens", COMPLETION, { "Content-Type": "text/plain" }, 7],
    [
      "another coding",
      "usage.total_tokens",
      zlib.brotliCompressSync(COMPLETION),
      { ...JSON_TYPE, "Content-Encoding": "br" },
      7,
    ],
    [
      "gzip that is broken off",
      "usage.total_tokens",
      zlib.gzipSync(COMPLETION).subarray(0, -9),
      { ...JSON_TYPE, "Content-Encoding": "gzip" },
      7,
    ],
    ["what is not gzip", "usage.total_tokens", COMPLETION, { ...JSON_TYPE, "Content-Encoding": "gzip" }, 7],
    [
      "JSON of more than a megabyte",
      "usage.total_tokens",
      `{"pad":"${"x".repeat(1024 * 1024)}","usage":{"total_tokens":5}}`,
      JSON_TYPE,
      5,
    ],
    [
      "a gigabyte of gzip's: 17 MB in 17 KB",
      "usage.total_tokens",
      zlib.gzipSync(Buffer.concat([Buffer.alloc(17 * 1024 * 1024, 32), Buffer.from(EVENTS)])),
      { ...SSE, "Content-Encoding": "gzip" },
      7,
    ],
    ["an event stream of more than a megabyte", "usage.total_tokens", CHUNKS[1]!.repeat(6_000) + EVENTS, SSE, 29],
  ])(
    "%s (%s) passes unchanged, in one piece and in many, and costs what it says",
    async (_title, path, body, headers, cost) => {
      const forms = [whole(body, headers), chunked(body, headers, body.length > 100_000 ? 50_000 : 11)];
      const { port, used } = await metered({ response_json: path, default: 7 }, (response, url) =>
        forms[Number(url.slice(1))]!(response),
      );
      for (const i of [0, 1]) {
        const reply = await ask(port, { path: `/a/${i}` });
        expect(reply.body.equals(Buffer.from(body))).toBe(true);
        expect(reply.headers["content-encoding"]).toBe(headers["Content-Encoding"]);
        await used((i + 1) * cost);
      }
    },
  );

  it.each(["br, gzip;q=0.5", "gzip, deflate, br, zstd", "*", "br", "GZIP ;q=1, identity", null])(
    "a client that accepts %s has its reply without a coding, and pays what it costs",
    async (asked) => {
      const { port, used } = await metered(TOKENS, (response) => {
        const accepted = String(response.req.headers["accept-encoding"]);
        const coding = /br|\*|undefined/.test(accepted) ? "br" : "identity";
        response
          .writeHead(200, { ...JSON_TYPE, "Content-Encoding": coding, "X-Asked": accepted })
          .end(coding === "br" ? zlib.brotliCompressSync(COMPLETION) : COMPLETION);
      });
      const headers = asked === null ? {} : { "Accept-Encoding": asked };
      expect((await ask(port, { path: "/a/x", headers })).headers["x-asked"]).toBe("identity");
      await used(29);
    },
  );

  it("a client that asks for a part has the whole reply, and its cost", async () => {
    const { port, used } = await metered(TOKENS, (response) => {
      const isPart = response.req.headers.range !== undefined;
      response.writeHead(isPart ? 206 : 200, JSON_TYPE).end(isPart ? COMPLETION.slice(0, 20) : COMPLETION);
    });
    expect((await ask(port, { path: "/a/x", headers: { Range: "bytes=0-19" } })).status).toBe(200);
    await used(29);
  });

  it("over HTTP/2, too", async () => {
    const { port, used } = await metered(TOKENS, chunked(EVENTS, SSE, 40), { h2c: true });
    const session = h2Session(port);
    expect((await h2Ask(session, { path: "/a/x" })).body.toString()).toBe(EVENTS);
    session.close();
    await used(29);
  });

  it("each event is passed on before the next one comes", async () => {
    let go = () => {};
    const { port, used } = await metered(TOKENS, async (response) => {
      response.writeHead(200, SSE);
      for (const chunk of CHUNKS) {
        response.write(chunk);
        await new Promise<void>((resolve) => (go = resolve));
      }
      response.end();
    });
    const connection = await connect(port);
    connection.send(get());
    for (const chunk of CHUNKS) {
      await connection.until(chunk.trimEnd());
      go();
    }
    await connection.until("\r\n0\r\n\r\n");
    connection.socket.destroy();
    await used(29);
  });

  it("a client that leaves in the middle costs the default, or what has been stated by then", async () => {
    for (const [sent, cost] of [
      [2, 7],
      [4, 29],
    ] as const) {
      const { port, used } = await metered(
        TOKENS,
        (response) => void response.writeHead(200, SSE).write(CHUNKS.slice(0, sent).join("")),
      );
      const connection = await connect(port);
      connection.send(get());
      await connection.until(CHUNKS[sent - 1]!.trimEnd());
      connection.socket.destroy();
      await used(cost);
    }
  });

  it("an upstream that breaks off, one that is down, and a reply without a body cost the default", async () => {
    const { port, used } = await metered(TOKENS, (response, url) => {
      if (url === "/head") return void response.writeHead(204).end();
      response.writeHead(200, { ...JSON_TYPE, "Content-Length": "1000" }).write('{"usage":{"total_tokens":29},');
      setImmediate(() => response.destroy());
    });
    await expect(ask(port, { path: "/a/x" })).rejects.toThrow();
    await used(7);
    expect((await ask(port, { path: "/a/head" })).status).toBe(204);
    await used(14);
    const nobody = await metered(TOKENS, (response) => void response.destroy());
    expect((await ask(nobody.port, { path: "/a/x" })).status).toBe(502);
    await nobody.used(7);
  });

  it("a budget is overdrawn by what is in flight at most, and then refused", async () => {
    const waiting: ServerResponse[] = [];
    const origin = await backend((_request, response) => void waiting.push(response));
    const plugins = [
      { name: "rate_limit", config: { limit_hour: 10_000, limit_by: "all", cost: { response_header: "X-Tokens" } } },
    ];
    const { port } = await running(oneService(origin.port, { plugins }));
    const asked = Array.from({ length: 5 }, () => ask(port, { path: "/a/x" }));
    await eventually(() => waiting.length === 5);
    for (const response of waiting) response.writeHead(200, { "X-Tokens": "6000" }).end();
    const replies = await Promise.all(asked);
    expect(replies.map(({ status, headers }) => [status, headers.ratelimit])).toEqual(
      Array(5).fill([200, '"hour";r=10000;t=0']),
    );
    expect((await ask(port, { path: "/a/x" })).status).toBe(429);
    expect(waiting).toHaveLength(5);
  });

  it("a reload keeps what was booked, and what is in progress is booked after it", async () => {
    let end = () => {};
    const origin = await backend((_request, response) => {
      response.writeHead(200, SSE).write(CHUNKS[0]!);
      end = () => void response.end(EVENTS);
    });
    const config = (limit: number) =>
      oneService(origin.port, {
        plugins: [{ name: "quota", config: { limit, per: "day", limit_by: "all", cost: TOKENS } }],
      });
    const { port, gateway } = await running(config(100));
    const asked = ask(port, { path: "/a/x" });
    await eventually(() => origin.seen.length === 1);
    await gateway.reload(config(20));
    end();
    expect((await asked).status).toBe(200);
    // Booked a moment after the client has the end of its reply.
    await eventually(() => gateway.status.inFlight === 0);
    expect((await ask(port, { path: "/a/x" })).status).toBe(429);
  });
});
