/**
 * A small stand-in of etcd's JSON gateway, for what a real one cannot be made to do: see `spec/peers/etcd.ts` for the
 * others.
 */
import { once } from "node:events";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";

type Json = Record<string, unknown>;
type Answer = (message: Json, response: ServerResponse, request: IncomingMessage) => unknown;

interface Kv {
  readonly value: Buffer;
  readonly mod: number;
  readonly create: number;
  readonly lease?: string;
}

/** What several members have in common. */
export class Cluster {
  readonly keys = new Map<string, Kv>();
  id = "42";
  revision = 1;
  readonly members: EtcdStandIn[] = [];
  readonly leases = new Set<string>();

  /** In one transaction; null deletes. */
  put(values: Readonly<Record<string, string | Buffer | null>>): void {
    this.revision++;
    const events = Object.entries(values).map(([key, value]) => {
      if (value === null) this.keys.delete(key);
      else {
        const create = this.keys.get(key)?.create ?? this.revision;
        this.keys.set(key, { value: Buffer.from(value as string), mod: this.revision, create });
      }
      const kv = { key: base64(key), mod_revision: String(this.revision), value: base64(value ?? "") };
      return value === null ? { type: "DELETE", kv } : { kv };
    });
    for (const member of this.members) member.send({ result: { header: this.header, events } });
  }

  get header() {
    return { cluster_id: this.id, member_id: "1", revision: String(this.revision), raft_term: "2" };
  }
}

export interface EtcdStandIn {
  readonly url: URL;
  readonly cluster: Cluster;
  /** Takes the place of an answer, by its path: "/v3/watch". */
  readonly answers: Map<string, Answer>;
  /** Paths, in the order in which they were asked. */
  readonly asked: string[];
  /** Bodies of requests for watches. */
  readonly watched: string[];
  readonly watches: ReadonlySet<ServerResponse>;
  /** Users and their passwords; null: authentication is off. */
  users: Record<string, string> | null;
  /** Tokens that are accepted. */
  readonly tokens: Set<string>;
  /** Whether events are sent. */
  isSilent: boolean;
  send(line: unknown): void;
  /** What it answers by itself. */
  answer(path: string, message: Json): unknown;
}

export async function etcdStandIn(
  cluster = new Cluster(),
  tls: https.ServerOptions | null = null,
): Promise<EtcdStandIn> {
  const watches = new Set<ServerResponse>();
  const answers = new Map<string, Answer>();
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      const path = request.url!;
      const body = Buffer.concat(pieces).toString();
      standIn.asked.push(path);
      const own = answers.get(path);
      const message = path === "/v3/watch" ? {} : (JSON.parse(body) as Json);
      if (path === "/v3/watch") standIn.watched.push(body);
      const answer = own === undefined ? answerTo(standIn, path, message, request) : own(message, response, request);
      if (path === "/v3/watch" && own === undefined && answer === undefined) {
        watches.add(response);
        response.on("close", () => watches.delete(response));
        response.write(`${JSON.stringify({ result: { header: cluster.header, created: true } })}\n`);
      } else if (answer !== undefined) send(response, answer as Json);
    });
  };
  const server = tls === null ? http.createServer(listener) : https.createServer(tls, listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const standIn: EtcdStandIn = {
    url: new URL(`${tls === null ? "http" : "https"}://127.0.0.1:${port}`),
    cluster,
    answers,
    asked: [],
    watched: [],
    watches,
    users: null,
    tokens: new Set(),
    isSilent: false,
    answer: (path, message) => answerTo(standIn, path, message, null),
    send(line) {
      if (standIn.isSilent) return;
      for (const watch of watches) watch.write(`${JSON.stringify(line)}\n`);
    },
  };
  cluster.members.push(standIn);
  return standIn;
}

/** As etcd 3.4 has them. */
export const etcdError = (message: string, code: number, status = 400) => ({ error: message, message, code, status });

function send(response: ServerResponse, { status = 200, ...answer }: Json): void {
  response.writeHead(Number(status), { "Content-Type": "application/json" });
  response.end(JSON.stringify(answer));
}

