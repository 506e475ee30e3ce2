import { describe, expect, it } from "vitest";
import { Readable } from "node:stream";
import { parseJson } from "../../../lib/config/json_parser.ts";
import { INVALID } from "../../../lib/config/schema.ts";
import type { Middleware } from "../../../lib/http/handler.ts";
import { jsonBody } from "../../../lib/plugins/json_body/json_body.ts";
import { checked, exercise, instance, madeUpExchange, madeUpTools, problemOf } from "../../support/exercise.ts";
import { loadConfig } from "../../support/schema.ts";

const issues = (config: unknown) => checked(jsonBody.schema, config).issues;
const inRequest = (edits: object) => issues({ request: edits });

describe("the configuration of json_body", () => {
  it.each<[string, object, string]>([
    ["nothing to edit", {}, ': needs "request" or "response"'],
    ["no edits", { request: {} }, 'request: needs at least one of "rename", "remove", "default" and "set"'],
    [
      "a pointer without /",
      { request: { set: { model: 1 } } },
      'request.set.model: is no JSON Pointer: it begins with "/"',
    ],
    [
      "the pointer of the whole body",
      { response: { remove: [""] } },
      'response.remove[0]: expected a JSON Pointer, such as "/user/name", found "": it begins with "/"',
    ],
    [
      "a pointer with ~2",
      { request: { default: { "/a~2": 1 } } },
      'request.default["/a~2"]: is no JSON Pointer: in a name, "~" is written "~0", and "/" is written "~1"',
    ],
    [
      "a new name that is no pointer",
      { request: { rename: { "/a": "b" } } },
      'request.rename["/a"]: expected a JSON Pointer, such as "/user/name", found "b": it begins with "/"',
    ],
    [
      "a value behind the last item",
      { request: { remove: ["/a/-"] } },
      'request.remove[0]: "-" is the place behind the last item: no value is there',
    ],
    [
      "an unknown variable",
      { request: { set: { "/a": { b: ["${caller.idd}"] } } } },
      'request.set["/a"].b[0]: ${caller.idd} is not known here; did you mean ${caller.id}?',
    ],
    [
      "a length of 0",
      { request: { remove: ["/a"] }, max_body_bytes: 0 },
      "max_body_bytes: expected an integer 1–67108864, found 0",
    ],
  ])("refuses %s", (_title, config, expected) => {
    expect(issues(config)).toEqual([expected]);
  });

  it.each<[object, string]>([
    [{ rename: { "/a": "/a" } }, 'rename["/a"]: is its name already'],
    [{ rename: { "/a": "/a/b" } }, 'rename["/a"]: cannot move into itself'],
    [{ rename: { "/a": "/c", "/b": "/c" } }, 'rename["/b"]: replaces what /a is renamed to'],
    [{ rename: { "/a": "/b", "/b": "/c" } }, 'rename["/b"]: renames what /a is renamed to'],
    [{ rename: { "/a": "/b" }, remove: ["/a/x"] }, "remove[0]: /a has been renamed before"],
    [{ rename: { "/a": "/b/c" }, remove: ["/b"] }, "remove[0]: removes what /a is renamed to"],
    [{ rename: { "/a": "/b" }, set: { "/b": 1 } }, 'set["/b"]: replaces what /a is renamed to'],
    [{ remove: ["/a", "/a"] }, "remove[1]: is removed twice"],
    [{ remove: ["/a", "/a/b"] }, "remove[1]: is removed with /a"],
    [{ remove: ["/a/b", "/a"] }, "remove[1]: removes /a/b, too: leave that one out"],
    [{ remove: ["/a"], default: { "/a": 1 } }, 'default["/a"]: is removed before: that is what "set" does'],
    [{ remove: ["/a"], set: { "/a": 1 } }, 'set["/a"]: sets it anyway: leave /a out of "remove"'],
    [{ default: { "/a": 1 }, set: { "/a": 2 } }, 'set["/a"]: sets it anyway: leave /a out of "default"'],
    [{ default: { "/a/b": 1, "/a": {} } }, 'default["/a"]: never counts: the default of /a/b makes it'],
    [{ set: { "/a/b": 1, "/a": {} } }, 'set["/a"]: replaces /a/b, which is set before'],
  ])("refuses edits that contradict each other: %j", (edits, expected) => {
    expect(inRequest(edits)).toEqual([`request.${expected}`]);
  });

  it.each<object>([
    { rename: { "/model": "/wanted" }, set: { "/model": "small" } },
    { remove: ["/a"], default: { "/a/b": 1 } },
    { set: { "/a": {}, "/a/b": 1 } },
    { default: { "/a": 1 }, set: { "/ab": 2 } },
    { set: { "/tags/-": "x", "/a~1b/~0": null } },
  ])("takes edits that follow each other: %j", (edits) => {
    expect(inRequest(edits)).toEqual([]);
  });

  it("refuses more than 100 edits", () => {
    const remove = Array.from({ length: 101 }, (_, i) => `/n${i}`);
    expect(inRequest({ remove })).toEqual(["request: has 101 edits: at most 100 are allowed"]);
  });

  it("says where an error stands in the file", () => {
    const text = `{"services":[{"name":"s","base_path":"/s","upstreams":[{"host":"127.0.0.1","port":1}],
"plugins":[{"name":"json_body","config":{"request":{"set":{
"/model":"small",
"model":"small"}}}}],"routes":[{"path":"/"}]}]}`;
    const loaded = loadConfig({ text, file: "/gw.json" }, { kinds: [jsonBody], environment: {} });
    expect(loaded).toMatchObject({ ok: false, issues: [{ position: { line: 4, column: 9 } }] });
  });
});

/** The body that the handler within gets, for a request with this text. */
async function edited(middleware: Middleware, text: string, parts: object = {}): Promise<string> {
  let body = "";
  const exchange = madeUpExchange({
    method: "POST",
    headers: ["Content-Type", "application/json"],
    body: Readable.from([Buffer.from(text)]),
    ...parts,
  });
  const reply = await exercise(middleware, exchange, async (inner) => {
    body = Buffer.concat(await inner.body!.toArray()).toString();
    return { status: 204, headers: [], body: null };
  }).returned;
  return reply.status === 204 ? body : String(problemOf(reply)["detail"]);
}

describe("values of json_body", () => {
  it("are written as they stand, with placeholders in texts at any depth", async () => {
    const set = {
      "/n": 1.5,
      "/none": null,
      "/yes": true,
      "/who": { id: "${caller.id}", list: ["{id}", "{{id}}", ""], "${caller.id}": 1 },
      "/role": "${claim.role}",
    };
    const parts = { identity: 'ada "é"', params: { id: "a%20b" }, claims: { role: ["x", "y"] } };
    expect(JSON.parse(await edited(instance(jsonBody, { request: { set } }), "{}", parts))).toEqual({
      n: 1.5,
      none: null,
      yes: true,
      who: { id: 'ada "é"', list: ["a b", "{id}", ""], "${caller.id}": 1 },
      role: "x,y",
    });
  });

  it("keep the digits of numbers of the configuration", async () => {
    const { node } = parseJson('{"request":{"set":{"/n":1.00,"/big":12345678901234567890}}}');
    const sources = { environment: {}, readFile: () => "", folder: null };
    const config = jsonBody.schema.check(node!, [], { issues: [], sources });
    if (config === INVALID) throw new Error("the configuration is valid");
    expect(await edited(jsonBody.create(config, madeUpTools()), "{}")).toBe('{"n":1.00,"big":12345678901234567890}');
  });
});
