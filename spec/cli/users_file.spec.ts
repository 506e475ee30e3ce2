/** ADMIN_USERS_FILE of the built program. */
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { oneService } from "../support/gateway.ts";
import { fileWith, program, runningProgram } from "../support/process.ts";

const hashOf = async (password: string) =>
  (await program(["hash-password"], { input: `${password}\n` }).ended).stdout.trim();

describe("edge-gateway with ADMIN_USERS_FILE", () => {
  it(
    "lets its users in, takes changes of the file without a restart, " + "and keeps the old ones where it has errors",
    async () => {
      const password = await hashOf("secret");
      const users = (...names: string[]) => JSON.stringify(names.map((user) => ({ user, password, role: "operator" })));
      const file = fileWith(users("ole", "ann"), "users.json");
      const running = await runningProgram(oneService(9), [], { ADMIN_USERS_FILE: file, ADMIN_PORT: "0" });
      const url = String(running.started.admin);
      const reload = (user: string) =>
        program(["reload"], { environment: { ADMIN_USER: user, ADMIN_PASSWORD: "secret", ADMIN_URL: url } }).ended;
      expect(await reload("ole")).toMatchObject({ code: 0, stderr: "" });
      writeFileSync(file, users("ann"));
      await running.says("users of the admin interface reloaded");
      const refused = await reload("ole");
      expect([refused.code, refused.stderr]).toEqual([
        1,
        expect.stringContaining("refused the user name or the password"),
      ]);
      writeFileSync(file, users());
      await running.says(/new users of the admin interface refused.*found none/);
      expect(await reload("ann")).toMatchObject({ code: 0, stderr: "" });
    },
  );

  it.each(["run", "validate"])(
    "%s ends with exit code 2 for a plain password, and says how to make a hash",
    async (command) => {
      const environment = {
        ADMIN_USERS_FILE: fileWith([{ user: "ole", password: "hunter2", role: "operator" }], "users.json"),
      };
      const { code, stderr } = await program([command, "--config", fileWith(oneService(9))], { environment }).ended;
      expect([code, stderr]).toEqual([
        2,
        expect.stringMatching(/ADMIN_USERS_FILE.*\n.*users\.json:1:\d+ .*hash-password/),
      ]);
      expect(stderr).not.toContain("hunter2");
    },
  );

  it("audit lists the file as one that is read, watched and secret", async () => {
    const file = fileWith(
      [{ user: "ole", password: "scrypt$1024$8$1$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA", role: "viewer" }],
      "users.json",
    );
    const { stdout, stderr } = await program(["audit", "--json", "--config", fileWith(oneService(9))], {
      environment: { ADMIN_USERS_FILE: file },
    }).ended;
    const { reads, secrets, listens } = JSON.parse(stdout || stderr) as Record<string, unknown[]>;
    expect(reads).toContain(file);
    expect(secrets).toContain(`file:${file}`);
    expect(JSON.stringify(listens)).toContain("8081");
  });
});
