/**
 * Draws the path of a request: plugins level by level in the order in which they run, the balancing strategy, and the upstreams with their
 * state and share. Each stage is a button that opens its details.
 */
import type { Figures, TryFigures, UpstreamHealth } from "./api.ts";
import { circuitCondition, conditionOf } from "./conditions.ts";
import { el, replace, setText, svg } from "./dom.ts";
import { milliseconds, percent, perSecond } from "./format.ts";
import { flowThrough, type Flow, type Level, type Share } from "./inventory.ts";
import { breakable, settingsList, stateBadge } from "./parts.ts";
import { summaryOf } from "./secrets.ts";

export interface Plan {
  readonly listener: { readonly title: string; readonly text: string; details(): HTMLElement };
  /** In the order in which they run; global ones first, those of the route last. */
  readonly plugins: readonly PlannedPlugin[];
  readonly strategy: { readonly name: string; details(): HTMLElement };
  readonly upstreams: readonly { readonly id: string; readonly address: string; details(): HTMLElement }[];
}

export interface PlannedPlugin {
  readonly level: Level;
  readonly name: string;
  readonly id: string | null;
  readonly config: Readonly<Record<string, unknown>>;
}

export interface Live {
  /** Statistics of the route; null: none. */
  readonly route: Figures | null;
  readonly circuit: string | null;
  /** Faults of the plugin at that index. */
  faults(index: number): number;
  upstream(id: string): { readonly health: UpstreamHealth | null; readonly figures: TryFigures | null; readonly share: Share | null };
}

export interface Pipeline {
  readonly node: HTMLElement;
  update(live: Live): void;
  close(): void;
}

/** Further upstreams are counted, not drawn. */
const DRAWN_UPSTREAMS = 12;
/** With more upstreams only names, states and shares are shown. */
const ROOMY_UPSTREAMS = 5;
const LEVELS: readonly Level[] = ["global", "service", "route"];

const STRATEGIES: Readonly<Record<string, string>> = {
  round_robin: "Each in turn, by weight",
  weighted: "Each in turn, by weight",
  least_connections: "The one with the fewest requests under way, by weight",
  random_two_choices: "The less busy of two picked at random",
  ip_hash: "The same one for the same client address",
};

interface Stage {
  readonly button: HTMLButtonElement;
  /** Of the panel. */
  readonly title: string;
  readonly details: () => HTMLElement;
}

interface LiveStage {
  readonly stage: Stage;
  readonly lines: readonly HTMLElement[];
}

