/**
 * Verifies HTTP Basic credentials (RFC 7617) of the users of the admin interface, and limits the rate of attempts.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { networkOf } from "../base/cidr.ts";
import { callerAddress } from "../base/ip_address.ts";
import { isHashed, sameText, verifyPassword } from "../base/password.ts";
import { createTaskQueue } from "../base/task_queue.ts";
import { basicCredentials, type Credentials } from "../http/basic.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";
import { retryAfter } from "./replies.ts";
import { accountsOf, type Account, type Accounts, type AdminSessions } from "./session.ts";
import { Throttle, type Pause } from "./throttle.ts";
import type { InterfaceOptions } from "./views.ts";

export type LoginOutcome =
  /** "missing" includes other authentication schemes; it does not count as a guess. */
  | { readonly kind: "missing" | "wrong" | "overloaded" }
  | { readonly kind: "accepted"; readonly account: Account }
  | { readonly kind: "paused"; readonly pause: Pause };

type LoginOptions = Accounts & Pick<InterfaceOptions, "clock">;

/** Half of Node's thread pool, which also resolves host names and reads files. */
const MAX_VERIFYING = 2;
/** At some 60 ms each, the wait stays near one second. */
const MAX_WAITING = 32;

export class Login {
  readonly #accounts: () => readonly Account[];
  readonly #verify: typeof verifyPassword;
  readonly #throttle: Throttle;
  /**
   * Of browsers with a device cookie, by its id, for each user: failures of others at the same address, behind one
   * proxy for instance, must not lock them out, however many addresses fail, nor those of another user's browsers.
   */
  readonly #ofDevices = new Map<string, Throttle>();
  readonly #clock: LoginOptions["clock"];
  readonly #queue = createTaskQueue(MAX_VERIFYING, MAX_WAITING);
  /** The last pending attempt of each address or device, and how many attempts wait for an earlier one. */
  readonly #pending = new Map<string, Promise<LoginOutcome>>();
  #waiting = 0;
  /**
   * The right credentials as a keyed hash: scrapers send them with each request, which must not cost a password hash
   * each time.
   */
  readonly #secret = randomBytes(32);
  readonly #accepted = new WeakMap<Account, Buffer>();

  constructor(options: LoginOptions, verify = verifyPassword) {
    this.#accounts = accountsOf(options);
    this.#verify = verify;
    this.#throttle = new Throttle(options.clock);
    this.#clock = options.clock;
  }

