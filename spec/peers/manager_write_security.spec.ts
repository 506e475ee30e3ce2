/** What an attacker, an accident and a second person can do to changes from the management UI, in a real browser. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { fileWith } from "../support/process.ts";
import { signed, signingKeys } from "../support/signing_keys.ts";
import { drawn, soon, visit, visitIn, type Page } from "./browser.ts";
import {
  allFaultsOf,
  endSession,
  heading,
  loaded,
  openOverview,
  shareGateway,
  signIn,
  until,
  upstream,
} from "./manager_pages.ts";
import {
  answered,
  apply,
  draftRoute,
  goTo,
  openWriting,
  shows,
  textOf,
  withRoute,
  written,
  type OpenWriting,
} from "./manager_writing.ts";

const VIEWER = { ADMIN_VIEWER_USER: "eve", ADMIN_VIEWER_PASSWORD: "only-looking" };
const shared = shareGateway({ ADMIN_WRITE: "true", ...VIEWER });

const contentOf = ({ file }: Pick<OpenWriting, "file">) => readFileSync(file, "utf8");

/** Sends a request from within the page, as a script of it could; returns the status. */
function asked(
  page: Page,
  method: string,
  path: string,
  body: string,
  headers: Record<string, string> = {},
): Promise<number> {
  return page.evaluate(
    `fetch(${JSON.stringify(`/api${path}`)}, { method: "${method}", body: ${body}, headers: ` +
      `${JSON.stringify({ "Content-Type": "application/json", ...headers })} }).then(({ status }) => status)`,
  );
}

/** The digest of the file, as the interface tells it. */
function digestIn(page: Page): Promise<string> {
  return page.evaluate(`fetch("/api/gateway/source").then(({ headers }) => headers.get("etag"))`);
}

