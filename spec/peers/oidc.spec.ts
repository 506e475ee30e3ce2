/** The plugin kind `oidc` of the built gateway, with oidc-provider as the provider and Chromium as the browser. */
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { headerValue } from "../../lib/http/headers.ts";
import { backend, oneService } from "../support/gateway.ts";
import { freePort } from "../support/origin.ts";
import { blocksOf, document } from "../support/documents.ts";
import { ask } from "../support/raw_client.ts";
import { launch, visit, soon, type Browser, type Page } from "./browser.ts";
import { startBuilt } from "./built.ts";
import { nginxWith } from "./nginx.ts";

/** The parts of `oidc-provider` that are used here; without the package this file still compiles. */
interface Provider {
  callback(): RequestListener;
  on(event: string, act: (...given: never[]) => void): void;
  interactionFinished(request: IncomingMessage, response: ServerResponse, result: object): Promise<void>;
  interactionDetails(
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<{ prompt: { name: string }; session?: { accountId: string }; params: Record<string, string> }>;
  readonly Grant: new (of: object) => { addOIDCScope(scope: string): void; save(): Promise<string> };
}

const [STRIPPING = ""] = blocksOf(document("docs/behind-a-proxy.md"), "nginx");

const CLIENT = "gateway";
const SECRET = "a secret of the client, with thirty-two bytes";
const KEY = {
  ...generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" }),
  kid: "k1",
  use: "sig",
};

async function listening(port = 0) {
  const server = createServer();
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  onTestFinished(close);
  return { server, close, port: (server.address() as AddressInfo).port };
}

/** An oidc-provider for a gateway whose paths begin with `root`, whose login is one button. */
async function provider(root: string, settings: { port?: number; accessTtlS?: number } = {}) {
  const path = createRequire(import.meta.url).resolve("oidc-provider");
  const { default: Own } = (await import(pathToFileURL(path).href)) as {
    default: new (issuer: string, settings: object) => Provider;
  };
  const { server, port, close } = await listening(settings.port);
  const issuer = `http://localhost:${port}`;
  const own = new Own(issuer, {
    clients: [
      {
        client_id: CLIENT,
        client_secret: SECRET,
        redirect_uris: [`${root}/a/.oidc/callback`],
        post_logout_redirect_uris: [`${root}/bye`],
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        scope: "openid email offline_access",
      },
    ],
    claims: { openid: ["sub", "groups"], email: ["email"] },
    conformIdTokenClaims: false,
    findAccount: (_ctx: unknown, accountId: string) => ({
      accountId,
      claims: () => ({ sub: accountId, email: `${accountId}@shop.example`, groups: ["staff"] }),
    }),
    features: { devInteractions: { enabled: false }, rpInitiatedLogout: { enabled: true } },
    interactions: { url: (_ctx: unknown, { uid }: { uid: string }) => `/interaction/${uid}` },
    issueRefreshToken: () => true,
    rotateRefreshToken: () => true,
    pkce: { required: () => true },
    jwks: { keys: [KEY] },
    cookies: { keys: ["of a spec"] },
    ttl: {
      AccessToken: settings.accessTtlS ?? 600,
      IdToken: 600,
      RefreshToken: 3_600,
      Session: 3_600,
      Grant: 3_600,
      Interaction: 600,
      AuthorizationCode: 60,
    },
  });
  const counted = { refreshes: 0, logins: 0, refused: 0 };
  own.on(
    "grant.success",
    ((ctx: { oidc: { params: { grant_type: string } } }) =>
      void (ctx.oidc.params.grant_type === "refresh_token" && counted.refreshes++)) as never,
  );
  own.on("grant.error", (() => void counted.refused++) as never);
  const answer = own.callback();
  const interaction = async (request: IncomingMessage, response: ServerResponse) => {
    const { prompt, session, params } = await own.interactionDetails(request, response);
    if (prompt.name === "login" && request.method === "GET") {
      return void response
        .writeHead(200, { "Content-Type": "text/html" })
        .end('<title>Provider</title><form method="post"><button>Log in as ada</button></form>');
    }
    if (prompt.name === "login") {
      counted.logins++;
      return own.interactionFinished(request, response, { login: { accountId: "ada" } });
    }
    const grant = new own.Grant({ accountId: session!.accountId, clientId: CLIENT });
    grant.addOIDCScope(params["scope"]!);
    return own.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
  };
  server.on(
    "request",
    (request, response) =>
      void (request.url!.startsWith("/interaction/") ? interaction(request, response) : answer(request, response)),
  );
  return { issuer, port, counted, close };
}

const PAGES: Readonly<Record<string, string>> = {
  "/form": '<title>Form</title><form method="post" action="/a/save"><input name="text"><button>Save</button></form>',
};

/** A gateway with the plugin before an upstream with pages, and a provider for it. */
async function started({
  isProviderUp = true,
  accessTtlS = 600,
  front = (gatewayPort) => Promise.resolve(`http://localhost:${gatewayPort}`),
  ...config
}: {
  isProviderUp?: boolean;
  accessTtlS?: number;
  session?: object;
  /** Starts what is in front of the gateway; resolves with what browsers write before its paths. */
  front?: (gatewayPort: number) => Promise<string>;
} = {}) {
  const origin = await backend((request, response) => {
    const path = request.url!.split("?")[0]!;
    response
      .writeHead(200, { "Content-Type": "text/html" })
      .end(
        PAGES[path] ??
          `<title>${request.method} ${request.url}</title>of ${String(request.headers["x-user"])} ` +
            `${String(request.headers["x-email"])} ${String(request.headers["x-groups"])}`,
      );
  });
  // Of the provider; the gateway is started first.
  const port = await freePort();
  const settings = {
    issuer: `http://localhost:${port}`,
    ...{
      client_id: CLIENT,
      client_secret: SECRET,
      scopes: ["openid", "email", "offline_access"],
      after_logout_path: "/bye",
      groups_claim: "groups",
    },
    ...{ claims_to_headers: { sub: "X-User", email: "X-Email" } },
    ...config,
    session: { secret: "a secret for sessions of thirty-two bytes", cookie: "desk", ...config.session },
  };
  const plugins = [
    { name: "oidc", config: settings },
    { name: "request_headers", config: { set: { "X-Groups": "${caller.groups}" } } },
  ];
  const moved = { path: "/moved", plugins: [{ name: "redirect", config: { location: "/a/new" } }] };
  const whole = oneService(
    origin.port,
    { plugins, sticky: {}, routes: [moved, { path: "/{page*}" }] },
    { trusted_proxies: ["127.0.0.1"] },
  );
  const bye = { name: "bye", base_path: "/bye", upstreams: whole.services[0]!.upstreams, routes: [{ path: "/" }] };
  const built = await startBuilt({ ...whole, services: [...whole.services, bye] });
  const url = await front(built.port);
  const up = () => provider(url, { port, accessTtlS });
  return {
    origin,
    url,
    provider: isProviderUp ? await up() : null,
    up,
    file: built.file,
  };
}

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

const buttonOf = (page: Page) => page.getByRole("button", { name: "Log in as ada" });

async function logIn(page: Page, url: string): Promise<void> {
  await page.goto(url);
  await buttonOf(page).click();
}

const titleOf = (page: Page) => expect.poll(() => page.title());

describe("a person with a browser", () => {
  it(
    "a person with a browser logs in, returns to the page that was asked for, " + "and logs out at the provider, too",
    async () => {
      const { origin, url, provider } = await started();
      const { page } = await visit(browser);
      await logIn(page, `${url}/a/orders?id=7&x=%20y`);
      await titleOf(page).toBe("GET /orders?id=7&x=%20y");
      await soon(() => page.content()).toContain("of ada ada@shop.example staff");
      expect(page.url()).toBe(`${url}/a/orders?id=7&x=%20y`);
      const seen = origin.seen.at(-1)!;
      expect(headerValue(seen.headers, "cookie") ?? "").not.toContain("desk");
      const own = (await page.context().cookies()).filter(({ name }) => name.startsWith("desk"));
      expect(own).toMatchObject([{ name: "desk", httpOnly: true }]);
      await page.goto(`${url}/a/next`);
      expect(provider!.counted.logins).toBe(1);

      await page.goto(`${url}/a/.oidc/logout`);
      await page.getByRole("button", { name: /yes/i }).click();
      await titleOf(page).toBe("GET /");
      expect(page.url()).toBe(`${url}/bye`);
      expect((await page.context().cookies()).filter(({ name }) => name.startsWith("desk"))).toEqual([]);
      await page.goto(`${url}/a/orders`);
      await buttonOf(page).waitFor();
    },
  );

  it(
    "a person with a browser logs in and out behind an nginx that takes a prefix away, " +
      "where redirects and sticky cookies have it, too",
    async () => {
      const front = async (gatewayPort: number) => {
        const port = await nginxWith(
          `location / { return 200 "something else"; }`,
          STRIPPING.replace("8008", String(gatewayPort)),
        );
        return `http://localhost:${port}/edge`;
      };
      const { origin, url, provider } = await started({ front });
      const { page } = await visit(browser);
      await logIn(page, `${url}/a/orders?id=7`);
      await titleOf(page).toBe("GET /orders?id=7");
      expect(page.url()).toBe(`${url}/a/orders?id=7`);
      const route = (await page.context().cookies()).find(({ name }) => name === "route");
      expect(route).toMatchObject({ path: "/edge/a" });
      await page.goto(`${url}/a/moved`);
      expect(page.url()).toBe(`${url}/a/new`);
      expect(headerValue(origin.seen.at(-1)!.headers, "cookie")).toContain("route=");
      expect(provider!.counted).toMatchObject({ logins: 1, refused: 0 });

      await page.goto(`${url}/a/.oidc/logout`);
      await page.getByRole("button", { name: /yes/i }).click();
      await titleOf(page).toBe("GET /");
      expect(page.url()).toBe(`${url}/bye`);
    },
  );

  it("a person with a browser logs in in several tabs at once, each of which returns to its own page", async () => {
    const { url } = await started();
    const { page } = await visit(browser);
    const tabs = [page, await page.context().newPage(), await page.context().newPage()];
    await Promise.all(tabs.map((tab, i) => tab.goto(`${url}/a/tab${i}`)));
    for (const tab of tabs) await buttonOf(tab).waitFor();
    // In another order than they were opened.
    for (const i of [2, 0, 1]) {
      await buttonOf(tabs[i]!).click();
      await titleOf(tabs[i]!).toBe(`GET /tab${i}`);
    }
    expect((await page.context().cookies()).filter(({ name }) => name.startsWith("desk"))).toHaveLength(1);
  });

  it(
    "a person with a browser loses no form when the session ends: the page says so, " +
      "and the form is sent after a login in another window",
    async () => {
      const { origin, url } = await started();
      const { page } = await visit(browser);
      await logIn(page, `${url}/a/form`);
      await titleOf(page).toBe("Form");
      await page.locator("input").fill("a long text");
      await page.context().clearCookies();
      await page.getByRole("button", { name: "Save" }).click();
      await titleOf(page).toBe("A login is required");
      expect(origin.seen.some(({ method }) => method === "POST")).toBe(false);
      await soon(() => page.content()).toContain("This POST was not carried out");
      const link = await page.getByRole("link", { name: "Log in" }).getAttribute("href");
      expect(link).toBe("/a/form");
      const tab = await page.context().newPage();
      await logIn(tab, url + link!);
      await titleOf(tab).toBe("Form");
      await page.goBack();
      await soon(() => page.locator("input").inputValue()).toBe("a long text");
      await page.getByRole("button", { name: "Save" }).click();
      await titleOf(page).toBe("POST /save");
      expect(origin.seen.at(-1)!.body.toString()).toBe("text=a+long+text");
    },
  );

  it(
    "a person with a browser stays logged in over refreshes, " +
      "also with many requests at once and a refresh token that is accepted once",
    async () => {
      // A quarter of the life before its end, that is after three seconds.
      const { url, provider } = await started({ accessTtlS: 4 });
      const { page } = await visit(browser);
      await logIn(page, `${url}/a/x`);
      await titleOf(page).toBe("GET /x");
      const all = () =>
        page.evaluate<number[]>(
          `Promise.all(Array.from({ length: 10 }, () => fetch("/a/data").then((answer) => answer.status)))`,
        );
      await expect
        .poll(async () => ({ statuses: await all(), refreshed: provider!.counted.refreshes > 1 }), { interval: 500 })
        .toEqual({ statuses: Array.from({ length: 10 }, () => 200), refreshed: true });
      expect(provider!.counted).toMatchObject({ logins: 1, refused: 0 });
    },
  );

  it(
    "a person with a browser gets a page with a reason while the provider is down, " + "and logs in once it is up",
    async () => {
      const { url, up } = await started({ isProviderUp: false });
      const { page } = await visit(browser);
      await page.goto(`${url}/a/x`);
      await titleOf(page).toBe("The authorization of the request could not be checked");
      await up();
      await expect.poll(async () => (await page.goto(`${url}/a/x`), page.title()), { interval: 500 }).toBe("Provider");
      await buttonOf(page).click();
      await titleOf(page).toBe("GET /x");
    },
  );

  it(
    "a person with a browser cannot use the session of another gateway that has another secret, " +
      "nor begin a login for somebody else",
    async () => {
      const [first, second] = [
        await started(),
        await started({ session: { secret: "another secret for sessions of thirty-two" } }),
      ];
      const { page } = await visit(browser);
      await logIn(page, `${first.url}/a/x`);
      await titleOf(page).toBe("GET /x");
      // Cookies do not know ports: this browser sends the session of the first gateway to the second.
      await page.goto(`${second.url}/a/x`);
      await buttonOf(page).waitFor();
      // The way back of a login that another browser has begun.
      const asked = await ask(Number(new URL(first.url).port), {
        path: "/a/x",
        headers: { Host: new URL(first.url).host, Accept: "text/html" },
      });
      const state = new URL(asked.headers.location!).searchParams.get("state")!;
      const victim = (await visit(browser)).page;
      await victim.goto(
        `${first.url}/a/.oidc/callback?code=of-the-attacker&state=${state}&iss=` +
          `${encodeURIComponent(first.provider!.issuer)}`,
      );
      await titleOf(victim).toBe("The login was not completed");
      expect(first.provider!.counted.refused).toBe(0);
    },
  );

  it("scripts without a session get 401 and are not led away", async () => {
    const { url } = await started();
    const { page } = await visit(browser);
    await page.goto(`${url}/bye`);
    const status = await page.evaluate<[number, string, boolean]>(
      `fetch("/a/data", { headers: { Accept: "text/html" } }).then(async (answer) => [answer.status, ` +
        `(await answer.json()).code, answer.redirected])`,
    );
    expect(status).toEqual([401, "session_required", false]);
  });
});
