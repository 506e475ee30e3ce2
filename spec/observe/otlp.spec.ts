import { describe, expect, it, onTestFinished } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import { OtlpExporter, type OtlpOptions } from "../../lib/observe/otlp.ts";
import { attributesText, spanText } from "../../lib/observe/span_json.ts";
import type { Clock } from "../../lib/base/clock.ts";
import { CA, SERVER } from "../support/certs.ts";
import { collector } from "../support/collector.ts";
import { manualClock } from "../support/clock.ts";
import { OTHER_CA } from "../support/more_certs.ts";
import { eventually } from "../support/raw_client.ts";

const span = (n: number, name = "GET") =>
  spanText({
    traceId: String(n).padStart(32, "1"),
    spanId: String(n).padStart(16, "1"),
    parentId: null,
    parent: "local",
    tracestate: null,
    name,
    kind: "server",
    startMs: Date.UTC(2026, 0, 1),
    endMs: Date.UTC(2026, 0, 1) + 1.5,
    attributes: attributesText(["a", "b", "c", 1, "d", null]),
    status: "unset",
  });

/** An exporter to a collector, and a clock by hand. */
async function exporter(
  options: Partial<OtlpOptions> = {},
  settings: Partial<OtlpOptions["settings"]> = {},
  identity?: Parameters<typeof collector>[0],
) {
  const clock = manualClock();
  /** How long it has waited, or meant to, for whatever it was, in milliseconds. */
  const waits: number[] = [];
  const after: Clock["after"] = (ms, run) => {
    waits.push(ms);
    return clock.after(ms, run);
  };
  const to = await collector(identity);
  const lines: Record<string, unknown>[] = [];
  const log = createLog({
    format: "json",
    write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>),
  });
  const made = new OtlpExporter({
    settings: { url: to.url, ...settings },
    clock: { ...clock, after },
    log,
    random: () => 0.5,
    ...options,
  });
  onTestFinished(() => {
    const closed = made.close();
    clock.advance(900);
    return closed;
  });
  const add = (count: number, from = 0) => {
    for (let i = from; i < from + count; i++) made.add(span(i));
  };
  /** TaskQueue the clock on as long as it takes. */
  const advanceUntil = (holds: () => boolean, ms: number, what: string) =>
    eventually(() => {
      if (!holds()) clock.advance(ms);
      return holds();
    }, what);
  return { clock, waits, to, lines, add, advanceUntil, spans: made };
}

