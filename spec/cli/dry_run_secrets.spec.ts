/** The admin interface of the built program tells whoever posts dry runs nothing of what references and files hold. */
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { oneService } from "../support/gateway.ts";
import { fileWith, runningFile, textOf } from "../support/process.ts";
import { signed, signingKeys } from "../support/signing_keys.ts";

const SECRETS = { ATTACKED: "s3cret-of-the-environment", ADMIN_JWT_SECRET: "s-32-bytes-that-sign-the-sessions-of-all" };
const keys = signingKeys();

async function attacked() {
  const file = signed(fileWith(oneService(9)), keys);
  const keyFile = fileWith(keys.publicKey, "public.pem");
  const running = await runningFile(file, [], {
    ADMIN_USER: "anna",
    ADMIN_PASSWORD: "secret",
    ADMIN_REDACT_SECRETS: "true",
    CONFIG_PUBLIC_KEY: keyFile,
    ...SECRETS,
  });
  const url = String(running.started.admin);
  const login = await fetch(`${url}/login`, {
    method: "POST",
    headers: { Authorization: `Basic ${btoa("anna:secret")}` },
  });
  const Cookie = login.headers.get("set-cookie")!.split(";")[0]!;
  const post = async (config: object) => {
    const reply = await fetch(`${url}/gateway/reload?dry_run=true`, {
      method: "POST",
      headers: { Cookie, "Content-Type": "application/json" },
      body: textOf(config),
    });
    return { status: reply.status, text: await reply.text(), retryAfter: reply.headers.get("retry-after") };
  };
  return { folder: dirname(file), post };
}

describe("a posted dry run", () => {
  it(
    "tells by no collision of routes, test or digest what a variable or a file holds, " +
      "also where texts must be signed and secrets are masked",
    { timeout: 60_000 },
    async () => {
      const { folder, post } = await attacked();
      const secret = join(folder, "secret.txt");
      writeFileSync(secret, "s-in-a-file");
      const match = (value: unknown, name: string) => ({ path: "/x", name, match: { headers: { X: value } } });
      for (const reference of ["${env:ATTACKED}", "${env:ADMIN_JWT_SECRET}", `\${file:${secret}}`, "${env:NOT_SET}"]) {
        const guessed = await Promise.all(
          ["^s", "^x"].map((matches) =>
            post(oneService(9, { routes: [match(reference, "a"), match({ matches }, "b")] as never })),
          ),
        );
        expect(guessed[0]).toEqual(guessed[1]);
        const key = oneService(9, { plugins: [{ name: "key_auth", config: { key: reference } }] });
        const guess = (matches: string) => ({
          ...key,
          tests: [
            { name: "t", request: { url: "/a/x", headers: { apiKey: reference } }, expect: { body: { matches } } },
          ],
        });
        const tested = await Promise.all(["^s", "^x"].map((matches) => post(guess(matches))));
        expect(tested[0]).toEqual(tested[1]);
        expect(JSON.parse(tested[0]!.text)).toMatchObject({ tests: { passed: 0, failed: 0, not_run: 1 } });
      }
      const digest = createHash("sha256").update("s-in-a-file").digest("hex");
      const named = await post(oneService(9, {}, { plugin_modules: [{ path: secret }] } as never));
      expect(named.text).toContain("is not a module of the configuration in force");
      expect(named.text).not.toContain(digest);
    },
  );

  it("waits for one before it, of which four may wait, and the next is refused with 503 and Retry-After", async () => {
    const { post } = await attacked();
    const replies = await Promise.all(Array.from({ length: 12 }, () => post(oneService(9))));
    const refused = replies.filter(({ status }) => status === 503);
    expect(replies.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(5);
    expect(replies.length).toBe(refused.length + replies.filter(({ status }) => status === 200).length);
    expect(refused.length).toBeGreaterThan(0);
    for (const { text, retryAfter } of refused)
      expect([JSON.parse(text), retryAfter]).toEqual([
        expect.objectContaining({
          code: "overloaded",
          detail: "Too many configurations are being received, or waiting.",
        }),
        "5",
      ]);
    expect((await post(oneService(9))).status).toBe(200);
  });
});
