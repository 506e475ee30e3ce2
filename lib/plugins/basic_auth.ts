/**
 * The plugin kind `basic_auth`: admits requests whose Authorization header contains a configured user name and password
 * (RFC 7617).
 *
 * Both are read as UTF-8, normalised to NFC and compared case-sensitively (RFC 8265). No header, or another scheme: 401
 * `credentials_missing`. Wrong or malformed credentials, or two Authorization headers: 401 `credentials_invalid`. Too
 * many passwords waiting to be verified: 503 `auth_unavailable`.
 */
import { createHmac, randomBytes } from "node:crypto";
import { isHashed, passwordProblem, verifyPassword } from "../base/password.ts";
import { SharedCount } from "../base/shared_counts.ts";
import { SharedMemory, type MemoryPart } from "../base/shared_memory.ts";
import { createTaskQueue, type TaskQueue } from "../base/task_queue.ts";
import { array, boolean, object, optional, string, withDefault, type Infer } from "../config/schema.ts";
import { basicCredentials, type Credentials } from "../http/basic.ts";
import { callerNamed, type Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { headerValues, quotedString, withoutHeader } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Count, Plugin, Tools } from "./plugin.ts";
import { SingleFlight } from "./single_flight.ts";

const USERNAME = {
  min: 1,
  max: 128,
  references: "none",
  describe: "The caller's identity in rate limits and logs.",
} as const;
const PASSWORD = {
  min: 1,
  secret: true,
  describe: "The password, or its hash as printed by `edge-gateway hash-password`.",
};
const USER = object({ username: string(USERNAME), password: string(PASSWORD) });

