/**
 * A configuration's text on an HTTP server, and its signature beside it.
 */
import tls from "node:tls";
import type { Clock } from "../base/clock.ts";
import { Egress } from "../base/egress.ts";
import { messageOf } from "../base/errors.ts";
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { destinationOf } from "../base/url_destination.ts";
import { ClientFailure, HttpClient, type ClientAnswer, type ClientTls } from "../client/client.ts";
import type { SourceSettings } from "../config/settings_types.ts";
import { SourceFailure, type SourceText, type TextServer } from "../config/text_source.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";

const MAX_TEXT_BYTES = 64 * 1024 * 1024;
const MAX_SIGNATURE_BYTES = 64 * 1024;
/** For text and signature together. */
const ANSWER_MS = 10_000;
const WHY = "config";

/** What was received of one URL, and the ETag that asks whether it is another by now. */
interface Held {
  readonly body: Buffer;
  readonly etag: string | null;
}

export function openHttp(settings: SourceSettings, clock: Clock): TextServer {
  return new HttpTextServer(settings, clock);
}

class HttpTextServer implements TextServer {
  readonly name: string;
  readonly pollMs: number;
  readonly #settings: SourceSettings;
  readonly #clock: Clock;
  readonly #url: URL;
  readonly #signatureUrl: URL;
  /** With the TLS files that it was made with. */
  #client: { readonly http: HttpClient; readonly files: readonly (Buffer | undefined)[] } | null = null;
  #text: Held | null = null;
  #signature: Held | null = null;

  constructor(settings: SourceSettings, clock: Clock) {
    this.name = settings.url.name;
    this.pollMs = settings.pollMs;
    this.#settings = settings;
    this.#clock = clock;
    this.#url = new URL(settings.url.href);
    this.#signatureUrl = new URL(this.#url);
    this.#signatureUrl.pathname += ".sig";
  }

