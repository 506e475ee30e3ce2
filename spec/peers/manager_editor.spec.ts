/** The editor of the configuration in a browser: typing, completion, errors where they stand, finding, undo, large texts, and what others write. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launch, type Browser } from "./browser.ts";
import { ACCEPTED, caretBehind, drawn, openEditor, selected, settled } from "./editor_stand_in.ts";
import { allFaultsOf, until } from "./manager_pages.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

const TEXT = `{
  "services": [
    {
      "name": "shop",
      "protocol": "http"
    }
  ]
}
`;

const SCHEMA = {
  type: "object",
  properties: {
    services: {
      type: "array",
      items: {
        type: "object",
        properties: {
          name: { description: "Its name.", type: "string", minLength: 1, maxLength: 200 },
          protocol: { description: "How it is spoken to.", enum: ["http", "https", "h2c"], default: "http" },
          preserve_host: { description: "Whether Host is kept.", type: "boolean", default: false },
          routes: { description: "Its routes.", type: "array", items: {} },
          caller: { type: "string" },
        },
      },
    },
    callers: { type: "array", items: { type: "object", properties: { id: { type: "string" } } } },
  },
};

const refused = (line: number, column: number, message: string) => ({ ...ACCEPTED, outcome: "refused", issues: [{ path: "services[0].name", line, column, message }] });

describe("typing", () => {
  it("shows the text in colour with line numbers, and indents new lines", async () => {
    const { page, field, errors } = await openEditor(browser, TEXT);
    expect(await drawn(page, "key")).toEqual(['"services"', '"name"', '"protocol"']);
    expect(await drawn(page, "text")).toEqual(['"shop"', '"http"']);
    expect((await page.locator(".editor__numbers").innerText()).split(/\s+/).filter((text) => text !== "")).toEqual(["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    await caretBehind(page, '"http"');
    await page.keyboard.type(',\n"x": 5');
    await until(page, `[...document.querySelectorAll(".editor__atom")].some(({ textContent }) => textContent === "5")`);
    expect(await field.inputValue()).toBe(TEXT.replace('"http"', '"http",\n      "x": 5'));
    expect(errors).toEqual([]);
  });

  it("can be undone and redone by keyboard and by button, what the editor inserted included", async () => {
    const { page, field } = await openEditor(browser, TEXT, { schema: SCHEMA });
    await caretBehind(page, '"http"');
    await page.keyboard.type(",");
    await page.keyboard.press("Enter");
    await page.keyboard.type('"pres');
    await page.getByRole("option", { name: /^preserve_host/ }).waitFor();
    await page.keyboard.press("Enter");
    const done = TEXT.replace('"http"', '"http",\n      "preserve_host": ');
    expect(await field.inputValue()).toBe(done);
    for (let i = 0; i < 12 && (await field.inputValue()) !== TEXT; i++) await page.keyboard.press("Control+z");
    expect(await field.inputValue()).toBe(TEXT);
    for (let i = 0; i < 12 && (await field.inputValue()) !== done; i++) await page.getByRole("button", { name: "Redo" }).click();
    expect(await field.inputValue()).toBe(done);
    await page.getByRole("button", { name: "Discard changes" }).click();
    expect(await field.inputValue()).toBe(TEXT);
    await page.getByRole("button", { name: "Undo" }).click();
    expect(await field.inputValue()).toBe(done);
  });

  it("leaves the field with Tab, shifts selected lines with Tab, and says so", async () => {
    const { page, field } = await openEditor(browser, TEXT);
    await page.getByText("Tab leaves the text.").waitFor();
    await caretBehind(page, '"name": "shop",\n      "proto', true);
    await page.keyboard.press("Tab");
    expect(await field.inputValue()).toBe(TEXT.replace('      "name"', '        "name"').replace('      "protocol"', '        "protocol"'));
    await page.keyboard.press("Shift+Tab");
    expect(await field.inputValue()).toBe(TEXT);
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Shift+Tab");
    expect(await page.evaluate("document.activeElement.textContent")).toBe("Review and apply");
    await page.keyboard.press("Tab");
    expect(await page.evaluate("document.activeElement.id")).toBe("editor-text");
    await page.keyboard.press("Tab");
    expect(await page.evaluate("document.activeElement.id")).not.toBe("editor-text");
    expect(await field.inputValue()).toBe(TEXT);
  });

  it("keeps every byte of the file that was not edited: its line ends and its byte order mark", async () => {
    const source = `\uFEFF${TEXT.replaceAll("\n", "\r\n")}`;
    const { page, standIn } = await openEditor(browser, source);
    expect(standIn.validated).toEqual([source]);
    await caretBehind(page, '"shop');
    await page.keyboard.type("s");
    await expect.poll(() => standIn.validated.at(-1)).toBe(source.replace("shop", "shops"));
    await page.keyboard.press("Backspace");
    await expect.poll(() => standIn.validated.at(-1)).toBe(source);
  });
});

describe("completion and help", () => {
  it("suggests fields and values at the caret, chosen by keyboard alone and named for screen readers", async () => {
    const { page, field } = await openEditor(browser, TEXT, { schema: SCHEMA });
    await caretBehind(page, '"name": "shop",');
    await page.keyboard.press("Enter");
    await page.keyboard.press("Control+Space");
    const options = page.getByRole("option");
    await options.first().waitFor();
    expect((await options.allInnerTexts()).map((text) => text.split(" ")[0])).toEqual(["preserve_host", "routes", "caller"]);
    const chosen = () => page.evaluate(`document.getElementById(document.querySelector("textarea").getAttribute("aria-activedescendant"))?.getAttribute("aria-selected")`);
    expect(await chosen()).toBe("true");
    await page.keyboard.press("ArrowDown");
    expect([await chosen(), await page.locator("[role=option][aria-selected=true]").innerText()]).toEqual(["true", "routes Its routes."]);
    await page.keyboard.press("Tab");
    expect(await field.inputValue()).toContain('"shop",\n      "routes": []\n');
    expect(await page.getByRole("listbox").count()).toBe(0);
    expect(await field.getAttribute("aria-activedescendant")).toBeNull();
    await caretBehind(page, '"protocol": "http"');
    for (let i = 0; i < 6; i++) await page.keyboard.press("Backspace");
    await page.keyboard.type('"h2');
    await page.getByRole("option", { name: "h2c" }).click();
    expect(await field.inputValue()).toContain('"protocol": "h2c"');
    await page.keyboard.press("Control+Space");
    await options.first().waitFor();
    await page.keyboard.press("Escape");
    await until(page, `document.querySelector("[role=listbox]").checkVisibility() === false`);
  });

  it("choose of what is suggested for the text of this moment, however quickly it was typed, and keep what has been chosen", async () => {
    const { page, field, standIn } = await openEditor(browser, TEXT, { schema: SCHEMA });
    // In one turn of the page, so that nothing has read the text between.
    const quickly = (...acts: readonly string[]) => page.evaluate(`(() => {
      const field = document.querySelector("textarea");
      const type = (text) => document.execCommand("insertText", false, text);
      const press = (key, more) => field.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true, ...more }));
      ${acts.join(";\n")};
    })()`);
    await caretBehind(page, '"name": "shop",');
    await quickly('press("Enter")', 'press(" ", { ctrlKey: true })', 'press("ArrowDown")');
    // The text that Enter has changed is read, and checked, a little later.
    await expect.poll(() => standIn.validated.length).toBe(2);
    expect(await page.locator("[role=option][aria-selected=true]").innerText()).toBe("routes Its routes.");
    await page.keyboard.press("Escape");
    for (const act of ['press("Tab")', 'press("Enter")', 'document.querySelector("[role=option]:last-child").dispatchEvent(new PointerEvent("pointerdown"))']) {
      await page.keyboard.type('"o');
      await page.getByRole("option", { name: /^preserve_host/ }).waitFor();
      await quickly('type("u")', act);
      expect(await field.inputValue()).toContain('"shop",\n      "routes": []\n');
      for (let i = 0; i < 12 && !(await field.inputValue()).includes('"shop",\n      \n'); i++) await page.keyboard.press("Control+z");
    }
    await page.keyboard.type('"o');
    await page.getByRole("option", { name: /^preserve_host/ }).waitFor();
    // Nothing is suggested for this text.
    await quickly('type("x")', 'press("Enter")');
    expect(await field.inputValue()).toContain('"shop",\n      "ox\n');
  });

  it("explains the field at the caret and below the pointer", async () => {
    const { page } = await openEditor(browser, TEXT, { schema: SCHEMA });
    await caretBehind(page, '"proto');
    const help = page.locator(".editor__help");
    await help.filter({ hasText: 'services[0].protocolHow it is spoken to.one of "http", "https", "h2c" · default "http"' }).waitFor();
    await page.evaluate(`(() => {
      const { left, top, width, height } = [...document.querySelectorAll(".editor__key")].find(({ textContent }) => textContent === '"name"').getBoundingClientRect();
      document.querySelector("textarea").dispatchEvent(new PointerEvent("pointermove", { clientX: left + width / 2, clientY: top + height / 2 }));
    })()`);
    await help.filter({ hasText: "services[0].nameIts name.string from 1 to 200 characters" }).waitFor();
  });
});

describe("problems", () => {
  it("are marked where they stand: an error of syntax at once, the rest as the gateway says", async () => {
    let answer!: (reply: readonly [number, unknown]) => void;
    const { page, field, standIn, errors } = await openEditor(browser, TEXT);
    standIn.validate = () => new Promise((resolve) => (answer = resolve));
    await caretBehind(page, '"http"');
    await page.keyboard.type(",");
    await until(page, `document.querySelector("textarea").getAttribute("aria-invalid") === "true"`);
    expect(await drawn(page, "error")).toEqual([","]);
    await page.getByText("remove the trailing comma").first().waitFor();
    await expect.poll(() => standIn.validated.length).toBe(2);
    answer([200, refused(4, 15, "a name of the gateway's choice")]);
    await settled(page);
    expect(await drawn(page, "error")).toEqual(['"shop"']);
    expect(await page.locator(".editor__problem").allInnerTexts()).toEqual(["Error\nLine 4, column 15\nservices[0].name: a name of the gateway's choice"]);
    await page.getByText("Checked by the gateway: one error, no warnings.").waitFor();
    // Text before and on other lines moves the mark until the next reply.
    await caretBehind(page, "{\n");
    await page.keyboard.type("\n\n");
    await until(page, `[...document.querySelectorAll(".editor__problem button")].some(({ textContent }) => textContent === "Line 6, column 15")`);
    await page.getByRole("button", { name: "Line 6, column 15" }).focus();
    await page.keyboard.press("Enter");
    expect([await page.evaluate("document.activeElement.id"), await selected(page)]).toEqual(["editor-text", '"shop"']);
    await page.locator(".editor__help").filter({ hasText: "a name of the gateway's choice" }).waitFor();
    expect(await field.inputValue()).toContain("shop");
    expect(errors).toEqual([]);
  });

  it("are reached with F8 and Shift+F8", async () => {
    const issues = [{ path: "a", line: 5, column: 19, message: "second" }, { path: "b", line: 4, column: 15, message: "first" }];
    const { page } = await openEditor(browser, TEXT, { validate: () => [200, { ...ACCEPTED, issues }] });
    await caretBehind(page, "{\n");
    const seen = [];
    for (const key of ["F8", "F8", "F8", "Shift+F8"]) {
      await page.keyboard.press(key);
      seen.push(await selected(page));
    }
    expect(seen).toEqual(['"shop"', '"http"', '"shop"', '"http"']);
  });

  it("are asked for again when the gateway is busy, and the page says that the text is not checked", async () => {
    let isBusy = false;
    const { page, standIn } = await openEditor(browser, TEXT, {
      validate: () => (isBusy ? [503, { status: 503, code: "overloaded", detail: "Other texts are being checked." }, { "Retry-After": "1" }] : [200, ACCEPTED]),
    });
    isBusy = true;
    await caretBehind(page, '"shop');
    await page.keyboard.type("s");
    await page.getByText("Not checked by the gateway. Other texts are being checked.").waitFor();
    isBusy = false;
    await settled(page);
    expect(standIn.validated.at(-1)).toContain("shops");
  });
});

describe("finding", () => {
  it("goes through the matches with Enter, counts them, and gives the focus back", async () => {
    const { page, field } = await openEditor(browser, TEXT);
    await field.focus();
    await page.keyboard.press("Control+f");
    await page.keyboard.type("E\"");
    await page.getByText("1 of 1", { exact: true }).waitFor();
    await page.keyboard.press("Backspace");
    await page.getByText("3 of 3", { exact: true }).waitFor();
    expect([(await drawn(page, "found")).length, await drawn(page, "current")]).toEqual([2, ["e"]]);
    await page.keyboard.press("Shift+Enter");
    await page.getByText("2 of 3", { exact: true }).waitFor();
    for (const place of ["3 of 3", "1 of 3"]) {
      await page.keyboard.press("Enter");
      await page.getByText(place, { exact: true }).waitFor();
    }
    await page.keyboard.type("nothing of this");
    await page.getByText("Not found", { exact: true }).waitFor();
    await page.keyboard.press("Escape");
    expect(await page.evaluate("document.activeElement.id")).toBe("editor-text");
    expect(await drawn(page, "found")).toEqual([]);
  });
});

describe("large texts", () => {
  it("are drawn only where they can be seen, to their end", async () => {
    const routes = Array.from({ length: 1250 }, (_, i) => ({ name: `route-${i}`, path: `/${i}` }));
    const text = JSON.stringify({ services: [{ name: "shop", routes }] }, null, 2);
    expect(text.split("\n").length).toBeGreaterThan(5000);
    const { page, standIn } = await openEditor(browser, text);
    await page.keyboard.press("Control+f");
    await page.getByRole("textbox", { name: "Text of the configuration" }).focus();
    await page.keyboard.press("Control+End");
    await until(page, `document.querySelector(".editor__numbers").textContent.includes("${text.split("\n").length}")`);
    expect(await page.evaluate(`document.querySelectorAll(".editor__row").length`)).toBeLessThan(100);
    await page.keyboard.press("Backspace");
    await until(page, `document.querySelector("textarea").getAttribute("aria-invalid") === "true"`);
    await expect.poll(() => standIn.validated.at(-1)?.length).toBe(text.length - 1);
  });

  it("of one line are shown without colours", async () => {
    const { page } = await openEditor(browser, `{"a": "${"x".repeat(6000)}"}`);
    expect([await drawn(page, "text"), await page.evaluate(`getComputedStyle(document.querySelector("textarea")).color !== "rgba(0, 0, 0, 0)"`)]).toEqual([[], true]);
  });
});

describe("what others have written", () => {
  const EVIL = `<img src=x onerror="window.caught = true"><script>window.caught = true</script>`;

  it("is text and never code: in the file, in its names as suggestions, in the schema, and in what the gateway says", async () => {
    const schema = { ...SCHEMA, properties: { ...SCHEMA.properties, [EVIL]: { description: EVIL, enum: [EVIL], default: EVIL, pattern: EVIL } } };
    const text = JSON.stringify({ callers: [{ id: EVIL }], services: [{ name: EVIL, caller: "" }], [EVIL]: "" }, null, 2);
    const problem = { line: 3, column: 7, path: EVIL, message: EVIL };
    const { page } = await openEditor(browser, text, { schema, validate: () => [200, { ...ACCEPTED, issues: [problem, { ...problem, file: EVIL }], warnings: [{ code: EVIL, ...problem, remedy: EVIL, service: null, route: null }] }] });
    const option = page.getByRole("option", { name: EVIL });
    await caretBehind(page, '"caller": "');
    await page.keyboard.press("Control+Space");
    await option.first().waitFor();
    await page.keyboard.press("Enter");
    await caretBehind(page, `${JSON.stringify(EVIL)}: "`);
    await page.keyboard.press("Control+Space");
    await option.first().waitFor();
    await page.keyboard.press("Escape");
    await page.locator(".editor__help").filter({ hasText: EVIL }).waitFor();
    await page.keyboard.press("F8");
    expect(await page.evaluate(`[window.caught === undefined, document.querySelectorAll("main img, main script").length]`)).toEqual([true, 0]);
  });
});

describe("a file that cannot be changed from here", () => {
  it("can be edited as a draft to download, and is not offered to be applied", async () => {
    const reason = "The configuration has to be signed – elsewhere.";
    const { page, field } = await openEditor(browser, TEXT, { headers: { "Source-Read-Only": encodeURIComponent(reason) } });
    await page.getByText(reason).waitFor();
    expect(await page.getByRole("link", { name: "Review and apply" }).count()).toBe(0);
    await caretBehind(page, '"shop');
    await page.keyboard.type("s");
    const downloading = page.waitForEvent("download");
    await page.getByRole("button", { name: "Download" }).click();
    const draft = await downloading;
    expect([draft.suggestedFilename(), readFileSync(await draft.path(), "utf8")]).toEqual(["gateway.json", await field.inputValue()]);
  });
});

describe("a file that was changed by somebody else", () => {
  const OTHER = TEXT.replace("shop", "store");

  it("is followed by a text that nobody has edited", async () => {
    const { page, field, standIn } = await openEditor(browser, TEXT);
    Object.assign(standIn, { source: OTHER, digest: "bbbbbbbbbbbb" });
    await until(page, `document.querySelector("textarea").value.includes("store")`);
    expect(await field.inputValue()).toBe(OTHER);
  });

  it("is reported beside a text that was edited, which stays until its changes are discarded", async () => {
    const { page, field, standIn } = await openEditor(browser, TEXT);
    await caretBehind(page, '"shop');
    await page.keyboard.type("s");
    Object.assign(standIn, { source: OTHER, digest: "bbbbbbbbbbbb" });
    await page.getByText("The file has been changed since you began.").waitFor();
    expect(await field.inputValue()).toBe(TEXT.replace("shop", "shops"));
    await page.getByRole("button", { name: "Discard changes" }).click();
    await page.getByText("The file has been changed since you began.").waitFor({ state: "detached" });
    await until(page, `document.querySelector("textarea").value.includes("store")`);
    expect(await field.inputValue()).toBe(OTHER);
  });
});

describe("for everybody", () => {
  it("the page has names, roles, contrast and room, with problems, suggestions and the find bar", async () => {
    const { page, field } = await openEditor(browser, TEXT, { schema: SCHEMA, validate: () => [200, { ...refused(4, 15, "wrong"), warnings: [{ code: "x", message: "Look at it.", service: null, route: null }], tests: { passed: 2, failed: 0 } }] });
    await page.getByText("Checked by the gateway: one error, one warning. Tests: 2 passed.").waitFor();
    expect([await field.getAttribute("aria-describedby"), await field.getAttribute("aria-invalid")]).toEqual(["editor-keys", "true"]);
    await field.focus();
    await page.keyboard.press("Control+f");
    await page.keyboard.type("shop");
    await caretBehind(page, '"http"');
    await page.keyboard.type(',"');
    await page.getByRole("option").first().waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
  });
});
