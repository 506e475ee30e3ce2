import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { EventFilter, MAX_REPLY_BYTES } from "../../../lib/plugins/mcp/event_filter.ts";
import { filteredText, type ListFilter } from "../../../lib/plugins/mcp/lists.ts";

const FILTER: ListFilter = {
  limited: new Set(["tools"]),
  mayUse: (_kind, name) => name === "a",
  hasCacheScope: true,
};
const result = (names: string, more = "") => `{"jsonrpc":"2.0","id":1,"result":{"tools":[${names}]${more}}}`;
const A = '{"name":"a","t":"ä\u{1f600}"}';

const filter = () => new EventFilter((data) => filteredText(data, FILTER));

async function filtered(chunks: readonly Buffer[]): Promise<string> {
  const parts: Buffer[] = await Readable.from(chunks, { objectMode: false }).pipe(filter()).toArray();
  return Buffer.concat(parts).toString();
}

describe("a stream of events", () => {
  const before =
    "\uFEFFid: 1\ndata:\n\n: ping\r\n\r\nretry: 5\r\r" +
    `data: ${result(`${A},{"name":"b"}`)}\r\n\r\n` +
    `event: message\ndata: {"jsonrpc":"2.0","id":1,\n` +
    `data:"result":{"tools":[{"name":"b"}],"cacheScope":"public"}}\nid: 2\n\n` +
    'data: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n' +
    `data: ${result('{"name":"b"}')}\n`;
  const after =
    "\uFEFFid: 1\ndata:\n\n: ping\r\n\r\nretry: 5\r\r" +
    `data: ${result(A, ',"cacheScope":"private"')}\r\n\r\n` +
    `event: message\ndata: ${result("", ',"cacheScope":"private"')}\nid: 2\n\n` +
    'data: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n' +
    `data: ${result("", ',"cacheScope":"private"')}\n`;

  it("has its lists filtered, cut at every byte, and also in an event that does not end", async () => {
    const bytes = Buffer.from(before);
    expect(await filtered([bytes])).toBe(after);
    expect(await filtered(Array.from(bytes, (byte) => Buffer.from([byte])))).toBe(after);
    for (let at = 1; at < bytes.length; at += 7)
      expect(await filtered([bytes.subarray(0, at), bytes.subarray(at)])).toBe(after);
  });

  it("passes on each event before the next one begins", async () => {
    const events = filter();
    const read = events[Symbol.asyncIterator]();
    for (const data of [result('{"name":"b"}'), '{"jsonrpc":"2.0","id":2,"result":{}}']) {
      const next = read.next();
      events.write(`data: ${data}\n\n`);
      expect(String((await next).value)).toMatch(/^data: .*\n\n$/);
    }
    events.destroy();
  });

  it.each([
    ["data that are no JSON", "data: hello\n\n"],
    ["duplicate members", 'data: {"jsonrpc":"2.0","id":1,"result":{},"result":{"tools":[{"name":"b"}]}}\n\n'],
    ["a batch", `data: [${result('{"name":"b"}')}]\n\n`],
    ["broken UTF-8", Buffer.from('data: {"jsonrpc":"\xff"}\n\n', "latin1")],
    ["an event that is too long", `data: ${" ".repeat(MAX_REPLY_BYTES)}`],
  ])("fails at %s", async (_what, text) => {
    await expect(filtered([Buffer.from(text as string)])).rejects.toMatchObject({ code: "upstream_invalid" });
  });
});
