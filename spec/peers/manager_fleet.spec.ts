/** The page Process of a gateway whose configuration is in etcd: its source, and what the others run. */
import { expect, it } from "vitest";
import { fileWith, logLines, program, runningFile } from "../support/process.ts";
import { soon, visit } from "./browser.ts";
import { CREDENTIALS } from "./built.ts";
import { etcd } from "./etcd.ts";
import { heading, shareGateway, signIn } from "./manager_pages.ts";

const shared = shareGateway();

function configOf(path: string, plugins: readonly object[] = []) {
  const upstreams = [{ host: "127.0.0.1", port: 9 }];
  return { services: [{ name: "shop", base_path: "/shop", upstreams, routes: [{ path, plugins }] }] };
}

it("shows the source, each gateway with its configuration, and who has refused the published one", async () => {
  const store = await etcd();
  const url = store.urlOf("edge/gw.json");
  const publish = async (config: object, environment: Record<string, string> = {}) => {
    const { code, stderr } = await program(["publish", fileWith(config), url], { environment }).ended;
    expect([code, stderr]).toEqual([0, ""]);
  };
  await publish(configOf("/one"));
  const settings = { ADMIN_USER: CREDENTIALS.user, ADMIN_PASSWORD: CREDENTIALS.password, MANAGER: "true" };
  const [one, other] = [await runningFile(url, [], settings), await runningFile(url, [], { KEY: "a key" })];
  const { page, errors } = await visit(shared.browser);
  await page.goto(String(one.started.manager));
  await signIn(page);
  await heading(page, "Overview");
  // The page has asked once without a session.
  const before = errors.length;
  await page.goto(`${String(one.started.manager)}#/process`);
  await heading(page, "Process");
  await page.getByText(url).first().waitFor();
  const rows = page.getByRole("table", { name: "Fleet" }).getByRole("row");
  const texts = () => soon(async () => (await rows.allInnerTexts()).slice(1).map((text) => text.replace(/\s+/g, " ")));
  const { digest } = logLines(one.stderr()).find(({ digest }) => digest !== undefined) as { digest: string };
  const ports = [one.port, other.port].map(String).sort();
  await texts().toEqual(
    ports.map((port) => expect.stringMatching(new RegExp(`:${port} .*${digest}.* ready`, "i")) as string),
  );
  // The first one does not have the variable.
  await publish(configOf("/two", [{ name: "key_auth", config: { key: "${env:KEY}" } }]), { KEY: "a key" });
  const refused = rows.filter({ hasText: `:${one.port}` });
  await soon(() => refused.innerText()).toMatch(/KEY is not set/);
  await soon(() => rows.filter({ hasText: `:${other.port}` }).innerText()).not.toContain(digest);
  expect(errors.slice(before)).toEqual([]);
});
