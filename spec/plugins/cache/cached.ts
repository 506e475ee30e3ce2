/** The plugin response_cache in front of an origin that a spec makes up. */
import type { Readable } from "node:stream";
import { Call, type Exchange, type ExchangeParts } from "../../../lib/http/exchange.ts";
import type { Handler } from "../../../lib/http/handler.ts";
import { headerValue, type HeaderList } from "../../../lib/http/headers.ts";
import type { Reply } from "../../../lib/http/reply.ts";
import { responseCache } from "../../../lib/plugins/cache/response_cache.ts";
import { manualClock, type ManualClock } from "../../support/clock.ts";
import { instance, madeUpExchange, madeUpTools } from "../../support/exercise.ts";
import type { Headers } from "./response_cache.cases.ts";

type Answer = (exchange: Exchange, nth: number) => Reply | Promise<Reply>;

interface Origin {
  readonly clock: ManualClock;
  /** What has reached it. */
  readonly asked: Exchange[];
  get(parts?: Partial<ExchangeParts>): Promise<Got>;
  /** As the plugin returns it. */
  handle: Handler;
}

export interface Got {
  readonly status: number;
  readonly body: string;
  readonly headers: HeaderList;
  readonly cacheStatus: string | undefined;
}

/** The plugin in front of an origin that gives `answer`. */
export function cached(answer: Answer, config: object = {}): Origin {
  const clock = manualClock();
  const asked: Exchange[] = [];
  const handle = instance(
    responseCache,
    config,
    madeUpTools({ clock }),
  )((exchange) => {
    asked.push(exchange);
    return answer(exchange, asked.length);
  });
  const get = async (parts: Partial<ExchangeParts> = {}) => {
    const exchange = anExchange(parts);
    const got = await read(await handle(exchange));
    exchange.call.close();
    return got;
  };
  return { clock, asked, handle, get };
}

export function anExchange(parts: Partial<ExchangeParts> = {}): Exchange {
  return madeUpExchange({ call: aCall(), ...parts });
}

export function aCall(id = "request-1", trustedRemote = false, inform: Call["inform"] = () => {}): Call {
  return new Call({ id, remoteAddress: "192.0.2.1", trustedRemote, startedAt: 0, inform });
}

export async function read({ status, headers, body }: Reply): Promise<Got> {
  const chunks: Buffer[] = [];
  if (Buffer.isBuffer(body)) chunks.push(body);
  else if (body !== null) for await (const chunk of body) chunks.push(chunk as Buffer);
  return { status, headers, body: Buffer.concat(chunks).toString(), cacheStatus: headerValue(headers, "cache-status") };
}

export function flat(headers: Headers): string[] {
  return Object.entries(headers).flatMap(([name, value]) =>
    typeof value === "string" ? [name, value] : value.flatMap((each) => [name, each]),
  );
}

export function ok(headers: Headers, body: string | Readable = "hello"): Reply {
  return { status: 200, headers: flat(headers), body: typeof body === "string" ? Buffer.from(body) : body };
}

export const FRESH = { "Cache-Control": "max-age=60" };
