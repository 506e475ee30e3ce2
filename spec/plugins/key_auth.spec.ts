import { createHash, timingSafeEqual } from "node:crypto";
import { describe, expect, it, vi } from "vitest";
import { headerValue } from "../../lib/http/headers.ts";
import { basicAuth } from "../../lib/plugins/basic_auth.ts";
import { keyAuth } from "../../lib/plugins/key_auth.ts";
import {
  atOnce,
  checked,
  exercise,
  instance,
  madeUpExchange,
  madeUpTools,
  plainReply,
  problemOf,
} from "../support/exercise.ts";
import { manualClock } from "../support/clock.ts";
import { random } from "../support/random.ts";

vi.mock("node:crypto", async (original) => {
  const actual = await original<typeof import("node:crypto")>();
  return { ...actual, timingSafeEqual: vi.fn(actual.timingSafeEqual) };
});

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** Asks an instance with these headers and this query; gives the status, and the code when it refused. */
function ask(config: unknown, parts: { query?: string; headers?: string[] }, tools = madeUpTools()) {
  const { returned, forwarded } = exercise(instance(keyAuth, config, tools), madeUpExchange(parts));
  const reply = atOnce(returned);
  return { status: reply.status, code: reply.status === 200 ? null : problemOf(reply)["code"], forwarded, reply };
}

const status = (parts: { query?: string; headers?: string[] }) => ask({ key: "k1" }, parts).status;

describe("where the key is read (seed 5.3)", () => {
  it("answers 200 when the query parameter apiKey equals the key (rules 1, 3)", () => {
    expect(status({ query: "?apiKey=k1" })).toBe(200);
    expect(status({ query: "?a=1&apiKey=k1&b=2" })).toBe(200);
  });

  it("answers 200 when there is no parameter apiKey and the header apiKey equals the key (rule 2)", () => {
    expect(status({ headers: ["apiKey", "k1"] })).toBe(200);
    expect(status({ query: "?apikey=x&APIKEY=x&xapiKey=x&apiKeyx=x", headers: ["apiKey", "k1"] })).toBe(200);
  });

  it.each(["apikey", "APIKEY", "ApiKey"])("accepts the header's name in any case: %s", (name) => {
    expect(status({ headers: [name, "k1"] })).toBe(200);
  });

  it("answers 401 when apiKey differs (rule 4)", () => {
    expect(ask({ key: "k1" }, { query: "?apiKey=k2" })).toMatchObject({
      status: 401,
      code: "key_invalid",
      forwarded: null,
    });
    expect(ask({ key: "k1" }, { headers: ["apiKey", "K1"] })).toMatchObject({
      status: 401,
      code: "key_invalid",
      forwarded: null,
    });
  });

  it("answers 401 when there is no apiKey (rule 4)", () => {
    expect(ask({ key: "k1" }, {})).toMatchObject({ status: 401, code: "key_missing", forwarded: null });
    expect(ask({ key: "k1" }, { query: "?a=apiKey&b" })).toMatchObject({ status: 401, code: "key_missing" });
  });

  it("uses the query's key and ignores the header's, right or wrong", () => {
    expect(status({ query: "?apiKey=wrong", headers: ["apiKey", "k1"] })).toBe(401);
    expect(status({ query: "?apiKey=k1", headers: ["apiKey", "wrong"] })).toBe(200);
  });

  it.each(["?apiKey=", "?apiKey", "?a&apiKey&b=1"])("refuses an empty parameter as an invalid key: %s", (query) => {
    expect(ask({ key: "k1" }, { query, headers: ["apiKey", "k1"] })).toMatchObject({
      status: 401,
      code: "key_invalid",
    });
  });

  it("refuses an empty header as an invalid key", () => {
    expect(ask({ key: "k1" }, { headers: ["apiKey", ""] })).toMatchObject({ status: 401, code: "key_invalid" });
  });

  it.each([
    { query: "?apiKey=k1&apiKey=wrong" },
    { query: "?apiKey=wrong&apiKey=k1" },
    { query: "?apiKey=k1&apiKey" },
    { headers: ["apiKey", "k1", "apikey", "wrong"] },
    { headers: ["apiKey", "wrong", "apikey", "k1"] },
  ])("refuses several keys in one place, of which the upstream could read another one: %j", (parts) => {
    expect(ask({ key: "k1" }, parts)).toMatchObject({ status: 401, code: "key_invalid" });
  });

  it("replaces all that an earlier plugin has said of the caller", () => {
    const earlier = { identity: "ann", claims: { sub: "ann" }, groups: ["admins"] };
    for (const [kind, config, headers] of [
      [keyAuth, { keys: [{ id: "ada", key: "k1" }] }, ["apiKey", "k1"]],
      [keyAuth, { keys: [{ id: "ada", key: "k1" }], hide_credentials: true }, ["apiKey", "k1"]],
      [basicAuth, { username: "ada", password: "k1" }, ["Authorization", `Basic ${btoa("ada:k1")}`]],
    ] as const) {
      const { forwarded } = exercise(instance(kind, config), madeUpExchange({ ...earlier, headers }));
      expect(forwarded).toMatchObject({ identity: "ada", claims: null, groups: [] });
    }
  });

  it("accepts a key that is sent twice", () => {
    expect(status({ query: "?apiKey=k1&apiKey=k1" })).toBe(200);
    expect(status({ headers: ["apiKey", "k1", "apikey", "k1"] })).toBe(200);
  });

  it.each([
    ["a b", "?apiKey=a+b"],
    ["a b", "?apiKey=a%20b"],
    ["a+b", "?apiKey=a%2Bb"],
    ["a=b", "?apiKey=a=b"],
    ["ключ", "?apiKey=%D0%BA%D0%BB%D1%8E%D1%87"],
    ["100%", "?apiKey=100%"],
    ["%zz+", "?apiKey=%zz+"],
    ["%ff", "?apiKey=%ff"],
    ["k1", "?%61pi%4Bey=k1"],
    ["k1", "?%zz=1&apiKey=k1"],
  ])("the key %j is presented by %s", (key, query) => {
    expect(ask({ key }, { query }).status).toBe(200);
  });
});

