/**
 * The plugin kind `bot_protection`: refuses clients by their User-Agent (RFC 9110 §10.1.5), with 403 `bot_detected`. It
 * stops only clients that identify themselves: the header can be forged, so that the kind is no guard.
 */
import { array, boolean, object, optional, string, withDefault } from "../config/schema.ts";
import { headerValues, type HeaderList } from "../http/headers.ts";
import { problem } from "../http/reply.ts";
import type { Plugin } from "./plugin.ts";

const PART = string({
  pattern: /^[\x20-\x7e]*$/,
  hint: "a part of a User-Agent header, in printable ASCII",
  check: (text) => (text.trim() === "" ? "nearly every client has it" : undefined),
});

const schema = object(
  {
    blacklist: optional(
      array(PART, { min: 1, describe: "Clients whose User-Agent contains one of these are refused." }),
    ),
    whitelist: optional(
      array(PART, {
        min: 1,
        describe:
          "Clients that are accepted even if the blacklist matches; without a blacklist, only these are accepted.",
      }),
    ),
    allow_empty: withDefault(boolean({ describe: "Whether clients without a User-Agent are accepted." }), false),
  },
  {
    describe: "Refuses clients by their User-Agent.",
    refine({ blacklist, whitelist, allowEmpty }, report) {
      if (allowEmpty && blacklist === undefined && whitelist === undefined)
        report('refuses no client: it needs "blacklist" or "whitelist", or "allow_empty" false');
    },
  },
);

export const botProtection: Plugin<typeof schema> = {
  name: "bot_protection",
  schema,
  ownHeaders: () => ["User-Agent"],
  create({ blacklist, whitelist, allowEmpty }) {
    const lowerCase = (parts: readonly string[] = []) => parts.map((part) => part.toLowerCase());
    const good = lowerCase(whitelist);
    const bad = lowerCase(blacklist);
    const othersPass = blacklist !== undefined || whitelist === undefined;
    const passes = (agent: string) => holdsOne(agent, good) || (othersPass && !holdsOne(agent, bad));
    const empty = { detail: "Send a User-Agent header that says who you are.", rule: "allow_empty" };
    const detail = "Clients with this User-Agent are not served here.";
    const unlisted = { detail, rule: "whitelist" };
    const listed = bad.map((_part, i) => ({ detail, rule: `blacklist[${i}]` }));
    const refusal = (agent: string) => listed[bad.findIndex((part) => agent.includes(part))] ?? unlisted;
    return (next) => (exchange) => {
      const agent = userAgent(exchange.headers).toLowerCase();
      if (agent === "" ? allowEmpty : passes(agent)) return next(exchange);
      return problem(exchange.call, "bot_detected", agent === "" ? empty : refusal(agent));
    };
  },
};

/** "" if it is missing or blank. All headers count if there are several: the upstream may read another one. */
function userAgent(headers: HeaderList): string {
  const values = headerValues(headers, "user-agent");
  return (values.length === 1 ? values[0]! : values.filter((value) => value.trim() !== "").join(", ")).trim();
}

function holdsOne(agent: string, parts: readonly string[]): boolean {
  for (const part of parts) if (agent.includes(part)) return true;
  return false;
}
