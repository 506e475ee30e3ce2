import { mkdirSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { atOnce } from "../../lib/base/time_slices.ts";
import { FileTextSource } from "../../lib/config/file_source.ts";
import { formatIssues } from "../../lib/config/load.ts";
import { textSteps } from "../../lib/config/source.ts";
import { signature } from "../../lib/config/watch.ts";
import { textSourceContract } from "../contracts/text_source.ts";
import { emptyFolder, fileWith } from "../support/process.ts";

function opened(path: string, keyFile: string | null = null): FileTextSource {
  const source = new FileTextSource(path, keyFile);
  onTestFinished(() => source.close());
  return source;
}

textSourceContract("file", async () => {
  const file = join(emptyFolder(), "gw.json");
  return {
    source: opened(file, "keys.pem"),
    put(text, signed) {
      if (signed === null) rmSync(`${file}.sig`, { force: true });
      else writeFileSync(`${file}.sig`, signed);
      writeFileSync(file, text);
    },
    remove() {
      rmSync(file);
      rmSync(`${file}.sig`, { force: true });
    },
  };
});

describe("a configuration in a file", () => {
  /** Resolves at the next change. */
  const change = (source: FileTextSource) => new Promise<void>((done) => void source.onChange(done));

  const problemOf = (source: FileTextSource) => {
    const read = atOnce(textSteps(source));
    return read.ok ? null : formatIssues(read.issues);
  };

  it("is one change where it is replaced together with its signature", async () => {
    const file = join(emptyFolder(), "gw.json");
    for (const version of ["..1", "..2"]) {
      mkdirSync(join(dirname(file), version));
      for (const end of ["", ".sig"]) writeFileSync(join(dirname(file), version, `gw.json${end}`), version);
    }
    symlinkSync("..1", join(dirname(file), "..data"));
    for (const end of ["", ".sig"]) symlinkSync(`..data/gw.json${end}`, `${file}${end}`);
    const source = opened(file, "keys.pem");
    let changes = 0;
    source.onChange(() => changes++);
    symlinkSync("..2", join(dirname(file), "..data_tmp"));
    renameSync(join(dirname(file), "..data_tmp"), join(dirname(file), "..data"));
    await expect.poll(() => changes).toBe(1);
    // Later than both files have been looked at.
    writeFileSync(file, "another");
    await expect.poll(() => changes).toBeGreaterThan(1);
    expect(changes).toBe(2);
  });

  it("is missing: says which file it is, and how to name another", () => {
    const file = join(emptyFolder(), "none.json");
    expect(problemOf(opened(file))).toBe(
      `cannot read ${file}: no such file; name another file with --config PATH or CONFIG_FILE_PATH`,
    );
  });

  it("says when the path is a folder", () => {
    expect(problemOf(opened(emptyFolder()))).toContain("it is a folder");
  });

  it("has the name that it was given, and its folder for the names in it", () => {
    const file = fileWith("{}");
    const relative = join("spec", "..", "gw.json");
    expect(opened(relative)).toMatchObject({ name: relative, folder: process.cwd() });
    expect(opened(file)).toMatchObject({ name: file, folder: dirname(file), cause: "file", state: null });
  });

  it("does not read the signature of a file that need not be signed", () => {
    const file = fileWith("{}");
    writeFileSync(`${file}.sig`, "s");
    expect(atOnce(opened(file).current()).signature).toBeNull();
  });

  it("says why there is no signature", () => {
    expect(atOnce(opened(fileWith("{}"), "keys.pem").current())).toMatchObject({
      signature: null,
      whyUnsigned: "no such file",
    });
  });

  it("reports a signature that is replaced", async () => {
    const file = fileWith("{}");
    const source = opened(file, "keys.pem");
    const changed = change(source);
    writeFileSync(`${file}.sig`, "s");
    await changed;
    expect(atOnce(source.current()).signature).toBe("s");
  });

  it("reports a file that is renamed over it, and one where its link leads now (Kubernetes)", async () => {
    const folder = emptyFolder();
    const [first, second, link] = ["one.json", "two.json", "gw.json"].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ];
    writeFileSync(first, '{"a":1}');
    writeFileSync(second, '{"a":2}');
    symlinkSync(basename(first), link);
    const source = opened(link);
    const swapped = change(source);
    unlinkSync(link);
    symlinkSync(basename(second), link);
    await swapped;
    expect(atOnce(source.current()).text.toString()).toBe('{"a":2}');
    const renamed = change(source);
    renameSync(first, link);
    await renamed;
    expect(atOnce(source.current()).text.toString()).toBe('{"a":1}');
  });

  it("does not report what the program itself has written", async () => {
    const file = fileWith("{}");
    const source = opened(file, "keys.pem");
    let changes = 0;
    source.onChange(() => void changes++);
    const beside = `${file}.new`;
    writeFileSync(beside, '{"a":1}');
    source.expect(signature(beside)!);
    renameSync(beside, file);
    // Its report would have come before this one.
    const changed = change(source);
    await new Promise((done) => setTimeout(done, 20));
    writeFileSync(`${file}.sig`, "s");
    await changed;
    expect(changes).toBe(1);
  });
});