describe("the 401", () => {
  it("names scheme and realm, quoted", () => {
    const refused = (gatewayName: string) => ask({ key: "k1" }, {}, madeUpTools({ gatewayName })).reply;
    expect(headerValue(refused("edge-gateway").headers, "www-authenticate")).toBe('Key realm="edge-gateway"');
    expect(headerValue(refused('a "b" \\c\r\nX: é').headers, "www-authenticate")).toBe(
      'Key realm="a \\"b\\" \\\\c??X: ?"',
    );
    expect(headerValue(ask({ key: "k1" }, { query: "?apiKey=x" }).reply.headers, "www-authenticate")).toBe(
      'Key realm="edge-gateway"',
    );
  });

  it("the 401 is a problem document that holds neither the presented key nor the right one", () => {
    const { reply } = ask({ key: "right-key" }, { query: "?apiKey=wrong-key" });
    expect(problemOf(reply)).toMatchObject({ status: 401, code: "key_invalid", request_id: "request-1" });
    expect(String(reply.body)).not.toMatch(/right-key|wrong-key/);
  });

  it("logs nothing, and notes for the access log no more than the code", () => {
    const tools = madeUpTools();
    const exchange = madeUpExchange({ query: "?apiKey=wrong-key" });
    exercise(instance(keyAuth, { key: "right-key" }, tools), exchange);
    expect(tools.lines).toEqual([]);
    expect(exchange.call.notes).toMatchObject({ code: "key_invalid", identity: null, fault: null });
  });
});

