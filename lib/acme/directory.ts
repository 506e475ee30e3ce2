/**
 * Asks one directory (RFC 8555 §6, §7.1): signed requests, nonces, problem documents, and which URLs may be asked.
 */
import { ACME_SERVER, acmeDestinations } from "../base/acme_servers.ts";
import type { Clock } from "../base/clock.ts";
import { Egress, type Destination, type EgressProxy } from "../base/egress.ts";
import { messageOf } from "../base/errors.ts";
import { destinationOf } from "../base/url_destination.ts";
import { version } from "../base/version.ts";
import { HttpClient, type Client, type ClientAnswer, type ClientRequestOptions } from "../client/client.ts";
import { headerValue } from "../http/headers.ts";
import { askedWait } from "../http/retry_after.ts";
import type { AcmeSettings } from "./contracts.ts";
import { AcmeFailure, shownText } from "./failure.ts";
import { isJsonObject, objectsIn, textIn, type JsonObject } from "./json_members.ts";
import { signedJws, type AccountKey } from "./jws.ts";

/** Leads to servers as `global.egress_proxy` says. Null: there is never a proxy. */
export type ProxySource = (() => EgressProxy | null) | null;

/** For the requests to the servers of one configuration. */
export function acmeClient(settings: AcmeSettings, clock: Clock, proxy: ProxySource): Client {
  return new HttpClient({
    clock,
    egress: new Egress(acmeDestinations(settings), proxy),
    why: ACME_SERVER,
    maxConnections: 2,
    tls: { ca: settings.ca ?? undefined },
  });
}

/** Who signs: the key alone, or with the URL of its account. */
export interface Signer {
  readonly key: AccountKey;
  readonly account: string | null;
}

export interface DirectoryAnswer {
  readonly status: number;
  readonly body: Buffer;
  /** The Location header as a URL that may be asked; null: there is none. */
  readonly location: string | null;
  /** Milliseconds, a week at most; null: the server does not say. */
  readonly retryAfterMs: number | null;
}

interface DirectoryOptions {
  readonly settings: AcmeSettings;
  readonly client: Client;
  readonly clock: Clock;
  /** Cancels what is asked. */
  readonly signal: AbortSignal;
}

type Resource = "newNonce" | "newAccount" | "newOrder" | "keyChange" | "renewalInfo";

export class Directory {
  readonly #options: DirectoryOptions;
  readonly #permitted: ReadonlySet<string>;
  readonly #members: JsonObject;
  /** The last one that the server has given, and that is not used yet. */
  #nonce: string | null = null;

  private constructor(options: DirectoryOptions, members: JsonObject) {
    this.#options = options;
    this.#members = members;
    this.#permitted = new Set(acmeDestinations(options.settings).map(keyOf));
  }

  /** Reads the directory object (RFC 8555 §7.1.1). Rejects with an `AcmeFailure`, as everything here. */
  static async open(options: DirectoryOptions): Promise<Directory> {
    const unread = new Directory(options, {});
    const { body } = await unread.get(options.settings.directory);
    return new Directory(options, jsonObject(body));
  }

