import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { PassThrough, Readable, type Transform } from "node:stream";
import zlib from "node:zlib";
import { describe, expect, it } from "vitest";
import { headerValue } from "../../lib/http/headers.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { acceptedCodings } from "../../lib/http/content_coding.ts";
import { chosenCoding, compress } from "../../lib/plugins/compress.ts";
import { CODINGS, MAX_SYNC_BYTES, type Coding } from "../../lib/plugins/compressed_body.ts";
import { atOnce, checked, exercise, instance, madeUpExchange } from "../support/exercise.ts";
import { eventually } from "../support/raw_client.ts";

const TEXT = Buffer.from("a line of text that repeats itself\n".repeat(100));
const ACCEPT = ["Accept-Encoding", "gzip"];

const decoder = (coding: string): Transform =>
  coding === "gzip"
    ? zlib.createGunzip()
    : coding === "br"
      ? zlib.createBrotliDecompress()
      : (zlib as unknown as { createZstdDecompress(): Transform }).createZstdDecompress();

function reply(headers: string[] = [], body: Reply["body"] = TEXT, status = 200): Reply {
  return { status, headers: ["Content-Type", "text/plain", ...headers], body };
}

function ask(given: Reply, headers: readonly string[] = ACCEPT, config: unknown = {}, parts: object = {}): Reply {
  return atOnce(exercise(instance(compress, config), madeUpExchange({ headers, ...parts }), () => given).returned);
}

async function decoded({ headers, body }: Reply): Promise<Buffer> {
  const source = Buffer.isBuffer(body) ? Readable.from([body]) : body!;
  return Buffer.concat(await source.pipe(decoder(headerValue(headers, "content-encoding")!)).toArray());
}

/** What it says of encoding, if anything. */
const codingOf = (given: Reply) => headerValue(given.headers, "content-encoding");

describe("the coding for an Accept-Encoding", () => {
  const best = CODINGS[0]!;
  it.each<[string, Coding | null]>([
    ["gzip", "gzip"],
    ["x-gzip", "gzip"],
    ["GZIP", "gzip"],
    ["gzip, deflate, br", "br"],
    ["gzip;q=1.0, br;q=0.5", "gzip"],
    ["br;q=0.8 , gzip; q=0.8", "br"],
    ["gzip;q=0", null],
    ["*", best],
    ["*;q=0.5, br;q=0", best === "br" ? "gzip" : best],
    ["br;q=0, *;q=0", null],
    ["identity", null],
    ["identity, gzip;q=0.5", null],
    ["identity;q=0.5, gzip;q=0.5", "gzip"],
    ["identity;q=0, gzip", "gzip"],
    ["deflate, compress", null],
    ["", null],
    [",,;q=1,", null],
    ["gzip;q=x", null],
    ["gzip;q=1.001", null],
    ["gzip;q=2", null],
    ["gzip;level=9;q=0.001", "gzip"],
    ["gzipped", null],
  ])("Accept-Encoding %j leads to the coding %s", (accepted, expected) => {
    expect(chosenCoding(acceptedCodings(["Accept-Encoding", accepted]))).toBe(expected);
  });

  it("the coding for an Accept-Encoding prefers zstd where Node has it, then Brotli, then gzip", () => {
    expect(CODINGS).toEqual("createZstdCompress" in zlib ? ["zstd", "br", "gzip"] : ["br", "gzip"]);
  });

  it("the coding for an Accept-Encoding treats several lines of Accept-Encoding as one", () => {
    expect(codingOf(ask(reply(), ["Accept-Encoding", "gzip;q=0.5", "accept-encoding", "br"]))).toBe("br");
  });

  it(
    "the coding for an Accept-Encoding has a bounded memory for values made up by hostile " +
      "clients, and answers them all",
    () => {
      const middleware = instance(compress, {});
      for (let i = 0; i < 300; i++) {
        const { returned } = exercise(middleware, madeUpExchange({ headers: ["Accept-Encoding", `x${i}, gzip`] }), () =>
          reply(),
        );
        expect(codingOf(atOnce(returned))).toBe("gzip");
      }
    },
  );
});

