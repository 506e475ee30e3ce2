/** `edge-gateway verify-log` finds every change of an audit log. */
import { appendFileSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { silentLog } from "../../lib/base/log.ts";
import { verifyLog } from "../../lib/cli/verify_log.ts";
import { AuditLog } from "../../lib/observe/audit_log.ts";
import { emptyFolder, fileWith } from "../support/process.ts";

async function logOf(count: number, path = join(emptyFolder(), "audit.log")): Promise<string> {
  const log = new AuditLog({ path, fail: "open", clock: systemClock, log: silentLog });
  await log.start();
  for (let i = 0; i < count; i++) log.add("login", { i });
  await log.close();
  return path;
}

/** What it prints, or the message and exit code of its failure. */
async function verified(operands: readonly string[], flags: Record<string, string | true> = {}): Promise<string> {
  let text = "";
  const write = vi.spyOn(process.stdout, "write").mockImplementation((piece) => ((text += String(piece)), true));
  onTestFinished(() => write.mockRestore());
  try {
    await verifyLog({ command: "verify-log", isNamed: true, operands, flags, repeated: {} }, {});
    return text;
  } catch (error) {
    const { exitCode, message } = error as Error & { exitCode: number };
    return `${exitCode}: ${message}`;
  } finally {
    write.mockRestore();
  }
}

const linesIn = (path: string) => readFileSync(path, "utf8").replace(/\n$/, "").split("\n");

function fileOf(lines: readonly string[]): string {
  return fileWith(lines.map((line) => `${line}\n`).join(""), "audit.log");
}

describe("verify-log", () => {
  it("prints the first and the last seq, and the SHA-256 of the last line", async () => {
    expect(await verified([await logOf(12)])).toMatch(
      /^audit log: first seq 1, last seq 12, SHA-256 of the last line [0-9a-f]{64}\n12 lines in 1 file: whole\n$/,
    );
  });

  it.each(["1: broken: ", "1: broken: torn", "2: cannot read "])(
    "shows no control characters of a file's name, which an attacker may have chosen: %s",
    async (said) => {
      const path = join(emptyFolder(), "a\u001b[2J\r\u009bwhole");
      if (said.startsWith("1")) writeFileSync(path, said.endsWith("torn") ? "{" : '{"seq":2,"prev":""}\n');
      const shown = await verified([path]);
      expect(shown.startsWith(said.replace("torn", ""))).toBe(true);
      expect(shown).toContain("a?[2J??whole");
      expect(shown).not.toMatch(/\p{Cc}/u);
    },
  );

  it(
    "finds each line that was changed in any byte, removed, put in or swapped, but for the end, " +
      "which shows in what it prints",
    async () => {
      const lines = linesIn(await logOf(6));
      const whole = await verified([fileOf(lines)]);
      const broken: string[][] = [];
      lines.forEach((line, i) => {
        for (let at = 0; at < line.length; at += 7)
          broken.push(lines.with(i, line.slice(0, at) + (line[at] === "0" ? "1" : "0") + line.slice(at + 1)));
        broken.push(
          lines.toSpliced(i, 1),
          lines.toSpliced(i, 0, line),
          lines.toSpliced(i, 0, "{}"),
          lines.toSpliced(i, 0, ""),
          lines.with(i, `${line} `),
        );
        for (let other = i + 1; other < lines.length; other++)
          broken.push(lines.with(i, lines[other]!).with(other, line));
      });
      for (const changed of broken) {
        const said = await verified([fileOf(changed)]);
        if (!said.startsWith("1: broken: ")) expect(said).toMatch(/^audit log: /);
        expect(said).not.toBe(whole);
        // Only a change of the very last line, or its loss, is no break of the chain.
        if (!said.startsWith("1: ")) expect(changed.slice(0, 5)).toEqual(lines.slice(0, 5));
      }
    },
  );

  it.each<[string, (lines: string[]) => string[], RegExp]>([
    [
      "changed",
      (lines) => lines.with(2, lines[2]!.replace("login", "logon")),
      /line 4 has a "prev" that is not the SHA-256 of the line before/,
    ],
    ["removed", (lines) => lines.toSpliced(2, 1), /line 3 has seq 4, and 3 must follow 2/],
    [
      "with a former file missing",
      (lines) => lines.slice(2),
      /line 1 has seq 3, and a log begins with 1: give the files before it, or --partial/,
    ],
    ["with a last line that is none", (lines) => [...lines, "x"], /line 6 is torn/],
    ["with a line that never ends", (lines) => [...lines, "x".repeat(200_000)], /line 6 has more than 65536 bytes/],
    ["empty", () => [], /there is no line/],
  ])("says where and what is broken in a log that is %s", async (_what, change, why) => {
    const path = await logOf(5);
    const lines = change(linesIn(path));
    expect(await verified([fileOf(lines)])).toMatch(new RegExp(`^1: broken: .*${why.source}`));
  });

  it("goes on through the files of a rotation, the oldest first, and with --partial begins in the middle", async () => {
    const lines = linesIn(await logOf(9));
    const [one, two, three] = [lines.slice(0, 3), lines.slice(3, 4), lines.slice(4)].map(fileOf) as [
      string,
      string,
      string,
    ];
    expect(await verified([one, two, fileOf([]), three])).toMatch(
      /first seq 1, last seq 9, .*\n9 lines in 4 files: whole/,
    );
    expect(await verified([one, three])).toMatch(/^1: broken: .* line 1 has seq 5, and 4 must follow 3/);
    expect(await verified([three, two])).toMatch(/^1: /);
    expect(await verified([two, three], { partial: true })).toMatch(/first seq 4, last seq 9/);
    expect(await verified([two, fileOf(lines.slice(5))], { partial: true })).toMatch(
      /^1: .* has seq 6, and 5 must follow 4/,
    );
  });

  it("accepts a torn line that a start has ended, and finds a change of it, and of the line before it", async () => {
    const path = await logOf(3);
    appendFileSync(path, '{"seq":4,"ti');
    expect(await verified([path])).toMatch(/^1: broken: .* line 4 is torn/);
    await logOf(2, path);
    expect(await verified([path])).toMatch(/last seq 5, .*\n6 lines in 1 file: whole/);
    const lines = linesIn(path);
    for (const at of [2, 3])
      expect(await verified([fileOf(lines.with(at, lines[at]!.replace("seq", "sep")))])).toMatch(/^1: /);
    expect(await verified([fileOf(lines.with(2, lines[2]!.replace('"i":2', '"i":3')))])).toMatch(
      /^1: broken: .* line 5 has a "torn"/,
    );
    expect(await verified([fileOf(lines.toSpliced(3, 1))])).toMatch(/^1: /);
  });

  it("finds a last line whose newline is missing", async () => {
    const path = await logOf(2);
    truncateSync(path, readFileSync(path).length - 1);
    expect(await verified([path])).toMatch(/^1: broken: .* line 2 is torn/);
  });

  it.each([
    ["/dev/zero", /it is a device, not a file/],
    ["/", /./],
    ["/nowhere", /./],
  ])("exits with 2 for %s, which it cannot read", async (path, why) => {
    expect(await verified([path])).toMatch(new RegExp(`^2: cannot read ${path}: ${why.source}`));
  });

  it("exits with 2 without a file", async () => {
    expect(await verified([])).toMatch(/^2: verify-log needs the files of an audit log/);
  });
});
