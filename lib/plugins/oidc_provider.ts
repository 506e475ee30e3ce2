/**
 * What the plugin kind `oidc` asks its provider: metadata (OpenID Connect Discovery 1.0), tokens for a code or for a
 * refresh token, and the keys that verify ID tokens.
 */
import { messageOf } from "../base/errors.ts";
import { isTime, type JwtClaims } from "../base/jwt.ts";
import type { ObjectOut } from "../config/whole_schema.ts";
import type { Client, ClientFailure } from "../client/client.ts";
import { listOf } from "./access_token.ts";
import { clientCredentials, type CLIENT_FIELDS } from "./client_credentials.ts";
import { answerText } from "./endpoint.ts";
import { JwksSource } from "./jwks_source.ts";
import { ALGORITHM_NAMES, isHmac } from "./jwt_keys.ts";
import type { KeptState, Tools } from "./plugin.ts";
import { BackOff, SingleFlight } from "./single_flight.ts";
import { NO_KEYS, signedClaims, typeCheck } from "./signed_token.ts";

export interface ProviderSettings extends ObjectOut<typeof CLIENT_FIELDS> {
  readonly issuer: string;
  /** Origins of endpoints beside the issuer's. */
  readonly origins: readonly string[];
  readonly timeoutMs: number;
  readonly leewayS: number;
}

export interface Metadata {
  readonly authorization: string;
  readonly token: string;
  readonly keys: string;
  /** Null: the provider has no logout. */
  readonly endSession: string | null;
  /** Whether its answers to the browser always name it (RFC 9207). */
  readonly namesItself: boolean;
  /** Whether the client's secret goes into the form. */
  readonly takesSecretInForm: boolean;
}

export interface Tokens {
  readonly idToken: string | null;
  readonly refreshToken: string | null;
  /** Lifetime of the access token in seconds; null: the provider does not say. */
  readonly expiresIn: number | null;
}

/** The provider could not be asked, or its answer is of no use. */
export class ProviderFailure extends Error {
  /** The error code by which the provider has refused a code or token. */
  readonly refusal: string | null;
  /** Whether the provider has failed, and not the question. */
  readonly isOfServer: boolean;

  constructor(message: string, { refusal = null as string | null, isOfServer = true } = {}) {
    super(message);
    this.name = "ProviderFailure";
    this.refusal = refusal;
    this.isOfServer = isOfServer;
  }
}

export class Provider implements KeptState {
  readonly #settings: ProviderSettings;
  readonly #tools: Pick<Tools, "clock" | "log" | "scope">;
  readonly #client: Client;
  #metadata: Metadata | null = null;
  #fetchedAt = -Infinity;
  readonly #fetches = new SingleFlight<Metadata>();
  /** While the provider fails, questions become less frequent. */
  readonly #pauses: { readonly metadata: BackOff; readonly tokens: BackOff };
  #keys: { readonly uri: string; readonly source: JwksSource } | null = null;

  constructor(settings: ProviderSettings, tools: Pick<Tools, "clock" | "log" | "scope">, client: Client) {
    this.#settings = settings;
    this.#tools = tools;
    this.#client = client;
    const named = { plugin: tools.scope.path, issuer: settings.issuer };
    const pause = () => new BackOff(tools, named, PAUSE_MS);
    this.#pauses = { metadata: pause(), tokens: pause() };
  }

