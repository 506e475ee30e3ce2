/**
 * What a page shows of the gateway at this moment: the figures that it asks for, and status and health where they have changed since its last
 * request. A page that asks each second holds no connection, as it does with an event stream, and a browser has few of them.
 */
import { hash } from "node:crypto";
import { queryOf } from "./replies.ts";
import { statsView, statusView, steady, view, type AdminSource } from "./views.ts";

/** `known`: the tags of what the client has; without it the reply has everything, the history included. */
export interface NowQuestion {
  readonly figures: Parameters<AdminSource["stats"]>[0];
  readonly known: readonly string[] | null;
}

const FIGURES = ["total", "services", "busy"] as const;

/** Reads the query; a sentence if it asks for something unknown. */
export function readNowQuestion(target: string): NowQuestion | string {
  const query = queryOf(target);
  const [figures, service] = [query.get("figures") ?? "total", query.get("service")];
  const wide = FIGURES.find((each) => each === figures);
  if (wide === undefined) return `"figures" must be one of ${FIGURES.join(", ")}.`;
  return { figures: service === null ? wide : { service }, known: query.get("known")?.split(".") ?? null };
}

export function nowView(source: Pick<AdminSource, "status" | "health" | "stats">, { figures, known }: NowQuestion) {
  const [status, health] = [statusView(source.status()), view(source.health())];
  const tags = [status, health].map((view) => hash("sha1", steady(JSON.stringify(view)), "base64url").slice(0, 12));
  const stats = source.stats(figures);
  return {
    known: tags.join("."),
    ...(known?.[0] !== tags[0] && { status }),
    ...(known?.[1] !== tags[1] && { health }),
    stats: known === null ? view(stats) : statsView(stats),
  };
}
