import { describe, expect, it } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { ask } from "../support/raw_client.ts";
import { backend, client, get, headBackend } from "./harness.ts";

const trusting = { trusted_proxies: ["127.0.0.0/8", "10.0.0.0/8", "2001:db8:1::/48"] };

/** Values of a header in a flat list. */
function values(list: readonly string[], name: string): string[] {
  return list.filter((_, i) => i % 2 === 1 && list[i - 1]!.toLowerCase() === name.toLowerCase());
}

/** Sends header lines through a gateway; resolves with the request that the upstream received. */
async function seenWith(lines: readonly string[], parts = {}, global = {}, path = "/a/x") {
  const upstream = await backend();
  const { port } = await running(oneService(upstream.port, parts, global));
  const connection = await client(port);
  connection.send(get(path, ...lines));
  await connection.until("\r\nok");
  return { ...upstream.seen[0]!, upstream, port };
}

describe("hop-by-hop headers", () => {
  it.each([
    ["Connection", ["Connection: keep-alive"]],
    ["Keep-Alive", ["Keep-Alive: timeout=5"]],
    ["Proxy-Connection", ["Proxy-Connection: keep-alive"]],
    ["TE", ["TE: gzip"]],
    ["Upgrade", ["Upgrade: h2c"]],
    ["HTTP2-Settings", ["HTTP2-Settings: AAMAAABk"]],
    ["X-Named", ["Connection: x-named", "X-Named: secret"]],
    ["X-Second", ["Connection: close, X-SECOND , x-third", "X-Second: secret", "X-Third: secret"]],
    ["X-Late", ["X-Late: secret", "Connection: keep-alive", "Connection: x-late"]],
  ])("does not forward %s to the upstream", async (name, lines) => {
    const { headers } = await seenWith(lines);
    expect(values(headers, name).filter((value) => name !== "Connection" || value !== "keep-alive")).toEqual([]);
    expect(headers.join("\n")).not.toContain("secret");
  });

  it.each([
    ["Keep-Alive", ["Keep-Alive: timeout=77"]],
    ["Proxy-Connection", ["Proxy-Connection: keep-alive"]],
    ["Upgrade", ["Upgrade: h2c", "Connection: upgrade"]],
    ["X-Named", ["Connection: x-named, keep-alive", "X-Named: secret"]],
  ])("does not forward %s to the client", async (name, lines) => {
    const upstream = await headBackend(({ socket }) => {
      socket.write(["HTTP/1.1 200 OK", "Content-Length: 2", ...lines, "", "ok"].join("\r\n"));
    });
    const { port } = await running(oneService(upstream.port));
    const answer = await ask(port, { path: "/a/x" });
    expect(answer.rawHeaders.join("\n")).not.toMatch(/secret|timeout=77|h2c/);
    expect(values(answer.rawHeaders, name).filter((value) => !/timeout/.test(value))).toEqual([]);
  });

  it("forwards the Upgrade of a 426 to the client, with the option of Connection that goes with it", async () => {
    const upstream = await headBackend(({ socket }) => {
      const lines = ["Connection: upgrade", "Upgrade: websocket", "Upgrade: h2c", "Content-Length: 2", "", "ok"];
      socket.write(["HTTP/1.1 426 Upgrade Required", ...lines].join("\r\n"));
    });
    const { port } = await running(oneService(upstream.port, {}, { h2c: true }));
    const connection = await client(port);
    // Twice on one connection, which stays one of HTTP/1.1.
    for (const _request of [1, 2]) {
      connection.send(get("/a/x"));
      const answer = await connection.until("\r\nok");
      expect(answer).toContain("\r\nUpgrade: websocket, h2c\r\n");
      expect(answer).toMatch(/\r\nConnection: (.+, )?Upgrade\r\n/);
      connection.discard();
    }
    // HTTP/2 has no such header (RFC 9113 §8.2.2).
    expect((await h2Ask(h2Session(port), { path: "/a/x" })).headers).not.toHaveProperty("upgrade");
  });

  it("keeps Host, Content-Length and the gateway's own headers even when Connection names them", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(
      "POST /a/x HTTP/1.1\r\nHost: gw.example\r\nContent-Length: 2\r\n" +
        "Connection: host, content-length, x-forwarded-for, x-request-id, via\r\n\r\nhi",
    );
    await connection.until("\r\nok");
    const [seen] = upstream.seen;
    expect(seen!.body.toString()).toBe("hi");
    expect(values(seen!.headers, "content-length")).toEqual(["2"]);
    for (const name of ["host", "x-forwarded-for", "x-request-id", "via"])
      expect(values(seen!.headers, name)).toHaveLength(1);
  });

  it("sends TE: trailers of its own, whatever else TE lists", async () => {
    for (const lines of [
      ["TE: trailers", "Connection: TE"],
      ["TE: deflate;q=0.5, Trailers"],
      ["TE: gzip", "TE: trailers"],
    ]) {
      const { headers } = await seenWith(lines);
      expect(values(headers, "te")).toEqual(["trailers"]);
      expect(values(headers, "connection")).toEqual(["TE"]);
    }
  });
});

