/**
 * A real gRPC client and server (@grpc/grpc-js) with the gateway between them: HTTP/2 over TLS on both sides, and h2c
 * upstream.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { createGateway } from "../../lib/index.ts";
import { CA, SERVER } from "../support/certs.ts";
import { eventually } from "../support/raw_client.ts";

// The package lives beside the specs and is not there for the type checker of the repository.
const grpc = createRequire(import.meta.url)("@grpc/grpc-js") as any;

const json = {
  serialize: (value: unknown) => Buffer.from(JSON.stringify(value)),
  deserialize: (bytes: Buffer) => JSON.parse(bytes.toString()) as unknown,
};

function method(name: string, requestStream: boolean, responseStream: boolean) {
  return {
    path: `/chat.Chat/${name}`,
    requestStream,
    responseStream,
    requestSerialize: json.serialize,
    requestDeserialize: json.deserialize,
    responseSerialize: json.serialize,
    responseDeserialize: json.deserialize,
  };
}

const Chat = {
  Unary: method("Unary", false, false),
  Collect: method("Collect", true, false),
  Count: method("Count", false, true),
  Talk: method("Talk", true, true),
  Hang: method("Hang", false, false),
};

/** What became of the calls that never answer. */
const hung = { begun: 0, cancelled: 0 };

const service = {
  Unary(call: any, answer: any) {
    if (call.request.fail) {
      const metadata = new grpc.Metadata();
      metadata.set("x-why", "asked to");
      return answer({ code: grpc.status.FAILED_PRECONDITION, details: "no – never", metadata });
    }
    const trailing = new grpc.Metadata();
    trailing.set("x-trailing", "yes");
    call.sendMetadata(new grpc.Metadata());
    answer(null, { text: `hello ${call.request.name}`, token: call.metadata.get("x-token")[0] ?? null }, trailing);
  },
  Collect(call: any, answer: any) {
    let sum = 0;
    call.on("data", (each: { n: number }) => (sum += each.n));
    call.on("end", () => answer(null, { sum }));
  },
  Count(call: any) {
    for (let n = 1; n <= call.request.to; n++) call.write({ n });
    call.end();
  },
  Talk(call: any) {
    call.on("data", (each: { text: string }) => call.write({ text: each.text.toUpperCase() }));
    call.on("end", () => call.end());
  },
  Hang(call: any) {
    hung.begun++;
    call.on("cancelled", () => hung.cancelled++);
  },
};

async function between(upstream: "h2" | "h2c", plugins: object[] = []) {
  const server = new grpc.Server();
  server.addService(Chat, service);
  const credentials =
    upstream === "h2"
      ? grpc.ServerCredentials.createSsl(null, [
          { cert_chain: Buffer.from(SERVER.cert), private_key: Buffer.from(SERVER.key) },
        ])
      : grpc.ServerCredentials.createInsecure();
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", credentials, (error: Error | null, bound: number) =>
      error === null ? resolve(bound) : reject(error),
    ),
  );
  onTestFinished(() => server.forceShutdown());
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "ca.pem"), CA.cert);
  const tls = upstream === "h2" ? { tls: { ca: join(folder, "ca.pem") } } : {};
  const gateway = createGateway({
    config: {
      services: [
        {
          name: "chat",
          base_path: "/",
          protocol: upstream,
          upstreams: [{ host: "127.0.0.1", port }],
          routes: [{ path: "/chat.Chat/{method}" }],
          plugins,
          ...tls,
        } as never,
      ],
    },
  });
  onTestFinished(async () => void (await gateway.close(0)));
  await gateway.listen({ port: 0 });
  const secure = await gateway.listen({
    port: 0,
    tls: { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false },
  });
  const Client = grpc.makeGenericClientConstructor(
    { ...Chat, Missing: { ...Chat.Unary, path: "/other.Thing/Missing" } },
    "chat.Chat",
  );
  const client = new Client(`localhost:${secure.port}`, grpc.credentials.createSsl(Buffer.from(CA.cert)));
  onTestFinished(() => client.close());
  return { client, server };
}

