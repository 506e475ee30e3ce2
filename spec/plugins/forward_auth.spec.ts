import type { IncomingMessage, ServerResponse } from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { Call } from "../../lib/http/exchange.ts";
import { headerValue, headerValues } from "../../lib/http/headers.ts";
import { forwardAuth } from "../../lib/plugins/forward_auth.ts";
import type { Tools } from "../../lib/plugins/plugin.ts";
import { backend, gate, rawBackend } from "../journeys/harness.ts";
import { manualClock } from "../support/clock.ts";
import {
  checked,
  exercise,
  instance,
  madeUpExchange,
  madeUpTools,
  problemOf,
  type MadeUpTools,
} from "../support/exercise.ts";
import { closedPort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** Tools whose kept things are closed when the test ends. */
function tools(): MadeUpTools {
  const keep: Tools["keep"] = (_name, _settings, make) => {
    const made = make();
    onTestFinished(() => void made.close());
    return made;
  };
  return madeUpTools({ keep });
}

async function asking(answer: Answer, config: object = {}) {
  const server = await backend(answer);
  const own = tools();
  const middleware = instance(forwardAuth, { url: `http://127.0.0.1:${server.port}/check?a=1`, ...config }, own);
  return { server, tools: own, ask: (parts: Parameters<typeof madeUpExchange>[0] = {}) => asked(middleware, parts) };
}

async function asked(middleware: ReturnType<typeof instance>, parts: Parameters<typeof madeUpExchange>[0]) {
  const exchange = madeUpExchange(parts);
  let forwarded = null as ReturnType<typeof exercise>["forwarded"];
  const run = exercise(middleware, exchange, (inner) => {
    forwarded = inner;
    return { status: 200, headers: [], body: null };
  });
  const reply = await run.returned;
  return { reply, forwarded, exchange };
}

const call = (parts: Partial<ConstructorParameters<typeof Call>[0]> = {}) =>
  new Call({
    id: "request-1",
    remoteAddress: "192.0.2.1",
    trustedRemote: false,
    startedAt: 0,
    inform: () => {},
    ...parts,
  });

const pass: Answer = (_request, response) => void response.end("fine");

describe("the request to the auth server", () => {
  it(
    "the request to the auth server describes the client's request in a GET, " + "with Authorization and Cookie",
    async () => {
      const { server, ask } = await asking(pass);
      const headers = [
        "Host",
        "gw",
        "authorization",
        "Bearer x",
        "Cookie",
        "a=1",
        "Cookie",
        "b=2",
        "X-Other",
        "1",
        "Content-Length",
        "3",
        "X-Forwarded-Uri",
        "/forged",
      ];
      await ask({ method: "POST", path: "/a/b", query: "?q=1", scheme: "https", authority: "shop.example", headers });
      const [seen] = server.seen;
      expect([seen!.method, seen!.url, seen!.body.length]).toEqual(["GET", "/check?a=1", 0]);
      expect(seen!.headers.slice(0, -2)).toEqual([
        ...["Host", `127.0.0.1:${server.port}`, "authorization", "Bearer x", "Cookie", "a=1; b=2"],
        ...["X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/a/b?q=1"],
        ...[
          "X-Forwarded-Proto",
          "https",
          "X-Forwarded-Host",
          "shop.example",
          "X-Forwarded-For",
          "192.0.2.1",
          "X-Request-Id",
          "request-1",
        ],
      ]);
    },
  );

  it("the request to the auth server has the request_headers of the configuration, in any case", async () => {
    const { server, ask } = await asking(pass, { request_headers: ["X-Api-Key"] });
    await ask({ headers: ["x-API-key", "k", "Authorization", "Bearer x"] });
    expect(headerValue(server.seen[0]!.headers, "x-api-key")).toBe("k");
    expect(headerValue(server.seen[0]!.headers, "authorization")).toBeUndefined();
  });

  it("the request to the auth server passes on X-Forwarded-For and -Host of a trusted proxy only", async () => {
    const { server, ask } = await asking(pass);
    const headers = ["X-Forwarded-For", "198.51.100.7", "X-Forwarded-Host", "outer.example"];
    await ask({ headers, call: call({ trustedRemote: true }) });
    await ask({ headers });
    const told = server.seen.map(({ headers: list }) => [
      headerValues(list, "x-forwarded-for"),
      headerValues(list, "x-forwarded-host"),
    ]);
    expect(told).toEqual([
      [["198.51.100.7, 192.0.2.1"], ["outer.example"]],
      [["192.0.2.1"], ["gateway.example"]],
    ]);
  });
});

describe("2xx", () => {
  it.each([200, 204, 299])("the answer %i admits the request unchanged", async (status) => {
    const { ask } = await asking((_request, response) => void response.writeHead(status, { "X-User": "ann" }).end());
    const { forwarded, exchange } = await ask({ headers: ["X-User", "own"] });
    expect(forwarded!.headers).toEqual(exchange.headers);
  });

  it("forward_auth replaces the client's headers named in response_headers by the headers of the answer", async () => {
    const { ask } = await asking(
      (_request, response) =>
        void response.writeHead(200, ["X-User", "ann", "X-Roles", "a", "X-Roles", "b", "X-More", "1"]).end(),
      {
        response_headers: ["x-user", "X-Roles", "X-Absent"],
      },
    );
    const { forwarded } = await ask({ headers: ["X-User", "root", "x_user", "root", "X-Absent", "root", "A", "b"] });
    expect(forwarded!.headers).toEqual(["A", "b", "X-User", "ann", "X-Roles", "a", "X-Roles", "b"]);
  });
});

describe("any other answer", () => {
  it("the answer becomes the reply: status, end-to-end headers, body; redirects are not followed", async () => {
    const { server, ask } = await asking((_request, response) => {
      response.writeHead(302, [
        "Location",
        "/login",
        "Set-Cookie",
        "a=1",
        "Set-Cookie",
        "b=2",
        "Connection",
        "X-Hop",
        "X-Hop",
        "1",
        "Transfer-Encoding",
        "chunked",
      ]);
      response.end("go there");
    });
    const { reply, forwarded, exchange } = await ask();
    expect(forwarded).toBeNull();
    expect(reply.status).toBe(302);
    expect(headerValues(reply.headers, "set-cookie")).toEqual(["a=1", "b=2"]);
    expect(headerValue(reply.headers, "location")).toBe("/login");
    for (const name of ["connection", "x-hop", "transfer-encoding", "content-length"])
      expect(headerValue(reply.headers, name)).toBeUndefined();
    expect(String(reply.body)).toBe("go there");
    expect(exchange.call.notes.code).toBeNull();
    expect(server.seen).toHaveLength(1);
  });

  it.each([401, 403, 404, 500, 503])("the answer becomes the reply with status %i", async (status) => {
    const { ask } = await asking((_request, response) => void response.writeHead(status).end("no"));
    expect((await ask()).reply.status).toBe(status);
  });
});

describe("no answer", () => {
  it("answers 503 auth_unavailable, with the reason in the log only", async () => {
    const port = await closedPort();
    const { reply, forwarded, exchange } = await asked(
      instance(forwardAuth, { url: `http://127.0.0.1:${port}/` }, tools()),
      {},
    );
    expect([reply.status, problemOf(reply)["code"], headerValue(reply.headers, "retry-after")]).toEqual([
      503,
      "auth_unavailable",
      "1",
    ]);
    expect(forwarded).toBeNull();
    expect(problemOf(reply)["detail"]).toBe("Whether the request is allowed could not be checked. Try again shortly.");
    expect(String(reply.body)).not.toContain(String(port));
    expect(exchange.call.notes.fault).toMatch(/^forward_auth: connect ECONNREFUSED/);
  });

  it(
    "admits the request with on_error allow, without the client's own " + "response_headers, and logs how many",
    async () => {
      const own = tools();
      const config = {
        url: `http://127.0.0.1:${await closedPort()}/`,
        on_error: "allow",
        response_headers: ["X-User"],
      };
      const middleware = instance(forwardAuth, config, own);
      for (let i = 0; i < 3; i++) {
        const { forwarded } = await asked(middleware, { headers: ["X-User", "root", "A", "b"] });
        expect(forwarded!.headers).toEqual(["A", "b"]);
      }
      (own.clock as ReturnType<typeof manualClock>).advance(1_000);
      await asked(middleware, {});
      expect(own.lines.map(({ fields }) => fields!["requests"])).toEqual([1, 3]);
    },
  );

  it.each<[string, Answer]>([
    ["too large", (_request, response) => void response.writeHead(403).end(Buffer.alloc(1024 * 1024 + 1))],
    [
      "cut short",
      (_request, response) =>
        void response.writeHead(302, { "Content-Length": "9" }).write("no", () => response.destroy()),
    ],
  ])("a refusal that is %s admits nothing with on_error allow either", async (_what, answer) => {
    const { reply, forwarded } = await (await asking(answer, { on_error: "allow" })).ask();
    expect([reply.status, forwarded]).toEqual([503, null]);
  });

  it("a refusal counts with on_error allow, however long this process was blocked while it asked", async () => {
    const { ask, tools: own } = await asking((_request, response) => void response.writeHead(403).end(), {
      on_error: "allow",
    });
    const waiting = ask();
    (own.clock as ReturnType<typeof manualClock>).stall(60_000);
    const { reply, forwarded } = await waiting;
    expect([reply.status, forwarded]).toEqual([403, null]);
  });

  it("a failure is assumed after timeout_ms, and when the answer is too large", async () => {
    const begun = gate();
    const silent = await rawBackend(() => begun.open());
    const own = tools();
    const waiting = asked(instance(forwardAuth, { url: `http://127.0.0.1:${silent.port}/`, timeout_ms: 200 }, own), {});
    await begun.opened;
    (own.clock as ReturnType<typeof manualClock>).advance(200);
    expect((await waiting).exchange.call.notes.fault).toBe("forward_auth: no answer within 200 ms");
    const { ask } = await asking(
      (_request, response) => void response.writeHead(403).end(Buffer.alloc(1024 * 1024 + 1)),
    );
    expect((await ask()).reply.status).toBe(503);
  });

  it("the answer is not waited for when the client has disconnected, and the upstream is not asked", async () => {
    for (const onError of ["deny", "allow"]) {
      const begun = gate();
      const silent = await rawBackend(() => begun.open());
      const gone = call();
      const waiting = asked(
        instance(forwardAuth, { url: `http://127.0.0.1:${silent.port}/`, on_error: onError }, tools()),
        { call: gone },
      );
      await begun.opened;
      gone.abort();
      expect((await waiting).forwarded).toBeNull();
      await eventually(() => silent.connections.open === 0, "the connections to the silent closing");
    }
  });
});

describe("configuration", () => {
  it("forward_auth has defaults for every field but url", () => {
    expect(checked(forwardAuth.schema, { url: "http://a/" }).value).toEqual({
      url: "http://a/",
      requestHeaders: ["Authorization", "Cookie"],
      responseHeaders: [],
      timeoutMs: 1_000,
      onError: "deny",
    });
  });

  it.each<[string, object, RegExp]>([
    ["no url", {}, /^url: is required/],
    ["a path alone", { url: "/check" }, /^url: expected an http/],
    [
      "a password in the url",
      { url: "http://u:geheim@a/" },
      /^url: is a URL with a user name or password: leave them out$/,
    ],
    [
      "a header that is none",
      { url: "http://a/", request_headers: ["a b"] },
      /^request_headers\[0\]: expected the name of a header/,
    ],
    [
      "one that the gateway sets",
      { url: "http://a/", request_headers: ["X-Forwarded-Uri"] },
      /the gateway sets this header itself/,
    ],
    ["framing", { url: "http://a/", response_headers: ["Transfer-Encoding"] }, /the gateway sets this header itself/],
    ["another on_error", { url: "http://a/", on_error: "permit" }, /^on_error: expected "deny" or "allow"/],
  ])("forward_auth reports %s as a configuration error", (_what, config, message) => {
    const { issues } = checked(forwardAuth.schema, config);
    expect(issues).toHaveLength(1);
    expect(issues[0]).toMatch(message);
  });
});
