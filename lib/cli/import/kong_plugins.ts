/**
 * Turns Kong's plugins into ours, with the credentials and groups of its consumers.
 */
import { isCallerName } from "../../config/callers.ts";
import { unlessEmpty, type Draft, type DraftPlugin } from "./draft.ts";
import { advancedLimit, plainLimit, type GroupLimit } from "./kong_limits.ts";
import { fixedText, freeName, type SourceValue } from "./source_value.ts";

/** A plugin of Kong, of the gateway, a service or a route. */
export interface Attached {
  readonly kind: string;
  readonly place: SourceValue;
}

export interface Consumer {
  readonly place: SourceValue;
  /** Its entities of a list, such as "acls". */
  of(list: string): readonly SourceValue[];
  /** The kind of a plugin of its own that may refuse it. */
  readonly refusal: string | undefined;
  /** Consumer groups that it is in. */
  readonly groups: readonly string[];
}

/** The consumer whose credential it is. */
interface Owner {
  readonly place: SourceValue;
  /** Of `acls`, and consumer groups. */
  readonly groups: readonly string[];
}

const MAX_GROUPS = 100;

/** The kinds that are carried over, in the order in which Kong runs them; others come before `request-termination`. */
const ORDER = [
  "cors",
  "jwt",
  "key-auth",
  "basic-auth",
  "ip-restriction",
  "request-size-limiting",
  "acl",
  "rate-limiting",
  "rate-limiting-advanced",
  "request-transformer",
  "response-transformer",
  "request-termination",
];
/** Kinds that an `acl` of groups needs. */
const IDENTIFYING = ["jwt", "key-auth", "basic-auth"];
/** Kinds that refuse nobody: without them, the same requests pass. */
export const OPEN = new RegExp(
  String.raw`^(correlation-id|prometheus|opentelemetry|zipkin|datadog|statsd|syslog|loggly|` +
    String.raw`.*-log|.*rate-?limiting.*|proxy-cache.*|.*-transformer.*|cors|grpc-.*|http-log|` +
    String.raw`request-size-limiting)$`,
);
const BUILT_IN: Readonly<Record<string, string>> = {
  "correlation-id": "X-Request-Id is always there",
  prometheus: "the admin interface has /metrics",
  opentelemetry: "set OTEL_EXPORTER_OTLP_ENDPOINT",
  "proxy-cache": "see response_cache",
  "file-log": "see global.access_log",
  "http-log": "see http_log",
};

type Convert = (config: SourceValue, groups: SourceValue | undefined) => readonly DraftPlugin[] | null;

export class KongPlugins {
  readonly #draft: Draft;
  readonly #consumers: readonly Consumer[];
  /** By the identities of their credentials; null: of several consumers. */
  readonly #identities = new Map<string, Owner | null>();
  /** One plugin of Kong is one of ours, wherever it is written. */
  readonly #made = new Map<string, readonly DraftPlugin[]>();
  readonly #kinds: Readonly<Record<string, Convert>>;