describe("an encoded reply", () => {
  it.each(CODINGS)("an encoded reply decodes to the original, with its Content-Encoding: %s", async (coding) => {
    for (const body of [TEXT, Buffer.alloc(MAX_SYNC_BYTES + 1, "ab"), Readable.from([TEXT])]) {
      const before = Buffer.isBuffer(body) ? body : TEXT;
      const made = ask(reply([], body), ["Accept-Encoding", coding]);
      expect(codingOf(made)).toBe(coding);
      expect(headerValue(made.headers, "vary")).toBe("Accept-Encoding");
      expect((await decoded(made)).equals(before)).toBe(true);
    }
  });

  it("an encoded reply has no Content-Length and no Accept-Ranges, and a weak ETag", () => {
    const stream = new PassThrough();
    const headers = [
      "Content-Length",
      "5000",
      "Accept-Ranges",
      "bytes",
      "ETag",
      '"x"',
      "Vary",
      "Origin",
      "Content-Encoding",
      "identity",
      "X",
      "1",
    ];
    const made = ask(reply(headers, stream));
    expect(made.headers).toEqual([
      "Content-Type",
      "text/plain",
      "ETag",
      'W/"x"',
      "Vary",
      "Origin",
      "X",
      "1",
      "Vary",
      "Accept-Encoding",
      "Content-Encoding",
      "gzip",
    ]);
    (made.body as Readable).destroy();
  });

  it("an encoded reply has its length if the whole body was there", () => {
    const made = ask(reply(["content-length", String(TEXT.length), "ETag", 'W/"x"']));
    expect(headerValue(made.headers, "content-length")).toBe(String((made.body as Buffer).length));
    expect(made.headers.filter((each) => each.toLowerCase() === "content-length").length).toBe(1);
    expect(headerValue(made.headers, "etag")).toBe('W/"x"');
  });

  it("an encoded reply keeps status and trailers, and does not change the original reply", () => {
    const trailers = () => ["T", "1"];
    const given = { ...reply([], TEXT, 404), trailers };
    const before = { ...given, headers: [...given.headers] };
    expect(ask(given)).toMatchObject({ status: 404, trailers });
    expect(given).toEqual(before);
  });

  it("an encoded reply gives way to the original reply if it would be longer", () => {
    const noise = randomBytes(2000);
    const made = ask(reply([], noise));
    expect([codingOf(made), headerValue(made.headers, "vary")]).toEqual([undefined, "Accept-Encoding"]);
    expect(made.body).toBe(noise);
  });

  it("an encoded reply works for a reply that comes as a promise", async () => {
    const { returned } = exercise(instance(compress, {}), madeUpExchange({ headers: ACCEPT }), () =>
      Promise.resolve(reply()),
    );
    expect(codingOf(await returned)).toBe("gzip");
  });
});

describe("a reply without a body", () => {
  it("a reply to HEAD has the headers of the reply to GET", () => {
    const headers = ["Content-Length", "5000", "Accept-Ranges", "bytes", "ETag", '"x"'];
    const made = ask(reply(headers, null), ACCEPT, {}, { method: "HEAD" });
    const whole = ask(reply(headers, new PassThrough()));
    expect(made).toEqual({ ...whole, body: null });
    (whole.body as Readable).destroy();
    expect(codingOf(made)).toBe("gzip");
    expect(ask(reply(), ACCEPT, {}, { method: "HEAD" }).headers).toEqual(ask(reply()).headers);
  });

  it(
    "a reply without a body has a weak ETag with status 304 for a client with the encoded reply, " +
      "so that caches keep the two apart",
    () => {
      const made = ask(reply(["ETag", '"x"'], null, 304), [...ACCEPT, "If-None-Match", '"y", W/"x"']);
      expect(made).toEqual(reply(["ETag", 'W/"x"', "Vary", "Accept-Encoding"], null, 304));
    },
  );
});

describe("a 304", () => {
  it.each([
    ["of what was encoded", 'W/"x"', 'W/"x"'],
    ["of what was not encoded", '"x"', '"x"'],
  ])("has no Content-Length of the plain reply: %s", (_what, asked, etag) => {
    const made = ask(reply(["ETag", '"x"', "Content-Length", "5000"], null, 304), [...ACCEPT, "If-None-Match", asked]);
    expect(made).toEqual(reply(["ETag", etag, "Vary", "Accept-Encoding"], null, 304));
    const plain = reply(["ETag", '"x"', "Content-Length", "5000"], null, 304);
    expect(ask(plain, []).headers).toEqual([...plain.headers, "Vary", "Accept-Encoding"]);
  });
});