describe("a configuration whose every text is markup", () => {
  const EVIL = `<img src=x onerror="window.taken=1"><script>window.taken=1</script>"'&`;
  const NAME = encodeURIComponent(EVIL);
  /** Every page that shows something of a configuration. */
  const PAGES: readonly (readonly [hash: string, title: string])[] = [
    ["", "Overview"],
    ["services", "Services"],
    [`services/${NAME}`, "Service <img"],
    ["routes", "Routes"],
    [`routes/${NAME}/${NAME}`, "Route <img"],
    ["upstreams", "Upstreams"],
    [`upstreams/${NAME}/${NAME}`, "Upstream <img"],
    ["plugins", "Plugins"],
    ["callers", "Callers"],
    ["tests", "Tests"],
    ["config", "Configuration"],
    ["history", "History"],
    ["edit", "Edit"],
    [`requests/${NAME}`, "Requests"],
    [`requests?service=${NAME}&route=${NAME}&caller=${NAME}&code=${NAME}`, "Requests"],
    [`tail?service=${NAME}&route=${NAME}`, "Requests"],
    [`try?url=/a/x&headers=${NAME}`, "Try it"],
  ];

  it(
    "is shown as text by every page, form, review, warning, " +
      "issue and entry of the history, and nothing of it runs",
    async () => {
      const { port } = await upstream();
      // The last one is warned of.
      const plugins = [
        { id: EVIL, name: "request_headers", config: { set: { "X-A": EVIL } } },
        { id: `${EVIL} 2`, name: "rate_limit", config: { limit_second: 5, limit_by: "header:X-Tenant" } },
      ];
      const conditional = {
        name: `${EVIL} 3`,
        path: "/x",
        match: { headers: { "X-A": EVIL }, query: { [EVIL]: EVIL }, cookies: { plan: EVIL } },
      };
      const service = {
        name: EVIL,
        base_path: "/a",
        upstreams: [{ id: EVIL, host: "127.0.0.1", port, group: EVIL }],
        split: [{ group: EVIL, percent: 5 }],
        plugins,
        routes: [{ name: EVIL, path: "/x" }, conditional],
      };
      const config = {
        global: { name: "<img src=x onerror=alert(1)>" },
        callers: [{ id: EVIL, groups: [EVIL] }],
        services: [service],
        tests: [{ name: EVIL, request: { url: "/a/x" }, expect: { status: 200 } }],
      };
      const { page, errors } = await shared.openOverview(JSON.stringify(config, null, 2));
      const isClean = async () => {
        expect(
          await page.evaluate(
            "[document.querySelectorAll('img[src=x], main script, main style').length, window.taken === undefined]",
          ),
        ).toEqual([0, true]);
        expect(errors.filter((each) => !each.includes("422") && !each.includes("404"))).toEqual([]);
      };
      const look = async (pages: typeof PAGES) => {
        for (const [hash, title] of pages) {
          await goTo(page, `#/${hash}`, title);
          await loaded(page);
          await isClean();
        }
      };
      await look(PAGES);
      for (const [name, title] of [
        ["limit", "Add a rate limit"],
        ["upstream", "Add an upstream"],
        ["share", "Change the share"],
        ["caller", "Add a caller"],
      ] as const) {
        await goTo(page, `#/add/${name}`, title);
        await page.locator("form").waitFor();
        await isClean();
      }
      await goTo(page, `#/upstreams/${[EVIL, EVIL].map(encodeURIComponent).join("/")}?tab=edit`, "Upstream");
      await page.getByRole("link", { name: "Change the share" }).click();
      await page.getByLabel("Percent").waitFor();
      expect(await page.evaluate("document.querySelector('select').selectedOptions[0].text")).toBe(
        `${EVIL} / ${EVIL}, now 5 %`,
      );
      await isClean();
      await goTo(page, "#/add/route", "Add a route");
      await page.getByLabel("Name").fill(`${EVIL} 2`);
      await page.getByLabel("Path").fill("/y");
      await page.getByRole("button", { name: "Put into the draft" }).click();
      await heading(page, "Review");
      await shows(page, "Routes added: 1");
      await isClean();
      await apply(page);
      await shows(page, "In force by the one process.");
      await isClean();
      await look([
        ["history", "History"],
        ["config", "Configuration"],
        ["upstreams", "Upstreams"],
      ]);
      await page.locator("main td a").filter({ hasText: EVIL }).first().waitFor();
      await goTo(page, "#/add/route", "Add a route");
      await page.getByLabel("Name").fill(EVIL);
      await page.getByLabel("Path").fill(EVIL);
      await page.getByRole("button", { name: "Put into the draft" }).click();
      await shows(page, "The gateway would refuse this.");
      await isClean();
      await page.getByRole("button", { name: "Put it into the draft all the same" }).click();
      await shows(page, "The gateway would refuse it: ");
      await isClean();
    },
  );

  it("where no markup is allowed is text in the errors of a refused file and of the editor", async () => {
    const { text, page, errors } = await openWriting(shared);
    const {
      services: [service],
    } = JSON.parse(text) as { services: [object] };
    const plugins = [
      { name: EVIL, config: {} },
      { name: "request_headers", config: { set: { [EVIL]: "x" } } },
      { name: "rate_limit", config: { limit_second: EVIL } },
    ];
    const routes = [{ name: "r", path: EVIL, methods: [EVIL], match: { headers: { [EVIL]: "x" } } }];
    const wrong = {
      ...service,
      hosts: [EVIL],
      upstreams: [{ host: EVIL, port: EVIL }],
      sticky: { cookie: EVIL },
      [EVIL]: EVIL,
      plugins,
      routes,
    };
    expect(await shared.put(JSON.stringify({ [EVIL]: EVIL, services: [wrong] }, null, 2))).toBe(422);
    for (const [hash, title, said] of [
      ["", "Overview", "The last reload"],
      ["config", "Configuration", "The last reload was refused"],
      ["edit", "Edit", "Checked by the gateway: "],
    ] as const) {
      await goTo(page, `#/${hash}`, title);
      await shows(page, said);
      expect(
        await page.evaluate(
          "[document.querySelectorAll('img[src=x], main script, main style').length, window.taken === undefined]",
        ),
      ).toEqual([0, true]);
    }
    // Of hosts, upstreams, headers, cookies, methods, paths, kinds and fields.
    const shown = await page.locator(".editor__problem").allInnerTexts();
    expect(shown.filter((each) => each.includes("<img")).length).toBeGreaterThan(7);
    expect(errors).toEqual([]);
  });
});

