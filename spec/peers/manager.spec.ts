/**
 * The management UI as people meet it: the built gateway with its UI, in a real browser, from the login to the
 * sign-out.
 */
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { faultsOf, visit, soon } from "./browser.ts";
import { COMMON_NAME_ONLY } from "../support/more_certs.ts";
import { authority } from "../support/pki.ts";
import { fileWith } from "../support/process.ts";
import { CREDENTIALS, emptyFolder, startBuilt } from "./built.ts";
import {
  endSession,
  heading,
  openLogin,
  openOverview,
  remembered,
  replaced,
  resized,
  shareGateway,
  signIn,
  until,
  upstream,
} from "./manager_pages.ts";

const shared = shareGateway();

const open = (config: AnyConfigInput, options?: Parameters<typeof openLogin>[2]) =>
  openLogin(shared.browser, config, options);
const opened = (config: AnyConfigInput, options?: Parameters<typeof openOverview>[2]) =>
  openOverview(shared.browser, config, options);

const CHECK_MS = 500;

/** A shop with two upstreams that are checked, one of them a canary, and plugins on every level. */
function shop(ports: readonly number[]): AnyConfigInput {
  return {
    global: { name: "corner shop", plugins: [{ name: "cors", config: { allow_origins: ["https://shop.example"] } }] },
    services: [
      {
        name: "shop",
        base_path: "/shop",
        upstreams: ports.map((port, i) => ({
          id: `till-${i + 1}`,
          host: "127.0.0.1",
          port,
          ...(i > 0 && { group: "canary" }),
        })),
        split: [{ group: "canary", percent: 50 }],
        sticky: { cookie: "till" },
        health: { enabled: true, interval_ms: CHECK_MS, timeout_ms: 400, unhealthy_threshold: 1, healthy_threshold: 1 },
        plugins: [{ name: "request_size_limit", config: { max_payload_size: 1000 } }],
        routes: [
          {
            name: "list",
            path: "/items",
            methods: ["GET"],
            plugins: [
              { name: "key_auth", id: "shop-key", config: { key: "under-the-mat" } },
              { name: "rate_limit", config: { limit_second: 50 } },
            ],
          },
          { name: "item", path: "/items/{id}" },
        ],
      },
      {
        name: "<script>alert(1)</script>",
        base_path: "/odd",
        upstreams: [{ host: "127.0.0.1", port: ports[0]! }],
        routes: [{ name: 'a/b ?#%"', path: "/" }],
      },
    ],
  };
}

/** Requests one after the other until `stop`. */
function traffic(url: string): () => Promise<void> {
  let goesOn = true;
  const running = (async () => {
    while (goesOn) await fetch(url).then((response) => response.arrayBuffer());
  })();
  const stop = async () => {
    goesOn = false;
    await running;
  };
  onTestFinished(stop);
  return stop;
}

const PAGES: readonly (readonly [name: string, hash: string, heading: string])[] = [
  ["overview", "#/", "Overview"],
  ["services", "#/services", "Services"],
  ["service", "#/services/shop", "Service shop"],
  ["way through a service", "#/services/shop?tab=path", "Service shop"],
  ["routes", "#/routes", "Routes"],
  ["route", "#/routes/shop/list", "Route list"],
  ["failures of a route", "#/routes/shop/list?tab=failures", "Route list"],
  ["path of a request", "#/routes/shop/list?tab=path", "Route list"],
  ["settings of a route", "#/routes/shop/list?tab=settings", "Route list"],
  ["upstreams", "#/upstreams", "Upstreams"],
  ["upstream", "#/upstreams/shop/till-1", "Upstream till-1"],
  ["way to an upstream", "#/upstreams/shop/till-1?tab=path", "Upstream till-1"],
  ["plugins", "#/plugins", "Plugins"],
  ["callers", "#/callers", "Callers"],
  ["requests", "#/requests", "Requests"],
  ["request", "#/requests/..", "Requests"],
  ["try", "#/try", "Try it"],
  ["tests", "#/tests", "Tests"],
  ["configuration", "#/config", "Configuration"],
];

