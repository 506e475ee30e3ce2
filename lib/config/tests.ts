/**
 * The schema of the tests of a configuration: requests, and what is expected of them.
 */
import { isIP } from "node:net";
import { byHeader, HEADER_VALUE, isMatches, MATCHES, NULL, SECRET, type Matches } from "./expected.ts";
import { boundedInteger, METHOD, milliseconds, NAME } from "./fields.ts";
import { nodeAt, type Json, type Path, type Position } from "./json.ts";
import { listedFile } from "./pinned_file.ts";
import * as s from "./whole_schema.ts";
import { define } from "./schema_core.ts";

/** All tests of a configuration together. */
export const MAX_TESTS = 10_000;

/** The certificate of a test's client. */
export interface TestCertificate {
  /** In the form of RFC 4514: "CN=billing,O=Example". */
  readonly subject: string;
  /** Subject alternative names with their types: "DNS:billing.example.com". */
  readonly san: readonly string[];
}

/** Any JSON; references are resolved in all its strings. */
const ANY_JSON: s.Schema<Json, Json> = define({
  expects: "a JSON value",
  kinds: ["null", "boolean", "number", "string", "array", "object"],
  secret: true,
  check(node, at, context): Json | s.Invalid {
    if (node.kind === "array") return LIST.check(node, at, context);
    if (node.kind === "object") return CLAIMS.check(node, at, context);
    if (node.kind === "string") return TEXT.check(node, at, context);
    return node.kind === "null" ? null : node.value;
  },
  show(node) {
    if (node.kind === "array") return LIST.show(node);
    if (node.kind === "object") return CLAIMS.show(node);
    return node.kind === "null" ? null : node.value;
  },
  jsonSchema: () => ({}),
});
const TEXT = s.string(SECRET);
const LIST = s.array(ANY_JSON);
const CLAIMS = s.record(ANY_JSON, { describe: "Claims of a token whose signature is right." });

/** The exact value, or a pattern. */
function exactly<S extends s.AnySchema>(value: S, describe: string) {
  return s.optional(s.anyOf([value, MATCHES], { describe }));
}

/** The exact text, null for none, or a pattern. */
function textOrNone(text: s.Schema<string, string>, describe: string) {
  return s.optional(s.anyOf([text, MATCHES, NULL], { describe }));
}

const HEADER_VALUES = s.anyOf([HEADER_VALUE, s.array(HEADER_VALUE, { min: 1 })]);
const EXPECTED_HEADER = s.anyOf([HEADER_VALUE, s.array(HEADER_VALUE, { min: 1 }), MATCHES, NULL]);

function body(describe: string) {
  return s.optional({ ...ANY_JSON, describe, jsonSchema: () => ({ description: describe }) });
}

/** `{"matches": "^a"}` is a pattern, any other object a body of JSON. */
const EXPECTED_BODY: s.Schema<Json | Matches, Json> = {
  ...ANY_JSON,
  describe: "Body of the reply.",
  check(node, at, context) {
    const isPattern =
      node.kind === "object" && node.members.size === 1 && node.members.get("matches")?.kind === "string";
    return (isPattern ? MATCHES : ANY_JSON).check(node, at, context);
  },
  jsonSchema: () => ({ description: "Body of the reply." }),
};

const REQUEST_URL = s.string({
  hint:
    'a path such as "/items?x=1", or an http:// or https:// URL, in printable ASCII, ' +
    'without "#", user name and password',
  describe: "Path with query, or an http(s) URL.",
  check: (text) => (isSendable(text) && (text.startsWith("/") || isHttpUrl(text)) ? undefined : ""),
  ...SECRET,
});

const ANSWER_URL = s.string({
  references: "address",
  hint: 'an http:// or https:// URL, in printable ASCII, without "#", user name and password',
  describe: "The exact URL that is asked.",
  check: (text) => (isSendable(text) && isHttpUrl(text) ? undefined : ""),
  ...SECRET,
});

/** Printable ASCII without "#": a fragment is never sent (RFC 9110 §7.1). */
function isSendable(url: string): boolean {
  return /^[\x21\x22\x24-\x7e]+$/.test(url);
}

function isHttpUrl(text: string): boolean {
  if (!/^https?:\/\/[^/]/i.test(text) || !URL.canParse(text)) return false;
  const { username, password } = new URL(text);
  return username === "" && password === "";
}

const CLIENT_IP = s.string({
  hint: "an IP address",
  describe: "Address of the client.",
  check: (text) => (isIP(text) === 0 ? "" : text.includes("%") ? "leave the zone out" : undefined),
});

const SAN = s.string({
  pattern: /^(?:DNS|URI|IP|email):./,
  hint: 'a name with its type (DNS, URI, IP or email) such as "DNS:billing.example.com"',
});

const CERTIFICATE: s.Schema<
  TestCertificate | null,
  { readonly subject: string; readonly san?: readonly string[] | undefined }
> = s.object(
  {
    subject: s.string({ min: 1, describe: 'Subject in the form of RFC 4514, such as "CN=billing,O=Example".' }),
    san: s.withDefault(s.array(SAN, { describe: "Subject alternative names." }), []),
  },
  { describe: "The client's certificate, as if it had been verified." },
);

const CALLER = s.string({
  min: 1,
  max: 200,
  describe: "The id of a caller, as if its key or other credentials were right.",
});

const MCP_MESSAGE = s.object(
  {
    method: s.string({ min: 1, max: 256, references: "none", describe: "The method, such as tools/call." }),
    name: s.optional(
      s.string({ min: 1, references: "none", describe: "The tool, the prompt, or the URI of the resource." }),
    ),
  },
  { describe: "A message of MCP, sent by POST with the headers of 2026-07-28." },
);