  /** Rejects with a `ProviderFailure`. Metadata that are old are fetched again beside the request. */
  metadata(): Promise<Metadata> {
    const now = this.#tools.clock.now();
    const known = this.#metadata;
    if (known !== null && now - this.#fetchedAt < REFRESH_MS) return Promise.resolve(known);
    const fetching = this.#fetches.join("", () => this.#sparsely("metadata", () => this.#fetch()));
    if (known === null) return fetching;
    fetching.catch(() => {});
    return Promise.resolve(known);
  }

  /** Rejects with a `ProviderFailure`. `fields` of the token request beside the client's credentials. */
  async tokens(fields: Readonly<Record<string, string>>): Promise<Tokens> {
    const metadata = await this.metadata();
    return this.#sparsely("tokens", () => this.#askForTokens(metadata, fields));
  }

  async #askForTokens(
    { token: url, takesSecretInForm }: Metadata,
    fields: Readonly<Record<string, string>>,
  ): Promise<Tokens> {
    const { clientId, clientSecret } = this.#settings;
    const inForm = takesSecretInForm && clientSecret !== undefined;
    const credentials = inForm
      ? { headers: [], fields: { client_id: clientId, client_secret: clientSecret } }
      : clientCredentials(this.#settings, url, this.#tools.clock)();
    const body = Buffer.from(new URLSearchParams({ ...fields, ...credentials.fields }).toString());
    const headers = [
      "Content-Type",
      "application/x-www-form-urlencoded",
      "Accept",
      "application/json",
      ...credentials.headers,
    ];
    // Codes and many refresh tokens can be used once: the request must not be sent again.
    const { status, json } = await this.#ask(url, { method: "POST", headers, body, isRepeatable: false });
    if (status !== 200) {
      const code = typeof json.error === "string" && CODE.test(json.error) ? json.error : null;
      const message = `its token endpoint answered with status ${status}${code === null ? "" : ` and "${code}"`}`;
      // Any other code is about the gateway's own credentials or request, and no fault of the person who logs in.
      // A code that somebody has made up must not keep others from logging in, whatever the status.
      const refusal = code === "invalid_grant" ? code : null;
      const isOfServer = refusal === null && !isOfQuestion(status);
      throw new ProviderFailure(message, { refusal, isOfServer });
    }
    const { id_token: idToken, refresh_token: refreshToken, expires_in: expiresIn } = json;
    const seconds = typeof expiresIn === "string" ? Number(expiresIn) : expiresIn;
    return {
      idToken: typeof idToken === "string" ? idToken : null,
      refreshToken: typeof refreshToken === "string" && refreshToken !== "" ? refreshToken : null,
      expiresIn: isTime(seconds) && seconds > 0 ? seconds : null,
    };
  }

  /**
   * The claims of an ID token (OpenID Connect Core §3.1.3.7), or why it is refused. `nonce` of the login; `ofRefresh`:
   * it may be left out there (§12.2). Rejects with a `ProviderFailure` without keys.
   */
  async verified(idToken: string, nonce: unknown, ofRefresh: "refresh" | "login"): Promise<JwtClaims | string> {
    const { keys: uri } = await this.metadata();
    const source = this.#sourceOf(uri);
    let claims = signedClaims(idToken, ALGORITHMS, isIdToken, source.current());
    if (claims === NO_KEYS || claims === "unknown key") {
      // The code has been used: the login goes on even if the client disconnects.
      claims = signedClaims(idToken, ALGORITHMS, isIdToken, (await source.more({ onAbort() {} })) ?? source.current());
    }
    if (claims === NO_KEYS) throw new ProviderFailure(NO_KEYS);
    if (typeof claims === "string") return claims;
    const { issuer, clientId, leewayS } = this.#settings;
    const { iss, aud, azp, exp, iat, nbf, sub } = claims;
    const audiences = listOf(aud) ?? [];
    const now = this.#tools.clock.wall() / 1000;
    if (iss !== issuer) return "issuer";
    if (!audiences.includes(clientId)) return "audience";
    if (azp === undefined ? audiences.length > 1 : azp !== clientId) return "authorized party";
    if (!isTime(exp) || !isTime(iat) || !(nbf === undefined || isTime(nbf))) return "malformed";
    if (now >= exp + leewayS) return "expired";
    if (now < Math.max(iat, nbf ?? iat) - leewayS) return "early";
    if (claims.nonce !== nonce && !(ofRefresh === "refresh" && claims.nonce === undefined)) return "nonce";
    return typeof sub === "string" && sub !== "" ? claims : "subject";
  }

  close(): void {
    this.#keys?.source.close();
    this.#client.close();
  }

  #sourceOf(url: string): JwksSource {
    const { clock, log, scope } = this.#tools;
    if (this.#keys?.uri === url) return this.#keys.source;
    const source = new JwksSource({
      kind: "oidc",
      url,
      algorithms: ALGORITHMS,
      clock,
      log,
      scope,
      client: this.#client,
    });
    this.#keys = { uri: url, source };
    return source;
  }

  async #fetch(): Promise<Metadata> {
    const { issuer, origins } = this.#settings;
    const { status, json } = await this.#ask(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`, {
      headers: ["Accept", "application/json"],
    });
    if (status !== 200) throw new ProviderFailure(`its metadata have status ${status}`);
    this.#metadata = metadataOf(json, issuer, [issuer, ...origins]);
    this.#fetchedAt = this.#tools.clock.now();
    return this.#metadata;
  }

  /** Asks, unless the provider has just failed at it. */
  async #sparsely<T>(what: "metadata" | "tokens", ask: () => Promise<T>): Promise<T> {
    const pause = this.#pauses[what];
    if (pause.isPausing) throw new ProviderFailure(pause.why, { isOfServer: false });
    try {
      const found = await ask();
      pause.worked(`oidc has ${what} from its provider again`, 0);
      return found;
    } catch (error) {
      if ((error as Partial<ProviderFailure>).isOfServer === false) throw error;
      if (what === "tokens") pause.warn("oidc gets no tokens from its provider", error);
      else pause.warn("oidc cannot use the metadata of its provider", error);
      throw error;
    }
  }

  async #ask(
    url: string,
    request: { method?: string; headers: readonly string[]; body?: Buffer; isRepeatable?: boolean },
  ): Promise<Answer> {
    let answer;
    try {
      answer = await this.#client.ask({
        url: new URL(url),
        ...request,
        timeoutMs: this.#settings.timeoutMs,
        maxBytes: MAX_BYTES,
      });
    } catch (error) {
      // Whoever keeps all connections busy must not keep others from logging in.
      throw new ProviderFailure(messageOf(error), { isOfServer: (error as Partial<ClientFailure>).isOfServer ?? true });
    }
    const { status } = answer;
    try {
      const json: unknown = JSON.parse(answerText(answer, MAX_BYTES));
      if (typeof json === "object" && json !== null && !Array.isArray(json))
        return { status, json: json as Answer["json"] };
    } catch {
      // Reported below.
    }
    const isOfServer = request.method === undefined || !isOfQuestion(status);
    throw new ProviderFailure(`its answer with status ${status} is no JSON object`, { isOfServer });
  }
}

