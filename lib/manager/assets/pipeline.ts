/**
 * Draws the path of a request: plugins level by level in the order in which they run, the balancing strategy, and the
 * upstreams with their state and share. Each stage is a button that opens its details.
 */
import type { ExplainedPlugin, Figures, ServiceConfig, ServiceHealth, UpstreamConfig, UpstreamHealth } from "./api.ts";
import { circuitLabel, upstreamLabel } from "./state_labels.ts";
import { button, el, replace, setText, svg } from "./dom.ts";
import { milliseconds, number, percent, perSecond, unbroken } from "./format.ts";
import { balancingNotes, strategyText, type Share } from "./balancing.ts";
import { serviceFacts, stateFacts } from "./balancing_view.ts";
import { addressOf, type Level } from "./inventory.ts";
import {
  breakable,
  factList,
  fixedBadge,
  groupBadge,
  link,
  setOptional,
  settingsList,
  stateBadge,
  type Badge,
} from "./components.ts";
import { injectsFaults, pluginText } from "./plugin_texts.ts";
import { hashFor } from "./url_hash.ts";

/** The stages to draw. */
export interface Plan {
  /** `notes`: conditions on the request. */
  readonly listener: {
    readonly title: string;
    readonly text: string;
    readonly notes: readonly string[];
    details(): HTMLElement;
  };
  /** In the order in which they run, as the gateway gives it. */
  readonly plugins: readonly PlannedPlugin[];
  readonly service: string;
  readonly strategy: string;
  /** Of the service; undefined: it is not in the configuration that is known. */
  readonly config: ServiceConfig | undefined;
  readonly upstreams: readonly PlannedUpstream[];
}

type PlannedUpstream = Omit<UpstreamConfig, "group"> & { readonly group?: string | null | undefined };

/** `action` and `verdict`: what it would do with one request. */
type PlannedPlugin = Pick<ExplainedPlugin, "level" | "name" | "id" | "config" | "action" | "verdict">;

/** What changes while the drawing is shown: of this route alone. */
export interface Traffic {
  /** Statistics of the route; null: none. */
  readonly route: Figures | null;
  readonly circuit: ServiceHealth["circuit_breaker"];
  /** The part of the requests that plugins of this kind have answered; null: not known. */
  answered(plugin: string): number | null;
  /** Of the plugin at that index, for all that it runs for; "": it has not failed. */
  faults(index: number): string;
  upstream(id: string): { readonly health: UpstreamHealth | null; readonly share: Share | null };
}

/** Upstreams that are drawn; further ones are only counted. */
const MAX_DRAWN = 12;
/** With more upstreams only names, states and shares are shown. */
const MAX_DETAILED = 5;
/** Further notes of a stage are only counted; its details have all of them. */
const MAX_NOTES = 6;
const NARROW = "(max-width: 1240px)";

interface Stage {
  readonly button: HTMLButtonElement;
  /** Lines below the name whose texts change. */
  readonly lines: readonly HTMLElement[];
  /** Of the panel. */
  readonly title: string;
  readonly details: () => HTMLElement;
}

interface UpstreamStage extends Stage {
  readonly id: string;
  readonly badge: Badge;
  readonly meter: SVGElement;
  readonly curve: SVGElement;
}

export class Pipeline {
  readonly node: HTMLElement;
  readonly #plan: Plan;
  readonly #listener: Stage;
  readonly #plugins: readonly Stage[];
  readonly #strategy: Stage;
  readonly #circuit = stateBadge();
  readonly #upstreams: readonly UpstreamStage[];
  readonly #list: HTMLElement;
  /** The drawing, which scrolls on narrow screens. */
  readonly #wrap: HTMLElement;
  readonly #title = el("h3", {});
  readonly #content = el("div", {});
  readonly #panel: HTMLElement;
  #open: Stage | null = null;
  #traffic: Traffic | null = null;

