import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const MAIN = fileURLToPath(new URL("./main.ts", import.meta.url));
const LOADER = new URL("../../node_modules/tsx/dist/loader.mjs", import.meta.url).href;

function bench(...words: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, ["--import", LOADER, MAIN, ...words], (error, stdout, stderr) => {
      resolve({ code: Number(error?.code ?? 0), stdout, stderr });
    });
  });
}

describe("npm run bench", () => {
  it("lists the benchmarks when the name is missing or unknown", async () => {
    for (const { code, stderr } of await Promise.all([bench(), bench("nothing"), bench("toString")])) {
      expect(code).toBe(2);
      for (const name of ["chain", "limiter", "peers", "profile", "router", "soak", "start"])
        expect(stderr).toMatch(new RegExp(`^  ${name}`, "m"));
    }
  });

  it("shows the arguments of peers and profile", async () => {
    const [peers, profile] = await Promise.all([bench("peers", "--help"), bench("profile", "--help")]);
    expect(peers).toMatchObject({ code: 0, stderr: "" });
    expect(peers.stdout).toContain(
      "small, guarded, large, post, pieces, routes, https, http2, connections, idle, paced",
    );
    expect(profile).toMatchObject({ code: 0, stderr: "" });
    expect(profile.stdout).toContain("small, guarded, large, post, pieces, routes, https, http2, connections;");
  });

  it("refuses unknown arguments of peers and profile before measuring anything", async () => {
    const cases = [
      [["peers", "smal"], 'there is no scenario "smal"'],
      [["peers", "--rounds", "0"], "--rounds is a number from 1 to 50"],
      [["peers", "--seconds", "0.5"], "--seconds is a number from 1 to 60"],
      [["profile", "idle"], 'there is no scenario "idle" to profile'],
      [["profile", "--top", "x"], "--top is a number from 1 to 1000"],
    ] as const;
    const answers = await Promise.all(cases.map(([words]) => bench(...words)));
    expect(answers.map(({ code, stdout }) => [code, stdout.split("\n", 1)[0]])).toEqual(
      cases.map(([, fault]) => [1, fault]),
    );
  });
});
