/**
 * The plugin kind `fault`: delays a share of the requests, answers them with an error, or both, so that clients can be
 * tried out against it.
 *
 * The same share is affected in any 1000 requests in a row, evenly spread. Affected replies have the header
 * X-Fault-Injected.
 */
import type { Clock } from "../base/clock.ts";
import { evenShare } from "../base/share.ts";
import { CONDITIONS } from "../config/conditions.ts";
import { integer, object, optional, percent, withDefault } from "../config/schema.ts";
import { compileConditions } from "../http/conditions.ts";
import type { Call, Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import type { HeaderList } from "../http/headers.ts";
import { problemReply, type Reply } from "../http/reply.ts";
import type { Plugin } from "./plugin.ts";

const schema = object(
  {
    match: optional(CONDITIONS),
    percent: withDefault(percent({ describe: "Share of the requests, of those that match, that is affected." }), 100),
    delay_ms: optional(
      integer({ min: 1, max: 600_000, describe: "Time for which an affected request waits, in milliseconds." }),
    ),
    status: optional(
      integer({
        min: 200,
        max: 599,
        describe: "Status with which an affected request is answered; default: it is passed on.",
      }),
    ),
  },
  {
    describe: "Injects delays and errors, to test clients.",
    refine({ delayMs, status }, report) {
      if (delayMs === undefined && status === undefined) report('does nothing: set "delay_ms", "status" or both');
    },
  },
);

export const fault: Plugin<typeof schema> = {
  name: "fault",
  schema,
  create({ match, percent: affected, delayMs, status }, { clock, keep, isTrial }) {
    const isChosen = evenShare(affected);
    const matches = match === undefined ? null : compileConditions(match);
    const isAffected = ({ headers, query, scheme }: Exchange) =>
      (matches === null || matches(headers, query, scheme)) && isChosen();
    // In a test or an explanation nobody waits.
    const delay = delayMs === undefined || isTrial ? null : keep("delays", delayMs, () => delays(clock, delayMs));
    const headers = [
      "X-Fault-Injected",
      [...(delayMs === undefined ? [] : ["delay"]), ...(status === undefined ? [] : ["status"])].join(", "),
    ];
    const affect = async (exchange: Exchange, next: Handler): Promise<Reply> => {
      const { call } = exchange;
      await delay?.wait(call);
      // A request whose client disconnected while it waited is not forwarded.
      if (status !== undefined || call.aborted) return faulty(call, status ?? 503, headers);
      const reply = await next(exchange);
      return { ...reply, headers: [...reply.headers, ...headers] };
    };
    return (next) => (exchange) => (isAffected(exchange) ? affect(exchange, next) : next(exchange));
  },
};

/** RFC 9110 §15.3.5, §15.3.6, §15.4.5: these statuses have no body. */
const BODILESS_STATUSES = [204, 205, 304];

function faulty(call: Call, status: number, headers: HeaderList): Reply {
  const detail = "The gateway is configured to answer this request with an error.";
  const reply = problemReply(
    call,
    { code: "fault_injected", status, title: "A fault was injected" },
    { detail, headers },
  );
  return BODILESS_STATUSES.includes(status) ? { status, headers, body: null } : reply;
}

/**
 * The requests that wait: `wait` resolves after the delay, or at once when the client disconnects or the plugin is
 * closed.
 */
function delays(clock: Clock, ms: number) {
  const waiting = new Set<() => void>();
  const wait = (call: Call) =>
    new Promise<void>((resolve) => {
      const end = () => {
        timer.cancel();
        waiting.delete(end);
        resolve();
      };
      const timer = clock.after(ms, end);
      waiting.add(end);
      call.onAbort(end);
    });
  return { wait, close: () => waiting.forEach((end) => end()) };
}
