import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { alternativeNamesFor } from "../../lib/acme/asn1.ts";
import { SERVER } from "../support/certs.ts";
import { spkiOf, type Answered } from "./fake_directory.ts";
import { kept, keptValid, type Kept } from "./kept.ts";

/** What a directory answers in place of what it should: of the first attempt. */
async function attemptWith(prepare: (made: Kept) => void): Promise<Kept> {
  const made = await kept();
  prepare(made);
  made.keeper.start();
  await made.settled();
  expect(made.challenges.size).toBe(0);
  return made;
}

const changed =
  (at: string, change: (body: Record<string, unknown>) => object) =>
  ({ directory }: Kept) => {
    directory.amend = ({ path }, answer): Answered =>
      path === at ? { ...answer, body: change(answer.body as Record<string, unknown>) } : answer;
  };

/** A server that must not be asked. */
async function bystander(): Promise<{ readonly port: number; readonly asked: string[] }> {
  const asked: string[] = [];
  const server = https.createServer({ cert: SERVER.cert, key: SERVER.key }, (request, response) => {
    asked.push(request.url!);
    response.end("{}");
  });
  server.on("connection", () => asked.push("a connection"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { port: (server.address() as AddressInfo).port, asked };
}

describe("a URL of another server", () => {
  const places: [string, (url: string) => (made: Kept) => void][] = [
    ["newNonce", (url) => changed("/dir", (body) => ({ ...body, newNonce: url }))],
    ["newAccount", (url) => changed("/dir", (body) => ({ ...body, newAccount: url }))],
    ["newOrder", (url) => changed("/dir", (body) => ({ ...body, newOrder: url }))],
    ["an authorization", (url) => changed("/order/0", (body) => ({ ...body, authorizations: [url] }))],
    ["finalize", (url) => changed("/order/0", (body) => ({ ...body, finalize: url }))],
    [
      "a challenge",
      (url) =>
        changed("/authorization/0", (body) => ({
          ...body,
          challenges: [{ type: "http-01", status: "pending", token: "t".repeat(22), url }],
        })),
    ],
    ["the certificate", (url) => changed("/finalize/0", (body) => ({ ...body, certificate: url }))],
  ];

  it.each(places)("as %s is refused, and not asked", async (place, at) => {
    const { port, asked } = await bystander();
    const made = await attemptWith((each) => {
      at(`https://127.0.0.1:${port}/x`)(each);
      if (place === "the certificate")
        changed("/order/0", (body) => ({
          ...body,
          ...(body.certificate !== undefined && { certificate: `https://127.0.0.1:${port}/x` }),
        }))(each);
    });
    expect(made.keeper.state.error).toContain(`the directory names a URL of another server, 127.0.0.1 port ${port}`);
    expect(made.keeper.state.error).toContain("hosts_allowed");
    expect(asked).toEqual([]);
  });

  it("in the Location of an account or an order is refused", async () => {
    for (const at of ["/new-account", "/new-order"]) {
      const made = await attemptWith(({ directory }) => {
        directory.amend = ({ path }, answer) =>
          path === at ? { ...answer, headers: { Location: "https://169.254.169.254/latest" } } : answer;
      });
      expect(made.keeper.state.error).toContain("another server, 169.254.169.254 port 443");
    }
  });

  it("is asked where its host is allowed", async () => {
    const made = await kept({ hostsAllowed: ["127.0.0.1"] });
    changed("/dir", (body) =>
      Object.fromEntries(
        Object.entries(body).map(([name, value]) => [
          name,
          name === "newNonce" ? String(value).replace("localhost", "127.0.0.1") : value,
        ]),
      ),
    )(made);
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state).toMatchObject({ state: "valid", error: null });
  });

  it.each([
    "http://localhost/new-nonce",
    "https://user:password@localhost/new-nonce",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "/new-nonce",
    `https://localhost/${"a".repeat(3_000)}`,
    7,
    null,
    ["https://localhost/"],
  ])("%j is no URL of a directory", async (newNonce) => {
    const made = await attemptWith(changed("/dir", (body) => ({ ...body, newNonce })));
    expect(made.keeper.state.error).toMatch(/^the directory (names a URL that is not an https|has no newNonce)/);
    expect(made.keeper.state.error!.length).toBeLessThan(600);
  });

  it("in a redirect is not followed", async () => {
    const { port, asked } = await bystander();
    const made = await attemptWith(({ directory }) => {
      directory.instead = ({ path }) =>
        path === "/dir" ? { status: 302, headers: { Location: `https://127.0.0.1:${port}/` } } : undefined;
    });
    expect(made.keeper.state.error).toMatch(/^localhost:\d+ answers with status 302$/);
    expect(asked).toEqual([]);
  });
});

describe("a challenge", () => {
  const withChallenge = (challenge: object) =>
    changed("/authorization/0", (body) => ({
      ...body,
      challenges: (body.challenges as object[]).map((each) => ({ ...each, ...challenge })),
    }));

  it.each([
    "",
    "short",
    "../../../../etc/passwd-and-more",
    "a".repeat(300),
    "token\r\nSet-Cookie: a=b-and-more",
    7,
    null,
  ])("with the token %j is not answered", async (token) => {
    const presented: unknown[] = [];
    const made = await kept(
      {},
      { answers: { present: async (open) => void presented.push(...open), remove: async () => {} } },
    );
    withChallenge({ token })(made);
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.hosts[0]!.error).toBe("the directory's challenge is malformed");
    // The other host has an order of its own.
    expect(presented.length).toBe(2);
    expect(made.keeper.state.hosts.map(({ notAfter }) => notAfter !== null)).toEqual([false, true]);
  });

  it("of no type that is configured is a failure of its host", async () => {
    const made = await attemptWith(withChallenge({ type: "dns-01" }));
    expect(made.keeper.state.hosts[0]!.error).toBe("the directory offers no challenge of the type http-01");
  });

  it("for a host that was not ordered is not answered", async () => {
    const identifier = { type: "dns", value: "victim.example" };
    const made = await attemptWith(changed("/authorization/0", (body) => ({ ...body, identifier })));
    expect(made.keeper.state.error).toBe(
      "the directory asks for a proof of a host that was not ordered: victim.example",
    );
  });

  it("of more authorizations than hosts is not answered", async () => {
    const made = await attemptWith(
      changed("/order/0", (body) => ({
        ...body,
        authorizations: Array(1_000).fill((body.authorizations as string[])[0]),
      })),
    );
    expect(made.keeper.state.error).toBe("the order has more authorizations than hosts");
  });
});

