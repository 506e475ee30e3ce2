import { once } from "node:events";
import { PassThrough, Readable } from "node:stream";
import { expect, test } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import { LimitedBody } from "../../lib/http/limited_body.ts";

async function read(body: Readable): Promise<string> {
  let text = "";
  for await (const chunk of body) text += (chunk as Buffer).toString();
  return text;
}

test("a body of exactly the bound passes, and ends as it ended", async () => {
  const source = new PassThrough();
  source.write("hello ");
  source.end("world");
  expect(await read(new LimitedBody(source, 11))).toBe("hello world");
});

test("one byte more breaks it off with body_too_large, and the source stays", async () => {
  const source = new PassThrough();
  source.write("hello ");
  source.write("worlds");
  const failure = await read(new LimitedBody(source, 11)).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(Fault);
  expect((failure as Fault).code).toBe("body_too_large");
  expect(source.destroyed).toBe(false);
  expect(source.listenerCount("data")).toBe(0);
});

test("a chunk that passes the bound is not given in part", async () => {
  const source = Readable.from([Buffer.from("fits"), Buffer.from("does not")]);
  const body = new LimitedBody(source, 6);
  const seen: string[] = [];
  body.on("data", (chunk: Buffer) => seen.push(chunk.toString()));
  await new Promise((resolve) => body.once("close", resolve));
  expect(seen).toEqual(["fits"]);
});

test("nothing is read before it is read, and no more than is read", async () => {
  let given = 0;
  const source = new Readable({
    highWaterMark: 1000,
    read() {
      given++;
      this.push(Buffer.alloc(1000));
    },
  });
  const body = new LimitedBody(source, 1e9);
  await new Promise((resolve) => setImmediate(resolve));
  expect(given).toBe(0);
  body.once("readable", () => {});
  await once(body, "readable");
  await new Promise((resolve) => setImmediate(resolve));
  expect(given).toBeGreaterThan(0);
  expect(given).toBeLessThan(200);
  body.destroy();
});

test.each(["before it is read", "while it is read"])("a source that goes away %s breaks it off", async (when) => {
  const source = new PassThrough();
  const body = new LimitedBody(source, 10);
  if (when === "while it is read") {
    source.write("part");
    body.resume();
    await once(body, "data");
    source.destroy();
  } else {
    source.destroy();
    body.resume();
  }
  const [error] = (await once(body, "error")) as [Error];
  expect(error.message).toBe("the body broke off");
});

test("its error passes on, and harms nobody who does not listen", async () => {
  const source = new PassThrough();
  const body = new LimitedBody(source, 10);
  body.resume();
  await new Promise((resolve) => setImmediate(resolve));
  source.destroy(new Error("reset"));
  await new Promise((resolve) => body.once("close", resolve));
  expect(body.errored?.message).toBe("reset");
});
