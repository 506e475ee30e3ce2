/**
 * The live tail of a thread: lines of requests that have ended, as the access log writes them in JSON, for readers who
 * ask for some of them. It is loaded for the first reader. Each gets a bounded number of lines; the rest is counted.
 */
import type { Clock, Timer } from "../base/clock.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import { redactedPath } from "../http/redact.ts";
import { jsonLines, pathOf, plainPath } from "./access_line.ts";
import type { AccessLog, AccessLogSettings } from "./access_log.ts";
import { answererOf } from "./decisions.ts";
import { lineFilter } from "./line_filter.ts";
import { fieldTests, isFitting, type FilteredFacts, type RequestFilter } from "./request_filter.ts";

export interface TailReader {
  readonly id: number;
  readonly filter: RequestFilter;
  /** Lines that it gets of each turn of this thread. */
  readonly most: number;
}

/** Of one turn. */
export interface TailBatch {
  /** Of the reader. */
  readonly id: number;
  /** How many requests were those that it asks for. */
  readonly matched: number;
  /** JSON of some of them. */
  readonly lines: readonly string[];
}

export const TURN_MS = 500;
/** Of the lines of a turn for one reader. */
const MAX_CHARACTERS = 64 * 1024;

interface Seen {
  readonly reader: TailReader;
  readonly fits: (entry: RequestFacts, now: number) => boolean;
  matched: number;
  characters: number;
  lines: string[];
}

export class Tail {
  readonly #clock: Clock;
  readonly #log: AccessLog;
  readonly #settings: () => AccessLogSettings;
  readonly #send: (batches: readonly TailBatch[]) => void;
  readonly #line = jsonLines();
  #readers: readonly Seen[] = [];
  #timer: Timer | null = null;
  #isLogged: ReturnType<typeof lineFilter> = () => true;
  /** What `#isLogged` is of. */
  #exclude: readonly string[] = [];

  /** `settings`: of the configuration in force: the tail has nothing of paths that the log excludes. */
  constructor(
    clock: Clock,
    log: AccessLog,
    settings: () => AccessLogSettings,
    send: (batches: readonly TailBatch[]) => void,
  ) {
    this.#clock = clock;
    this.#log = log;
    this.#settings = settings;
    this.#send = send;
  }

  set readers(readers: readonly TailReader[]) {
    const known = new Map(this.#readers.map((seen) => [seen.reader.id, seen]));
    this.#readers = readers.map(
      (reader) =>
        known.get(reader.id) ?? { reader, fits: fitting(reader.filter), matched: 0, characters: 0, lines: [] },
    );
    this.#log.tail = readers.length === 0 ? null : this.#see;
    this.#log.update();
    this.#timer?.cancel();
    this.#timer = readers.length === 0 ? null : this.#clock.after(TURN_MS, this.#endTurn);
  }

  /** A request has ended at `now`. Returns whether the log is on as well. */
  readonly #see = (entry: RequestFacts, now: number): boolean => {
    const { enabled, exclude } = this.#settings();
    if (exclude !== this.#exclude) [this.#exclude, this.#isLogged] = [exclude, lineFilter({ sample: 1, exclude })];
    if (!this.#isLogged(entry)) return enabled;
    let line: string | null = null;
    for (const seen of this.#readers) {
      if (!seen.fits(entry, now)) continue;
      seen.matched++;
      if (seen.lines.length >= seen.reader.most || seen.characters >= MAX_CHARACTERS) continue;
      line ??= this.#line(entry, now, this.#clock.wall()).slice(0, -1);
      // Whoever sends paths of many KB does not push out the lines of others.
      if (line.length > MAX_CHARACTERS / 8) continue;
      seen.characters += line.length;
      seen.lines.push(line);
    }
    return enabled;
  };

  readonly #endTurn = (): void => {
    this.#timer = this.#clock.after(TURN_MS, this.#endTurn);
    const batches = this.#readers
      .filter(({ matched }) => matched > 0)
      .map(({ reader: { id }, matched, lines }) => ({ id, matched, lines }));
    for (const seen of this.#readers) Object.assign(seen, { matched: 0, characters: 0, lines: [] });
    if (batches.length > 0) this.#send(batches);
  };
}

function fitting(filter: RequestFilter): Seen["fits"] {
  const tests = fieldTests(filter);
  return (entry, now) => tests.length === 0 || isFitting(tests, factsOf(entry, now));
}

function factsOf({ call, method, clientAddress, target }: RequestFacts, now: number): FilteredFacts {
  const { notes } = call;
  const upstreams = [notes.upstream];
  for (let { tried } = notes; tried !== null; tried = tried.before) upstreams.push(tried.upstream);
  return {
    status: notes.status,
    code: notes.code ?? (call.aborted ? "client_closed" : null),
    service: notes.service,
    route: notes.route,
    upstreams,
    caller: notes.identity,
    client: clientAddress,
    method,
    by: (notes.status === null ? null : notes.by?.name) ?? answererOf(notes),
    /** As a line shows it: a search must not tell what is redacted. Long ones take time. */
    get path() {
      return plainPath(target) ?? redactedPath(pathOf(target));
    },
    ms: now - call.startedAt,
  };
}