/** Undefined: the answer is a stream. */
function answerTo(standIn: EtcdStandIn, path: string, message: Json, request: IncomingMessage | null): unknown {
  const { cluster, users, tokens } = standIn;
  if (path === "/v3/auth/authenticate") {
    if (users === null) return etcdError("etcdserver: authentication is not enabled", 9, 412);
    if (users[String(message.name)] !== message.password)
      return etcdError("etcdserver: authentication failed, invalid user ID or password", 3);
    const token = `token.${tokens.size + 1}`;
    tokens.add(token);
    return { header: cluster.header, token };
  }
  const { authorization = "" } = request?.headers ?? {};
  if (users !== null && authorization === "") return etcdError("etcdserver: user name is empty", 3);
  if (users !== null && !tokens.has(authorization)) return etcdError("etcdserver: invalid auth token", 16, 401);
  if (path === "/v3/watch") return undefined;
  if (path === "/v3/kv/txn") return transaction(cluster, message as unknown as Transaction);
  if (path === "/v3/kv/put") return put(cluster, message as unknown as Put);
  if (path === "/v3/kv/range") return range(cluster, message);
  if (path === "/v3/lease/grant") {
    const lease = String(1000 + cluster.revision + cluster.leases.size);
    cluster.leases.add(lease);
    return { header: cluster.header, ID: lease, TTL: message.TTL };
  }
  const lease = String(message.ID);
  const isThere = cluster.leases.has(lease);
  if (path === "/v3/lease/keepalive")
    return { result: { header: cluster.header, ID: lease, ...(isThere && { TTL: "30" }) } };
  if (path === "/v3/lease/revoke") {
    if (!isThere) return etcdError("etcdserver: requested lease not found", 5, 404);
    endLease(cluster, lease);
    return { header: cluster.header };
  }
  throw new Error(`the stand-in has no ${path}`);
}

interface Put {
  readonly key: string;
  readonly value: string;
  readonly lease?: string;
}

function put(cluster: Cluster, given: Put): Json {
  const refused = change(cluster, [{ request_put: given }]);
  return refused ?? { header: cluster.header };
}

/** All puts and deletes in one revision. An error: a lease is not there, and nothing is changed. */
function change(cluster: Cluster, operations: readonly Operation[]): Json | null {
  const puts = operations.flatMap(({ request_put: given }) => given ?? []);
  const lacks = puts.some(({ lease }) => lease !== undefined && !cluster.leases.has(lease));
  if (lacks) return etcdError("etcdserver: requested lease not found", 5, 404);
  const removed = operations.flatMap(({ request_delete_range: given }) => (given ? [nameOf(given.key)] : []));
  const values = puts.map(({ key, value }) => [nameOf(key), Buffer.from(value, "base64")] as const);
  const gone = removed.filter((key) => cluster.keys.has(key)).map((key) => [key, null] as const);
  if (values.length + gone.length > 0) cluster.put(Object.fromEntries([...values, ...gone]));
  for (const { key, lease } of puts)
    if (lease !== undefined) cluster.keys.set(nameOf(key), { ...cluster.keys.get(nameOf(key))!, lease });
  return null;
}

const nameOf = (key: string) => Buffer.from(key, "base64").toString();

function shown(key: string, { value, mod, create, lease }: Kv, keysOnly: boolean): Json {
  return {
    key: base64(key),
    ...{ create_revision: String(create), mod_revision: String(mod), version: "1" },
    ...(!keysOnly && value.length > 0 && { value: base64(value) }),
    ...(lease !== undefined && { lease }),
  };
}

/** As after its time, or when it is revoked. */
export function endLease(cluster: Cluster, lease: string): void {
  cluster.leases.delete(lease);
  for (const [key, kv] of cluster.keys) if (kv.lease === lease) cluster.put({ [key]: null });
}

function range(cluster: Cluster, message: Json): Json {
  const [from, to] = [message.key, message.range_end].map((key) => Buffer.from(String(key), "base64").toString());
  const kvs = [...cluster.keys]
    .filter(([key]) => key >= from! && key < to!)
    .map(([key, kv]) => shown(key, kv, message.keys_only === true));
  return { header: cluster.header, ...(kvs.length > 0 && { kvs, count: String(kvs.length) }) };
}

interface Operation {
  readonly request_range?: { readonly key: string; readonly keys_only?: boolean };
  readonly request_put?: Put;
  readonly request_delete_range?: { readonly key: string };
}

interface Transaction {
  readonly compare?: readonly {
    readonly key: string;
    readonly target: "MOD" | "CREATE";
    readonly mod_revision?: string;
    readonly create_revision?: string;
  }[];
  readonly success: readonly Operation[];
  readonly failure?: readonly Operation[];
}

/** Of reads, or of writes. */
function transaction(cluster: Cluster, { compare = [], success, failure = [] }: Transaction): Json {
  const isTrue = compare.every(({ key, target, mod_revision: mod, create_revision: create }) => {
    const kv = cluster.keys.get(nameOf(key));
    return target === "CREATE" ? String(kv?.create ?? 0) === create : String(kv?.mod ?? 0) === mod;
  });
  const operations = isTrue ? success : failure;
  const refused = change(cluster, operations);
  if (refused !== null) return refused;
  const responses = operations.map(({ request_range: given, request_put: written }) => {
    const header = { revision: String(cluster.revision) };
    if (given === undefined) return written ? { response_put: { header } } : { response_delete_range: { header } };
    const name = nameOf(given.key);
    const found = cluster.keys.get(name);
    if (found === undefined) return { response_range: { header } };
    return { response_range: { header, kvs: [shown(name, found, given.keys_only === true)] } };
  });
  return { header: cluster.header, ...(isTrue && { succeeded: true }), responses };
}

function base64(text: string | Buffer): string {
  return Buffer.from(text as string).toString("base64");
}