describe("whose key it is", () => {
  const keys = {
    keys: [
      { id: "alice", key: "a-key" },
      { id: "bob", key_sha256: sha256("b-key").toUpperCase() },
    ],
  };

  it.each([
    ["a-key", "alice"],
    ["b-key", "bob"],
  ])("the key %s makes the caller %s, for plugins within and for the log", (key, id) => {
    const { forwarded } = ask(keys, { headers: ["apiKey", key] });
    expect(forwarded?.identity).toBe(id);
    expect(forwarded?.call.notes.identity).toBe(id);
  });

  it('the caller is the plugin\'s id for the single key, or "default"', () => {
    expect(ask({ key: "k1" }, { query: "?apiKey=k1" }).forwarded?.identity).toBe("default");
    expect(ask({ key: "k1" }, { query: "?apiKey=k1" }, madeUpTools({ id: "partners" })).forwarded?.identity).toBe(
      "partners",
    );
  });

  it("the caller is found among the single key and several keys together", () => {
    const both = { ...keys, key: "k1" };
    expect(ask(both, { query: "?apiKey=k1" }).forwarded?.identity).toBe("default");
    expect(ask(both, { query: "?apiKey=a-key" }).forwarded?.identity).toBe("alice");
    expect(ask(both, { query: "?apiKey=c-key" }).code).toBe("key_invalid");
  });

  it("the caller is not found by a key's hash", () => {
    expect(ask(keys, { headers: ["apiKey", sha256("b-key")] }).code).toBe("key_invalid");
  });

  it.each(["first", "third", "none of them"])(
    "the caller is found by comparing every configured key in constant time, also when %s matches",
    (presented) => {
      const three = { keys: ["first", "second", "third"].map((key) => ({ id: key, key })) };
      vi.mocked(timingSafeEqual).mockClear();
      ask(three, { query: `?apiKey=${encodeURIComponent(presented)}` });
      expect(timingSafeEqual).toHaveBeenCalledTimes(3);
    },
  );

  it("the caller is remembered for a valid key, which is hashed once; an invalid key is hashed each time", () => {
    const middleware = instance(keyAuth, { keys: ["first", "second", "third"].map((key) => ({ id: key, key })) });
    const send = (key: string) => {
      vi.mocked(timingSafeEqual).mockClear();
      const { returned, forwarded } = exercise(middleware, madeUpExchange({ headers: ["apiKey", key] }));
      return [atOnce(returned).status, forwarded?.identity ?? null, vi.mocked(timingSafeEqual).mock.calls.length];
    };
    expect([send("second"), send("second"), send("third")]).toEqual([
      [200, "second", 3],
      [200, "second", 0],
      [200, "third", 3],
    ]);
    expect([send("secon"), send("secon"), send("second ")]).toEqual([
      [401, null, 3],
      [401, null, 3],
      [401, null, 3],
    ]);
    expect(send("second")).toEqual([200, "second", 0]);
  });
});

