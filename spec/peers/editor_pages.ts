/**
 * The editor of the management UI in a browser: of a gateway, or of a stand-in for its admin interface that answers as
 * the test says, and when.
 */
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { expect, onTestFinished } from "vitest";
import { startManager } from "../manager/harness.ts";
import { visit, type Browser, type Locator, type Page } from "./browser.ts";
import { heading, until, type SharedGateway } from "./manager_pages.ts";

export interface OpenEditor {
  readonly page: Page;
  readonly field: Locator;
  readonly errors: string[];
  /** The texts that were to be validated. */
  readonly validated: string[];
}

/**
 * The page "#/edit" of the gateway whose file has this text, be it a configuration or not; its first check may be under
 * way.
 */
export async function openEditor(shared: SharedGateway, source: string): Promise<OpenEditor> {
  await shared.put(source);
  const { page, errors, managerUrl } = await shared.newPage();
  const validated: string[] = [];
  page.on(
    "request",
    (request) => void (request.url().endsWith("/gateway/validate") && validated.push(request.postData()!)),
  );
  return { page, errors, validated, field: await shownAt(page, managerUrl!) };
}

async function shownAt(page: Page, managerUrl: string): Promise<Locator> {
  await page.goto(`${managerUrl}#/edit`);
  await heading(page, "Edit");
  const field = page.getByRole("textbox", { name: "Text of the configuration" });
  await field.waitFor();
  return field;
}

export interface StandIn {
  /** The file. */
  readonly source: string;
  readonly schema: unknown;
  /** The reply to POST /gateway/validate: status, body and headers. */
  validate: (
    text: string,
  ) =>
    readonly [number, unknown, Record<string, string>?] | Promise<readonly [number, unknown, Record<string, string>?]>;
  /** The texts that were to be validated. */
  readonly validated: string[];
}

export const ACCEPTED = { outcome: "accepted", issues: [], warnings: [], tests: null, diff: null, requests: null };

const DIGEST = "aaaaaaaaaaaa";

/** GET /gateway/now of a gateway without any request. */
function nowOf(digest: string): unknown {
  const at = new Date().toISOString();
  const none = {
    requests_per_s: 0,
    errors_per_s: 0,
    p50_ms: null,
    p95_ms: null,
    p99_ms: null,
    in_flight: 0,
    limited_per_s: 0,
    statuses_per_s: {},
  };
  const point = { at, requests: 0, errors: 0, limited: 0, statuses: {}, p50_ms: null, p95_ms: null, p99_ms: null };
  const status = {
    version: "0.0.0",
    state: "serving",
    ready: true,
    uptime_s: 1,
    in_flight: 0,
    digest,
    loaded_at: at,
    last_reload: null,
    last_change: null,
    counts: {},
    warnings: [],
    certificates: [],
    tests: null,
  };
  return {
    known: "1",
    status,
    health: { services: [] },
    stats: {
      at,
      window_s: 60,
      total: none,
      unrouted: none,
      codes_per_s: {},
      services: null,
      point,
      step_s: 10,
      history: [],
    },
  };
}

/** The page "#/edit" with this text, before a stand-in. */
export async function openStandIn(
  browser: Browser,
  source: string,
  given: Partial<StandIn> = {},
): Promise<OpenEditor & { readonly standIn: StandIn }> {
  const standIn: StandIn = { source, schema: {}, validate: () => [200, ACCEPTED], validated: [], ...given };
  const server = http.createServer((request, response) => void answer(standIn, request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.close(), server.closeAllConnections()));
  const { port } = await startManager((server.address() as AddressInfo).port);
  const { page, errors } = await visit(browser);
  const field = await shownAt(page, `http://localhost:${port}/`);
  await settled(page);
  return { page, field, standIn, errors, validated: standIn.validated };
}

async function answer(standIn: StandIn, request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
  const body = (await buffer(request)).toString();
  const send = (status: number, value: unknown, headers: Record<string, string> = {}) =>
    void response
      .writeHead(status, { "Content-Type": "application/json", ...headers })
      .end(typeof value === "string" ? value : JSON.stringify(value));
  const path = request.url!.replace(/\?.*/, "");
  if (path === "/gateway/source") return send(200, standIn.source, { ETag: `"${DIGEST}"` });
  if (path === "/gateway/schema") return send(200, standIn.schema);
  if (path === "/gateway/session")
    return send(200, {
      user: "admin",
      role: "admin",
      write: true,
      drain: true,
      expires_at: new Date(Date.now() + 3_600_000).toISOString(),
    });
  if (path === "/gateway/now") return send(200, nowOf(DIGEST));
  if (path === "/gateway") return send(200, { global: { name: "stand-in", plugins: [] }, plugins: [], services: [] });
  if (path !== "/gateway/validate") return send(404, {});
  standIn.validated.push(body);
  const [status, value, headers] = await standIn.validate(body);
  return send(status, value, headers);
}

/** Resolves once the gateway has checked the text. */
export function settled(page: Page): Promise<void> {
  return until(page, `document.querySelector("main").textContent.includes("Checked by the gateway")`);
}

/** Puts the caret behind a part of the text, or selects the part. */
export async function caretBehind(page: Page, part: string, isSelected = false): Promise<void> {
  const found = await page.evaluate(`(() => {
    const field = document.querySelector("textarea");
    const at = field.value.indexOf(${JSON.stringify(part)});
    field.focus();
    field.setSelectionRange(at + ${isSelected ? 0 : part.length}, at + ${part.length});
    return at;
  })()`);
  expect(found).not.toBe(-1);
}

/**
 * The text behind the caret of the focused field, up to a space or the end of its line; null: something is selected.
 */
export function atCaret(page: Page): Promise<string | null> {
  return page.evaluate(
    "(({ value, selectionStart: from, selectionEnd: to }) => from === to ? /^[^\\s," +
      "]*/.exec(value.slice(from))[0] : null)" +
      "(document.activeElement)",
  );
}

/** The texts of the drawn pieces of this kind: "error", "key", "found". */
export function drawn(page: Page, kind: string): Promise<string[]> {
  return page.evaluate(`[...document.querySelectorAll(".editor__${kind}")].map(({ textContent }) => textContent)`);
}