describe("an OtlpExporter", () => {
  it(
    "an OtlpExporter compresses its batches if configured: fewer bytes, " + "the same spans, and Content-Encoding",
    async () => {
      const { clock, to, add } = await exporter({}, { compression: "gzip" });
      add(100);
      clock.advance(1_000);
      expect(await to.until(100)).toHaveLength(100);
      expect(to.exports[0]!.headers["content-encoding"]).toBe("gzip");
      expect(Number(to.exports[0]!.headers["content-length"])).toBeLessThan(to.exports[0]!.text.length / 5);
    },
  );

  it("an OtlpExporter trusts a collector by the configured CA, and refuses it without that CA", async () => {
    const { clock, to, add } = await exporter({}, { ca: Buffer.from(CA.cert) }, SERVER);
    add(1);
    clock.advance(1_000);
    await to.until(1);
    const other = await exporter({}, { ca: Buffer.from(OTHER_CA.cert) }, SERVER);
    other.add(1);
    await other.advanceUntil(() => other.lines.length > 0, 1_000, "a loss");
    expect(other.lines[0]).toMatchObject({
      message: "spans of traces were lost",
      error: expect.stringMatching(/certificate/) as string,
    });
    expect(other.to.exports).toEqual([]);
  });

  it("an OtlpExporter sends the spans of one second in one batch", async () => {
    const { clock, to, add } = await exporter();
    add(3);
    clock.advance(999);
    add(1, 3);
    expect(to.exports).toHaveLength(0);
    clock.advance(1);
    expect((await to.until(4)).map(({ spanId }) => Number(spanId.slice(-1)))).toEqual([0, 1, 2, 3]);
    expect(to.exports).toHaveLength(1);
    expect(to.exports[0]!.headers).toMatchObject({
      "content-type": "application/json",
      "content-length": String(Buffer.byteLength(to.exports[0]!.text)),
    });
  });

  it("an OtlpExporter sends 512 spans at once, and the rest a second later", async () => {
    const { clock, waits, to, add, spans } = await exporter();
    add(513);
    await to.until(512);
    expect(to.exports).toHaveLength(1);
    await eventually(
      () => spans.exported === 512 && waits.at(-1) === 1_000,
      "512 exported spans and a timer of a second",
    );
    clock.advance(1_000);
    await to.until(513);
    await eventually(() => spans.exported === 513, "513 exported spans");
    expect(spans.dropped).toBe(0);
  });

  it.each([429, 502, 503, 504])("an OtlpExporter retries after %d, with pauses that double", async (status) => {
    const { clock, waits, to, add, spans } = await exporter();
    to.answer = (response, nth) => void response.writeHead(nth < 2 ? status : 200).end();
    add(1);
    clock.advance(1_000);
    await eventually(() => waits.length === 3, "three timers");
    clock.advance(1_000);
    await eventually(() => waits.length === 5, "five timers");
    clock.advance(2_000);
    await eventually(() => spans.exported === 1, "an exported span");
    // The first eighth of the ten seconds that an answer may take.
    const answer = 10_000 / 8;
    expect(waits).toEqual([1_000, answer, 1_000, answer, 2_000, answer]);
    expect(to.exports[2]!.text).toBe(to.exports[0]!.text);
  });

  it("an OtlpExporter waits as long as Retry-After says", async () => {
    const { clock, waits, to, add } = await exporter();
    to.answer = (response, nth) => void response.writeHead(nth === 0 ? 503 : 200, { "Retry-After": "7" }).end();
    add(1);
    clock.advance(1_000);
    await eventually(() => waits.at(-1) === 7_000, "a timer of seven seconds");
    clock.advance(7_000);
    await to.until(2);
  });

  it("an OtlpExporter stops after five tries, and logs the loss", async () => {
    const { to, add, spans, lines, advanceUntil } = await exporter();
    to.answer = (response) => void response.writeHead(503).end();
    add(2);
    await advanceUntil(() => spans.dropped === 2, 1_000, "the loss");
    expect(to.exports).toHaveLength(5);
    expect(lines).toMatchObject([
      {
        level: "warn",
        message: "spans of traces were lost",
        spans: 2,
        error: "the collector answered with status 503",
      },
    ]);
  });

  it.each([400, 401, 404, 413, 500, 302])("an OtlpExporter does not retry after %d", async (status) => {
    const { clock, to, add, spans, lines } = await exporter();
    to.answer = (response) => void response.writeHead(status, { Location: "/elsewhere" }).end("no");
    add(1);
    clock.advance(1_000);
    await eventually(() => spans.dropped === 1, "a dropped span");
    expect(to.exports).toHaveLength(1);
    expect(lines).toMatchObject([{ error: `the collector answered with status ${status}` }]);
  });

  it.each([
    ['{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}', 1, 2, "the collector rejected them: too old"],
    ['{"partialSuccess":{"rejectedSpans":1}}', 2, 1, "the collector rejected them"],
    ['{"partialSuccess":{"rejectedSpans":"99"}}', 0, 3, "the collector rejected them"],
    ['{"partialSuccess":{"rejectedSpans":"0","errorMessage":"well"}}', 3, 0, null],
    ['{"partialSuccess":{"rejectedSpans":"-1"}}', 3, 0, null],
    ['"rejectedSpans', 3, 0, null],
    ['{"partialSuccess":null,"rejectedSpans":1}', 3, 0, null],
    ["", 3, 0, null],
  ])(
    "an OtlpExporter counts the spans that a collector reports as rejected: %s",
    async (body, exported, dropped, why) => {
      const { clock, to, add, spans, lines } = await exporter();
      to.answer = (response) => void response.end(body);
      add(3);
      clock.advance(1_000);
      await eventually(() => spans.exported + spans.dropped === 3, "three exported or dropped spans");
      expect([spans.exported, spans.dropped]).toEqual([exported, dropped]);
      expect(lines.map(({ error }) => error)).toEqual(why === null ? [] : [why]);
    },
  );

  it("an OtlpExporter holds at most 8192 spans, drops further spans, and logs the loss once a minute", async () => {
    const { clock, to, add, spans, lines } = await exporter();
    to.answer = () => {};
    add(512);
    await to.until(512);
    add(8_192);
    expect([spans.isFull, spans.dropped]).toEqual([true, 0]);
    add(10);
    spans.add("");
    expect(spans.dropped).toBe(11);
    expect(lines).toMatchObject([{ spans: 1, error: expect.stringContaining("there is no room for more") as string }]);
    clock.advance(9_000); // shorter than the wait for the collector
    add(1);
    expect(lines).toHaveLength(1);
  });

  it("an OtlpExporter holds at most 16 Mi characters, even with few spans", async () => {
    const { to, spans } = await exporter();
    to.answer = () => {};
    for (let i = 0; i < 20; i++) spans.add(span(i, "x".repeat(1024 * 1024)));
    expect(spans.dropped).toBe(4);
  });

  it("an OtlpExporter sends the waiting spans when it closes, and accepts no more", async () => {
    const { to, add, spans } = await exporter();
    add(600);
    await spans.close();
    expect(to.spans).toHaveLength(600);
    expect(spans.exported).toBe(600);
    add(1);
    expect([spans.isFull, spans.dropped]).toEqual([true, 1]);
  });
});
