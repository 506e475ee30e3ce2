import { generateKeyPairSync, hash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { verifySignature } from "../../lib/base/signature.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { oneService } from "../support/gateway.ts";
import { etcdError, etcdStandIn, type EtcdStandIn } from "../support/etcd_stand_in.ts";
import { fileWith, program } from "../support/process.ts";

const keys = generateKeyPairSync("ed25519");
const PRIVATE = String(keys.privateKey.export({ type: "pkcs8", format: "pem" }));
const PUBLIC = String(keys.publicKey.export({ type: "spki", format: "pem" }));
const old: AnyConfigInput = oneService(9, { routes: [{ name: "items", path: "/items" }] });
const next: AnyConfigInput = oneService(9, { routes: [{ name: "items", path: "/things" }] });

const urlOf = ({ url }: EtcdStandIn) => `etcd://${url.host}/gw`;
const run = (...words: string[]) => program(["publish", ...words]).ended;
const textOf = ({ cluster }: EtcdStandIn, key = "gw") => cluster.keys.get(key)?.value.toString();
const digestOf = (config: unknown) => hash("sha256", JSON.stringify(config)).slice(0, 12);
const written = (config: unknown) => JSON.stringify(config);

describe("edge-gateway publish", () => {
  it("writes the text, and prints its revision and digest; the same text again is not written; exit 0", async () => {
    const member = await etcdStandIn();
    const file = fileWith(old);
    const first = await run(file, urlOf(member));
    expect(first).toMatchObject({ code: 0, stderr: "" });
    expect(first.stdout).toBe(
      `${urlOf(member)} has no text yet\n${urlOf(member)} is written: rev:2, digest ${digestOf(old)}\n`,
    );
    expect(textOf(member)).toBe(written(old));
    const again = await run(file, urlOf(member));
    expect(again).toMatchObject({ code: 0 });
    expect(again.stdout).toContain(`has this text already: rev:2, digest ${digestOf(old)}`);
    expect(member.cluster.revision).toBe(2);
  });

  it("prints what differs from the text that is there, and with --json all of it", async () => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: written(old) });
    const { code, stdout } = await run(fileWith(next), urlOf(member));
    expect(code).toBe(0);
    expect(stdout).toMatch(/^routes changed:\n {2}s \/ items: path \/items is now \/things\n/);
    const json = await run(fileWith(old), urlOf(member), "--json");
    expect(JSON.parse(json.stdout)).toMatchObject({
      key: urlOf(member),
      written: true,
      before: { revision: "rev:3", digest: digestOf(next) },
      revision: "rev:4",
      digest: digestOf(old),
      tests: { passed: 0, failed: 0 },
      diff: { changed: [{ service: "s", route: "items" }] },
    });
  });

  it("writes nothing with --dry-run", async () => {
    const member = await etcdStandIn();
    const { code, stdout } = await run(fileWith(old), urlOf(member), "--dry-run");
    expect([code, textOf(member)]).toEqual([0, undefined]);
    expect(stdout).toContain(`would get the digest ${digestOf(old)}; nothing was written`);
  });

  it("signs the text with --sign, in the same transaction", async () => {
    const member = await etcdStandIn();
    const environment = { CONFIG_PUBLIC_KEY: fileWith(PUBLIC, "public.pem") };
    const words = ["publish", fileWith(old), urlOf(member), "--sign", fileWith(PRIVATE, "private.pem")];
    expect(await program(words, { environment }).ended).toMatchObject({ code: 0, stderr: "" });
    expect(member.cluster.revision).toBe(2);
    const signature = textOf(member, "gw.sig")!;
    expect(verifySignature(Buffer.from(written(old)), signature, PUBLIC).problem).toBeUndefined();
    const unsigned = await run(fileWith(next), urlOf(member));
    expect(unsigned.code).toBe(2);
    expect(unsigned.stderr).toContain("is signed: sign the new text too, with --sign private.pem");
    expect(textOf(member)).toBe(written(old));
  });

  it("refuses a key for --sign that is not among CONFIG_PUBLIC_KEY; exit 2", async () => {
    const member = await etcdStandIn();
    const other = String(generateKeyPairSync("ed25519").publicKey.export({ type: "spki", format: "pem" }));
    const environment = { CONFIG_PUBLIC_KEY: fileWith(other, "public.pem") };
    const words = ["publish", fileWith(old), urlOf(member), "--sign", fileWith(PRIVATE, "private.pem")];
    const { code, stderr } = await program(words, { environment }).ended;
    expect([code, member.asked]).toEqual([2, []]);
    expect(stderr).toContain("is not signed by the public key");
    const unsigned = await program(words.slice(0, 3), { environment }).ended;
    expect(unsigned).toMatchObject({
      code: 2,
      stderr: "edge-gateway: CONFIG_PUBLIC_KEY is set: the text has to be signed, with --sign private.pem\n",
    });
  });

  it.each([
    ["rev:2", 0],
    ["rev:1", 1],
    ["0", 1],
    [digestOf(old), 0],
    [hash("sha256", JSON.stringify(old)).toUpperCase(), 0],
    [digestOf(next), 1],
  ])("writes over revision 2 with --expect %s: exit %i", async (expected, code) => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: written(old) });
    const ended = await run(fileWith(next), urlOf(member), "--expect", expected);
    expect(ended.code).toBe(code);
    expect(textOf(member)).toBe(written(code === 0 ? next : old));
    if (code === 1)
      expect(ended.stderr).toBe(
        `edge-gateway: ${urlOf(member)} is not what --expect names: it has rev:2, digest ${digestOf(old)}; ` +
          `nothing was written\n`,
      );
  });

  it.each([
    ["0", 0],
    ["rev:2", 1],
    [digestOf(old), 1],
  ])("writes where there is no key with --expect %s: exit %i", async (expected, code) => {
    const member = await etcdStandIn();
    const ended = await run(fileWith(next), urlOf(member), "--expect", expected);
    expect([ended.code, textOf(member)]).toEqual([code, code === 0 ? written(next) : undefined]);
  });

  it("writes nothing where somebody else has written since the comparison; exit 1", async () => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: written(old) });
    let isFirst = true;
    member.answers.set("/v3/kv/txn", (message) => {
      if (isFirst && JSON.stringify(message).includes("request_put")) {
        isFirst = false;
        member.cluster.put({ gw: "{}" });
      }
      return member.answer("/v3/kv/txn", message);
    });
    const { code, stderr } = await run(fileWith(next), urlOf(member));
    expect([code, textOf(member)]).toEqual([1, "{}"]);
    expect(stderr).toMatch(/was written meanwhile: it has rev:3, digest \w{12}; nothing was written\n$/);
  });

  it("writes nothing where a test fails, and prints which; exit 1", async () => {
    const member = await etcdStandIn();
    const tests = [{ name: "items", request: { url: "/a/items" }, expect: { status: 404 } }];
    const { code, stderr } = await run(fileWith({ ...old, tests }), urlOf(member));
    expect([code, member.asked]).toEqual([1, []]);
    expect(stderr).toContain("FAIL  items");
  });

  it("writes nothing where the serial is lower than that which is there, or is missing; exit 1", async () => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: written({ ...old, serial: 7 }) });
    for (const config of [next, { ...next, serial: 6 }]) {
      const { code, stderr } = await run(fileWith(config), urlOf(member));
      expect(code).toBe(1);
      expect(stderr).toMatch(/has serial 7, and the new text (?:6|none): gateways refuse it; nothing was written/);
    }
    expect((await run(fileWith({ ...next, serial: 7 }), urlOf(member))).code).toBe(0);
  });

  it("compares with no text that CONFIG_PUBLIC_KEY has not signed: modules of it would run", async () => {
    const member = await etcdStandIn();
    const environment = { CONFIG_PUBLIC_KEY: fileWith(PUBLIC, "public.pem") };
    const publish = (config: AnyConfigInput) =>
      program(["publish", fileWith(config), urlOf(member), "--sign", fileWith(PRIVATE, "private.pem")], { environment })
        .ended;
    member.cluster.put({ gw: written(old) });
    const first = await publish(next);
    expect(first).toMatchObject({ code: 0, stderr: "" });
    expect(first.stdout).toContain("has a text that CONFIG_PUBLIC_KEY has not signed, and is not compared");
    expect((await publish(old)).stdout).toMatch(/^routes changed:/);
  });

  it("publishes over a text that is not valid, and says that it is not compared", async () => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: "{" });
    const { code, stdout } = await run(fileWith(next), urlOf(member));
    expect([code, textOf(member)]).toEqual([0, written(next)]);
    expect(stdout).toContain("has a text that is not valid here, and is not compared");
  });

  it.each([
    ["errors", { ...old, what: 1 }, /what +is not a known field/],
    ["a file without an absolute path", { ...old, test_files: ["tests.json"] }, /absolute/],
    ["an end that is over", { ...old, expires_at: "2026-01-01T00:00:00Z" }, /has ended at 2026-01-01T00:00:00Z/],
    ["no text", "", /is empty/],
  ])("refuses a configuration with %s before etcd is asked; exit 2", async (_what, config, message) => {
    const member = await etcdStandIn();
    const { code, stderr } = await run(fileWith(config, "gw.json"), urlOf(member));
    expect([code, member.asked]).toEqual([2, []]);
    expect(stderr).toMatch(message);
  });

  it("refuses to sign a configuration that names files without their digests; exit 2", async () => {
    const member = await etcdStandIn();
    const config = { ...old, test_files: [fileWith("[]", "tests.json")] };
    const { code, stderr } = await run(
      ...[fileWith(config), urlOf(member), "--sign", fileWith(PRIVATE, "private.pem")],
    );
    expect([code, member.asked]).toEqual([2, []]);
    expect(stderr).toContain("names files without their SHA-256, which a signed configuration needs: edge-gateway pin");
  });

  it("says before that a text is beyond etcd's default limit; exit 1 where etcd refuses it", async () => {
    const member = await etcdStandIn();
    const large = { ...old, global: { name: "g".repeat(100) }, tests: [] as unknown[] };
    const text = JSON.stringify(large) + " ".repeat(1_600_000);
    member.answers.set("/v3/kv/txn", (message) =>
      JSON.stringify(message).includes("request_put")
        ? etcdError("etcdserver: request is too large", 3)
        : member.answer("/v3/kv/txn", message),
    );
    const { code, stderr } = await run(fileWith(text, "gw.json"), urlOf(member));
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /etcd takes requests of 1\.5 MiB unless it is started with --max-request-bytes 16\d{5} or more/,
    );
    expect(stderr).toMatch(/request is too large; start each member of etcd with a higher --max-request-bytes/);
  });

  it("exits with 1 where etcd cannot be asked, or refuses the user", async () => {
    const closed = await run(fileWith(old), "etcd://127.0.0.1:1/gw");
    expect(closed.code).toBe(1);
    expect(closed.stderr).toContain("etcd at 127.0.0.1:1: ");
    const member = await etcdStandIn();
    member.users = { anna: "geheim" };
    const environment = { ETCD_USER: "anna", ETCD_PASSWORD_FILE: fileWith("falsch", "password") };
    const refused = await program(["publish", fileWith(old), urlOf(member)], { environment }).ended;
    expect(refused.code).toBe(1);
    expect(refused.stderr).not.toContain("falsch");
  });

  it.each([
    [[], /publish needs a configuration and a key/],
    [["gw.json"], /publish needs a configuration and a key/],
    [["gw.json", "https://localhost/gw"], /expected the URL of a key in etcd/],
    [["gw.json", "etcd://localhost/gw", "--expect", "42"], /--expect: expected rev:N, a digest/],
    [["/nowhere/gw.json", "etcd://localhost/gw"], /cannot read the configuration \/nowhere\/gw.json/],
  ])("exits with 2 for the command line %j", async (words, message) => {
    const { code, stderr } = await run(...words);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });
});
