/** A made-up OpenID provider, and a browser that keeps cookies, for specs of the plugin kind `oidc`. */
import { generateKeyPairSync, sign, type KeyObject } from "node:crypto";
import { onTestFinished } from "vitest";
import { Call, type ExchangeParts } from "../../lib/http/exchange.ts";
import { headerValue, headerValues } from "../../lib/http/headers.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { oidc } from "../../lib/plugins/oidc.ts";
import type { Tools } from "../../lib/plugins/plugin.ts";
import { backend } from "../journeys/harness.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { exercise, instance, madeUpExchange, madeUpTools, plainReply } from "../support/exercise.ts";

/** What `manualClock` begins with, in seconds. */
export const NOW = Date.UTC(2026, 0, 1) / 1000;
export const SECRET = "a secret of at least thirty-two characters";
export const HOST = "shop.example";

export const KEY = generateKeyPairSync("ec", { namedCurve: "P-256" });

const encoded = (part: unknown) =>
  Buffer.from(typeof part === "string" ? part : JSON.stringify(part)).toString("base64url");

export function es256(claims: object, header: object = {}, key: KeyObject = KEY.privateKey): string {
  const signed = `${encoded({ alg: "ES256", kid: "k1", ...header })}.${encoded(claims)}`;
  return `${signed}.${sign("sha256", Buffer.from(signed), { key, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
}

export interface TokenRequest {
  readonly form: URLSearchParams;
  readonly authorization: string | undefined;
}

/** What its endpoints answer; a test changes the members. */
export interface Behaviour {
  metadata: object;
  /** Of the token endpoint: status and body. */
  token: (
    request: TokenRequest,
  ) => [status: number, body: object | string] | Promise<[status: number, body: object | string]>;
  isDown: boolean;
}

export async function provider() {
  const asked: TokenRequest[] = [];
  const paths: string[] = [];
  const server = await backend(async (request, response, body) => {
    const path = request.url!;
    paths.push(path);
    if (behaviour.isDown) return void request.socket.destroy();
    const answer = (status: number, json: object | string) =>
      void response
        .writeHead(status, { "Content-Type": "application/json" })
        .end(typeof json === "string" ? json : JSON.stringify(json));
    if (path === "/.well-known/openid-configuration") return answer(200, { ...metadata, ...behaviour.metadata });
    if (path === "/jwks")
      return answer(200, { keys: [{ ...KEY.publicKey.export({ format: "jwk" }), kid: "k1", use: "sig" }] });
    if (path !== "/token") return answer(404, {});
    const given = { form: new URLSearchParams(body.toString()), authorization: request.headers.authorization };
    asked.push(given);
    const [status, json] = await behaviour.token(given);
    answer(status, json);
  });
  const issuer = `http://127.0.0.1:${server.port}`;
  const metadata = {
    issuer,
    authorization_endpoint: `${issuer}/authorize?tenant=1`,
    token_endpoint: `${issuer}/token`,
    jwks_uri: `${issuer}/jwks`,
    end_session_endpoint: `${issuer}/end`,
  };
  const behaviour: Behaviour = { metadata: {}, token: () => [500, {}], isDown: false };
  return { issuer, behaviour, asked, paths };
}

type Provider = Awaited<ReturnType<typeof provider>>;

/**
 * Tools with a manual clock, whose kept things are closed when the test ends, and are the same for the same settings.
 */
export function tools({
  clock = manualClock(),
  ...parts
}: Partial<Omit<Tools, "clock">> & { readonly clock?: ManualClock } = {}) {
  const kept = new Map<string, { close(): unknown }>();
  const keep: Tools["keep"] = (name, settings, make) => {
    const key = JSON.stringify([name, settings]);
    if (!kept.has(key)) {
      const made = make();
      kept.set(key, made);
      onTestFinished(() => void made.close());
    }
    return kept.get(key) as ReturnType<typeof make>;
  };
  const made = { ...madeUpTools({ keep, clock, ...parts }), clock };
  // As in a gateway: nobody has loaded this part.
  return Object.defineProperty(made, "verifyPassword", {
    enumerable: true,
    get: () => {
      throw new Error("the part is not loaded");
    },
  });
}