const unary = (client: any, name: string, request: object, metadata = new grpc.Metadata(), options = {}) =>
  new Promise<any>((resolve) => {
    let trailing: any;
    const call = client[name](request, metadata, options, (error: any, value: any) =>
      setImmediate(() => resolve({ error, value, trailing })),
    );
    call.on("status", (status: any) => (trailing = status.metadata));
  });

const received = async (call: any) => {
  const all: unknown[] = [];
  for await (const each of call) all.push(each);
  return all;
};

describe.each(["h2", "h2c"] as const)("gRPC through the gateway to %s", (upstream) => {
  it("answers a unary call, metadata and trailers included", async () => {
    const { client } = await between(upstream);
    const metadata = new grpc.Metadata();
    metadata.set("x-token", "t");
    const { error, value, trailing } = await unary(client, "Unary", { name: "you" }, metadata);
    expect(error).toBeNull();
    expect(value).toEqual({ text: "hello you", token: "t" });
    expect(trailing.get("x-trailing")).toEqual(["yes"]);
  });

  it("passes the server's own status and details on", async () => {
    const { client } = await between(upstream);
    const { error } = await unary(client, "Unary", { fail: true });
    expect(error).toMatchObject({ code: grpc.status.FAILED_PRECONDITION, details: "no – never" });
    expect(error.metadata.get("x-why")).toEqual(["asked to"]);
  });

  it("carries a client's stream, a server's stream, and both at once", async () => {
    const { client } = await between(upstream);
    const sum = await new Promise((resolve, reject) => {
      const call = client.Collect((error: Error | null, value: unknown) =>
        error === null ? resolve(value) : reject(error),
      );
      for (let n = 1; n <= 100; n++) call.write({ n });
      call.end();
    });
    expect(sum).toEqual({ sum: 5050 });
    expect(await received(client.Count({ to: 500 }))).toHaveLength(500);

    const talk = client.Talk();
    const heard: string[] = [];
    for (const text of ["a", "b", "c"]) {
      const next = new Promise<{ text: string }>((resolve) => talk.once("data", resolve));
      talk.write({ text });
      heard.push((await next).text);
    }
    expect(heard).toEqual(["A", "B", "C"]);
    const status = new Promise<any>((resolve) => talk.once("status", resolve));
    talk.on("data", () => {});
    talk.end();
    expect((await status).code).toBe(grpc.status.OK);
  });

  it("carries a megabyte each way", async () => {
    const { client } = await between(upstream);
    const name = "x".repeat(1024 * 1024);
    expect((await unary(client, "Unary", { name })).value.text).toHaveLength(name.length + 6);
  });

  it("notifies the server of a cancelled call, and of a call whose deadline has passed", async () => {
    const { client } = await between(upstream);
    const { begun, cancelled } = hung;
    const call = client.Hang({}, () => {});
    await eventually(() => hung.begun === begun + 1);
    call.cancel();
    await eventually(() => hung.cancelled === cancelled + 1);
    const { error } = await unary(client, "Hang", {}, new grpc.Metadata(), { deadline: Date.now() + 200 });
    expect(error.code).toBe(grpc.status.DEADLINE_EXCEEDED);
    await eventually(() => hung.cancelled === cancelled + 2);
  });

  it("answers with a status where the gateway itself refuses or fails", async () => {
    const guarded = await between(upstream, [{ name: "key_auth", config: { key: "k" } }]);
    expect((await unary(guarded.client, "Unary", {})).error).toMatchObject({ code: grpc.status.UNAUTHENTICATED });
    const { client, server } = await between(upstream);
    expect((await unary(client, "Missing", {})).error).toMatchObject({ code: grpc.status.UNIMPLEMENTED });
    server.forceShutdown();
    expect((await unary(client, "Unary", {})).error).toMatchObject({ code: grpc.status.UNAVAILABLE });
  });
});
