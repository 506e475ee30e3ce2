/**
 * The tail page: lines of the access log as requests end, with filters in the address. A hidden tab, and a page that
 * pauses, reads nothing.
 */
import type { AccessLine, TailBatch } from "./api.ts";
import { field, link } from "./components.ts";
import { button, el, replace, setText, type Child } from "./dom.ts";
import { milliseconds, number } from "./format.ts";
import { plainTable } from "./live_tables.ts";
import type { OpenPage } from "./page.ts";
import { hashFor, hashWith, queryIn } from "./url_hash.ts";

/** Each filter, its label and an example. */
const FILTERS = [
  ["service", "Service", ""],
  ["route", "Route", ""],
  ["status", "Status", "5xx, 404, none"],
  ["method", "Method", "POST"],
  ["client", "Client begins with", "10.1."],
  ["path", "Path has", "/items"],
] as const;
const COLUMNS = ["Time", "Status", "Method", "Path", "Route", "Client", "Took", "Caller", "Request"];
/** Lines that the page keeps, the newest first. */
const MAX_LINES = 200;
/** Pause after a key before the filters count. */
const FILTER_AFTER_MS = 400;
const AGAIN_MS = 5_000;
/** Characters of an id in a line. */
const ID_SHOWN = 8;

const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
});

export const page: OpenPage = () => {
  let source: EventSource | null = null;
  let isPaused = false;
  let timer = 0;
  let counts = { matched: 0, shown: 0 };
  const given = queryIn(location.hash);
  const inputs = FILTERS.map(([name, , example]) =>
    el("input", {
      id: `tail-${name}`,
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      value: given.get(name) ?? "",
      placeholder: example,
      oninput: () => later(FILTER_AFTER_MS),
    }),
  );
  const fields = FILTERS.map(([, label], i) => field(label, inputs[i]!));
  const pause = button("Pause", toggle, "", { "aria-pressed": "false" });
  const note = el("p", { class: "muted", role: "status" }, "Waiting for requests…");
  const table = plainTable("Requests that have ended, the newest first", COLUMNS);
  const { rows } = table;
  const clear = button("Clear", () => replace(rows), "quiet");
  const node = el(
    "div",
    { class: "stack" },
    el("form", { class: "card tail__filters", onsubmit: (event: Event) => event.preventDefault() }, ...fields),
    el("div", { class: "toolbar" }, pause, clear, note),
    table.node,
  );
  document.addEventListener("visibilitychange", follow);
  follow();
  return { title: "Tail", node, update: () => {}, close };

  function close(): void {
    document.removeEventListener("visibilitychange", follow);
    stop();
  }

  function stop(): void {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  /** Reads while the tab is visible and the page does not pause. */
  function follow(): void {
    stop();
    if (document.hidden || isPaused) return;
    counts = { matched: 0, shown: 0 };
    source = new EventSource(`api/gateway/tail?${filters()}`);
    source.addEventListener("lines", (event: MessageEvent<string>) => show(JSON.parse(event.data) as TailBatch));
    source.addEventListener("open", () => setText(note, "Waiting for requests…"));
    source.addEventListener("error", () => {
      setText(
        note,
        "The tail could not be read: a filter cannot be used, 32 others read it, or the connection is lost.",
      );
      // A broken stream the browser opens again by itself, one that was refused it does not.
      if (source?.readyState === EventSource.CLOSED) timer = window.setTimeout(follow, AGAIN_MS);
    });
  }

  function filters(): URLSearchParams {
    return new URLSearchParams(
      FILTERS.flatMap(([name], i) => (inputs[i]!.value.trim() === "" ? [] : [[name, inputs[i]!.value.trim()]])),
    );
  }

  function later(ms: number): void {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      history.replaceState(history.state, "", hashWith("#/tail", Object.fromEntries(filters())));
      replace(rows);
      follow();
    }, ms);
  }

  function toggle(): void {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    setText(pause, isPaused ? "Go on" : "Pause");
    setText(note, "Paused.");
    follow();
  }

  function show({ matched, lines }: TailBatch): void {
    counts = { matched: counts.matched + matched, shown: counts.shown + lines.length };
    rows.prepend(...lines.map((line) => table.rowOf(cellsOf(line))).reverse());
    while (rows.children.length > MAX_LINES) rows.lastElementChild!.remove();
    setText(
      note,
      counts.shown === counts.matched
        ? `${number(counts.matched)} requests`
        : `${number(counts.shown)} of ${number(counts.matched)} requests: the gateway sends 50 a second at most`,
    );
  }
};

/** What clients send stays text. */
function cellsOf({
  request_id: id,
  trace_id: trace,
  time,
  status,
  code,
  method,
  path,
  service,
  route,
  client_ip: client,
  duration_ms: took,
  caller,
  fault,
  user_agent: agent,
}: AccessLine): readonly Child[] {
  const place =
    service === null || route === null ? "–" : link(hashFor("routes", service, route), `${service} ${route}`);
  const why = [code, fault].filter((text) => text != null).join(": ");
  const failed = status === null || status >= 500;
  return [
    clock.format(Date.parse(time)),
    el("span", { class: failed ? "figure--bad" : null, title: why === "" ? null : why }, status ?? "none"),
    method,
    el("span", { class: "mono" }, path),
    place,
    el("span", { title: agent }, client),
    milliseconds(took),
    caller ?? "–",
    el(
      "span",
      {},
      el("a", { href: hashFor("requests", id), class: "link", title: id }, shortened(id)),
      traceLink(trace),
    ),
  ];
}

/** By MANAGER_TRACE_URL, which the UI's server writes into the page. */
const TRACE_URL = document.querySelector<HTMLMetaElement>('meta[name="trace-url"]')?.content;

function traceLink(id: string | null): Child {
  if (TRACE_URL === undefined || id === null || !/^[0-9a-f]{32}$/.test(id)) return null;
  const opened = { target: "_blank", rel: "noopener noreferrer", title: `Trace ${id}, in a new tab` };
  return el(
    "a",
    { href: TRACE_URL.replaceAll("{trace_id}", id), class: "link sub", ...opened },
    `Trace ${shortened(id)}`,
  );
}

function shortened(id: string): string {
  return id.length > ID_SHOWN ? `${id.slice(0, ID_SHOWN)}…` : id;
}