type Parts = Partial<ExchangeParts> & { readonly cookies?: ReadonlyMap<string, string>; readonly accept?: string };

/** A plugin at that provider, and who asks it. */
export function gatewayAt({ issuer }: Pick<Provider, "issuer">, config: object = {}, own = tools()) {
  const settings = { issuer, client_id: "gw", client_secret: "hunter2", session: { secret: SECRET }, ...config };
  const middleware = instance(oidc, settings, own);
  let upstream: Reply = plainReply;
  const ask = async (url: string, { cookies, accept = "text/html", headers = [], ...parts }: Parts = {}) => {
    const [path = "", query] = url.split("?");
    const cookie =
      cookies === undefined || cookies.size === 0
        ? []
        : ["Cookie", [...cookies].map(([name, value]) => `${name}=${value}`).join("; ")];
    const call = new Call({
      id: "request-1",
      remoteAddress: "192.0.2.1",
      trustedRemote: false,
      startedAt: 0,
      inform: () => {},
    });
    const exchange = madeUpExchange({
      call,
      scheme: "https",
      authority: HOST,
      path,
      query: query === undefined ? "" : `?${query}`,
      headers: ["Accept", accept, ...headers, ...cookie],
      ...parts,
    });
    let forwarded = null as ReturnType<typeof exercise>["forwarded"];
    const { returned } = exercise(middleware, exchange, (inner) => {
      forwarded = inner;
      return upstream;
    });
    const reply = await returned;
    return {
      reply,
      forwarded,
      status: reply.status,
      code: call.notes.code,
      fault: call.notes.fault,
      body: String(reply.body ?? ""),
      location: headerValue(reply.headers, "location") ?? null,
      notes: call.notes,
    };
  };
  return { ask, tools: own, answersWith: (reply: Reply) => void (upstream = reply) };
}

export type Gateway = ReturnType<typeof gatewayAt>;
export type Asked = Awaited<ReturnType<Gateway["ask"]>>;

/** Keeps cookies as a browser does, as far as these specs need it. */
export function browser({ ask }: Pick<Gateway, "ask">, cookies = new Map<string, string>()) {
  return {
    cookies,
    async open(url: string, parts: Parts = {}): Promise<Asked> {
      const answer = await ask(url, { ...parts, cookies });
      for (const line of headerValues(answer.reply.headers, "set-cookie")) {
        const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line)!;
        if (/; Max-Age=0(?:;|$)/.test(line)) cookies.delete(name);
        else cookies.set(name, value);
      }
      return answer;
    },
  };
}

export type Browser = ReturnType<typeof browser>;

/** The parameters of the way to the provider. */
export const sentTo = ({ location }: Asked) => new URL(location!).searchParams;

/** The answer of the provider to the browser. */
export const wayBack = (asked: Asked, more: Record<string, string> = {}) =>
  `/a/.oidc/callback?${new URLSearchParams({ code: "c0de", state: sentTo(asked).get("state")!, ...more }).toString()}`;

export const claimsFor = (issuer: string, nonce: string | null, more: object = {}) => ({
  iss: issuer,
  aud: "gw",
  sub: "ada",
  iat: NOW,
  exp: NOW + 300,
  nonce,
  ...more,
});

/** Has the provider accept the code of this login. */
export function accepts(
  { behaviour, issuer }: Pick<Provider, "behaviour" | "issuer">,
  asked: Asked,
  more: object = {},
  claims: object = {},
): void {
  behaviour.token = () => [
    200,
    {
      access_token: "at",
      token_type: "Bearer",
      id_token: es256(claimsFor(issuer, sentTo(asked).get("nonce"), claims)),
      ...more,
    },
  ];
}

/** Logs in; resolves with the last answer. */
export async function logIn(
  at: Pick<Provider, "behaviour" | "issuer">,
  { open }: Browser,
  more: object = {},
  claims: object = {},
): Promise<Asked> {
  const begun = await open("/a/page?x=1");
  accepts(at, begun, more, claims);
  return open(wayBack(begun));
}
