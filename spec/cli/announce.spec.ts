import { describe, expect, it } from "vitest";
import { oneService } from "../support/gateway.ts";
import { logLines, runningProgram } from "../support/process.ts";
import { eventually } from "../support/raw_client.ts";

describe("the log of a start", () => {
  it("says that the proxies of the environment are not used, by the names of the variables alone", async () => {
    const environment = { HTTPS_PROXY: "http://user:hunter2@proxy.test:3128", all_proxy: "socks://p", HTTP_PROXY: "" };
    const { stderr } = await runningProgram(oneService(9), [], environment);
    const found = () => logLines(stderr()).filter(({ message }) => String(message).startsWith("proxies of"));
    await eventually(() => found().length === 1);
    expect(found()[0]).toMatchObject({
      level: "warn",
      message: "proxies of the environment are not used: HTTPS_PROXY, all_proxy",
    });
    expect(stderr()).not.toContain("hunter2");
  });
});
