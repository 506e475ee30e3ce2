import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { StateFolder, StateProblem } from "../../lib/base/state_folder.ts";
import { emptyFolder } from "../support/process.ts";

const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8);

describe("a folder of state", () => {
  it("is made with its parents, for its user alone, and so are its files", async () => {
    const path = join(emptyFolder(), "a", "state");
    const folder = await StateFolder.open(path);
    await folder.write("counts", [Buffer.from("one")]);
    expect([modeOf(path), ...readdirSync(path).map((name) => modeOf(join(path, name)))]).toEqual(["700", "600", "600"]);
    await folder.close();
  });

  it("replaces a file as a whole, and leaves nothing beside it", async () => {
    const folder = await StateFolder.open(emptyFolder());
    expect(folder.read("counts")).toBeNull();
    await folder.write("counts", [Buffer.from("one"), Buffer.from("two")]);
    await folder.write("counts", [Buffer.from("three")]);
    expect(String(folder.read("counts"))).toBe("three");
    expect(readdirSync(folder.path).filter((name) => !name.startsWith("lock-"))).toEqual(["counts"]);
    await folder.close();
    expect(readdirSync(folder.path)).toEqual(["counts"]);
  });

  it("has folders in it, for its user alone, with files that are replaced and removed", async () => {
    const folder = await StateFolder.open(emptyFolder());
    mkdirSync(join(folder.path, "acme"), { mode: 0o755 });
    const inner = folder.inner("acme");
    expect(inner.read("account.key")).toBeNull();
    await inner.write("account.key", Buffer.from("one"));
    await inner.write("account.key", Buffer.from("two"));
    expect([modeOf(inner.path), modeOf(join(inner.path, "account.key"))]).toEqual(["700", "600"]);
    expect([String(inner.read("account.key")), readdirSync(inner.path)]).toEqual(["two", ["account.key"]]);
    for (let n = 0; n < 2; n++) await inner.remove("account.key");
    expect(readdirSync(inner.path)).toEqual([]);
    writeFileSync(join(folder.path, "file"), "");
    expect(() => folder.inner("file")).toThrow(StateProblem);
    await folder.close();
  });

  it("a write that fails leaves the former content, and the next one can succeed", async () => {
    const folder = await StateFolder.open(emptyFolder());
    await folder.write("counts", [Buffer.from("one")]);
    mkdirSync(join(folder.path, "counts.new"));
    await expect(folder.write("counts", [Buffer.from("two")])).rejects.toThrow(/EISDIR/);
    expect(String(folder.read("counts"))).toBe("one");
    await folder.close();
  });

  // The system takes what there is room for, as on a disk that is almost full, and says so in the count of bytes alone.
  it("a write that the system takes a part of is no success, and leaves the former content", async () => {
    const path = emptyFolder();
    const module = fileURLToPath(new URL("../../lib/base/state_folder.ts", import.meta.url));
    const script = `const { StateFolder } = await import(${JSON.stringify(module)});
      const folder = await StateFolder.open(${JSON.stringify(path)});
      await folder.write("counts", [Buffer.from("one")]);
      console.log(await folder.write("counts", [Buffer.from("two"), Buffer.alloc(100_000)]).then(() => "written", ({ \
code }) => code));
      await folder.close();`;
    const limited = spawnSync(
      "sh",
      ["-c", 'ulimit -f 64; exec "$0" --import tsx --input-type=module -e "$1"', process.execPath, script],
      {
        encoding: "utf8",
        env: { ...process.env, TSX_DISABLE_CACHE: "1" },
      },
    );
    expect([limited.stdout, limited.stderr]).toEqual(["EFBIG\n", ""]);
    expect(readFileSync(join(path, "counts"), "utf8")).toBe("one");
  });

  it("is refused while another holder uses it, and free once that has closed it", async () => {
    const folder = await StateFolder.open(emptyFolder());
    await expect(StateFolder.open(folder.path)).rejects.toThrow(StateProblem);
    await expect(StateFolder.open(folder.path)).rejects.toThrow(
      /another process uses .*: give each gateway a folder of its own/,
    );
    expect(readdirSync(folder.path)).toHaveLength(1);
    await folder.close();
    await (await StateFolder.open(folder.path)).close();
  });

  it("of many that open it at the same time, at most one gets it", async () => {
    for (let round = 0; round < 20; round++) {
      const path = emptyFolder();
      const opened = await Promise.allSettled(Array.from({ length: 5 }, () => StateFolder.open(path)));
      const held = opened.filter((each) => each.status === "fulfilled");
      expect(held.length).toBeLessThanOrEqual(1);
      for (const each of held) await each.value.close();
      // Whoever comes alone gets it.
      await (await StateFolder.open(path)).close();
    }
  });

  it("what a killed process has left does not hold it, and is removed", async () => {
    const path = emptyFolder();
    const left = net.createServer().listen(join(path, "lock-dead"));
    await new Promise((resolve) => left.once("listening", resolve));
    // Node removes the file of a server that it closes; a killed process leaves it.
    renameSync(join(path, "lock-dead"), join(path, "lock-left"));
    await new Promise<void>((resolve) => left.close(() => resolve()));
    writeFileSync(join(path, "lock-file"), "");
    expect(readdirSync(path)).toHaveLength(2);
    const folder = await StateFolder.open(path);
    expect(readdirSync(path)).toHaveLength(1);
    await folder.close();
  });

  it(
    "is refused where every user may change its files, where it cannot be made, " +
      "and where its path is too long for a socket",
    async () => {
      const open = emptyFolder();
      chmodSync(open, 0o777);
      await expect(StateFolder.open(open)).rejects.toThrow(
        /every user of this machine may change the files in .*chmod o-w/,
      );
      const file = join(emptyFolder(), "file");
      writeFileSync(file, "");
      await expect(StateFolder.open(file)).rejects.toThrow(/cannot be made: EEXIST/);
      await expect(StateFolder.open(join(emptyFolder(), "x".repeat(90)))).rejects.toThrow(/more than 80 bytes/);
      expect(readFileSync(file)).toHaveLength(0);
    },
  );
});
