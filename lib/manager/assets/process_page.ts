/**
 * The process page: memory, connections and the delay of the event loop, of each worker; and the other gateways that
 * have their configuration from the same key of etcd.
 */
import type { FleetFigures, FleetGateway, ProcessFigures } from "./api.ts";
import { figuresAt } from "./asking.ts";
import { pair } from "./components.ts";
import { el, replace, setText } from "./dom.ts";
import { bytes, milliseconds, moment, number } from "./format.ts";
import { liveTable } from "./live_tables.ts";
import type { OpenPage } from "./page.ts";

export const page: OpenPage = () => {
  const facts = el("dl", { class: "pairs" });
  const from = el("dl", { class: "pairs" });
  const card = el("div", { class: "card" }, el("h2", {}, "Source of the configuration"), from);
  card.hidden = true;
  const threads = liveTable(
    "Threads that serve",
    ["Thread", "Delay p50", "p99", "Longest", "Heap used", "Heap", "Buffers", "Connections", "In flight"],
    [1, 2, 3, 4, 5, 6, 7, 8],
  );
  const asking = figuresAt<ProcessFigures>("/gateway/process", "Figures of the process", show);
  const explained = el(
    "p",
    { class: "muted" },
    "The delay is how late the event loop came round in the last seconds: requests wait as long.",
  );
  const fleet = liveTable("Fleet", ["Gateway", "Version", "Configuration", "Since", "State", "Refused"]);
  const fleetNote = el("p", { class: "muted" });
  const askingFleet = figuresAt<FleetFigures>("/gateway/fleet", "The fleet", showFleet, () => 5000);
  const node = el(
    "div",
    { class: "stack live" },
    asking.note,
    el("div", { class: "card" }, facts),
    card,
    threads.node,
    explained,
    askingFleet.note,
    fleet.node,
    fleetNote,
  );
  const update = () => {
    asking.update();
    askingFleet.update();
  };
  return { title: "Process", node, update };

  /** Nothing is shown where the configuration is not in etcd. */
  function showFleet({ key, problem, own_id: own, gateways }: FleetFigures): void {
    fleet.show(gateways, (gateway) => cellsOf(gateway, own));
    const about =
      problem === null
        ? `By their entries below ${key}. Gateways with CONFIG_READ_ONLY=true have none.`
        : `The gateways of ${key} are not known: ${problem}`;
    setText(fleetNote, key === null ? "" : about);
  }

  function show({
    rss_bytes: memory,
    cpu_s: cpu,
    open_files: files,
    connections,
    in_flight: inFlight,
    source,
    threads: all,
  }: ProcessFigures): void {
    const lines = [
      ["Memory", bytes(memory)],
      ["Processor time", `${number(cpu)} s`],
      ["Open files", files === null ? "–" : number(files)],
      ["Connections", number(connections)],
      ["In flight", number(inFlight)],
    ];
    replace(facts, ...lines.flatMap(([name, text]) => pair(name!, text!)));
    card.hidden = source === null;
    if (source !== null) replace(from, ...sourceLines(source).flatMap(([name, text]) => pair(name, text)));
    threads.show(all, ({ worker, lag_ms: lag, ...thread }) => [
      worker === null ? "main" : `worker ${worker}`,
      ...[lag.p50, lag.p99, lag.max].map(milliseconds),
      ...[thread.heap_used_bytes, thread.heap_bytes, thread.external_bytes].map(bytes),
      ...[thread.connections, thread.in_flight].map(number),
    ]);
  }
};

function sourceLines({
  name,
  up,
  since,
  revision,
  problem,
  copy,
}: NonNullable<ProcessFigures["source"]>): [name: string, text: string][] {
  return [
    ["From", name],
    ["State", `${up ? "answers" : "does not answer"} since ${moment(since)}`],
    ...(problem === null ? [] : [["Problem", problem] as [string, string]]),
    ["Revision", revision ?? "–"],
    ...(copy === null ? [] : [["In force", `a copy, kept ${moment(copy.kept_at)}`] as [string, string]]),
  ];
}

function cellsOf({ id, name, version, digest, since, ready, refused }: FleetGateway, own: string | null): string[] {
  if (name === undefined) return [id, "–", "–", "–", "–", "an entry that no gateway has written"];
  const what = refused === undefined ? "" : `${refused.digest ?? "a missing text"}: ${refused.reason}`;
  return [
    id === own ? `${name} (this gateway)` : name,
    version ?? "–",
    digest ?? "–",
    since ?? "–",
    ready === true ? "ready" : "not ready",
    what,
  ];
}
