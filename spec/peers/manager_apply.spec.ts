/**
 * Changes from the management UI: forms, review, Apply, history, Roll back, and upstreams taken out of traffic, in a
 * real browser.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { drawn, soon, visit, type Page } from "./browser.ts";
import {
  allFaultsOf,
  heading,
  openIncidents,
  replaced,
  resized,
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
  withRoute,
  type OpenWriting,
} from "./manager_writing.ts";

const shared = shareGateway({ ADMIN_WRITE: "true" });

const contentOf = ({ file }: OpenWriting) => readFileSync(file, "utf8");

describe("a change by a form", () => {
  it(
    "adds the first service of a gateway that has none, from every page, " + "and requests are then forwarded",
    async () => {
      const { port } = await upstream();
      const { page, url, errors } = await shared.openOverview({ services: [] });
      const bar = page.getByRole("navigation", { name: "Changes" });
      await bar.getByRole("link", { name: "Forms" }).click();
      await heading(page, "Add");
      expect(await bar.locator("[aria-current]").allInnerTexts()).toEqual(["Forms"]);
      await page.getByRole("link", { name: "Add a route" }).click();
      await page.getByRole("link", { name: "add a service" }).click();
      await heading(page, "Add a service");
      expect(await allFaultsOf(page)).toEqual([]);
      for (const [label, value] of [
        ["name required", "first"],
        ["base_path required", "/first"],
        ["host required", "127.0.0.1"],
        ["port required", String(port)],
      ] as const)
        await page.getByLabel(label, { exact: true }).fill(value);
      await page.getByRole("button", { name: "Put into the draft" }).click();
      await heading(page, "Review");
      await shows(page, "Routes added: 1");
      // The draft leaves a mark on every page.
      await goTo(page, "#/services", "Services");
      await page.getByText("Draft: 1 change, no tests", { exact: true }).waitFor();
      await bar.getByRole("link", { name: "Review", exact: true }).click();
      await heading(page, "Review");
      await apply(page);
      await shows(page, "In force by the one process.");
      await page.getByText("Draft:").waitFor({ state: "detached" });
      expect((await fetch(`${url}/first/of/all`)).status).toBe(200);
      expect(errors).toEqual([]);
    },
  );

  it(
    "is shown by meaning, by text and with its tests, and is then in the file, " + "with every other byte as it was",
    async () => {
      const opened = await openWriting(shared);
      const { page, text, url, errors } = opened;
      await goTo(page, "#/add/route", "Add a route");
      expect(await allFaultsOf(page)).toEqual([]);
      await draftRoute(page, "new");
      await shows(page, "Routes added: 1");
      await shows(page, "1 test passed");
      await shows(page, '+                 { "name": "new", "path": "/new" }');
      expect(contentOf(opened)).toBe(text);
      expect(await allFaultsOf(page)).toEqual([]);
      await apply(page);
      await shows(page, "In force by the one process.");
      await shows(page, 'service "shop" / route "new"');
      expect(contentOf(opened)).toBe(withRoute(text, "new"));
      expect((await fetch(`${url}/shop/new`)).status).toBe(200);
      expect(await allFaultsOf(page)).toEqual([]);
      expect(errors).toEqual([]);
    },
  );

  it(
    "makes a key that is shown once, works after Apply, " + "and is nowhere in the file or in the page afterwards",
    async () => {
      const opened = await openWriting(shared);
      const { page, url, errors } = opened;
      await goTo(page, "#/add/caller", "Add a caller with a key");
      await page.getByLabel("id required").fill("ada");
      await page.getByRole("button", { name: "Make a key" }).click();
      const key = await page.getByLabel("The new key").inputValue();
      expect(key).toMatch(/^[\w-]{43}$/);
      expect(await allFaultsOf(page)).toEqual([]);
      await page.getByRole("button", { name: "Put into the draft" }).click();
      // It stays until the user leaves.
      const review = page.getByRole("main").getByRole("link", { name: "Review and apply" });
      await review.waitFor();
      expect(await page.getByLabel("The new key").inputValue()).toBe(key);
      await page.getByRole("button", { name: "Copy the key" }).waitFor();
      expect(await allFaultsOf(page)).toEqual([]);
      await review.click();
      await heading(page, "Review");
      expect((await fetch(`${url}/shop/items/1`, { headers: { apiKey: key } })).status).toBe(401);
      await apply(page);
      await shows(page, "In force by the one process.");
      expect((await fetch(`${url}/shop/items/1`, { headers: { apiKey: key } })).status).toBe(200);
      expect(contentOf(opened)).toContain(createHash("sha256").update(key).digest("hex"));
      expect(contentOf(opened)).not.toContain(key);
      expect(await page.content()).not.toContain(key);
      await goTo(page, "#/add/caller", "Add a caller with a key");
      expect(await page.content()).not.toContain(key);
      // The digest is no secret: what has it can come into force again.
      await draftRoute(page, "later");
      await apply(page);
      await shows(page, "In force by the one process.");
      await goTo(page, "#/history", "History");
      await page
        .locator("main ol > li")
        .nth(1)
        .getByRole("button", { name: /^Roll back to/ })
        .waitFor();
      expect(errors).toEqual([]);
    },
  );

  it(
    "changes the share of a canary, and leads from the limits of a route to what " + "the gateway says about them",
    async () => {
      const opened = await openWriting(shared);
      const { page, text } = opened;
      const chosen = () => page.evaluate("document.querySelector('select').selectedOptions[0].text");
      await goTo(page, "#/upstreams/shop/v1?tab=edit", "Upstream v1");
      await page.getByRole("link", { name: "Open in the editor" }).waitFor();
      expect(await page.getByRole("link", { name: "Change the share" }).isVisible()).toBe(false);
      await goTo(page, "#/upstreams/shop/v2?tab=edit", "Upstream v2");
      await page.getByRole("link", { name: "Change the share" }).click();
      await page.getByLabel("Percent").waitFor();
      expect(await chosen()).toBe("shop / canary, now 5 %");
      await page.getByLabel("Percent").fill("25");
      await page.getByLabel("Percent").press("Enter");
      await heading(page, "Review");
      await apply(page);
      await shows(page, "In force by the one process.");
      expect(contentOf(opened)).toBe(text.replace('"percent": 5', '"percent": 25'));
      // Of a route that is gone meanwhile nothing else takes the place.
      await goTo(page, "#/add/limit?of=shop&of=gone", "Add a rate limit");
      await page.locator("select").waitFor();
      expect(await chosen()).toBe("shop / gone is not in the draft");
      expect(await page.getByRole("button", { name: "Put into the draft" }).count()).toBe(0);
      await goTo(page, "#/routes/shop/open?tab=edit", "Route open");
      await page.getByRole("link", { name: "Add a rate limit" }).click();
      await page.getByLabel("limit_hour").waitFor();
      expect(await chosen()).toBe("shop / open");
      await page.getByLabel("limit_hour").fill("0");
      await page.getByRole("button", { name: "Put into the draft" }).click();
      // The browser knows the bounds of the schema; what is beyond it the gateway says beside the field.
      expect(await page.evaluate("document.activeElement.validity.rangeUnderflow")).toBe(true);
      await page.getByLabel("limit_hour").fill("");
      await page.getByRole("button", { name: "Put into the draft" }).click();
      await shows(page, "The gateway would refuse this.");
      expect(await allFaultsOf(page)).toEqual([]);
      await page.getByRole("button", { name: "Put it into the draft all the same" }).click();
      await heading(page, "Review");
      // What the gateway would refuse cannot be pressed; neither routes nor tests are compared with an error.
      await shows(page, "The gateway would refuse it: 1 error.");
      await shows(page, "Routes and tests are compared once it has no errors.");
      const pressed = page.getByRole("button", { name: "Apply", exact: true });
      expect([await pressed.getAttribute("aria-disabled"), await pressed.getAttribute("aria-describedby")]).toEqual([
        "true",
        "apply-reason",
      ]);
      const sent: string[] = [];
      page.on("request", (request) => void (request.url().endsWith("/gateway/source") && sent.push(request.url())));
      await pressed.press("Enter");
      await drawn(page);
      expect(sent).toEqual([]);
      expect(await page.getByText("The configuration has no tests").count()).toBe(0);
      expect(
        await page
          .getByRole("link", { name: /^line \d+, column \d+$/ })
          .first()
          .getAttribute("href"),
      ).toMatch(/^#\/edit\?line=\d+&column=\d+$/);
      expect(contentOf(opened)).toBe(text.replace('"percent": 5', '"percent": 25'));
    },
  );

  it("says first that guards are lost, and on which routes, before it is applied", async () => {
    const opened = await openWriting(shared);
    const { page, text, url, file } = opened;
    await fetch(`${url}/shop/items/7`);
    // The draft of somebody who does not see that a guard goes with a plugin.
    await page.evaluate(
      `import(document.querySelector('script[type="module"]').src.replace(/[^/]+$/, ` +
        (`"draft.js")).then(async ({ draft }) => { await draft.load(); draft.setText(draft.text.replace(/, ` +
          `"plugins": .*?\\]/, "")); })`),
    );
    await goTo(page, "#/apply", "Review");
    await shows(page, "Guards are lost on 1 route.");
    await shows(page, "shop / items is no longer guarded by key_auth");
    await shows(page, "1 of 1 test failed.");
    await shows(page, "The gateway would refuse it: 1 failed test.");
    const pressed = page.getByRole("button", { name: "Apply, and lose guards" });
    expect(await pressed.getAttribute("aria-disabled")).toBe("true");
    await page.getByText("Draft: 1 change, 1 test failed, 1 guard lost", { exact: true }).waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    expect(readFileSync(file, "utf8")).toBe(text);
  });
});

/** Another person at the same gateway. */
async function another({ managerUrl }: OpenWriting): Promise<Page> {
  const { page } = await visit(shared.browser);
  await page.goto(managerUrl!);
  await heading(page, "Sign in");
  await signIn(page);
  await heading(page, "Overview");
  return page;
}

