import { describe, expect, it, vi } from "vitest";
import { Writable } from "node:stream";
import { createLog, jsonText, LOG_LEVELS, silentLog, stderrLines, type LogOptions } from "../../lib/base/log.ts";

function collect(options: LogOptions = {}) {
  const lines: string[] = [];
  return {
    lines,
    log: createLog({ write: (line) => void lines.push(line), wall: () => Date.UTC(2026, 0, 1), ...options }),
  };
}

describe("the log", () => {
  it("the log writes one line an event: time, level, message, fields", () => {
    const { lines, log } = collect();
    log.info("listening", { address: "127.0.0.1:8008", workers: 2 });
    log.error("gone");
    expect(lines).toEqual([
      "2026-01-01T00:00:00.000Z info  listening address=127.0.0.1:8008 workers=2\n",
      "2026-01-01T00:00:00.000Z error gone\n",
    ]);
  });

  it("the log quotes text that is not a plain word, so that no field can forge a line or another field", () => {
    const { lines, log } = collect();
    log.warn("odd", { name: "a b=c", forged: "x\n2026 error", none: undefined, empty: "", list: [1] });
    expect(lines).toEqual([
      `2026-01-01T00:00:00.000Z warn  odd name="a b=c" forged="x\\n2026 error" empty="" list=[1]\n`,
    ]);
  });

  it("the log writes one JSON object a line in the format json", () => {
    const { lines, log } = collect({ format: "json" });
    log.warn("odd\nline", { name: "a b" });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^[^\n]+\n$/);
    expect(JSON.parse(lines[0]!)).toEqual({
      time: "2026-01-01T00:00:00.000Z",
      level: "warn",
      message: "odd\nline",
      name: "a b",
    });
  });

  it.each(["text", "json"] as const)(
    "the log has no control character in %s that a terminal would execute",
    (format) => {
      const { lines, log } = collect({ format });
      const reason = "\u001b[2J \u009b2J \u007f";
      log.warn("refused", { reason });
      expect(lines[0]).toMatch(/^[^\x00-\x1f\x7f-\x9f]+\n$/);
      expect(JSON.parse(lines[0]!.slice(lines[0]!.indexOf(format === "json" ? "{" : '"')))).toEqual(
        format === "json" ? expect.objectContaining({ reason }) : reason,
      );
    },
  );

  it.each(LOG_LEVELS)("the log drops events below its level: %s", (level) => {
    const { lines, log } = collect({ level, format: "json" });
    log.debug("");
    log.info("");
    log.warn("");
    log.error("");
    const written = lines.map((line) => (JSON.parse(line) as { level: string }).level);
    expect(written).toEqual(LOG_LEVELS.slice(LOG_LEVELS.indexOf(level)).filter((each) => each !== "silent"));
  });

  it("the log starts at info and writes to standard error by default", () => {
    const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    try {
      const log = createLog();
      log.debug("unsaid");
      log.info("said");
      silentLog.error("unsaid");
      expect(write.mock.calls.map(([line]) => line)).toEqual([
        expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z info  said\n$/),
      ]);
    } finally {
      write.mockRestore();
    }
  });
});

describe("jsonText", () => {
  it("escapes what breaks a line, or turns the direction of what follows, in viewers", () => {
    expect(jsonText("a\u2028\u202eb\u2066\u009b\u00e9")).toBe('"a\\u2028\\u202eb\\u2066\\u009b\u00e9"');
  });

  it("returns JSON that parses to the same value, without any control character", () => {
    const value = { text: 'a "b" \\ \u0000\u001b\u007f\u0085\u009b é \u2028', list: [1, null] };
    expect(jsonText(value)).not.toMatch(/[\x00-\x1f\x7f-\x9f]/);
    expect(JSON.parse(jsonText(value))).toEqual(value);
    expect(jsonText(() => 1)).toBe("null");
  });
});

it("the log holds at most 8 Mi characters for a reader that is slow, and says how many lines are lost", () => {
  const written: string[] = [];
  const finish: (() => void)[] = [];
  const stream = new Writable({
    decodeStrings: false,
    write(line: string, _encoding, done) {
      written.push(line);
      finish.push(done);
    },
  });
  const lines = stderrLines(stream);
  const log = createLog({ level: "error", write: (line) => lines.add(line, log), wall: () => 0 });
  for (let i = 0; i < 100_000; i++) log.error(`line ${i} ${"x".repeat(300)}`);
  expect(stream.writableLength).toBeLessThanOrEqual(8 * 1024 * 1024);
  while (stream.writableLength > 0) finish.shift()!();
  const kept = written.length;
  log.error("another");
  while (stream.writableLength > 0) finish.shift()!();
  expect(written.slice(kept).map((line) => line.slice(25))).toEqual([
    `error lines of this log are lost: they came faster than they could be written lines=${100_000 - kept}\n`,
    "error another\n",
  ]);
});
