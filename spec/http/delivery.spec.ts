/** Judges by the clock how a reader keeps up, with a system that hides what is read as Linux does. */
import { Writable } from "node:stream";
import { describe, expect, it } from "vitest";
import { DeadlineTimer } from "../../lib/base/clock.ts";
import { PacedSink } from "../../lib/http/delivery.ts";
import { manualClock } from "../support/clock.ts";

const MB = 1_000_000;
/** What Linux holds of a connection, and how much of that is read before it takes more. */
const HELD = 3.9 * MB;
const STEP = 1.7 * MB;

/** A sink whose system holds up to `held` bytes, and takes more when `step` of them have been read. */
function reader({ held = HELD, step = STEP, least = 100, idleMs = 60_000 } = {}) {
  const clock = manualClock();
  let why: string | null = null;
  let written = 0;
  let read = 0;
  let taken = 0;
  let go: (() => void) | null = null;
  const outlet = new Writable() as Writable & { writableLength: number };
  Object.defineProperty(outlet, "writableLength", { get: () => written - taken });
  const to = {
    write: (chunk: Buffer) => ((written += chunk.length), take(), taken === written),
    once: (_event: "drain", run: () => void) => void (go = run),
  };
  const options = { clock, watch: new DeadlineTimer(clock), idleMs, leastBytesPerS: () => least };
  const sink = new PacedSink(
    outlet as never,
    options,
    () => written,
    (reason) => (why = reason),
    to,
  );
  function take(): void {
    if (held - (taken - read) >= step || taken === 0 || taken - read === 0) taken = Math.min(written, read + held);
  }
  /** Bytes that the client reads; what waits is written as soon as the system takes it. */
  const reads = (bytes: number) => {
    read = Math.min(taken, read + bytes);
    take();
    if (taken < written || go === null) return;
    const run = go;
    go = null;
    run();
  };
  const write = (bytes: number) => {
    if (!sink.write(Buffer.alloc(bytes))) sink.once("drain", () => {});
  };
  return {
    clock,
    sink,
    reads,
    write,
    get why() {
      return why;
    },
    /** Reads `bytesPerS` for so many seconds; returns the second in which it was ended, or null. */
    readsFor(seconds: number, bytesPerS: number, eachS = 1): number | null {
      for (let at = 0; at < seconds; at += eachS) {
        clock.advance(eachS * 1000);
        if (why !== null) return at + eachS;
        reads(bytesPerS * eachS);
      }
      return null;
    },
  };
}

describe("a reader of everything that is written", () => {
  it.each([
    ["2 KB/s", 2000, 100],
    ["2 KB/s, without a least rate", 2000, 0],
    ["2 KB/s, where so much is wanted", 2000, 2000],
    ["20 KB/s, where that is wanted", 20_000, 20_000],
  ])("may take %s as long as it likes", (_what, bytesPerS, least) => {
    const slow = reader({ least });
    slow.write(12 * MB);
    expect(slow.readsFor((8 * MB) / bytesPerS, bytesPerS)).toBeNull();
    expect(slow.why).toBeNull();
  });

  it("may read 2 KB/s with an idleMs of 3 s, also after a long pause of the other side", () => {
    const slow = reader({ idleMs: 3000 });
    slow.write(6 * MB);
    expect(slow.readsFor(3050, 2000)).toBeNull();
    slow.clock.advance(10_000_000);
    slow.write(6 * MB);
    expect(slow.readsFor(2000, 2000)).toBeNull();
  });

  it("may stop now and then for less than a minute", () => {
    const slow = reader({ held: 20_000, step: 10_000 });
    slow.write(1 * MB);
    for (let times = 0; times < 40; times++) {
      expect(slow.readsFor(55, 0)).toBeNull();
      slow.reads(20_000);
    }
  });
});

