import { describe, expect, it } from "vitest";
import type { LogFields } from "../../lib/base/log.ts";
import { silentLog } from "../../lib/base/log.ts";
import { atOnce } from "../../lib/base/time_slices.ts";
import { SourceFailure, type SourceText, type TextServer } from "../../lib/config/text_source.ts";
import { RemoteSource, type RemoteSourceOptions } from "../../lib/source/remote_source.ts";
import { manualClock } from "../support/clock.ts";

type Answer = SourceText | SourceFailure | null;

const text = (content: string, signature: string | null = null, revision: string | null = null): SourceText => ({
  text: Buffer.from(content),
  signature,
  revision,
});
const down = (why = "connect ECONNREFUSED") => new SourceFailure("unreachable", why);
const gone = () => new SourceFailure("missing", "there is none");

/** Lets all promises that can go on do so. */
const settled = () => new Promise<void>((done) => setImmediate(done));

/** A source over a server whose answers the test gives. */
function asked(answers: Answer[], options: Partial<RemoteSourceOptions> = {}, watches = false) {
  const clock = manualClock();
  const lines: [string, string, LogFields | undefined][] = [];
  const log = {
    ...silentLog,
    info: (message: string, fields?: LogFields) => void lines.push(["info", message, fields]),
    error: (message: string, fields?: LogFields) => void lines.push(["error", message, fields]),
  };
  let running = 0;
  const seen = { asked: 0, most: 0, watched: 0, closed: 0, forgotten: 0 };
  let changed = () => {};
  let endWatch: (error: Error) => void = () => {};
  let release: (() => void) | null = null;
  const held = { isHeld: false, release: () => release?.() };
  const server: TextServer = {
    name: "https://c.example/gw.json",
    pollMs: 10_000,
    async ask() {
      seen.asked++;
      seen.most = Math.max(seen.most, ++running);
      const answer = answers.length > 1 ? answers.shift()! : answers[0]!;
      if (held.isHeld) await new Promise<void>((done) => (release = done));
      await settled();
      running--;
      if (answer instanceof Error) throw answer;
      return answer;
    },
    ...(watches && {
      watch: (report: () => void) => {
        seen.watched++;
        changed = report;
        return new Promise<void>((_done, fail) => (endWatch = fail));
      },
    }),
    forget: () => void seen.forgotten++,
    close: () => void seen.closed++,
  };
  const source = new RemoteSource(server, { clock, log, random: () => 0.5, ...options });
  let changes = 0;
  source.onChange(() => void changes++);
  const now = () => {
    const { value } = source.current().next();
    return (value as SourceText).text.toString();
  };
  const after = async (ms: number) => {
    clock.advance(ms);
    for (let i = 0; i < 6; i++) await settled();
  };
  return {
    source,
    clock,
    lines,
    seen,
    held,
    answers,
    now,
    after,
    changes: () => changes,
    report: () => changed(),
    endWatch: (error: Error) => endWatch(error),
  };
}

