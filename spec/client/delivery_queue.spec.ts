import type { ServerResponse } from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { HttpClient } from "../../lib/client/client.ts";
import { bodyWith, DeliveryQueue, type DeliveryQueueOptions } from "../../lib/client/delivery_queue.ts";
import { backend, gate } from "../journeys/harness.ts";
import { ANYWHERE } from "../support/anywhere.ts";
import { manualClock } from "../support/clock.ts";
import { counted, growth, LINEAR } from "../support/growth.ts";
import { closedPort, type Origin } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

const TIMEOUT_MS = 60_000;

/** An outbox whose batches are texts with commas between them, and a clock by hand. */
function outbox(port: number, options: Partial<DeliveryQueueOptions> = {}, Queue = DeliveryQueue) {
  const clock = manualClock();
  /** For how long each timer was set, in order. */
  const timers: number[] = [];
  const after: typeof clock.after = (ms, run) => {
    timers.push(ms);
    return clock.after(ms, run);
  };
  const told: [lost: number, why: string][] = [];
  const made = new Queue({
    clock: { ...clock, after },
    client: new HttpClient({ clock: { ...clock, after }, ...ANYWHERE, maxConnections: 1 }),
    request: { url: new URL(`http://127.0.0.1:${port}/in`), method: "POST", timeoutMs: TIMEOUT_MS },
    receiver: "the server",
    encode: (texts) => Buffer.from(texts.join(",")),
    batchSize: 1,
    batchMs: 700,
    maxTexts: 100,
    maxCharacters: 10_000,
    whenFull: "lose oldest",
    isTransient: (status) => status === 503,
    pausesMs: [1_000, 2_000],
    report: (...losses) => void told.push(losses),
    quietMs: 5_000,
    ...options,
  });
  onTestFinished(() => {
    const closed = made.close();
    clock.advance(900);
    return closed;
  });
  const add = (...texts: readonly string[]) => texts.forEach((text) => made.add(text));
  return { made, add, clock, timers, told };
}

const batches = ({ seen }: Origin) => seen.map(({ body }) => body.toString());

/** Answers with these statuses in turn, and with 200 from then on. */
const answering = (...statuses: readonly number[]) => {
  let nth = 0;
  return backend((_request, response) => void response.writeHead(statuses[nth++] ?? 200).end());
};

it("a body of texts is what they are when they are joined", () => {
  for (const texts of [[], ["a"], ["\u00e9", "", "\u{1f600}\ud800", "x".repeat(10_000)]])
    for (const [before, between, after] of [
      ["", "\n", "\n"],
      ['{"\u00fc":[', ",", "]}"],
    ] as const)
      expect(String(bodyWith(texts, [before, between, after]))).toBe(
        String(Buffer.from(before + texts.join(between) + after)),
      );
});

