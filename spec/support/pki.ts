/**
 * Certificate authorities for specs, which issue certificates and lists of revoked ones as a spec needs them: written
 * in DER by hand, since Node makes neither.
 */
import { constants, createHash, generateKeyPairSync, sign, type KeyObject } from "node:crypto";
import { der, objectIdentifier, time } from "../../lib/acme/asn1.ts";

export { der, time };

export interface Issued {
  /** PEM. */
  readonly cert: string;
  readonly key: string;
  readonly serial: Buffer;
}

/** Of a list; times are in milliseconds since 1970. */
export interface ListOptions {
  readonly revoked?: readonly Issued[];
  /** Default: a day ago. */
  readonly from?: number;
  /** Default: in 30 days. Null: it has no end. */
  readonly to?: number | null;
  /** Of the list, and of each entry, in DER; see `extension`. */
  readonly extensions?: readonly Buffer[];
  readonly entryExtensions?: readonly Buffer[];
}

export interface Authority extends Issued {
  /** `name`: "" for an empty subject. `hosts`: DNS names. */
  issue(name: string, options?: { readonly hosts?: readonly string[] }): Issued;
  below(name: string): Authority;
  /** Another certificate for its name and key, which has signed itself. `to`: when it ends. */
  twin(to: number): Issued;
  /** A list in PEM. */
  list(options?: ListOptions): string;
}

export type KeyType = "ec" | "rsa" | "rsa-pss" | "ed25519" | "sha1";

const DAY_MS = 86_400_000;
let serials = 0x80;

/** One that has signed itself. */
export function authority(name: string, type: KeyType = "ec"): Authority {
  const keys = keysOf(type);
  return authorityWith(name, keys, type, null);
}

interface Keys {
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
}

interface Signer {
  readonly name: Buffer;
  readonly keys: Keys;
  readonly type: KeyType;
}

function authorityWith(name: string, keys: Keys, type: KeyType, above: Signer | null): Authority {
  const own: Signer = { name: nameOf(name), keys, type };
  const isCa = [extension("2.5.29.19", der(0x30, der(0x01, Buffer.from([255]))), true)];
  const issued = certificate(own.name, keys, above ?? own, isCa);
  return {
    ...issued,
    issue(subject, { hosts = [] } = {}) {
      const names = der(0x30, ...hosts.map((host) => der(0x82, Buffer.from(host))));
      return certificate(nameOf(subject), keysOf("ec"), own, hosts.length === 0 ? [] : [extension("2.5.29.17", names)]);
    },
    twin: (to) => certificate(own.name, keys, own, isCa, to),
    below: (subject) => authorityWith(subject, keysOf("ec"), "ec", own),
    list: (options = {}) => pem("X509 CRL", listOf(own, options)),
  };
}

function certificate(
  subject: Buffer,
  keys: Keys,
  by: Signer,
  extensions: readonly Buffer[],
  to = Date.now() + 3650 * DAY_MS,
): Issued {
  const serial = Buffer.from([0, serials++, 0x42]);
  const validity = der(0x30, time(Math.min(Date.now(), to) - DAY_MS), time(to));
  const body = der(
    0x30,
    der(0xa0, integer(Buffer.from([2]))),
    integer(serial),
    ALGORITHMS[by.type],
    ...[by.name, validity, subject],
    keys.publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, der(0x30, ...extensions, extension("2.5.29.14", der(0x04, idOf(keys))))),
  );
  const key = keys.privateKey.export({ type: "pkcs8", format: "pem" }) as string;
  return { cert: pem("CERTIFICATE", signed(body, by)), key, serial };
}

function listOf(by: Signer, { revoked = [], extensions = [], entryExtensions = [], ...times }: ListOptions): Buffer {
  const { from = Date.now() - DAY_MS, to = Date.now() + 30 * DAY_MS } = times;
  const ofEntry = entryExtensions.length === 0 ? [] : [der(0x30, ...entryExtensions)];
  const entries = revoked.map(({ serial }) => der(0x30, integer(serial), time(Date.now() - DAY_MS), ...ofEntry));
  const body = der(
    0x30,
    integer(Buffer.from([1])),
    ALGORITHMS[by.type],
    by.name,
    time(from),
    ...(to === null ? [] : [time(to)]),
    ...(entries.length === 0 ? [] : [der(0x30, ...entries)]),
    ...(extensions.length === 0 ? [] : [der(0xa0, der(0x30, ...extensions))]),
  );
  return signed(body, by);
}

/** An extension in DER. */
export function extension(id: string, value: Buffer, isCritical = false): Buffer {
  return der(0x30, objectIdentifier(id), ...(isCritical ? [der(0x01, Buffer.from([255]))] : []), der(0x04, value));
}

export function integer(bytes: Buffer): Buffer {
  return der(0x02, bytes);
}

export function pem(type: string, bytes: Buffer): string {
  const lines = bytes.toString("base64").match(/.{1,64}/g) ?? [];
  return [`-----BEGIN ${type}-----`, ...lines, `-----END ${type}-----`, ""].join("\n");
}

function nameOf(commonName: string): Buffer {
  if (commonName === "") return der(0x30);
  return der(0x30, der(0x31, der(0x30, objectIdentifier("2.5.4.3"), der(0x0c, Buffer.from(commonName)))));
}

function keysOf(type: KeyType): Keys {
  switch (type) {
    case "ec":
      return generateKeyPairSync("ec", { namedCurve: "P-256" });
    case "ed25519":
      return generateKeyPairSync("ed25519");
    default:
      return generateKeyPairSync("rsa", { modulusLength: 2048 });
  }
}

function idOf({ publicKey }: Keys): Buffer {
  return createHash("sha1")
    .update(publicKey.export({ type: "spki", format: "der" }))
    .digest();
}

const NULL = der(0x05);
const SHA256 = der(0x30, objectIdentifier("2.16.840.1.101.3.4.2.1"), NULL);
const MGF1 = der(0x30, objectIdentifier("1.2.840.113549.1.1.8"), SHA256);
const PSS = der(0x30, der(0xa0, SHA256), der(0xa1, MGF1), der(0xa2, integer(Buffer.from([32]))));
const ALGORITHMS: Readonly<Record<KeyType, Buffer>> = {
  ec: der(0x30, objectIdentifier("1.2.840.10045.4.3.2")),
  rsa: der(0x30, objectIdentifier("1.2.840.113549.1.1.11"), NULL),
  "rsa-pss": der(0x30, objectIdentifier("1.2.840.113549.1.1.10"), PSS),
  ed25519: der(0x30, objectIdentifier("1.3.101.112")),
  sha1: der(0x30, objectIdentifier("1.2.840.113549.1.1.5"), NULL),
};

function signed(body: Buffer, { keys: { privateKey: key }, type }: Signer): Buffer {
  const hash = type === "ed25519" ? null : type === "sha1" ? "sha1" : "sha256";
  const padding = { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 32 };
  const signature = sign(hash, body, type === "rsa-pss" ? { key, ...padding } : key);
  return der(0x30, body, ALGORITHMS[type], der(0x03, Buffer.from([0]), signature));
}
