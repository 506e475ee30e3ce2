/** The users of ADMIN_USERS_FILE: what each role may do, what the file may be, and what a change of it ends. */
import { execFileSync } from "node:child_process";
import { scryptSync } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import { UsersFile } from "../../lib/cli/users_file.ts";
import { manualClock } from "../support/clock.ts";
import { basic, cookieOf, RIGHT, startAdmin, USER } from "./harness.ts";
import { AS_VIEWER, emptyFolder, VIEWER, withPort, writable } from "./writable.ts";

type Role = "administrator" | "operator" | "viewer";

/** A cheap hash: what is verified here is whose it is. */
function hashOf(password: string): string {
  const salt = Buffer.from(password.padEnd(16));
  const key = scryptSync(password, salt, 32, { N: 1024, r: 8, p: 1 });
  return `scrypt$1024$8$1$${salt.toString("base64url")}$${key.toString("base64url")}`;
}

const hash = hashOf("secret");
const other = hashOf("another secret");

const entry = (user: string, role: Role = "operator", password = hash) => ({ user, password, role });
const NONE = { user: null, viewer: null };

function usersFile(content: unknown, settings: { user?: string | null; viewer?: typeof VIEWER | null } = {}) {
  const usersPath = join(emptyFolder(), "users.json");
  const write = (next: unknown) => writeFileSync(usersPath, typeof next === "string" ? next : JSON.stringify(next));
  write(content);
  const clock = manualClock();
  let logged = "";
  const log = createLog({ format: "json", level: "info", write: (line) => void (logged += line) });
  const users = new UsersFile({ ...NONE, ...settings, usersPath }, log, clock);
  return { usersPath, users, clock, write, logged: () => logged };
}

async function running(content: unknown, changes: object = {}) {
  const file = usersFile(content);
  const admin = await startAdmin({ ...NONE, password: null, users: file.users, clock: file.clock, ...changes });
  const sessionOf = async (user: string, password = "secret") => cookieOf(await admin.login(basic(user, password)));
  const roleOf = async (cookie: string) =>
    (await admin.ask("GET", "/gateway/session", { headers: { cookie } })).json.role as string | undefined;
  const change = (next: unknown) => {
    file.write(next);
    file.users.reread();
  };
  return { ...file, ...admin, sessionOf, roleOf, change };
}

describe("users of a file", () => {
  it("log in with their own names and roles, beside the users of the settings", async () => {
    const all = [entry("ann", "administrator"), entry("ole"), entry("vic", "viewer")];
    const { users } = usersFile(all);
    const { login } = await startAdmin({ users, viewer: VIEWER });
    const given = [...all.map(({ user }) => basic(user, "secret")), RIGHT, AS_VIEWER];
    const roles: unknown[] = [];
    for (const authorization of given) roles.push((await login(authorization)).json.role);
    expect(roles).toEqual(["admin", "operator", "viewer", "admin", "viewer"]);
    expect((await login(basic("ann", "wrong"))).status).toBe(401);
  });

  it("need no user of the settings, of which the interface shows none then", async () => {
    const { ask, sessionOf } = await running([entry("ann", "administrator")]);
    const cookie = await sessionOf("ann");
    expect((await ask("GET", "/gateway/config", { headers: { cookie } })).json).toMatchObject({
      AdminUser: "",
      AdminPassword: "",
    });
    expect((await ask("GET", "/gateway/config", { headers: { authorization: basic("", "") } })).status).toBe(401);
  });

  it(
    "an operator drains, purges and reloads, and is named in history and log, " + "and changes no configuration",
    async () => {
      const { users } = usersFile([entry("ole")]);
      const { port, file, lines, content, asAdmin } = await writable(withPort(1), { users });
      const ask = async (method: string, path: string, body?: object) => {
        const got = await fetch(`http://127.0.0.1:${port}${path}`, {
          method,
          headers: { cookie, "content-type": "application/json", "if-match": '"0123456789ab"' },
          ...(body && { body: JSON.stringify(body) }),
        });
        return [got.status, await got.text()] as const;
      };
      const logged = await fetch(`http://127.0.0.1:${port}/login`, {
        method: "POST",
        headers: { authorization: basic("ole", "secret") },
      });
      const cookie = logged.headers.getSetCookie()[0]!.split(";")[0]!;
      const before = content();
      expect(JSON.parse((await ask("GET", "/gateway/session"))[1])).toMatchObject({
        ...{ user: "ole", role: "operator", write: false, drain: true },
      });
      expect((await ask("POST", "/gateway/upstreams/s/u", { state: "drain" }))[0]).toBe(200);
      expect((await ask("POST", "/gateway/cache/purge", {}))[0]).toBe(200);
      expect((await ask("POST", "/gateway/reload?dry_run=true"))[0]).toBe(200);
      writeFileSync(file, `${before}\n`);
      expect((await ask("POST", "/gateway/reload"))[0]).toBe(200);
      for (const [method, path] of [
        ["PUT", "/gateway/source"],
        ["POST", "/gateway/rollback"],
        ["POST", "/gateway/validate"],
      ] as const) {
        const [status, text] = await ask(method, path, {});
        expect([status, JSON.parse(text).detail]).toEqual([403, expect.stringContaining("changes no configuration")]);
      }
      expect(content()).toBe(`${before}\n`);
      const changes = lines().filter(({ message }) => message === "admin change");
      expect(changes.map(({ user, action }) => [user, action])).toEqual([
        ["ole", "upstream"],
        ["ole", "purge"],
      ]);
      const { entries } = (await asAdmin("GET", "/gateway/history")).json as { entries: { by: object }[] };
      expect(entries[0]!.by).toMatchObject({ user: "ole" });
    },
  );

  it("an operator and a viewer see secrets masked, an administrator as they are", async () => {
    const secret = withPort(1, { plugins: [{ name: "key_auth", config: { key: "a literal secret" } }] });
    const { users } = usersFile([entry("ann", "administrator"), entry("ole"), entry("vic", "viewer")]);
    const { port } = await writable(secret, { users });
    const shown: boolean[] = [];
    for (const user of ["ann", "ole", "vic"]) {
      const url = `http://127.0.0.1:${port}`;
      const authorization = basic(user, "secret");
      const logged = await fetch(`${url}/login`, { method: "POST", headers: { authorization } });
      const headers = { cookie: logged.headers.getSetCookie()[0]!.split(";")[0]! };
      for (const path of ["/gateway", "/gateway?secrets=shown", "/gateway/source"])
        shown.push((await (await fetch(url + path, { headers })).text()).includes("a literal secret"));
    }
    expect(shown).toEqual([true, true, true, false, false, false, false, false, false]);
  });

  it("a viewer of the file may not reload, purge or drain", async () => {
    const { ask, sessionOf } = await running([entry("vic", "viewer")]);
    const cookie = await sessionOf("vic");
    for (const path of ["/gateway/reload", "/gateway/cache/purge"])
      expect((await ask("POST", path, { headers: { cookie } })).status).toBe(403);
  });
});

