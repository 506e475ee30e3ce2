/**
 * The headers that only one upstream gets: its `request_headers`, such as the key of a provider. They are set for each
 * try, on a copy of the request, so that no other upstream gets them.
 */
import type { Exchange } from "../http/exchange.ts";
import { dashed, type HeaderList } from "../http/headers.ts";

export class OwnHeaders {
  /** What it was made of. */
  readonly values: Readonly<Record<string, string>>;
  readonly list: HeaderList;
  readonly #names: ReadonlySet<string>;

  constructor(values: Readonly<Record<string, string>>) {
    this.values = values;
    this.list = Object.entries(values).flat();
    this.#names = new Set(Object.keys(values).map(dashed));
  }

  /** The client's own of these names are replaced, in its trailers too, also where it writes "_" for "-". */
  sentWith(exchange: Exchange): Exchange {
    const others = (given: HeaderList) => given.filter((_text, i) => !this.#names.has(dashed(given[i & ~1]!)));
    return exchange.with({
      headers: [...others(exchange.headers), ...this.list],
      trailers: () => others(exchange.trailers()),
    });
  }
}
