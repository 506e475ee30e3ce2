/**
 * One JSON object a line for each request, written in batches so that a busy gateway makes few writes.
 * What is known of a request is gathered in its `Call`; secrets never get there, and the query is left out.
 */
import type { Clock } from "../base/clock.ts";
import type { Call } from "../http/exchange.ts";

export interface AccessEntry {
  readonly call: Call;
  readonly method: string;
  /** The request target as sent. */
  readonly target: string;
  readonly httpVersion: string;
  readonly clientAddress: string;
}

export interface AccessLog {
  /** Notes a finished request. */
  write(entry: AccessEntry): void;
  /** Hands over what is still held back. */
  flush(): void;
}

/** Lines wait until this many characters have come together, or until the event loop comes round. */
const BATCH_CHARACTERS = 64 * 1024;

/** `sink` gets whole lines, each with its newline, several at once under load. */
export function createAccessLog(sink: (lines: string) => void, clock: Clock): AccessLog {
  let held = "";
  const flush = () => {
    if (held === "") return;
    const lines = held;
    held = "";
    sink(lines);
  };
  return {
    write(entry) {
      if (held === "") setImmediate(flush);
      held += accessLine(entry, clock);
      if (held.length >= BATCH_CHARACTERS) flush();
    },
    flush,
  };
}

function accessLine({ call, method, target, httpVersion, clientAddress }: AccessEntry, clock: Clock): string {
  const { notes } = call;
  return (
    JSON.stringify({
      time: new Date(clock.wall()).toISOString(),
      request_id: call.id,
      client_ip: clientAddress,
      method,
      path: pathOf(target),
      protocol: `HTTP/${httpVersion}`,
      status: notes.status,
      code: notes.code ?? (call.aborted ? "client_closed" : null),
      service: notes.service,
      route: notes.route,
      upstream: notes.upstream,
      attempts: notes.attempts,
      caller: notes.identity,
      duration_ms: Math.round((clock.now() - call.startedAt) * 100) / 100,
      ...(notes.fault === null ? null : { fault: notes.fault }),
    }) + "\n"
  );
}

/** Without query and fragment, and of an absolute target without what stands before the path: it may hold user and password. */
function pathOf(target: string): string {
  const scheme = target.startsWith("/") ? null : /^[^/?#]*:\/\/[^/?#]*/.exec(target);
  const path = (scheme === null ? target : target.slice(scheme[0].length)).split(/[?#]/, 1)[0]!;
  return path === "" ? "/" : path; // http://gateway.example?q
}
