/** A gateway with a file, and its admin interface with ADMIN_WRITE. */
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { Writing } from "../../lib/admin/writing.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { createLog } from "../../lib/base/log.ts";
import { OF_ADMIN } from "../../lib/cli/admin_requests.ts";
import { reloadFrom } from "../../lib/cli/reloading.ts";
import { readSettings } from "../../lib/config/settings.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { CompleteOptions } from "../../lib/gateway/options.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { basic, cookieOf, startAdmin, type AdminChanges, type Asked, type Got } from "./harness.ts";

export const VIEWER = { user: "eve", password: "only looks" };
export const AS_VIEWER = basic(VIEWER.user, VIEWER.password);

export const withPort = (port: number, more: object = {}) => ({
  services: [
    {
      name: "s",
      base_path: "/s",
      upstreams: [{ id: "u", host: "127.0.0.1", port }],
      routes: [{ name: "r", path: "/x" }],
      ...more,
    },
  ],
});
export const digestOf = (text: string | Buffer) => createHash("sha256").update(text).digest("hex").slice(0, 12);

export interface Writable {
  readonly folder: string;
  readonly file: string;
  readonly gateway: Gateway;
  /** Of the admin interface. */
  readonly port: number;
  /** The Cookie header of the administrator. */
  readonly cookie: string;
  /** What the program has logged, one object for each line. */
  readonly lines: () => Record<string, any>[];
  /** What the file has. */
  readonly content: () => string;
  readonly ask: (method: string, path: string, asked?: Asked) => Promise<Got>;
  /** As the administrator. */
  readonly asAdmin: (method: string, path: string, asked?: Asked) => Promise<Got>;
  readonly asViewer: (method: string, path: string, asked?: Asked) => Promise<Got>;
  /** PUT /gateway/source of the administrator; `expected` is the digest in If-Match. */
  readonly put: (text: string | Buffer, expected?: string | null, headers?: Record<string, string>) => Promise<Got>;
  /** The administrator begins to send a text of 16 MiB, and stops. */
  readonly sendSlowly: (method: string, path: string, headers?: readonly string[]) => Socket;
}

interface Changes extends AdminChanges {
  /** Where the file is; default: "gw.json" in a new folder, which is there. */
  readonly path?: string;
  readonly keyFile?: string;
  readonly environment?: Record<string, string>;
  /** Default: as the system does. */
  readonly lookup?: NonNullable<CompleteOptions["lookup"]>;
}

export async function writable(
  config: object | string = withPort(1),
  { path, keyFile, environment = {}, lookup, ...changes }: Changes = {},
): Promise<Writable> {
  const folder = emptyFolder();
  const file = path ?? join(folder, "gw.json");
  if (path === undefined) writeFileSync(file, typeof config === "string" ? config : JSON.stringify(config));
  let logged = "";
  const log = createLog({ format: "json", level: "debug", write: (line) => void (logged += line) });
  const modules = withAllFeatures();
  const gateway = new Gateway({
    configFile: file,
    modules,
    log,
    environment,
    acme: "checked",
    ...(lookup && { lookup }),
  });
  onTestFinished(async () => void (await gateway.close(0)));
  const read = readSettings({ config: file }, {});
  if (!read.ok) throw new Error(read.issues.join());
  const settings = { ...read.settings, configKeyPath: keyFile ?? null };
  const reload: NonNullable<AdminChanges["reload"]> = (replacement, who) =>
    reloadFrom(gateway, { by: "admin", ...who }, settings, log, undefined, replacement);
  const writing = new Writing({
    gateway,
    settings,
    refresh: changes.refresh ?? (() => null),
    onRequest: OF_ADMIN,
    redactSecrets: changes.redactSecrets ?? false,
    clock: systemClock,
    reload,
    log,
  });
  writing.followGateway();
  const { ask, login, port } = await startAdmin({
    viewer: VIEWER,
    write: true,
    writing: writing.at,
    gateway,
    reload,
    log,
    ...changes,
  });
  const [admin, viewer] = [cookieOf(await login()), cookieOf(await login(AS_VIEWER))];
  const as =
    (cookie: string): Writable["ask"] =>
    (method, path, asked = {}) =>
      ask(method, path, { ...asked, headers: { cookie, ...asked.headers } });
  const asAdmin = as(admin);
  return {
    ...{ folder, file, gateway, port, cookie: admin, ask, asAdmin, asViewer: as(viewer) },
    sendSlowly(method, path, headers = []) {
      const socket = connect(port, "127.0.0.1").on("error", () => {});
      onTestFinished(() => void socket.destroy());
      const head = [
        `${method} ${path} HTTP/1.1`,
        "Host: localhost",
        `Cookie: ${admin}`,
        "Content-Type: application/json",
        `Content-Length: ${16 * 1024 * 1024}`,
        ...headers,
      ];
      socket.write(`${head.join("\r\n")}\r\n\r\n{`);
      return socket;
    },
    lines: () =>
      logged
        .split("\n")
        .slice(0, -1)
        .map((line) => JSON.parse(line) as Record<string, any>),
    content: () => readFileSync(file, "utf8"),
    put: (text, expected = digestOf(readFileSync(file)), headers = {}) =>
      asAdmin("PUT", "/gateway/source", {
        body: text as string,
        headers: {
          "content-type": "application/json",
          ...(expected !== null && { "if-match": `"${expected}"` }),
          ...headers,
        },
      }),
  };
}

export function emptyFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-write-"));
  // The history may still be written: it is beside the answer.
  onTestFinished(() => rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 20 }));
  return folder;
}
