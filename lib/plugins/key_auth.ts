/**
 * The plugin kind `key_auth`: admits requests that present a configured API key.
 *
 * The key is read from the first place of `from` that the request has, by default the query parameter `apiKey`, then
 * the header `apiKey`; several different ones there are refused. A parameter that is present but empty counts as
 * presented.
 * Names and values in the query are read as HTML forms are encoded, so `api%4Bey` is the parameter `apiKey` too; text
 * that cannot be decoded is used unchanged. Names of parameters are case-sensitive: `apikey` is another parameter.
 */
import { hash, timingSafeEqual } from "node:crypto";
import type { ErrorCode } from "../base/errors.ts";
import { FORWARDING, TOKEN_CHARACTERS } from "../base/http_grammar.ts";
import { droppedProblem } from "../config/dropped_names.ts";
import { array, boolean, object, optional, string, withDefault } from "../config/schema.ts";
import { callerNamed, type Call, type Exchange } from "../http/exchange.ts";
import { headerValue, headerValues, isHopByHop, sameName, quotedString, withoutHeader } from "../http/headers.ts";
import { queryValues, withoutParameter } from "../http/query.ts";
import { problem } from "../http/reply.ts";
import { endOfKey, KEY_EXPIRES_AT } from "../config/validity_fields.ts";
import type { KeyOwner } from "./callers.ts";
import type { Plugin } from "./plugin.ts";

const DEFAULT_PLACES: readonly string[] = ["query:apiKey", "header:apiKey"];

