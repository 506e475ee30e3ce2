/**
 * The plugin kind `key_auth`: lets a request pass when it presents a configured API key.
 * What a caller may do beyond that, and how often, is the affair of other kinds.
 *
 * The key is read from the query parameter `apiKey`, and only if there is none from the header `apiKey`; of several, the first counts.
 * A parameter that is present but empty counts as presented. Names and values in the query are read as HTML forms are encoded, so
 * `api%4Bey` is the parameter `apiKey` too; what cannot be decoded is taken as it stands. Other cases (`apikey`) are other parameters.
 */
import { hash, timingSafeEqual } from "node:crypto";
import { array, boolean, object, optional, string, withDefault, type Infer } from "../config/schema.ts";
import { headerValue, quotedString, withoutHeader } from "../http/headers.ts";
import { problem } from "../http/reply.ts";
import { definePlugin } from "./plugin.ts";

const PARAMETER = "apiKey";
const HEADER = "apikey";

const schema = object(
  {
    key: optional(string({ min: 1, secret: true, describe: "The API key that requests must present. Its identity is the plugin's id, or default." })),
    keys: optional(
      array(
        object({
          id: string({ min: 1, max: 128, describe: "Who presents this key: the caller's identity in rate limits and logs." }),
          key: optional(string({ min: 1, secret: true, describe: "The key itself." })),
          key_sha256: optional(
            string({ pattern: /^[0-9a-fA-F]{64}$/, hint: "64 hex digits", secret: true, describe: "The key's SHA-256, in its stead." }),
          ),
        }),
        { min: 1, unique: "id", describe: "Keys of several callers." },
      ),
    ),
    hide_credentials: withDefault(boolean({ describe: "Strip the key from what is forwarded." }), false),
  },
  {
    describe: "Requires an API key in the query parameter or header apiKey.",
    refine(value, report) {
      if (value.key === undefined && value.keys === undefined) report('needs "key" or "keys"');
      const places = new Map<string, string>();
      if (value.key !== undefined) places.set(sha256(value.key).toString("hex"), "key");
      value.keys?.forEach((entry, i) => {
        if ((entry.key === undefined) === (entry.keySha256 === undefined)) {
          return report('needs either "key" or "key_sha256"', "keys", i);
        }
        const digest = digestOf(entry);
        if (digest.equals(EMPTY)) return report("is the hash of the empty key", "keys", i, "key_sha256");
        const first = places.get(digest.toString("hex"));
        if (first !== undefined) return report(`is the same key as ${first}`, "keys", i);
        places.set(digest.toString("hex"), `keys[${i}]`);
      });
    },
  },
);

export const keyAuth = definePlugin({
  name: "key_auth",
  schema,
  guards: true,
  create(config, tools) {
    const { ids, digests } = credentials(config, tools.scope.id ?? "default");
    const headers = ["WWW-Authenticate", `Key realm=${quotedString(tools.gatewayName)}`];
    const missing = { headers, detail: "Send the API key in the query parameter apiKey or in the header apiKey." };
    const invalid = { headers, detail: "The API key that was sent is not a valid one." };
    // Hashing is most of what this plugin costs: a key that was found once is found again without it. Only configured keys get in here, so
    // it stays small; and a text is looked up by its hash, seeded per process, so that the time tells nothing of how near a guess comes.
    const found = new Map<string, number>();
    const indexOf = (presented: string): number => {
      const index = find(digests, sha256(presented));
      if (index >= 0) found.set(presented, index);
      return index;
    };
    return (next) => (exchange) => {
      const presented = queryKey(exchange.query) ?? headerKey(headerValue(exchange.headers, HEADER));
      if (presented === undefined) return problem(exchange.call, "key_missing", missing);
      const index = found.get(presented) ?? indexOf(presented);
      if (index < 0) return problem(exchange.call, "key_invalid", invalid);
      const identity = ids[index]!;
      exchange.call.notes.identity = identity;
      if (!config.hideCredentials) return next(exchange.with({ identity }));
      return next(exchange.with({ identity, query: withoutKey(exchange.query), headers: withoutHeader(exchange.headers, HEADER) }));
    };
  },
});

