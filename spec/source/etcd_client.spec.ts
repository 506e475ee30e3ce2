import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { EtcdClient, type EtcdOptions } from "../../lib/source/etcd_client.ts";
import { EtcdFailure } from "../../lib/source/etcd_failure.ts";
import type { JsonLine } from "../../lib/source/json_lines.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { OTHER_CA } from "../support/more_certs.ts";
import { manualClock } from "../support/clock.ts";
import { Cluster, etcdError, etcdStandIn, type EtcdStandIn } from "../support/etcd_stand_in.ts";

const READ = { success: [{ request_range: { key: "a2V5" } }] };

function clientOf(members: readonly Pick<EtcdStandIn, "url">[], options: Partial<EtcdOptions> = {}): EtcdClient {
  const urls = members.map(({ url }) => url);
  const client = new EtcdClient({ members: urls, login: null, clock: systemClock, random: () => 0, ...options });
  onTestFinished(() => client.close());
  return client;
}

async function failureOf(asked: Promise<unknown>): Promise<EtcdFailure> {
  const failure = await asked.then(
    () => null,
    (error: unknown) => error,
  );
  expect(failure).toBeInstanceOf(EtcdFailure);
  return failure as EtcdFailure;
}

/** A member that accepts connections, and never answers. */
async function silent(): Promise<{ readonly url: URL; readonly connections: () => number }> {
  let count = 0;
  const server = net.createServer((socket) => {
    count++;
    socket.on("error", () => {});
    onTestFinished(() => void socket.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`), connections: () => count };
}

describe("a call", () => {
  it("begins with a member by chance", async () => {
    const cluster = new Cluster();
    const members = [await etcdStandIn(cluster), await etcdStandIn(cluster), await etcdStandIn(cluster)];
    await clientOf(members, { random: () => 0.5 }).call("/v3/kv/txn", READ);
    expect(members.map(({ asked }) => asked.length)).toEqual([0, 1, 0]);
  });

  it("leaves a member that does not answer for 3 s, and stays with the next", async () => {
    const clock = manualClock();
    const dead = await silent();
    const member = await etcdStandIn();
    const client = clientOf([dead, member], { clock });
    const answer = client.call("/v3/kv/txn", READ);
    await expect.poll(dead.connections).toBe(1);
    // The time counts from the last byte of the request, which is sent in a later round.
    await expect.poll(() => (clock.advance(1_000), member.asked.length)).toBe(1);
    expect(await answer).toMatchObject({ succeeded: true });
    await client.call("/v3/kv/txn", READ);
    expect(dead.connections()).toBe(1);
    expect(client.member).toBe(member.url.host);
  });

  it("asks each member once, and no longer than 9.5 s in all", async () => {
    const clock = manualClock();
    const dead = [await silent(), await silent(), await silent(), await silent(), await silent()];
    const failure = failureOf(clientOf(dead, { clock }).call("/v3/kv/txn", READ));
    let over = false;
    void failure.then(() => (over = true));
    await expect.poll(() => (clock.advance(100), over), { interval: 2 }).toBe(true);
    expect((await failure).kind).toBe("unreachable");
    expect(dead.map(({ connections }) => connections())).toEqual([1, 1, 1, 1, 0]);
  });

  it.each([
    ["is down", null],
    ["has no leader", etcdError("etcdserver: no leader", 14, 503)],
    ["gives no answer in its own time", etcdError("etcdserver: request timed out", 14, 503)],
    ["redirects", { status: 307, moved: true }],
    ["is not etcd", { status: 200, error: "what?" }],
    ["has its JSON gateway off", { status: 404 }],
  ])("leaves a member that %s", async (_what, answer) => {
    const [first, second] = [await etcdStandIn(), await etcdStandIn()];
    const url = answer === null ? new URL("http://127.0.0.1:1") : first.url;
    if (answer !== null) first.answers.set("/v3/kv/txn", () => answer);
    expect(await clientOf([{ url }, second]).call("/v3/kv/txn", READ)).toMatchObject({ succeeded: true });
  });

  it("does not ask another member what etcd has refused", async () => {
    const [first, second] = [await etcdStandIn(), await etcdStandIn()];
    first.answers.set("/v3/kv/txn", () => etcdError("etcdserver: permission denied", 7, 403));
    const failure = await failureOf(clientOf([first, second]).call("/v3/kv/txn", READ));
    expect(failure.kind).toBe("refused");
    expect(failure.message).toBe(
      `etcd at ${first.url.host}: etcdserver: permission denied; the user needs the rights that docs/fleets.md names`,
    );
    expect(second.asked).toEqual([]);
  });

  it.each([
    ["no JSON", "<html>"],
    ["a part of an object", '{"header":{"revision":"1"}'],
    ["a list", "[]"],
    ["nothing", ""],
  ])("refuses an answer that is %s", async (_what, text) => {
    const member = await etcdStandIn();
    member.answers.set("/v3/kv/txn", (_message, response) => void response.end(text));
    const failure = await failureOf(clientOf([member]).call("/v3/kv/txn", READ));
    expect(failure).toMatchObject({
      kind: "unreachable",
      message: `etcd at ${member.url.host} has answered with status 200, not as etcd does`,
    });
  });

  it("refuses an answer that is too large, or broken off", async () => {
    const member = await etcdStandIn();
    member.answers.set("/v3/kv/txn", (_message, response) => void response.end(" ".repeat(2000)));
    const large = await failureOf(clientOf([member]).call("/v3/kv/txn", READ, { maxBytes: 1999 }));
    expect(large.message).toBe(`etcd at ${member.url.host}: the answer has more than 1999 bytes`);
    member.answers.set("/v3/kv/txn", (_message, response) => {
      response.writeHead(200, { "Content-Length": 100 }).write("{");
      setImmediate(() => response.destroy());
    });
    expect((await failureOf(clientOf([member]).call("/v3/kv/txn", READ))).kind).toBe("unreachable");
  });

  it("passes on what etcd says without control characters, and bounded", async () => {
    const member = await etcdStandIn();
    member.answers.set("/v3/kv/txn", () => etcdError(`a\u001b[2J\n${"b".repeat(500)}`, 3));
    const { message } = await failureOf(clientOf([member]).call("/v3/kv/txn", READ));
    expect(message).toContain(": a?[2J?bbb");
    expect(message.length).toBeLessThan(250);
  });

  it("is cancelled by its signal, and asks no other member then", async () => {
    const dead = await silent();
    const other = await etcdStandIn();
    const abort = new AbortController();
    const failure = failureOf(clientOf([dead, other]).call("/v3/kv/txn", READ, { signal: abort.signal }));
    await expect.poll(dead.connections).toBe(1);
    abort.abort();
    expect((await failure).kind).toBe("cancelled");
    expect(other.asked).toEqual([]);
  });
});

describe("a user", () => {
  const login = () => ({ name: "gateway", password: "geheim" });

  async function secured(): Promise<EtcdStandIn> {
    const member = await etcdStandIn();
    member.users = { gateway: "geheim" };
    return member;
  }

  it("logs in once, and sends the token with each request", async () => {
    const member = await secured();
    const client = clientOf([member], { login });
    await client.call("/v3/kv/txn", READ);
    await client.call("/v3/kv/txn", READ);
    expect(member.asked).toEqual(["/v3/auth/authenticate", "/v3/kv/txn", "/v3/kv/txn"]);
  });

  it("asks for another token where the one that it has is refused", async () => {
    const member = await secured();
    const client = clientOf([member], { login });
    await client.call("/v3/kv/txn", READ);
    member.tokens.clear();
    expect(await client.call("/v3/kv/txn", READ)).toMatchObject({ succeeded: true });
  });

  it("asks for another token once, not for ever", async () => {
    const member = await secured();
    const client = clientOf([member], { login });
    member.answers.set("/v3/kv/txn", () => etcdError("etcdserver: invalid auth token", 16, 401));
    await failureOf(client.call("/v3/kv/txn", READ));
    expect(member.asked).toEqual(["/v3/auth/authenticate", "/v3/kv/txn"]);
    await failureOf(client.call("/v3/kv/txn", READ));
    expect(member.asked.slice(2)).toEqual(["/v3/auth/authenticate", "/v3/kv/txn"]);
  });

  it("logs in when authentication is switched on later", async () => {
    const member = await etcdStandIn();
    const client = clientOf([member], { login });
    await client.call("/v3/kv/txn", READ);
    member.users = { gateway: "geheim" };
    expect(await client.call("/v3/kv/txn", READ)).toMatchObject({ succeeded: true });
  });

  it("has a refused password reported without the password, and read again the next time", async () => {
    const member = await secured();
    let password = "falsch";
    const client = clientOf([member], { login: () => ({ name: "gateway", password }) });
    const { kind, message } = await failureOf(client.call("/v3/kv/txn", READ));
    expect(kind).toBe("refused");
    expect(message).toContain("authentication failed, invalid user ID or password; check ETCD_USER");
    expect(message).not.toContain("falsch");
    password = "geheim";
    expect(await client.call("/v3/kv/txn", READ)).toMatchObject({ succeeded: true });
  });

  it("whose password cannot be read is no request", async () => {
    const member = await secured();
    const client = clientOf([member], {
      login() {
        throw new Error("ETCD_PASSWORD_FILE: it is not there");
      },
    });
    expect(await failureOf(client.call("/v3/kv/txn", READ))).toMatchObject({
      kind: "refused",
      message: "ETCD_PASSWORD_FILE: it is not there",
    });
    expect(member.asked).toEqual([]);
  });

  it.each([{}, { token: 1 }, { token: "a\r\nb" }])("refuses %j as the answer to a login", async (answer) => {
    const member = await secured();
    member.answers.set("/v3/auth/authenticate", () => answer);
    const { message } = await failureOf(clientOf([member], { login }).call("/v3/kv/txn", READ));
    expect(message).toBe(`${member.url.host} has answered a login without a token`);
  });

  it("is asked for where etcd wants one", async () => {
    const { message } = await failureOf(clientOf([await secured()]).call("/v3/kv/txn", READ));
    expect(message).toMatch(/user name is empty; set ETCD_USER and ETCD_PASSWORD_FILE$/);
  });
});

describe("TLS", () => {
  const server = { cert: SERVER.cert, key: SERVER.key, ca: CA.cert, requestCert: true, rejectUnauthorized: true };
  const ca = Buffer.from(CA.cert);
  const own = { cert: Buffer.from(CLIENT.cert), key: Buffer.from(CLIENT.key) };

  it("presents the client certificate, to calls and to streams", async () => {
    const member = await etcdStandIn(new Cluster(), server);
    const client = clientOf([member], { tls: () => ({ ca, ...own }) });
    expect(await client.call("/v3/kv/txn", READ)).toMatchObject({ succeeded: true });
    const abort = new AbortController();
    const lines: JsonLine[] = [];
    const ended = failureOf(client.stream("/v3/watch", [{}], (line) => lines.push(line), abort.signal));
    await expect.poll(() => lines.length).toBe(1);
    abort.abort();
    expect((await ended).kind).toBe("cancelled");
  });

  it.each([
    ["the server's certificate is of another CA", { ...own }],
    ["the client has no certificate", { ca }],
  ])("is an unreachable member where %s", async (_what, tls) => {
    const client = clientOf([await etcdStandIn(new Cluster(), server)], { tls: () => tls });
    expect((await failureOf(client.call("/v3/kv/txn", READ))).kind).toBe("unreachable");
    const stream = client.stream("/v3/watch", [{}], () => {}, new AbortController().signal);
    expect((await failureOf(stream)).kind).toBe("unreachable");
  });
});

describe("files of TLS", () => {
  const server = { cert: SERVER.cert, key: SERVER.key };

  it("are read before each request, and may be renewed", async () => {
    const member = await etcdStandIn(new Cluster(), server);
    let ca = Buffer.from(OTHER_CA.cert);
    const client = clientOf([member], { tls: () => ({ ca }) });
    expect((await failureOf(client.call("/v3/kv/txn", READ))).kind).toBe("unreachable");
    ca = Buffer.from(CA.cert);
    expect(await client.call("/v3/kv/txn", READ)).toMatchObject({ succeeded: true });
  });

  it("that are damaged, or cannot be read, are reported in words", async () => {
    const member = await etcdStandIn(new Cluster(), server);
    const damaged = clientOf([member], { tls: () => ({ cert: Buffer.from("x"), key: Buffer.from("y") }) });
    const unreadable = clientOf([member], {
      tls() {
        throw new Error("CONFIG_CA_PATH: cannot read /x");
      },
    });
    for (const [client, message] of [
      [damaged, /^CONFIG_CA_PATH, CONFIG_CERT_PATH, CONFIG_KEY_PATH: /],
      [unreadable, /^CONFIG_CA_PATH: cannot read \/x$/],
    ] as const) {
      expect(await failureOf(client.call("/v3/kv/txn", READ))).toMatchObject({ kind: "refused" });
      const stream = client.stream("/v3/watch", [{}], () => {}, new AbortController().signal);
      expect((await failureOf(stream)).message).toMatch(message);
    }
  });
});

describe("a stream", () => {
  const open = (client: EtcdClient, lines: JsonLine[] = [], signal = new AbortController().signal) =>
    failureOf(client.stream("/v3/watch", [{ one: 1 }, { two: 2 }], (line) => lines.push(line), signal));

  it("sends its messages in one request, and passes lines on as they come", async () => {
    const member = await etcdStandIn();
    const lines: JsonLine[] = [];
    void open(clientOf([member]), lines);
    await expect.poll(() => lines.length).toBe(1);
    expect(member.watched).toEqual(['{"one":1}\n{"two":2}']);
    member.send({ result: { events: [{}] } });
    await expect.poll(() => lines.at(-1)).toEqual({ object: { result: { events: [{}] } } });
  });

  it("fails where no line comes within 3 s, but not after one has come", async () => {
    const clock = manualClock();
    const dead = await silent();
    const failure = open(clientOf([dead], { clock }));
    let over = false;
    void failure.then(() => (over = true));
    await expect.poll(dead.connections).toBe(1);
    await expect.poll(() => (clock.advance(3_000), over)).toBe(true);
    expect((await failure).message).toMatch(/: no answer in time$/);
    const member = await etcdStandIn();
    const lines: JsonLine[] = [];
    let isOver = false;
    void open(clientOf([member], { clock }), lines).then(() => (isOver = true));
    await expect.poll(() => lines.length).toBe(1);
    clock.advance(60_000);
    member.send({ result: {} });
    await expect.poll(() => lines.length).toBe(2);
    expect(isOver).toBe(false);
  });

  it.each([
    ["is an error of etcd", etcdError("etcdserver: user name is empty", 3), /user name is empty/],
    ["is no stream", { status: 502, message: "bad gateway" }, /has answered with status 502, not as etcd does$/],
  ])("fails where the answer %s", async (_what, answer, message) => {
    const member = await etcdStandIn();
    member.answers.set("/v3/watch", () => answer);
    expect((await open(clientOf([member]))).message).toMatch(message);
  });

  it.each(["upstream connect error", "<html>\n<body>Bad Gateway</body>\n</html>\n", ""])(
    "fails where a proxy answers with a page of its own: %j",
    async (page) => {
      const member = await etcdStandIn();
      member.answers.set("/v3/watch", (_message, response) => void response.writeHead(502).end(page));
      const { kind, message } = await open(clientOf([member]));
      expect([kind, message]).toEqual([
        "unreachable",
        expect.stringMatching(page === "" ? /has ended$/ : /status 502/),
      ]);
    },
  );

  it("fails with a line that is an error, is no JSON, or with the end of the answer", async () => {
    const member = await etcdStandIn();
    const line = (text: string) => member.answers.set("/v3/watch", (_message, response) => void response.end(text));
    line('{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: server stopped"}}\n');
    expect((await open(clientOf([member]))).message).toMatch(/: etcdserver: server stopped$/);
    line("{}}\n");
    expect((await open(clientOf([member]))).message).toMatch(/: a line of its answer is no JSON object$/);
    line('{"result":{}}\n');
    expect((await open(clientOf([member]))).message).toMatch(/: the answer has ended$/);
  });

  it("fails where the connection breaks", async () => {
    const member = await etcdStandIn();
    const lines: JsonLine[] = [];
    const failure = open(clientOf([member]), lines);
    await expect.poll(() => lines.length).toBe(1);
    for (const watch of member.watches) watch.destroy();
    expect((await failure).kind).toBe("unreachable");
  });

  it("logs in again where its token is refused", async () => {
    const member = await etcdStandIn();
    member.users = { gateway: "geheim" };
    const client = clientOf([member], { login: () => ({ name: "gateway", password: "geheim" }) });
    await client.call("/v3/kv/txn", READ);
    member.tokens.clear();
    const lines: JsonLine[] = [];
    void open(client, lines);
    await expect.poll(() => lines.length).toBe(1);
    expect(member.asked.slice(2)).toEqual(["/v3/watch", "/v3/auth/authenticate", "/v3/watch"]);
  });
});
