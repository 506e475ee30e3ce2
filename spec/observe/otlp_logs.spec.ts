import { expect, it, onTestFinished } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import { OtlpExporter } from "../../lib/observe/otlp.ts";
import { LogLines } from "../../lib/observe/otlp_logs.ts";
import { recordedLog } from "../journeys/harness.ts";
import { manualClock } from "../support/clock.ts";
import { logReceiver } from "../support/log_receiver.ts";
import { closedPort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

const LINE = {
  time: "2026-11-21T02:03:39.437Z",
  request_id: "r1",
  trace_id: "0af7651916cd43dd8448eb211c80319c",
  span_id: "b7ad6b7169203331",
  client_ip: "2001:db8::1",
  method: "GET",
  scheme: "https",
  host: "[2001:db8::2]:8443",
  path: '/a "b"',
  protocol: "HTTP/2.0",
  tls: "TLSv1.3",
  status: 502,
  code: "upstream_reset",
  bytes_received: 0,
  bytes_sent: 341,
  service: "s",
  route: "/{id}",
  upstream: null,
  duration_ms: 11.26,
};

/** Lines to a receiver at `url`. */
function sending(url: string) {
  const clock = manualClock();
  const { log, lines: said } = recordedLog();
  const exporter = new OtlpExporter({ settings: { url }, signal: "Logs", clock, log, random: () => 0.5 });
  const lines = new LogLines(() => 1_000);
  lines.sendBy(exporter);
  onTestFinished(() => lines.close());
  return { clock, said, lines, exporter };
}

const programLine = (message: string) => JSON.stringify({ time: LINE.time, level: "info", message });
const accessLine = (changes: object = {}) => `${JSON.stringify({ ...LINE, ...changes })}\n`;

it("a line of the access log has the names of the semantic conventions, its trace and its span", async () => {
  const to = await logReceiver();
  const { lines } = sending(to.url);
  lines.access(accessLine() + accessLine({ status: null, code: "client_closed", method: "BREW", host: null }));
  await lines.close();
  const [first, second] = to.lines;
  expect(first).toEqual({
    time: BigInt(Date.parse(LINE.time)) * 1_000_000n,
    observed: 1_000_000_000n,
    severity: 17,
    severityText: "ERROR",
    body: 'GET /a "b" 502 upstream_reset',
    traceId: LINE.trace_id,
    spanId: LINE.span_id,
    attributes: {
      "edge_gateway.log": "access",
      "http.request.method": "GET",
      "url.scheme": "https",
      "server.address": "2001:db8::2",
      "server.port": 8443n,
      "network.protocol.version": "2",
      "tls.protocol.name": "tls",
      "tls.protocol.version": "1.3",
      "error.type": "upstream_reset",
      "edge_gateway.request_id": "r1",
      "client.address": "2001:db8::1",
      "url.path": '/a "b"',
      "http.response.status_code": 502n,
      "edge_gateway.code": "upstream_reset",
      "http.request.body.size": 0n,
      "http.response.body.size": 341n,
      "edge_gateway.service": "s",
      "edge_gateway.route": "/{id}",
      "edge_gateway.duration_ms": 11.26,
    },
  });
  expect(second).toMatchObject({
    severity: 9,
    body: 'BREW /a "b" client_closed',
    attributes: { "http.request.method": "_OTHER", "http.request.method_original": "BREW" },
  });
});

it("a line in the combined format is sent as it is, and one of the program with its fields", async () => {
  const to = await logReceiver();
  const { lines } = sending(to.url);
  lines.access('::1 - - [21/Nov/2026:02:03:39 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"\n');
  const log = createLog({ level: "warn", format: "json", write: lines.program, wall: () => 5 });
  log.info("below the level");
  log.error("it\u0007 failed", {
    trace_id: LINE.trace_id,
    n: 1.5,
    off: false,
    none: null,
    missing: undefined,
    list: [1, null, { a: "b" }],
    deep: { a: { b: { c: { d: { e: { f: 1 } } } } } },
    date: new Date(0),
    nan: NaN,
  });
  await lines.close();
  expect(to.lines).toMatchObject([
    { severity: 9, body: '::1 - - [21/Nov/2026:02:03:39 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"' },
    { severity: 17, body: "it\u0007 failed", time: 5_000_000n, traceId: LINE.trace_id, spanId: undefined },
  ]);
  expect(to.lines[1]!.attributes).toEqual({
    "edge_gateway.log": "program",
    "edge_gateway.n": 1.5,
    "edge_gateway.off": false,
    "edge_gateway.list": [1n, null, { a: "b" }],
    "edge_gateway.deep": { a: { b: { c: { d: { e: '{"f":1}' } } } } },
    "edge_gateway.date": "1970-01-01T00:00:00.000Z",
  });
});

it("lines of the start are sent once the gateway is there, and lines after the end are counted as lost", async () => {
  const to = await logReceiver();
  const lines = new LogLines();
  lines.program(programLine("early"));
  const { exporter } = sending(to.url);
  lines.sendBy(exporter);
  await lines.close();
  expect(to.lines.map(({ body }) => body)).toEqual(["early"]);
  lines.program(programLine("late"));
  lines.access(accessLine());
  expect(lines.lost).toBe(2);
});

it(
  "a flood for a receiver that never answers takes 8192 places, the others are counted, " +
    "and the end waits a second",
  async () => {
    const to = await logReceiver({ status: 0 });
    const { clock, lines, said } = sending(to.url);
    lines.access(accessLine().repeat(10_000));
    // One batch of 512 has left the queue for the receiver.
    expect(lines.lost).toBe(10_000 - 512 - 8_192);
    await eventually(() => to.asked() === 1);
    const closed = lines.close();
    clock.advance(900);
    await closed;
    expect(lines.lost).toBe(10_000);
    expect(said.map(({ message }) => message)).toEqual(new Array(2).fill("log lines for the collector were lost"));
  },
);

it("the last line goes to a receiver that has taken those before, and delays the end for no other", async () => {
  const to = await logReceiver();
  const { lines } = sending(to.url);
  lines.program(programLine("one"));
  await lines.drain();
  lines.program(programLine("stopped"));
  await lines.close();
  expect([to.lines.map(({ body }) => body), lines.lost]).toEqual([["one", "stopped"], 0]);
  const silent = await logReceiver({ status: 0 });
  const other = sending(silent.url);
  other.lines.program(programLine("one"));
  const drained = other.lines.drain();
  await eventually(() => silent.asked() === 1);
  other.clock.advance(900);
  await drained;
  other.lines.program(programLine("stopped"));
  await other.lines.close();
  expect([silent.asked(), other.lines.lost]).toEqual([1, 2]);
});

it("a receiver that answers 503 and comes back gets the batch again, one that answers 500 does not", async () => {
  const answers = { status: 503 };
  const to = await logReceiver(answers);
  const { clock, lines } = sending(to.url);
  lines.program(programLine("kept"));
  clock.advance(1_000);
  await eventually(() => to.asked() === 1);
  answers.status = 200;
  await eventually(() => {
    if (to.asked() === 1) clock.advance(1_000);
    return to.asked() === 2;
  });
  expect([to.lines.at(-1)!.body, lines.lost]).toEqual(["kept", 0]);
  answers.status = 500;
  lines.program(programLine("lost"));
  await eventually(() => {
    if (to.asked() === 2) clock.advance(1_000);
    return lines.lost === 1;
  });
  answers.status = 200;
  lines.program(programLine("later"));
  await lines.close();
  expect([to.asked(), lines.lost, to.lines.at(-1)!.body]).toEqual([4, 1, "later"]);
});

it("counts the lines that a receiver rejects, and all where nothing listens", async () => {
  const to = await logReceiver({
    status: 200,
    body: '{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"old"}}',
  });
  const { lines, said } = sending(to.url);
  lines.access(accessLine().repeat(3));
  await lines.close();
  expect(lines.lost).toBe(1);
  expect(said).toMatchObject([{ lines: 1, error: "the collector rejected them: old" }]);
  const gone = sending(`http://127.0.0.1:${await closedPort()}/v1/logs`);
  gone.lines.access(accessLine().repeat(3));
  const closed = gone.lines.close();
  await eventually(() => {
    gone.clock.advance(100);
    return gone.lines.lost === 3;
  });
  await closed;
});
