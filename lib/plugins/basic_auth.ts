/**
 * The plugin kind `basic_auth`: lets a request pass when its Authorization header holds a configured user name and password (HTTP Basic,
 * RFC 7617). How often somebody may guess is the affair of `rate_limit`.
 *
 * Both are read as UTF-8 and compared in Unicode's form NFC, case included (RFC 8265). No header, or another scheme: 401
 * `credentials_missing`; anything else that does not fit, two Authorization headers included: 401 `credentials_invalid`. When more
 * passwords wait to be verified than can be soon: 503 `auth_unavailable`.
 */
import { passwordProblem } from "../base/password.ts";
import { array, boolean, object, optional, string, withDefault, type Infer } from "../config/schema.ts";
import { basicCredentials, type Credentials } from "../http/basic.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { headerValues, quotedString, withoutHeader } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { createBasicUsers, type BasicUser } from "./basic_users.ts";
import { definePlugin } from "./plugin.ts";

const USERNAME = { min: 1, max: 128, describe: "Who presents it: the caller's identity in rate limits and logs." };
const PASSWORD = { min: 1, secret: true, describe: "The password, or its hash as `edge-gateway hash-password` prints it." };

const schema = object(
  {
    username: optional(string(USERNAME)),
    password: optional(string(PASSWORD)),
    users: optional(
      array(object({ username: string(USERNAME), password: string(PASSWORD) }), {
        min: 1,
        describe: "User names and passwords of several callers.",
      }),
    ),
    realm: optional(
      string({
        min: 1,
        pattern: /^[ !#-[\]-~]*$/,
        hint: "printable ASCII without quotes and backslashes",
        describe: "What browsers name when they ask; default: global.name.",
      }),
    ),
    hide_credentials: withDefault(boolean({ describe: "Strip the Authorization header from what is forwarded." }), false),
  },
  {
    describe: "Requires a user name and password (HTTP Basic).",
    refine({ username, password, users }, report) {
      if ((username === undefined) !== (password === undefined)) return report('needs "username" and "password" together');
      if (username === undefined && users === undefined) report('needs "username" and "password", or "users"');
      const places = new Map<string, string>();
      const look = (user: BasicUser, place: string, ...under: (string | number)[]) => {
        const name = user.username.normalize("NFC");
        // RFC 7617 §2: the first colon ends the user name; neither part may hold control characters.
        if (name.includes(":")) report("cannot hold a colon: it would end there", ...under, "username");
        if (CONTROL.test(name)) report("cannot hold control characters", ...under, "username");
        const problem = CONTROL.test(user.password) ? "cannot hold control characters" : (passwordProblem(user.password) ?? otherHash(user.password));
        if (problem !== null) report(problem, ...under, "password");
        const first = places.get(name);
        if (first !== undefined) report(`is the same user as ${first}`, ...under, "username");
        places.set(name, place);
      };
      if (username !== undefined && password !== undefined) look({ username, password }, "username");
      users?.forEach((user, i) => look(user, `users[${i}]`, "users", i));
    },
  },
);

const CONTROL = /\p{Cc}/u;

/** Taken for plain text it would lock out whoever knows the password, and let in whoever has read the hash. */
function otherHash(password: string): string | null {
  return OTHER_HASH.test(password) ? "is a hash of another kind; only what `edge-gateway hash-password` prints is understood" : null;
}

/** As crypt, htpasswd and LDAP write them: bcrypt, MD5, SHA-2, yescrypt, Argon2; `{SHA}`, `{SSHA}`. */
const OTHER_HASH = /^\$(?:2[abxy]?|apr1|[1567y]|argon2(?:id?|d))\$[\w./+=,$-]{20,}$|^\{S?SHA\d*\}[A-Za-z0-9+/]{20,}=*$/;

export const basicAuth = definePlugin({
  name: "basic_auth",
  schema,
  guards: true,
  create(config, tools) {
    const known = usersOf(config);
    // What has been verified stays so over reloads, as long as the users do.
    const users = tools.keep("users", known, () => createBasicUsers(known, tools.verdicts.part()));
    const headers = ["WWW-Authenticate", `Basic realm=${quotedString(config.realm ?? tools.gatewayName)}, charset="UTF-8"`];
    const missing = { headers, detail: "Send a user name and password (HTTP Basic authentication)." };
    const invalid = { headers, detail: "The user name or password that was sent is not a valid one." };

    function settle(exchange: Exchange, identity: string | null | undefined, next: Handler): Reply | Promise<Reply> {
      if (identity === undefined) return problem(exchange.call, "auth_unavailable", OVERLOADED);
      if (identity === null) return problem(exchange.call, "credentials_invalid", invalid);
      exchange.call.notes.identity = identity;
      if (!config.hideCredentials) return next(exchange.with({ identity }));
      return next(exchange.with({ identity, headers: withoutHeader(exchange.headers, "authorization") }));
    }

    return (next) => (exchange) => {
      const given = headerValues(exchange.headers, "authorization");
      if (!given.some(isBasic)) return problem(exchange.call, "credentials_missing", missing);
      // Of two the upstream might read the other one.
      const credentials = given.length > 1 ? null : basicCredentials(given[0]);
      const identity = credentials === null || holdsControl(credentials) ? null : users.identify(credentials);
      if (!(identity instanceof Promise)) return settle(exchange, identity, next);
      return identity.then((later) => settle(exchange, later, next));
    };
  },
});

const OVERLOADED = {
  headers: ["Retry-After", "1"],
  detail: "Too many passwords are being verified. Try again shortly.",
  why: "too many passwords wait to be verified",
};

/** RFC 7617 §2 forbids them; and to scrypt, a password with NULs behind it is the same one (HMAC fills its key up with them). */
function holdsControl({ user, password }: Credentials): boolean {
  return CONTROL.test(user) || CONTROL.test(password);
}

function isBasic(authorization: string): boolean {
  return authorization.slice(0, 5).toLowerCase() === "basic" && (authorization.length === 5 || authorization.charCodeAt(5) === 0x20);
}

function usersOf({ username, password, users = [] }: Infer<typeof schema>): readonly BasicUser[] {
  return username === undefined || password === undefined ? users : [{ username, password }, ...users];
}