function credentials(config: Infer<typeof schema>, ownId: string): { ids: string[]; digests: Buffer[] } {
  const keys = config.keys ?? [];
  const ids = keys.map((entry) => entry.id);
  const digests = keys.map(digestOf);
  if (config.key !== undefined) {
    ids.push(ownId);
    digests.push(sha256(config.key));
  }
  return { ids, digests };
}

function digestOf(entry: { readonly key?: string; readonly keySha256?: string }): Buffer {
  return entry.key !== undefined ? sha256(entry.key) : Buffer.from(entry.keySha256!, "hex");
}

function sha256(text: string): Buffer {
  return hash("sha256", text, "buffer");
}

const EMPTY = sha256("");

/** Compares with every key and never stops early, so that the time tells neither whether one fits nor which. */
function find(digests: readonly Buffer[], presented: Buffer): number {
  let found = -1;
  for (let i = 0; i < digests.length; i++) if (timingSafeEqual(digests[i]!, presented)) found = i;
  return found;
}

/** Headers come as Latin-1, a character a byte; a key beyond ASCII is sent in UTF-8, as the query has it. */
function headerKey(value: string | undefined): string | undefined {
  return value === undefined || !BEYOND_ASCII.test(value) ? value : Buffer.from(value, "latin1").toString("utf8");
}

const BEYOND_ASCII = /[^\x00-\x7f]/;

/** The first `apiKey` of a query ("?" included), decoded; undefined when there is none. */
function queryKey(query: string): string | undefined {
  if (!mayHoldKey(query)) return undefined;
  for (let start = 1; start <= query.length; ) {
    const end = endOfPair(query, start);
    const equals = equalsSign(query, start, end);
    if (namesKey(query, start, equals)) return decoded(query.slice(equals + 1, end));
    start = end + 1;
  }
  return undefined;
}

/** The query without any `apiKey`; all else stays byte for byte. */
function withoutKey(query: string): string {
  if (!mayHoldKey(query)) return query;
  let kept = "";
  for (let start = 1; start <= query.length; ) {
    const end = endOfPair(query, start);
    if (!namesKey(query, start, equalsSign(query, start, end))) kept += (kept === "" ? "?" : "&") + query.slice(start, end);
    start = end + 1;
  }
  return kept;
}

/** Most queries end here: neither the name as it is nor anything that might decode to it. */
function mayHoldKey(query: string): boolean {
  return query.includes(PARAMETER) || query.includes("%");
}

function endOfPair(query: string, start: number): number {
  const end = query.indexOf("&", start);
  return end < 0 ? query.length : end;
}

/** Where the name of the pair ends: at its "=", or at its end when it has none (`?apiKey` is an empty key). */
function equalsSign(query: string, start: number, end: number): number {
  const equals = query.indexOf("=", start);
  return equals < 0 || equals > end ? end : equals;
}

function namesKey(query: string, start: number, end: number): boolean {
  const length = end - start;
  if (length === PARAMETER.length) return query.startsWith(PARAMETER, start);
  // Encoded, a character takes three: longer or shorter names need not be decoded.
  if (length < PARAMETER.length || length > PARAMETER.length * 3) return false;
  const name = query.slice(start, end);
  return name.includes("%") && decoded(name) === PARAMETER;
}

/** Form decoding (URL Standard §5.1); text whose encoding is broken stays as it is. */
function decoded(text: string): string {
  const spaced = text.includes("+") ? text.replaceAll("+", " ") : text;
  if (!spaced.includes("%")) return spaced;
  try {
    return decodeURIComponent(spaced);
  } catch {
    return text;
  }
}