  constructor(plan: Plan) {
    const { listener, plugins, upstreams } = plan;
    this.#plan = plan;
    const close = button("Close", () => this.#show(null), "quiet");
    const head = el("div", { class: "stage-panel__head" }, this.#title, close);
    this.#panel = el(
      "section",
      { class: "card stage-panel", id: "stage-panel", "aria-label": "Details of the stage", hidden: true },
      head,
      this.#content,
    );
    this.#listener = this.#stage(
      "listener",
      listener.title,
      listener.text,
      2,
      "Received",
      listener.details,
      listener.notes,
    );
    this.#plugins = plugins.map((plugin) => this.#pluginStage(plugin));
    this.#strategy = this.#strategyStage(plan);
    const drawn = upstreams.slice(0, MAX_DRAWN);
    // All rows of upstreams have the same height, so the ends of the curves need no measuring.
    const rows = drawn.length + (upstreams.length > drawn.length ? 1 : 0);
    this.#upstreams = drawn.map((upstream, i) => this.#upstreamStage(upstream, curveTo(i, rows)));
    this.#list = el("ol", { class: "pipe" }, ...this.#steps(rows));
    this.#wrap = el(
      "div",
      { class: "pipe-wrap", role: "region", "aria-label": "Stages of a request", tabindex: 0 },
      this.#list,
    );
    this.node = el("div", { class: "pipeline" }, this.#wrap, this.#panel);
    new ResizeObserver(() => this.#placePanel()).observe(this.node);
  }

  update(traffic: Traffic): void {
    const { route } = traffic;
    this.#traffic = traffic;
    const requests = route?.requests_per_s ?? 0;
    this.#list.classList.toggle("pipe--flowing", requests > 0);
    write(this.#listener.lines, route === null ? [] : [`${perSecond(requests)} in`, timesText(route)]);
    for (const [i, { lines }] of this.#plugins.entries()) {
      const faults = traffic.faults(i);
      const answered = traffic.answered(this.#plan.plugins[i]!.name) ?? 0;
      write(lines, [answered === 0 ? "" : `${percent(answered)} answered here`, faults]);
      lines[1]!.classList.toggle("figure--bad", faults !== "");
    }
    setOptional(this.#circuit, circuitLabel(traffic.circuit));
    for (const { id, badge, meter, curve, lines } of this.#upstreams) {
      const { health, share } = traffic.upstream(id);
      badge.set(upstreamLabel(health));
      const part = share?.share ?? 0;
      write(lines, [
        share === null ? "" : `${percent(part)} ${share.how === "measured" ? "of the requests" : "planned"}`,
      ]);
      setNumber(meter, "width", Math.round(part * 1000) / 10);
      setNumber(curve, "stroke-width", Math.round((1.5 + part * 4.5) * 10) / 10);
      curve.classList.toggle("fan__curve--away", health !== null && !health.usable);
      curve.classList.toggle("fan__curve--flowing", requests > 0 && part > 0);
    }
  }

  #stage(
    kind: string,
    name: string,
    text: string,
    lineCount: number,
    title: string,
    details: () => HTMLElement,
    notes: readonly string[] = [],
  ): Stage {
    const lines = Array.from({ length: lineCount }, () => el("span", { class: "stage__line num" }));
    const button = el(
      "button",
      { type: "button", class: `stage stage--${kind}`, "aria-expanded": "false", "aria-controls": this.#panel.id },
      el("span", { class: "stage__name" }, ...breakable(name)),
      el("span", { class: "stage__text" }, ...breakable(text)),
      ...notes.slice(0, MAX_NOTES).map((note) => el("span", { class: "stage__note" }, ...breakable(note))),
      notes.length > MAX_NOTES && el("span", { class: "stage__note" }, `and ${number(notes.length - MAX_NOTES)} more`),
      ...lines,
    );
    const stage: Stage = { button, lines, title, details };
    button.addEventListener("click", () => this.#show(this.#open?.button === button ? null : stage));
    return stage;
  }

  #pluginStage({ level, name, id, config, action, verdict }: PlannedPlugin): Stage {
    const title = `${id === null ? name : `${name} (${id})`}, ${level} plugin`;
    const text = [id ?? "", pluginText({ name, config }, 2)].filter(Boolean).join(" · ");
    const stage = this.#stage("plugin", name, text, 2, title, () => settingsList(config));
    if (injectsFaults({ name, config })) stage.button.append(fixedBadge("warn", "Injects faults"));
    if (verdict !== undefined)
      stage.button.append(el("span", { class: `stage__verdict stage__verdict--${action}` }, ...breakable(verdict)));
    return stage;
  }

  /** With what is decided before it. */
  #strategyStage({ service, strategy, config }: Plan): Stage {
    const place = el("p", {}, link(hashFor("services", service), `Service ${service}`));
    const details = () => el("div", { class: "stack" }, place, config !== undefined && serviceFacts(config));
    const text = strategyText(config ?? { load_balancing_strategy: strategy });
    const stage = this.#stage(
      "strategy",
      strategy,
      text,
      0,
      "Load balancing",
      details,
      config === undefined ? [] : balancingNotes(config),
    );
    stage.button.append(this.#circuit.node);
    return stage;
  }

  #upstreamStage(upstream: PlannedUpstream, d: string): UpstreamStage {
    const { id, group = null } = upstream;
    const address = addressOf(upstream);
    const details = () => this.#upstreamFacts(upstream);
    const badge = stateBadge();
    const meter = svg("rect", { class: "share__part", x: 0, y: 0, height: 4, width: 0 });
    const whole = svg("rect", { class: "share__whole", x: 0, y: 0, width: 100, height: 4 });
    const stage = this.#stage("upstream", id, address === id ? "" : address, 1, `Upstream ${id}`, details);
    stage.button.append(
      el("span", { class: "badges" }, badge.node, group !== null && groupBadge(group)),
      svg(
        "svg",
        { class: "share", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
        whole,
        meter,
      ),
    );
    return { ...stage, id, badge, meter, curve: svg("path", { class: "fan__curve", d }) };
  }

  #upstreamFacts(upstream: PlannedUpstream): HTMLElement {
    const { id, weight, group = null, backup } = upstream;
    const state = this.#traffic?.upstream(id).health ?? null;
    return factList([
      ["Address", el("span", { class: "mono" }, addressOf(upstream))],
      ["Weight", String(weight)],
      group === null ? null : ["Group", group],
      backup === true ? ["Backup", "yes: only while no other upstream can be used"] : null,
      ["State", upstreamLabel(state).text],
      ...(state === null ? [] : [...stateFacts(state), ["In flight, all routes", String(state.in_flight)] as const]),
      ["More", link(hashFor("upstreams", this.#plan.service, id), "The page of this upstream")],
    ]);
  }

  #steps(rows: number): readonly HTMLElement[] {
    const { plugins, upstreams } = this.#plan;
    const steps = [el("li", { class: "pipe__step" }, this.#listener.button)];
    for (const { level, stages: ofLevel } of this.#groups()) {
      const list = el(
        "ol",
        { class: "pipe__plugins" },
        ...ofLevel.map(({ button }, i) => el("li", {}, i > 0 && arrow("down"), button)),
      );
      const group = el("div", { class: "pipe__group" }, el("p", { class: "pipe__level" }, `${level} plugins`), list);
      steps.push(el("li", { class: "pipe__step" }, arrow("on"), group));
    }
    if (plugins.length === 0)
      steps.push(el("li", { class: "pipe__step" }, arrow("on"), el("p", { class: "pipe__none muted" }, "No plugins")));
    const curves = this.#upstreams.map(({ curve }) => curve);
    const fan = svg(
      "svg",
      {
        class: "fan",
        viewBox: `0 0 100 ${Math.max(rows, 1) * 100}`,
        preserveAspectRatio: "none",
        "aria-hidden": "true",
      },
      ...curves,
    );
    const rest = upstreams.length - this.#upstreams.length;
    const list = el(
      "ul",
      {
        class: this.#upstreams.length > MAX_DETAILED ? "pipe__upstreams pipe__upstreams--many" : "pipe__upstreams",
        "aria-label": "Upstreams",
      },
      ...this.#upstreams.map(({ button }) => el("li", {}, button)),
      rest > 0 && el("li", { class: "muted" }, `and ${rest} more, in the table of upstreams`),
      upstreams.length === 0 && el("li", { class: "muted" }, "No upstreams"),
    );
    steps.push(el("li", { class: "pipe__step" }, arrow("on"), this.#strategy.button));
    steps.push(el("li", { class: "pipe__step pipe__step--fan" }, fan, arrow("on"), list));
    return steps;
  }

  /**
   * Plugins of one level that run one after the other. A cache of an outer level may run behind guards of an inner one.
   */
  #groups(): readonly { readonly level: Level; readonly stages: readonly Stage[] }[] {
    const groups: { level: Level; stages: Stage[] }[] = [];
    for (const [i, stage] of this.#plugins.entries()) {
      const { level } = this.#plan.plugins[i]!;
      if (groups.at(-1)?.level === level) groups.at(-1)!.stages.push(stage);
      else groups.push({ level, stages: [stage] });
    }
    return groups;
  }

  #show(next: Stage | null): void {
    const before = this.#open;
    before?.button.setAttribute("aria-expanded", "false");
    this.#open = next;
    this.#panel.hidden = next === null;
    if (next === null) return void (this.#panel.contains(document.activeElement) && before?.button.focus());
    next.button.setAttribute("aria-expanded", "true");
    setText(this.#title, next.title);
    replace(this.#content, next.details());
    this.#placePanel();
  }

  /** Below the drawing, or on narrow screens directly below its stage. */
  #placePanel(): void {
    if (this.#open === null) return;
    const above = matchMedia(NARROW).matches ? this.#open.button : this.#wrap;
    if (above.nextElementSibling !== this.#panel) above.after(this.#panel);
  }
}

function write(lines: readonly HTMLElement[], texts: readonly string[]): void {
  for (const [i, line] of lines.entries()) setText(line, texts[i] ?? "");
}

function setNumber(element: Element, name: string, value: number): void {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

function timesText({ p50_ms: p50, p95_ms: p95, p99_ms: p99 }: Figures): string {
  if (p50 === null) return "no recent requests";
  const times = [`p50 ${milliseconds(p50)}`, `p95 ${milliseconds(p95)}`, `p99 ${milliseconds(p99)}`];
  return times.map(unbroken).join(" · ");
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
