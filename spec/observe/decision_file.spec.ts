/** Decisions that outlive the program in a file, and what is made of a file that is not what was written. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { StateFolder } from "../../lib/base/state_folder.ts";
import { DecisionFile } from "../../lib/observe/decision_file.ts";
import { learnNames } from "../../lib/observe/decision_reader.ts";
import { SLOT_BYTES } from "../../lib/observe/decisions.ts";
import { madeUpTools } from "../support/exercise.ts";
import { emptyFolder } from "../support/process.ts";
import { random } from "../support/random.ts";
import { KEYS, LIMIT, remembering, tried } from "../support/remembered.ts";

const HEAD = 64;
const RECORD = SLOT_BYTES + 4;
const FILES = ["decision_names", "decisions"];

/**
 * A program with this folder. `before`: requests that end before the file is looked at. `kill`: it ends without
 * writing, as with SIGKILL.
 */
async function started(path: string, count: number | undefined = 100, before: readonly string[] = []) {
  const all = remembering(count);
  for (const id of before) all.end(id);
  const { log, lines } = madeUpTools();
  const folder = await StateFolder.open(path);
  const { metrics, clock } = all;
  const decisions = metrics.decisions!;
  const file = new DecisionFile({ folder, metrics, decisions, clock, log });
  decisions.kept = file;
  let isOver = false;
  const kill = async () => {
    if (!isOver) await folder.close();
    isOver = true;
  };
  onTestFinished(kill);
  const close = async () => {
    await file.close();
    await kill();
  };
  const said = () => lines.map(({ level, message }) => `${level}: ${message}`);
  return { ...all, file, lines, said, kill, close, errors: () => folder.failures };
}

type Program = Awaited<ReturnType<typeof started>>;

async function present({ find }: Pick<Program, "find">, from: number, to: number): Promise<number[]> {
  const found: number[] = [];
  for (let i = from; i < to; i++) if ((await find(`r${i}`)) !== null) found.push(i);
  return found;
}

const upTo = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);
const written = (folder: string) => readdirSync(folder).filter((name) => !name.startsWith("lock-"));