describe("a source of texts on a server", () => {
  it("gives what was received last, and asks at the interval of the server", async () => {
    const { source, now, after, seen, changes } = asked([text("a"), null, text("b")]);
    await source.refresh();
    expect(now()).toBe("a");
    await after(9_999);
    expect(seen.asked).toBe(1);
    await after(1);
    expect([seen.asked, now(), changes()]).toEqual([2, "a", 0]);
    await after(10_000);
    expect([seen.asked, now(), changes()]).toEqual([3, "b", 1]);
  });

  it.each([
    [0, 8_000],
    [0.999_999, 12_000],
  ])("asks between 80 and 120 % of the interval (random number %d: %d ms)", async (random, ms) => {
    const { source, after, seen } = asked([text("a")], { random: () => random });
    await source.refresh();
    await after(ms - 5);
    expect(seen.asked).toBe(1);
    await after(5);
    expect(seen.asked).toBe(2);
  });

  it("takes the same content for no change, and another signature for one", async () => {
    const { source, after, changes } = asked([text("a", "s"), text("a", "s"), text("a", "t"), text("a", null)]);
    await source.refresh();
    await after(10_000);
    expect(changes()).toBe(0);
    await after(10_000);
    expect(changes()).toBe(1);
    await after(10_000);
    expect(changes()).toBe(2);
  });

  it("asks again after 0.5 s, doubled up to 10 s, until there is an answer", async () => {
    const { source, after, seen, answers } = asked([down()]);
    await expect(source.refresh()).rejects.toThrow("ECONNREFUSED");
    for (const ms of [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]) {
      const { asked: before } = seen;
      await after(ms - 1);
      expect(seen.asked).toBe(before);
      await after(1);
      expect(seen.asked).toBe(before + 1);
    }
    answers[0] = text("a");
    await after(10_000);
    const { asked: before } = seen;
    await after(9_999);
    expect(seen.asked).toBe(before);
    await after(1);
    expect(seen.asked).toBe(before + 1);
  });

  it("keeps what it has while there is no answer, and logs the beginning and the end of that once", async () => {
    const { source, after, now, lines, changes, clock } = asked([text("a"), down(), down("other"), down(), null]);
    await source.refresh();
    await after(10_000);
    const since = clock.wall();
    expect(source.state).toMatchObject({ isUp: false, since, problem: "connect ECONNREFUSED" });
    await after(500);
    await after(1_000);
    expect(now()).toBe("a");
    await after(2_000);
    expect(changes()).toBe(0);
    expect(source.state).toMatchObject({ isUp: true, since: since + 3_500, problem: null, answeredAt: since + 3_500 });
    expect(lines.map(([level, message]) => [level, message])).toEqual([
      ["error", "the source of the configuration does not answer"],
      ["info", "the source of the configuration answers again"],
    ]);
    expect(lines[1]![2]).toMatchObject({ after_s: 4 });
  });

  it("logs each reason while it waits for the first text", async () => {
    const { source, after, lines } = asked([down("a"), down("a"), down("b"), down("b")]);
    await expect(source.refresh()).rejects.toThrow("a");
    await after(500);
    await after(1_000);
    await after(2_000);
    expect(lines.map(([, , fields]) => fields?.error)).toEqual(["a", "b"]);
  });

  it("reports once that there is no text any more, which it does not give, and one that is there again", async () => {
    const { source, after, now, changes } = asked([text("a"), gone(), gone(), text("a")]);
    await source.refresh();
    await after(10_000);
    expect(changes()).toBe(1);
    expect(now).toThrow("there is none");
    expect(source.state).toMatchObject({ isUp: true, problem: "there is none" });
    await after(10_000);
    expect(changes()).toBe(1);
    await after(10_000);
    expect([changes(), now(), source.state.problem]).toEqual([2, "a", null]);
  });

  it("asks with back-off while there was never a text", async () => {
    const { source, after, seen } = asked([gone()]);
    await source.refresh();
    await after(500);
    expect(seen.asked).toBe(2);
    await after(1_000);
    expect(seen.asked).toBe(3);
  });

  it("has one question at a time; those who ask meanwhile share the next one, whose answer is newer", async () => {
    const { source, seen, held, now } = asked([text("a"), text("b"), text("c")]);
    held.isHeld = true;
    const first = source.refresh();
    await settled();
    const [second, third] = [source.refresh(), source.refresh()];
    held.isHeld = false;
    held.release();
    await Promise.all([first, second, third]);
    expect([seen.asked, seen.most, now()]).toEqual([2, 1, "b"]);
  });

  it("does not report a change to listeners that a caller of refresh reads itself", async () => {
    const { source, changes, now } = asked([text("a"), text("b")]);
    await source.refresh();
    await source.refresh();
    expect([now(), changes()]).toEqual(["b", 0]);
  });

  it("reports a change that has come before a question of a reload, where that is not answered", async () => {
    const { source, seen, held, after, now, changes } = asked([text("a"), text("b"), down(), null]);
    await source.refresh();
    held.isHeld = true;
    await after(10_000);
    const refreshed = source.refresh();
    held.isHeld = false;
    held.release();
    await expect(refreshed).rejects.toThrow("ECONNREFUSED");
    expect([seen.asked, now(), changes()]).toEqual([3, "b", 1]);
  });

  it("asks at once again where text and signature do not fit, and gives such a pair if that stays so", async () => {
    const isPair = ({ text: content, signature }: SourceText) => content.toString() === signature;
    const { source, seen, now, after, changes } = asked(
      [text("a", "a"), text("b", "a"), text("b", "b"), text("c", "b"), null, text("c", "c")],
      { isPair },
    );
    await source.refresh();
    await after(10_000);
    expect([seen.asked, now(), changes()]).toEqual([3, "b", 1]);
    await after(10_000);
    expect([seen.asked, now(), changes()]).toEqual([5, "c", 2]);
    await after(10_000);
    expect([seen.asked, changes()]).toEqual([6, 3]);
  });

  it("asks for a whole answer where text and signature do not fit, and as long as they do not", async () => {
    const isPair = ({ text: content, signature }: SourceText) => content.toString() === signature;
    const unfit = text("b", "a");
    const { source, seen, after, changes } = asked([text("a", "a"), unfit, unfit, unfit, text("b", "b"), null], {
      isPair,
    });
    await source.refresh();
    expect(seen.forgotten).toBe(0);
    await after(10_000);
    expect([seen.asked, seen.forgotten]).toEqual([3, 1]);
    await after(10_000);
    expect([seen.asked, seen.forgotten, changes()]).toEqual([4, 2, 1]);
    await after(10_000);
    expect([seen.asked, seen.forgotten, changes()]).toEqual([5, 3, 2]);
    await after(10_000);
    expect([seen.asked, seen.forgotten]).toEqual([6, 3]);
  });

  it("gives the first of two answers where the second fails", async () => {
    const { source, now } = asked([text("b", "a"), down()], { isPair: () => false });
    await source.refresh();
    expect(now()).toBe("b");
  });

  it("asks when the server reports a change, and begins the watch again with back-off when it ends", async () => {
    const { source, seen, report, endWatch, after, now, answers } = asked([text("a")], {}, true);
    await source.refresh();
    expect(seen.watched).toBe(1);
    answers[0] = text("b");
    report();
    await after(0);
    expect([seen.asked, now()]).toEqual([2, "b"]);
    endWatch(down());
    await after(0);
    answers[0] = text("c");
    await after(500);
    expect([seen.watched, seen.asked, now()]).toEqual([2, 3, "c"]);
  });

  it("asks some time after a reported change, once for all of that time, and not after its end", async () => {
    const { source, seen, report, after } = asked([text("a")], { spreadMs: 700 }, true);
    await source.refresh();
    report();
    await after(699);
    report();
    expect(seen.asked).toBe(1);
    await after(1);
    expect(seen.asked).toBe(2);
    report();
    source.close();
    await after(700);
    expect(seen.asked).toBe(2);
  });

  it("begins a watch that fails at once again with pauses that grow, also while nobody answers", async () => {
    const { source, seen, endWatch, after, answers } = asked([text("a")], {}, true);
    await source.refresh();
    const again = async (ms: number) => {
      const { watched } = seen;
      endWatch(down());
      await after(0);
      await after(ms - 1);
      expect(seen.watched).toBe(watched);
      await after(1);
      expect(seen.watched).toBe(watched + 1);
    };
    for (const ms of [500, 1_000, 2_000, 4_000]) await again(ms);
    answers[0] = down();
    await again(8_000);
    const { asked: before } = seen;
    for (const ms of [10_000, 10_000, 10_000]) await again(ms);
    // In 30 s: after 0.5, 1, 2, 4, 8 and 10 s.
    expect(seen.asked - before).toBeLessThanOrEqual(6);
    answers[0] = text("a");
    await after(20_000);
    await again(500);
  });

  it("gives a copy until there is another answer, and says when the copy is in force", async () => {
    const { source, after, now, changes, answers } = asked([down()]);
    await source.refresh().catch(() => {});
    const copy = { ...text("old"), keptAt: 5 };
    source.useCopy(copy, down());
    expect(now()).toBe("old");
    expect(source.taken(copy.text)).toBeNull();
    await after(500);
    expect([now(), source.state.copy]).toEqual(["old", { keptAt: 5 }]);
    answers[0] = text("new");
    await after(1_000);
    expect([now(), changes(), source.state.copy]).toEqual(["new", 1, { keptAt: 5 }]);
    expect(source.taken(atOnce(source.current()).text)).toMatchObject({ signature: null });
    expect(source.state.copy).toBeNull();
  });

  it("gives a copy in place of a text that was refused, until that changes or is asked for", async () => {
    const { source, after, now, changes, answers } = asked([text("bad"), null]);
    await source.refresh();
    source.useCopy({ ...text("old"), keptAt: 5 }, text("bad"));
    await after(10_000);
    expect([now(), changes()]).toEqual(["old", 0]);
    await source.refresh();
    expect([now(), source.state.copy]).toEqual(["bad", { keptAt: 5 }]);
    answers[0] = text("good");
    await after(10_000);
    expect([now(), changes()]).toEqual(["good", 1]);
  });

  it("takes a text that has come while another one was tried out, and refused", async () => {
    const { source, after, now, changes } = asked([text("bad"), text("good"), null]);
    await source.refresh();
    await after(10_000);
    source.useCopy({ ...text("old"), keptAt: 5 }, text("bad"));
    const before = changes();
    await after(10_000);
    expect([now(), changes() - before]).toEqual(["good", 1]);
  });

  it("checks a signature again for another text alone, also where the server names no state of it", async () => {
    let checks = 0;
    const isPair = () => ++checks > 0;
    const { source, after, seen } = asked([text("a", "s"), text("a", "s"), text("a", "t")], { isPair });
    await source.refresh();
    await after(10_000);
    expect([seen.asked, checks]).toEqual([2, 1]);
    await after(10_000);
    expect([seen.asked, checks]).toEqual([3, 2]);
  });

  it("the copy is in force no more when the server gives the same text", async () => {
    const { source, after, changes, answers } = asked([down()]);
    await source.refresh().catch(() => {});
    source.useCopy({ ...text("old"), keptAt: 5 }, down());
    answers[0] = text("old");
    await after(500);
    expect([changes(), source.state.copy]).toEqual([0, null]);
  });

  it("asks nothing after its end", async () => {
    const { source, after, seen } = asked([text("a")]);
    await source.refresh();
    source.close();
    await after(100_000);
    expect(seen).toMatchObject({ asked: 1, closed: 1 });
    await expect(source.refresh()).rejects.toThrow("not asked any more");
  });
});