  /** `limits`: of consumer groups. */
  constructor(draft: Draft, consumers: readonly Consumer[], limits: readonly GroupLimit[]) {
    this.#draft = draft;
    this.#consumers = consumers;
    this.#kinds = {
      "key-auth": (config, groups) => this.#keyAuth(config, groups),
      "basic-auth": (config, groups) => this.#basicAuth(config, groups),
      jwt: (config, groups) => this.#jwt(config, groups),
      acl: () => null,
      "rate-limiting": plainLimit,
      "rate-limiting-advanced": (config) => advancedLimit(config, limits),
      cors,
      "ip-restriction": addresses,
      "request-size-limiting": sizeLimit,
      "request-termination": termination,
      "request-transformer": (config) => headers("request_headers", config),
      "response-transformer": (config) => headers("response_headers", config),
    };
  }

  /** The plugins of a route: of each kind the most specific, which comes last in `attached`. */
  list(attached: readonly Attached[]): DraftPlugin[] {
    const byKind = new Map(attached.map((each) => [each.kind, each]));
    const rank = (kind: string) => (ORDER.indexOf(kind) < 0 ? ORDER.length - 1.5 : ORDER.indexOf(kind));
    const identifying = IDENTIFYING.some((kind) => byKind.has(kind));
    const groups = byKind.get("acl");
    return [...byKind.values()]
      .filter(({ kind }) => kind !== "acl" || !identifying)
      .sort((a, b) => rank(a.kind) - rank(b.kind))
      .flatMap((each) => this.#plugin(each, groups?.place));
  }

  #plugin({ kind, place }: Attached, groups: SourceValue | undefined): readonly DraftPlugin[] {
    const key = JSON.stringify([place.at, IDENTIFYING.includes(kind) ? groups?.at : null]);
    const known = this.#made.get(key);
    if (known !== undefined) return known;
    const config = place.get("config");
    const convert = Object.hasOwn(this.#kinds, kind) ? this.#kinds[kind] : undefined;
    let plugins = convert?.(config, groups) ?? [];
    if (plugins.length === 0) place.ignore("config");
    if (plugins.length === 0 && !OPEN.test(kind)) plugins = [this.#draft.closed(place.at, kind)];
    else if (plugins.length === 0 && (kind !== "request-transformer" || !config.get("replace").has("uri")))
      place.note(`"${kind}" is not carried over${BUILT_IN[kind] === undefined ? "" : `: ${BUILT_IN[kind]}`}`);
    for (const plugin of plugins) this.#draft.from(place.at, plugin);
    this.#made.set(key, plugins);
    return plugins;
  }

  /** The identities that are in groups. */
  callers(): readonly { readonly id: string; readonly groups: readonly string[] }[] {
    return [...this.#identities].flatMap(([id, owner]) =>
      owner === null || owner.groups.length === 0 || !isCallerName(id) ? [] : [{ id, groups: owner.groups }],
    );
  }

  #identify(id: string, owner: Owner): void {
    const known = this.#identities.get(id);
    if (known !== undefined && known?.place !== owner.place)
      owner.place.note("its groups are not carried over: another consumer is known by the same name");
    this.#identities.set(id, known === undefined || known?.place === owner.place ? owner : null);
  }

  /** The credentials of a list with their owners' names: of the consumers that the groups of an `acl` admit. */
  #credentials(
    list: string,
    acl: SourceValue | undefined,
  ): { readonly id: string; readonly place: SourceValue; readonly owner: Owner }[] {
    const ids = new Map<string, number>();
    const groupsOf = (field: string, old: string) =>
      new Set([...(acl?.get("config").texts(field) ?? []), ...(acl?.get("config").texts(old) ?? [])]);
    const [allowed, denied] = [groupsOf("allow", "whitelist"), groupsOf("deny", "blacklist")];
    acl?.get("config").ignore("hide_groups_header", "always_use_authenticated_groups");
    const isOdd =
      acl !== undefined &&
      (acl.get("config").get("include_consumer_groups").value === true ||
        !areTexts(acl.get("config"), ["allow", "whitelist", "deny", "blacklist"]));
    if (isOdd || (acl !== undefined && allowed.size + denied.size === 0)) return [];
    return this.#consumers.flatMap((consumer) => {
      if (consumer.refusal !== undefined)
        return (
          consumer.place.leaveOut(
            `its credentials are left out: "${consumer.refusal}" of the consumer may refuse ` +
              `it, and is not carried over`,
          ),
          []
        );
      const groups = consumer
        .of("acls")
        .flatMap((each) => each.ignore("id", "tags", "created_at", "consumer").text("group") ?? []);
      const passes =
        (allowed.size === 0 || groups.some((group) => allowed.has(group))) &&
        !groups.some((group) => denied.has(group));
      const name = consumer.place.text("username") ?? consumer.place.text("custom_id") ?? "consumer";
      const owner = {
        place: consumer.place,
        groups: [...new Set([...groups, ...consumer.groups])].filter(isCallerName).slice(0, MAX_GROUPS),
      };
      return consumer.of(list).flatMap((place) => {
        place.ignore(
          "id",
          "tags",
          "created_at",
          "consumer",
          "key",
          "secret",
          "rsa_public_key",
          "username",
          "password",
          "algorithm",
        );
        if (place.has("ttl")) return (place.leaveOut("is left out: it expires in Kong (ttl), and would not here"), []);
        return passes ? [{ id: freeName(name, ids), place, owner }] : [];
      });
    });
  }

  #keyAuth(config: SourceValue, acl: SourceValue | undefined): readonly DraftPlugin[] | null {
    commonFields(config.ignore("hide_credentials"));
    if (config.flag("key_in_body") === true)
      config.get("key_in_body").note("keys are read from the query and the header only");
    if (!config.isTexts("key_names")) return (config.get("key_names").note("expected a list of texts"), null);
    const names = config.has("key_names") ? config.texts("key_names") : ["apikey"];
    const from = ["header", "query"].flatMap((kind) =>
      config.flag(`key_in_${kind}`) === false ? [] : names.map((name) => `${kind}:${name}`),
    );
    if (from.length === 0)
      return (config.note("reads keys from nowhere: key_in_header or key_in_query, and a name in key_names"), null);
    const keys = this.#credentials("keyauth_credentials", acl).flatMap(({ id, place, owner }) => {
      const key = this.#draft.secret(place.get("key"));
      if (key !== undefined) this.#identify(id, owner);
      return key === undefined ? (place.note("has no key, and is left out"), []) : [{ id, key }];
    });
    return keys.length === 0
      ? null
      : [
          {
            name: "key_auth",
            config: {
              keys,
              from: from.filter((place, i) => from.findIndex((each) => isSamePlace(each, place)) === i),
              ...hidden(config),
            },
          },
        ];
  }

  #basicAuth(config: SourceValue, acl: SourceValue | undefined): readonly DraftPlugin[] | null {
    commonFields(config.ignore("hide_credentials"));
    const users = this.#credentials("basicauth_credentials", acl).flatMap(({ place, owner }) => {
      const [username, password] = [place.text("username"), this.#draft.secret(place.get("password"))];
      if (username === undefined || password === undefined)
        return (place.note("has no user name or password, and is left out"), []);
      if (/^[0-9a-f]{40}$/.test(password))
        return (
          place.note(
            "the password is Kong's hash of it, and is left out: write the password, " +
              "or what edge-gateway hash-password prints",
          ),
          []
        );
      this.#identify(username, owner);
      return [{ username, password }];
    });
    return users.length === 0
      ? null
      : [{ name: "basic_auth", config: { users, realm: config.text("realm"), ...hidden(config) } }];
  }

  /** Ours has the keys of one issuer. */
  #jwt(config: SourceValue, acl: SourceValue | undefined): readonly DraftPlugin[] | null {
    commonFields(
      config.ignore(
        "realm",
        "key_claim_name",
        "secret_is_base64",
        "claims_to_verify",
        "uri_param_names",
        "cookie_names",
      ),
    );
    if ((config.get("maximum_expiration").value ?? 0) !== 0)
      return (config.get("maximum_expiration").note("tokens of any lifetime are accepted here"), null);
    if (config.texts("header_names").some((name) => name.toLowerCase() !== "authorization"))
      config.get("header_names").note("tokens are read from the header Authorization");
    const issuers = this.#credentials("jwt_secrets", acl);
    if (issuers.length !== 1)
      return (
        config.note(
          `jwt verifies the tokens of one issuer, and ${issuers.length} consumers have keys: ` +
            `use jwks_uri of an identity provider, or a route for each`,
        ),
        null
      );
    const { place } = issuers[0]!;
    if ((config.text("key_claim_name") ?? "iss") !== "iss")
      return (config.get("key_claim_name").note('the issuer is read from "iss" only'), null);
    if (config.flag("secret_is_base64") === true)
      return (config.get("secret_is_base64").note("secrets are text here"), null);
    const alg = place.text("algorithm") ?? "HS256";
    const key = alg.startsWith("HS")
      ? { secret: this.#draft.secret(place.get("secret")) }
      : { public_key: place.text("rsa_public_key") };
    if (place.text("key") === undefined) return (place.note("has no key, which Kong makes up"), null);
    const verified = config.texts("claims_to_verify");
    if (!verified.includes("exp")) config.note("an exp that a token has is always checked");
    const queries = config.has("uri_param_names") ? config.texts("uri_param_names") : ["jwt"];
    const from = [
      "header",
      ...queries.map((name) => `query:${name}`),
      ...config.texts("cookie_names").map((name) => `cookie:${name}`),
    ];
    return [
      {
        name: "jwt",
        config: {
          alg,
          ...key,
          iss: place.text("key"),
          exp: verified.includes("exp") ? "required" : "optional",
          require: verified.includes("nbf") ? ["nbf"] : undefined,
          from,
        },
      },
    ];
  }
}