const REQUEST = s.object(
  {
    method: s.withDefault(METHOD, "GET"),
    url: REQUEST_URL,
    headers: s.withDefault(byHeader(HEADER_VALUES, "Headers; a list for several lines."), {}),
    body: body("A text, or JSON where it is not a string."),
    mcp: s.optional(MCP_MESSAGE),
    client_ip: s.withDefault(CLIENT_IP, "127.0.0.1"),
    as: s.withDefault(
      s.object(
        { jwt: s.optional(CLAIMS), caller: s.optional(CALLER) },
        { describe: "Credentials that the plugins accept without a check." },
      ),
      {},
    ),
    certificate: s.derived(CERTIFICATE, () => null),
    times: boundedInteger(1, 10_000, 1, "How often the request is sent; the last one is compared."),
    every_ms: milliseconds(0, 0, "Time between two of them"),
  },
  { describe: "The request." },
);

const REPLY = {
  status: boundedInteger(200, 599, 200, "Status of the reply."),
  headers: s.withDefault(byHeader(HEADER_VALUES, "Headers of the reply."), {}),
  body: body("Body of the reply."),
};

const EXPECT = s.object(
  {
    status: exactly(s.integer({ min: 100, max: 599 }), "Status of the reply."),
    code: textOrNone(TEXT, "Code of the problem; null: no problem of the gateway."),
    service: textOrNone(s.string({ references: "none" }), "Name of the matched service; null: none."),
    route: textOrNone(s.string({ references: "none" }), "Name of the matched route; null: none."),
    upstream_path: textOrNone(TEXT, "Path and query that the upstream gets; null: it gets no request."),
    upstream_headers: s.optional(byHeader(EXPECTED_HEADER, "Headers that the upstream gets; null: absent.")),
    headers: s.optional(byHeader(EXPECTED_HEADER, "Headers of the reply; null: absent.")),
    body: s.optional(EXPECTED_BODY),
    caller: textOrNone(TEXT, "Identity of the caller; null: none."),
  },
  {
    describe: "What is expected; at least one member.",
    refine(value, report) {
      if (Object.keys(value).length === 0) report('needs at least one member, such as "status": 200');
    },
  },
);

const FIELDS = s.object(
  {
    name: NAME,
    request: REQUEST,
    upstream: s.withDefault(s.object(REPLY, { describe: "Reply of the upstream." }), {}),
    answers: s.withDefault(
      s.array(s.object({ url: ANSWER_URL, ...REPLY }), { describe: "Replies to plugins that ask other servers." }),
      [],
    ),
    expect: EXPECT,
  },
  {
    refine({ request, answers, expect }, report) {
      const urls = new Map<string, number>();
      answers.forEach(({ url }, i) => {
        const { href } = new URL(url);
        const first = urls.get(href);
        if (first === undefined) urls.set(href, i);
        else report(`is the same URL as that of answers[${first}]`, "answers", i, "url");
      });
      if (request.mcp !== undefined && request.body !== undefined)
        report('is a body of its own: leave "body" out', "request", "mcp");
      if (isBrokenJson(request) && !expectsRefusal(expect)) {
        report(`is a text that is not JSON, although Content-Type says so: ${JSON_REMEDY}`, "request", "body");
      }
    },
  },
);

const JSON_REMEDY = "write JSON here, or expect a refusal (code, or a status 400–499)";

type Fields = s.Infer<typeof FIELDS>;

/** A test, defaults filled in, references resolved. */
export interface ConfigTest extends Fields {
  /** `expect` as written. */
  readonly expected: Json;
  /** Its place in the configuration, or in `file`. */
  readonly at: Path;
  readonly position: Position | null;
  /** Absolute path of the file of `test_files`; undefined: the test is in the configuration itself. */
  readonly file: string | undefined;
}

/** The tests of a configuration that was read with `read_tests.ts`: the kernel does not know what they are. */
export function testsOf({ tests }: { readonly tests: readonly { readonly name: string }[] }): readonly ConfigTest[] {
  return tests as readonly ConfigTest[];
}

/** With its place; `file` is added by `readTests`. */
const TEST: s.Schema<ConfigTest, s.InputOf<typeof FIELDS>> = {
  ...FIELDS,
  check(node, at, context) {
    const test = FIELDS.check(node, at, context);
    if (test === s.INVALID) return test;
    return {
      ...test,
      expected: ANY_JSON.show(nodeAt(node, ["expect"])!),
      at,
      position: context.positionOf?.(node.offset) ?? null,
      file: undefined,
    };
  },
};

export const TESTS = s.array(s.named("Test", TEST), {
  max: MAX_TESTS,
  describe: "Requests, and what is expected of them.",
});
export const TEST_FILE = listedFile("A JSON file with an array of tests; relative to the configuration's folder.");
export const TEST_FILES = s.array(TEST_FILE, { describe: "Files with further tests." });

function isBrokenJson({ headers, body }: Fields["request"]): boolean {
  if (typeof body !== "string") return false;
  const type = Object.entries(headers).find(([name]) => name.toLowerCase() === "content-type")?.[1];
  if (!/^application\/(?:[^;,]*\+)?json[ \t]*(?:;|$)/i.test(String(type))) return false;
  try {
    JSON.parse(body);
    return false;
  } catch {
    return true;
  }
}

/** Also true if a pattern leaves the status open. */
function expectsRefusal({ code, status }: Fields["expect"]): boolean {
  if (typeof code === "string" || isMatches(code) || isMatches(status)) return true;
  return typeof status === "number" && status >= 400 && status < 500;
}