describe("the login page", () => {
  it(
    "the login page reports wrong credentials, delays further attempts, " + "and shows nothing before a login",
    async () => {
      const { page } = await open(shop([1, 2]));
      expect(await faultsOf(page)).toEqual([]);
      await signIn(page, "wrong");
      await page.getByText("The name or the password is wrong.").waitFor();
      for (let i = 0; i < 5; i++) {
        await signIn(page, `wrong ${i}`);
        await page.locator("button[type=submit][aria-busy=false]").waitFor();
      }
      await page.getByText(/Too many failed attempts/).waitFor();
      await page.getByRole("button", { name: /^Try again in/ }).waitFor();
      expect(await page.content()).not.toContain("till-1");
    },
  );

  it("the login page leads to the requested page, logs out, and reports the end of a session", async () => {
    const { page, managerUrl } = await open(shop([1, 2]));
    await page.goto(`${managerUrl}#/plugins`);
    await signIn(page);
    await heading(page, "Plugins");
    const device = expect.objectContaining({ name: "token-device", httpOnly: true, secure: true });
    expect(await page.context().cookies()).toEqual([
      expect.objectContaining({ name: "token", httpOnly: true, secure: true }),
      device,
    ]);
    await endSession(page, () => page.getByRole("link", { name: "Configuration" }).click());
    await page.getByText("Your session has ended. Sign in to continue.").waitFor();
    await signIn(page);
    await heading(page, "Configuration");
    await page.getByRole("button", { name: "Sign out" }).click();
    await heading(page, "Sign in");
    await page.getByText("You have signed out.").waitFor();
    // It says by which browser a login was tried, and opens nothing.
    expect(await page.context().cookies()).toEqual([device]);
    await page.goto(`${managerUrl}#/config`);
    await heading(page, "Sign in");
  });
});

describe("the back button", () => {
  it("the back button leads to the previous page, and never back to the login page", async () => {
    const { page, managerUrl } = await open(shop([1, 2]));
    await page.goto(`${managerUrl}#/plugins`);
    await heading(page, "Sign in");
    await signIn(page);
    await heading(page, "Plugins");
    await page.getByRole("link", { name: "Routes" }).click();
    await heading(page, "Routes");
    await page.goBack();
    await heading(page, "Plugins");
    await page.goBack();
    await until(
      page,
      'document.querySelector("h1") !== null && document.querySelector("h1").textContent !== "Sign in"',
    );
  });
});

describe("the overview", () => {
  it(
    "the overview updates under load, and shows within one check interval that an " + "upstream stopped or returned",
    async () => {
      const [one, two] = [await upstream(), await upstream()];
      const { page, url, errors, origins, managerUrl } = await opened(shop([one.port, two.port]));
      const LINES =
        '[...document.querySelectorAll("main svg path, main svg polyline")].map((each) => each.getAttribute("d") ' +
        '?? each.getAttribute("points")).join("|")';
      const line = () => page.evaluate<string>(LINES);
      const quiet = await line();
      const stop = traffic(`${url}/shop/items/7`);
      await until(page, '!/^0/.test(document.querySelector(".stat__value").textContent)');
      const changed = (from: string) => until(page, `${LINES} !== ${JSON.stringify(from)}`);
      await changed(quiet);
      await changed(await line());
      await stop();
      const upstreams = page.getByRole("link", { name: /till-2/ });
      await upstreams.filter({ hasText: "Healthy" }).first().waitFor();
      let questions = 0;
      page.on("request", (request) => void (new URL(request.url()).pathname === "/api/gateway/now" && questions++));
      await two.end();
      await upstreams
        .filter({ hasText: /Unhealthy|Down/ })
        .first()
        .waitFor();
      // The page asks each second, and an interval with its jitter, and the check, take as long as one of them: on a
      // slow machine both take longer.
      expect(questions).toBeLessThan(5);
      await upstream(two.port);
      await upstreams.filter({ hasText: "Healthy" }).first().waitFor();
      expect(errors).toEqual([]);
      expect([...origins]).toEqual([new URL(managerUrl!).origin]);
    },
  );

  it("names a certificate without alternative names by its common name", async () => {
    const folder = emptyFolder();
    const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
    writeFileSync(cert, COMMON_NAME_ONLY.cert);
    writeFileSync(key, COMMON_NAME_ONLY.key);
    const { page } = await opened(shop([1, 2]), {
      environment: { SERVER_CERT_PATH: cert, SERVER_KEY_PATH: key, HTTPS_PORT: "0" },
    });
    await page.getByText("till.internal (a common name only: browsers refuse it)").waitFor();
  });

  it("the overview shows when lists of revoked certificates end, the first one first", async () => {
    const listOf = (name: string, days: number) =>
      fileWith(authority(name).list({ to: Date.now() + days * 86_400_000 + 3_600_000 }), "ca.crl");
    const services = [listOf("partners", 30), listOf("suppliers", 2)].map((crl, i) => ({
      ...{ name: `s${i}`, base_path: `/s${i}`, protocol: "https" as const, tls: { crl } },
      ...{ upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path: "/" }] },
    }));
    const { page, errors } = await shared.openOverview({ services });
    const lists = page.getByRole("list", { name: "Revocation lists" }).getByRole("listitem");
    await soon(async () => (await lists.allInnerTexts()).map((text) => text.replace(/\s+/g, " "))).toEqual([
      "Revocation list of suppliers services.s1.tls.crl Expires in 2 days",
      "Revocation list of partners services.s0.tls.crl Expires in 30 days",
    ]);
    expect(await lists.locator(".badge--warn").count()).toBe(1);
    expect(errors).toEqual([]);
  });

  it("the overview shows a lost connection, and reconnects by itself", async () => {
    const gateway = await startBuilt(shop([1, 2]), {
      ADMIN_JWT_SECRET: "of at least thirty-two bytes, the same for both",
    });
    const { page } = await visit(shared.browser);
    const manager = await startBuilt(shop([1, 2]), {
      MANAGER: "true",
      MANAGER_PORT: "0",
      MANAGER_BACKEND_API_URL: gateway.adminUrl,
    });
    await page.goto(manager.managerUrl!);
    await signIn(page);
    await page.getByText("Live", { exact: true }).waitFor();
    gateway.process.kill("SIGKILL");
    await once(gateway.process, "exit");
    await page.getByText(/^Connection lost\..*Trying again/).waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await startBuilt(shop([1, 2]), {
      ADMIN_JWT_SECRET: "of at least thirty-two bytes, the same for both",
      ADMIN_PORT: new URL(gateway.adminUrl).port,
    });
    await page
      .getByText(/^Connection lost\./)
      .first()
      .waitFor({ state: "hidden" });
    await page.getByText("Live", { exact: true }).waitFor();
  });
});

