/**
 * Asks an etcd cluster by its JSON gateway over HTTP (https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/): one
 * member at a time, and the next one where it does not serve. What is asked and answered is for callers, such as
 * `etcd_server.ts`.
 */
import { createSecureContext } from "node:tls";
import { isDeepStrictEqual } from "node:util";
import { Egress } from "../base/egress.ts";
import { messageOf } from "../base/errors.ts";
import { TimeLimit } from "../base/time_limit.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import type { Clock } from "../base/clock.ts";
import { destinationOf } from "../base/url_destination.ts";
import { ClientFailure, HttpClient, type ClientTls } from "../client/client.ts";
import { isObject } from "../json_schema/values.ts";
import { etcdFailure, EtcdFailure, isTokenRefused } from "./etcd_failure.ts";
import { answerSteps } from "./long_values.ts";
import { openStream } from "./etcd_stream.ts";
import type { JsonLine, EtcdMessage } from "./json_lines.ts";

export interface EtcdOptions {
  /** "http://10.0.0.1:2379", …: all with the same scheme, and without a path. At least one. */
  readonly members: readonly URL[];
  /**
   * With "https:". Called before each request, so that renewed files are used; throws an `Error` in words. Default: the
   * system's CA certificates, no client certificate.
   */
  readonly tls?: () => ClientTls;
  /** Called for each login, so that a new password is read; throws an `Error` in words. Null: there is no user. */
  readonly login: (() => EtcdUser) | null;
  readonly clock: Clock;
  /** 0 to below 1: with which member it begins. Default: `Math.random`. */
  readonly random?: () => number;
}

export interface EtcdUser {
  readonly name: string;
  readonly password: string;
}

export interface EtcdCallOptions {
  /** Largest answer, in bytes. Default 1 MiB. */
  readonly maxBytes?: number;
  /** For all members together, in milliseconds. Default 9.5 s. */
  readonly limitMs?: number;
  /** For one member. Default 3 s. */
  readonly memberMs?: number;
  /** Default: it is not cancelled. */
  readonly signal?: AbortSignal | undefined;
}

export class EtcdClient {
  readonly #options: EtcdOptions;
  readonly #egress: Egress;
  /** Null: nothing was asked yet. */
  #http: { readonly client: HttpClient; readonly tls: ClientTls | undefined } | null = null;
  /** The index of the member that is asked. */
  #at: number;
  /** Null: there is none yet, or the last one was refused. "": etcd asks for none. */
  #token: string | null = null;

  constructor(options: EtcdOptions) {
    const { members, login, random = Math.random } = options;
    this.#options = options;
    this.#egress = new Egress(members.map((url) => destinationOf(url, WHY)));
    this.#at = Math.floor(random() * members.length);
    if (login === null) this.#token = "";
  }

  /** The member that is asked at present: "10.0.0.1:2379". */
  get member(): string {
    return this.#url.host;
  }