/** Names of headers ignore case. */
function isSamePlace(one: string, other: string): boolean {
  return one === other || (one.startsWith("header:") && one.toLowerCase() === other.toLowerCase());
}

function commonFields(config: SourceValue): void {
  config.note(
    "upstreams get no X-Consumer-Username, X-Consumer-Custom-ID, X-Consumer-ID, X-Consumer-Groups and " +
      "X-Credential-Identifier: set what they need by request_headers, such as ${caller.id} and ${caller.groups}",
  );
  config.noteUnusual({ run_on_preflight: [true, "preflights need credentials here, unless cors answers them first"] });
  if (config.has("anonymous")) config.get("anonymous").note("requests without credentials are refused");
}

function hidden(config: SourceValue): object {
  return config.flag("hide_credentials") === true ? { hide_credentials: true } : {};
}

function areTexts(config: SourceValue, fields: readonly string[]): boolean {
  const odd = fields.map((field) => config.get(field)).filter((place) => !place.isTexts());
  for (const place of odd) place.note("expected a list of texts");
  return odd.length === 0;
}

const REFUSED = "refused addresses get 403 and the gateway's own body";

/** Of an item that is no text, nobody knows whom it admits or refuses. */
function addresses(config: SourceValue): readonly DraftPlugin[] | null {
  if (!areTexts(config, ["allow", "whitelist", "deny", "blacklist"])) return null;
  config.noteUnusual({ status: [403, REFUSED], message: [undefined, REFUSED] });
  return [...only(["allow", "whitelist"], "whitelist", config), ...only(["deny", "blacklist"], "blacklist", config)];
}