describe("decisions in STATE_DIR", () => {
  it("are the same after the end of a program, with their names, tries and rules", async () => {
    const folder = emptyFolder();
    const first = await started(folder);
    first.end("r1", {}, { service: "shop", route: "items", tried: tried("b", 200, 3.25, tried("a", null, 1)) });
    first.end(
      "r2",
      {},
      { status: 429, code: "rate_limited", by: { name: "rate_limit", scope: LIMIT }, rule: "limit_min" },
    );
    first.end("r3", {}, { status: null, code: null }, true);
    const before = [await first.find("r1"), await first.find("r2"), await first.find("r3")];
    expect(before[1]).toMatchObject({ by: "rate_limit", rule: "limit_min" });
    await first.close();
    expect(written(folder).sort()).toEqual(FILES);
    for (const name of FILES) expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600);
    const second = await started(folder);
    expect([await second.find("r1"), await second.find("r2"), await second.find("r3")]).toEqual(before);
    expect(second.lines).toEqual([]);
  });

  it("are written, too, where they ended before the code that writes them was there", async () => {
    const folder = emptyFolder();
    const first = await started(folder, 100, ["r0"]);
    await first.file.save();
    await first.kill();
    expect(await present(await started(folder), 0, 1)).toEqual([0]);
  });

  it("are kept by a program that ends before it has read them", async () => {
    const folder = emptyFolder();
    for (const id of ["r0", "r1", "r2"]) {
      const program = await started(folder);
      program.end(id);
      await program.close();
    }
    expect(await present(await started(folder), 0, 3)).toEqual([0, 1, 2]);
  });

  it(
    "are written half a second after they have changed, " + "without those of the last half second where it is killed",
    async () => {
      const folder = emptyFolder();
      const first = await started(folder);
      first.end("r0");
      first.clock.advance(500);
      await first.file.save();
      first.end("r1");
      await first.kill();
      const second = await started(folder);
      expect(await present(second, 0, 2)).toEqual([0]);
    },
  );

  it("are not written where nothing has changed, and only those that have", async () => {
    const folder = emptyFolder();
    const program = await started(folder);
    await program.file.save();
    expect(written(folder)).toEqual([]);
    for (let i = 0; i < 100; i++) program.end(`r${i}`);
    await program.file.save();
    const before = readFileSync(join(folder, "decisions"));
    const { mtimeMs } = statSync(join(folder, "decisions"));
    await program.file.save();
    expect(statSync(join(folder, "decisions")).mtimeMs).toBe(mtimeMs);
    program.end("r100");
    await program.file.save();
    const after = readFileSync(join(folder, "decisions"));
    const changed = upTo(0, 100).filter((i) => {
      const at = HEAD + i * RECORD;
      return !before.subarray(at, at + RECORD).equals(after.subarray(at, at + RECORD));
    });
    expect([before.length, changed]).toEqual([HEAD + 100 * RECORD, [0]]);
  });

  it.each([1, 63, 64, 100, 1_234])("of %d are the last ones after each of several programs", async (count) => {
    const folder = emptyFolder();
    let next = 0;
    for (const more of [3, count - 1, count + 7, 2 * count]) {
      const program = await started(folder, count);
      expect(await present(program, Math.max(0, next - count - 5), next)).toEqual(
        upTo(Math.max(0, next - count), next),
      );
      const half = next + Math.ceil(more / 2);
      for (; next < half; next++) program.end(`r${next}`);
      await program.file.save();
      for (; next < half + Math.floor(more / 2); next++) program.end(`r${next}`);
      await program.close();
    }
  });

  it.each([
    [100, 10],
    [10, 100],
    [64, 63],
    [1, 1_000],
  ])("are the newest where another program keeps %d, then %d", async (before, after) => {
    const folder = emptyFolder();
    const first = await started(folder, before);
    for (let i = 0; i < 250; i++) first.end(`r${i}`);
    await first.close();
    const second = await started(folder, after);
    second.end("r250");
    const stay = Math.min(before, after - 1);
    expect(await present(second, 0, 251)).toEqual(upTo(250 - stay, 251));
    await second.close();
    const third = await started(folder, after);
    expect(await present(third, 0, 251)).toEqual(upTo(250 - stay, 251));
  });

  it("follow a reload that changes how many are kept, and one to 0 removes them, and the rest of a crash", async () => {
    const folder = emptyFolder();
    const first = await started(folder);
    for (let i = 0; i < 50; i++) first.end(`r${i}`);
    await first.file.save();
    await first.reload(20);
    await first.close();
    const second = await started(folder, 20);
    expect(await present(second, 0, 50)).toEqual(upTo(30, 50));
    await second.reload(200);
    second.end("r50");
    await second.close();
    const third = await started(folder, 200);
    expect(await present(third, 0, 51)).toEqual(upTo(30, 51));
    for (const name of FILES) writeFileSync(join(folder, `${name}.new`), "x");
    await third.reload(0);
    await third.file.save();
    expect(written(folder)).toEqual([]);
  });

  it("are read also where a reload comes before", async () => {
    const folder = emptyFolder();
    const first = await started(folder);
    for (let i = 0; i < 50; i++) first.end(`r${i}`);
    await first.close();
    const second = await started(folder);
    await second.reload(30);
    expect(await present(second, 0, 50)).toEqual(upTo(20, 50));
  });

  it("go on where their numbers begin again", async () => {
    const folder = emptyFolder();
    const first = await started(folder);
    const ring = first.metrics.decisions!.ring!;
    ring.words[0] = ring.lap - 130;
    for (let i = 0; i < 250; i++) {
      first.end(`r${i}`);
      if (i % 40 === 0) await first.file.save();
    }
    await first.close();
    const second = await started(folder);
    expect(await present(second, 0, 250)).toEqual(upTo(150, 250));
  });

  it("have those that a thread was writing to, half a second later", async () => {
    const folder = emptyFolder();
    const first = await started(folder);
    const ring = first.metrics.decisions!.ring!;
    first.end("r0");
    const number = ring.begin();
    await first.file.save();
    ring.bytes.copyWithin(ring.at(number) + 4, ring.at(number - 1) + 4, ring.at(number - 1) + SLOT_BYTES);
    ring.bytes.write("r1", ring.at(number) + 56);
    ring.end(number);
    await first.file.save();
    await first.kill();
    const second = await started(folder);
    expect(await present(second, 0, 2)).toEqual([0, 1]);
  });

  it("are not written for ever where a thread ended while it wrote one", async () => {
    const folder = emptyFolder();
    const program = await started(folder);
    program.metrics.decisions!.ring!.begin();
    for (let i = 0; i < 2; i++) await program.file.save();
    const { mtimeMs } = statSync(join(folder, "decisions"));
    for (let i = 0; i < 2; i++) await program.file.save();
    expect(statSync(join(folder, "decisions")).mtimeMs).toBe(mtimeMs);
  });

  it("have no names that are unknown to both programs, and all others", async () => {
    const folder = emptyFolder();
    const first = await started(folder);
    first.end("r0", {}, { service: "shop", route: "items", status: 403, by: { name: "key_auth", scope: KEYS } });
    await first.close();
    writeFileSync(join(folder, "decision_names"), "x");
    const second = await started(folder);
    expect(await second.find("r0")).toMatchObject({ service: "shop", route: "items", by: "key_auth" });
  });

  it(
    "are written as a whole again where the file is moved away, " + "and a failure is logged once a minute and counted",
    async () => {
      const folder = emptyFolder();
      const program = await started(folder);
      program.end("r0");
      await program.file.save();
      rmSync(join(folder, "decisions"));
      program.end("r1");
      await program.file.save();
      expect(statSync(join(folder, "decisions")).size).toBe(HEAD + 100 * RECORD);
      rmSync(join(folder, "decisions"));
      mkdirSync(join(folder, "decisions.new"));
      for (let i = 2; i < 5; i++) {
        program.end(`r${i}`);
        await program.file.save();
      }
      expect([program.errors(), program.said()]).toEqual([
        3,
        ["error: decisions cannot be written, and are kept in memory only"],
      ]);
      rmSync(join(folder, "decisions.new"), { recursive: true });
      await program.file.save();
      expect(program.said().at(-1)).toBe("info: decisions are written again");
      await program.close();
      expect(await present(await started(folder), 0, 5)).toEqual(upTo(0, 5));
    },
  );
});