/** A page of another origin, or of the same host name at another port. */
async function foreignPage(body: string): Promise<string> {
  const server = http.createServer((_request, response) => response.setHeader("Content-Type", "text/html").end(body));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return `:${(server.address() as AddressInfo).port}/`;
}

describe("a request that another page forges", () => {
  it(
    "with the session's cookie changes nothing, be it from another port of the " + "host or from another host",
    async () => {
      const text = written((await upstream()).port);
      // A gateway of its own, which was never asked to reload.
      const opened = await openOverview(shared.browser, text, { environment: { ADMIN_WRITE: "true" } });
      const { page, managerUrl } = opened;
      const manager = managerUrl!.replace(/\/$/, "");
      const place = await foreignPage(
        `<iframe name="f"></iframe><form target="f" method="post" enctype="text/plain" ` +
          `action="${manager}/api/gateway/reload"><input name="{" value="}"></form>`,
      );
      for (const host of ["localhost", "127.0.0.1"]) {
        const attacker = await page.context().newPage();
        await attacker.goto(`http://${host}${place}`);
        await attacker.evaluate("document.forms[0].submit()");
        for (const [method, path] of [
          ["PUT", "source"],
          ["POST", "validate"],
          ["POST", "reload"],
        ]) {
          for (const mode of ["cors", "no-cors"]) {
            const outcome = await attacker.evaluate(
              `fetch("${manager}/api/gateway/${path}", { method: "${method}", mode: "${mode}", credentials: ` +
                (`"include", headers: { "If-Match": "*" }, body: "{}" }).then(({ status, type }) ` +
                  `=> type + status, () => "failed")`),
            );
            expect(["failed", "opaque0"]).toContain(outcome);
          }
        }
        expect(
          await attacker.evaluate(
            `fetch("${manager}/api/gateway/source", { credentials: "include" }).then(({ status }) ` +
              `=> status, () => "failed")`,
          ),
        ).toBe("failed");
      }
      expect(contentOf(opened)).toBe(text);
      await goTo(page, "#/config", "Configuration");
      await shows(page, "none since the start");
    },
  );

  it("with a foreign Origin, or with Sec-Fetch-Site of another site, is 403; without a cookie it is 401", async () => {
    const opened = await openWriting(shared);
    const { page, managerUrl, text } = opened;
    const digest = await digestIn(page);
    const cookie = (await page.context().cookies()).map(({ name, value }) => `${name}=${value}`).join("; ");
    const put = async (headers: Record<string, string>, path = "source", method = "PUT") =>
      (
        await fetch(new URL(`/api/gateway/${path}`, managerUrl!), {
          method,
          headers: { "Content-Type": "application/json", "If-Match": digest, ...headers },
          body: text.replace("/open", "/other"),
        })
      ).status;
    for (const path of ["source", "validate", "reload"]) {
      const method = path === "source" ? "PUT" : "POST";
      expect(await put({ Cookie: cookie, Origin: "https://evil.example" }, path, method)).toBe(403);
      expect(await put({ Cookie: cookie, Origin: "null" }, path, method)).toBe(403);
      for (const site of ["cross-site", "same-site"])
        expect(await put({ Cookie: cookie, "Sec-Fetch-Site": site }, path, method)).toBe(403);
      expect(await put({}, path, method)).toBe(401);
      expect(await put({ Cookie: "token=forged" }, path, method)).toBe(401);
    }
    expect(contentOf(opened)).toBe(text);
    // A program that is no browser sends neither, and has the cookie because it has logged in.
    expect(await put({ Cookie: cookie })).toBe(200);
  });
});

