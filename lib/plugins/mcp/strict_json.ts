/**
 * Reads JSON of clients and servers of MCP so that every other reader finds the same in it: no duplicate members, no
 * broken UTF-8, no half surrogate pairs, no byte order mark (RFC 8259 §4, §8).
 */
import { inSlices, paced } from "../../base/time_slices.ts";
import type { JsonNode } from "../../config/json.ts";
import { parseSteps } from "../../config/json_parser.ts";
import { LONG_MEMORY, SHORT_BODY, SHORT_MEMORY, sizeOfValues } from "../../json_schema/value_memory.ts";

/** Bytes of the nodes of the parser for one of a value as `JSON.parse` makes it. */
const NODES_FOR_VALUES = 3;

/**
 * Reads a text in slices of time, once there is memory for its values, and calls `use` with it, for the time of whose
 * promise the memory counts. A text says what is wrong.
 */
export function withJson<T>(bytes: Buffer, use: (node: JsonNode | string) => T): Promise<T> {
  const isLong = bytes.length > SHORT_BODY;
  const memory = isLong ? LONG_MEMORY : SHORT_MEMORY;
  const size = Math.min(sizeOfValues(bytes, bytes.length) * NODES_FOR_VALUES, memory.most);
  return memory.take(size, async () => {
    if (bytes.length === 0) return use("it is empty");
    // The parser skips it, as in files; some readers do not.
    if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) return use("it begins with a byte order mark");
    const { node, issues } = await inSlices(parseSteps(bytes), paced());
    const [issue] = issues;
    if (node !== null && issue === undefined) return use(node);
    const { message = "it is no JSON", position = null } = issue ?? {};
    return use(position === null ? message : `${message} (line ${position.line}, column ${position.column})`);
  });
}
