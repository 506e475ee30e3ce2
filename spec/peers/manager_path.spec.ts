/**
 * The management UI below a path of nginx, which serves something else beside it under the same name.
 */
import { spawnSync } from "node:child_process";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch, soon, visit, type Browser } from "./browser.ts";
import { document, blocksOf } from "../support/documents.ts";
import { startBuilt } from "./built.ts";
import { NGINX, nginxWith } from "./nginx.ts";
import { heading, isLive, signIn, upstream } from "./manager_pages.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

const [LOCATION = ""] = blocksOf(document("docs/manager.md"), "nginx");

/** As docs/manager.md shows it, and a page of its own at /. */
const nginxBefore = (managerPort: number) =>
  nginxWith(
    'location / { default_type text/plain; return 200 "$http_cookie"; }',
    LOCATION.replace("5173", String(managerPort)),
  );

it(
  "signs in, shows every kind of page, changes and signs out below a path of nginx, " +
    "and the applications beside it get none of its cookies",
  async () => {
    expect(spawnSync(NGINX, ["-v"]).status).toBe(0);
    const { port: shop } = await upstream();
    const { managerUrl } = await startBuilt(
      {
        services: [
          { name: "shop", base_path: "/shop", upstreams: [{ host: "127.0.0.1", port: shop }], routes: [{ path: "/" }] },
        ],
      },
      { MANAGER: "true", MANAGER_PORT: "0", MANAGER_BASE_PATH: "/edge", ADMIN_WRITE: "true" },
    );
    expect(new URL(managerUrl!).pathname).toBe("/edge/");
    const front = `http://localhost:${await nginxBefore(Number(new URL(managerUrl!).port))}`;

    const { page, errors, origins } = await visit(browser);
    const asked: string[] = [];
    page.on("request", (request) => asked.push(new URL(request.url()).pathname));
    await page.goto(`${front}/edge`);
    await heading(page, "Sign in");
    expect(page.url()).toMatch(new RegExp(`^${front}/edge/(#|$)`));
    await signIn(page);
    await isLive(page);
    const cookies = await page.context().cookies();
    expect(cookies.map(({ name }) => name).sort()).toEqual(["token", "token-device"]);
    for (const name of ["Routes", "Requests", "Configuration", "Review"]) {
      await page.getByRole("link", { name, exact: true }).first().click();
      await soon(() => page.title()).toMatch(new RegExp(`^${name} · `));
    }
    await page.reload();
    await soon(() => page.title()).toMatch(/^Review · /);

    await page.context().addCookies([{ name: "own", value: "1", url: `${front}/` }]);
    expect(await page.evaluate<string>('fetch("/app").then((reply) => reply.text())')).toBe("own=1");

    const reloaded = await page.evaluate<number>(
      'fetch("api/gateway/reload", { method: "POST" }).then((r) => r.status)',
    );
    expect(reloaded).toBe(200);
    await page.getByRole("button", { name: "Sign out" }).click();
    await heading(page, "Sign in");
    expect((await page.context().cookies()).map(({ name }) => name).sort()).toEqual(["own", "token-device"]);
    expect(asked.filter((path) => !path.startsWith("/edge") && path !== "/app")).toEqual([]);
    expect([...origins]).toEqual([front]);
    // Before the login, and after the session.
    expect(errors.filter((text) => !text.includes("401 (Unauthorized)"))).toEqual([]);
  },
);
