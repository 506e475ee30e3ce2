/**
 * Reads the users of the admin interface from ADMIN_USERS_FILE, at the start and when the file has changed.
 */
import { closeSync, constants, fstatSync, readFileSync } from "node:fs";
import type { Account, Role } from "../admin/session.ts";
import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { isHashed, passwordProblem } from "../base/password.ts";
import { openRegularFile } from "../base/regular_file.ts";
import { formatPath, listedIssues, nodeAt } from "../config/json.ts";
import { parseJson } from "../config/json_parser.ts";
import { formatIssues } from "../config/load.ts";
import * as s from "../config/schema.ts";
import type { AdminSettings } from "../config/settings_types.ts";
import { Failure } from "./failure.ts";
import { readNamedFile } from "./named_files.ts";

const MAX_BYTES = 256 * 1024;
const MAX_USERS = 256;

const ROLES = { administrator: "admin", operator: "operator", viewer: "viewer" } as const satisfies Record<
  string,
  Role
>;

const USERS = s.array(
  s.object({
    user: s.string({
      pattern: /^[^:\p{Cc}]{1,64}$/u,
      hint: "a name of 1 to 64 characters without a colon, which ends the name in Basic credentials (RFC 7617 §2)",
    }),
    password: s.string({
      secret: true,
      hint: "a scrypt hash, as edge-gateway hash-password makes it",
      check: (text) => (isHashed(text) && passwordProblem(text) === null ? undefined : ""),
    }),
    role: s.oneOf(Object.keys(ROLES) as (keyof typeof ROLES)[]),
  }),
  { min: 1, max: MAX_USERS },
);

type UsersSettings = Pick<AdminSettings, "user" | "viewer" | "usersPath">;

/** The users of the file as it was last found without errors. */
export class UsersFile {
  accounts: readonly Account[];
  readonly #settings: UsersSettings;
  readonly #log: Log;
  readonly #clock: Pick<typeof systemClock, "wall">;
  #text: Buffer;

  /** `usersPath` of `settings` is set. Throws a `Failure` for a file that is refused. */
  constructor(settings: UsersSettings, log: Log, clock: Pick<typeof systemClock, "wall"> = systemClock) {
    this.#settings = settings;
    this.#log = log;
    this.#clock = clock;
    this.#text = contentOf(settings);
    this.accounts = usersIn(this.#text, settings);
  }

  /**
   * Users who are there as before stay the same objects, and keep their sessions; of all others no session begun before
   * is accepted.
   */
  reread(): void {
    const { usersPath: file } = this.#settings;
    try {
      const text = contentOf(this.#settings);
      if (text.equals(this.#text)) return;
      const before = new Map(this.accounts.map((account) => [keyOf(account), account]));
      const since = this.#clock.wall();
      this.accounts = usersIn(text, this.#settings).map((each) => before.get(keyOf(each)) ?? { ...each, since });
      this.#text = text;
      this.#log.info("users of the admin interface reloaded", { file, users: this.accounts.length });
    } catch (error) {
      this.#log.error("new users of the admin interface refused, the old ones stay", { reason: messageOf(error) });
    }
  }
}

function keyOf({ user, password, role }: Account): string {
  return JSON.stringify([user, password, role]);
}

function contentOf({ usersPath }: UsersSettings): Buffer {
  return readNamedFile(usersPath!, "ADMIN_USERS_FILE", "users of the admin interface", (path) => {
    const fd = openRegularFile(path, constants.O_RDONLY);
    try {
      if (fstatSync(fd).size > MAX_BYTES) throw new Error(`it has more than ${MAX_BYTES / 1024} KiB`);
      return readFileSync(fd);
    } finally {
      closeSync(fd);
    }
  });
}

function usersIn(text: Buffer, { usersPath, user, viewer }: UsersSettings): readonly Account[] {
  const { node, issues, positionOf } = parseJson(text);
  const context = { issues: [...issues], positionOf, sources: NO_SOURCES };
  const checked = node === null ? s.INVALID : USERS.check(node, [], context);
  /** Whose a name is. The forms of one character (Unicode composition) are one name, as in a login. */
  const owners = new Map<string, string>();
  if (user !== null) owners.set(user.normalize("NFC"), "ADMIN_USER");
  if (viewer !== null) owners.set(viewer.user.normalize("NFC"), "ADMIN_VIEWER_USER");
  for (const [i, { user: name }] of (checked === s.INVALID ? [] : checked).entries()) {
    const composed = name.normalize("NFC");
    const at = [i, "user"];
    const owner = owners.get(composed);
    if (owner === undefined) owners.set(composed, formatPath(at));
    else s.report(context, at, nodeAt(node!, at)!, `${JSON.stringify(name)} is the name of ${owner}, too`);
  }
  if (checked === s.INVALID || context.issues.length > 0)
    throw new Failure(`ADMIN_USERS_FILE has errors:\n${formatIssues(listedIssues(context.issues), usersPath!)}`, 2);
  return checked.map((each) => ({ ...each, role: ROLES[each.role] }));
}

/** There are no references: who may log in is in this file alone. */
const NO_SOURCES = { environment: {}, folder: "", readFile: () => "" };
