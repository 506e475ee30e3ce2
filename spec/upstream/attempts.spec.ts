import { expect, test } from "vitest";
import { attempts } from "../../lib/upstream/attempts.ts";
import { createPeer } from "../../lib/upstream/peer.ts";
import { Pool } from "../../lib/upstream/pool.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange, problemOf } from "../support/exercise.ts";
import { closedPort } from "../support/origin.ts";

const options = { clock: manualClock(), connectMs: 1, responseMs: 1, idleMs: 1000, preserveHost: false, viaName: "gw" };

test("no peer to give is 503 upstream_unavailable", async () => {
  const exchange = madeUpExchange();
  const reply = await attempts({ pick: () => null }, options)(exchange);
  expect(reply.status).toBe(503);
  expect(problemOf(reply)).toMatchObject({ code: "upstream_unavailable" });
  expect(exchange.call.notes).toMatchObject({ upstream: null, attempts: 0 });
});

test("a fault becomes its problem: the client reads what to do, the log why", async () => {
  const port = await closedPort();
  const peer = createPeer("u-1", new Pool({ protocol: "http", host: "127.0.0.1", port, keepaliveIdleMs: 1 }, 1, options.clock));
  const exchange = madeUpExchange();
  const reply = await attempts({ pick: () => peer }, options)(exchange);
  expect(problemOf(reply)).toMatchObject({ code: "upstream_connect_failed", status: 502 });
  expect(String(problemOf(reply)["detail"])).not.toContain("127.0.0.1");
  expect(exchange.call.notes).toMatchObject({ upstream: "u-1", attempts: 1, code: "upstream_connect_failed" });
  expect(exchange.call.notes.fault).toContain("ECONNREFUSED");
});

test("what is no fault is thrown on", async () => {
  const failing = { pick: () => { throw new TypeError("a bug"); } };
  await expect(attempts(failing, options)(madeUpExchange())).rejects.toThrow("a bug");
});
