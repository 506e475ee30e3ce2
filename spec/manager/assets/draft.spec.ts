import { describe, expect, it, vi } from "vitest";
import { Draft, type Source } from "../../../lib/manager/assets/draft.ts";

const A: Source = { text: '{"services":[]}', digest: "aaaaaaaaaaaa" };
const B: Source = { text: '{"services":[1]}', digest: "bbbbbbbbbbbb" };

/** A draft of a file that is `source.now`. */
function draftOf(source: { now: Source | Error }): Draft {
  return new Draft(() => (source.now instanceof Error ? Promise.reject(source.now) : Promise.resolve(source.now)));
}

describe("the text under edit", () => {
  it("is that of the file once loaded, and dirty while it differs from it", async () => {
    const draft = draftOf({ now: A });
    expect([draft.isDirty, draft.text]).toEqual([false, ""]);
    await draft.load();
    expect([draft.isDirty, draft.text, draft.baseText, draft.baseDigest]).toEqual([false, A.text, A.text, A.digest]);
    draft.setText("{}");
    expect([draft.isDirty, draft.text, draft.baseText]).toEqual([true, "{}", A.text]);
    draft.discard();
    expect([draft.isDirty, draft.text]).toEqual([false, A.text]);
  });

  it("is made from what is being typed once somebody looks, and listeners hear of it when the keys rest", async () => {
    const draft = draftOf({ now: A });
    await draft.load();
    const heard: string[] = [];
    draft.onChange(() => heard.push(draft.text));
    let made = 0;
    draft.setLater(() => (made++, "{1}"));
    draft.setLater(() => (made++, "{2}"));
    expect([made, heard]).toEqual([0, []]);
    expect([draft.isDirty, draft.text, made]).toEqual([true, "{2}", 1]);
    draft.setText("{2}");
    draft.setText("{2}");
    expect([heard, made]).toEqual([["{2}"], 1]);
    draft.setLater(() => "{3}");
    draft.forget();
    expect(draft.text).toBe("");
  });

  it("follows the file while it is unchanged, and stays with its base while it is dirty", async () => {
    const file = { now: A };
    const draft = draftOf(file);
    await draft.load();
    file.now = B;
    await draft.load();
    expect([draft.text, draft.baseDigest]).toEqual([B.text, B.digest]);
    draft.setText("{}");
    file.now = A;
    await draft.load();
    expect([draft.text, draft.baseDigest]).toEqual(["{}", B.digest]);
    await draft.rebase();
    expect([draft.text, draft.baseDigest, draft.isDirty]).toEqual(["{}", A.digest, true]);
  });

  it(
    "knows that the file was changed since, as the gateway tells it or as it is " + "read, until it is the base",
    async () => {
      const file = { now: A };
      const draft = draftOf(file);
      // Of before the file was read: what stays may be older than the base.
      draft.seeFile(B.digest);
      await draft.load();
      draft.seeFile(B.digest);
      expect(draft.isStale).toBe(false);
      draft.seeFile(A.digest);
      draft.seeFile(B.digest);
      expect(draft.isStale).toBe(true);
      draft.seeFile(A.digest);
      expect(draft.isStale).toBe(false);
      draft.setText("{}");
      file.now = B;
      await draft.load();
      await vi.waitFor(() => expect(draft.isStale).toBe(true));
      expect(draft.baseDigest).toBe(A.digest);
      await draft.rebase();
      expect([draft.isStale, draft.baseDigest, draft.text]).toEqual([false, B.digest, "{}"]);
    },
  );

  it("keeps what was typed while a changed file was read with its base, and is stale until a rebase", async () => {
    let answer!: (source: Source) => void;
    const draft = new Draft(() => new Promise((resolve) => (answer = resolve)));
    const first = draft.load();
    answer(A);
    await first;
    const [second, third] = [draft.load(), draft.load()];
    draft.setText("typed");
    answer(B);
    await Promise.all([second, third]);
    expect([draft.text, draft.baseDigest, draft.isStale]).toEqual(["typed", A.digest, true]);
    const rebased = draft.rebase();
    answer(B);
    await rebased;
    expect([draft.text, draft.baseDigest, draft.isStale]).toEqual(["typed", B.digest, false]);
  });

  it("is not stale when the file that was read while somebody typed is its base", async () => {
    let answer!: (source: Source) => void;
    const draft = new Draft(() => new Promise((resolve) => (answer = resolve)));
    const first = draft.load();
    answer(A);
    await first;
    const second = draft.load();
    draft.setLater(() => "typed");
    answer({ ...A });
    await second;
    expect([draft.text, draft.baseDigest, draft.isStale]).toEqual(["typed", A.digest, false]);
  });

  it("changes nothing if the file cannot be read, and reads it again on the next try", async () => {
    const file: { now: Source | Error } = { now: A };
    const draft = draftOf(file);
    await draft.load();
    file.now = new Error("gone");
    await expect(draft.load()).rejects.toThrow("gone");
    expect(draft.text).toBe(A.text);
    file.now = B;
    await draft.load();
    expect(draft.text).toBe(B.text);
  });

  it("has the applied text as its base after it was applied", async () => {
    const draft = draftOf({ now: A });
    await draft.load();
    draft.setText(B.text);
    draft.setBase(B);
    expect([draft.isDirty, draft.baseDigest]).toEqual([false, B.digest]);
  });

  it("is forgotten when another user signs in, also if the file arrives later, and kept for the same one", async () => {
    const draft = draftOf({ now: A });
    draft.keepFor("ann");
    await draft.load();
    draft.setText("secret");
    draft.keepFor("ann");
    expect(draft.text).toBe("secret");
    const late = draft.rebase();
    draft.keepFor("ben");
    await late;
    expect([draft.text, draft.baseText, draft.isDirty]).toEqual(["", "", false]);
    // The other user reads the file with rights of their own.
    void draft.load();
    draft.keepFor("cem");
    await draft.load();
    expect(draft.text).toBe(A.text);
  });

  it("reports each change of the text or its base to its listeners until they end that", async () => {
    const draft = draftOf({ now: A });
    const seen: string[] = [];
    const end = draft.onChange(() => seen.push(draft.text));
    await draft.load();
    draft.setText(A.text);
    draft.setText("{}");
    draft.discard();
    draft.forget();
    end();
    draft.setText("later");
    expect(seen).toEqual([A.text, "{}", A.text, ""]);
  });
});
