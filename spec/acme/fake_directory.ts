/**
 * A small directory of RFC 8555 over HTTPS: it checks every signature, nonce and URL, issues certificates by the clock
 * of a test, and lets the test answer in its place.
 */
import { createHmac, createPublicKey, generateKeyPairSync, randomBytes, verify, type KeyObject } from "node:crypto";
import { once } from "node:events";
import https from "node:https";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import * as asn1 from "../../lib/acme/asn1.ts";
import { Der, TAG } from "../../lib/base/der.ts";
import { SERVER } from "../support/certs.ts";

export interface Asked {
  readonly method: string;
  /** "/new-order" */
  readonly path: string;
  /** Of a signed request; null: a POST-as-GET, or none. */
  readonly payload: Record<string, unknown> | null;
  /** URL of the account. */
  readonly kid: string | null;
  readonly headers: IncomingMessage["headers"];
}

export interface Answered {
  readonly status?: number;
  readonly headers?: Record<string, string>;
  /** An object is sent as JSON. */
  readonly body?: unknown;
}

interface Authorization {
  readonly identifier: { readonly type: string; readonly value: string };
  status: string;
  readonly token: string;
  error: unknown;
}

interface Order {
  readonly identifiers: readonly { readonly type: string; readonly value: string }[];
  status: string;
  readonly authorizations: number[];
  csr: Buffer | null;
  readonly payload: Record<string, unknown>;
}

export interface FakeDirectory {
  readonly url: string;
  readonly host: string;
  readonly asked: Asked[];
  readonly orders: Order[];
  /** Thumbprints (as JSON of the key) of accounts, in the order of their numbers. */
  readonly accounts: { key: string; payload: Record<string, unknown> }[];
  /** Answers in the directory's place; undefined: the directory does. */
  instead: (asked: Asked) => Answered | undefined | "no answer" | "broken";
  /** Changes what the directory answers. */
  amend: (asked: Asked, answer: Answered) => Answered;
  /** Whether a host is proved. Throws, or returns a problem document. */
  proves: (host: string, token: string) => Promise<Record<string, unknown> | null> | Record<string, unknown> | null;
  /** Of the certificates that it issues, in milliseconds. */
  lifetimeMs: number;
  /** How much earlier they begin. */
  backdatedMs: number;
  /** Members of the directory object. */
  members: Record<string, unknown>;
  renewalInfo: Answered | null;
  requiresEab: string | null;
  /** Issues for another name, with another key, …: the DER of names and key of the request can be replaced. */
  issue: (request: { spki: Buffer; san: Buffer }) => { spki: Buffer; san: Buffer };
  close(): Promise<void>;
}

export const problem = (type: string, detail = "", more: object = {}, status = 403): Answered => ({
  status,
  body: { type: `urn:ietf:params:acme:error:${type}`, detail, ...more },
});

