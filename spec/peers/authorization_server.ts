/**
 * An oidc-provider that registers clients, issues access tokens for resources (RFC 8707), as JWTs or opaque ones, also
 * bound to keys (RFC 9449), and whose user agrees to everything.
 */
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { pathToFileURL } from "node:url";
import { onTestFinished } from "vitest";

/** Imports a package of the peers; without it the file of a spec still compiles. */
export async function peer<T>(name: string): Promise<T> {
  return (await import(pathToFileURL(createRequire(import.meta.url).resolve(name)).href)) as T;
}

/** The parts of `oidc-provider` that are used here. */
interface Provider {
  callback(): RequestListener;
  interactionFinished(request: IncomingMessage, response: ServerResponse, result: object): Promise<void>;
  interactionDetails(
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<{
    readonly prompt: { readonly name: string };
    readonly session?: { readonly accountId: string };
    readonly params: { readonly client_id: string; readonly resource: string; readonly scope?: string };
  }>;
  readonly Grant: new (of: object) => {
    addOIDCScope(scope: string): void;
    addResourceScope(resource: string, scope: string): void;
    save(): Promise<string>;
  };
}

export const APP = "app";
export const APP_SECRET = "a secret of the app, with thirty-two bytes";
const KEY = {
  ...generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" }),
  kid: "k1",
  use: "sig",
};

/** `scope`: what its resources know. Tokens for resources are JWTs unless they are `opaque`. */
export async function authorizationServer(scope: string, format: "jwt" | "opaque" = "jwt") {
  const { default: Own } = await peer<{ default: new (issuer: string, settings: object) => Provider }>("oidc-provider");
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const own = new Own(issuer, {
    clients: [
      {
        client_id: APP,
        client_secret: APP_SECRET,
        token_endpoint_auth_method: "client_secret_post",
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
        scope,
      },
    ],
    findAccount: (_ctx: unknown, accountId: string) => ({ accountId, claims: () => ({ sub: accountId }) }),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      dPoP: { enabled: true, nonceSecret: Buffer.alloc(32, 1), requireNonce: () => false },
      introspection: { enabled: true, allowedPolicy: () => true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (_ctx: unknown, resource: string) => ({
          scope,
          audience: resource,
          accessTokenFormat: format,
          accessTokenTTL: 600,
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
    scopes: scope.split(" "),
    enabledJWA: { dPoPSigningAlgValues: ["ES256", "RS256", "PS256", "Ed25519"] },
    clientDefaults: { token_endpoint_auth_method: "none", id_token_signed_response_alg: "RS256" },
    interactions: { url: (_ctx: unknown, { uid }: { uid: string }) => `/interaction/${uid}` },
    pkce: { required: () => true },
    jwks: { keys: [KEY] },
    cookies: { keys: ["of a spec"] },
    ttl: {
      Session: 600,
      Grant: 600,
      Interaction: 600,
      AuthorizationCode: 60,
      ClientCredentials: 600,
      AccessToken: 600,
    },
  });
  const agree = async (request: IncomingMessage, response: ServerResponse) => {
    const { prompt, session, params } = await own.interactionDetails(request, response);
    if (prompt.name === "login") return own.interactionFinished(request, response, { login: { accountId: "ada" } });
    const grant = new own.Grant({ accountId: session!.accountId, clientId: params.client_id });
    grant.addOIDCScope(params.scope ?? "");
    grant.addResourceScope(params.resource, params.scope ?? scope);
    return own.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
  };
  const paths: string[] = [];
  const answer = own.callback();
  server.on("request", (request, response) => {
    paths.push(`${request.method} ${request.url!.split("?")[0]}`);
    void (request.url!.startsWith("/interaction/") ? agree(request, response) : answer(request, response));
  });
  return { issuer, paths };
}

/** Follows redirects with cookies, as a browser does, until one leads away from the server; resolves with that URL. */
export async function browse(from: URL, server: string): Promise<URL> {
  const cookies = new Map<string, string>();
  let url = from;
  for (let i = 0; i < 10 && url.origin === server; i++) {
    const cookie = Array.from(cookies, ([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(url, { redirect: "manual", headers: { cookie } });
    for (const set of response.headers.getSetCookie()) {
      const [pair] = set.split(";");
      cookies.set(pair!.slice(0, pair!.indexOf("=")), pair!.slice(pair!.indexOf("=") + 1));
    }
    const to = response.headers.get("location");
    if (to === null) throw new Error(`${url.pathname} answers ${response.status}: ${await response.text()}`);
    url = new URL(to, url);
  }
  return url;
}