describe("hide_credentials", () => {
  it("hide_credentials is off by default: query and headers are forwarded unchanged", () => {
    const { forwarded } = ask({ key: "k1" }, { query: "?apiKey=k1&a", headers: ["apiKey", "k1"] });
    expect(forwarded).toMatchObject({ query: "?apiKey=k1&a", headers: ["apiKey", "k1"] });
  });

  it.each([
    ["?apiKey=k1", ""],
    ["?apiKey=k1&a=1", "?a=1"],
    ["?a=1&apiKey=k1", "?a=1"],
    ["?a=%7e+&apiKey=k1&&b=%zz&A=1&a=2", "?a=%7e+&&b=%zz&A=1&a=2"],
    ["?apiKey=k1&apikey=x&apiKey=k1", "?apikey=x"],
    ["?%61piKey=k1&a%70iKey=k1&z", "?z"],
  ])("hide_credentials forwards %s as %j", (query, expected) => {
    expect(ask({ key: "k1", hide_credentials: true }, { query }).forwarded?.query).toBe(expected);
  });

  it("strips every apiKey header, in any case, also when the query's key was used", () => {
    const headers = ["Host", "a", "apiKey", "k1", "X", "1", "APIKEY", "k1"];
    for (const query of ["", "?apiKey=k1"]) {
      expect(ask({ key: "k1", hide_credentials: true }, { query, headers }).forwarded?.headers).toEqual([
        "Host",
        "a",
        "X",
        "1",
      ]);
    }
  });

  it("strips exactly what URLSearchParams calls apiKey, and keeps the rest byte for byte", () => {
    const from = random(3);
    const middleware = instance(keyAuth, { key: "k1", hide_credentials: true });
    for (let i = 0; i < 3_000; i++) {
      const pair = () =>
        from.pick(["a", "apiKey", "%61piKey", "apikey", "", "apiKey%00", "%61%70%69%4B%65%79", "api+Key"]) +
        from.pick(["", "=", "=k1", "=%6B1", "=k1=", "=other", "=a+b"]);
      const pairs = from.list(1, 5, pair);
      const query = "?" + pairs.join("&");
      const { returned, forwarded } = exercise(middleware, madeUpExchange({ query }));
      const all = new Set(new URLSearchParams(query).getAll("apiKey"));
      expect(atOnce(returned).status, query).toBe(all.size === 1 && all.has("k1") ? 200 : 401);
      if (forwarded === null) continue;
      const kept = pairs.filter((text) => !new URLSearchParams(text).has("apiKey"));
      expect(forwarded.query, query).toBe(kept.length === 0 ? "" : "?" + kept.join("&"));
    }
  });
});

describe("passing on", () => {
  it("key_auth returns the same reply or promise that the next handler returned", () => {
    const middleware = instance(keyAuth, { key: "k1" });
    const promise = Promise.resolve(plainReply);
    expect(exercise(middleware, madeUpExchange({ query: "?apiKey=k1" })).returned).toBe(plainReply);
    expect(exercise(middleware, madeUpExchange({ query: "?apiKey=k1" }), () => promise).returned).toBe(promise);
  });
});

describe("configuration", () => {
  it("key_auth accepts a key, keys, or both; hide_credentials is false by default", () => {
    expect(checked(keyAuth.schema, { key: "k" }).value).toEqual({ key: "k", hideCredentials: false });
    expect(checked(keyAuth.schema, { keys: [{ id: "a", key: "k" }], hide_credentials: true }).issues).toEqual([]);
    expect(checked(keyAuth.schema, { key: "x", keys: [{ id: "a", key: "k" }] }).issues).toEqual([]);
  });

  it.each<[string, unknown, RegExp]>([
    ["no key at all", {}, /needs "key" or "keys"/],
    ["an empty list", { keys: [] }, /keys: expected at least 1 item/],
    ["an empty key", { key: "" }, /key: expected a non-empty string/],
    ["an empty key in the list", { keys: [{ id: "a", key: "" }] }, /keys\[0\]\.key: expected a non-empty string/],
    [
      "the hash of the empty key",
      { keys: [{ id: "a", key_sha256: sha256("") }] },
      /keys\[0\]\.key_sha256: is the hash of the empty key/,
    ],
    [
      "an id twice",
      {
        keys: [
          { id: "a", key: "x" },
          { id: "a", key: "y" },
        ],
      },
      /keys\[1\]\.id: "a" is already used/,
    ],
    ["an entry without id", { keys: [{ key: "x" }] }, /keys\[0\]\.id: is required/],
    [
      "key and hash together",
      { keys: [{ id: "a", key: "x", key_sha256: sha256("x") }] },
      /keys\[0\]: needs either "key" or "key_sha256"/,
    ],
    ["neither key nor hash", { keys: [{ id: "a" }] }, /keys\[0\]: needs either "key" or "key_sha256"/],
    ["a short hash", { keys: [{ id: "a", key_sha256: "abcd" }] }, /keys\[0\]\.key_sha256: expected 64 hex digits/],
    [
      "one key for two",
      {
        keys: [
          { id: "a", key: "x" },
          { id: "b", key_sha256: sha256("x") },
        ],
      },
      /keys\[1\]: is the same key as keys\[0\]/,
    ],
    ["the single key again", { key: "x", keys: [{ id: "b", key: "x" }] }, /keys\[0\]: is the same key as key/],
    ["a key that is a number", { key: 123 }, /key: expected a non-empty string, found a number$/],
    ["an unknown field", { key: "k", hide_credential: true }, /did you mean "hide_credentials"/],
  ])("key_auth reports %s as a configuration error", (_, config, message) => {
    const { issues } = checked(keyAuth.schema, config);
    expect(issues.length).toBe(1);
    expect(issues[0]).toMatch(message);
  });
});

