/** Debian's nginx in front of something, as the documents show it. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
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
  await started(port, http);
  return port;
}

export interface Nginx {
  readonly port: number;
  stop(): Promise<void>;
  /** On the same port. */
  start(): Promise<void>;
}

export interface FilesOptions {
  readonly tls: { readonly cert: string; readonly key: string };
  /** Directives of its `location`. Default: none. */
  readonly location?: string;
}

/** One that has the files of a folder, over TLS. `requests`: "/gw.json 200", as it has logged them. */
export async function nginxWithFiles(
  folder: string,
  { tls, location = "" }: FilesOptions,
): Promise<Nginx & { requests(): readonly string[] }> {
  const port = await freePort();
  const own = emptyFolder();
  const log = join(own, "requests.log");
  writeFileSync(join(own, "cert.pem"), tls.cert);
  writeFileSync(join(own, "key.pem"), tls.key);
  const http = `http {
      log_format short "$request_uri $status";
      access_log ${log} short;
      server {
        listen 127.0.0.1:${port} ssl;
        ssl_certificate ${own}/cert.pem;
        ssl_certificate_key ${own}/key.pem;
        location / { root ${folder}; ${location} }
      }
    }`;
  // Its workers would not be allowed to read the folder.
  const user = process.getuid?.() === 0 ? "user root;" : "";
  const nginx = await started(port, http, user);
  return { ...nginx, requests: () => readFileSync(log, "utf8").trim().split("\n") };
}

/** One that passes each connection on to a port, behind a header of the PROXY protocol, version 1. */
export async function nginxPassingTo(to: number): Promise<number> {
  const port = await freePort();
  const server = `listen 127.0.0.1:${port}; proxy_pass 127.0.0.1:${to}; proxy_protocol on;`;
  const modules = "load_module /usr/lib/nginx/modules/ngx_stream_module.so;";
  await started(port, `stream { server { ${server} } }`, modules);
  return port;
}

/** `first`: directives before those of every nginx. Resolves once it listens. */
async function started(port: number, section: string, first = ""): Promise<Nginx> {
  const folder = emptyFolder();
  const main = "daemon off; pid nginx.pid; error_log error.log; worker_processes 1;";
  writeFileSync(join(folder, "nginx.conf"), `${first} ${main} events { worker_connections 64; } ${section}`);
  let stop = async () => {};
  const start = async () => {
    const child = spawn(NGINX, ["-p", folder, "-c", "nginx.conf", "-e", "error.log"], { stdio: "ignore" });
    const ended = once(child, "exit");
    stop = async () => {
      child.kill("SIGTERM");
      await ended;
    };
    await soon(() => isOpen(port)).toBe(true);
  };
  onTestFinished(() => stop());
  await start();
  return { port, start, stop: () => stop() };
}