describe("replies that stay as they are, without Vary", () => {
  it.each<[string, Reply, (readonly string[])?, object?]>([
    ["an encoded reply", reply(["Content-Encoding", "br"])],
    ["no-transform in the reply", reply(["Cache-Control", "public, no-transform"])],
    ["no-transform in the request", reply(), [...ACCEPT, "Cache-Control", "no-transform"]],
    ["a part", reply(["Content-Range", "bytes 0-1/2"], TEXT, 206)],
    ["206 alone", reply([], TEXT, 206)],
    ["Content-Range alone", reply(["Content-Range", "bytes */2"], TEXT, 416)],
    ["204", reply([], null, 204)],
    ["205", reply([], null, 205)],
    ["a digest of the content", reply(["Content-Digest", "sha-256=:x:"])],
    ["a digest of the representation", reply(["Repr-Digest", "sha-256=:x:"])],
    ["no type", { status: 200, headers: [], body: TEXT }],
    ["another type", { status: 200, headers: ["Content-Type", "image/png"], body: TEXT }],
    ["a short buffer", reply([], TEXT.subarray(0, 1023))],
    ["a short stream of known length", reply(["Content-Length", "1023"], new PassThrough())],
    ["an upgrade that was refused", reply(), ACCEPT, { upgrade: "websocket" }],
    [
      "an upgrade that was taken",
      { status: 101, headers: ["Content-Type", "text/plain"], body: null, tunnel: {} as never },
      ACCEPT,
      { upgrade: "websocket" },
    ],
  ])("replies that stay as they are pass unchanged: %s", (_what, given, headers = ACCEPT, parts = {}) => {
    expect(ask(given, headers, {}, parts)).toBe(given);
  });
});

describe("replies that get only Vary", () => {
  it.each<[string, Reply, (readonly string[])?, object?]>([
    ["no Accept-Encoding", reply(["ETag", '"x"']), []],
    ["nothing that can be accepted", reply(), ["Accept-Encoding", "deflate"]],
    ["HEAD of unknown length", reply(["ETag", '"x"'], null), ACCEPT, { method: "HEAD" }],
    ["HEAD where nothing can be accepted", reply(["Content-Length", "5000"], null), [], { method: "HEAD" }],
    ["an empty body", reply([], null)],
    ["304 for what was not encoded", reply(["ETag", '"x"'], null, 304), [...ACCEPT, "If-None-Match", '"x"']],
    ["304", reply(["ETag", '"x"'], null, 304)],
    ["304 without a type", { status: 304, headers: ["ETag", '"x"'], body: null }],
  ])("replies without a coding of ours get Vary: %s", (_what, given, headers = ACCEPT, parts = {}) => {
    expect(ask(given, headers, {}, parts)).toEqual({
      ...given,
      headers: [...given.headers, "Vary", "Accept-Encoding"],
    });
  });

  it.each(["*", "Origin, accept-encoding"])(
    "replies without a coding of ours keep their Vary if it covers Accept-Encoding already: %s",
    (vary) => {
      expect(ask(reply(["Vary", vary]), []).headers).toEqual(["Content-Type", "text/plain", "Vary", vary]);
    },
  );

  it("a body that has broken off already is passed on", () => {
    const body = new PassThrough().on("error", () => {});
    body.destroy(new Error("gone"));
    const made = ask(reply([], body));
    expect(made.body).toBe(body);
    expect(codingOf(made)).toBeUndefined();
  });
});