/** An `acl` of addresses, from the first of the fields that has some. */
function only(fields: readonly string[], to: string, config: SourceValue): DraftPlugin[] {
  const addresses = fields.flatMap((field) => config.texts(field));
  return addresses.length === 0 ? [] : [{ name: "acl", config: { [to]: addresses } }];
}

function cors(config: SourceValue): readonly DraftPlugin[] | null {
  if (!areTexts(config, ["origins", "methods", "headers", "exposed_headers"])) return null;
  const list = (field: string) => unlessEmpty(config.texts(field));
  const made = {
    allow_origins: list("origins") ?? ["*"],
    allow_methods: list("methods"),
    allow_headers: list("headers"),
    expose_headers: list("exposed_headers"),
    allow_credentials: config.flag("credentials"),
    preflight_continue: config.flag("preflight_continue"),
    allow_private_network: config.flag("private_network"),
    max_age: config.number("max_age"),
  };
  return [{ name: "cors", config: made }];
}

const UNITS: Readonly<Record<string, number>> = { bytes: 1, kilobytes: 1000, megabytes: 1_000_000 };

function sizeLimit(config: SourceValue): readonly DraftPlugin[] {
  const bytes =
    (config.number("allowed_payload_size") ?? 128) * (UNITS[config.text("size_unit") ?? "megabytes"] ?? NaN);
  if (config.flag("require_content_length") === true)
    config.get("require_content_length").note("a body without Content-Length is counted instead");
  return [{ name: "request_size_limit", config: { max_payload_size: bytes } }];
}

function termination(config: SourceValue): readonly DraftPlugin[] | null {
  if (config.has("trigger") || config.flag("echo") === true)
    return (config.note('"trigger" and "echo" have no counterpart'), null);
  const [message, body, type] = [config.text("message"), config.text("body"), config.text("content_type")];
  const text = body ?? (message === undefined ? undefined : JSON.stringify({ message }));
  const content = text === undefined ? undefined : (type ?? "application/json; charset=utf-8");
  const status = config.number("status_code") ?? 503;
  return [{ name: "request_termination", config: { status, body: text, content_type: content } }];
}

/** `remove`, `rename`, `replace`, `add` and `append` of headers, with texts such as "name:value". */
function headers(name: string, config: SourceValue): readonly DraftPlugin[] {
  const pairs = (action: string) =>
    config
      .get(action)
      .items("headers")
      .flatMap((item) => {
        const [, key, value] = /^([^:]+):(.*)$/s.exec(item.text() ?? "") ?? [];
        const isFixed = key !== undefined && value !== undefined && value !== "" && !value.includes("$(");
        if (!isFixed) item.note('is not carried over: expected "name:value", without a template');
        return isFixed ? [[key, value] as const] : [];
      });
  const escaped = ([key, value]: readonly [string, string]) => [key, fixedText(value)] as const;
  const [remove, rename, replace, add, append] = [
    config.get("remove").texts("headers"),
    pairs("rename"),
    pairs("replace"),
    pairs("add"),
    pairs("append"),
  ];
  if (replace.length > 0) config.get("replace").note("headers are also set where they are missing");
  if (add.length > 0)
    config.get("add").note("headers that are there already are replaced: what clients send does not pass");
  const appended = new Map<string, string[]>();
  for (const [key, value] of append.map(escaped)) appended.set(key, [...(appended.get(key) ?? []), value]);
  const made = {
    remove,
    rename: Object.fromEntries(rename),
    set: Object.fromEntries([...add, ...replace].map(escaped)),
    add: Object.fromEntries(appended),
  };
  const filled = Object.entries(made).filter(([, value]) => Object.keys(value).length > 0);
  return filled.length === 0 ? [] : [{ name, config: Object.fromEntries(filled) }];
}
