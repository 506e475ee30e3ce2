/**
 * Answers `GET /gateway/docs`: the documentation in the package, for browsers that reach nothing else: an index of
 * chapters and codes, and with `?page=routing.md` one page.
 */
import { compressed } from "../http/content_coding.ts";
import { problem, type Reply } from "../http/reply.ts";
import { entriesOf, ownPage, ownPages, TROUBLESHOOTING } from "../operator/own_docs.ts";
import type { Inbound } from "../server/inbound.ts";
import { json, queryOf } from "./replies.ts";

/** Made once: it stays as long as the program. */
let index: ReturnType<typeof indexOf> | null = null;

export function docsRequest({ call, target, headers }: Inbound): Reply | Promise<Reply> {
  const pages = ownPages();
  if (pages === null)
    return problem(call, "route_not_found", { detail: "This build of the program has no documentation." });
  const page = queryOf(target).get("page");
  if (page === null) return compressed(json(200, (index ??= indexOf(pages))), headers);
  if (pages.includes(page)) return compressed(json(200, { page, text: ownPage(page) ?? "" }), headers);
  return problem(call, "route_not_found", {
    detail: "The documentation has no such page: GET /gateway/docs lists them.",
  });
}

function indexOf(pages: readonly string[]) {
  return {
    pages: pages.map((page) => {
      const headings = Array.from(
        withoutCode(ownPage(page) ?? "").matchAll(/^(#{1,3}) (.+)$/gm),
        ([, , text]) => text!,
      );
      return { page, title: headings[0] ?? page, chapters: headings.slice(1) };
    }),
    codes: entriesOf(ownPage(TROUBLESHOOTING) ?? "")
      .filter(({ code }) => /^[a-z_]+$/.test(code))
      .map(({ heading, code, facts }) => ({ code, heading, facts: Object.fromEntries(facts) })),
  };
}

/** In examples "#" begins a comment. */
function withoutCode(text: string): string {
  return text.replace(/^```[^]*?^```/gm, "");
}
