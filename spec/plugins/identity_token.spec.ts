import { createPublicKey, generateKeyPairSync, verify } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { Exchange } from "../../lib/http/exchange.ts";
import { headerValue, headerValues } from "../../lib/http/headers.ts";
import { identityToken, type PublishedKeys } from "../../lib/plugins/identity_token.ts";
import type { Tools } from "../../lib/plugins/plugin.ts";
import { manualClock } from "../support/clock.ts";
import { checked, exercise, madeUpExchange, madeUpTools } from "../support/exercise.ts";

/** What `manualClock` begins with, in seconds. */
const NOW = Date.UTC(2026, 0, 1) / 1000;

const pemOf = (type: "ed25519" | "ed448" | "x25519") =>
  String(generateKeyPairSync(type as "ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));
const PEM = pemOf("ed25519");
interface Settings {
  readonly header: string;
  readonly issuer?: string;
  readonly audience: string | readonly string[];
  readonly ttlS: number;
}
const SETTINGS: Settings = { header: "X-Caller-Token", audience: "orders", ttlS: 60 };

function made(pem = PEM, more: Partial<Settings> = {}, own: Partial<Tools> = {}) {
  const clock = manualClock();
  const common = new Map<string, unknown>();
  const closings: (() => void)[] = [];
  const tools = madeUpTools({
    clock,
    common: <T>(name: string, make: () => T) => (common.has(name) || common.set(name, make()), common.get(name) as T),
    keep: (_name, _settings, make) => {
      const kept = make();
      closings.push(() => void kept.close());
      return kept;
    },
    ...own,
  });
  const config = { ...SETTINGS, ...more, key: { path: "/k.pem", content: Buffer.from(pem) } };
  const middleware = identityToken.create(config as Parameters<typeof identityToken.create>[0], tools);
  const sent = (parts: Parameters<typeof madeUpExchange>[0] = {}) =>
    exercise(middleware, madeUpExchange({ identity: "ada", ...parts })).forwarded!;
  return {
    clock,
    sent,
    tools,
    published: () => [...(common.get("keys") as PublishedKeys).keys()],
    close: () => closings.forEach((run) => run()),
  };
}

const tokenOf = ({ headers }: Exchange) => headerValue(headers, "x-caller-token")!;
const partsOf = (token: string) =>
  token
    .split(".")
    .slice(0, 2)
    .map((part) => JSON.parse(Buffer.from(part, "base64url").toString()) as Record<string, unknown>);
const claimsOf = (exchange: Exchange) => partsOf(tokenOf(exchange))[1]!;

describe("the token", () => {
  it("takes the place of the client's in Authorization, and the proof of that goes with it (RFC 9449 §7.1)", () => {
    const headers = ["Authorization", "DPoP t", "DPoP", "p", "X-Other", "o"];
    const { headers: own } = made(PEM, { header: "Authorization" }).sent({ headers });
    expect([headerValue(own, "dpop"), headerValue(own, "x-other")]).toEqual([undefined, "o"]);
    expect(headerValue(own, "authorization")).toMatch(/^ey/);
    expect(headerValue(made(PEM).sent({ headers }).headers, "dpop")).toBe("p");
  });

  it("names the caller, the issuer and the audience, and is signed with the first key of the file", () => {
    const { sent } = made(PEM + pemOf("ed25519"), { issuer: "the gateway" });
    const token = tokenOf(sent());
    const [header, claims] = partsOf(token);
    expect(header).toEqual({ alg: "EdDSA", typ: "JWT", kid: expect.stringMatching(/^[\w-]{43}$/) as unknown });
    expect(claims).toEqual({
      iss: "the gateway",
      aud: "orders",
      sub: "ada",
      groups: [],
      iat: NOW,
      exp: NOW + 60,
      jti: expect.stringMatching(/^[\da-f-]{36}$/) as unknown,
    });
    const end = token.lastIndexOf(".");
    expect(
      verify(
        null,
        Buffer.from(token.slice(0, end)),
        createPublicKey(PEM),
        Buffer.from(token.slice(end + 1), "base64url"),
      ),
    ).toBe(true);
  });

  it("has global.name as its issuer by default, and a list of audiences as it is configured", () => {
    expect(claimsOf(made(PEM, { audience: ["a", "b"] }, { gatewayName: "edge 7" }).sent())).toMatchObject({
      iss: "edge 7",
      aud: ["a", "b"],
    });
  });

  it("is used for the requests of one caller until half of its life is over, and has a jti of its own", () => {
    const { sent, clock } = made();
    const first = sent();
    expect(tokenOf(sent())).toBe(tokenOf(first));
    clock.advance(29_999);
    expect(tokenOf(sent())).toBe(tokenOf(first));
    clock.advance(1);
    const second = sent();
    expect(claimsOf(second)).toMatchObject({ iat: NOW + 30, exp: NOW + 90 });
    expect(claimsOf(second)["jti"]).not.toBe(claimsOf(first)["jti"]);
  });

  it(
    "is never that of another caller, also of names that differ in half a surrogate pair " + "or look alike in Latin-1",
    () => {
      const { sent } = made();
      const names = ["ada", "Ada", "\ud800", "\ud801", "\ufffd", "\u0141", "A", "a,b", '["a"]', "", "Ã¤", "ä"];
      const tokens = names.map((identity) => tokenOf(sent({ identity })));
      expect(new Set(tokens).size).toBe(names.length);
      expect(names.map((identity) => tokenOf(sent({ identity })))).toEqual(tokens);
      expect(tokens.map((token) => partsOf(token)[1]!["sub"])).toEqual(names);
    },
  );

  it("is not that of the future when the clock is set back", () => {
    const clock = manualClock();
    let offset = 0;
    const { sent } = made(
      PEM,
      {},
      {
        clock: {
          ...clock,
          now: () => clock.now(),
          after: (...given) => clock.after(...given),
          wall: () => clock.wall() + offset,
        },
      },
    );
    sent();
    offset = -3_600_000;
    expect(claimsOf(sent())).toMatchObject({ iat: NOW - 3600 });
  });
});

describe("the header", () => {
  it.each<[string, string[]]>([
    ["one of that name", ["X-Caller-Token", "forged"]],
    ["several", ["X-Caller-Token", "forged", "x-caller-token", "forged too"]],
    ["with underscores, which many upstreams read as dashes", ["X_Caller_Token", "forged", "x_caller-token", "forged"]],
  ])("of a client is dropped, with an identity and without: %s", (_title, headers) => {
    const { sent } = made();
    const all = ["Host", "h", ...headers, "X-Other", "stays"];
    expect(sent({ headers: all, identity: null }).headers).toEqual(["Host", "h", "X-Other", "stays"]);
    const forwarded = sent({ headers: all });
    expect(forwarded.headers).toEqual(["Host", "h", "X-Other", "stays", "X-Caller-Token", tokenOf(forwarded)]);
    expect(headerValues(forwarded.headers, "x-caller-token")).toHaveLength(1);
  });

  it("is one that upstreams do not get as a trailer either", () => {
    expect(identityToken.ownHeaders!({ ...SETTINGS, key: { path: "", content: Buffer.alloc(0) } } as never)).toEqual([
      "X-Caller-Token",
    ]);
  });
});

describe("the keys", () => {
  it("of the file are all published, one that several files contain once, and until no configuration has it", () => {
    const common = new Map<string, unknown>();
    const shared = {
      common: <T>(name: string, make: () => T) => (common.has(name) || common.set(name, make()), common.get(name) as T),
    };
    const [old, next] = [PEM, pemOf("ed25519")];
    const a = made(old, {}, shared);
    const b = made(next + old, {}, shared);
    const keys = common.get("keys") as PublishedKeys;
    expect([...keys.values()].map(({ jwk }) => jwk)).toEqual(
      [old, next].map((pem) => {
        const { x } = createPublicKey(pem).export({ format: "jwk" });
        return { kty: "OKP", crv: "Ed25519", x, use: "sig", alg: "EdDSA", kid: expect.any(String) as unknown };
      }),
    );
    expect(partsOf(tokenOf(b.sent()))[0]!["kid"]).toBe([...keys.keys()][1]);
    a.close();
    expect(keys.size).toBe(2);
    b.close();
    expect(keys.size).toBe(0);
  });
});

describe("a key file that cannot be used", () => {
  const problemOf = (content: string) => {
    const context = { readFile: () => content };
    return issues({ key: "k.pem", audience: "a" }, context);
  };
  function issues(config: object, { readFile }: { readFile: () => string }): string {
    const { schema } = identityToken;
    const original = schema.check.bind(schema);
    return checked(
      {
        ...schema,
        check: (node, at, given) =>
          original(node, at, { ...given, sources: { ...given.sources, readFile: readFile as never } }),
      },
      config,
    ).issues.join("\n");
  }
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;

  it.each<[string, string, RegExp]>([
    [
      "a public key",
      String(publicKey.export({ type: "spki", format: "pem" })),
      /^key: \/k\.pem: contains a public key: give private keys/,
    ],
    [
      "a public key behind a private one",
      PEM + String(publicKey.export({ type: "spki", format: "pem" })),
      /contains a public key \(number 2 of 2 in it\): give private keys/,
    ],
    [
      "an RSA key",
      String(rsa.export({ type: "pkcs8", format: "pem" })),
      /is a key of the type rsa; expected Ed25519: openssl genpkey -algorithm ed25519 -out FILE$/,
    ],
    ["an Ed448 key", pemOf("ed448"), /is a key of the type ed448; expected Ed25519/],
    [
      "a key for key agreement",
      PEM + pemOf("x25519"),
      /is a key of the type x25519 \(number 2 of 2 in it\); expected Ed25519/,
    ],
    [
      "a passphrase",
      String(privateKey.export({ type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "x" })),
      /is encrypted: store it without a passphrase/,
    ],
    ["no key", "hello", /is not a private key in PEM form/],
    ["nothing", "", /is not a private key in PEM form/],
    ["half a key", PEM.slice(0, 60), /is not a private key in PEM form/],
    [
      "bytes that are no key",
      "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n",
      /is not a private key in PEM form/,
    ],
    ["too many keys", PEM.repeat(11), /contains more than 10 keys/],
  ])("is refused with what it is and what to do: %s", (_title, content, message) => {
    const said = problemOf(content);
    expect(said).toMatch(message);
    expect(said).not.toContain(content.slice(30, 60) || "-");
  });

  it.each<[object, RegExp]>([
    [{ key: "k.pem", audience: [] }, /audience/],
    [{ key: "k.pem" }, /audience/],
    [{ key: "k.pem", audience: "a", ttl_s: 1 }, /ttl_s/],
    [{ key: "k.pem", audience: "a", ttl_s: 86_401 }, /ttl_s/],
    [{ key: "k.pem", audience: "a", header: "Host" }, /the gateway sets this header itself/],
    [{ key: "k.pem", audience: "a", header: "a b" }, /header/],
    [{ key: PEM, audience: "a" }, /found the content of a file/],
    [{ key: "k.pem", audience: "a", issuer: "" }, /issuer/],
  ])("and so are other fields: %j", (config, message) => {
    expect(issues(config, { readFile: () => PEM })).toMatch(message);
  });
});