export function pipeline(plan: Plan): Pipeline {
  const title = el("h3", {});
  const content = el("div", {});
  const close = el("button", { type: "button", class: "button button--quiet", onclick: () => show(null) }, "Close");
  const panel = el(
    "section",
    { class: "card stage-panel", id: "stage-panel", "aria-label": "Details of the stage" },
    el("div", { class: "stage-panel__head" }, title, close),
    content,
  );
  let open: Stage | null = null;

  function stage(kind: string, name: string, text: string, lines: number, stageTitle: string, details: () => HTMLElement): LiveStage {
    const lineNodes = Array.from({ length: lines }, () => el("span", { class: "stage__line num" }));
    const button = el(
      "button",
      { type: "button", class: `stage stage--${kind}`, "aria-expanded": "false", "aria-controls": panel.id },
      el("span", { class: "stage__name" }, ...breakable(name)),
      el("span", { class: "stage__text" }, ...breakable(text)),
      ...lineNodes,
    );
    const made: Stage = { button, title: stageTitle, details };
    button.addEventListener("click", () => show(open === made ? null : made));
    return { stage: made, lines: lineNodes };
  }

  const listener = stage("listener", plan.listener.title, plan.listener.text, 2, "Received", plan.listener.details);
  const plugins = plan.plugins.map((plugin) => {
    const name = plugin.id === null ? plugin.name : `${plugin.name} (${plugin.id})`;
    const made = stage(
      "plugin",
      plugin.name,
      [plugin.id ?? "", summaryOf(plugin.config, 2)].filter(Boolean).join(" · "),
      3,
      `${name}, ${plugin.level} plugin`,
      () => settingsList(plugin.config),
    );
    return { plugin, ...made };
  });
  const circuit = stateBadge();
  const strategy = stage("strategy", plan.strategy.name, STRATEGIES[plan.strategy.name] ?? "", 1, "Picking an upstream", plan.strategy.details);
  strategy.stage.button.append(circuit.node);
  const drawn = plan.upstreams.slice(0, DRAWN_UPSTREAMS);
  const upstreams = drawn.map((upstream) => {
    const badge = stateBadge();
    const meter = svg("rect", { class: "share__part", x: 0, y: 0, height: 4, width: 0 });
    const made = stage(
      "upstream",
      upstream.id,
      upstream.address === upstream.id ? "" : upstream.address,
      3,
      `Upstream ${upstream.id}`,
      upstream.details,
    );
    made.stage.button.append(
      badge.node,
      svg(
        "svg",
        { class: "share", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("rect", { class: "share__whole", x: 0, y: 0, width: 100, height: 4 }),
        meter,
      ),
    );
    return { upstream, badge, meter, ...made };
  });

  // All rows of upstreams have one height, so that the ends of the curves need no measuring.
  const rows = upstreams.length + (plan.upstreams.length > drawn.length ? 1 : 0);
  const curves = upstreams.map((_, i) => svg("path", { class: "fan__curve", d: curveTo(i, rows) }));
  const fan = svg(
    "svg",
    { class: "fan", viewBox: `0 0 100 ${Math.max(rows, 1) * 100}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...curves,
  );

  const steps = [el("li", { class: "pipe__step" }, listener.stage.button)];
  for (const level of LEVELS) {
    const ofLevel = plugins.filter(({ plugin }) => plugin.level === level);
    if (ofLevel.length === 0) continue;
    const list = el("ol", { class: "pipe__plugins" }, ...ofLevel.map(({ stage: { button } }, i) => el("li", {}, i > 0 && arrow("down"), button)));
    steps.push(
      el(
        "li",
        { class: "pipe__step pipe__step--level" },
        arrow("on"),
        el("div", { class: "pipe__group" }, el("p", { class: "pipe__level" }, `${level} plugins`), list),
      ),
    );
  }
  if (plugins.length === 0) steps.push(el("li", { class: "pipe__step" }, arrow("on"), el("p", { class: "pipe__none muted" }, "No plugins")));
  const rest = plan.upstreams.length - drawn.length;
  steps.push(
    el("li", { class: "pipe__step" }, arrow("on"), strategy.stage.button),
    el(
      "li",
      { class: "pipe__step pipe__step--fan" },
      fan,
      arrow("on"),
      el(
        "ul",
        { class: drawn.length > ROOMY_UPSTREAMS ? "pipe__upstreams pipe__upstreams--many" : "pipe__upstreams", "aria-label": "Upstreams" },
        ...upstreams.map(({ stage: { button } }) => el("li", {}, button)),
        rest > 0 && el("li", { class: "muted" }, `and ${rest} more, in the table of upstreams`),
        plan.upstreams.length === 0 && el("li", { class: "muted" }, "No upstreams"),
      ),
    ),
  );
  const list = el("ol", { class: "pipe" }, ...steps);
  const wrap = el("div", { class: "pipe-wrap", role: "region", "aria-label": "The way of a request, stage by stage", tabindex: 0 }, list);
  const node = el("div", { class: "pipeline" }, wrap, panel);
  panel.hidden = true;

  const narrow = matchMedia("(max-width: 1240px)");
  narrow.addEventListener("change", place);

  function show(next: Stage | null): void {
    const before = open;
    before?.button.setAttribute("aria-expanded", "false");
    open = next;
    panel.hidden = next === null;
    if (next === null) return void (panel.contains(document.activeElement) && before?.button.focus());
    next.button.setAttribute("aria-expanded", "true");
    setText(title, next.title);
    replace(content, next.details());
    place();
  }

  /** Below the drawing, or on narrow screens directly below its stage. */
  function place(): void {
    if (open === null) return;
    const home = narrow.matches ? open.button : wrap;
    if (home.nextElementSibling !== panel) home.after(panel);
  }

  return {
    node,
    update(live) {
      const flows = live.route === null ? null : flowThrough(plan.plugins, live.route);
      const requests = live.route?.requests_per_s ?? 0;
      list.classList.toggle("pipe--flowing", requests > 0);
      write(listener.lines, live.route === null ? [] : [`${perSecond(requests)} in`, timesText(live.route)]);
      for (const [i, { lines }] of plugins.entries()) {
        const faults = live.faults(i);
        write(lines, [...(flows === null ? [] : flowTexts(flows[i]!)), faults === 0 ? "" : `${faults} ${faults === 1 ? "fault" : "faults"}`]);
        lines[2]!.classList.toggle("figure--bad", faults > 0);
      }
      write(strategy.lines, flows === null ? [] : flowTexts(flows.at(-1)!));
      const condition = circuitCondition(live.circuit === null ? null : { state: live.circuit });
      circuit.node.hidden = condition === null;
      if (condition !== null) circuit.set(condition);
      for (const [i, { upstream, badge, meter, lines }] of upstreams.entries()) {
        const { health, figures, share } = live.upstream(upstream.id);
        badge.set(conditionOf(health));
        const part = share?.share ?? 0;
        const shareText = share === null ? "" : `${percent(part)} ${share.how === "measured" ? "of the traffic" : "planned"}`;
        write(lines, figures === null ? [shareText] : [shareText, `${perSecond(figures.requests_per_s)} in`, timesText(figures)]);
        setNumber(meter, "width", Math.round(part * 1000) / 10);
        const curve = curves[i]!;
        setNumber(curve, "stroke-width", Math.round((1.5 + part * 4.5) * 10) / 10);
        curve.classList.toggle("fan__curve--away", health !== null && !health.usable);
        curve.classList.toggle("fan__curve--flowing", requests > 0 && part > 0);
      }
    },
    close: () => narrow.removeEventListener("change", place),
  };
}

function write(lines: readonly HTMLElement[], texts: readonly string[]): void {
  for (const [i, line] of lines.entries()) setText(line, texts[i] ?? "");
}

function setNumber(element: Element, name: string, value: number): void {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

function flowTexts({ into, exact, refused }: Flow): readonly string[] {
  return [`${exact ? "" : "≤ "}${perSecond(into)} in`, refused === null || refused === 0 ? "" : `${perSecond(refused)} refused`];
}

/** Keeps a number and its unit on one line. */
function timesText({ p50_ms: p50, p95_ms: p95, p99_ms: p99 }: TryFigures): string {
  if (p50 === null) return "no requests lately";
  const times = [`p50 ${milliseconds(p50)}`, `p95 ${milliseconds(p95)}`, `p99 ${milliseconds(p99)}`];
  return times.map((time) => time.replaceAll(" ", "\u00a0")).join(" · ");
}

/** A curve from the middle of the left side to the middle of a row. */
function curveTo(row: number, rows: number): string {
  const from = rows * 50;
  const to = row * 100 + 50;
  return `M0 ${from}C55 ${from} 45 ${to} 100 ${to}`;
}

function arrow(direction: "on" | "down"): SVGSVGElement {
  return svg(
    "svg",
    { class: `arrow arrow--${direction}`, viewBox: "0 0 24 12", width: 24, height: 12, "aria-hidden": "true" },
    svg("path", { class: "arrow__line", d: "M0 6H18" }),
    svg("path", { class: "arrow__head", d: "M16 1.5 23 6 16 10.5Z" }),
  );
}
