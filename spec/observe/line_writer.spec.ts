import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  closeSync,
  constants,
  existsSync,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  stat,
  statSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import { LineWriter } from "../../lib/observe/line_writer.ts";
import { LogFile } from "../../lib/observe/log_file.ts";
import { manualClock } from "../support/clock.ts";
import { emptyFolder, logLines } from "../support/process.ts";
import { eventually } from "../support/raw_client.ts";

/** A pipe of the file system, and what opens it to be read. */
function pipe() {
  const path = join(emptyFolder(), "pipe");
  execFileSync("mkfifo", [path]);
  return { path, reading: () => openSync(path, constants.O_RDONLY | constants.O_NONBLOCK) };
}

function writer<Writer extends LineWriter>(make: (tools: ConstructorParameters<typeof LineWriter>[1]) => Writer) {
  const clock = manualClock();
  let said = "";
  const log = createLog({ format: "json", write: (line) => void (said += line) });
  const lines = make({ log, clock });
  onTestFinished(() => lines.close());
  return { lines, clock, said: () => logLines(said).map(({ level, message, lost }) => [level, message, lost]) };
}

const fileWriter = (path: string) => writer((tools) => new LogFile(path, tools));
const inFolder = () => join(emptyFolder(), "access.log");
const text = (path: string) => readFileSync(path, "utf8");

/** A pipe's, as many bytes as there are now. */
function readSome(reader: number, bytes: Buffer): Buffer {
  try {
    return bytes.subarray(0, readSync(reader, bytes));
  } catch {
    return bytes.subarray(0, 0);
  }
}

