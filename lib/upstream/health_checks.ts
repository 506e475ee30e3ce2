/**
 * Checks one upstream at intervals, each time on a separate connection, and reports whether the check passed.
 */
import type { OutgoingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import tls from "node:tls";
import type { Clock, Timer } from "../base/clock.ts";
import type { Secure } from "../base/egress.ts";
import { http2Over, requestOver } from "../base/egress_clients.ts";
import { entry } from "../base/event_loop.ts";
import { connectFailure, ignore } from "../base/errors.ts";
import { version } from "../base/version.ts";
import type { Service } from "../config/model.ts";
import { h2Fields } from "../http/h2_fields.ts";
import { hasHeader, type HeaderList } from "../http/headers.ts";
import { connect, readyEvent } from "./connect.ts";
import { isSecure, type PoolOptions } from "./connect.ts";
import { invalidity, type NodeResponse } from "./node_response.ts";
import { MAX_RESPONSE_HEAD_BYTES } from "./response_parser.ts";

/** With the source of `expects`, so that two can be compared as JSON. */
export type CheckSettings = HealthCheckSettings & { readonly expectStatus: string };

export function checkSettings({
  path,
  intervalMs,
  timeoutMs,
  expectStatus,
  requestHeaders: hasHeaders = false,
}: Service["health"]): CheckSettings {
  const ranges = [expectStatus].flat().map((item) => String(item).split("-").map(Number));
  const expects = (status: number) => ranges.some(([from, to]) => status >= from! && status <= (to ?? from!));
  return { path, intervalMs, timeoutMs, expects, hasHeaders, expectStatus: String(expectStatus) };
}

export interface HealthCheckTarget extends Omit<PoolOptions, "keepaliveIdleMs"> {
  /** For the Host header, or `:authority`. */
  readonly authority: string;
  /** Sent with each check. Default: none. */
  readonly headers?: HeaderList;
}

export interface HealthCheckSettings {
  /** With its query, if it has one. */
  readonly path: string;
  /** Milliseconds between the starts of two checks. A check that takes longer delays the next one. */
  readonly intervalMs: number;
  /** From the connection to the head of the final response, in milliseconds. */
  readonly timeoutMs: number;
  readonly expects: (status: number) => boolean;
  /** Whether the upstream's own headers are sent. */
  readonly hasHeaders?: boolean;
}

export interface HealthCheckOptions {
  readonly target: HealthCheckTarget;
  readonly settings: HealthCheckSettings;
  readonly clock: Clock;
  /** A number in [0, 1). */
  readonly random: () => number;
  /** Called after each check: null if it passed, else why it did not. */
  readonly report: (failure: string | null) => void;
}

/**
 * Returns a function that stops the checks and aborts the current one; nothing is reported afterwards. Throws when the
 * client certificate and its key do not fit.
 */
export function startHealthCheck({ target, settings, clock, random, report }: HealthCheckOptions): () => void {
  const { intervalMs, timeoutMs } = settings;
  const open = opener(target);
  const ask = target.protocol === "h2" || target.protocol === "h2c" ? askHttp2 : askHttp1;
  let timer: Timer;
  let cancel = ignore;

  const check = () => {
    const dueAt = clock.now() + intervalMs * (1 - JITTER + 2 * JITTER * random());
    let isOver = false;
    let end = ignore;
    const socket = open();
    const close = () => {
      isOver = true;
      timer.cancel();
      end();
      // A turn later: the last frames of HTTP/2 have been sent by then.
      setImmediate(entry("the end of a check", () => void socket.destroy()));
    };
    const finish = (failure: string | null) => {
      if (isOver) return;
      close();
      timer = clock.after(Math.max(0, dueAt - clock.now()), check);
      report(failure);
    };
    cancel = close;
    timer = clock.after(timeoutMs, () => finish(`no response within ${timeoutMs} ms`));
    // Not removed when the check is over: a connection may break at any time.
    socket.on("error", (error) => finish(connectFailure(error)));
    socket.once("close", () => finish(CLOSED));
    // Not before: Node may try several addresses, each with its own handle.
    socket.once("connect", () => socket.unref());
    socket.once(readyEvent(socket), () => {
      if (isOver) return;
      end = ask(
        socket,
        target,
        settings.path,
        (status) => finish(settings.expects(status) ? null : `status ${status}`),
        finish,
      );
    });
  };

  // Upstreams are not all checked at the same moment.
  timer = clock.after(random() * Math.min(intervalMs, FIRST_WITHIN_MS), check);
  // `report` may call it too: the timer of the next check is set by then.
  return () => {
    timer.cancel();
    cancel();
  };
}

/** Opens the connection for one check, each time to the next address. */
function opener(target: HealthCheckTarget): () => Socket {
  const { protocol, host, name } = target;
  const secure: Secure | null = isSecure(protocol)
    ? { ...target.tls!.options(host), ALPNProtocols: [protocol === "h2" ? "h2" : "http/1.1"] }
    : null;
  let turn = 0;
  return () => {
    const addresses = name?.addresses ?? [];
    return connect(target, secure, addresses[turn++ % addresses.length]);
  };
}

/** Sends the request on a connection that is ready; returns a function that cancels it. */
type Ask = (
  socket: Socket,
  target: HealthCheckTarget,
  path: string,
  answered: (status: number) => void,
  fail: Fail,
) => () => void;
type Fail = (failure: string) => void;

const askHttp1: Ask = (socket, { authority, headers = [] }, path, answered, fail) => {
  const list = ["Host", authority, ...withAgent(headers), "Connection", "close"];
  const request = requestOver(socket, {
    path,
    headers: list as unknown as OutgoingHttpHeaders,
    setHost: false,
    maxHeaderSize: MAX_RESPONSE_HEAD_BYTES,
  });
  request.maxHeadersCount = 0;
  request.on("information", limitedInformation(fail));
  request.once("upgrade", () => fail(invalid("the upstream switches protocols")));
  request.once("response", (received) => {
    const response = received as NodeResponse;
    const why = invalidity(response);
    if (why === null) answered(response.statusCode);
    else fail(invalid(why));
  });
  request.on("error", ({ code, message }: NodeJS.ErrnoException) => {
    if (message === "socket hang up") fail(CLOSED);
    else fail(code?.startsWith("HPE_") ? invalid(message) : message);
  });
  request.end();
  return () => void request.destroy();
};

const askHttp2: Ask = (socket, { protocol, authority, headers = [] }, path, answered, fail) => {
  if (socket instanceof tls.TLSSocket && socket.alpnProtocol !== "h2") {
    fail("the upstream does not offer HTTP/2 (ALPN h2)");
    return ignore;
  }
  const session = http2Over(socket, {
    maxHeaderListPairs: MAX_HEADER_PAIRS,
    settings: { enablePush: false, maxHeaderListSize: MAX_RESPONSE_HEAD_BYTES },
  });
  const failed = ({ code, message }: NodeJS.ErrnoException) =>
    fail(code === "ERR_HTTP2_ERROR" ? invalid(message) : message);
  session.unref();
  session.on("error", failed);
  session.once("close", () => fail(CLOSED));
  const scheme = protocol === "h2" ? "https" : "http";
  const stream = session.request({
    ":method": "GET",
    ":scheme": scheme,
    ":authority": authority,
    ":path": path,
    ...h2Fields(withAgent(headers)),
  });
  stream.on("headers", limitedInformation(fail));
  stream.once("response", ({ ":status": status }) => answered(status!));
  stream.on("error", failed);
  stream.once("close", () => fail(session.closed ? CLOSED : `the upstream reset the stream (code ${stream.rstCode})`));
  return () => session.destroy();
};

function withAgent(headers: HeaderList): HeaderList {
  return hasHeader(headers, "user-agent") ? headers : ["User-Agent", USER_AGENT, ...headers];
}

/** Counts informational responses, which an upstream could send without end. */
function limitedInformation(fail: Fail): () => void {
  let count = 0;
  return () => {
    if (++count > MAX_INFORMATIONAL) fail(invalid(`more than ${MAX_INFORMATIONAL} informational responses`));
  };
}

function invalid(why: string): string {
  return `invalid response (${why})`;
}

const USER_AGENT = `edge-gateway/${version} (health check)`;
const CLOSED = "the connection closed before a response";
const FIRST_WITHIN_MS = 1000;
/** Each interval is up to a tenth shorter or longer, so that several gateways do not keep step. */
const JITTER = 0.1;
const MAX_HEADER_PAIRS = 1000;
const MAX_INFORMATIONAL = 20;
