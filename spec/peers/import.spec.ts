import { execFile } from "node:child_process";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { fromOpenApi } from "../cli/import/imported.ts";
import { backend } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { emptyFolder, PROGRAM, startBuilt } from "./built.ts";

/** Folder of a package of published documents. */
const folderOf = (name: string) => dirname(createRequire(import.meta.url).resolve(`${name}/package.json`));
const GITHUB = join(folderOf("@octokit/openapi"), "generated");
const EXAMPLES = folderOf("@readme/oas-examples");

interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the program with at most a gigabyte of JavaScript values. */
function run(...words: string[]): Promise<Ran> {
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      ["--max-old-space-size=1024", PROGRAM, ...words],
      { maxBuffer: 1e9 },
      (error, stdout, stderr) => {
        resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
      },
    );
  });
}

async function imported(file: string, upstream = "http://127.0.0.1:1"): Promise<Ran & { readonly output: string }> {
  const output = join(emptyFolder(), "gw.json");
  const ran = await run("import", "openapi", file, "--upstream", upstream, "--output", output);
  return { ...ran, output };
}

describe("import openapi of published documents", () => {
  it("makes a valid configuration of GitHub's API, in which every operation is a route or is listed", async () => {
    const file = join(GITHUB, "api.github.com.json");
    const { code, stderr, output } = await imported(file);
    expect(code).toBe(0);
    const { paths } = JSON.parse(readFileSync(file, "utf8")) as {
      paths: Record<string, Record<string, { operationId?: string }>>;
    };
    const operations = Object.values(paths)
      .flatMap((item) => Object.values(item))
      .flatMap(({ operationId }) => operationId ?? []);
    const { services } = JSON.parse(readFileSync(output, "utf8")) as {
      services: { routes: { name: string; plugins?: unknown[] }[] }[];
    };
    const names = new Set(services[0]!.routes.map(({ name }) => name));
    const left = operations.filter((id) => !names.has(id));
    const listed = [...stderr.matchAll(/^ {2}paths\["([^"]+)"\]\.(\w+): the route is not carried over/gm)].map(
      ([, path, method]) => paths[path!]![method!]!.operationId,
    );
    expect(left).toEqual(listed);
    expect(services[0]!.routes.length).toBeGreaterThan(1_000);
    expect(services[0]!.routes.filter(({ plugins }) => plugins !== undefined).length).toBeGreaterThan(500);
    expect(await run("validate", output)).toMatchObject({ code: 0, stderr: "" });
  });

  it("serves what GitHub's API describes, and refuses what it does not", async () => {
    const origin = await backend();
    const { output } = await imported(join(GITHUB, "api.github.com.json"), `http://127.0.0.1:${origin.port}`);
    const { port } = await startBuilt(JSON.parse(readFileSync(output, "utf8")));
    const status = async (method: string, path: string, body?: object) => {
      const content =
        body === undefined ? {} : { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
      return (await ask(port, { method, path, ...content })).status;
    };
    expect(await status("POST", "/repos/o/r/issues", { title: "a", labels: ["x"] })).toBe(200);
    expect(await status("POST", "/repos/o/r/issues", { labels: [] })).toBe(400);
    expect(await status("GET", "/users?per_page=5")).toBe(200);
    expect(await status("GET", "/users?per_page=five")).toBe(400);
    expect(await status("DELETE", "/users")).toBe(405);
    expect(await status("GET", "/nothing/here")).toBe(404);
  });

  it("takes documents of more than 50 MB in a bounded memory", { timeout: 240_000 }, async () => {
    const file = join(GITHUB, "api.github.com.deref.json");
    expect(statSync(file).size).toBeGreaterThan(50_000_000);
    const { code, output } = await imported(file);
    expect([code, (await run("validate", output)).code]).toEqual([0, 0]);
  });

  const documents = ["3.0", "3.1"].flatMap((version) => {
    const folder = join(EXAMPLES, version, "json");
    return readdirSync(folder, { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".json"))
      .map((name) => join(folder, name));
  });

  it.each(documents)("makes a valid configuration of %s, or says that it has no paths", async (file) => {
    const document = JSON.parse(readFileSync(file, "utf8")) as { paths?: object };
    if (Object.keys(document.paths ?? {}).length === 0)
      await expect(fromOpenApi(document)).rejects.toThrow('the document has no "paths"');
    else expect((await fromOpenApi(document)).services[0]!.routes.length).toBeGreaterThan(0);
  });

  it("says how to convert a document of Swagger 2.0 and one in YAML", async () => {
    expect(await imported(join(EXAMPLES, "2.0", "json", "petstore.json"))).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/this is Swagger 2\.0: convert it/),
    });
    const yaml = join(emptyFolder(), "api.yaml");
    writeFileSync(yaml, readFileSync(join(EXAMPLES, "3.0", "yaml", "petstore.yaml")));
    expect(await imported(yaml)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/is YAML, or no JSON: convert it first/),
    });
  });
});