describe("types and min_bytes", () => {
  const coding = (type: string, config: unknown = {}) =>
    codingOf(ask({ status: 200, headers: ["Content-Type", type], body: TEXT }, ACCEPT, config));

  it.each([
    "text/html",
    "Text/HTML; charset=utf-8",
    "text/event-stream",
    "application/json",
    "application/ld+json",
    "application/problem+json;x=y",
    "image/svg+xml",
    "application/wasm",
  ])("the type %s is encoded", (type) => {
    expect(coding(type)).toBe("gzip");
  });

  it.each([
    "image/png",
    "application/octet-stream",
    "application/grpc",
    "video/mp4",
    "application/zip",
    "textual/html",
    "text",
    "",
    "application/jsonx",
    "+json",
  ])("the type %j is not encoded", (type) => {
    expect(coding(type)).toBeUndefined();
  });

  it("a configured list replaces the default", () => {
    const config = { types: ["application/x-own", "font/*", "+own"] };
    expect(["application/x-own", "font/ttf", "a/b+own", "text/html"].map((type) => coding(type, config))).toEqual([
      "gzip",
      "gzip",
      "gzip",
      undefined,
    ]);
  });

  it("replies of min_bytes or more, and of unknown length, are encoded", () => {
    expect(codingOf(ask(reply([], TEXT.subarray(0, 1024))))).toBe("gzip");
    expect(codingOf(ask(reply([], TEXT.subarray(0, 100)), ACCEPT, { min_bytes: 100 }))).toBe("gzip");
    const stream = new PassThrough();
    const made = ask(reply([], stream));
    expect(codingOf(made)).toBe("gzip");
    (made.body as Readable).destroy();
  });

  it.each<[string, unknown, RegExp]>([
    ["a type in upper case", { types: ["Text/html"] }, /types\[0\]: expected a media type in lower case/],
    ["everything", { types: ["*/*"] }, /expected a media type/],
    ["no types", { types: [] }, /types: expected at least 1 item/],
    ["fewer than no bytes", { min_bytes: -1 }, /min_bytes: expected an integer 0–/],
    ["an unknown field", { min_byte: 1 }, /did you mean "min_bytes"/],
  ])("compress reports %s as a configuration error", (_what, config, message) => {
    const { issues } = checked(compress.schema, config);
    expect(issues.length).toBe(1);
    expect(issues[0]).toMatch(message);
  });
});

describe("a stream", () => {
  it.each(CODINGS)("a stream lets each event be read before the next one comes: %s", async (coding) => {
    const source = new PassThrough();
    const made = ask({ status: 200, headers: ["Content-Type", "text/event-stream"], body: source }, [
      "Accept-Encoding",
      coding,
    ]);
    let got = "";
    const plain = (made.body as Readable)
      .pipe(decoder(coding))
      .on("data", (chunk: Buffer) => (got += chunk.toString()));
    let sent = "";
    for (let i = 0; i < 5; i++) {
      // Longer than an encoder buffers, too: back-pressure must not swallow the flush.
      const event = `data: ${i} ${"x".repeat(i === 3 ? 100_000 : 3)}\n\n`;
      source.write(event);
      sent += event;
      await eventually(() => got === sent, `event ${i}`);
    }
    source.end();
    await once(plain, "end");
    expect(got).toBe(sent);
  });

  it("a stream is read no faster than its reader reads", async () => {
    let made = 0;
    const source = new Readable({
      read() {
        // Incompressible, so that what is read has to go somewhere.
        made++;
        this.push(randomBytes(16_384));
      },
    });
    const body = ask(reply([], source)).body as Readable;
    let settled = -1;
    await eventually(() => {
      const same = settled === made && made > 0;
      settled = made;
      return same;
    }, "a pause");
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
    expect(made).toBeLessThan(30);
    body.destroy();
    await eventually(() => source.destroyed, "the connection closing");
  });

  it("a stream destroys its source when its reader stops", async () => {
    const source = new PassThrough();
    const body = ask(reply([], source)).body as Readable;
    source.write("x".repeat(100_000));
    body.destroy();
    await eventually(() => source.destroyed, "the source's end");
  });

  it("a stream fails with the error of its source", async () => {
    const source = new PassThrough();
    const body = ask(reply([], source)).body as Readable;
    source.write(TEXT);
    const ends: string[] = [];
    body.on("end", () => ends.push("end")).on("data", () => {});
    const why = new Error("the upstream went away");
    source.destroy(why);
    await eventually(() => body.destroyed, "the connection closing");
    expect([body.errored, ends]).toEqual([why, []]);
  });

  it("a stream fails when its source closes without an end, even before anyone listens", async () => {
    const source = new PassThrough();
    const body = ask(reply([], source)).body as Readable;
    source.destroy();
    await eventually(() => body.destroyed, "the connection closing");
    expect(body.errored).toMatchObject({ code: "ERR_STREAM_PREMATURE_CLOSE" });
  });
});
