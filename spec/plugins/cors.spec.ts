import { describe, expect, it } from "vitest";
import { cors, originProblem, originTest } from "../../lib/plugins/cors.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { problem } from "../../lib/http/reply.ts";
import { atOnce, checked, exercise, instance, madeUpExchange, plainReply } from "../support/exercise.ts";
import { counted, growth, LINEAR } from "../support/growth.ts";

const APP = "https://app.example.com";
const EVIL = "https://evil.example";

/** Name and value of the headers that speak of CORS, names in lower case, and of Vary. */
function told({ headers }: Reply) {
  const list: Record<string, string> = {};
  headers.forEach((name, i) => {
    const lower = name.toLowerCase();
    if (i % 2 === 1 || !/^(access-control-|vary$)/.test(lower)) return;
    if (lower !== "vary" && lower in list) throw new Error(`${name} stands there twice`);
    list[lower] = lower in list ? `${list[lower]} + ${headers[i + 1]}` : headers[i + 1]!;
  });
  return list;
}

function ask(config: object, origin: string | null, answer: Reply = plainReply) {
  const headers = ["Host", "h", ...(origin === null ? [] : ["Origin", origin])];
  const exchange = madeUpExchange({ headers });
  const { returned, forwarded } = exercise(instance(cors, config), exchange, () => answer);
  expect(forwarded).toBe(exchange);
  return atOnce(returned);
}

function preflight(config: object, origin: string, further: string[] = [], answer?: Reply) {
  const headers = ["Host", "h", "Origin", origin, "Access-Control-Request-Method", "PUT", ...further];
  const { returned, forwarded } = exercise(
    instance(cors, config),
    madeUpExchange({ method: "OPTIONS", headers }),
    () => answer ?? plainReply,
  );
  return { reply: atOnce(returned), forwarded };
}

describe("a reply", () => {
  const config = { allow_origins: [APP, "https://*.example.org"], expose_headers: ["X-Total", "ETag"] };
  const allowed = (origin: string) => ({
    "access-control-allow-origin": origin,
    "access-control-expose-headers": "X-Total, ETag",
    vary: "Origin",
  });

  it.each([APP, "https://a.example.org"])("a reply to a page of %s allows that page to read it", (origin) => {
    const reply = ask(config, origin);
    expect(told(reply)).toEqual(allowed(origin));
    expect(reply).toMatchObject({ status: 200, body: plainReply.body });
    expect(reply.headers.slice(0, 2)).toEqual(plainReply.headers);
  });

  it.each([EVIL, "null", "", null])("a reply to a page of %s has no CORS header except Vary: Origin", (origin) => {
    expect(told(ask(config, origin))).toEqual({ vary: "Origin" });
  });

  it("a reply has Access-Control-Allow-Credentials with allow_credentials, for allowed origins only", () => {
    expect(told(ask({ ...config, allow_credentials: true }, APP))).toEqual({
      ...allowed(APP),
      "access-control-allow-credentials": "true",
    });
    expect(told(ask({ ...config, allow_credentials: true }, EVIL))).toEqual({ vary: "Origin" });
  });

  it("a reply has no Vary: Origin if every origin may read it", () => {
    for (const origin of [APP, "null", null])
      expect(told(ask({ allow_origins: ["*"] }, origin))).toEqual({ "access-control-allow-origin": "*" });
  });

  it("a reply has none of the upstream's CORS headers, for origins that are not allowed either", () => {
    const answer = {
      ...plainReply,
      headers: [
        "ACCESS-CONTROL-ALLOW-ORIGIN",
        EVIL,
        "X-Before",
        "1",
        "Access-Control-Allow-Credentials",
        "true",
        "access-control-expose-headers",
        "*",
        "Access-Control-Max-Age",
        "5",
        "Access-Control-Allow-Methods",
        "*",
        "X-Access-Control",
        "2",
      ],
    };
    expect(told(ask(config, APP, answer))).toEqual(allowed(APP));
    expect(told(ask(config, EVIL, answer))).toEqual({ vary: "Origin" });
    expect(told(ask({ allow_origins: ["*"] }, null, answer))).toEqual({ "access-control-allow-origin": "*" });
    expect(ask(config, null, answer).headers).toEqual(["X-Before", "1", "X-Access-Control", "2", "Vary", "Origin"]);
  });

  it.each([
    ["Accept-Encoding", "Accept-Encoding + Origin"],
    ["Accept, ORIGIN", "Accept, ORIGIN"],
    ["*", "*"],
  ])("a reply changes the upstream's Vary: %s to Vary: %s", (vary, expected) => {
    expect(told(ask(config, APP, { ...plainReply, headers: ["vary", vary] })).vary).toBe(expected);
    expect(told(ask({ allow_origins: ["*"] }, APP, { ...plainReply, headers: ["vary", vary] })).vary).toBe(vary);
  });

  it("a reply gets the same headers if another plugin refused the request", async () => {
    const refusing = (later: boolean) => {
      const exchange = madeUpExchange({ headers: ["Origin", APP] });
      const reply = problem(exchange.call, "key_missing");
      return exercise(instance(cors, config), exchange, () => (later ? Promise.resolve(reply) : reply)).returned;
    };
    for (const reply of [atOnce(refusing(false)), await refusing(true)]) {
      expect(reply.status).toBe(401);
      expect(told(reply)).toEqual(allowed(APP));
    }
  });

  it("a reply stays unchanged itself, as its copy gets the headers; a WebSocket's reply is passed on", () => {
    const answer = Object.freeze({ ...plainReply, headers: Object.freeze([...plainReply.headers]) });
    expect(ask(config, APP, answer)).not.toBe(answer);
    const opened: Reply = { status: 101, headers: ["Upgrade", "websocket"], body: null };
    expect(ask(config, APP, opened)).toBe(opened);
  });
});