describe("two people who change at once", () => {
  it("lose nothing: the second one is told, sees the other change, puts the own one onto it, and applies", async () => {
    const opened = await openWriting(shared);
    const { page, text } = opened;
    const other = await another(opened);
    await draftRoute(other, "theirs");
    await goTo(page, "#/add/share", "Change the share of a canary");
    await page.getByLabel("Percent").fill("50");
    await page.getByRole("button", { name: "Put into the draft" }).click();
    await heading(page, "Review");
    await shows(page, "The gateway would accept it");
    await apply(other);
    await shows(other, "In force by the one process.");
    // Before anything is pressed; the bar says so on every page.
    await shows(page, "The file has been changed since you began.");
    expect(await page.getByRole("button", { name: "Apply", exact: true }).getAttribute("aria-disabled")).toBe("true");
    expect(await allFaultsOf(page)).toEqual([]);
    await page.getByRole("button", { name: "Look at the change" }).click();
    await shows(page, "The file has been changed by somebody else or by hand.");
    await shows(page, '{ "name": "theirs", "path": "/theirs" }');
    expect(contentOf(opened)).toBe(withRoute(text, "theirs"));
    expect(await allFaultsOf(page)).toEqual([]);
    await page.getByRole("button", { name: "Put my changes onto the new file" }).click();
    await shows(page, "The draft now has the changes of both.");
    await apply(page);
    await shows(page, "In force by the one process.");
    expect(contentOf(opened)).toBe(withRoute(text, "theirs").replace('"percent": 5', '"percent": 50'));
  });

  it("who changed the same lines are told so, and keep their drafts", async () => {
    const opened = await openWriting(shared);
    const { page, text, file } = opened;
    await draftRoute(page, "mine");
    replaced(file, withRoute(text, "by-hand"));
    await page.getByRole("button", { name: "Look at the change" }).click();
    await shows(page, "Your draft and the file differ in the same lines");
    expect(contentOf(opened)).toBe(withRoute(text, "by-hand"));
    await shows(page, '+                 { "name": "mine", "path": "/mine" }');
    // As it stands it is applied only by a button that says so.
    await apply(page, "Apply, and undo the change of the file");
    await shows(page, "In force by the one process.");
    expect(contentOf(opened)).toBe(withRoute(text, "mine"));
  });
});

