import { PassThrough, Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { headerValue, headerValues } from "../../../lib/http/headers.ts";
import { pairs } from "../../../lib/server/reply_headers.ts";
import { problem } from "../../../lib/http/reply.ts";
import { turn } from "../../support/addresses.ts";
import { random } from "../../support/random.ts";
import { atOnce, problemOf } from "../../support/exercise.ts";
import { aCall, anExchange, cached, flat, FRESH, ok, read, type Got } from "./cached.ts";
import type { Headers } from "./response_cache.cases.ts";

const BODY = "0123456789";
const DAY_BEFORE = "Wed, 31 Dec 2025 00:00:00 GMT";

/** What a client gets that asks with these headers for a stored reply of 10 bytes with these headers. */
async function ranged(ask: Headers, says: Headers = {}, method = "GET"): Promise<Got & { readonly asked: number }> {
  const origin = cached(() => ok({ ...FRESH, "Content-Type": "text/plain", "Content-Length": "10", ...says }, BODY));
  await origin.get();
  const got = await origin.get({ headers: flat(ask), method });
  return { ...got, asked: origin.asked.length };
}

/** The parts of a multipart/byteranges body. */
function partsOf({ headers, body }: Got): readonly { readonly headers: string; readonly body: string }[] {
  const boundary = /^multipart\/byteranges; boundary=([0-9a-f]{32})$/.exec(headerValue(headers, "content-type")!)![1]!;
  const pieces = body.split(`\r\n--${boundary}`);
  expect([pieces[0], pieces.at(-1)]).toEqual(["", "--\r\n"]);
  return pieces.slice(1, -1).map((piece) => {
    const at = piece.indexOf("\r\n\r\n");
    return { headers: piece.slice(2, at), body: piece.slice(at + 4) };
  });
}

describe("a range of a stored reply", () => {
  it.each([
    ["bytes=0-0", "0", "bytes 0-0/10"],
    ["bytes=2-4", "234", "bytes 2-4/10"],
    ["bytes=7-", "789", "bytes 7-9/10"],
    ["bytes=7-99", "789", "bytes 7-9/10"],
    ["bytes=-3", "789", "bytes 7-9/10"],
    ["bytes=-99", BODY, "bytes 0-9/10"],
    ["bytes=0-", BODY, "bytes 0-9/10"],
    ["BYTES=2-4", "234", "bytes 2-4/10"],
    ["bytes= ,2-4,", "234", "bytes 2-4/10"],
    ["bytes=2-4, 10-, 99-100", "234", "bytes 2-4/10"],
    ["bytes=9-99999999999999999999", "9", "bytes 9-9/10"],
  ])("%s is answered with 206 and these bytes alone", async (range, body, contentRange) => {
    const got = await ranged({ Range: range });
    expect(got).toMatchObject({ status: 206, body, asked: 1, cacheStatus: expect.stringContaining("; hit; ttl=60") });
    expect(headerValues(got.headers, "content-range")).toEqual([contentRange]);
    expect(headerValues(got.headers, "content-length")).toEqual([String(body.length)]);
    expect(headerValue(got.headers, "content-type")).toBe("text/plain");
  });

  it.each([
    ...[
      "bytes=",
      "bytes=,",
      "bytes=-",
      "bytes=a-b",
      "bytes=1",
      "bytes=4-2",
      "bytes=1-2-3",
      "bytes=1 - 2",
      "bytes=0x1-2",
      "bytes=+1-2",
      "bytes=1.5-2",
      "bytes=1-2, x",
      "bytes=--1",
      "bytes=99-, 4-2",
    ],
    ...["bytes=0-9, 0-0", "bytes=0-, 0-, 0-", "bytes=0-5, 3-9, -1"],
    `bytes=${Array.from({ length: 17 }, () => "99-").join()}`,
  ])("%s is ignored: the client gets the whole reply", async (range) => {
    const got = await ranged({ Range: range });
    expect(got).toMatchObject({ status: 200, body: BODY, asked: 1 });
    expect(headerValue(got.headers, "content-range")).toBeUndefined();
  });

  it.each(["bytes=10-", "bytes=10-20", "bytes=99-, 10-11", "bytes=-0", "bytes=99999999999999999999-"])(
    "%s is refused with 416 and the length, as it begins behind the end",
    async (range) => {
      const origin = cached(() => ok(FRESH, BODY));
      await origin.get();
      const exchange = anExchange({ headers: ["Range", range] });
      const reply = atOnce(origin.handle(exchange));
      expect(problemOf(reply)).toMatchObject({
        status: 416,
        code: "range_not_satisfiable",
        detail: expect.stringContaining("10 bytes"),
      });
      expect(headerValue(reply.headers, "content-range")).toBe("bytes */10");
      expect(headerValue(reply.headers, "cache-status")).toContain("; hit;");
      expect(exchange.call.notes).toMatchObject({ code: "range_not_satisfiable", cache: "hit" });
    },
  );

  it("several ranges are answered as multipart/byteranges, in the order of the request", async () => {
    const got = await ranged({ Range: "bytes=7-, 0-1 ,3-3" });
    expect(got).toMatchObject({ status: 206, asked: 1 });
    expect(partsOf(got)).toEqual([
      { headers: "Content-Type: text/plain\r\nContent-Range: bytes 7-9/10", body: "789" },
      { headers: "Content-Type: text/plain\r\nContent-Range: bytes 0-1/10", body: "01" },
      { headers: "Content-Type: text/plain\r\nContent-Range: bytes 3-3/10", body: "3" },
    ]);
    expect(headerValues(got.headers, "content-length")).toEqual([String(got.body.length)]);
    expect(headerValue(got.headers, "content-range")).toBeUndefined();
  });

  it("any Range of up to three ranges gets the bytes that it names, in its order", async () => {
    const from = random(11);
    const part = () => {
      const [first, last] = [from.int(0, 13), from.int(0, 13)];
      return from.pick([`${first}-`, `-${last}`, `${Math.min(first, last)}-${Math.max(first, last)}`]);
    };
    for (let i = 0; i < 300; i++) {
      const wanted = Array.from({ length: from.int(1, 3) }, part);
      const texts = wanted.map((range) => {
        const [first, last] = range.split("-");
        return [...BODY]
          .filter((_each, at) =>
            first === ""
              ? at >= BODY.length - Number(last)
              : at >= Number(first) && (last === "" || at <= Number(last)),
          )
          .join("");
      });
      const inside = texts.filter((text) => text !== "");
      const got = await ranged({ Range: `bytes=${wanted.join()}` });
      const parts =
        got.status === 206 ? (inside.length === 1 ? [got.body] : partsOf(got).map(({ body }) => body)) : null;
      const expected = inside.join("").length > 10 ? [200, null] : inside.length === 0 ? [416, null] : [206, inside];
      expect([got.status, parts], wanted.join()).toEqual(expected);
    }
  });

  it("several ranges have no Content-Type each if the stored reply has none", async () => {
    const origin = cached(() => ok(FRESH, BODY));
    await origin.get();
    expect(partsOf(await origin.get({ headers: ["Range", "bytes=0-0,2-2"] }))).toEqual([
      { headers: "Content-Range: bytes 0-0/10", body: "0" },
      { headers: "Content-Range: bytes 2-2/10", body: "2" },
    ]);
  });

  it("ranges have the stored headers and an Age, except for headers about the whole content", async () => {
    const says = {
      ETag: '"1"',
      Vary: "A",
      "X-A": "1",
      "Content-Digest": "sha-256=:AA==:",
      "Content-MD5": "AA==",
      "Repr-Digest": "sha-256=:AA==:",
      "Content-Encoding": "gzip",
    };
    for (const range of ["bytes=0-1", "bytes=0-1,4-5"]) {
      const { headers } = await ranged({ Range: range }, says);
      const names = Object.fromEntries(pairs(headers).map(([name, value]) => [name.toLowerCase(), value]));
      expect(names).toMatchObject({
        etag: '"1"',
        vary: "A",
        "x-a": "1",
        age: "0",
        "cache-control": "max-age=60",
        "repr-digest": "sha-256=:AA==:",
        "content-encoding": "gzip",
        date: expect.any(String),
      });
      expect([names["content-digest"], names["content-md5"]]).toEqual([undefined, undefined]);
    }
  });

  it("ranges apply to a stored 200 with a body only", async () => {
    for (const [status, body] of [
      [404, BODY],
      [200, ""],
      [204, null],
    ] as const) {
      const origin = cached(() => ({ status, headers: flat(FRESH), body: body === null ? null : Buffer.from(body) }));
      await origin.get();
      expect(await origin.get({ headers: ["Range", "bytes=0-1"] })).toMatchObject({ status, body: body ?? "" });
      expect(origin.asked.length).toBe(1);
    }
  });

  it("ranges are ignored with HEAD", async () => {
    const got = await ranged({ Range: "bytes=0-1" }, {}, "HEAD");
    expect(got).toMatchObject({ status: 200, body: "", asked: 1 });
    expect(headerValue(got.headers, "content-length")).toBe("10");
  });

  it("ranges come after If-None-Match and If-Modified-Since", async () => {
    const says = { ETag: '"1"', "Last-Modified": DAY_BEFORE };
    expect(await ranged({ Range: "bytes=99-", "If-None-Match": '"1"' }, says)).toMatchObject({ status: 304, asked: 1 });
    expect(await ranged({ Range: "bytes=0-1", "If-None-Match": '"2"' }, says)).toMatchObject({ status: 206, asked: 1 });
    expect(await ranged({ Range: "bytes=0-1", "If-Modified-Since": DAY_BEFORE }, says)).toMatchObject({
      status: 304,
      asked: 1,
    });
  });

  it.each<[string, Headers, number]>([
    ['"1"', { ETag: '"1"' }, 206],
    ['"2"', { ETag: '"1"' }, 200],
    ['W/"1"', { ETag: 'W/"1"' }, 200],
    ['"1"', { ETag: 'W/"1"' }, 200],
    ['"1"', {}, 200],
    [DAY_BEFORE, { "Last-Modified": DAY_BEFORE }, 206],
    [DAY_BEFORE, { "Last-Modified": DAY_BEFORE, ETag: '"1"' }, 206],
    [DAY_BEFORE, {}, 200],
    ["Tue, 30 Dec 2025 00:00:00 GMT", { "Last-Modified": DAY_BEFORE }, 200],
    ["Thu, 01 Jan 2026 00:00:00 GMT", { "Last-Modified": DAY_BEFORE }, 200],
    ["Wed, 31 Dec 2025 23:59:01 GMT", { "Last-Modified": "Wed, 31 Dec 2025 23:59:01 GMT" }, 200],
    ["Wed, 31 Dec 2025 23:59:00 GMT", { "Last-Modified": "Wed, 31 Dec 2025 23:59:00 GMT" }, 206],
    ["now", { "Last-Modified": "now" }, 200],
    ['"1', { ETag: '"1"' }, 200],
    ["", { ETag: '"1"' }, 200],
  ])("If-Range: %s with a stored reply with %j gets %d", async (ifRange, says, status) => {
    expect(await ranged({ Range: "bytes=99-", "If-Range": ifRange }, says)).toMatchObject({
      status: status === 206 ? 416 : 200,
      asked: 1,
    });
    expect(await ranged({ Range: "bytes=2-4", "If-Range": ifRange }, says)).toMatchObject({
      status,
      body: status === 206 ? "234" : BODY,
      asked: 1,
    });
  });

  it("an If-Range without Range is ignored", async () => {
    expect(await ranged({ "If-Range": '"1"' }, { ETag: '"1"' })).toMatchObject({ status: 200, body: BODY, asked: 1 });
  });
});

describe("a request for a range that the store cannot answer", () => {
  it("is forwarded as it is, does not wait for other requests, and its reply is not stored", async () => {
    for (const status of [206, 200, 416]) {
      const opened: PassThrough[] = [];
      const origin = cached(({ headers }) => {
        if (headerValue(headers, "range") !== undefined)
          return {
            status,
            headers: ["Cache-Control", "max-age=60", "Content-Range", "bytes 0-1/10"],
            body: Buffer.from("01"),
          };
        opened.push(new PassThrough());
        return ok(FRESH, opened.at(-1)!);
      });
      const whole = origin.get();
      const part = await origin.get({ headers: ["Range", "bytes=0-1", "If-Range", '"1"'] });
      expect(part).toMatchObject({ status, cacheStatus: expect.stringContaining("fwd=uri-miss; key=") });
      expect(headerValue(origin.asked[1]!.headers, "if-range")).toBe('"1"');
      opened[0]!.end(BODY);
      expect((await whole).body).toBe(BODY);
      expect((await origin.get()).body).toBe(BODY);
      expect(origin.asked.length).toBe(2);
    }
  });

  it("is forwarded with several Range headers that do not all count bytes", async () => {
    expect(await ranged({ Range: ["lines=1-2", "bytes=0-1"] })).toMatchObject({
      asked: 2,
      cacheStatus: "edge-gateway; fwd=bypass",
    });
  });

  it("gets 504 with only-if-cached", async () => {
    const origin = cached(() => ok(FRESH, BODY));
    expect(await origin.get({ headers: ["Range", "bytes=0-1", "Cache-Control", "only-if-cached"] })).toMatchObject({
      status: 504,
    });
    await origin.get();
    expect(await origin.get({ headers: ["Range", "bytes=0-1", "Cache-Control", "only-if-cached"] })).toMatchObject({
      status: 206,
      body: "01",
    });
  });
});

describe("a range of a stale reply", () => {
  it("is served where stale replies may be, and the renewal in the background asks for the whole", async () => {
    const origin = cached(() =>
      ok({ "Cache-Control": "max-age=10, stale-while-revalidate=60" }, Readable.from([Buffer.from(BODY)])),
    );
    await origin.get();
    origin.clock.advance(20_000);
    const call = aCall();
    const got = await read(
      await origin.handle(anExchange({ call, headers: ["Range", "bytes=99-", "If-Range", '"1"'] })),
    );
    expect(got).toMatchObject({ status: 200, body: BODY });
    await turn();
    expect(
      origin.asked.map(({ headers }) => [headerValue(headers, "range"), headerValue(headers, "if-range")]),
    ).toEqual([
      [undefined, undefined],
      [undefined, undefined],
    ]);
    origin.clock.advance(20_000);
    const none = anExchange({ call: aCall("2"), headers: ["Range", "bytes=99-"] });
    expect((await origin.handle(none)).status).toBe(416);
    await turn();
    expect(await origin.get({ headers: ["Range", "bytes=0-1"] })).toMatchObject({
      status: 206,
      body: "01",
      cacheStatus: expect.stringContaining("hit; ttl=10"),
    });
    expect(origin.asked.length).toBe(3);
  });

  it("is validated, and served from the store after a 304, which makes the stored reply fresh again", async () => {
    const says = { "Cache-Control": "max-age=10", ETag: '"1"' };
    const origin = cached((_exchange, nth) =>
      nth === 1 ? ok(says, BODY) : { status: 304, headers: flat(says), body: null },
    );
    await origin.get();
    origin.clock.advance(20_000);
    const part = await origin.get({ headers: ["Range", "bytes=2-4", "If-Range", '"1"'] });
    expect(part).toMatchObject({
      status: 206,
      body: "234",
      cacheStatus: expect.stringContaining("fwd=stale; fwd-status=304; stored"),
    });
    expect(headerValue(origin.asked[1]!.headers, "if-none-match")).toBe('"1"');
    expect(await origin.get()).toMatchObject({ status: 200, body: BODY, cacheStatus: expect.stringContaining("hit") });
    expect(origin.asked.length).toBe(2);
  });

  it(
    "is the upstream's where the reply has changed: a part is not stored, " + "and a later request gets the whole",
    async () => {
      const says = (tag: string) => ({ "Cache-Control": "max-age=10", ETag: tag });
      const origin = cached(({ headers }, nth) =>
        nth === 1
          ? ok(says('"1"'), BODY)
          : headerValue(headers, "range") === undefined
            ? ok(says('"2"'), "new")
            : { ...ok({ ...says('"2"'), "Content-Range": "bytes 0-0/3" }, "n"), status: 206 },
      );
      await origin.get();
      origin.clock.advance(20_000);
      expect(await origin.get({ headers: ["Range", "bytes=0-0"] })).toMatchObject({ status: 206, body: "n" });
      expect(headerValue(origin.asked[1]!.headers, "range")).toBe("bytes=0-0");
      expect(await origin.get()).toMatchObject({ status: 200, body: "new" });
    },
  );

  it("is served in place of an error where the stored reply allows it", async () => {
    const origin = cached(({ call }, nth) =>
      nth === 1
        ? ok({ "Cache-Control": "max-age=1, stale-if-error=60" }, BODY)
        : problem(call, "upstream_connect_failed"),
    );
    await origin.get();
    origin.clock.advance(5_000);
    const call = aCall();
    const got = await read(await origin.handle(anExchange({ call, headers: ["Range", "bytes=2-4"] })));
    expect(got).toMatchObject({ status: 206, body: "234", cacheStatus: expect.stringContaining("stale-if-error") });
    expect(call.notes.code).toBe(null);
  });

  it("neither waits for another request nor lets others wait for it", async () => {
    const opened: PassThrough[] = [];
    const origin = cached((_exchange, nth) => {
      if (nth === 1) return ok({ "Cache-Control": "max-age=10" }, BODY);
      opened.push(new PassThrough());
      return { ...ok({ "Cache-Control": "max-age=10" }, opened.at(-1)!), status: nth === 2 ? 206 : 200 };
    });
    await origin.get();
    origin.clock.advance(20_000);
    const part = origin.get({ headers: ["Range", "bytes=0-0"] });
    const whole = origin.get();
    const other = origin.get({ headers: ["Range", "bytes=0-0"] });
    await turn();
    expect(origin.asked.length).toBe(4);
    for (const each of opened) each.end("x");
    expect((await Promise.all([part, whole, other])).map(({ status }) => status)).toEqual([206, 200, 200]);
  });
});

describe("the memory of a range", () => {
  it("counts as the whole body until a slow client has read it", async () => {
    for (const range of ["bytes=0-0", "bytes=0-0,2-2"]) {
      const origin = cached(() => ({ ...ok(FRESH), body: Buffer.alloc(40_000) }), {
        max_bytes: 70_000,
        max_object_bytes: 50_000,
      });
      await origin.get({ path: "/1" });
      const slow = aCall("slow");
      await origin.handle(anExchange({ path: "/1", call: slow, headers: ["Range", range] }));
      await origin.get({ path: "/2" });
      expect((await origin.get({ path: "/1" })).cacheStatus).toContain("hit");
      slow.close();
      await origin.get({ path: "/3" });
      expect((await origin.get({ path: "/3" })).cacheStatus).toContain("hit");
    }
  });
});