describe("end-to-end headers", () => {
  it("end-to-end headers reach the upstream with case, order and duplicates", async () => {
    const { headers } = await seenWith([
      "x-LOWER: 1",
      "X-Dup: a",
      "Cookie: a=1",
      "X-dup: b",
      "x-Empty:",
      "X-Dup: a",
      "Cookie: b=2",
    ]);
    const own = headers.slice(2, headers.indexOf("X-Forwarded-For"));
    expect(own).toEqual([
      "x-LOWER",
      "1",
      "X-Dup",
      "a",
      "Cookie",
      "a=1",
      "X-dup",
      "b",
      "x-Empty",
      "",
      "X-Dup",
      "a",
      "Cookie",
      "b=2",
    ]);
  });

  it("end-to-end headers reach the client with case, order and duplicates, several Set-Cookie among them", async () => {
    const lines = [
      "x-LOWER: 1",
      "Set-Cookie: a=1; Path=/",
      "X-Dup: a",
      "set-cookie: b=2",
      "X-dup: b",
      "Set-Cookie: a=1; Path=/",
    ];
    const upstream = await headBackend(({ socket }) => {
      socket.write(["HTTP/1.1 200 Very Fine", ...lines, "Content-Length: 0", "", ""].join("\r\n"));
    });
    const { port } = await running(oneService(upstream.port));
    const answer = await ask(port, { path: "/a/x" });
    expect(answer.reason).toBe("Very Fine");
    const pairs = answer.rawHeaders
      .map((name, i) => (i % 2 === 0 ? `${name}: ${answer.rawHeaders[i + 1]}` : ""))
      .filter(Boolean);
    expect(pairs.slice(0, lines.length)).toEqual(lines);
  });

  it("end-to-end headers keep their Latin-1 bytes both ways, in values and in the reason phrase", async () => {
    const bytes = "caf\xe9 \xff\x80";
    const upstream = await headBackend(({ socket }) => {
      socket.write(
        Buffer.from(`HTTP/1.1 200 Tr\xe8s bien\r\nX-Latin: ${bytes}\r\nContent-Length: 0\r\n\r\n`, "latin1"),
      );
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get("/a/x", `X-Latin: ${bytes}`));
    const received = await connection.until("\r\n\r\n");
    expect(received).toContain("HTTP/1.1 200 Tr\xe8s bien\r\n");
    expect(received).toContain(`\r\nX-Latin: ${bytes}\r\n`);
    expect(upstream.heads[0]).toContain(`\r\nX-Latin: ${bytes}\r\n`);
  });

  it("leaves out a reason phrase that cannot be forwarded", async () => {
    const upstream = await headBackend(
      ({ socket }) => void socket.write("HTTP/1.1 200 a\x01b\r\nContent-Length: 0\r\n\r\n"),
    );
    const { port } = await running(oneService(upstream.port));
    const answer = await ask(port, { path: "/a/x" });
    expect(answer).toMatchObject({ status: 200, reason: "" });
  });

  it("forwards the query to the upstream byte for byte", async () => {
    const query = "?a=%2f&b=+%20&&=&c=%zz;'\"<>[]{}|^`\xe9".replace("\xe9", "");
    expect((await seenWith([], {}, {}, `/a/x${query}`)).url).toBe(`/x${query}`);
  });
});

describe("the Host header", () => {
  it("names the upstream", async () => {
    const { headers, upstream } = await seenWith([]);
    expect(headers.slice(0, 2)).toEqual(["Host", `127.0.0.1:${upstream.port}`]);
    expect(values(headers, "host")).toHaveLength(1);
  });

  it("the Host header stays the client's with preserve_host", async () => {
    const { headers } = await seenWith([], { preserve_host: true });
    expect(values(headers, "host")).toEqual(["gw.example"]);
  });
});

describe("forwarded headers", () => {
  const forged = [
    "X-Forwarded-For: 1.2.3.4",
    "X-Forwarded-For: 5.6.7.8",
    "X-Forwarded-Host: evil.example",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Port: 444",
    "X-Forwarded-Prefix: /evil",
    "X-Forwarded-Scheme: https",
    "X-Forwarded-Ssl: on",
    "X-Forwarded-Server: evil",
    "Forwarded: for=1.2.3.4;host=evil.example;proto=https",
    "X-Request-Id: forged",
  ];

  it("forwarded headers state the client's address, scheme and host", async () => {
    const { headers } = await seenWith([], { base_path: "/a" });
    expect(values(headers, "X-Forwarded-For")).toEqual(["127.0.0.1"]);
    expect(values(headers, "X-Forwarded-Host")).toEqual(["gw.example"]);
    expect(values(headers, "X-Forwarded-Proto")).toEqual(["http"]);
    expect(values(headers, "X-Forwarded-Port")).toEqual(["80"]);
    expect(values(headers, "X-Forwarded-Prefix")).toEqual(["/a"]);
    expect(values(headers, "X-Request-Id")[0]).toMatch(/^[\w-]{36}$/);
  });

  it("forwarded headers are all dropped when they come from an untrusted address", async () => {
    const { headers } = await seenWith(forged);
    expect(headers.join("\n")).not.toMatch(/1\.2\.3\.4|5\.6\.7\.8|evil|\b444\b|forged/);
    expect(values(headers, "X-Forwarded-For")).toEqual(["127.0.0.1"]);
    expect(values(headers, "X-Forwarded-Proto")).toEqual(["http"]);
    expect(values(headers, "Forwarded")).toEqual([]);
    for (const name of ["x-forwarded-scheme", "x-forwarded-ssl", "x-forwarded-server"])
      expect(values(headers, name)).toEqual([]);
  });

  it("forwarded headers are continued when they come from a trusted proxy", async () => {
    const { headers } = await seenWith(forged, {}, trusting);
    expect(values(headers, "X-Forwarded-For")).toEqual(["1.2.3.4, 5.6.7.8, 127.0.0.1"]);
    expect(values(headers, "X-Forwarded-Host")).toEqual(["evil.example"]);
    expect(values(headers, "X-Forwarded-Proto")).toEqual(["https"]);
    expect(values(headers, "X-Forwarded-Port")).toEqual(["444"]);
    expect(values(headers, "X-Forwarded-Prefix")).toEqual(["/evil/a"]);
    expect(values(headers, "Forwarded")).toEqual(["for=1.2.3.4;host=evil.example;proto=https"]);
    expect(values(headers, "X-Request-Id")).toEqual(["forged"]);
  });

  it.each(["a b", "x".repeat(129), "<script>", "caf\xe9", '"', ""])(
    "replaces a request id that is not fit for logs (%j), even from a trusted proxy",
    async (id) => {
      const { headers } = await seenWith([`X-Request-Id: ${id}`], {}, trusting);
      expect(values(headers, "X-Request-Id")[0]).toMatch(/^[0-9a-f-]{36}$/);
    },
  );

  it("forwarded headers state the port that the client named", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    await ask(port, { path: "/a/x", headers: { Host: "gw.example:8443" } });
    await ask(port, { path: "/a/x", headers: { Host: "[2001:db8::1]" } });
    await ask(port, { path: "/a/x", headers: { Host: "[2001:db8::1]:99" } });
    expect(upstream.seen.map(({ headers }) => values(headers, "X-Forwarded-Port")[0])).toEqual(["8443", "80", "99"]);
  });

  it("forwarded headers state the prefix that was really removed from the path", async () => {
    const { headers } = await seenWith([], { base_path: "/t/{tenant}" }, {}, "/t/42/orders");
    expect(values(headers, "X-Forwarded-Prefix")).toEqual(["/t/42"]);
    const root = await seenWith([], { base_path: "/" }, {}, "/orders");
    expect(values(root.headers, "X-Forwarded-Prefix")).toEqual([]);
  });
});