describe("names of decisions", () => {
  it("of a large configuration are learned, written and read in many slices, and all are there", async () => {
    const folder = emptyFolder();
    const names = (count: number) => Array.from({ length: count }, (_, i) => `route ${i}`);
    const first = await started(folder);
    const plan = first.metrics.plan(100, undefined, new Set(names(30_000)));
    plan.apply();
    const { decisions } = first.metrics;
    const learning = learnNames(decisions!, plan);
    expect(decisions!.names.size).toBeLessThan(30_000);
    await learning;
    expect(decisions!.names.size).toBeGreaterThan(30_000);
    first.end("r0", {}, { route: "route 29999" });
    await first.close();
    const lines = readFileSync(join(folder, "decision_names"), "utf8").split("\n");
    expect(lines.length).toBeGreaterThan(60);
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThan(10_000);
    const second = await started(folder);
    expect(await second.find("r0")).toMatchObject({ route: "route 29999" });
    expect(second.metrics.decisions!.names.size).toBeGreaterThan(30_000);
  });

  it("are learned once for all who wait for them, and again where they were forgotten meanwhile", async () => {
    const { metrics } = remembering();
    const decisions = metrics.decisions!;
    const plan = metrics.plan(100, undefined, new Set(upTo(0, 30_000).map(String)));
    const learning = learnNames(decisions, plan);
    expect(learnNames(decisions, plan)).toBe(learning);
    decisions.maxNames = decisions.names.size;
    decisions.numberOf("another");
    decisions.maxNames = 2 ** 16;
    await learning;
    const known = new Set(decisions.names.values());
    expect(upTo(0, 30_000).filter((i) => !known.has(String(i)))).toEqual([]);
  });
});

