/**
 * Stands in for the pages that change something, for users from whom the gateway takes no changes.
 */
import { link } from "./components.ts";
import { el } from "./dom.ts";
import type { OpenPage } from "./page.ts";

export const page: OpenPage = ({ session }) => {
  const why =
    session !== null && session.role !== "admin"
      ? `You are signed in as ${session.user}, ${CANNOT[session.role]}.`
      : "This gateway takes no changes from the browser. Its operator can allow that with ADMIN_WRITE=true.";
  const node = el(
    "div",
    { class: "card empty" },
    el("p", {}, why),
    el("p", {}, link("#/config", "See the configuration")),
  );
  return { title: "Read only", node, update: () => {} };
};

const CANNOT = {
  viewer: "a viewer, who cannot change anything",
  operator: "an operator, who cannot change the configuration",
} as const;
