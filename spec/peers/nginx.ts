/** Debian's nginx in front of something, as the documents show it. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { freePort } from "../bench/peers/machine.ts";
import { isOpen } from "../support/listening.ts";
import { soon } from "./browser.ts";
import { emptyFolder } from "./built.ts";

export const NGINX = ["/usr/sbin/nginx", "/usr/bin/nginx"].find(existsSync) ?? "nginx";

/** An nginx whose server has these `location` blocks. Resolves with its port once it listens. */
export function nginxWith(...locations: string[]): Promise<number> {
  return nginxListening("", ...locations);
}

/** `options`: of `listen`. */
export async function nginxListening(options: string, ...locations: string[]): Promise<number> {
  const port = await freePort();
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${name};`);
  const http = `http {
      access_log off;
      ${temporary.join(" ")}
      server {
        listen 127.0.0.1:${port} ${options};
        ${locations.join("\n")}
      }
    }`;
  return started(port, http);
}

/** One that passes each connection on to a port, behind a header of the PROXY protocol, version 1. */
export async function nginxPassingTo(to: number): Promise<number> {
  const port = await freePort();
  const server = `listen 127.0.0.1:${port}; proxy_pass 127.0.0.1:${to}; proxy_protocol on;`;
  return started(port, `stream { server { ${server} } }`, "load_module /usr/lib/nginx/modules/ngx_stream_module.so;");
}

async function started(port: number, section: string, modules = ""): Promise<number> {
  const folder = emptyFolder();
  const main = "daemon off; pid nginx.pid; error_log error.log; worker_processes 1;";
  writeFileSync(join(folder, "nginx.conf"), `${modules} ${main} events { worker_connections 64; } ${section}`);
  const child = spawn(NGINX, ["-p", folder, "-c", "nginx.conf", "-e", "error.log"], { stdio: "ignore" });
  const ended = once(child, "exit");
  onTestFinished(async () => {
    child.kill("SIGTERM");
    await ended;
  });
  await soon(() => isOpen(port)).toBe(true);
  return port;
}