describe("decisions whose writing or removal fails", () => {
  it(
    "are tried again after twice the time each, a minute at most, " + "and after half a second once it has worked",
    async () => {
      const folder = emptyFolder();
      const program = await started(folder);
      mkdirSync(join(folder, "decisions.new"));
      program.end("r0");
      const { clock } = program;
      const after = clock.after.bind(clock);
      const pauses: number[] = [];
      let paused = () => {};
      clock.after = (ms, run) => {
        pauses.push(ms);
        paused();
        return after(ms, run);
      };
      const save = (ms: number) => {
        const next = new Promise<void>((resolve) => (paused = resolve));
        clock.advance(ms);
        return next;
      };
      await save(500);
      for (let i = 0; i < 8; i++) await save(pauses.at(-1)!);
      expect(pauses).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
      expect(program.errors()).toBe(9);
      rmSync(join(folder, "decisions.new"), { recursive: true });
      await save(60_000);
      expect(pauses.at(-1)).toBe(500);
      expect(program.errors()).toBe(9);
    },
  );

  it("are not removed: it is logged as that, and they are once that is possible", async () => {
    const folder = emptyFolder();
    const program = await started(folder);
    program.end("r0");
    await program.file.save();
    mkdirSync(join(folder, "decision_names.new"));
    await program.reload(0);
    await program.file.save();
    expect(written(folder)).toEqual(["decision_names.new"]);
    rmSync(join(folder, "decision_names.new"), { recursive: true });
    await program.file.save();
    expect(program.said()).toEqual(["error: decisions cannot be removed", "info: decisions are removed"]);
  });
});

