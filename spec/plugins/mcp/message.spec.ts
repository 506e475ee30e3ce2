/** What passes is read in the same way by readers that differ in everything in which readers of JSON differ. */
import { describe, expect, it } from "vitest";
import { readMessage } from "../../../lib/plugins/mcp/message.ts";
import { mcpTargets } from "../../../lib/plugins/mcp/targets.ts";
import { random, type Random } from "../../support/random.ts";

/** A value with its members in a list, as they are written. */
type Written = { readonly members: readonly (readonly [string, Written])[] } | { readonly plain: unknown };

/** Reads JSON without any check of names. */
function written(text: string): Written {
  let at = 0;
  const space = () => {
    while (/\s/.test(text[at] ?? "")) at++;
  };
  const string = () => {
    const from = at++;
    while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
    return JSON.parse(text.slice(from, ++at)) as string;
  };
  const value = (): Written => {
    space();
    if (text[at] === "{") {
      const members: [string, Written][] = [];
      at++;
      for (space(); text[at] !== "}"; space()) {
        if (text[at] === ",") at++;
        space();
        const name = string();
        space();
        at++;
        members.push([name, value()]);
      }
      at++;
      return { members };
    }
    if (text[at] === "[") return { plain: text.slice(at, (at = text.indexOf("]", at) + 1)) };
    if (text[at] === '"') return { plain: string() };
    const word = /[^\s,}\]]*/y;
    word.lastIndex = at;
    word.exec(text);
    const plain = text.slice(at, (at = word.lastIndex));
    return { plain };
  };
  return value();
}

type Reader = (found: Written | undefined, name: string) => Written | undefined;

const membersOf = (found: Written | undefined) => (found !== undefined && "members" in found ? found.members : []);
const same = (one: string, other: string) => one.toUpperCase().toLowerCase() === other.toUpperCase().toLowerCase();

const READERS: Readonly<Record<string, Reader>> = {
  "the first wins": (found, name) => membersOf(found).find(([each]) => each === name)?.[1],
  "the last wins": (found, name) => membersOf(found).findLast(([each]) => each === name)?.[1],
  "the last wins in any case": (found, name) => membersOf(found).findLast(([each]) => same(each, name))?.[1],
  "the first wins in any case": (found, name) => membersOf(found).find(([each]) => same(each, name))?.[1],
};

const plain = (found: Written | undefined) => (found !== undefined && "plain" in found ? found.plain : undefined);

/** What a reader would run: method, and the name or URI. */
function readBy(read: Reader, body: Written) {
  const params = read(body, "params");
  return [plain(read(body, "method")), plain(read(params, "name")), plain(read(params, "uri"))];
}

/** A name as it is, in another case, with escapes, or with letters that fold to its own. */
function spelt(from: Random, name: string): string {
  const other = from.pick([
    ...Array.from({ length: 24 }, () => () => name),
    () => name.toUpperCase(),
    () => name[0]!.toUpperCase() + name.slice(1),
    () => name.replace(/s/, "\u017f"),
    () => name.replace(/i/, "\u0130"),
  ])();
  const escaped = Array.from(other, (each) =>
    from.chance(0.02) ? `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}` : each,
  );
  return `"${escaped.join("")}"`;
}

function body(from: Random): string {
  const name = () => `"${from.pick(["search", "refund", "\\u0061", "ä", "\\ud83d\\ude00", "\\ud800", ""])}"`;
  const member = (key: string, value: string) => `${spelt(from, key)}:${value}`;
  const params = () => {
    const members = Array.from({ length: from.int(0, 3) }, () =>
      from.pick([
        () => member("name", name()),
        () => member("uri", `"docs://${from.pick(["a", "../b", "%2e%2e/c"])}"`),
        () => member("arguments", from.pick(["{}", '{"name":"x"}', "[1,2]", '{"a":1,"a":2}'])),
        () => member("_meta", from.pick(["{}", '{"progressToken":1}', '{"ProgressToken":1,"progressToken":2}'])),
      ])(),
    );
    return `{${members.join(",")}}`;
  };
  const method = () => `"${from.pick(["tools/call", "tools/list", "prompts/get", "resources/read"])}"`;
  const members = [
    '"jsonrpc":"2.0"',
    member("id", from.pick(["1", '"a"', "1.5", "null"])),
    member("method", method()),
    member("params", params()),
    ...(from.chance(0.2) ? [member("method", method())] : []),
    ...(from.chance(0.2) ? [member("params", params())] : []),
    ...(from.chance(0.1) ? [member("result", "{}")] : []),
  ];
  const placed = members.map((text) => ({ text, at: from.next() })).sort((one, other) => one.at - other.at);
  return `{${placed.map(({ text }) => text).join(", ")}}`;
}

describe("a message", () => {
  it("that passes is the same to all readers", async () => {
    const from = random(7);
    let passed = 0;
    for (let i = 0; i < 5_000; i++) {
      const text = body(from);
      const message = await readMessage(Buffer.from(text));
      if ("refusal" in message) continue;
      const targets = mcpTargets(message);
      if (typeof targets === "string") continue;
      passed++;
      const readings = Object.entries(READERS).map(([reader, read]) => [reader, readBy(read, written(text))]);
      for (const [reader, [method, name, uri]] of readings as [string, unknown[]][]) {
        expect([text, reader, method]).toEqual([text, reader, message.method]);
        const own = method === "resources/read" ? uri : name;
        if (targets.length > 0) expect([text, reader, own]).toEqual([text, reader, targets[0]!.name]);
      }
    }
    expect(passed).toBeGreaterThan(150);
  });
});
