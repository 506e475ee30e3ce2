/**
 * Asks one upstream again and again whether it is well, each time on a connection of its own, and tells what came of it. How many
 * answers make it well or not, and what follows, is for who listens.
 */
import http from "node:http";
import http2 from "node:http2";
import net, { type Socket } from "node:net";
import tls, { type ConnectionOptions } from "node:tls";
import type { Clock, Timer } from "../base/clock.ts";
import { version } from "../base/version.ts";
import { connectFailure, towards, type Name } from "./addresses.ts";
import { invalidity } from "./response_head.ts";
import { tlsOptions, type UpstreamTls } from "./tls.ts";

export interface HealthCheckTarget {
  readonly protocol: "http" | "https" | "h2" | "h2c";
  readonly host: string;
  readonly port: number;
  /** What stands in the Host header, or in `:authority`. */
  readonly authority: string;
  /** For "https" and "h2"; default: verified against the system's certificates. */
  readonly tls?: UpstreamTls;
  /** The addresses of `host`, if it is a name; each probe begins with another one. */
  readonly name?: Name;
}

export interface HealthCheckSettings {
  /** With its query, if it has one. */
  readonly path: string;
  /** From the start of one probe to that of the next, in milliseconds. A probe that takes longer delays the next one. */
  readonly intervalMs: number;
  /** For everything from the connection to the head of the final response, in milliseconds. */
  readonly timeoutMs: number;
  readonly expects: (status: number) => boolean;
}

export interface HealthCheckOptions {
  readonly target: HealthCheckTarget;
  readonly settings: HealthCheckSettings;
  readonly clock: Clock;
  /** A number in [0, 1). */
  readonly random: () => number;
  /** Hears how each probe ended: null when it passed, else why it did not, in a few words. */
  readonly report: (failure: string | null) => void;
}

export interface HealthCheck {
  /** Ends it, a probe under way included. Nothing is reported any more. */
  stop(): void;
}

/** Throws when the client certificate and its key do not fit. */
export function startHealthCheck({ target, settings, clock, random, report }: HealthCheckOptions): HealthCheck {
  const { intervalMs, timeoutMs } = settings;
  const connect = connector(target);
  const ask = target.protocol === "h2" || target.protocol === "h2c" ? askH2 : askH1;
  let timer: Timer;
  let cancel = ignore;

  const probe = () => {
    const dueAt = clock.now() + intervalMs * (1 - JITTER + 2 * JITTER * random());
    let isOver = false;
    let end = ignore;
    const socket = connect();
    const close = () => {
      isOver = true;
      timer.cancel();
      end();
      // A turn later: what HTTP/2 says at the end is on its way by then.
      setImmediate(() => socket.destroy());
    };
    const finish = (failure: string | null) => {
      if (isOver) return;
      close();
      timer = clock.after(Math.max(0, dueAt - clock.now()), probe);
      report(failure);
    };
    cancel = close;
    timer = clock.after(timeoutMs, () => finish(`no response within ${timeoutMs} ms`));
    // Also when it is over: a connection breaks as late as it likes.
    socket.on("error", (error) => finish(connectFailure(error)));
    socket.once("close", () => finish(CLOSED));
    // Only then: node may have tried several addresses, each on another handle.
    socket.once("connect", () => socket.unref());
    socket.once(socket instanceof tls.TLSSocket ? "secureConnect" : "connect", () => {
      if (isOver) return;
      end = ask(socket, target, settings.path, {
        status: (status) => finish(settings.expects(status) ? null : `status ${status}`),
        fail: finish,
      });
    });
  };

  // Not all upstreams in one moment.
  timer = clock.after(random() * Math.min(intervalMs, FIRST_WITHIN_MS), probe);
  return {
    // From within `report` too: the next probe is already set by then.
    stop() {
      timer.cancel();
      cancel();
    },
  };
}

/** Opens the connection for one probe. */
function connector({ protocol, host, port, name, tls: settings }: HealthCheckTarget): () => Socket {
  const isSecure = protocol === "https" || protocol === "h2";
  const secure: ConnectionOptions | null = isSecure ? { ...tlsOptions(host, settings), ALPNProtocols: [protocol === "h2" ? "h2" : "http/1.1"] } : null;
  let turn = 0;
  return () => {
    const addresses = name?.addresses ?? [];
    const to = { host, port, ...towards(name, addresses[turn++ % addresses.length]) };
    return secure === null ? net.connect(to) : tls.connect({ ...secure, ...to });
  };
}

interface Outcome {
  readonly status: (status: number) => void;
  readonly fail: (failure: string) => void;
}

/** Sends the request on a connection that is ready; returns what gives it up. */
type Ask = (socket: Socket, target: HealthCheckTarget, path: string, outcome: Outcome) => () => void;

const askH1: Ask = (socket, { authority }, path, { status, fail }) => {
  const request = http.request({
    createConnection: () => socket,
    path,
    headers: ["Host", authority, "User-Agent", USER_AGENT, "Connection", "close"] as unknown as http.OutgoingHttpHeaders,
    setHost: false,
    maxHeaderSize: MAX_HEAD_BYTES,
  });
  request.maxHeadersCount = 0;
  request.on("information", atMost(MAX_INFORMATIONAL, fail));
  request.once("upgrade", () => fail(invalid("the upstream switches protocols")));
  request.once("response", (response) => {
    const why = invalidity(response);
    if (why === null) status(response.statusCode!);
    else fail(invalid(why));
  });
  request.on("error", ({ code, message }: NodeJS.ErrnoException) => {
    if (message === "socket hang up") fail(CLOSED);
    else fail(code?.startsWith("HPE_") ? invalid(message) : message);
  });
  request.end();
  return () => void request.destroy();
};

const askH2: Ask = (socket, { protocol, authority }, path, { status, fail }) => {
  if (socket instanceof tls.TLSSocket && socket.alpnProtocol !== "h2") {
    fail("the upstream does not offer HTTP/2 (ALPN h2)");
    return ignore;
  }
  const session = http2.connect("http://upstream", {
    createConnection: () => socket,
    maxHeaderListPairs: MAX_HEADER_PAIRS,
    settings: { enablePush: false, maxHeaderListSize: MAX_HEAD_BYTES },
  });
  const failed = ({ code, message }: NodeJS.ErrnoException) => fail(code === "ERR_HTTP2_ERROR" ? invalid(message) : message);
  session.unref();
  session.on("error", failed);
  session.once("close", () => fail(CLOSED));
  const stream = session.request({
    ":method": "GET",
    ":scheme": protocol === "h2" ? "https" : "http",
    ":authority": authority,
    ":path": path,
    "user-agent": USER_AGENT,
  });
  stream.on("headers", atMost(MAX_INFORMATIONAL, fail));
  stream.once("response", ({ ":status": code }) => status(code!));
  stream.on("error", failed);
  stream.once("close", () => fail(session.closed ? CLOSED : `the upstream reset the stream (code ${stream.rstCode})`));
  return () => session.destroy();
};

/** Each informational response may be as large as any head, and there is no end to them. */
function atMost(most: number, fail: (failure: string) => void): () => void {
  let count = 0;
  return () => {
    if (++count > most) fail(invalid(`more than ${most} informational responses`));
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
/** As requests have it: what they could not read is not well. */
const MAX_HEAD_BYTES = 32 * 1024;
const MAX_HEADER_PAIRS = 1000;
const MAX_INFORMATIONAL = 20;

function ignore(): void {}
