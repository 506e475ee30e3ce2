/** What the program does with `global.acme` before a certificate is ordered. */
import { describe, expect, it } from "vitest";
import { createGateway } from "../../lib/index.ts";
import { oneService } from "../support/gateway.ts";
import { fileWith, program } from "../support/process.ts";

const ACME = { directory: "https://127.0.0.1:9/directory", hosts: ["shop.example"], terms_agreed: true };
const withAcme = (acme: object = {}, global: object = {}) =>
  oneService(9, {}, { acme: { ...ACME, ...acme }, ...global } as never);
const run = (words: readonly string[], environment: Record<string, string> = {}) =>
  program(words, { environment }).ended;

describe("global.acme without what it needs", () => {
  it("ends the start with 2 and a sentence where STATE_DIR is not set", async () => {
    const { code, stderr } = await run(["--config", fileWith(withAcme(), "gw.json")]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/gw\.json:1:\d+ +global\.acme +needs STATE_DIR \(--state-dir\), a folder where the account/);
  });

  it("ends the start with 2 where http-01 has no plain port, and validate refuses it then", async () => {
    const file = fileWith(withAcme());
    for (const words of [
      ["--config", file, "--state-dir", "/nowhere"],
      ["validate", file],
    ]) {
      const { code, stderr } = await run([...words, "--http-port", "off"]);
      expect([code, stderr]).toEqual([2, expect.stringContaining('global.acme.challenge  is "http-01", which is')]);
    }
    const overTls = fileWith(withAcme({ challenge: "tls-alpn-01" }));
    expect(await run(["validate", overTls, "--http-port", "off"])).toMatchObject({ code: 0 });
  });

  it("is refused by createGateway, which keeps no certificates, with a sentence", () => {
    expect(() => createGateway({ config: withAcme() })).toThrow(
      /global\.acme +is for the program edge-gateway, which keeps certificates in STATE_DIR/,
    );
  });
});

describe("commands that look at global.acme", () => {
  it("validate, test, diff and explain need no STATE_DIR, and ask nobody", async () => {
    const file = fileWith(withAcme({}, { https_redirect: {} }));
    const commands = [
      ["validate", file],
      ["test", file],
      ["diff", file, file],
      ["explain", "--config", file, "GET", "/a/x"],
    ];
    for (const words of commands)
      expect([words[0], await run(words)]).toEqual([words[0], expect.objectContaining({ code: 0 })]);
    expect((await run(["validate", file, "--settings", "none"])).stdout).not.toContain("the settings decide");
  });

  it("audit lists the HTTPS port, which it opens", async () => {
    const audited = JSON.parse((await run(["audit", fileWith(withAcme()), "--json"])).stdout) as {
      listens: { port: number; why: string }[];
    };
    expect(audited.listens.filter(({ why }) => why === "https").map(({ port }) => port)).toEqual([8443, 8443]);
  });
});
