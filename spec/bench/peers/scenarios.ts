/** The scenarios in which proxies are compared: requests, protocol and number of connections. */

export interface Scenario {
  readonly name: string;
  readonly title: string;
  readonly method: "GET" | "POST";
  /** Requested in turn. */
  readonly paths: readonly string[];
  /** The size of each request body in bytes. */
  readonly bodyBytes: number;
  /** The response body of the backend. */
  readonly answerBytes: number;
  /** The backend sends its response in pieces, each by itself, so that each is read, framed and written by itself. */
  readonly pieces: boolean;
  /** The number of routes of the proxy; 0: one for everything. */
  readonly routes: number;
  /** Whether proxies that can do so check a key and count requests. */
  readonly guarded: boolean;
  readonly protocol: "http" | "https" | "h2";
  readonly connections: number;
  /** Without pauses, at 60 % of that rate, or with idle connections only. */
  readonly load: "full" | "paced" | "idle";
  /** The proxies that take part; null: all that can. */
  readonly among: readonly string[] | null;
}

export const SMALL_BYTES = 200;
export const LARGE_BYTES = 64 * 1024;
export const PIECE_BYTES = 100;
export const PIECES = 50;
export const KEY = "8d5e0a1c47b94f0f9d7c3f1b";
export const PACE = 0.6;

const SMALL: Omit<Scenario, "name" | "title"> = {
  method: "GET",
  paths: ["/small"],
  bodyBytes: 0,
  answerBytes: SMALL_BYTES,
  pieces: false,
  routes: 0,
  guarded: false,
  protocol: "http",
  connections: 32,
  load: "full",
  among: null,
};

/**
 * The loader in Node that paces is too slow for the fastest: whoever is not of them, and nginx to see where the loader
 * stands.
 */
const PACED = ["ours", "nginx", "caddy", "bare", "http-proxy", "fastify"];

const MANY = 1_000;

export const SCENARIOS: readonly Scenario[] = [
  { ...SMALL, name: "small", title: "GET, 200 bytes" },
  { ...SMALL, name: "guarded", title: "GET, 200 bytes, with a key and a rate limit", guarded: true },
  { ...SMALL, name: "large", title: "GET, 64 KiB", paths: ["/large"], answerBytes: LARGE_BYTES },
  { ...SMALL, name: "post", title: "POST of 16 KiB", method: "POST", bodyBytes: 16 * 1024 },
  {
    ...{ ...SMALL, name: "pieces", title: `GET, ${PIECES} chunks of ${PIECE_BYTES} bytes, one every 2 ms` },
    ...{ paths: ["/pieces"], answerBytes: PIECES * PIECE_BYTES, pieces: true },
  },
  {
    ...SMALL,
    name: "routes",
    title: "GET, 200 bytes, 1000 routes",
    routes: MANY,
    paths: Array.from({ length: MANY }, (_none, i) => `/r${i}/42`),
  },
  { ...SMALL, name: "https", title: "GET, 200 bytes, over HTTPS", protocol: "https" },
  { ...SMALL, name: "http2", title: "GET, 200 bytes, over HTTP/2", protocol: "h2", connections: 8 },
  { ...SMALL, name: "connections", title: "GET, 200 bytes, from 1000 connections", connections: MANY },
  { ...SMALL, name: "idle", title: "1000 idle kept connections", connections: MANY, load: "idle" },
  {
    ...{ ...SMALL, name: "paced", title: "GET, 200 bytes, with a key and a rate limit, at 60 % of the own peak" },
    ...{ guarded: true, connections: 64, load: "paced", among: PACED },
  },
];
