import { once } from "node:events";
import http2 from "node:http2";
import { connect } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Question } from "../../lib/index.ts";
import { eventually } from "../support/raw_client.ts";
import { CERT, KEY } from "./certificate.ts";
import { EXPLANATION, source, startAdmin } from "./harness.ts";

const QUESTION = { method: "GET", url: "/a/x?y=1", headers: { Host: "a" } };

async function loggedIn() {
  const asked: Question[] = [];
  const explain = (question: Question) => {
    asked.push(question);
    return Promise.resolve(EXPLANATION);
  };
  const running = await startAdmin({ source: { ...source, explain } });
  const cookie = await running.session();
  const post = (body: string | Buffer, headers: Record<string, string> = {}) =>
    running.ask("POST", "/gateway/explain", {
      body,
      headers: { cookie, "content-type": "application/json", ...headers },
    });
  return { ...running, cookie, post, asked };
}

describe("POST /gateway/explain", () => {
  it("answers a question, with headers or without", async () => {
    const { post, asked } = await loggedIn();
    const got = await post(JSON.stringify(QUESTION), { "content-type": "Application/JSON; charset=utf-8" });
    const { upstreams, hashOn, timeouts: _, upstreamHeaders, ...others } = EXPLANATION;
    const { inFlight, adminState, adminSince, adminId, ...rest } = upstreams[0]!;
    expect([got.status, got.json]).toEqual([
      200,
      {
        ...others,
        hash_on: hashOn,
        timeouts: { connect_ms: 3000, response_ms: 500, idle_ms: 60_000, total_ms: 0 },
        upstream_headers: upstreamHeaders,
        upstreams: [
          {
            ...rest,
            since: "2026-01-01T00:00:00.000Z",
            in_flight: inFlight,
            admin_state: adminState,
            admin_since: adminSince,
            admin_id: adminId,
          },
        ],
      },
    ]);
    expect((await post('{"method":"GET","url":"/"}')).status).toBe(200);
    expect(asked).toEqual([QUESTION, { method: "GET", url: "/", headers: {} }]);
  });

  it.each([
    ['"text"', "text"],
    ['""', ""],
    ['{"a":[1]}', '{"a":[1]}'],
    ["[]", "[]"],
    ["7", "7"],
    ["false", "false"],
  ])(
    "POST /gateway/explain accepts the client's address, headers of several lines, and a body, " +
      "which is text or else JSON: %s",
    async (body, text) => {
      const { post, asked } = await loggedIn();
      expect(
        (await post(`{"method":"POST","url":"/","headers":{"a":["1","2"]},"client_ip":"2001:db8::1","body":${body}}`))
          .status,
      ).toBe(200);
      expect(asked).toEqual([
        { method: "POST", url: "/", headers: { a: ["1", "2"] }, clientIp: "2001:db8::1", body: text },
      ]);
    },
  );

  it("POST /gateway/explain accepts null for no client_ip and no body", async () => {
    const { post, asked } = await loggedIn();
    expect((await post('{"method":"POST","url":"/","client_ip":null,"body":null}')).status).toBe(200);
    expect(asked).toEqual([{ method: "POST", url: "/", headers: {} }]);
  });

  it.each([
    ["no JSON", "{", "bad_request", /^The body is not JSON: /],
    ["nothing", "", "bad_request", /^The body is not JSON: /],
    ["no UTF-8", Buffer.from('{"method":"\xff"}', "latin1"), "bad_request", /^The body is not UTF-8\.$/],
    ["no object", "[]", "request_invalid", /^The body must be an object/],
    ["null", "null", "request_invalid", /^The body must be an object/],
    ["a missing method and url", "{}", "request_invalid", /^"method" is missing.* "url" is missing/],
    ["an empty url", '{"method":"GET","url":""}', "request_invalid", /^"url" is missing/],
    ["a method that is no text", '{"method":1,"url":"/"}', "request_invalid", /^"method" is missing, or not a string/],
    [
      "headers that are a list",
      '{"method":"GET","url":"/","headers":[]}',
      "request_invalid",
      /^"headers" is not an object/,
    ],
    [
      "a header that is no text",
      '{"method":"GET","url":"/","headers":{"a":1}}',
      "request_invalid",
      /^"headers" is not an object/,
    ],
    [
      "a header that is a list of something else",
      '{"method":"GET","url":"/","headers":{"a":["b",1]}}',
      "request_invalid",
      /^"headers" is not an object/,
    ],
    [
      "a client_ip that is a name",
      '{"method":"GET","url":"/","client_ip":"localhost"}',
      "request_invalid",
      /^"client_ip" is not an IP address such as "203\.0\.113\.9"/,
    ],
    [
      "a client_ip that is a number",
      '{"method":"GET","url":"/","client_ip":7}',
      "request_invalid",
      /^"client_ip" is not an IP address/,
    ],
    [
      "a client_ip that is a range",
      '{"method":"GET","url":"/","client_ip":"10.0.0.0/8"}',
      "request_invalid",
      /^"client_ip" is not an IP address/,
    ],
    [
      "a field too many",
      '{"method":"GET","url":"/","from":""}',
      "request_invalid",
      /^"from" is not a known field: the fields are "method", "url", "headers", "client_ip" and "body"/,
    ],
  ] as [string, string | Buffer, string, RegExp][])(
    "gives 400 that says what is wrong for %s",
    async (_, body, code, detail) => {
      const { post, asked } = await loggedIn();
      const got = await post(body);
      expect([got.status, got.json.code]).toEqual([400, code]);
      expect(got.json.detail).toMatch(detail);
      expect(asked).toEqual([]);
    },
  );

  it.each(["text/plain", "application/jsonx", ""])("gives 400 for the content type %j", async (type) => {
    const { post } = await loggedIn();
    const got = await post(JSON.stringify(QUESTION), { "content-type": type });
    expect([got.status, got.json.detail]).toEqual([400, "Send the request to explain as application/json."]);
  });

  it("gives 413 above 64 KiB, whether the length is stated or not, and answers the largest question", async () => {
    const { post, cookie, raw, inTime } = await loggedIn();
    const whole = (bytes: number) => JSON.stringify(QUESTION).padEnd(bytes);
    expect((await post(whole(64 * 1024))).status).toBe(200);
    const got = await post(whole(64 * 1024 + 1));
    expect([got.status, got.json.code]).toEqual([413, "body_too_large"]);
    const head =
      `POST /gateway/explain HTTP/1.1\r\nHost: localhost\r\nCookie: ${cookie}\r\nContent-Type: ` +
      `application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;
    expect(await inTime(raw(head, `11000\r\n${" ".repeat(0x11000)}\r\n`))).toMatch(/^HTTP\/1\.1 413 /);
  });

  it(
    "gives 413 over HTTP/2 for a question beyond 64 KiB whose length is not stated, " +
      "and the largest question is answered",
    async () => {
      const { port, session } = await startAdmin({ tls: { cert: CERT, key: KEY } });
      const cookie = await session();
      const client = http2.connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
      onTestFinished(() => client.destroy());
      const statusFor = async (bytes: number) => {
        const stream = client.request({
          ":method": "POST",
          ":path": "/gateway/explain",
          cookie,
          "content-type": "application/json",
        });
        stream.on("error", () => {}).end(JSON.stringify(QUESTION).padEnd(bytes));
        const [headers] = (await once(stream, "response")) as [
          http2.IncomingHttpHeaders & http2.IncomingHttpStatusHeader,
        ];
        return headers[":status"];
      };
      expect([await statusFor(64 * 1024), await statusFor(64 * 1024 + 1)]).toEqual([200, 413]);
    },
  );

  it(
    "gives 401 without a token before reading the question, 403 to a foreign page, " + "and 405 for another method",
    async () => {
      const { ask, cookie, post } = await loggedIn();
      expect((await ask("POST", "/gateway/explain", { body: "{" })).status).toBe(401);
      expect((await post("{", { origin: "http://evil.example" })).status).toBe(403);
      const got = await ask("GET", "/gateway/explain", { headers: { cookie } });
      expect([got.status, got.headers.allow]).toEqual([405, "POST, OPTIONS"]);
    },
  );

  it(
    "gives 408 and ends the connection when the question does not arrive in time; " +
      "one that breaks off leaves no timer",
    async () => {
      const { cookie, port, clock } = await loggedIn();
      const head =
        `POST /gateway/explain HTTP/1.1\r\nHost: localhost\r\nCookie: ${cookie}\r\nContent-Type: ` +
        `application/json\r\nContent-Length: 50\r\n\r\n{`;
      const open = async () => {
        const socket = connect(port, "127.0.0.1");
        let text = "";
        socket.on("error", () => {}).on("data", (part) => void (text += part.toString()));
        socket.write(head);
        await once(socket, "connect");
        return { socket, text: () => text };
      };
      const slow = await open();
      await eventually(() => clock.pending === 1);
      clock.advance(31_000);
      await eventually(() => /^HTTP\/1\.1 408 /.test(slow.text()));
      clock.advance(10_000);
      await eventually(() => clock.pending === 0);
      const gone = await open();
      await eventually(() => clock.pending === 1);
      gone.socket.destroy();
      await eventually(() => clock.pending === 0);
      const half = await open();
      await eventually(() => clock.pending === 1);
      half.socket.end();
      await eventually(() => /^HTTP\/1\.1 400 [^]*"code":"bad_request"/.test(half.text()));
      slow.socket.destroy();
    },
  );

  it("the request is closed with the interface in the middle of a question", async () => {
    const { admin, cookie, port, clock } = await loggedIn();
    const socket = connect(port, "127.0.0.1");
    socket
      .on("error", () => {})
      .write(
        `POST /gateway/explain HTTP/1.1\r\nHost: localhost\r\nCookie: ${cookie}\r\nContent-Type: ` +
          `application/json\r\nContent-Length: 50\r\n\r\n{`,
      );
    await eventually(() => clock.pending === 1);
    const closed = admin.close();
    clock.advance(2_000);
    await closed;
  });
});
