import { describe, expect, it } from "vitest";
import { memoryFiles } from "../support/acme_files.ts";
import { problem } from "./fake_directory.ts";
import { kept, keptValid, nextAttempt, type Kept } from "./kept.ts";

const SECRET = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
const EAB = { kid: "kid-1", hmacKey: Buffer.from(SECRET, "base64url") };

const keyOf = ({ files }: Kept) => files.content.get("account.key")!;

describe("an account", () => {
  it("is registered once, with its key on disk before", async () => {
    const made = await kept();
    made.directory.instead = ({ path }) => {
      if (path === "/new-account") expect(made.files.content.has("account.key")).toBe(true);
      return undefined;
    };
    made.keeper.start();
    await made.settled();
    await made.keeper.close();
    made.files.content.delete("certificates.pem");
    const again = made.again();
    again.keeper.start();
    await again.settled();
    expect(again.keeper.state.state).toBe("valid");
    expect(made.directory.accounts.length).toBe(1);
  });

  it("gets another contact where the configuration has one", async () => {
    const made = await keptValid();
    await made.keeper.close();
    made.files.content.delete("certificates.pem");
    const again = made.again({ email: "other@example.com" });
    again.keeper.start();
    await again.settled();
    const changes = made.directory.asked.filter(({ path, payload }) => path === "/account/0" && payload !== null);
    expect(changes.map(({ payload }) => payload)).toEqual([{ contact: ["mailto:other@example.com"] }]);
  });

  it("gets another contact with a reload", async () => {
    const made = await keptValid();
    made.keeper.configure({ ...made.settings, email: "other@example.com", hosts: ["c.example"] });
    await made.settled();
    const changes = made.directory.asked.filter(({ path, payload }) => path === "/account/0" && payload !== null);
    expect(changes.map(({ payload }) => payload)).toEqual([{ contact: ["mailto:other@example.com"] }]);
  });

  it("is registered again where the directory has forgotten it", async () => {
    const made = await keptValid();
    made.directory.accounts.length = 0;
    made.keeper.configure({ ...made.settings, hosts: ["c.example"] });
    await made.settled();
    made.clock.advance(10_000);
    await made.until(() => made.keeper.state.state === "valid");
    expect(made.directory.accounts.length).toBe(1);
  });

  it("is bound to an external account, whose key is in no log", async () => {
    const made = await kept({ eab: EAB });
    made.directory.requiresEab = SECRET;
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state).toMatchObject({ state: "valid" });
    expect(made.lines.join("")).not.toContain(SECRET);
  });

  it("without a binding to an external account that the directory requires is an error that says so", async () => {
    const made = await kept();
    made.directory.requiresEab = SECRET;
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.error).toContain("configure eab");
    expect(made.directory.asked.some(({ path }) => path === "/new-account")).toBe(false);
  });

  it.each(["", "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n-----END PRIVATE KEY-----\n"])(
    "whose key is damaged (%j) is an error, the file stays, and nothing is asked in its name",
    async (content) => {
      const made = await kept();
      made.files.content.set("account.key", Buffer.from(content));
      made.keeper.start();
      await made.settled();
      expect(made.keeper.state.error).toContain(
        "account.key is damaged, or no EC key on P-256: restore it from a copy",
      );
      expect(String(keyOf(made))).toBe(content);
      expect(made.directory.accounts).toEqual([]);
      expect(made.lines.join("")).not.toContain("MIGHAgEAMBMG");
    },
  );

  it("whose key cannot be read is an error, and the file stays", async () => {
    const files = memoryFiles((change) => {
      if (change === "read account.key") throw new Error("account.key cannot be read: permission denied");
    });
    const made = await kept({}, { files });
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.error).toBe("account.key cannot be read: permission denied");
    expect(files.changes).toEqual([]);
  });

  it("that is deactivated while it is in use is looked up again, and the error says so", async () => {
    const made = await keptValid();
    made.directory.instead = ({ path }) => (path === "/new-order" ? problem("unauthorized", "not valid") : undefined);
    made.directory.amend = ({ path }, answer) =>
      path === "/new-account" ? { ...answer, body: { status: "deactivated" } } : answer;
    made.keeper.configure({ ...made.settings, hosts: ["c.example"] });
    await made.settled();
    expect(made.keeper.state.error).toBe("unauthorized: not valid");
    await nextAttempt(made);
    expect(made.keeper.state.error).toBe("the account is deactivated: remove account.key for a new one");
  });

  it("that is deactivated is an error that says what to do", async () => {
    const made = await keptValid();
    await made.keeper.close();
    made.directory.amend = ({ path }, answer) =>
      path === "/new-account" ? { ...answer, body: { status: "deactivated" } } : answer;
    const again = made.again({ hosts: ["c.example"] });
    again.keeper.start();
    await again.settled();
    expect(again.keeper.state.error).toBe("the account is deactivated: remove account.key for a new one");
  });
});

