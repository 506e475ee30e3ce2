/** `npm run build` in a small project of the same shape. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { root } from "../support/documents.ts";

const project = mkdtempSync(join(tmpdir(), "edge-gateway-build-"));
afterAll(() => rmSync(project, { recursive: true, force: true }));
const at = (path: string) => join(project, path);
const PROGRAM = "dist/bin/edge-gateway.js";
const source = (text: string) => writeFileSync(at("bin/edge-gateway.ts"), text);
const program = () => readFileSync(at(PROGRAM), "utf8").split("\n")[0];
const build = () => spawnSync("npm", ["run", "--silent", "build"], { cwd: project, encoding: "utf8" });
/** Without npm, so that it is a child of this process; with the compiler in a group of its own. */
const start = () =>
  spawn(process.execPath, ["--import", "tsx", "build/build.ts"], { cwd: project, stdio: "ignore", detached: true });
/** A file with another inode is another file. */
const files = () =>
  readdirSync(at("dist"), { recursive: true, encoding: "utf8" })
    .sort()
    .map((path) => [path, statSync(at(join("dist", path))).ino]);
const leftOver = () => readdirSync(project).filter((name) => /^\.dist-\d/.test(name));

beforeAll(() => {
  const copied = ["build", "tsconfig.json", "package.json", "package-lock.json", "lib/manager/assets/tsconfig.json"];
  for (const name of copied) cpSync(join(root, name), at(name), { recursive: true });
  symlinkSync(join(root, "node_modules"), at("node_modules"));
  mkdirSync(at("bin"));
  source("console.log(0);\n");
  writeFileSync(at("lib/index.ts"), `export type { Kept } from "./kept.ts";\n`);
  writeFileSync(at("lib/kept.ts"), "/** A comment. */\nexport interface Kept { readonly field: string }\n");
  writeFileSync(at("lib/other.ts"), "/** A comment. */\nexport const other = 1;\n");
  for (const name of ["index.html", "style.css", "pages.css", "icon.svg"])
    writeFileSync(at(`lib/manager/assets/${name}`), name);
  writeFileSync(at("lib/manager/assets/main.ts"), `document.title = "x";\n`);
  expect(build()).toMatchObject({ status: 0, stdout: "", stderr: "" });
}, 60_000);

describe("npm run build", { timeout: 60_000 }, () => {
  it("makes the program, the declarations that the exports need and the pages, with the modes of the package", () => {
    const paths = files()
      .map(([path]) => String(path))
      .filter((path) => /\.\w+$/.test(path));
    const pages = ["icon.svg", "index.html", "main.js", "pages.css", "style.css"].map(
      (name) => `lib/manager/assets/${name}`,
    );
    const modules = ["bin/edge-gateway", "lib/index", "lib/kept", "lib/other"].map((name) => `${name}.js`);
    const others = ["lib/index.d.ts", "lib/kept.d.ts", "lib/modules.json"];
    expect(paths).toEqual([...modules, ...pages, ...others].sort());
    const sums = JSON.parse(readFileSync(at("dist/lib/modules.json"), "utf8")) as Record<string, string>;
    expect(Object.keys(sums)).toEqual([...modules].sort());
    expect([PROGRAM, "dist/lib/index.js"].map((path) => statSync(at(path)).mode & 0o777)).toEqual([0o755, 0o644]);
    expect(readFileSync(at("dist/lib/kept.d.ts"), "utf8")).toBe(
      "/** A comment. */\nexport interface Kept {\n    readonly field: string;\n}\n",
    );
    expect(readFileSync(at("dist/lib/other.js"), "utf8")).toBe("export const other = 1;\n");
  });

  it("compiles nothing if dist is what the sources compile to, even if they were written again", () => {
    const before = files();
    source(readFileSync(at("bin/edge-gateway.ts"), "utf8"));
    expect(build().status).toBe(0);
    expect(files()).toEqual(before);
  });

  it.each([
    ["a file of dist is missing", () => rmSync(at(PROGRAM))],
    ["a file of dist is changed", () => writeFileSync(at(PROGRAM), "half")],
    ["dist has another file", () => writeFileSync(at("dist/lib/left_over.js"), "")],
  ])("compiles again if %s", (_what, prepare) => {
    prepare();
    expect(build().status).toBe(0);
    expect(program()).toBe(readFileSync(at("bin/edge-gateway.ts"), "utf8").trim());
    expect(existsSync(at("dist/lib/left_over.js"))).toBe(false);
  });

  it("leaves dist as it was if the sources do not compile, and says why", () => {
    const [before, text] = [files(), readFileSync(at("bin/edge-gateway.ts"), "utf8")];
    source("const wrong: string = 1;\n");
    const { status, stdout, stderr } = build();
    source(text);
    expect([status, stdout, stderr]).toEqual([
      1,
      expect.stringContaining("bin/edge-gateway.ts(1,7): error"),
      "build: the sources do not compile; dist is as it was\n",
    ]);
    expect([files(), leftOver()]).toEqual([before, []]);
  });

  it("leaves every file readable while it replaces them", async () => {
    source("console.log(1);\n");
    const building = start();
    const seen = new Set<string | undefined>(["console.log(0);"]);
    while (building.exitCode === null) {
      seen.add(program());
      await setImmediate();
    }
    expect([...seen.add(program())]).toEqual(["console.log(0);", "console.log(1);"]);
  });

  it("makes a whole dist, and removes what is left over, after a build that was killed", async () => {
    source("console.log(2);\n");
    const killed = start();
    const ended = once(killed, "exit");
    while (leftOver().length === 0) await setImmediate();
    process.kill(-killed.pid!, "SIGKILL");
    await ended;
    expect(leftOver()).toHaveLength(1);
    expect(build().status).toBe(0);
    expect([program(), leftOver()]).toEqual(["console.log(2);", []]);
  });

  it("makes a whole dist when two run at once", async () => {
    source("console.log(3);\n");
    const codes = await Promise.all([start(), start()].map(async (each) => (await once(each, "exit"))[0]));
    const before = files();
    expect([codes, program(), leftOver()]).toEqual([[0, 0], "console.log(3);", []]);
    expect(build().status).toBe(0);
    expect(files()).toEqual(before);
  });
});
