/** What an audit log has of requests, and what they get while it cannot be written. */
import { describe, expect, it, onTestFinished } from "vitest";
import { AuditEvents } from "../../lib/observe/audit_events.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { GatewayCore } from "../../lib/gateway/gateway.ts";
import { GatewayAudit } from "../../lib/gateway/gateway_audit.ts";
import type { AuditSink } from "../../lib/observe/audit_log.ts";
import type { AuditEvent } from "../../lib/observe/audit_log.ts";
import { createGateway } from "../../lib/index.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { backend, oneService } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";
import { pinned, signed, signingKeys } from "../support/signing_keys.ts";

type Seen = readonly [event: string, fields: Readonly<Record<string, unknown>>];
type Options = {
  readonly fail?: "open" | "closed";
  readonly refusals?: boolean;
  readonly written?: AuditSink["written"];
};

const KEY = { plugins: [{ name: "key_auth", config: { key: "k" } }] } as Partial<AnyConfigInput["services"][number]>;
const RIGHT = { apiKey: "k" };

async function audited(
  service: Partial<AnyConfigInput["services"][number]>,
  { fail = "open", refusals = true, written = async () => true }: Options = {},
) {
  const upstream = await backend((_request, response) => void response.writeHead(403).end("no"));
  const failing = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  const seen: Seen[] = [];
  const audit = new GatewayAudit(
    { fail, refusals, failing },
    { add: (event, fields) => void seen.push([event, fields as Seen[1]]), written },
  );
  const gateway = new GatewayCore({ config: oneService(upstream.port, service), modules: withAllFeatures(), audit });
  onTestFinished(async () => void (await gateway.close(0)));
  const { port } = await gateway.listen({ port: 0 });
  const get = async (headers: Record<string, string> = {}) => {
    const { status, body } = await ask(port, { path: "/a/x?token=secret", headers });
    return [status, /"code":"(\w+)"/.exec(body.toString())?.[1]];
  };
  return { audit, gateway, failing, seen, upstream, get };
}

describe("AUDIT_REFUSALS", () => {
  it("has id, address, route, plugin, status and code of a refused request, and nothing else of it", async () => {
    const { seen, get } = await audited(KEY);
    expect(await get()).toEqual([401, "key_missing"]);
    expect(seen).toEqual([
      [
        "request_refused",
        {
          id: expect.any(String) as string,
          address: "127.0.0.1",
          service: "s",
          route: "/{rest*}",
          plugin: "key_auth",
          status: 401,
          code: "key_missing",
        },
      ],
    ]);
  });

  it("names the plugin that refused, behind others that let the request pass", async () => {
    const { seen, get } = await audited({
      plugins: [...KEY.plugins!, { name: "request_termination", config: { status: 403 } }],
    });
    expect(await get(RIGHT)).toEqual([403, undefined]);
    expect(seen).toMatchObject([["request_refused", { plugin: "request_termination", status: 403 }]]);
  });

  it("has no line of what the upstream itself answers, and none without the setting", async () => {
    const [on, off] = [await audited(KEY), await audited(KEY, { refusals: false })];
    expect([await on.get(RIGHT), await off.get()]).toEqual([
      [403, undefined],
      [401, "key_missing"],
    ]);
    expect([on.seen, off.seen]).toEqual([[], []]);
  });
});