describe("another key of the account", () => {
  it("is on disk before the directory gets it, and in force afterwards", async () => {
    const made = await keptValid();
    const former = keyOf(made);
    made.directory.instead = ({ path }) => {
      if (path === "/key-change") {
        expect(made.files.content.has("account-next.key")).toBe(true);
        expect(keyOf(made)).toEqual(former);
      }
      return undefined;
    };
    await made.keeper.rollover();
    expect(keyOf(made)).not.toEqual(former);
    expect(made.files.content.has("account-next.key")).toBe(false);
    made.keeper.configure({ ...made.settings, hosts: ["c.example"] });
    await made.settled();
    expect(made.keeper.state.state).toBe("valid");
    expect(made.directory.accounts.length).toBe(1);
  });

  it("can be had before the start", async () => {
    const made = await keptValid();
    await made.keeper.close();
    const former = keyOf(made);
    const other = made.again();
    await other.keeper.rollover();
    await other.keeper.close();
    expect(keyOf(made)).not.toEqual(former);
    expect(other.presented()).toEqual([]);
  });

  it("that the directory refuses leaves the former one", async () => {
    const made = await keptValid();
    const former = keyOf(made);
    made.directory.instead = ({ path }) => (path === "/key-change" ? problem("malformed", "no", {}, 409) : undefined);
    await expect(made.keeper.rollover()).rejects.toThrow("malformed: no");
    expect(keyOf(made)).toEqual(former);
    expect(made.files.content.has("account-next.key")).toBe(false);
    expect(made.keeper.state.state).toBe("valid");
  });

  it.each([
    ["has taken", true],
    ["has not got", false],
  ])("whose answer is lost, and which the directory %s: the next start knows", async (_how, isTaken) => {
    const made = await keptValid();
    const former = keyOf(made);
    let isDown = false;
    made.directory.instead = ({ path }) => {
      if (isDown || (path === "/key-change" && !isTaken)) {
        isDown = true;
        return "broken";
      }
      isDown = path === "/key-change";
      return undefined;
    };
    made.directory.amend = ({ path }, answer) => (path === "/key-change" ? { status: 500 } : answer);
    await expect(made.keeper.rollover()).rejects.toThrow();
    await made.keeper.close();
    const next = String(made.files.content.get("account-next.key"));
    made.directory.instead = () => undefined;
    made.directory.amend = (_asked, answer) => answer;
    const again = made.again({ hosts: ["c.example"] });
    again.keeper.start();
    await again.settled();
    expect(again.keeper.state).toMatchObject({ state: "valid", error: null });
    expect(String(keyOf(made))).toBe(
      isTaken ? next.replace(`Directory: ${made.settings.directory}\n`, "") : String(former),
    );
    expect(made.files.content.has("account-next.key")).toBe(false);
    expect(made.directory.accounts.length).toBe(1);
  });

  it.each([
    ["an error", { status: 500 }],
    ["a URL of another server", { headers: { Location: "https://169.254.169.254/" } }],
  ])("that the directory has taken, and answers with %s, is in force", async (_what, answer) => {
    const made = await keptValid();
    const former = keyOf(made);
    made.directory.amend = ({ path }, given) => (path === "/key-change" ? answer : given);
    await made.keeper.rollover();
    expect(keyOf(made)).not.toEqual(former);
    made.keeper.configure({ ...made.settings, hosts: ["c.example"] });
    await made.settled();
    expect(made.keeper.state.state).toBe("valid");
    expect(made.directory.accounts.length).toBe(1);
  });

  it("that the directory has, but the disk not yet, is taken at the next start", async () => {
    let isReadOnly = false;
    const files = memoryFiles((change) => {
      if (isReadOnly && change === "write account.key") throw new Error("EROFS: read-only file system");
    });
    const made = await keptValid({}, { files });
    const former = keyOf(made);
    isReadOnly = true;
    await expect(made.keeper.rollover()).rejects.toThrow(
      "the directory has taken the new key, and the next request will put it in place: account.key cannot be written",
    );
    await made.keeper.close();
    isReadOnly = false;
    const again = made.again({ hosts: ["c.example"] });
    again.keeper.start();
    await again.settled();
    expect(again.keeper.state.state).toBe("valid");
    expect(keyOf(made)).not.toEqual(former);
    expect(made.directory.accounts.length).toBe(1);
  });

  it("whose answer is lost waits for its directory while another one is configured", async () => {
    const made = await keptValid();
    const former = keyOf(made);
    let isDown = false;
    made.directory.instead = ({ path }) => {
      if (isDown) return "broken";
      isDown = path === "/key-change";
      return undefined;
    };
    made.directory.amend = ({ path }, answer) => (path === "/key-change" ? { status: 500 } : answer);
    await expect(made.keeper.rollover()).rejects.toThrow();
    await made.keeper.close();
    made.directory.instead = () => undefined;
    made.directory.amend = (_asked, answer) => answer;
    // The same server, as another one is: by another name.
    const url = made.settings.directory.replace("/dir", "/x/../dir");
    const other = made.again({ directory: url, hosts: ["c.example"] });
    other.keeper.start();
    await other.settled();
    expect(other.keeper.state).toMatchObject({ state: "valid", error: null });
    expect([keyOf(made), made.files.content.has("account-next.key")]).toEqual([former, true]);
    await expect(other.keeper.rollover()).rejects.toThrow(
      `account-next.key is of a replacement at ${made.settings.directory} that was interrupted`,
    );
    await other.keeper.close();
    const again = made.again({ hosts: ["d.example"] });
    again.keeper.start();
    await again.settled();
    expect(again.keeper.state.state).toBe("valid");
    expect([keyOf(made).equals(former), made.files.content.has("account-next.key")]).toEqual([false, false]);
  });

  it.each(["", "no key\n"])("that is damaged on disk (%j) is an error that names its file", async (content) => {
    const made = await keptValid();
    await made.keeper.close();
    made.files.content.set("account-next.key", Buffer.from(content));
    const again = made.again({ hosts: ["c.example"] });
    again.keeper.start();
    await again.settled();
    expect(again.keeper.state.error).toContain("account-next.key is damaged: restore it from a copy");
    expect(made.files.content.has("account-next.key")).toBe(true);
  });

  it("is refused while an order is under way", async () => {
    const made = await kept();
    made.directory.instead = ({ path }) => (path === "/new-order" ? "no answer" : undefined);
    made.keeper.start();
    await made.until(() => made.directory.asked.some(({ path }) => path === "/new-order"));
    await expect(made.keeper.rollover()).rejects.toThrow("an order is under way: try again once it has ended");
  });
});