describe("the configuration page", () => {
  it(
    "the configuration page hides secrets until the user reveals them, " +
      "and shows the result of reloading a broken and a corrected file",
    async () => {
      const config = shop([1, 2]);
      const { page, file, errors } = await shared.openOverview(config);
      await page.getByRole("link", { name: "Configuration" }).click();
      await heading(page, "Configuration");
      await page.getByRole("button", { name: "Open all" }).click();
      await page.getByText('"limit_second"').waitFor();
      expect(await page.content()).not.toMatch(/under-the-mat|peers-only/);
      await page
        .locator("section")
        .filter({ hasText: "AdminPassword" })
        .getByRole("button", { name: /Show|Reveal/ })
        .click();
      await page.getByText(CREDENTIALS.password).waitFor();
      replaced(file, '{ "services": [{ "name": "shop", "base_path": "shop" }] }');
      await page.getByRole("button", { name: "Reload the file" }).click();
      await page.getByText("Refused.", { exact: true }).waitFor();
      await page
        .getByText(/gw\.json:1:47 +services\[0\]\.base_path +expected a path that starts with "\/", found "shop"/)
        .first()
        .waitFor();
      const { services, ...others } = config;
      replaced(
        file,
        JSON.stringify({
          ...others,
          services: [{ ...services[0]!, routes: [...services[0]!.routes, { name: "fresh", path: "/fresh" }] }],
        }),
      );
      await page.getByRole("button", { name: "Reload the file" }).click();
      await page.getByText("Reloaded.", { exact: true }).waitFor();
      await page.getByRole("link", { name: "Routes" }).click();
      await page.getByRole("link", { name: "fresh" }).waitFor();
      expect(errors.filter((each) => !each.includes("422") && !each.includes("409") && !each.includes("400"))).toEqual(
        [],
      );
    },
  );
});

