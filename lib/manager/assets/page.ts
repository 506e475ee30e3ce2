/**
 * What a page is, and what it may know: the contract between the frame of the application (`main.ts`) and each page.
 */
import type { Health, Point, ProxyConfig, Stats, Status } from "./api.ts";

/** The last that is known of the gateway; null as long as nothing is. */
export interface Known {
  readonly config: ProxyConfig | null;
  readonly status: Status | null;
  /** For how long the gateway has been up, in seconds, when it was last heard of: `status` comes only when something else in it has changed. */
  readonly uptimeS: number | null;
  readonly health: Health | null;
  readonly stats: Stats | null;
  /** The last 15 minutes, oldest first; the last one may not be over yet. */
  readonly history: readonly Point[];
  /** Seconds of one point. */
  readonly stepS: number;
  /** Of the stream of events. */
  readonly connection: "connecting" | "live" | "lost";
}

export interface Page {
  /** Of the document, and the page's only h1. */
  readonly title: string;
  readonly node: HTMLElement;
  /** Called once when the page has been put into the document, and whenever something new is known. */
  update(known: Known): void;
  /** The page has been left: timers and listeners of its own end. */
  close?(): void;
}

/** What the frame gives each page. */
export interface Frame {
  /** Goes to another page: "#/routes/shop/list". */
  go(hash: string): void;
  /** Asks for configuration, status, health and stats anew, as after a reload. */
  refresh(): Promise<void>;
  /** Says something that passes, also to screen readers. */
  say(text: string, kind?: "info" | "good" | "bad"): void;
  /** What a page does with an error it cannot place: a session that has ended leads to the login and back. */
  fail(error: unknown): void;
}

/** `words` are the parts of the hash behind the page's own name, decoded: "#/routes/shop/list%20all" has ["shop", "list all"]. */
export type OpenPage = (frame: Frame, words: readonly string[]) => Page;