describe("a change of the file of users", () => {
  it("ends at once the sessions of who was removed, demoted or got another password, and no others", async () => {
    const all = ["gone", "demoted", "changed", "staying"].map((user) => entry(user, "administrator"));
    const { sessionOf, roleOf, change } = await running(all);
    const cookies: string[] = [];
    for (const { user } of all) cookies.push(await sessionOf(user));
    change([all[3], entry("demoted", "operator"), entry("changed", "administrator", other), entry("new")]);
    expect(await Promise.all(cookies.map(roleOf))).toEqual([undefined, undefined, undefined, "admin"]);
    expect(await roleOf(await sessionOf("demoted"))).toBe("operator");
    expect(await roleOf(await sessionOf("changed", "another secret"))).toBe("admin");
    expect(await roleOf(await sessionOf("new"))).toBe("operator");
  });

  it("that brings a user back revives no session from before", async () => {
    const { clock, sessionOf, roleOf, change } = await running([entry("ann"), entry("ole")]);
    const cookie = await sessionOf("ole");
    clock.advance(1000);
    change([entry("ann")]);
    expect(await roleOf(cookie)).toBe(undefined);
    clock.advance(1000);
    change([entry("ann"), entry("ole")]);
    expect([await roleOf(cookie), await roleOf(await sessionOf("ole"))]).toEqual([undefined, "operator"]);
  });

  it(
    "ends device cookies with another password, and lets no one in by " + "credentials that were right before",
    async () => {
      const { ask, login, change } = await running([entry("ole")]);
      const device = (await login(basic("ole", "secret"))).headers["set-cookie"]![1]!.split(";")[0]!;
      const read = (authorization: string, cookie = "") =>
        ask("GET", "/gateway/status", { headers: { authorization, cookie } }).then(({ status }) => status);
      expect(await read(basic("ole", "secret"))).toBe(200);
      change([entry("ole", "operator", other)]);
      expect(await read(basic("ole", "secret"))).toBe(401);
      for (let i = 0; i < 4; i++) expect(await read(basic("ole", "wrong"), device)).toBe(401);
      // The device is known no longer: it waits with its address.
      expect(await read(basic("ole", "another secret"), device)).toBe(429);
    },
  );

  it("ends a stream of requests that was opened with credentials", async () => {
    const { users, write } = usersFile([entry("ole")]);
    const { port } = await writable(withPort(1), { users });
    const stream = await fetch(`http://127.0.0.1:${port}/gateway/tail`, {
      headers: { authorization: basic("ole", "secret") },
    });
    expect(stream.status).toBe(200);
    const reader = stream.body!.getReader();
    await reader.read();
    write([entry("ann")]);
    users.reread();
    // Streams are looked at with each logout, and twice a second.
    await fetch(`http://127.0.0.1:${port}/logout`, { method: "DELETE" });
    expect((await reader.read()).done).toBe(true);
  });

  it("of only white space leaves sessions, and one of nothing is not logged", async () => {
    const all = [entry("ole")];
    const { sessionOf, roleOf, change, users, logged } = await running(all);
    const cookie = await sessionOf("ole");
    users.reread();
    expect(logged()).not.toContain("reloaded");
    change(`${JSON.stringify(all, null, 2)}\n`);
    expect(logged()).toContain("users of the admin interface reloaded");
    expect(await roleOf(cookie)).toBe("operator");
  });

  it("with an error, or its loss, leaves the old users, and is logged", async () => {
    const { sessionOf, roleOf, change, users, usersPath, logged } = await running([entry("ole")]);
    const cookie = await sessionOf("ole");
    change("[]");
    rmSync(usersPath);
    users.reread();
    const errors = logged()
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as { message: string; level: string; reason: string })
      .filter(({ level }) => level === "error");
    expect(errors.map(({ message }) => message)).toEqual(
      [1, 2].map(() => "new users of the admin interface refused, the old ones stay"),
    );
    expect(errors.map(({ reason }) => /found none|no such file/.exec(reason)?.[0])).toEqual([
      "found none",
      "no such file",
    ]);
    expect(await roleOf(cookie)).toBe("operator");
    change([entry("new")]);
    expect([await roleOf(cookie), await roleOf(await sessionOf("new"))]).toEqual([undefined, "operator"]);
  });
});

