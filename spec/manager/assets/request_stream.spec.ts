import { beforeEach, afterEach, describe, expect, it, vi } from "vitest";
import { requestStream } from "../../../lib/manager/assets/request_stream.ts";

class Source extends EventTarget {
  static readonly CLOSED = 2;
  static opened: Source[] = [];
  readyState = 1;

  constructor() {
    super();
    Source.opened.push(this);
  }

  tell(type: "open" | "error", readyState = 1): void {
    this.readyState = readyState;
    this.dispatchEvent(new Event(type));
  }

  close(): void {
    this.readyState = Source.CLOSED;
  }
}

const page = Object.assign(new EventTarget(), { hidden: false });

function setHidden(to: boolean): void {
  page.hidden = to;
  page.dispatchEvent(new Event("visibilitychange"));
}

/** A stream that is followed, and how often it has missed requests. */
function followed() {
  const seen = { missed: 0 };
  const note = { textContent: "" } as Node;
  const stream = requestStream(
    () => {},
    () => seen.missed++,
    note,
  );
  stream.follow({ service: "shop" });
  return { seen, stream, note, last: () => Source.opened.at(-1)! };
}

beforeEach(() => {
  vi.useFakeTimers();
  [Source.opened, page.hidden] = [[], false];
  vi.stubGlobal("EventSource", Source);
  vi.stubGlobal("document", page);
  vi.stubGlobal("window", globalThis);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("the stream of requests", () => {
  it("has missed nothing when it opens for the first time, nor with another filter", () => {
    const { seen, stream, last } = followed();
    last().tell("open");
    stream.follow({ service: "other" });
    last().tell("open");
    expect([Source.opened.length, seen.missed]).toEqual([2, 0]);
    stream.follow(null);
  });

  it("has missed requests while the tab was hidden, be it from the start", () => {
    const { seen, stream, last } = followed();
    last().tell("open");
    setHidden(true);
    expect([last().readyState, seen.missed]).toEqual([Source.CLOSED, 0]);
    setHidden(false);
    expect(seen.missed).toBe(0);
    last().tell("open");
    expect(seen.missed).toBe(1);
    page.hidden = true;
    stream.follow({});
    setHidden(false);
    last().tell("open");
    expect(seen.missed).toBe(2);
    stream.follow(null);
    setHidden(false);
    expect(Source.opened).toHaveLength(3);
  });

  it("has missed requests while the connection was lost or refused, once for each time it is back", () => {
    const { seen, stream, note, last } = followed();
    last().tell("open");
    last().tell("error", 0);
    expect([note.textContent!.includes("connection is lost"), seen.missed]).toEqual([true, 0]);
    last().tell("open");
    expect(seen.missed).toBe(1);
    last().tell("error", Source.CLOSED);
    vi.advanceTimersByTime(5_000);
    expect(Source.opened).toHaveLength(2);
    last().tell("open");
    last().tell("open");
    expect(seen.missed).toBe(2);
    stream.follow(null);
  });
});