describe("the headers Via and X-Request-Id", () => {
  it("continues Via both ways, with the protocol of each side", async () => {
    const upstream = await headBackend(({ socket }) => {
      socket.write("HTTP/1.0 200 OK\r\nVia: 1.1 inner\r\nContent-Length: 0\r\n\r\n");
    });
    const { port } = await running(oneService(upstream.port, {}, { name: "front gate" }));
    const connection = await client(port);
    connection.send("GET /a/x HTTP/1.0\r\nHost: h\r\nVia: 1.0 outer\r\n\r\n");
    const received = await connection.closed();
    expect(upstream.heads[0]).toContain("\r\nVia: 1.0 outer\r\n");
    expect(upstream.heads[0]).toContain("\r\nVia: 1.0 front-gate\r\n");
    expect(received).toMatch(/\r\nVia: 1\.1 inner\r\n[^]*\r\nVia: 1\.0 front-gate\r\n/);
  });

  it("gives client, upstream and problem document the same request id, and drops the upstream's own", async () => {
    const upstream = await backend(
      (_request, response) => void response.setHeader("X-Request-Id", "upstreams-own").end("ok"),
    );
    const { port } = await running(oneService(upstream.port));
    const answer = await ask(port, { path: "/a/x" });
    expect(values(answer.rawHeaders, "X-Request-Id")).toEqual(values(upstream.seen[0]!.headers, "X-Request-Id"));
    const none = await ask(port, { path: "/none" });
    expect(JSON.parse(none.body.toString())).toMatchObject({ request_id: none.headers["x-request-id"] });
  });
});

