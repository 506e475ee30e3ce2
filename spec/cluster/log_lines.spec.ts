import { describe, expect, it } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import { sentLines } from "../../lib/cluster/log_lines.ts";

describe("the log of a worker", () => {
  it("sends at most 10,000 lines that the main thread has not written, and then says how many are lost", () => {
    const words = new Int32Array(new SharedArrayBuffer(8));
    const sent: string[] = [];
    const lines = sentLines(words, 1, (line) => sent.push(line));
    const log = createLog({ write: (line) => lines.add(line, log), wall: () => 0 });
    for (let i = 0; i < 10_007; i++) log.info(`line ${i}`);
    expect(sent).toHaveLength(10_000);
    Atomics.sub(words, 1, 10_000); // all are written
    log.info("another");
    log.info("and another");
    expect(sent.slice(10_000).map((line) => line.replace(/^\S+ /, ""))).toEqual([
      "error lines of this log are lost: they came faster than they could be written lines=7\n",
      "info  another\n",
      "info  and another\n",
    ]);
    expect([...words]).toEqual([0, 3]);
  });
});