describe("a preflight", () => {
  const config = {
    allow_origins: [APP],
    allow_methods: ["GET", "PUT"],
    allow_headers: ["Content-Type", "X-Key"],
    max_age: 600,
  };

  it("a preflight is answered with 204 and the methods and headers that the page may use", () => {
    const { reply, forwarded } = preflight({ ...config, allow_credentials: true, expose_headers: ["X-Total"] }, APP, [
      "Access-Control-Request-Headers",
      "x-key",
    ]);
    expect(forwarded).toBeNull();
    expect([reply.status, reply.body]).toEqual([204, null]);
    expect(told(reply)).toEqual({
      "access-control-allow-origin": APP,
      "access-control-allow-credentials": "true",
      "access-control-allow-methods": "GET, PUT",
      "access-control-allow-headers": "Content-Type, X-Key",
      "access-control-max-age": "600",
      vary: "Origin",
    });
  });

  it("a preflight gets no CORS headers for an origin that is not allowed", () => {
    const { reply, forwarded } = preflight({ ...config, allow_private_network: true }, EVIL, [
      "Access-Control-Request-Private-Network",
      "true",
    ]);
    expect([reply.status, forwarded]).toEqual([204, null]);
    expect(told(reply)).toEqual({ vary: "Origin, Access-Control-Request-Private-Network" });
  });

  it("a preflight is granted the headers that it asks for by default, and none with an empty allow_headers", () => {
    const asked = ["access-control-request-headers", "content-type,x-key"];
    const open = { allow_origins: ["*"], allow_methods: ["*"] };
    expect(told(preflight(open, APP, asked).reply)).toEqual({
      "access-control-allow-origin": "*",
      "access-control-allow-methods": "*",
      "access-control-allow-headers": "content-type,x-key",
      vary: "Access-Control-Request-Headers",
    });
    expect(told(preflight({ allow_origins: [APP] }, APP).reply)).toEqual({
      "access-control-allow-origin": APP,
      "access-control-allow-methods": "GET, HEAD, QUERY, POST, PUT, PATCH, DELETE",
      vary: "Origin, Access-Control-Request-Headers",
    });
    expect(told(preflight({ ...open, allow_headers: [] }, APP, asked).reply)).toEqual({
      "access-control-allow-origin": "*",
      "access-control-allow-methods": "*",
    });
    expect(told(preflight(open, APP, ["Access-Control-Request-Headers", 'a"b']).reply)).not.toHaveProperty(
      "access-control-allow-headers",
    );
  });

  it("a preflight is granted private network access when it asks and allow_private_network is set", () => {
    const asked = ["Access-Control-Request-Private-Network", "true"];
    const granted = (given: object, further: string[]) =>
      told(preflight({ ...config, ...given }, APP, further).reply)["access-control-allow-private-network"];
    expect(granted({ allow_private_network: true }, asked)).toBe("true");
    expect(granted({ allow_private_network: true }, [])).toBeUndefined();
    expect(granted({}, asked)).toBeUndefined();
  });

  it("a preflight goes on to the upstream with preflight_continue, and the reply gets the configured headers", () => {
    const answer = {
      status: 200,
      headers: ["Allow", "GET", "Access-Control-Allow-Origin", "*", "Access-Control-Allow-Methods", "TRACE"],
      body: null,
    };
    const { reply, forwarded } = preflight({ ...config, preflight_continue: true }, APP, [], answer);
    expect(forwarded?.method).toBe("OPTIONS");
    expect([reply.status, reply.headers.slice(0, 2)]).toEqual([200, ["Allow", "GET"]]);
    expect(told(reply)).toEqual(told(preflight(config, APP).reply));
    expect(told(preflight({ ...config, preflight_continue: true }, EVIL, [], answer).reply)).toEqual({
      vary: "Origin",
    });
  });

  it("a preflight is an OPTIONS request with Origin and Access-Control-Request-Method, and no other request", () => {
    const middleware = instance(cors, config);
    for (const [method, headers] of [
      ["OPTIONS", ["Origin", APP]],
      ["OPTIONS", ["Access-Control-Request-Method", "PUT"]],
      ["GET", ["Origin", APP, "Access-Control-Request-Method", "PUT"]],
    ] as const) {
      expect(exercise(middleware, madeUpExchange({ method, headers: [...headers] })).forwarded).not.toBeNull();
    }
  });

  it("a preflight reaches the plugin although the route does not list OPTIONS", () =>
    expect(cors.takes).toBe("preflights"));
});