/** Whether a status of the token endpoint is about what it was asked, and not about this client or the endpoint. */
function isOfQuestion(status: number): boolean {
  return status >= 400 && status < 500 && status !== 401 && status !== 429;
}

interface Answer {
  readonly status: number;
  readonly json: Readonly<Record<string, unknown>>;
}

/** RFC 6749 §5.2: the characters of an error code. */
export const CODE = /^[\x20-\x21\x23-\x5b\x5d-\x7e]{1,100}$/;
/** Asymmetric ones only: with HMAC, anybody who knows a public key could sign. */
const ALGORITHMS = ALGORITHM_NAMES.filter((name) => !isHmac(name));
const isIdToken = typeCheck(["JWT", "absent"]);
const REFRESH_MS = 60 * 60_000;
/** After the first failure, so that requests do not all wait for a provider that is down. */
const PAUSE_MS = 2_000;
const MAX_BYTES = 512 * 1024;

/** Throws a `ProviderFailure` for metadata that must not be used. */
function metadataOf(json: Answer["json"], issuer: string, origins: readonly string[]): Metadata {
  // A provider could otherwise speak for another one (OpenID Connect Discovery §4.3).
  if (json.issuer !== issuer)
    throw new ProviderFailure(`its metadata name ${shown(json.issuer)} as the issuer, not ${issuer}`);
  const allowed = new Set(origins.map((url) => new URL(url).origin));
  const endpoint = (name: string): string => {
    const url = json[name];
    if (typeof url !== "string" || !URL.canParse(url) || !SCHEME.test(url))
      throw new ProviderFailure(`${name} of its metadata is ${shown(url)}, not a URL`);
    if (issuer.startsWith("https:") && !url.startsWith("https:"))
      throw new ProviderFailure(`${name} of its metadata is not an https:// URL`);
    return url;
  };
  const asked = (name: string): string => {
    const url = endpoint(name);
    if (!allowed.has(new URL(url).origin))
      throw new ProviderFailure(
        `${name} of its metadata is on another server: add "${new URL(url).origin}" to "origins"`,
      );
    return url;
  };
  const methods = json.token_endpoint_auth_methods_supported;
  return {
    authorization: endpoint("authorization_endpoint"),
    token: asked("token_endpoint"),
    keys: asked("jwks_uri"),
    endSession: json.end_session_endpoint === undefined ? null : endpoint("end_session_endpoint"),
    namesItself: json.authorization_response_iss_parameter_supported === true,
    takesSecretInForm:
      Array.isArray(methods) && methods.includes("client_secret_post") && !methods.includes("client_secret_basic"),
  };
}

const SCHEME = /^https?:\/\//i;

function shown(value: unknown): string {
  return value === undefined ? "nothing" : JSON.stringify(value).slice(0, 200);
}
