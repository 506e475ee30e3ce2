import { describe, expect, it } from "vitest";
import { positionAt, type JsonNode, type Path } from "../../lib/config/json.ts";
import { placesIn } from "../../lib/config/json_places.ts";
import { parseJson } from "../../lib/config/json_text.ts";
import { random } from "../support/random.ts";

function pathsIn(node: JsonNode, at: Path = []): Path[] {
  const below =
    node.kind === "array"
      ? [...node.items.entries()]
      : node.kind === "object"
        ? [...node.members].map(([key, { value }]) => [key, value] as const)
        : [];
  return [at, ...below.flatMap(([step, value]) => pathsIn(value, [...at, step]))];
}

describe("placesIn", () => {
  it(
    "finds each value where parseJson does, and a missing one at its nearest ancestor, " +
      "whichever others are asked for",
    () => {
      const chance = random(31);
      const text = () =>
        String.fromCodePoint(
          ...chance.list(0, 6, () => chance.pick([9, 10, 34, 44, 58, 91, 92, 93, 123, 125, 65, 0xe9, 0x2028, 0x1f600])),
        );
      const value = (depth: number): unknown => {
        const kind = chance.int(0, depth > 4 ? 3 : 6);
        if (kind < 3) return chance.pick([null, true, -2.5e3]);
        if (kind === 3) return text();
        return kind === 4
          ? chance.list(0, 4, () => value(depth + 1))
          : Object.fromEntries(chance.list(0, 4, () => [text(), value(depth + 1)]));
      };
      for (let i = 0; i < 300; i++) {
        const original = value(0);
        const bom = chance.pick(["", "\uFEFF"]);
        const written =
          `${bom}${chance.pick(["", " \n\t\r\n"])}` + `${JSON.stringify(original, null, chance.pick([0, 2]))} \n`;
        const { node } = parseJson(written);
        const asked = pathsIn(node!)
          .filter(() => chance.chance(0.5))
          .flatMap((path) => [path, [...path, chance.pick([0, 7, "none", "__proto__"])]]);
        const places = placesIn(chance.chance(0.5) ? written : Buffer.from(written), asked);
        for (const path of asked) expect(places(path)).toEqual(positionAt(node!, path));
      }
    },
  );

  it("tells no place of a path that nobody asked for, but of what holds it", () => {
    const places = placesIn('{"a": {"b": 1}}', [["a"]]);
    expect([places(["a", "b"]), places([])]).toEqual([
      { line: 1, column: 7 },
      { line: 1, column: 1 },
    ]);
  });
});
