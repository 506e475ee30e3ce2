/**
 * Tells whose a user name and password are. Passwords may be plain or slow hashes (`base/password.ts`): what has been verified is
 * remembered for the most recent callers. What is made of the answer is `basic_auth.ts`.
 *
 * Pairs are looked up by a hash with a key that nobody knows, made anew with each instance: how long a look-up takes tells nothing of
 * what is stored, and what is remembered is of no use to anybody else.
 */
import { createHmac, randomBytes } from "node:crypto";
import { isHashed, verifyPassword } from "../base/password.ts";
import type { MemoryPart } from "../base/shared_memory.ts";
import { createTaskQueue } from "../base/task_queue.ts";
import type { Credentials } from "../http/basic.ts";
import type { KeptState } from "./plugin.ts";

export interface BasicUser {
  readonly username: string;
  /** Plain, or a hash as `hashPassword` makes them. */
  readonly password: string;
}

export interface BasicUsers extends KeptState {
  /** The user's name as configured; null when the pair is not right; undefined when too many others are being verified. */
  identify(given: Credentials): string | null | undefined | Promise<string | null | undefined>;
}

/** Of the user's name, which the configuration holds anyway. */
const VERDICT_BYTES = 16;
/** Half of the thread pool, which also looks up the names of upstreams and reads files. */
const MOST_VERIFYING = 2;
/** At some 60 ms each, nobody waits much longer than a second. */
const MOST_WAITING = 32;

/** `recent` remembers the user of each pair that was right; it is closed with what is returned. */
export function createBasicUsers(users: readonly BasicUser[], recent: MemoryPart<string>, verify: typeof verifyPassword = verifyPassword): BasicUsers {
  const secret = randomBytes(32);
  const nameOf = (user: string, password: string) =>
    createHmac("sha256", secret).update(`${user.normalize("NFC")}:${password.normalize("NFC")}`).digest("base64url");
  const plain = new Map<string, string>();
  const hashed = new Map<string, BasicUser>();
  for (const user of users) {
    if (isHashed(user.password)) hashed.set(user.username.normalize("NFC"), user);
    else plain.set(nameOf(user.username, user.password), user.username);
  }
  const [decoy] = hashed.values();
  const underWay = new Map<string, Promise<string | null>>();
  const turns = createTaskQueue(MOST_VERIFYING, MOST_WAITING);

  /** A user that is not there costs as much as the first with a hash: where all hashes cost the same, the time does not tell who exists. */
  async function verified(given: Credentials, pair: string, unknown: BasicUser): Promise<string | null> {
    try {
      const user = hashed.get(given.user.normalize("NFC"));
      const { username, password } = user ?? unknown;
      if (!(await turns.take(() => verify(given.password, password))) || user === undefined) return null;
      recent.set(pair, username, VERDICT_BYTES);
      return username;
    } finally {
      underWay.delete(pair);
    }
  }

  return {
    identify(given) {
      const pair = nameOf(given.user, given.password);
      const known = plain.get(pair);
      if (known !== undefined) return known;
      if (decoy === undefined) return null;
      const remembered = recent.get(pair);
      if (remembered !== undefined) return remembered;
      const same = underWay.get(pair);
      if (same !== undefined) return same;
      if (!turns.room) return undefined;
      const answer = verified(given, pair, decoy);
      underWay.set(pair, answer);
      return answer;
    },
    close() {
      recent.close();
    },
  };
}