describe("a reader that reads nothing", () => {
  it("is ended after idleMs when the system took nothing", () => {
    const none = reader({ held: 0, step: 1 });
    none.write(1000);
    expect(none.readsFor(100, 0)).toBe(60);
    expect(none.why).toBe("its system took nothing for 60 s");
  });

  it.each([
    ["200 KB", 200_000, 100, 160],
    ["all that Linux holds", HELD, 100, 1109],
    ["all that Linux holds, without a least rate", HELD, 0, 1109],
    ["all that Linux holds, where 20 KB/s are wanted", HELD, 20_000, 165],
  ])(
    "is ended when one that reads 2 KB/s, or as much as is wanted, would have read %s",
    (_what, held, least, seconds) => {
      const none = reader({ held, least });
      none.write(12 * MB);
      expect(none.readsFor(3000, 0)).toBe(seconds);
      expect(none.why).toBe(`its system took nothing for ${seconds} s`);
    },
  );

  it("is told what it left lying, not a rate that it had, when its system took a little more late", () => {
    const late = reader({ held: HELD, step: 1 });
    late.write(12 * MB);
    expect(late.readsFor(1080, 0)).toBeNull();
    late.reads(100);
    expect(late.readsFor(3000, 0)).toBe(30);
    expect(late.why).toBe(`its system took ${HELD + 100} bytes in 1110 s, and nearly nothing at the end`);
  });

  it("is not waited for before something waits, nor while nothing does", () => {
    const late = reader({ held: 1000, step: 1 });
    expect(late.readsFor(500, 0)).toBeNull();
    late.write(1000);
    expect(late.readsFor(500, 0)).toBeNull();
    late.write(1000);
    // Half a second for what was taken before, which it may have left unread.
    expect(late.readsFor(500, 0)).toBe(61);
  });

  it("leaves no timer when it is stopped", () => {
    const none = reader();
    none.write(12 * MB);
    none.sink.stop();
    expect(none.clock.pending).toBe(0);
    expect(none.readsFor(5000, 0)).toBeNull();
  });
});

describe("the least rate", () => {
  const trickle = (bytesPerS: number, least: number) => {
    const slow = reader({ held: 1000, step: 1, least });
    slow.write(12 * MB);
    return { seconds: slow.readsFor(20_000, bytesPerS), why: slow.why };
  };

  it("ends a reader that reads less, on average", () => {
    const { seconds, why } = trickle(90, 100);
    expect(seconds).toBeGreaterThan(60);
    expect(seconds).toBeLessThan(700);
    expect(why).toMatch(/^its system took \d+ bytes in \d+ s, less than 100 a second$/);
  });

  it.each([
    ["one that reads as much", 100, 100],
    ["one that reads less, with 0", 1, 0],
  ])("keeps %s", (_what, bytesPerS, least) => {
    expect(trickle(bytesPerS, least)).toEqual({ seconds: null, why: null });
  });
});

it.each([
  { bytesPerS: 20, isEnded: true },
  { bytesPerS: 90, isEnded: true },
  { bytesPerS: 110, isEnded: false },
])("holds a whole connection that is behind to the least rate of 100 bytes a second: $bytesPerS", (given) => {
  const clock = manualClock();
  // The system takes what is read at once; nothing of it is of this stream.
  const handle = { bytesWritten: 1_000_000, writeQueueSize: 990_000 };
  const outlet = Object.defineProperty(new Writable(), "writableLength", { get: () => 50_000 });
  Object.assign(outlet, { session: { destroyed: false, socket: { _handle: handle } } });
  const options = { clock, watch: new DeadlineTimer(clock), idleMs: 60_000, leastBytesPerS: () => 100 };
  let endedAt = null as number | null;
  const sink = new PacedSink(
    outlet as never,
    options,
    () => 50_000,
    () => (endedAt = clock.now()),
  );
  sink.wait();
  for (let second = 0; second < 5_000 && endedAt === null; second++) {
    handle.writeQueueSize -= given.bytesPerS;
    clock.advance(1000);
  }
  expect(endedAt !== null).toBe(given.isEnded);
});

it("knows that what was taken may still be read", () => {
  const slow = reader();
  slow.write(20_000);
  expect(slow.sink.isBusy()).toBe(true);
  slow.clock.advance(9_999);
  expect(slow.sink.isBusy()).toBe(true);
  slow.clock.advance(1);
  expect(slow.sink.isBusy()).toBe(false);
});

it("counts what others write to its outlet from the moment at which it is seen", () => {
  const clock = manualClock();
  let written = 0;
  const outlet = Object.defineProperty(new Writable(), "writableLength", { get: () => 0 });
  const options = { clock, watch: new DeadlineTimer(clock), idleMs: 60_000, leastBytesPerS: () => 0 };
  const sink = new PacedSink(
    outlet as never,
    options,
    () => written,
    () => {},
  );
  for (let hours = 0; hours < 3; hours++) {
    clock.advance(3_600_000);
    expect(sink.isBusy()).toBe(false);
    written += 20_000;
    expect(sink.isBusy()).toBe(true);
  }
});
