import { PassThrough, Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import { SharedCount } from "../../lib/base/shared_counts.ts";
import { ALONE } from "../../lib/base/threads.ts";
import { Call, type Exchange, type ExchangeParts } from "../../lib/http/exchange.ts";
import { nodeFrom } from "../../lib/config/json.ts";
import { parseJson } from "../../lib/config/json_parser.ts";
import { INVALID } from "../../lib/config/schema.ts";
import { requestValidation } from "../../lib/plugins/request_validation.ts";
import { manualClock } from "../support/clock.ts";
import {
  atOnce,
  checked,
  exercise,
  instance,
  madeUpExchange,
  madeUpTools,
  plainReply,
  problemOf,
} from "../support/exercise.ts";

const BODY = { type: "object", properties: { id: { type: "integer" } }, required: ["id"] };
const JSON_HEADERS = ["Content-Type", "application/json"];

function post(
  body: string | Buffer | Readable | null,
  headers: string[] = JSON_HEADERS,
  parts: Partial<ExchangeParts> = {},
): Partial<ExchangeParts> {
  const stream =
    body === null || body instanceof Readable ? body : Readable.from(body.length === 0 ? [] : [Buffer.from(body)]);
  return { method: "POST", headers, body: stream, ...parts };
}

async function ask(config: unknown, parts: Partial<ExchangeParts>) {
  let forwarded: Exchange | null = null;
  const reply = await exercise(instance(requestValidation, config), madeUpExchange(parts), (inner) => {
    forwarded = inner;
    return plainReply;
  }).returned;
  const problem = reply === plainReply ? null : problemOf(reply);
  const violations = (problem?.["violations"] ?? []) as { in: string; at: string; message: string }[];
  return {
    reply,
    forwarded: forwarded as Exchange | null,
    problem,
    violations: violations.map(({ in: where, at, message }) => `${where} ${at}: ${message}`),
  };
}

/** What reached the handler within, body included. */
async function through(config: unknown, parts: Partial<ExchangeParts>) {
  let body: Buffer | null = null;
  let forwarded: Exchange | null = null;
  const { returned } = exercise(instance(requestValidation, config), madeUpExchange(parts), async (exchange) => {
    forwarded = exchange;
    body = exchange.body === null ? null : Buffer.concat(await exchange.body.toArray());
    return plainReply;
  });
  expect(await returned).toBe(plainReply);
  return { forwarded: forwarded as Exchange | null, body: body as Buffer | null };
}

describe("a body", () => {
  it("a body reaches the upstream byte for byte if it is valid, however it arrived", async () => {
    const text = '  {"id" : 1,\n "more":"é😀\\u0041" }\n';
    const whole = Buffer.from(text);
    expect((await through({ body: BODY }, post(text))).body!.toString()).toBe(text);
    const pieces = Readable.from([...whole].map((byte) => Buffer.from([byte])));
    expect((await through({ body: BODY }, post(pieces))).body!.equals(whole)).toBe(true);
  });

  it("a body occupies few buffers although it arrives in thousands of small chunks", async () => {
    const whole = Buffer.from(`{"id":1,"text":"${Array.from({ length: 3_000 }, (_, i) => i % 10).join("")}"}`);
    const pieces: Buffer[] = [];
    const { returned } = exercise(
      instance(requestValidation, { body: BODY }),
      madeUpExchange(post(Readable.from([...whole].map((byte) => Buffer.from([byte]))))),
      async ({ body }) => {
        for await (const piece of body!) pieces.push(piece as Buffer);
        return plainReply;
      },
    );
    expect(await returned).toBe(plainReply);
    expect(Buffer.concat(pieces).equals(whole)).toBe(true);
    expect(pieces.length).toBeLessThan(300);
  });

  it("a body gets a reply with all violations if it is invalid", async () => {
    const { problem, forwarded } = await ask({ body: { items: BODY } }, post('[{"id":"x"},{},{"id":1}]'));
    expect(forwarded).toBeNull();
    expect(problem).toMatchObject({
      status: 400,
      code: "request_invalid",
      detail: "The request has 2 violations of its schemas.",
      violations: [
        { in: "body", at: "/0/id", message: "expected an integer, found a string" },
        { in: "body", at: "/1/id", message: "is required" },
      ],
    });
  });

  it.each<[string, string | Buffer | null, string]>([
    ["none", null, "body : is required"],
    ["an empty one", "", "body : is required"],
    ["no JSON", "{", "body : is not JSON"],
    ["no UTF-8", Buffer.from([0x22, 0xff, 0x22]), "body : is not encoded in UTF-8"],
    ["a key twice", '{"id":1,"id":2}', "body /id: is a duplicate key"],
    ["endless nesting", "[".repeat(101) + "]".repeat(101), "body : is nested deeper than 100 levels"],
  ])("a body gets 400 if it is invalid: %s", async (_what, body, violation) => {
    expect((await ask({ body: BODY }, post(body))).violations).toEqual([violation]);
  });

  it("a body is required for methods that usually have one, and checked for all methods", async () => {
    for (const method of ["GET", "HEAD", "DELETE", "OPTIONS"]) {
      expect((await ask({ body: BODY }, { method })).reply).toBe(plainReply);
      expect((await ask({ body: BODY }, post("", JSON_HEADERS, { method }))).reply).toBe(plainReply);
      expect((await ask({ body: BODY }, post("{}", JSON_HEADERS, { method }))).violations).toEqual([
        "body /id: is required",
      ]);
    }
    for (const method of ["PUT", "PATCH", "PURGE"])
      expect((await ask({ body: BODY }, { method })).violations).toEqual(["body : is required"]);
    expect((await ask({ body: BODY }, { upgrade: "websocket" })).reply).toBe(plainReply);
  });

  it("a body may be missing with body_required false, and is checked if there is one", async () => {
    const config = { body: BODY, body_required: false };
    expect((await ask(config, { method: "POST" })).reply).toBe(plainReply);
    expect((await ask(config, post(""))).reply).toBe(plainReply);
    expect((await ask(config, post("{}"))).violations).toEqual(["body /id: is required"]);
  });

  it.each([
    "application/json",
    "Application/JSON; charset=UTF-8",
    'application/ld+json;profile="x"; charset="utf-8"',
    "application/merge-patch+json",
  ])("a body may have the type %s", async (type) => {
    expect((await ask({ body: BODY }, post('{"id":1}', ["Content-Type", type]))).reply).toBe(plainReply);
  });

  it.each([
    [[]],
    [["Content-Type", "text/plain"]],
    [["Content-Type", "application/jsonp"]],
    [["Content-Type", "application/json; charset=latin1"]],
    [["Content-Type", "application/json", "content-type", "text/plain"]],
    [["Content-Type", "text/x+json"]],
  ])("a body is not checked, but refused, with the headers %j", async (headers) => {
    expect((await ask({ body: BODY }, post("{", headers))).violations).toEqual([
      "headers /content-type: expected application/json, or a type that ends with +json, in UTF-8",
    ]);
  });

  it("a body gets an error if it has a Content-Encoding", async () => {
    expect((await ask({ body: BODY }, post("{}", [...JSON_HEADERS, "Content-Encoding", "gzip"]))).violations).toEqual([
      "headers /content-encoding: is not allowed: send the body unencoded",
    ]);
    expect((await ask({ body: BODY }, post('{"id":1}', [...JSON_HEADERS, "Content-Encoding", "identity"]))).reply).toBe(
      plainReply,
    );
  });

  it("a body is not read without a schema for it", () => {
    const body = new PassThrough();
    const exchange = madeUpExchange(post(body));
    const { returned, forwarded } = exercise(instance(requestValidation, { query: true }), exchange);
    expect(atOnce(returned)).toBe(plainReply);
    expect(forwarded).toBe(exchange);
    expect(body.readableFlowing).toBeNull();
  });

  it("a body gets a limited number of violations, and the problem document says so", async () => {
    const { problem, violations } = await ask({ body: { items: false } }, post(JSON.stringify(Array(1000).fill(0))));
    expect(violations.length).toBe(50);
    expect(problem!["detail"]).toMatch(/^The request has at least 50 violations/);
  });

  it("a body does not block the event loop during a long check, and gets the same verdict", async () => {
    const schema = { items: { anyOf: [...Array<object>(12).fill({ type: "object" }), { type: "integer" }] } };
    const texts = [JSON.stringify(Array(100_000).fill(1)), JSON.stringify([...Array<unknown>(100_000).fill(1), "x"])];
    let turns = 0;
    let isOver = false;
    const count = () => void (isOver || (turns++, setImmediate(count)));
    setImmediate(count);
    const middleware = instance(requestValidation, { body: schema });
    const replies = await Promise.all(texts.map((text) => exercise(middleware, madeUpExchange(post(text))).returned));
    isOver = true;
    expect(replies[0]).toBe(plainReply);
    expect(problemOf(replies[1]!)["violations"]).toEqual([
      { in: "body", at: "/100000", message: "fits none of the 13 forms that are allowed" },
    ]);
    expect(turns).toBeGreaterThan(80);
  });

  it("a check is given up at a limit that does not grow with the body", { timeout: 60_000 }, async () => {
    const schema = { items: { anyOf: [...Array<object>(50).fill({ type: "object" }), { type: "integer" }] } };
    const { violations } = await ask(
      { body: schema, max_bytes: 10_000_000 },
      post(JSON.stringify(Array(2_000_000).fill(1))),
    );
    expect(violations).toEqual(["body : takes too long to check"]);
  });

  it("a body is not checked to its end when the client disconnects", async () => {
    const call = madeUpExchange().call;
    const { returned, forwarded } = exercise(
      instance(requestValidation, { body: { items: { type: "integer" } } }),
      madeUpExchange({ ...post(JSON.stringify(Array(200_000).fill(1))), call }),
    );
    setImmediate(() => call.abort());
    expect((await returned).status).not.toBe(200);
    expect(forwarded).toBeNull();
  });

  it("a body gets an error if it multiplies the work of its schema", async () => {
    const schema = {
      $ref: "#/$defs/a",
      $defs: { a: { oneOf: [{ items: { $ref: "#/$defs/a" } }, { items: { $ref: "#/$defs/a" } }] } },
    };
    expect((await ask({ body: schema }, post("[".repeat(60) + "]".repeat(60)))).violations).toEqual([
      "body : takes too long to check",
    ]);
    const headers = { properties: { x: { allOf: Array(300).fill({ pattern: "(a|b|c|[a-z]|\\w){50}!" }) } } };
    expect((await ask({ headers }, { headers: ["x", "a".repeat(2_000)] })).violations).toEqual([
      "headers : takes too long to check",
    ]);
  });
});

describe("max_bytes", () => {
  const config = { body: true, max_bytes: 10 };

  it("refuses a longer Content-Length with 413 without reading", async () => {
    const body = new PassThrough();
    const { problem } = await ask(config, post(body, [...JSON_HEADERS, "Content-Length", "11"]));
    expect(problem).toMatchObject({
      status: 413,
      code: "body_too_large",
      detail: "The request body may have at most 10 bytes.",
    });
    expect(body.readableFlowing).toBeNull();
  });

  it(
    "refuses a body without a length with 413 at the first byte beyond the limit, " +
      "and leaves the rest to the server",
    async () => {
      const body = new PassThrough();
      body.write('"123456789"');
      const { problem } = await ask(config, post(body));
      expect(problem).toMatchObject({ status: 413, code: "body_too_large" });
      expect([body.destroyed, body.isPaused(), body.listenerCount("data")]).toEqual([false, true, 0]);
    },
  );

  it("accepts a body of exactly that length", async () => {
    expect(
      (await through(config, post('"12345678"', [...JSON_HEADERS, "Content-Length", "10"]))).body!.toString(),
    ).toBe('"12345678"');
  });

  it("answers 503 while the bodies of all instances together are too long, and serves again afterwards", async () => {
    const large = { body: true, max_bytes: 67_108_864 };
    const held = new SharedCount(ALONE, "held");
    const others = [0, 1].map(() => instance(requestValidation, large, madeUpTools({ count: () => held })));
    const middleware = instance(requestValidation, large, madeUpTools({ count: () => held }));
    const waiting = Array.from({ length: 4 }, () => new PassThrough({ highWaterMark: 70_000_000 }));
    const replies = waiting.map((body, i) => exercise(others[i % 2]!, madeUpExchange(post(body))).returned);
    const chunk = Buffer.alloc(67_108_864, 32);
    chunk[0] = 0x31;
    for (const body of waiting) body.write(chunk);
    await new Promise((resolve) => setImmediate(resolve));
    const refused = await exercise(middleware, madeUpExchange(post("1", [...JSON_HEADERS, "Content-Length", "1"])))
      .returned;
    expect(problemOf(refused)).toMatchObject({ status: 503, code: "overloaded" });
    for (const body of waiting) body.destroy();
    await Promise.allSettled(replies);
    expect(
      await exercise(middleware, madeUpExchange(post("1", [...JSON_HEADERS, "Content-Length", "1"]))).returned,
    ).toBe(plainReply);
    expect(held.total).toBe(0);
  });
});

describe("a client", () => {
  it("a client gets 100 Continue if it waits for it, and the upstream does not get Expect", async () => {
    const informed: number[] = [];
    const call = new Call({
      id: "r",
      remoteAddress: "",
      trustedRemote: false,
      startedAt: 0,
      inform: (status) => informed.push(status),
    });
    const { forwarded } = await through(
      { body: true },
      post("1", [...JSON_HEADERS, "Expect", "100-continue", "X", "1"], { call }),
    );
    expect(informed).toEqual([100]);
    expect(forwarded!.headers).toEqual([...JSON_HEADERS, "X", "1"]);
  });

  it("a client gets no 100 Continue if its Content-Length is refused", async () => {
    const informed: number[] = [];
    const call = new Call({
      id: "r",
      remoteAddress: "",
      trustedRemote: false,
      startedAt: 0,
      inform: (status) => informed.push(status),
    });
    await ask(
      { body: true, max_bytes: 1 },
      post(new PassThrough(), [...JSON_HEADERS, "Expect", "100-continue", "Content-Length", "2"], { call }),
    );
    expect(informed).toEqual([]);
  });

  it("a client gets bad_request if its body is incomplete, and nothing is forwarded", async () => {
    for (const before of [true, false]) {
      const body = new PassThrough();
      if (before) body.destroy();
      const { returned } = exercise(instance(requestValidation, { body: true }), madeUpExchange(post(body)), () =>
        expect.unreachable(),
      );
      if (!before) body.destroy();
      await expect(returned).rejects.toMatchObject({ code: "bad_request" });
    }
  });

  it("a client gets the error of a gateway limit that its body exceeds", async () => {
    const body = new PassThrough();
    const { returned } = exercise(instance(requestValidation, { body: true }), madeUpExchange(post(body)));
    body.destroy(new Fault("body_too_large", "the body has more than 5 bytes"));
    await expect(returned).rejects.toMatchObject({ code: "body_too_large" });
  });

  it("a client gets request_timeout if it sends nothing for a minute", async () => {
    const clock = manualClock();
    const body = new PassThrough();
    const { returned } = exercise(
      instance(requestValidation, { body: true }, madeUpTools({ clock })),
      madeUpExchange(post(body)),
    );
    const outcome = expect(returned).rejects.toMatchObject({ code: "request_timeout" });
    clock.advance(59_000);
    body.write("1");
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(59_000);
    clock.advance(1_000);
    await outcome;
    expect(body.listenerCount("data")).toBe(0);
  });
});

describe("the query", () => {
  const query = {
    properties: {
      page: { type: "integer", minimum: 1 },
      all: { type: "boolean" },
      tag: { type: "array", items: { type: "integer" } },
      name: { type: "string", minLength: 1 },
    },
    required: ["page"],
    additionalProperties: false,
  };

  it.each(["?page=1", "?all=true&page=2&tag=1&tag=2&name=a+b%20c", "?page=1&", "?p%61ge=1&name=7"])(
    "the query is accepted: %s",
    async (text) => {
      expect((await ask({ query }, { query: text })).reply).toBe(plainReply);
    },
  );

  it.each<[string, string[]]>([
    ["", ["query /page: is required"]],
    ["?", ["query /page: is required"]],
    ["?page=0", ["query /page: expected at least 1"]],
    ["?page=1.5", ["query /page: expected an integer, found a number"]],
    ["?page=01", ["query /page: expected an integer, found a string"]],
    ["?page=", ["query /page: expected an integer, found a string"]],
    ["?page=1&page=2", ["query /page: expected an integer, found an array"]],
    [
      "?page=1&all=yes&name",
      ["query /all: expected true or false, found a string", "query /name: expected at least 1 character"],
    ],
    ["?page=1&tag=x", ["query /tag/0: expected an integer, found a string"]],
    [
      "?page=1&a%2Fb=1&__proto__=1",
      ["query /a~1b: is not a known property", "query /__proto__: is not a known property"],
    ],
    ["?page=%zz", ["query : is not percent-encoded in UTF-8"]],
    ["?page=1&x=%ff", ["query : is not percent-encoded in UTF-8"]],
  ])("the query is refused: %s", async (text, expected) => {
    expect((await ask({ query }, { query: text })).violations).toEqual(expected);
  });
});

describe("the headers", () => {
  const headers = {
    properties: {
      "x-tenant": { type: "string", pattern: "^[a-z]+$" },
      "x-level": { type: "integer" },
      "x-tag": { type: "array", maxItems: 2 },
    },
    required: ["x-tenant"],
  };

  it("headers are accepted in any case of letters, with others beside them", async () => {
    expect(
      (
        await ask(
          { headers },
          { headers: ["Host", "a", "X-Tenant", "acme", "X-LEVEL", "3", "x-tag", "a", "X-Tag", "b"] },
        )
      ).reply,
    ).toBe(plainReply);
  });

  it("headers are refused with all violations", async () => {
    const sent = ["x-tenant", "Acme", "x-level", "high", "x-tag", "a", "x-tag", "b", "x-tag", "c"];
    expect((await ask({ headers }, { headers: sent })).violations).toEqual([
      "headers /x-tenant: does not match the pattern ^[a-z]+$",
      "headers /x-level: expected an integer, found a string",
      "headers /x-tag: expected at most 2 items, found 3",
    ]);
    expect((await ask({ headers }, { headers: ["x-tenant", "a", "x-tenant", "b"] })).violations).toEqual([
      "headers /x-tenant: expected a string, found an array",
    ]);
    expect((await ask({ headers }, { headers: [] })).violations).toEqual(["headers /x-tenant: is required"]);
  });

  it("the headers include the host over HTTP/2", async () => {
    const host = { properties: { host: { const: "a.example" } }, required: ["host"] };
    expect((await ask({ headers: host }, { headers: [], authority: "a.example" })).reply).toBe(plainReply);
    expect(
      (await ask({ headers: host }, { headers: ["Host", "b.example"], authority: "a.example" })).violations,
    ).toEqual(['headers /host: expected "a.example"']);
    expect((await ask({ headers: host }, { headers: [], authority: "" })).violations).toEqual([
      "headers /host: is required",
    ]);
  });
});

it("reports violations of query, headers and body together, and passes a valid request on unchanged", async () => {
  const config = { body: BODY, query: { required: ["a"] }, headers: { required: ["x-a"] } };
  expect((await ask(config, post("{}"))).violations).toEqual([
    "query /a: is required",
    "headers /x-a: is required",
    "body /id: is required",
  ]);
  const { forwarded } = await through(config, post('{"id":1}', [...JSON_HEADERS, "X-A", "1"], { query: "?a=%7e" }));
  expect(forwarded).toMatchObject({ query: "?a=%7e", headers: [...JSON_HEADERS, "X-A", "1"] });
});

describe("configuration", () => {
  it.each<[string, unknown, RegExp]>([
    ["nothing to look at", { max_bytes: 5 }, /needs at least one of "body", "query" and "headers"/],
    ["a broken schema", { body: { type: "strin" } }, /body\.type: expected one of/],
    ["no schema", { query: [] }, /query: expected a JSON Schema, found an array/],
    [
      "a header in upper case",
      { headers: { properties: { "X-A": true } } },
      /headers\.properties\["X-A"\]: names of headers are written in lower case here/,
    ],
    [
      "a required header in upper case",
      { headers: { required: ["X-A"] } },
      /headers\.required\[0\]: names of headers are written in lower case/,
    ],
    [
      "headers and no others",
      { headers: { additionalProperties: false } },
      /headers\.additionalProperties: clients send headers of their own/,
    ],
    [
      "no query at all",
      { query: false },
      /query: refuses every request; for none with a query: \{ "maxProperties": 0 \}/,
    ],
    ["no headers at all", { headers: false }, /headers: refuses every request/],
    ["no body that could be missing", { query: true, body_required: false }, /body_required: is for "body"/],
    ["no bytes", { body: true, max_bytes: 0 }, /max_bytes: expected an integer 1–67108864/],
    ["an unknown field", { body: true, max_byte: 1 }, /did you mean "max_bytes"/],
  ])("request_validation reports %s as a configuration error", (_what, config, message) => {
    const { issues } = checked(requestValidation.schema, config);
    expect(issues.length).toBe(1);
    expect(issues[0]).toMatch(message);
  });

  it("maxProperties 0 allows no query", async () => {
    const query = { maxProperties: 0 };
    expect((await ask({ query }, { query: "" })).reply).toBe(plainReply);
    expect((await ask({ query }, { query: "?a" })).violations).toEqual(["query : expected at most 0 properties"]);
  });

  it("a schema is shown as it is written", () => {
    const body = { $ref: "#/$defs/node", $defs: { node: { type: "object", enum: [null, 1.5, { a: [true] }] } } };
    expect(requestValidation.schema.show(nodeFrom({ body }))).toMatchObject({ body });
  });

  it(
    "an error is reported where it stands in the text: an unknown keyword at its name, " + "a wrong value at the value",
    () => {
      const issues: { position: unknown }[] = [];
      const { node, positionOf } = parseJson('{"body": {\n "tpye": "string",\n "minLength": -1 } }');
      expect(requestValidation.schema.check(node!, [], { issues, positionOf, sources: {} } as never)).toBe(INVALID);
      expect(issues.map(({ position }) => position)).toEqual([
        { line: 2, column: 2 },
        { line: 3, column: 15 },
      ]);
    },
  );

  it("max_bytes is 1 MiB unless given", () => {
    expect(checked(requestValidation.schema, { body: true }).value).toMatchObject({ maxBytes: 1_048_576 });
  });
});
