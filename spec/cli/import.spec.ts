import { execFileSync } from "node:child_process";
import { chmodSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { emptyFolder, fileWith, program } from "../support/process.ts";

const API = { openapi: "3.1.0", info: { title: "api" }, paths: { "/a/{id}": { get: {} }, "/a/{x}{y}": { get: {} } } };
const UPSTREAM = ["--upstream", "http://127.0.0.1:3000"];

const POD = '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}';

const run = (...words: string[]) => program(["import", ...words]).ended;

describe("edge-gateway import", () => {
  it("prints a configuration that validate accepts, and on standard error what is not in it; exit 0", async () => {
    const file = fileWith(API, "api.json");
    const { code, stdout, stderr } = await run("openapi", file, ...UPSTREAM);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ services: [{ name: "api", routes: [{ path: "/a/{id}" }] }] });
    expect(stderr).toMatch(
      new RegExp(
        `^Not carried over as it was, in ${file}:\n {2}paths\\["/a/\\{x\\}\\{y\\}"\\]\\.get: ` +
          `the route is not carried over: .*\n$`,
      ),
    );
    const { code: valid } = await program(["validate", fileWith(stdout)]).ended;
    expect(valid).toBe(0);
  });

  it("prints no character that acts on a terminal", async () => {
    const file = fileWith({
      ...API,
      info: { title: "\u001b[31mred" },
      paths: {
        "/a": { post: { requestBody: { content: { "application/json": { schema: { enum: ["\u009b31m\u007f"] } } } } } },
        "/\u009b31m": { get: {} },
      },
    });
    const { code, stdout, stderr } = await run("openapi", file, ...UPSTREAM);
    expect([code, stdout.includes('"\\u009b31m\\u007f"'), /[^\P{Cc}\n]/u.test(stdout + stderr)]).toEqual([
      0,
      true,
      false,
    ]);
  });

  it("writes no list when all of it is carried over", async () => {
    const { code, stderr } = await run("openapi", fileWith({ ...API, paths: { "/a": { get: {} } } }), ...UPSTREAM);
    expect([code, stderr]).toEqual([0, ""]);
  });

  it("neither reads nor writes a FIFO, which may wait without end", async () => {
    const fifo = join(emptyFolder(), "fifo");
    execFileSync("mkfifo", [fifo]);
    expect(await run("openapi", fifo, ...UPSTREAM)).toMatchObject({ code: 2, stderr: expect.stringContaining("FIFO") });
    expect(await run("openapi", fileWith(API), ...UPSTREAM, "--output", fifo, "--force")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("FIFO"),
    });
  });

  it("writes to --output, readable by its owner only, and replaces a file only with --force", async () => {
    const [file, output] = [fileWith(API), join(emptyFolder(), "gw.json")];
    const words = ["openapi", file, ...UPSTREAM, "--output", output];
    expect(await run(...words)).toMatchObject({ code: 0, stdout: "" });
    expect(statSync(output).mode & 0o777).toBe(0o600);
    writeFileSync(output, "mine");
    expect(await run(...words)).toMatchObject({
      code: 2,
      stderr: `edge-gateway: ${output} is there already: --force replaces it\n`,
    });
    expect(readFileSync(output, "utf8")).toBe("mine");
    chmodSync(output, 0o644);
    expect((await run(...words, "--force")).code).toBe(0);
    expect(statSync(output).mode & 0o777).toBe(0o600);
    expect(JSON.parse(readFileSync(output, "utf8"))).toHaveProperty("services");
    expect(await run("openapi", file, ...UPSTREAM, "--output", "/nowhere/gw.json")).toMatchObject({
      code: 2,
      stderr: "edge-gateway: cannot write /nowhere/gw.json: no such file\n",
    });
  });

  it("names three places of each kind, and all of them with --all", async () => {
    const paths = Object.fromEntries(
      ["a", "b", "c", "d", "e"].map((name) => [`/${name}`, { servers: [{ url: "/" }], get: {} }]),
    );
    const file = fileWith({ ...API, paths });
    expect((await run("openapi", file, ...UPSTREAM)).stderr).toContain(
      'paths["/a"].servers, paths["/b"].servers, paths["/c"].servers and 2 more: only the servers',
    );
    expect((await run("openapi", file, ...UPSTREAM, "--all")).stderr).toContain(
      'paths["/d"].servers, paths["/e"].servers: only the servers',
    );
  });

  it.each([
    ["no source", [], "name what is imported, and its file: edge-gateway import openapi|kong|kubernetes FILE.json"],
    ["no file", ["kong"], "name what is imported, and its file"],
    ["an unknown source", ["express-gateway", "x"], "name what is imported, and its file"],
    ["no --upstream", ["openapi", "x.json"], "--upstream URL is required"],
    [
      "an --upstream that is no URL",
      ["openapi", "x.json", "--upstream", "localhost:3000"],
      '--upstream: expected a URL such as "http://127.0.0.1:3000"',
    ],
    [
      "an --upstream with a password",
      ["openapi", "x.json", "--upstream", "http://u:p@h"],
      "--upstream: expected a URL without user, query and fragment",
    ],
    [
      "--upstream for another source",
      ["kong", "x.json", ...UPSTREAM],
      "--upstream is for openapi: a kong file names its servers itself",
    ],
    ["two files of Kong", ["kong", "a.json", "b.json"], "import kong reads one file"],
    ["--gateway for another source", ["kong", "x.json", "--gateway", "a/b"], "--gateway is for kubernetes"],
    ["a domain with a slash", ["kubernetes", "x.json", "--cluster-domain", "a/b"], 'a domain such as "cluster.local"'],
    ["--force without --output", ["kong", "x.json", "--force"], "--force is for --output FILE"],
    ["a flag of another command", ["kong", "x.json", "--config", "y"], "--config"],
    ["a file that is not there", ["kong", "/nowhere.json"], "cannot read /nowhere.json: no such file"],
    ["a folder", ["kong", "/"], "cannot read /: it is a folder"],
  ])("refuses %s with exit 2", async (_what, words, message) => {
    const { code, stdout, stderr } = await run(...words);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(message);
  });

  it.each([
    ["YAML by its name", "kong", "kong.yml", "{a: 1}", "is YAML, or no JSON: convert it first, as with: npx js-yaml "],
    [
      "YAML by its content",
      "openapi",
      "api.json",
      "# my API\nopenapi: 3.0.0\n",
      "is YAML, or no JSON: convert it first, as with: npx js-yaml ",
    ],
    [
      "YAML of Kong",
      "kong",
      "kong.yaml",
      "_format_version: '3.0'",
      "or let decK write JSON: deck gateway dump --format json -o kong.json",
    ],
    [
      "YAML of Kubernetes",
      "kubernetes",
      "all.yaml",
      "apiVersion: v1",
      "let kubectl write JSON: kubectl get httproute,",
    ],
    [
      "another kind of Kubernetes",
      "kubernetes",
      "a.json",
      POD,
      "there is no HTTPRoute, GRPCRoute or Ingress in it: kubectl",
    ],
    ["an empty List", "kubernetes", "a.json", '{"apiVersion":"v1","kind":"List","items":[]}', "there is no HTTPRoute"],
    [
      "items that are no list",
      "kubernetes",
      "a.json",
      '{"apiVersion":"v1","kind":"List","items":{}}',
      "there is no HTTPRoute",
    ],
    ["no object of Kubernetes", "kubernetes", "a.json", '{"a":1}', "is no List of objects: make it with kubectl get"],
    ["a List for Kong", "kong", "a.json", POD, "is a file for: edge-gateway import kubernetes"],
    [
      "JSON with a mistake",
      "kong",
      "kong.json",
      '{\n  "services": [1,]\n}',
      'kong.json:2:17  services expected a value after ",", found "]": remove the trailing comma',
    ],
    ["an empty file", "kong", "kong.json", "", "found the end of the file"],
    ["a list", "kong", "kong.json", "[]", "expected an object"],
    [
      "Swagger 2.0",
      "openapi",
      "api.json",
      '{"swagger":"2.0"}',
      "this is Swagger 2.0: convert it to OpenAPI 3 first, as with: npx swagger2openapi FILE.json -o openapi.json",
    ],
    [
      "an unknown version",
      "openapi",
      "api.json",
      '{"openapi":"4.0.0"}',
      'OpenAPI "4.0.0" is not known here: 3.0, 3.1 and 3.2 are',
    ],
    [
      "no OpenAPI document",
      "openapi",
      "api.json",
      '{"a":1}',
      'this is no OpenAPI document: it has no "openapi": "3.…"',
    ],
    ["a file of Kong", "openapi", "a.json", '{"_format_version":"3.0"}', "is a file for: edge-gateway import kong"],
    ["an OpenAPI document", "kong", "a.json", '{"openapi":"3.0.0"}', "is a file for: edge-gateway import openapi"],
    [
      "a configuration of this gateway",
      "kong",
      "a.json",
      '{"services":[{"base_path":"/"}]}',
      "is a configuration of this gateway already: edge-gateway validate",
    ],
    [
      "no routes at all",
      "kong",
      "a.json",
      '{"services":[{"name":"a"}]}',
      'no route could be carried over\nservices[0]: the service is not carried over: it needs "url", or "host"',
    ],
  ])("refuses %s with exit 2, and says what to do", async (_what, source, name, text, message) => {
    const { code, stdout, stderr } = await run(source, fileWith(text, name), ...(source === "openapi" ? UPSTREAM : []));
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(message);
  });

  it("refuses a file that is too large before it reads it", async () => {
    const file = fileWith("{}");
    truncateSync(file, 200_000_000);
    expect(await run("kong", file)).toMatchObject({
      code: 2,
      stderr: `edge-gateway: ${file} has 200000000 bytes: at most 134217728 are read\n`,
    });
  });
});