describe("a file of users is refused", () => {
  const text = (...all: object[]) => JSON.stringify(all);
  it.each<[string, () => string, RegExp]>([
    ["that is empty", () => "", /users\.json:1:1/],
    ["that is no JSON", () => "[{", /users\.json:1:\d/],
    ["that is no list", () => "{}", /:1:1 .*expected an array/],
    ["without users", () => "[]", /expected 1–256 items, found none/],
    [
      "with too many",
      () => text(...Array.from({ length: 257 }, (_, i) => entry(`u${i}`))),
      /expected 1–256 items, found 257/,
    ],
    ["with a field that is not known", () => text({ ...entry("a"), roles: 1 }), /\[0\]\.roles .*did you mean "role"/],
    ["with a role that is not known", () => text({ ...entry("a"), role: "operater" }), /did you mean "operator"/],
    ["without a role", () => text({ user: "a", password: hash }), /\[0\]\.role .*is required/],
    ["with a plain password", () => text(entry("a", "viewer", "hunter2")), /edge-gateway hash-password/],
    [
      "with a hash that costs too much",
      () => text(entry("a", "viewer", "scrypt$1048576$8$1$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA")),
      /hash-password/,
    ],
    ["with an empty name", () => text(entry("")), /a name of 1 to 64 characters/],
    ["with a colon in a name", () => text(entry("a:b")), /without a colon/],
    [
      "with a name twice",
      () => text(entry("a"), entry("b"), entry("a")),
      /\[2\]\.user +"a" is the name of \[0\]\.user, too/,
    ],
    ["with two forms of a name", () => text(entry("\u00e4"), entry("a\u0308")), /is the name of \[0\]\.user, too/],
    ["with the name of the administrator", () => text(entry(USER)), /is the name of ADMIN_USER, too/],
    ["with the name of the viewer", () => text(entry(VIEWER.user)), /is the name of ADMIN_VIEWER_USER, too/],
    ["with a reference", () => text(entry("${env:USER}")), /\[0\]\.user/],
    ["that is huge", () => " ".repeat(300 * 1024), /it has more than 256 KiB/],
  ])("%s", (_, content, reason) => {
    const refused = () => usersFile(content(), { user: USER, viewer: VIEWER });
    expect(refused).toThrow(reason);
    expect(refused).not.toThrow(/hunter2|scrypt\$/);
  });

  it("that is a folder, a FIFO, or not there", () => {
    const folder = emptyFolder();
    mkdirSync(join(folder, "folder"));
    execFileSync("mkfifo", [join(folder, "fifo")]);
    const log = createLog({ format: "json", level: "info", write: () => {} });
    const refusal = (name: string) => {
      try {
        new UsersFile({ ...NONE, usersPath: join(folder, name) }, log);
        return "";
      } catch (error) {
        return (error as Error).message;
      }
    };
    expect(refusal("folder")).toMatch(/ADMIN_USERS_FILE\): it is a folder$/);
    expect(refusal("fifo")).toMatch(/it is a FIFO, not a file$/);
    expect(refusal("nothing")).toMatch(/no such file$/);
  });
});
