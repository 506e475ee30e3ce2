/** `Max-Forwards` of TRACE and OPTIONS (RFC 9110 §7.6.2). */
import { describe, expect, it } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { ask } from "../support/raw_client.ts";
import { backend } from "./harness.ts";

interface Asked {
  readonly method: string;
  readonly path?: string;
  /** The values of Max-Forwards, a line each. */
  readonly forwards: readonly string[];
}

const ROUTES = [
  { name: "all", path: "/x" },
  { name: "few", path: "/few", methods: ["GET", "OPTIONS", "TRACE"] },
  { name: "post", path: "/few", methods: ["POST"] },
];

/**
 * A gateway and its upstream; `send` resolves with the reply, and with the Max-Forwards that reached the upstream,
 * undefined where no request did.
 */
async function sending(protocol: "HTTP/1.1" | "HTTP/2") {
  const upstream = await backend();
  const { port } = await running(oneService(upstream.port, { routes: ROUTES }, { h2c: true }));
  return async ({ method, path = "/a/x", forwards }: Asked) => {
    const { length } = upstream.seen;
    const lines = forwards.flatMap((value) => ["Max-Forwards", value]);
    const reply =
      protocol === "HTTP/1.1"
        ? await ask(port, { method, path, headers: lines })
        : await h2Ask(h2Session(port), {
            method,
            path,
            headers: forwards.length === 0 ? {} : { "max-forwards": forwards.join(", ") },
          });
    const seen = upstream.seen
      .slice(length)
      .map(({ headers }) => headers.filter((_, i) => i % 2 === 1 && headers[i - 1]!.toLowerCase() === "max-forwards"));
    return {
      status: reply.status,
      allow: reply.headers.allow,
      code: /"code":"(\w+)"/.exec(String(reply.body))?.[1],
      seen: seen[0],
    };
  };
}

describe.each(["HTTP/1.1", "HTTP/2"] as const)("Max-Forwards over %s", (protocol) => {
  it(
    "answers an OPTIONS that may not be forwarded itself, " + "with the methods that the routes of the path accept",
    async () => {
      const send = await sending(protocol);
      for (const zero of ["0", "00"]) {
        expect(await send({ method: "OPTIONS", path: "/a/few", forwards: [zero] })).toEqual({
          status: 204,
          allow: "GET, HEAD, OPTIONS, POST",
          code: undefined,
          seen: undefined,
        });
      }
      expect(await send({ method: "OPTIONS", forwards: ["0"] })).toMatchObject({
        status: 204,
        allow: "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY",
        seen: undefined,
      });
    },
  );

  it("refuses a TRACE that may not be forwarded with 405: the gateway reflects no headers", async () => {
    const send = await sending(protocol);
    expect(await send({ method: "TRACE", path: "/a/few", forwards: ["0"] })).toEqual({
      status: 405,
      allow: "GET, HEAD, OPTIONS, POST",
      code: "method_not_allowed",
      seen: undefined,
    });
    expect(await send({ method: "TRACE", forwards: ["0"] })).toMatchObject({
      status: 405,
      code: "method_not_allowed",
      seen: undefined,
    });
  });

  it.each(["OPTIONS", "TRACE"])(
    "forwards %s with one forward less, and without Max-Forwards as it is",
    async (method) => {
      const send = await sending(protocol);
      for (const [stated, left] of [
        ["1", "0"],
        ["10", "9"],
        ["007", "6"],
        ["99999999999999999999", "2147483647"],
      ]) {
        expect(await send({ method, forwards: [stated!] })).toMatchObject({ status: 200, seen: [left] });
      }
      expect(await send({ method, forwards: [] })).toMatchObject({ status: 200, seen: [] });
    },
  );

  it("refuses a TRACE or OPTIONS whose Max-Forwards is not one number", async () => {
    const send = await sending(protocol);
    for (const forwards of [["x"], ["-1"], ["1.5"], ["0x0"], [""], ["1", "2"], ["0", "0"], ["1, 2"]]) {
      for (const method of ["OPTIONS", "TRACE"])
        expect(await send({ method, forwards }), forwards.join()).toMatchObject({
          status: 400,
          code: "bad_request",
          seen: undefined,
        });
    }
  });

  it("forwards Max-Forwards of other methods as it is", async () => {
    const send = await sending(protocol);
    for (const method of ["GET", "POST"])
      for (const stated of ["0", "5", "x"])
        expect(await send({ method, forwards: [stated] })).toMatchObject({ status: 200, seen: [stated] });
  });
});
