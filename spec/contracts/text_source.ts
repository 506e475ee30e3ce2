/** What every source of a configuration's text has to do, whatever it is. */
import { describe, expect, it } from "vitest";
import type { SourceText, TextSource } from "../../lib/config/text_source.ts";
import { atOnce } from "../../lib/base/time_slices.ts";

export interface SourceUnderTest {
  /** Asks often, and is closed when the test ends. Nothing has been received. */
  readonly source: TextSource;
  /** Replaces text and signature. Null: there is no signature. */
  put(text: string, signature: string | null): unknown;
  /** Removes both. */
  remove(): unknown;
}

export function textSourceContract(kind: string, open: () => Promise<SourceUnderTest>): void {
  const now = ({ source }: SourceUnderTest): SourceText => atOnce(source.current());
  /** Resolves when the source reports a change. */
  const change = ({ source }: SourceUnderTest) =>
    new Promise<void>((done) => {
      const stop = source.onChange(() => {
        stop();
        done();
      });
    });
  const started = async (text: string, signature: string | null = null) => {
    const under = await open();
    await under.put(text, signature);
    await under.source.refresh();
    return under;
  };

  describe(`a source of a configuration (${kind})`, () => {
    it("has the text with its signature, byte by byte", async () => {
      const under = await started('{"ü":"\\u0000"}\r\n', "c2lnbmF0dXJl\n");
      const { text, signature } = now(under);
      expect([text.toString(), signature]).toEqual(['{"ü":"\\u0000"}\r\n', "c2lnbmF0dXJl\n"]);
    });

    it("has no signature where there is none", async () => {
      expect(now(await started("{}")).signature).toBeNull();
    });

    it("has a new text after it was asked", async () => {
      const under = await started("{}");
      await under.put('{"a":1}', "s");
      await under.source.refresh();
      const { text, signature } = now(under);
      expect([text.toString(), signature]).toEqual(['{"a":1}', "s"]);
    });

    it("reports a new text, and each further one", async () => {
      const under = await started("{}");
      for (const text of ['{"a":1}', '{"a":2}']) {
        const changed = change(under);
        await under.put(text, null);
        await changed;
        expect(now(under).text.toString()).toBe(text);
      }
    });

    it("reports a text that goes, does not give the old one, and reports one that comes back", async () => {
      const under = await started("{}");
      await under.remove();
      await under.source.refresh();
      expect(() => now(under)).toThrow();
      const changed = change(under);
      await under.put("{}", null);
      await changed;
      expect(now(under).text.toString()).toBe("{}");
    });

    it("calls no listener that has gone, and none after its end", async () => {
      const under = await started("{}");
      let calls = 0;
      under.source.onChange(() => void calls++)();
      const changed = change(under);
      await under.put('{"a":1}', null);
      await changed;
      under.source.onChange(() => void calls++);
      under.source.close();
      await under.put('{"a":2}', null);
      await new Promise((done) => setImmediate(done));
      expect(calls).toBe(0);
    });
  });
}
