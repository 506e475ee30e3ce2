import { describe, expect, it } from "vitest";
import { OwnConnections, type ConnectionCounts } from "../../lib/server/limits.ts";
import { SharedConnections } from "../../lib/server/shared_connections.ts";
import { random } from "../support/random.ts";
import { threadsOf } from "../support/threads.ts";

const ADDRESSES = [
  "192.0.2.1",
  "192.0.2.2",
  "0.0.0.0",
  "255.255.255.255",
  "::1",
  "2001:db8::1",
  "2001:db8:0:1::1",
  "ff00::1",
  "fe80::1%eth0",
];
/** Of the same clients as some of those. */
const SAME = ["::ffff:192.0.2.1", "2001:db8::2:2", "fe80::2%eth1"];

/** Each of the three counts the same connections: one thread, and two workers that take turns. */
function counted(): readonly ConnectionCounts[] {
  const threads = threadsOf(2);
  return [new OwnConnections(), ...[0, 1].map((place) => new SharedConnections(threads(place)))];
}

describe("counts of connections", () => {
  it.each(ADDRESSES.map((address) => [address]))(
    "two workers count the connections of %s together, and apart from all others",
    (address) => {
      const [, one, two] = counted();
      expect([one!.take(address, 0, 1), two!.take(address, 0, 1)]).toEqual([
        expect.any(Function),
        "max_connections_per_ip",
      ]);
      for (const other of ADDRESSES)
        if (other !== address) expect([other, two!.take(other, 0, 1)]).toEqual([other, expect.any(Function)]);
    },
  );

  it("connections of several workers are admitted as those of one thread are, by the same addresses", () => {
    const rng = random(11);
    const [own, one, two] = counted();
    const held: (readonly unknown[])[] = [];
    for (let i = 0; i < 20_000; i++) {
      const worker = rng.pick([one!, two!]);
      if (rng.chance(0.5) && held.length > 0) {
        for (const give of held.splice(rng.int(0, held.length - 1), 1)[0]!) (give as () => void)();
        continue;
      }
      const [address, most, mostOfClient] = [rng.pick([...ADDRESSES, ...SAME]), rng.int(0, 12), rng.int(0, 3)];
      const taken = [own!, worker].map((counts) => counts.take(address, most, mostOfClient));
      if (typeof taken[0] === "function") held.push(taken);
      else expect(taken[1]).toBe(taken[0]);
      expect([one!.open, two!.open]).toEqual([own!.open, own!.open]);
    }
  });
});
