import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { Call, Exchange } from "../../lib/http/exchange.ts";
import { madeUpExchange } from "../support/exercise.ts";

const call = () =>
  new Call({ id: "id-1", remoteAddress: "192.0.2.1", trustedRemote: true, startedAt: 5, inform: () => {} });

describe("an exchange", () => {
  it("an exchange keeps its own parts when with() copies it, and the copy shares all other parts", () => {
    const body = Readable.from([]);
    const exchange = madeUpExchange({ body, params: { id: "7" } });
    const before = { ...exchange };
    const copy = exchange.with({ identity: "alice", headers: ["A", "1"] });
    expect({ ...exchange }).toEqual(before);
    expect(copy).toBeInstanceOf(Exchange);
    expect({ ...copy }).toEqual({ ...before, identity: "alice", headers: ["A", "1"] });
    expect(copy.body).toBe(body);
  });

  it("an exchange keeps every part in a copy", () => {
    const exchange = madeUpExchange();
    for (const key of Object.keys(exchange) as (keyof Exchange)[]) {
      if (key === "call") continue;
      const mark = key === "headers" ? ["new", key] : `new ${key}`;
      expect(exchange.with({ [key]: mark })[key]).toBe(mark);
    }
  });

  it("an exchange shares one call with its copies: its id, its notes, which have the identity, its end", () => {
    const exchange = madeUpExchange({ call: call() });
    const copy = exchange.with({ identity: "alice" });
    expect(exchange.call.notes.identity).toBe("alice");
    expect(copy.requestId).toBe("id-1");
    expect(copy.signal).toBe(exchange.signal);
  });
});

describe("a call", () => {
  it("a call runs onAbort callbacks once, in order, when the client disconnects", () => {
    const told: string[] = [];
    const one = call();
    one.onAbort(() => told.push("first"));
    one.onAbort(() => told.push("second"));
    expect(one.aborted).toBe(false);
    one.abort();
    one.abort();
    expect(told).toEqual(["first", "second"]);
    expect(one.aborted).toBe(true);
  });

  it("a call runs an onAbort callback at once after the client has disconnected", () => {
    const one = call();
    one.abort();
    let told = false;
    one.onAbort(() => (told = true));
    expect(told).toBe(true);
  });

  it("a call runs no onAbort callback after the reply was sent", () => {
    const one = call();
    let told = false;
    one.onAbort(() => (told = true));
    one.close();
    one.onAbort(() => (told = true));
    one.abort();
    expect([told, one.aborted]).toEqual([false, false]);
  });

  it.each(["close", "abort"] as const)(
    "a call runs onEnd callbacks once after %s, and later callbacks at once",
    (end) => {
      const told: string[] = [];
      const one = call();
      one.onAbort(() => told.push("aborted"));
      one.onEnd(() => told.push("over"));
      one[end]();
      one.abort();
      one.close();
      one.onEnd(() => told.push("late"));
      expect(told).toEqual(end === "close" ? ["over", "late"] : ["aborted", "over", "late"]);
    },
  );

  it("a call runs the other callbacks although one throws, and notes the error for the log", () => {
    const told: string[] = [];
    const one = call();
    const fail = () => {
      throw new Error("no");
    };
    one.onAbort(fail);
    one.onAbort(() => told.push("aborted"));
    one.onEnd(fail);
    one.onEnd(() => told.push("over"));
    one.abort();
    expect(told).toEqual(["aborted", "over"]);
    expect(one.notes).toMatchObject({ code: null, fault: "a plugin's end-of-request callback failed: no" });
  });

  it("a call has a signal that aborts with it, whenever the signal is first requested", () => {
    const early = call();
    const { signal } = early;
    expect(signal.aborted).toBe(false);
    early.abort();
    expect(signal.aborted).toBe(true);
    const late = call();
    late.abort();
    expect(late.signal.aborted).toBe(true);
    const closed = call();
    closed.close();
    closed.abort();
    expect(closed.signal.aborted).toBe(false);
  });

  it("a call notes an error for the log, and a reason only if there is a reason", () => {
    const one = call();
    one.fail("upstream_reset", "ECONNRESET");
    expect(one.notes).toMatchObject({ code: "upstream_reset", fault: "ECONNRESET" });
    one.fail("internal");
    expect(one.notes).toMatchObject({ code: "internal", fault: "ECONNRESET" });
  });
});
