import net, { type AddressInfo, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { ConnectionLimit, watchUpload, type Limits, type Rules, type Upload } from "../../lib/server/limits.ts";
import { DeadlineTimer } from "../../lib/base/clock.ts";
import { guard } from "../../lib/server/tls.ts";
import { trustedProxies } from "../../lib/server/trusted_proxies.ts";
import { manualClock } from "../support/clock.ts";
import { defaultLimits } from "../support/limits.ts";
import { eventually } from "../support/raw_client.ts";

/** A connection as the door sees it, from any address. */
class FakeSocket extends net.Socket {
  reset = false;

  constructor(from: string | undefined) {
    super();
    Object.defineProperty(this, "remoteAddress", { value: from });
  }

  override resetAndDestroy(): this {
    this.reset = true;
    return this.destroy();
  }
}

function door(limits: Partial<Limits>, proxies: Rules["proxies"] = null) {
  const rules = { limits: { ...defaultLimits, ...limits }, proxies };
  const warnings: string[] = [];
  const log = { debug() {}, info() {}, error() {}, warn: (message: string) => void warnings.push(message) };
  const clock = manualClock();
  const made = new ConnectionLimit(() => rules, log, clock);
  const come = (from: string | undefined) => {
    const socket = new FakeSocket(from);
    return { socket, taken: made.admit(socket) };
  };
  return { door: made, rules, come, warnings, clock };
}

describe("the connection limit", () => {
  it("the connection limit accepts max_connections, resets the next, and accepts one more when one has closed", async () => {
    const { door: made, come } = door({ maxConnections: 2 });
    const first = come("192.0.2.1");
    expect([first.taken, come("192.0.2.2").taken]).toEqual([true, true]);
    const surplus = come("192.0.2.3");
    expect([surplus.taken, surplus.socket.reset, surplus.socket.destroyed]).toEqual([false, true, true]);
    expect(made.open).toBe(2);
    first.socket.destroy();
    await eventually(() => made.open === 1, "one open connection");
    expect(come("192.0.2.3").taken).toBe(true);
  });

  it.each<[title: string, first: string, second: string, third: string]>([
    ["an IPv4 address", "192.0.2.1", "192.0.2.1", "192.0.2.2"],
    ["an IPv4 address as a dual-stack socket says it", "192.0.2.1", "::ffff:192.0.2.1", "::ffff:192.0.2.2"],
    ["an IPv6 /64", "2001:db8::1", "2001:db8::2:2", "2001:db8:0:1::1"],
    ["loopback, like any other", "127.0.0.1", "127.0.0.1", "127.0.0.2"],
  ])("the connection limit counts %s as one client", (_title, first, second, third) => {
    const { come } = door({ maxConnectionsPerIp: 1 });
    expect([first, second, third].map((from) => come(from).taken)).toEqual([true, false, true]);
  });

  it("the connection limit counts connections of trusted proxies in all, but not by address", () => {
    const { come } = door({ maxConnectionsPerIp: 1, maxConnections: 3 }, trustedProxies(["10.0.0.1"]));
    expect(["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"].map((from) => come(from).taken)).toEqual([true, true, true, false]);
  });

  it("the connection limit counts connections that were opened before there was a limit", () => {
    const { come, rules } = door({ maxConnections: 0, maxConnectionsPerIp: 0 });
    for (let i = 0; i < 5; i++) expect(come("192.0.2.1").taken).toBe(true);
    rules.limits = { ...rules.limits, maxConnectionsPerIp: 5 };
    expect([come("192.0.2.1").taken, come("192.0.2.2").taken]).toEqual([false, true]);
  });

  it("the connection limit forgets an address when its last connection closes", async () => {
    const { door: made, come } = door({ maxConnectionsPerIp: 1 });
    for (let i = 0; i < 3; i++) {
      const { socket, taken } = come("192.0.2.1");
      expect(taken).toBe(true);
      socket.destroy();
      await eventually(() => made.open === 0, "no open connection");
    }
  });

  it("the connection limit logs refused connections once a minute, however many there are", () => {
    const { come, warnings, clock } = door({ maxConnections: 1 });
    for (let i = 0; i < 100; i++) come("192.0.2.1");
    expect(warnings).toEqual(["connections are refused: max_connections 1 is reached"]);
    clock.advance(60_000);
    come("192.0.2.1");
    expect(warnings).toHaveLength(2);
  });

  it("the connection limit does not count a connection that closed before it was accepted", () => {
    const { door: made, come } = door({});
    expect(come(undefined).taken).toBe(false);
    expect(made.open).toBe(0);
  });
});

it("guard passes only admitted connections to the server", async () => {
  const served: Socket[] = [];
  const server = net.createServer((socket) => void served.push(socket));
  let open = true;
  guard(server, (socket) => {
    if (!open) socket.destroy();
    return open;
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of served) socket.destroy();
    server.close();
  });
  const come = () => net.connect((server.address() as AddressInfo).port, "127.0.0.1").on("error", () => {});
  const first = come();
  await eventually(() => served.length === 1, "one served connection");
  open = false;
  const second = come();
  await new Promise((resolve) => second.once("close", resolve).resume());
  expect(served).toHaveLength(1);
  first.destroy();
});

