/**
 * The interface between the frame of the application (`main.ts`) and each page.
 */
import type { Health, Point, ProxyConfig, Stats, Status } from "./api.ts";

/** The last known state of the gateway; members are null until they are known. */
export interface Known {
  readonly config: ProxyConfig | null;
  readonly status: Status | null;
  /** Uptime of the gateway in seconds: `status` is sent only when something else in it has changed. */
  readonly uptimeS: number | null;
  readonly health: Health | null;
  readonly stats: Stats | null;
  /** The last 15 minutes, oldest first; the last step may be incomplete. */
  readonly history: readonly Point[];
  /** Length of a step in seconds. */
  readonly stepS: number;
  readonly connection: "connecting" | "live" | "lost";
  /** The gateway's time, in ms since 1970: the browser's clock may be another. */
  readonly now: number;
}

/**
 * The services whose figures a page shows: none, those of the first routes, all as a whole, all with routes and
 * upstreams, or one with these.
 */
export type Shown = "total" | "top" | "services" | "busy" | { readonly service: string };

/** As the query of GET /gateway/now. */
export function queryOf(shown: Shown): string {
  return new URLSearchParams(typeof shown === "string" ? { figures: shown } : shown).toString();
}

export interface Page {
  /** Title of the document, and the page's only h1. */
  readonly title: string;
  readonly node: HTMLElement;
  /** Default: "total". */
  readonly shown?: Shown;
  /** An update shows the part of it that the query of the address names. */
  readonly hasTabs?: true;
  /** Called once when the page is in the document, and whenever the state changes. */
  update(known: Known): void;
  /** Called when the page is left: ends its timers, and its listeners outside of `node`. */
  close?(): void;
}

/** Who has signed in, and what the gateway accepts from them: it refuses the rest, whatever a page shows. */
export interface Session {
  readonly user: string;
  readonly role: "admin" | "operator" | "viewer";
  /** Whether the gateway takes changes from this user: an admin's, with ADMIN_WRITE. */
  readonly write: boolean;
  /** Whether this user may take upstreams out of traffic. */
  readonly drain: boolean;
  /** By the gateway's clock, in ms since 1970. */
  readonly expiresAt: number;
}

/** What the frame provides to each page. */
export interface Frame {
  /** Null until it is known. */
  readonly session: Session | null;
  /** What was entered, by the hash of its page: until the sign-out, in memory only, since it may hold secrets. */
  readonly texts: Map<string, Readonly<Record<string, string>>>;
  /** Goes to another page: "#/routes/shop/list". */
  goTo(hash: string): void;
  /** Requests configuration, status, health and stats again, as after a reload. */
  refresh(): Promise<void>;
  /** Writes into the draft that a warning is accepted; `name`: as an entry of `global.accept_warnings`. */
  acceptWarning(name: string): void;
  /** Shows a temporary message, also to screen readers. */
  showMessage(text: string, kind?: "info" | "good" | "bad"): void;
  /** Handles an error that the page does not show itself: a session that has ended leads to the login and back. */
  showError(error: unknown): void;
}

/**
 * `segments` are the parts of the hash after the page's own name, decoded: "#/routes/shop/list%20all" has ["shop",
 * "list all"].
 */
export type OpenPage = (frame: Frame, segments: readonly string[]) => Page;
