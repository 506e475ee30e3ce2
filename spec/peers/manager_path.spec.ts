/**
 * The management UI below a path of nginx, which serves something else beside it under the same name.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { freePort } from "../bench/peers/machine.ts";
import { launch, soon, visit, type Browser } from "./browser.ts";
import { document, blocksOf } from "../support/documents.ts";
import { emptyFolder, startBuilt } from "./built.ts";
import { heading, isLive, signIn, upstream } from "./manager_pages.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

const NGINX = ["/usr/sbin/nginx", "/usr/bin/nginx"].find(existsSync) ?? "nginx";

const [LOCATION = ""] = blocksOf(document("docs/manager.md"), "nginx");

/** As docs/manager.md shows it, and a page of its own at /. Resolves with its port once it listens. */
async function nginxBefore(managerPort: number): Promise<number> {
  const folder = emptyFolder();
  const port = await freePort();
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${name};`);
  writeFileSync(
    join(folder, "nginx.conf"),
    `daemon off; pid nginx.pid; error_log error.log; worker_processes 1;
    events { worker_connections 64; }
    http {
      access_log off;
      ${temporary.join(" ")}
      server {
        listen 127.0.0.1:${port};
        location / { default_type text/plain; return 200 "$http_cookie"; }
        ${LOCATION.replace("5173", String(managerPort))}
      }
    }`,
  );
  const child = spawn(NGINX, ["-p", folder, "-c", "nginx.conf", "-e", "error.log"], { stdio: "ignore" });
  const ended = once(child, "exit");
  onTestFinished(async () => {
    child.kill("SIGTERM");
    await ended;
  });
  await soon(() => isOpen(port)).toBe(true);
  return port;
}

function isOpen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(port, "127.0.0.1");
    socket.on("connect", () => (socket.destroy(), resolve(true))).on("error", () => resolve(false));
  });
}

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
    for (const name of ["Routes", "Tail", "Configuration", "Edit"]) {
      await page.getByRole("link", { name, exact: true }).first().click();
      await soon(() => page.title()).toMatch(new RegExp(`^${name} · `));
    }
    await page.reload();
    await soon(() => page.title()).toMatch(/^Edit · /);

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
