/**
 * The two kinds of pages about configured items: all items in a table, and the details of one item.
 */
import type { ProxyConfig, ServiceConfig } from "./api.ts";
import { link, loading, missing, slot } from "./components.ts";
import { el } from "./dom.ts";
import type { Known, Page, Shown } from "./page.ts";
import { fixedPart, type Column, type DataTable } from "./tables.ts";
import { hashFor } from "./url_hash.ts";

interface ListOptions<Row> {
  readonly title: string;
  readonly table: DataTable<Row>;
  readonly rowsOf: (config: ProxyConfig) => readonly Row[];
  readonly shown?: Shown;
  /** Shown while there are rows. */
  readonly above?: HTMLElement;
  readonly below?: HTMLElement;
  /** Called before the rows are refreshed, once there is a configuration. */
  readonly update?: (known: Known) => void;
}

export function listPage<Row>({ title, table, rowsOf, shown = "total", above, below, update }: ListOptions<Row>): Page {
  const node = el("div", { class: "stack" }, above ?? null, el("div", { class: "card" }, table.node), below ?? null);
  const content = slot();
  content.put(loading("the configuration"));
  let config: ProxyConfig | null = null;
  let rows: readonly Row[] = [];
  return {
    title,
    node: content.node,
    shown,
    update(known) {
      if (known.config === null) return;
      if (known.config !== config) {
        config = known.config;
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
  return {
    key: "service",
    title: "Service",
    sortBy: ({ service }) => service.name,
    make: ({ service: { name } }) => fixedPart(link(hashFor("services", name), name)),
  };
}

export type Detail = Pick<Page, "node" | "update">;

interface DetailOptions<Item> {
  readonly title: string;
  /** Of the item. */
  readonly service: string;
  /** Null: not in the configuration. */
  readonly find: (config: ProxyConfig) => Item | null;
  /** The name of the missing item, and the list that users can go to. */
  readonly missing: { readonly what: string; readonly href: string; readonly back: string };
  /** The configuration that the details show: they are created again when it has changed. */
  readonly shown: (item: Item, config: ProxyConfig) => unknown;
  readonly create: (item: Item, config: ProxyConfig) => Detail;
}

export function detailPage<Item>({
  title,
  service,
  find,
  missing: { what, href, back },
  shown,
  create,
}: DetailOptions<Item>): Page {
  const content = slot();
  content.put(loading("the configuration"));
  const notFound = missing(what, href, back);
  let detail: (Detail & { readonly key: string }) | null = null;
  return {
    title,
    node: content.node,
    shown: { service },
    update(known) {
      if (known.config === null) return;
      const item = find(known.config);
      if (item === null) return content.put(notFound);
      const key = JSON.stringify(shown(item, known.config));
      if (detail?.key !== key) detail = { key, ...create(item, known.config) };
      content.put(detail.node);
      detail.update(known);
    },
  };
}