describe("the client address", () => {
  /** The number of clients that the gateway counts in these chains, by a rate limit of one request a minute. */
  async function refusals(chains: readonly string[], global: {}): Promise<boolean[]> {
    const upstream = await backend();
    const plugins = [{ name: "rate_limit", config: { limit_hour: 1 } }];
    const { port } = await running(oneService(upstream.port, { plugins }, global));
    const refused: boolean[] = [];
    for (const chain of chains)
      refused.push((await ask(port, { path: "/a/x", headers: { "X-Forwarded-For": chain } })).status === 429);
    return refused;
  }

  it("the client address is the right-most untrusted hop, whatever is forged to the left of it", async () => {
    expect(await refusals(["203.0.113.1", "198.51.100.9, 203.0.113.1", "203.0.113.2"], trusting)).toEqual([
      false,
      true,
      false,
    ]);
  });

  it("skips trusted hops", async () => {
    const chains = ["203.0.113.1", "203.0.113.1, 10.1.2.3, 127.0.0.9", "203.0.113.1,10.1.2.3"];
    expect(await refusals(chains, trusting)).toEqual([false, true, true]);
  });

  it("ignores X-Forwarded-For without trusted proxies", async () => {
    expect(await refusals(["203.0.113.1", "203.0.113.2"], {})).toEqual([false, true]);
  });

  it("accepts IPv6 hops, in brackets and with a port, and counts a /64 as one client", async () => {
    const chains = [
      "2001:db8:2::1",
      "[2001:db8:2::2]",
      "[2001:db8:2::3]:4711",
      "2001:db8:3::1",
      "2001:db8:3::1, 2001:db8:1::7",
    ];
    expect(await refusals(chains, trusting)).toEqual([false, true, true, false, true]);
  });

  it("treats an IPv4 address with a port, or in IPv6 form, as the same address", async () => {
    expect(await refusals(["203.0.113.1", "203.0.113.1:4711", "::ffff:203.0.113.1"], trusting)).toEqual([
      false,
      true,
      true,
    ]);
  });

  it.each(["unknown", "_hidden", "", "999.1.1.1", "[", "[]", "[::1", "a, ,b", "203.0.113.1 extra", "%00"])(
    "stops at the proxy that reported a hop that is no address (%j)",
    async (garbage) => {
      const chains = ["198.51.100.1", `203.0.113.1, ${garbage}, 10.0.0.7`, `203.0.113.2, ${garbage}, 10.0.0.7`];
      expect(await refusals(chains, trusting)).toEqual([false, false, true]);
    },
  );

  it("reads several header lines as one chain", async () => {
    const upstream = await backend();
    const plugins = [{ name: "rate_limit", config: { limit_hour: 1 } }];
    const { port } = await running(oneService(upstream.port, { plugins }, trusting));
    const connection = await client(port);
    connection.send(get("/a/x", "X-Forwarded-For: 203.0.113.1", "X-Forwarded-For: 10.0.0.1"));
    await connection.until("\r\nok");
    connection.send(get("/a/x", "X-Forwarded-For: 203.0.113.1"));
    await connection.until("rate_limited");
  });
});