describe("a viewer", () => {
  it("is shown no control that changes something, and is refused by the gateway with a forged request", async () => {
    const opened = await openWriting(shared);
    const { text } = opened;
    const { page } = await visit(shared.browser);
    await page.goto(opened.managerUrl!);
    await heading(page, "Sign in");
    await signIn(page, VIEWER.ADMIN_VIEWER_PASSWORD, VIEWER.ADMIN_VIEWER_USER);
    await heading(page, "Overview");
    await goTo(page, "#/upstreams/shop/v1", "Upstream v1");
    await page.getByText("Live", { exact: true }).waitFor({ state: "attached" });
    for (const name of ["Forms", "Review", "History", "Text"])
      expect(await page.getByRole("link", { name, exact: true }).count()).toBe(0);
    for (const name of ["Drain", "Eject", "Use again"])
      expect(await page.getByRole("button", { name }).count()).toBe(0);
    for (const [hash, title] of [
      ["#/services/shop", "Service shop"],
      ["#/routes/shop/open", "Route open"],
      ["#/upstreams/shop/v2", "Upstream v2"],
    ] as const) {
      await goTo(page, hash, title);
      await page.locator(".crumbs").waitFor();
      await page.evaluate('location.hash += "?tab=edit"');
      await page.getByRole("link", { name: "Traffic", exact: true }).waitFor();
      await page.locator(".tabs [aria-current]").getByText("Traffic").waitFor();
      expect(await page.getByRole("link", { name: "Edit", exact: true }).count()).toBe(0);
      expect(await page.getByRole("link", { name: /^(?:Add a|Change the)/ }).count()).toBe(0);
    }
    await goTo(page, "#/config", "Configuration");
    await shows(page, "AdminPassword");
    expect(await page.getByRole("button", { name: /^Show/ }).count()).toBe(0);
    for (const hash of ["#/apply", "#/history", "#/add/route"]) await goTo(page, hash, "Read only");
    const digest = await digestIn(page);
    expect(await asked(page, "PUT", "/gateway/source", JSON.stringify(text), { "If-Match": digest })).toBe(403);
    for (const path of ["validate", "reload"]) expect(await asked(page, "POST", `/gateway/${path}`, '"{}"')).toBe(403);
    expect(contentOf(opened)).toBe(text);
  });
});

describe("without ADMIN_WRITE", () => {
  it("no control is shown, and the gateway has no such path", async () => {
    const { page } = await openOverview(shared.browser, written((await upstream()).port));
    await goTo(page, "#/upstreams", "Upstreams");
    await page.getByRole("link", { name: "v1", exact: true }).waitFor();
    expect(await page.getByRole("link", { name: "Review", exact: true }).count()).toBe(0);
    await goTo(page, "#/upstreams/shop/v1?tab=edit", "Upstream v1");
    await page.locator(".tabs [aria-current]").getByText("Traffic").waitFor();
    expect(await page.getByRole("link", { name: "Edit", exact: true }).count()).toBe(0);
    expect(await page.getByRole("button", { name: /^Drain/ }).count()).toBe(0);
    await goTo(page, "#/apply", "Read only");
    expect(await asked(page, "PUT", "/gateway/source", '"{}"', { "If-Match": '"x"' })).toBe(404);
    for (const path of ["validate", "rollback", "upstreams/shop/v1"])
      expect(await asked(page, "POST", `/gateway/${path}`, '"{}"')).toBe(404);
  });
});

describe("a session that ends before Apply", () => {
  it("leads to the login and back, and the draft is there and can be applied", async () => {
    const opened = await openWriting(shared);
    const { page, text } = opened;
    await draftRoute(page, "kept");
    await shows(page, "Routes added: 1");
    await endSession(page, () => apply(page));
    await signIn(page);
    await heading(page, "Review");
    await shows(page, "Routes added: 1");
    expect(contentOf(opened)).toBe(text);
    await apply(page);
    await shows(page, "In force by the one process.");
    expect(contentOf(opened)).toContain('"kept"');
  });

  it(
    "and is followed by another user's login shows that user nothing of the draft, " +
      "also where the connection is lost then",
    async () => {
      const opened = await openWriting(shared);
      const { page } = opened;
      await draftRoute(page, "not-for-eve");
      await endSession(page, () => apply(page));
      await page.evaluate(
        '{ const own = fetch; window.fetch = (url, init) => (window.lost ?? url.includes("/gateway/now") ' +
          ("? (window.lost = true, Promise.reject(new TypeError())) : own(url, init)); window.restore = () " +
            "=> (window.fetch = own); }"),
      );
      await signIn(page, VIEWER.ADMIN_VIEWER_PASSWORD, VIEWER.ADMIN_VIEWER_USER);
      await until(page, "window.lost === true");
      await drawn(page);
      expect(await page.content()).not.toContain("not-for-eve");
      await page.evaluate("restore()");
      await page.getByText("Live", { exact: true }).waitFor({ state: "attached" });
      expect(await page.content()).not.toContain("not-for-eve");
    },
  );
});