describe("configuration", () => {
  it("cors needs allow_origins and has defaults for the rest", () => {
    expect(checked(cors.schema, { allow_origins: [APP] }).value).toEqual({
      allowOrigins: [APP],
      allowMethods: ["GET", "HEAD", "QUERY", "POST", "PUT", "PATCH", "DELETE"],
      exposeHeaders: [],
      allowCredentials: false,
      allowPrivateNetwork: false,
      preflightContinue: false,
    });
    expect(
      checked(cors.schema, { allow_origins: ["*"], allow_methods: ["*"], allow_headers: ["*"], expose_headers: ["*"] })
        .issues,
    ).toEqual([]);
  });

  it.each<[object, string]>([
    [{}, "allow_origins: is required"],
    [{ allow_origins: [] }, "allow_origins: expected at least 1 item, found none"],
    [
      { allow_origins: [`${APP}/`] },
      'allow_origins[0]: expected an origin such as "https://app.example.com" or "https://*.example.com", or "*"',
    ],
    [{ allow_origins: ["*", APP] }, 'allow_origins: "*" is every origin: write it alone, or leave it out'],
    [
      { allow_origins: ["*"], allow_credentials: true },
      'allow_origins: "*" cannot be used with "allow_credentials": list the origins',
    ],
    [
      { allow_origins: [APP], allow_credentials: true, allow_methods: ["*"] },
      'allow_methods: "*" is not a wildcard with "allow_credentials": list the names',
    ],
    [
      { allow_origins: [APP], allow_credentials: true, allow_headers: ["*"] },
      'allow_headers: "*" is not a wildcard with "allow_credentials": list the names',
    ],
    [
      { allow_origins: [APP], allow_credentials: true, expose_headers: ["X", "*"] },
      'expose_headers: "*" is not a wildcard with "allow_credentials": list the names',
    ],
    [{ allow_origins: [APP], allow_methods: ["patch"] }, 'found "patch": methods are case-sensitive, write "PATCH"'],
    [
      { allow_origins: [APP], allow_methods: ["GET, PUT"] },
      'allow_methods[0]: expected an HTTP method in upper case, or "*"',
    ],
    [{ allow_origins: [APP], allow_headers: ["a, b"] }, 'allow_headers[0]: expected the name of a header, or "*"'],
    [{ allow_origins: [APP], max_age: -1 }, "max_age: expected an integer 0–86400, found -1"],
  ])("cors reports %j as a configuration error", (config, issue) =>
    expect(checked(cors.schema, config).issues).toEqual([expect.stringContaining(issue)]),
  );
});