describe("a delivery queue", () => {
  it("a delivery queue sends the texts of one batch time in one request", async () => {
    const server = await backend();
    const { add, clock, made } = outbox(server.port, { batchSize: 10 });
    add("a", "b");
    clock.advance(699);
    add("c");
    clock.advance(1);
    await eventually(() => made.sent === 3, "three batches being sent");
    expect(batches(server)).toEqual(["a,b,c"]);
  });

  it("a delivery queue sends a full batch at once, and the rest after its batch time", async () => {
    const server = await backend();
    const { add, clock, timers, made } = outbox(server.port, { batchSize: 2 });
    add("a", "b", "c");
    await eventually(() => made.sent === 2, "two batches being sent");
    await eventually(() => timers.at(-1) === 700, "a timer of 700 ms");
    clock.advance(699);
    expect(made.sent).toBe(2);
    clock.advance(1);
    await eventually(() => made.sent === 3, "three batches being sent");
    expect(batches(server)).toEqual(["a,b", "c"]);
  });

  it.each([
    ["lose oldest", { maxTexts: 2 }, ["first", "3", "4"]],
    ["lose newest", { maxTexts: 2 }, ["first", "1", "2"]],
    ["lose oldest", { maxCharacters: 2 }, ["first", "3", "4"]],
    ["lose newest", { maxCharacters: 2 }, ["first", "1", "2"]],
  ] as const)("a delivery queue drops texts when there is no room: %s, by %j", async (whenFull, room, sent) => {
    const held = gate<() => void>();
    const server = await backend(
      (_request, response, body) =>
        void (body.toString() === "first" ? held.open(() => void response.end()) : response.end()),
    );
    const { add, made, told } = outbox(server.port, { whenFull, ...room });
    add("first");
    const answer = await held.opened;
    add("1", "2");
    expect([made.isFull, made.lost]).toEqual([true, 0]);
    add("3", "4");
    expect(made.lost).toBe(2);
    answer();
    await eventually(() => made.sent === 3, "three batches being sent");
    expect(batches(server)).toEqual(sent);
    expect(told).toEqual([[1, "there is no room for more: they come faster than they can be sent"]]);
  });

  it(
    "a delivery queue that is full drops its oldest texts in a time that grows " + "linearly with their number",
    async () => {
      const fresh = await counted(() => import("../../lib/client/delivery_queue.ts"));
      const server = await backend(() => {});
      const lose = (size: number) => {
        const room = { maxTexts: size, batchSize: size, maxCharacters: 100 * size };
        const { add, made } = outbox(server.port, room, fresh.DeliveryQueue);
        // The first ones are on their way for ever, the second ones wait and are lost by the third ones.
        for (let i = 0; i < 3 * size; i++) add("a");
        expect([made.isFull, made.lost]).toEqual([true, size]);
      };
      expect(growth(lose, 1_000)).toBeLessThan(LINEAR);
    },
  );

  it("a delivery queue accepts a text of any size when it is empty", async () => {
    const server = await backend();
    const { add, made } = outbox(server.port, { maxCharacters: 2 });
    add("abcdef");
    await eventually(() => made.sent === 1, "the first batch being sent");
  });

  it(
    "a delivery queue retries the same bytes after randomised pauses, " + "then drops them and sends the next batch",
    async () => {
      const server = await answering(503, 503, 503);
      const { add, clock, timers, told, made } = outbox(server.port, { random: () => 0.25 });
      add("a", "b");
      await eventually(() => timers.at(-1) === 750, "a timer of 750 ms");
      clock.advance(750);
      await eventually(() => timers.at(-1) === 1_500, "a timer of 1.5 seconds");
      clock.advance(1_500);
      await eventually(() => made.sent === 1, "the first batch being sent");
      expect(batches(server)).toEqual(["a", "a", "a", "b"]);
      expect(told).toEqual([[1, "the server answered with status 503"]]);
      const part = TIMEOUT_MS / 8;
      expect(timers).toEqual([part, 750, part, 1_500, part, part]);
    },
  );

  it.each([
    ["7", 7_000],
    [new Date(Date.UTC(2026, 0, 1) + 6_000).toUTCString(), 6_000],
    [new Date(Date.UTC(2025, 0, 1)).toUTCString(), 100],
    ["3600", 30_000],
    ["0", 100],
    ["Thursday, 01-Jan-26 00:00:06 GMT", 6_000],
    ["Thu Jan  1 00:00:06 2026", 6_000],
    ["9".repeat(20), 30_000],
    ["soon", 1_000],
    ["Later 5", 1_000],
    ["Try 2030", 1_000],
    ["5, 10", 1_000],
    ["", 1_000],
    ["1.5", 1_000],
    ["-1", 1_000],
  ])("a delivery queue obeys Retry-After, within bounds: %s", async (value, ms) => {
    let tries = 0;
    const server = await backend(
      (_request, response) => void response.writeHead(tries++ === 0 ? 503 : 200, { "Retry-After": value }).end(),
    );
    const { add, clock, timers, made } = outbox(server.port);
    add("a");
    await eventually(() => timers.length === 2, "two timers");
    expect(timers[1]).toBe(ms);
    clock.advance(ms);
    await eventually(() => made.sent === 1, "the first batch being sent");
  });

  it.each<[string, (response: ServerResponse) => void]>([
    ["is too large", (response) => void response.end("x".repeat(64 * 1024 + 1))],
    ["breaks off", (response) => void response.write("x", () => response.destroy())],
    [
      "is no valid one",
      (response) => void response.socket!.end("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n"),
    ],
  ])("counts a batch as delivered after a 2xx whose body %s", async (_what, answer) => {
    const server = await backend((_request, response, body) =>
      body.toString() === "a" ? answer(response) : void response.end(),
    );
    const { add, made } = outbox(server.port);
    add("a", "b");
    await eventually(() => made.sent === 2, "two batches being sent");
    expect(batches(server)).toEqual(["a", "b"]);
  });

  it("a delivery queue decides by the status of an answer whose body is too large", async () => {
    let tries = 0;
    const server = await backend((_request, response, body) => {
      const status = body.toString() === "a" ? 400 : tries++ === 0 ? 503 : 200;
      response.writeHead(status, { "Retry-After": "7" }).end("x".repeat(64 * 1024 + 1));
    });
    const { add, clock, timers, told, made } = outbox(server.port);
    add("a", "b");
    await eventually(() => timers.at(-1) === 7_000, "a timer of seven seconds");
    clock.advance(7_000);
    await eventually(() => made.sent === 1, "the first batch being sent");
    expect(batches(server)).toEqual(["a", "b", "b"]);
    expect(told).toEqual([[1, "the server answered with status 400"]]);
  });

  it("a delivery queue retries when no answer arrives in time", async () => {
    let tries = 0;
    const server = await backend((_request, response) => void (tries++ > 0 && response.end()));
    const { add, clock, timers, made } = outbox(server.port);
    add("a");
    await eventually(() => tries === 1, "the first try");
    clock.advance(TIMEOUT_MS);
    await eventually(() => timers.at(-1) === 1_000, "a timer of a second");
    clock.advance(1_000);
    await eventually(() => made.sent === 1, "the first batch being sent");
    expect(tries).toBe(2);
  });

  it("a delivery queue retries when no server listens, and reports why it stopped", async () => {
    const { add, clock, timers, told, made } = outbox(await closedPort(), { pausesMs: [1_000] });
    add("a");
    await eventually(() => timers.at(-1) === 1_000, "a timer of a second");
    clock.advance(1_000);
    await eventually(() => made.lost === 1, "a lost text");
    expect(told).toEqual([[1, expect.stringContaining("ECONNREFUSED")]]);
  });

  it("a delivery queue reports losses once in quietMs, and later losses when that time is over", async () => {
    const server = await answering(400, 400, 400, 200);
    const { add, clock, told, made } = outbox(server.port);
    clock.advance(10_000);
    add("a", "b", "c", "d");
    await eventually(() => made.sent === 1, "the first batch being sent");
    expect([made.lost, told]).toEqual([3, [[1, "the server answered with status 400"]]]);
    clock.advance(4_999);
    expect(told).toHaveLength(1);
    clock.advance(1);
    expect(told.map(([lost]) => lost)).toEqual([1, 2]);
  });
});