describe("the pages of services, routes, upstreams and plugins", () => {
  it("support search and sorting, and draw a route with its plugins in running order", async () => {
    const one = await upstream();
    const { page, errors } = await shared.openOverview(shop([one.port, one.port]));
    await page.getByRole("link", { name: "Routes" }).click();
    await heading(page, "Routes");
    const rows = () => page.locator("tbody tr:not([hidden])");
    await soon(() => rows().count()).toBe(3);
    await page.getByRole("searchbox").fill("items");
    await until(page, 'document.querySelectorAll("tbody tr:not([hidden])").length === 2');
    await page.getByRole("link", { name: "list", exact: true }).click();
    await heading(page, "Route list");
    await page.getByRole("link", { name: "Path", exact: true }).click();
    await page.locator(".stage--plugin").first().waitFor();
    const order = [
      "/shop/items",
      "cors",
      "request_size_limit",
      "key_auth",
      "rate_limit",
      "round_robin",
      "till-1",
      "till-2",
    ];
    const text = () => page.locator("main").innerText();
    const found = async () => {
      const shown = await text();
      const places = order.map((each) => shown.indexOf(each, shown.indexOf("Path of a request")));
      return order
        .filter((_each, i) => places[i]! >= 0)
        .sort((a, b) => places[order.indexOf(a)]! - places[order.indexOf(b)]!);
    };
    await soon(found).toEqual(order);
    expect(await text()).not.toContain("under-the-mat");
    await page.getByRole("link", { name: "Services" }).click();
    await page.getByRole("link", { name: "<script>alert(1)</script>" }).click();
    await heading(page, /<script>alert\(1\)<\/script>/);
    await page.getByRole("link", { name: "Path", exact: true }).click();
    await page.getByRole("link", { name: 'a/b ?#%"' }).first().click();
    await heading(page, /a\/b \?#%"/);
    expect(errors).toEqual([]);
  });
});

describe("the page Try it", () => {
  it(
    "the page Try it shows the matched route and why, the upstream's request, " +
      "and why another request matches none",
    async () => {
      const one = await upstream();
      const { page } = await shared.openOverview(shop([one.port, one.port]));
      await page.getByRole("link", { name: "Try it" }).click();
      await heading(page, "Try it");
      await page.getByLabel(/Path/).fill("/shop/items/7?x=1");
      await page.getByRole("button", { name: "Explain" }).click();
      await page.getByText("Handled by").waitFor();
      for (const each of ["/shop/items/{id}", "/items/7?x=1", "id = 7", "cors", "till-2"])
        await soon(() => page.locator("main").innerText()).toContain(each);
      await page.getByLabel(/Path/).fill("/nowhere");
      await page.getByRole("button", { name: "Explain" }).click();
      await page.getByText(/404/).first().waitFor();
      await page.getByLabel(/Path/).fill("/shop/../etc");
      await page.getByRole("button", { name: "Explain" }).click();
      await page.getByText(/400/).first().waitFor();
    },
  );
});

describe("the accessibility check", () => {
  it("the accessibility check finds missing names, low contrast, wrong heading order and clipped content", async () => {
    const { page } = await visit(shared.browser);
    const body =
      '<main><h1>One</h1><h3>Three</h3><input><p style="color:%23999;background:%23fff">pale</p><p ' +
      'style="color:%23777;font-size:24px">large</p><div style="width:3000px">wide</div></main>';
    await page.goto(`data:text/html,<!doctype html><title>x</title>${body}`);
    expect(await faultsOf(page)).toEqual([
      "the document says no language",
      "h3 follows h1: <h3>Three",
      "has no name: <input>",
      "contrast 2.85 below 4.5: <p>pale",
      expect.stringMatching(/^is 30\d\d pixels wide in a window of 1280$/),
    ]);
  });
});

describe("every page", () => {
  const WINDOWS = [
    ...[1280, 1020, 900, 700, 610, 360].map((width) => ({ width, colorScheme: "light" as const })),
    ...[1280, 360].map((width) => ({ width, colorScheme: "dark" as const })),
  ];

  it(
    "passes the accessibility check in windows of 360 to 1280 pixels, light and dark",
    { timeout: 600_000 },
    async () => {
      const [one, two] = [await upstream(), await upstream()];
      const { page, url, managerUrl, adminUrl, errors } = await shared.openOverview(shop([one.port, two.port]));
      const stop = traffic(`${url}/shop/items?apiKey=under-the-mat`);
      const faults: string[] = [];
      for (const { width, colorScheme } of WINDOWS) {
        await resized(page, width);
        await page.emulateMedia({ colorScheme });
        // Drawn for this window from the beginning.
        await page.reload();
        for (const [name, hash, title] of PAGES) {
          await page.goto(`${managerUrl}${hash}`);
          await heading(page, title);
          await until(page, '!/Waiting for/.test(document.querySelector("main").innerText)');
          if (name === "try") {
            await page.getByLabel(/Path/).fill("/shop/items?apiKey=x");
            await page.getByRole("button", { name: "Explain" }).click();
            await page.getByText("Handled by").waitFor();
          }
          if (name === "request") {
            const id = (await fetch(`${url}/shop/items/7`)).headers.get("x-request-id")!;
            await remembered(adminUrl, id);
            await page.goto(`${managerUrl}#/requests/${id}`);
            await page.getByText(/^The upstream till-\d answered 200\.$/).waitFor();
          }
          const sideways =
            '[...document.querySelectorAll(".table-wrap")].filter((wrap) ' +
            ("=> wrap.scrollWidth > wrap.clientWidth).map((wrap) " +
              "=> `a table is ${wrap.scrollWidth} pixels wide in ${wrap.clientWidth}`)");
          const all = [...(await faultsOf(page)), ...(await page.evaluate<string[]>(sideways))];
          faults.push(...all.map((each) => `${name}, ${width} pixels, ${colorScheme}: ${each}`));
        }
      }
      await stop();
      expect(faults).toEqual([]);
      expect(errors).toEqual([]);
    },
  );

  it("works by keyboard alone", async () => {
    const { page } = await open(shop([1, 2]));
    const focused = () =>
      page.evaluate<string>(
        '(document.activeElement?.getAttribute("id") || document.activeElement?.textContent || "").trim()',
      );
    await page.getByLabel("Name").focus();
    await page.keyboard.press("Tab");
    expect(await focused()).toBe("login-password");
    await signIn(page);
    await heading(page, "Overview");
    await page.reload();
    await heading(page, "Overview");
    await page.keyboard.press("Tab");
    expect(await focused()).toBe("Skip to the content");
    for (let i = 0; i < 10 && (await focused()) !== "Routes"; i++) await page.keyboard.press("Tab");
    expect(await focused()).toBe("Routes");
    await page.keyboard.press("Enter");
    await heading(page, "Routes");
    await page.getByRole("link", { name: "list", exact: true }).waitFor();
    // Focus has gone along, and is to be seen.
    await soon(() => page.evaluate("document.activeElement?.tagName")).toBe("H1");
    for (let i = 0; i < 12 && !(await page.evaluate('document.activeElement?.matches("th button")')); i++)
      await page.keyboard.press("Tab");
    const sorted = () =>
      page.evaluate<string | null>(
        'document.querySelector("th[aria-sort=ascending], th[aria-sort=descending]")?.textContent ?? null',
      );
    await soon(() =>
      page.evaluate(
        'getComputedStyle(document.activeElement).outlineStyle !== "none" || ' +
          'getComputedStyle(document.activeElement).boxShadow !== "none"',
      ),
    ).toBe(true);
    await page.keyboard.press("Enter");
    await expect.poll(sorted).not.toBe(null);
  });

  it(
    "weighs less than 60 KiB at first load, from the login to the overview, all of it from its own origin; " +
      "a page comes when it is opened",
    async () => {
      const { page, origins, managerUrl } = await open(shop([1, 2]));
      await signIn(page);
      await heading(page, "Overview");
      type Loaded = readonly (readonly [name: string, bytes: number])[];
      const entries = '[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]';
      const loaded = () =>
        page.evaluate<Loaded>(
          `${entries}.map(({ name, encodedBodySize }) => [new URL(name).pathname, ` +
            `encodedBodySize]).filter(([name]) => !name.startsWith("/api/"))`,
        );
      const first = await loaded();
      expect(first.map(([name]) => name.replace(/^\/[\w-]{16}/, ""))).toEqual(
        expect.arrayContaining(["/", "/main.js", "/overview.js", "/style.css"]),
      );
      expect(first.reduce((sum, [, bytes]) => sum + bytes, 0)).toBeGreaterThan(10_000);
      expect(first.reduce((sum, [, bytes]) => sum + bytes, 0)).toBeLessThan(60 * 1024);
      // Named by the page, so that nothing is asked for only when a module that imports it is there.
      const named = await page.evaluate<string[]>(
        '[...document.querySelectorAll("link[rel=modulepreload], script")].map((each) ' +
          "=> new URL(each.href ?? each.src).pathname)",
      );
      expect(first.map(([name]) => name).filter((name) => name.endsWith(".js") && !named.includes(name))).toEqual([]);
      const asked = (file: string) => async () => (await loaded()).some(([name]) => name.endsWith(file));
      expect(await asked("/tests_page.js")()).toBe(false);
      await page.getByRole("link", { name: "Tests", exact: true }).first().click();
      await heading(page, "Tests");
      await soon(asked("/tests_page.js")).toBe(true);
      // Of a second visit only the page itself is asked about.
      await page.goto(`${managerUrl}?again`);
      await heading(page, "Overview");
      expect(
        await page.evaluate<number>(
          'performance.getEntriesByType("resource").filter(({ name, transferSize }) ' +
            '=> !new URL(name).pathname.startsWith("/api/") && transferSize > 0).length',
        ),
      ).toBe(0);
      expect([...origins]).toEqual([new URL(managerUrl!).origin]);
    },
  );
});