describe("from", () => {
  const FROM = { key: "k1", from: ["header:X-API-Key", "query:api_key", "header:apiKey"] };

  it.each<[string, { query?: string; headers?: string[] }]>([
    ["a header, in any case", { headers: ["x-api-KEY", "k1"] }],
    ["a parameter", { query: "?a=1&api_key=k1" }],
    ["a parameter in another spelling", { query: "?api%5Fkey=k%31" }],
    ["a later place", { headers: ["apikey", "k1"] }],
    ["several places with the same key", { query: "?api_key=k1", headers: ["X-API-Key", "k1", "apiKey", "k1"] }],
  ])("from accepts the key in %s", (_where, parts) => expect(ask(FROM, parts).status).toBe(200));

  it.each<[string, { query?: string; headers?: string[] }, string]>([
    ["another key in another place", { query: "?api_key=k2", headers: ["X-API-Key", "k1"] }, "key_invalid"],
    [
      "another key in another place, behind the same one",
      { query: "?api_key=k1&api_key=k2", headers: ["X-API-Key", "k1"] },
      "key_invalid",
    ],
    ["an empty key in another place", { query: "?api_key", headers: ["X-API-Key", "k1"] }, "key_invalid"],
    ["the right key in a later place alone", { query: "?api_key=k2", headers: ["apiKey", "k1"] }, "key_invalid"],
    ["the key in places that are not listed", { query: "?apiKey=k1", headers: ["X-Key", "k1"] }, "key_missing"],
    ["a parameter in another case", { query: "?API_KEY=k1" }, "key_missing"],
  ])("from refuses %s", (_what, parts, code) =>
    expect(ask(FROM, parts)).toMatchObject({ status: 401, code, forwarded: null }),
  );

  it("from names its places in the 401", () => {
    expect(problemOf(ask(FROM, {}).reply)["detail"]).toBe(
      "Send the API key in the header X-API-Key or in the query parameter api_key or in the header apiKey.",
    );
    expect(problemOf(ask({ key: "k1" }, {}).reply)["detail"]).toBe(
      "Send the API key in the query parameter apiKey or in the header apiKey.",
    );
  });

  it("hide_credentials removes the key from all places of from, and from no other", () => {
    const parts = {
      query: "?x=%2f&api_key=k1&apiKey=y&api%5fkey=k1",
      headers: ["X-Api-Key", "k1", "Accept", "*/*", "apikey", "k1", "x-api-key", "k1"],
    };
    expect(ask({ ...FROM, hide_credentials: true }, parts).forwarded).toMatchObject({
      query: "?x=%2f&apiKey=y",
      headers: ["Accept", "*/*"],
    });
  });

  it(
    "from tells logs which parameters and headers hold keys, " + "and the upstream's trailers which headers are read",
    () => {
      const config = checked(keyAuth.schema, { ...FROM, hide_credentials: true }).value as never;
      expect(keyAuth.secretParameters!(config)).toEqual(["x-api-key", "api_key", "apikey"]);
      expect(keyAuth.ownHeaders!(config)).toEqual(["x-api-key", "apikey"]);
      expect(keyAuth.ownHeaders!(checked(keyAuth.schema, FROM).value as never)).toEqual(["x-api-key", "apikey"]);
    },
  );

  it.each<[string, readonly string[], RegExp]>([
    ["no place", [], /from: expected at least 1 item/],
    [
      "a place of another kind",
      ["cookie:a"],
      /from\[0\]: expected "header:<name>" or "query:<name>", found "cookie:a"/,
    ],
    ["a place without a name", ["header:"], /from\[0\]: expected "header:<name>" or "query:<name>"/],
    ["a name that no header can have", ["header:a b"], /from\[0\]: expected "header:<name>" or "query:<name>"/],
    ["a header that plugins never see", ["header:Connection"], /from\[0\]: .*plugins never see this header/],
    [
      "a header that says where a request is from",
      ["header:X-Forwarded-For"],
      /from\[0\]: .*plugins never see this header/,
    ],
    ["a header twice", ["header:X-Key", "query:k", "header:x-key"], /from\[2\]: is there twice/],
  ])("from reports %s as a configuration error", (_what, from, message) => {
    const { issues } = checked(keyAuth.schema, { key: "k1", from });
    expect(issues).toEqual([expect.stringMatching(message)]);
  });
});

