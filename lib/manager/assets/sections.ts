/**
 * The table of pages: those with an icon have a link in the navigation, in groups. All but the first are loaded when
 * they are opened.
 */
import * as overview from "./overview.ts";
import type { OpenPage } from "./page.ts";

export interface Section {
  readonly label: string;
  /** The SVG path of an icon in a square of 18; null: not in the navigation. */
  readonly icon: string | null;
  readonly load: () => Promise<{ readonly page: OpenPage }>;
  /** Only for users from whom the gateway takes changes: others do not see it. */
  readonly writes?: true;
  /** The page of one item, and how many names of it follow in the hash. */
  readonly loadOne?: () => Promise<{ readonly onePage: OpenPage }>;
  readonly names?: number;
}

/** The links of the navigation, by their names. The bar of changes leads to the text and the forms. */
export const NAVIGATION = {
  Observe: ["", "requests", "process"],
  Configure: ["services", "routes", "upstreams", "plugins", "callers", "map", "config"],
  Prove: ["try", "tests", "docs"],
  Change: ["apply", "history"],
} as const satisfies Readonly<Record<string, readonly string[]>>;

/** By the name that the hash begins with. */
export const SECTIONS: Readonly<Record<string, Section>> = {
  "": { label: "Overview", icon: "M2 12h3l2.5-7 3.5 10 2-5h3", load: async () => overview },
  services: {
    label: "Services",
    icon: "M3 3h12v5H3zM3 10.5h12v5H3zM6 5.5h.01M6 13h.01",
    load: () => import("./services_page.ts"),
    names: 1,
    loadOne: () => import("./service_item.ts"),
  },
  routes: {
    label: "Routes",
    icon: "M4 4v4a4 4 0 0 0 4 4h6M11 9l3 3-3 3M4 8v7",
    load: () => import("./routes_page.ts"),
    names: 2,
    loadOne: () => import("./route_item.ts"),
  },
  upstreams: {
    label: "Upstreams",
    icon: "M9 15V8M9 8 4 4M9 8l5-4M4 4h.01M14 4h.01M9 15h.01",
    load: () => import("./upstreams_page.ts"),
    names: 2,
    loadOne: () => import("./upstream_item.ts"),
  },
  plugins: {
    label: "Plugins",
    icon: "M6 2v4M12 2v4M4 6h10v3a5 5 0 0 1-10 0zM9 14v3",
    load: () => import("./plugins_page.ts"),
  },
  callers: {
    label: "Callers",
    icon: "M9 9a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM3 15.5c0-3.5 2.7-5 6-5s6 1.5 6 5",
    load: () => import("./callers_page.ts"),
    names: 1,
    loadOne: () => import("./caller_item.ts"),
  },
  requests: {
    label: "Requests",
    icon: "M3 4h12M3 7.5h9M3 11h12M3 14.5h6M12 13l2 2 2-2",
    load: () => import("./requests_page.ts"),
    names: 1,
    loadOne: () => import("./requests_page.ts"),
  },
  /** The live requests, by their former address. */
  tail: {
    label: "Requests",
    icon: null,
    load: async () => ({ page: (await import("./requests_page.ts")).tailPage }),
  },
  process: {
    label: "Process",
    icon: "M5 5h8v8H5zM7.5 2.5V5M10.5 2.5V5M7.5 13v2.5M10.5 13v2.5M2.5 7.5H5M2.5 10.5H5M13 7.5h2.5M13 10.5h2.5",
    load: () => import("./process_page.ts"),
  },
  map: {
    label: "Map",
    icon: "M2.5 4h4v3h-4zM2.5 11h4v3h-4zM11.5 7.5h4v3h-4zM6.5 5.5H9v7H6.5M9 9h2.5",
    load: () => import("./map_page.ts"),
  },
  try: { label: "Try it", icon: "M5 3.5v11l9-5.5z", load: () => import("./try_page.ts") },
  tests: {
    label: "Tests",
    icon: "M3 4.5 4.5 6 7 3M9.5 4.5H15M3 9.5 4.5 11 7 8M9.5 9.5H15M3 14.5 4.5 16 7 13M9.5 14.5H15",
    load: () => import("./tests_page.ts"),
  },
  config: {
    label: "Configuration",
    icon: "M2.5 5.5H9M13 5.5h2.5M2.5 12.5H5M9 12.5h6.5M11 3.5v4M7 10.5v4",
    load: () => import("./config_page.ts"),
  },
  docs: {
    label: "Docs",
    icon: "M4 3h8a2 2 0 0 1 2 2v10H6a2 2 0 0 1-2-2zM4 13a2 2 0 0 1 2-2h8",
    load: () => import("./docs_page.ts"),
    names: 2,
    loadOne: () => import("./docs_page.ts"),
  },
  edit: { label: "Edit", icon: null, load: () => import("./editor_page.ts"), writes: true },
  add: {
    label: "Add",
    icon: null,
    load: () => import("./add_page.ts"),
    writes: true,
    names: 1,
    loadOne: () => import("./add_page.ts"),
  },
  apply: { label: "Review", icon: "M3 9.5 7 13.5 15 4.5", load: () => import("./apply_page.ts"), writes: true },
  history: {
    label: "History",
    icon: "M3 9a6 6 0 1 0 2-4.5L3 6M3 3v3h3M9 6v3l2.5 1.5",
    load: () => import("./history_page.ts"),
    writes: true,
  },
};

/** In place of a page that changes something, for users from whom the gateway takes no changes. */
export const READ_ONLY: Pick<Section, "load"> = { load: () => import("./read_only_page.ts") };

/** What comes when it is asked for on any page. */
export const ON_DEMAND = {
  acceptWarning: () => import("./accept_warning.ts"),
  palette: () => import("./palette.ts"),
};
