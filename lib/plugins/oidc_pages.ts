/**
 * What the plugin kind `oidc` answers to browsers by itself: small pages, and problem documents where no page was asked
 * for.
 */
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValue, headerValues, type HeaderList } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { weightOf } from "../http/weight.ts";

/** Nothing of a login may be stored, and what a page says depends on cookies. */
export const UNSTORED: HeaderList = ["Cache-Control", "no-store", "Vary", "Cookie, Accept"];

/**
 * Whether a person waits for a page: scripts and other programs that accept anything get an error that they can read.
 */
export function isForPage({ headers, upgrade }: Exchange): boolean {
  const mode = headerValue(headers, "sec-fetch-mode");
  if (upgrade !== null || (mode !== undefined && mode !== "navigate")) return false;
  return headerValues(headers, "accept").some((line) => line.toLowerCase().split(",").some(isPageType));
}

function isPageType(item: string): boolean {
  const [type, ...parameters] = item.split(";").map((part) => part.trim());
  return type === "text/html" && (weightOf(parameters) ?? 0) > 0;
}

export interface PageLink {
  readonly href: string;
  readonly label: string;
  /** Default false. */
  readonly opensWindow?: boolean;
}

export interface LoginRefusal {
  readonly code: ErrorCode;
  readonly detail: string;
  /** For the log only. */
  readonly why?: string | undefined;
  /** See `Notes.rule`. */
  readonly rule?: string;
  readonly headers?: HeaderList;
  readonly link?: PageLink;
}

/** A page, or a problem document where none is wanted. */
export function refused(exchange: Exchange, { code, detail, why, rule, headers = [], link }: LoginRefusal): Reply {
  const { call } = exchange;
  const all = [...headers, ...UNSTORED];
  const noted = { ...(why !== undefined && { why }), ...(rule !== undefined && { rule }) };
  if (!isForPage(exchange)) return problem(call, code, { detail, headers: all, ...noted });
  call.fail(code, why, rule);
  const { status, title } = ERRORS[code];
  const target = link?.opensWindow === true ? ' target="_blank" rel="noopener"' : "";
  const links =
    link === undefined ? [] : [`<p><a href="${escaped(link.href)}"${target}>${escaped(link.label)}</a></p>`];
  return page(
    status,
    title,
    [...detail.split("\n").map(paragraph), ...links, `<p><small>Request ${escaped(call.id)}</small></p>`],
    all,
  );
}

/** `lines` are HTML. */
export function page(status: number, title: string, lines: readonly string[], headers: HeaderList): Reply {
  const html = [
    "<!doctype html>",
    '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
    `<title>${escaped(title)}</title></head>`,
  ];
  const body = Buffer.from(
    [...html, `<body><main><h1>${escaped(title)}</h1>`, ...lines, "</main></body></html>", ""].join("\n"),
  );
  const own = [
    "Content-Type",
    "text/html; charset=utf-8",
    "Content-Length",
    String(body.length),
    "Content-Security-Policy",
    POLICY,
    "X-Content-Type-Options",
    "nosniff",
  ];
  return { status, headers: [...own, ...headers], body };
}

/** Without form-action, which Chromium applies to the redirect behind a form, too: that leads to the provider. */
const POLICY = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'";

export function paragraph(text: string): string {
  return `<p>${escaped(text)}</p>`;
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** `location` contains characters of URLs only. */
export function led(status: 302 | 303, location: string, headers: HeaderList): Reply {
  return {
    status,
    headers: ["Location", location, "Content-Length", "0", "Referrer-Policy", "no-referrer", ...headers, ...UNSTORED],
    body: null,
  };
}