  async ask(signal: AbortSignal): Promise<SourceText | null> {
    const giveUp = new AbortController();
    const end = () => giveUp.abort();
    let isLate = false;
    const timer = this.#clock.after(ANSWER_MS, () => {
      isLate = true;
      end();
    });
    signal.addEventListener("abort", end);
    try {
      return await this.#ask(giveUp.signal);
    } catch (error) {
      if (isLate) throw new SourceFailure("unreachable", `no answer within ${ANSWER_MS / 1000} s`);
      throw error;
    } finally {
      timer.cancel();
      signal.removeEventListener("abort", end);
    }
  }

  forget(): void {
    this.#text = null;
    this.#signature = null;
  }

  async #ask(signal: AbortSignal): Promise<SourceText | null> {
    const text = await this.#get(this.#url, this.#text, MAX_TEXT_BYTES, signal);
    if (text === null || text.body.length === 0) {
      // Whatever comes next is another one.
      this.#text = null;
      throw new SourceFailure("missing", text === null ? "the server has no such configuration" : "the text is empty");
    }
    const signature = this.#settings.isSigned
      ? await this.#get(this.#signatureUrl, this.#signature, MAX_SIGNATURE_BYTES, signal)
      : null;
    const isSame = text === this.#text && signature === this.#signature;
    this.#text = text;
    this.#signature = signature;
    if (isSame) return null;
    return { text: text.body, signature: signature && signature.body.toString("latin1"), revision: text.etag };
  }

  /** `held` where that is still so; null: there is no such thing. Rejects with a `SourceFailure`. */
  async #get(url: URL, held: Held | null, maxBytes: number, signal: AbortSignal): Promise<Held | null> {
    const etag = held?.etag ?? null;
    const headers = [
      "Accept",
      "*/*",
      "Accept-Encoding",
      "identity",
      ...(etag === null ? [] : ["If-None-Match", etag]),
      ...this.#authorization(),
    ];
    const answer = await this.#send(url, headers, maxBytes, signal);
    const { status, body } = answer;
    if (status === 304 && etag !== null) return held;
    if (status === 404 || status === 410) return null;
    if (status !== 200 && status !== 204) throw new SourceFailure("unreachable", refusalOf(status));
    const coding = headerValue(answer.headers, "content-encoding")?.trim().toLowerCase() ?? "identity";
    if (coding !== "identity")
      throw new SourceFailure("unreachable", `the server sends the text compressed, though it was asked not to`);
    return { body, etag: headerValue(answer.headers, "etag") ?? null };
  }

  async #send(url: URL, headers: HeaderList, maxBytes: number, signal: AbortSignal): Promise<ClientAnswer> {
    const client = this.#clientNow();
    try {
      return await client.ask({ url, headers, maxBytes, timeoutMs: ANSWER_MS, signal });
    } catch (error) {
      if (!(error instanceof ClientFailure)) throw error;
      throw new SourceFailure("unreachable", error.message);
    }
  }

  /** The token is read each time: it may be replaced at any moment. */
  #authorization(): HeaderList {
    const { tokenPath } = this.#settings;
    if (tokenPath === null) return [];
    const token = readFile("CONFIG_TOKEN_FILE", tokenPath).toString("latin1").trim();
    if (!/^[!-~]+$/.test(token))
      throw new SourceFailure(
        "unreachable",
        `CONFIG_TOKEN_FILE: ${tokenPath} ${token === "" ? "is empty" : "has more than one word"}`,
      );
    return ["Authorization", `Bearer ${token}`];
  }

  /** A new one where certificates have been replaced. */
  #clientNow(): HttpClient {
    const { caPath, certPath, keyPath } = this.#settings;
    const files = [
      optional("CONFIG_CA_PATH", caPath),
      optional("CONFIG_CERT_PATH", certPath),
      optional("CONFIG_KEY_PATH", keyPath),
    ];
    const isSame = (file: Buffer | undefined, i: number) => {
      const before = this.#client?.files[i];
      return file === undefined ? before === undefined : before !== undefined && file.equals(before);
    };
    if (this.#client !== null && files.every(isSame)) return this.#client.http;
    this.#client?.http.close();
    const [ca, cert, key] = files;
    const secure: ClientTls | undefined = files.every((file) => file === undefined) ? undefined : { ca, cert, key };
    checkTls(secure);
    const egress = new Egress([destinationOf(this.#url, WHY)]);
    const http = new HttpClient({ clock: this.#clock, egress, why: WHY, maxConnections: 1, tls: secure });
    this.#client = { http, files };
    return http;
  }

  close(): void {
    this.#client?.http.close();
  }
}

function refusalOf(status: number): string {
  if (status === 401 || status === 403)
    return `the server answers ${status}: check CONFIG_TOKEN_FILE and what the server allows`;
  if (status >= 300 && status < 400 && status !== 304)
    return `the server answers ${status}, and redirects are not followed: name the place itself in CONFIG_FILE_PATH`;
  return `the server answers ${status}`;
}

function optional(setting: string, path: string | null): Buffer | undefined {
  return path === null ? undefined : readFile(setting, path);
}

function readFile(setting: string, path: string): Buffer {
  try {
    return readRegularFile(path);
  } catch (error) {
    throw new SourceFailure("unreachable", `${setting}: cannot read ${path}: ${whyUnreadable(error)}`);
  }
}

/** What the client would throw for each request. */
function checkTls(files: ClientTls | undefined): void {
  if (files === undefined) return;
  try {
    tls.createSecureContext({ ca: files.ca, cert: files.cert, key: files.key });
  } catch (error) {
    const which = files.cert === undefined ? "CONFIG_CA_PATH" : "CONFIG_CA_PATH, CONFIG_CERT_PATH or CONFIG_KEY_PATH";
    throw new SourceFailure("unreachable", `${which} cannot be used: ${messageOf(error)}`);
  }
}
