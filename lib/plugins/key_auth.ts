/**
 * The plugin kind `key_auth`: admits requests that present a configured API key.
 *
 * The key is read from the query parameter `apiKey`, and only if there is none from the header `apiKey`; of several, the first counts.
 * A parameter that is present but empty counts as presented. Names and values in the query are read as HTML forms are encoded, so
 * `api%4Bey` is the parameter `apiKey` too; text that cannot be decoded is used unchanged. Names are case-sensitive: `apikey` is another parameter.
 */
import { hash, timingSafeEqual } from "node:crypto";
import { array, boolean, object, optional, string, withDefault } from "../config/schema.ts";
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
          id: string({ min: 1, max: 128, references: "none", describe: "Who presents this key: the caller's identity in rate limits and logs." }),
          key: optional(string({ min: 1, secret: true, describe: "The key itself." })),
          key_sha256: optional(
            string({ pattern: /^[0-9a-fA-F]{64}$/, hint: "64 hex digits", secret: true, describe: "The key's SHA-256, in its stead." }),
          ),
        }),
        { min: 1, unique: "id", describe: "Keys of several callers." },
      ),
    ),
    hide_credentials: withDefault(boolean({ describe: "Remove the key before the request is forwarded." }), false),
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
        if (digest.equals(sha256(""))) return report("is the hash of the empty key", "keys", i, "key_sha256");
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
  identifies: true,
  create({ key, keys = [], hideCredentials }, { gatewayName, scope }) {
    const entries = key === undefined ? keys : [...keys, { id: scope.id ?? "default", key }];
    const credentials = entries.map((entry) => ({ identity: entry.id, digest: digestOf(entry) }));
    const headers = ["WWW-Authenticate", `Key realm=${quotedString(gatewayName)}`];
    const missing = { headers, detail: "Send the API key in the query parameter apiKey or in the header apiKey." };
    const invalid = { headers, detail: "The API key that was sent is not a valid one." };
    // Hashing is most of the cost of this plugin, so valid keys are remembered. Only configured keys get in here, so it stays small; and
    // a Map looks texts up by a hash that is seeded per process, so the time does not reveal how close a guess is.
    const found = new Map<string, string>();
    /** Compares with every key and never stops early, so that the time does not reveal whether or which key matches. */
    const find = (presented: string): string | undefined => {
      const given = sha256(presented);
      let identity: string | undefined;
      for (const each of credentials) if (timingSafeEqual(each.digest, given)) identity = each.identity;
      if (identity !== undefined) found.set(presented, identity);
      return identity;
    };
    return (next) => (exchange) => {
      const { query, call } = exchange;
      const presented = queryKey(query) ?? headerKey(headerValue(exchange.headers, HEADER));
      if (presented === undefined) return problem(call, "key_missing", missing);
      const identity = found.get(presented) ?? find(presented);
      if (identity === undefined) return problem(call, "key_invalid", invalid);
      if (!hideCredentials) return next(exchange.with({ identity }));
      return next(exchange.with({ identity, query: withoutKey(query), headers: withoutHeader(exchange.headers, HEADER) }));
    };
  },
});

function digestOf(entry: { readonly key?: string; readonly keySha256?: string }): Buffer {
  return entry.key !== undefined ? sha256(entry.key) : Buffer.from(entry.keySha256!, "hex");
}

function sha256(text: string): Buffer {
  return hash("sha256", text, "buffer");
}

/** Headers arrive as Latin-1, one character for each byte; a key beyond ASCII is sent in UTF-8, as the query has it. */
function headerKey(value: string | undefined): string | undefined {
  return value === undefined || !BEYOND_ASCII.test(value) ? value : Buffer.from(value, "latin1").toString("utf8");
}

const BEYOND_ASCII = /[^\x00-\x7f]/;

/** The first `apiKey` of a query ("?" included), decoded; undefined when there is none. */
function queryKey(query: string): string | undefined {
  if (!mayHoldKey(query)) return undefined;
  const pair = query.slice(1).split("&").find(isKey);
  return pair && decoded(pair.slice(nameOf(pair).length + 1));
}

/** The query without any `apiKey`; all else stays byte for byte. */
function withoutKey(query: string): string {
  if (!mayHoldKey(query)) return query;
  const kept = query.slice(1).split("&").filter((pair) => !isKey(pair));
  return kept.length === 0 ? "" : `?${kept.join("&")}`;
}

/** False for most queries: they hold neither the name as it is nor anything that might decode to it. */
function mayHoldKey(query: string): boolean {
  return query.includes(PARAMETER) || query.includes("%");
}

/** `?apiKey` without "=" is an empty key. */
function nameOf(pair: string): string {
  const equals = pair.indexOf("=");
  return equals < 0 ? pair : pair.slice(0, equals);
}

function isKey(pair: string): boolean {
  const name = nameOf(pair);
  // Encoded, a character takes three: longer names need not be decoded.
  return name === PARAMETER || (name.includes("%") && name.length <= 3 * PARAMETER.length && decoded(name) === PARAMETER);
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
