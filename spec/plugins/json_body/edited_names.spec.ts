import { describe, expect, it } from "vitest";
import { EditedNames } from "../../../lib/plugins/json_body/edited_names.ts";
import type { Edit } from "../../../lib/plugins/json_body/json_edits.ts";

const remove = (...at: string[]): Edit => ({ change: "remove", at });
const set = (...at: string[]): Edit => ({ change: "set", at, value: "1" });
const rename = (at: string[], to: string[]): Edit => ({ change: "rename", at, to });

describe("members that some readers take for edited ones", () => {
  it.each<[string, Edit[], string, string | null]>([
    ["another case", [set("model")], '{"model":1,"MODEL":2}', "/MODEL"],
    ["the long s", [remove("user")], '{"u\\u017fer":1}', "/uſer"],
    ["the Kelvin sign", [remove("key")], '{"\\u212aey":1}', "/\u212aey"],
    ["a parent", [set("a", "b")], '{"A":{}}', "/A"],
    ["below an object", [set("a", "b")], '{"a":{"B":1}}', "/a/B"],
    ["below an item", [set("list", "1", "b")], '{"list":[{"B":1},{"B":1}]}', "/list/1/B"],
    ["below __proto__", [set("__proto__", "b")], '{"__proto__":{"B":1}}', "/__proto__/B"],
    ["the new name of a rename", [rename(["from"], ["to"])], '{"from":1,"To":2}', "/To"],
    [
      "below a value that moves",
      [rename(["a"], ["b"]), rename(["b"], ["c"]), remove("c", "d")],
      '{"a":{"D":1}}',
      "/a/D",
    ],
    ["no member", [set("model")], '{"model":1,"models":2,"n":{"Model":1}}', null],
    ["names that are edited themselves", [remove("user"), remove("User")], '{"user":1,"User":2}', null],
    ["below another item", [set("list", "1", "b")], '{"list":[{"B":1}]}', null],
    ["no object", [set("a", "b")], "[1]", null],
    ["items, whatever the names", [set("a", "b")], '{"a":["B"]}', null],
  ])("are found: %s", (_title, edits, text, found) => {
    expect(new EditedNames(edits).lookalikeIn(JSON.parse(text))).toBe(found);
  });
});