const schema = object(
  {
    username: optional(string(USERNAME)),
    password: optional(string(PASSWORD)),
    users: optional(array(USER, { min: 1, describe: "User names and passwords of several callers." })),
    realm: optional(
      string({
        min: 1,
        pattern: /^[ !#-[\]-~]*$/,
        hint: "printable ASCII without quotes and backslashes",
        describe: "The realm that browsers show; default: global.name.",
      }),
    ),
    hide_credentials: withDefault(
      boolean({ describe: "Remove the Authorization header before the request is forwarded." }),
      false,
    ),
  },
  {
    describe: "Requires a user name and password (HTTP Basic).",
    refine({ username, password, users }, report) {
      if ((username === undefined) !== (password === undefined))
        return report('needs "username" and "password" together');
      if (username === undefined && users === undefined) report('needs "username" and "password", or "users"');
      const places = new Map<string, string>();
      const check = (user: User, place: string, ...under: (string | number)[]) => {
        const name = user.username.normalize("NFC");
        // RFC 7617 §2: the first colon ends the user name; neither part may contain control characters.
        if (name.includes(":")) report("cannot contain a colon: it would end there", ...under, "username");
        if (CONTROL.test(name)) report("cannot contain control characters", ...under, "username");
        const wrong = passwordProblem(user.password) ?? otherHash(user.password);
        if (CONTROL.test(user.password)) report("cannot contain control characters", ...under, "password");
        else if (wrong !== null) report(wrong, ...under, "password");
        const first = places.get(name);
        if (first !== undefined) report(`is the same user as ${first}`, ...under, "username");
        places.set(name, place);
      };
      if (username !== undefined && password !== undefined) check({ username, password }, "username");
      users?.forEach((user, i) => check(user, `users[${i}]`, "users", i));
    },
  },
);

/**
 * RFC 7617 §2 forbids them. To scrypt, a password followed by NULs is the same password (HMAC pads its key with them).
 */
const CONTROL = /\p{Cc}/u;

/** Read as plain text, a hash would lock out the user and admit clients that know the hash. */
function otherHash(password: string): string | null {
  return OTHER_HASH.test(password)
    ? "is a hash of another kind; only what `edge-gateway hash-password` prints is understood"
    : null;
}

/** Hashes as written by crypt, htpasswd and LDAP: bcrypt, MD5, SHA-2, yescrypt, Argon2; `{SHA}`, `{SSHA}`. */
const OTHER_HASH = /^\$(?:2[abxy]?|apr1|[1567y]|argon2(?:id?|d))\$[\w./+=,$-]{20,}$|^\{S?SHA\d*\}[A-Za-z0-9+/]{20,}=*$/;

export const basicAuth: Plugin<typeof schema> = {
  name: "basic_auth",
  schema,
  guards: true,
  identifies: true,
  code: { SharedCount, SharedMemory, verifyPassword },
  create(config, tools) {
    const { username, password, users = [] } = config;
    const known = username === undefined || password === undefined ? users : [{ username, password }, ...users];
    const queue = tools.common("queue", () => createTaskQueue(MAX_VERIFYING, MAX_WAITING));
    const admitted = tools.count("admitted");
    // Verified pairs survive reloads that do not change the users.
    const verifier = tools.keep("users", known, () =>
      createVerifier(known, tools.verdicts.part(), tools.verifyPassword, { queue, admitted }),
    );
    const headers = [
      "WWW-Authenticate",
      `Basic realm=${quotedString(config.realm ?? tools.gatewayName)}, charset="UTF-8"`,
    ];
    const missing = { headers, detail: "Send a user name and password (HTTP Basic authentication)." };
    const invalid = { headers, detail: "The user name or password that was sent is not a valid one." };

    function settle(exchange: Exchange, identity: string | null | undefined, next: Handler): Reply | Promise<Reply> {
      if (identity === undefined) return problem(exchange.call, "auth_unavailable", OVERLOADED);
      if (identity === null) return problem(exchange.call, "credentials_invalid", invalid);
      if (!config.hideCredentials) return next(exchange.with(callerNamed(identity)));
      return next(
        exchange.with({ ...callerNamed(identity), headers: withoutHeader(exchange.headers, "authorization") }),
      );
    }

    return (next) => (exchange) => {
      const given = headerValues(exchange.headers, "authorization");
      if (!given.some((each) => BASIC.test(each))) return problem(exchange.call, "credentials_missing", missing);
      // With two headers the upstream might read the other one.
      const credentials = given.length > 1 ? null : basicCredentials(given[0]);
      const isMalformed = credentials === null || CONTROL.test(credentials.user) || CONTROL.test(credentials.password);
      const identity = isMalformed ? null : verifier.identify(credentials);
      return identity instanceof Promise
        ? identity.then((later) => settle(exchange, later, next))
        : settle(exchange, identity, next);
    };
  },
};

const BASIC = /^basic(?: |$)/i;

const OVERLOADED = {
  headers: ["Retry-After", "1"],
  detail: "Too many passwords are being verified. Try again shortly.",
  why: "too many passwords wait to be verified",
};

type User = Infer<typeof USER>;
type Verify = Tools["verifyPassword"];

/** Size in the shared memory of a user name, which the configuration contains anyway. */
const VERDICT_BYTES = 16;
/** Half of the thread pool, which also resolves host names and reads files. */
const MAX_VERIFYING = 2;
/** At some 60 ms each, the wait stays near one second. */
const MAX_WAITING = 32;

/** Of all instances: one for each would let routes with users of their own fill the thread pool. */
interface Bounds {
  readonly queue: TaskQueue;
  /** Passwords that are verified or wait, in all workers. */
  readonly admitted: Pick<Count, "take" | "give">;
}

/**
 * Verifies user names and passwords. `recent` remembers the pairs whose hash was verified.
 *
 * Pairs are looked up by an HMAC with a random key, so that the time of a look-up reveals nothing about the stored
 * pairs, and stolen pairs are useless.
 */
export function createVerifier(
  users: readonly User[],
  recent: MemoryPart<string>,
  verify: Verify,
  { queue, admitted }: Bounds,
) {
  const secret = randomBytes(32);
  const nameOf = (user: string, password: string) =>
    createHmac("sha256", secret)
      .update(`${user.normalize("NFC")}:${password.normalize("NFC")}`)
      .digest("base64url");
  const plain = new Map<string, string>();
  const hashed = new Map<string, User>();
  for (const user of users) {
    if (isHashed(user.password)) hashed.set(user.username.normalize("NFC"), user);
    else plain.set(nameOf(user.username, user.password), user.username);
  }
  const [decoy] = hashed.values();
  const verifying = new SingleFlight<string | null>();

  /**
   * An unknown user costs as much as the first one with a hash: if all hashes cost the same, the time does not reveal
   * which users exist.
   */
  async function verified(given: Credentials, pair: string, unknown: User): Promise<string | null> {
    try {
      const user = hashed.get(given.user.normalize("NFC"));
      const { username, password } = user ?? unknown;
      if (!(await queue.take(() => verify(given.password, password))) || user === undefined) return null;
      recent.set(pair, username, VERDICT_BYTES);
      return username;
    } finally {
      admitted.give();
    }
  }

  return {
    /**
     * The user's name as configured; null when name or password is wrong; undefined when too many passwords are being
     * verified.
     */
    identify(given: Credentials): string | null | undefined | Promise<string | null> {
      const pair = nameOf(given.user, given.password);
      const known = plain.get(pair);
      if (known !== undefined || decoy === undefined) return known ?? null;
      const earlier = recent.get(pair) ?? verifying.current(pair);
      if (earlier !== undefined) return earlier;
      if (!queue.room || !admitted.take(MAX_VERIFYING + MAX_WAITING)) return undefined;
      return verifying.join(pair, () => verified(given, pair, decoy));
    },
    close: () => recent.close(),
  };
}