describe("a LineWriter", () => {
  it("a LineWriter creates a file with mode 640, and appends to an existing one", async () => {
    const path = inFolder();
    const first = fileWriter(path);
    expect(statSync(path).mode & 0o777).toBe(0o640);
    appendFileSync(path, "before\n");
    first.lines.write("é\n");
    first.lines.write("b\n");
    await first.lines.close();
    expect(text(path)).toBe("before\né\nb\n");
  });

  it("a LineWriter waits 50 ms for more lines, unless 64 Ki characters have come", async () => {
    const path = inFolder();
    const { lines, clock } = fileWriter(path);
    lines.write("a\n");
    clock.advance(49);
    expect(clock.pending).toBe(1);
    clock.advance(1);
    await eventually(() => text(path) === "a\n", "the line in the file");
    const long = `${"x".repeat(64 * 1024)}\n`;
    lines.write(long);
    expect(clock.pending).toBe(0);
    await eventually(() => text(path).endsWith(long), "the long line in the file");
  });

  it(
    "a LineWriter closes its file descriptor only once, " + "since its number may belong to another file later",
    async () => {
      const path = inFolder();
      const { lines, said } = fileWriter(path);
      await lines.close();
      lines.write("late\n");
      expect(said()).toEqual([["error", "lines of the access log are lost", undefined]]);
      // One of these gets the number that has become free.
      const others = Array.from({ length: 8 }, (_none, i) => openSync(`${path}.${i}`, "w"));
      onTestFinished(() => others.forEach((other) => closeSync(other)));
      await lines.close();
      // A close in the background would be over before this reading of it.
      await new Promise((resolve) => stat(path, resolve));
      for (const other of others) expect(fstatSync(other).isFile()).toBe(true);
    },
  );

  it("a LineWriter keeps the order of lines that come while it writes", async () => {
    const path = inFolder();
    const { lines } = fileWriter(path);
    const all = Array.from({ length: 500 }, (_none, i) => `${i} ${"x".repeat(1000)}\n`);
    for (const [i, line] of all.entries()) {
      lines.write(line);
      if (i % 100 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await lines.close();
    expect(text(path)).toBe(all.join(""));
  });

  it(
    "a LineWriter reopens its path: the renamed file keeps its lines, " +
      "the new file gets the rest, and no line is lost",
    async () => {
      const path = inFolder();
      const { lines, clock, said } = fileWriter(path);
      lines.write("old\n");
      clock.advance(50);
      await eventually(() => text(path) === "old\n", "the old line in the file");
      renameSync(path, `${path}.1`);
      lines.reopen();
      lines.write("new\n");
      await lines.close();
      expect([text(`${path}.1`), text(path)]).toEqual(["old\n", "new\n"]);
      expect(said()).toEqual([["info", "the access log has been reopened", undefined]]);
    },
  );

  it("a LineWriter finishes the current write in the old file when its path is reopened, however often", async () => {
    const path = inFolder();
    const { lines } = fileWriter(path);
    const long = `${"x".repeat(64 * 1024)}\n`;
    lines.write(long);
    renameSync(path, `${path}.1`);
    for (let i = 0; i < 3; i++) lines.reopen();
    lines.write("new\n");
    await lines.close();
    expect(text(`${path}.1`) === long).toBe(true);
    expect(text(path)).toBe("new\n");
  });

  it("a LineWriter continues with the old file when the path cannot be reopened, and logs the error", async () => {
    const folder = emptyFolder();
    const path = join(folder, "logs");
    const { lines, said } = fileWriter(path);
    renameSync(path, `${path}.1`);
    execFileSync("mkdir", [path]);
    lines.reopen();
    lines.write("a\n");
    await lines.close();
    expect(text(`${path}.1`)).toBe("a\n");
    expect(said()).toEqual([["error", "the access log cannot be reopened; lines still go to the old file", undefined]]);
  });

  it.each([["/nowhere/at/all/access.log"], ["/"]])("a LineWriter throws when %s cannot be opened", (path) => {
    expect(() => fileWriter(path)).toThrow();
  });

  it.skipIf(!existsSync("/dev/full"))(
    "a LineWriter logs once that lines are lost on a full disk, and does not throw",
    async () => {
      const fd = openSync("/dev/full", "w");
      onTestFinished(() => closeSync(fd));
      const { lines, clock, said } = writer((tools) => new LineWriter(fd, tools));
      for (let i = 0; i < 3; i++) {
        lines.write("a\nb\n");
        clock.advance(50);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      await lines.close();
      expect(said()).toEqual([["error", "lines of the access log are lost", undefined]]);
    },
  );

  it(
    "a LineWriter logs once that lines are lost when the reader of a pipe disconnects, " +
      "and their number when a reader returns",
    async () => {
      const { path, reading } = pipe();
      expect(() => fileWriter(path)).toThrow("it is a pipe without a reader");
      let reader = reading();
      const { lines, clock, said } = fileWriter(path);
      closeSync(reader);
      lines.write("a\nb\n");
      clock.advance(50);
      await eventually(() => said().length === 1, "a log line");
      reader = reading();
      onTestFinished(() => closeSync(reader));
      lines.write("c\n");
      await lines.close();
      const bytes = Buffer.alloc(10);
      expect(bytes.toString("latin1", 0, readSync(reader, bytes))).toBe("c\n");
      expect(said()).toEqual([
        ["error", "lines of the access log are lost", undefined],
        ["info", "the access log is written again", 2],
      ]);
    },
  );

  it("a LineWriter waits for the reader of a full pipe, and then writes the rest", async () => {
    const { path, reading } = pipe();
    const reader = reading();
    onTestFinished(() => closeSync(reader));
    const { lines, clock } = fileWriter(path);
    const all = `${"0123456789".repeat(20_000)}\n`;
    lines.write(all);
    const bytes = Buffer.alloc(64 * 1024);
    let read = "";
    await eventually(() => {
      clock.advance(20);
      read += readSome(reader, bytes).toString("latin1");
      return read.length >= all.length;
    }, "all bytes");
    expect(read === all).toBe(true);
  });

  it("a LineWriter does not change a batch that is being written while more lines arrive", async () => {
    const { path, reading } = pipe();
    const reader = reading();
    onTestFinished(() => closeSync(reader));
    const { lines, clock } = fileWriter(path);
    let given = "";
    const give = (count: number) => {
      for (let i = 0; i < count; i++) {
        const line = `${given.length} ${i % 7 === 0 ? "\u20ac\u{1f600}" : "plain"} ${"x".repeat(100 + (i % 50))}\n`;
        given += line;
        lines.write(line);
      }
    };
    const bytes = Buffer.alloc(16 * 1024);
    const read: Buffer[] = [];
    let length = 0;
    const readTo = (most: number) =>
      eventually(() => {
        clock.advance(50);
        read.push(Buffer.from(readSome(reader, bytes)));
        length += read.at(-1)!.length;
        return length >= most;
      }, "the bytes");
    // More than the pipe takes: there is always a batch under way.
    give(600);
    for (let turn = 1; turn < 5; turn++) {
      await readTo(turn * 50_000);
      give(turn === 2 ? 3_000 : 500);
    }
    await readTo(Buffer.byteLength(given));
    expect(Buffer.concat(read).toString() === given).toBe(true);
  });

  it("a LineWriter starts a new line after a truncated line, and counts the truncated line as lost", async () => {
    const { path, reading } = pipe();
    let reader = reading();
    const { lines, clock, said } = fileWriter(path);
    // Longer than what a pipe takes, twice.
    lines.write(`${"x".repeat(500_000)}\n`);
    const bytes = Buffer.alloc(100_000);
    await eventually(() => readSome(reader, bytes).length > 0, "the first bytes");
    closeSync(reader);
    await eventually(() => {
      clock.advance(20);
      return said().length === 1;
    }, "a log line");
    reader = reading();
    onTestFinished(() => closeSync(reader));
    // What the pipe still holds of the long line may fill it: the writer tries again until it is read.
    let read = "";
    const hasRead = (end: string) =>
      eventually(() => {
        clock.advance(50);
        read += readSome(reader, bytes).toString("latin1");
        return read.endsWith(end);
      }, "the line");
    for (const line of ["a\n", "b\n"]) {
      lines.write(line);
      await hasRead(line);
    }
    await lines.close();
    expect(read).toMatch(/^x*\na\nb\n$/);
    expect(said()).toEqual([
      ["error", "lines of the access log are lost", undefined],
      ["info", "the access log is written again", 1],
    ]);
  });

  it("a LineWriter holds at most 8 Mi characters for a slow reader", async () => {
    const { path, reading } = pipe();
    const reader = reading();
    const { lines, clock, said } = fileWriter(path);
    const megabyte = `${"x".repeat(1024 * 1024 - 1)}\n`;
    for (let i = 0; i < 10; i++) lines.write(megabyte);
    expect(said()).toEqual([["error", "lines of the access log are lost", undefined]]);
    closeSync(reader);
    const closed = lines.close();
    await eventually(() => {
      clock.advance(20);
      return said().length === 1;
    }, "a log line");
    clock.advance(20);
    let over = false;
    void closed.then(() => (over = true));
    await eventually(() => {
      clock.advance(20);
      return over;
    }, "the end of the writer");
  });
});