/** `wall`: milliseconds since 1970. */
export async function fakeDirectory(wall: () => number): Promise<FakeDirectory> {
  const server = https.createServer({ cert: SERVER.cert, key: SERVER.key }, (request, response) => {
    void answer(request, response).catch((error: unknown) => {
      response.writeHead(500, { "Content-Type": "text/plain" }).end(String(error));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const base = `https://localhost:${(server.address() as AddressInfo).port}`;
  const nonces = new Set<string>();
  const authorizations: Authorization[] = [];
  const ca = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
  const root = certificate({ key: ca, issuer: ca, spki: spkiOf(ca), from: Date.UTC(2000), to: Date.UTC(2100) });

  const directory: FakeDirectory = {
    url: `${base}/dir`,
    host: base.slice("https://".length),
    asked: [],
    orders: [],
    accounts: [],
    instead: () => undefined,
    amend: (_asked, given) => given,
    proves: () => null,
    lifetimeMs: 90 * 86_400_000,
    backdatedMs: 0,
    members: {},
    renewalInfo: null,
    requiresEab: null,
    issue: (request) => request,
    async close() {
      server.closeAllConnections();
      if (server.listening) await new Promise((done) => server.close(done));
    },
  };
  onTestFinished(() => directory.close());

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const asked = read(request, Buffer.concat(chunks).toString());
    directory.asked.push(asked.asked);
    const given = directory.instead(asked.asked);
    if (given === "no answer") return;
    if (given === "broken") return void request.socket.destroy();
    const {
      status = 200,
      headers = {},
      body,
    } = directory.amend(asked.asked, given ?? asked.refusal ?? (await handle(asked.asked, asked.key)));
    const nonce = randomBytes(16).toString("base64url");
    nonces.add(nonce);
    response.writeHead(status, { "Replay-Nonce": nonce, ...headers });
    response.end(
      Buffer.isBuffer(body) || typeof body === "string" ? body : body === undefined ? "" : JSON.stringify(body),
    );
  }

  /** Who signs, and what stands against it. */
  function read(request: IncomingMessage, text: string): { asked: Asked; key: string; refusal: Answered | null } {
    const { method = "", url: path = "", headers } = request;
    const plain = { method, path, payload: null, kid: null, headers };
    if (method !== "POST") return { asked: plain, key: "", refusal: null };
    const jws = JSON.parse(text) as { protected: string; payload: string; signature: string };
    const head = JSON.parse(String(Buffer.from(jws.protected, "base64url"))) as Record<string, unknown>;
    const payload = jws.payload === "" ? null : (JSON.parse(String(Buffer.from(jws.payload, "base64url"))) as object);
    const kid = (head.kid as string | undefined) ?? null;
    const account = kid === null ? undefined : directory.accounts[Number(kid.split("/").at(-1))];
    const key = account?.key ?? JSON.stringify(head.jwk);
    const asked = { ...plain, payload: payload as Asked["payload"], kid };
    const refused = (type: string, detail = "") => ({ asked, key, refusal: problem(type, detail, {}, 400) });
    if (kid !== null && account === undefined) return refused("accountDoesNotExist");
    if (headers["content-type"] !== "application/jose+json") return refused("malformed", "content type");
    if (head.alg !== "ES256" || head.url !== `${base}${path}`) return refused("malformed", "protected header");
    const publicKey = createPublicKey({ key: JSON.parse(key) as never, format: "jwk" });
    const signed = Buffer.from(`${jws.protected}.${jws.payload}`);
    const signature = Buffer.from(jws.signature, "base64url");
    if (!verify("sha256", signed, { key: publicKey, dsaEncoding: "ieee-p1363" }, signature))
      return refused("malformed", "signature");
    if (!nonces.delete(String(head.nonce))) return refused("badNonce", "unknown");
    return { asked, key, refusal: null };
  }

  async function handle({ method, path, payload, kid }: Asked, key: string): Promise<Answered> {
    const number = Number(path.split("/").at(-1));
    if (path === "/dir") return { body: { ...resources(), ...directory.members } };
    if (path === "/new-nonce") return { status: method === "HEAD" ? 200 : 204 };
    if (path.startsWith("/renewal-info/")) return directory.renewalInfo ?? { status: 404 };
    if (path === "/new-account") return newAccount(payload!, key);
    if (kid === null) return problem("malformed", "no account");
    if (path === "/key-change") return keyChange(payload!, key);
    if (path.startsWith("/account/")) return { body: { status: "valid", contact: payload?.contact } };
    if (path === "/new-order") return newOrder(payload!);
    if (path.startsWith("/order/")) return orderOf(number);
    if (path.startsWith("/authorization/")) return authorizationOf(number);
    if (path.startsWith("/challenge/")) return challenged(number);
    if (path.startsWith("/finalize/")) return finalized(number, payload!);
    if (path.startsWith("/certificate/")) return certificateOf(number);
    return { status: 404 };
  }

  const resources = () => ({
    newNonce: `${base}/new-nonce`,
    newAccount: `${base}/new-account`,
    newOrder: `${base}/new-order`,
    keyChange: `${base}/key-change`,
    ...(directory.renewalInfo !== null && { renewalInfo: `${base}/renewal-info` }),
    meta: { externalAccountRequired: directory.requiresEab !== null },
  });

  function newAccount(payload: Record<string, unknown>, key: string): Answered {
    const known = directory.accounts.findIndex((each) => each.key === key);
    if (known >= 0) return account(known, 200);
    if (payload.onlyReturnExisting === true) return problem("accountDoesNotExist", "", {}, 400);
    if (payload.termsOfServiceAgreed !== true) return problem("userActionRequired", "terms");
    if (directory.requiresEab !== null) {
      const binding = payload.externalAccountBinding as Record<string, string>;
      const mac = createHmac("sha256", Buffer.from(directory.requiresEab, "base64url"));
      const right = mac.update(`${binding.protected}.${binding.payload}`).digest("base64url");
      const head = String(Buffer.from(binding.protected!, "base64url"));
      const isRight = head === JSON.stringify({ alg: "HS256", kid: "kid-1", url: `${base}/new-account` });
      const isOfKey = String(Buffer.from(binding.payload!, "base64url")) === key;
      if (right !== binding.signature || !isRight || !isOfKey) return problem("unauthorized", "binding");
    }
    directory.accounts.push({ key, payload });
    return account(directory.accounts.length - 1, 201);
  }

  function account(number: number, status: number): Answered {
    const { contact } = directory.accounts[number]!.payload;
    return { status, headers: { Location: `${base}/account/${number}` }, body: { status: "valid", contact } };
  }

  function keyChange(inner: Record<string, unknown>, oldKey: string): Answered {
    const head = JSON.parse(String(Buffer.from(inner.protected as string, "base64url"))) as Record<string, unknown>;
    const payload = JSON.parse(String(Buffer.from(inner.payload as string, "base64url"))) as Record<string, unknown>;
    const number = directory.accounts.findIndex(({ key }) => key === oldKey);
    const key = createPublicKey({ key: head.jwk as never, format: "jwk" });
    const signed = Buffer.from(`${String(inner.protected)}.${String(inner.payload)}`);
    const signature = Buffer.from(inner.signature as string, "base64url");
    const isRight =
      verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, signature) &&
      head.url === `${base}/key-change` &&
      head.nonce === undefined &&
      payload.account === `${base}/account/${number}` &&
      JSON.stringify(payload.oldKey) === oldKey;
    if (!isRight) return problem("malformed", "key change", {}, 400);
    directory.accounts[number]!.key = JSON.stringify(head.jwk);
    return {};
  }

  function newOrder(payload: Record<string, unknown>): Answered {
    const identifiers = payload.identifiers as Order["identifiers"];
    const order: Order = { identifiers, status: "pending", authorizations: [], csr: null, payload };
    for (const identifier of identifiers) {
      const token = randomBytes(24).toString("base64url");
      order.authorizations.push(authorizations.push({ identifier, status: "pending", token, error: null }) - 1);
    }
    const number = directory.orders.push(order) - 1;
    return { ...orderOf(number), status: 201, headers: { Location: `${base}/order/${number}` } };
  }

  function orderOf(number: number): Answered {
    const order = directory.orders[number]!;
    const all = order.authorizations.map((each) => authorizations[each]!.status);
    if (order.status === "pending" && all.every((status) => status === "valid")) order.status = "ready";
    if (order.status === "pending" && all.includes("invalid")) order.status = "invalid";
    return {
      body: {
        status: order.status,
        identifiers: order.identifiers,
        authorizations: order.authorizations.map((each) => `${base}/authorization/${each}`),
        finalize: `${base}/finalize/${number}`,
        ...(order.status === "valid" && { certificate: `${base}/certificate/${number}` }),
      },
    };
  }

  function authorizationOf(number: number): Answered {
    const { identifier, status, token, error } = authorizations[number]!;
    const challenge = (type: string) => ({
      type,
      url: `${base}/challenge/${number}`,
      status: status === "pending" ? "pending" : status,
      token,
      ...(error !== null && { error }),
    });
    return { body: { identifier, status, challenges: [challenge("http-01"), challenge("tls-alpn-01")] } };
  }

  async function challenged(number: number): Promise<Answered> {
    const authorization = authorizations[number]!;
    authorization.error = await directory.proves(authorization.identifier.value, authorization.token);
    authorization.status = authorization.error === null ? "valid" : "invalid";
    return { body: {} };
  }

  function finalized(number: number, payload: Record<string, unknown>): Answered {
    const order = directory.orders[number]!;
    orderOf(number);
    if (order.status !== "ready") return problem("orderNotReady");
    order.csr = Buffer.from(payload.csr as string, "base64url");
    order.status = "valid";
    return orderOf(number);
  }

  function certificateOf(number: number): Answered {
    const from = wall() - directory.backdatedMs;
    const { spki, san } = directory.issue(requestIn(directory.orders[number]!.csr!));
    const leaf = certificate({ key: ca, issuer: ca, spki, san, from, to: from + directory.lifetimeMs });
    return { headers: { "Content-Type": "application/pem-certificate-chain" }, body: pem(leaf) + pem(root) };
  }

  return directory;
}

export function pem(bytes: Buffer): string {
  const lines = bytes.toString("base64").match(/.{1,64}/g)!;
  return ["-----BEGIN CERTIFICATE-----", ...lines, "-----END CERTIFICATE-----", ""].join("\n");
}

export function spkiOf(key: KeyObject): Buffer {
  return createPublicKey(key).export({ type: "spki", format: "der" });
}

const { der, SEQUENCE, EXPLICIT, OCTET_STRING } = asn1;

/** The public key and the extension with the names of a request, DER. */
function requestIn(csr: Buffer): { spki: Buffer; san: Buffer } {
  const info = new Der(csr).enter(TAG.sequence).enter(TAG.sequence);
  info.skip(TAG.integer);
  info.skip(TAG.sequence);
  const spki = info.whole(TAG.sequence);
  const attribute = info.enter(TAG.context0).enter(TAG.sequence);
  attribute.skip(TAG.oid);
  return { spki, san: attribute.enter(TAG.set).content(TAG.sequence) };
}

interface Issued {
  readonly key: KeyObject;
  readonly issuer: KeyObject;
  readonly spki: Buffer;
  readonly san?: Buffer;
  readonly from: number;
  readonly to: number;
}

/** DER, of an issuer that has itself the same name. */
function certificate({ issuer, spki, san, from, to }: Issued): Buffer {
  const name = (text: string) => {
    const attribute = der(SEQUENCE, asn1.objectIdentifier("2.5.4.3"), der(asn1.UTF8_STRING, Buffer.from(text)));
    return der(SEQUENCE, der(asn1.SET, attribute));
  };
  const id = Buffer.alloc(20, 7);
  const authorityKeyIdentifier = asn1.extension("2.5.29.35", der(SEQUENCE, der(0x80, id)), "not critical");
  const subjectKeyIdentifier = asn1.extension("2.5.29.14", der(OCTET_STRING, id), "not critical");
  const basicConstraints = asn1.extension("2.5.29.19", der(SEQUENCE, der(1, Buffer.from([255]))), "critical");
  const extensions = san === undefined ? [basicConstraints, subjectKeyIdentifier] : [san, authorityKeyIdentifier];
  const content = der(
    SEQUENCE,
    der(EXPLICIT, der(asn1.INTEGER, Buffer.from([2]))),
    der(asn1.INTEGER, Buffer.from([1]), randomBytes(8)),
    asn1.ECDSA_WITH_SHA256,
    name("fake CA"),
    der(SEQUENCE, asn1.time(from), asn1.time(to)),
    name(san === undefined ? "fake CA" : "leaf"),
    spki,
    der(EXPLICIT | 3, der(SEQUENCE, ...extensions)),
  );
  return asn1.signedStructure(issuer, content);
}
