/**
 * The pages with a table of all configured items of a kind.
 */
import type { ProxyConfig, ServiceConfig } from "./api.ts";
import { loading, slot } from "./components.ts";
import { el } from "./dom.ts";
import type { Known, Page, Shown } from "./page.ts";
import { linkColumn, type Column, type DataTable } from "./tables.ts";
import { hashFor } from "./url_hash.ts";

interface ListOptions<Row> {
  readonly title: string;
  readonly table: DataTable<Row>;
  readonly rowsOf: (config: ProxyConfig) => readonly Row[];
  /** What changes the rows besides the configuration. Default: nothing. */
  readonly follows?: "health";
  readonly shown?: Shown;
  /** Shown while there are rows. */
  readonly above?: HTMLElement;
  readonly below?: HTMLElement;
  /** Called before the rows are refreshed, once there is a configuration. */
  readonly update?: (known: Known) => void;
}

export function listPage<Row>({
  title,
  table,
  rowsOf,
  follows,
  shown = "total",
  above,
  below,
  update,
}: ListOptions<Row>): Page {
  const node = el("div", { class: "stack" }, above ?? null, el("div", { class: "card" }, table.node), below ?? null);
  const content = slot();
  content.put(loading("the configuration"));
  let config: ProxyConfig | null = null;
  let health: Known["health"] = null;
  let rows: readonly Row[] = [];
  return {
    title,
    node: content.node,
    shown,
    update(known) {
      if (known.config === null) return;
      if (known.config !== config || (follows === "health" && known.health !== health)) {
        config = known.config;
        health = known.health;
        rows = rowsOf(config);
      }
      for (const note of [above, below]) if (note !== undefined) note.hidden = rows.length === 0;
      content.put(node);
      update?.(known);
      table.show(rows);
    },
  };
}

/** The service of a row. */
export function serviceColumn<Row extends { readonly service: ServiceConfig }>(): Column<Row> {
  const nameOf = ({ service }: Row) => service.name;
  return linkColumn({ key: "service", title: "Service" }, nameOf, (row) => hashFor("services", nameOf(row)));
}