describe("the history", () => {
  it(
    "shows what a rollback would change before it does that, and the file is then as it was, " +
      "with the change in the history, too",
    async () => {
      const opened = await openWriting(shared);
      const { page, text, errors } = opened;
      await draftRoute(page, "regretted");
      await apply(page);
      await shows(page, "In force by the one process.");
      await goTo(page, "#/history", "History");
      const first = page.locator("main ol > li").first();
      await first.getByText("In force", { exact: true }).waitFor();
      expect(await first.innerText()).toMatch(/by admin from 127\.0\.0\.1/);
      // The one before.
      const entry = page.locator("main ol > li").nth(1);
      await entry.getByRole("button", { name: /^Roll back to/ }).click();
      await shows(page, "Routes removed: 1");
      await shows(page, '−                 { "name": "regretted", "path": "/regretted" }');
      expect(contentOf(opened)).toBe(withRoute(text, "regretted"));
      expect(await allFaultsOf(page)).toEqual([]);
      await entry.getByRole("button", { name: "Cancel" }).click();
      expect(await page.evaluate("document.activeElement.textContent")).toBe("Roll back…");
      await page.keyboard.press("Enter");
      await shows(page, "Routes removed: 1");
      await entry.locator(".button--primary").click();
      await shows(page, "In force by the one process.");
      expect(contentOf(opened)).toBe(text);
      await soon(() =>
        page
          .locator("main ol > li")
          .allInnerTexts()
          .then((entries) => entries.slice(0, 2)),
      ).toEqual([expect.stringMatching(/In force/), expect.not.stringMatching(/In force/)]);
      expect(errors).toEqual([]);
    },
  );

  it("keeps a review that is open when the gateway's state comes later than the list", async () => {
    const opened = await openWriting(shared);
    const { page } = opened;
    await page.evaluate(
      `(() => {
        const ask = window.fetch;
        const held = new Promise((resolve) => { window.release = resolve; });
        window.fetch = async (...words) => {
          const answer = await ask(...words);
          if (String(words[0]).includes("/gateway/now")) await held;
          if (String(words[0]).endsWith("/gateway/history")) window.lists = (window.lists ?? 0) + 1;
          return answer;
        };
      })()`,
    );
    await draftRoute(page, "late");
    await apply(page);
    await expect.poll(() => contentOf(opened)).toBe(withRoute(opened.text, "late"));
    await goTo(page, "#/history", "History");
    const entry = page.locator("main ol > li").nth(1);
    await entry.getByRole("button", { name: /^Roll back to/ }).click();
    await shows(page, "Routes removed: 1");
    const lists = await page.evaluate<number>("window.lists");
    await page.evaluate("window.release()");
    await until(page, `window.lists > ${lists}`);
    await drawn(page);
    await shows(page, "Routes removed: 1");
  });
});