  get #url(): URL {
    return this.#options.members[this.#at]!;
  }

  /** Asks the next member from now on, unless another one than `member` is asked already. */
  leave(member: string): void {
    if (this.member === member) this.#at = (this.#at + 1) % this.#options.members.length;
  }

  /**
   * What the cluster answers to `message` at `path` ("/v3/kv/range"). A member that does not serve is left for the
   * next, each is asked once at most; so it may be carried out twice. Rejects with an `EtcdFailure`.
   */
  async call(path: string, message: EtcdMessage, options: EtcdCallOptions = {}): Promise<EtcdMessage> {
    const { limitMs = LIMIT_MS, memberMs = MEMBER_MS, signal } = options;
    const { clock, members } = this.#options;
    const endsAt = clock.now() + limitMs;
    let failure: EtcdFailure | null = null;
    for (let asked = 0; asked < members.length; asked++) {
      const left = Math.min(memberMs, endsAt - clock.now());
      if (left <= 0) break;
      const { member } = this;
      try {
        return await this.#asUser(() => this.#ask(path, message, { ...options, memberMs: left }), { signal, left });
      } catch (error) {
        if (!(error instanceof EtcdFailure) || error.kind !== "unreachable") throw error;
        failure = error;
        this.leave(member);
      }
    }
    throw failure ?? new EtcdFailure("unreachable", `no member of etcd has answered within ${limitMs} ms`);
  }

  /**
   * Sends `messages` to the member that is asked at present, and passes on the lines of its answer, until it ends or
   * `signal` is aborted. Rejects with an `EtcdFailure` in any case. The first line must come within 3 s.
   */
  async stream(
    path: string,
    messages: readonly EtcdMessage[],
    receive: (line: JsonLine) => void,
    signal: AbortSignal,
  ): Promise<never> {
    const { clock } = this.#options;
    return this.#asUser(
      async () =>
        openStream(
          {
            url: new URL(path, this.#url),
            tls: this.#connections().tls,
            token: this.#token ?? "",
            egress: this.#egress,
            why: WHY,
          },
          messages.map((message) => JSON.stringify(message)).join("\n"),
          { receive, signal, limit: (expire) => new TimeLimit(clock, MEMBER_MS, expire) },
        ),
      { signal, left: MEMBER_MS },
    );
  }

  close(): void {
    this.#http?.client.close();
  }

  #connections(): { readonly client: HttpClient; readonly tls: ClientTls | undefined } {
    const { clock } = this.#options;
    const tls = this.#url.protocol === "https:" ? inWords(() => this.#options.tls?.()) : undefined;
    if (this.#http === null || !isDeepStrictEqual(this.#http.tls, tls)) {
      if (tls !== undefined) inWords(() => checkTls(tls));
      this.#http?.client.close();
      this.#http = { client: new HttpClient({ clock, tls, egress: this.#egress, why: WHY }), tls };
    }
    return this.#http;
  }

  /** A token that is refused, since it has expired or a member has started again, is asked for anew, once. */
  async #asUser<T>(
    ask: () => Promise<T>,
    { signal, left }: { readonly signal: AbortSignal | undefined; readonly left: number },
  ): Promise<T> {
    const hadToken = this.#token !== null;
    if (!hadToken) await this.#logIn(signal, left);
    const used = this.#token;
    try {
      return await ask();
    } catch (error) {
      if (this.#options.login === null || !isTokenRefused(error)) throw error;
      if (this.#token === used) this.#token = null;
      if (!hadToken) throw error;
      if (this.#token === null) await this.#logIn(signal, left);
      return ask();
    }
  }

  async #logIn(signal: AbortSignal | undefined, memberMs: number): Promise<void> {
    const user = inWords(() => this.#options.login!());
    const message = { name: user.name, password: user.password };
    try {
      const { token } = await this.#ask("/v3/auth/authenticate", message, { signal, memberMs });
      if (typeof token !== "string" || !/^[\x21-\x7e]{1,8192}$/.test(token))
        throw new EtcdFailure("unreachable", `${this.member} has answered a login without a token`);
      this.#token = token;
    } catch (error) {
      // As etcd's own clients do: users may be there before authentication is switched on.
      if (!(error instanceof EtcdFailure) || !error.isAuthenticationOff) throw error;
      this.#token = "";
    }
  }

  async #ask(
    path: string,
    message: EtcdMessage,
    { maxBytes = SMALL_BYTES, memberMs = MEMBER_MS, signal }: EtcdCallOptions,
  ): Promise<EtcdMessage> {
    const { member } = this;
    const token = path === "/v3/auth/authenticate" ? "" : (this.#token ?? "");
    let answer: { readonly status: number; readonly body: Buffer };
    try {
      answer = await this.#connections().client.ask({
        url: new URL(path, this.#url),
        method: "POST",
        headers: ["Content-Type", "application/json", ...(token === "" ? [] : ["Authorization", token])],
        body: Buffer.from(JSON.stringify(message)),
        // Whatever is sent here may be carried out twice: see `call`.
        isRepeatable: true,
        timeoutMs: memberMs,
        maxBytes,
        ...(signal !== undefined && { signal }),
      });
    } catch (error) {
      if (error instanceof ClientFailure) throw EtcdFailure.ofClient(member, error);
      throw error;
    }
    const { status, body } = answer;
    let content: unknown;
    try {
      content = await inSlices(answerSteps(body), paced());
    } catch {
      // It is not etcd's JSON gateway that answers.
    }
    if (status === 200 && isObject(content) && content.error === undefined) return content;
    throw etcdFailure(member, status, content);
  }
}

/** Throws an `Error` for files that cannot be used together. */
function checkTls(files: ClientTls): void {
  try {
    createSecureContext(files);
  } catch (error) {
    throw new Error(`CONFIG_CA_PATH, CONFIG_CERT_PATH, CONFIG_KEY_PATH: ${messageOf(error)}`);
  }
}

/** What this side has is in the way: a file that cannot be read. */
function inWords<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new EtcdFailure("refused", messageOf(error));
  }
}

/** As in `Destination`: "audit" lists the members. */
const WHY = "config";
/** A member that does not answer for that long is left for the next one. */
const MEMBER_MS = 3_000;
/** A question to a source ends within 10 s. */
const LIMIT_MS = 9_500;
const SMALL_BYTES = 1024 * 1024;
