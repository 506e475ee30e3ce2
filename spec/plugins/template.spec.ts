import { describe, expect, it } from "vitest";
import * as references from "../../lib/config/references.ts";
import { formatIssues } from "../../lib/config/load.ts";
import { nodeFrom } from "../../lib/config/json.ts";
import { Exchange, type ExchangeParts } from "../../lib/http/exchange.ts";
import { definePlugin } from "../../lib/plugins/kit.ts";
import { headerTemplate, locationTemplate } from "../../lib/plugins/template.ts";
import { INVALID, object } from "../../lib/config/schema.ts";
import { checked, madeUpExchange } from "../support/exercise.ts";
import { random } from "../support/random.ts";
import { loadConfig } from "../support/schema.ts";

const header = headerTemplate("A value.");
const location = locationTemplate("A place.");

function rendered(
  schema: typeof header | typeof location,
  text: string,
  parts: Partial<ExchangeParts> = {},
  environment: Record<string, string> = {},
): string {
  const context = { issues: [], sources: { references, environment, readFile: () => "from a file\n", folder: "/" } };
  const template = schema.check(nodeFrom(text), [], context);
  if (template === INVALID) throw new Error(JSON.stringify(context.issues));
  return ("read" in template ? template.read : template)(madeUpExchange(parts));
}

const inHeader = (text: string, parts?: Partial<ExchangeParts>, environment?: Record<string, string>) =>
  rendered(header, text, parts, environment);
const inLocation = (text: string, parts?: Partial<ExchangeParts>) => rendered(location, text, parts);
const claims = (values: Record<string, unknown>) => ({ claims: values });

describe("placeholders", () => {
  it.each<[string, string]>([
    ["plain", "plain"],
    ["{id}", "42"],
    ["item {id}, {id}!", "item 42, 42!"],
    ["${request.id}", "request-1"],
    ["${request.method} ${request.path}", "GET /a/b"],
    ["${request.host}", "gateway.example"],
    ["${client.ip}", "192.0.2.1"],
    ["${caller.id}", "alice"],
    ["${claim.sub}", "user-1"],
    ["${claim.address.city}", "Ulm"],
    ["${claim.https://example.com/role}", "admin"],
    ["${claim.a.b}", "dotted"],
    ["${claim.admin} ${claim.age}", "true 30"],
    ["${claim.groups}", "x,y%2Cz,50%25"],
    ["${claim.address}", '{"city":"Ulm"}'],
  ])("placeholders take their value from the request: %s", (text, expected) => {
    const values = {
      sub: "user-1",
      address: { city: "Ulm" },
      "https://example.com/role": "admin",
      "a.b": "dotted",
      a: { b: "nested" },
      admin: true,
      age: 30,
      groups: ["x", "y,z", "50%"],
    };
    expect(
      inHeader(text, { params: { id: "42" }, identity: "alice", claims: values, authority: "gateway.example:8008" }),
    ).toBe(expected);
  });

  it.each([
    "{id}",
    "${claim.sub}",
    "${claim.a.b}",
    "${caller.id}",
    "${claim.constructor}",
    "${claim.__proto__.x}",
    "{constructor}",
  ])("an absent %s is empty", (text) => {
    expect(inHeader(text, claims({ a: null }))).toBe("");
    expect(inHeader(text)).toBe("");
  });

  it.each([
    ['{"a":{"b":1}} {} {a b} $5 {1}', '{"a":{"b":1}} {} {a b} $5 {1}'],
    ["{{id}} $${request.id}", "{id} ${request.id}"],
  ])("braces around anything but a name are text, and doubled ones stand for single ones: %s", (text, expected) => {
    expect(inHeader(text, { params: { id: "42" } })).toBe(expected);
  });

  it("placeholders in the values of references are plain text", () => {
    expect(inHeader("${env:A}-${file:/b}-{id}", { params: { id: "42" } }, { A: "{id}${request.id}${nothing}" })).toBe(
      "{id}${request.id}${nothing}-from a file-42",
    );
  });
});

