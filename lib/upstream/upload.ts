/**
 * Tells who is at fault when the body of a request or of a reply stops moving: the client or the upstream.
 */
import { Fault } from "../base/errors.ts";

/** What a stream knows of what it was given. */
export interface Outgoing {
  readonly writableLength: number;
  readonly writableEnded: boolean;
}

/**
 * Whose fault it is that not a byte of the body moved for `idleMs`: the upstream's, if what we wrote is still waiting to leave, or if it
 * was to ask for the body (`Expect: 100-continue`); else the client's.
 */
export function stalledUpload(request: Outgoing, awaitsContinue: boolean, idleMs: number): Fault {
  if (awaitsContinue) return new Fault("upstream_timeout", `the upstream did not ask for the body within ${idleMs} ms`);
  if (!awaitsClient(request, awaitsContinue)) return new Fault("upstream_timeout", `the upstream read nothing for ${idleMs} ms`);
  return new Fault("request_timeout", `the client sent nothing for ${idleMs} ms`);
}

/** Whose fault it is that not a byte of a reply's body moved for `idleMs`: the client's if there is something of it to read. */
export function stalledReply(unreadBytes: number, idleMs: number): Fault {
  if (unreadBytes > 0) return new Fault("request_timeout", `the client read nothing of the reply for ${idleMs} ms`);
  return new Fault("upstream_timeout", `no byte either way for ${idleMs} ms`);
}

/** Whether it is the client's body that is missing: all there was of it has left, and the upstream was not to ask for it. */
export function awaitsClient(request: Outgoing, awaitsContinue: boolean): boolean {
  return !awaitsContinue && request.writableLength === 0 && !request.writableEnded;
}

/** For a deadline that comes while the request is being sent: whose fault it is. */
export function overdueUpload(request: Outgoing, awaitsContinue: boolean, fault: Fault): Fault {
  return awaitsClient(request, awaitsContinue) ? new Fault("request_timeout", `${fault.message}, and the client has not sent all of its body`) : fault;
}