  /** Whether its certificates can be asked when they are to be renewed (RFC 9773). */
  get hasRenewalInfo(): boolean {
    return textIn(this.#members, "renewalInfo") !== null;
  }

  /** Whether it lists the profile. */
  lists(profile: string): boolean {
    const { meta } = this.#members;
    return isJsonObject(meta) && isJsonObject(meta.profiles) && Object.hasOwn(meta.profiles, profile);
  }

  get requiresExternalAccount(): boolean {
    const { meta } = this.#members;
    return isJsonObject(meta) && meta.externalAccountRequired === true;
  }

  urlOf(resource: Resource): string {
    const url = textIn(this.#members, resource);
    if (url === null) throw new AcmeFailure(`the directory has no ${resource}: it is not one of RFC 8555`);
    return this.checked(url);
  }

  /** The URL, if it may be asked. Throws an `AcmeFailure`. */
  checked(text: string): string {
    const url = text.length <= MAX_URL && URL.canParse(text) ? new URL(text) : null;
    if (url === null || url.protocol !== "https:" || url.username !== "" || url.password !== "")
      throw new AcmeFailure(`the directory names a URL that is not an https:// URL: ${shownText(text)}`);
    const destination = destinationOf(url, ACME_SERVER);
    if (!this.#permitted.has(keyOf(destination)))
      throw new AcmeFailure(
        `the directory names a URL of another server, ${destination.host} port ${destination.port}: ` +
          `if it belongs to the directory, list its host in hosts_allowed`,
      );
    return url.href;
  }

  /** Without a signature. */
  get(url: string): Promise<DirectoryAnswer> {
    return this.#whole({ url: new URL(this.checked(url)) });
  }

  /**
   * A signed request; `payload` null: POST-as-GET (RFC 8555 §6.3). Where the server refuses the nonce, it is sent again
   * with the one that the refusal has (§6.5).
   */
  async post(
    url: string,
    payload: object | null,
    { key, account }: Signer,
    accept = JSON_TYPE,
  ): Promise<DirectoryAnswer> {
    const target = this.checked(url);
    const identity = account === null ? { jwk: key.jwk } : { kid: account };
    for (let tries = 1; ; tries++) {
      const nonce = await this.#takeNonce();
      const body = Buffer.from(JSON.stringify(signedJws({ nonce, url: target, ...identity }, payload, key)));
      try {
        return await this.#whole({
          url: new URL(target),
          method: "POST",
          headers: ["Content-Type", "application/jose+json", "Accept", accept],
          body,
        });
      } catch (error) {
        const isRefused = error instanceof AcmeFailure && error.type === "badNonce";
        if (!isRefused || tries === MAX_NONCES) throw error;
      }
    }
  }

  async #takeNonce(): Promise<string> {
    if (this.#nonce === null) await this.#whole({ url: new URL(this.urlOf("newNonce")), method: "HEAD" });
    const nonce = this.#nonce;
    if (nonce === null) throw new AcmeFailure("the directory gives no nonce");
    this.#nonce = null;
    return nonce;
  }

  /** An answer with a status of success. */
  async #whole(request: Pick<ClientRequestOptions, "url" | "method" | "headers" | "body">): Promise<DirectoryAnswer> {
    const { client, clock, signal } = this.#options;
    const headers = ["User-Agent", `edge-gateway/${version}`, ...(request.headers ?? ["Accept", JSON_TYPE])];
    let answer: ClientAnswer;
    try {
      answer = await client.ask({ ...request, headers, timeoutMs: TIMEOUT_MS, maxBytes: MAX_BYTES, signal });
    } catch (error) {
      throw new AcmeFailure(`${request.url.host} cannot be asked: ${messageOf(error)}`, { isPassing: true });
    }
    // RFC 8555 §6.5.1: base64url. Another one is ignored.
    const nonce = headerValue(answer.headers, "replay-nonce") ?? "";
    if (NONCE.test(nonce)) this.#nonce = nonce;
    const waitMs = boundedWait(askedWait(answer.headers, clock.wall()));
    if (answer.status < 200 || answer.status > 299) throw failureOf(answer, request.url, waitMs);
    const location = headerValue(answer.headers, "location");
    return {
      status: answer.status,
      body: answer.body,
      location: location === undefined ? null : this.checked(location),
      retryAfterMs: waitMs,
    };
  }
}

const keyOf = ({ host, port }: Destination): string => `${host} ${port}`;

/** The body as a JSON object. Throws an `AcmeFailure`. */
export function jsonObject(body: Buffer): JsonObject {
  const value = jsonIn(body);
  if (!isJsonObject(value)) throw new AcmeFailure("the directory answers with what is not a JSON object");
  return value;
}

function jsonIn(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString()) as unknown;
  } catch {
    return null;
  }
}

function boundedWait(ms: number | null): number | null {
  return ms === null ? null : Math.min(Math.max(0, ms), LONGEST_WAIT_MS);
}

/** A problem document (RFC 9457, RFC 8555 §6.7), or what can be said without one. */
function failureOf({ status, body }: ClientAnswer, url: URL, retryAfterMs: number | null): AcmeFailure {
  const isPassing = status >= 500 || status === 429;
  const value = jsonIn(body);
  if (!isJsonObject(value) || textIn(value, "type") === null)
    return new AcmeFailure(`${url.host} answers with status ${status}`, { isPassing, retryAfterMs });
  return problemFailure(value, { isPassing, retryAfterMs });
}

/** What a problem document of an answer, of an order or of a challenge says. */
export function problemFailure(
  problem: JsonObject,
  { isPassing = false, retryAfterMs = null as number | null } = {},
): AcmeFailure {
  const type = typeOf(problem);
  const hosts = new Map<string, string>();
  for (const each of objectsIn(problem, "subproblems")) {
    const { identifier } = each;
    const host = isJsonObject(identifier) ? textIn(identifier, "value") : null;
    if (host !== null) hosts.set(host, wordsOf(each));
  }
  return new AcmeFailure(wordsOf(problem), { type, isPassing, retryAfterMs, hosts });
}

function typeOf(problem: JsonObject): string {
  const type = textIn(problem, "type") ?? "";
  return type.startsWith(PREFIX) ? type.slice(PREFIX.length) : type;
}

function wordsOf(problem: JsonObject): string {
  const type = shownText(typeOf(problem));
  const detail = textIn(problem, "detail") ?? textIn(problem, "title");
  return detail === null ? type : `${type}: ${shownText(detail)}`;
}

const PREFIX = "urn:ietf:params:acme:error:";
const NONCE = /^[\w-]{1,512}$/;
const JSON_TYPE = "application/json";
/** A directory that refuses one nonce of two on purpose, to test clients, is done with after some. */
const MAX_NONCES = 20;
const MAX_URL = 2_048;
const TIMEOUT_MS = 30_000;
/** A chain of ten certificates has about 20 KiB. */
const MAX_BYTES = 256 * 1024;
/** Rate limits of public directories count a week. */
const LONGEST_WAIT_MS = 7 * 86_400_000;