describe("values of requests are escaped", () => {
  it("a value in a header has no line breaks, control characters or blanks around it, and is UTF-8", () => {
    expect(inHeader("${claim.sub}", claims({ sub: " a\r\nX-Admin: 1\0\x7f\tb " }))).toBe("a??X-Admin: 1??\tb");
    expect(inHeader("ü ${claim.sub}", claims({ sub: "Jürgen Ж \ud800" }))).toBe(
      Buffer.from("ü Jürgen Ж \ufffd").toString("latin1"),
    );
    expect(inHeader(" a ")).toBe("a");
    // Its last byte is 0xA0, which is no blank here.
    expect(inHeader("${claim.sub}", claims({ sub: "voilà " }))).toBe(Buffer.from("voilà").toString("latin1"));
  });

  it("a location has its claims percent-encoded, and its parameters as they matched", () => {
    expect(inLocation("/u/${claim.sub}?n=${claim.name}", claims({ sub: "../a/b?c#d", name: "a&b=c\r\nX: é" }))).toBe(
      "/u/..%2Fa%2Fb%3Fc%23d?n=a%26b%3Dc%0D%0AX%3A%20%C3%A9",
    );
    expect(inLocation("/new/{rest}", { params: { rest: "a%20b/c;d=1&e" } })).toBe("/new/a%20b/c;d=1&e");
    expect(inLocation("/new?id={id}", { params: { id: "a&admin=1+2;%20" } })).toBe("/new?id=a%26admin%3D1%2B2%3B%20");
    expect(inLocation("/${claim.sub}", claims({ sub: "/evil.example" }))).toBe("/%2Fevil.example");
    expect(inLocation("/{x}", { params: { x: 'a"<>\\^`{|}é\r\n' } })).toBe("/a%22%3C%3E%5C%5E%60%7B%7C%7D%E9%0D%0A");
  });

  it("a location without a parameter has no second slash in front, after which a host would be read", () => {
    expect(inLocation("/{x}/{y}", { params: { y: "evil.example" } })).toBe("/evil.example");
    expect(inLocation("/{x}//{y}", { params: { y: "evil.example" } })).toBe("/evil.example");
  });

  it("a location has the requested host without its port", () => {
    expect(inLocation("https://${request.host}${request.path}", { authority: "shop.example:8008", path: "/a/b" })).toBe(
      "https://shop.example/a/b",
    );
    expect(inLocation("https://${request.host}:8443/", { authority: "[2001:db8::1]:80" })).toBe(
      "https://[2001:db8::1]:8443/",
    );
    expect(inLocation("${request.path}/", { path: "/a" })).toBe("/a/");
    expect(inLocation("//other.example${request.path}", { path: "/a" })).toBe("//other.example/a");
  });

  it("no claim or parameter breaks a header line or changes the host of a location", () => {
    const from = random(7);
    const nasty = () =>
      from
        .list(0, 8, () =>
          from.pick([
            "/",
            "\\",
            "\r",
            "\n",
            "\0",
            "@",
            ":",
            "?",
            "#",
            "..",
            "evil.example",
            "%2F",
            "é",
            "\ud800",
            "\t",
            " ",
          ]),
        )
        .join("");
    for (let i = 0; i < 2_000; i++) {
      const parts = { claims: { sub: nasty() }, params: { x: nasty().replaceAll(/[/\\]/g, "") } };
      expect(inHeader("a {x} ${claim.sub}", parts)).toMatch(/^[\t\x20-\x7e\x80-\xff]*$/);
      const url = new URL(
        inLocation(
          from.pick(["/{x}/${claim.sub}", "/${claim.sub}{x}", "https://here.example/{x}?a=${claim.sub}#{x}"]),
          parts,
        ),
        "https://here.example",
      );
      expect(url.host).toBe("here.example");
    }
  });
});

