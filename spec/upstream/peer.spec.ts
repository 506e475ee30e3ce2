import { expect, it } from "vitest";
import { Fault, type ErrorCode } from "../../lib/base/errors.ts";
import { madeUpPeer, madeUpPool } from "../support/peer.ts";

it.each([
  ["127.0.0.1", 8080, "http", "127.0.0.1:8080"],
  ["backend.example", 80, "http", "backend.example"],
  ["backend.example", 443, "http", "backend.example:443"],
  ["backend.example", 443, "https", "backend.example"],
  ["backend.example", 80, "https", "backend.example:80"],
  ["2001:db8::1", 80, "http", "[2001:db8::1]"],
  ["2001:db8::1", 8080, "http", "[2001:db8::1]:8080"],
] as const)("the authority of %s, port %d, over %s is %s", (host, port, protocol, authority) => {
  expect(madeUpPeer("a", madeUpPool({ host, port, protocol })).authority).toBe(authority);
});

it.each<[ErrorCode, number]>([
  ["upstream_reset", 1],
  ["upstream_invalid", 1],
  ["upstream_timeout", 0],
  ["body_too_large", 0],
])("a response that breaks off with %s is held against it: %d", (code, times) => {
  const peer = madeUpPeer("a");
  let failures = 0;
  peer.health.failed = () => void failures++;
  peer.broken(new Fault(code, "in the middle"));
  expect(failures).toBe(times);
});

it("counts requests under way and waiting as its load", async () => {
  const pool = madeUpPool({}, 1);
  const peer = madeUpPeer("a", pool);
  expect(peer.load).toBe(0);
  pool.tryLease();
  void pool.waitForLease(1000, () => {}).catch(() => {});
  expect(peer.load).toBe(2);
  pool.destroy();
});