it("guard throws for a server that has no connection listener of its own", () => {
  const server = net.createServer();
  expect(() => guard(server, () => false)).toThrow(/^this version of Node\.js is not supported/);
});

describe("upload rates", () => {
  function upload(): Upload & { bytes: number; waiting: boolean; slow: boolean } {
    const self = { bytes: 0, waiting: true, slow: false };
    return Object.assign(self, {
      received: () => self.bytes,
      awaited: () => self.waiting,
      tooSlow: () => {
        self.slow = true;
      },
    });
  }

  /** Lets seconds pass, each with so many bytes. */
  function pass(clock: ReturnType<typeof manualClock>, seconds: number, each: { bytes: number }, bytes: number): void {
    for (let i = 0; i < seconds; i++) {
      each.bytes += bytes;
      clock.advance(1_000);
    }
  }

  it("accepts uploads at the minimum rate and gives up slower uploads after ten seconds", () => {
    const clock = manualClock();
    const deadlines = new DeadlineTimer(clock);
    const [fast, slow] = [upload(), upload()];
    watchUpload(deadlines, fast, 100);
    watchUpload(deadlines, slow, 100);
    for (let i = 0; i < 10; i++) {
      fast.bytes += 100;
      slow.bytes += 99;
      clock.advance(1_000);
    }
    expect([fast.slow, slow.slow]).toEqual([false, false]);
    fast.bytes += 100;
    slow.bytes += 99;
    clock.advance(1_000);
    expect([fast.slow, slow.slow]).toEqual([false, true]);
  });

  it.each([
    [3_000, 30],
    [1_000_000_000, 60],
  ])("measures the average rate and credits at most a minute: after %d bytes in one second an upload may stall for %d", (bytes, seconds) => {
    const clock = manualClock();
    const early = upload();
    watchUpload(new DeadlineTimer(clock), early, 100);
    pass(clock, 1, early, bytes);
    pass(clock, seconds - 1, early, 0);
    expect(early.slow).toBe(false);
    pass(clock, 1, early, 0);
    expect(early.slow).toBe(true);
  });

  it("does not charge an upload for the time in which its body is not read", () => {
    const clock = manualClock();
    const held = upload();
    watchUpload(new DeadlineTimer(clock), held, 100);
    held.waiting = false;
    pass(clock, 3_600, held, 0);
    held.waiting = true;
    pass(clock, 10, held, 0);
    expect(held.slow).toBe(false);
    pass(clock, 1, held, 0);
    expect(held.slow).toBe(true);
  });

  it("shares one timer between all uploads and runs it only while there are uploads", () => {
    const clock = manualClock();
    const deadlines = new DeadlineTimer(clock);
    expect(clock.pending).toBe(0);
    const ends = [upload(), upload(), upload()].map((each) => watchUpload(deadlines, each, 1));
    expect(clock.pending).toBe(1);
    for (const end of ends) end();
    expect(clock.pending).toBe(0);
    const slow = upload();
    const end = watchUpload(deadlines, slow, 1);
    pass(clock, 11, slow, 0);
    expect(slow.slow).toBe(true);
    expect(clock.pending).toBe(0);
    end();
    expect(clock.pending).toBe(0);
  });
});