describe("the close of a delivery queue", () => {
  it(
    "the close of a delivery queue sends the waiting texts over the open " + "connection, and keeps no connection",
    async () => {
      const server = await backend();
      const { add, made } = outbox(server.port, { batchSize: 2 });
      add("a", "b", "c", "d", "e");
      await made.close();
      expect(batches(server)).toEqual(["a,b", "c,d", "e"]);
      expect([made.sent, server.connections.total]).toEqual([5, 1]);
      await eventually(() => server.connections.open === 0, "the connections to the server closing");
    },
  );

  it("the close of a delivery queue ends the current pause, and shortens later pauses", async () => {
    const server = await answering(503, 503);
    const { add, clock, timers, made } = outbox(server.port, { pausesMs: [50_000, 40_000] });
    add("a");
    await eventually(() => timers.at(-1) === 50_000, "a timer of 50 seconds");
    const closed = made.close();
    await eventually(() => timers.at(-1) === 100, "a timer of 100 ms");
    clock.advance(100);
    await closed;
    expect(made.sent).toBe(1);
  });

  it("the close of a delivery queue takes at most 900 ms when the server hangs, and reports all losses", async () => {
    const server = await backend(() => {});
    const { add, clock, told, made } = outbox(server.port);
    add("a", "b", "c");
    const closed = made.close();
    await eventually(() => server.seen.length === 1, "a request at the server");
    clock.advance(899);
    expect(made.lost).toBe(0);
    clock.advance(1);
    await closed;
    expect(batches(server)).toEqual(["a"]);
    expect([made.lost, told.reduce((sum, [lost]) => sum + lost, 0)]).toEqual([3, 3]);
    await eventually(() => server.connections.open === 0, "the connections to the server closing");
  });

  it("the close of a delivery queue encodes no more texts when its time is over", async () => {
    const server = await backend(() => {});
    const made: number[] = [];
    const encode = (texts: readonly string[]) => (made.push(texts.length), Buffer.from("body"));
    const { add, clock, made: box } = outbox(server.port, { encode, maxTexts: 10_000 });
    for (let i = 0; i < 1_000; i++) add("a");
    const closed = box.close();
    await eventually(() => server.seen.length === 1, "a request at the server");
    clock.advance(900);
    await closed;
    expect([box.lost, made]).toEqual([1_000, [1]]);
  });

  it(
    "the close of a delivery queue drops a batch that cannot be encoded, reports why, " + "and sends the next batch",
    async () => {
      const server = await backend();
      const encode = (texts: readonly string[]) =>
        texts[0] === "bad" ? Promise.reject(new Error("no memory")) : Promise.resolve(Buffer.from(texts[0]!));
      const { add, told, made } = outbox(server.port, { encode });
      add("bad", "good");
      await eventually(() => made.sent === 1, "the first batch being sent");
      expect([batches(server), told, made.lost]).toEqual([["good"], [[1, "no memory"]], 1]);
    },
  );

  it("the close of a delivery queue ends a pause when its time is over, and reports the last failure", async () => {
    const server = await answering(503);
    const { add, clock, timers, told, made } = outbox(server.port);
    add("a");
    const closed = made.close();
    clock.advance(850);
    await eventually(() => timers.at(-1) === 100, "a timer of 100 ms");
    clock.advance(50);
    await closed;
    expect(told).toEqual([[1, "the server answered with status 503"]]);
  });

  it("the close of a delivery queue sends texts added later at once, with the same time limit again", async () => {
    const server = await backend((_request, response, body) => void (body.toString() !== "stuck" && response.end()));
    const { add, clock, told, made } = outbox(server.port, { batchSize: 10 });
    await made.close();
    add("late");
    await eventually(() => made.sent === 1, "the first batch being sent");
    await eventually(() => server.connections.open === 0, "the connections to the server closing");
    add("stuck");
    await eventually(() => server.seen.length === 2, "two requests at the server");
    clock.advance(899);
    expect(made.lost).toBe(0);
    clock.advance(1);
    await eventually(() => told.length === 1, "a report");
    add("later");
    await eventually(() => made.sent === 2, "two batches being sent");
  });

  it("the close of a delivery queue sends texts added at the moment in which it ends", async () => {
    const server = await backend();
    const clock = manualClock();
    let ends = 0;
    const after: typeof clock.after = (ms, run) => {
      const timer = clock.after(ms, run);
      // Its last wait is over.
      const cancel = () => (timer.cancel(), ms === 900 && ends++ === 0 && queueMicrotask(() => made.add("late")));
      return { ...timer, cancel };
    };
    const { made } = outbox(server.port, { batchSize: 10, clock: { ...clock, after } });
    made.add("a");
    await made.close();
    await eventually(() => made.sent === 2, "two batches being sent");
    expect(batches(server)).toEqual(["a", "late"]);
  });

  it("the close of a delivery queue reports later losses no more often than before", async () => {
    const server = await backend((_request, response) => void response.writeHead(400).end());
    const { add, clock, told, made } = outbox(server.port);
    add("a", "b");
    await made.close();
    expect(told.map(([lost]) => lost)).toEqual([1, 1]);
    for (let lost = 3; lost < 6; lost++) {
      add("late");
      await eventually(
        () => made.lost === lost && server.connections.open === 0,
        "the lost texts, and the connection closing",
      );
    }
    expect(told).toHaveLength(2);
    clock.advance(5_000);
    expect(told.map(([lost]) => lost)).toEqual([1, 1, 3]);
    expect(clock.pending).toBe(0);
  });

  it("the close of a delivery queue needs no server when no text waits, and may be called twice", async () => {
    const { clock, made } = outbox(await closedPort());
    await Promise.all([made.close(), made.close()]);
    await made.close();
    expect([made.sent, made.lost, clock.pending]).toEqual([0, 0, 0]);
  });
});
