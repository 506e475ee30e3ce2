import { describe, expect, it } from "vitest";
import { botProtection } from "../../lib/plugins/bot_protection.ts";
import { atOnce, checked, exercise, instance, madeUpExchange, plainReply, problemOf } from "../support/exercise.ts";

function ask(config: object, ...agents: string[]) {
  const headers = ["Host", "h", ...agents.flatMap((agent) => ["user-agent", agent])];
  const { returned, forwarded } = exercise(instance(botProtection, config), madeUpExchange({ headers }));
  const reply = atOnce(returned);
  return { status: reply.status, code: reply.status === 200 ? null : problemOf(reply)["code"], forwarded };
}

const BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
const GOOGLE = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
const config = { blacklist: ["bot", "curl/", "Scrapy"], whitelist: ["Googlebot/"] };

it.each([BROWSER, GOOGLE, "googleBOT/1", "curlew", "x"])("admits %s", (agent) =>
  expect(ask(config, agent).status).toBe(200),
);

it.each(["curl/8.5.0", "CURL/7", "my robot", "scrapy", "Bot", "googlebot"])(
  "refuses %s with 403 bot_detected",
  (agent) => {
    expect(ask(config, agent)).toMatchObject({ status: 403, code: "bot_detected", forwarded: null });
  },
);

it("a whitelist alone refuses all other clients", () => {
  expect(ask({ whitelist: ["partner-app/"] }, "Partner-App/3.1").status).toBe(200);
  expect(ask({ whitelist: ["partner-app/"] }, BROWSER).code).toBe("bot_detected");
});

it("refuses a client without a User-Agent, unless allow_empty is set", () => {
  for (const agents of [[], [""], ["  "], ["", ""]]) {
    expect(ask({}, ...agents)).toMatchObject({ status: 403, code: "bot_detected" });
    expect(ask({ ...config, allow_empty: true }, ...agents).status).toBe(200);
    expect(ask({ whitelist: ["x"], allow_empty: true }, ...agents).status).toBe(200);
  }
  expect(ask({}, "anything").status).toBe(200);
});

it("looks at every one of several User-Agent headers", () => {
  expect(ask(config, BROWSER, "curl/8").code).toBe("bot_detected");
  expect(ask(config, "", BROWSER).status).toBe(200);
});

it("passes on the same exchange, and returns the same reply or promise", () => {
  const exchange = madeUpExchange({ headers: ["User-Agent", BROWSER] });
  const promise = Promise.resolve(plainReply);
  expect(exercise(instance(botProtection, config), exchange)).toEqual({ returned: plainReply, forwarded: exchange });
  expect(exercise(instance(botProtection, config), exchange, () => promise).returned).toBe(promise);
});

describe("configuration", () => {
  it("the configuration of bot_protection may be empty; allow_empty is false by default", () =>
    expect(checked(botProtection.schema, {}).value).toEqual({ allowEmpty: false }));

  it.each<[object, string]>([
    [{ allow_empty: true }, ': refuses no client: it needs "blacklist" or "whitelist", or "allow_empty" false'],
    [{ blacklist: [] }, "blacklist: expected at least 1 item, found none"],
    [
      { blacklist: [""] },
      'blacklist[0]: expected a part of a User-Agent header, in printable ASCII, found "": nearly every client has it',
    ],
    [
      { whitelist: [" "] },
      'whitelist[0]: expected a part of a User-Agent header, in printable ASCII, found " ": nearly every client has it',
    ],
    [
      { blacklist: ["b\u00f6t"] },
      'blacklist[0]: expected a part of a User-Agent header, in printable ASCII, found "b\u00f6t"',
    ],
  ])("bot_protection reports %j as a configuration error", (given, issue) =>
    expect(checked(botProtection.schema, given).issues).toEqual([issue]),
  );
});
