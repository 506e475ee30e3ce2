import { describe, expect, test } from "vitest";
import { roundRobin } from "../../lib/upstream/balance.ts";
import { createPeer, type Peer } from "../../lib/upstream/peer.ts";
import { Pool } from "../../lib/upstream/pool.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { backend } from "../journeys/harness.ts";

function peer(id: string, host = "127.0.0.1", port = 80, protocol: "http" | "https" = "http"): Peer {
  return createPeer(id, new Pool({ protocol, host, port, keepaliveIdleMs: 1000 }, 1, manualClock()));
}

const picks = (balancer: ReturnType<typeof roundRobin>, n: number) =>
  Array.from({ length: n }, () => balancer.pick(madeUpExchange())?.id ?? "none").join("");

describe("round_robin", () => {
  const [a, b, c] = [peer("a"), peer("b"), peer("c")];

  test("takes each upstream in turn, in the order of the configuration", () => {
    expect(picks(roundRobin([a, b, c], { turn: 0 }), 7)).toBe("abcabca");
  });

  test("goes on where the last configuration stopped", () => {
    const rotation = { turn: 0 };
    picks(roundRobin([a, b, c], rotation), 2);
    expect(picks(roundRobin([a, b, c], rotation), 2)).toBe("ca");
  });

  test("starts anew where there are fewer upstreams now", () => {
    expect(picks(roundRobin([a, b], { turn: 3 }), 3)).toBe("aba");
  });

  test("has none to give without upstreams", () => {
    expect(picks(roundRobin([], { turn: 0 }), 2)).toBe("nonenone");
  });

  test("over a reload, the next upstream is the next", async () => {
    const [one, two] = [await backend((_q, r) => void r.end("1")), await backend((_q, r) => void r.end("2"))];
    const config = oneService([one.port, two.port]);
    const { port, gateway } = await running(config);
    const answers: string[] = [];
    for (let i = 0; i < 6; i++) {
      answers.push((await ask(port, { path: "/a/x" })).body.toString());
      gateway.reload({ ...config, global: { name: `n${i}` } });
    }
    expect(answers.join("")).toBe("121212");
  });
});

test.each([
  ["127.0.0.1", 8080, "http", "127.0.0.1:8080"],
  ["backend.example", 80, "http", "backend.example"],
  ["backend.example", 443, "http", "backend.example:443"],
  ["backend.example", 443, "https", "backend.example"],
  ["backend.example", 80, "https", "backend.example:80"],
  ["2001:db8::1", 80, "http", "[2001:db8::1]"],
  ["2001:db8::1", 8080, "http", "[2001:db8::1]:8080"],
] as const)("the authority of %s, port %d, over %s is %s", (host, port, protocol, authority) => {
  expect(peer("a", host, port, protocol).authority).toBe(authority);
});