const schema = object(
  {
    key: optional(
      string({
        min: 1,
        secret: true,
        describe: "The API key that requests must present. Its identity is the plugin's id, or default.",
      }),
    ),
    keys: optional(
      array(
        object({
          id: string({
            min: 1,
            max: 128,
            references: "none",
            describe: "Who presents this key: the caller's identity in rate limits and logs.",
          }),
          key: optional(string({ min: 1, secret: true, describe: "The key itself." })),
          key_sha256: optional(
            string({
              pattern: /^[0-9a-fA-F]{64}$/,
              hint: "64 hex digits",
              secret: true,
              describe: "The key's SHA-256, in its stead.",
            }),
          ),
          expires_at: optional(KEY_EXPIRES_AT),
        }),
        { min: 1, unique: "id", describe: "Keys of several callers." },
      ),
    ),
    callers: optional(boolean({ describe: "Take the keys of all callers of the configuration." })),
    from: optional(
      array(
        string({
          references: "none",
          pattern: new RegExp(`^(header|query):[${TOKEN_CHARACTERS}]+$`),
          hint: '"header:<name>" or "query:<name>"',
          describe: "A place of the key.",
          check(text, context) {
            if (isNeverSeen(placeOf(text))) return "plugins never see this header";
            return text.startsWith("header:") ? droppedProblem(text, context) : undefined;
          },
        }),
        {
          min: 1,
          describe: "Places of the key; the first that a request has counts, and the others must not have another key.",
        },
      ),
    ),
    hide_credentials: withDefault(boolean({ describe: "Remove the key before the request is forwarded." }), false),
  },
  {
    describe: "Requires an API key, by default in the query parameter or header apiKey.",
    refine(value, report) {
      const names = (value.from ?? []).map(placeOf).map(({ isQuery, name }) => (isQuery ? `?${name}` : name));
      names.forEach((name, i) => void (names.indexOf(name) < i && report("is there twice", "from", i)));
      const isOwn = value.key !== undefined || value.keys !== undefined;
      if (value.callers === true ? isOwn : !isOwn)
        report(isOwn ? 'has "callers" and keys of its own' : 'needs "key" or "keys", or "callers": true');
      if (value.keys === undefined) return;
      const places = new Map<string, string>();
      if (value.key !== undefined) places.set(sha256(value.key).toString("hex"), "key");
      value.keys.forEach((entry, i) => {
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

export const keyAuth: Plugin<typeof schema> = {
  name: "key_auth",
  schema,
  guards: true,
  identifies: true,
  ownHeaders: ({ from }) =>
    placesOf(from)
      .filter(({ isQuery }) => !isQuery)
      .map(({ name }) => name),
  secretParameters: ({ from }) => placesOf(from).map(({ name }) => name),
  create(
    { key, keys = [], callers: isOfAll, from = DEFAULT_PLACES, hideCredentials },
    { gatewayName, scope, callers, clock },
  ) {
    const entries = key === undefined ? keys : [...keys, { id: scope.id ?? "default", key }];
    const credentials = entries.map((entry, i) => ({
      identity: entry.id,
      rule: `keys[${i}].expires_at`,
      end: "expiresAt" in entry ? endOfKey(entry) : Infinity,
      digest: digestOf(entry),
    }));
    const places = placesOf(from);
    // Made with the first refusal, and kept: ten thousand instances that refuse nobody hold no texts.
    let described: string | undefined;
    const describedPlaces = () =>
      from
        .map((place) => place.replace("query:", "query parameter ").replace("header:", "header "))
        .join(" or in the ");
    let headers: readonly string[] | undefined;
    const refused = (call: Call, code: ErrorCode, detail: string, rule?: string) => {
      headers ??= ["WWW-Authenticate", `Key realm=${quotedString(gatewayName)}`];
      return problem(call, code, { headers, detail, rule });
    };
    // Hashing is most of the cost of this plugin, so valid keys are remembered. Only configured keys get in here, so it
    // stays small; and a Map looks texts up by a hash that is seeded per process, so the time does not reveal how close
    // a guess is.
    let found: Map<string, KeyOwner> | undefined;
    /** Compares with every key and never stops early, so that the time does not reveal whether or which key matches. */
    const find = (presented: string): KeyOwner | undefined => {
      const given = sha256(presented);
      let owner = isOfAll === true ? callers!.withKey(given) : undefined;
      for (const each of credentials) if (timingSafeEqual(each.digest, given)) owner = each;
      if (owner !== undefined) (found ??= new Map()).set(presented, owner);
      return owner;
    };
    /** With the default places, the header is ignored where the query has a key. */
    const isContradicted = (exchange: Exchange, presented: string, place: KeySource) =>
      from !== DEFAULT_PLACES &&
      places.some((other) => other !== place && keysAt(other, exchange).some((each) => each !== presented));
    return (next) => (exchange) => {
      const { call } = exchange;
      let presented: string | null | undefined;
      let place = 0;
      while ((presented = keyAt(places[place]!, exchange)) === undefined)
        if (++place === places.length)
          return refused(call, "key_missing", `Send the API key in the ${(described ??= describedPlaces())}.`);
      const owner = presented === null ? undefined : (found?.get(presented) ?? find(presented));
      if (owner === undefined || isContradicted(exchange, presented!, places[place]!))
        return refused(call, "key_invalid", "The API key that was sent is not a valid one.");
      const { identity, end, rule } = owner;
      if (end !== Infinity && clock.wall() >= end)
        return refused(call, "key_expired", "The API key that was sent was valid once, and has ended.", rule);
      if (!hideCredentials) return next(exchange.with(callerNamed(identity)));
      let { query, headers } = exchange;
      for (const { isQuery, name } of places) {
        if (isQuery) query = withoutParameter(query, name);
        else headers = withoutHeader(headers, name);
      }
      return next(exchange.with({ ...callerNamed(identity), query, headers }));
    };
  },
};

interface KeySource {
  readonly isQuery: boolean;
  /** Of a header in lower case. */
  readonly name: string;
}

function placeOf(text: string): KeySource {
  const [kind, name] = text.split(":") as [string, string];
  return kind === "query" ? { isQuery: true, name } : { isQuery: false, name: name.toLowerCase() };
}

const DEFAULT_SOURCES = DEFAULT_PLACES.map(placeOf);

/** Default: one list for all instances. */
function placesOf(from = DEFAULT_PLACES): readonly KeySource[] {
  return from === DEFAULT_PLACES ? DEFAULT_SOURCES : from.map(placeOf);
}

/** Undefined: there is none; null: there are different ones, of which the upstream might use another one. */
function keyAt({ isQuery, name }: KeySource, { query, headers }: Exchange): string | null | undefined {
  if (isQuery) {
    const keys = queryValues(query, name);
    return keys.some((key) => key !== keys[0]) ? null : keys[0];
  }
  const value = headerValue(headers, name);
  if (value === undefined) return undefined;
  for (let i = 0; i < headers.length; i += 2) if (sameName(headers[i]!, name) && headers[i + 1] !== value) return null;
  return headerKey(value);
}

function keysAt({ isQuery, name }: KeySource, { query, headers }: Exchange): readonly string[] {
  return isQuery ? queryValues(query, name) : headerValues(headers, name).map(headerKey);
}

/** What concerns one connection, or tells where a request is from. */
function isNeverSeen({ isQuery, name }: KeySource): boolean {
  return !isQuery && (isHopByHop(name) || [...FORWARDING, "host", "content-length"].includes(name));
}

function digestOf(entry: { readonly key?: string; readonly keySha256?: string }): Buffer {
  // Copied into memory that small buffers share.
  return entry.key !== undefined ? Buffer.from(sha256(entry.key)) : Buffer.from(entry.keySha256!, "hex");
}

function sha256(text: string): Buffer {
  return hash("sha256", text, "buffer");
}

/** Headers arrive as Latin-1, one character for each byte; a key beyond ASCII is sent in UTF-8, as the query has it. */
function headerKey(value: string): string {
  return BEYOND_ASCII.test(value) ? Buffer.from(value, "latin1").toString("utf8") : value;
}

const BEYOND_ASCII = /[^\x00-\x7f]/;
