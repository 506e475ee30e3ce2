import { describe, expect, it } from "vitest";
import { SHORT_BODY, sizeOfValues, ValueMemory } from "../../lib/json_schema/value_memory.ts";
import { runningProgram } from "../support/process.ts";

const CONFIG = {
  services: [
    {
      name: "s",
      base_path: "/",
      upstreams: [{ host: "127.0.0.1", port: 9 }],
      routes: [
        {
          path: "/x",
          plugins: [
            { name: "request_validation", config: { body: { type: "array" } } },
            { name: "request_termination", config: { status: 204 } },
          ],
        },
      ],
    },
  ],
};

/** `[{},{},…]`: a megabyte of it becomes 21 MiB of heap. */
const emptyObjects = (bytes: number) => `[${"{},".repeat((bytes - 4) / 3)}{}]`;

/** A gateway whose heap has 64 MiB. */
async function smallProgram() {
  const running = await runningProgram(CONFIG, [], { NODE_OPTIONS: "--max-old-space-size=64 --max-semi-space-size=1" });
  const ask = async (body: string) => {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(`http://127.0.0.1:${running.port}/x`, { method: "POST", headers, body });
    return { status: response.status, text: await response.text() };
  };
  return ask;
}

describe("the memory of bodies that are validated", () => {
  it(
    "is bounded by what they become: 40 at once that need 130 MiB are all checked with a heap of 64 MiB",
    { timeout: 120_000 },
    async () => {
      const ask = await smallProgram();
      const answers = await Promise.all(Array.from({ length: 40 }, () => ask(emptyObjects(150_000))));
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([204]));
    },
  );

  it("refuses a body with 413 that never fits, and serves others", { timeout: 120_000 }, async () => {
    const ask = await smallProgram();
    const refused = await ask(emptyObjects(1_000_000));
    expect([refused.status, refused.text]).toEqual([413, expect.stringContaining("more values than fit in memory")]);
    expect((await ask(JSON.stringify(["text ".repeat(200_000)]))).status).toBe(204);
    expect((await ask("[]")).status).toBe(204);
  });
});

describe("memory that tasks share", () => {
  it("goes to them in order of arrival, and back when they end or fail", async () => {
    const memory = new ValueMemory(10);
    const order: string[] = [];
    const open: Record<string, () => void> = {};
    const task = (name: string, bytes: number) =>
      memory.take(bytes, () => {
        order.push(name);
        return new Promise<void>((done, fail) => (open[name] = name === "fails" ? () => fail(new Error(name)) : done));
      });
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    const all = [task("a", 6), task("fails", 4), task("whole", 10), task("small", 1)];
    const outcome = Promise.allSettled(all);
    await turn();
    expect(order).toEqual(["a", "fails"]);
    open.fails!();
    await turn();
    expect(order).toEqual(["a", "fails"]);
    open.a!();
    await turn();
    expect(order).toEqual(["a", "fails", "whole"]);
    open.whole!();
    await turn();
    expect(order).toEqual(["a", "fails", "whole", "small"]);
    open.small!();
    expect((await outcome).map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled", "fulfilled"]);
    expect(await memory.take(10, () => "free")).toBe("free");
  });

  it("is counted by brackets, names and items for long bodies, and by the worst case for short ones", () => {
    const size = (text: string, received = SHORT_BODY + 1) => sizeOfValues(Buffer.from(text), received);
    expect(size('"abc"')).toBe(10);
    expect(size("[{},{}]")).toBeGreaterThan(2 * 64);
    expect(size("[".repeat(50))).toBe(50 * 56);
    expect(size('"abc"', 5)).toBe(5 * 32);
  });
});
