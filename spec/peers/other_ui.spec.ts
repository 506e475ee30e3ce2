/**
 * A management UI that is not ours, on a port of its own, which knows no more of the admin interface than its four
 * first endpoints.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { oneService } from "../support/gateway.ts";
import { launch, visit, type Browser, type Page } from "./browser.ts";
import { CREDENTIALS, startBuilt } from "./built.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

/** "http://localhost:PORT" of a server whose only page is empty. */
async function emptyPage(): Promise<string> {
  const server = createServer((_request, response) =>
    response.setHeader("Content-Type", "text/html").end("<!doctype html><title>other</title>"),
  );
  await new Promise<void>((resolve) => server.listen(0, "localhost", resolve));
  onTestFinished(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  return `http://localhost:${(server.address() as AddressInfo).port}`;
}

/**
 * The status, or "failed" where the browser keeps the answer from the page; and the body as JSON where there is one.
 */
function ask(
  page: Page,
  url: string,
  options: object,
): Promise<{ status: number | "failed"; body: Record<string, unknown> | null }> {
  return page.evaluate(`fetch(${JSON.stringify(url)}, ${JSON.stringify({ credentials: "include", ...options })}).then(
    async (response) => ({ status: response.status, body: await response.json().catch(() => null) }),
    () => ({ status: "failed", body: null }),
  )`);
}

const basic = (password: string) => ({
  Authorization: `Basic ${Buffer.from(`${CREDENTIALS.user}:${password}`).toString("base64")}`,
});

describe("a management UI on another port of localhost", () => {
  it(
    "a management UI on another port of localhost logs in, " + "reads the configuration with the cookie, and logs out",
    async () => {
      const ui = await emptyPage();
      const { adminUrl } = await startBuilt(oneService(1), { ADMIN_CORS_ORIGIN: ui });
      const admin = adminUrl.replace("127.0.0.1", "localhost");
      const { page } = await visit(browser);
      await page.goto(ui);
      expect((await ask(page, `${admin}/gateway`, {})).status).toBe(401);
      expect((await ask(page, `${admin}/login`, { method: "POST", headers: basic("wrong") })).status).toBe(401);
      expect((await ask(page, `${admin}/login`, { method: "POST", headers: basic(CREDENTIALS.password) })).status).toBe(
        200,
      );
      const device = expect.objectContaining({ name: "token-device" });
      expect(await page.context().cookies()).toEqual([
        expect.objectContaining({ name: "token", httpOnly: true, secure: true }),
        device,
      ]);
      const { status, body } = await ask(page, `${admin}/gateway`, {});
      expect(status).toBe(200);
      expect(body).toMatchObject({ services: [{ name: "s", routes: expect.any(Array) as unknown }], plugins: [] });
      expect((await ask(page, `${admin}/gateway/config`, {})).body).toMatchObject({ AdminUser: CREDENTIALS.user });
      expect((await ask(page, `${admin}/logout`, { method: "DELETE" })).status).toBe(204);
      expect(await page.context().cookies()).toEqual([device]);
      expect((await ask(page, `${admin}/gateway`, {})).status).toBe(401);
    },
  );

  it("a management UI on another port of localhost gets no access when its origin is not allowed", async () => {
    const ui = await emptyPage();
    const { adminUrl } = await startBuilt(oneService(1), { ADMIN_CORS_ORIGIN: "http://localhost:1" });
    const admin = adminUrl.replace("127.0.0.1", "localhost");
    const { page } = await visit(browser);
    await page.goto(ui);
    expect((await ask(page, `${admin}/login`, { method: "POST", headers: basic(CREDENTIALS.password) })).status).toBe(
      "failed",
    );
    expect((await ask(page, `${admin}/healthz`, {})).status).toBe("failed");
    expect(await page.context().cookies()).toEqual([]);
  });
});
