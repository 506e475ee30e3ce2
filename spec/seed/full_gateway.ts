/** Starts the traffic and admin listeners from settings and a configuration file, as the program does. */
import { onTestFinished } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { start, type Started } from "../../lib/cli/start.ts";
import { readSettings } from "../../lib/config/settings.ts";
import { fileWith } from "../support/process.ts";
import { ask, type Answer, type Ask } from "../support/raw_client.ts";

export const USER = "admin";
export const PASSWORD = "admin-password";
export const BASIC = `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString("base64")}`;

export interface FullGateway {
  readonly started: Started;
  readonly file: string;
  /** {proxy_url} */
  readonly port: number;
  /** {admin_url} */
  readonly adminPort: number;
  /** A request to {proxy_url}. */
  proxy(path: string, more?: Ask): Promise<Answer>;
  /** A request to {admin_url}. */
  admin(method: string, path: string, headers?: Record<string, string>): Promise<Answer>;
  /** Logs in; resolves with the token. */
  login(): Promise<string>;
}

export async function fullGateway(config: unknown, environment: Record<string, string> = {}): Promise<FullGateway> {
  const file = fileWith(config);
  const read = readSettings(
    { "https-port": "0", "manager-port": "0", "listen-host": "127.0.0.1" },
    {
      HTTP_PORT: "0",
      ADMIN_PORT: "0",
      CONFIG_FILE_PATH: file,
      ADMIN_USER: USER,
      ADMIN_PASSWORD: PASSWORD,
      PERSISTENCE_CONFIG: "dbless",
      ...environment,
    },
  );
  if (!read.ok) throw new Error(read.issues.join("\n"));
  const started = await start(
    read.settings,
    { configFile: read.settings.configPath, reload: () => Promise.reject(new Error("nobody asks for it")) },
    silentLog,
  );
  onTestFinished(async () => {
    await started.gateway.close(0);
    await started.admin?.close();
    await started.manager?.close();
  });
  const port = Number(new URL(started.http[0]!).port);
  const adminPort = Number(new URL(started.adminUrl!).port);
  const admin: FullGateway["admin"] = (method, path, headers = {}) => ask(adminPort, { method, path, headers });
  return {
    started,
    file,
    port,
    adminPort,
    proxy: (path, more) => ask(port, { path, ...more }),
    admin,
    login: async () => tokenOf(await admin("POST", "/login", { Authorization: BASIC })),
  };
}

/** The value of the token cookie that a response sets. */
export function tokenOf(answer: Answer): string {
  return /^token=([^;]*)/.exec(answer.headers["set-cookie"]?.[0] ?? "")?.[1] ?? "";
}

export const json = (answer: Answer): any => JSON.parse(answer.body.toString());