describe("a file of decisions that is not what was written", () => {
  async function fileOf(count: number) {
    const folder = emptyFolder();
    const program = await started(folder, count);
    for (let i = 0; i < count; i++) program.end(`r${i}`, {}, { tried: tried("a", 200, 1) });
    await program.close();
    return { folder, content: readFileSync(join(folder, "decisions")) };
  }

  it.each<readonly [string, (path: string) => void, string]>([
    ["is empty", (path) => writeFileSync(path, ""), "it is damaged"],
    ["is another one", (path) => writeFileSync(path, Buffer.alloc(5_000, "x")), "it is damaged"],
    [
      "is of another version",
      (path) => writeFileSync(path, "edge-gateway decisions 1 100 0".padEnd(63) + "\n"),
      'it has the format "edge-gateway decisions 1"',
    ],
    [
      "has another number of them",
      (path) => writeFileSync(path, readFileSync(path, "latin1").replace(" 100 ", " 900 "), "latin1"),
      "it is damaged",
    ],
    ["is a folder", (path) => (rmSync(path), mkdirSync(path)), "EISDIR"],
    [
      "leads nowhere",
      (path) => (rmSync(path), symlinkSync(`${path}.loop`, `${path}.loop`), symlinkSync(`${path}.loop`, path)),
      "ELOOP",
    ],
  ])("%s: it is logged why, and requests are remembered as ever", async (_title, damage, why) => {
    const { folder } = await fileOf(100);
    damage(join(folder, "decisions"));
    const program = await started(folder);
    program.end("r200");
    expect(await present(program, 0, 201)).toEqual([200]);
    expect(program.lines).toMatchObject([{ level: "warn", message: "decisions of the previous run cannot be used" }]);
    expect(String(program.lines[0]!.fields!["error"])).toContain(why);
  });

  it("is one of too many: nothing is read", async () => {
    const folder = emptyFolder();
    const facts = "edge-gateway decisions 2 2000000000";
    const { textHash } = await import("../../lib/base/mix.ts");
    writeFileSync(join(folder, "decisions"), `${`${facts} ${textHash(facts).toString(16)}`.padEnd(63)}\n`);
    const program = await started(folder);
    expect(program.said()).toEqual(["warn: decisions of the previous run cannot be used"]);
  });

  it("is cut off anywhere: what is whole is known, and all else is as ever", async () => {
    const { folder, content } = await fileOf(3);
    for (let size = HEAD; size < content.length; size += 17) {
      writeFileSync(join(folder, "decisions"), content.subarray(0, size));
      const program = await started(folder, 3);
      const whole = Math.min(3, Math.floor((size - HEAD) / RECORD));
      expect(await present(program, 0, 3), `${size} bytes`).toEqual(upTo(0, whole));
      await program.kill();
    }
  });

  it.each([1, 2, 3])("has other bytes anywhere: no decision is wrong, and nothing fails (seed %d)", async (seed) => {
    const { folder, content } = await fileOf(20);
    const { int, list } = random(seed);
    const right = await started(folder, 20);
    const known = await Promise.all(upTo(0, 20).map((i) => right.find(`r${i}`)));
    await right.kill();
    for (let round = 0; round < 40; round++) {
      const damaged = Buffer.from(content);
      for (const at of list(1, 5, () => int(0, damaged.length - 1))) damaged[at] = int(0, 255);
      writeFileSync(join(folder, "decisions"), damaged);
      const program = await started(folder, 20);
      for (let i = 0; i < 20; i++) {
        const found = await program.find(`r${i}`);
        if (found !== null) expect(found, `round ${round}`).toEqual(known[i]);
      }
      await program.kill();
    }
  });

  it.each([1, 2])(
    "has a right checksum and any content: it is read or left out, and nothing fails (seed %d)",
    async (seed) => {
      const { folder, content } = await fileOf(20);
      const { int, pick } = random(seed);
      for (let round = 0; round < 40; round++) {
        const forged = Buffer.from(content);
        for (let slot = 0; slot < 20; slot++) {
          const record = forged.subarray(HEAD + slot * RECORD, HEAD + (slot + 1) * RECORD);
          const at = int(1, 24) * 8;
          if (int(0, 1) === 0) record.writeDoubleLE(pick([NaN, Infinity, -Infinity, -1, 1e300, 8.64e15, 2 ** 53]), at);
          else record.writeInt32LE(pick([-1, 0x7fffffff, 0, 0xffff]), pick([0, 4]));
          record.writeInt32LE(checksumOf(record), SLOT_BYTES);
        }
        writeFileSync(join(folder, "decisions"), forged);
        const program = await started(folder, 20);
        for (let i = 0; i < 20; i++) expect(() => JSON.stringify(program.find(`r${i}`))).not.toThrow();
        for (let i = 0; i < 20; i++) await program.find(`r${i}`);
        await program.kill();
      }
    },
  );

  it.each(["{}", "[1, null, {}]", '["[\\"x", "[\\"route\\"]", "[1]"]', "[", ""])(
    "has names that are none (%s): decisions are there without them",
    async (names) => {
      const { folder } = await fileOf(3);
      const digest = createHash("sha256").update(names).digest("hex");
      writeFileSync(join(folder, "decision_names"), `${digest}\n${names}`);
      expect(await present(await started(folder, 3), 0, 3)).toEqual([0, 1, 2]);
    },
  );

  it.each<readonly [string, (path: string) => void, string]>([
    ["is a folder", (path) => (rmSync(path), mkdirSync(path)), "it is a folder"],
    ["is a FIFO", (path) => (rmSync(path), execFileSync("mkfifo", [path])), "it is a FIFO, not a file"],
    ["is damaged", (path) => writeFileSync(path, "x"), "it is damaged"],
  ])("has names whose file %s: it is logged, and decisions are there without them", async (_title, damage, why) => {
    const { folder } = await fileOf(3);
    const file = join(folder, "decision_names");
    damage(file);
    const program = await started(folder, 3);
    expect(await present(program, 0, 3)).toEqual([0, 1, 2]);
    expect(program.lines).toMatchObject([
      { level: "warn", message: "names in decisions of the previous run cannot be used", fields: { file } },
    ]);
    expect(String(program.lines[0]!.fields!["error"])).toContain(why);
  });

  it("of which a part is damaged says how many are lost", async () => {
    const { folder, content } = await fileOf(20);
    content[HEAD + 3 * RECORD + 100]! ^= 1;
    content[HEAD + 5 * RECORD + 203]! ^= 1;
    writeFileSync(join(folder, "decisions"), content);
    const program = await started(folder, 20);
    expect(await present(program, 0, 20)).toEqual(upTo(0, 20).filter((i) => i !== 3 && i !== 5));
    expect(program.lines).toMatchObject([
      {
        level: "warn",
        message: "decisions of the previous run are lost: records in the file are damaged",
        fields: { lost: 2 },
      },
    ]);
  });
});

/** As `decision_file.ts` has it: FNV-1a over words, mixed. */
function checksumOf(record: Buffer): number {
  let sum = 0x811c9dc5;
  for (let at = 0; at < SLOT_BYTES; at += 4) sum = Math.imul(sum ^ record.readInt32LE(at), 0x01000193);
  sum = Math.imul(sum ^ (sum >>> 16), 0x85ebca6b);
  sum = Math.imul(sum ^ (sum >>> 13), 0xc2b2ae35);
  return sum ^ (sum >>> 16);
}
