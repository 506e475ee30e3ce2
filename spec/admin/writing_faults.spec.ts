/**
 * What happens to the file while something goes wrong with PUT /gateway/source: it is the former one, and nothing lies
 * beside it.
 */
import { chmodSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { Writing } from "../../lib/admin/writing.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { silentLog } from "../../lib/base/log.ts";
import { OF_ADMIN } from "../../lib/cli/admin_requests.ts";
import { readSettings } from "../../lib/config/settings.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { Followers } from "../../lib/gateway/bundle.ts";
import { ConfigError, GatewayCore } from "../../lib/gateway/gateway.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { connect } from "../support/raw_client.ts";
import { RELOADED, startAdmin } from "./harness.ts";
import { digestOf, withPort, writable, type Writable } from "./writable.ts";

const text = (port: number, more?: object) => JSON.stringify(withPort(port, more), null, 2);
const MAX_BYTES = 16 * 1024 * 1024;

/** As `writable`, with a file of a mode of its own; `unchanged` says that nothing is left of an attempt. */
async function started() {
  const all = await writable(text(1));
  chmodSync(all.file, 0o640);
  return {
    ...all,
    unchanged() {
      expect([all.content(), statSync(all.file).mode & 0o7777, all.gateway.digest]).toEqual([
        text(1),
        0o640,
        digestOf(text(1)),
      ]);
      expect(besides(all)).toEqual(["gw.json"]);
      expect(all.lines().filter(({ message }) => message === "admin change")).toEqual([]);
      expect(all.gateway.status.lastReload).toBeNull();
    },
  };
}

/** All in the folder of the file but the history, which is made meanwhile. */
const besides = ({ folder }: Writable) => readdirSync(folder).filter((name) => !name.endsWith(".history"));

/** Threads that do what `prepare` does when they are to compile a configuration. */
function withThreads({ gateway }: Writable, prepare: () => Promise<void>): void {
  const threads = {
    serving: 1,
    restarts: 0,
    alive: 1,
    prepare,
    commit: () => {},
    abandon: () => {},
    announceStop: () => {},
    collect: () => Promise.resolve(),
    close: () => Promise.resolve("drained"),
  };
  GatewayCore.internalsOf(gateway).configuration.followers = threads as unknown as Followers;
}

/** A PUT whose body the gateway waits for: it has looked at the head. */
async function uploading({ port, cookie, content }: Writable, body = text(2)) {
  const head = [
    "PUT /gateway/source HTTP/1.1",
    `Host: 127.0.0.1:${port}`,
    `Cookie: ${cookie}`,
    "Content-Type: application/json",
    `If-Match: "${digestOf(content())}"`,
    `Content-Length: ${body.length}`,
  ];
  const talk = await connect(port);
  talk.send([...head, "Expect: 100-continue", "Connection: close", "", ""].join("\r\n"));
  await talk.until("100 Continue");
  talk.discard();
  return { ...talk, finish: () => (talk.send(body), talk.closed()) };
}

describe("a body of more than 16 MiB", () => {
  const head = ({ port, cookie }: Writable, framing: string) =>
    `PUT /gateway/source HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nCookie: ${cookie}\r\nContent-Type: ` +
    `application/json\r\nIf-Match: "${digestOf(text(1))}"\r\nConnection: close\r\n${framing}\r\n\r\n`;

  it("is refused with 413 by its announced length, before it is sent", async () => {
    const all = await started();
    const talk = await connect(all.port);
    talk.send(head(all, `Content-Length: ${17 * 1024 * 1024}`));
    expect(await talk.until('"body_too_large"')).toMatch(/^HTTP\/1\.1 413 /);
    talk.socket.destroy();
    all.unchanged();
  });

  it("is refused with 413 in chunks without a length", async () => {
    const all = await started();
    const talk = await connect(all.port);
    talk.send(head(all, "Transfer-Encoding: chunked"));
    talk.send(`${MAX_BYTES.toString(16)}\r\n`);
    talk.send(Buffer.alloc(MAX_BYTES, " "));
    talk.send("\r\n1\r\n \r\n0\r\n\r\n");
    expect(await talk.until('"body_too_large"')).toMatch(/^HTTP\/1\.1 413 /);
    all.unchanged();
  });
});

describe("uploads that are slow, or end early", () => {
  it("leave nothing, and take no place from others", async () => {
    const all = await started();
    const slow = await Promise.all(Array.from({ length: 8 }, () => uploading(all)));
    for (const { send } of slow) send('{"services"');
    for (const { socket } of slow.slice(0, 4)) socket.destroy();
    all.unchanged();
    expect((await all.put(text(3))).status).toBe(200);
    for (const { socket } of slow) socket.destroy();
    expect((await all.put(text(4))).status).toBe(200);
    expect([all.content(), besides(all)]).toEqual([text(4), ["gw.json"]]);
  });

  it("are sixteen at most, so that their memory has a bound, and the next gets 503 before its text", async () => {
    const all = await started();
    const slow = await Promise.all(Array.from({ length: 16 }, () => uploading(all)));
    const next = await all.put(text(3));
    expect([next.status, next.json.code, next.headers["retry-after"]]).toEqual([503, "overloaded", "1"]);
    slow[0]!.socket.destroy();
    let status = 0;
    // The gateway learns of the end a moment later.
    while (status !== 200) ({ status } = await all.put(text(3)));
    for (const { socket } of slow) socket.destroy();
    expect(all.content()).toBe(text(3));
  });

  it("that end together wait four at a time, and the others get 503", async () => {
    const all = await started();
    let [proceed, prepares] = [() => {}, () => {}];
    const preparing = new Promise<void>((resolve) => (prepares = resolve));
    const held = new Promise<void>((resolve) => (proceed = resolve));
    const others = await Promise.all(Array.from({ length: 10 }, () => uploading(all)));
    withThreads(all, () => (prepares(), held));
    const first = all.put(text(3));
    await preparing;
    const answers = others.map(({ finish }) => finish());
    const isBusy = (answer: string) => answer.includes("503 ") && /^retry-after: 1\r$/im.test(answer);
    let busy = 0;
    await new Promise<void>((resolve) =>
      answers.forEach((each) => void each.then((answer) => isBusy(answer) && ++busy === 6 && resolve())),
    );
    proceed();
    expect((await first).status).toBe(200);
    const heard = (await Promise.all(answers)).filter((each) => !isBusy(each));
    expect(heard.map((each) => each.slice(9, 12))).toEqual(["412", "412", "412", "412"]);
    expect(all.content()).toBe(text(3));
  });

  it("whose session has ended by their end get 401, and change nothing", async () => {
    const all = await started();
    const upload = await uploading(all);
    expect((await all.asAdmin("DELETE", "/logout")).status).toBe(204);
    const answer = await upload.finish();
    expect([answer.slice(9, 12), answer.includes('"unauthenticated"')]).toEqual(["401", true]);
    all.unchanged();
  });
});

describe("a configuration that the gateway cannot take after all", () => {
  it.each([
    [
      "a thread refuses it",
      new ConfigError([{ at: ["services", 0, "name"], message: "is refused by a thread", position: null }], undefined),
      422,
      "configuration_refused",
    ],
    ["a thread fails", new Error("a fault of a thread"), 500, "internal"],
  ])("because %s leaves the file", async (_title, error, status, code) => {
    const all = await started();
    withThreads(all, () => Promise.reject(error));
    const got = await all.put(text(2));
    expect([got.status, got.json.code, got.text.includes("a fault of")]).toEqual([status, code, false]);
    if (status === 422)
      expect(got.json.issues).toMatchObject([{ path: "services[0].name", message: "is refused by a thread" }]);
    all.unchanged();
    withThreads(all, () => Promise.resolve());
    expect((await all.put(text(2))).status).toBe(200);
  });

  it("because its access log cannot be opened, the last step, puts the former text back", async () => {
    const all = await started();
    const longAgo = new Date(2001, 1);
    utimesSync(all.file, longAgo, longAgo);
    const global = { access_log: { file: join(all.folder, "missing", "access.log") } };
    const got = await all.put(JSON.stringify({ ...withPort(2), global }));
    expect([got.status, got.json.issues]).toEqual([
      422,
      [
        expect.objectContaining({
          path: "global.access_log.file",
          message: expect.stringContaining("cannot write to") as string,
        }),
      ],
    ]);
    // The file was replaced, and replaced again.
    expect(statSync(all.file).mtime).not.toEqual(longAgo);
    all.unchanged();
  });
});

it("an answer has its changes also where the next reload fails before it is written", async () => {
  const all = await started();
  const { configuration } = GatewayCore.internalsOf(all.gateway);
  const { onReplaced } = configuration;
  let next: Promise<unknown> = Promise.resolve();
  configuration.onReplaced = (...both) => {
    onReplaced(...both);
    rmSync(all.file);
    next = all.gateway.reload().catch((error: Error) => error);
  };
  const got = await all.put(text(2));
  expect(await next).toBeInstanceOf(ConfigError);
  expect(all.gateway.status.lastReload).toMatchObject({ outcome: "refused" });
  expect([got.status, got.json]).toEqual([
    200,
    {
      digest: digestOf(text(2)),
      changed: true,
      changes: [expect.objectContaining({ kind: "upstream", change: "altered" })],
    },
  ]);
});

it("a former text that cannot be put back either: the answer says both reasons", async () => {
  const all = await started();
  const { configuration } = GatewayCore.internalsOf(all.gateway);
  const drop = configuration.drop.bind(configuration);
  configuration.drop = (prepared) => (drop(prepared), writeFileSync(all.file, text(7)));
  const got = await all.put(
    JSON.stringify({ ...withPort(2), global: { access_log: { file: join(all.folder, "missing", "access.log") } } }),
  );
  expect([got.status, got.json.code]).toEqual([409, "conflict"]);
  expect(got.json.detail).toMatch(
    new RegExp(
      String.raw`^The configuration cannot come into force: [^]*cannot write to [^]*\. The former ` +
        String.raw`text of the file could not be put back: .*gw\.json has been changed meanwhile: ` +
        String.raw`its digest is [0-9a-f]{12}\.$`,
    ),
  );
  expect([all.content(), all.gateway.digest]).toEqual([text(7), digestOf(text(1))]);
});

it("a change by hand that comes while the new text is being checked stays: 412 with its digest", async () => {
  const all = await started();
  withThreads(all, () => Promise.resolve(writeFileSync(all.file, text(7))));
  const got = await all.put(text(2));
  expect([got.status, got.json.code, got.json.detail]).toEqual([
    412,
    "precondition_failed",
    expect.stringContaining(`its digest is ${digestOf(text(7))}`),
  ]);
  expect([all.content(), all.gateway.digest, besides(all)]).toEqual([text(7), digestOf(text(1)), ["gw.json"]]);
});

it("a gateway whose program gives the configuration has no file that could be changed: 409", async () => {
  const gateway = new Gateway({ config: withPort(1), modules: withAllFeatures() });
  onTestFinished(async () => void (await gateway.close(0)));
  const read = readSettings({}, {});
  if (!read.ok) throw new Error(read.issues.join());
  const reload = () => Promise.resolve(RELOADED);
  const writing = new Writing({
    gateway,
    settings: read.settings,
    refresh: () => null,
    onRequest: OF_ADMIN,
    redactSecrets: false,
    clock: systemClock,
    reload,
    log: silentLog,
  });
  writing.followGateway();
  const { ask, session } = await startAdmin({ write: true, writing: writing.at, gateway, reload });
  const headers = { cookie: await session(), "content-type": "application/json", "if-match": '"0123456789ab"' };
  for (const [method, path, body] of [
    ["GET", "/gateway/source"],
    ["PUT", "/gateway/source", text(2)],
    ["POST", "/gateway/rollback", '{"digest":"0123456789ab"}'],
  ] as const) {
    const got = await ask(method, path, { headers, ...(body !== undefined && { body }) });
    expect([path, got.status, got.json.code]).toEqual([path, 409, "conflict"]);
  }
  expect((await ask("GET", "/gateway/history", { headers })).json).toEqual({ entries: [] });
});
