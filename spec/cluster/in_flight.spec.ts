import { describe, expect, it } from "vitest";
import { Ends, IN_FLIGHT_BYTES, InFlight, type Suspects } from "../../lib/cluster/in_flight.ts";
import { Call, type Exchange } from "../../lib/http/exchange.ts";
import type { Handler } from "../../lib/http/handler.ts";

/** A worker's memory, and requests of it; each ends by `close`. */
function worker() {
  const memory = new SharedArrayBuffer(IN_FLIGHT_BYTES);
  const { watched } = new InFlight(memory);
  const handlers = new Map<string, Handler>();
  return {
    memory,
    ask(name: string, clientAddress = "192.0.2.1", plugins: readonly string[] = []): Call {
      const [service, route] = name.split(" ") as [string, string];
      const key = `${name} ${plugins.join()}`;
      if (!handlers.has(key))
        handlers.set(
          key,
          watched(() => ({ status: 200, headers: [], body: null }), { service, route, plugins }),
        );
      const call = new Call({
        id: "1",
        remoteAddress: clientAddress,
        trustedRemote: false,
        startedAt: 0,
        inform: () => {},
      });
      void handlers.get(key)!({ call, clientAddress } as Exchange);
      return call;
    },
  };
}

/** What is named after the last of several ends, at each of which these requests were in flight. */
function after(
  ...ends: readonly (readonly Readonly<Parameters<ReturnType<typeof worker>["ask"]>>[])[]
): Suspects | null {
  const kept = new Ends();
  return ends.reduce<Suspects | null>((_before, requests, i) => {
    const { memory, ask } = worker();
    for (const request of requests) ask(...request);
    return kept.add(memory, i * 1_000);
  }, null);
}

describe("what was in flight whenever workers ended", () => {
  it("is named from the second end on: routes, plugins of modules and clients, with the number of ends", () => {
    const bad = ["shop boom", "2001:db8::9", ["own", "other"]] as const;
    expect(after([bad])).toBeNull();
    expect(after([bad, ["shop x"]], [["shop y", "192.0.2.7"], bad])).toEqual({
      ends: 2,
      routes: { "shop boom": 2 },
      plugins: { own: 2, other: 2 },
      clients: { "2001:db8::9": 2 },
    });
  });

  it("is the client alone, or the plugin alone, where the others differ", () => {
    expect(after([["s a", "192.0.2.9"]], [["s b", "192.0.2.9"]])).toEqual({
      ends: 2,
      routes: {},
      plugins: {},
      clients: { "192.0.2.9": 2 },
    });
    expect(after([["s a", "192.0.2.8", ["own"]]], [["s b", "192.0.2.9", ["own"]]])).toEqual({
      ends: 2,
      routes: {},
      plugins: { own: 2 },
      clients: {},
    });
    expect(after([["s a", "192.0.2.8"]], [["s b", "192.0.2.9"]])).toBeNull();
  });

  it(
    "has the most frequent first, of equal ones the rarer, " +
      "and leaves out what was there at fewer than half of the ends",
    () => {
      const busy = [
        ["s busy", "192.0.2.1"],
        ["s busy", "192.0.2.2"],
      ] as const;
      const bad = ["s boom", "192.0.2.9"] as const;
      const once = ["s often", "192.0.2.3"] as const;
      const found = after([...busy, bad, once], [...busy, bad, once], [...busy, bad], [...busy, bad], [bad, ...busy]);
      expect(Object.entries(found!.routes)).toEqual([
        ["s boom", 5],
        ["s busy", 5],
      ]);
    },
  );

  it("does not have requests that were over, whether answered or aborted, and has new ones in their place", () => {
    const { memory, ask } = worker();
    const ends = new Ends();
    const calls = Array.from({ length: 5_000 }, (_, i) => {
      const call = ask("s over", "192.0.2.1");
      if (i % 2 === 0) call.close();
      else call.abort();
      return call;
    });
    ask("s now", "192.0.2.2");
    for (const call of calls) call.close();
    ends.add(memory, 0);
    expect(ends.add(memory, 1)).toEqual({ ends: 2, routes: { "s now": 2 }, plugins: {}, clients: { "192.0.2.2": 2 } });
  });

  it(
    "has the newest requests where more than 1024 are in flight, " +
      "and their places are not freed by those that had them before",
    () => {
      const { memory, ask } = worker();
      const old = Array.from({ length: 1_024 }, () => ask("s old"));
      for (let i = 0; i < 1_024; i++) ask("s new");
      for (const call of old) call.close();
      const ends = new Ends();
      ends.add(memory, 0);
      expect(ends.add(memory, 0)!.routes).toEqual({ "s new": 2 });
    },
  );

  it("is compared over ten minutes and twenty ends, and long names are cut", () => {
    const { memory, ask } = worker();
    ask(`${"s".repeat(300)} x`, "192.0.2.1");
    const ends = new Ends();
    ends.add(memory, 0);
    expect(ends.add(memory, 600_001)).toBeNull();
    let last: Suspects | null = null;
    for (let i = 0; i < 30; i++) last = ends.add(memory, 600_001 + i);
    expect(last!.ends).toBe(20);
    expect(Object.keys(last!.routes)).toEqual(["s".repeat(209)]);
  });
});
