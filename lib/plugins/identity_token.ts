/**
 * The plugin kind `identity_token`: sends the upstream a signed token that says who asks (RFC 7519), in a header that
 * clients cannot set.
 *
 * A token is used for several requests of one caller: signing takes about 60 µs.
 */
import { createHash, createPrivateKey, createPublicKey, randomUUID, type KeyObject } from "node:crypto";
import { keyProblem } from "../base/pem.ts";
import { SharedMemory } from "../base/shared_memory.ts";
import { anyOf, array, file, integer, object, optional, string, withDefault } from "../config/whole_schema.ts";
import { utf8 } from "./claims.ts";
import { headerName, headerReplacer } from "./endpoint.ts";
import { signedJwt } from "./jwt_keys.ts";
import type { Plugin } from "./plugin.ts";

const text = string({ min: 1 });

const schema = object(
  {
    header: withDefault(headerName("The header for the token."), "X-Caller-Token"),
    key: file({
      describe: "Private Ed25519 keys, a PEM file. The first one signs; the public keys of all are published.",
      check: keysProblem,
    }),
    issuer: optional(string({ min: 1, describe: "The iss of tokens; default: global.name." })),
    audience: anyOf([text, array(text, { min: 1 })], {
      describe: "The aud of tokens: the name of the upstream, or several.",
    }),
    ttl_s: withDefault(integer({ min: 2, max: 86_400, describe: "How long a token is valid, in seconds." }), 60),
  },
  { describe: "Sends the upstream a signed token that names the caller." },
);

/** A public key as a JSON Web Key (RFC 8037 §2). */
export type PublicJwk = Readonly<Record<"kty" | "crv" | "x" | "kid" | "use" | "alg", string>>;

/** The public keys of the instances of a gateway, by `kid`, with the number of files that contain them. */
export type PublishedKeys = Map<string, { readonly jwk: PublicJwk; files: number }>;

export const identityToken: Plugin<typeof schema> = {
  name: "identity_token",
  schema,
  ownHeaders: ({ header }) => [header],
  code: { SharedMemory },
  create({ header, key: { content }, issuer, audience, ttlS }, tools) {
    const { clock, gatewayName } = tools;
    const [key, ...others] = keysIn(content.toString());
    const { kid } = jwkOf(key!);
    const published = tools.common<PublishedKeys>("keys", () => new Map());
    tools.keep("published", content.toString(), () => publication([key!, ...others].map(jwkOf), published));
    const settings = { kid, issuer: issuer ?? gatewayName, audience, ttlS };
    const remembered = tools.keep("tokens", settings, () => tools.verdicts.part<Remembered>());
    // Where the gateway's token takes the place of the client's, the proof that belongs to that goes with it.
    const replaced = headerReplacer(header.toLowerCase() === "authorization" ? [header, "DPoP"] : [header]);

    const tokenOf = (identity: string, groups: readonly string[]): string => {
      const now = clock.wall();
      // As JSON, since texts that are no well-formed Unicode must stay different.
      const caller = utf8(JSON.stringify([identity, ...groups]));
      const known = remembered.get(caller);
      // A clock that was set back must not send tokens of the future.
      if (known !== undefined && now >= known.from && now < known.until) return known.token;
      const iat = Math.floor(now / 1000);
      const claims = {
        iss: settings.issuer,
        aud: audience,
        sub: identity,
        groups,
        iat,
        exp: iat + ttlS,
        jti: randomUUID(),
      };
      const token = signedJwt(claims, key!, "EdDSA", kid);
      remembered.set(caller, { token, from: now, until: (iat + ttlS / 2) * 1000 }, token.length);
      return token;
    };

    return (next) => (exchange) => {
      const { identity } = exchange;
      return next(
        exchange.with(
          replaced(exchange, identity === null ? [] : [header, tokenOf(identity, tools.groupsOf(exchange))]),
        ),
      );
    };
  },
};

interface Remembered {
  readonly token: string;
  /** In milliseconds since 1970. Until the half of its life: the upstream gets none that is about to end. */
  readonly from: number;
  readonly until: number;
}

function publication(keys: readonly PublicJwk[], published: PublishedKeys) {
  for (const jwk of keys) {
    const entry = published.get(jwk.kid);
    if (entry === undefined) published.set(jwk.kid, { jwk, files: 1 });
    else entry.files++;
  }
  return {
    close() {
      for (const { kid } of keys) if (--published.get(kid)!.files === 0) published.delete(kid);
    },
  };
}

/** Completes "the file …". */
function keysProblem(content: Buffer): string | undefined {
  const blocks = content.toString().match(BLOCK);
  if (blocks === null) return keyProblem(content) ?? "is not a private key in PEM form";
  if (blocks.length > MAX_KEYS) return `contains more than ${MAX_KEYS} keys`;
  for (const [i, block] of blocks.entries()) {
    const which = blocks.length === 1 ? "" : ` (number ${i + 1} of ${blocks.length} in it)`;
    const label = LABEL.exec(block)![1]!;
    if (!label.includes("PRIVATE KEY"))
      return (
        `contains a ${label.toLowerCase()}${which}: give private keys, ` +
        `their public keys are published by the gateway`
      );
    const problem = keyProblem(Buffer.from(block));
    if (problem !== undefined) return problem + which;
    const type = createPrivateKey(block).asymmetricKeyType;
    if (type !== "ed25519")
      return `is a key of the type ${type}${which}; expected Ed25519: openssl genpkey -algorithm ed25519 -out FILE`;
  }
  return undefined;
}

const BLOCK = /-----BEGIN [A-Z0-9 ]+-----[^]*?-----END [A-Z0-9 ]+-----/g;
const LABEL = /^-----BEGIN ([A-Z0-9 ]+)-----/;
const MAX_KEYS = 10;

/** The schema has found nothing wrong with them. */
function keysIn(pem: string): KeyObject[] {
  return pem.match(BLOCK)!.map((block) => createPrivateKey(block));
}

function jwkOf(key: KeyObject): PublicJwk {
  const { x } = createPublicKey(key).export({ format: "jwk" }) as { readonly x: string };
  // The thumbprint of RFC 7638, whose members are in this order (RFC 8037 §2).
  const kid = createHash("sha256")
    .update(JSON.stringify({ crv: "Ed25519", kty: "OKP", x }))
    .digest("base64url");
  return { kty: "OKP", crv: "Ed25519", x, kid, use: "sig", alg: "EdDSA" };
}