describe("a sign-out", () => {
  it(
    "ends the draft, which no message says to be kept, " +
      "and an answer about the session that comes later is not taken for one about the next user's",
    async () => {
      const { managerUrl } = await openWriting(shared);
      const { page } = await visit(shared.browser);
      const late =
        'if (init.method === "POST" && url.endsWith("/session")) await new Promise((resolve) ' +
        "=> (window.arrive = resolve))";
      await page.addInitScript({
        content:
          `{ const own = fetch; window.fetch = async (url, init) => { const answer = await own(url, init); ` +
          `${late}; return answer; }; }`,
      });
      await page.goto(managerUrl!);
      await heading(page, "Sign in");
      await signIn(page);
      await heading(page, "Overview");
      // A session of which so much has passed is renewed at the next key.
      await page.evaluate("{ const now = Date.now; Date.now = () => now() + 10 * 3_600_000; }");
      await draftRoute(page, "not-for-eve");
      await until(page, "window.arrive !== undefined");
      await goTo(page, "#/edit", "Edit");
      await page.getByRole("button", { name: "Undo" }).waitFor();
      const signOut = () => page.getByRole("button", { name: "Sign out" }).first().click();
      await signOut();
      expect(await answered(page, "Cancel")).toBe("The draft has not been applied. Sign out and lose it?");
      expect(await page.evaluate("document.activeElement.textContent")).toBe("Sign out");
      await signOut();
      await answered(page, "Sign out");
      await page.getByText("You have signed out.").waitFor();
      await signIn(page, VIEWER.ADMIN_VIEWER_PASSWORD, VIEWER.ADMIN_VIEWER_USER);
      await page.getByText("eve, who reads only").waitFor();
      await page.evaluate("arrive()");
      await goTo(page, "#/apply", "Read only");
      await page.getByText("eve, who reads only").waitFor();
      expect(await page.content()).not.toContain("not-for-eve");
    },
  );
});

describe("a text that is too large", () => {
  it("is refused with 413, and the file stays as it is", async () => {
    const opened = await openWriting(shared);
    const { page, text } = opened;
    const digest = await digestIn(page);
    expect(await asked(page, "PUT", "/gateway/source", `"{" + " ".repeat(17e6) + "}"`, { "If-Match": digest })).toBe(
      413,
    );
    expect(await asked(page, "POST", "/gateway/validate", `"{" + " ".repeat(17e6) + "}"`)).toBe(413);
    expect(contentOf(opened)).toBe(text);
    await draftRoute(page, "small");
    await apply(page);
    await shows(page, "In force by the one process.");
  });
});

