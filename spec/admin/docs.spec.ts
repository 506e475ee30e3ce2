import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ERRORS } from "../../lib/base/errors.ts";
import { startAdmin } from "./harness.ts";

const troubleshooting = readFileSync(new URL("../../docs/troubleshooting.md", import.meta.url), "utf8");

describe("GET /gateway/docs", () => {
  it("has the chapters of each page, and what is said of each code of an error", async () => {
    const { ask, session } = await startAdmin();
    const { status, json } = await ask("GET", "/gateway/docs", { headers: { cookie: await session() } });
    expect(status).toBe(200);
    const routing = json.pages.find(({ page }: { page: string }) => page === "routing.md");
    expect(routing.title).toBe("Routing");
    expect(routing.chapters.length).toBeGreaterThan(2);
    expect(json.pages.map(({ page }: { page: string }) => page)).toContain("plugins/jwt.md");
    // A comment of an example is no heading.
    expect(JSON.stringify(json.pages)).not.toContain("/etc/");
    const codes = json.codes.map(({ code }: { code: string }) => code);
    expect(codes).toEqual(expect.arrayContaining(Object.keys(ERRORS)));
    expect(json.codes.find(({ code }: { code: string }) => code === "rate_limited")).toMatchObject({
      heading: "Errors",
      facts: { Status: "429", Title: "Too many requests", Remedy: expect.any(String) },
    });
  });

  it("has the text of a page, none from beside the docs, and answers nobody without a session", async () => {
    const { ask, session } = await startAdmin();
    const headers = { cookie: await session() };
    const get = (page: string) => ask("GET", `/gateway/docs?page=${encodeURIComponent(page)}`, { headers });
    expect((await get("troubleshooting.md")).json).toEqual({ page: "troubleshooting.md", text: troubleshooting });
    for (const page of ["", "../package.json", "plugins/../../package.json", "/etc/passwd", "none.md", "plugins"])
      expect((await get(page)).status, page).toBe(404);
    expect((await ask("GET", "/gateway/docs")).status).toBe(401);
  });
});
