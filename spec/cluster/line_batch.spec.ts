import { describe, expect, it, onTestFinished, vi } from "vitest";
import { LineBatch } from "../../lib/cluster/log_lines.ts";

function batch() {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const sent: string[] = [];
  return { sent, lines: new LineBatch((text) => sent.push(text)) };
}

describe("a batch of lines", () => {
  it("sends lines of 50 ms together, in their order", () => {
    const { sent, lines } = batch();
    for (const line of ["a\n", "b\nc\n"]) lines.add(line);
    vi.advanceTimersByTime(49);
    lines.add("d\n");
    expect(sent).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(sent).toEqual(["a\nb\nc\nd\n"]);
    lines.add("e\n");
    vi.advanceTimersByTime(50);
    expect(sent).toEqual(["a\nb\nc\nd\n", "e\n"]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("sends 64 Ki characters at once", () => {
    const { sent, lines } = batch();
    const line = `${"x".repeat(1023)}\n`;
    for (let i = 0; i < 63; i++) lines.add(line);
    expect(sent).toEqual([]);
    lines.add(line);
    expect(sent).toEqual([line.repeat(64)]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("sends at once what it holds when it is flushed, and nothing where it holds nothing", () => {
    const { sent, lines } = batch();
    lines.flush();
    lines.add("a\n");
    lines.flush();
    lines.flush();
    vi.advanceTimersByTime(1_000);
    expect(sent).toEqual(["a\n"]);
  });
});