describe("a configuration that has to be signed", () => {
  it(
    "is edited as a draft to download and to be signed elsewhere: " +
      "it is neither applied nor rolled back from here, and the pages say so",
    async () => {
      const keys = signingKeys();
      const text = written((await upstream()).port);
      const environment = { ADMIN_WRITE: "true", CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem") };
      const opened = await openOverview(shared.browser, text, {
        environment,
        prepare: (file) => void signed(file, keys),
      });
      const { page, file, errors } = opened;
      const downloaded = async (button: string) => {
        const downloading = page.waitForEvent("download");
        await page.getByRole("button", { name: button }).click();
        const download = await downloading;
        return [download.suggestedFilename(), readFileSync(await download.path(), "utf8")];
      };
      await goTo(page, "#/edit", "Edit");
      await shows(page, "This text is a draft. The configuration has to be signed");
      await shows(page, "Checked by the gateway: no errors, one warning. Tests: 1 passed.");
      await draftRoute(page, "new");
      await shows(
        page,
        "It cannot be applied from here: download it. The configuration has to be signed " +
          "(CONFIG_PUBLIC_KEY): sign it elsewhere",
      );
      await shows(page, "The gateway would accept it with a signature.");
      await shows(page, "Routes added: 1");
      expect(await page.getByRole("button", { name: /^Apply/ }).count()).toBe(0);
      expect(await allFaultsOf(page)).toEqual([]);
      const draft = withRoute(text, "new");
      expect(await downloaded("Download the draft")).toEqual(["gateway.json", draft]);
      await goTo(page, "#/edit", "Edit");
      expect(await downloaded("Download")).toEqual(["gateway.json", draft]);
      const former = (await digestIn(page)).replaceAll('"', "");
      expect(await asked(page, "PUT", "/gateway/source", JSON.stringify(draft), { "If-Match": `"${former}"` })).toBe(
        409,
      );
      expect(contentOf(opened)).toBe(text);
      // Signed elsewhere, and both replaced.
      const next = signed(fileWith(draft), keys);
      renameSync(`${next}.sig`, `${file}.sig`);
      renameSync(next, file);
      await goTo(page, "#/history", "History");
      await until(page, 'document.querySelectorAll("main ol > li").length === 2');
      await shows(page, "Roll back is not possible from here. The configuration has to be signed");
      expect(await page.getByRole("button", { name: /^Roll back/ }).count()).toBe(0);
      expect(await asked(page, "POST", "/gateway/rollback", JSON.stringify(JSON.stringify({ digest: former })))).toBe(
        409,
      );
      expect(await allFaultsOf(page)).toEqual([]);
      expect(contentOf(opened)).toBe(draft);
      expect(errors.filter((each) => !each.includes("409"))).toEqual([]);
    },
  );
});

describe("a file that cannot be replaced", () => {
  /** The draft is refused with this reason once the file has become so, is kept, and can be taken away as a file. */
  async function expectRefused(opened: OpenWriting, become: () => void, reason: RegExp): Promise<void> {
    const { page, text } = opened;
    await draftRoute(page, "new");
    become();
    await apply(page);
    await shows(page, "Not applied. Your draft is kept.");
    await soon(() => textOf(page)).toMatch(reason);
    await page.getByRole("button", { name: "Download the draft" }).waitFor();
    expect(contentOf(opened)).toBe(text);
    expect(await allFaultsOf(page)).toEqual([]);
  }

  it("because it is read-only is a 409 with the reason", async () => {
    const opened = await openWriting(shared);
    await expectRefused(opened, () => chmodSync(opened.file, 0o444), /read-only/);
    // Who begins now is told so at once.
    const next = await visitIn(opened.page.context());
    await next.page.goto(`${opened.managerUrl}#/add/route`);
    await heading(next.page, "Add a route");
    await draftRoute(next.page, "other");
    await shows(next.page, "It cannot be applied from here: download it.");
    expect(await next.page.getByRole("button", { name: /^Apply/ }).count()).toBe(0);
  });

  it("because it is mounted from a ConfigMap of Kubernetes is a 409 with the reason", async () => {
    const opened = await openWriting(shared);
    const folder = dirname(opened.file);
    mkdirSync(join(folder, "..2026_11_28"));
    writeFileSync(join(folder, "..2026_11_28", "gw.json"), opened.text);
    symlinkSync("..2026_11_28", join(folder, "..data"));
    symlinkSync("..data/gw.json", join(folder, "new"));
    await expectRefused(opened, () => renameSync(join(folder, "new"), opened.file), /ConfigMap/);
  });

  it.skipIf(!canMount())(
    "because the disk is full is a 409 with the reason, and half a file is never seen",
    async () => {
      const opened = await openWriting(shared);
      const folder = join(dirname(opened.file), "small");
      mkdirSync(folder);
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]);
      onTestFinished(() => void execFileSync("umount", ["-l", folder]));
      writeFileSync(join(folder, "gw.json"), opened.text);
      symlinkSync("small/gw.json", join(dirname(opened.file), "new"));
      renameSync(join(dirname(opened.file), "new"), opened.file);
      try {
        writeFileSync(join(folder, "rest"), Buffer.alloc(1 << 20));
      } catch {
        // Full.
      }
      await expectRefused(opened, () => {}, /disk is full/);
    },
  );
});

/** A file system of its own is for root on a system that allows it. */
function canMount(): boolean {
  try {
    execFileSync("unshare", ["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], { stdio: "ignore" });
    return process.getuid?.() === 0;
  } catch {
    return false;
  }
}
