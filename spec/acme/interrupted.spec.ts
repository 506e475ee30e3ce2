import { describe, expect, it } from "vitest";
import { memoryFiles, type MemoryFiles } from "../support/acme_files.ts";
import { kept, keptValid, namesOf } from "./kept.ts";

/** The files as a program leaves them that is killed behind each change. */
function snapshots(files: MemoryFiles): Map<string, Buffer>[] {
  const taken: Map<string, Buffer>[] = [];
  for (const name of ["write", "remove"] as const) {
    const change = files[name].bind(files) as (...of: never[]) => Promise<void>;
    files[name] = async (...of: never[]) => {
      await change(...of);
      taken.push(new Map(files.content));
    };
  }
  return taken;
}

describe("a program that is killed", () => {
  it("behind any change of its files goes on: with the same account, and with a certificate", async () => {
    const files = memoryFiles();
    const taken = snapshots(files);
    const made = await keptValid({}, { files });
    await made.keeper.rollover();
    await made.keeper.close();
    expect(files.changes).toEqual([
      "write account.key",
      "write order.json",
      "write certificates.pem",
      "remove order.json",
      "write account-next.key",
      "write account.key",
      "remove account-next.key",
    ]);
    // The directory has the new key by now: those before belong to another one.
    for (const content of taken.slice(4)) {
      const left = memoryFiles();
      for (const [name, bytes] of content) left.content.set(name, bytes);
      const again = made.again({ hosts: ["c.example"] }, { files: left });
      again.keeper.start();
      await again.settled();
      expect(again.keeper.state).toMatchObject({ state: "valid", error: null });
      await again.keeper.close();
    }
    expect(made.directory.accounts.length).toBe(1);
  });

  it.each([
    ["the account's key is written", "write account.key"],
    ["the order is written", "write order.json"],
    ["the certificate is written", "write certificates.pem"],
  ])("once %s goes on where it was", async (_when, last) => {
    const files = memoryFiles();
    let isKilled = false;
    let goOn = () => {};
    const write = files.write.bind(files);
    files.write = async (name, bytes) => {
      await write(name, bytes);
      if (isKilled || files.changes.at(-1) !== last) return;
      isKilled = true;
      await new Promise<void>((done) => (goOn = done));
    };
    const made = await kept({}, { files });
    made.keeper.start();
    await made.until(() => isKilled);
    const again = made.again();
    again.keeper.start();
    await again.settled();
    expect(again.keeper.state).toMatchObject({ state: "valid", error: null });
    expect(made.directory.accounts.length).toBe(1);
    expect(made.directory.orders.length).toBe(1);
    expect(namesOf(again.presented()[0]!)).toBe("DNS:a.example, DNS:b.example");
    goOn();
  });

  it.each(["/authorization/0", "/challenge/0", "/challenge/1", "/finalize/0", "/certificate/0"])(
    "at the request for %s continues the order",
    async (at) => {
      const made = await kept();
      made.directory.instead = ({ path }) => (path === at ? "no answer" : undefined);
      made.keeper.start();
      await made.until(() => made.directory.asked.some(({ path }) => path === at));
      await made.keeper.close();
      expect(made.files.content.has("order.json")).toBe(true);
      made.directory.instead = () => undefined;
      const again = made.again();
      again.keeper.start();
      await again.settled();
      expect(again.keeper.state).toMatchObject({ state: "valid", orders: { succeeded: 1, failed: 0 } });
      expect(made.directory.orders.length).toBe(1);
      expect(made.files.content.has("order.json")).toBe(false);
    },
  );

  it("is continued by a clock that is an hour behind: another gateway of a fleet may have begun it", async () => {
    const made = await kept();
    made.directory.amend = ({ path }, answer) => (path.startsWith("/challenge/") ? { status: 500 } : answer);
    made.keeper.start();
    await made.settled();
    await made.keeper.close();
    made.directory.amend = (_asked, answer) => answer;
    made.clock.setWall(-3_600_000);
    const again = made.again();
    again.keeper.start();
    await again.settled();
    expect(again.keeper.state.state).toBe("valid");
    expect(made.directory.orders.length).toBe(1);
  });

  it("while the directory looked gets another order at once: nobody had answered", async () => {
    const made = await kept();
    made.directory.proves = () => ({ type: "urn:ietf:params:acme:error:connection", detail: "refused" });
    made.directory.amend = ({ path }, answer) => (path.startsWith("/challenge/") ? { status: 500 } : answer);
    made.keeper.start();
    await made.settled();
    expect(made.files.content.has("order.json")).toBe(true);
    await made.keeper.close();
    made.directory.amend = (_asked, answer) => answer;
    made.directory.proves = () => null;
    const again = made.again();
    again.keeper.start();
    await again.settled();
    expect(again.keeper.state).toMatchObject({ state: "valid", orders: { succeeded: 1, failed: 0 } });
    expect(made.directory.orders.length).toBe(2);
  });
});

describe("a file that is damaged", () => {
  it.each([
    "not JSON",
    "{}",
    '{"directory":1,"url":2,"hosts":3,"at":4,"key":5}',
    '{"url":"https://other.example/order/1","key":"-----BEGIN PRIVATE KEY-----"}',
  ])("order.json (%s) gives way to another order", async (content) => {
    const made = await kept();
    made.files.content.set("order.json", Buffer.from(content));
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.state).toBe("valid");
    expect(made.files.content.has("order.json")).toBe(false);
  });

  it("certificates.pem is a warning, and other certificates are ordered", async () => {
    const made = await keptValid();
    await made.keeper.close();
    const content = String(made.files.content.get("certificates.pem"));
    made.files.content.set("certificates.pem", Buffer.from(content.slice(0, content.length - 400)));
    const again = made.again();
    again.keeper.start();
    await again.settled();
    expect(made.lines.find((line) => line.includes("certificates.pem"))).toContain("is damaged: ");
    expect(again.keeper.state.state).toBe("valid");
    expect(made.directory.orders.length).toBe(2);
  });

  it("certificates.pem with the key of another certificate is not used", async () => {
    const made = await keptValid();
    const other = await keptValid();
    await made.keeper.close();
    const key = (from: typeof made) =>
      /-----BEGIN PRIVATE KEY[^]*END PRIVATE KEY-----/.exec(String(from.files.content.get("certificates.pem")))![0];
    const mixed = String(made.files.content.get("certificates.pem")).replace(key(made), key(other));
    made.files.content.set("certificates.pem", Buffer.from(mixed));
    const again = made.again();
    again.keeper.start();
    await again.settled();
    expect(made.lines.join("")).toContain("is not for the key that it was ordered with");
    expect(made.directory.orders.length).toBe(2);
  });

  it("certificates.pem that cannot be read is a warning, and gives way to another one", async () => {
    let isUnreadable = true;
    const files = memoryFiles((change) => {
      if (isUnreadable && change === "read certificates.pem") throw new Error("permission denied");
    });
    const made = await kept({}, { files });
    made.keeper.start();
    await made.settled();
    isUnreadable = false;
    expect(made.lines[0]).toContain("certificates.pem cannot be read: permission denied");
    expect(made.keeper.state.state).toBe("valid");
  });
});