describe("a refused configuration", () => {
  const keys = signingKeys();
  const tests = () => fileWith([], "tests.json");
  const callers = () => fileWith([], "callers.json");

  it.each<readonly [string, () => string, string]>([
    ["that is not signed", () => fileWith(oneService(9)), "signature_refused"],
    ["that another key has signed", () => signed(fileWith(oneService(9)), signingKeys()), "signature_refused"],
    [
      "whose tests have no digest",
      () => signed(fileWith({ ...oneService(9), test_files: [tests()] }), keys),
      "signature_refused",
    ],
    [
      "whose callers have no digest",
      () => signed(fileWith({ ...oneService(9), caller_files: [callers()] }), keys),
      "signature_refused",
    ],
    [
      "that names callers twice",
      () => signed(fileWith({ ...oneService(9), caller_files: Array(2).fill(pinned(callers())) }), keys),
      "configuration_refused",
    ],
    ["that is not there", () => `${fileWith("")}.none`, "configuration_refused"],
    [
      "with an error that reads like one of its signature",
      () => signed(fileWith({ ...oneService(9), "sign it: edge-gateway sign x --key private.pem": 1 }), keys),
      "configuration_refused",
    ],
  ])("%s", async (_title, make, event) => {
    const { seen, audit } = await audited({});
    try {
      createGateway({ configFile: make(), configKeyFile: fileWith(keys.publicKey, "public.pem") });
    } catch (error) {
      audit.refused({ by: "start" }, error, null);
    }
    expect(seen).toEqual([[event, { by: "start", issues: [expect.any(String)] }]]);
  });
});

describe("AUDIT_FAIL=closed", () => {
  it(
    "answers requests with 503 audit_unavailable while the log cannot be written, " +
      "and is not ready; both end with that",
    async () => {
      const { gateway, failing, upstream, get } = await audited(KEY, { fail: "closed", refusals: false });
      Atomics.store(failing, 0, 1);
      expect([await get(RIGHT), gateway.ready, upstream.seen.length]).toEqual([[503, "audit_unavailable"], false, 0]);
      Atomics.store(failing, 0, 0);
      expect([await get(RIGHT), gateway.ready]).toEqual([[403, undefined], true]);
    },
  );

  it("with open serves on, and stays ready", async () => {
    const { gateway, failing, get } = await audited(KEY);
    Atomics.store(failing, 0, 1);
    expect([await get(RIGHT), gateway.ready]).toEqual([[403, undefined], true]);
  });

  it("answers a refusal when its line is written, and 503 if it is not", async () => {
    let write = (_isWritten: boolean) => {};
    const { seen, get } = await audited(KEY, {
      fail: "closed",
      written: () => new Promise((resolve) => (write = resolve)),
    });
    for (const isWritten of [true, false]) {
      const answer = get();
      const before = seen.length;
      while (seen.length === before) await new Promise((resolve) => setImmediate(resolve));
      write(isWritten);
      expect(await answer).toEqual(isWritten ? [401, "key_missing"] : [503, "audit_unavailable"]);
    }
  });
});

describe("the events of a worker", () => {
  const worker = () => {
    const sent: { readonly events: readonly AuditEvent[]; readonly lost: number }[] = [];
    return { sent, events: new AuditEvents((events, lost) => void sent.push({ events, lost })) };
  };

  it("are written when the main thread says so", async () => {
    const { sent, events } = worker();
    events.add("request_refused", { id: "1" });
    const written = events.written();
    events.flush();
    expect(sent[0]!.events).toMatchObject([{ event: "request_refused", fields: '"id":"1"' }]);
    events.answered(true);
    expect(await written).toBe(true);
  });

  it("wait up to 10,000, further ones are lost and counted with the next", async () => {
    const { sent, events } = worker();
    for (let i = 0; i < 10_003; i++) events.add("request_refused", {});
    expect(await events.written()).toBe(false);
    events.flush();
    events.answered(true);
    events.add("request_refused", {});
    events.flush();
    expect(sent.map((each) => [each.events.length, each.lost])).toEqual([
      [10_000, 3],
      [1, 0],
    ]);
  });

  it("are answered in their order, although a loss is known at once and the disk takes its time", async () => {
    const answers = [new Promise<boolean>((resolve) => setImmediate(resolve, true)), Promise.resolve(false)];
    const sink = { add() {}, addEvents() {}, written: () => answers.shift()! };
    const audit = new GatewayAudit({ fail: "closed", refusals: true, failing: new Int32Array(1) }, sink);
    const said: unknown[] = [];
    const answered = new Promise<void>((resolve) => {
      const postMessage = (message: unknown) => void (said.push(message) === 2 && resolve());
      for (const lost of [0, 1]) audit.receive({ events: [], lost }, { postMessage });
    });
    await answered;
    expect(said).toEqual([true, false].map((isWritten) => ({ type: "audited", isWritten })));
  });
});