describe("a certificate", () => {
  const otherKey = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;

  it("for another key is refused", async () => {
    const made = await attemptWith(({ directory }) => {
      directory.issue = (request) => ({ ...request, spki: spkiOf(otherKey) });
    });
    expect(made.keeper.state.error).toBe("the directory's certificate is not for the key that it was ordered with");
    expect(made.presented()).toEqual([]);
    expect(made.files.content.has("order.json")).toBe(false);
  });

  it("for other names is refused, and the former one stays", async () => {
    const made = await keptValid();
    const [former] = made.presented();
    made.directory.issue = (request) => ({ ...request, san: alternativeNamesFor(["a.example", "evil.example"]) });
    made.clock.setWall(61 * 86_400_000);
    made.clock.advance(30_000);
    await made.until(() => made.keeper.state.error !== null);
    expect(made.keeper.state.error).toBe("the directory's certificate is not for b.example");
    expect(made.presented()).toEqual([former]);
  });

  it("whose chain is none is refused", async () => {
    const stranger = await keptValid();
    const made = await attemptWith(({ directory }) => {
      directory.amend = ({ path }, answer) =>
        path === "/certificate/0"
          ? { ...answer, body: `${String(answer.body).split(/(?<=END CERTIFICATE-----\n)/)[0]!}${SERVER.cert}` }
          : answer;
    });
    expect(made.keeper.state.error).toBe(
      "the directory's certificate cannot be used: number 1 of its chain is not issued by the next one",
    );
    await stranger.keeper.close();
  });

  it.each([
    ["nothing", ""],
    ["a web page", "<html>"],
    ["a block that is cut off", "-----BEGIN CERTIFICATE-----\nMIIB"],
    ["a block that is no certificate", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"],
    ["eleven certificates", SERVER.cert.repeat(11)],
    ["a private key", SERVER.key],
    ["300 KiB", "-----BEGIN CERTIFICATE-----\n".repeat(12_000)],
  ])("that is %s is refused", async (_what, body) => {
    const made = await attemptWith(({ directory }) => {
      directory.amend = ({ path }, answer) => (path === "/certificate/0" ? { body } : answer);
    });
    expect(made.keeper.state.error).not.toBeNull();
    expect(made.presented()).toEqual([]);
  });
});

describe("an answer", () => {
  it.each([
    ["no JSON", "no"],
    ["null", "null"],
    ["a list", "[]"],
    ["deep", "[".repeat(50_000)],
    ["too large", `{"a":"${"a".repeat(300_000)}"}`],
    ["an object with nothing in it", "{}"],
  ])("that is %s is a failure, wherever it is", async (_what, body) => {
    for (const at of ["/dir", "/new-account", "/new-order", "/order/0", "/authorization/0", "/finalize/0"]) {
      const made = await attemptWith(({ directory }) => {
        directory.amend = ({ path }, answer) => (path === at ? { ...answer, body } : answer);
      });
      // What an order and a finalized one have in their answers is asked for again.
      if (made.keeper.state.error === null) expect(["/new-account", "/new-order", "/finalize/0"]).toContain(at);
      else expect(made.keeper.state.error.length).toBeLessThan(500);
    }
  });

  it("that does not come is a failure after 30 seconds", async () => {
    const made = await kept();
    made.clock.hasLimits = true;
    made.directory.instead = () => "no answer";
    made.keeper.start();
    await made.until(() => made.directory.asked.length > 0);
    for (let part = 0; part < 16; part++) {
      made.clock.advance(30_000 / 8);
      await new Promise((turn) => setImmediate(turn));
    }
    await made.until(() => made.keeper.state.error !== null);
    expect(made.keeper.state.error).toMatch(/cannot be asked: no answer within 30000 ms/);
  });

  it("with control characters and much text in its problem is one short line", async () => {
    const detail = `\u001b[31mred\r\n2026 error \u202eforged${"a".repeat(10_000)}`;
    const type = "urn:ietf:params:acme:error:malformed";
    const made = await attemptWith(({ directory }) => {
      directory.instead = ({ path }) => (path === "/new-order" ? { status: 400, body: { type, detail } } : undefined);
    });
    const { error } = made.keeper.state;
    expect(error).toMatch(/^malformed: \[31mred 2026 error {2}forgeda+…$/);
    expect(error!.length).toBeLessThan(450);
  });

  it.each(["", "a b", "é", "a".repeat(600)])("with the nonce %j has none", async (nonce) => {
    const made = await attemptWith(({ directory }) => {
      directory.amend = (_asked, answer) => ({ ...answer, headers: { ...answer.headers, "Replay-Nonce": nonce } });
    });
    expect(made.keeper.state.error).toBe("the directory gives no nonce");
  });

  it.each(["-1", "soon", "1e9", "Thu, 01 Jan 1970 00:00:00 GMT"])(
    "with the Retry-After %j does not stop the keeper for ever",
    async (value) => {
      const made = await attemptWith(({ directory }) => {
        directory.instead = () => ({ status: 503, headers: { "Retry-After": value } });
      });
      expect(made.keeper.state.nextAt! - made.clock.wall()).toBe(10_000);
    },
  );

  it.each(["999999999", "9".repeat(400)])("that asks for years is kept to for a week", async (value) => {
    const made = await attemptWith(({ directory }) => {
      directory.instead = () => ({ status: 503, headers: { "Retry-After": value } });
    });
    expect(made.keeper.state.nextAt! - made.clock.wall()).toBe(7 * 86_400_000);
  });
});
