/** Debian's HAProxy in front of something, or behind it. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { isOpen } from "../support/listening.ts";
import { soon } from "./browser.ts";
import { emptyFolder } from "./built.ts";

/** Resolves once all of these ports listen. `sections`: of its configuration, behind `global` and `defaults`. */
export async function haproxyWith(ports: readonly number[], ...sections: string[]): Promise<void> {
  const folder = emptyFolder();
  const path = join(folder, "haproxy.cfg");
  const before =
    "global\n maxconn 100\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n";
  writeFileSync(path, `${before}${sections.join("\n")}\n`);
  const child = spawn("haproxy", ["-db", "-f", path], { stdio: "ignore" });
  const ended = once(child, "exit");
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  for (const port of ports) await soon(() => isOpen(port)).toBe(true);
}
