import { once } from "node:events";
import { PassThrough, Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { Fault, ignore } from "../../lib/base/errors.ts";
import { limitedBody } from "../../lib/http/limited_body.ts";
import { tapBody } from "../../lib/http/tapped_body.ts";

async function read(body: Readable): Promise<string> {
  let text = "";
  for await (const chunk of body) text += (chunk as Buffer).toString();
  return text;
}

describe("limitedBody", () => {
  it("passes a body of exactly the limit, to its end", async () => {
    const source = new PassThrough();
    source.write("hello ");
    source.end("world");
    expect(await read(limitedBody(source, 11))).toBe("hello world");
  });

  it("fails with body_too_large one byte beyond the limit, and leaves the source alone", async () => {
    const source = new PassThrough();
    source.write("hello ");
    source.write("worlds");
    const failure = await read(limitedBody(source, 11)).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(Fault);
    expect((failure as Fault).code).toBe("body_too_large");
    expect(source.destroyed).toBe(false);
    expect(source.listenerCount("data")).toBe(0);
  });

  it("passes no byte of a chunk that exceeds the limit", async () => {
    const source = Readable.from([Buffer.from("fits"), Buffer.from("does not")]);
    const body = limitedBody(source, 6);
    const seen: string[] = [];
    body.on("data", (chunk: Buffer) => seen.push(chunk.toString()));
    await new Promise((resolve) => body.once("close", resolve));
    expect(seen).toEqual(["fits"]);
  });

  it("reads the source only when it is read itself, and only as much as is read", async () => {
    let given = 0;
    const source = new Readable({
      highWaterMark: 1000,
      read() {
        given++;
        this.push(Buffer.alloc(1000));
      },
    });
    const body = limitedBody(source, 1e9);
    await new Promise((resolve) => setImmediate(resolve));
    expect(given).toBe(0);
    body.once("readable", () => {});
    await once(body, "readable");
    await new Promise((resolve) => setImmediate(resolve));
    expect(given).toBeGreaterThan(0);
    expect(given).toBeLessThan(200);
    body.destroy();
  });

  it.each([
    ["before it is read", "the body was read or destroyed before it was sent"],
    ["while it is read", "the body ended early"],
  ])("fails with a source that is destroyed %s", async (when, message) => {
    const source = new PassThrough();
    const body = limitedBody(source, 10);
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
    expect(error.message).toBe(message);
  });

  it("forwards an error of the source, which does not end the process without an error listener", async () => {
    const source = new PassThrough();
    const body = limitedBody(source, 10);
    body.resume();
    await new Promise((resolve) => setImmediate(resolve));
    source.destroy(new Error("reset"));
    await new Promise((resolve) => body.once("close", resolve));
    expect(body.errored?.message).toBe("reset");
  });
});

describe("tapBody", () => {
  const readers: Record<string, (body: Readable) => Promise<unknown>> = {
    "a listener": (body) =>
      once(
        body.on("data", () => {}),
        "end",
      ),
    "a pipe": (body) => once(body.pipe(new PassThrough()).resume(), "end"),
    "an iterator": (body) => read(body),
    toArray: (body) => body.toArray(),
    "one who asks for text": (body) =>
      once(
        body.setEncoding("base64").on("data", () => {}),
        "end",
      ),
  };

  it.each(Object.entries(readers))("passes each chunk that %s reads", async (_name, reader) => {
    const source = new PassThrough();
    source.write("hello ");
    const seen: string[] = [];
    tapBody(source, (chunk) => void seen.push(chunk.toString()), ignore);
    const ended = reader(source);
    setImmediate(() => source.end("world"));
    await ended;
    expect(seen.join("")).toBe("hello world");
  });

  it("reads nothing itself, and holds nothing back where the reader pauses", async () => {
    const source = new PassThrough({ highWaterMark: 4 });
    const seen: string[] = [];
    tapBody(source, (chunk) => void seen.push(chunk.toString()), ignore);
    expect(source.write("hello")).toBe(false);
    await new Promise((resolve) => setImmediate(resolve));
    expect([seen, source.readableFlowing, source.readableLength]).toEqual([[], null, 5]);
    source.once("data", () => source.pause());
    await once(source, "data");
    source.write("again");
    await new Promise((resolve) => setImmediate(resolve));
    expect(seen).toEqual(["hello"]);
    const ended = once(source.resume(), "end");
    source.end();
    await ended;
    expect(seen).toEqual(["hello", "again"]);
  });

  it("reports what a reader puts back, and reads nothing while nobody else does", async () => {
    const source = new PassThrough();
    const seen: (string | number)[] = [];
    tapBody(
      source,
      (chunk) => void seen.push(chunk.toString()),
      (bytes) => void seen.push(bytes),
    );
    source.write("hello");
    await once(source, "readable");
    source.unshift((source.read() as Buffer).subarray(1));
    source.end("world");
    await new Promise((resolve) => setImmediate(resolve));
    expect(seen).toEqual(["hello", 4]);
    expect(await read(source)).toBe("elloworld");
    expect(seen.slice(2).join("")).toBe("elloworld");
  });
});
