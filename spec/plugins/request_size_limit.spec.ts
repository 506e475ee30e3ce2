import { PassThrough, Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import { requestSizeLimit } from "../../lib/plugins/request_size_limit.ts";
import { atOnce, checked, exercise, instance, madeUpExchange, plainReply, problemOf } from "../support/exercise.ts";

const middleware = instance(requestSizeLimit, { max_payload_size: 10 });

function ask(length: string | null, body: Readable | null = Readable.from([])) {
  const exchange = madeUpExchange({ method: "POST", headers: length === null ? [] : ["content-length", length], body });
  const { returned, forwarded } = exercise(middleware, exchange);
  return { reply: atOnce(returned), forwarded, exchange };
}

it("passes a body whose Content-Length is within the limit unchanged", () => {
  for (const length of ["10", "1"]) {
    const { forwarded, exchange } = ask(length);
    expect(forwarded).toBe(exchange);
  }
});

it("refuses a body whose Content-Length is too large with 413 body_too_large, without reading it", () => {
  const body = new PassThrough();
  for (const length of ["11", "999999999999999"]) {
    const { reply, forwarded } = ask(length, body);
    expect([reply.status, problemOf(reply)["code"], forwarded]).toEqual([413, "body_too_large", null]);
    expect(problemOf(reply)["detail"]).toBe("The request body may have at most 10 bytes here.");
  }
  expect([body.readableFlowing, body.destroyed]).toEqual([null, false]);
});

it("breaks off a body of unknown length at the limit, without destroying its source", async () => {
  const read = async (source: Readable) => {
    let text = "";
    for await (const chunk of ask(null, source).forwarded!.body!) text += String(chunk);
    return text;
  };
  expect(await read(Readable.from([Buffer.from("01234"), Buffer.from("56789")]))).toBe("0123456789");
  const source = new PassThrough();
  source.write("01234");
  source.write("567890");
  await expect(read(source)).rejects.toMatchObject({ code: "body_too_large" } satisfies Partial<Fault>);
  expect(source.destroyed).toBe(false);
});

it("passes requests without a body and WebSockets unchanged", () => {
  const { forwarded, exchange } = ask(null, null);
  expect(forwarded).toBe(exchange);
  const upgrade = madeUpExchange({ upgrade: "websocket" });
  expect(exercise(middleware, upgrade)).toEqual({ returned: plainReply, forwarded: upgrade });
});

it("returns the same promise that the next handler returned", () => {
  const promise = Promise.resolve(plainReply);
  expect(exercise(middleware, madeUpExchange(), () => promise).returned).toBe(promise);
});

describe("configuration", () => {
  it.each<[object, RegExp]>([
    [{}, /^max_payload_size: is required/],
    [{ max_payload_size: 0 }, /^max_payload_size: expected an integer ≥ 1, found 0$/],
    [{ max_payload_size: "1MB" }, /^max_payload_size: expected an integer ≥ 1, found "1MB"$/],
  ])("request_size_limit reports %j as a configuration error", (config, issue) => {
    const { issues } = checked(requestSizeLimit.schema, config);
    expect(issues).toEqual([expect.stringMatching(issue)]);
  });
});