describe("a key beyond ASCII", () => {
  it("a key is accepted in the query and, in UTF-8, in the header", () => {
    const utf8AsNodeReadsIt = Buffer.from("clé").toString("latin1");
    expect(ask({ key: "clé" }, { query: "?apiKey=cl%C3%A9" }).status).toBe(200);
    expect(ask({ key: "clé" }, { headers: ["apiKey", utf8AsNodeReadsIt] }).status).toBe(200);
    expect(ask({ key: "clé" }, { headers: ["apiKey", "cle"] }).status).toBe(401);
  });
});

describe("keys that end", () => {
  const END = Date.UTC(2027, 0, 31, 11);
  const keys = [
    { id: "web", key: "k1", expires_at: "2027-01-31T12:00:00+01:00" },
    { id: "web", key_sha256: sha256("k2") },
  ].map((each, i) => ({ ...each, id: `web${i}` }));

  it("are refused from their end on, to the millisecond, whether they were used before or not", () => {
    const clock = manualClock(END - 1);
    const middleware = instance(keyAuth, { keys }, madeUpTools({ clock }));
    const ask = (key: string) => {
      const reply = atOnce(exercise(middleware, madeUpExchange({ query: `?apiKey=${key}` })).returned);
      return reply.status === 200
        ? 200
        : [reply.status, problemOf(reply)["code"], headerValue(reply.headers, "www-authenticate")];
    };
    const realm = 'Key realm="edge-gateway"';
    expect([ask("k1"), ask("k2"), ask("k3")]).toEqual([200, 200, [401, "key_invalid", realm]]);
    clock.advance(1);
    expect([ask("k1"), ask("k2"), ask("k3")]).toEqual([[401, "key_expired", realm], 200, [401, "key_invalid", realm]]);
    const other = instance(keyAuth, { keys }, madeUpTools({ clock }));
    const first = exercise(other, madeUpExchange({ query: "?apiKey=k1" }));
    expect([problemOf(atOnce(first.returned))["code"], first.forwarded]).toEqual(["key_expired", null]);
  });

  it.each(["2027-01-31", "2027-02-30T00:00:00Z", "2027-01-31T12:00:00", "tomorrow", "", 1, null, true])(
    "cannot end at %j",
    (expires_at) => {
      const { issues } = checked(keyAuth.schema, { keys: [{ id: "a", key: "k", expires_at }] });
      expect(issues).toEqual([
        expect.stringContaining('keys[0].expires_at: expected a time such as "2027-01-31T12:00:00Z"'),
      ]);
    },
  );
});