describe("an entry of allow_origins", () => {
  const entries = [
    "https://app.example.com",
    "http://localhost:3000",
    "https://*.example.org",
    "https://*.example.net:8443",
    "http://[::1]:3000",
    "capacitor://localhost",
  ];
  const isAllowed = originTest(entries);

  it.each(entries)("%s is a valid entry", (entry) => expect(originProblem(entry)).toBeUndefined());

  it.each([
    "https://app.example.com",
    "http://localhost:3000",
    "https://a.example.org",
    "https://a.b-c.example.org",
    "https://x_1.example.net:8443",
    "http://[::1]:3000",
    "capacitor://localhost",
  ])("an entry of allow_origins allows %s", (origin) => expect(isAllowed(origin)).toBe(true));

  it.each([
    "",
    "null",
    "*",
    "http://app.example.com",
    "https://app.example.com:8443",
    "https://app.example.com.evil.example",
    "https://APP.example.com",
    "https://app.example.com/",
    "http://localhost",
    "https://example.org",
    "https://.example.org",
    "https://evilexample.org",
    "http://a.example.org",
    "https://a.example.org:444",
    "https://evil.example/.example.org",
    "https://evil.example#.example.org",
    "https://evil.example?.example.org",
    "https://evil.example\\.example.org",
    "https://u:p@a.example.org",
    "https://evil.example:1.example.org",
    "https://*.example.org",
    "https://a.example.net",
  ])("an entry of allow_origins does not allow %s", (origin) => expect(isAllowed(origin)).toBe(false));
});

describe("an entry that is no origin", () => {
  it("accepts * as an entry", () => expect(originProblem("*")).toBeUndefined());

  it.each<[string, string | RegExp]>([
    ["", ""],
    ["app.example.com", ""],
    ["https://", ""],
    ["https://a.*.example.com", ""],
    ["https://*example.com", ""],
    ["https://*", ""],
    ["https://a.example.com:", ""],
    ["https://u@example.com", ""],
    ["null", /any page/],
    ["https://App.example.com", 'browsers write it in lower case, "https://app.example.com"'],
    ["https://app.example.com/", 'an origin has no path: write "https://app.example.com"'],
    ["https://app.example.com:8443/a/b", 'an origin has no path: write "https://app.example.com:8443"'],
    ["https://app.example.com:443", 'browsers leave out the default port: write "https://app.example.com"'],
    ["http://*.example.com:80", 'browsers leave out the default port: write "http://*.example.com"'],
    ["http://a.example:65536", "a port is a number from 1 to 65535"],
    ["http://a.example:0", "a port is a number from 1 to 65535"],
    ["https://bücher.example", "browsers write names beyond ASCII in their xn-- form"],
  ])("an entry that is no origin has an error: %s", (text, problem) =>
    expect(originProblem(text)).toEqual(typeof problem === "string" ? problem : expect.stringMatching(problem)),
  );

  it("an invalid entry is rejected in a time that grows linearly with its length", async () => {
    const cors = await counted(() => import("../../lib/plugins/cors.ts"));
    for (const part of ["a.", "a-", "a"]) {
      expect(originProblem(`https://${part.repeat(100_000)}!`)).toBe("");
      expect(
        growth((size) => cors.originProblem(`https://${part.repeat(size / part.length)}!`), 1_000),
        part,
      ).toBeLessThan(LINEAR);
    }
  });
});
