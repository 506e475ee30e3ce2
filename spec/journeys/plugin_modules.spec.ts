import { createHash } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import http2 from "node:http2";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { h2Session } from "../support/h2_client.ts";
import { emptyFolder, logLines, program, runningProgram, textOf } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** Adds a header with its text; throws on `?x`. */
const marking = (text: string) => `export default ({ definePlugin, schema, withHeader }) => definePlugin({
  name: "mark",
  schema: schema.object({ deep: schema.withDefault(schema.boolean({ describe: "How deep." }), false) }),
  create: () => (next) => async (exchange) => {
    if (exchange.query === "?x") throw new Error("lost");
    const reply = await next(exchange);
    return { ...reply, headers: withHeader(reply.headers, "X-Mark", ${JSON.stringify(text)}) };
  },
});
`;

async function files(text: string) {
  const origin = await backend();
  const path = `${emptyFolder()}/mark.mjs`;
  writeFileSync(path, text);
  const config = (of: string) =>
    oneService(
      origin.port,
      { plugins: [{ name: "mark" }] },
      { h2c: true, plugin_modules: [{ path, sha256: sha256(of) }] },
    );
  return { path, config };
}

const RELOADED = /"message":"configuration reloaded"/;
const REFUSED = /"message":"reload refused/;

describe("a program with a plugin module", () => {
  it(
    "a program with a plugin module runs the module over HTTP/1.1 and HTTP/2, " +
      "and loads its next version with its digest, in either order",
    async () => {
      const { path, config } = await files(marking("one"));
      const running = await runningProgram(config(marking("one")));
      const mark = async () => (await ask(running.port, { path: "/a/x" })).headers["x-mark"];
      expect(await mark()).toBe("one");
      const h2 = h2Session(running.port);
      const [headers] = (await once(h2.request({ ":path": "/a/x" }).resume(), "response")) as [
        http2.IncomingHttpHeaders,
      ];
      expect([headers[":status"], headers["x-mark"]]).toEqual([200, "one"]);

      writeFileSync(path, marking("two"));
      writeFileSync(running.file, textOf(config(marking("two"))));
      await running.says(RELOADED);
      expect(await mark()).toBe("two");

      writeFileSync(running.file, textOf(config(marking("three"))));
      await running.says(REFUSED);
      expect(running.stderr()).toContain("is not the digest of");
      expect(await mark()).toBe("two");
      writeFileSync(path, marking("three"));
      await running.says(new RegExp(`(${RELOADED.source}[^]*){2}`));
      expect(await mark()).toBe("three");
    },
  );

  it(
    "a program with a plugin module answers 500 when the module throws, counts the error, " +
      "and logs plugin and file",
    async () => {
      const { path, config } = await files(marking("one"));
      const running = await runningProgram(config(marking("one")), [], { ADMIN_USER: "a", ADMIN_PASSWORD: "b" });
      expect((await ask(running.port, { path: "/a/x?x" })).status).toBe(500);
      expect((await ask(running.port, { path: "/a/x" })).status).toBe(200);
      const admin = Number(new URL(String(running.started.admin)).port);
      const login = await ask(admin, {
        method: "POST",
        path: "/login",
        headers: { Authorization: `Basic ${Buffer.from("a:b").toString("base64")}` },
      });
      const status = await ask(admin, {
        path: "/gateway/status",
        headers: { Cookie: login.headers["set-cookie"]![0]!.split(";")[0]! },
      });
      expect(JSON.parse(status.body.toString()).plugin_faults).toEqual([
        { plugin: "mark", id: null, level: "service", service: "s", route: null, count: 1 },
      ]);
      await running.says("a plugin or the gateway failed");
      const line = logLines(running.stderr()).find(({ message }) => message === "a plugin or the gateway failed")!;
      expect(line).toMatchObject({ plugin: "mark", plugin_level: "service" });
      expect(line.error).toContain(`${path}?`);
      expect(running.stderr()).not.toContain("base64");
    },
  );

  it(
    "a program with a plugin module does not start with an unusable module, " + "and validate reports the same error",
    async () => {
      const { config } = await files("export default {{");
      const file = `${emptyFolder()}/gw.json`;
      writeFileSync(file, textOf(config("export default {{")));
      for (const words of [
        ["validate", file],
        ["--config", file],
      ]) {
        const { code, stderr } = await program(words).ended;
        expect([code, stderr]).toEqual([
          2,
          expect.stringMatching(/gw\.json:1:\d+ +global\.plugin_modules\[0\] .*SyntaxError/),
        ]);
      }
    },
  );

  it(
    "a program with a plugin module passes validate, and the schema of its configuration " +
      "includes the module's kind",
    async () => {
      const { config } = await files(marking("one"));
      const file = `${emptyFolder()}/gw.json`;
      writeFileSync(file, textOf({ ...config(marking("one")), more: "is wrong" }));
      const { code, stdout } = await program(["schema", "--config", file]).ended;
      const names = (JSON.parse(stdout) as any).$defs.Plugin.properties.name.enum;
      expect([code, names]).toEqual([0, expect.arrayContaining(["key_auth", "mark"])]);
      expect(stdout).toContain("How deep.");
      writeFileSync(file, textOf(config(marking("one"))));
      expect((await program(["validate", file]).ended).code).toBe(0);
      writeFileSync(file, textOf(config(marking("two"))));
      expect(await program(["schema", "--config", file]).ended).toMatchObject({ code: 2, stdout: "" });
    },
  );
});
