import net, { type AddressInfo, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { ConnectionLimit, UploadPace, type Limits, type Rules } from "../../lib/server/limits.ts";
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
    return { socket, taken: made.admit(socket) !== null };
  };
  return { door: made, rules, come, warnings, clock };
}

describe("the connection limit", () => {
  it(
    "the connection limit accepts max_connections, resets the next, " + "and accepts one more when one has closed",
    async () => {
      const { door: made, come } = door({ maxConnections: 2 });
      const first = come("192.0.2.1");
      expect([first.taken, come("192.0.2.2").taken]).toEqual([true, true]);
      const surplus = come("192.0.2.3");
      expect([surplus.taken, surplus.socket.reset, surplus.socket.destroyed]).toEqual([false, true, true]);
      expect(made.open).toBe(2);
      first.socket.destroy();
      await eventually(() => made.open === 1, "one open connection");
      expect(come("192.0.2.3").taken).toBe(true);
    },
  );

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
    expect(["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"].map((from) => come(from).taken)).toEqual([
      true,
      true,
      true,
      false,
    ]);
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
  guard(server, (socket, begin) => {
    if (open) begin();
    else socket.destroy();
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
  expect(() => guard(server, () => {})).toThrow(/^this version of Node\.js is not supported/);
});

describe("upload rates", () => {
  /** Lets seconds pass, each with so many bytes; returns whether the upload was too slow in each. */
  function uploading(leastBytesPerS: number) {
    const pace = new UploadPace(leastBytesPerS);
    let received = 0;
    return (seconds: number, bytes: number) =>
      Array.from({ length: seconds }, () => pace.isTooSlow((received += bytes), 1_000));
  }

  it("accepts uploads at the minimum rate and gives up slower uploads after ten seconds", () => {
    expect(uploading(100)(11, 100)).toEqual(Array(11).fill(false));
    expect(uploading(100)(11, 99)).toEqual([...Array(10).fill(false), true]);
  });

  it.each([
    [3_000, 30],
    [1_000_000_000, 60],
  ])(
    "measures the average rate and credits at most a minute: after %d bytes in one second an upload may stall for %d",
    (bytes, seconds) => {
      const pass = uploading(100);
      expect([...pass(1, bytes), ...pass(seconds, 0)]).toEqual([...Array(seconds).fill(false), true]);
    },
  );
});
