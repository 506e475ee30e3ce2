import { PassThrough } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import type { ExchangeParts } from "../../lib/http/exchange.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { forward } from "../../lib/upstream/attempts.ts";
import { Unsent } from "../../lib/upstream/faults.ts";
import type { Pool } from "../../lib/upstream/upstream_set.ts";
import { isSecure } from "../../lib/upstream/connect.ts";
import { UpstreamTls } from "../../lib/upstream/tls.ts";
import { Http1Pool } from "../../lib/upstream/pool.ts";
import { forwardHttp2 } from "../../lib/upstream/http2_request.ts";
import { SessionPool } from "../../lib/upstream/sessions.ts";
import { ANYWHERE } from "../support/anywhere.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { socketOrigin } from "../support/origin.ts";
import { madeUpPeer } from "../support/peer.ts";
import { eventually } from "../support/raw_client.ts";

const PROTOCOLS = ["http", "https", "h2c", "h2"] as const;
type Protocol = (typeof PROTOCOLS)[number];

/** An upstream that takes connections and says nothing; `reads` it does, unless that is turned off. */
async function bench(protocol: Protocol, { reads = true } = {}) {
  const heard = { text: "" };
  const upstream = await socketOrigin((socket) => {
    if (protocol === "h2c") socket.write(SETTINGS);
    if (reads) socket.on("data", (chunk: Buffer) => void (heard.text += chunk.toString("latin1")));
  });
  const clock = manualClock();
  const tls = isSecure(protocol) ? { tls: new UpstreamTls() } : {};
  const options = { ...ANYWHERE, host: "127.0.0.1", port: upstream.port, keepaliveIdleMs: 30_000, ...tls };
  const pool: Pool =
    protocol === "http" || protocol === "https"
      ? new Http1Pool({ ...options, protocol }, 1, clock)
      : new SessionPool({ ...options, protocol }, 1, clock, forwardHttp2);
  onTestFinished(async () => {
    pool.destroy();
    await upstream.close();
  });
  const peer = madeUpPeer("u", pool, clock);
  const forwarding = { clock, connectMs: 1000, responseMs: 1000, idleMs: 60_000, preserveHost: false, viaName: "gw" };
  const send = (tryMs: number, endsAt: number, parts: Partial<ExchangeParts> = {}) =>
    caught(forward(madeUpExchange(parts), peer, { ...forwarding, tryMs }, endsAt));
  return { clock, pool, peer, heard, upstream, send };
}

/** An empty frame of them. */
const SETTINGS = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);

const caught = (reply: Promise<Reply>): Promise<Fault> =>
  reply.then(
    ({ status }) => Promise.reject(new Error(`answered with ${status}`)),
    (fault: Fault) => fault,
  );

/** The deadline of one try, or of the whole, in 50 ms. */
const KINDS: [string, number, number][] = [
  ["of a try", 50, 0],
  ["of the whole", 0, 50],
];

describe.each(KINDS)("the deadline %s", (_kind, tryMs, endsAt) => {
  it.each(PROTOCOLS)("the deadline over %s ends the wait for a connection that is in use", async (protocol) => {
    const { clock, pool, peer, send } = await bench(protocol);
    pool.limitTo(0, 1);
    const fault = send(tryMs, endsAt);
    await eventually(() => peer.load === 1, "the wait");
    clock.advance(50);
    expect((await fault).code).toBe("upstream_saturated");
    expect(peer.load).toBe(0);
    expect(clock.pending).toBe(0);
  });

  it.each<Protocol>(["https", "h2"])(
    "the deadline over %s ends the wait for a new connection as unsent",
    async (protocol) => {
      const { clock, send, upstream, peer } = await bench(protocol);
      const fault = send(tryMs, endsAt);
      await eventually(() => upstream.connections === 1, "the connection");
      clock.advance(50);
      expect(await fault).toBeInstanceOf(Unsent);
      expect((await fault).code).toBe("upstream_timeout");
      await eventually(() => peer.load === 0, "the lease coming back");
      expect(clock.pending).toBe(0);
    },
  );

  it.each<Protocol>(["http", "h2c"])(
    "the deadline over %s blames the client if its body is missing",
    async (protocol) => {
      const { clock, send, heard } = await bench(protocol);
      const body = new PassThrough();
      const fault = send(tryMs, endsAt, { method: "PUT", body });
      body.write("half");
      await eventually(() => heard.text.includes("half"), "what there is of it");
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(50);
      expect((await fault).code).toBe("request_timeout");
    },
  );

  it.each<Protocol>(["http", "h2c"])(
    "the deadline over %s blames the upstream if it does not read",
    async (protocol) => {
      const { clock, send } = await bench(protocol, { reads: false });
      const body = new PassThrough();
      const fault = send(tryMs, endsAt, { method: "PUT", body });
      let full = 0;
      await eventually(() => {
        full = body.writableNeedDrain ? full + 1 : 0;
        if (full === 0) body.write(Buffer.alloc(1_000_000));
        return full > 20;
      }, "a body that is stuck");
      clock.advance(50);
      expect((await fault).code).toBe("upstream_timeout");
      body.destroy();
    },
  );
});