  /**
   * `authorization` is the value of the header, `deviceOf` gives the id of the device that is known for a user.
   * Attempts of one address or device are verified one after another, so earlier ones are counted.
   */
  async attempt(
    authorization: string | undefined,
    clientAddress: string,
    deviceOf: (user: string) => string | null = () => null,
  ): Promise<LoginOutcome> {
    const given = basicCredentials(authorization);
    if (given === null) return { kind: "missing" };
    const network = networkOf(clientAddress);
    const device = deviceOf(given.user);
    const caller: ThrottledClient =
      device === null
        ? { throttle: this.#throttle, key: callerAddress(clientAddress), network }
        : { throttle: this.#throttleOf(given.user), key: device, network: DEVICES };
    const earlier = this.#pending.get(caller.key);
    if (earlier !== undefined && this.#waiting >= MAX_WAITING) return { kind: "overloaded" };
    const own = this.#attemptAfter(earlier, given, caller);
    this.#pending.set(caller.key, own);
    try {
      const outcome = await own;
      if (outcome.kind === "accepted") this.#throttle.remember(network);
      return outcome;
    } finally {
      if (this.#pending.get(caller.key) === own) this.#pending.delete(caller.key);
    }
  }

  async #attemptAfter(
    earlier: Promise<unknown> | undefined,
    given: Credentials,
    { throttle, key, network }: ThrottledClient,
  ): Promise<LoginOutcome> {
    if (earlier !== undefined) {
      this.#waiting++;
      await earlier.catch(() => {}).finally(() => this.#waiting--);
    }
    const pause = throttle.pauseOf(key, network);
    if (pause !== null) return { kind: "paused", pause };
    // Checked after the pause: a paused caller must not learn whether its guess was right.
    const pair = createHmac("sha256", this.#secret)
      .update(JSON.stringify([given.user, given.password]))
      .digest();
    const known = this.#accounts().find((each) => timingSafeEqual(pair, this.#accepted.get(each) ?? NO_PAIR));
    if (known !== undefined) return { kind: "accepted", account: known };
    if (!this.#queue.room) return { kind: "overloaded" };
    const uncount = throttle.begin(key, network);
    const account = await this.#queue.take(() => this.#verified(given));
    if (account === null) return { kind: "wrong" };
    this.#accepted.set(account, pair);
    uncount();
    return { kind: "accepted", account };
  }

  /** Whether there still is this user, with this role and password. */
  isLive(account: Account): boolean {
    return this.#accounts().includes(account);
  }

  /** Of the browsers of one user, who exists. */
  #throttleOf(user: string): Throttle {
    const name = user.normalize("NFC");
    const known = this.#ofDevices.get(name);
    if (known !== undefined) return known;
    const throttle = new Throttle(this.#clock);
    throttle.remember(DEVICES);
    this.#ofDevices.set(name, throttle);
    return throttle;
  }

  /**
   * Each attempt costs one hash, so that the time taken does not show which of name and password was wrong: where the
   * user has none, or does not exist, it is that of another user, always the same one for a name.
   */
  async #verified({ user, password }: Credentials): Promise<Account | null> {
    const accounts = this.#accounts();
    const [own] = accounts.filter((account) => sameText(user, account.user));
    const hashed = accounts.filter((account) => isHashed(account.password));
    const isPlain = own !== undefined && !isHashed(own.password);
    const others = hashed.length > 0 ? hashed : accounts;
    const [chance] = createHmac("sha256", this.#secret).update(user.normalize("NFC")).digest();
    const compared = own === undefined || isPlain ? others[chance! % others.length]! : own;
    const isRight = await this.#verify(password, compared.password);
    if (own === undefined || !this.isLive(own)) return null;
    return (isPlain ? sameText(password, own.password) : isRight) ? own : null;
  }
}

/** Whose failures count together. `key`: an address, or the id of a device, which looks like none. */
interface ThrottledClient {
  readonly throttle: Throttle;
  readonly key: string;
  readonly network: string;
}

/** Stands for the network of all devices: somebody has logged in with each of them. */
const DEVICES = "devices";

/** No pair of credentials has it. */
const NO_PAIR = Buffer.alloc(32);

/** Whose credentials a request carries, or the reply to one without any. */
export async function accountOf(
  login: Login,
  { call, headers, clientAddress }: Inbound,
  challenge: HeaderList,
  { log, audit }: Pick<InterfaceOptions, "log" | "audit">,
  sessions: AdminSessions,
): Promise<Account | Reply> {
  const authorization = headerValue(headers, "authorization");
  const outcome = await login.attempt(authorization, clientAddress, (user) => sessions.deviceOf(headers, user));
  switch (outcome.kind) {
    case "accepted":
      return outcome.account;
    case "paused":
      return problem(call, "rate_limited", {
        detail: TOO_MANY_FAILED[outcome.pause.because],
        headers: retryAfter(outcome.pause.ms),
      });
    case "overloaded":
      return problem(call, "overloaded", { detail: "Too many logins at once.", headers: retryAfter(1000) });
    case "wrong":
      // Without the user name: people type passwords there.
      log.warn("admin login failed", { address: clientAddress, request_id: call.id });
      audit?.add("login_failed", {
        user: shortName(basicCredentials(authorization)!.user),
        address: clientAddress,
        request_id: call.id,
      });
      return problem(call, "unauthenticated", {
        detail: "The user name or the password is wrong.",
        headers: challenge,
      });
    case "missing":
      return problem(call, "unauthenticated", {
        detail: "Send the name and the password of a user as HTTP Basic.",
        headers: challenge,
      });
  }
}

/** At most 64 characters. */
function shortName(name: string): string {
  return Array.from(name.slice(0, 128)).slice(0, 64).join("");
}

const TOO_MANY_FAILED = {
  address: "Too many failed logins from this address or browser.",
  all: "Too many failed logins from all addresses together. Networks from which somebody has logged in do not wait.",
};