describe("configuration", () => {
  it.each<[string, RegExp]>([
    ["", /expected a non-empty string/],
    ["${request.di}", /\$\{request\.di\} is not known here; did you mean \$\{request\.id\}\?/],
    ["${client.IPs}", /did you mean \$\{client\.ip\}\?/],
    ["${claims.sub}", /did you mean \$\{claim\.sub\}\?/],
    ["${params.id}", /did you mean \{id\}\?/],
    ["${x}", /\$\{x\} is not known here \(known: request\.id, .*claim\.NAME.*write \$\$\{x\} for the text itself/],
    ["${claim.}", /is not known here/],
    ["${request.id", /a placeholder that begins with \$\{ lacks its closing brace/],
    ["${env:NOPE}", /\$\{env:NOPE\} cannot be resolved/],
    ["{rest*}", /\{rest\*\} is written \{rest\} here/],
    ["a\nb", /contains a control character or line break/],
  ])("%j is an error", (text, message) => {
    const { issues } = checked(header, text);
    expect(issues.length).toBe(1);
    expect(issues[0]).toMatch(message);
  });

  it.each<[string, RegExp]>([
    ["shop", /expected a path that starts with "\/" or a URL/],
    ["ftp://x/", /expected a path/],
    ["https:/x", /expected a path/],
    ["https:///x", /expected a path/],
    ["//", /expected a path/],
    ["///x", /expected a path/],
    ["///{x}", /expected a path/],
    ["javascript:alert(1)", /expected a path/],
    ["{x}", /\{x\} would choose where to redirect/],
    ["${claim.next}", /would choose where to redirect/],
    ["https://{tenant}.example.com/", /\{tenant\} would choose the host/],
    ["https://example.com{x}/", /would choose the host/],
    ["https://${claim.sub}@example.com/", /would choose the host/],
    ["https://a.${request.host}/", /would choose the host/],
    ["//{x}", /would choose the host/],
    ["/${request.path}", /starts with a slash: leave out the one before it/],
    ["https://${request.path}", /starts with a slash/],
    ["/a b", /contains " ", which a URL cannot contain: write it percent-encoded/],
    ["/é", /contains "é"/],
    ["/\\evil.example", /contains "\\\\"/],
  ])("the location %j is an error", (text, message) => {
    const { issues } = checked(location, text);
    expect(issues.length).toBe(1);
    expect(issues[0]).toMatch(message);
  });

  it("never shows a secret in an error", () => {
    const context = {
      issues: [] as { message: string }[],
      sources: { references, environment: { A: "s3cret\n" }, readFile: () => "", folder: "/" },
    };
    expect(header.check(nodeFrom("x ${env:A}"), [], context as never)).toBe(INVALID);
    expect(context.issues.map(({ message }) => message)).toEqual(["the value of the reference is not valid here"]);
  });

  it("a template is shown as it was written", () => {
    expect(header.show(nodeFrom("x ${env:A} {id}"))).toBe("x ${env:A} {id}");
  });
});

describe("the parameters of a route", () => {
  const kind = definePlugin({ name: "k", schema: object({ v: header }), create: () => (next) => next });
  const issues = (text: string, level: "global" | "service" | "route") => {
    const plugins = (at: string) => (at === level ? [{ name: "k", config: { v: text } }] : []);
    const value = {
      global: { plugins: plugins("global") },
      services: [
        {
          name: "s",
          base_path: "/t/{tenant}",
          upstreams: [{ host: "127.0.0.1", port: 1 }],
          plugins: plugins("service"),
          routes: [{ path: "/items/<item_id>/{rest*}", plugins: plugins("route") }],
        },
      ],
    };
    const loaded = loadConfig({ value }, { kinds: [kind], environment: {} });
    return loaded.ok ? "" : formatIssues(loaded.issues);
  };

  it("parameters are checked for a plugin of a route: those of base_path and path, in every notation", () => {
    expect(issues("{tenant} {item_id} {rest}", "route")).toBe("");
    expect(issues("{other}", "route")).toMatch(
      new RegExp(
        String.raw`plugins\[0\]\.config\.v +\{other\} is no placeholder of this route's path \(it ` +
          String.raw`has \{tenant\}, \{item_id\}, \{rest\}; write \{\{other\}\}`,
      ),
    );
    expect(issues("{itemid}", "route")).toMatch(/did you mean \{item_id\}\?/);
  });

  it("parameters are not checked for plugins of a service or all services", () => {
    expect(issues("{item}", "service")).toBe("");
    expect(issues("{item}", "global")).toBe("");
  });
});

it("does not change the exchange", () => {
  const exchange = madeUpExchange({ params: { id: "1" } });
  const before = { ...exchange };
  const template = checked(header, "{id}${request.id}").value!;
  template(exchange);
  expect({ ...exchange }).toEqual(before);
  expect(exchange).toBeInstanceOf(Exchange);
});