describe("an upstream", () => {
  it(
    "is drained, ejected and used again after a question, which says so for the last one; " +
      "by keyboard, and on a narrow screen",
    async () => {
      const opened = await openWriting(shared);
      const { page, url, text, errors } = opened;
      const questions: string[] = [];
      const press = (name: string) => page.getByRole("button", { name, exact: true }).press("Enter");
      const pressed = (name: string) =>
        until(
          page,
          `[...document.querySelectorAll('[aria-label="Traffic of upstream v1"] [aria-pressed=true]')].map((each) ` +
            `=> each.textContent).join() === ${JSON.stringify(name)}`,
        );
      await goTo(page, "#/upstreams/shop/v1", "Upstream v1");
      await resized(page, 360);
      await pressed("Use");
      expect(await allFaultsOf(page)).toEqual([]);
      await press("Eject");
      expect(await allFaultsOf(page)).toEqual([]);
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      expect(await page.evaluate("document.activeElement.textContent")).toBe("Eject");
      await press("Eject");
      // What has the focus then changes nothing.
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await pressed("Use");
      await press("Eject");
      questions.push(await answered(page, "Eject"));
      await pressed("Eject");
      await shows(page, "Taken out until it is used again");
      await shows(page, "Taken out since");
      expect(questions).toEqual([
        "Eject upstream “v1”? It gets no requests, until it is used again, over reloads too.",
      ]);
      expect(await page.evaluate("document.activeElement.textContent")).toBe("Eject");
      expect(await allFaultsOf(page)).toEqual([]);
      await goTo(page, "#/upstreams/shop/v2", "Upstream v2");
      await press("Drain");
      expect(await answered(page, "Drain")).toMatch(
        /^Nothing else of service “shop” can be used: requests will get 503\.\n+Drain upstream “v2”\?/,
      );
      await shows(page, "Taken out until");
      expect((await fetch(`${url}/shop/open`)).status).toBe(503);
      await goTo(page, "#/", "Overview");
      await openIncidents(page);
      await shows(page, "Taken out: drained");
      await shows(page, "Taken out: ejected");
      await shows(page, 'Upstream "v1"');
      await goTo(page, "#/upstreams/shop/v1", "Upstream v1");
      await press("Use");
      await answered(page, "Use");
      await pressed("Use");
      expect((await fetch(`${url}/shop/open`)).status).toBe(200);
      expect(contentOf(opened)).toBe(text);
      expect(errors).toEqual([]);
    },
  );
});

describe("by keyboard alone", () => {
  it("a form is filled in, reviewed and applied", async () => {
    const opened = await openWriting(shared);
    const { page, text } = opened;
    await goTo(page, "#/add/route", "Add a route");
    await page.getByLabel("Name").focus();
    for (const key of ["k", "e", "y", "Tab", "/", "k", "e", "y", "Enter"]) await page.keyboard.press(key);
    await heading(page, "Review");
    // By then the page moves nothing any more.
    await shows(page, "Routes added: 1");
    await page.getByRole("button", { name: "Apply", exact: true }).press("Enter");
    await shows(page, "In force by the one process.");
    expect(contentOf(opened)).toBe(withRoute(text, "key"));
    await until(page, "document.activeElement !== null");
  });
});
